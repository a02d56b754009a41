"""Reads the pages of a listing: each object once, and an end even if the storage repeats pages forever."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from shardwright.schemas.errors import EngineError
from shardwright.schemas.image_ref import printable
from shardwright.transforms.storage.stored_object import StoredObject

#: Number of consecutive pages without new paths; storages send some where objects were deleted.
MAX_EMPTY_PAGES = 1000
_DIGEST_BYTES = 16


class BadListing(ValueError):
    """An answer to a listing request that is not a listing."""


class ListedPage(NamedTuple):
    """A page of a listing.

    Attributes:
      objects: objects in the storage's order.
      folders: paths of the folders in the listed directory.
      token: token for the next page; empty after the last page.
    """

    objects: list[StoredObject]
    folders: list[str]
    token: str


class _Seen:
    """Distinguishes new paths from known ones.

    Storages list in the byte order of names. While they do, a path takes 16 bytes here, and only a path that
    is out of order is looked up.
    """

    def __init__(self) -> None:
        self._last = b""
        self._digests = bytearray()
        self._known: set[bytes] | None = None

    def is_new(self, path: str) -> bool:
        """Returns whether a path is seen for the first time."""
        name = path.encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(name, digest_size=_DIGEST_BYTES).digest()
        if name > self._last:
            self._last = name
        else:
            if self._known is None:
                all_ = bytes(self._digests)
                starts = range(0, len(all_), _DIGEST_BYTES)
                self._known = {all_[start : start + _DIGEST_BYTES] for start in starts}
                self._digests.clear()
            if digest in self._known:
                return False
        if self._known is None:
            self._digests += digest
        else:
            self._known.add(digest)
        return True


def listed_pages(directory: str, page: Callable[[str], ListedPage]) -> Iterator[ListedPage]:
    """Yields the pages of a listing without paths that were listed before.

    Args:
      directory: the listed directory.
      page: function of a token that returns its page; the empty token requests the first page.

    Raises:
      EngineError: if the listing does not end.
    """
    seen, tokens, empty, token = _Seen(), set[str](), 0, ""
    while True:
        found = page(token)
        objects = [item for item in found.objects if seen.is_new(item.path)]
        folders = [folder for folder in dict.fromkeys(found.folders) if seen.is_new(folder)]
        yield ListedPage(objects, folders, found.token)
        empty = 0 if objects or folders else empty + 1
        token = found.token
        if not token:
            return
        if token in tokens or empty >= MAX_EMPTY_PAGES:
            raise EngineError(
                f"Cannot list {printable(directory)}: the storage sends the same page again and again; check "
                "what stands between this machine and the storage (a proxy, an emulator), then run again "
                "with --resume."
            )
        tokens.add(token)


def objects_of(pages: Iterable[ListedPage]) -> Iterator[StoredObject]:
    """Yields the objects of a listing, without the markers that consoles make for empty folders."""
    for page in pages:
        for item in page.objects:
            if not item.path.endswith("/"):
                yield item


def folder_names(pages: Iterable[ListedPage], prefix: str) -> list[str]:
    """Returns the sorted names of the folders directly in a directory.

    Args:
      pages: pages of a listing of the directory, in any order; a folder may be on several.
      prefix: prefix of the names of its objects (`folder_prefix`).
    """
    return sorted({folder.removeprefix(prefix)[:-1] for page in pages for folder in page.folders})


def folder_prefix(name: str) -> str:
    """Returns the prefix of the names of the objects below a directory; empty for a whole bucket."""
    return f"{name}/" if name and not name.endswith("/") else name
