"""Validation computes a dataset's statements again, so other statements need another version."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from shardwright.core.shards.shard_plan import recipes_of
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.dataset import STATEMENTS_VERSION, Dataset, Shard, has_own_digest, with_digest
from shardwright.schemas.layouts import CLASSIFICATION, DETECTION
from shardwright.schemas.plan import Plan
from shardwright.schemas.sidecars import with_sidecars

#: Digest of the statements of `STATEMENTS_VERSION`. If this test fails, raise that version and update the
#: digest.
KNOWN = {3: "86e497030b3ea1f494556a3c7a0f8a930ed0034f14b22c31b860ba28f02da0d1"}


def made(layout: str) -> Dataset:
    settings = replace(ConvertSettings(), layout=layout, resize="32x32", image_format="jpeg").identity()
    features = {"classification": CLASSIFICATION, "detection": DETECTION}[layout]
    return Dataset(
        name="pets",
        layout=layout,
        features=features.features,
        plan=Plan(("cat", "dog"), {"train": 1}, {"train": 10}, settings),
        versions={"shardwright": "0.1.0", "pillow": "12.0.0"},
        splits={"train": (Shard("train-00000-of-00001.tfrecord", 2, 10, "a" * 64),)},
        ledger={},
        class_counts={"train": {"cat": 1, "dog": 1}},
        first_label=features.first_label,
        formats={"train": {"jpg": 2}},
        statements_version=STATEMENTS_VERSION,
    )


def test_changed_statements_need_another_version() -> None:
    digest = hashlib.sha256()
    for layout in ("classification", "detection"):
        dataset, contents = with_sidecars(made(layout))
        recipes = recipes_of(dataset.plan.settings, dataset.versions)
        for text in (*sorted(dataset.sidecars.values()), *recipes):
            digest.update(text.encode())
        assert sorted(contents) == sorted(dataset.sidecars)
    assert digest.hexdigest() == KNOWN[STATEMENTS_VERSION]


def test_a_document_contains_its_own_digest() -> None:
    document = made("classification").as_json()
    assert list(document)[-1] == "digest" and has_own_digest(document)
    assert not has_own_digest({**document, "name": "dogs"})
    assert not has_own_digest({"name": "dogs"})
    assert with_digest(with_digest(document)) == document
