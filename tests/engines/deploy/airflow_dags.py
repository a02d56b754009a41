"""Imports the DAGs, runs their operators and prints the results; test_schedulers.py starts it in Airflow."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from airflow.dag_processing.dagbag import DagBag
from airflow.providers.google.cloud.hooks.dataflow import DataflowHook
from airflow.sdk.exceptions import AirflowException

DAGS, SCRATCH = Path(sys.argv[1]), Path(sys.argv[2])
CODES = (0, 1, 2, 3, 130)
MESSAGES = {
    "refused": [
        {"messageText": "Traceback\n x: <shardwright:1>The drift is too large.</shardwright> [while"}
    ],
    "disk full": [{"messageText": "Workflow failed. <shardwright:3>No space left.</shardwright>"}],
    "silent": [{}, {"messageText": "Workflow failed."}],
    "unreadable": RuntimeError("no permission to read the log"),
}


def outcome(run: Any) -> dict[str, str]:
    """Returns the state in which a task would end after this exception."""
    try:
        run()
    except AirflowException as error:
        return {"raised": type(error).__name__, "message": str(error)}
    return {"raised": "", "message": ""}


def local(task: Any) -> dict[str, Any]:
    """Runs the local operator with a command that ends with each exit code."""
    command = SCRATCH / "shardwright"
    found = {}
    for code in CODES:
        command.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{SCRATCH}/arguments\nexit {code}\n')
        command.chmod(0o755)
        task.bash_command = task.bash_command.replace("/opt/shardwright/bin/shardwright", str(command))
        found[str(code)] = outcome(lambda: task.execute({}))
    return {"codes": found, "arguments": (SCRATCH / "arguments").read_text().splitlines()}


def dataflow(task: Any) -> dict[str, Any]:
    """Runs the Dataflow operator with a service that reports a failed job."""
    sent = {}
    job = {"id": "j-1", "projectId": "my-project", "location": "europe-west1"}

    def start(self: Any, on_new_job_callback: Any, **request: Any) -> Any:
        sent.update(request)
        on_new_job_callback(job)
        raise AirflowException("Google Cloud Dataflow job j-1 has failed.")

    found = {}
    link = "airflow.providers.google.cloud.operators.dataflow.DataflowJobLink.persist"
    for name, messages in MESSAGES.items():
        log = mock.Mock(side_effect=messages if isinstance(messages, Exception) else [messages])
        with (
            mock.patch.object(DataflowHook, "__init__", lambda *_, **__: None),
            mock.patch.object(DataflowHook, "start_flex_template", start),
            mock.patch.object(DataflowHook, "fetch_job_messages_by_id", log),
            mock.patch(link),
        ):
            found[name] = outcome(lambda: task.execute({}))
        assert log.call_args.kwargs == {
            "job_id": "j-1",
            "project_id": "my-project",
            "location": "europe-west1",
        }
    task.job = None
    with (
        mock.patch.object(DataflowHook, "__init__", lambda *_, **__: None),
        mock.patch.object(DataflowHook, "start_flex_template", side_effect=AirflowException("quota")),
    ):
        found["not started"] = outcome(lambda: task.execute({}))
    return {"ends": found, "sent": sent}


def main() -> None:
    """Prints the results as JSON."""
    bag = DagBag(str(DAGS))
    found: dict[str, Any] = {"errors": {str(key): str(value) for key, value in bag.import_errors.items()}}
    for dag_id, dag in bag.dags.items():
        (task,) = dag.tasks
        task.render_template_fields({"params": {"job": "JOB 'of' \"$(hostile)\".yaml"}})
        found[dag_id] = {
            "catchup": dag.catchup,
            "max_active_runs": dag.max_active_runs,
            "retries": task.retries,
            **(local(task) if hasattr(task, "bash_command") else dataflow(task)),
        }
    print("FOUND " + json.dumps(found, default=str))


main()
