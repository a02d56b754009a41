"""The Dockerfiles, scripts and template parameters, checked without a container engine or a cloud."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from helpers.examples import examples
from helpers.google_apis import METADATA, PARAMETERS
from helpers.repository import PHOTOS, ROOT, put_script, ran
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.pipelines import options
from shardwright.schemas.configuration.settings import CONVERT_SETTINGS, settings_from
from shardwright.schemas.errors import UsageError
from shardwright.transforms.runner_features import WorkerOptions

FOLDER = ROOT / "deploy" / "dataflow"
WORKERS, GENERAL = FOLDER / "Dockerfile", ROOT / "docker" / "Dockerfile"
PYTHON = re.findall(r"^PYTHON \?= python([\d.]+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
Run = Callable[..., "subprocess.CompletedProcess[str]"]
SCRIPTS = sorted((ROOT / "deploy").rglob("*.sh"))


def steps_of(path: Path) -> list[tuple[str, str]]:
    """Returns every instruction of a Dockerfile and the text after it, including continuation lines."""
    joined = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line for line in joined.splitlines() if line.strip()]
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines)]


def instructions(path: Path, name: str) -> list[list[str]]:
    """Returns the words of every instruction of a kind."""
    return [rest.split() for kind, rest in steps_of(path) if kind == name]


def test_the_image_of_workers_has_the_tested_versions() -> None:
    (pinned,) = re.findall(r"^apache-beam==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned == version("apache-beam") and [f"BEAM_VERSION={pinned}"] in instructions(WORKERS, "ARG")
    bases = [words[0] for words in instructions(WORKERS, "FROM")]
    (python,) = PYTHON
    assert f"python:{python}-slim" in bases and f"apache/beam_python{python}_sdk:${{BEAM_VERSION}}" in bases
    assert all(python in base or python.replace(".", "") in base for base in bases)
    assert not re.search(r":latest|tensorflow", WORKERS.read_text())
    (install,) = [words for words in instructions(WORKERS, "RUN") if "install" in words]
    assert install[install.index("--constraint") + 1] == "/constraints.txt"
    assert ["constraints.txt", "/"] in instructions(WORKERS, "COPY")


def test_the_general_image_has_the_tested_versions() -> None:
    assert [words[0] for words in instructions(GENERAL, "FROM")] == [f"python:{PYTHON[0]}-slim"] * 2
    installs = [rest for name, rest in steps_of(GENERAL) if name == "RUN" and "uv pip install" in rest]
    assert len(installs) == 2 and all("constraints constraints.txt" in rest for rest in installs)


def test_workers_return_the_memory_of_large_pictures() -> None:
    """By default, malloc keeps blocks of up to 32 MB after it has seen some."""
    settings = dict(part.split("=", 1) for words in instructions(WORKERS, "ENV") for part in words)
    assert settings["MALLOC_MMAP_THRESHOLD_"] == settings["MALLOC_TRIM_THRESHOLD_"] == str(1 << 20)


@pytest.mark.parametrize("dockerfile", [WORKERS, GENERAL], ids=["workers", "general"])
def test_files_that_an_image_copies_exist_and_are_not_ignored(dockerfile: Path) -> None:
    copies = [words for words in instructions(dockerfile, "COPY") if not words[0].startswith("--from")]
    copied = {source for words in copies for source in words[:-1]}
    ignored = dockerfile.with_name("Dockerfile.dockerignore").read_text().splitlines()
    assert copied == {line[1:] for line in ignored if line.startswith("!")}
    rooms = {path.parent.name for path in ROOT.glob("*/py.typed")}
    assert {*rooms, "setup.py", "pyproject.toml"} <= copied
    for source in copied:
        assert (ROOT / source).exists(), source


def test_the_image_starts_beam_and_the_template_starts_main_py() -> None:
    (environment,) = [
        words[0] for words in instructions(WORKERS, "ENV") if words[0].startswith("FLEX_TEMPLATE")
    ]
    place = environment.removeprefix("FLEX_TEMPLATE_PYTHON_PY_FILE=")
    assert ["deploy/dataflow/main.py", place] in instructions(WORKERS, "COPY")
    assert (FOLDER / Path(place).name).exists()
    assert instructions(WORKERS, "ENTRYPOINT") == [['["/opt/apache/beam/boot"]']]
    targets = {words[-1] for words in instructions(WORKERS, "COPY") if words[0].startswith("--from=")}
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
        put_script(tmp_path / name, f'printf "{name}"; printf " [%s]" "$@"; echo\n')

    def run_script(name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return ran(FOLDER / name, *arguments, env={"PATH": f"{tmp_path}:/usr/bin:/bin"} | environment)

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
    options = re.findall(r"\[([^]]*)\]", done.stdout)
    assert {"--machine_type=e2-standard-8", "--label=team=vision", "--label=app=pets"} <= set(options)
    assert done.returncode == 0 and options[: len(SETTINGS) + 1] == ["convert", *SETTINGS]
    assert {"--sdk_container_image=x/y:1", "--sdk_location=container", "--max_num_workers=9"} <= set(options)
    done = run("launch.sh", "package", *SETTINGS, SERVICE_ACCOUNT="me@example.com", **PLACES)
    assert "[--max_num_workers=20] [--label=app=shardwright]" in done.stdout
    assert "machine_type" not in done.stdout
    assert f"[--setup_file={ROOT}/setup.py]" in done.stdout and "[--service_account_email=me@" in done.stdout


def test_a_job_file_launches_a_rebuild(run: Run) -> None:
    job = "--job=gs://b/jobs/pets.yaml"
    done = run("launch.sh", "container", job, IMAGE="x/y:1", **PLACES)
    assert done.stdout.startswith(f"shardwright [rebuild] [{job}] [--runner=DataflowRunner]"), done.stderr
    done = run("launch.sh", "package", "--job_title=x", "--s3_region_name=eu", **PLACES)
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


def test_the_image_has_bytecode() -> None:
    steps = steps_of(GENERAL)
    compiles = steps.index(("ENV", "UV_COMPILE_BYTECODE=1"))
    assert compiles < min(number for number, (_, rest) in enumerate(steps) if "uv pip install" in rest)


def test_the_image_runs_the_command_as_an_ordinary_user() -> None:
    final = steps_of(GENERAL)[[name for name, _ in steps_of(GENERAL)].index("FROM", 1) :]
    settings = dict(final)
    assert json.loads(settings["ENTRYPOINT"]) == ["shardwright"]
    user, group = settings["USER"].split(":")
    assert int(user) > 0 and int(group) > 0
    assert "RUN" not in settings, "the last image contains no tool that built it"


@pytest.mark.slow
def test_the_steps_of_the_build_give_a_command_that_converts(tmp_path: Path) -> None:
    """Runs the build's steps in a folder that stands for the root of the image."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "python"], check=True)
    place, search = tmp_path, os.pathsep.join([str(tmp_path / "python" / "bin"), "/usr/bin", "/bin"])
    environment = {**os.environ, "PATH": search, "EXTRAS": "--extra heif"}
    steps = steps_of(GENERAL)
    for name, rest in steps[1 : [name for name, _ in steps].index("FROM", 1)]:
        here = re.sub(r"(?<![\w.])/(src|opt)\b", f"{tmp_path}/\\1", rest)
        if name == "WORKDIR":
            place = Path(here)
        elif name == "COPY":
            *sources, target = here.split()
            for source in sources:
                copy_to(ROOT / source, place / target, target)
        elif name == "ENV":
            environment.update(word.split("=", 1) for word in here.split())
        elif name == "RUN":
            subprocess.run(["sh", "-c", here], cwd=place, env=environment, check=True)
    command = tmp_path / "opt" / "shardwright" / "bin" / "shardwright"
    (packages,) = command.parents[1].glob("lib/python*/site-packages")
    for module in ("shardwright/pipelines/convert", "apache_beam/pipeline"):
        folder, name = (packages / module).parent, (packages / module).name
        assert list(folder.glob(f"__pycache__/{name}.*.pyc")), "every start would compile it"
    options = ["--input", PHOTOS, "--output", "out", "--resize", "16", "--limit", "6"]
    data = tmp_path / "data"
    data.mkdir()
    subprocess.run([command, "convert", *options], cwd=data, env={"HOME": "/tmp"}, check=True, timeout=300)
    assert (data / "out" / "dataset.json").exists()
    subprocess.run([command.with_name("python"), "-c", "import pillow_heif"], check=True)


def copy_to(source: Path, target: Path, written: str) -> None:
    """Copies like COPY: a file into a folder (its name ends with `/` or `.`), or the content of a folder."""
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        return
    folder = target if written.endswith(("/", ".")) else target.parent
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, folder)


KINDS = {"TEXT", "NUMBER", "BOOLEAN", "ENUM", "GCS_READ_FOLDER", "GCS_WRITE_FOLDER", "GCS_READ_FILE"}
#: Required for a conversion; a rebuild has these from its job file.
REQUIRED = {"input": "gs://my-bucket/photos", "output": "gs://my-bucket/datasets/v1"}

ASCII = st.characters(min_codepoint=32, max_codepoint=126)

#: Values that a parameter accepts.
RIGHT = [
    ("job", "gs://my-bucket/pets.yaml"), ("job", "gs://my-bucket/jobs of ü/pets.yml"),
    ("input", "gs://my-bucket/photos"), ("input", "gs://my-bucket"), ("input", "gs://my.bucket/a b/ü/"),
    ("output", "gs://my-bucket/datasets/v1"), ("overwrite", "true"), ("resume", "false"), ("seed", "0"),
    ("splits", "train=1"), ("splits", "train=0.8,validation=0.1,test=0.1"), ("splits", "a=1/3,b=2/3"),
    ("split_by", r"(patient\d+)"), ("shard_size", "128MB"), ("shard_size", "64 MiB"), ("shard_size", "0.5GB"),
    ("shard_size", "1000"), ("shards", "8"), ("shards", "train=8,test=1"), ("resize", "224"),
    ("map", "my_hooks:blur"), ("map", "my.own_hooks:blur2"),
    ("resize", "320x240"), ("quality", "1"), ("quality", "100"), ("background", "white"),
    ("folds", "0"), ("folds", "2"), ("folds", "19"), ("folds", "36"),
    ("depth", "8"), ("depth", "keep"), ("channels", "0"), ("channels", "3"), ("channels", "16"),
    ("white", "0"), ("white", "4095"), ("white", "65535"),
    ("background", "#ffffff"), ("background", "#fff"), ("max_pixels", "89478485"), ("max_bytes", "256MB"),
    ("bounds", "TOO_MANY_SCANS=500"), ("bounds", "TOO_MANY_SCANS=500,TOO_MANY_STRIPS=200000"),
    ("max_bad_fraction", "0.01"), ("max_bad_fraction", "0"), ("max_bad_fraction", "1"), ("limit", "1000"),
    ("class_names", "gs://b-b/names.txt"), ("plan_from", "gs://b-b/old/dataset.json"), ("fit", "pad"),
    ("image_root", "gs://b-b/images"), ("mask_dir", "gs://b-b/masks/"), ("keep_labels", "gs://b-b/keep.txt"),
    ("extra_columns", "price:float,tags:string[]"),
    ("extra_columns", "a:bool,b:enum,c:int32,d:uint32[],e:uint64,f:double,g:bytes,h:int"),
    ("label_depth", "1"), ("label_depth", "2"), ("label_depth", "all"), ("label_depth", "last"),
    ("label_regex", r"(?P<label>[a-z]+)\d+\.jpg"),
    ("layout", "vision"), ("license", "CC-BY-4.0"), ("citation", "Lovelace 1843"),
    ("description", "Cats é"), ("creator", "Ada Lovelace; org:A & B"), ("url", "https://example.com/a?b"),
    ("date_published", "2026-03-31"),
    ("pixel_shape", "28x28"), ("pixel_shape", "32x32x3"), ("rename_labels", "old=new"),
    ("min_bytes", "2kB"), ("min_side", "64"), ("max_aspect", "2.5"), ("max_aspect", "0"),
    ("max_per_class", "500"),
    ("drop", "BLURRY"), ("drop", "DARK,LIGHT"), ("include", "cats/*.jpg,dogs/"),
    ("exclude", "@gs://b-b/opt_out.txt"),
    ("gcs_user_project", "my-project"), ("gcs_user_project", "example.com:my-project"),
    ("gcs_user_project", "123456789012"),
    ("image_format", "webp"), ("number_of_worker_harness_threads", "1"), ("disk_size_gb", "50"),
    ("sdk_container_image", "europe-west1-docker.pkg.dev/my-project/images/shardwright:1.0"),
]  # fmt: skip
#: Values that a parameter refuses before a machine is started: what only the command would accept, what is no
#: setting of the command, and one of each form that `test_the_command_accepts_what_the_template_accepts` does
#: not always draw.
WRONG = [
    ("job", "pets.yaml"), ("job", "gs://my-bucket"), ("job", "gs://my-bucket/jobs/"), ("job", ""),
    ("input", "photos"), ("input", "gs:/b/x"), ("input", "gs://"), ("output", "gs://my-bucket"),
    ("output", "gs://my-bucket/"), ("output", "out"), ("image_root", "images/"), ("layout", "mine.yaml"),
    ("keep_labels", "keep.txt"), ("class_names", "names.txt"), ("plan_from", "old/"), ("overwrite", "yes"),
    ("map", "hooks.py"), ("gcs_user_project", "My Project"), ("gcs_user_project", "gs://my-bucket"),
    ("number_of_worker_harness_threads", "0"), ("disk_size_gb", "big"), ("sdk_container_image", "a b"),
    ("seed", "-1"), ("limit", "-1"), ("folds", "1"), ("folds", "37"), ("label_depth", "0"),
    ("layout", "slim"), ("channels", "1"), ("channels", "17"), ("depth", "16"), ("resize", "0"),
    ("resize", "224x"), ("map", "my-hooks:blur"), ("pixel_shape", "32x32x5"), ("shard_size", "0MB"),
    ("shard_size", "128M"), ("max_bytes", "lots"), ("min_bytes", "0"), ("max_aspect", "0.5"),
    ("bounds", "TOO_MANY_SCANS=0"), ("bounds", "scans=5"), ("drop", "ODD_SIZE"), ("background", "#ff"),
    ("license", " "), ("creator", ";"), ("url", "example.com"), ("date_published", "31.3.2026"),
    ("image_format", "gif"), ("overwrite", ""),
]  # fmt: skip
#: Only the launch can check whether shares add up, and whether a color, a date or a regular expression is
#: valid.
TOLD_AT_LAUNCH = re.compile(
    "add up to|holds at most|occurs twice|there is no bound|at most 1|is not a color"
    "|is not a regular expression|write a date|it needs a group|has no meaning|has a feature of that name"
    "|has not been read|do not store their size|there is no image format|needs another name"
)


def takes(name: str, value: str) -> bool:
    return all(re.fullmatch(regex, value) for regex in PARAMETERS[name]["regexes"])


def test_the_file_matches_the_declared_settings() -> None:
    made = runpy.run_path(str(FOLDER / "make_metadata.py"))["as_text"]()
    assert (FOLDER / "metadata.json").read_text() == made, "run python deploy/dataflow/make_metadata.py"


def test_every_setting_is_a_parameter_and_every_parameter_an_option() -> None:
    parser = options.make_parser("convert", "", "")
    options.add_settings(parser)
    ours = {*CONVERT_SETTINGS, "job"}
    values = {name: next(value for known, value in RIGHT if known == name)
              for name in PARAMETERS if name not in ours}  # fmt: skip
    assert ours <= set(PARAMETERS)
    _, rest = parser.parse_known_args([f"--{name}=x" for name in ours])
    assert rest == []
    assert issubclass(WorkerOptions, PipelineOptions)  # so Beam knows its option
    known = PipelineOptions([f"--{name}={value}" for name, value in values.items()]).get_all_options(True)
    assert set(values) <= set(known)


def test_no_parameter_is_required_or_sent_by_default() -> None:
    with pytest.raises(UsageError, match="--input is missing"):
        settings_from({}).check()
    for name, entry in PARAMETERS.items():
        # A job file may contain any of them.
        assert entry["isOptional"] is True, name
        # The console would send it, and a setting that is sent overrides the carried plan's.
        assert "defaultValue" not in entry, name


def test_every_parameter_is_described() -> None:
    assert len(PARAMETERS) == len(METADATA["parameters"])
    for name, entry in PARAMETERS.items():
        assert entry["paramType"] in KINDS, name
        assert entry["label"] and entry["groupName"] and entry["helpText"].endswith(tuple("abcdefghijklmnop"
            "qrstuvwxyz0123456789.)B")), name  # fmt: skip
        for regex in entry["regexes"]:
            assert regex.startswith("^") and regex.endswith("$")
            assert not re.search(r"\(\?|\\[dwsb]", regex), "what not every engine knows"


@pytest.mark.parametrize(("name", "value"), RIGHT)
def test_right_values_are_accepted(name: str, value: str) -> None:
    assert takes(name, value)
    if name in CONVERT_SETTINGS:
        settings_from(REQUIRED | {name: value}).check()


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_wrong_values_are_refused(name: str, value: str) -> None:
    assert not takes(name, value)


def test_the_table_contains_every_parameter_with_a_special_form() -> None:
    plain = {name for name, entry in PARAMETERS.items() if entry["paramType"] in ("ENUM", "BOOLEAN")}
    assert set(PARAMETERS) - plain - {name for name, _ in RIGHT} <= {
        name for name in PARAMETERS if PARAMETERS[name]["regexes"] == [r"^[^\n\r]+$"]
    }


@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", [name for name in PARAMETERS if name in CONVERT_SETTINGS])
def test_the_command_accepts_what_the_template_accepts(name: str) -> None:
    (regex,) = PARAMETERS[name]["regexes"]

    @settings(max_examples=examples(40), deadline=None, derandomize=True)
    @given(st.from_regex(regex.replace("$", r"\Z"), alphabet=ASCII))
    def check(value: Any) -> None:
        try:
            settings_from(REQUIRED | {name: value}).check()
        except UsageError as error:
            assert TOLD_AT_LAUNCH.search(error.message), error.message

    check()
