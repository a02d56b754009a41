"""Convert, validate and rebuild on Prism and Flink give the results of the in-process runner."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from helpers.hostile import document, flip, shard_hashes, without_times
from helpers.repository import EXAMPLES, PHOTOS, ROOT, SETTINGS, ran
from helpers.servers import children, flink_job_server, worker_pool
from helpers.trees import put_files

from shardwright.pipelines import cli

#: Beam's worker threads report errors when an engine ends.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

Run = Callable[..., tuple[int, str]]

ENGINES = ROOT / "build" / "engines"
OPTIONS = tuple(f"--{name}={value}" for name, value in SETTINGS.items())
PROCESSES = ["--runner=DirectRunner", "--direct_running_mode=multi_processing", "--direct_num_workers=2"]
RESTARTS = """\
restart-strategy:
  type: fixed-delay
  fixed-delay:
    attempts: 3
    delay: 1 s
"""


@pytest.fixture(scope="session")
def prism() -> list[str]:
    """The options that run a pipeline on Prism."""
    path = Path(os.environ.get("SHARDWRIGHT_PRISM") or ENGINES / f"prism-{version('apache-beam')}")
    if not path.exists():
        pytest.skip("Prism is not there; `make prism-test` builds it (needs Go)")
    return ["--runner=PrismRunner", f"--prism_location={path}"]


@pytest.fixture(scope="session")
def flink_jar() -> Path:
    """Flink's job server."""
    default = ENGINES / f"flink-{version('apache-beam')}" / "job-server.jar"
    path = Path(os.environ.get("SHARDWRIGHT_FLINK_JAR") or default)
    if not path.exists() or not shutil.which("java"):
        pytest.skip("Flink's job server is not there; `make flink-test` fetches it (needs Java and Maven)")
    return path


@pytest.fixture(scope="session")
def flink(flink_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The options that run a pipeline on Flink, with one job server for all tests."""
    with flink_job_server(flink_jar, tmp_path_factory.mktemp("flink")) as port:
        yield ["--runner=FlinkRunner", "--flink_master=[local]", f"--job_endpoint=localhost:{port}"]


#: Prism, and Flink in `make flink-test`.
BOTH = [
    pytest.param("prism", marks=pytest.mark.prism),
    pytest.param("flink", marks=[pytest.mark.flink, pytest.mark.slow]),
]


@pytest.fixture(scope="session", params=BOTH)
def engine(request: pytest.FixtureRequest) -> list[str]:
    """The options that run a pipeline on an engine."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def many_photos(tmp_path: Path) -> Path:
    """The example pictures four times in more classes, so that the job can be killed while it runs."""
    folder = tmp_path / "many"
    for i in range(4):
        for path in EXAMPLES.glob("*/*"):
            target = folder / f"{path.parent.name}-{i}" / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path)
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command; returns its exit code and its error message."""

    def command(*arguments: object) -> tuple[int, str]:
        capsys.readouterr()
        code = cli.main([str(argument) for argument in arguments])
        lines = capsys.readouterr().err.splitlines()
        assert all(line.startswith("shardwright: ") for line in lines), lines
        return code, lines[-1] if code and lines else ""

    return command


def assert_same(dataset: Path, other: Path) -> None:
    assert shard_hashes(dataset) == shard_hashes(other)
    assert document(dataset)["fingerprint"] == document(other)["fingerprint"]


def test_the_bytes_equal_those_of_the_in_process_runner(
    engine: list[str], sound_dataset: Path, tmp_path: Path, run: Run
) -> None:
    output = tmp_path / "out"
    assert run("convert", "--input", PHOTOS, "--output", output, *OPTIONS, *engine) == (0, "")
    assert len(shard_hashes(output)) == 5
    assert_same(output, sound_dataset)
    flip(output / "train-00001-of-00003.tfrecord")
    assert run("validate", "--dataset", output, *engine)[0] == 1
    report = json.loads((output / "findings.json").read_text())
    assert (report["mode"], report["sound"]) == ("full", False)
    assert {"DATA_CRC", "SHARD_CHECKSUM"} <= set(report["counts"])


QUALITY = ("--quality", "--against", PHOTOS)


@pytest.fixture(scope="module")
def in_process(sound_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the in-process runner makes: `sound`, validated; `broken`; `saved` from it; `changes.json`."""
    root = tmp_path_factory.mktemp("in-process")
    sound, broken, saved = root / "sound", root / "broken", root / "saved"
    shutil.copytree(sound_dataset, sound)
    shutil.copytree(sound_dataset, broken)
    shard = broken / "train-00001-of-00003.tfrecord"
    shard.write_bytes(shard.read_bytes()[:-100])
    for command in (
        ("validate", "--dataset", sound, *QUALITY),
        ("salvage", "--dataset", broken, "--output", saved),
        ("diff", sound, saved, "--report", root / "changes.json"),
    ):
        assert cli.main([str(argument) for argument in command]) == 0
    return root


def test_quality_checks_equal_those_of_the_in_process_runner(
    engine: list[str], in_process: Path, sound_dataset: Path, tmp_path: Path, run: Run
) -> None:
    here, there = in_process / "sound", tmp_path / "there"
    shutil.copytree(sound_dataset, there)
    assert run("validate", "--dataset", there, *QUALITY, *engine) == (0, "")
    for name in ("statistics.json", "stats.pb"):
        assert (here / name).read_bytes() == (there / name).read_bytes()
    reports = [without_times((dataset / "findings.json").read_text()) for dataset in (here, there)]
    assert reports[0]["counts"] and reports[0] == {**reports[1], "dataset": str(here)}


def test_salvaged_and_compared_datasets_equal_those_of_the_in_process_runner(
    engine: list[str], in_process: Path, tmp_path: Path, run: Run
) -> None:
    saved = tmp_path / "saved"
    assert run("salvage", "--dataset", in_process / "broken", "--output", saved, *engine) == (0, "")
    assert_same(saved, in_process / "saved")
    changes = tmp_path / "changes.json"
    compared = (in_process / "sound", in_process / "saved")
    assert run("diff", *compared, "--report", changes, *engine) == (0, "")
    assert changes.read_bytes() == (in_process / "changes.json").read_bytes()
    assert json.loads(changes.read_text())["images"]["removed"] == 1


def test_refusals_have_the_same_code_and_message(engine: list[str], tmp_path: Path, run: Run) -> None:
    bad, none = tmp_path / "bad", tmp_path / "none"
    shutil.copytree(PHOTOS / "birds", bad / "birds")
    put_files(tmp_path, dict.fromkeys(("bad/birds/text.jpg", "none/birds/readme.txt"), b"no image"))
    for folder, code in ((bad, 1), (none, 2)):
        complaints = []
        for options in ([], engine):
            output = tmp_path / "out"
            found, complaint = run("convert", "--input", folder, "--output", output, "--resize=16", *options)
            assert found == code
            assert not (output / "dataset.json").exists()
            assert output.exists() == (code == 1)
            complaints.append(complaint)
            shutil.rmtree(output, ignore_errors=True)
        assert complaints[0] == complaints[1] != ""


def lease_pids(output: Path, ended: threading.Event, pids: set[int]) -> None:
    """Records the process id in each lease that appears."""
    while not ended.wait(0.005):
        with contextlib.suppress(OSError, ValueError):  # there may be no lease at this moment
            pids.add(json.loads((output / "lease.json").read_text())["pid"])


@pytest.mark.slow
@pytest.mark.parametrize("way", [*BOTH, "processes"])
def test_rebuilds_equal_those_of_the_in_process_runner(
    way: str, request: pytest.FixtureRequest, tmp_path: Path, run: Run
) -> None:
    engine = PROCESSES if way == "processes" else request.getfixturevalue(way)
    source, pids, ended = tmp_path / "in", set[int](), threading.Event()
    shutil.copytree(PHOTOS, source)
    outputs = {tmp_path / "here": [], tmp_path / "there": engine}
    job = tmp_path / "job.yaml"
    job.write_text("gates: {max_count_drop: 0.5}\n")
    watch = threading.Thread(target=lease_pids, args=(tmp_path / "there", ended, pids))
    watch.start()

    def rebuilt(*options: str) -> list[tuple[int, str, str]]:
        """Rebuilds both; returns the exit codes, the messages without names, and what readers get."""
        made = []
        for output, runner in outputs.items():
            code, complaint = run(
                "rebuild", "--job", job, "--input", source, "--output", output, *OPTIONS, *options, *runner
            )
            latest = json.loads((output / "latest.json").read_text())
            message = re.sub(r"\d{8}T\d{6}Z", "V", complaint).replace(str(output), "OUT")
            made.append((code, message, latest["fingerprint"]))
            assert latest["fingerprint"] == document(output / "versions" / latest["version"])["fingerprint"]
            assert not (output / "lease.json").exists()
        return made

    first = rebuilt()
    altered = next(source.glob("birds/*"))
    altered.write_bytes(next(source.glob("fruit/*")).read_bytes())
    second, third, fourth = rebuilt(), rebuilt(), rebuilt("--limit=10")
    ended.set()
    watch.join()
    for made in (first, second, third, fourth):
        assert made[0] == made[1]
    assert [made[0][0] for made in (first, second, third, fourth)] == [0, 0, 0, 1]
    assert "was refused" in fourth[0][1]
    assert first[0][2] != second[0][2] == third[0][2] == fourth[0][2]
    names = [[path.name for path in sorted((output / "versions").iterdir())] for output in outputs]
    assert [len(versions) for versions in names] == [3, 3]
    work = ("shards", "reused_shards", "copied", "converted", "quarantined")
    for here, there in zip(*names, strict=True):
        found = [tmp_path / "here" / "versions" / here, tmp_path / "there" / "versions" / there]
        assert_same(*found)
        records = [json.loads((version / "version.json").read_text()) for version in found]
        for name in ("state", "records", "findings", "changes"):
            assert records[0][name] == records[1][name]
        assert [records[0]["work"][name] for name in work] == [records[1]["work"][name] for name in work]
    # A job on Flink continues without its launcher, so the launcher's end means nothing.
    assert pids == ({0} if way == "flink" else {os.getpid()})


@pytest.mark.slow
@pytest.mark.flink
def test_flink_starts_its_job_server_and_passes_its_options(
    flink_jar: Path, sound_dataset: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    result = ran(
        sys.executable, "-m", "shardwright.pipelines.convert", "--input", PHOTOS, "--output", output,
        *OPTIONS, "--runner=FlinkRunner", "--flink_master=[local]", f"--flink_job_server_jar={flink_jar}",
        "--parallelism=2", "--sdk_worker_parallelism=2", "--verbose",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-3000:]
    assert_same(output, sound_dataset)
    assert "(2/2)" in result.stderr, "--parallelism did not reach Flink"
    assert "worker 1-2" in result.stderr, "--sdk_worker_parallelism did not reach Flink"


def kill_workers(pool: subprocess.Popen[bytes], output: Path, killed: list[int]) -> None:
    """Kills the workers as soon as the first shard is finished."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if any(output.rglob("_shards/*.jsonl.gz")):
            for worker in children(pool):
                worker.kill()
                killed.append(worker.pid)
            return
        time.sleep(0.01)


def run_and_kill(
    run: Run, flink: list[str], tmp_path: Path, *command: object, restarts: bool = True
) -> tuple[int, str]:
    """Runs a command on Flink, and kills its workers as soon as the first shard in `out` is finished."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text(RESTARTS if restarts else "")
    killed: list[int] = []
    with worker_pool(tmp_path) as (port, pool):
        options = [
            *flink, "--environment_type=EXTERNAL", f"--environment_config=localhost:{port}",
            f"--flink_conf_dir={tmp_path / 'conf'}",
        ]  # fmt: skip
        if not restarts:  # One worker serves all stages, because each worker that starts imports Beam.
            options.append("--environment_cache_millis=60000")
        killer = threading.Thread(target=kill_workers, args=(pool, tmp_path / "out", killed))
        killer.start()
        found = run(*command, "--output", tmp_path / "out", *options)
        killer.join()
    assert killed
    return found


@pytest.mark.slow
@pytest.mark.flink
@pytest.mark.parametrize("restarts", [True, False])
def test_a_killed_worker_does_not_change_the_bytes(
    restarts: bool, flink: list[str], many_photos: Path, tmp_path: Path, run: Run
) -> None:
    output, truth = tmp_path / "out", tmp_path / "truth"
    command = ["convert", "--input", many_photos, "--resize=64", "--splits=train=0.8,test=0.2", "--shards=6"]
    # With --resume from the start, a restarted worker reuses the finished shards.
    code, complaint = run_and_kill(run, flink, tmp_path, *command, "--resume", restarts=restarts)
    if not restarts:
        assert code == 3 and "--resume" in complaint
        assert not (output / "dataset.json").exists()
        code, _ = run(*command, "--output", output, "--resume")
    assert code == 0
    assert json.loads((output / "_work" / "outcome.json").read_text())["reused_shards"] >= 1
    assert run(*command, "--output", truth)[0] == 0
    assert_same(output, truth)


@pytest.mark.slow
@pytest.mark.flink
def test_a_rebuild_continues_after_its_workers_are_killed(
    flink: list[str], many_photos: Path, tmp_path: Path, run: Run
) -> None:
    output, truth = tmp_path / "out", tmp_path / "truth"
    job = tmp_path / "job.yaml"
    job.write_text(
        f"input: {many_photos}\nresize: 64\nshards: 6\nhooks:\n"
        f"  on_any: {{command: [sh, -c, 'echo $SHARDWRIGHT_EVENT >> {tmp_path}/told']}}\n"
    )
    assert run_and_kill(run, flink, tmp_path, "rebuild", "--job", job) == (0, "")
    (version,) = (output / "versions").iterdir()
    record = json.loads((version / "version.json").read_text())
    assert record["state"] == "published" and record["work"]["reused_shards"] >= 1
    assert (tmp_path / "told").read_text() == "success\n" and not (output / "lease.json").exists()
    assert run("rebuild", "--job", job, "--output", truth)[0] == 0
    assert_same(version, next((truth / "versions").iterdir()))


def test_a_hook_gives_the_same_images(
    engine: list[str], workplace: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    (workplace / "turning_hooks.py").write_text(
        "from PIL import ImageOps\n\ndef mirrored(item):\n    return ImageOps.mirror(item.image)\n"
    )
    monkeypatch.setattr(sys, "path", [*sys.path])
    settings = ["--input", PHOTOS, "--limit=12", "--resize=32"]
    for output, options in ((workplace / "here", []), (workplace / "there", engine)):
        done = run("convert", *settings, "--output", output, "--map=turning_hooks:mirrored", *options)
        assert done == (0, "")
    assert_same(workplace / "here", workplace / "there")
