"""TFRecord files in every state, read and salvaged: no sound record is lost, no false one is kept."""

from __future__ import annotations

import gzip
import random
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import google_crc32c
import numpy as np
import pytest
from helpers.resealing import frame
from helpers.shard_damage import (
    Items,
    assert_complete,
    damage_shard,
    read_counted,
    read_items,
    sound_in,
    unpack,
)

from shardwright.core.records import framing
from shardwright.core.records.compression import compression_of
from shardwright.core.records.framing import (
    FRAME_BYTES,
    DamagedRange,
    FrameDamage,
    Record,
    data_of,
    masked_crc32c,
    read_records,
)
from shardwright.core.salvage.salvaged_ledger import (
    Content,
    FoundRecord,
    Frame,
    Match,
    match_records,
    reconcile,
)
from shardwright.core.salvage.shard import save_shard
from shardwright.pipelines.convert import convert
from shardwright.pipelines.places import resolve_target, schema_of
from shardwright.pipelines.salvage import list_tasks
from shardwright.schemas.ledger import Entry, load_ledger


def test_one_frame_is_sound_or_not() -> None:
    for size in (0, 1, 300):
        whole = frame(b"x" * size)
        assert data_of(whole) == data_of(whole, verify=False) == b"x" * size
        for place in range(0, len(whole), 7):
            with pytest.raises(FrameDamage):
                data_of(whole[:place] + bytes((whole[place] ^ 4,)) + whole[place + 1 :])
        with pytest.raises(FrameDamage, match=f"it has {size} bytes instead of {size + 1}"):
            data_of(whole + b"x", verify=False)


def _damages(found: Items) -> list[DamagedRange]:
    return [item for item in found if isinstance(item, DamagedRange)]


RECORDS = [random.Random(i).randbytes(size) for i, size in enumerate((0, 1, 7, 300, 0, 4096, 33, 50_000, 12))]


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_files_of_tensorflow_are_read(tmp_path: Path, compression: str) -> None:
    tf = pytest.importorskip("tensorflow")
    path = tmp_path / "a.tfrecord"
    with tf.io.TFRecordWriter(str(path), tf.io.TFRecordOptions(compression_type=compression)) as writer:
        for record in RECORDS:
            writer.write(record)
    data = path.read_bytes()
    unpacked = unpack(data, compression.lower()) if compression else (data, None)
    assert unpacked == (b"".join(map(frame, RECORDS)), None)
    found = read_items(unpacked[0])
    assert sound_in(found) == RECORDS
    assert not _damages(found)


@pytest.mark.parametrize(
    ("place", "code"), [(0, "LENGTH_CRC"), (9, "LENGTH_CRC"), (15, "DATA_CRC"), (12 + 50 + 1, "DATA_CRC")]
)
def test_damage_is_named_and_placed(place: int, code: str) -> None:
    frames = [frame(bytes((i,)) * 50) for i in range(3)]
    data = bytearray(b"".join(frames))
    data[len(frames[0]) + place] ^= 1
    first, damage, last = read_items(bytes(data))
    assert isinstance(first, Record)
    assert isinstance(damage, DamagedRange)
    assert (damage.number, damage.offset, damage.end, damage.code) == (1, 66, 132, code)
    assert last == Record(2, 132, b"\2" * 50)


@pytest.mark.parametrize("left", [1, 11, 12, 20, 65])
def test_a_truncated_file_ends_with_one_damage(left: int) -> None:
    data = frame(b"a" * 50) * 2
    found = read_items(data[: 66 + left])
    assert [type(item) for item in found] == [Record, DamagedRange]
    assert found[1].code == "SHARD_TRUNCATED"
    assert found[1].end == 66 + left


@pytest.mark.parametrize(
    ("left", "damages"),
    [
        (0, [(1, 66, 66, "the stream ends")]),
        (20, [(1, 66, 86, "the file ends inside a record of 50 bytes: the stream ends")]),
    ],
)
def test_a_fault_of_the_stream_is_reported_once_at_the_end(
    left: int, damages: list[tuple[int, int, int, str]], tmp_path: Path
) -> None:
    path = tmp_path / "unpacked"
    path.write_bytes((frame(b"a" * 50) * 2)[: 66 + left])
    with path.open("rb") as file:
        found = _damages(list(read_records(file, "the stream ends")))
    assert [(item.number, item.offset, item.end, item.message) for item in found] == damages
    assert {item.code for item in found} == {"SHARD_TRUNCATED"}


def test_a_length_beyond_the_file_hides_no_later_record() -> None:
    found = read_items(frame(b"one") + _header(10**9) + b"x" * 30 + frame(b"two"))
    assert sound_in(found) == [b"one", b"two"]
    assert [damage.code for damage in _damages(found)] == ["SHARD_TRUNCATED"]


def test_records_are_found_again_across_read_buffers() -> None:
    # the next sound header at every position around the end of the megabyte that is searched at once
    for shift in range(-14, 3):
        junk = b"\xff" * ((1 << 20) + 1 + shift)
        found = read_items(junk + frame(b"here"))
        assert sound_in(found) == [b"here"], shift


@pytest.mark.parametrize(
    "data",
    [b"", bytes(5_000_000), random.Random(1).randbytes(5_000_000), b"\xff" * 5_000_000, frame(b"") * 20_000],
    ids=["empty", "zeros", "random", "ones", "empty records"],
)
def test_degenerate_files_are_covered(data: bytes) -> None:
    assert_complete(read_items(data), len(data))


# --- compressed shards ---------------------------------------------------------------------------

_SHARD = b"".join(frame(record) for record in RECORDS) * 5
_PACK = {"gzip": gzip.compress, "zlib": zlib.compress}


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_compressed_shards_are_read_completely(compression: str) -> None:
    pack = _PACK[compression]
    zeros = bytes(40_000_000)  # unpacks to far more than is written at once
    assert unpack(pack(_SHARD), compression) == (_SHARD, None)
    assert unpack(pack(b""), compression) == (b"", None)
    assert unpack(b"", compression) == (b"", None)
    assert unpack(pack(_SHARD[:999]) + pack(_SHARD[999:]) + pack(b""), compression) == (_SHARD, None)
    assert unpack(pack(zeros), compression) == (zeros, None)


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
@pytest.mark.parametrize("share", [0.0005, 0.3, 0.9, 0.99999])
def test_a_truncated_stream_yields_its_records_and_is_reported(compression: str, share: float) -> None:
    packed = _PACK[compression](_SHARD)
    cut = packed[: max(1, int(len(packed) * share))]
    unpacked, error = unpack(cut, compression)
    assert error
    assert "early" in error
    assert _SHARD.startswith(unpacked)
    assert len(unpacked) >= len(_SHARD) * (share - 0.2)


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_a_damaged_stream_yields_the_records_before_the_damage(compression: str) -> None:
    packed = _PACK[compression](_SHARD)  # random data is stored nearly unchanged
    for share, words in ((0.4, "is damaged near byte"), (0.8, "ends early")):
        place = int(len(packed) * share)
        damaged = packed[:place] + b"\xff\xff\xff\xff" * 20_000 + packed[place + 80_000 :]
        unpacked, error = unpack(bytes(damaged), compression)
        assert error and words in error
        same = next((i for i, (a, b) in enumerate(zip(unpacked, _SHARD)) if a != b), len(unpacked))
        assert same >= len(_SHARD) * (share - 0.25), "what stood before the damage is lost"


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_a_wrong_checksum_or_garbage_at_the_end_is_damage_but_loses_nothing(compression: str) -> None:
    packed = _PACK[compression](_SHARD)
    place = -1 if compression == "zlib" else -6
    wrong = packed[:place] + bytes((packed[place] ^ 1,)) + packed[len(packed) + place + 1 :]
    for data in (wrong, packed + b"junk"):
        unpacked, error = unpack(data, compression)
        assert error
        assert unpacked == _SHARD


@pytest.mark.parametrize(
    ("name", "head", "compression"),
    [
        ("a.tfrecord.gz", b"", "gzip"),
        ("a.tfrecord.zlib", b"", "zlib"),
        ("foreign", gzip.compress(b"x")[:2], "gzip"),
        ("foreign", zlib.compress(frame(b"x")), "zlib"),
        ("foreign", b"\x78\x9c" + b"x" * 20, "none"),
        ("a.tfrecord", b"\x05\0", "none"),
        ("a.tfrecord.gz", frame(b"x"), "none"),
    ],
)
def test_compression_is_detected_by_the_first_bytes_or_else_by_name(
    name: str, head: bytes, compression: str
) -> None:
    assert compression_of(name, head) == compression


def _records(path: Path) -> list[tuple[int, bytes]]:
    with path.open("rb") as file:
        return [(item.offset, item.data) for item in read_records(file) if isinstance(item, Record)]


def _written(ledger: Path) -> list[Entry]:
    return [entry for entry in load_ledger(ledger.read_bytes())[1] if entry.outcome == "written"]


def _damage_and_save(dataset: Path, tmp: Path, known_by: str, rng: random.Random, has_keys: bool) -> None:
    copy = Path(shutil.copytree(dataset, tmp / "copy"))
    target = resolve_target(str(copy))
    tasks = [task for task in list_tasks(target, str(tmp / "saved")) if "train" in task.file]
    task = rng.choice(tasks)
    stem = task.file.partition(".")[0]
    ledger, saved = copy / "_shards" / f"{stem}.jsonl.gz", tmp / "saved" / task.file
    entries, frames = _written(ledger), _records(Path(task.path))
    data_of = [data for _, data in frames]
    key_of = dict(zip(data_of, (entry.key for entry in entries), strict=True))
    if known_by != "ledger":
        ledger.unlink()
    if known_by == "nothing":
        (copy / "_index" / f"{stem}.idx").unlink()
    shard = damage_shard(Path(task.path).read_bytes(), rng)
    Path(task.path).write_bytes(shard.bytes.tobytes())
    result, _ = save_shard(task, schema_of(target), False)
    kept = _records(saved)
    bounds = [(offset, offset + len(data) + FRAME_BYTES) for offset, data in frames]
    survivors = {data_of[number] for _, number in shard.survivors(bounds)}
    assert survivors <= {data for _, data in kept}, "a sound record was lost"
    assert {data for _, data in kept} <= set(data_of), "a damaged record was kept"
    assert len({data for _, data in kept}) == len(kept), "a record was kept twice"
    assert result.records + len(result.lost) == len(entries)
    new = _written(tmp / "saved" / "_shards" / f"{stem}.jsonl.gz")
    assert [(entry.offset, entry.length) for entry in new] == [
        (offset, len(data) + FRAME_BYTES) for offset, data in kept
    ]
    if not has_keys:  # if records of equal length were moved, their position is the best guess
        return
    assert all(entry.key in ("", key_of[data]) for entry, (_, data) in zip(new, kept, strict=True))
    assert {lost.key for lost in result.lost}.isdisjoint(key_of[data] for data in survivors)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("known_by", ["ledger", "index", "nothing"])
def test_records_with_keys_are_salvaged(sound_dataset: Path, tmp_path: Path, known_by: str) -> None:
    rng = random.Random(known_by)
    for number in range(20):
        _damage_and_save(sound_dataset, tmp_path / str(number), known_by, rng, True)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["raw", "minimal"])
@pytest.mark.parametrize("known_by", ["ledger", "index", "nothing"])
def test_records_without_keys_are_salvaged(photos: Path, tmp_path: Path, layout: str, known_by: str) -> None:
    made = convert(input=str(photos), output=str(tmp_path / "made"), resize=16, layout=layout, shards=4)
    rng = random.Random(layout + known_by)
    for number in range(100):
        _damage_and_save(Path(made.path), tmp_path / str(number), known_by, rng, False)


def test_second_copies_are_told_by_their_keys() -> None:
    """Two images of a dataset may be equal, so that the checksum of the source does not tell."""
    written = [Frame(0, 100), Frame(100, 100)]
    found = [Frame(0, 100, "a", "same"), Frame(130, 120, "b", "same"), Frame(300, 120, "a", "same")]
    assert match_records(found, written, 420) == [0, Match.UNKNOWN, Match.UNEXPECTED]


def test_equal_images_of_an_intact_shard_are_all_kept_without_its_ledger() -> None:
    entry = Entry("", "written", sha256="same", length=100)
    records = [FoundRecord(Frame(offset, 100, None, "same"), None, entry) for offset in (0, 100)]
    salvaged = reconcile("a", "a", Content(records, [], 200), None, None, 2, intact=True)
    assert (salvaged.kept, salvaged.lost, salvaged.unexpected) == ([0, 1], [], 0)


MEGABYTE = 1 << 20


def _header(length: int) -> bytes:
    packed = length.to_bytes(8, "little")
    return packed + masked_crc32c(packed).to_bytes(4, "little")


# --- random damage -------------------------------------------------------------------------------


def _random_records(rng: random.Random) -> list[bytes]:
    """Returns the records of a shard: of different sizes, of one size, or with many zeros."""
    count = rng.randint(1, 12)
    kind = rng.random()
    if kind < 0.3:
        # Not 8: the repeated header of such a record is a sound frame, whose data is the length.
        size = rng.choice((0, 9, 64, 500, 4096))
        return [rng.randbytes(size) for _ in range(count)]
    if kind < 0.4:
        return [bytes(rng.choice((0, 12, 16, 700))) for _ in range(count)]
    return [rng.randbytes(rng.choice((0, 1, 5, 20, 100, 600, 3000))) for _ in range(count)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(52))
def test_random_damage_is_detected_and_loses_no_sound_record(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(250):
        records = _random_records(rng)
        shard = damage_shard(b"".join(map(frame, records)), rng)
        data = shard.bytes.tobytes()
        found, read = read_counted(data)
        assert_complete(found, len(data))
        assert all(record in records for record in sound_in(found)), "a damaged record passed as sound"
        here = {item.offset: item.data for item in found if isinstance(item, Record)}
        ends = np.cumsum([len(record) + FRAME_BYTES for record in records]).tolist()
        for offset, number in shard.survivors(list(zip([0, *ends[:-1]], ends))):
            assert here.get(offset) == records[number], "a sound record was lost"
        damages = sum(isinstance(item, DamagedRange) for item in found)
        assert read <= (2 + 3 * damages) * len(data)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("compression", ["gzip", "zlib"])
@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_stream_yields_only_bytes_that_were_in_it(seed: int, compression: str) -> None:
    rng = random.Random(seed)
    for _ in range(100):
        records = [*_random_records(rng), rng.randbytes(3000)]
        packed = damage_shard(_PACK[compression](b"".join(map(frame, records))), rng)
        unpacked, error = unpack(packed.bytes.tobytes(), compression)
        sound = sound_in(read_items(unpacked))
        assert all(record in records for record in sound)
        if not error and packed.origin.tolist() == sorted(packed.origin):  # everything or nothing
            assert sound in (records, [])


@pytest.mark.parametrize("seed", range(3))
def test_gzip_members_after_a_damaged_one_are_read(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        groups = [[rng.randbytes(rng.choice((0, 9, 700, 5000))) for _ in range(3)] for _ in range(5)]
        members = [bytearray(gzip.compress(b"".join(map(frame, group)))) for group in groups]
        hurt = sorted(rng.sample(range(5), rng.choice((1, 1, 2))))
        for number in hurt:
            place = rng.randrange(len(members[number]))
            if rng.random() < 0.5:
                members[number][place] ^= 1 << rng.randrange(8)
            else:
                del members[number][place : place + rng.choice((1, 9, 100))]
        sound = sound_in(read_items(unpack(b"".join(members), "gzip")[0]))
        kept = [record for number, group in enumerate(groups) if number not in hurt for record in group]
        remaining = iter(sound)
        assert all(record in remaining for record in kept), "a whole member was lost"
        assert all(any(record in group for group in groups) for record in sound)


# --- bounded work --------------------------------------------------------------------------------


def _lies_to_the_end(size: int) -> bytes:
    """Returns a header every 12 bytes, with a correct checksum, whose record would nearly reach the end."""
    return b"".join(_header(max(3, size - place - 40)) for place in range(0, size, 12))


def _lies_among_empty_records(size: int) -> bytes:
    """Returns sound empty records, each after a header that states a much larger record."""
    empty = frame(b"")
    pieces = [_header(max(1, (size - place) // 2)) + empty for place in range(0, size, 28)]
    return b"".join(pieces)


def _every_other_length_is_damaged(size: int) -> bytes:
    sound = frame(b"0123456789")
    return (sound + b"\1" + sound[1:]) * (size // 52)


def _lies_of_two_kilobytes(size: int) -> bytes:
    return _header(2040) * (size // 12)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "craft",
    [_lies_to_the_end, _lies_among_empty_records, _every_other_length_is_damaged, _lies_of_two_kilobytes],
)
def test_crafted_lengths_cause_only_linear_work(
    craft: Callable[[int], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    checksums, work = mock.Mock(wraps=google_crc32c), []
    monkeypatch.setattr(framing, "google_crc32c", checksums)
    for size in (30 * 1024, 60 * 1024):  # whole strides of the checksums, so that both end alike
        data = craft(size)
        checksums.reset_mock()
        found, read = read_counted(data)
        assert_complete(found, len(data))
        summed = sum(len(call.args[-1]) for call in checksums.method_calls)
        work.append((summed, read))
        assert summed <= 200 * len(data)
        assert read <= 200 * len(data)
    (first, first_read), (second, second_read) = work
    assert second <= 2.5 * first
    assert second_read <= 2.5 * first_read + 4 * MEGABYTE


def test_sound_records_among_false_headers_are_found() -> None:
    # The false headers use up the allowed work long before the large records come.
    large = [random.Random(number).randbytes(100_000) for number in range(5)]
    lies = b"".join(_header(450_000 + number) for number in range(2000))
    data = b"".join(lies + frame(record) for record in large)
    found = read_items(data)
    assert sound_in(found) == large


def test_a_sound_record_inside_the_damaged_one_is_found() -> None:
    # 66 bytes of the first record are removed: together with the second it has exactly the right length.
    first, second, third = bytes(range(200)), b"s" * 50, b"third"
    framed = frame(first)
    found = read_items(framed[:40] + framed[106:] + frame(second) + frame(third))
    assert sound_in(found) == [second, third]
