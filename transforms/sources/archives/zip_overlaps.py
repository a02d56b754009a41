"""Finds members of a zip that share bytes, as in zip bombs."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Mapping

import numpy as np

from shardwright.schemas.codes import QuarantineReason
from shardwright.transforms.sources.archives.members import ArchiveDamage, Member
from shardwright.transforms.storage.ranges import RangeReader

_LOCAL = struct.Struct("<4s5H3L2H")  # APPNOTE.TXT 4.3.7
_LOCAL_SIGN = b"PK\3\4"
_SIZES_FOLLOW = 1 << 3
_FULL32 = 0xFFFFFFFF
#: Most members whose local headers are read; if more overlap, all of them are unsafe.
_MAX_LOOKS = 1000

Fault = tuple[QuarantineReason, str]


def find_overlaps(reader: RangeReader, found: Iterable[Member | ArchiveDamage]) -> Mapping[int, Fault]:
    """Finds members that share bytes with others.

    A member whose own header contradicts the directory is damaged. It does not count as an overlap.

    Args:
      reader: Reader of the file.
      found: All members, in the same order in each loop.

    Returns:
      The faults, by the member's index in the sequence.
    """
    begins, ends = array("Q"), array("Q")
    for item in found:
        begin = end = 0
        if isinstance(item, Member) and not item.fault:
            begin, end = item.offset, item.offset + _min_bytes(item)
        begins.append(begin)
        ends.append(end)
    starts, stops = np.frombuffer(begins, np.uint64), np.frombuffer(ends, np.uint64)
    suspects = _overlapping(starts, stops)
    if not len(suspects):
        return {}
    faults: dict[int, Fault] = {}
    if len(suspects) <= _MAX_LOOKS:
        asked = set(suspects.tolist())
        for number, item in enumerate(found):
            if number in asked and isinstance(item, Member) and _is_contradicted(reader, item):
                faults[number] = (
                    QuarantineReason.CORRUPT,
                    "the archive's directory and its own header disagree",
                )
        stops = stops.copy()
        stops[list(faults)] = starts[list(faults)]
        suspects = _overlapping(starts, stops)
    unsafe = (QuarantineReason.UNSAFE_MEMBER, "it shares bytes with another member")
    return {**dict.fromkeys(suspects.tolist(), unsafe), **faults}


def _min_bytes(member: Member) -> int:
    """Returns the least number of bytes that header, name and data take."""
    return _LOCAL.size + len((member.local_name or "").encode("utf-8", "surrogateescape")) + member.length


def _overlapping(starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Returns the indices of ranges that share bytes with another one; empty ranges share none."""
    real = np.flatnonzero(stops > starts)
    order = real[np.argsort(starts[real], kind="stable")]
    first, last = starts[order], stops[order]
    if len(order) < 2:
        return np.empty(0, np.int64)
    reached = np.maximum.accumulate(last)
    covered = np.zeros(len(order), bool)
    covered[1:] = first[1:] < reached[:-1]
    covers = np.zeros(len(order), bool)
    covers[:-1] = last[:-1] > first[1:]
    return np.asarray(order[covered | covers])


def _is_contradicted(reader: RangeReader, member: Member) -> bool:
    fixed = reader.read_at(member.offset, _LOCAL.size)
    if len(fixed) < _LOCAL.size or not fixed.startswith(_LOCAL_SIGN):
        return True
    _, _, flags, _, _, _, _, length, _, name_length, _ = _LOCAL.unpack(fixed)
    name = reader.read_at(member.offset + _LOCAL.size, name_length)
    if name != (member.local_name or "").encode("utf-8", "surrogateescape"):
        return True
    return not flags & _SIZES_FOLLOW and length not in (member.length, _FULL32)
