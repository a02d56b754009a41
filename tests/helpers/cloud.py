"""A fake Google Cloud: a bucket on this machine, and Dataflow jobs that are only described."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from apache_beam.options.pipeline_options import GoogleCloudOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner
from gcp_storage_emulator.server import create_server
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage as google_storage

from helpers.servers import free_port
from shardwright.pipelines import cli

BUCKET = "kit-bucket"
#: A Dataflow job that contacts no server except the storage.
DATAFLOW = (
    "--runner=DataflowRunner", "--no_auth", "--project=test-project", "--region=us-central1",
    f"--temp_location=gs://{BUCKET}/tmp", f"--staging_location=gs://{BUCKET}/staging", "--job_name=j",
)  # fmt: skip
IMAGE = "europe-west1-docker.pkg.dev/test-project/images/shardwright:1.0"
IN_CONTAINER = ("--sdk_location=container", f"--sdk_container_image={IMAGE}")


@contextlib.contextmanager
def storage_emulator() -> Iterator[Any]:
    """Runs a storage server with an empty bucket, for Beam and for this project; yields the bucket."""
    port = free_port()
    environment = {"STORAGE_EMULATOR_HOST": f"http://localhost:{port}", "NO_GCE_CHECK": "true"}
    server = create_server("localhost", port, in_memory=True, default_bucket=BUCKET)
    server.start()
    try:
        with (
            mock.patch.dict(os.environ, environment),
            # It would ask the real storage about the bucket, with retries.
            mock.patch.object(GoogleCloudOptions, "_warn_if_soft_delete_policy_enabled"),
        ):
            client = google_storage.Client("test-project", AnonymousCredentials())
            client._http.trust_env = False
            yield client.bucket(BUCKET)
    finally:
        server.stop()


def upload(bucket: Any, folder: Path, name: str, limit: int = 1000) -> str:
    """Uploads the files of a folder; returns their `gs://` path."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file())[:limit]:
        bucket.blob(f"{name}/{path.relative_to(folder).as_posix()}").upload_from_filename(str(path))
    return f"gs://{bucket.name}/{name}"


def objects(bucket: Any, prefix: str = "") -> list[str]:
    """Returns the names of the objects in a bucket."""
    return sorted(blob.name for blob in bucket.client.list_blobs(bucket.name, prefix=prefix))


@dataclass
class Described:
    """The result of a command that described a job.

    Attributes:
      code: Exit code of the command.
      pipeline: Graph of the job, as Dataflow gets it.
    """

    code: int = -1
    pipeline: Any = None

    @property
    def steps(self) -> dict[str, Any]:
        """The graph's transforms by name."""
        return {item.unique_name: item for item in self.pipeline.components.transforms.values()}

    @property
    def top(self) -> list[str]:
        """The names of the graph's top-level steps."""
        transforms = self.pipeline.components.transforms
        (root,) = (transforms[name] for name in self.pipeline.root_transform_ids)
        return [transforms[name].unique_name for name in root.subtransforms]

    def environments(self) -> list[Any]:
        """The containers of the workers."""
        return [
            beam_runner_api_pb2.DockerPayload.FromString(environment.payload)
            for environment in self.pipeline.components.environments.values()
        ]


def describe(*arguments: Any) -> Described:
    """Runs a command of the command line and returns the Dataflow job that it describes."""
    made = Described()
    original = DataflowRunner.run_pipeline

    def run(runner: DataflowRunner, pipeline: Any, options: Any, *others: Any, **named: Any) -> Any:
        result = original(runner, pipeline, options, *others, **named)
        made.pipeline = runner.proto_pipeline
        return result

    with mock.patch.object(DataflowRunner, "run_pipeline", run):
        made.code = cli.main([str(argument) for argument in arguments])
    return made


def template(bucket: Any, name: str) -> dict[str, Any]:
    """Reads a job's description that was written to the bucket."""
    document: dict[str, Any] = json.loads(bucket.blob(name).download_as_bytes())
    return document
