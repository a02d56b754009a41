"""A number for a name, in place of the name where millions of them would take too much memory."""

from __future__ import annotations

from hashlib import blake2b


def name_hash(name: str) -> int:
    """Returns 64 bits of a name's BLAKE2b digest: the same in every process, unlike Python's `hash`.

    Args:
      name: any name; bytes that are no UTF-8 are surrogates in it.

    Returns:
      A number from 0 to 2**64 - 1.
    """
    return int.from_bytes(blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest(), "big")
