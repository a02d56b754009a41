"""Reuses whole shards and unchanged records of earlier builds."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import IO, NamedTuple

from shardwright.core import storage
from shardwright.core.conversion import ReusableRecord, ShardRecipe
from shardwright.core.images.convert import side_reason
from shardwright.core.lease import HeldLease, while_held, write_held
from shardwright.core.plan.assign import NEVER_EMPTY, shard_of
from shardwright.core.records.compression import uncompressed
from shardwright.core.records.framing import FrameDamage, data_of
from shardwright.core.shards.finish import files_of
from shardwright.core.shards.shard_plan import ShardPlan
from shardwright.core.sources.file_states import TouchedFiles
from shardwright.schemas.codes import FilterReason, Outcome, QuarantineReason, Stage
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.ledger import Entry, ShardHeader, ShardResult, dump_index, load_ledger
from shardwright.schemas.plan import (
    HASH_RANGE,
    ShardPlace,
    index_file,
    is_compressed,
    ledger_file,
    shard_file,
)
from shardwright.schemas.version import check_file

#: Number of shards on each side of its own that are searched for an image that may have filled an empty one.
_NEIGHBORS = 4
#: Reasons that the bytes of a file decide, and those that its sides decide.
_BY_BYTES = frozenset((FilterReason.EXCLUDED, FilterReason.NOT_INCLUDED))
_BY_SIDES = frozenset((FilterReason.MIN_SIDE, FilterReason.MAX_ASPECT))


class PreviousBuild(NamedTuple):
    """A finished dataset whose records can be copied.

    Attributes:
      directory: Dataset directory.
      shards: Split -> number of shards.
      suffix: Suffix of its shard names.
      digests: File -> sha256 of each shard in `dataset.json`; None if only the ledger states it.
    """

    directory: str
    shards: Mapping[str, int]
    suffix: str
    digests: Mapping[str, str] | None = None


#: Stands for no earlier build: it has no shards.
NO_BUILD = PreviousBuild("", {}, "")


class ReusableBuilds(NamedTuple):
    """Earlier builds whose shards and records can be reused.

    Attributes:
      unfinished: Directories of killed or refused runs, from which whole shards can be reused, each with the
        files whose states are not trusted since its run.
      finished: The build whose plan is carried on, from which records can be copied too.
      trust_mtime: Whether a source in an unchanged state is assumed to be unchanged without reading it.
      content_changed: Splits and numbers of shards whose sources changed although their states are equal.
        These shards of the finished build are not reused, and their sources are not trusted.
      damaged: Shards of the finished build that do not match their sha256; nothing is copied from them.
      touched: Files whose states are not trusted since the finished build.
    """

    unfinished: Sequence[tuple[str, TouchedFiles]] = ()
    finished: PreviousBuild | None = None
    trust_mtime: bool = True
    content_changed: frozenset[tuple[str, int]] = frozenset()
    damaged: frozenset[str] = frozenset()
    touched: TouchedFiles = TouchedFiles()


def reuse_shard(
    directory: str,
    source: str,
    plan: ShardPlan,
    final: bool = True,
    digests: Mapping[str, str] | None = None,
    touched: TouchedFiles | None = None,
    hold: HeldLease | None = None,
) -> ShardResult | None:
    """Reuses a whole shard from another directory, if digest, size and checksum all match.

    Args:
      directory: Directory of the dataset that is built.
      source: Directory of another build.
      plan: The content of the shard.
      final: Whether to skip a shard with images that could not be read then, but may be readable now.
      digests: File -> sha256 in the other build's `dataset.json`; None for an unfinished build.
      touched: Files of which no image of the shard may be; None if the states of all sources are trusted.
      hold: Lease that must be held; None if there is none.

    Returns:
      The result of the shard; None if it cannot be reused.

    Raises:
      EngineError: If the lease was lost.
    """
    try:
        ledger = ledger_file(*plan.place)
        data = storage.read_bytes(storage.join(source, ledger))
        header, lines = load_ledger(data)
        if header.plan_digest != plan.digest:
            return None
        if touched is not None and any(ref.is_candidate and touched.has(ref) for ref in plan.refs):
            return None
        if digests is not None and header.file and digests.get(header.file) != header.sha256:
            return None
        entries = list(lines)
        if not _outcomes_stay(header, entries, plan.recipe, final):
            return None
        if header.file and not is_sound(storage.join(source, header.file), header):
            return None
        path = index_file(*plan.place)
        index = b"" if not header.file or is_compressed(header.file) else dump_index(entries)
        files = files_of(plan.place, data, index)
        names = [header.file] if header.file else []
        if index and index != storage.read_if_exists(storage.join(source, path)):
            write_held(directory, path, index, hold)
        elif index:
            names.append(path)
        if source != directory:
            found = check_file(header.file)  # exists if the shard has been checked
            if header.file and storage.exists(storage.join(source, found)):
                names.append(found)
            with while_held(hold):
                storage.link_files(source, directory, names, hold is not None)
                # The ledger comes last, because it marks the shard as present.
                storage.link_files(source, directory, [ledger], hold is not None)
    except (OSError, ValueError, TypeError):
        return None
    return ShardResult(header, reused=True, files=files)


def is_changed(directory: str, plan: ShardPlan) -> bool:
    """Returns whether a shard's plan differs from the plan in its ledger, or an outcome may differ.

    Args:
      directory: Dataset directory that contains the shard.
      plan: The content of the shard now.
    """
    try:
        header, lines = load_ledger(storage.read_bytes(storage.join(directory, ledger_file(*plan.place))))
        if header.plan_digest != plan.digest:
            return True
        if not lists_may_decide(header, plan.recipe) and not header.counts.get(Outcome.QUARANTINED):
            return False  # most ledgers need not be parsed
        return not _outcomes_stay(header, lines, plan.recipe)
    except (OSError, ValueError, TypeError):
        return True


def _outcomes_stay(
    header: ShardHeader, entries: Iterable[Entry], recipe: ShardRecipe, final: bool = True
) -> bool:
    """Returns whether each outcome in a ledger is also the outcome now, in one pass over its entries.

    Args:
      header: Header of the ledger; its plan is the plan of the shard now.
      entries: Entries of the ledger.
      recipe: How the shard is converted now.
      final: Whether images that could not be read then, but may be readable now, have another outcome.
    """
    by_lists = lists_may_decide(header, recipe)
    return not any(
        (by_lists and lists_decide_otherwise(entry, recipe))
        or (final and entry.outcome == Outcome.QUARANTINED and not can_stay(entry))
        for entry in entries
    )


def lists_may_decide(header: ShardHeader, recipe: ShardRecipe) -> bool:
    """Returns whether a list of digests may leave out images of a shard now, or did so when it was made."""
    return recipe.keys.need_bytes or not _BY_BYTES.isdisjoint(header.reasons.get(Outcome.FILTERED, ()))


def lists_decide_otherwise(entry: Entry, recipe: ShardRecipe) -> bool:
    """Returns whether the lists of `--include` and `--exclude` now have another outcome for an image.

    The digest of a shard does not contain these lists, so that a longer list changes only the shards of the
    images that it adds.
    """
    return bool(entry.sha256) and not _decides_same(entry, recipe, all_read=False)


def _decides_same(entry: Entry, recipe: ShardRecipe, all_read: bool = True) -> bool:
    """Returns whether an earlier outcome is also the outcome under the present rules.

    Codes of `--drop` are not compared, because the recipe of a record contains them.

    Args:
      entry: Ledger entry of an image that would be read now.
      recipe: How the shard is converted now.
      all_read: Whether to compare also sides, which the digest of a whole shard contains.
    """
    settings = recipe.settings
    is_filtered = entry.outcome == Outcome.FILTERED
    reason: str | None = recipe.keys.reason_by_bytes(entry.source, entry.sha256) if entry.sha256 else None
    if reason != (entry.reason if is_filtered and entry.reason in _BY_BYTES else None):
        return False
    if reason is not None or not all_read:
        return True
    width, height = entry.source_width, entry.source_height
    if width is None or height is None or settings.map:
        # The header of a quarantined image may have been read or not, and a picture that the function of
        # `--map` made has sides of its own.
        return not (settings.min_side or settings.max_aspect) and entry.reason not in _BY_SIDES
    recorded = entry.reason if is_filtered and entry.reason in _BY_SIDES else None
    return side_reason(width, height, settings) == recorded


def is_sound(path: str, header: ShardHeader) -> bool:
    """Returns whether a shard has the size and checksum in its ledger.

    Raises:
      OSError: If the shard cannot be read.
    """
    if header.crc32c:
        state = storage.stat(path)
        if state is not None and state.crc32c:  # the storage keeps and checks it
            return state.size == header.bytes and state.crc32c == header.crc32c
    with storage.open_local(path) as file:
        return os.fstat(file.fileno()).st_size == header.bytes and storage.sha256_of(file) == header.sha256


@dataclass(frozen=True)
class _OldShard:
    """A shard of an earlier build. Its file is opened when it is needed first.

    Attributes:
      name: Name of the shard file.
      path: Its path.
      sha256: Its checksum, according to its ledger.
      entries: Entries of the ledger.
      keep_open: Closes the shard in the end.
    """

    name: str
    path: str
    sha256: str
    entries: Sequence[Entry]
    keep_open: contextlib.ExitStack

    @cached_property
    def _file(self) -> IO[bytes]:
        return self.keep_open.enter_context(storage.open_local(self.path))

    @cached_property
    def _plain(self) -> IO[bytes]:
        """The uncompressed shard."""
        self._file.seek(0)
        return self.keep_open.enter_context(uncompressed(self._file, self.path))[0]

    def has_its_digest(self) -> bool:
        """Returns whether the file has its sha256; False if it cannot be read."""
        try:
            self._file.seek(0)
            return storage.sha256_of(self._file) == self.sha256
        except OSError:
            return False

    def frame(self, offset: int, length: int) -> bytes | None:
        """Returns the frame of a record; None if it is damaged or cannot be read."""
        try:
            frame = storage.read_fully(self._plain.fileno(), offset, length)
            if len(frame) < length:
                return None
            data_of(frame)
        except (OSError, FrameDamage):
            return None
        return frame


@dataclass
class PreviousRecords(contextlib.AbstractContextManager["PreviousRecords"]):
    """The records of an earlier build that a shard may copy.

    It is a context manager, because it keeps files open.

    Attributes:
      build: The earlier build.
      plan: The content of the new shard.
      trust_mtime: Whether a source in an unchanged state is assumed to be unchanged.
      touched: Files whose states are not trusted.
      verdicts: File -> whether a shard of the build matches its sha256, if known. Results are added, so that
        a shard that serves several new shards is read once.
      rejected: Shards with records to copy that do not match their sha256, so that nothing is copied.
    """

    build: PreviousBuild
    plan: ShardPlan
    trust_mtime: bool
    touched: TouchedFiles = field(default_factory=TouchedFiles)
    verdicts: dict[str, bool] = field(default_factory=dict)
    rejected: list[str] = field(default_factory=list)
    _shards: dict[tuple[str, int], _OldShard | None] = field(default_factory=dict, repr=False)
    _open: contextlib.ExitStack = field(default_factory=contextlib.ExitStack, repr=False)

    def __exit__(self, *raised: object) -> None:
        self._open.close()

    def find(self, refs: Iterable[tuple[ImageRef, str]]) -> dict[str, ReusableRecord]:
        """Returns key -> reusable record, for images that the earlier build has.

        Args:
          refs: References of the shard, or a part of them, each with its digest.
        """
        if not self.build.shards:
            return {}
        missing = {ref.key: (ref, digest) for ref, digest in refs if ref.is_candidate}
        records: dict[str, ReusableRecord] = {}
        place, few = self.plan.place, len(self.plan.refs) < NEVER_EMPTY
        for split in sorted(self.build.shards, key=lambda name: (name != place.split, name)):
            shards = self.build.shards[split]
            for index in near(place, shards) if few else overlapping(place, shards):
                if missing:
                    records.update(self._records_in(split, index, missing))
                    missing = {key: value for key, value in missing.items() if key not in records}
        return records

    def _shard(self, split: str, index: int) -> _OldShard | None:
        """Returns an earlier shard; None if nothing can be copied from it."""
        if (split, index) not in self._shards:
            self._shards[split, index] = None
            with contextlib.suppress(OSError, ValueError, TypeError):
                build = self.build
                place = ShardPlace(split, index, build.shards[split])
                name = shard_file(*place, build.suffix)
                ledger = storage.read_bytes(storage.join(build.directory, ledger_file(*place)))
                header, lines = load_ledger(ledger)
                stated = build.digests.get(name) if build.digests else header.sha256
                # Otherwise nothing can be copied, or the ledger belongs to another shard.
                if header.recipe == self.plan.recipe_digest and stated == header.sha256:
                    path = storage.join(build.directory, name)
                    self._shards[split, index] = _OldShard(name, path, header.sha256, list(lines), self._open)
        return self._shards[split, index]

    def _is_sound(self, shard: _OldShard) -> bool:
        """Returns whether a shard has not changed. Otherwise no line of its ledger is used."""
        if shard.name not in self.verdicts:
            self.verdicts[shard.name] = shard.has_its_digest()
        if not self.verdicts[shard.name] and shard.name not in self.rejected:
            self.rejected.append(shard.name)
        return self.verdicts[shard.name]

    def _records_in(
        self, split: str, index: int, missing: Mapping[str, tuple[ImageRef, str]]
    ) -> Iterator[tuple[str, ReusableRecord]]:
        shard = self._shard(split, index)
        if shard is None:
            return
        same_refs: dict[str, list[Entry]] = {}
        for entry in shard.entries:
            source = entry.source
            if source not in missing or missing[source][1] != entry.digest or not can_stay(entry):
                continue
            if _decides_same(entry, self.plan.recipe):
                same_refs.setdefault(source, []).append(entry)
        if not same_refs or not self._is_sound(shard):
            return
        for source, (entry, *more) in same_refs.items():
            ref = missing[source][0]
            same = self.trust_mtime and ref.fingerprint == entry.fingerprint and ref.has_known_state
            trusted = same and not self.touched.has(ref)
            yield source, ReusableRecord(entry, trusted, shard.frame, tuple(more))


def overlapping(place: ShardPlace, shards: int) -> range:
    """Returns the numbers of the earlier shards that hold a shard's images, by their ranges of hashes."""
    _, index, count = place
    first, last = -(-index * HASH_RANGE // count), -(-(index + 1) * HASH_RANGE // count) - 1
    return range(shard_of(first, shards), shard_of(last, shards) + 1)


def near(place: ShardPlace, shards: int) -> list[int]:
    """Returns the shards of `overlapping` and their neighbors, nearest first.

    If shards have few images, an image of a neighbor may have filled an empty shard in either build
    (`fill_empty_shards`). Images that moved farther are converted again.
    """
    inside = overlapping(place, shards)
    around = range(max(inside.start - _NEIGHBORS, 0), min(inside.stop + _NEIGHBORS, shards))
    return sorted(around, key=lambda shard: max(inside.start - shard, shard - inside.stop + 1, 0))


def can_stay(entry: Entry) -> bool:
    """Returns whether an earlier outcome can be reused for an image that would be converted.

    Files that could not be read may be readable now.
    """
    if entry.reason == QuarantineReason.BAD_ANNOTATION:
        return entry.stage != Stage.READ  # a missing image or mask
    return entry.reason != QuarantineReason.UNREADABLE
