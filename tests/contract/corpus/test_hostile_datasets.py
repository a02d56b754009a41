"""Datasets of thousands of strange, broken and huge pictures: complete ledgers, sound records.

Needs a folder named by SHARDWRIGHT_CORPORA. All files in it are converted with several settings, and each
dataset is validated in every mode, by processes whose memory is measured.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.hostile import OUTCOMES, check_books, document, ledger_entries
from helpers.memory import MeasuredCommand, measured_command
from helpers.repository import corpora
from tensorflow_metadata.proto.v0 import statistics_pb2

pytestmark = pytest.mark.corpus

MODES = {"fast": ["--fast"], "full": [], "quality": ["--quality"]}
#: Maximum megabytes of a process: with original pictures of up to 89 megapixels, and otherwise.
HUGE, USUAL = 1500, 600
MAX_PAGE = 5_000_000
_SETTINGS = {
    "kept": ["--shard_size=64MB"],
    "small": ["--resize=224", "--shard_size=16MB"],
    "bare": ["--resize=64", "--layout=raw", "--shard_size=16MB"],
}


def ran(*argv: object) -> MeasuredCommand:
    """Runs a command that must end without a traceback."""
    done = measured_command(*argv)
    assert "Traceback" not in done.output, done.output
    return done


@pytest.fixture(scope="module", params=_SETTINGS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A dataset of all files of the corpora."""
    output = tmp_path_factory.mktemp("corpora") / request.param
    argv = ("convert", "--input", corpora(), "--output", output, "--splits=train=0.7,test=0.3",
            "--max_bad_fraction=1", *_SETTINGS[request.param])  # fmt: skip
    done = ran(*argv)
    assert done.code == 0, done.output
    assert done.megabytes < HUGE
    yield output
    shutil.rmtree(output)


def files_below(root: Path) -> list[str]:
    """Returns the paths of all files relative to their root, whatever their names."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())


def validated(dataset: Path, *options: object) -> tuple[dict[str, Any], MeasuredCommand]:
    done = ran("validate", "--dataset", dataset, *options)
    report: dict[str, Any] = json.loads((dataset / "findings.json").read_text())
    assert done.code == (0 if report["sound"] else 1), done.output
    return report, done


def test_every_file_is_accounted_for(made: Path) -> None:
    entries = check_books(made)
    plain = {path.replace("%", "%25") for path in files_below(corpora()) if path.isascii()}
    assert plain <= entries.keys()
    assert len(entries) == len(files_below(corpora())) == document(made)["ledger"]["listed"]
    counted = Counter(entry["outcome"] for entry in entries.values())
    assert counted["written"] and counted["quarantined"] and counted["filtered"], counted
    assert set(counted) <= set(OUTCOMES)
    kept = sum(entry["outcome"] == "written" for entry in entries.values())
    assert kept == sum(
        shard["records"] for split in document(made)["splits"].values() for shard in split["shards"]
    )


def test_new_datasets_are_sound_in_every_mode(made: Path) -> None:
    most = HUGE if made.name == "kept" else USUAL
    for mode, options in MODES.items():
        report, done = validated(made, *options)
        assert report["mode"] == mode and report["errors"] == 0, report["counts"]
        assert report["records"] == document(made)["ledger"]["written"]
        assert done.megabytes < (most if mode != "fast" else USUAL), mode
    statistics = json.loads((made / "statistics.json").read_text())
    assert statistics["fingerprint"] == document(made)["fingerprint"]
    stored = statistics_pb2.DatasetFeatureStatisticsList.FromString((made / "stats.pb").read_bytes())
    assert {split.name: split.num_examples for split in stored.datasets} == {
        "All Examples": document(made)["ledger"]["written"],
        **{name: split["records"] for name, split in document(made)["splits"].items()},
    }
    assert 10_000 < (made / "report.html").stat().st_size < MAX_PAGE
    report, done = validated(made, "--against", corpora())
    assert report["errors"] == 0, [
        finding for finding in report["findings"] if finding["severity"] == "error"
    ]
    assert done.megabytes < HUGE


def test_undamaged_records_are_salvaged_after_random_damage(made: Path, tmp_path: Path) -> None:
    rng = random.Random(7)
    broken = tmp_path / "broken"
    shutil.copytree(made, broken)
    sound = json.loads((made / "dataset.json").read_text())
    files = [shard["file"] for split in sound["splits"].values() for shard in split["shards"]]
    for file in rng.sample(files, min(3, len(files))):
        data = bytearray((broken / file).read_bytes())
        for _ in range(5):
            place = rng.randrange(len(data))
            data[place : place + rng.randrange(1, 2000)] = rng.randbytes(rng.randrange(2000))
        (broken / file).write_bytes(data[: rng.randrange(len(data) // 2, len(data))])
    report, _ = validated(broken, "--fast")
    assert not report["sound"] and report["counts"].keys() & {"SHARD_TRUNCATED", "LENGTH_CRC", "DATA_CRC"}
    done = ran("salvage", "--dataset", broken, "--output", tmp_path / "salvaged")
    assert done.code in (0, 1), done.output
    again, _ = validated(tmp_path / "salvaged")
    assert again["errors"] == 0, again["counts"]
    doubled = re.search(
        r"left out: ([\d,]+) records? of no shard", done.output
    )  # counts equal records, if records have no keys
    assert made.name == "bare" or not doubled, done.output
    left_out = int(doubled[1].replace(",", "")) if doubled else 0
    assert again["records"] + left_out == report["records"] < sound["ledger"]["written"]
    if made.name == "bare":
        return
    keys = {entry["key"] for entry in ledger_entries(made) if entry["outcome"] == "written"}
    left = {entry["key"] for entry in ledger_entries(tmp_path / "salvaged") if entry["outcome"] == "written"}
    assert left < keys and len(left) == again["records"]


def test_diff_reports_the_differences_between_two_datasets(made: Path, sound_dataset: Path) -> None:
    done = ran("diff", sound_dataset, made)
    assert done.code == 0 and "train" in done.output, done.output
    assert done.megabytes < USUAL
