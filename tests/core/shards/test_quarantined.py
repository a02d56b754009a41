"""`quarantine.jsonl` is built from the ledgers of the shards, in parts, with unchanged content."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.ledgers import dump_ledger, result_of
from helpers.memory import traced_memory

from shardwright.core.shards.quarantined import sorted_lines, write_quarantine
from shardwright.schemas.errors import EngineError
from shardwright.schemas.ledger import Entry, ShardResult
from shardwright.schemas.plan import ShardPlace, ledger_file

NAME = "quarantine.jsonl"


def entries_of(shard: int, count: int, bad: float) -> list[Entry]:
    """Returns entries in the order of a shard, which differs from that of the keys."""
    rng = random.Random(shard)
    return [
        Entry(
            f"ä{rng.randrange(10**6)}/{shard}-{i}", "quarantined", reason="CORRUPT", stage="decode",
            message='a line\nwith "quarantined" in it', uri=f"/in/{i}\udcff.jpg",
        )
        if rng.random() < bad
        else Entry(f"{shard}-{i}", "written", label='"quarantined"', offset=i, length=1)
        for i in range(count)
    ]  # fmt: skip


def written(directory: Path, place: ShardPlace, entries: list[Entry]) -> ShardResult:
    """Writes a shard's ledger; returns the result of the shard."""
    result = result_of(place, entries)
    path = directory / ledger_file(*place)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(dump_ledger(result.header, entries))
    return replace(result, files={ledger_file(*place): hashlib.sha256(path.read_bytes()).hexdigest()})


def true_lines(entries: list[Entry]) -> bytes:
    """Returns the content of the file if all lines were sorted at once."""
    lines = [entry.quarantine_line() for entry in entries if entry.outcome == "quarantined"]
    lines.sort(key=lambda line: tuple(line.values()))
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()


def test_the_bytes_equal_those_of_sorting_everything_at_once(tmp_path: Path) -> None:
    """Also of shards in any order, of which some have no bad images."""
    results, everything = [], list[Entry]()
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


@pytest.mark.parametrize("change", ["missing", "another", "damaged", "no text", "of another count"])
def test_a_ledger_that_its_shard_did_not_write_stops_the_commit(tmp_path: Path, change: str) -> None:
    place = ShardPlace("train", 0, 1)
    result = written(tmp_path, place, entries_of(3, 50, 1))
    path = tmp_path / ledger_file(*place)
    if change == "missing":
        path.unlink()
    elif change == "damaged":
        path.write_bytes(path.read_bytes()[:-20])
        result = replace(result, files={})  # otherwise its sha256 differs
    elif change == "no text":
        numbers = [entry._replace(uri=5) for entry in entries_of(3, 50, 1)]  # type: ignore[arg-type]
        path.write_bytes(dump_ledger(result.header, numbers))
        result = replace(result, files={})
    elif change == "another":
        path.write_bytes(dump_ledger(result.header, entries_of(4, 50, 1)))
    else:
        header = replace(result.header, counts={"quarantined": 49, "written": 1})
        result = replace(result, header=header)
    with pytest.raises(EngineError, match=r"train-00000-of-00001\.jsonl\.gz changed while the command ran"):
        write_quarantine(str(tmp_path), NAME, [result], None)
    assert not (tmp_path / NAME).exists()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_lines() -> None:
    def lines(count: int) -> Iterator[dict[str, str]]:
        rng = random.Random(1)
        for i in range(count):
            yield Entry(f"{rng.random()}-{i}", "quarantined", message="m" * 50).quarantine_line()

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
