"""After any random changes of a source, a rebuild is byte-identical to a full build."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import pytest
from helpers.examples import examples
from helpers.from_nothing import Rebuilt, entries_of, inodes
from helpers.hostile import picture
from hypothesis import strategies as st

from shardwright.schemas.ledger import load_ledger

_CLASSES = ("ant", "bee", "cat", "dog")
_SPLITS = ("train", "test")
_MIN, _MAX = 4, 40
#: Pictures that cannot be read: a file that is not an image, and a truncated one.
_DANGLING, _CUT = "dangling", "cut"


class File(NamedTuple):
    """A file of the source: its class, split, time, pixels and fault."""

    label: str
    split: str
    time: int
    pixels: int
    fault: str = ""
    junk: bool = False


class Source:
    """A folder that changes at random, and a model of its content."""

    def __init__(self, root: Path, named_by: str) -> None:
        self.root = root
        self.named_by = named_by
        self.files: dict[str, File] = {}
        self.secret = False
        self._count = 0
        for i in range(10):
            self.add(i)

    def now(self) -> int:
        self._count += 1
        return (10**9 + self._count) * 10**9

    def _pick(self, number: int, good: bool = True) -> str:
        keys = sorted(key for key, file in self.files.items() if not file.junk and not (good and file.fault))
        return keys[number % len(keys)]

    def _place(self, label: str, split: str, number: int) -> str:
        """Returns a free key; only a manifest can state class and split independently of the key."""
        folder = {"manifest": "images", "classes": label, "splits": f"{split}/{label}"}[self.named_by]
        return next(key for n in range(number, 10**6) if (key := f"{folder}/{n:03d}.bmp") not in self.files)

    def add(self, number: int) -> None:
        label, split = _CLASSES[number % 2], _SPLITS[number // 3 % 2]
        if len(self.files) < _MAX:
            self.files[self._place(label, split, number)] = File(label, split, self.now(), self._count)

    def remove(self, number: int) -> None:
        if sum(not file.fault and not file.junk for file in self.files.values()) > _MIN:
            del self.files[self._pick(number)]

    def alter(self, number: int) -> None:
        key = self._pick(number)
        self.files[key] = self.files[key]._replace(time=self.now(), pixels=self._count)

    def alter_in_secret(self, number: int) -> None:
        key = self._pick(number)
        self.now()
        self.files[key] = self.files[key]._replace(pixels=self._count)
        self.secret = True

    def touch(self, number: int) -> None:
        key = self._pick(number)
        self.files[key] = self.files[key]._replace(time=self.now())

    def copy(self, number: int) -> None:
        file = self.files[self._pick(number)]
        if len(self.files) < _MAX:
            self.files[self._place(file.label, file.split, number)] = file._replace(time=self.now())

    def _move(self, key: str, file: File, number: int) -> None:
        del self.files[key]
        stays = self.named_by == "manifest"
        self.files[key if stays else self._place(file.label, file.split, number)] = file

    def rename(self, number: int) -> None:
        key = self._pick(number)
        file = self.files.pop(key)
        self.files[self._place(file.label, file.split, number + 500)] = file

    def relabel(self, number: int) -> None:
        key = self._pick(number)
        self._move(key, self.files[key]._replace(label=_CLASSES[number % len(_CLASSES)]), number)

    def change_split(self, number: int) -> None:
        key = self._pick(number)
        other = _SPLITS[self.files[key].split == _SPLITS[0]]
        self._move(key, self.files[key]._replace(split=other), number)

    def merge_classes(self, number: int) -> None:
        """Removes a class."""
        gone, into = _CLASSES[number % 4], _CLASSES[(number + 1) % 4]
        for key, file in sorted(self.files.items()):
            if file.label == gone and not file.junk:
                self._move(key, file._replace(label=into), number)

    def spoil(self, number: int) -> None:
        if sum(not file.fault and not file.junk for file in self.files.values()) > _MIN:
            key = self._pick(number)
            fault = (_DANGLING, _CUT)[number % 2]
            self.files[key] = self.files[key]._replace(time=self.now(), pixels=self._count, fault=fault)

    def mend(self, number: int) -> None:
        key = self._pick(number, good=False)
        if self.files[key].fault:
            self.files[key] = self.files[key]._replace(time=self.now(), fault="")

    def add_junk(self, number: int) -> None:
        if self.named_by != "manifest":
            folder = self._pick(number).rpartition("/")[0]
            name = ("notes.txt", ".hidden.bmp", "Thumbs.db")[number % 3]
            self.files[f"{folder}/{name}"] = File("", "", self.now(), 0, junk=True)

    def double(self, number: int) -> None:
        for i in range(len(self.files)):
            self.add(number + i)

    def halve(self, number: int) -> None:
        for _ in range(len(self.files) // 2):
            self.remove(number)

    def write(self) -> None:
        """Writes the content of the model to the folder."""
        for path in self.root.rglob("*"):
            key = path.relative_to(self.root).as_posix()
            if (path.is_file() or path.is_symlink()) and key not in self.files:
                path.unlink()
        for key, file in self.files.items():
            path = self.root / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            if file.fault == _DANGLING:
                path.symlink_to("nowhere")
                continue
            data = picture(file.pixels, "BMP", 8)
            path.write_bytes(data[:150] if file.fault else b"-" if file.junk else data)
            os.utime(path, ns=(file.time, file.time))
        if self.named_by == "manifest":
            rows = [f"{key},{file.label},{file.split}" for key, file in sorted(self.files.items())]
            (self.root / "list.csv").write_text("\n".join(["image,label,split", *rows]) + "\n")

    @property
    def path(self) -> Path:
        return self.root / "list.csv" if self.named_by == "manifest" else self.root

    def written(self, dedupe: bool) -> dict[str, tuple[str, int]]:
        """Returns key -> class and pixels for everything with a record."""
        found: dict[str, tuple[str, int]] = {}
        seen = set()
        for key, file in sorted(self.files.items()):
            if file.junk or file.fault or (dedupe and file.pixels in seen):
                continue
            seen.add(file.pixels)
            found[key] = file.label, file.pixels
        return found

    def state(self) -> dict[str, File]:
        """Returns everything that a dataset or its ledgers depend on."""
        dated = {key: file._replace(time=0) if file.junk else file for key, file in self.files.items()}
        if self.named_by == "classes":
            return {key: file._replace(split="") for key, file in dated.items()}
        return dated


_HAPPENINGS: dict[str, Callable[[Source, int], None]] = {
    name: getattr(Source, name)
    for name in (
        "add", "remove", "alter", "alter_in_secret", "touch", "copy", "rename", "relabel", "change_split",
        "merge_classes", "spoil", "mend", "add_junk", "double", "halve",
    )
}  # fmt: skip
_STEP = st.lists(st.tuples(st.sampled_from(sorted(_HAPPENINGS)), st.integers(0, 999)), max_size=5)
_SETTINGS = st.fixed_dictionaries(
    {
        "named_by": st.sampled_from(("classes", "splits", "manifest")),
        "dedupe": st.sampled_from(("none", "exact")),
        "compression": st.sampled_from(("none", "none", "gzip")),
        "resize": st.sampled_from(("", "4")),
    }
)


def check_history(named_by: str, steps: list[list[tuple[str, int]]], **settings: Any) -> None:
    """Rebuilds after each step; compares the result with a full build, and the work with a model."""
    dedupe = settings["dedupe"] == "exact"
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        source = Source(root / "in", named_by)
        source.write()
        if named_by == "classes":
            settings["splits"] = "train=0.7,test=0.3"
        rebuilt = Rebuilt(root, input=str(source.path), shard_size="1kB", **settings)
        rebuilt.again(compared=False)
        for step in steps:
            before, records, shards = source.state(), source.written(dedupe), members(rebuilt.latest)
            files = inodes(rebuilt.latest)
            source.secret = False
            for name, number in step:
                _HAPPENINGS[name](source, number)
            source.write()
            # Unless something else changes, only a run that reads all sources finds a hidden change.
            result = rebuilt.again(verify_sources=source.secret)
            assert result.changed == (source.state() != before)
            if not result.changed:
                continue
            now = source.written(dedupe)
            assert result.outcome["work"]["converted"] == sum(
                records.get(key) != made for key, made in now.items()
            )
            written = {key for key, entry in entries_of(rebuilt.latest).items() if entry.outcome == "written"}
            assert {key.removeprefix("in/") for key in written} == now.keys()
            after = source.state()
            # A copy of a changed image changes too, although its own file does not.
            same = {k for k in after if (before.get(k), k in records) == (after[k], k in now)}
            if named_by == "manifest":  # the ledger states the row of a missing image
                same -= {k for k in same if after[k].fault == _DANGLING}
            if dedupe:  # and the image of which another one is a copy
                same &= now.keys()
            check_untouched(rebuilt.latest, shards, files, same)


def members(dataset: Path) -> dict[str, set[str]]:
    """Returns the keys of each shard."""
    return {
        name: {entry.key for entry in load_ledger((dataset / "_shards" / ledger).read_bytes())[1]}
        for name in inodes(dataset)
        if (ledger := f"{name.partition('.')[0]}.jsonl.gz")
    }


def check_untouched(
    dataset: Path, shards: dict[str, set[str]], files: dict[str, int], unchanged: set[str]
) -> None:
    """Checks that a shard without changes is the same file."""
    now, after_files = members(dataset), inodes(dataset)
    for name in shards.keys() & now.keys():
        if now[name] and shards[name] == now[name] and now[name] <= unchanged:
            assert files[name] == after_files[name], name


@pytest.mark.slow
@hypothesis.settings(max_examples=examples(60))
@hypothesis.given(settings=_SETTINGS, steps=st.lists(_STEP, min_size=2, max_size=6))
def test_a_rebuild_equals_a_full_build_after_many_histories(
    settings: dict[str, Any], steps: list[list[tuple[str, int]]]
) -> None:
    check_history(steps=steps, **settings)


def test_a_rebuild_equals_a_full_build_after_every_kind_of_change() -> None:
    """The kinds of change that are easily forgotten, in few steps; the source names the splits."""
    steps = [
        [("double", 700), ("spoil", 4), ("spoil", 5), ("add_junk", 0), ("add_junk", 1), ("relabel", 6)],
        [("mend", n) for n in range(20)] + [("change_split", 3), ("alter_in_secret", 1), ("touch", 2)],
        [("merge_classes", 1), ("halve", 3)],
    ]
    check_history("splits", steps, dedupe="none", compression="none", resize="")
