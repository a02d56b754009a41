"""What all object storage tells of an object, and what it is told."""

from __future__ import annotations

from typing import NamedTuple

from shardwright.schemas.errors import EngineError


class NoConditions(EngineError):
    """A storage refuses conditional requests, so that two writers cannot tell who was first."""


class StoredObject(NamedTuple):
    """An object as its storage lists it.

    Attributes:
      path: with its scheme, `gs://BUCKET/NAME`.
      size: bytes.
      version: the storage's own mark of its state: its generation, or when it was last changed.
      crc32c: of its bytes, base64 of the big-endian value; empty where the storage keeps none.
    """

    path: str
    size: int
    version: str
    crc32c: str = ""


def content_type(path: str) -> str:
    """Returns what an object is to whoever opens it in a browser: pages and documents are shown there."""
    if path.endswith(".html"):
        return "text/html"
    return "application/json" if path.endswith(".json") else "application/octet-stream"
