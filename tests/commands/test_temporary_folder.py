"""What a command leaves when it ends, is killed or cannot clean up, and who removes it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from helpers.hostile import make_tree
from PIL import Image

from shardwright.core import commit, dataset_files, storage
from shardwright.core.dataset_files import remove_unfinished
from shardwright.core.sources.spool import Spool
from shardwright.pipelines import cli
from shardwright.pipelines import convert as conversion
from shardwright.pipelines import salvage as salvaging
from shardwright.pipelines.process import own_temporary_folder
from shardwright.pipelines.run import exit_code_of, run_pipeline
from shardwright.pipelines.validate import validate
from shardwright.schemas.errors import EngineError


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_a_command_and_its_processes_put_their_temporary_files_into_one_folder(base: Path) -> None:
    before = os.environ.get("TMPDIR")
    seen: list[str] = []

    def command() -> int:
        seen.append(tempfile.mkdtemp(prefix="beam-pipeline-temp"))
        script = "from shardwright.core import storage; print(storage.temporary_path('gs://b/o', 'x'))"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        seen.append(done.stdout.strip())
        Path(seen[1]).write_bytes(b"half a shard of a worker process")
        return 0

    assert exit_code_of(command) == 0
    (folder,) = {str(Path(path).parent) for path in seen}
    assert Path(folder).parent == base and Path(folder).name.startswith("shardwright-run-")
    assert tempfile.gettempdir() == str(base) and os.environ.get("TMPDIR") == before


#: A program that calls the library, prints the path of its temporary files, and waits if requested.
PROGRAM = """
import sys, tempfile
from shardwright.pipelines.process import own_temporary_folder
for _ in range(2):
    with own_temporary_folder():
        print(tempfile.mkdtemp(prefix='beam-pipeline-temp'), flush=True)
        if sys.argv[1:]:
            sys.stdin.read()
"""


def test_folders_of_killed_processes_are_removed_by_the_next_one_and_those_of_running_ones_stay(
    base: Path,
) -> None:
    environment = {**os.environ, "TMPDIR": str(base)}
    program = [sys.executable, "-c", PROGRAM]

    def run_another() -> list[Path]:
        done = subprocess.run(program, stdout=subprocess.PIPE, text=True, env=environment, check=True)
        return [Path(line) for line in done.stdout.splitlines()]

    with subprocess.Popen(
        [*program, "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as other:
        assert other.stdout is not None
        left = Path(other.stdout.readline().strip())
        (base / "shardwright-run-of-nobody").mkdir()
        (base / "shardwright-run-link").symlink_to(base.parent)
        (base / "beam-pipeline-tempsomebody").mkdir()
        made = run_another()
        assert len({path.parent for path in made}) == 1 and made[0].parent.parent == base
        assert left.is_dir() and not made[0].exists()
        assert not (base / "shardwright-run-of-nobody").exists()
        other.kill()
    assert left.is_dir()
    run_another()
    assert not left.parent.exists()
    assert {path.name for path in base.iterdir()} == {"shardwright-run-link", "beam-pipeline-tempsomebody"}
    assert base.parent.is_dir()


def test_a_job_server_of_beam_is_stopped_before_its_folder_is_removed(base: Path) -> None:
    script = (
        "from apache_beam.runners.portability import job_server\n"
        "from shardwright.pipelines.process import own_temporary_folder\n"
        "class Process:\n"
        "    def __init__(self, *_, **__): pass\n"
        "    def start(self): return 'localhost:1'\n"
        "    def stop(self): print('stopped')\n"
        "job_server.subprocess_server.SubprocessServer = Process\n"
        "class Server(job_server.SubprocessJobServer):\n"
        "    def subprocess_cmd_and_endpoint(self): return ['prism'], 'localhost:1'\n"
        "with own_temporary_folder():\n"
        "    job_server.StopOnExitJobServer(Server()).start()\n"
        "print('ended')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(base)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\nstopped\n", "")
    assert not list(base.iterdir())


def test_a_folder_without_locks_or_permission_does_not_end_the_command(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(9, "Bad file descriptor")  # like NFS

    monkeypatch.setattr(fcntl, "flock", refuse)
    with own_temporary_folder():
        assert tempfile.gettempdir() == str(base)
    assert not list(base.iterdir())
    shutil.rmtree(base)
    assert exit_code_of(lambda: 0) == 0


def test_other_threads_use_the_folder_of_the_process(base: Path) -> None:
    seen: list[str] = []

    def enter() -> None:
        with own_temporary_folder():
            seen.append(tempfile.gettempdir())

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [str(base)]


def test_leftovers_of_killed_commands_beside_results_are_removed(tmp_path: Path) -> None:
    result = str(tmp_path / "findings.json")
    gone = [Path(storage.unfinished(result))]
    stay = [Path(storage.unfinished(str(tmp_path / "mine.json"))), tmp_path / "findings.json.tmp"]
    for path in (*gone, *stay):
        path.write_bytes(b"{")
    remove_unfinished([result, "", "gs://bucket/findings.json", str(tmp_path / "nowhere" / "x")])
    assert sorted(tmp_path.iterdir()) == sorted(stay)


def test_a_validation_removes_leftovers_of_a_killed_one(dataset: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(dataset, copy)
    for name in ("findings.json", "report.html"):
        Path(storage.unfinished(str(copy / name))).write_bytes(b"half of it")
    assert validate(copy, mode="fast").passed
    assert not list(copy.rglob("*.tmp"))


def test_a_library_call_runs_its_pipeline_in_that_folder(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import apache_beam as beam

    from shardwright.pipelines.prepare import as_beam_options
    from shardwright.pipelines.run import run_pipeline

    before = os.environ.get("TMPDIR")
    seen: list[str] = []

    def build(pipeline: beam.Pipeline) -> None:
        seen.append(tempfile.gettempdir())
        pipeline | beam.Create([1])

    for _ in range(2):
        run_pipeline(build, as_beam_options(None))
    assert len(set(seen)) == 1 and Path(seen[0]).parent == base and Path(seen[0]).name.startswith("shard")
    assert tempfile.gettempdir() == str(base) and os.environ.get("TMPDIR") == before


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
    left += (tmp_path / "out" / f"{name}.{'0' * 32}.tmp" for name in ("labels.txt", "_shards/x.jsonl.gz"))
    for path in left[2:]:
        path.write_bytes(b"half")
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


Capture = pytest.CaptureFixture[str]


@pytest.fixture
def argv(tmp_path: Path) -> list[str]:
    path = tmp_path / "in" / "cat" / "1.png"
    path.parent.mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(path)
    return ["convert", "--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")]


def _refuse(*_: Any) -> None:
    raise PermissionError(errno.EACCES, "Permission denied")


def test_work_files_that_cannot_be_removed_are_a_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path, argv: list[str]
) -> None:
    monkeypatch.setattr(Spool, "remove", _refuse)
    monkeypatch.setattr(dataset_files, "remove_temporary", _refuse)
    assert cli.main(argv) == 0
    out = capsys.readouterr().out
    assert out.count("warning: Some work files are left and can be removed by hand: Cannot clean up") == 2
    assert json.loads((tmp_path / "out" / "dataset.json").read_text())["ledger"]["written"] == 1


def test_a_staging_directory_that_cannot_be_removed_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path, argv: list[str]
) -> None:
    assert cli.main(argv) == 0
    capsys.readouterr()
    monkeypatch.setattr(commit, "discard_staging", _refuse)
    assert cli.main([*argv, "--overwrite"]) == 0
    out = capsys.readouterr().out
    assert "warning: Some work files are left" in out
    outcome = json.loads((tmp_path / "out" / "_work" / "outcome.json").read_text())
    assert outcome["warnings"][-1].startswith("Some work files are left")


def test_an_engine_that_fails_after_the_commit_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, argv: list[str]
) -> None:
    def run(build: Any, options: Any) -> Any:
        run_pipeline(build, options)
        raise EngineError("The engine could not remove its files; look at the disk.")

    monkeypatch.setattr(conversion, "run_pipeline", run)
    assert cli.main(argv) == 0
    out = capsys.readouterr().out
    assert "warning: The dataset is published and complete; after that the run failed: The engine" in out


def test_an_engine_that_fails_before_the_commit_is_an_error_despite_an_older_dataset(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, argv: list[str]
) -> None:
    assert cli.main(argv) == 0

    def run(build: Any, options: Any) -> Any:
        raise EngineError("The engine failed; look at the disk.")

    monkeypatch.setattr(conversion, "run_pipeline", run)
    assert cli.main([*argv, "--overwrite"]) == 3
