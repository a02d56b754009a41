"""What earlier builds offer a shard: itself whole, or the bytes of its unchanged records. Needs no Beam."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import IO, NamedTuple

from shardwright.schemas.codes import Outcome, QuarantineReason, Stage
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.ledger import Entry, ShardResult, dump_index, ledger_header, load_ledger
from shardwright.schemas.plan import index_file, is_compressed, ledger_file, shard_file
from shardwright.schemas.version import check_file
from shardwright.transforms import storage
from shardwright.transforms.plan.assign import HASH_RANGE, NEVER_EMPTY, shard_of
from shardwright.transforms.records.framing import data_of_frame, uncompressed
from shardwright.transforms.shards.finish import ShardPlace

#: Of an old shard that are read at once, since records are asked for in the order in which they stand.
_BLOCK_BYTES = 1 << 18
#: Shards on each side of its own in which an image is looked for that may have filled an empty shard.
_NEIGHBORS = 4


class EarlierBuild(NamedTuple):
    """A finished dataset whose records can be copied.

    Attributes:
      directory: of the dataset.
      shards: number of shards per split.
      suffix: of its shards' names.
    """

    directory: str
    shards: Mapping[str, int]
    suffix: str


class Earlier(NamedTuple):
    """What earlier builds offer.

    Attributes:
      unfinished: directories that killed or refused runs left, whose whole shards can be taken over.
      finished: the build that the plan was carried on from, of which records can be copied too.
      trusting: whether a source with the state that it had is taken to be unchanged without reading it.
      altered: splits and numbers of shards that are not what they were though the states of their sources
        agree; none of these is taken over from the finished build, and none of their sources is trusted.
    """

    unfinished: Sequence[str] = ()
    finished: EarlierBuild | None = None
    trusting: bool = True
    altered: frozenset[tuple[str, int]] = frozenset()


def take_over(
    directory: str, source: str, place: ShardPlace, digest: str, final: bool = True
) -> ShardResult | None:
    """Takes a whole shard over from another directory, if digest, size and checksum all agree.

    Args:
      directory: of the dataset that is being built.
      source: another build's.
      place: which shard it is.
      digest: of all that decides its bytes.
      final: leave one with images that could not be read then, and may be readable now.

    Returns:
      Its result; None if there is no such shard.
    """
    if not digest:
        return None
    try:
        ledger = ledger_file(*place)
        data = storage.read_bytes(storage.join(source, ledger))
        result, lines = load_ledger(data)
        if result.plan_digest != digest:
            return None
        entries = list(lines)
        bad = tuple(entry for entry in entries if entry.outcome == Outcome.QUARANTINED)
        if final and not all(map(can_stay, bad)):
            return None
        if result.file and not is_sound(storage.join(source, result.file), result):
            return None
        if result.file:
            _put_index(directory, source, place, result.file, entries)
        if source != directory:
            if result.file:
                found = check_file(result.file)  # where somebody has looked into it
                there = [found] if storage.exists(storage.join(source, found)) else []
                storage.link_files(source, directory, [result.file, *there])
            storage.link_files(source, directory, [ledger])  # last: it says that the shard is there
    except (OSError, ValueError, TypeError):
        return None
    return dataclasses.replace(result, quarantine=bad, reused=True)


def _put_index(directory: str, source: str, place: ShardPlace, file: str, entries: Sequence[Entry]) -> None:
    """Gives a shard that is taken over the index that its ledger tells, whatever the other build's is like.

    Raises:
      OSError: if it cannot be written.
    """
    path, index = index_file(*place), b"" if is_compressed(file) else dump_index(entries)
    if not index:
        return
    with contextlib.suppress(FileNotFoundError):
        if storage.read_bytes(storage.join(source, path)) == index:
            if source != directory:
                storage.link_files(source, directory, [path])
            return
    storage.write_bytes(storage.join(directory, path), index)


def is_sound(path: str, result: ShardResult) -> bool:
    """Whether a shard has the bytes that its ledger says.

    Raises:
      OSError: if it cannot be read.
    """
    if result.crc32c:
        found = storage.stat(path)
        if found is not None and found.crc32c:  # the storage keeps it, and compares it itself
            return found.size == result.bytes and found.crc32c == result.crc32c
    with storage.open_local(path) as file:
        return os.fstat(file.fileno()).st_size == result.bytes and storage.sha256_of(file) == result.sha256


class _OldShard:
    """A shard of an earlier build, opened when its first record is asked for."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._open = contextlib.ExitStack()
        self._lock = threading.Lock()
        self._descriptor = -1
        self._gone = False
        self._block, self._start = b"", 0

    def close(self) -> None:
        self._open.close()

    def frame(self, offset: int, length: int) -> bytes | None:
        """Returns the frame that stands there; None if it is damaged or cannot be read."""
        try:
            with self._lock:
                if self._descriptor < 0 and not self._gone:
                    self._gone = True  # unless all goes well
                    self._descriptor = self._open.enter_context(_plain(self._path)).fileno()
                    self._gone = False
                if self._gone:
                    return None
                if not self._start <= offset <= offset + length <= self._start + len(self._block):
                    self._block = storage.read_fully(self._descriptor, offset, max(length, _BLOCK_BYTES))
                    self._start = offset
                first = offset - self._start
                frame = self._block[first : first + length]
            return None if data_of_frame(frame) is None else frame
        except OSError:
            return None


@contextlib.contextmanager
def _plain(path: str) -> Iterator[IO[bytes]]:
    """Opens a shard's uncompressed bytes."""
    with storage.open_local(path) as file, uncompressed(file, path) as (plain, _, _):
        yield plain


class Known(NamedTuple):
    """What an earlier build made of an image that is asked for in the same way now.

    Attributes:
      entry: its line of the ledger.
      unchanged: whether its source has the state that it had then.
      shard: that holds its record.
    """

    entry: Entry
    unchanged: bool
    shard: _OldShard

    def read(self) -> bytes | None:
        """Returns the record's frame; None if it is damaged or there is none."""
        offset, length = self.entry.offset, self.entry.length
        return None if offset is None or length is None else self.shard.frame(offset, length)


class EarlierRecords:
    """The records of an earlier build that a shard may copy; a context, for it holds files open.

    Args:
      build: the earlier build.
      place: the shard to write now.
      recipe: digest of the settings and versions that decide the bytes of a record now.
      trusting: whether a source with the state that it had is taken to be unchanged.
    """

    def __init__(self, build: EarlierBuild, place: ShardPlace, recipe: str, trusting: bool) -> None:
        self._build = build
        self._place = place
        self._recipe = recipe
        self._trusting = trusting
        self._opened: list[_OldShard] = []

    def __enter__(self) -> EarlierRecords:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for shard in self._opened:
            shard.close()

    def find(self, refs: Sequence[tuple[ImageRef, str]]) -> dict[str, Known]:
        """Returns by key what is known of images.

        Args:
          refs: the shard's references, each with its digest.
        """
        wanted = {ref.key: (ref, digest) for ref, digest in refs if ref.is_candidate}
        found: dict[str, Known] = {}
        own = self._place.split
        for split in sorted(self._build.shards, key=lambda name: (name != own, name)):
            if not wanted:
                break
            shards = self._build.shards[split]
            few = len(refs) < NEVER_EMPTY
            for shard in near(self._place, shards) if few else overlapping(self._place, shards):
                for key, known in self._known(split, shard, wanted):
                    found[key] = known
                wanted = {key: value for key, value in wanted.items() if key not in found}
                if not wanted:
                    break
        return found

    def _known(
        self, split: str, number: int, wanted: Mapping[str, tuple[ImageRef, str]]
    ) -> Iterator[tuple[str, Known]]:
        place = ShardPlace(split, number, self._build.shards[split])
        try:
            data = storage.read_bytes(storage.join(self._build.directory, ledger_file(*place)))
            if ledger_header(data).recipe != self._recipe:
                return
            entries = list(load_ledger(data)[1])
        except (OSError, ValueError, TypeError):
            return
        name = shard_file(*place, self._build.suffix)
        shard = _OldShard(storage.join(self._build.directory, name))
        self._opened.append(shard)
        for entry in entries:
            ref, digest = wanted.get(entry.key, (None, ""))
            if ref is not None and digest == entry.digest and can_stay(entry):
                same = self._trusting and ref.fingerprint == entry.fingerprint and is_marked(ref)
                yield entry.key, Known(entry, same, shard)


def overlapping(place: ShardPlace, shards: int) -> range:
    """Returns the numbers of the shards where the images of a shard are if there are so many in a split."""
    _, number, count = place
    first, last = -(-number * HASH_RANGE // count), -(-(number + 1) * HASH_RANGE // count) - 1
    return range(shard_of(first, shards), shard_of(last, shards) + 1)


def near(place: ShardPlace, shards: int) -> list[int]:
    """Returns the shards of `overlapping` and their neighbors, the nearest first.

    Where a shard has few images, one of a neighbor may have filled it when it was empty, in either build
    (`fill_empty_shards`). What moved farther is converted again.
    """
    inside = overlapping(place, shards)
    around = range(max(inside.start - _NEIGHBORS, 0), min(inside.stop + _NEIGHBORS, shards))
    return sorted(around, key=lambda shard: max(inside.start - shard, shard - inside.stop + 1, 0))


def can_stay(entry: Entry) -> bool:
    """Whether an outcome can be copied to an image that is to be converted.

    What could not be read may be readable now. What earlier versions filtered when they read it, such as
    images of kinds that are not decoded, is looked at again.
    """
    if entry.outcome == Outcome.FILTERED:
        return False
    if entry.reason == QuarantineReason.BAD_ANNOTATION:
        return entry.stage != Stage.READ  # an image that is missing, or a mask
    return entry.reason != QuarantineReason.UNREADABLE


def is_marked(ref: ImageRef) -> bool:
    """Whether the states of an image and its mask are known well enough to tell that they did not change."""
    if ref.size < 0 or not ref.version:
        return False
    # Looked for in the JSON as it stands: a quote inside of its strings would have a backslash before it.
    has_mask = '"semantic_mask":' in ref.annotations or '"panoptic_mask":' in ref.annotations
    return not has_mask or '"mask_version":' in ref.annotations
