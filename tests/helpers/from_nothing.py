"""Shared code of the rebuild tests: full builds, and comparisons with them."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from helpers.hostile import picture
from helpers.trees import put_files
from shardwright.pipelines.convert import convert
from shardwright.pipelines.rebuild import rebuild
from shardwright.pipelines.results import RebuildResult
from shardwright.schemas.ledger import Entry, load_ledger
from shardwright.schemas.version import INPUT_JSON, InputState


class Rebuilt:
    """An output with versions. Each version is compared with a full build."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.root = root
        self.output = root / "out"
        self.settings: dict[str, Any] = {"max_bad_fraction": 1.0, "verify": "none", **settings}
        self._fresh = 0

    @property
    def pointer(self) -> bytes:
        """Content of `latest.json`; empty if there is none."""
        path = self.output / "latest.json"
        return path.read_bytes() if path.exists() else b""

    @property
    def latest(self) -> Path:
        """Directory of the latest version."""
        return self.output / "versions" / str(json.loads(self.pointer)["version"])

    @property
    def versions(self) -> list[str]:
        """Names of all versions."""
        return sorted(os.listdir(self.output / "versions"))

    def again(
        self,
        verify_sources: bool = False,
        compared: bool = True,
        scrub: float | None = None,
        **settings: Any,
    ) -> RebuildResult:
        """Rebuilds with additional settings, and compares the result with a full build."""
        self.settings = {**self.settings, **settings}
        pointer = self.pointer
        before, names = (self.latest, self.versions) if pointer else (None, [])
        result = rebuild(output=str(self.output), verify_sources=verify_sources, scrub=scrub, **self.settings)
        assert self.latest == Path(result.path)
        if not result.changed:
            assert (self.pointer, self.versions) == (pointer, names)
        if compared:
            assert content_of(self.latest) == content_of(self.from_nothing(before))
        return result

    def from_nothing(self, before: Path | None) -> Path:
        """Converts everything again, with the plan of a version."""
        self._fresh += 1
        output = self.root / f"fresh{self._fresh}" / self.output.name
        values = {**self.settings, "verify": "none"}
        if before is not None:
            values["plan_from"] = str(before / "dataset.json")
        convert(output=str(output), **values)
        return output


def begin(root: Path, **settings: Any) -> Rebuilt:
    """Returns an output with a first version, built from `in`."""
    rebuilt = Rebuilt(root, **{"input": str(root / "in"), "shards": "2", **settings})
    rebuilt.again(compared=False)
    return rebuilt


def copy_unchanged(root: Path, to: Path) -> Path:
    """Copies a folder with `in` and `out` as if it had always been there: its files have new change times."""
    shutil.copytree(root, to, dirs_exist_ok=True)
    path = to / "out" / INPUT_JSON
    path.write_text(replace(InputState.loads(path.read_bytes()), checked=time.time()).dumps())
    return to


def content_of(dataset: Path) -> dict[str, Any]:
    """Returns what a rebuild must not change: the bytes of a dataset, and what is stated about them."""
    document = json.loads((dataset / "dataset.json").read_text())
    sources = json.loads((dataset / "run.json").read_text())["sources"]
    shards = [dataset / shard for shard in shard_files(document)]
    described = [dataset / name for name in ("labels.txt", "features.json", "quarantine.jsonl")]
    paths = [*shards, *filter(Path.exists, described), *dataset.glob("_index/*"), *dataset.glob("_shards/*")]
    digests = {str(path.relative_to(dataset)): sha256(path.read_bytes()).hexdigest() for path in paths}
    return {"dataset.json": document, "sources": sources, **digests}


def shard_files(dataset: Mapping[str, Any]) -> list[str]:
    """Returns the names of the shards that a `dataset.json` lists."""
    return [shard["file"] for split in dataset["splits"].values() for shard in split["shards"]]


def entries_of(dataset: Path) -> dict[str, Entry]:
    """Returns the entries of a dataset's ledgers, by key."""
    ledgers = (path.read_bytes() for path in sorted((dataset / "_shards").iterdir()))
    return {entry.key: entry for data in ledgers for entry in load_ledger(data)[1]}


def inodes(dataset: Path) -> dict[str, int]:
    """Returns the inode of each shard."""
    document = json.loads((dataset / "dataset.json").read_text())
    return {name: (dataset / name).stat().st_ino for name in shard_files(document)}


def work(rebuilt: Rebuilt, **settings: Any) -> tuple[int, int, int]:
    """Rebuilds; returns the numbers of reused shards, copied records and converted images."""
    result = rebuilt.again(**settings)
    assert result.changed
    done = result.outcome["work"]
    return done["reused_shards"], done["copied"], done["converted"]


def unchanged(rebuilt: Rebuilt, **settings: Any) -> bool:
    return not rebuilt.again(compared=False, **settings).changed


def alter_in_secret(path: Path, data: bytes) -> None:
    """Replaces the bytes of a file, and keeps its length and time."""
    state = path.stat()
    assert len(data) == state.st_size and data != path.read_bytes()
    path.write_bytes(data)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def other_pixels(path: Path) -> bytes:
    """Returns an uncompressed picture of the same length with other pixels."""
    data = bytearray(path.read_bytes())
    data[-7] ^= 0xFF
    return bytes(data)


def write_bmps(folder: Path, count: int = 6) -> list[Path]:
    files = {f"{'ab'[i % 2]}/{i}.bmp": picture(i, "BMP", 8) for i in range(count)}
    put_files(folder, files)
    return [folder / name for name in files]
