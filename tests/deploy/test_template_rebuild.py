"""The Flex Template with a job file in a bucket describes the job of a rebuild."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.cloud import BUCKET, DATAFLOW, IMAGE, objects, storage_emulator, template, upload
from helpers.repository import PHOTOS, ROOT

from shardwright.pipelines import cli

MAIN = ROOT / "deploy" / "dataflow" / "main.py"
TEMPLATE = f"--template_location=gs://{BUCKET}/made/job.json"
JAR = "--output_executable_path=nowhere/job.jar"
JOB = f"""
input: gs://{BUCKET}/photos
output: gs://{BUCKET}/pets
resize: 64
gates: {{max_count_drop: 0.1}}
runner: {{runner: DataflowRunner, region: europe-north1, max_num_workers: 3}}
"""


@pytest.fixture
def bucket() -> Iterator[Any]:
    with storage_emulator() as bucket:
        upload(bucket, PHOTOS, "photos", 3)
        yield bucket


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
