"""Moves a written shard to its place, with its index and its ledger. Needs no Beam."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from shardwright.schemas.codes import Outcome
from shardwright.schemas.ledger import Entry, ShardResult, dump_index, dump_ledger, tally
from shardwright.schemas.plan import index_file, is_compressed, ledger_file
from shardwright.schemas.source_sizes import SourceSizes
from shardwright.transforms import storage

#: Images of which a shard tells why boxes were dropped.
_SHOWN = 3


class ShardPlace(NamedTuple):
    """A shard's split, its number from 0, and the number of shards in the split."""

    split: str
    shard: int
    num_shards: int


def finish_shard(
    directory: str,
    place: ShardPlace,
    file: str,
    temporary: str,
    entries: Sequence[Entry],
    plan_digest: str,
    recipe: str,
    started: float,
) -> ShardResult:
    """Hashes a written shard, moves it to its place and writes its index and ledger.

    Args:
      directory: the dataset directory.
      place: which shard it is.
      file: its file's name.
      temporary: where it was written; nothing is left there.
      entries: its ledger.
      plan_digest: digest of all that decides its bytes.
      recipe: digest of the settings and versions that decide the bytes of its records.
      started: when it was begun, in seconds since the epoch.
    """
    try:
        with open(temporary, "rb") as written:
            sha256, crc32c = storage.checksums_of(written)
            size = os.fstat(written.fileno()).st_size
        storage.publish(temporary, storage.join(directory, file))
    except BaseException:
        discard(temporary)
        raise
    result = dataclasses.replace(
        result_of(place, entries),
        file=file,
        plan_digest=plan_digest,
        bytes=size,
        sha256=sha256,
        recipe=recipe,
        crc32c=crc32c,
        started=started,
        finished=time.time(),
    )
    write_index(directory, place, file, entries)
    storage.write_bytes(storage.join(directory, ledger_file(*place)), dump_ledger(result, entries))
    return result


def write_index(directory: str, place: ShardPlace, file: str, entries: Sequence[Entry]) -> None:
    """Writes the index of an uncompressed shard that has records; readers of indexes fail on an empty one."""
    index = b"" if is_compressed(file) else dump_index(entries)
    if index:
        storage.write_bytes(storage.join(directory, index_file(*place)), index)


def result_of(place: ShardPlace, entries: Sequence[Entry]) -> ShardResult:
    """Returns what a shard's entries come to, without what only its file says."""
    counts, reasons, classes = tally(entries)
    boxes: Counter[str] = Counter()
    for entry in entries:
        boxes.update(entry.boxes or {})
    return ShardResult(
        file="",
        split=place.split,
        shard=place.shard,
        num_shards=place.num_shards,
        plan_digest="",
        records=counts[Outcome.WRITTEN],
        bytes=0,
        sha256="",
        counts=dict(counts),
        reasons=reasons,
        class_counts=dict(sorted(classes.items())),
        kept=sum(entry.stored == "kept" for entry in entries),
        animated=sum(entry.animated for entry in entries),
        damaged=sum(entry.damaged for entry in entries),
        warned=sum(bool(entry.decoder_warning) and not entry.damaged for entry in entries),
        boxes=dict(sorted(boxes.items())),
        formats=dict(sorted(Counter(entry.format for entry in entries if entry.format).items())),
        sources=SourceSizes.of_entries(entries).state(),
        bad_boxes=tuple(islice(_told(entries), _SHOWN)),
        quarantine=tuple(entry for entry in entries if entry.outcome == Outcome.QUARANTINED),
    )


def _told(entries: Iterable[Entry]) -> Iterator[str]:
    """Yields the images of which boxes were dropped, and why."""
    for entry in entries:
        if entry.outcome == Outcome.WRITTEN and entry.message:
            yield f"{entry.key} ({entry.message})"


def discard(temporary: str) -> None:
    """Removes a temporary file, as far as that is possible."""
    with contextlib.suppress(OSError):
        os.unlink(temporary)
