"""The DAGs for Airflow: parsed without Airflow everywhere, imported and run with it if it is installed."""

from __future__ import annotations

import ast
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
from helpers.google_apis import check_launch
from helpers.repository import ROOT

from shardwright.schemas.errors import DataRefused, EngineError, ShardwrightError, UsageError

FOLDER = ROOT / "deploy" / "airflow"
LOCAL, DATAFLOW = FOLDER / "shardwright_local.py", FOLDER / "shardwright_dataflow.py"
AIRFLOW = ROOT / "build" / "airflow-venv" / "bin" / "python"


class Told:
    """Accepts any arguments, and is a context manager."""

    made: ClassVar[list[Any]] = []

    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments
        Told.made.append(self)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Returns the objects that a DAG file creates; fake modules in Airflow's place record the calls."""
    monkeypatch.setattr(Told, "made", [])
    for path in (LOCAL, DATAFLOW):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or not str(node.module).startswith("airflow"):
                continue
            parts = str(node.module).split(".")
            for count in range(1, len(parts) + 1):
                name = ".".join(parts[:count])
                monkeypatch.setitem(sys.modules, name, sys.modules.get(name) or ModuleType(name))
            for item in node.names:
                kind = Exception if item.name.endswith("Exception") else Told
                setattr(sys.modules[str(node.module)], item.name, type(item.name, (kind,), {}))
    clock = ModuleType("pendulum")
    clock.datetime = lambda *_, **__: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pendulum", clock)
    return Told.made


@pytest.mark.parametrize("path", [LOCAL, DATAFLOW], ids=lambda path: path.stem)
def test_a_dag_runs_each_night_and_never_twice_at_once(path: Path, made: list[Any]) -> None:
    runpy.run_path(str(path))
    dag, task = (item.arguments for item in made)
    assert dag["schedule"] == "0 2 * * *" and dag["max_active_runs"] == 1 and dag["catchup"] is False
    assert task["retries"] == 2 and task["execution_timeout"].total_seconds() < 86_400


def test_dataflow_accepts_the_request_of_the_dag(made: list[Any]) -> None:
    runpy.run_path(str(DATAFLOW))
    dag, task = (item.arguments for item in made)
    body = json.loads(json.dumps(task["body"]).replace("{{ params.job }}", dag["params"]["job"]))
    check_launch(body)
    assert task["append_job_name"] is False


@pytest.mark.parametrize("error", [DataRefused("Too few images."), UsageError("No such setting.")])
def test_the_dag_detects_failures_that_a_retry_would_repeat(error: ShardwrightError, made: list[Any]) -> None:
    refused = runpy.run_path(str(DATAFLOW))["REFUSED"]
    text = str(type(error)(f"{error.message} [while running 'GateVersion']"))
    assert refused.search(f"Traceback: {text} more")[1].startswith(error.message)
    assert not refused.search(str(EngineError("No space left. [while running 'x']")))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results of the DAGs with Airflow itself."""
    if not AIRFLOW.exists():
        pytest.skip("Airflow is not there: make airflow-test installs it")
    home = tmp_path_factory.mktemp("airflow")
    environment = {**os.environ, "AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    script = Path(__file__).with_name("airflow_dags.py")
    done = subprocess.run(
        [AIRFLOW, script, FOLDER, home], env=environment, capture_output=True, text=True, timeout=300
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert len(lines) == 1, done.stdout + done.stderr
    made: dict[str, Any] = json.loads(lines[0].removeprefix("FOUND "))
    assert made.pop("errors") == {}
    return made


HOSTILE = "JOB 'of' \"$(hostile)\".yaml"


def test_airflow_runs_the_local_dag(found: dict[str, Any]) -> None:
    dag = found["shardwright_pets"]
    ended = {int(code): end["raised"] for code, end in dag["codes"].items()}
    assert ended == {
        0: "", 1: "AirflowFailException", 2: "AirflowFailException",
        3: "AirflowException", 130: "AirflowException",
    }  # fmt: skip
    assert dag["arguments"] == ["rebuild", "--job", HOSTILE, "--log_format", "json"]


def test_airflow_runs_the_dataflow_dag(found: dict[str, Any]) -> None:
    dag = found["shardwright_pets_dataflow"]
    ended = {name: end["raised"] for name, end in dag["ends"].items()}
    others = dict.fromkeys(("disk full", "silent", "unreadable", "not started"), "AirflowException")
    assert ended == {"refused": "AirflowFailException", **others}
    assert dag["ends"]["refused"]["message"] == "The drift is too large."
    assert (dag["sent"]["project_id"], dag["sent"]["location"]) == ("my-project", "europe-west1")
    launched = dag["sent"]["body"]["launchParameter"]
    assert launched["parameters"]["job"] == HOSTILE, "Airflow filled it in"
    launched["parameters"]["job"] = "gs://my-bucket/jobs/pets.yaml"
    check_launch(dag["sent"]["body"])
