"""Rebuilds that end early because nothing has changed, and everything that must keep them from it."""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from helpers.from_nothing import alter_in_secret, copy_unchanged, other_pixels, write_bmps
from helpers.hostile import flip, picture

from shardwright.core.concurrency.progress import PROGRESS
from shardwright.core.rebuild import compare, finish, task, unchanged
from shardwright.core.versions import read_pointer
from shardwright.pipelines import prepare
from shardwright.pipelines import rebuild as pipeline
from shardwright.pipelines.cli import main
from shardwright.pipelines.rebuild import rebuild
from shardwright.pipelines.results import RebuildResult
from shardwright.pipelines.run import run_pipeline
from shardwright.schemas.errors import EngineError
from shardwright.schemas.version import INPUT_JSON

JOB: dict[str, Any] = {
    "input": "in", "output": "out", "shards": "2", "class_names": "names.txt", "exclude": "@exclude.txt",
    "skip_formats": "gif", "scrub": 1.0, "verify": "none",
}  # fmt: skip


class _Planned(EngineError):
    """The whole rebuild began."""


_whole = mock.Mock(side_effect=_Planned("The whole rebuild began."))


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Returns a folder with an input and its first version, for copies: all paths in it are relative."""
    root = tmp_path_factory.mktemp("first")
    *_, excluded, last = write_bmps(root / "in", 9)
    (root / "in" / "a" / "note.txt").write_text("not an image")
    (root / "in" / "a" / "skipped.gif").write_bytes(b"GIF89a" + bytes(20))
    (root / "names.txt").write_text("a\nb\n")
    digest = hashlib.sha256(excluded.read_bytes()).hexdigest()
    (root / "exclude.txt").write_text(f"a/{last.name}\n{digest}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        rebuild(**JOB)
        yield root


@pytest.fixture
def here(first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a copy of that folder, which is the current one."""
    monkeypatch.chdir(copy_unchanged(first, tmp_path / "copy"))
    return tmp_path / "copy"


def ends_early(**values: Any) -> bool:
    """Rebuilds; returns whether that ended without a Beam graph."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "run_pipeline", _whole)
        try:
            result = rebuild(**{**JOB, **values})
        except _Planned:
            return False
    assert not result.changed
    return True


def the_version() -> Path:
    return max(Path("out/versions").iterdir())


def touch(path: Path) -> None:
    os.utime(path, ns=(1, path.stat().st_mtime_ns + 1))


def turn_back() -> None:
    """Lets readers get another version than the one of which the input is known."""
    path = Path("out/latest.json")
    document = json.loads(path.read_text())
    Path("out/versions/20200101T000000Z").mkdir()
    path.write_text(json.dumps({**document, "version": "20200101T000000Z"}))


CHANGES: dict[str, Callable[[], object]] = {
    "an image is added": lambda: Path("in/a/new.bmp").write_bytes(picture(50, "BMP", 8)),
    "an image is removed": lambda: Path("in/a/2.bmp").unlink(missing_ok=True),
    "an image is longer": lambda: Path("in/a/0.bmp").write_bytes(picture(51, "BMP", 9)),
    "an image has another time": lambda: touch(Path("in/a/4.bmp")),
    "an image is another of the same size and time": lambda: alter_in_secret(
        Path("in/a/0.bmp"), other_pixels(Path("in/a/0.bmp"))
    ),
    "an image has another name": lambda: Path("in/b/1.bmp").rename("in/b/1a.bmp"),
    "an image has another class": lambda: Path("in/b/3.bmp").rename("in/a/3.bmp"),
    "an image is a link to nothing": lambda: Path("in/b/gone.bmp").symlink_to("nowhere.bmp"),
    "a folder is added": lambda: shutil.copytree("in/b", "in/.b", symlinks=True),
    "a note is an image": lambda: Path("in/a/note.txt").write_bytes(picture(52, "BMP", 8)),
    "there is metadata": lambda: Path("in/metadata.csv").write_text("file_name,x\na/0.bmp,1\n"),
    "the class names differ": lambda: Path("names.txt").write_bytes(b"a\nb\nc\n"),
    "the list of excluded images differs": lambda: Path("exclude.txt").write_bytes(b"a/0.bmp\n"),
    "a shard is missing": lambda: next(the_version().glob("*.tfrecord")).unlink(),
    "a shard is damaged": lambda: flip(sorted(the_version().glob("*.tfrecord"))[-1]),
    "an index is missing": lambda: next(the_version().glob("_index/*")).unlink(),
    "a ledger is missing": lambda: next(the_version().glob("_shards/*")).unlink(),
    "a ledger is damaged": lambda: flip(sorted(the_version().glob("_shards/*"))[-1]),
    "what is known of the input is damaged": lambda: flip(Path("out") / INPUT_JSON),
    "what is known of the input is missing": lambda: (Path("out") / INPUT_JSON).unlink(),
    "readers get another version": turn_back,
}


def test_nothing_changed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is that of a whole rebuild that reads all images, also those that are then left out."""

    def run(log: list[str], **more: Any) -> tuple[RebuildResult, set[str]]:
        monkeypatch.setattr(task.LOGGER, "info", lambda _, line: log.append(line))
        result = rebuild(**JOB, **more, log_format="json")
        files = {str(path) for path in Path("out").rglob("*") if "outcomes" not in path.parts}
        return result, files

    early, whole = list[str](), list[str]()
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "run_pipeline", _whole)
        (ended, files), metrics = run(early), Path("out/metrics.prom").read_text()
    (Path("out") / INPUT_JSON).unlink()
    again, same_files = run(whole, verify_sources=True)
    varying = {"holder", "seconds", "started"}
    first, second = ({k: v for k, v in x.outcome.items() if k not in varying} for x in (ended, again))
    assert first == second and not ended.changed and not again.changed
    assert first["scrub"]["shards"] == 2
    assert files == same_files
    names = [line.split("{")[0].split(" ")[0] for line in metrics.splitlines() if "time" not in line]
    now = Path("out/metrics.prom").read_text().splitlines()
    assert names == [line.split("{")[0].split(" ")[0] for line in now if "time" not in line]
    lines = ([json.loads(line) for line in log] for log in (early, whole))
    varying = {"time", "version", "seconds"}
    stages = [[{k: v for k, v in line.items() if k not in varying} for line in log] for log in lines]
    assert stages[0] == stages[1]
    assert [line["stage"] for line in stages[0]] == ["planned", "scrubbed", "compared", "finished"]
    assert ends_early()  # the whole rebuild has stored the input again


@pytest.mark.parametrize("kind", CHANGES)
def test_each_change_is_planned(here: Path, kind: str) -> None:
    CHANGES[kind]()
    assert not ends_early()
    assert not PROGRESS.listed, "the whole rebuild lists the input again, and the line counts each file once"


@pytest.mark.parametrize(
    "values",
    [
        {"quality": 50}, {"resize": "4"}, {"limit": 3}, {"shards": "3"}, {"license": "CC0-1.0"}, {"seed": 1},
        {"splits": "train=0.5,test=0.5"}, {"exclude": ""}, {"dedupe": "exact"},
        {"source": "class_folders"}, {"verify_sources": True}, {"input": ["in", "x=in/a"]},
    ],
)  # fmt: skip
def test_other_settings_are_planned(here: Path, values: dict[str, Any]) -> None:
    assert not ends_early(**values)
    assert ends_early(verify="fast", max_bad_fraction=0.5)  # how a command runs decides nothing


def test_other_software_is_planned(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also an edited source file of this project, whose version stays the same."""
    known = prepare.listing_software({})
    assert {"python", "code", "numpy"} <= known.keys()
    with monkeypatch.context() as patch:
        patch.setattr(prepare, "listing_software", lambda versions: {**versions, **known, "code": "0"})
        assert not ends_early()
    with monkeypatch.context() as patch:
        versions = prepare.software_versions
        patch.setattr(prepare, "software_versions", lambda hook: {**versions(hook), "pillow": "0"})
        assert not ends_early()
    with monkeypatch.context() as patch:
        patch.setattr("shardwright.core.plan.request.SOURCES", ())  # a package adds the source
        assert not ends_early()
    assert ends_early()


def test_a_changed_change_time_alone_makes_no_version(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("in/a/0.bmp").chmod(0o600)
    Path("another name").hardlink_to("in/b/1.bmp")
    os.replace(shutil.copy2("in/a/2.bmp", "copy"), "in/a/2.bmp")
    compared: list[str] = []
    read = compare.read_ref
    monkeypatch.setattr(compare, "read_ref", lambda ref, *more: compared.append(ref.key) or read(ref, *more))
    assert not rebuild(**JOB).changed and sorted(compared) == ["a/0.bmp", "a/2.bmp", "b/1.bmp"]
    assert ends_early()  # their bytes have been compared


def test_an_image_that_cannot_be_read_is_tried_each_time(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def locked(path: Any, *rest: Any, **more: Any) -> int:
        if path == "in/a/0.bmp":
            raise PermissionError(13, "Permission denied", path)
        return real(path, *rest, **more)

    monkeypatch.setattr(os, "open", locked)
    touch(Path("in/a/0.bmp"))
    touch(Path("in/a/2.bmp"))
    result = rebuild(**JOB, max_bad_fraction=1.0)
    assert result.outcome["work"]["quarantined"] == 1
    assert not ends_early(max_bad_fraction=1.0)


def test_an_output_that_was_moved_is_known(here: Path) -> None:
    Path("out").rename("moved")
    assert ends_early(output="moved")


@pytest.mark.parametrize(
    ("step", "error", "message"),
    [
        ("list_part", EngineError("The disk is tired."), "The whole rebuild began"),  # which will report it
        ("scrub_shard", EngineError("The disk is tired."), "The whole rebuild began"),
        ("list_part", KeyboardInterrupt("it was told to end"), "it was told to end"),
        ("list_part", ZeroDivisionError(), "ZeroDivisionError"),  # a bug
    ],
)
def test_a_fault_gives_the_lease_back(here: Path, step: str, error: BaseException, message: str) -> None:
    faulty = mock.patch.object(unchanged, step, side_effect=error)
    whole = mock.patch.object(pipeline, "run_pipeline", _whole)
    with faulty, whole, pytest.raises(BaseException, match=message):
        rebuild(**JOB)
    assert ends_early()
    assert len(list(Path("out/versions").iterdir())) == 1


def test_another_rebuild_at_work_is_not_disturbed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[bool] = []

    def listed(*_: object) -> Any:
        holder = f"Another rebuild of out is running: process {os.getpid()} on .* making version "
        with pytest.raises(EngineError, match=holder):
            rebuild(**JOB)
        reported.append(True)
        return ()

    monkeypatch.setattr(unchanged, "list_part", listed)
    assert not ends_early()
    assert reported


def test_an_input_that_cannot_be_remembered_is_a_warning(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(path: str, *rest: Any, **more: Any) -> None:
        if path.endswith(INPUT_JSON):
            raise OSError(28, "No space left on device", path)
        writing(path, *rest, **more)

    writing, pointer = finish.storage.write_bytes, read_pointer("out")
    Path("in/a/new.bmp").write_bytes(picture(50, "BMP", 8))
    monkeypatch.setattr(finish.storage, "write_bytes", failing)
    result = rebuild(**JOB)
    assert result.changed and any(INPUT_JSON in warning for warning in result.outcome["warnings"])
    assert not ends_early()
    # Nor if the input is the one that is remembered, but its version was replaced just now.
    Path("in/a/new.bmp").unlink()
    monkeypatch.setattr(unchanged, "read_pointer", lambda output: pointer)
    assert not ends_early()


def test_a_rebuild_with_nothing_to_do_needs_no_beam(here: Path) -> None:
    code = (
        "import sys\nfrom shardwright.pipelines.rebuild import rebuild\n"
        f"assert not rebuild(**{JOB!r}).changed\nassert 'apache_beam' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_hooks_and_notes_are_those_of_a_whole_rebuild(
    here: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    Path("job.yaml").write_text(
        "input: in\noutput: out\nshards: 2\nclass_names: names.txt\nexclude: '@exclude.txt'\nscrub: 1\n"
        "skip_formats: gif\n"
        "fit: stretch\ngates: {}\nhooks:\n"
        "  on_no_change: {command: [sh, -c, 'echo $SHARDWRIGHT_EVENT >> told']}\n"
    )
    outputs = []
    capfd.readouterr()
    for run in (run_pipeline, _whole):  # the first one is another request: it gives the default of --fit
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pipeline, "run_pipeline", run)
            assert main(["rebuild", "job.yaml"]) == 0
        outputs.append(sorted(capfd.readouterr().err.splitlines()))  # another thread shows what was found
    assert Path("told").read_text().split() == ["no_change"] * 2
    assert outputs[0] == outputs[1]
    assert "shardwright: note: --fit has no effect without --resize." in outputs[0]


def test_files_inside_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_bmps(tmp_path / "in", 4)
    with zipfile.ZipFile("in.zip", "w") as archive:
        for path in sorted(Path("in").rglob("*.bmp")):
            archive.write(path, path.relative_to("in"))
    with tarfile.open("in.tar.gz", "w:gz") as packed:
        packed.add("in", ".")
    rows = [f"in/{'ab'[i % 2]}/{i}.bmp,{'ab'[i % 2]}" for i in range(4)]
    Path("rows.csv").write_text("\n".join(["path,label", *rows]))
    inputs = ["z=in.zip", "t=in.tar.gz", "c=rows.csv"]
    job = {"input": inputs, "output": "out", "shards": "1", "class_names": "", "exclude": ""}
    job["skip_formats"] = ""
    rebuild(**job)
    assert ends_early(**job)
    assert len(list(Path("out/versions").iterdir())) == 1
    Path("in.tar.gz").write_bytes(gzip.compress(gzip.decompress(Path("in.tar.gz").read_bytes()), 1))
    assert not ends_early(**job)
    assert not rebuild(**job).changed  # the same images, packed again
    state, text = Path("rows.csv").stat(), Path("rows.csv").read_text()
    for content, early in ((text.replace("3.bmp,b", "3.bmp,a"), False), (text, True)):
        Path("rows.csv").write_text(content)
        os.utime("rows.csv", ns=(state.st_atime_ns, state.st_mtime_ns))  # its rows are read each time
        assert ends_early(**job) is early
    touch(Path("in/a/2.bmp"))  # only a row names it
    assert not ends_early(**job)
