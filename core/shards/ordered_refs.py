"""The references of a shard in its order; many are unpacked in parts, because each takes 700 bytes then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from shardwright.core.plan.assign import shard_hashes
from shardwright.schemas.image_ref import EncodedRefs, ImageRef, decode_refs, encode_refs

#: Number of references that are unpacked at once. Only shards with many files that are left out have more.
_MAX_AT_ONCE = 100_000
#: Number of references in each part of a shard that has more, and number of those that are packed together.
_PART, _PACKED_TOGETHER = 32_768, 1024


class OrderedRefs:
    """The references of a shard in its order.

    Args:
      packed: The references in any order. It is read again for each use.
      order: Place of each reference in `packed`, as 4 bytes, little-endian.
    """

    def __init__(self, packed: Iterable[EncodedRefs], order: bytes) -> None:
        self.order = order
        self._packed = packed
        self._whole: list[ImageRef] | None = None
        self._parts: list[list[EncodedRefs]] | None = None

    @classmethod
    def by_hash(cls, packed: Iterable[EncodedRefs], seed: int) -> OrderedRefs:
        """Returns references in the order of `shard_order`.

        Args:
          packed: The references in any order.
          seed: Seed of the dataset.
        """
        unsorted: list[ImageRef] | None = []
        hashes: list[bytes] = []
        for batch in packed:
            refs = list(decode_refs(batch))
            hashes.append(b"".join(shard_hashes(seed, (ref.key for ref in refs))))
            if unsorted is not None:
                unsorted += refs
                if len(unsorted) > _MAX_AT_ONCE:
                    unsorted = None
        order = _order_of(np.frombuffer(b"".join(hashes), ">u8"), packed)
        ordered = cls(packed, order.astype("<u4").tobytes())
        if unsorted is not None:
            ordered._whole = [unsorted[place] for place in order.tolist()]
        return ordered

    def __len__(self) -> int:
        return len(self.order) // 4

    def __iter__(self) -> Iterator[ImageRef]:
        return chain.from_iterable(self.parts())

    def parts(self) -> Iterator[Sequence[ImageRef]]:
        """Yields the references in order, in parts that fit into memory."""
        if self._whole is None and len(self) <= _MAX_AT_ONCE:
            unsorted = _unpacked(self._packed)
            self._whole = [unsorted[place] for place in self._places.tolist()]
        if self._whole is not None:
            yield self._whole
            return
        if self._parts is None:
            self._parts = self._distributed()
        for number, packed in enumerate(self._parts):
            places = self._places[number * _PART : (number + 1) * _PART]
            unsorted = _unpacked(packed)  # in the order of their places
            yield [unsorted[rank] for rank in np.argsort(np.argsort(places)).tolist()]

    @property
    def _places(self) -> NDArray[np.uint32]:
        return np.frombuffer(self.order, "<u4")

    def _distributed(self) -> list[list[EncodedRefs]]:
        """Returns the references of each part, packed again, in the order of their places."""
        part_of = np.empty(len(self), np.uint32)
        part_of[self._places] = np.arange(len(self), dtype=np.uint32) // _PART
        parts: list[list[EncodedRefs]] = [[] for _ in range(-(-len(self) // _PART))]
        waiting: list[list[ImageRef]] = [[] for _ in parts]
        begin = 0
        for batch in self._packed:
            refs = list(decode_refs(batch))
            for ref, part in zip(refs, part_of[begin : begin + len(refs)].tolist(), strict=True):
                waiting[part].append(ref)
                if len(waiting[part]) >= _PACKED_TOGETHER:
                    parts[part].append(encode_refs(waiting[part]))
                    waiting[part] = []
            begin += len(refs)
        for packed, rest in zip(parts, waiting, strict=True):
            packed.append(encode_refs(rest))
        return parts


def _unpacked(packed: Iterable[EncodedRefs]) -> list[ImageRef]:
    return [ref for batch in packed for ref in decode_refs(batch)]


def _order_of(hashes: NDArray[np.uint64], packed: Iterable[EncodedRefs]) -> NDArray[np.intp]:
    """Returns the places of references in the order of (hash, key)."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    equal = np.flatnonzero(ordered[1:] == ordered[:-1])
    if not len(equal):
        return order
    # Of different keys, hardly any have the same hash; equal keys have.
    begins = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    ends = np.r_[begins[1:], len(order)]
    tied = {int(place) for at in equal for place in order[at : at + 2]}
    places = enumerate(ref.key for batch in packed for ref in decode_refs(batch))
    keys = {place: key for place, key in places if place in tied}
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        if end - begin > 1:
            order[begin:end] = sorted(order[begin:end].tolist(), key=keys.__getitem__)
    return order
