"""The last step of a conversion publishes nothing whose counts do not agree."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shardwright.schemas.dataset import Dataset
from shardwright.schemas.errors import EngineError
from shardwright.schemas.ledger import LedgerTotals, ShardHeader, ShardResult, load_ledger
from shardwright.schemas.plan import ledger_file
from shardwright.transforms import commit


@pytest.fixture(scope="module")
def made(sound_dataset: Path) -> Dataset:
    return Dataset.from_bytes((sound_dataset / "dataset.json").read_bytes(), "it")


@pytest.fixture(scope="module")
def headers(sound_dataset: Path, made: Dataset) -> list[ShardHeader]:
    return [
        load_ledger((sound_dataset / ledger_file(split, number, count)).read_bytes())[0]
        for split, number, count, _ in made.placed_shards()
    ]


@pytest.fixture
def forecast(made: Dataset, headers: list[ShardHeader]) -> Any:
    """What the plan expects: these shards, with an entry for each listed file."""
    listed: Counter[str] = Counter()
    for header in headers:
        listed[header.split] += sum(header.counts.values())
    return SimpleNamespace(plan=made.plan, listed=listed)


def _check(forecast: Any, headers: list[ShardHeader], **read_back: int) -> None:
    checks: Any = [SimpleNamespace(file=name, records=records) for name, records in read_back.items()]
    commit.check_counts(forecast, [ShardResult(header) for header in headers], checks)


def _fault(forecast: Any, headers: list[ShardHeader], **read_back: int) -> str:
    with pytest.raises(
        EngineError, match=r"^The counts do not agree: .*; run again with --resume\.$"
    ) as error:
        _check(forecast, headers, **read_back)
    return str(error.value)


def test_counts_that_agree_are_accepted(forecast: Any, headers: list[ShardHeader]) -> None:
    _check(forecast, headers)
    _check(forecast, headers, **{header.file: header.records for header in headers})


def test_a_missing_shard_is_found(forecast: Any, headers: list[ShardHeader]) -> None:
    message = _fault(forecast, headers[1:])
    assert "the plan has the shards {'train': 3, 'validation': 1, 'test': 1}" in message
    assert "{'train': 2, 'validation': 1, 'test': 1} were written" in message


def test_a_listed_file_without_an_entry_is_found(forecast: Any, headers: list[ShardHeader]) -> None:
    found = forecast.listed["train"]
    forecast.listed["train"] += 1
    message = _fault(forecast, headers)
    assert f"split 'train' had {found + 1} files listed and {found} accounted for" in message


def test_a_record_that_cannot_be_read_back_is_found(forecast: Any, headers: list[ShardHeader]) -> None:
    first = headers[0]
    message = _fault(forecast, headers, **{first.file: first.records - 1})
    assert f"{first.file} should hold {first.records} records and {first.records - 1} came back" in message


def _job(folder: Path, **values: Any) -> Any:
    return SimpleNamespace(directory=str(folder), output=str(folder), hold=None, **values)


def test_a_step_is_repeated_only_for_the_same_fingerprint(
    sound_dataset: Path, made: Dataset, tmp_path: Path
) -> None:
    """After a swap, the staged shards are gone and the output has the new dataset."""
    staged, output = tmp_path / "staged", tmp_path / "output"
    output.mkdir()
    job = SimpleNamespace(directory=str(staged), output=str(output))
    assert not commit._was_swapped(job, made, [])  # type: ignore[arg-type]
    for content, swapped in (
        ((sound_dataset / "dataset.json").read_bytes(), True),
        (json.dumps({"fingerprint": "another"}).encode(), False),
        (b"[]", False),
        (b"{", False),
    ):
        (output / "dataset.json").write_bytes(content)
        assert commit._was_swapped(job, made, []) is swapped  # type: ignore[arg-type]
    job.directory = job.output
    assert not commit._was_swapped(job, made, [])  # type: ignore[arg-type]


def test_a_run_without_a_lease_has_no_earlier_outcome(sound_dataset: Path) -> None:
    assert commit.outcome_of(_job(sound_dataset)) is None


def test_annotations_that_cannot_be_used_are_warnings(headers: list[ShardHeader]) -> None:
    bad = replace(headers[0], bad_boxes=("birds/1.jpg: it is empty",))
    warnings = list(commit._box_warnings({"dropped": 1, "unlisted": 2}, [ShardResult(bad)]))
    assert warnings == [
        "1 bad annotation is left out, such as birds/1.jpg: it is empty.",
        "2 segments of masks are not listed by the source and not counted.",
    ]
    assert not list(commit._box_warnings({}, [ShardResult(bad)]))


def test_a_dataset_without_images_is_not_published(tmp_path: Path) -> None:
    report: Any = SimpleNamespace(errors=0)
    assert commit._refusal(_job(tmp_path), LedgerTotals(), report) == (
        "No image was written, because all were filtered; nothing was published. Check --input."
    )


def test_sizes_of_a_damaged_header_add_nothing(headers: list[ShardHeader]) -> None:
    sound = [ShardResult(header) for header in headers]
    damaged = ShardResult(replace(headers[0], sources={"sides": 3}))
    whole, more = commit._source_sizes(sound), commit._source_sizes([*sound, damaged])
    assert whole.state() == more.state() and whole.images > 0
