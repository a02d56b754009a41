"""A command converts images in a fork while it starts, if that is safe; the dataset is the same."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.hostile import ledger_entries, make_tree

from shardwright.pipelines import beam_imports, early_conversion
from shardwright.pipelines.convert import convert
from shardwright.pipelines.early_conversion import converting_early, early_refs
from shardwright.pipelines.prepare import make_request
from shardwright.pipelines.rebuild import rebuild
from shardwright.schemas.dataset import Dataset
from shardwright.transforms.dataset_files import read_dataset
from shardwright.transforms.sources.listed_parts import LISTED_PARTS, ListedPart
from shardwright.transforms.sources.listing import split_inputs
from shardwright.transforms.sources.listing_digest import ListingDigest
from shardwright.transforms.sources.rule_matches import RuleMatches
from shardwright.transforms.sources.source import Context
from shardwright.transforms.sources.spool import Spool

#: Runs a command whose fork converts all images before Beam is imported, or is stopped by the signal that is
#: named; prints how many of them were taken.
_COMMAND = """
import os, signal, sys
from shardwright.pipelines.cli import main
from shardwright.transforms.conversion.head_start import HeadStart
start, take, taken = HeadStart.start, HeadStart.take, set()
def start_and_wait(self, list_refs):
    start(self, list_refs)
    if name:
        os.kill(self.pid, signal.Signals[name])
    else:
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
def count(self, ref):
    early = take(self, ref)
    if early is not None:
        taken.add(ref.key)
    return early
HeadStart.start, HeadStart.take = start_and_wait, count
name = os.environ.get("SIGNAL")
code = main()
print(len(taken))
sys.exit(code)
"""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collects the settings of forks that would be started."""
    found: list[Any] = []

    @contextlib.contextmanager
    def head_start(settings: Any, list_refs: Any) -> Iterator[None]:
        found.append(settings)
        yield

    monkeypatch.setattr(early_conversion, "head_start", head_start)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = make_tree(tmp_path / "in", 24)
    (root / "ant" / "bad.jpg").write_bytes(b"\xff\xd8\xff\xe0 no more")
    (root / "ant" / "notes.txt").write_text("no image")
    for path in root.glob("*/*"):
        os.utime(path, (10**9, 10**9))  # a fork leaves files that were just written to the command
    return root


def request_of(folder: Path, **values: Any) -> Any:
    return make_request({"input": str(folder), "output": str(folder.parent / "out"), **values}, True)


@pytest.mark.parametrize(
    ("values", "early"),
    [
        ({"resize": "16"}, True),
        ({"resize": "16", "splits": "train=0.5,test=0.5", "max_aspect": 3}, True),
        ({}, False),
        ({"image_format": "png"}, False),
        ({"resize": "16", "limit": 3}, False),
        ({"resize": "16", "max_per_class": 3}, False),
        ({"resize": "16", "dedupe": "exact"}, False),
        ({"resize": "16", "resume": True}, False),
    ],
)
def test_images_are_converted_early_if_nearly_all_are_resized(
    folder: Path, started: list[Any], values: dict[str, Any], early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early_conversion, "_can_fork", lambda: True)
    request = request_of(folder, **values)
    for processes in (0, 2):
        with converting_early(request, processes):
            assert not started, "worker processes convert"
    with converting_early(request, 1):
        assert started == [request.settings] * early


def test_only_a_command_that_has_not_imported_beam_is_forked(
    folder: Path, started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_of(folder, resize="16")
    monkeypatch.setattr(early_conversion, "usable_cpus", lambda: 2)
    monkeypatch.setattr(early_conversion, "usable_memory", lambda: 10**10)
    monkeypatch.delitem(sys.modules, "apache_beam", raising=False)
    for ours in (False, True):
        monkeypatch.setattr(beam_imports, "_is_ours", ours)
        with converting_early(request, 1):
            assert len(started) == ours
    for name, value in (("usable_cpus", 1), ("usable_memory", 10**9)):
        with monkeypatch.context() as patch:
            patch.setattr(early_conversion, name, lambda value=value: value)
            with converting_early(request, 1):
                assert len(started) == 1
    monkeypatch.setitem(sys.modules, "apache_beam", early_conversion)
    with converting_early(request, 1):
        assert len(started) == 1


def test_images_are_listed_in_the_order_in_which_they_are_converted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"resize": "16", "shards": 2, "splits": "train=0.5,test=0.5", "max_bad_fraction": 1}
    request = request_of(folder, **values)
    listed = [ref.key for ref in early_refs(request)]
    convert(input=str(folder), output=str(folder.parent / "out"), **values)
    assert listed == [line["key"] for line in ledger_entries(folder.parent / "out") if "sha256" in line]
    monkeypatch.setattr(early_conversion, "MAX_IMAGES", 5)
    assert early_refs(request) == []


def change(folder: Path, times: int) -> list[str]:
    """Changes two images and the time of a third one, adds one, and removes one; returns the keys."""
    changed, other, touched, removed, *_ = originals(folder)
    added = folder / "ant" / f"new{times}.jpg"
    for path, source in ((changed, touched), (other, removed), (added, touched)):
        path.write_bytes(source.read_bytes() + bytes(times))
    removed.unlink()
    for path in (changed, other, touched, added):
        os.utime(path, (10**9 + times, 10**9 + times))
    return [path.relative_to(folder).as_posix() for path in (changed, other, touched, added)]


def originals(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("*/*.jpg")) if path.stem != "bad" and "new" not in path.stem]


def test_a_rebuild_lists_the_images_that_changed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = folder.parent / "versions"
    values = {"output": str(output), "resize": "16", "max_bad_fraction": 1}
    first = rebuild(input=str(folder), **values)
    expected = change(folder, 1)
    request = request_of(folder, **values)
    directory, latest = str(output / "versions" / "next"), str(output / "versions" / first.version)
    changed = {ref.key for ref in early_refs(request, directory, latest)}
    assert changed == set(expected)
    records = read_dataset(latest).all_records
    monkeypatch.setattr(early_conversion, "_MAX_COMPARED", records)
    assert {ref.key for ref in early_refs(request, directory, latest)} == changed
    monkeypatch.setattr(early_conversion, "_MAX_COMPARED", records - 1)
    assert early_refs(request, directory, latest) == []  # too many lines of ledgers to hold
    monkeypatch.undo()
    # What the command has listed is not listed again.
    context = Context(request.settings, Spool(directory), one_worker=True)
    for part in split_inputs(request.inputs, context):
        LISTED_PARTS.keep(context.spool.path, part, ListedPart([], ListingDigest(), RuleMatches()))
    assert early_refs(request, directory, latest) == []
    LISTED_PARTS.clear()


def test_a_rebuild_in_a_bucket_has_no_fork(
    folder: Path, started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early_conversion, "_can_fork", lambda: True)
    with converting_early(request_of(folder, resize="16"), 1, "gs://bucket/pets/versions/next"):
        assert not started


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("", 4),
        pytest.param("SIGSTOP", 0, marks=pytest.mark.slow),
        pytest.param("SIGKILL", 0, marks=pytest.mark.slow),
    ],
)
def test_a_version_of_a_command_with_a_fork_is_the_same(
    folder: Path, tmp_path: Path, name: str, count: int
) -> None:
    values = {"input": str(folder), "resize": "16", "shards": "2", "max_bad_fraction": "1"}
    early, alone = tmp_path / "early", tmp_path / "alone"
    rebuild(**values, output=str(early))
    shutil.copytree(early, alone)
    change(folder, 1)
    options = [f"--{name}={value}" for name, value in {**values, "output": early}.items()]
    done = subprocess.run(
        [sys.executable, "-c", _COMMAND, "rebuild", *options, "--quiet"],
        capture_output=True, text=True, timeout=120, check=True, env={**os.environ, "SIGNAL": name},
    )  # fmt: skip
    assert done.stdout.split()[-1] == str(count), "all that changed"
    expected = rebuild(**values, output=str(alone))
    latest = json.loads((early / "latest.json").read_text())
    made, other = early / "versions" / latest["version"], alone / "versions" / expected.version
    assert latest["fingerprint"] == json.loads((alone / "latest.json").read_text())["fingerprint"]
    assert ledger_entries(made) == ledger_entries(other)
    assert (made / "quarantine.jsonl").read_bytes() == (other / "quarantine.jsonl").read_bytes()


def test_a_dataset_of_a_command_with_a_fork_is_the_same(folder: Path, tmp_path: Path) -> None:
    settings = ["--resize=16", "--shards=2", "--splits=train=0.5,test=0.5", "--max_bad_fraction=1"]
    output = tmp_path / "early"
    done = subprocess.run(
        [sys.executable, "-c", _COMMAND, "convert", str(folder), str(output), *settings],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert done.stdout.split()[-1] == "24", "all but the bad one"
    values = dict(option.removeprefix("--").split("=", 1) for option in settings)
    made = convert(input=str(folder), output=str(tmp_path / "out"), **values)
    early = Dataset.from_json(json.loads((output / "dataset.json").read_text()), "dataset.json")
    assert early.fingerprint == made.dataset.fingerprint
    assert ledger_entries(output) == ledger_entries(tmp_path / "out")
    assert (output / "quarantine.jsonl").read_bytes() == (tmp_path / "out/quarantine.jsonl").read_bytes()
