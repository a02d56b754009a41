"""One empty folder on each storage, accessed without the code under test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


class Disk:
    """A folder of the local disk, with the methods of the buckets."""

    def __init__(self, root: Path, url: str) -> None:
        self.root, self.url = root, url

    def put(self, name: str, data: bytes) -> None:
        """Writes a file."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def get(self, name: str) -> bytes:
        """Reads a file."""
        return (self.root / name).read_bytes()

    def names(self, prefix: str = "") -> list[str]:
        """Returns the names of all files, without the prefix."""
        files = (path for path in self.root.rglob("*") if path.is_file())
        names = (path.relative_to(self.root).as_posix() for path in files)
        return sorted(name.removeprefix(prefix) for name in names if name.startswith(prefix))


@dataclass(frozen=True)
class Place:
    """An empty folder on a storage.

    Attributes:
      scheme: Scheme of its paths; empty for the local disk.
      owner: Writes and reads objects without the code under test; its URL is the folder.
    """

    scheme: str
    owner: Any

    @property
    def url(self) -> str:
        """The folder."""
        return str(self.owner.url)
