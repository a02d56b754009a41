"""When the next run begins to write, it removes unfinished files of killed workers."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from helpers.from_nothing import begin, write_bmps
from helpers.hostile import make_tree

from shardwright.pipelines import convert as conversion
from shardwright.pipelines import salvage as salvaging
from shardwright.pipelines.rebuild import rebuild
from shardwright.schemas.errors import EngineError
from shardwright.transforms import storage
from shardwright.transforms.storage import local


def leave(directory: Path) -> list[Path]:
    """Creates the files that a killed worker leaves in a dataset's directory."""
    left = [
        Path(storage.temporary_path(str(directory), "train-00000-of-00002.tfrecord")),
        Path(storage.temporary_path(str(directory), "other")),
    ]
    for path in left:
        path.write_bytes(b"half")
    return left


class _Stop(EngineError):
    """Ends a run when its work begins."""


def stop(*_: object) -> None:
    raise _Stop("here the work begins.")


def test_convert_removes_leftovers_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the run is killed again, so that leftovers do not accumulate."""
    make_tree(tmp_path / "in")
    conversion.convert(input=str(tmp_path / "in"), output=str(tmp_path / "out"), shards=2)
    os.unlink(tmp_path / "out" / "dataset.json")
    left = leave(tmp_path / "out")
    notes = tmp_path / "out" / "_work" / "notes.tmp"
    notes.write_bytes(b"somebody's own")
    monkeypatch.setattr(conversion, "run_pipeline", stop)
    with pytest.raises(_Stop):
        conversion.convert(input=str(tmp_path / "in"), output=str(tmp_path / "out"), shards=2, resume=True)
    assert not any(path.exists() for path in left) and notes.exists()


def test_salvage_removes_leftovers_first(
    tmp_path: Path, sound_dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(salvaging, "run_pipeline", stop)
    damaged = shutil.copytree(sound_dataset, tmp_path / "damaged")
    with pytest.raises(_Stop):
        salvaging.salvage(damaged, tmp_path / "out")
    left = leave(tmp_path / "out")
    with pytest.raises(_Stop):
        salvaging.salvage(damaged, tmp_path / "out")
    assert not any(path.exists() for path in left)


def test_rebuild_removes_leftovers_in_all_versions(tmp_path: Path) -> None:
    write_bmps(tmp_path / "in")
    rebuilt = begin(tmp_path, resize="8", image_format="png")
    left = leave(rebuilt.latest)
    (rebuilt.latest / "_checks").mkdir(exist_ok=True)
    left.append(Path(local.unfinished(str(rebuilt.latest / "_checks" / "a.json.gz"))))
    left[-1].write_bytes(b"half")
    result = rebuild(output=str(rebuilt.output), **rebuilt.settings)
    assert not result.changed
    assert not any(path.exists() for path in left)
    assert json.loads(rebuilt.pointer)["version"] == rebuilt.latest.name
