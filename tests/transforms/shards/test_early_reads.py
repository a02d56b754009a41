"""The images of the next shard are read before the shard before it is finished, within the same limits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from io import BytesIO
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from PIL import Image

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import EngineError
from shardwright.schemas.image_ref import ImageRef, encode_refs
from shardwright.schemas.ledger import ShardResult
from shardwright.schemas.plan import Forecast, Plan
from shardwright.transforms import storage
from shardwright.transforms.conversion import convert
from shardwright.transforms.images.encode import decoder_versions
from shardwright.transforms.plan.planned_shard import PlannedShard
from shardwright.transforms.shards import write
from shardwright.transforms.shards.reuse import ReusableBuilds

SETTINGS = ConvertSettings(resize="8")
SHARDS, IMAGES = 3, 5
PLAN = Plan(labels=("cat",), shards={"train": SHARDS}, estimate={"train": 1}, settings={})
FORECAST = Forecast(PLAN, {"train": 1}, {"train": 1}, {}, 0, 1, {}, 0, {})
SECONDS = 20
VERSIONS = decoder_versions()


def _picture() -> bytes:
    file = BytesIO()
    Image.new("RGB", (9, 9), (200, 30, 30)).save(file, "png")
    return file.getvalue()


PICTURE = _picture()


def _shard(number: int, scheme: str = "gs://") -> PlannedShard:
    keys = [f"{number}/{image}.png" for image in range(IMAGES)]
    refs = [ImageRef(key, f"{scheme}b/{key}", "cat", size=len(PICTURE), version="1") for key in keys]
    return PlannedShard("train", number, SHARDS, [encode_refs(refs)])


def _order_of(number: int) -> list[str]:
    """Returns the keys of a shard in its order."""
    plan = write.plan_shard(_shard(number), FORECAST, SETTINGS, {})
    return [ref.key for ref in plan.refs]


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[write._WriteShard]:
    sink = write.WritePlannedShards(str(tmp_path), SETTINGS, VERSIONS, beam.pvalue.AsSingleton)._sink
    made = write._WriteShard(sink, str(tmp_path), SETTINGS, VERSIONS, resume=False)
    made.setup()
    made.start_bundle()
    yield made
    made.teardown()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[ImageRef], None]], None]:
    """Has a function called in place of a request; each image is a request of its own."""

    def install(function: Callable[[ImageRef], None]) -> None:
        def read_image(ref: ImageRef, _: int) -> bytes:
            function(ref)
            return PICTURE

        monkeypatch.setattr(convert, "read_image", read_image)
        monkeypatch.setattr(storage, "can_read_ahead", lambda _: False)

    return install


def _written(
    writer: write._WriteShard, shards: Iterable[PlannedShard], reusable: ReusableBuilds | None = None
) -> list[ShardResult]:
    found = [
        result
        for planned in shards
        for result in writer.process(planned, FORECAST, reusable or ReusableBuilds(), None)
    ]
    return [*found, *(windowed.value for windowed in writer.finish_bundle())]


def _numbers(results: Sequence[ShardResult]) -> list[tuple[int, int]]:
    return [(result.header.shard, result.header.records) for result in results]


@pytest.mark.parametrize("resumed", [False, True])
def test_a_shard_is_read_before_the_last_image_of_the_one_before_has_arrived(
    writer: write._WriteShard, read: Any, resumed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = {_order_of(number)[-1]: number for number in range(SHARDS - 1)}
    started = [threading.Event() for _ in range(SHARDS)]

    def wait(ref: ImageRef) -> None:
        started[int(ref.key[0])].set()
        if ref.key in last:
            assert started[last[ref.key] + 1].wait(SECONDS)

    def at_once(function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        done = Future[Any]()
        done.set_result(function(*arguments))
        return done

    read(wait)
    monkeypatch.setattr(writer._checker, "submit", at_once)
    writer._resume = resumed  # there is nothing to reuse, but each shard is compared
    assert _numbers(_written(writer, map(_shard, range(SHARDS)))) == [(n, IMAGES) for n in range(SHARDS)]


def test_no_more_is_in_flight_than_for_one_shard(
    writer: write._WriteShard, read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 2
    monkeypatch.setattr("shardwright.transforms.images.read.READS_AHEAD", most)
    lock, arrived, started, room = threading.Lock(), 0, 0, 0

    def count(_: ImageRef) -> None:
        nonlocal started, room
        with lock:
            started += 1
            room = max(room, started - arrived)

    real = convert.convert_read

    def convert_read(*arguments: Any) -> Any:
        nonlocal arrived
        with lock:
            arrived += 1
        return real(*arguments)

    read(count)
    monkeypatch.setattr(convert, "convert_read", convert_read)
    _written(writer, map(_shard, range(SHARDS)))
    # As many images as a chunk of the converting threads has may wait to be counted.
    assert started == SHARDS * IMAGES and room <= most + convert._WAITING_PER_THREAD


def test_a_fault_drops_what_the_next_shard_has_not_requested(
    writer: write._WriteShard, read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: set[str] = set()
    monkeypatch.setattr("shardwright.transforms.images.read.READS_AHEAD", 1)
    first = _order_of(0)

    def refuse(ref: ImageRef) -> None:
        asked.add(ref.key)
        if ref.key == first[-1]:
            raise EngineError("no network")

    read(refuse)
    with pytest.raises(EngineError, match="no network"):
        _written(writer, map(_shard, range(2)))
    closed = [shard.reads for shard in writer._waiting]
    assert len(closed) == 1 and closed[0] is not None
    assert all(future.cancelled() or future.done() for future, _, _ in closed[0]._waiting)
    assert len(asked) <= IMAGES + 1


def test_what_is_on_a_disk_is_written_at_once(writer: write._WriteShard, tmp_path: Path) -> None:
    for number in range(SHARDS):
        for image in range(IMAGES):
            path = tmp_path / "in" / "b" / str(number) / f"{image}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(PICTURE)
    shards = [_shard(number, f"{tmp_path}/in/") for number in range(SHARDS)]
    shards = [
        shard._replace(
            refs=[encode_refs(ref._replace(version="") for ref in write.plan_shard(
                shard, FORECAST, SETTINGS, {}).refs)]
        )
        for shard in shards
    ]  # fmt: skip
    found = [[*writer.process(shard, FORECAST, ReusableBuilds(), None)] for shard in shards]
    assert [_numbers(results) for results in found] == [[], [(0, IMAGES)], [(1, IMAGES)]]
    assert _numbers([windowed.value for windowed in writer.finish_bundle()]) == [(2, IMAGES)]


def test_a_large_shard_waits_packed_and_unread(
    writer: write._WriteShard, read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unpacked references take memory, and two large shards would take twice as much as one."""
    small, large = _shard(0), _shard(1)
    large = large._replace(refs=[*large.refs, *_shard(2).refs])
    monkeypatch.setattr(write, "_MAX_UNPACKED", IMAGES)
    packed = []

    def look(_: ImageRef) -> None:
        packed.extend(shard.task.plan.refs._whole is None for shard in writer._waiting)

    read(look)
    assert _numbers(_written(writer, [small, large])) == [(0, IMAGES), (1, 2 * IMAGES)]
    assert packed and all(packed)
