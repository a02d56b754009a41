"""`quarantine.jsonl` is compared with the ledgers, which are read again for this."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardwright.pipelines.convert import convert
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.errors import EngineError
from shardwright.schemas.ledger import ShardResult, load_ledger
from shardwright.schemas.ledger_lines import LedgerLines
from shardwright.schemas.plan import ledger_file
from shardwright.transforms.shards.finish import ShardPlace, write_ledger
from shardwright.transforms.validation.dataset_json import DatasetLedgers, check_quarantine
from shardwright.transforms.validation.ledger import LedgerCheck

BAD = 4


@pytest.fixture
def dataset(photos: Path, tmp_path: Path) -> Path:
    """A dataset with bad images in both of its shards, if their hashes allow it."""
    source = tmp_path / "in" / "birds"
    source.mkdir(parents=True)
    for number, photo in enumerate(sorted(photos.glob("*/*.jpg"))[:6]):
        (source / f"{number}.jpg").write_bytes(photo.read_bytes())
    for number in range(BAD):
        (source / f"bad{number}.jpg").write_bytes(b"no image")
    output = tmp_path / "out"
    convert(input=str(source.parent), output=str(output), resize="16", shards=2, max_bad_fraction=0.9)
    return output


def findings(directory: Path) -> list[str]:
    """Returns the findings about the quarantine, given the ledgers at the time of their check."""
    made = Dataset.from_bytes((directory / "dataset.json").read_bytes(), "it")
    return [
        finding.message for finding in check_quarantine(str(directory), made, ledgers_of(directory, made))
    ]


def ledgers_of(directory: Path, made: Dataset) -> DatasetLedgers:
    ledgers = {}
    for split, number, count, shard in made.placed_shards():
        check = LedgerCheck((directory / ledger_file(split, number, count)).read_bytes(), shard)
        list(check.finish(sound=False))
        ledgers[shard.file] = check.summary
    return DatasetLedgers(ledgers, {}, False)


def test_the_file_matches_the_ledgers(dataset: Path) -> None:
    path = dataset / "quarantine.jsonl"
    lines = path.read_bytes().splitlines(True)
    assert len(lines) == BAD and findings(dataset) == []
    path.write_bytes(b"".join(lines[1:]))
    assert findings(dataset) == ["1 quarantined image missing, such as 'birds/bad0.jpg'"]
    path.write_bytes(b"".join(lines).replace(b"bad3", b"bad9"))
    assert findings(dataset) == ["line 4 ('birds/bad9.jpg') does not match a quarantined image of a ledger"]
    path.write_bytes(b"".join(reversed(lines)))
    assert len(findings(dataset)) == 1 and "sha256" in findings(dataset)[0]


def test_a_ledger_that_changes_meanwhile_is_not_a_finding(dataset: Path) -> None:
    made = Dataset.from_bytes((dataset / "dataset.json").read_bytes(), "it")
    ledgers = ledgers_of(dataset, made)
    for split, number, count, _ in made.placed_shards():
        place = ShardPlace(split, number, count)
        path = dataset / ledger_file(split, number, count)
        header, entries = load_ledger(path.read_bytes())
        changed = [entry._replace(message="something else") for entry in entries]
        write_ledger(str(dataset), place, ShardResult(header), LedgerLines.of(changed))
    with pytest.raises(EngineError, match="changed while the command ran"):
        list(check_quarantine(str(dataset), made, ledgers))
