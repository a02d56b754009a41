"""Damages the bytes of a shard at random, records the original position of each byte, and reads the rest."""

from __future__ import annotations

import io
import random
import tempfile
from collections.abc import Callable, Iterator

import numpy as np

from shardwright.core.records.compression import decompress
from shardwright.core.records.framing import FRAME_BYTES, DamagedRange, Record, read_records

Items = list[Record | DamagedRange]


class _Counted(io.FileIO):
    """A file that counts the bytes read from it."""

    total = 0

    def read(self, size: int | None = -1, /) -> bytes:
        """Reads, and counts."""
        data = super().read(-1 if size is None else size) or b""
        self.total += len(data)
        return data


def read_counted(data: bytes) -> tuple[Items, int]:
    """Returns the items of a file, and the number of bytes read."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        with _Counted(file.name) as counted:
            return list(read_records(counted)), counted.total


def read_items(data: bytes) -> Items:
    """Returns the items of a file."""
    return read_counted(data)[0]


def sound_in(items: Items) -> list[bytes]:
    """Returns the sound records."""
    return [item.data for item in items if isinstance(item, Record)]


def unpack(data: bytes, compression: str) -> tuple[bytes, str | None]:
    """Returns the unpacked bytes of a file, and the error."""
    file, error = decompress(io.BytesIO(data), compression)
    with file:
        return file.read(), error


class DamagedShard:
    """A shard that knows the original position of every byte; -1 for inserted bytes."""

    def __init__(self, data: bytes) -> None:
        self.bytes = np.frombuffer(data, np.uint8).copy()
        self.origin = np.arange(len(data))

    def put(self, begin: int, end: int, data: bytes) -> None:
        """Replaces a range by inserted bytes."""
        new = np.frombuffer(data, np.uint8)
        self.bytes = np.concatenate((self.bytes[:begin], new, self.bytes[end:]))
        self.origin = np.concatenate((self.origin[:begin], np.full(len(new), -1), self.origin[end:]))

    def reorder(self, *stretches: tuple[int, int]) -> None:
        """Rearranges the shard from some of its ranges."""
        self.bytes = np.concatenate([self.bytes[a:b] for a, b in stretches])
        self.origin = np.concatenate([self.origin[a:b] for a, b in stretches])

    def survivors(self, bounds: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Yields (offset, number) of each frame that is still complete and contiguous."""
        for number, (begin, end) in enumerate(bounds):
            for place in np.flatnonzero(self.origin == begin):
                if np.array_equal(self.origin[place : place + end - begin], np.arange(begin, end)):
                    yield int(place), number


def _flip(shard: DamagedShard, rng: random.Random) -> None:
    for place in rng.sample(range(len(shard.bytes)), min(len(shard.bytes), rng.choice((1, 1, 2, 9)))):
        value = int(shard.bytes[place]) ^ (1 << rng.randrange(8))
        shard.put(place, place + 1, bytes((value,)))


def _cut_off(shard: DamagedShard, rng: random.Random) -> None:
    shard.reorder((0, rng.randrange(len(shard.bytes) + 1)))


def _insert(shard: DamagedShard, rng: random.Random) -> None:
    place = rng.randrange(len(shard.bytes) + 1)
    size = rng.choice((1, 2, 13, 64, 512, 2000))
    shard.put(place, place, bytes(size) if rng.random() < 0.3 else rng.randbytes(size))


def _delete(shard: DamagedShard, rng: random.Random) -> None:
    place = rng.randrange(len(shard.bytes) + 1)
    shard.put(place, min(place + rng.choice((1, 2, 13, 80, 700)), len(shard.bytes)), b"")


def _stretches(shard: DamagedShard, rng: random.Random, count: int) -> list[int]:
    return sorted(rng.randrange(len(shard.bytes) + 1) for _ in range(count))


def _swap(shard: DamagedShard, rng: random.Random) -> None:
    a, b, c, d = _stretches(shard, rng, 4)
    shard.reorder((0, a), (c, d), (b, c), (a, b), (d, len(shard.bytes)))


def _double(shard: DamagedShard, rng: random.Random) -> None:
    a, b, c = _stretches(shard, rng, 3)
    shard.reorder((0, c), (a, b), (c, len(shard.bytes)))


def _overwrite(shard: DamagedShard, rng: random.Random) -> None:
    """Writes a range over another one of the same length, like a misdirected sector."""
    a, b, c = _stretches(shard, rng, 3)
    end = min(c + b - a, len(shard.bytes))
    shard.reorder((0, c), (a, a + end - c), (end, len(shard.bytes)))


def _zero_sector(shard: DamagedShard, rng: random.Random) -> None:
    size = rng.choice((512, 512, 4096))
    begin = rng.randrange(len(shard.bytes) // size + 1) * size
    end = min(begin + size, len(shard.bytes))
    shard.put(begin, end, bytes(end - begin))


DAMAGES: tuple[Callable[[DamagedShard, random.Random], None], ...] = (
    _flip, _cut_off, _insert, _delete, _swap, _double, _overwrite, _zero_sector,
)  # fmt: skip


def damage_shard(data: bytes, rng: random.Random) -> DamagedShard:
    """Damages a shard, usually once."""
    shard = DamagedShard(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        if len(shard.bytes):
            rng.choice(DAMAGES)(shard, rng)
    return shard


def assert_complete(found: Items, size: int) -> None:
    """Asserts that records and damaged ranges cover the shard from the first byte to the last."""
    position = 0
    for number, item in enumerate(found):
        assert (item.number, item.offset) == (number, position)
        position = item.end if isinstance(item, DamagedRange) else position + len(item.data) + FRAME_BYTES
        assert position > item.offset
    assert position == size
