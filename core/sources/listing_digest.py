"""A digest of all references of a listing, to detect that nothing has changed since an earlier one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.labels import ClassId

_DIGEST_BYTES = 16
#: Replaces the path of the folder of spool files, which differs between runs.
_SPOOL = "spool://"


@dataclass
class ListingDigest:
    """The digest of a listing or of a part of it. Neither the order of items nor that of parts matters.

    Attributes:
      items: Number of references and class ids.
      total: Sum of the digests of all items.
      untrusted: Number of images that may have changed although the digest is equal, because the listing does
        not state their size and version.
    """

    items: int = 0
    total: int = 0
    untrusted: int = 0

    @property
    def text(self) -> str:
        """The digest as it is stored."""
        total = self.total % (1 << (8 * _DIGEST_BYTES))
        return f"{self.items}:{total:0{2 * _DIGEST_BYTES}x}"

    def add(self, found: ImageRef | ClassId, spool: str) -> None:
        """Adds a reference, or the id of a class.

        Args:
          found: The reference or id.
          spool: Path of the folder of spool files, of which each name states what was unpacked.
        """
        text = tuple.__repr__(found).replace(f"{spool.rstrip('/')}/", _SPOOL)
        self.items += 1
        self.total += int.from_bytes(
            hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest(), "big"
        )
        if isinstance(found, ImageRef) and not found.outcome:
            self.untrusted += not found.has_known_state


def add_up(parts: Iterable[ListingDigest]) -> ListingDigest:
    """Returns the digest of the parts together."""
    columns = zip(*((part.items, part.total, part.untrusted) for part in parts))
    return ListingDigest(*map(sum, columns))
