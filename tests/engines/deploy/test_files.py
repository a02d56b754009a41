"""The Dockerfile and the scripts, as far as they can be checked without building or starting anything."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pytest
from helpers import dockerfiles
from helpers.repository import ROOT

FOLDER = ROOT / "deploy" / "dataflow"
DOCKERFILE = (FOLDER / "Dockerfile").read_text()
instructions = partial(dockerfiles.instructions, FOLDER / "Dockerfile")
Run = Callable[..., "subprocess.CompletedProcess[str]"]
SCRIPTS = sorted((ROOT / "deploy").rglob("*.sh"))


def argument(name: str) -> str:
    (value,) = re.findall(rf"^ARG {name}=(\S*)$", DOCKERFILE, re.MULTILINE)
    return str(value).strip('"')


def test_the_image_has_the_tested_versions() -> None:
    assert argument("BEAM_VERSION") == version("apache-beam")
    (pinned,) = re.findall(r"^apache-beam==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert argument("BEAM_VERSION") == pinned
    (python,) = re.findall(r"^PYTHON \?= python([\d.]+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    bases = [words[0] for words in instructions("FROM")]
    assert f"python:{python}-slim" in bases and f"apache/beam_python{python}_sdk:${{BEAM_VERSION}}" in bases
    assert all(python in base or python.replace(".", "") in base for base in bases)
    assert not re.search(r":latest|tensorflow", DOCKERFILE)
    (install,) = [words for words in instructions("RUN") if "install" in words]
    assert install[install.index("--constraint") + 1] == "/constraints.txt"
    assert ["constraints.txt", "/"] in instructions("COPY")


def test_workers_return_the_memory_of_large_pictures() -> None:
    """By default, malloc keeps blocks of up to 32 MB after it has seen some."""
    settings = dict(part.split("=", 1) for words in instructions("ENV") for part in words)
    assert settings["MALLOC_MMAP_THRESHOLD_"] == settings["MALLOC_TRIM_THRESHOLD_"] == str(1 << 20)


def test_files_that_the_image_copies_exist_and_are_not_ignored() -> None:
    copied = dockerfiles.copied_files(FOLDER / "Dockerfile")
    assert copied == dockerfiles.allowed_files(FOLDER / "Dockerfile")
    assert {
        "package",
        "pipelines",
        "loader",
        "transforms",
        "core",
        "schemas",
        "setup.py",
        "pyproject.toml",
    } <= copied
    for source in copied:
        assert (ROOT / source).exists(), source


def test_the_image_starts_beam_and_the_template_starts_main_py() -> None:
    (environment,) = [words[0] for words in instructions("ENV") if words[0].startswith("FLEX_TEMPLATE")]
    place = environment.removeprefix("FLEX_TEMPLATE_PYTHON_PY_FILE=")
    assert ["deploy/dataflow/main.py", place] in instructions("COPY")
    assert (FOLDER / Path(place).name).exists()
    assert instructions("ENTRYPOINT") == [['["/opt/apache/beam/boot"]']]
    targets = {words[-1] for words in instructions("COPY") if words[0].startswith("--from=")}
    assert {"/opt/apache/beam", "/opt/google/dataflow/python_template_launcher"} <= targets


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_the_scripts_are_valid_shell(script: Path) -> None:
    assert os.access(script, os.X_OK) and "set -euo pipefail" in script.read_text()
    subprocess.run(["bash", "-n", script], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", script], check=True)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a script with fake commands that only print how they were called."""
    for name in ("docker", "gcloud", "shardwright"):
        path = tmp_path / name
        path.write_text(f'#!/bin/sh\nprintf "{name}"; printf " [%s]" "$@"; echo\n')
        path.chmod(0o755)

    def run_script(name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        return subprocess.run(
            [FOLDER / name, *arguments], env=path | environment, capture_output=True, text=True, timeout=30
        )

    return run_script


PLACES = {"PROJECT": "my-project", "REGION": "europe-west1", "BUCKET": "my-bucket", "JOB_NAME": "j"}
SETTINGS = ("--input=gs://a/b", "--output=gs://c/d", "--splits=train=0.8,test=0.2", "--overwrite=true")


@pytest.mark.parametrize(
    ("command", "environment", "says"),
    [
        (("build.sh",), {}, "IMAGE is not set"),
        (("build.sh",), {"IMAGE": "x:1"}, "TEMPLATE is not set"),
        (("build.sh",), {"IMAGE": "x:1", "TEMPLATE": "t.json"}, "write gs://BUCKET/"),
        (("build.sh",), {"IMAGE": "x:1", "TEMPLATE": "gs://b/t.json", "DOCKER": "dockr"}, "install dockr"),
        (("launch.sh",), PLACES, "say template, container or package first"),
        (("launch.sh", "template"), PLACES, "TEMPLATE is not set"),
        (("launch.sh", "container"), PLACES, "IMAGE is not set"),
        (("launch.sh", "package"), {}, "PROJECT is not set"),
        (("launch.sh", "package", "--overwrite"), PLACES, "--overwrite is not a setting"),
        (("launch.sh", "package", "photos"), PLACES, "photos is not a setting"),
    ],
)
def test_the_scripts_name_missing_variables(
    run: Run, command: tuple[str, ...], environment: dict[str, str], says: str
) -> None:
    done = run(*command, **environment)
    assert done.returncode == 2 and says in done.stderr and done.stdout == ""


def test_the_build_pushes_the_image_before_it_writes_the_template(run: Run) -> None:
    done = run("build.sh", IMAGE="x/y:1", TEMPLATE="gs://b/t.json")
    assert done.returncode == 0, done.stderr
    build, push, template, _ = done.stdout.splitlines()
    assert build.startswith("docker [build]") and "[IMAGE=x/y:1]" in build and build.endswith("[.]")
    assert push == "docker [push] [x/y:1]"
    assert template.startswith("gcloud [dataflow] [flex-template] [build] [gs://b/t.json] [--image] [x/y:1]")


def test_every_way_to_launch_passes_all_settings(run: Run) -> None:
    subnet = "regions/europe-west1/subnetworks/s"
    done = run("launch.sh", "template", *SETTINGS, TEMPLATE="gs://b/t.json", SUBNETWORK=subnet, **PLACES)
    assert done.returncode == 0, done.stderr
    for setting in (*SETTINGS, "--number_of_worker_harness_threads=1", "--disk_size_gb=50"):
        assert f"[--parameters] [^:::^{setting[2:]}]" in done.stdout
    assert f"[--subnetwork] [{subnet}] [--disable-public-ips]" in done.stdout
    assert "[--max-workers] [20] [--additional-user-labels] [app=shardwright]" in done.stdout
    assert "machine" not in done.stdout, "Dataflow chooses it"
    labels = "team=vision,app=pets"
    done = run(
        "launch.sh", "container", *SETTINGS, IMAGE="x/y:1", MAX_WORKERS="9", MACHINE_TYPE="e2-standard-8",
        LABELS=labels, **PLACES,
    )  # fmt: skip
    assert {"--machine_type=e2-standard-8", "--label=team=vision", "--label=app=pets"} <= set(
        re.findall(r"\[([^]]*)\]", done.stdout)
    )
    options = re.findall(r"\[([^]]*)\]", done.stdout)
    assert done.returncode == 0 and options[: len(SETTINGS) + 1] == ["convert", *SETTINGS]
    assert {"--sdk_container_image=x/y:1", "--sdk_location=container", "--max_num_workers=9"} <= set(options)
    done = run("launch.sh", "package", *SETTINGS, SERVICE_ACCOUNT="me@example.com", **PLACES)
    assert "[--max_num_workers=20] [--label=app=shardwright]" in done.stdout
    assert "machine_type" not in done.stdout
    assert "[--setup_file=./setup.py]" in done.stdout and "[--service_account_email=me@" in done.stdout


def test_a_job_file_launches_a_rebuild(run: Run) -> None:
    job = "--job=gs://b/jobs/pets.yaml"
    done = run("launch.sh", "container", job, IMAGE="x/y:1", **PLACES)
    assert done.stdout.startswith(f"shardwright [rebuild] [{job}] [--runner=DataflowRunner]"), done.stderr
    done = run("launch.sh", "package", "--job_title=x", **PLACES)
    assert done.stdout.startswith("shardwright [convert]"), "only --job itself counts"
    done = run("launch.sh", "template", job, TEMPLATE="gs://b/t.json", **PLACES)
    assert f"[--parameters] [^:::^{job[2:]}]" in done.stdout


@pytest.mark.parametrize(
    ("given", "command"),
    [
        (["--input=gs://a/b", "--output=gs://a/c"], "convert"),
        (["--job=gs://a/pets.yaml"], "rebuild"),
        (["--seed=3", "--job", "gs://a/pets.yaml"], "rebuild"),
        (["--job_name=j", "--input=gs://a/--job=b"], "convert"),
        ([], "convert"),
    ],
)
def test_the_template_distinguishes_a_rebuild_from_a_conversion(given: list[str], command: str) -> None:
    arguments = runpy.run_path(str(FOLDER / "main.py"))["arguments"]
    assert arguments(given, {}) == [command, *given]
    assert arguments(given, {"SHARDWRIGHT_IMAGE": "x:1"}) == [command, *given, "--sdk_container_image=x:1"]
    mine = [*given, "--sdk_container_image=y:2"]
    assert arguments(mine, {"SHARDWRIGHT_IMAGE": "x:1"}) == [command, *mine]
