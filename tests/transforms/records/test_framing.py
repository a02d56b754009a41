"""TFRecord files in every state, compared with TensorFlow's writer and a list of the undamaged records."""

from __future__ import annotations

import gzip
import io
import random
import tempfile
import time
import zlib
from itertools import islice
from pathlib import Path

import pytest
from helpers.shard_damage import assert_complete

from shardwright.transforms.records.compression import compression_of, decompress
from shardwright.transforms.records.framing import FrameDamage, Record, data_of, masked_crc32c, read_frames
from shardwright.transforms.records.recovery import DamagedRange, read_records


def _read(data: bytes) -> list[Record | DamagedRange]:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        return list(read_records(file))


def _frame(data: bytes) -> bytes:
    length = len(data).to_bytes(8, "little")
    return b"".join(
        (length, masked_crc32c(length).to_bytes(4, "little"), data, masked_crc32c(data).to_bytes(4, "little"))
    )


def test_one_frame_is_sound_or_not() -> None:
    for size in (0, 1, 300):
        frame = _frame(b"x" * size)
        assert data_of(frame) == data_of(frame, verify=False) == b"x" * size
        for place in range(0, len(frame), 7):
            with pytest.raises(FrameDamage):
                data_of(frame[:place] + bytes((frame[place] ^ 4,)) + frame[place + 1 :])
        with pytest.raises(FrameDamage, match=f"it has {size} bytes instead of {size + 1}"):
            data_of(frame + b"x", verify=False)


def test_the_plain_reader_ends_at_the_first_damage(tmp_path: Path) -> None:
    data = bytearray(b"".join(map(_frame, RECORDS)))
    path = tmp_path / "a.tfrecord"
    path.write_bytes(data)
    with path.open("rb") as file:
        assert [record.data for record in read_frames(file)] == RECORDS
    data[-10] ^= 1
    path.write_bytes(data)
    with path.open("rb") as file, pytest.raises(FrameDamage, match="checksum of the record") as raised:
        sound = [record.number for record in islice(read_frames(file), len(RECORDS) - 1)]
        assert sound == list(range(len(RECORDS) - 1))
        list(read_frames(file))
    assert raised.value.code == "DATA_CRC"


def _sound(found: list[Record | DamagedRange]) -> list[bytes]:
    return [item.data for item in found if isinstance(item, Record)]


def _damages(found: list[Record | DamagedRange]) -> list[DamagedRange]:
    return [item for item in found if isinstance(item, DamagedRange)]


RECORDS = [random.Random(i).randbytes(size) for i, size in enumerate((0, 1, 7, 300, 0, 4096, 33, 50_000, 12))]


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_files_of_tensorflow_are_read(tmp_path: Path, compression: str) -> None:
    tf = pytest.importorskip("tensorflow")
    path = tmp_path / "a.tfrecord"
    with tf.io.TFRecordWriter(str(path), tf.io.TFRecordOptions(compression_type=compression)) as writer:
        for record in RECORDS:
            writer.write(record)
    if compression:
        with path.open("rb") as source:
            unpacked, error = decompress(source, compression.lower())
            assert error is None
            found = list(read_records(unpacked))
            unpacked.close()
    else:
        found = _read(path.read_bytes())
        assert path.read_bytes() == b"".join(map(_frame, RECORDS))
    assert _sound(found) == RECORDS
    assert not _damages(found)


@pytest.mark.parametrize(
    ("place", "code"), [(0, "LENGTH_CRC"), (9, "LENGTH_CRC"), (15, "DATA_CRC"), (12 + 50 + 1, "DATA_CRC")]
)
def test_damage_is_named_and_placed(place: int, code: str) -> None:
    frames = [_frame(bytes((i,)) * 50) for i in range(3)]
    data = bytearray(b"".join(frames))
    data[len(frames[0]) + place] ^= 1
    first, damage, last = _read(bytes(data))
    assert isinstance(first, Record)
    assert isinstance(damage, DamagedRange)
    assert (damage.number, damage.offset, damage.end, damage.code) == (1, 66, 132, code)
    assert last == Record(2, 132, b"\2" * 50)


@pytest.mark.parametrize("left", [1, 11, 12, 20, 65])
def test_a_truncated_file_ends_with_one_damage(left: int) -> None:
    data = _frame(b"a" * 50) * 2
    found = _read(data[: 66 + left])
    assert [type(item) for item in found] == [Record, DamagedRange]
    assert found[1].code == "SHARD_TRUNCATED"
    assert found[1].end == 66 + left


def test_a_length_beyond_the_file_hides_no_later_record() -> None:
    length = (10**9).to_bytes(8, "little")
    liar = length + masked_crc32c(length).to_bytes(4, "little") + b"x" * 30
    found = _read(_frame(b"one") + liar + _frame(b"two"))
    assert _sound(found) == [b"one", b"two"]
    assert [damage.code for damage in _damages(found)] == ["SHARD_TRUNCATED"]


def test_records_are_found_again_across_read_buffers() -> None:
    # the next sound header at every position around the end of the megabyte that is searched at once
    for shift in range(-14, 3):
        junk = b"\xff" * ((1 << 20) + 1 + shift)
        found = _read(junk + _frame(b"here"))
        assert _sound(found) == [b"here"], shift


@pytest.mark.parametrize(
    "data",
    [b"", bytes(5_000_000), random.Random(1).randbytes(5_000_000), b"\xff" * 5_000_000, _frame(b"") * 20_000],
    ids=["empty", "zeros", "random", "ones", "empty records"],
)
def test_degenerate_files_take_little_time(data: bytes) -> None:
    begin = time.thread_time()
    found = _read(data)
    assert time.thread_time() - begin < 2
    assert_complete(found, len(data))


# --- compressed shards ---------------------------------------------------------------------------

_SHARD = b"".join(_frame(record) for record in RECORDS) * 5
_PACK = {"gzip": gzip.compress, "zlib": zlib.compress}


def _unpack(data: bytes, compression: str) -> tuple[bytes, str | None]:
    file, error = decompress(io.BytesIO(data), compression)
    with file:
        return file.read(), error


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_compressed_shards_are_read_completely(compression: str) -> None:
    pack = _PACK[compression]
    zeros = bytes(40_000_000)  # unpacks to far more than is written at once
    assert _unpack(pack(_SHARD), compression) == (_SHARD, None)
    assert _unpack(pack(b""), compression) == (b"", None)
    assert _unpack(b"", compression) == (b"", None)
    assert _unpack(pack(_SHARD[:999]) + pack(_SHARD[999:]) + pack(b""), compression) == (_SHARD, None)
    assert _unpack(pack(zeros), compression) == (zeros, None)


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
@pytest.mark.parametrize("share", [0.0005, 0.3, 0.9, 0.99999])
def test_a_truncated_stream_yields_its_records_and_is_reported(compression: str, share: float) -> None:
    packed = _PACK[compression](_SHARD)
    cut = packed[: max(1, int(len(packed) * share))]
    unpacked, error = _unpack(cut, compression)
    assert error
    assert "early" in error
    assert _SHARD.startswith(unpacked)
    assert len(unpacked) >= len(_SHARD) * (share - 0.2)


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_a_damaged_stream_yields_the_records_before_the_damage(compression: str) -> None:
    packed = _PACK[compression](_SHARD)  # random data is stored nearly unchanged
    for share in (0.4, 0.8):
        place = int(len(packed) * share)
        damaged = packed[:place] + b"\xff\xff\xff\xff" * 20_000 + packed[place + 80_000 :]
        unpacked, error = _unpack(bytes(damaged), compression)
        assert error
        same = next((i for i, (a, b) in enumerate(zip(unpacked, _SHARD)) if a != b), len(unpacked))
        assert same >= len(_SHARD) * (share - 0.25), "what stood before the damage is lost"


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_a_wrong_checksum_at_the_end_is_damage_but_loses_nothing(compression: str) -> None:
    packed = bytearray(_PACK[compression](_SHARD))
    packed[-1 if compression == "zlib" else -6] ^= 1
    unpacked, error = _unpack(bytes(packed), compression)
    assert error
    assert unpacked == _SHARD


def test_garbage_after_the_stream_is_damage() -> None:
    unpacked, error = _unpack(gzip.compress(_SHARD) + b"junk", "gzip")
    assert unpacked == _SHARD
    assert error


def test_compression_is_detected_by_name_or_first_bytes() -> None:
    assert compression_of("a.tfrecord.gz", b"") == "gzip"
    assert compression_of("a.tfrecord.zlib", b"") == "zlib"
    assert compression_of("foreign", gzip.compress(b"x")[:2]) == "gzip"
    assert compression_of("a.tfrecord", b"\x05\0") == "none"
