"""Files for systemd, cron, Kubernetes, Cloud Scheduler and Airflow are valid; alerts are sent."""

from __future__ import annotations

import ast
import base64
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import kubernetes_validate
import pytest
import yaml
from helpers.google_apis import check, check_launch, launch_path
from helpers.repository import ROOT, put_script, ran
from helpers.storage.scripted import Answers, Response, serving

from shardwright.pipelines import cli
from shardwright.pipelines.job_file import read_job
from shardwright.schemas.codes import ExitCode
from shardwright.schemas.errors import DataRefused, EngineError, ShardwrightError, UsageError

DEPLOY = ROOT / "deploy"
SYSTEMD = DEPLOY / "systemd"
SCHEDULE = DEPLOY / "cloud_scheduler" / "schedule.sh"
DAY_SECONDS = 86_400
#: Ignored when a dry run is compared with the original.
FINAL = {ExitCode.REFUSED, ExitCode.USAGE}

needs_systemd = pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed (Debian: systemd)"
)


def unit(name: str) -> dict[str, list[str]]:
    """Returns the content of a unit: key -> its values."""
    found: dict[str, list[str]] = {}
    for line in (SYSTEMD / name).read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units, with commands that exist here."""
    program = put_script(tmp_path / "program", "")
    for path in [*SYSTEMD.glob("*.service"), *SYSTEMD.glob("*.timer")]:
        text = re.sub(r"/opt/shardwright/bin/\w+", str(program), path.read_text())
        (tmp_path / path.name).write_text(text)
    return tmp_path


def analyze(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return ran("systemd-analyze", *arguments, cwd=folder)


@needs_systemd
def test_systemd_accepts_the_units(units: Path) -> None:
    names = ["shardwright-rebuild@pets.service", "shardwright-rebuild@pets.timer"]
    names.append("shardwright-alert@shardwright-rebuild@pets.service.service")
    done = analyze(units, "verify", *(f"./{name}" for name in names))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@needs_systemd
def test_the_timer_elapses_every_day(units: Path) -> None:
    (when,) = unit("shardwright-rebuild@.timer")["OnCalendar"]
    done = analyze(units, "calendar", "--iterations=3", "--base-time=2026-03-28 12:00:00 UTC", when)
    assert done.returncode == 0
    found = re.findall(r"2026-(\d\d-\d\d) 02:00:00 UTC", done.stdout)
    assert list(dict.fromkeys(found)) == ["03-29", "03-30", "03-31"]


@needs_systemd
def test_the_service_has_few_permissions(units: Path) -> None:
    done = analyze(units, "security", "--offline=true", "./shardwright-rebuild@pets.service")
    (exposure,) = re.findall(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert float(exposure) < 4


def test_the_service_retries_by_exit_code() -> None:
    settings = unit("shardwright-rebuild@.service")
    assert {int(code) for code in settings["RestartPreventExitStatus"][0].split()} == FINAL
    assert settings["SuccessExitStatus"] == [str(int(ExitCode.INTERRUPTED))] and "KillSignal" not in settings
    assert settings["Restart"] == ["on-failure"] and settings["Type"] == ["oneshot"]
    (hours,) = re.fullmatch(r"(\d+)h", settings["TimeoutStartSec"][0]).groups()  # type: ignore[union-attr]
    assert int(hours) * 3600 < DAY_SECONDS
    (alert,) = settings["OnFailure"]
    assert (SYSTEMD / alert.replace("%n", "")).exists()


def cron_line() -> tuple[dict[str, str], list[str], str]:
    """Returns the variables of a crontab, its five fields and user, and the command as the shell gets it."""
    variables, entries = {}, []
    for line in (DEPLOY / "cron" / "shardwright").read_text().splitlines():
        if match := re.fullmatch(r"([A-Z]+)=(\S+)", line):
            variables[match[1]] = match[2]
        elif line and not line.startswith("#"):
            entries.append(line)
    (entry,) = entries
    *fields, command = entry.split(maxsplit=6)
    assert not re.search(r"(?<!\\)%", command), "cron makes a line break of it"
    return variables, fields, command.replace("\\%", "%")


def dry_run_of_cron() -> str | None:
    """Returns the option with which crontab only checks a table; None if crontab has no such option."""
    if not shutil.which("crontab"):
        return None
    usage = ran("crontab", "-h")
    match = re.search(r"^\s*(-[nT])\b.*(dry run|[Tt]est)", usage.stdout + usage.stderr, re.MULTILINE)
    return match[1] if match else None


def test_cron_accepts_the_line(tmp_path: Path) -> None:
    text = (DEPLOY / "cron" / "shardwright").read_text()
    variables, (minute, hour, *days, user), _ = cron_line()
    assert text.endswith("\n"), "cron ignores a last line without end"
    assert int(minute) in range(60) and int(hour) in range(24) and days == ["*"] * 3
    assert user == "shardwright" and {"PATH", "MAILTO", "SHELL"} <= set(variables)
    # This checks tables of users, which have no column for the user.
    if (dry := dry_run_of_cron()) is not None:
        table = tmp_path / "table"
        table.write_text(re.sub(r"(?m)^(17 2 \* \* \*) shardwright", r"\1", text))
        assert ran("crontab", dry, table).returncode == 0


@pytest.mark.parametrize(("code", "says"), [(0, ""), (1, "exit code 1"), (3, "exit code 3")])
def test_cron_mails_only_failures(code: int, says: str, tmp_path: Path) -> None:
    variables, _, command = cron_line()
    put_script(tmp_path / "shardwright", f'echo "{{}}" "$@"\necho the reason >&2\nexit {code}\n')
    environment = variables | {"PATH": f"{tmp_path}:/usr/bin:/bin", "LOGS": str(tmp_path)}
    done = ran("/bin/sh", "-c", command, env=environment)
    (log,) = tmp_path.glob("pets-[1-7].log")
    assert log.read_text() == "{} rebuild --job /etc/shardwright/pets.yaml --log_format json\nthe reason\n"
    assert done.stderr == "" and says in done.stdout
    assert bool(done.stdout) == bool(code) == ("the reason" in done.stdout)


@pytest.fixture(scope="module")
def manifests() -> dict[str, Any]:
    documents = yaml.safe_load_all((DEPLOY / "kubernetes" / "cronjob.yaml").read_text())
    return {document["kind"]: document for document in documents}


@pytest.mark.parametrize("version", ["1.31", "1.34", kubernetes_validate.latest_version()])
def test_kubernetes_accepts_the_manifests(version: str, manifests: dict[str, Any]) -> None:
    for manifest in manifests.values():
        kubernetes_validate.validate(manifest, version, strict=True)


def test_the_cron_job_retries_by_exit_code(manifests: dict[str, Any]) -> None:
    spec = manifests["CronJob"]["spec"]
    job = spec["jobTemplate"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    assert spec["concurrencyPolicy"] == "Forbid" and job["activeDeadlineSeconds"] < DAY_SECONDS
    assert pod["restartPolicy"] == "Never", "a podFailurePolicy demands it"
    final = job["podFailurePolicy"]["rules"][0]
    assert final["action"] == "FailJob" and final["onExitCodes"]["operator"] == "In"
    assert set(final["onExitCodes"]["values"]) == FINAL
    assert final["onExitCodes"]["containerName"] == container["name"]


def test_the_parts_of_the_cron_job_fit_together(manifests: dict[str, Any], tmp_path: Path) -> None:
    pod = manifests["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["serviceAccountName"] == manifests["ServiceAccount"]["metadata"]["name"]
    places = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert set(places.values()) == set(volumes)
    folder, _, file = container["command"][container["command"].index("--job") + 1].rpartition("/")
    assert volumes[places[folder]]["configMap"] == {"name": manifests["ConfigMap"]["metadata"]["name"]}
    assert {item["value"] for item in container["env"]} <= set(places), "the rest cannot be written to"
    (tmp_path / file).write_text(manifests["ConfigMap"]["data"][file])
    job = read_job(str(tmp_path / file))
    wait = container["command"][container["command"].index("--wait") + 1]
    assert float(wait) > job.rules.lease_minutes, "or the lease of a killed pod outlasts the next one"


def test_the_command_knows_all_options_of_the_schedulers(capsys: pytest.CaptureFixture[str]) -> None:
    texts = [*SYSTEMD.glob("*.service"), DEPLOY / "cron" / "shardwright", *DEPLOY.glob("airflow/*.py")]
    texts.append(DEPLOY / "kubernetes" / "cronjob.yaml")
    lines = [line for path in texts for line in path.read_text().splitlines()]
    calls = [line for line in lines if re.search(r"shardwright\S*\W+rebuild\b.*--job", line)]
    assert len(calls) == 4, "systemd, cron, Kubernetes and Airflow"
    with pytest.raises(SystemExit):
        cli.main(["rebuild", "--help"])
    known = set(re.findall(r"--\w+", capsys.readouterr().out))
    given = {option for line in calls for option in re.findall(r"--\w+", line)}
    assert given == {"--job", "--log_format", "--wait"} and given <= known


#: The variables that schedule.sh requires, and one of each optional kind.
PLACES = {
    "PROJECT": "my-project", "REGION": "europe-west1", "BUCKET": "my-bucket",
    "TEMPLATE": "gs://my-bucket/templates/shardwright.json", "JOB": "gs://my-bucket/jobs/pets.yaml",
    "SERVICE_ACCOUNT": "w@my-project.iam.gserviceaccount.com",
}  # fmt: skip
MORE = {"MACHINE_TYPE": "e2-standard-8", "MAX_WORKERS": "7",
        "SUBNETWORK": "regions/europe-west1/subnetworks/s", "DISK_GB": "90",
        "NAME": "n-1", "SCHEDULER_ACCOUNT": "s@x.com", "SCHEDULE": "5 1 * * 1-5"}  # fmt: skip


def schedule(
    tmp_path: Path, *arguments: str, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    put_script(tmp_path / "gcloud", 'printf "%s\\0" "$@"\n')
    return ran(SCHEDULE, *arguments, env={"PATH": f"{tmp_path}:/usr/bin:/bin"} | environment)


@pytest.mark.parametrize("more", [{}, MORE], ids=["least", "all"])
def test_dataflow_accepts_the_request_of_cloud_scheduler(more: dict[str, str], tmp_path: Path) -> None:
    done = schedule(tmp_path, "body", environment=PLACES | more)
    assert done.returncode == 0, done.stderr
    body = json.loads(done.stdout)
    check_launch(body)
    launched = body["launchParameter"]
    assert launched["parameters"]["job"] == PLACES["JOB"]
    assert launched["jobName"] == more.get("NAME", "shardwright-pets")
    assert launched["environment"]["maxWorkers"] == (7 if more else 20)
    assert launched["environment"].get("machineType") == more.get("MACHINE_TYPE")
    assert launched["environment"].get("subnetwork") == more.get("SUBNETWORK")


@pytest.mark.parametrize("action", ["create", "update"])
def test_cloud_scheduler_accepts_the_schedule(action: str, tmp_path: Path) -> None:
    done = schedule(tmp_path, action, environment=PLACES | MORE)
    assert done.returncode == 0, done.stderr
    words = done.stdout.split("\0")[:-1]
    assert words[:5] == ["scheduler", "jobs", action, "http", "n-1"]
    options = dict(zip(words[5::2], words[6::2], strict=True))
    # Each of the two commands has its own option: create sets headers, update changes them.
    header = options.pop({"create": "--headers", "update": "--update-headers"}[action])
    name, _, value = header.partition("=")
    account, scope = options["--oauth-service-account-email"], options["--oauth-token-scope"]
    body = options["--message-body"]
    job = {
        "name": f"projects/{options['--project']}/locations/{options['--location']}/jobs/n-1",
        "schedule": options["--schedule"],
        "timeZone": options["--time-zone"],
        "attemptDeadline": options["--attempt-deadline"],
        "retryConfig": {
            "retryCount": int(options["--max-retry-attempts"]),
            "minBackoffDuration": options["--min-backoff"],
        },
        "httpTarget": {
            "uri": options["--uri"],
            "httpMethod": options["--http-method"],
            "headers": {name: value},
            "body": base64.b64encode(body.encode()).decode(),
            "oauthToken": {"serviceAccountEmail": account, "scope": scope},
        },
    }
    check("cloudscheduler.v1", "Job", job)
    assert options["--uri"] == launch_path("my-project", "europe-west1")
    assert (options["--schedule"], options["--time-zone"]) == (MORE["SCHEDULE"], "Etc/UTC")
    assert account == MORE["SCHEDULER_ACCOUNT"] and header == "Content-Type=application/json"
    check_launch(json.loads(body))


@pytest.mark.parametrize(
    ("arguments", "changes", "says"),
    [
        ((), {}, "say create, update or body"),
        (("body", "more"), {}, "say create, update or body"),
        (("body",), {"JOB": ""}, "JOB is not set"),
        (("body",), {"JOB": "pets.yaml"}, "pets.yaml is not an object in a bucket"),
        (("body",), {"TEMPLATE": "gs://b"}, "gs://b is not an object in a bucket"),
        (("body",), {"JOB": 'gs://b/x", "y": ".yaml', "NAME": "n"}, "has a quote"),
        (("body",), {"PROJECT": "a\nb"}, "has a quote, a backslash or a line break"),
        (("body",), {"PROJECT": "a\\u"}, "has a quote, a backslash or a line break"),
        (("body",), {"JOB": "gs://b/My_Pets.yaml"}, "NAME is shardwright-My_Pets"),
        (("body",), {"MAX_WORKERS": "7, 8"}, "whole numbers"),
    ],
)
def test_the_schedule_script_reports_mistakes(
    arguments: tuple[str, ...], changes: dict[str, str], says: str, tmp_path: Path
) -> None:
    done = schedule(tmp_path, *arguments, environment=PLACES | changes)
    assert done.returncode == 2 and says in done.stderr and done.stdout == ""
    assert os.access(SCHEDULE, os.X_OK)


ALERT = ROOT / "deploy" / "systemd" / "alert.py"
UNIT = "shardwright-rebuild@pets.service"


class Chat(Answers):
    """A server for webhooks; `messages` lists what it got."""

    def __init__(self) -> None:
        super().__init__()
        self.url, self.messages = "", list[dict[str, str]]()

    def answer(self, method: str, target: str, headers: Any, body: bytes) -> Response:
        self.messages.append(json.loads(body))
        return Response(status=500 if target == "/broken" else 200)


@pytest.fixture
def chat() -> Iterator[Chat]:
    chat = Chat()
    with serving(chat) as chat.url:
        yield chat


def alert(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the alert with a fake journal if there is none, and a sendmail that stores the mail."""
    log = r'printf "first\nlast: \377ü\n"'
    if not (folder / "journalctl").exists():
        put_script(folder / "journalctl", f'echo "$@" >{folder}/asked\n{log}\n')
    put_script(folder / "sendmail", f"cat >{folder}/mail\n")
    return ran(sys.executable, ALERT, UNIT, env={"PATH": f"{folder}:/usr/bin:/bin"} | environment)


@pytest.mark.parametrize(
    ("status", "result", "says"),
    [
        ("1", "exit-code", "a gate refused"),
        ("2", "exit-code", "the job file, its settings or its input are wrong"),
        ("3", "exit-code", "the machine, the network or the storage failed"),
        ("137", "exit-code", "it ended with exit-code 137"),
        ("KILL", "signal", "it ended with signal KILL"),
        ("", "", "its log says why"),
    ],
)
def test_a_webhook_gets_the_reason_and_the_log(
    status: str, result: str, says: str, chat: Chat, tmp_path: Path
) -> None:
    reason = {"MONITOR_EXIT_STATUS": status, "MONITOR_SERVICE_RESULT": result}
    done = alert(tmp_path, ALERT_WEBHOOK=chat.url, **reason)
    assert (done.returncode, done.stderr) == (0, "")
    (message,) = chat.messages
    assert set(message) == {"text"} and says in message["text"] and message["text"].startswith(UNIT)
    assert message["text"].endswith("first\nlast: �ü\n")
    assert UNIT in (tmp_path / "asked").read_text().split()


def test_a_mail_is_sent_even_if_the_webhook_fails(chat: Chat, tmp_path: Path) -> None:
    done = alert(tmp_path, ALERT_WEBHOOK=f"{chat.url}/broken", ALERT_MAIL="team@example.com")
    assert done.returncode == 1 and "post failed" in done.stderr and "Traceback" not in done.stderr
    mail = (tmp_path / "mail").read_text()
    assert "To: team@example.com" in mail and f"Subject: {UNIT} failed" in mail


def test_an_alert_is_sent_even_if_the_log_cannot_be_read(chat: Chat, tmp_path: Path) -> None:
    (tmp_path / "journalctl").write_text("#!/nowhere")
    (tmp_path / "journalctl").chmod(0o700)
    done = alert(tmp_path, PATH=str(tmp_path), ALERT_WEBHOOK=chat.url, MONITOR_EXIT_STATUS="3")
    assert (done.returncode, done.stderr) == (0, "")
    (message,) = chat.messages
    assert "the storage failed" in message["text"] and "Its log cannot be read: " in message["text"]


@pytest.mark.parametrize("where", ["http://127.0.0.1:9", "no address", "https://h/a b", None])
def test_an_alert_that_cannot_be_sent_fails_in_one_line(where: str | None, tmp_path: Path) -> None:
    done = alert(tmp_path, **({"ALERT_WEBHOOK": where} if where else {}))
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert where or "neither ALERT_WEBHOOK nor ALERT_MAIL is set" in done.stderr


FOLDER = ROOT / "deploy" / "airflow"
LOCAL, DATAFLOW = FOLDER / "shardwright_local.py", FOLDER / "shardwright_dataflow.py"
AIRFLOW = ROOT / "build" / "airflow-venv" / "bin" / "python"


class Told(nullcontext[None]):
    """Accepts any arguments, and is a context manager."""

    made: ClassVar[list[Any]] = []

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        self.arguments = arguments
        Told.made.append(self)


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
    done = ran(AIRFLOW, script, FOLDER, home, env=environment)
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
