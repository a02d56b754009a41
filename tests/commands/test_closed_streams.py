"""A closed or full output stream changes only what is shown, not the exit code and not the work."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.hostile import COMMAND, ended, run_command, sentence_of
from helpers.repository import PHOTOS
from helpers.versioned import make_versions
from PIL import Image

from shardwright.pipelines import cli
from shardwright.pipelines.log import forgiving_streams

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    for number in range(4):
        path = folder / "in" / f"class{number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (number, 0, 0)).save(path)
    return folder / "in"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, images: Path) -> Path:
    output = tmp_path_factory.mktemp("made") / "out"
    assert cli.main(["convert", "--input", str(images), "--output", str(output)]) == 0
    return output


@pytest.mark.parametrize("closed", [("stdout",), ("stderr",), ("stdout", "stderr")])
def test_reading_commands_work_with_closed_streams(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, made: Path, closed: tuple[str, ...]
) -> None:
    make_versions(tmp_path, made)
    for name in closed:
        monkeypatch.setattr(sys, name, None)  # Python starts like this if a descriptor is closed
    assert cli.main(["inspect", str(made)]) == 0
    assert cli.main(["versions", str(tmp_path)]) == 0
    assert cli.main(["layouts"]) == 0
    assert cli.main(["layouts", "no_such_layout"]) == 2
    assert cli.main(["no_such_command"]) == 2
    assert cli.main([]) == 2


def test_a_conversion_works_with_closed_streams(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, images: Path, made: Path
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert cli.main(["convert", "--input", str(images), "--output", str(tmp_path / "out")]) == 0
    documents = [json.loads((path / "dataset.json").read_text()) for path in (made, tmp_path / "out")]
    assert documents[0]["fingerprint"] == documents[1]["fingerprint"]


def test_closed_descriptors_are_not_reused_for_other_files(tmp_path: Path) -> None:
    script = (
        "import os\n"
        "from shardwright.pipelines.log import forgiving_streams\n"
        "with forgiving_streams():\n"
        f"    file = open({str(tmp_path / 'file')!r}, 'w')\n"
        "    os.system('echo printed by a child; echo and this >&2')\n"
        "    print('shown')\n"
        "    file.write(str(file.fileno() > 2))\n"
    )
    line = f"'{sys.executable}' -c \"$SCRIPT\" <&- >&- 2>&-"
    done = subprocess.run(["sh", "-c", line], env={**os.environ, "SCRIPT": script})
    assert done.returncode == 0
    assert (tmp_path / "file").read_text() == "True"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_full_disk_below_one_stream_is_reported_on_the_other(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, stream: str
) -> None:
    with open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr(sys, stream, full)
        assert cli.main(["layouts"]) == 0
        assert cli.main(["layouts", "no_such_layout"]) == 2
    err = capsys.readouterr().err
    assert ("the rest is not shown: no space left on device" in err) == (stream == "stdout")


def test_an_error_of_the_writer_is_not_reported_as_one_of_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    with forgiving_streams(), pytest.raises(UnicodeEncodeError):
        print("\N{SNOWMAN}")


def test_too_little_memory_to_start_is_a_failure_of_the_machine() -> None:
    for kilobytes in (40_000, 120_000):
        # A shell sets the limit, because gRPC may write a line when this process forks for `preexec_fn`.
        limited = ["sh", "-c", f'ulimit -v {kilobytes}; exec "$0" convert', str(COMMAND)]
        done = subprocess.run(limited, capture_output=True, text=True, timeout=120)
        sentence = sentence_of(ended(done.returncode, done.stdout, done.stderr), 3)
        assert sentence.startswith("There is not enough memory to start; allow more")


def test_a_command_that_cannot_be_imported_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    for error, message in (
        (MemoryError(), "not enough memory to start"),
        (ImportError("libx.so: failed to map segment from shared object"), "not enough memory to start"),
        (ImportError("no module of that name"), "(ImportError: no module of that name); install"),
    ):

        def fail(name: str, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(cli, "import_module", fail)
        assert cli.main(["plan"]) == 3
        assert message in capsys.readouterr().err


@pytest.mark.slow  # Python compiles all of Beam for it
def test_python_without_docstrings_is_refused() -> None:
    env = {**os.environ, "PYTHONOPTIMIZE": "2"}
    done = run_command("plan", "--input", PHOTOS, env=env)
    assert sentence_of(done, 2).startswith("Beam does not start without docstrings; run python without -OO")
