"""`--resume` repeats only unsound work; `--overwrite` never loses a dataset."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from helpers.hostile import (
    at_call,
    check_books,
    document,
    flip,
    identity,
    leftovers,
    make_tree,
    picture,
    refused,
    run,
    run_forked,
    sentence_of,
    signal_self,
)

from shardwright.core import storage
from shardwright.core.overwrite import staging_path
from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.schemas.ledger import load_ledger
from shardwright.schemas.sidecars import SIDECARS

Capture = pytest.CaptureFixture[str]
SETTINGS = ("--shards=4", "--image_format=png")
STORAGE = "shardwright.core.storage"
READ = "shardwright.core.conversion:read_image"


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree, and a finished dataset of it in four shards."""
    root = tmp_path_factory.mktemp("originals")
    tree = make_tree(root / "in", images=24)
    assert main(["convert", f"--input={tree}", f"--output={root / 'out'}", *SETTINGS]) == 0
    return root


@pytest.fixture
def tree(tmp_path: Path, originals: Path) -> Path:
    return Path(shutil.copytree(originals / "in", tmp_path / "in"))


@pytest.fixture
def made(tmp_path: Path, originals: Path) -> Path:
    """A copy of the dataset."""
    return Path(shutil.copytree(originals / "out", tmp_path / "out"))


def resume(capfd: Capture, tree: Path, output: Path, *options: object) -> set[str]:
    """Resumes; returns the names of the shards that were written again."""
    before = {path.name: path.stat().st_mtime_ns for path in output.glob("*.tfrecord")}
    done = run(capfd, "convert", "--input", tree, "--output", output, "--resume", *(options or SETTINGS))
    assert (done.code, done.err) == (0, ""), done
    check_books(output)
    assert not leftovers(output)
    return {p.name for p in output.glob("*.tfrecord") if before.get(p.name) != p.stat().st_mtime_ns}


def shard(number: int) -> str:
    return f"train-{number:05d}-of-00004"


def files_beside_the_shards(output: Path) -> set[str]:
    """The sidecars, samples and indexes of a dataset."""
    files = {path.name for path in output.iterdir() if path.name in SIDECARS}
    return files | {f"{path.parent.name}/{path.name}" for path in output.glob("_[ci]*/*")}


def hashes_beside_the_shards(output: Path) -> dict[str, str]:
    """The checksums of these files in dataset.json, which must be true."""
    digests: dict[str, str] = document(output)["sidecars"]
    assert digests == {name: hashlib.sha256((output / name).read_bytes()).hexdigest() for name in digests}
    return digests


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


DAMAGE: dict[str, Callable[[Path], object]] = {
    "nothing": lambda output: None,
    "dataset.json gone": lambda output: (output / "dataset.json").unlink(),
    "bit flipped": lambda output: flip(output / f"{shard(1)}.tfrecord"),
    "shard cut": lambda output: cut(output / f"{shard(1)}.tfrecord"),
    "shard gone": lambda output: (output / f"{shard(1)}.tfrecord").unlink(),
    "ledger cut": lambda output: cut(output / "_shards" / f"{shard(1)}.jsonl.gz"),
    "ledger flipped": lambda output: flip(output / "_shards" / f"{shard(1)}.jsonl.gz"),
    "ledger empty": lambda output: (output / "_shards" / f"{shard(1)}.jsonl.gz").write_bytes(b""),
    "ledger gone": lambda output: (output / "_shards" / f"{shard(1)}.jsonl.gz").unlink(),
    "ledger of another": lambda output: (
        shutil.copy(output / "_shards" / f"{shard(2)}.jsonl.gz", output / "_shards" / f"{shard(1)}.jsonl.gz")
        and None
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("damage", DAMAGE)
def test_resume_repeats_only_damaged_shards(capfd: Capture, tree: Path, made: Path, damage: str) -> None:
    before = identity(made)
    DAMAGE[damage](made)
    redone = resume(capfd, tree, made)
    whole = damage in ("nothing", "dataset.json gone")
    assert redone == (set() if whole else {f"{shard(1)}.tfrecord"})
    assert identity(made) == before


def test_resume_detects_changed_new_and_removed_sources(capfd: Capture, tree: Path, made: Path) -> None:
    (tree / "ant" / "new.png").write_bytes(picture(501))
    assert len(resume(capfd, tree, made)) == 1
    # One source of each shard except the last.
    ledgers = sorted((made / "_shards").iterdir())[:3]
    altered, touched, removed = (tree / next(load_ledger(path.read_bytes())[1]).key for path in ledgers)
    altered.write_bytes(picture(500))
    os.utime(touched, ns=(1, 1))
    removed.unlink()
    assert resume(capfd, tree, made) == {f"{shard(number)}.tfrecord" for number in range(3)}
    assert resume(capfd, tree, made) == set()
    assert document(made)["ledger"]["written"] == 24


def test_resume_with_other_settings_repeats_all_and_leaves_no_stale_shard(
    capfd: Capture, tree: Path, made: Path
) -> None:
    assert len(resume(capfd, tree, made, "--shards=4", "--image_format=webp")) == 4
    assert len(resume(capfd, tree, made, "--shards=3", "--image_format=webp")) == 3
    assert len(list(made.glob("*.tfrecord"))) == len(list((made / "_shards").iterdir())) == 3
    assert len(resume(capfd, tree, made, "--shards=3", "--compression=gzip")) == 0
    assert not list(made.glob("*.tfrecord")) and len(list(made.glob("*.tfrecord.gz"))) == 3


@pytest.mark.sampled(1)
@pytest.mark.parametrize("next_file", ["parse.py", "dataset.json"])
def test_resume_works_after_a_kill_between_the_files_beside_the_shards(
    capfd: Capture, tmp_path: Path, tree: Path, made: Path, next_file: str
) -> None:
    before = hashes_beside_the_shards(made)
    argv = ("convert", "--input", tree, "--output", made, "--resume", *SETTINGS, "--layout=minimal")
    kill = partial(at_call, f"{STORAGE}:write_bytes", next_file, 1, partial(signal_self, signal.SIGKILL))
    assert run_forked(tmp_path / "log", *argv, before=kill).code == -signal.SIGKILL
    assert not (made / "dataset.json").exists()
    assert resume(capfd, tree, made) == {f"{shard(i)}.tfrecord" for i in range(4)}
    assert hashes_beside_the_shards(made) == before
    assert run(capfd, "validate", "--dataset", made).code == 0


def test_resume_works_on_an_empty_output(capfd: Capture, tmp_path: Path, tree: Path, made: Path) -> None:
    (tmp_path / "other").mkdir()
    for output in (tmp_path / "other" / "out", tmp_path / "other"):
        if output.is_dir():
            shutil.rmtree(output / "out")
        assert len(resume(capfd, tree, output)) == 4
    assert document(tmp_path / "other")["splits"] == document(made)["splits"]


def test_a_repeated_shard_never_exists_beside_the_old_commit(
    capfd: Capture, tmp_path: Path, tree: Path, made: Path
) -> None:
    argv = ("convert", "--input", tree, "--output", made, "--resume", "--image_format=webp", "--shards=4")
    kill = partial(at_call, f"{STORAGE}:move_into_place", "_work/", 2, partial(signal_self, signal.SIGKILL))
    assert run_forked(tmp_path / "log", *argv, before=kill).code == -signal.SIGKILL
    assert not (made / "dataset.json").exists() and not (made / "dataset_info.json").exists()
    resume(capfd, tree, made, "--image_format=webp", "--shards=4")


def test_overwrite_replaces_all_files(capfd: Capture, tmp_path: Path, tree: Path, made: Path) -> None:
    (made / "stale-00000-of-00001.tfrecord").write_bytes(b"old")
    (tree / "bee" / "001.png").unlink()
    argv = ("convert", "--input", tree, "--output", made, "--overwrite", "--shards=2", "--compression=zlib")
    assert run(capfd, *argv).code == 0
    assert document(made)["ledger"]["written"] == 23 and len(list(made.glob("*.tfrecord.zlib"))) == 2
    assert (
        files_beside_the_shards(made) == set(document(made)["sidecars"])
        and not (made / "features.json").exists()
    )
    assert document(made)["name"] == "out"
    assert run(capfd, "validate", "--dataset", made).code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_overwrite_works_on_empty_and_unfinished_outputs(
    capfd: Capture, tmp_path: Path, tree: Path, made: Path
) -> None:
    before = identity(made)
    for prepare in (shutil.rmtree, lambda path: (path / "dataset.json").unlink()):
        prepare(made)
        argv = ("convert", "--input", tree, "--output", made, "--overwrite", *SETTINGS)
        assert run(capfd, *argv).code == 0
        assert identity(made) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_overwrite_through_a_symbolic_link_keeps_the_link(
    capfd: Capture, tmp_path: Path, tree: Path, made: Path
) -> None:
    link = tmp_path / "links" / "current"
    link.parent.mkdir()
    link.symlink_to("../out")
    for shards in (2, 3):
        argv = ("convert", "--input", tree, "--output", link, "--overwrite", f"--shards={shards}")
        assert run(capfd, *argv).code == 0
        assert link.is_symlink() and len(list(made.glob("*.tfrecord"))) == shards
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "links", "out"]
    assert [path.name for path in link.parent.iterdir()] == ["current"]


def test_overwrite_from_inside_the_output_is_refused(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tree: Path, made: Path
) -> None:
    monkeypatch.chdir(made / "_shards")
    for output in ("..", made):
        sentence = refused(capfd, tmp_path, "convert", "--input", tree, "--output", output, "--overwrite")
        assert "run from another directory" in sentence


def test_a_name_without_room_for_its_sibling_is_refused(capfd: Capture, tmp_path: Path, tree: Path) -> None:
    argv = ("convert", "--input", tree, "--output", tmp_path / ("x" * 250))
    assert run(capfd, *argv).code == 0
    assert "the name is too long" in refused(capfd, tmp_path, *argv, "--overwrite")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("fault", ["usage", "bad images", "duplicate key", "changed"])
def test_a_failing_overwrite_leaves_the_old_dataset(  # and explains how to continue
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tree: Path, made: Path, fault: str
) -> None:
    before = identity(made)
    argv: tuple[object, ...] = ("convert", "--input", tree, "--output", made, "--overwrite", "--shards=2")
    code = 2
    if fault == "usage":
        (tmp_path / "empty").mkdir()
        argv = ("convert", "--input", tmp_path / "empty", "--output", made, "--overwrite")
    elif fault == "duplicate key":
        argv += ("--input", tree)
    elif fault == "bad images":
        (tree / "bee" / "bad.jpg").write_bytes(b"no image")
        code = 1
    else:
        code = 3

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(storage, "move_into_place", full)
    sentence = sentence_of(run(capfd, *argv), code)
    monkeypatch.undo()
    assert identity(made) == before
    assert run(capfd, "validate", "--dataset", made).code == 0
    if code == 2:
        assert sorted(p.name for p in tmp_path.iterdir() if p.name != "empty") == ["in", "out"]
        return
    # A full disk on which nothing was written leaves nothing to resume.
    assert ("run again with --resume" if code == 1 else "run again.") in sentence
    staging = Path(staging_path(str(made)))
    if code == 1:
        assert str(staging / "quarantine.jsonl") in sentence and (staging / "quarantine.jsonl").is_file()
    argv = ("convert", "--input", tree, "--output", made, "--resume", "--shards=2", "--max_bad_fraction=1")
    done = run(capfd, *argv)
    assert done.code == 0 and ("2 shards reused from the previous run" in done.out) == (code == 1)
    assert len(list(made.glob("*.tfrecord"))) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


MOMENTS = [
    (READ, "/", 30),
    (f"{STORAGE}:write_bytes", "_shards/", 2),
    (f"{STORAGE}:write_bytes", "dataset.json", 1),
    ("os:rename", "out", 1),
    ("os:rename", "shardwright-new", 1),
    ("shutil:rmtree", "shardwright-old", 1),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("target", "text", "call", "command"),
    [(*moment, "validate") for moment in MOMENTS]
    + [(*MOMENTS[1], "resume"), (*MOMENTS[3], "overwrite")]
    + [
        pytest.param(*MOMENTS[place], command, marks=pytest.mark.slow)
        for place, command in ((1, "overwrite"), (3, "resume"), (5, "resume"), (5, "overwrite"))
    ],
)
def test_an_overwrite_can_be_killed_at_any_moment(
    capfd: Capture, tmp_path: Path, tree: Path, made: Path, target: str, text: str, call: int, command: str
) -> None:
    old = identity(made)
    settings = ("--shards=2", "--image_format=png")
    argv = ("convert", "--input", tree, "--output", made, *settings)
    kill = partial(at_call, target, text, call, partial(signal_self, signal.SIGKILL))
    assert run_forked(tmp_path / "log", *argv, "--overwrite", before=kill).code == -signal.SIGKILL
    if command != "validate":
        assert run(capfd, *argv, f"--{command}").code == 0
    done = run(capfd, "validate", "--dataset", made)
    assert (done.code, done.err) == (0, ""), done
    swapped = command != "validate" or target == "shutil:rmtree" or text == "shardwright-new"
    assert (identity(made) != old) == swapped
    assert len(document(made)["splits"]["train"]["shards"]) == (2 if swapped else 4)
    left = {path.name for path in tmp_path.iterdir() if not path.name.startswith("log")}
    assert left <= {"in", "out", ".out.shardwright-new"}
    assert swapped == (left == {"in", "out"})


#: The output, the old place and the new place when a swap is interrupted, and which dataset survives.
STATES = {
    "built": ("old", "", "new", "old"),
    "moved away": ("", "old", "new", "new"),
    "moved in": ("new", "old", "", "new"),
    "half discarded": ("new", "half old", "", "new"),
    "no successor": ("", "old", "", "old"),
    "unfinished successor": ("", "old", "half new", "old"),
}
COMMANDS = {
    "validate": ("validate", "--dataset", "out"),
    "inspect": ("inspect", "--dataset", "out"),
    "plan": ("plan", "--input", "in", "--plan_from", "out"),
    "plan of the file": ("plan", "--input", "in", "--plan_from", "out/dataset.json"),
    "convert": ("convert", "--input", "in", "--output", "out"),
    "overwrite": ("convert", "--input", "in", "--output", "out", "--overwrite", "--shards=3"),
}


@pytest.fixture(scope="module")
def versions(originals: Path) -> Path:
    """A tree, and an old and a new dataset of it."""
    (originals / "old").symlink_to(originals)
    convert(input=str(originals / "in"), output=str(originals / "new" / "out"), shards=2)
    return originals


@pytest.mark.sampled(11)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("state", STATES)
def test_every_command_repairs_an_interrupted_swap(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, versions: Path, state: str, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").symlink_to(versions / "in")
    *contents, survivor = STATES[state]
    for place, content in zip(("out", ".out.shardwright-old", ".out.shardwright-new"), contents, strict=True):
        if content:
            shutil.copytree(versions / content.split()[-1] / "out", place)
        if content.startswith("half"):
            (tmp_path / place / "dataset.json").unlink()
    done = run(capfd, *COMMANDS[command])
    if command == "convert":
        assert "holds a dataset" in sentence_of(done, 2)
    else:
        assert (done.code, done.err) == (0, ""), done
    if command == "overwrite":
        assert len(list((tmp_path / "out").glob("*.tfrecord"))) == 3
    else:
        assert identity(tmp_path / "out") == identity(versions / survivor / "out")
    assert not (tmp_path / ".out.shardwright-old").exists()


def test_a_new_conversion_discards_an_abandoned_successor(
    capfd: Capture, tmp_path: Path, tree: Path, made: Path
) -> None:
    staging = Path(staging_path(str(made)))
    shutil.copytree(made, staging)
    shutil.rmtree(made)
    assert run(capfd, "convert", "--input", tree, "--output", made, "--shards=1").code == 0
    assert not staging.exists() and len(list(made.glob("*.tfrecord"))) == 1
