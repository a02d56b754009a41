"""Dataflow jobs: their graph, the staged files, templates, and the last message of the launcher."""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.portability.common_urns import resource_hints
from apache_beam.runners.dataflow import dataflow_runner
from apache_beam.runners.dataflow.internal.apiclient import DataflowApplicationClient
from apache_beam.runners.portability.fn_api_runner import execution
from apache_beam.runners.portability.stager import Stager
from google.cloud.dataflow_v1beta3.types import Job, JobMessage, JobMessageImportance, JobState
from helpers.cloud import (
    BUCKET,
    DATAFLOW,
    IMAGE,
    IN_CONTAINER,
    Described,
    describe,
    objects,
    storage_emulator,
    template,
    upload,
)
from helpers.described import described as dataset_of
from helpers.repository import EXAMPLES, PHOTOS, ROOMS, ROOT, copy_photos, copy_source, ran

from shardwright.pipelines import cli
from shardwright.pipelines.convert import convert
from shardwright.pipelines.rebuild import rebuild
from shardwright.schemas.errors import DataRefused, EngineError

Capture = pytest.CaptureFixture[str]

MAIN = ROOT / "deploy" / "dataflow" / "main.py"
SETTINGS = (f"--input=gs://{BUCKET}/photos", f"--output=gs://{BUCKET}/out", "--resize=64")
#: A program that says where the command `convert` is, without importing what it needs.
_WHERE = "from importlib.util import find_spec; print(find_spec('shardwright.pipelines.convert').origin)"
TEMPLATE = f"--template_location=gs://{BUCKET}/made/job.json"


@pytest.fixture(scope="module")
def shared() -> Iterator[Any]:
    """A bucket with some photos; Beam does not list the packages here for each job, which takes a second."""
    with (
        storage_emulator() as bucket,
        mock.patch.object(Stager, "_create_stage_submission_env_dependencies", return_value=[]),
    ):
        upload(bucket, PHOTOS, "photos", 5)
        yield bucket


@pytest.fixture
def bucket(shared: Any) -> Any:
    """This bucket without what other tests wrote."""
    for name in objects(shared):
        if not name.startswith("photos/"):
            shared.blob(name).delete()
    return shared


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files needed for installation."""
    return copy_source(tmp_path_factory.mktemp("source"))


def modules(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for room in ROOMS for path in (folder / room).rglob("*.py")}


def test_a_job_in_a_container_stages_no_package(bucket: Any, capsys: Capture) -> None:
    workers = [
        "--machine_type=n2-standard-4", "--disk_size_gb=50", "--number_of_worker_harness_threads=1",
        "--max_num_workers=7", "--no_use_public_ips", "--service_account_email=me@example.com",
    ]  # fmt: skip
    assert describe("convert", *SETTINGS, *DATAFLOW, *IN_CONTAINER, *workers, TEMPLATE).code == 0
    assert f"written to the template gs://{BUCKET}/made/job.json" in capsys.readouterr().err
    staged = {name.rpartition("/")[2] for name in objects(bucket, "staging/")}
    assert staged == {"pipeline.pb"}
    assert objects(bucket, "out") == []
    environment = template(bucket, "made/job.json")["environment"]
    (pool,) = environment["workerPools"]
    assert [item["containerImage"] for item in pool["sdkHarnessContainerImages"]] == [IMAGE]
    assert (pool["machineType"], pool["diskSizeGb"], pool["numThreadsPerWorker"]) == ("n2-standard-4", 50, 1)
    assert pool["autoscalingSettings"]["maxNumWorkers"] == 7
    assert environment["serviceAccountEmail"] == "me@example.com"
    options = environment["sdkPipelineOptions"]["options"]
    assert options["number_of_worker_harness_threads"] == 1 and options["save_main_session"] is False


def test_a_job_with_the_setup_file_stages_the_whole_package(bucket: Any, source: Path) -> None:
    arguments = [f"--setup_file={source}/setup.py", "--sdk_location=container", TEMPLATE]
    described = describe("convert", *SETTINGS, *DATAFLOW, *arguments)
    assert described.code == 0
    (name,) = (name for name in objects(bucket, "staging/") if name.endswith(".tar.gz"))
    with tarfile.open(fileobj=io.BytesIO(bucket.blob(name).download_as_bytes())) as archive:
        names = {member.partition("/")[2] for member in archive.getnames()}
    typed = {f"{room}/py.typed" for room in ROOMS}
    assert {*modules(ROOT), *typed, "setup.py", "pyproject.toml"} <= names
    (pool,) = template(bucket, "made/job.json")["environment"]["workerPools"]
    assert any(package["location"].endswith(name) for package in pool["packages"])
    (image,) = described.environments()
    assert "beam_python3.11_sdk:2.77.0" in image.container_image, "without an image of ours it is Beam's own"


def test_the_launcher_of_the_flex_template_describes_the_job(
    bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its options are those that Google's launcher passes to the file in FLEX_TEMPLATE_PYTHON_PY_FILE."""
    options = [*SETTINGS, "--splits=train=0.8,test=0.2", "--overwrite=true", "--resume=false",
               "--machine_type=n2-standard-2", "--service_account_email=me@example.com",
               '--labels={"goog-dataflow-provided-template-type": "flex"}']  # fmt: skip
    assert launch(monkeypatch, *options) == 0
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
    folders = ["--build-base", tmp_path / "build", "--build-lib", site]
    build = [sys.executable, "setup.py", "-q", "build", *folders]
    subprocess.run(build, cwd=source, check=True, timeout=60, capture_output=True)
    shutil.copy(MAIN, tmp_path / "main.py")
    python = [place / "bin" / "python", tmp_path / "main.py"]
    options = ["--input", PHOTOS, "--output", "out", "--resize=16", "--limit=6", "--overwrite=false"]
    subprocess.run([*python, *options], cwd=tmp_path, check=True, timeout=60)
    assert (tmp_path / "out" / "dataset.json").exists()
    where = ran(python[0], "-c", _WHERE, cwd=tmp_path, check=True).stdout
    assert Path(where.strip()).is_relative_to(place)


@pytest.fixture
def fail(bucket: Any) -> Iterator[Callable[..., int]]:
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
    error: Exception, code: int, fail: Callable[..., int], capsys: Capture
) -> None:
    assert fail(error, error, LAST_WORD) == code
    where, shown = capsys.readouterr().err.splitlines()
    assert "the job runs as 2026-01-01_00_00_00-1: https://" in where
    assert str(getattr(error, "message", "engine failed")) in shown


def test_a_cancelled_job_is_an_error(fail: Callable[..., int]) -> None:
    assert fail(state=JobState.JOB_STATE_CANCELLED) == 3


def test_a_comparison_writes_its_report_on_this_machine(bucket: Any, tmp_path: Path) -> None:
    datasets = [upload(bucket, dataset_of(name), f"made/{name}") for name in ("photos", "gray")]
    report = f"--report={tmp_path / 'diff.json'}"
    assert describe("diff", *datasets, report, *DATAFLOW, *IN_CONTAINER, "--dry_run=True").code == 0


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
def test_classic_templates_of_rebuilds_are_refused(way: list[str], bucket: Any, capsys: Capture) -> None:
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
    capsys: Capture,
) -> None:  # fmt: skip
    if content is not None:
        bucket.blob("jobs/pets.yaml").upload_from_string(content)
    assert launch(monkeypatch, f"--job=gs://{BUCKET}/jobs/pets.yaml") == 2
    err = capsys.readouterr().err
    assert f"gs://{BUCKET}/jobs/pets.yaml" in err and says in err
    assert "made/job.json" not in objects(bucket)


#: Names that Beam gives to its own steps inside ours.
BEAM_STEP = re.compile(
    r"FlatMap\(<lambda at core\.py:\d+>\)|Map\(decode\)"
    r"|ParDo\((CombineValuesDoFn|_ListPart|_CheckShard|_GlobalWindowsBatchingDoFn)\)"
    r"|FlatMap\((_read_ledger|_compare_ledgers|_compare_bucket|_pair_renamed|compare)\)"
    r"|(Flat)?Map\((reify|restore)_metadata_default_window\)"
)
PRIME = "--dataflow_service_options=enable_prime"
MAX_BYTES = 20 * 10**6


def dry_run(bucket: Any, *arguments: str, command: str = "convert") -> Described:
    """Describes a job, which says so and writes nothing."""
    before = objects(bucket)
    settings = (f"--output=gs://{BUCKET}/out", "--resize=64", "--splits=train=0.8,test=0.2")
    photos = f"--input=gs://{BUCKET}/photos"
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        described = describe(
            command, photos, *settings, *arguments, *DATAFLOW, *IN_CONTAINER, "--dry_run=True"
        )
    assert (described.code, out.getvalue()) == (0, "")
    (line,) = err.getvalue().splitlines()
    assert "--dry_run described the job" in line and objects(bucket) == before
    return described


@pytest.fixture(scope="module")
def full_job(shared: Any) -> Described:
    """A conversion of two inputs with all checks, on Prime, with as many classes as ImageNet-21k."""
    names = "".join(f"class_{number:06d}\n" for number in range(20_000))
    shared.blob("names.txt").upload_from_string(names.encode())
    options = ("--dedupe=exact", "--verify=full", f"--class_names=gs://{BUCKET}/names.txt", PRIME)
    return dry_run(shared, f"--input=more=gs://{BUCKET}/photos", *options)


@pytest.fixture(scope="module")
def rebuild_job(shared: Any) -> Described:
    """A rebuild with all checks, after a version with a long description."""
    content = json.dumps({"shards": 10_000 * ["x"], "format_version": 1})
    for name in ("latest.json", "versions/20260101T000000Z/dataset.json"):
        shared.blob(f"out/{name}").upload_from_string(content)
    described = dry_run(shared, "--verify=full", command="rebuild")
    for blob in shared.client.list_blobs(shared.name, prefix="out/"):
        blob.delete()
    return described


@pytest.fixture(scope="module")
def jobs(full_job: Described, rebuild_job: Described) -> list[Described]:
    return [full_job, rebuild_job]


def test_the_steps_have_readable_names(jobs: list[Described]) -> None:
    for described in jobs:
        names = [name for name in described.steps if not name.startswith("ref_AppliedPTransform")]
        assert len(names) > 40
        for part in {part for name in names for part in name.split("/")}:
            assert re.fullmatch(r"([A-Z][a-z0-9]*)+", part) or BEAM_STEP.fullmatch(part), part


def test_only_the_step_that_converts_asks_prime_for_memory(jobs: list[Described]) -> None:
    hints = {resource_hints.MIN_RAM_BYTES.urn: b"4000000000"}
    for described, on_prime in zip(jobs, (True, False), strict=True):
        environments = described.pipeline.components.environments
        hinted = {
            name: dict(environments[step.environment_id].resource_hints)
            for name, step in described.steps.items()
            if step.environment_id and environments[step.environment_id].resource_hints
        }
        assert hinted == ({"WritePlannedShards/WriteShard": hints} if on_prime else {})


def test_each_job_is_one_graph_that_ends_with_its_last_step(jobs: list[Described]) -> None:
    for described in jobs:
        last = "PublishVersion/Publish" if "PublishVersion" in described.top else "CommitDataset/Commit/Call"
        steps, makers = described.steps, {}
        for name, step in steps.items():
            if not step.subtransforms:
                makers.update(dict.fromkeys(step.outputs.values(), name))
        commit = steps[last]
        used = {collection for step in steps.values() for collection in step.inputs.values()}
        assert used.isdisjoint(commit.outputs.values()), "a step follows the last one"
        waiting, before = [last], set()
        while waiting:
            name = waiting.pop()
            if name not in before:
                before.add(name)
                waiting += [makers[collection] for collection in steps[name].inputs.values()]
        assert before == {name for name, step in steps.items() if step.outputs and not step.subtransforms}


def test_the_writer_waits_for_the_check_of_keys(full_job: Described) -> None:
    step = full_job.steps["PlanShards/NamePlannedShards"]
    payload = beam_runner_api_pb2.ParDoPayload.FromString(step.spec.payload)
    sides = {step.inputs[tag] for tag in payload.side_inputs}
    makers = {
        name
        for name, other in full_job.steps.items()
        if not other.subtransforms and sides & set(other.outputs.values())
    }
    assert makers == {"PlanShards/CheckKeys", "PlanDataset/ForecastDataset/MakeForecast/Call"}


@pytest.mark.slow
def test_the_description_does_not_grow_with_the_images(shared: Any, tmp_path: Path) -> None:
    for number in range(300):
        shared.blob(f"many/ant/{number:08d}.jpg").upload_from_string(b"x")
    shared.blob("none/ant/1.jpg").upload_from_string(b"x")
    sizes = [len(dry_run(shared, f"--input={name}=gs://{BUCKET}/{name}").pipeline.SerializeToString())
             for name in ("many", "none")]  # fmt: skip
    assert abs(sizes[0] - sizes[1]) < 300  # less than a byte per image; the length of pickled times varies
    assert 10_000 < max(sizes) < MAX_BYTES / 50


def test_descriptions_contain_no_content_of_versions_and_few_names(jobs: list[Described]) -> None:
    """Only the steps of the forecast and of the dedupe contain the names of classes."""
    full_job, rebuild_job = (len(described.pipeline.SerializeToString()) for described in jobs)
    assert rebuild_job < MAX_BYTES / 50 and full_job < MAX_BYTES / 10


def test_the_workers_get_the_image(full_job: Described) -> None:
    assert {item.container_image for item in full_job.environments()} == {IMAGE}
    for environment in full_job.pipeline.components.environments.values():
        assert not environment.dependencies, "the image has all that workers need"


#: The first bytes of JPEG, PNG and WebP files.
MAGIC = re.compile(rb"\xff\xd8\xff[\xe0\xe1\xdb\xee]|\x89PNG\r\n\x1a\n|RIFF....WEBP", re.DOTALL)
PIECE = 32
SOURCES = [path.read_bytes() for path in sorted(EXAMPLES.rglob("*")) if path.is_file()]
#: Some bytes from the middle of each picture.
PIECES = [data[len(data) // 2 :][:PIECE] for data in SOURCES]


@pytest.fixture
def crossed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """All data that the in-process runner passes from one stage to the next."""
    found: list[bytes] = []

    def noting(buffer: type, name: str) -> None:
        original = getattr(buffer, name)

        def append(self: Any, data: bytes) -> None:
            found.append(bytes(data))
            original(self, data)

        monkeypatch.setattr(buffer, name, append)

    noting(execution.ListBuffer, "append")
    noting(execution.GroupingBuffer, "append")
    noting(execution.WindowGroupingBuffer, "append")
    yield found


def images_in(crossed: list[bytes]) -> int:
    return sum(bool(MAGIC.search(data)) or any(piece in data for piece in PIECES) for data in crossed)


def test_the_recorder_detects_images_that_cross(crossed: list[bytes]) -> None:
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        _ = pipeline | beam.Create(SOURCES[:3], reshuffle=False) | beam.Reshuffle()
    assert images_in(crossed) >= 1
    assert sum(map(len, crossed)) > sum(map(len, SOURCES[:3]))


@pytest.mark.parametrize(
    "settings",
    [
        {"resize": 64, "verify": "full"},
        {"dedupe": "exact", "split_by": "(.)", "compression": "gzip"},  # this keeps the original bytes
        {"resize": 32, "image_format": "raw", "verify": "none"},
    ],
    ids=["jpeg", "keep", "raw"],
)
def test_no_image_crosses_from_stage_to_stage(
    settings: dict[str, Any], crossed: list[bytes], tmp_path: Path
) -> None:
    source = copy_photos(tmp_path / "in", 2, EXAMPLES)
    sizes = [path.stat().st_size for path in source.rglob("*.*")]
    places = {"input": str(source), "output": str(tmp_path / "out"), "splits": "train=0.8,test=0.2"}
    options = ["--runner=FnApiRunner", "--direct_num_workers=1"]
    made = convert(**places, **settings, shards=3, beam_options=options)
    assert made.dataset.all_records == len(sizes)
    assert len(crossed) > 10
    assert images_in(crossed) == 0
    # References, the plan, one result per shard, and the lines of ledgers that are compared.
    assert sum(map(len, crossed)) < sum(sizes) / 12


@pytest.mark.sampled(1)
@pytest.mark.parametrize("verify", ["fast", "quality"])
def test_no_image_crosses_in_a_rebuild(verify: str, crossed: list[bytes], tmp_path: Path) -> None:
    source = copy_photos(tmp_path / "in", 6, EXAMPLES)
    images = sum(path.is_file() for path in source.rglob("*"))
    places = {"input": str(source), "output": str(tmp_path / "out"), "splits": "train=0.8,test=0.2"}
    options = ["--runner=FnApiRunner", "--direct_num_workers=1"]
    # The second one copies the records that it does not reuse as a whole shard.
    for kept in (images, images - 1):
        made = rebuild(**places, verify=verify, shards=3, beam_options=options)
        assert made.outcome["records"] == kept
        assert len(crossed) > 10
        assert images_in(crossed) == 0
        crossed.clear()
        next(source.glob("birds/*")).unlink()
    assert made.outcome["work"]["copied"]
