"""Storages that only Beam knows: what differs from those that every storage must do."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.storage.beam_disk import DiskFileSystem, FlatFileSystem
from helpers.trees import put_files

from shardwright.core import storage
from shardwright.schemas.errors import EngineError


@pytest.fixture(params=[DiskFileSystem.scheme(), FlatFileSystem.scheme()])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty folder on each of the two storages."""
    return f"{request.param}://{tmp_path}/in"


@pytest.fixture(autouse=True)
def _nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DiskFileSystem, "failing", {})


def test_files_appear_whole(folder: str, tmp_path: Path) -> None:
    put_files(tmp_path / "in", {"a.tmp": b"part"})  # of a run that was killed
    storage.write_bytes(f"{folder}/a", b"first")
    storage.write_bytes(f"{folder}/a", b"second")
    assert storage.read_bytes(f"{folder}/a") == b"second" and len(list(tmp_path.rglob("*.tmp"))) == 1
    storage.write_bytes(f"disk://{tmp_path}/new/deep/a", b"third")
    assert (tmp_path / "new" / "deep" / "a").read_bytes() == b"third"


def test_names_with_patterns_are_listed_as_they_are(folder: str, tmp_path: Path) -> None:
    names = ("in/[a]*/1.jpg", "in/[a]*/deep/2.jpg", "in/a/3.jpg")
    put_files(tmp_path, dict.fromkeys(names, b"x" * 5))
    found = sorted((item.path, item.size) for item in storage.list_objects(f"{folder}/[a]*"))
    assert found == [(f"{folder}/[a]*/1.jpg", 5), (f"{folder}/[a]*/deep/2.jpg", 5)]


def test_faults_become_one_sentence(folder: str, tmp_path: Path) -> None:
    put_files(tmp_path / "in", {"a": b"x"})
    DiskFileSystem.failing["open"] = "the name node\n  says no."
    advice = "check its name, your credentials and permissions, then run again with --resume."
    for doing, use in (
        ("read", lambda: storage.read_bytes(f"{folder}/a")),
        ("write", lambda: storage.write_bytes(f"{folder}/a", b"y")),
    ):
        with pytest.raises(EngineError) as error:
            use()
        assert str(error.value) == f"Cannot {doing} {folder}/a: the name node says no; {advice}"
    DiskFileSystem.failing["list"] = "too many files"
    with pytest.raises(EngineError, match=rf"^Cannot list {folder}: .*too many files"):
        list(storage.list_objects(folder))
