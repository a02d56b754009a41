"""Hashes of names, which save memory where millions would be stored, and digests of images inside files."""

from __future__ import annotations

import hashlib
from hashlib import blake2b

_DIGEST_BYTES = 8


def name_hash(name: str) -> int:
    """Returns 64 bits of a name's BLAKE2b digest, which is the same in every process, unlike `hash`.

    Args:
      name: Name; bytes that are not UTF-8 are surrogate escapes.

    Returns:
      A number from 0 to 2**64 - 1.
    """
    return int.from_bytes(blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest(), "big")


def content_digest(data: bytes | memoryview) -> str:
    """Returns the digest of an image."""
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES, usedforsecurity=False).hexdigest()
