"""Records that are parsed fast, and files that are hashed while read, give the same results as plain code."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import re
import threading
from pathlib import Path
from typing import Any

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from shardwright.schemas.example import Feature, FeatureType, encode_example, parse_example
from shardwright.schemas.layouts.layout_file import parse_layout_file
from shardwright.schemas.tensor_proto import serialize_tensor
from shardwright.transforms.records.record_schema import RecordSchema
from shardwright.transforms.validation import hashing
from shardwright.transforms.validation.hashing import HashedFile, leaves_idle_processor
from shardwright.transforms.validation.record import RecordChecker
from shardwright.transforms.validation.repeated_entries import RepeatedEntries

TENSORS = """
features:
  image: {fill: encoded}
  shape: {fill: shape, tensor: true}
  label: {fill: label}
"""
VALUES = {
    FeatureType.BYTES: st.binary(max_size=300),
    FeatureType.INT64: st.integers(-(2**63), 2**63 - 1),
    FeatureType.FLOAT: st.floats(width=32, allow_nan=False),
}
FEATURES = st.one_of(
    st.lists(values, max_size=3).map(lambda found, type_=type_: Feature(type_, found))
    for type_, values in VALUES.items()
)
RECORDS = st.dictionaries(st.sampled_from(["image", "label", "name", "é" * 70, ""]), FEATURES)


def plain(features: dict[str, Feature]) -> dict[str, Any]:
    """Returns features in a comparable form: pictures as bytes, floats as text because of NaN."""
    return {
        name: (type_, [repr(bytes(value) if isinstance(value, memoryview) else value) for value in values])
        for name, (type_, values) in features.items()
    }


@given(st.lists(RECORDS.map(encode_example), max_size=5), st.data())
def test_records_are_parsed_like_plain_examples(records: list[bytes], data: st.DataObject) -> None:
    reader = RepeatedEntries(["label", "name"], ["label"], "image")
    for record in records:
        assert plain(reader.read(record).features) == plain(parse_example(record))
        place = data.draw(st.integers(0, len(record)))
        broken = record[:place] + data.draw(st.binary(max_size=2)) + record[place + 1 :]
        try:
            expected = plain(parse_example(broken))
        except ValueError as error:
            with pytest.raises(ValueError, match=f"{re.escape(str(error))}$"):
                reader.read(broken)
        else:
            assert plain(reader.read(broken).features) == expected


def test_equal_signatures_mean_equal_repeated_entries() -> None:
    reader = RepeatedEntries(["label", "size"], ["label"], "image")

    def signature(label: list[int], image: bytes, **more: Feature) -> Any:
        picture = Feature(FeatureType.BYTES, [image])
        features = {"label": Feature(FeatureType.INT64, label), "image": picture, **more}
        return reader.read(encode_example(features)).signature

    assert signature([1], b"a") == signature([1], b"b") != signature([2], b"a")
    assert signature([1], b"a", other=Feature(FeatureType.BYTES, [b""])) != signature([1], b"a")
    assert signature([7] * 200, b"a") != signature([8] * 200, b"a")
    sizes = [Feature(FeatureType.INT64, [size]) for size in (1, 2, 1)]
    assert len({signature([1], b"a", size=size) for size in sizes}) == 1


def test_values_of_one_record_do_not_affect_the_next() -> None:
    layout = parse_layout_file(TENSORS, "tensors.yaml")
    checker = RecordChecker(RecordSchema(layout.features, ("a", "b")), decode=True)
    for side, label in ((3, 0), (5, 1), (4, 0)):
        out = io.BytesIO()
        Image.new("RGB", (side, side)).save(out, "PNG")
        features = {
            "image": Feature(FeatureType.BYTES, [out.getvalue()]),
            "shape": Feature(FeatureType.BYTES, [serialize_tensor([side, side, 3], "int64", (3,))]),
            "label": Feature(FeatureType.INT64, [label]),
        }
        checked = checker.check(encode_example(features))
        assert (checked.problems, checked.classes) == ((), ("ab"[label],))


@pytest.mark.parametrize("aside", [True, False])
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 5000), st.integers(0, 3000), st.booleans(), st.booleans()), max_size=8
    )
)
def test_a_file_is_hashed_whatever_parts_are_read(
    tmp_path_factory: pytest.TempPathFactory, aside: bool, steps: list[tuple[int, int, bool, bool]]
) -> None:
    path: Path = tmp_path_factory.getbasetemp() / "hashed"
    if not path.exists():
        path.write_bytes(os.urandom(500_000))
    data = path.read_bytes()
    with path.open("rb") as opened:
        file = HashedFile(opened, aside)
        buffers = [bytearray(300_000), bytearray(300_000)]
        for offset, size, large, into in steps:
            if large:
                offset, size = offset * 100, size * 100
            file.seek(offset)
            if into:
                buffer = buffers.pop(0)
                assert file.readinto(memoryview(buffer)[:size]) == len(data[offset : offset + size])
                assert data[offset : offset + size] == buffer[: len(data[offset : offset + size])]
                buffers.append(buffer)
            else:
                assert file.read(size) == data[offset : offset + size]
        crc32c = base64.b64encode(google_crc32c.Checksum(data).digest()).decode()
        assert file.checksums() == (hashlib.sha256(data).hexdigest(), crc32c)


def test_a_buffer_is_filled_again_only_after_it_was_hashed(tmp_path: Path) -> None:
    data = os.urandom(100_000)
    (tmp_path / "hashed").write_bytes(data)
    late = threading.Event()
    with open(tmp_path / "hashed", "rb") as opened:
        file = HashedFile(opened)
        large, small = bytearray(len(data)), bytearray(10)
        hashing._executor().submit(late.wait)  # keeps the hashing thread from the first part
        threading.Timer(0.05, late.set).start()
        file.readinto(memoryview(large))
        for offset, buffer in ((0, small), (50_000, large)):  # parts that need no hashing any more
            file.seek(offset)
            file.readinto(memoryview(buffer)[:10])
        assert file.checksums()[0] == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(("workers", "idle"), [(1, True), (3, True), (4, False)])
def test_files_are_hashed_aside_if_workers_leave_a_processor_idle(
    monkeypatch: pytest.MonkeyPatch, workers: int, idle: bool
) -> None:
    monkeypatch.setattr(hashing, "usable_cpus", lambda: 4)
    monkeypatch.setattr(hashing, "worker_processes", lambda: workers)
    assert leaves_idle_processor() is idle
