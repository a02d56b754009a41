"""File systems that only Beam knows, on the local disk: with folders as HDFS has them, and without."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.localfilesystem import LocalFileSystem


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
        self._refuse_existing(path)
        return super().create(self._local(path), *named)

    def _refuse_existing(self, path: str) -> None:
        if self.has_dirs() and self.exists(path):
            raise BeamIOError(f"Path already exists: {path}")

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
        self._refuse_existing(targets[0])
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
