"""A digest of all references of a listing, to detect that nothing has changed since an earlier one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.labels import ClassId

_DIGEST_BYTES = 16
#: Replaces the path of the folder of spool files.
_SPOOL = "spool://"
_MODULUS = 1 << (8 * _DIGEST_BYTES)


class ListingDigest(NamedTuple):
    """The digest of a listing or of a part of it. Parts can be added up in any order.

    Attributes:
      items: Number of references and class ids.
      total: Sum of the digests of all items, modulo 2^128.
      untrusted: Number of images that may have changed although the digest is equal, because the listing does
        not state their size and version.
    """

    items: int = 0
    total: int = 0
    untrusted: int = 0

    @property
    def text(self) -> str:
        """The digest as it is stored."""
        return f"{self.items}:{self.total:0{2 * _DIGEST_BYTES}x}"


#: Number of fields of a reference that mostly differ, and what follows their text if no other field is set.
_DIFFERENT = 7
_EMPTY = ImageRef("", "")[_DIFFERENT:]
_NOTHING_ELSE = f", {repr(_EMPTY)[1:]}"


def _text(found: ImageRef | ClassId) -> str:
    """Returns the text of the plain tuple: a named tuple takes twice as long to write its names."""
    if isinstance(found, ImageRef) and found[_DIFFERENT:] == _EMPTY:
        return repr(found[:_DIFFERENT])[:-1] + _NOTHING_ELSE
    return tuple.__repr__(found)


class ListingDigester:
    """Computes the digest of a listing.

    Args:
      spool: Path of the folder of spool files. It differs between runs, so it does not count. The name of a
        spool file states the state of the file that was unpacked.
    """

    def __init__(self, spool: str) -> None:
        self._spool = f"{spool.rstrip('/')}/"
        self._items = self._total = self._untrusted = 0

    def add(self, found: ImageRef | ClassId) -> None:
        """Adds a reference, or the id of a class."""
        text = _text(found)
        if self._spool in text:
            text = text.replace(self._spool, _SPOOL)
        digest = hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()
        self._items += 1
        self._total += int.from_bytes(digest, "big")
        if isinstance(found, ImageRef) and not found.outcome:
            self._untrusted += not found.has_known_state

    def add_part(self, digest: ListingDigest) -> None:
        """Adds the digest of other items."""
        self._items += digest.items
        self._total += digest.total
        self._untrusted += digest.untrusted

    def taken(self) -> ListingDigest:
        """Returns the digest of the items since the last call."""
        found = ListingDigest(self._items, self._total % _MODULUS, self._untrusted)
        self._items = self._total = self._untrusted = 0
        return found


def add_up(parts: Iterable[ListingDigest]) -> ListingDigest:
    """Returns the digest of the parts together."""
    items, total, untrusted = (sum(column) for column in zip(ListingDigest(), *parts, strict=True))
    return ListingDigest(items, total % _MODULUS, untrusted)
