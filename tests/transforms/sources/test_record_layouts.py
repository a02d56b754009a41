"""The meaning of features by their names, splits in file names, and class names beside records."""

from __future__ import annotations

import zlib

import pytest

from shardwright.core.images.byte_ranges import read_part
from shardwright.core.sources.class_files import class_names_of
from shardwright.core.sources.tfrecord.files import compression_in, split_of
from shardwright.core.sources.tfrecord.images import NoImage, find_image
from shardwright.core.sources.tfrecord.record import SourceRecord, names_by_role
from shardwright.schemas.byte_range import ByteRange
from shardwright.schemas.example import Feature, FeatureType, encode_example


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train-00000-of-00008", "train"),
        ("train-00000-of-01024.tfrecord.gz", "train"),
        ("validation-00000-of-00128", "validation"),
        ("mnist-test.tfrecord-00000-of-00004", "test"),
        ("coco_val.record-00000-of-00010", "val"),
        ("coco_train2017.record", "train"),
        ("pascal_train.record", "train"),
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
        ("labels.txt", "", {}),
        ("labels.txt", "99999999999:cat", {}),
        ("label_map.pbtxt", "item { id: 1 name: 'a' }", {1: "a"}),
        ("label_map.pbtxt", 'item {\n name: "b\\"c"\n id: 2 }', {2: 'b"c'}),
        ("label_map.pbtxt", "# item { id: 1 name: 'no' }\nitem { id: 3\n name: 'x' }", {3: "x"}),
        ("label_map.pbtxt", "item { id: 1 }", {}),
        ("label_map.pbtxt", "item {" * 1000, {}),
        ("label_map.pbtxt", 'item { id: 1 name: "a\\nb" }', {1: "a\nb"}),
    ],
)  # fmt: skip
def test_files_of_class_names_are_found(file: str, text: str, names: dict[int, str]) -> None:
    assert class_names_of(file, text) == names


def test_content_shows_the_compression_before_the_name() -> None:
    frame = b"\0" * 8 + bytes.fromhex("29039807")
    assert compression_in("a.gz", frame) == "none"
    assert compression_in("a", zlib.compress(frame)) == "zlib"
    assert compression_in("a", b"\x78\x9c" + b"x" * 20) == "none"
    assert compression_in("a.zlib", b"") == "zlib"


def _image(features: dict[str, Feature], pixel_shape: tuple[int, ...] | None = None) -> str:
    record = SourceRecord(encode_example(features))
    return find_image(record, names_by_role(tuple(record.features)), pixel_shape).method


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


def test_packed_numbers_beyond_pixels_are_faults(tmp_path) -> None:  # type: ignore[no-untyped-def]
    from shardwright.schemas.errors import ImageFault

    for data in (b"\x80\x80\x80\x01", b"\x80", b"\xff\x7f\1\1"):
        (tmp_path / "f").write_bytes(data)
        place = ByteRange("", 0, len(data), "varint_pixels", shape=(1, 1, 1), dtype="<i4")
        with pytest.raises(ImageFault):
            read_part(str(tmp_path / "f"), place, len(data), 1 << 20)
    (tmp_path / "f").write_bytes(b"not base64!!")
    place = ByteRange("", 0, 12, "base64_pixels", shape=(3, 3, 1))
    with pytest.raises(ImageFault, match="base64"):
        read_part(str(tmp_path / "f"), place, 12, 1 << 20)
