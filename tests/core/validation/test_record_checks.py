"""Findings in single records: encodings, values of features, and what differs from their sources."""

from __future__ import annotations

import base64
import hashlib
import math
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.pictures import file_of
from helpers.repository import PHOTOS
from PIL import Image

from shardwright.core.conversion import Converted, ShardRecipe, convert_ref
from shardwright.core.images.convert import ConvertedImage
from shardwright.core.images.geometry import Frame, plan_geometry
from shardwright.core.records.build import build_example, label_ids
from shardwright.core.records.record_schema import RecordSchema
from shardwright.core.validation.against import KEY, SOURCE, Leftover, bucket_leftovers, meet
from shardwright.core.validation.against_record import (
    ComparisonSettings,
    ExpectedRecord,
    compare_record,
    truth_of,
)
from shardwright.core.validation.image import DeclaredImage, check_image
from shardwright.core.validation.record import RecordChecker
from shardwright.core.validation.values import value_check
from shardwright.schemas.codes import FindingCode, Outcome
from shardwright.schemas.columns import encode_extra
from shardwright.schemas.configuration.layout_file import parse_layout_file
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.example import Feature, FeatureType, encode_example, parse_example, serialize_tensor
from shardwright.schemas.findings import Finding
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.layouts import FeatureRole, FeatureSpec, Layout, layout_by_name
from shardwright.schemas.ledger import Entry

LABELS = ("cat", "dog", "owl")
HEIGHT, WIDTH = 3, 5
PIXELS = bytes(range(HEIGHT * WIDTH * 3))
TENSORS = """
pixels: true
features:
  picture: {fill: encoded, tensor: true}
  id: {fill: label, tensor: true}
  size: {fill: shape, tensor: true}
  name: {fill: label_text, base64: true}
  tags: {column: tags, type: string, shape: [null], base64: true}
  numbers: {column: numbers, type: int32, shape: [2, 2], tensor: true}
  price: {column: price, type: float, optional: true}
"""
MAYBE = """
extends: tutorial
features:
  label: {fill: label, optional: true}
  name: {fill: label_text, optional: true}
  boxes: {fill: boxes, tensor: true, optional: true}
"""
BOXES = """
extends: minimal
needs: objects
drop: [label]
features:
  boxes: {fill: boxes}
  ids: {fill: object_label}
  masks: {fill: object_mask, base64: true}
  size: {fill: shape}
"""


def layout_of(layout_text: str) -> Layout:
    return parse_layout_file(layout_text, "mine.yaml") if "\n" in layout_text else layout_by_name(layout_text)


def jpeg() -> bytes:
    return file_of(Image.frombytes("RGB", (WIDTH, HEIGHT), PIXELS), "JPEG")


def png(width: int = WIDTH, height: int = HEIGHT) -> bytes:
    return file_of(Image.new("L", (width, height)), "PNG")


def found_in(
    layout_text: str, change: Mapping[str, Feature | None], label: str = "dog", pixels: Any = None,
    annotated: Mapping[FeatureRole, Any] | None = None, **schema: Any,
) -> list[str]:  # fmt: skip
    """Writes a record of a layout, changes features (None leaves one out), and checks it."""
    layout = layout_of(layout_text)
    extra = encode_extra({"tags": ["a", "ü"], "numbers": [1, 2, 3, 4]})
    ref = ImageRef(key="dog/a.jpg", uri="a.jpg", label=label, split="train", extra=extra)
    image = ConvertedImage(
        encoded=PIXELS if layout.pixels else jpeg(),
        format="raw" if layout.pixels else "jpg",
        height=HEIGHT, width=WIDTH, channels=3, kept=False, animated=False,
        frame=Frame((WIDTH, HEIGHT), 1, plan_geometry(WIDTH, HEIGHT, None, "stretch")),
    )  # fmt: skip
    ids = label_ids(LABELS, layout.first_label)
    record = build_example(layout, ids, ref, image, "0" * 64, annotated)
    features: dict[str, Any] = {**parse_example(record), **change}
    data = encode_example({name: value for name, value in features.items() if value is not None})
    if layout.pixels and pixels is None:
        pixels = (HEIGHT, WIDTH, 3) if layout_text == "raw" else (None, None, 3)
    promised = RecordSchema(layout.features, LABELS, layout.first_label, pixels=pixels, **schema)
    problems = RecordChecker(promised, decode=True).check(data).problems
    return [f"{code.value}: {message}" for code, message in problems]


def texts(*values: bytes) -> Feature:
    return Feature(FeatureType.BYTES, values)


def numbers(*values: int) -> Feature:
    return Feature(FeatureType.INT64, values)


def tensor(values: Any, dtype: str, *shape: int) -> Feature:
    return texts(serialize_tensor(values, dtype, shape))


@pytest.mark.parametrize(
    "layout_text", ["raw", "raw_with_shape", "tfrecorder", "tfds", "imagenet", TENSORS, MAYBE]
)
def test_written_records_are_sound(layout_text: str) -> None:
    assert found_in(layout_text, {}) == []
    assert found_in(layout_text, {}, label="", unlabelled=True) == []
    if layout_of(layout_text).pixels:
        assert found_in(layout_text, {}, pixels=(HEIGHT, WIDTH, 3)) == []


def test_metadata_is_looked_for_only_in_files_that_can_be_decoded() -> None:
    webp = b"RIFF\x10\0\0\0WEBPVP8X".ljust(len(PIXELS), b"\0")
    assert found_in("raw", {"image": texts(webp)}) == []
    changes = {"image/encoded": texts(webp), "image/format": texts(b"webp")}
    assert [text.partition(":")[0] for text in found_in("classification", changes)] == ["UNDECODABLE"]


#: Layout -> changes of the features of a record, and the finding; "" if there is none.
DEFECTS: dict[str, list[tuple[Mapping[str, Feature | None], str]]] = {
    "tfrecorder": [
        ({"image": texts(b"no base64!")}, "UNDECODABLE: feature 'image' is not URL-safe base64"),
        ({"image": texts(base64.b64encode(b"\xff\xff\xff"))}, "UNDECODABLE: feature 'image' is not"),
        ({"image_height": numbers(5)}, "SIZE_MISMATCH: 45 raw bytes are not 5 x 5 x 3"),
        ({"image_channels": numbers(1)}, "SIZE_MISMATCH: its channels is 3 and 1"),
        ({"label": numbers(3)}, "LABEL_RANGE: label 3 is not between 0 and 2"),
    ],
    "raw": [
        ({"image": texts(PIXELS + b"x")}, "SIZE_MISMATCH: 46 raw bytes are not 3 x 5 x 3"),
        ({"image": texts(b"")}, "SIZE_MISMATCH: 0 raw bytes are not"),
    ],
    "raw_with_shape": [
        ({"shape": numbers(4, 5, 3)}, "SIZE_MISMATCH: 45 raw bytes are not 4 x 5 x 3"),
        ({"shape": numbers(3, 15, 1)}, "SIZE_MISMATCH: its channels is 3 and 1"),
        ({"shape": numbers(3, 5)}, "WRONG_SHAPE: feature 'shape' has 2 values, not 3"),
        ({"shape": texts(b"3", b"5", b"3")}, "WRONG_TYPE: feature 'shape' is bytes, not int64"),
        ({"shape": None}, "MISSING_FEATURE: feature 'shape' is missing"),
        ({"name": texts(b"cow")}, "LABEL_TEXT: class 'cow' is not among the class names"),
        ({"name": texts(b"")}, "LABEL_TEXT: class '' is not among the class names"),
    ],
    "classification": [
        (
            {
                "image/format": texts(b"raw"),
                "image/encoded": texts(bytes(HEIGHT * WIDTH * 5)),
                "image/channels": numbers(5),
            },
            "SIZE_MISMATCH: the record says 5 as the number of channels, but raw pixels have 1 to 4",
        ),
    ],
    "imagenet": [
        ({"image/class/synset": texts(b"cat")}, "LABEL_TEXT: label 2 is 'dog' but the record says 'cat'"),
    ],
    TENSORS: [
        ({"picture": texts(PIXELS)}, "UNDECODABLE: feature 'picture' is not a serialized tensor"),
        ({"picture": texts(b"")}, "UNDECODABLE: feature 'picture' is not a serialized tensor"),
        (
            {"picture": tensor([1.0] * 45, "float32", 3, 5, 3)},
            "WRONG_TYPE: the tensor in 'picture' is float32, not uint8",
        ),
        (
            {"picture": tensor(PIXELS, "uint8", 45)},
            r"WRONG_SHAPE: the tensor in 'picture' has shape (45,), not ('any'",
        ),
        ({"picture": tensor(PIXELS, "uint8", 5, 3, 3)}, "SIZE_MISMATCH: its height is "),
        ({"size": tensor([5, 3, 3], "int64", 3)}, "SIZE_MISMATCH: its height is "),
        ({"size": tensor([3, 5, 3], "int32", 3)}, "WRONG_TYPE: the tensor in 'size' is int32, not int64"),
        ({"size": tensor([3, 5], "int64", 2)}, "WRONG_SHAPE: the tensor in 'size' has shape (2,), not (3,)"),
        ({"size": texts(b"a", b"b", b"c")}, "WRONG_SHAPE: feature 'size' has 3 values, not 1"),
        ({"size": numbers(3)}, "WRONG_TYPE: feature 'size' is int64, not bytes"),
        ({"id": tensor([3], "int64")}, "LABEL_RANGE: label 3 is not between 0 and 2"),
        ({"id": tensor([0], "int64")}, "LABEL_TEXT: label 0 is 'cat' but the record says 'dog'"),
        ({"tags": texts(b"YQ==", b"!")}, "UNDECODABLE: feature 'tags' is not URL-safe base64"),
        (
            {"numbers": tensor([1, 2, 3, 4], "int32", 4)},
            "WRONG_SHAPE: the tensor in 'numbers' has shape (4,), not (2, 2)",
        ),
        ({"price": texts(b"1")}, "WRONG_TYPE: feature 'price' is bytes, not float"),
    ],
    MAYBE: [
        ({"name": texts(b"cat"), "label": None}, ""),
        ({"name": texts(b"cow"), "label": None}, "LABEL_TEXT: class 'cow' is not among the class names"),
        ({"depth": None}, "MISSING_FEATURE: feature 'depth' is missing"),
        ({"boxes": texts(b"\x08")}, "UNDECODABLE: feature 'boxes' is not a serialized tensor"),
        ({"boxes": tensor([0.5, 0.0, 0.25, 1.0], "float32", 1, 4)}, "BOX_ORDER: object 0"),
    ],
    "tutorial": [
        ({"height": numbers(4)}, "SIZE_MISMATCH: the image's height is 3 but the record says 4"),
    ],
}


def assert_only(found: list[str], finding: str) -> None:
    """Asserts that a record has one finding, which begins like this, or none if this is empty."""
    assert [text[: len(finding)] for text in found] == [finding] * bool(finding), found


@pytest.mark.parametrize(
    ("layout_text", "change", "finding"),
    [(layout_text, *row) for layout_text, rows in DEFECTS.items() for row in rows],
)
def test_each_defect_has_its_code(
    layout_text: str, change: Mapping[str, Feature | None], finding: str
) -> None:
    assert_only(found_in(layout_text, change), finding)


BOX_VALUES: Mapping[FeatureRole, Any] = {
    FeatureRole.BOXES: [0.0, 0.0, 0.5, 1.0, 0.25, 0.5, 1.0, 1.0],
    FeatureRole.OBJECT_LABEL: [0, 2],
    FeatureRole.OBJECT_MASK: [png(), png()],
}


@pytest.mark.parametrize(
    ("values", "finding"),
    [
        (BOX_VALUES, ""),
        (dict.fromkeys(BOX_VALUES, ()), ""),
        (
            {**BOX_VALUES, FeatureRole.BOXES: [0.0, 0.0, 0.5]},
            "LENGTH_MISMATCH: the 3 numbers of its boxes cannot be divided into fours",
        ),
        (
            {**BOX_VALUES, FeatureRole.BOXES: ()},
            "LENGTH_MISMATCH: its objects' features have unequal numbers",
        ),
        ({**BOX_VALUES, FeatureRole.BOXES: [0, 0, 0.5, 1, 0.25, 0.5, 1.5, 1]}, "BOX_RANGE: object 1"),
        ({**BOX_VALUES, FeatureRole.OBJECT_LABEL: [0, 3]}, "LABEL_RANGE: object 1"),
        ({**BOX_VALUES, FeatureRole.OBJECT_MASK: [png(), png(3, 5)]}, "MASK_MISMATCH: the mask of object 1"),
        ({**BOX_VALUES, FeatureRole.OBJECT_MASK: [png(), b"x"]}, "UNDECODABLE: the mask of object 1"),
    ],
)
def test_objects_in_one_list_and_masks_in_base64(values: Mapping[FeatureRole, Any], finding: str) -> None:
    assert_only(found_in(BOXES, {}, label="", annotated=values), finding)


def jpegs() -> list[bytes]:
    """JPEGs of every kind: plain, progressive, gray, CMYK, tiny, with restart markers."""
    made = []
    for place, path in enumerate(sorted(PHOTOS.glob("*/*"))[:12]):
        with Image.open(path) as image:
            shown = image.convert("RGBA").convert(("RGB", "L", "CMYK")[place % 3]).resize((61 + place, 47))
        for options in ({}, {"progressive": True}, {"restart_marker_blocks": 1}, {"subsampling": 0}):
            made.append(file_of(shown, "JPEG", **options))
    return [*made, file_of(Image.new("RGB", (3, 9)), "JPEG")]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("damage", ["none", "flip", "cut", "remove", "insert"])
def test_reduced_and_full_decoding_agree(damage: str) -> None:
    chance = random.Random(damage)
    bad = 0
    for data in jpegs():
        for _ in range(1 if damage == "none" else 8):
            broken = bytearray(data)
            place = chance.randrange(len(broken))
            if damage == "flip":
                broken[place] ^= 1 << chance.randrange(8)
            elif damage == "cut":
                del broken[place:]
            elif damage == "remove":
                del broken[place : place + chance.randrange(1, 40)]
            elif damage == "insert":
                broken[place:place] = chance.randbytes(chance.randrange(1, 40))
            declared = DeclaredImage([(47, None, None), (None, None, 3)], "jpeg", b"RGB")
            whole, reduced = (check_image(bytes(broken), declared, whole=whole) for whole in (True, False))
            assert whole.problems == reduced.problems
            assert (whole.format, whole.size) == (reduced.format, reduced.size)
            bad += whole.image is None
    assert bool(bad) == (damage != "none")


@pytest.mark.parametrize(("role", "sound", "wrong"), [
    (FeatureRole.KEY, [b"a/b.jpg"], [b"\xff"]),
    (FeatureRole.SOURCE_SHA256, [b"0a" * 32], [b"0A" * 32]),
    *((FeatureRole.OBJECT_AREA, [0.5, 2.0], [0.5, bad, 2.0]) for bad in (math.nan, math.inf, -math.inf)),
])  # fmt: skip
def test_texts_and_floats_are_tested(role: FeatureRole, sound: list[Any], wrong: list[Any]) -> None:
    type_ = FeatureType.BYTES if isinstance(sound[0], bytes) else FeatureType.FLOAT
    spec = FeatureSpec("name", type_, (None,), role)
    check = value_check(spec, True)
    assert check is not None and check(sound) is None and check(wrong) is not None


@pytest.mark.parametrize("role", [FeatureRole.EXTRA, FeatureRole.CONSTANT])
def test_numbers_that_a_layout_declares_as_strings_are_not_read_as_text(role: FeatureRole) -> None:
    spec = FeatureSpec("name", FeatureType.FLOAT, (), role, value_type="string", value=(0.5,))
    for own in (False, True):
        check = value_check(spec, own)
        assert check is not None and check([0.5]) is None


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
