"""Hashes names, to save memory where millions of names would be stored."""

from __future__ import annotations

from hashlib import blake2b


def name_hash(name: str) -> int:
    """Returns 64 bits of a name's BLAKE2b digest, which is the same in every process, unlike `hash`.

    Args:
      name: Name; bytes that are not UTF-8 are surrogate escapes.

    Returns:
      A number from 0 to 2**64 - 1.
    """
    return int.from_bytes(blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest(), "big")
