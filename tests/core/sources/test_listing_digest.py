"""The digest of a listing: equal for the same references in any order, and otherwise different."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shardwright.core.sources.listing import ListingDigest, add_up
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.labels import ClassId

_TEXT = st.text(max_size=3) | st.sampled_from(["\udcff", "a\0b", "'", '"', "\\"])
_REFS = st.builds(
    ImageRef, _TEXT, _TEXT, label=_TEXT, size=st.integers(-1, 3), version=_TEXT, outcome=st.just(""),
    place=_TEXT, fold=st.integers(-1, 1),
)  # fmt: skip
_ITEMS = st.lists(_REFS | st.builds(ClassId, _TEXT, st.integers(0, 3), _TEXT), max_size=6)


def digest_of(items: list[ImageRef | ClassId], spool: str = "/v/1/_work/spool") -> ListingDigest:
    digest = ListingDigest()
    for item in items:
        digest.add(item, spool)
    return digest


@given(items=_ITEMS, data=st.data())
def test_neither_the_order_nor_the_parts_matter(items: list[ImageRef | ClassId], data: st.DataObject) -> None:
    mixed = data.draw(st.permutations(items))
    cut = data.draw(st.integers(0, len(items)))
    whole = digest_of(items)
    assert add_up([digest_of(mixed[:cut]), digest_of(mixed[cut:])]) == whole


@given(one=_ITEMS, other=_ITEMS)
def test_other_references_have_another_digest(
    one: list[ImageRef | ClassId], other: list[ImageRef | ClassId]
) -> None:
    same = sorted(map(repr, one)) == sorted(map(repr, other))
    assert (digest_of(one).text == digest_of(other).text) == same


def test_images_without_a_known_state_are_counted() -> None:
    known = ImageRef("a", "a", size=1, version="1")
    unknown = [known._replace(size=-1), known._replace(version=""), known._replace(has_unmarked_mask=True)]
    decided = [ref.filtered("dotfile") for ref in unknown]
    assert digest_of([known, *unknown, *decided]).untrusted == len(unknown)


def test_the_place_of_spool_files_does_not_count() -> None:
    refs = [ImageRef("a", "t.tar.gz", place=f"/v/{run}/_work/spool/abc:1:2") for run in (1, 2)]
    first, second = (digest_of([ref], f"/v/{run}/_work/spool") for run, ref in enumerate(refs, 1))
    assert first == second != digest_of([refs[0]], "/v/2/_work/spool")
