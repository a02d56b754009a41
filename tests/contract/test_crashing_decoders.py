"""A decoder that crashes costs its image; one that is killed or hangs ends the command with its name."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import psutil
import pyarrow
import pytest
from helpers.depths import findings_of
from helpers.hostile import check_books, document, make_tree, picture, run, start, wait
from helpers.listing import listed
from helpers.repository import copy_photos
from helpers.resealing import read_shard
from pyarrow import parquet

from shardwright.core.sources.containers import state_of
from shardwright.core.sources.tables.parquet import read_apart
from shardwright.pipelines.convert import convert
from shardwright.schemas.errors import UsageError

Accident = Callable[..., Path]
Capture = pytest.CaptureFixture[str]

#: Python runs this in each new process. Worker processes of the pool meet the image `BAD` with an accident.
_ACCIDENT = """
import os, sys
if any("worker_process" in word for word in sys.orig_argv):
    import ctypes, hashlib, importlib, signal, time

    def prepare(place, name, digest):
        module = importlib.import_module("shardwright.core." + place)
        right = getattr(module, name)

        def decode(data, *more):
            if hashlib.sha256(data).hexdigest() == digest:
                open(os.environ["BAD_MARK"], "a").write(name + "\\n")
                {accident}
            return right(data, *more)

        setattr(module, name, decode)

    for bad in os.environ["BAD"].split():
        prepare(*bad.split(":"))
"""
#: The image that meets it.
BAD = "ant/044.png"
_SEGFAULT = "os.kill(os.getpid(), signal.SIGSEGV)"
#: Sleeps in C code without giving up Python's lock.
_HANG = "ctypes.PyDLL(None).sleep(600)"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tree(tmp_path_factory.mktemp("images") / "in", 60)


@pytest.fixture(scope="module")
def whole(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of these images."""
    output = tmp_path_factory.mktemp("whole") / "out"
    return Path(convert(input=images, output=output, shards=4, verify="none").path)


@pytest.fixture
def accident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Accident:
    """Lets images meet an accident in worker processes; returns a file that then names the functions."""

    def prepare(image: Path, what: str, decoder: str = "images.convert:convert_image") -> Path:
        """Prepares it.

        Args:
          image: The image.
          what: The accident.
          decoder: Function that meets it, whose first argument is the image.
        """
        (tmp_path / "start").mkdir(exist_ok=True)
        (tmp_path / "start" / "sitecustomize.py").write_text(_ACCIDENT.replace("{accident}", what))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "start"))
        monkeypatch.setenv("BAD", f"{decoder}:{hashlib.sha256(image.read_bytes()).hexdigest()}", prepend=" ")
        monkeypatch.setenv("BAD_MARK", str(tmp_path / "met"))
        return tmp_path / "met"

    return prepare


def test_a_crash_quarantines_its_image_or_leaves_it_without_hashes_and_the_run_goes_on(
    accident: Accident, tmp_path: Path, capfd: Capture
) -> None:
    source, out = copy_photos(tmp_path / "in", 12), tmp_path / "out"
    first, second, *_ = sorted(source.rglob("*.*"))
    accident(first, _SEGFAULT, "dedupe:hash_picture")
    met = accident(second, _SEGFAULT)
    options = ("--dedupe=near", "--pool=processes", "--max_bad_fraction=0.5", "--verify=none")
    assert run(capfd, "convert", source, out, *options).code == 0
    assert {*met.read_text().split()} == {"hash_picture", "convert_image"}
    entries = check_books(out)
    bad = entries.pop(second.relative_to(source).as_posix())
    assert {entry["outcome"] for entry in entries.values()} == {"written"}
    assert (bad["reason"], bad["stage"]) == ("DECODER_CRASHED", "decode")
    assert bad["message"] == "the decoder crashed (SIGSEGV)" and len(bad["sha256"]) == 64
    assert not findings_of(out)


def test_a_killed_process_ends_the_command_and_its_image_is_named(
    images: Path, accident: Accident, tmp_path: Path, capfd: Capture
) -> None:
    accident(images / BAD, "os.kill(os.getpid(), signal.SIGKILL)")
    done = run(capfd, "convert", images, tmp_path / "out", "--pool=processes")
    assert done.code == 3
    assert f"SIGKILL) while it worked on {images}/ant/044.png (decode)" in done.err
    assert "memory" in done.err and "--resume" in done.err


def test_an_exit_in_a_hook_is_a_failure_of_the_hook(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    (tmp_path / "leaving.py").write_text(
        "import os\n"
        "def leave(item):\n"
        "    if item.key == 'bee/007.png':\n"
        "        os._exit(0)\n"
        "    return item.image\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    options = ("--map=leaving:leave", "--pool=processes", "--max_bad_fraction=0.02", "--verify=none")
    assert run(capfd, "convert", images, tmp_path / "out", *options).code == 0
    (bad,) = [entry for entry in check_books(tmp_path / "out").values() if entry["outcome"] == "quarantined"]
    assert (bad["key"], bad["reason"], bad["stage"]) == ("bee/007.png", "MAP_FAILED", "map")
    assert bad["message"] == "leaving:leave or the decoder ended the process (exit code 0)"


def _with_environment(values: Mapping[str, str]) -> None:
    os.environ.update(values)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("number", [None, signal.SIGINT, signal.SIGTERM], ids=str)
def test_a_decoder_that_hangs_ends_with_its_command(
    images: Path, accident: Accident, tmp_path: Path, number: signal.Signals | None
) -> None:
    met = accident(images / BAD, _HANG)
    argv = ["convert", images, tmp_path / "out", "--pool=processes"]
    argv += ["--stuck_after=0.05"] * (number is None)
    command = start(tmp_path / "log", *argv, before=partial(_with_environment, dict(os.environ)))
    while not met.exists():
        assert command.is_alive()
        time.sleep(0.02)
    workers = psutil.Process(command.pid).children(recursive=True)
    assert workers
    if number is not None:
        os.kill(command.pid, number)
    done = wait(command, tmp_path / "log")
    assert done.code == (3 if number is None else 130)
    last = done.err.splitlines()[-1]
    if number is None:
        assert f"stuck: {images}/ant/044.png has taken" in last and "(decode)" in last
    else:
        assert "interrupted; " in last and "--resume" in last
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert not alive


def test_validation_reports_the_record_whose_decoder_crashes_without_a_thumbnail_and_goes_on(
    images: Path, whole: Path, accident: Accident, tmp_path: Path, capfd: Capture
) -> None:
    accident(images / BAD, _SEGFAULT, "preview:thumbnail")
    met = accident(images / BAD, _SEGFAULT, "validation.record:check_image")
    report, page = tmp_path / "found.json", tmp_path / "page.html"
    done = run(capfd, "validate", whole, "--pool=processes", f"--report={report}", f"--html={page}")
    assert done.code == 1 and {*met.read_text().split()} == {"check_image", "thumbnail"}
    assert "DECODER_CRASHED" in page.read_text()
    (found,) = json.loads(report.read_text())["findings"]
    assert (found["code"], found["key"]) == ("UNDECODABLE", BAD)
    assert found["message"] == "the decoder crashed (SIGSEGV)" and found["offset"] >= 0


def test_a_process_that_ends_in_a_quick_check_ends_the_command_and_its_record_is_named(
    whole: Path, accident: Accident, tmp_path: Path, capfd: Capture
) -> None:
    (shard, *_) = sorted(whole.glob("*.tfrecord"))
    first = tmp_path / "first"
    first.write_bytes(read_shard(shard)[0])
    met = accident(first, _SEGFAULT, "validation.record:parse_example")
    done = run(capfd, "validate", whole, "--fast", "--pool=processes", f"--report={tmp_path}/found.json")
    assert done.code == 3 and met.read_text() == "parse_example\n"
    assert f"(SIGSEGV) while it worked on the record at byte 0 of {shard} (check)" in done.err


def test_salvage_leaves_out_the_record_whose_decoder_crashes(
    images: Path, whole: Path, accident: Accident, tmp_path: Path, capfd: Capture
) -> None:
    met = accident(images / BAD, _SEGFAULT, "validation.record:check_image")
    assert run(capfd, "salvage", whole, f"--output={tmp_path / 'saved'}", "--pool=processes").code in (0, 1)
    assert met.exists() and not findings_of(tmp_path / "saved")
    assert document(tmp_path / "saved")["ledger"]["written"] == 59
    lost = json.loads((tmp_path / "saved" / "lost.jsonl").read_text())  # one line
    assert (lost["key"], lost["code"]) == (BAD, "UNDECODABLE")


#: Reads a Parquet file as any program does.
_PLAIN_READER = """
import sys
from pyarrow import parquet

parquet.ParquetFile(sys.argv[1]).metadata.row_group(0).column(0)
"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("pool", ["threads", "processes"])
def test_a_footer_that_crashes_its_library_refuses_the_file(
    tmp_path: Path, capfd: Capture, pool: str
) -> None:
    table = pyarrow.table({"image": [{"bytes": picture(1), "path": "a.png"}], "label": ["ant"]})
    path = tmp_path / "in" / "rows.parquet"
    path.parent.mkdir()
    parquet.write_table(table, path)
    sound = path.read_bytes()
    # Whether the bytes may be missing: without that, the statistics of the column have one number too many.
    path.write_bytes(sound.replace(b"\x25\x02\x18\x05bytes", b"\x25\x00\x18\x05bytes"))
    plain = subprocess.run([sys.executable, "-c", _PLAIN_READER, path], capture_output=True)
    if plain.returncode != -signal.SIGABRT:
        pytest.skip("this version of pyarrow does not crash")
    done = run(capfd, "convert", tmp_path / "in", tmp_path / "out", f"--pool={pool}")
    assert done.code == 2 and not (tmp_path / "out").exists()
    message = done.err.splitlines()[-1]  # after what the library itself says
    assert f"--input {path} cannot be read as Parquet (the library that reads it crashed: SIGABRT)" in message
    path.write_bytes(sound)
    assert len(listed(tmp_path / "in", "classification", tmp_path).refs) == 1


def _abort(_: object) -> None:
    os.abort()


def test_a_file_whose_library_crashes_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"image": ["a.png"]}), path)
    with pytest.raises(UsageError, match=r"/a\.parquet cannot be read as Parquet \(.* crashed: SIGABRT\)"):
        read_apart("Parquet", state_of(str(path)), _abort)
