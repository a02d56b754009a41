"""Which shards a rebuild reads again: the rotation, and its stored state."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.schemas.dataset import Shard
from shardwright.schemas.scrub import DEFAULT_SCRUB, ScrubState, choose_shards, state_after


def made(count: int, generation: str = "0") -> list[Shard]:
    return [Shard(f"train-{i:05d}", 1, 1, f"{generation}{i:063d}") for i in range(count)]


def night(shards: list[Shard], state: ScrubState, fraction: float) -> tuple[list[str], ScrubState]:
    """Reads the chosen shards, and returns the state as the next run reads it."""
    read = [shard.file for shard in choose_shards(shards, state, fraction)]
    return read, ScrubState.loads(state_after(shards, state, read, ()).dumps().encode())


@pytest.mark.parametrize("count", [1, 2, 7, 29, 30, 31, 59, 100, 1000])
def test_thirty_runs_read_everything_by_default(count: int) -> None:
    shards, state, seen = made(count), ScrubState(), set()
    for _ in range(30):
        read, state = night(shards, state, DEFAULT_SCRUB)
        assert len(read) == math.ceil(Fraction(count, 30))
        seen.update(read)
    assert seen == {shard.file for shard in shards}


@given(st.integers(1, 60), st.integers(1, 20))
def test_each_shard_has_its_turn(count: int, nights: int) -> None:
    shards, state, seen = made(count), ScrubState(), []
    for _ in range(nights):
        read, state = night(shards, state, 1 / nights)
        seen += read
    assert set(seen) == {shard.file for shard in shards}
    assert len(seen) - len(set(seen)) < nights, "nothing is read twice before all else was read"


def test_the_share_decides_the_number_of_shards() -> None:
    shards = made(100)
    for fraction, count in ((0.0, 0), (0.001, 1), (0.07, 7), (0.071, 8), (1.0, 100)):
        assert len(choose_shards(shards, ScrubState(), fraction)) == count
    assert choose_shards([], ScrubState(), 1.0) == []


def test_new_shards_do_not_delay_old_ones() -> None:
    shards, state, seen = made(30), ScrubState(), set()
    for number in range(40):
        read, state = night(shards, state, DEFAULT_SCRUB)
        seen.update(read)
        shards = [*made(30)[:25], *made(30, str(number % 9 + 1))[25:]]  # each night writes five of them
    assert seen >= {shard.file for shard in shards[:25]}


def test_a_damaged_shard_is_read_again_in_the_next_run() -> None:
    shards = made(10)
    state = state_after(shards, ScrubState(), {"train-00000"}, {"train-00001"})
    assert [shard.file for shard in choose_shards(shards, state, 0.1)] == ["train-00001"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"format_version": 2}', '{"format_version": 1, "run": 1, "shards": [1]}']
)
def test_damaged_documents_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        ScrubState.loads(text.encode())
