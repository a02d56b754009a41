"""Shards damaged in thousands of random ways, compared with a list of the surviving bytes of each record."""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Callable
from typing import Any

import google_crc32c
import numpy as np
import pytest
from helpers.resealing import frame
from helpers.shard_damage import assert_complete, damage_shard, read_counted, read_items, sound_in, unpack

from shardwright.core.records import framing
from shardwright.core.records.framing import (
    FRAME_BYTES,
    DamagedRange,
    Record,
    masked_crc32c,
)

MEGABYTE = 1 << 20


def _header(length: int) -> bytes:
    packed = length.to_bytes(8, "little")
    return packed + masked_crc32c(packed).to_bytes(4, "little")


# --- random damage -------------------------------------------------------------------------------


def _records(rng: random.Random) -> list[bytes]:
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


def _bounds(records: list[bytes]) -> list[tuple[int, int]]:
    ends = np.cumsum([len(record) + FRAME_BYTES for record in records]).tolist()
    return list(zip([0, *ends[:-1]], ends))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(52))
def test_random_damage_is_detected_and_loses_no_sound_record(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(250):
        records = _records(rng)
        shard = damage_shard(b"".join(map(frame, records)), rng)
        data = shard.bytes.tobytes()
        found, read = read_counted(data)
        assert_complete(found, len(data))
        assert all(record in records for record in sound_in(found)), "a damaged record passed as sound"
        here = {item.offset: item.data for item in found if isinstance(item, Record)}
        for offset, number in shard.survivors(_bounds(records)):
            assert here.get(offset) == records[number], "a sound record was lost"
        damages = sum(isinstance(item, DamagedRange) for item in found)
        assert read <= (2 + 3 * damages) * len(data)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("compression", ["gzip", "zlib"])
@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_stream_yields_only_bytes_that_were_in_it(seed: int, compression: str) -> None:
    pack = {"gzip": gzip.compress, "zlib": zlib.compress}[compression]
    rng = random.Random(seed)
    for _ in range(100):
        records = [*_records(rng), rng.randbytes(3000)]
        packed = damage_shard(pack(b"".join(map(frame, records))), rng)
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


@pytest.fixture
def summed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of bytes whose checksum was computed, as the only item of a list."""
    total = [0]

    class Counting:
        @staticmethod
        def value(data: bytes) -> Any:
            total[0] += len(data)
            return google_crc32c.value(data)

        @staticmethod
        def extend(crc: int, data: bytes) -> Any:
            total[0] += len(data)
            return google_crc32c.extend(crc, data)

    monkeypatch.setattr(framing, "google_crc32c", Counting)
    return total


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
def test_crafted_lengths_cause_only_linear_work(craft: Callable[[int], bytes], summed: list[int]) -> None:
    work = []
    for size in (30 * 1024, 60 * 1024):  # whole strides of the checksums, so that both end alike
        summed[0] = 0
        data = craft(size)
        summed[0] = 0
        found, read = read_counted(data)
        assert_complete(found, len(data))
        work.append((summed[0], read))
        assert summed[0] <= 200 * len(data)
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
