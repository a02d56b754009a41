"""A large folder that is listed in ranges gives each object once, whatever its names and the storage."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shardwright.schemas.errors import EngineError
from shardwright.transforms.storage import range_listing
from shardwright.transforms.storage.listings import ListedPage
from shardwright.transforms.storage.range_listing import between, pages_in_ranges
from shardwright.transforms.storage.stored_object import StoredObject

_ROOT = "gs://bucket/"
_NAMES = st.text(
    st.sampled_from("09ab/~\u007f\u00e9\uffff\U0001f600 \n") | st.characters(codec="utf-8"),
    min_size=1,
    max_size=5,
)


class Folder:
    """A folder in a bucket, with pages of a few objects.

    Attributes:
      requests: Names after which a listing began.
    """

    def __init__(self, names: list[str], size: int = 3, deep: bool = True, knows_ranges: bool = True) -> None:
        self._names = [name.encode() for name in names]
        self._size, self._deep, self._knows_ranges = size, deep, knows_ranges
        self.requests: list[str] = []
        self.pages = 0

    def list_pages(self, after: str) -> Iterator[ListedPage]:
        """Yields the pages as GCS does: also the object with the name itself."""
        self.requests.append(after)
        begin = after.encode() if self._knows_ranges else b""
        found = dict.fromkeys(
            name if self._deep or b"/" not in name else name.partition(b"/")[0] + b"/"
            for name in self._names
            if name >= begin
        )
        for at in range(0, max(len(found), 1), self._size):
            page = [name.decode() for name in islice(found, at, at + self._size)]
            folders = [name for name in page if not self._deep and name.endswith("/")]
            objects = [StoredObject(_ROOT + name, 1, "1") for name in page if name not in folders]
            self.pages += 1
            yield ListedPage(objects, folders, "more")


def listed(folder: Folder, threads: int, alone: int = 1) -> list[ListedPage]:
    """Returns the pages of a folder, listed in ranges after a few pages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(range_listing, "_PAGES_ALONE", alone)
        return list(pages_in_ranges("gs://bucket/in", _ROOT, folder.list_pages, threads))


@given(st.sets(_NAMES, max_size=40), st.integers(1, 4), st.integers(1, 5), st.booleans(), st.booleans())
@example({f"image-{number:05}.jpg" for number in range(200)}, 3, 4, True, True)
@example({f"image-{number:05}.jpg" for number in range(50)} | {"zz/1", "zz/2"}, 3, 4, False, True)
@example({f"{number:x}/{inner}.jpg" for number in range(30) for inner in range(5)}, 2, 3, False, True)
@example({f"{number:04x}.jpg" for number in range(90)}, 1, 3, True, False)
@settings(deadline=None)
def test_ranges_are_the_whole(
    names: set[str], size: int, threads: int, deep: bool, knows_ranges: bool
) -> None:
    ordered = sorted(names, key=str.encode)
    pages = listed(Folder(ordered, size, deep, knows_ranges), threads)
    (whole,) = Folder(ordered, len(names) + 1, deep).list_pages("")
    assert Counter(item for page in pages for item in page.objects) == Counter(whole.objects)
    assert {folder for page in pages for folder in page.folders} == set(whole.folders)


@given(_NAMES | st.just(""), _NAMES | st.none())
@example("a", "a\0")
@example("\ud7ff", "\ue000")
@example("~~", None)
@example("\U0010ffff", None)
def test_the_middle_is_between(low: str, high: str | None) -> None:
    middle = between(low, high)
    if middle is not None:
        assert low.encode() < middle.encode()
        assert high is None or middle.encode() < high.encode()


@pytest.mark.parametrize("alone", [1, 10])
def test_requests_are_divided_among_threads_and_few_are_wasted(alone: int) -> None:
    folder = Folder([f"photos/2024/IMG_{number:08}.jpg" for number in range(4000)], 10)
    real, reading = folder.list_pages, Counter[int]()

    def list_pages(after: str) -> Iterator[ListedPage]:
        for page in real(after):
            time.sleep(0.001)  # so that other threads begin
            reading[threading.get_ident()] += bool(page.objects)
            yield page

    folder.list_pages = list_pages  # type: ignore[method-assign]
    pages = listed(folder, 4, alone)
    assert sum(len(page.objects) for page in pages) == 4000
    assert len(reading) == 5 and folder.pages < 900  # four threads after the one that began
    assert max(reading.values()) < 250


def test_a_small_folder_needs_no_more_requests() -> None:
    folder = Folder([f"{number:03}.jpg" for number in range(100)], 10)
    assert len(listed(folder, 16, alone=10)) == 10 and folder.requests == [""]


def test_names_without_an_order_are_listed_as_they_come() -> None:
    folder = Folder([f"{number * 7919 % 1000:03}.jpg" for number in range(1000)], 10)
    assert sum(len(page.objects) for page in listed(folder, 16)) == 1000
    assert folder.requests == [""]


def test_names_that_lose_their_order_end_the_listing() -> None:
    names = [f"{number:03}.jpg" for number in (*range(200, 700), *range(100, 120))]
    with pytest.raises(EngineError, match="gs://bucket/in: the storage sends names in no order; check"):
        listed(Folder(names, 10, knows_ranges=False), 2)


def test_a_fault_in_a_range_ends_the_listing() -> None:
    folder = Folder([f"{number:04}.jpg" for number in range(1000)], 10)
    real = folder.list_pages

    def list_pages(after: str) -> Iterator[ListedPage]:
        if after:
            raise EngineError("Cannot list gs://bucket/in: no.")
        return real(after)

    folder.list_pages = list_pages  # type: ignore[method-assign]
    with pytest.raises(EngineError, match="Cannot list gs://bucket/in: no"):
        listed(folder, 8)


def test_a_listing_can_be_given_up() -> None:
    folder = Folder([f"{number:04}.jpg" for number in range(1000)], 1)
    before = set(threading.enumerate())
    pages = pages_in_ranges("gs://bucket/in", _ROOT, folder.list_pages, 8)
    assert len([*islice(pages, 30)]) == 30
    pages.close()  # type: ignore[attr-defined]
    assert set(threading.enumerate()) <= before  # threads of other tests may end meanwhile
    assert folder.pages < 200
