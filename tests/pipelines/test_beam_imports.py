"""Imports of Beam in parts: what is left out, that it comes when it is used, and that bytes are equal."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.io import filesystems
from helpers.hostile import COMMAND, make_tree

import shardwright
from shardwright.pipelines import beam_imports
from shardwright.pipelines.beam_imports import import_beam

#: Packages that a run on this machine does not use.
_HEAVY = (
    "IPython", "apitools", "beartype", "boto3", "google.cloud.bigquery", "google.cloud.dataflow",
    "google.cloud.pubsub", "google.cloud.storage", "httplib2", "pandas", "pyarrow", "pymongo",
)  # fmt: skip
#: Describes Beam as a process sees it.
_STATE = """
def state():
    from types import ModuleType

    import apache_beam as beam
    from apache_beam import typehints
    from apache_beam.io import filesystems
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.typehints import typehints as types
    from apache_beam.utils import retry

    def names(module):
        found = vars(module).items()
        return sorted(name for name, value in found if name[0] != "_" and not isinstance(value, ModuleType))

    systems = filesystems.FileSystem.get_all_subclasses()
    classes = [PipelineOptions]
    for cls in classes:
        classes += cls.__subclasses__()
    return {
        "io": names(beam.io),
        "typehints": names(typehints),
        "systems": sorted(name for name in vars(filesystems) if name.endswith("System")),
        "schemes": sorted(str(cls.scheme()) for cls in systems if cls.__module__.startswith("apache_beam")),
        "options": sorted({cls.__name__ for cls in classes if cls.__module__.startswith("apache_beam")}),
        "retry": [str(retry.HttpError), str(retry.GoogleAPICallError)],
        "types": [types.is_subhint.__module__, str(types.BeartypeDoorException)],
        "get_filesystem": filesystems.FileSystems.get_filesystem.__module__,
    }
"""
#: Imports Beam as a command does, uses what was left out, and then imports all of it.
_IN_PARTS = f"""
import json, sys
{_STATE}
from shardwright.pipelines.beam_imports import complete, import_beam, process_is_ours
process_is_ours()
import_beam()
heavy = [name for name in {_HEAVY!r} if name in sys.modules]
assert not heavy, heavy
assert not any(type(finder).__module__.startswith("shardwright") for finder in sys.meta_path)
assert "apache_beam.io.mongodbio" not in sys.modules

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.typehints import typehints as types
first = state()["options"]
assert type(FileSystems.get_filesystem("/tmp")).__name__ == "LocalFileSystem" and "boto3" not in sys.modules
assert types.is_consistent_with(bool, int) and not types.is_consistent_with(str, int)
assert "beartype" in sys.modules and "pandas" not in sys.modules
assert type(FileSystems.get_filesystem("s3://bucket/object")).__name__ == "S3FileSystem"
assert not hasattr(beam.io, "there_is_no_such_name")
from apache_beam.io import ReadFromMongoDB
assert ReadFromMongoDB is beam.io.mongodbio.ReadFromMongoDB and "pymongo" in sys.modules
complete()
complete()
print(json.dumps([first, state()]))
"""


@pytest.fixture(scope="module")
def in_parts() -> tuple[list[str], dict[str, Any]]:
    """Beam's options after an import in parts, and all of Beam's names after the rest is imported, too."""
    done = subprocess.run([sys.executable, "-c", _IN_PARTS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not done.stderr  # no warning about packages that are not installed
    first, last = json.loads(done.stdout)
    return first, last


def test_what_was_left_out_comes_when_it_is_used(in_parts: tuple[list[str], dict[str, Any]]) -> None:
    of_a_plain_import: dict[str, Any] = {}
    exec(_STATE, of_a_plain_import)
    assert in_parts[1] == of_a_plain_import["state"]()
    assert "ReadFromBigQuery" in in_parts[1]["io"]


def test_no_option_of_beam_is_left_out(in_parts: tuple[list[str], dict[str, Any]]) -> None:
    assert in_parts[0] == in_parts[1]["options"]


#: Runs `python -m shardwright.pipelines.convert` and other commands in one process, which imports Beam once,
#: and checks after each what the process has imported.
_PROGRAM = f"""
import runpy, sys
from shardwright.pipelines.cli import main
images, output = sys.argv[1:]

def convert():
    try:
        runpy.run_module("shardwright.pipelines.convert", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        return ended.code or 0

for run, line in (
    (convert, [images, output, "--resize=32"]), (main, ["validate", output]),
    (main, ["plan", "--input", images]), (main, ["inspect", output]),
):
    sys.argv[1:] = line
    assert run() == 0, line
    heavy = [name for name in {_HEAVY!r} if name in sys.modules]
    assert not heavy, heavy
assert "apache_beam" in sys.modules
assert "tensorflow" not in sys.modules, "tensorflow was imported"
"""


@pytest.fixture(scope="module")
def made_by_a_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with images, the dataset that `_PROGRAM` made of them there, and misleading modules."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "transforms.py").write_text("raise SystemExit('the wrong transforms')")
    (folder / "schemas").mkdir()
    (folder / "schemas" / "__init__.py").write_text("raise SystemExit('the wrong schemas')")
    (folder / "pipelines.py").write_text("raise SystemExit('the wrong pipelines')")
    make_tree(folder / "in", 6)
    command = [sys.executable, "-c", _PROGRAM, "in", "less"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder


def test_commands_import_no_tensorflow_and_no_user_modules_of_the_same_names_as_ours(
    made_by_a_program: Path,
) -> None:
    subprocess.run([COMMAND, "inspect", "less"], cwd=made_by_a_program, check=True, timeout=60)


def test_a_program_that_imports_less_writes_the_same_dataset(made_by_a_program: Path, tmp_path: Path) -> None:
    ours = shardwright.convert(input=made_by_a_program / "in", output=tmp_path / "plain", resize=32)
    document = json.loads((made_by_a_program / "less" / "dataset.json").read_bytes())
    assert document["fingerprint"] == ours.dataset.fingerprint
    assert "pandas" in sys.modules  # a call of the library imports all of Beam


#: Runs commands that need no Beam in one process, which would keep it.
_WITHOUT_BEAM = """
import sys
from shardwright.pipelines.cli import main
dataset, images, folder = sys.argv[1:]
for line, code in (
    (["--help"], 0), (["--version"], 0), (["convert", "--help"], 0), (["rebuild", "--help"], 0),
    (["completion", "bash"], 0), (["layouts"], 0), (["inspect", dataset], 0), (["report", dataset], 0),
    (["diff", "--help"], 0), (["versions", dataset], 2), (["rollback", dataset], 2),
    (["init", images, f"{folder}/pets", "--file", f"{folder}/job.yaml"], 0),
):
    try:
        ended = main(line)
    except SystemExit as end:
        ended = end.code or 0
    assert ended == code, line
    assert not {"apache_beam", "grpc"} & set(sys.modules), line
"""


def test_commands_that_run_no_job_need_no_beam(tmp_path: Path) -> None:
    images = make_tree(tmp_path / "in", 4)
    shardwright.convert(input=images, output=tmp_path / "out")
    command = [sys.executable, "-c", _WITHOUT_BEAM, str(tmp_path / "out"), str(images), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_library_call_changes_nothing_in_beam() -> None:
    before = filesystems.FileSystems.get_filesystem
    import_beam()
    assert filesystems.FileSystems.get_filesystem is before and "__getattr__" not in vars(beam.io)


def test_the_version_is_known_without_an_import() -> None:
    assert beam_imports._installed_version() == beam.__version__


@pytest.mark.parametrize(
    ("options", "in_parts"),
    [
        ([], True),
        (["--direct_num_workers=2"], True),
        (["--runner=DataflowRunner"], False),
        (["--runner", "FnApiRunner"], False),
        (["--beam-plugins=mine"], False),
    ],
)
def test_all_of_beam_is_imported_for_options_that_choose_a_part_of_it(
    options: list[str], in_parts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(beam_imports, "_BEAM", "not_imported_yet")
    monkeypatch.setattr(beam_imports, "_is_ours", True)
    monkeypatch.setattr(beam_imports, "_installed_version", lambda: beam.__version__)
    monkeypatch.setattr(beam_imports, "_import_without_parts", lambda _: asked.append("parts"))
    monkeypatch.setattr(beam_imports, "import_module", asked.append)
    import_beam(options)
    assert asked == (["parts"] if in_parts else ["not_imported_yet"])


def test_an_unknown_version_is_imported_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(beam_imports, "_BEAM", "not_imported_yet")
    monkeypatch.setattr(beam_imports, "_is_ours", True)
    monkeypatch.setattr(beam_imports, "_installed_version", lambda: "9.9.0")
    monkeypatch.setattr(beam_imports, "import_module", asked.append)
    import_beam()
    assert asked == ["not_imported_yet"]


#: Prints whether a conversion has imported Beam when it chooses its workers.
_CHOOSING = """
import sys
from shardwright.pipelines import convert
from shardwright.schemas.errors import UsageError

def choose(*_):
    print("apache_beam" in sys.modules)
    raise UsageError("Enough.")

convert.choose_processes = choose
sys.exit(convert.main())
"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("options", "imported"), [([], False), (["--no_auth"], True)])
def test_worker_processes_begin_before_the_command_imports_beam(
    options: list[str], imported: bool, tmp_path: Path
) -> None:
    make_tree(tmp_path / "in", 2)
    argv = [sys.executable, "-c", _CHOOSING, f"{tmp_path}/in", f"{tmp_path}/out", *options]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.split()) == (2, [str(imported)]), done.stderr
