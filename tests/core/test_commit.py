"""The last step of a conversion: it adds up the shards, lists bad images, and publishes no wrong counts."""

from __future__ import annotations

import hashlib
import json
import pickle
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.ledgers import dump_ledger, result_of
from helpers.memory import traced_memory
from helpers.tfds_reading import read_dataset

from shardwright.core import commit
from shardwright.core.shards.finish import condense
from shardwright.core.shards.quarantined import sorted_lines, write_quarantine
from shardwright.schemas import ledger
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.errors import EngineError
from shardwright.schemas.plan import ShardPlace, ledger_file


@pytest.fixture(scope="module")
def made(sound_dataset: Path) -> Dataset:
    return read_dataset(sound_dataset)


@pytest.fixture(scope="module")
def headers(sound_dataset: Path, made: Dataset) -> list[ledger.ShardHeader]:
    return [
        ledger.load_ledger((sound_dataset / ledger_file(*place)).read_bytes())[0]
        for place, _ in made.placed_shards()
    ]


@pytest.fixture
def forecast(made: Dataset, headers: list[ledger.ShardHeader]) -> Any:
    """What the plan expects: these shards, with an entry for each listed file."""
    totals = ledger.totals_of_splits(headers)
    return SimpleNamespace(
        plan=made.plan, listed={split: sums.counts.total() for split, sums in totals.items()}
    )


def _fault(forecast: Any, headers: list[ledger.ShardHeader], **read_back: int) -> str:
    checks: Any = [SimpleNamespace(file=name, records=records) for name, records in read_back.items()]
    message = r"^The counts do not agree: .*; run again with --resume\.$"
    with pytest.raises(EngineError, match=message) as error:
        commit.check_counts(forecast, [ledger.ShardResult(header) for header in headers], checks)
    return str(error.value)


def test_totals_that_do_not_balance_are_found(forecast: Any, headers: list[ledger.ShardHeader]) -> None:
    message = _fault(forecast, headers[1:])
    assert "the plan has the shards {'train': 3, 'validation': 1, 'test': 1}" in message
    assert "{'train': 2, 'validation': 1, 'test': 1} were written" in message
    first, listed = headers[0], forecast.listed["train"]
    message = _fault(forecast, headers, **{first.file: first.records - 1})
    assert f"{first.file} should hold {first.records} records and {first.records - 1} came back" in message
    forecast.listed["train"] += 1
    message = _fault(forecast, headers)
    assert f"split 'train' had {listed + 1} files listed and {listed} accounted for" in message


def test_a_step_is_repeated_only_for_the_same_fingerprint(
    sound_dataset: Path, made: Dataset, tmp_path: Path
) -> None:
    """After a swap, the staged shards are gone and the output has the new dataset."""
    staged, output = tmp_path / "staged", tmp_path / "output"
    output.mkdir()
    job = SimpleNamespace(directory=str(staged), output=str(output))
    assert not commit.was_swapped(job, made, [])  # type: ignore[arg-type]
    for content, swapped in (
        ((sound_dataset / "dataset.json").read_bytes(), True),
        (json.dumps({"fingerprint": "another"}).encode(), False),
        (b"[]", False),
        (b"{", False),
    ):
        (output / "dataset.json").write_bytes(content)
        assert commit.was_swapped(job, made, []) is swapped  # type: ignore[arg-type]
    job.directory = job.output
    assert not commit.was_swapped(job, made, [])  # type: ignore[arg-type]


def test_annotations_that_cannot_be_used_are_warnings() -> None:
    boxes = Counter({"dropped": 1, "unlisted": 2})
    warnings = list(
        commit.warnings_of(ledger.ShardTotals(boxes=boxes, bad_boxes=("birds/1.jpg: it is empty",)))
    )
    assert warnings == [
        "1 bad annotation is left out, such as birds/1.jpg: it is empty.",
        "2 segments of masks are not listed by the source and not counted.",
    ]
    assert not list(commit.warnings_of(ledger.ShardTotals()))


CLASSES = [f"class {number:04d}" for number in range(1000)]


def result(split: str, shard: int, count: int, seed: int) -> ledger.ShardResult:
    """Returns the result of a shard with all classes."""
    rng = random.Random(seed)
    entries = [
        ledger.Entry(
            key=str(i), outcome="written", source_width=rng.randrange(9), source_height=3, source_bytes=i
        )
        for i in range(5)
    ]
    header = replace(
        result_of(ShardPlace(split, shard, count), entries).header,
        file=f"{split}-{shard:05d}-of-{count:05d}.tfrecord", plan_digest="d" * 64, sha256="s" * 64,
        reasons={"quarantined": {"CORRUPT": 1}}, class_counts={name: rng.randrange(5) for name in CLASSES},
        formats={"jpg": 990, "png": 10}, boxes={"written": 3}, bad_boxes=("a",),
    )  # fmt: skip
    return ledger.ShardResult(header, started=1.0, finished=2.0)


def sums(results: list[ledger.ShardResult]) -> object:
    """Returns everything that a commit adds up from results."""
    headers = [result.header for result in results]
    return ledger.sums_of_headers(headers, ("train", "test")), ledger.total_of(headers).sizes_of_sources()


def test_condensed_results_add_up_to_the_same() -> None:
    results = [result(split, i, 40, i) for split in ("train", "test") for i in range(40)]
    rng = random.Random(1)
    rng.shuffle(results)
    # As workers send them: condensed, in parts.
    sent = (condense(results[start : start + 7]) for start in range(0, len(results), 7))
    parts = [pickle.loads(pickle.dumps(part)) for part in sent]
    rng.shuffle(parts)
    condensed = condense(chain.from_iterable(parts))
    assert sums(condensed) == sums(results)
    summed = {"class_counts": {}, "formats": {}, "sources": {}}
    by_file = {item.header.file: item for item in results}
    for item in condensed:
        other = by_file.pop(item.header.file)
        assert replace(item.header, **summed) == replace(other.header, **summed)
        assert replace(item, header=other.header) == other
    assert not by_file


def test_the_size_of_a_result_does_not_grow_with_the_classes() -> None:
    sizes = []
    for count in (10, 110):
        condensed = condense([result("train", shard, count, shard) for shard in range(count)])
        sizes.append(len(pickle.dumps(condensed)))
    assert (sizes[1] - sizes[0]) / 100 < 1200 < len(pickle.dumps(result("train", 0, 1, 0))) / 10


NAME = "quarantine.jsonl"


def entries_of(shard: int, count: int, bad: float) -> list[ledger.Entry]:
    """Returns entries in the order of a shard, which differs from that of the keys."""
    rng = random.Random(shard)
    return [
        ledger.Entry(
            f"ä{rng.randrange(10**6)}/{shard}-{i}", "quarantined", reason="CORRUPT", stage="decode",
            message='a line\nwith "quarantined" in it', uri=f"/in/{i}\udcff.jpg",
        )
        if rng.random() < bad
        else ledger.Entry(f"{shard}-{i}", "written", label='"quarantined"', offset=i, length=1)
        for i in range(count)
    ]  # fmt: skip


def written(directory: Path, place: ShardPlace, entries: list[ledger.Entry]) -> ledger.ShardResult:
    """Writes a shard's ledger; returns the result of the shard."""
    result = result_of(place, entries)
    path = directory / ledger_file(*place)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(dump_ledger(result.header, entries))
    return replace(result, files={ledger_file(*place): hashlib.sha256(path.read_bytes()).hexdigest()})


def true_lines(entries: list[ledger.Entry]) -> bytes:
    """Returns the content of the file if all lines were sorted at once."""
    lines = [entry.quarantine_line() for entry in entries if entry.outcome == "quarantined"]
    lines.sort(key=lambda line: tuple(line.values()))
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()


def test_the_bytes_equal_those_of_sorting_everything_at_once(tmp_path: Path) -> None:
    """Also of shards in any order, of which some have no bad images."""
    results, everything = [], list[ledger.Entry]()
    for number in range(8):
        entries = entries_of(number, 200, (0, 0.02, 0.5, 1)[number % 4])
        results.append(written(tmp_path, ShardPlace("train", number, 8), entries))
        everything += entries
    random.Random(1).shuffle(results)
    sha256 = write_quarantine(str(tmp_path), NAME, results, None)
    data = (tmp_path / NAME).read_bytes()
    assert data == true_lines(everything) and data.count(b"\n") > 300
    assert hashlib.sha256(data).hexdigest() == sha256
    assert not [path for path in tmp_path.rglob("*.tmp*") if path.is_file()]


def test_ledgers_without_a_bad_image_are_not_read(tmp_path: Path) -> None:
    result = written(tmp_path, ShardPlace("train", 0, 1), entries_of(0, 20, 0))
    (tmp_path / ledger_file("train", 0, 1)).unlink()
    write_quarantine(str(tmp_path), NAME, [result], None)
    assert (tmp_path / NAME).read_bytes() == b""


def test_a_ledger_that_its_shard_did_not_write_stops_the_commit(tmp_path: Path) -> None:
    place, entries = ShardPlace("train", 0, 1), entries_of(3, 50, 1)
    result = written(tmp_path, place, entries)
    path = tmp_path / ledger_file(*place)
    whole, without_sha256 = path.read_bytes(), replace(result, files={})
    numbers = [entry._replace(uri=5) for entry in entries]  # type: ignore[arg-type]
    other_counts = replace(result.header, counts={"quarantined": 49, "written": 1})
    path.unlink()
    for content, stated in (
        (None, result),
        (dump_ledger(result.header, entries_of(4, 50, 1)), result),
        (whole[:-20], without_sha256),
        (dump_ledger(result.header, numbers), without_sha256),
        (whole, replace(result, header=other_counts)),
    ):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(EngineError, match=r"train-00000-of-00001\.jsonl\.gz changed while the command"):
            write_quarantine(str(tmp_path), NAME, [stated], None)
        assert not (tmp_path / NAME).exists()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_lines() -> None:
    def lines(count: int) -> Iterator[dict[str, str]]:
        rng = random.Random(1)
        for i in range(count):
            yield ledger.Entry(f"{rng.random()}-{i}", "quarantined", message="m" * 50).quarantine_line()

    peaks = []
    for count in (4_000, 16_000):
        with traced_memory() as peak:
            with sorted_lines(lines(count)) as found:
                assert sum(1 for _ in found) == count
            peaks.append(peak())
    assert peaks[1] < 2 * peaks[0]


def test_results_contain_nothing_per_bad_image() -> None:
    sizes = {len(repr(result_of(ShardPlace("train", 0, 1), entries_of(0, n, 1)))) for n in (100, 900)}
    assert len(sizes) == 1
