"""Values of features, and records compared with their sources."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from shardwright.core.conversion import Converted, ShardRecipe, convert_ref
from shardwright.core.records.build import label_ids
from shardwright.core.validation.against import KEY, SOURCE, Leftover, bucket_leftovers, meet
from shardwright.core.validation.against_record import (
    ComparisonSettings,
    ExpectedRecord,
    compare_record,
    truth_of,
)
from shardwright.core.validation.values import value_problem
from shardwright.schemas.codes import FindingCode, Outcome
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.example import Feature, FeatureType
from shardwright.schemas.feature_roles import FeatureRole
from shardwright.schemas.findings import Finding
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.layouts import FeatureSpec
from shardwright.schemas.ledger import Entry


def is_wrong(values: list[Any], type_: FeatureType, role: FeatureRole) -> bool:
    return value_problem(Feature(type_, values), FeatureSpec("name", type_, (None,), role), True) is not None


@pytest.mark.parametrize(("role", "sound", "wrong"), [
    (FeatureRole.KEY, b"a/b.jpg", b"\xff"), (FeatureRole.SOURCE_SHA256, b"0a" * 32, b"0A" * 32),
])  # fmt: skip
def test_text_is_tested(role: FeatureRole, sound: bytes, wrong: bytes) -> None:
    assert not is_wrong([sound], FeatureType.BYTES, role) and is_wrong([wrong], FeatureType.BYTES, role)


@pytest.mark.parametrize("role", [FeatureRole.EXTRA, FeatureRole.CONSTANT])
def test_numbers_that_a_layout_declares_as_strings_are_not_read_as_text(role: FeatureRole) -> None:
    spec = FeatureSpec("name", FeatureType.FLOAT, (), role, value_type="string", value=(0.5,))
    feature = Feature(FeatureType.FLOAT, [0.5])
    assert value_problem(feature, spec, False) is None
    assert value_problem(feature, spec, True) is None


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_floats_are_tested(wrong: float) -> None:
    found = [
        is_wrong(values, FeatureType.FLOAT, FeatureRole.OBJECT_AREA)
        for values in ([0.5, 2.0], [0.5, wrong, 2.0], [math.inf, -math.inf])
    ]
    assert found == [False, True, True]


LABELS = ("cat", "dog")


def picture(path: Path, blue: int = 90) -> Path:
    image = Image.linear_gradient("L").resize((40, 30))
    Image.merge("RGB", (image, image.rotate(180), image.point(lambda _: blue))).save(path)
    return path


def converted(
    path: Path, label: str = "cat", **settings: object
) -> tuple[ImageRef, Converted, ComparisonSettings]:
    """Returns an image's reference, its conversion, and the facts about its dataset."""
    values = {"input": (str(path),), "resize": "20x20", **settings}
    chosen = replace(ConvertSettings(), **values)  # type: ignore[arg-type]
    layout = chosen.record_layout
    ref = ImageRef("a.png", str(path), label=label, split="train")
    result = convert_ref(ref, ShardRecipe(chosen, layout, label_ids(LABELS)))
    return ref, result, ComparisonSettings(layout.features, LABELS, layout.first_label, True, False)


def found(mine: Converted, ref: ImageRef, truth: Converted, facts: ComparisonSettings) -> list[FindingCode]:
    return [code for code, _ in compare_record(mine.example, ref, mine.entry, truth_of(truth), facts)]


def test_with_other_software_a_picture_must_only_look_the_same(tmp_path: Path) -> None:
    path = picture(tmp_path / "a.png")
    ref, fine, facts = converted(path)
    _, coarse, _ = converted(path, quality=80)
    assert fine.example != coarse.example
    assert found(coarse, ref, fine, facts) == [FindingCode.SOURCE_CHANGED]
    assert found(coarse, ref, fine, replace(facts, same_software=False)) == []


def test_with_other_software_a_different_picture_is_still_reported(tmp_path: Path) -> None:
    """Its record contains the right checksum, that of the source."""
    ref, right, facts = converted(picture(tmp_path / "a.png"))
    _, other, _ = converted(picture(tmp_path / "b.png", blue=200))
    sha256 = (right.entry.sha256.encode(), other.entry.sha256.encode())
    wrong = other._replace(example=other.example.replace(sha256[1], sha256[0]), entry=right.entry)
    for same in (True, False):
        settings = replace(facts, same_software=same)
        ((code, message),) = compare_record(wrong.example, ref, wrong.entry, truth_of(right), settings)
        assert code is FindingCode.SOURCE_CHANGED and "its image" in message


@pytest.mark.parametrize("layout", ["classification", "minimal", "tfrecorder", "raw_with_shape"])
def test_another_class_is_reported(tmp_path: Path, layout: str) -> None:
    path = picture(tmp_path / "a.png")
    ref, right, facts = converted(path, layout=layout)
    _, wrong, _ = converted(path, "dog", layout=layout)
    assert found(right, ref, right, facts) == []
    assert found(wrong, ref, right, facts) == [FindingCode.SOURCE_LABEL]


def test_a_changed_source_with_unchanged_kept_bytes_is_reported(tmp_path: Path) -> None:
    """Kept bytes still match the ledger, whatever the source is now."""
    ref, kept, facts = converted(picture(tmp_path / "a.png"), resize="", image_format="keep")
    assert kept.entry.stored == "kept"
    data = picture(tmp_path / "b.png", blue=3).read_bytes()
    truth = ExpectedRecord(
        Entry("a.png", Outcome.WRITTEN, sha256=hashlib.sha256(data).hexdigest()), data=data
    )
    problems = compare_record(kept.example, ref, kept.entry, truth, facts)
    assert [code for code, _ in problems] == [FindingCode.SOURCE_CHANGED]


def leftover(is_record: bool, key: str, sha256: str = "", label: str = "", split: str = "train") -> Leftover:
    code = FindingCode.SOURCE_MISSING if is_record else FindingCode.RECORD_MISSING
    place = (0, 17) if is_record else (None, None)
    return Leftover(is_record, Finding(code, "alone", "train-0", *place, key), sha256, label, split)


def met(items: list[Leftover], what: str) -> list[tuple[str, str | None]]:
    """Returns the codes and keys of the findings about leftovers, packed one by one."""
    buckets: dict[tuple[str, int], list[bytes]] = {}
    for item in items:
        for bucket, pack in bucket_leftovers([item], what, 16):
            buckets.setdefault(bucket, []).append(pack)
    results = [item for bucket in buckets.items() for item in meet(bucket)]
    findings = [item.finding if isinstance(item, Leftover) else item for item in results]
    return sorted((finding.code.value, finding.key) for finding in findings)


def test_one_key_in_two_splits_is_reported() -> None:
    items = [leftover(True, "a", "1"), leftover(False, "a", "1", split="test"), leftover(False, "b", "1")]
    assert met(items, KEY) == [("RECORD_MISSING", "b"), ("SOURCE_LABEL", "a")]


def test_equal_pictures_are_matched_within_their_class_first() -> None:
    """Two of four equal pictures were renamed, and none changed its class."""
    items = [
        leftover(True, "x/1", "same", "x"), leftover(True, "y/1", "same", "y"),
        leftover(False, "x/2", "same", "x"), leftover(False, "y/2", "same", "y"),
    ]  # fmt: skip
    for order in (items, items[::-1]):
        assert met(order, SOURCE) == [("SOURCE_MISSING", "x/1"), ("SOURCE_MISSING", "y/1")]
    assert met([items[0], items[3]], SOURCE) == [("SOURCE_LABEL", "x/1")]


def test_leftovers_without_a_checksum_are_not_matched() -> None:
    items = [leftover(True, "a"), leftover(False, "b")]
    assert met(items, SOURCE) == [("RECORD_MISSING", "b"), ("SOURCE_MISSING", "a")]
