"""Rebuilds repair damage on the disk, and clean up what killed runs and failed cleanups have left."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.from_nothing import Rebuilt, begin, inodes, write_bmps
from helpers.hostile import flip, picture, run, sentence_of

from shardwright.core import storage
from shardwright.core.rebuild import compare as scrubbing
from shardwright.core.storage import local
from shardwright.pipelines import prepare
from shardwright.pipelines.rebuild import rebuild
from shardwright.pipelines.rollback import rollback
from shardwright.pipelines.validate import validate
from shardwright.schemas.errors import DataRefused, EngineError

SETTINGS = {"shards": "3", "resize": "8", "image_format": "png"}
Capture = pytest.CaptureFixture[str]


def shards_of(rebuilt: Rebuilt) -> list[Path]:
    return [rebuilt.latest / name for name in sorted(inodes(rebuilt.latest))]


def metric(rebuilt: Rebuilt, name: str) -> list[float]:
    lines = (rebuilt.output / "metrics.prom").read_text().splitlines()
    return [
        float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"shardwright_rebuild_{name}")
    ]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with images, and the first version made from them."""
    root = tmp_path_factory.mktemp("first")
    write_bmps(root / "in", 9)
    begin(root, **SETTINGS)
    return root


@pytest.fixture
def rebuilt(tmp_path: Path, first: Path) -> Rebuilt:
    shutil.copytree(first, tmp_path, dirs_exist_ok=True)
    return Rebuilt(tmp_path, input=str(tmp_path / "in"), **SETTINGS)


@pytest.fixture
def grown(rebuilt: Rebuilt, tmp_path: Path) -> Rebuilt:
    """The same with a new image."""
    (tmp_path / "in" / "a" / "new.bmp").write_bytes(picture(50, "BMP", 8))
    return rebuilt


def test_a_damaged_shard_is_detected_and_rebuilt(rebuilt: Rebuilt) -> None:
    first, sound = rebuilt.latest, shards_of(rebuilt)[1].read_bytes()
    flip(shards_of(rebuilt)[1], -40)
    name = shards_of(rebuilt)[1].name
    result = rebuilt.again(scrub=1, compared=False)
    assert result.changed and (rebuilt.latest / name).read_bytes() == sound
    assert result.outcome["work"]["reused_shards"] == 2 and result.outcome["work"]["copied"] == 0
    size = sum(path.stat().st_size for path in shards_of(rebuilt))
    assert result.outcome["scrub"] == {
        "version": first.name, "shards": 3, "of_shards": 3, "bytes": size, "of_bytes": size,
        "damaged": [name],
    }  # fmt: skip
    assert any("is damaged and rebuilt from the source" in reason for reason in result.outcome["reasons"])
    assert any("SHARD_REPAIRED" in warning for warning in result.outcome["warnings"])
    found = json.loads((rebuilt.latest / "findings.json").read_text())
    assert found["counts"] == {"SHARD_REPAIRED": 1} and found["sound"]
    assert found["findings"][0]["shard"] == name and first.name in found["findings"][0]["message"]
    report = (rebuilt.latest / "report.html").read_text()
    assert "SHARD_REPAIRED" in report and f"3 of 3 shards of {first.name} read again" in report
    assert metric(rebuilt, "scrubbed_shards") == [1, 2] and metric(rebuilt, "scrubbed_bytes") == [size]
    again = rebuilt.again(scrub=1, compared=False)
    assert not again.changed and again.outcome["scrub"]["damaged"] == []
    assert metric(rebuilt, "scrubbed_shards") == [0, 3]
    assert validate(str(rebuilt.latest), mode="full").sound


def test_all_shards_are_read_again_while_nothing_changes(rebuilt: Rebuilt) -> None:
    flip(shards_of(rebuilt)[2], -40)
    results = [rebuilt.again(compared=False) for _ in range(3)]
    assert [result.changed for result in results] == [False, False, True]
    assert [result.outcome["scrub"]["shards"] for result in results] == [1, 1, 1]


@pytest.mark.parametrize("compression", ["none", pytest.param("gzip", marks=pytest.mark.slow)])
def test_no_record_of_a_changed_damaged_shard_is_copied(
    rebuilt: Rebuilt, tmp_path: Path, compression: str
) -> None:
    # Its line in the ledger is not copied either.
    (tmp_path / "in" / "a" / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    rebuilt.again(compared=False, shards="1", compression=compression)
    flip(shards_of(rebuilt)[0], -5)
    (tmp_path / "in" / "a" / "new.bmp").write_bytes(picture(50, "BMP", 8))
    result = rebuilt.again(scrub=0)  # this compares with a full build
    assert result.outcome["work"]["copied"] == 0 and result.outcome["work"]["converted"] == 10
    assert result.outcome["scrub"]["shards"] == 0
    assert json.loads((rebuilt.latest / "findings.json").read_text())["counts"] == {"SHARD_REPAIRED": 1}


def test_an_unreadable_shard_counts_as_damaged(rebuilt: Rebuilt, monkeypatch: pytest.MonkeyPatch) -> None:
    broken, sha256_of = shards_of(rebuilt)[0].name, scrubbing.storage.sha256_of

    def failing(file: Any) -> str:
        if str(file.name).endswith(broken):
            raise OSError(5, "Input/output error")
        return sha256_of(file)

    monkeypatch.setattr(scrubbing.storage, "sha256_of", failing)
    result = rebuilt.again(scrub=1, compared=False)
    assert result.outcome["scrub"]["damaged"] == [broken] and result.outcome["work"]["reused_shards"] == 2


def test_the_command_line_reports_the_repair(capfd: Capture, rebuilt: Rebuilt) -> None:
    settings = [f"--{name}={value}" for name, value in rebuilt.settings.items()]
    command = ["rebuild", f"--output={rebuilt.output}", *settings]
    done = run(capfd, *command, "--scrub", "1/2")
    assert done.code == 0 and f"2 of 3 shards of {rebuilt.latest.name} read again" in done.out
    assert "none is damaged" in done.out and "scrubbed: 2 of 3 shards" in done.err
    assert "read again" not in run(capfd, *command, "--scrub=0").out
    for wrong in ("2", "-1", "half", "1/0", "nan"):
        message = sentence_of(run(capfd, *command, f"--scrub={wrong}"), 2)
        assert message.endswith(f"--scrub {wrong}: write a share from 0 to 1, such as 0.1 or 1/30.")


OLD, ABANDONED = "20200101T000000Z", "20200102T000000Z"


def test_damaged_versions_and_leftovers_do_not_stop_a_rebuild(grown: Rebuilt) -> None:
    versions, name = grown.output / "versions", grown.latest.name
    shutil.copytree(grown.latest, versions / OLD)
    (versions / OLD / "version.json").write_text("{")
    places = [grown.output / file for file in ("lease.json", "latest.json", "index.html", "metrics.prom")]
    places += [
        versions / name / "version.json",
        versions / OLD / "x.json",
        grown.output / "_work/outcomes/a",
    ]
    (versions / name / "_checks").mkdir(exist_ok=True)
    places.append(versions / name / "_checks" / "a.json.gz")
    leftovers = [Path(local.unfinished(str(place))) for place in places]
    leftovers.append(Path(storage.temporary_path(str(versions / name), "train-00000-of-00001.tfrecord")))
    notes = versions / name / "notes.tmp"
    for path in (*leftovers, notes):
        path.write_bytes(b"half")
    result = grown.again(compared=False)
    assert result.changed and grown.latest.name > name
    (warning,) = result.outcome["warnings"]
    assert f"{OLD}/version.json cannot be used" in warning
    assert (versions / OLD / "dataset.json").exists()
    assert "damaged" in (grown.output / "index.html").read_text()
    (grown.output / "index.html").unlink()
    assert not grown.again(compared=False).changed
    assert "damaged" in (grown.output / "index.html").read_text(), "also when nothing changed"
    assert not any(path.exists() for path in leftovers) and notes.exists()


def test_a_validation_gets_its_result_while_a_rebuild_tidies_up(
    grown: Rebuilt, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = grown.latest
    killed = Path(storage.unfinished(str(version / "elsewhere.json")))  # this validation does not read it
    killed.write_bytes(b"{}")
    validated = prepare.run_pipeline

    def rebuild_meanwhile(*args: Any) -> Any:
        validated(*args)
        assert grown.again(compared=False).changed

    monkeypatch.setattr(prepare, "run_pipeline", rebuild_meanwhile)
    assert validate(version, mode="fast").passed
    assert grown.latest.name > version.name and not list(version.glob("*.tmp"))


def test_a_rolled_back_version_that_is_damaged_is_not_published_again(grown: Rebuilt) -> None:
    bad = Path(grown.again(compared=False).path)
    rollback(grown.output)
    (bad / "version.json").write_text("")
    with pytest.raises(
        DataRefused, match=f"identical to version {bad.name}, which has a damaged version.json"
    ):
        grown.again(compared=False)
    assert grown.latest.name < bad.name


def test_a_cleanup_that_fails_is_a_warning(grown: Rebuilt, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> Any:
        raise EngineError("the disk is tired.")

    (grown.output / "versions" / ABANDONED).mkdir()
    with monkeypatch.context() as patch:
        for name in ("rebuild.finish.remove_version", "report.index_page.write_index"):
            patch.setattr(f"shardwright.core.{name}", failing)
        patch.setattr("shardwright.core.rebuild.begin.remove_leftovers", failing)
        result = grown.again(compared=False)
    assert result.changed and result.outcome["state"] == "success"
    assert result.outcome["warnings"] == [
        f"Version {ABANDONED} could not be removed: the disk is tired; the next run tries again.",
        "index.html could not be updated: the disk is tired; the next run tries again.",
    ]
    again = rebuild(output=str(grown.output), **grown.settings)
    assert not again.changed and ABANDONED not in grown.versions


def test_a_file_is_written_even_if_its_temporary_file_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, seen = local.os.replace, []

    def tidied(source: str, target: str) -> None:
        if not seen:
            Path(source).unlink()
        seen.append(source)
        replace(source, target)

    monkeypatch.setattr(local.os, "replace", tidied)
    storage.write_bytes(str(tmp_path / "a" / "b.json"), b"whole")
    assert (tmp_path / "a" / "b.json").read_bytes() == b"whole"
    assert len(seen) == 2 and [path.name for path in (tmp_path / "a").iterdir()] == ["b.json"]
