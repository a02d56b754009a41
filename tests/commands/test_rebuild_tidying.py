"""Rebuilds with damaged versions, with leftovers of killed runs, and with cleanups that fail."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.from_nothing import Rebuilt, begin, write_bmps
from helpers.hostile import picture

from shardwright.core import storage
from shardwright.core.storage import local
from shardwright.pipelines import prepare
from shardwright.pipelines.rebuild import rebuild
from shardwright.pipelines.rollback import rollback
from shardwright.pipelines.validate import validate
from shardwright.schemas.errors import DataRefused, EngineError

OLD, ABANDONED = "20200101T000000Z", "20200102T000000Z"
SETTINGS = {"shards": "1", "resize": "8", "image_format": "png"}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with images, and the first version made from them."""
    root = tmp_path_factory.mktemp("first")
    write_bmps(root / "in", 4)
    begin(root, **SETTINGS)
    return root


@pytest.fixture
def rebuilt(tmp_path: Path, first: Path) -> Rebuilt:
    """A copy of it with a new image."""
    shutil.copytree(first, tmp_path, dirs_exist_ok=True)
    (tmp_path / "in" / "a" / "new.bmp").write_bytes(picture(50, "BMP", 8))
    return Rebuilt(tmp_path, input=str(tmp_path / "in"), **SETTINGS)


def test_damaged_versions_and_leftovers_do_not_stop_a_rebuild(rebuilt: Rebuilt) -> None:
    versions, name = rebuilt.output / "versions", rebuilt.latest.name
    shutil.copytree(rebuilt.latest, versions / OLD)
    (versions / OLD / "version.json").write_text("{")
    places = [rebuilt.output / file for file in ("lease.json", "latest.json", "index.html", "metrics.prom")]
    places += [
        versions / name / "version.json",
        versions / OLD / "x.json",
        rebuilt.output / "_work/outcomes/a",
    ]
    (versions / name / "_checks").mkdir(exist_ok=True)
    places.append(versions / name / "_checks" / "a.json.gz")
    leftovers = [Path(local.unfinished(str(place))) for place in places]
    leftovers.append(Path(storage.temporary_path(str(versions / name), "train-00000-of-00001.tfrecord")))
    notes = versions / name / "notes.tmp"
    for path in (*leftovers, notes):
        path.write_bytes(b"half")
    result = rebuilt.again(compared=False)
    assert result.changed and rebuilt.latest.name > name
    (warning,) = result.outcome["warnings"]
    assert f"{OLD}/version.json cannot be used" in warning
    assert (versions / OLD / "dataset.json").exists()
    assert "damaged" in (rebuilt.output / "index.html").read_text()
    (rebuilt.output / "index.html").unlink()
    assert not rebuilt.again(compared=False).changed
    assert "damaged" in (rebuilt.output / "index.html").read_text(), "also when nothing changed"
    assert not any(path.exists() for path in leftovers) and notes.exists()


def test_a_validation_gets_its_result_while_a_rebuild_tidies_up(
    rebuilt: Rebuilt, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = rebuilt.latest
    killed = Path(storage.unfinished(str(version / "elsewhere.json")))  # this validation does not read it
    killed.write_bytes(b"{}")
    validated = prepare.run_pipeline

    def rebuild_meanwhile(*args: Any) -> Any:
        validated(*args)
        assert rebuilt.again(compared=False).changed

    monkeypatch.setattr(prepare, "run_pipeline", rebuild_meanwhile)
    assert validate(version, mode="fast").passed
    assert rebuilt.latest.name > version.name and not list(version.glob("*.tmp"))


def test_a_rolled_back_version_that_is_damaged_is_not_published_again(rebuilt: Rebuilt) -> None:
    bad = Path(rebuilt.again(compared=False).path)
    rollback(rebuilt.output)
    (bad / "version.json").write_text("")
    with pytest.raises(
        DataRefused, match=f"identical to version {bad.name}, which has a damaged version.json"
    ):
        rebuilt.again(compared=False)
    assert rebuilt.latest.name < bad.name


def test_a_cleanup_that_fails_is_a_warning(rebuilt: Rebuilt, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> Any:
        raise EngineError("the disk is tired.")

    (rebuilt.output / "versions" / ABANDONED).mkdir()
    with monkeypatch.context() as patch:
        for name in ("rebuild.finish.remove_version", "report.index_page.write_index"):
            patch.setattr(f"shardwright.core.{name}", failing)
        patch.setattr("shardwright.core.rebuild.begin.remove_leftovers", failing)
        result = rebuilt.again(compared=False)
    assert result.changed and result.outcome["state"] == "success"
    assert result.outcome["warnings"] == [
        f"Version {ABANDONED} could not be removed: the disk is tired; the next run tries again.",
        "index.html could not be updated: the disk is tired; the next run tries again.",
    ]
    again = rebuild(output=str(rebuilt.output), **rebuilt.settings)
    assert not again.changed and ABANDONED not in rebuilt.versions


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
