"""Storages that only Beam knows: files are read, written, listed and removed through its FileSystems."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.io.localfilesystem import LocalFileSystem

from shardwright.schemas.errors import EngineError, UsageError
from shardwright.transforms import storage
from shardwright.transforms.storage import beam_files


class DiskFileSystem(LocalFileSystem):  # type: ignore[misc]
    """The local disk under a scheme of its own, with folders as HDFS has them."""

    #: Operations that fail with a message.
    failing: ClassVar[dict[str, str]] = {}

    @classmethod
    def scheme(cls) -> str:
        return "disk"

    def _local(self, path: str) -> str:
        return path.removeprefix(f"{self.scheme()}://")

    def create(self, path: str, *named: Any) -> Any:
        return super().create(self._local(path), *named)

    def _path_open(self, path: str, *named: Any) -> Any:
        if "open" in self.failing:
            raise OSError(self.failing["open"])
        return super()._path_open(self._local(path), *named)

    def _list(self, dir_or_prefix: str) -> Iterator[Any]:
        if "list" in self.failing:
            raise BeamIOError(self.failing["list"])
        for found in super()._list(self._local(dir_or_prefix)):
            found.path = f"{self.scheme()}://{found.path}"
            yield found

    def metadata(self, path: str) -> Any:
        found = super().metadata(self._local(path))
        found.path = path
        return found

    def exists(self, path: str) -> bool:
        return bool(super().exists(self._local(path)))

    def mkdirs(self, path: str) -> None:
        super().mkdirs(self._local(path))

    def rename(self, sources: list[str], targets: list[str]) -> None:
        super().rename(list(map(self._local, sources)), list(map(self._local, targets)))

    def copy(self, sources: list[str], targets: list[str]) -> None:
        super().copy(list(map(self._local, sources)), list(map(self._local, targets)))

    def delete(self, paths: list[str]) -> None:
        super().delete(list(map(self._local, paths)))


class FlatFileSystem(DiskFileSystem):
    """The same without folders, as object stores are."""

    @classmethod
    def scheme(cls) -> str:
        return "flat"

    def has_dirs(self) -> bool:
        return False


@pytest.fixture(params=["disk", "flat"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty folder on each of the two storages."""
    return f"{request.param}://{tmp_path}/in"


@pytest.fixture(autouse=True)
def _nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DiskFileSystem, "failing", {})


def test_files_are_written_read_and_removed(folder: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    path = f"{folder}/a.bin"
    assert not storage.exists(path) and storage.stat(path) is None and storage.modified_at(path) is None
    storage.write_bytes(path, b"0123456789")
    storage.write_bytes(path, b"9876543210")  # replaces the first
    assert storage.exists(path) and storage.read_bytes(path) == b"9876543210"
    assert storage.read_range(path, 2, 3) == b"765"
    found = storage.stat(path)
    assert found is not None and (found.path, found.size) == (path, 10)
    assert storage.modified_at(path) == pytest.approx((tmp_path / "in" / "a.bin").stat().st_mtime, abs=1)
    with storage.open_local(path) as file:
        assert file.read() == b"9876543210"
    beam_files.copy(path, f"{folder}/b.bin")
    storage.remove(path)
    storage.remove(path)  # is already gone
    assert [item.path for item in storage.list_objects(folder)] == [f"{folder}/b.bin"]
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_folder_is_made_for_a_file(tmp_path: Path) -> None:
    finished = tmp_path / "finished"
    finished.write_bytes(b"a shard")
    beam_files.move_into_place(str(finished), f"disk://{tmp_path}/new/deep/shard")
    assert (tmp_path / "new" / "deep" / "shard").read_bytes() == b"a shard" and not finished.exists()


def test_names_with_patterns_are_listed_as_they_are(folder: str, tmp_path: Path) -> None:
    for name in ("in/[a]*/1.jpg", "in/[a]*/deep/2.jpg", "in/a/3.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * 5)
    found = sorted((item.path, item.size) for item in storage.list_objects(f"{folder}/[a]*"))
    assert found == [(f"{folder}/[a]*/1.jpg", 5), (f"{folder}/[a]*/deep/2.jpg", 5)]


def test_a_missing_file_is_not_a_fault_of_the_storage(folder: str) -> None:
    for read in (storage.read_bytes, lambda path: storage.read_range(path, 0, 1)):
        with pytest.raises(FileNotFoundError):
            read(f"{folder}/nothing")
    with pytest.raises(FileNotFoundError), storage.open_local(f"{folder}/nothing"):
        pass


def test_faults_become_one_sentence(folder: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_bytes(b"x")
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


def test_versions_need_conditions(folder: str) -> None:
    for use in (
        lambda: beam_files.read_with_etag(f"{folder}/latest.json"),
        lambda: beam_files.write_if_match(f"{folder}/latest.json", b"", None),
        lambda: beam_files.remove_if_match(f"{folder}/latest.json", ""),
    ):
        with pytest.raises(UsageError, match="versions need a local disk, gs://, s3:// or az://"):
            use()


def test_known_schemes_are_accepted(folder: str) -> None:
    storage.require_known("--output", folder)
    with pytest.raises(UsageError, match="there is no storage for unknown://"):
        storage.require_known("--output", "unknown://a/b")
    assert FileSystems.get_scheme(folder) in ("disk", "flat")
