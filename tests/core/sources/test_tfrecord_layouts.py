"""Layouts of records, usual ones and our own: features by name, encodings, pixels, files beside records."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.deep_datasets import KINDS, deep_dataset
from helpers.embedded import refs_of
from helpers.listing import refusal
from helpers.mutants import mutants
from helpers.tfds_reading import examples_of, read_dataset
from helpers.tfrecords import (
    JPEGS,
    SUFFIX,
    classified,
    converted,
    object_record,
    png_of,
    read,
    records_in,
    sized,
    tf,
    write,
)
from helpers.trees import put_files
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from shardwright.core.images.byte_ranges import read_part
from shardwright.core.images.read import read_image
from shardwright.core.records.encodings import encoded_values, plain_spec
from shardwright.core.records.images import NoImage, find_image, own_image, pixel_values
from shardwright.core.records.record import (
    MAX_FEATURES,
    KnownRecords,
    SourceRecord,
    names_of_specs,
    own_records,
)
from shardwright.core.sources.tfrecord.files import class_names_of, split_of
from shardwright.schemas.byte_range import BASE64, PIXELS, STORED, VARINT_PIXELS, ByteRange
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.example import Feature, FeatureType, encode_example, write_varint
from shardwright.schemas.layouts import CLASSIFICATION, Encoding, FeatureRole, FeatureSpec

_NUMBERS = {"0": 0, "1": 1, "2": 2}
#: Layout -> (the record of picture i with class i % 3, the three classes and their ids, if records have ids).
_LAYOUTS: dict[str, tuple[Any, dict[str, int | None]]] = {
    "slim": (
        lambda i: {**classified(i), "image/class/label": i % 3},
        _NUMBERS,
    ),
    "imagenet": (
        lambda i: {
            **classified(i),
            "image/class/label": i % 3 + 1,
            "image/class/synset": f"n0{i % 3}",
            "image/class/text": ["tench", "goldfish, Carassius", "shark"][i % 3],
            "image/filename": f"n0{i % 3}_{i}.JPEG",
            "image/object/bbox/xmin": [],
        },
        {"tench": 1, "goldfish, Carassius": 2, "shark": 3},
    ),
    "imagenet without names": (
        lambda i: {**classified(i), "image/class/label": i % 3 + 1, "image/class/synset": f"n0{9 - i % 3}"},
        {"n09": 1, "n08": 2, "n07": 3},
    ),
    "tfds": (lambda i: {"image": JPEGS[i], "label": i % 3}, _NUMBERS),
    "tutorial": (
        lambda i: {"height": 9, "width": 9, "depth": 3, "label": i % 3, "image_raw": JPEGS[i]},
        _NUMBERS,
    ),
    "fiftyone": (
        lambda i: {
            "height": 9, "width": 9, "depth": 3, "filename": f"{i}.jpg", "format": "jpg",
            "image_bytes": JPEGS[i], "label": ["cat", "ant", "bee"][i % 3],
        },
        {"cat": None, "ant": None, "bee": None},
    ),
    "one hot": (
        lambda i: {"image": JPEGS[i], "label": [float(i % 3 == n) for n in range(3)]},
        _NUMBERS,
    ),
    "a name for a label": (
        lambda i: {"data": JPEGS[i], "shape": [20, 24, 3], "name": ["ant", "bee", "cat"][i % 3]},
        {"ant": None, "bee": None, "cat": None},
    ),
    "names of one's own": (
        lambda i: {"foto": JPEGS[i], "zahl": 3, "class_name": "abc"[i % 3], "note": "text"},
        {"a": None, "b": None, "c": None},
    ),
    "prefixed": (
        lambda i: {"train/image": JPEGS[i], "train/label": i % 3},
        _NUMBERS,
    ),
    "base64 of files": (
        lambda i: {"image": base64.b64encode(JPEGS[i]), "label": i % 3}, _NUMBERS,
    ),
    "serialised strings": (
        lambda i: {
            "image": tf.io.serialize_tensor(tf.constant(JPEGS[i])).numpy(), "label": i % 3,
        },
        _NUMBERS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("layout", _LAYOUTS)
def test_widely_used_layouts_are_read(layout: str, tmp_path: Path) -> None:
    record, expected = _LAYOUTS[layout]
    write(tmp_path / "in" / "all.tfrecord", [record(i) for i in range(6)])
    refs, ids = refs_of(tmp_path / "in", tmp_path / "spool")
    assert [read_image(ref, 1 << 30) for ref in refs] == JPEGS[:6]
    assert [ref.label for ref in refs] == [*expected] * 2
    assert ids == {name: number for name, number in expected.items() if number is not None}


def test_img2dataset_has_no_classes(tmp_path: Path) -> None:
    records = [{"key": f"00000{i}", "jpg": JPEGS[i], "txt": f"photo {i}", "width": 9} for i in range(3)]
    file = write(tmp_path / "00000.tfrecord", records)
    assert re.search("no class of the image .*--unlabelled keep", refusal(file))
    found = records_in(file, "classification", unlabelled="keep", extra_columns="txt:string,width:int")
    assert found.keys() == {f"00000.tfrecord!00000{i}" for i in range(3)}
    assert found["00000.tfrecord!000001"]["txt"] == [b"photo 1"]
    assert found["00000.tfrecord!000001"]["width"] == [9]


_PIXELS = np.random.default_rng(7).integers(0, 256, (3, 20, 24, 3), np.uint8)
_SHAPE = {"height": 20, "width": 24, "depth": 3}

_PIXEL_LAYOUTS: dict[str, Callable[[np.ndarray], dict[str, Any]]] = {
    "height, width, depth": lambda x: {"image_raw": x.tobytes(), **_SHAPE},
    "height and width": lambda x: {"image_raw": x.tobytes(), "height": 20, "width": 24},
    "shape": lambda x: {"data": x.tobytes(), "shape": [20, 24, 3]},
    "channels first": lambda x: {"image": np.moveaxis(x, -1, 0).tobytes(), "shape": [3, 20, 24]},
    "tfrecorder": lambda x: {
            "image": base64.urlsafe_b64encode(x.tobytes()), "image_name": "a.jpg",
            "image_height": 20, "image_width": 24, "image_channels": 3, "split": "TRAIN",
        },
    "serialised tensor": lambda x: {"image": tf.io.serialize_tensor(x).numpy()},
    "serialised floats": lambda x: {"image": tf.io.serialize_tensor((x / 255).astype(np.float32)).numpy()},
    "list of floats": lambda x: {"image": [float(v) / 255 for v in x.ravel()], **_SHAPE},
    "list of integers": lambda x: {"image": [int(v) for v in x.ravel()], **_SHAPE},
}  # fmt: skip


def test_every_form_of_raw_pixels_is_read(tmp_path: Path) -> None:
    for layout, record in _PIXEL_LAYOUTS.items():
        file = write(tmp_path / "a.tfrecord", [{"label": i, **record(x)} for i, x in enumerate(_PIXELS)])
        found = records_in(file, "classification", image_format="png").values()
        assert [item["image/class/label"] for item in found] == [[0], [1], [2]]
        for item, pixels in zip(found, _PIXELS, strict=True):
            assert np.array_equal(tf.io.decode_png(item["image/encoded"][0]).numpy(), pixels), layout


def test_mnist_with_gray_pixels_is_read(tmp_path: Path) -> None:
    digits = np.random.default_rng(1).integers(0, 256, (5, 28, 28), np.uint8)
    digits[0, 0, :4] = (0xFF, 0xD8, 0xFF, 0xE0)  # like the first bytes of a JPEG
    digits[1, 0, :4] = (0, 0, 1, 0)  # like the first bytes of an icon
    digits[3, 0, :4] = (0x50, 0x36, 0x0A, 0x31)  # like the first bytes of a PPM
    records = [{"image_raw": x.tobytes(), "label": i, "rows": 28, "cols": 28} for i, x in enumerate(digits)]
    file = write(tmp_path / "train.tfrecords", [{**record, "depth": 1} for record in records])
    made = records_in(file, "classification", color="gray", image_format="png").values()
    found = {record["image/class/label"][0]: record["image/encoded"][0] for record in made}
    assert all(np.array_equal(np.asarray(Image.open(io.BytesIO(found[i]))), digits[i]) for i in range(5))
    bare = write(tmp_path / "bare.tfrecords", [{"image": digits[2].tobytes(), "label": 1}])
    assert "--pixel_shape" in refusal(bare)


def test_detection_records_are_read(tmp_path: Path) -> None:
    empty = {name: value for name, value in object_record(2).items() if "/object/" not in name}
    records = [sized(record) for record in (object_record(0), object_record(1), empty)]
    write(tmp_path / "in" / "coco_val.record-00000-of-00001", records)
    found = {r["image/encoded"][0]: r for r in records_in(tmp_path / "in", "detection").values()}
    for source in records[:2]:
        record = found[source["image/encoded"]]
        assert record["split"] == "val"
        assert record["image/object/class/label"] == [7, 3]
        assert record["image/object/class/text"] == [b"dog", b"cat"]
        for name in ("bbox/xmin", "bbox/xmax", "bbox/ymin", "bbox/ymax", "is_crowd", "difficult"):
            assert record[f"image/object/{name}"] == source[f"image/object/{name}"], name
        assert record["image/caption"] == [b"a dog and a cat", b"two"]
    assert found[JPEGS[2]]["image/object/bbox/xmin"] == []


def test_a_label_map_beside_detection_records_is_used(tmp_path: Path) -> None:
    record = {name: v for name, v in sized(object_record(0)).items() if name != "image/object/class/text"}
    write(tmp_path / "in" / "a.record", [record])
    (tmp_path / "in" / "label_map.pbtxt").write_text(
        "item {\n  name: \"/m/01\"\n  id: 7\n  display_name: 'sea lion'\n}\n"
        "item { id: 3 name: 'caf\\303\\251' }\n"
    )
    (found,) = records_in(tmp_path / "in", "detection").values()
    assert found["image/object/class/text"] == [b"sea lion", "café".encode()]
    assert found["image/object/class/label"] == [7, 3]


def test_detection_records_of_tfds_are_read(tmp_path: Path) -> None:
    """TFDS stores boxes as ymin, xmin, ymax, xmax, and names of classes in a separate file."""
    record = {
        "image": JPEGS[0],
        "image/filename": "0.jpg",
        "image/id": 7,
        "objects/area": [500, 9000],
        "objects/bbox": [0.125, 0.25, 0.5, 0.75, 0.0, 0.5, 1.0, 0.625],
        "objects/id": [1, 2],
        "objects/is_crowd": [0, 1],
        "objects/label": [2, 0],
    }
    write(tmp_path / "in" / "coco-validation.tfrecord-00000-of-00001", [record])
    described = {"dataset_info.json": '{"name": "coco"}', "features.json": "{}"}
    put_files(tmp_path / "in", {**described, "objects-label.labels.txt": "person\nbicycle\ncar\n"})
    made = converted(tmp_path / "in", tmp_path / "out", layout="detection")
    ((key, found),) = read(made).items()
    assert (key, found["split"]) == ("coco-validation.tfrecord-00000-of-00001!0.jpg", "validation")
    sides = [found[f"image/object/bbox/{side}"] for side in ("xmin", "ymin", "xmax", "ymax")]
    assert sides == [[0.25, 0.5], [0.125, 0.0], [0.75, 0.625], [0.5, 1.0]]
    assert found["image/object/class/text"] == [b"car", b"person"]
    assert found["image/object/class/label"] == [3, 1]  # in this layout, 0 is the background
    assert found["image/object/area"] == [500, 9000] and found["image/object/is_crowd"] == [0, 1]
    assert re.search("no class of the image .*--layout detection", refusal(tmp_path / "in"))


@pytest.mark.parametrize("label", [np.int64(1), np.uint8(3), np.float32([0, 1, 0]), np.float32([0, 0])])
def test_labels_that_are_bytes_of_numbers_are_not_names(label: Any, tmp_path: Path) -> None:
    records = [{"train/image": JPEGS[i], "train/label": label.tobytes()} for i in range(3)]
    file = write(tmp_path / "a.tfrecord", records)
    refs, _ = refs_of(file, tmp_path / "spool")
    for ref in refs:
        assert re.search("'train/label' (holds the bytes of numbers|is not UTF-8 text)", ref.message)
        assert ref.reason == "BAD_ANNOTATION"


def test_wrong_numbers_are_reported_as_faults(tmp_path: Path) -> None:
    """They neither end the job nor change other records."""
    good = sized(object_record(0))
    records = [good]
    for value in (float("inf"), float("nan"), -1.0):
        records += [
            {**good, "image/object/class/label": [value, 3.5]},
            {**good, "image/object/bbox/xmin": [value, 0.5]},
            {**good, "image/object/area": [value, 50.0]},
            {"image": _PIXELS[0].tobytes(), "shape": [value, 24.0, 3.0]},
        ]
    file = write(tmp_path / "a.tfrecord", records)
    assert len(refs_of(file, tmp_path / "spool", "detection")[0]) == 13
    found = records_in(file, "detection")
    assert len(found) == 7
    assert all(np.isfinite(record["image/object/area"]).all() for record in found.values())


_COLUMNS = "price:float,tags:string[]"


def boxes_with_masks(number: int) -> dict[str, Any]:
    """Returns a detection record; one in four has no objects, which writers leave out."""
    record = {**sized(object_record(number)), "price": number / 3, "tags": ["a", "é"]}
    if number % 4 == 3:
        return {name: value for name, value in record.items() if "/object/" not in name}
    masks = np.zeros((2, record["image/height"], record["image/width"]), np.uint8)
    masks[0, 90:170, 30:80] = masks[1, :, 90:130] = 1
    return {**record, "image/object/mask": [png_of(mask) for mask in masks]}


@pytest.fixture(scope="module")
def detection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A detection dataset of ours with masks, captions and additional columns."""
    root = tmp_path_factory.mktemp("detection")
    write(root / "in" / "a.tfrecord", [boxes_with_masks(i) for i in range(8)])
    return converted(
        root / "in", root / "out",
        layout="detection", splits="train=0.6,test=0.4", shards=2, extra_columns=_COLUMNS,
    )  # fmt: skip


def test_all_splits_can_become_one(detection: Path, tmp_path: Path) -> None:
    """`train=1` is the default, which keeps the splits; `train=1.0` is an explicit choice."""
    for splits, expected in (("train=1", {"train", "test"}), ("train=1.0", {""})):
        refs, _ = refs_of(detection, tmp_path / "spool", "detection", splits=splits)
        assert {ref.split for ref in refs} == expected and len(refs) == 8


def test_patterns_select_files(detection: Path, tmp_path: Path, monkeypatch: Any) -> None:
    train = {key for key, record in read(detection).items() if record["split"] == "train"}
    refs, _ = refs_of(f"{detection}/train-*.tfrecord", tmp_path / "spool", "detection")
    assert {ref.key for ref in refs} == train and {ref.split for ref in refs} == {"train"}
    for name in ("train-0", "train-1", "val-0", "train[0]"):
        write(tmp_path / "in" / f"{name}.tfrecord", [{"image": JPEGS[0], "label": 0}])
    put_files(tmp_path / "in", {"train-0.txt": "no records", "label.labels.txt": "cat\n"})
    monkeypatch.chdir(tmp_path / "in")
    refs, ids = refs_of("train-*", tmp_path / "spool")
    assert ids == {"cat": 0} and {ref.key: ref.label or ref.reason for ref in refs} == {
        "train-0.tfrecord!000000": "cat", "train-1.tfrecord!000000": "cat", "train-0.txt": "unsupported_kind"
    }  # fmt: skip
    (literal,), _ = refs_of("train[0].tfrecord", tmp_path / "spool")
    assert literal.key == "train[0].tfrecord!000000"


@pytest.mark.parametrize("pattern", ["nothing-*", "*.jpg", "nowhere/train-*"])
def test_patterns_without_a_match_are_refused(pattern: str, tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.tfrecord", [{"image": JPEGS[0], "label": 0}])
    (tmp_path / "in" / "a.jpg").write_bytes(JPEGS[0])
    assert "check the path, or name the folder" in refusal(tmp_path / "in" / pattern)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_damage_is_counted_once(compression: str, detection: Path, tmp_path: Path) -> None:
    """All records that `dataset.json` counts are kept or have a fault, and none is invented."""
    settings: dict[str, Any] = {"layout": "detection", "splits": "train=1.0"}
    source = converted(detection, tmp_path / "in", compression=compression, **settings)
    file = source / f"train-00000-of-00001.tfrecord{SUFFIX[compression]}"
    good, before = file.read_bytes(), contents_of(source, tmp_path)
    assert len(before) == 8
    for damaged in mutants(good, 6):
        file.write_bytes(damaged)
        after = contents_of(source, tmp_path)
        kept = {key: content for key, content in after.items() if content}
        assert len(after) == 8 > len(kept) > 0
        assert kept.items() <= before.items()


def contents_of(dataset: Path, tmp_path: Path) -> dict[str, tuple[str, bytes] | None]:
    """Returns key -> checksum and picture of each record; None for one with a fault."""
    refs, _ = refs_of(dataset, tmp_path / "spool", "detection")
    return {ref.key: (ref.version, read_image(ref, 1 << 30)) if ref.is_candidate else None for ref in refs}


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train-00000-of-00008", "train"),
        ("coco_val.record-00000-of-00010", "val"),
        ("coco_train2017.record", "train"),
        ("Train.tfrecords", "train"),
        ("test_0007.tfrec", "test"),
        ("train/a.tfrecord", "train"),
        ("val/2020/images.tfrecord", "val"),
        ("training_data.tfrecord", "training"),
        ("trains.tfrecord", ""),
        ("images-00000-of-00001.tfrecord", ""),
        ("contest.tfrecord", ""),
        ("latest/photos.tfrecord", ""),
    ],
)
def test_file_names_give_splits(name: str, split: str) -> None:
    assert split_of(name) == split


def test_file_names_of_tfds_give_any_split() -> None:
    assert split_of("c4-corrupted.tfrecord-00000-of-00001", tfds=True) == "corrupted"
    assert split_of("c4-corrupted.tfrecord-00000-of-00001") == ""


@pytest.mark.parametrize(
    ("file", "text", "names"),
    [
        ("labels.txt", "0:cat\n1:dog: big\n", {0: "cat", 1: "dog: big"}),
        ("labels.txt", "1:cat\r\n7:dog\r\n", {1: "cat", 7: "dog"}),
        ("labels.txt", "\ufeffcat\ndog\n\n", {0: "cat", 1: "dog"}),
        ("labels.txt", "0:a\u2028cat\n1:dog\n", {0: "a\u2028cat", 1: "dog"}),
        ("labels.txt", "cat\n\ndog", {0: "cat", 2: "dog"}),
        ("labels.txt", "", {}),
        ("labels.txt", "99999999999:cat", {}),
        ("label_map.pbtxt", "item { id: 1 name: 'a' }", {1: "a"}),
        ("label_map.pbtxt", 'item {\n name: "b\\"c"\n id: 2 }', {2: 'b"c'}),
        ("label_map.pbtxt", "# item { id: 1 name: 'no' }\nitem { id: 3\n name: 'x' }", {3: "x"}),
        ("label_map.pbtxt", "item { id: 1 name: 'a' keypoints { id: 2 label: 'x' } }", {1: "a"}),
        ("label_map.pbtxt", "item { id: 1 }", {}),
        ("label_map.pbtxt", "item {" * 1000, {}),
        ("label_map.pbtxt", 'item { id: 1 name: "a\\nb" }', {1: "a\nb"}),
    ],
)  # fmt: skip
def test_files_of_class_names_are_found(file: str, text: str, names: dict[int, str]) -> None:
    assert class_names_of(file, text) == names


def _image(features: dict[str, Feature], pixel_shape: tuple[int, ...] | None = None) -> str:
    return find_image(SourceRecord(encode_example(features)), pixel_shape).method


@pytest.mark.parametrize(
    "shape", [[0, 2, 3], [-1, 2, 3], [2, 2], [2, 2, 2], [1 << 40, 1 << 40, 3], [2, 2, 3, 1], []]
)
def test_hostile_shapes_are_faults_of_the_record(shape: list[int]) -> None:
    features = {
        "image": Feature(FeatureType.BYTES, [b"\1" * 12]),
        "shape": Feature(FeatureType.INT64, shape),
    }
    with pytest.raises(NoImage):
        _image(features)
    assert _image({"image": features["image"]}, (2, 2, 3)) == "pixels"


def test_hostile_tensors_are_not_images() -> None:
    for blob in (b"\x08\x01\x12", b"\x08\x04\x12\x04\x12\x02\x08\x02\x22\x01x", b"\x08" + b"\xff" * 30):
        with pytest.raises(NoImage):
            _image({"image": Feature(FeatureType.BYTES, [blob])})


def test_packed_numbers_beyond_pixels_are_faults(tmp_path: Path) -> None:
    for data in (b"\x80\x80\x80\x01", b"\x80", b"\xff\x7f\1\1"):
        (tmp_path / "f").write_bytes(data)
        place = ByteRange("", 0, len(data), "varint_pixels", shape=(1, 1, 1), dtype="<i4")
        with pytest.raises(ImageFault):
            read_part(str(tmp_path / "f"), place, len(data), 1 << 20)
    (tmp_path / "f").write_bytes(b"not base64!!")
    place = ByteRange("", 0, 12, "base64_pixels", shape=(3, 3, 1))
    with pytest.raises(ImageFault, match="base64"):
        read_part(str(tmp_path / "f"), place, 12, 1 << 20)


_tensor = partial(FeatureSpec, "x", FeatureType.BYTES, (), encoding=Encoding.TENSOR)
_TEXTS = _tensor(FeatureRole.CAPTION, dtype="object", tensor_shape=(None,))
_CORNERS = _tensor(FeatureRole.BOXES, dtype="float32", tensor_shape=(None, 4))
_BASE64 = FeatureSpec("x", FeatureType.BYTES, (None,), FeatureRole.CAPTION, encoding=Encoding.BASE64)
_FLOATS = st.floats(width=32, allow_nan=False)


def record_of(spec: FeatureSpec, values: list[Any]) -> SourceRecord:
    """Returns a record with an encoded feature between others."""
    stored = Feature(spec.type, encoded_values(spec, values, (1, 1, 1)))
    filler = Feature(FeatureType.BYTES, [b"filler"])
    return SourceRecord(encode_example({"a": filler, spec.name: stored, "z": filler}), names_of_specs([spec]))


@given(st.sampled_from([_TEXTS, _BASE64]), st.lists(st.binary(max_size=40), max_size=5))
def test_bytes_are_found_at_their_place(spec: FeatureSpec, values: list[bytes]) -> None:
    record = record_of(spec, values)
    parts = record.parts_of("x")
    assert [record.value_of(part) for part in parts] == values == list(record.feature("x").values)
    assert [record.size_of(part) for part in parts] == [len(value) for value in values]
    assert {part.method for part in parts} <= {BASE64 if spec is _BASE64 else STORED}
    (other,) = record.parts_of("a")
    assert other.method == STORED and list(record.feature("a").values) == [b"filler"]


@given(st.lists(st.tuples(_FLOATS, _FLOATS, _FLOATS, _FLOATS), max_size=4))
def test_numbers_of_a_tensor_are_read(rows: list[tuple[float, ...]]) -> None:
    numbers = [number for row in rows for number in row]
    feature = record_of(_CORNERS, numbers).feature("x")
    assert (feature.type, list(feature.values)) == (plain_spec(_CORNERS).type, numbers)


@given(st.sampled_from([_TEXTS, _CORNERS, _BASE64]), st.lists(st.binary(max_size=30), max_size=2))
def test_a_wrong_encoding_is_a_fault_of_its_record(spec: FeatureSpec, values: list[bytes]) -> None:
    """Any other exception would end the job."""
    stored = Feature(FeatureType.BYTES, values)
    record = SourceRecord(encode_example({"x": stored}), names_of_specs([spec]))
    try:
        record.feature("x")
        for part in record.parts_of("x"):
            record.value_of(part)
    except ValueError:
        return
    if spec is _BASE64:
        found = record.feature("x").values
        assert all(4 * len(value) <= 3 * len(text) for value, text in zip(found, values, strict=True))


@given(st.lists(st.binary(max_size=100), max_size=8), st.binary(max_size=100), st.integers(0, 3))
def test_parts_hold_the_values(values: list[bytes], before: bytes, cut: int) -> None:
    """Also if bytes before a value are equal to it, or to its beginning."""
    features = {
        "a": Feature(FeatureType.BYTES, [before, *[value[: len(value) - cut] for value in values], *values]),
        "b": Feature(FeatureType.BYTES, values),
        "c": Feature(FeatureType.INT64, [1]),
    }
    record = SourceRecord(encode_example(features))
    for name in "ab":
        parts = record.parts_of(name)
        assert [record.stored(part) for part in parts] == features[name].values
        assert all(first.offset + first.length <= second.offset for first, second in pairwise(parts))
    assert record.parts_of("c") == record.parts_of("missing") == []


def test_a_long_value_is_found_after_others_that_begin_alike() -> None:
    values = [bytes(1000) + bytes((number,)) for number in range(200)]
    record = SourceRecord(encode_example({"x": Feature(FeatureType.BYTES, values)}))
    assert [record.stored(part) for part in record.parts_of("x")] == values


def test_a_packed_list_of_numbers_is_one_part() -> None:
    floats, ints = Feature(FeatureType.FLOAT, [0.5, 1.0]), Feature(FeatureType.INT64, [1, 300])
    record = SourceRecord(encode_example({"f": floats, "i": ints}))
    parts = record.packed("f"), record.packed("i")
    stored = [record.stored(part) for part in parts if part]
    assert stored == [np.array(floats.values, "<f4").tobytes(), b"\1\xac\2"]


def test_numbers_that_are_not_packed_have_no_part() -> None:
    numbers = _entry(3, b"\x08\1\x08\2")
    record = SourceRecord(_entry(1, _entry(1, _entry(1, b"k") + _entry(2, numbers))))
    assert record.feature("k").values == [1, 2] and record.packed("k") is None


def _entry(number: int, content: bytes) -> bytes:
    return bytes((number << 3 | 2,)) + write_varint(len(content)) + content


@pytest.mark.parametrize("entry", [b"\x0a\0", _entry(1, b"\x0a\1k")])
@pytest.mark.parametrize("pieces", [1, 100])
def test_a_record_of_too_many_features_is_refused(entry: bytes, pieces: int) -> None:
    with pytest.raises(ValueError, match="more than 100,000 features"):
        SourceRecord(_entry(1, entry * (MAX_FEATURES // pieces + 2)) * pieces)


def test_a_feature_of_too_many_values_is_refused() -> None:
    numbers = _entry(1, _entry(1, _entry(1, b"k") + _entry(2, _entry(3, _entry(1, bytes(1 << 23))))))
    with pytest.raises(ValueError, match="too many values"):
        SourceRecord(numbers).feature("k")


@pytest.mark.parametrize(
    ("kind", "method"), [(FeatureType.INT64, VARINT_PIXELS), (FeatureType.FLOAT, PIXELS)]
)
def test_any_number_of_values_may_be_an_image(kind: FeatureType, method: str) -> None:
    record = SourceRecord(encode_example({"image": Feature(kind, [1] * (1200 * 1000))}))
    found = find_image(record, (1200, 1000, 1))
    assert (found.method, found.shape) == (method, (1200, 1000, 1))
    assert pixel_values(record, found).tolist() == [1] * (1200 * 1000)


def stored(name: str) -> tuple[KnownRecords, list[SourceRecord]]:
    """Returns the description of a dataset's records, and the records."""
    directory, _ = deep_dataset(name)
    dataset = read_dataset(directory)
    own = own_records(dataset, CLASSIFICATION)
    return own, [
        SourceRecord(example.SerializeToString(), own.feature_names)
        for example in examples_of(directory, dataset, "train")
    ]


@pytest.mark.parametrize("name", KINDS)
def test_bare_pixels_are_found_with_their_type(name: str) -> None:
    _, pictures = deep_dataset(name)
    own, records = stored(name)
    for record, pixels, (_, form) in zip(records, pictures, KINDS[name].stored, strict=True):
        found = own_image(record, own, None)
        if form != "raw":
            assert found.method == STORED and found.shape == ()
            continue
        assert (found.method, found.shape) == (PIXELS, pixels.shape)
        values = pixel_values(record, found).reshape(found.shape)
        assert values.dtype == pixels.dtype
        np.testing.assert_array_equal(values, pixels)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"dtypes": ("uint8", "uint16")}, r"'image/dtype' is 'float32', not one of uint8, uint16"),
        ({"dtypes": ("uint8",)}, r"960 bytes of .* are not 6 x 8 x 5 pixels"),
        ({"dtypes": ("uint16",), "picture": (None, None, 5)}, r"are not 6 x 8 x 5 pixels of uint16"),
    ],
)
def test_a_contradiction_to_the_dataset_is_corrupt(change: dict[str, object], what: str) -> None:
    own, records = stored("raw of all types")
    with pytest.raises(NoImage, match=what) as caught:
        own_image(records[1], replace(own, **change), None)  # type: ignore[arg-type]
    assert caught.value.reason is QuarantineReason.CORRUPT
