"""What commands leave when they end, are killed or cannot clean up, and damage that rebuilds repair."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import apache_beam as beam
import pytest
from helpers.depths import findings_of
from helpers.from_nothing import Rebuilt, begin, copy_unchanged, inodes, write_bmps
from helpers.hostile import flip, make_tree, picture, run, sentence_of
from helpers.resealing import read_ledger, write_ledger

from shardwright.core import commit, dataset_files, storage
from shardwright.core.dataset_files import remove_unfinished
from shardwright.core.rebuild import compare as scrubbing
from shardwright.core.rebuild.begin import remove_leftovers
from shardwright.core.sources.spool import Spool
from shardwright.core.storage import local
from shardwright.pipelines import cli, prepare
from shardwright.pipelines import convert as conversion
from shardwright.pipelines import salvage as salvaging
from shardwright.pipelines.prepare import as_beam_options
from shardwright.pipelines.process import own_temporary_folder
from shardwright.pipelines.rebuild import rebuild
from shardwright.pipelines.results import print_rebuild_summary
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
    shutil.rmtree(folder)  # as a cleaner of /tmp may do while a notebook lives
    seen.clear()
    assert exit_code_of(command) == 0


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
    environment = {**os.environ, "TMPDIR": str(base)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\nstopped\n", "")
    assert not list(base.iterdir())


def test_a_folder_without_locks_or_permission_does_not_end_the_command_but_a_lack_of_one_does(
    base: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(fcntl, "flock", mock.Mock(side_effect=OSError(9, "Bad file descriptor")))  # like NFS
    with own_temporary_folder():
        assert tempfile.gettempdir() == str(base)
    assert not list(base.iterdir())
    shutil.rmtree(base)
    assert exit_code_of(lambda: 0) == 0
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(base)])  # a full or read-only disk
    assert exit_code_of(lambda: 0) == 3
    assert "set TMPDIR to a folder" in capsys.readouterr().err


def test_other_threads_use_the_folder_of_the_process(base: Path) -> None:
    def folder_of_a_thread() -> str:
        with own_temporary_folder():
            return tempfile.gettempdir()

    assert ThreadPoolExecutor(1).submit(folder_of_a_thread).result() == str(base)


def test_leftovers_of_killed_commands_beside_results_are_removed(tmp_path: Path) -> None:
    result = str(tmp_path / "findings.json")
    stay = [Path(storage.unfinished(str(tmp_path / "mine.json"))), tmp_path / "findings.json.tmp"]
    for path in (Path(storage.unfinished(result)), *stay):
        path.write_bytes(b"{")
    remove_unfinished([result, "", "gs://bucket/findings.json", str(tmp_path / "nowhere" / "x")])
    assert sorted(tmp_path.iterdir()) == sorted(stay)


def test_a_library_call_runs_its_pipeline_in_that_folder(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    names = ("train-00000-of-00002.tfrecord", "other")
    left = [Path(storage.temporary_path(str(directory), name)) for name in names]
    for path in left:
        path.write_bytes(b"half")
    return left


#: Ends a run when its work begins.
stop = mock.Mock(side_effect=EngineError("here the work begins."))


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
    with pytest.raises(EngineError, match="begins"):
        conversion.convert(input=str(tmp_path / "in"), output=str(tmp_path / "out"), shards=2, resume=True)
    assert not any(path.exists() for path in left) and notes.exists()


def test_salvage_removes_leftovers_first(
    tmp_path: Path, sound_dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(salvaging, "run_pipeline", stop)
    damaged = shutil.copytree(sound_dataset, tmp_path / "damaged")
    with pytest.raises(EngineError, match="begins"):
        salvaging.salvage(damaged, tmp_path / "out")
    left = leave(tmp_path / "out")
    with pytest.raises(EngineError, match="begins"):
        salvaging.salvage(damaged, tmp_path / "out")
    assert not any(path.exists() for path in left)


Capture = pytest.CaptureFixture[str]


@pytest.fixture
def argv(tmp_path: Path) -> list[str]:
    return ["convert", "--input", str(make_tree(tmp_path / "in", 1)), "--output", str(tmp_path / "out")]


_refuse = mock.Mock(side_effect=PermissionError(errno.EACCES, "Permission denied"))


def test_work_files_and_staging_that_cannot_be_removed_are_warnings(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path, argv: list[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Spool, "remove", _refuse)
        patch.setattr(dataset_files, "remove_temporary", _refuse)
        assert cli.main(argv) == 0
    warning = "warning: Some work files are left"
    assert capsys.readouterr().out.count(f"{warning} and can be removed by hand: Cannot clean up") == 2
    assert json.loads((tmp_path / "out" / "dataset.json").read_text())["ledger"]["written"] == 1
    monkeypatch.setattr(commit, "discard_staging", _refuse)
    assert cli.main([*argv, "--overwrite"]) == 0
    assert warning in capsys.readouterr().out
    outcome = json.loads((tmp_path / "out" / "_work" / "outcome.json").read_text())
    assert outcome["warnings"][-1].startswith("Some work files are left")


def test_an_engine_that_fails_is_a_warning_after_the_commit_and_an_error_before_it(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, argv: list[str]
) -> None:
    commits = iter((True, False))

    def run(build: Any, options: Any) -> Any:
        if next(commits):
            run_pipeline(build, options)
        raise EngineError("The engine could not remove its files; look at the disk.")

    monkeypatch.setattr(conversion, "run_pipeline", run)
    assert cli.main(argv) == 0
    out = capsys.readouterr().out
    assert "warning: The dataset is published and complete; after that the run failed: The engine" in out
    assert cli.main([*argv, "--overwrite"]) == 3, "despite the older dataset"


SETTINGS = {"shards": "3", "resize": "8", "image_format": "png"}


def shards_of(rebuilt: Rebuilt) -> list[Path]:
    return [rebuilt.latest / name for name in sorted(inodes(rebuilt.latest))]


def metric(rebuilt: Rebuilt, name: str) -> list[float]:
    lines = (rebuilt.output / "metrics.prom").read_text().splitlines()
    found = (line for line in lines if line.startswith(f"shardwright_rebuild_{name}"))
    return [float(line.rpartition(" ")[2]) for line in found]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with images, and the first version made from them."""
    root = tmp_path_factory.mktemp("first")
    write_bmps(root / "in", 9)
    (root / "in" / "a" / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        begin(Path(), **SETTINGS)
    return root


@pytest.fixture
def rebuilt(tmp_path: Path, first: Path, monkeypatch: pytest.MonkeyPatch) -> Rebuilt:
    """A copy of it, which is the current folder."""
    monkeypatch.chdir(copy_unchanged(first, tmp_path))
    return Rebuilt(Path(), input="in", **SETTINGS)


@pytest.fixture
def grown(rebuilt: Rebuilt, tmp_path: Path) -> Rebuilt:
    """The same with a new image."""
    (tmp_path / "in" / "a" / "new.bmp").write_bytes(picture(50, "BMP", 8))
    return rebuilt


def test_a_damaged_and_an_unreadable_shard_are_detected_and_rebuilt(
    rebuilt: Rebuilt, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    first, (unreadable, damaged, _) = rebuilt.latest, shards_of(rebuilt)
    sound, sha256_of = damaged.read_bytes(), scrubbing.storage.sha256_of
    flip(damaged, -40)

    def failing(file: Any) -> str:
        if str(file.name) == str(unreadable):
            raise OSError(5, "Input/output error")
        return sha256_of(file)

    with monkeypatch.context() as patch:
        patch.setattr(scrubbing.storage, "sha256_of", failing)
        result = rebuilt.again(scrub=1, compared=False, verify="fast")
    assert result.changed and (rebuilt.latest / damaged.name).read_bytes() == sound
    assert result.outcome["work"]["reused_shards"] == 1 and result.outcome["work"]["copied"] == 0
    size = sum(path.stat().st_size for path in shards_of(rebuilt))
    assert result.outcome["scrub"] == {
        "version": first.name, "shards": 3, "of_shards": 3, "bytes": size, "of_bytes": size,
        "damaged": [unreadable.name, damaged.name],
    }  # fmt: skip
    assert any("are damaged and rebuilt from the source" in reason for reason in result.outcome["reasons"])
    assert any("SHARD_REPAIRED" in warning for warning in result.outcome["warnings"])
    found = json.loads((rebuilt.latest / "findings.json").read_text())
    assert found["counts"] == {"SHARD_REPAIRED": 2} and found["sound"]
    assert found["findings"][1]["shard"] == damaged.name and first.name in found["findings"][1]["message"]
    report = (rebuilt.latest / "report.html").read_text()
    assert "SHARD_REPAIRED" in report and f"3 of 3 shards of {first.name} read again" in report
    assert metric(rebuilt, "scrubbed_shards") == [2, 1] and metric(rebuilt, "scrubbed_bytes") == [size]
    print_rebuild_summary(result)
    assert f"against {first.name}: no image changed\n" in capsys.readouterr().out
    again = rebuilt.again(scrub=1, compared=False)
    assert not again.changed and again.outcome["scrub"]["damaged"] == []
    assert metric(rebuilt, "scrubbed_shards") == [0, 3]
    assert not findings_of(rebuilt.latest)


def test_all_shards_are_read_again_while_nothing_changes(rebuilt: Rebuilt) -> None:
    flip(shards_of(rebuilt)[2], -40)
    results = [rebuilt.again(compared=False) for _ in range(3)]
    assert [result.changed for result in results] == [False, False, True]
    assert [result.outcome["scrub"]["shards"] for result in results] == [1, 1, 1]


@pytest.mark.parametrize("compression", ["none", pytest.param("gzip", marks=pytest.mark.slow)])
def test_no_record_of_a_changed_damaged_shard_is_copied(rebuilt: Rebuilt, compression: str) -> None:
    if compression != "none":
        rebuilt.again(compared=False, compression=compression)
    for damaged in shards_of(rebuilt):
        _, *lines = read_ledger(rebuilt.latest, damaged.name.partition(".")[0])
        if any(line["outcome"] == "quarantined" for line in lines):  # such a line is not copied either
            break
    flip(damaged, -5)
    result = rebuilt.again(scrub=0, shards="1")  # this compares with a full build
    work = result.outcome["work"]
    assert (work["converted"], work["copied"]) == (len(lines) - 1, 10 - len(lines)) != (0, 9)
    assert result.outcome["scrub"]["shards"] == 0
    assert json.loads((rebuilt.latest / "findings.json").read_text())["counts"] == {"SHARD_REPAIRED": 1}


def test_the_command_line_reports_the_repair(capfd: Capture, rebuilt: Rebuilt) -> None:
    settings = [f"--{name}={value}" for name, value in rebuilt.settings.items()]
    command = ["rebuild", f"--output={rebuilt.output}", *settings]
    done = run(capfd, *command, "--scrub", "1/2")
    assert done.code == 0 and f"2 of 3 shards of {rebuilt.latest.name} read again" in done.out
    assert "none is damaged" in done.out and "scrubbed: 2 of 3 shards" in done.err
    assert "read again" not in run(capfd, *command, "--scrub=0").out
    for wrong in ("2", "-1", "half", "1/0", "nan"):
        message = sentence_of(run(capfd, *command, f"--scrub={wrong}"), 2)
        assert message.endswith(f"--scrub {wrong}: write a share from 0 to 1, such as 0.1 or 1/30.")


OLD, ABANDONED = "20200101T000000Z", "20200102T000000Z"


def test_damaged_versions_ledgers_and_leftovers_do_not_stop_a_rebuild(grown: Rebuilt) -> None:
    versions, name = grown.output / "versions", grown.latest.name
    shutil.copytree(grown.latest, versions / OLD)
    (versions / OLD / "version.json").write_text("{")
    (versions / name / "_checks").mkdir(exist_ok=True)
    files = ("lease.json", "latest.json", "index.html", "metrics.prom", "_work/outcomes/a")
    of_versions = (f"{name}/version.json", f"{OLD}/x.json", f"{name}/_checks/a.json.gz")
    places = [*(grown.output / file for file in files), *(versions / file for file in of_versions)]
    leftovers = [Path(local.unfinished(str(place))) for place in places]
    notes = versions / name / "notes.tmp"
    for path in (*leftovers, notes):
        path.write_bytes(b"half")
    leftovers += leave(versions / name)
    ledger = shards_of(grown)[1].stem
    header, first, *lines = read_ledger(grown.latest, ledger)
    write_ledger(grown.latest, ledger, [header, {**first, "source_key": ["no text"]}, *lines])
    result = grown.again(verify_sources=True, compared=False)
    assert result.changed and grown.latest.name > name
    of_version, of_ledger = result.outcome["warnings"]
    assert f"{OLD}/version.json cannot be used" in of_version and "cannot be compared" in of_ledger
    assert (versions / OLD / "dataset.json").exists()
    assert "damaged" in (grown.output / "index.html").read_text()
    (grown.output / "index.html").unlink()
    leftovers += leave(grown.latest)
    assert not grown.again(compared=False).changed
    assert "damaged" in (grown.output / "index.html").read_text(), "also when nothing changed"
    assert not any(path.exists() for path in leftovers) and notes.exists()


def test_a_validation_gets_its_result_while_a_rebuild_tidies_up(
    rebuilt: Rebuilt, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The validation does not read it.
    killed = Path(storage.unfinished(str(rebuilt.latest / "elsewhere.json")))
    killed.write_bytes(b"{}")
    validated = prepare.run_pipeline

    def tidy_up_meanwhile(*args: Any) -> Any:
        validated(*args)
        remove_leftovers(str(rebuilt.output), "")

    monkeypatch.setattr(prepare, "run_pipeline", tidy_up_meanwhile)
    assert validate(rebuilt.latest, mode="fast").passed
    assert not list(rebuilt.latest.glob("*.tmp"))


def test_a_cleanup_that_fails_is_a_warning(grown: Rebuilt, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = mock.Mock(side_effect=EngineError("the disk is tired."))
    (grown.output / "versions" / ABANDONED).mkdir()
    with monkeypatch.context() as patch:
        for name in ("versions.remove_version", "report.index_page.write_index"):
            patch.setattr(f"shardwright.core.{name}", failing)
        patch.setattr("shardwright.core.rebuild.begin.remove_leftovers", failing)
        result = grown.again(compared=False)
    assert result.changed and result.outcome["state"] == "success"
    assert result.outcome["warnings"] == [
        f"Version {ABANDONED} could not be removed: the disk is tired; the next run tries again.",
        "index.html could not be updated: the disk is tired; the next run tries again.",
    ]
    again = rebuild(output=str(grown.output), **grown.settings)
    assert not again.changed and ABANDONED not in grown.versions


def test_a_file_is_written_even_if_its_temporary_file_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, seen = local.os.replace, []

    def tidied(source: str, target: str) -> None:
        if not seen:
            Path(source).unlink()
        seen.append(source)
        replace(source, target)

    monkeypatch.setattr(local.os, "replace", tidied)
    storage.write_bytes(str(tmp_path / "a" / "b.json"), b"whole")
    assert (tmp_path / "a" / "b.json").read_bytes() == b"whole"
    assert len(seen) == 2 and [path.name for path in (tmp_path / "a").iterdir()] == ["b.json"]
