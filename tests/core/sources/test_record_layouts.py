"""The features of records: their meaning by name, their encodings, raw pixels, and files beside records."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.deep_datasets import KINDS, deep_dataset
from helpers.tfds_reading import examples_of, read_dataset
from hypothesis import given
from hypothesis import strategies as st

from shardwright.core.images.byte_ranges import read_part
from shardwright.core.records.encodings import encoded_values, plain_spec
from shardwright.core.records.images import NoImage, find_image, own_image, pixel_values
from shardwright.core.records.record import (
    MAX_FEATURES,
    KnownRecords,
    NotAnExample,
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
        ("labels.txt", "0:a\u2028cat\n1:dog\n", {0: "a\u2028cat", 1: "dog"}),
        ("labels.txt", "cat\n\ndog", {0: "cat", 2: "dog"}),
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
_NUMBERS = _tensor(FeatureRole.BOXES, dtype="float32", tensor_shape=(None, 4))
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
    feature = record_of(_NUMBERS, numbers).feature("x")
    assert (feature.type, list(feature.values)) == (plain_spec(_NUMBERS).type, numbers)


@given(st.sampled_from([_TEXTS, _NUMBERS, _BASE64]), st.lists(st.binary(max_size=30), max_size=2))
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


def test_a_sequence_example_is_named() -> None:
    features = encode_example({"a": Feature(FeatureType.INT64, [1])})
    with pytest.raises(NotAnExample, match="SequenceExample"):
        SourceRecord(features + _entry(2, b""))


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
