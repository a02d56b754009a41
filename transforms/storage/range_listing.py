"""Lists one large folder of a bucket in ranges of names, with many requests at once.

A storage gives the next page of a listing only after the one before. But it can begin after any name. So
threads without work take the second half of the names that another thread still has to list.
"""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from shardwright.schemas.errors import EngineError
from shardwright.schemas.image_ref import printable
from shardwright.transforms.storage.listings import ListedPage

#: Number of pages that one request at a time lists. Most folders are smaller.
_PAGES_ALONE = 10
#: Code points: the surrogates, which no name contains; the first that can be printed; the first beyond ASCII
#: that can be printed; the first beyond Unicode.
_SURROGATES, _PRINTABLE, _ASCII, _UNICODE = range(0xD800, 0xE000), 0x20, 0x7F, 0x110000

#: Function of a name that returns the pages of all objects and folders after that name.
PagesAfter = Callable[[str], Iterator[ListedPage]]


def between(low: str, high: str | None) -> str | None:
    """Returns a name between two names in the order of a storage, about in the middle; None if there is none.

    Args:
      low: Lower name.
      high: Higher name. None for one that is higher than all names.

    >>> between("cat1", "cat5"), between("cat1", "cat2"), between("cat", None)
    ('cat3', 'cat1?', 'q')
    """
    if high is not None and low >= high:
        return None
    same = 0
    while high is not None and low[same : same + 1] == high[same : same + 1]:
        same += 1
    first = ord(low[same]) if same < len(low) else -1
    last = (_ASCII if first < _ASCII - 1 else _UNICODE) if high is None else ord(high[same])
    if last - first > 1:
        middle = max((first + last) // 2, _PRINTABLE)
        if middle in _SURROGATES:
            middle = _SURROGATES.stop if last > _SURROGATES.stop else _SURROGATES.start - 1
        return low[:same] + chr(middle) if first < middle < last else None
    if first < 0:
        return None
    rest = between(low[same + 1 :], None)
    return None if rest is None else low[: same + 1] + rest


@dataclass(eq=False)
class _Range:
    """Names that a thread lists.

    Attributes:
      after: Name before the first.
      end: Last name. None if all that follow belong to it.
      at: Lowest name at which it can be divided: of the last object or folder that was listed, or `after`.
      last: Name of the last object that was listed. Empty before the first.
      pages: Number of pages that were read since the range was divided.
    """

    after: str
    end: str | None
    at: str
    last: str = ""
    pages: int = 0

    def holds(self, name: str) -> bool:
        return name > self.after and (self.end is None or name <= self.end)


def pages_in_ranges(directory: str, root: str, pages: PagesAfter, threads: int) -> Iterator[ListedPage]:
    """Yields the pages of a listing in any order. Each object is on one of them; a folder may be on several.

    Args:
      directory: The listed directory, for messages.
      root: Begin of the paths of objects, before their names.
      pages: Returns the pages after a name; the empty name is before all.
      threads: Number of requests at once.

    Raises:
      EngineError: if the storage failed, or its pages are not in the order of the names.
    """
    first, at, in_order = pages(""), "", True
    for number, page in enumerate(first, 1):
        yield page
        names = _names_of(page, root)
        in_order = in_order and at <= min(names, default=at) and names == sorted(names)
        at = max([at, *names])
        if number == _PAGES_ALONE:
            break
    else:
        return
    if in_order and threads > 1:
        yield from _RangeListing(directory, root, pages, threads).list_rest(first, at)
    else:
        yield from first


def _names_of(page: ListedPage, root: str) -> list[str]:
    """Returns the names of the objects of a page in its order."""
    return [item.path.removeprefix(root) for item in page.objects]


class _RangeListing:
    """Threads that list ranges, and divide those of each other."""

    def __init__(self, directory: str, root: str, pages: PagesAfter, threads: int) -> None:
        self._directory, self._root, self._pages, self._threads = directory, root, pages, threads
        self._read: queue.Queue[ListedPage | BaseException | None] = queue.Queue(maxsize=2 * threads)
        self._changed = threading.Condition()
        self._ranges: set[_Range] = set()
        self._stopped = False
        # A range may turn out to be empty. Not more requests are spent on these than on others.
        self._useful, self._wasted = _PAGES_ALONE, 0

    def list_rest(self, pages: Iterator[ListedPage], at: str) -> Iterator[ListedPage]:
        """Yields the rest of a listing.

        Args:
          pages: The rest of its pages.
          at: The last name before them.
        """
        whole = _Range("", None, at, at, pages=1)
        self._ranges.add(whole)
        with ThreadPoolExecutor(self._threads) as executor:
            try:
                executor.submit(self._work, whole, pages)
                for _ in range(self._threads - 1):
                    executor.submit(self._work)
                working = self._threads
                while working:
                    found = self._read.get()
                    if isinstance(found, BaseException):
                        raise found
                    if found is None:
                        working -= 1
                    else:
                        yield found
            finally:
                with self._changed:
                    self._stopped = True
                    self._changed.notify_all()

    def _work(self, part: _Range | None = None, pages: Iterator[ListedPage] | None = None) -> None:
        """Lists ranges until all are listed."""
        try:
            part = part or self._divided()
            while part is not None:
                for page in pages or self._pages(part.after):
                    found, is_last = self._taken(part, page)
                    self._hand_over(found)
                    if is_last or self._stopped:
                        break
                with self._changed:
                    self._ranges.discard(part)
                    self._changed.notify_all()
                part, pages = self._divided(), None
            self._hand_over(None)
        except BaseException as error:  # raised again where the pages are used
            self._hand_over(error)

    def _taken(self, part: _Range, page: ListedPage) -> tuple[ListedPage, bool]:
        """Returns what a page has of a range, and whether the range ends there."""
        names = _names_of(page, self._root)
        with self._changed:
            if names != sorted(names) or (names and names[0] < part.last):
                raise EngineError(
                    f"Cannot list {printable(self._directory)}: the storage sends names in no order; check "
                    "what stands between this machine and the storage (a proxy, an emulator), then run "
                    "again with --resume."
                )
            if names and names[0] < part.after:  # the storage begins with its first name
                self._wasted = sys.maxsize
            held = [item for item, name in zip(page.objects, names, strict=True) if part.holds(name)]
            useful = bool(held) or any(map(part.holds, page.folders))
            self._useful, self._wasted = self._useful + useful, self._wasted + (not useful)
            last = max([*names, *page.folders], default=part.at)
            part.at, part.last, part.pages = max(part.at, last), max(names, default=part.last), part.pages + 1
            self._changed.notify_all()
            return page._replace(objects=held), part.end is not None and last > part.end

    def _divided(self) -> _Range | None:
        """Waits for a range that can be divided, and returns its second part; None if all are listed."""
        with self._changed:
            while self._ranges and not self._stopped:
                part = max(self._ranges, key=lambda item: item.pages)
                middle = between(part.at, part.end) if part.pages and self._wasted <= self._useful else None
                if middle is not None:
                    rest = _Range(middle, part.end, middle)
                    part.end, part.pages = middle, 0
                    self._ranges.add(rest)
                    return rest
                self._changed.wait()
            return None

    def _hand_over(self, found: ListedPage | BaseException | None) -> None:
        while not self._stopped:
            with contextlib.suppress(queue.Full):
                return self._read.put(found, timeout=0.1)
