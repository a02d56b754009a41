"""Kept originals: which of their formats are known, and how other files use that."""

from __future__ import annotations

import functools
import io
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.described import parse_module
from helpers.fewer_imports import late
from helpers.repository import PHOTOS
from PIL import Image

from shardwright.schemas.dataset import Dataset, stored_format, stored_formats

tfds = late("tensorflow_datasets")
schema_pb2 = pytest.importorskip("tensorflow_metadata.proto.v0.schema_pb2")

from google.protobuf import text_format  # noqa: E402
from helpers.tfds_reading import check_all, converted, examples_of, in_order, load, values_of  # noqa: E402

tf = late("tensorflow")

BIRDS = sorted((PHOTOS / "birds").glob("*.jpg"))[:4]
#: Kind of dataset -> formats of its sources, as extensions.
KINDS = {
    "jpeg": ("jpg", "jpg", "jpg", "jpg"),
    "webp too": ("jpg", "png", "jpg", "webp"),
}
STORED = {"jpeg": ("jpeg",), "webp too": ("jpeg", "png", "webp")}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Returns a function that returns the directory and the dataset of a kind, and converts each once."""

    @functools.cache
    def of_kind(kind: str) -> tuple[Path, Dataset]:
        root = tmp_path_factory.mktemp("kept")
        folder = root / "in" / "birds"
        folder.mkdir(parents=True)
        for bird, ending in zip(BIRDS, KINDS[kind], strict=True):
            with Image.open(bird) as picture:
                picture.resize((40, 30)).save(folder / f"{bird.stem}.{ending}")
        return converted(root / "out", input=str(root / "in"), image_format="keep", splits="a=0.5,b=0.5")

    return of_kind


@pytest.mark.parametrize("kind", KINDS)
def test_formats_are_counted_and_stated(made: Any, kind: str) -> None:
    directory, dataset = made(kind)
    for split in dataset.splits:
        records = examples_of(directory, dataset, split)
        found = Counter(values_of(record, "image/format")[0].decode() for record in records)
        assert dataset.formats[split] == found
    assert sum(map(Counter, dataset.formats.values()), Counter()) == Counter(KINDS[kind])
    assert stored_formats(dataset) == STORED[kind]
    assert stored_format(dataset) == ("jpeg" if kind == "jpeg" else "")
    schema = text_format.Parse((directory / "schema.pbtxt").read_text(), schema_pb2.Schema())
    features = {feature.name: feature for feature in schema.feature}
    assert set(features["image/format"].string_domain.value) == set(KINDS[kind])
    decodable = features["image/encoded"].image_domain.minimum_supported_image_fraction
    assert decodable == (kind != "webp too")
    feature = check_all(directory, dataset).info.features["image/encoded"]
    assert isinstance(feature, tfds.features.Image if decodable else tfds.features.Text)
    if decodable:
        assert feature.encoding_format == "jpeg"
        assert in_order(load(directory), "a")[0]["image/encoded"].shape == (30, 40, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_parse_py_decodes_every_format(made: Any, kind: str) -> None:
    directory, dataset = made(kind)
    module = parse_module(directory)
    assert ("decode_jpeg" in (directory / "parse.py").read_text()) == (kind == "jpeg")
    for split in dataset.splits:
        records = {values_of(record, "image/filename")[0]: record
                   for record in examples_of(directory, dataset, split)}  # fmt: skip
        found = list(module.load(split).as_numpy_iterator())
        assert len(found) == len(records) > 0
        for example in found:
            stored = values_of(records[example["image/filename"]], "image/encoded")[0]
            if kind == "jpeg":
                with Image.open(io.BytesIO(stored)) as picture:
                    decoded = np.asarray(picture)
            else:  # TensorFlow then chooses the faster transform of JPEG
                decoded = tf.io.decode_image(stored, channels=3, expand_animations=False).numpy()
            np.testing.assert_array_equal(example["image/encoded"], decoded)


def test_unknown_formats_mean_any_format(made: Any) -> None:
    directory, dataset = made("jpeg")
    document = json.loads((directory / "dataset.json").read_text())
    del document["formats"]
    older = Dataset.from_bytes(json.dumps(document).encode(), "dataset.json")
    assert older.fingerprint == dataset.fingerprint
    # Shards with an older ledger do not list formats.
    in_part = replace(dataset, formats={"a": dataset.formats["a"]})
    for unknown in (older, in_part):
        assert stored_formats(unknown) == ("jpeg", "png", "webp") and stored_format(unknown) == ""
    encoded = replace(
        older, plan=replace(older.plan, settings={**older.plan.settings, "image_format": "webp"})
    )
    assert stored_format(encoded) == "webp"
