"""Dataflow jobs and templates: the staged files, the description, and the launcher's last message."""

from __future__ import annotations

import io
import itertools
import os
import runpy
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from apache_beam.runners.dataflow import dataflow_runner
from apache_beam.runners.dataflow.internal.apiclient import DataflowApplicationClient
from apache_beam.runners.portability.stager import Stager
from google.cloud.dataflow_v1beta3.types import Job, JobMessage, JobMessageImportance, JobState
from helpers.cloud import (
    BUCKET,
    DATAFLOW,
    IMAGE,
    IN_CONTAINER,
    describe,
    objects,
    storage_emulator,
    template,
    upload,
)
from helpers.repository import PHOTOS, ROOT

from shardwright.pipelines import cli
from shardwright.schemas.errors import DataRefused, EngineError

MAIN = ROOT / "deploy" / "dataflow" / "main.py"
ROOMS = ("package", "pipelines", "loader", "transforms", "core", "schemas")
SETTINGS = (f"--input=gs://{BUCKET}/photos", f"--output=gs://{BUCKET}/out", "--resize=64")
#: A program that says where the command `convert` is, without importing what it needs.
_WHERE = "from importlib.util import find_spec; print(find_spec('shardwright.pipelines.convert').origin)"
TEMPLATE = f"--template_location=gs://{BUCKET}/made/job.json"


@pytest.fixture
def bucket() -> Iterator[Any]:
    with storage_emulator() as bucket:
        upload(bucket, PHOTOS, "photos", 3)
        yield bucket


@pytest.fixture
def unlisted() -> Iterator[None]:
    """Beam does not list the packages of this environment for the job, which takes a second."""
    with mock.patch.object(Stager, "_create_stage_submission_env_dependencies", return_value=[]):
        yield


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files needed for installation, because a build leaves files behind."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for room in ROOMS:
        shutil.copytree(ROOT / room, copy / room, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def modules(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for room in ROOMS for path in (folder / room).rglob("*.py")}


def test_a_job_in_a_container_stages_no_package(bucket: Any, capsys: pytest.CaptureFixture[str]) -> None:
    workers = [
        "--machine_type=n2-standard-4", "--disk_size_gb=50", "--number_of_worker_harness_threads=1",
        "--max_num_workers=7", "--no_use_public_ips", "--service_account_email=me@example.com",
    ]  # fmt: skip
    described = describe("convert", *SETTINGS, *DATAFLOW, *IN_CONTAINER, *workers, TEMPLATE)
    assert described.code == 0
    assert f"written to the template gs://{BUCKET}/made/job.json" in capsys.readouterr().err
    staged = {name.rpartition("/")[2] for name in objects(bucket, "staging/")}
    assert staged == {"pipeline.pb", "submission_environment_dependencies.txt"}
    assert objects(bucket, "out") == []
    environment = template(bucket, "made/job.json")["environment"]
    (pool,) = environment["workerPools"]
    assert [item["containerImage"] for item in pool["sdkHarnessContainerImages"]] == [IMAGE]
    assert (pool["machineType"], pool["diskSizeGb"], pool["numThreadsPerWorker"]) == ("n2-standard-4", 50, 1)
    assert pool["autoscalingSettings"]["maxNumWorkers"] == 7
    assert environment["serviceAccountEmail"] == "me@example.com"
    options = environment["sdkPipelineOptions"]["options"]
    assert options["number_of_worker_harness_threads"] == 1 and options["save_main_session"] is False


def test_a_job_with_the_setup_file_stages_the_whole_package(
    bucket: Any, unlisted: None, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(source)
    arguments = ["--setup_file=./setup.py", "--sdk_location=container", TEMPLATE]
    described = describe("convert", *SETTINGS, *DATAFLOW, *arguments)
    assert described.code == 0
    (name,) = (name for name in objects(bucket, "staging/") if name.endswith(".tar.gz"))
    with tarfile.open(fileobj=io.BytesIO(bucket.blob(name).download_as_bytes())) as archive:
        names = {member.partition("/")[2] for member in archive.getnames()}
    assert {*modules(ROOT), "setup.py", "pyproject.toml"} <= names
    (pool,) = template(bucket, "made/job.json")["environment"]["workerPools"]
    assert any(package["location"].endswith(name) for package in pool["packages"])
    (image,) = described.environments()
    assert "beam_python3.11_sdk:2.77.0" in image.container_image, "without an image of ours it is Beam's own"


def test_the_launcher_of_the_flex_template_describes_the_job(
    bucket: Any, unlisted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its options are those that Google's launcher passes to the file in FLEX_TEMPLATE_PYTHON_PY_FILE."""
    options = [*SETTINGS, "--splits=train=0.8,test=0.2", "--overwrite=true", "--resume=false", *DATAFLOW,
               "--machine_type=n2-standard-2", "--service_account_email=me@example.com",
               '--labels={"goog-dataflow-provided-template-type": "flex"}', TEMPLATE]  # fmt: skip
    monkeypatch.setattr(sys, "argv", [str(MAIN), *options])
    monkeypatch.setenv("SHARDWRIGHT_IMAGE", IMAGE)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(MAIN), run_name="__main__")
    assert ended.value.code == 0
    (pool,) = template(bucket, "made/job.json")["environment"]["workerPools"]
    assert [item["containerImage"] for item in pool["sdkHarnessContainerImages"]] == [IMAGE]


@pytest.mark.slow  # it builds the package; `make package-test` runs it, too
def test_the_templates_file_runs_with_only_the_package_installed(source: Path, tmp_path: Path) -> None:
    """The package as workers get it: built from its source, without access to this repository."""
    place = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True, timeout=60)
    (site,) = place.glob("lib/python*/site-packages")
    (ours,) = Path(sys.prefix).glob("lib/python*/site-packages")
    # Its dependencies come from here; lines of .pth files with only a path run no code.
    (site / "dependencies.pth").write_text(f"{ours}\n")
    build = [
        sys.executable,
        "setup.py",
        "-q",
        "build",
        "--build-base",
        tmp_path / "build",
        "--build-lib",
        site,
    ]
    subprocess.run(build, cwd=source, check=True, timeout=60, capture_output=True)
    shutil.copy(MAIN, tmp_path / "main.py")
    python = [place / "bin" / "python", tmp_path / "main.py"]
    options = ["--input", PHOTOS, "--output", "out", "--resize=16", "--limit=6", "--overwrite=false"]
    subprocess.run([*python, *options], cwd=tmp_path, check=True, timeout=60)
    assert (tmp_path / "out" / "dataset.json").exists()
    where = subprocess.run(
        [python[0], "-c", _WHERE],
        cwd=tmp_path, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert Path(where.strip()).is_relative_to(place)


@pytest.fixture
def fail(bucket: Any, unlisted: None) -> Iterator[Callable[..., int]]:
    """Runs the command with a service that reports a failed job in Dataflow's words."""

    def run(*errors: Exception | str, state: JobState = JobState.JOB_STATE_FAILED) -> int:
        job = Job(id="2026-01-01_00_00_00-1", name="j", current_state=JobState.JOB_STATE_RUNNING)
        ended = Job(id=job.id, name="j", current_state=state)
        messages = [
            JobMessage(
                id=str(number),
                message_text=_as_dataflow(error) if isinstance(error, Exception) else error,
                message_importance=JobMessageImportance.JOB_MESSAGE_ERROR,
            )
            for number, error in enumerate(errors)
        ]
        answers = itertools.chain([job], itertools.repeat(ended))
        client = {
            "create_job": lambda self, job_: job,
            "get_job": lambda self, job_id: next(answers),
            "list_messages": lambda self, job_id, **named: (messages, None),
            "get_job_metrics": mock.Mock(side_effect=RuntimeError),
        }
        clock = SimpleNamespace(sleep=lambda seconds: None, time=lambda: 0.0)
        with (
            mock.patch.multiple(DataflowApplicationClient, **client),
            mock.patch.object(dataflow_runner, "time", clock),
        ):
            return describe("convert", *SETTINGS, *DATAFLOW, *IN_CONTAINER).code

    yield run


def _as_dataflow(error: Exception) -> str:
    """Returns Dataflow's text for a worker's exception; Beam adds the step to its message."""
    name = f"{type(error).__module__}.{type(error).__qualname__}"
    raised = type(error)(f"{error.args[0]} [while running 'CommitDataset/Commit-ptransform-41']")
    return (
        "generic::unknown: Traceback (most recent call last):\n"
        '  File "apache_beam/runners/common.py", line 1500, in apache_beam.runners.common.process\n'
        '  File "/usr/local/lib/python3.11/site-packages/shardwright/transforms/commit.py", line 9'
        f"\n{name}: {raised}\n\npasses: 4"
    )


LAST_WORD = (
    "Workflow failed. Causes: S07:CommitDataset/Commit failed., The job failed because a work item has "
    "failed 4 times. Look in previous log entries for the cause of each one of the 4 failures."
)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DataRefused("3 of 6 images are bad: nothing was published."), 1),
        (EngineError("Cannot write a shard to gs://x: permission denied."), 3),
        (RuntimeError("boom"), 3),
    ],
)
def test_a_failed_job_ends_the_command_with_its_code_and_message(
    error: Exception, code: int, fail: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert fail(error, error, LAST_WORD) == code
    where, shown = capsys.readouterr().err.splitlines()
    assert "the job runs as 2026-01-01_00_00_00-1: https://" in where
    assert str(getattr(error, "message", "engine failed")) in shown


def test_a_cancelled_job_is_an_error(fail: Callable[..., int]) -> None:
    assert fail(state=JobState.JOB_STATE_CANCELLED) == 3


JAR = "--output_executable_path=nowhere/job.jar"
JOB = f"""
input: gs://{BUCKET}/photos
output: gs://{BUCKET}/pets
resize: 64
gates: {{max_count_drop: 0.1}}
runner: {{runner: DataflowRunner, region: europe-north1, max_num_workers: 3}}
"""


def launch(monkeypatch: pytest.MonkeyPatch, *options: str) -> Any:
    """Starts the template's file like Google's launcher; returns the exit code."""
    monkeypatch.setattr(sys, "argv", [str(MAIN), *options, *DATAFLOW, TEMPLATE])
    monkeypatch.setenv("SHARDWRIGHT_IMAGE", IMAGE)
    monkeypatch.setenv("FLEX_TEMPLATE_PYTHON_PY_FILE", str(MAIN))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(MAIN), run_name="__main__")
    return ended.value.code


def test_the_template_describes_a_rebuild(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.blob("jobs/pets.yaml").upload_from_string(JOB)
    assert launch(monkeypatch, f"--job=gs://{BUCKET}/jobs/pets.yaml", "--disk_size_gb=50") == 0
    made = template(bucket, "made/job.json")
    (pool,) = made["environment"]["workerPools"]
    assert [item["containerImage"] for item in pool["sdkHarnessContainerImages"]] == [IMAGE]
    assert pool["diskSizeGb"] == 50 and pool["autoscalingSettings"]["maxNumWorkers"] == 3
    options = made["environment"]["sdkPipelineOptions"]["options"]
    assert options["region"] == "us-central1", "what the launch says goes before the job file"
    assert not [name for name in objects(bucket, "pets") if name.endswith(("latest.json", "dataset.json"))]
    # The running job takes the lease. A job that is only described must not block others.
    assert "pets/lease.json" not in objects(bucket, "pets")


@pytest.mark.parametrize("way", [[*DATAFLOW, TEMPLATE], ["--runner=FlinkRunner", JAR]])
def test_classic_templates_of_rebuilds_are_refused(
    way: list[str], bucket: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket.blob("jobs/pets.yaml").upload_from_string(JOB.replace("runner: DataflowRunner, ", ""))
    before = objects(bucket)
    assert cli.main(["rebuild", f"--job=gs://{BUCKET}/jobs/pets.yaml", *way]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "Flex Template" in err
    assert objects(bucket) == before and not os.path.exists(JAR.partition("=")[2])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "no such object"),
        ("input: gs://b/x\nqualty: 3", "did you mean quality?"),
        ("output: [", "this is not YAML"),
    ],
    ids=["missing", "misspelt", "not YAML"],
)
def test_a_wrong_job_file_starts_no_job(
    content: str | None, says: str, bucket: Any, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    if content is not None:
        bucket.blob("jobs/pets.yaml").upload_from_string(content)
    assert launch(monkeypatch, f"--job=gs://{BUCKET}/jobs/pets.yaml") == 2
    err = capsys.readouterr().err
    assert f"gs://{BUCKET}/jobs/pets.yaml" in err and says in err
    assert "made/job.json" not in objects(bucket)
