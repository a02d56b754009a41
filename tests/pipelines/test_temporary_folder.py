"""A command removes its temporary files; the next command removes those of killed commands."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from helpers.hostile import COMMAND, make_tree

from shardwright.pipelines.run import exit_code_of
from shardwright.pipelines.temporary_folder import own_temporary_folder
from shardwright.pipelines.validate import validate
from shardwright.transforms import storage
from shardwright.transforms.result_files import answer_path, remove_unfinished


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
        script = "from shardwright.transforms import storage; print(storage.temporary_path('gs://b/o', 'x'))"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        seen.append(done.stdout.strip())
        Path(seen[1]).write_bytes(b"half a shard of a worker process")
        return 0

    assert exit_code_of(command, lambda: False) == 0
    (folder,) = {str(Path(path).parent) for path in seen}
    assert Path(folder).parent == base and Path(folder).name.startswith("shardwright-run-")
    assert tempfile.gettempdir() == str(base) and os.environ.get("TMPDIR") == before


def test_folders_of_killed_commands_are_removed_and_those_of_running_ones_stay(base: Path) -> None:
    script = (
        "import sys, tempfile, time\n"
        "from shardwright.pipelines.temporary_folder import own_temporary_folder\n"
        "with own_temporary_folder():\n"
        "    print(tempfile.mkdtemp(prefix='beam-pipeline-temp'), flush=True)\n"
        "    time.sleep(60)\n"
    )
    environment = {**os.environ, "TMPDIR": str(base)}
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment
    ) as other:
        assert other.stdout is not None
        left = Path(other.stdout.readline().strip())
        (base / "shardwright-run-of-nobody").mkdir()
        (base / "shardwright-run-link").symlink_to(base.parent)
        (base / "beam-pipeline-tempsomebody").mkdir()
        run_another = [sys.executable, "-c", script.replace("time.sleep(60)", "pass")]
        subprocess.run(run_another, env=environment, check=True, stdout=subprocess.DEVNULL)
        assert left.is_dir()
        assert not (base / "shardwright-run-of-nobody").exists()
        other.send_signal(signal.SIGKILL)
        other.wait()
    assert left.is_dir()
    subprocess.run(run_another, env=environment, check=True, stdout=subprocess.DEVNULL)
    assert not left.parent.exists()
    assert {path.name for path in base.iterdir()} == {"shardwright-run-link", "beam-pipeline-tempsomebody"}
    assert base.parent.is_dir()


def test_a_job_server_of_beam_is_stopped_before_its_folder_is_removed(base: Path) -> None:
    script = (
        "from apache_beam.runners.portability import job_server\n"
        "from shardwright.pipelines.temporary_folder import own_temporary_folder\n"
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
    assert exit_code_of(lambda: 0, lambda: False) == 0


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
    answers = [Path(answer_path(result)) for _ in range(2)]
    gone = [Path(storage.unfinished(result)), answers[0]]
    stay = [answers[1], Path(storage.unfinished(str(tmp_path / "mine.json"))), tmp_path / "findings.json.tmp"]
    for path in (*gone, *stay):
        path.write_bytes(b"{")
    old = time.time() - 7200
    os.utime(answers[0], (old, old))
    remove_unfinished([result, "", "gs://bucket/findings.json", str(tmp_path / "nowhere" / "x")])
    assert sorted(tmp_path.iterdir()) == sorted(stay)


def test_a_validation_removes_leftovers_of_a_killed_one(dataset: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(dataset, copy)
    for name in ("findings.json", "report.html"):
        Path(storage.unfinished(str(copy / name))).write_bytes(b"half of it")
    assert validate(copy, mode="fast").passed
    assert not list(copy.rglob("*.tmp"))


@pytest.mark.slow
def test_leftovers_of_a_killed_conversion_are_removed_later(tmp_path: Path) -> None:
    base = tmp_path / "tmp"
    base.mkdir()
    make_tree(tmp_path / "in")
    environment = {**os.environ, "TMPDIR": str(base)}
    command = [str(COMMAND), "convert", "--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        while not (tmp_path / "out").exists():
            time.sleep(0.01)
        process.kill()
    assert list(base.iterdir())
    subprocess.run([*command, "--overwrite"], env=environment, check=True, capture_output=True)
    assert not list(base.iterdir())
    assert not list((tmp_path / "out").rglob("*.tmp"))


#: A program that calls the library, prints the path of its temporary files, and waits if requested.
PROGRAM = """
import sys, tempfile
from shardwright.pipelines.temporary_folder import own_temporary_folder
for _ in range(2):
    with own_temporary_folder():
        print(tempfile.mkdtemp(prefix='beam-pipeline-temp'), flush=True)
        if sys.argv[1:]:
            sys.stdin.read()
"""


def test_temporary_files_of_library_calls_are_removed_at_the_end_or_by_the_next_process(base: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(base)}
    program = [sys.executable, "-c", PROGRAM]
    killed = subprocess.Popen(
        [*program, "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert killed.stdout is not None
    left = Path(killed.stdout.readline().strip())
    assert left.parent.parent == base and left.is_dir()
    killed.kill()
    killed.communicate()
    assert left.is_dir()
    done = subprocess.run(program, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    made = [Path(line) for line in done.stdout.splitlines()]
    assert len({path.parent for path in made}) == 1 and made[0].parent.parent == base
    assert not list(base.iterdir())


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
