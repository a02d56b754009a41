"""Reports the objects of the source that records do not have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shardwright.schemas.codes import FindingCode, Outcome
from shardwright.schemas.findings import Finding
from shardwright.schemas.ledger import ShardHeader, line_blocks, parsed_lines
from shardwright.schemas.units import counted, is_or_are

#: Counts of a ledger's objects that are not in the records -> why.
_LOST = {
    "vanished": "outside the stored picture",
    "segments_vanished": "without a pixel in the stored mask",
    "dropped": "bad",
}


def drops_objects(header: ShardHeader) -> bool:
    """Returns whether records of a shard lack objects of their sources."""
    return any(header.boxes.get(name) for name in _LOST)


def dropped_objects(entry: Mapping[str, Any]) -> str:
    """Returns which objects of an image its record lacks, and why; empty if it has all of them.

    Args:
      entry: Line of the image in its shard's ledger.
    """
    stated = (entry.get("boxes") or {}).items()
    counts = {name: count for name, count in stated if isinstance(count, int)}  # the ledger may be damaged
    lost = {name: counts[name] for name in _LOST if counts.get(name, 0) > 0}
    if not lost:
        return ""
    number = sum(lost.values())
    total = number + sum(counts.get(name, 0) for name in ("written", "segments_written"))
    reasons = ", ".join(f"{count:,} {_LOST[name]}" for name, count in lost.items())
    source = f" {entry['source_key']}" if entry.get("source_key") else ""
    first = f" ({entry['message']})" if "dropped" in lost and entry.get("message") else ""
    objects = f"{number:,} of the {counted(total, 'object')} of its source{source}"
    return f"{objects} {is_or_are(number)} not in the record: {reasons}{first}"


def find_dropped_objects(data: bytes, file: str) -> Iterator[Finding]:
    """Yields a finding for each record of a shard that lacks objects of its source.

    Args:
      data: Contents of the shard's ledger.
      file: Name of the shard.

    Raises:
      OSError, EOFError, zlib.error, ValueError, LookupError: If the ledger is damaged.
    """
    written = (
        line
        for lines in line_blocks(data)
        for line in parsed_lines(lines)
        if line.get("outcome") == Outcome.WRITTEN
    )
    for number, line in enumerate(written):
        if message := dropped_objects(line):
            code = FindingCode.OBJECTS_DROPPED
            yield Finding(code, message, file, number, line["offset"], line["key"])
