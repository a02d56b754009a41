"""What all storages say about objects: their metadata, pages of listings, and two errors."""

from __future__ import annotations

from typing import NamedTuple

from shardwright.schemas.errors import EngineError


class NoConditions(EngineError):
    """A storage rejects conditional requests, so that two writers cannot know who was first."""


class ObjectTooLarge(Exception):
    """An object is larger than the limit of its reader, and was not read to its end.

    Attributes:
      size: size in bytes; -1 if the storage does not state it.
    """

    def __init__(self, size: int = -1) -> None:
        super().__init__(f"{size} bytes")
        self.size = size


class StoredObject(NamedTuple):
    """An object as its storage lists it.

    Attributes:
      path: path with its scheme, `gs://BUCKET/NAME`.
      size: size in bytes.
      version: the storage's mark of its state: its generation, its ETag, or when it was last changed.
      crc32c: crc32c of its bytes, as base64 of the big-endian value; empty if the storage has none.
    """

    path: str
    size: int
    version: str
    crc32c: str = ""


class ObjectState(NamedTuple):
    """An object as it is now.

    Attributes:
      stored: its metadata, as they are listed.
      modified: when it was last written, by the storage's clock in seconds since the epoch; None if unknown.
    """

    stored: StoredObject
    modified: float | None


class ListedPage(NamedTuple):
    """A page of a listing.

    Attributes:
      objects: objects in the storage's order.
      folders: names of the folders directly in the listed directory.
      token: where the listing goes on after this page; empty if this is known to be the last page.
    """

    objects: list[StoredObject]
    folders: list[str]
    token: str


def content_type(path: str) -> str:
    """Returns the content type of an object, so that browsers show pages and documents."""
    if path.endswith(".html"):
        return "text/html"
    return "application/json" if path.endswith(".json") else "application/octet-stream"
