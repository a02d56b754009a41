"""The digest of an image that is part of a file, which tells whether the image has changed."""

from __future__ import annotations

import hashlib

_BYTES = 8


def content_digest(data: bytes | memoryview) -> str:
    """Returns the digest of an image."""
    return hashlib.blake2b(data, digest_size=_BYTES, usedforsecurity=False).hexdigest()
