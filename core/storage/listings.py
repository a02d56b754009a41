"""Reads the pages of a listing: each object once, and an end even if the storage repeats pages forever."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

from shardwright.core.storage.store import ListedPage
from shardwright.schemas.errors import EngineError
from shardwright.schemas.image_ref import printable

#: Number of consecutive pages without new paths; storages send some where objects were deleted.
MAX_EMPTY_PAGES = 1000
_DIGEST_BYTES = 16

#: Calls a function until it succeeds, and returns its result.
Run = Callable[[Callable[[], ListedPage | None]], ListedPage | None]


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


def listed_pages(
    directory: str, pages_after: Callable[[str], Iterator[ListedPage]], run: Run
) -> Iterator[ListedPage]:
    """Yields the pages of a listing, without repeated paths and without markers of empty folders.

    Args:
      directory: The listed directory.
      pages_after: Function of a token that returns the pages that follow; the empty token is before all.
      run: Repeats a request that fails. A listing that was cut off goes on after its last page.

    Raises:
      EngineError: If the listing does not end.
    """
    seen, tokens, empty, token = _Seen(), set[str](), 0, ""
    pages: Iterator[ListedPage] | None = None

    def next_page() -> ListedPage | None:
        nonlocal pages
        try:
            if pages is None:
                pages = pages_after(token)
            return next(pages, None)
        except BaseException:
            pages = None
            raise

    while (page := run(next_page)) is not None:
        objects = [item for item in page.objects if seen.is_new(item.path)]
        folders = [name for name in dict.fromkeys(page.folders) if seen.is_new(f"{directory}/{name}/")]
        yield ListedPage([item for item in objects if not item.path.endswith("/")], folders, page.token)
        empty = 0 if objects or folders else empty + 1
        token = page.token
        if not token:
            return
        if token in tokens or empty >= MAX_EMPTY_PAGES:
            raise EngineError(
                f"Cannot list {printable(directory)}: the storage sends the same page again and again; check "
                "what stands between this machine and the storage (a proxy, an emulator), then run again "
                "with --resume."
            )
        tokens.add(token)


def folder_prefix(name: str) -> str:
    """Returns the prefix of the names of the objects below a directory; empty for a whole bucket."""
    return f"{name}/" if name and not name.endswith("/") else name
