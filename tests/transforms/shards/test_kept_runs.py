"""Runs of records that a rebuild keeps are those that are unchanged and follow each other on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.ledger import WrittenEntries
from shardwright.transforms.shards import kept_runs
from shardwright.transforms.shards.kept_runs import ListedImages


class Shard:
    """An earlier shard whose frames are their offsets and lengths."""

    def frames(self, offset: int, lengths: Sequence[int]) -> bytes | None:
        return repr((offset, *lengths)).encode()


def entries_of(keys: Sequence[str], lengths: Sequence[int], gaps: Sequence[int]) -> WrittenEntries:
    """Returns entries of the records of some keys, with gaps before them."""
    ends = [sum(lengths[: at + 1]) + sum(gaps[: at + 1]) for at in range(len(keys))]
    offsets = [end - length for end, length in zip(ends, lengths)]
    same, count = ("",) * len(keys), len(keys)
    digests, states = [f"d{key}" for key in keys], [f"1:{key}" for key in keys]
    return WrittenEntries(
        keys, same, same, offsets, lengths[:count], same, same, digests, states, (), (), ()
    )  # fmt: skip


def ref(key: str, change: str = "") -> ImageRef:
    """Returns the reference of an image, whose state or kind may be another one."""
    left_out = "filtered" if change == "left out" else ""
    return ImageRef(key, key, size=1, version="" if change == "unknown" else key + change, outcome=left_out)


_CHANGES = st.sampled_from(["", "", "", "", "!", "left out", "unknown", "digest"])


@given(
    st.permutations(range(9)).map(lambda keys: [str(key) for key in sorted(keys[:6]) + keys[6:]]),
    st.lists(st.tuples(st.integers(0, 9).map(str), _CHANGES), max_size=12, unique_by=lambda item: item[0]),
    st.lists(st.integers(1, 5), min_size=9, max_size=9),
    st.lists(st.sampled_from([0, 0, 0, 7]), min_size=9, max_size=9),
    st.integers(1, 20),
)
def test_runs_are_the_unchanged_records(
    keys: list[str], listed: list[tuple[str, str]], lengths: list[int], gaps: list[int], enough: int
) -> None:
    entries = entries_of(keys, lengths, gaps)
    refs = [ref(key, change) for key, change in listed]
    digests = [f"d{key}" + ("!" if change == "digest" else "") for key, change in listed]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_runs, "_ENOUGH_BYTES", enough)
        runs = list(ListedImages(refs, digests).runs(entries, Shard()))
    kept = [key for run in runs for key in run.entries.keys]
    assert sorted(kept) == sorted({key for key, change in listed if not change} & {*keys})
    for run in runs:
        assert [listed[run.place + at][0] for at in range(run.size)] == list(run.entries.keys)
        places = list(zip(run.entries.offsets, run.entries.lengths))
        assert all(begin + length == after for (begin, length), (after, _) in pairwise(places))
        assert sum(run.entries.lengths[:-1]) < enough
        assert run.frames() == repr((run.entries.offsets[0], *run.entries.lengths)).encode()
        assert [(key, item.unchanged) for key, item in run.records().items()] == [
            (key, True) for key in run.entries.keys
        ]
    for one, other in pairwise(runs):  # runs are as long as possible
        ends = one.entries.offsets[-1] + one.entries.lengths[-1] == other.entries.offsets[0]
        follows = one.place + one.size == other.place and ends
        assert not follows or sum(one.entries.lengths) >= enough


def test_a_key_that_an_earlier_ledger_names_twice_is_kept_once() -> None:
    images = ListedImages([ref("1")], ["d1"])
    entries = entries_of(["1"], [5], [0])
    assert len(list(images.runs(entries, Shard()))) == 1
    assert not list(images.runs(entries, Shard()))


def test_entries_without_lengths_are_not_kept_together() -> None:
    entries = entries_of(["1"], [5], [0])._replace(lengths=())
    assert not list(ListedImages([ref("1")], ["d1"]).runs(entries, Shard()))
