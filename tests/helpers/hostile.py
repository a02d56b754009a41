"""Shared code for the tests of bad input, odd names and faults."""

from __future__ import annotations

import atexit
import contextlib
import gzip
import hashlib
import importlib
import io
import itertools
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from PIL import Image

from helpers.pictures import file_of
from helpers.repository import ran
from helpers.trees import put_files
from shardwright.pipelines.cli import main

COMMAND = Path(sys.executable).with_name("shardwright")
OUTCOMES = ("written", "quarantined", "filtered", "deduplicated")


class Done(NamedTuple):
    """The result of a command: its exit code (or minus the signal that killed it), stdout and stderr."""

    code: int
    out: str
    err: str


def ended(code: int, out: str, err: str) -> Done:
    """Returns the result of a command, without the line about the input before the work begins."""
    lines = err.splitlines(keepends=True)
    return Done(code, out, "".join(line for line in lines if not line.startswith("shardwright: found: ")))


def picture(seed: int, file_format: str = "PNG", size: int = 16) -> bytes:
    """Returns a small image file, different for every seed."""
    colors = [(seed * 37 % 256, (seed * 91 + x) % 256, seed // 256 * 16 + x % 16) for x in range(size)]
    image = Image.new("RGB", (size, 1))
    image.putdata(colors)
    return file_of(image.resize((size, size)), file_format)


def make_tree(root: Path, images: int = 6, classes: Iterable[str] = ("ant", "bee")) -> Path:
    """Writes JPEGs and PNGs into class folders, in turn."""
    files = {}
    for i, name in zip(range(images), itertools.cycle(classes)):
        suffix, file_format = ("png", "PNG") if i % 3 else ("jpg", "JPEG")
        files[f"{name}/{i:03d}.{suffix}"] = picture(i, file_format)
    return put_files(root, files)


def run(capfd: pytest.CaptureFixture[str], *argv: object) -> Done:
    """Runs the command line in this process."""
    capfd.readouterr()
    code = main([str(argument) for argument in argv])
    captured = capfd.readouterr()
    return ended(code, captured.out, captured.err)


def run_command(*argv: object, **options: Any) -> Done:
    """Runs the installed command in a separate process."""
    done = ran(COMMAND, *argv, **options)
    return ended(done.returncode, done.stdout, done.stderr)


def sentence_of(done: Done, code: int) -> str:
    """Checks that a command failed with one clear line, and returns that line's message."""
    assert done.code == code, done
    assert done.err.startswith("shardwright: ") and done.err.count("\n") == 1, done.err
    assert done.err.rstrip().endswith((".", "?", "...")) and "?." not in done.err, done.err
    for noise in ("Traceback", "while running", "<shardwright", "\x1b"):
        assert noise not in done.err, done.err
    assert not done.out
    return done.err.removeprefix("shardwright: ").rstrip("\n")


def state_of(root: Path) -> dict[Path, tuple[int, bytes]]:
    """Returns every path below a directory with its mode and its contents' digest."""
    found = {}
    for path in root.rglob("*"):
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[path] = path.lstat().st_mode, hashlib.sha256(data).digest()
    return found


def refused(capfd: pytest.CaptureFixture[str], root: Path, *argv: object, code: int = 2) -> str:
    """Runs a command that must be refused without writing anything below `root`; returns the message."""
    before = state_of(root)
    sentence = sentence_of(run(capfd, *argv), code)
    assert state_of(root) == before
    return sentence


def document(dataset: Path) -> dict[str, Any]:
    """Returns `dataset.json`."""
    value: dict[str, Any] = json.loads((dataset / "dataset.json").read_text(encoding="utf-8"))
    return value


def ledger_entries(dataset: Path) -> list[dict[str, Any]]:
    """Returns the lines of all shard ledgers, without headers."""
    return [
        json.loads(line)
        for path in sorted((dataset / "_shards").iterdir())
        for line in gzip.decompress(path.read_bytes()).splitlines()[1:]
    ]


def check_books(dataset: Path) -> dict[str, Mapping[str, Any]]:
    """Counts the shard ledgers again and checks the sums; returns the entries by key."""
    made = document(dataset)
    entries = ledger_entries(dataset)
    counted = Counter(entry["outcome"] for entry in entries)
    ledger = made["ledger"]
    for row in (ledger, *ledger["splits"].values()):
        assert row["listed"] == sum(row[name] for name in OUTCOMES)
    assert ledger["listed"] == len(entries)
    assert {name: counted[name] for name in OUTCOMES} == {name: ledger[name] for name in OUTCOMES}
    for name in ("listed", *OUTCOMES):
        assert sum(split[name] for split in ledger["splits"].values()) == ledger[name]
    reasons: dict[str, Counter[str]] = {}
    for entry in entries:
        if entry["outcome"] in ("quarantined", "filtered"):
            reasons.setdefault(entry["outcome"], Counter())[entry["reason"]] += 1
    assert ledger["reasons"] == reasons
    lines = (dataset / "quarantine.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    bad = [entry for entry in entries if entry["outcome"] == "quarantined"]
    assert sorted(json.loads(line)["key"] for line in lines) == sorted(entry["key"] for entry in bad)
    by_key = {entry["key"]: entry for entry in entries}
    assert len(by_key) == len(entries)
    return by_key


def outcomes(dataset: Path) -> dict[str, str]:
    """Returns key -> outcome, or the reason why it was left out; checks the sums."""
    return {key: str(entry.get("reason", entry["outcome"])) for key, entry in check_books(dataset).items()}


def identity(dataset: Path) -> dict[str, str]:
    """Returns the sha256 of all files that belong to the identity of a dataset."""
    ledgers = [path.relative_to(dataset).as_posix() for path in (dataset / "_shards").iterdir()]
    names = [*shard_hashes(dataset), *ledgers, "labels.txt", "dataset.json", "quarantine.jsonl"]
    return {name: hashlib.sha256((dataset / name).read_bytes()).hexdigest() for name in names}


def shard_hashes(dataset: Path) -> dict[str, str]:
    """Returns the sha256 of every shard that `dataset.json` lists."""
    splits = document(dataset)["splits"].values()
    return {shard["file"]: shard["sha256"] for split in splits for shard in split["shards"]}


_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    [
        "helpers.hostile",
        "shardwright.transforms.plan",
        "apache_beam.runners.portability.fn_api_runner.fn_runner",
        "apache_beam.runners.worker.sdk_worker_main",
    ]
)


def _child(before: Callable[[], None] | None, argv: list[str], log: str) -> None:
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{log}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    # A suite that runs in the background ignores Ctrl-C, and its child processes would too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup` ignores it
    os.environ.pop("PYTHONPATH", None)  # only the server needs it
    from helpers.light_commands import lighten_commands  # it imports our modules

    lighten_commands()  # as in the process of the tests, with which tests compare the files
    if before:
        before()
    code = main(argv)
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(code)


def start(log: Path, *argv: object, before: Callable[[], None] | None = None) -> Any:
    """Starts the command line in a process forked from one that has imported everything.

    Args:
      log: File for stdout and stderr, with `.out` and `.err` appended.
      *argv: Arguments of the command line.
      before: Called first in the new process; a function of a module, or a partial of one.
    """
    # The process from which others are forked finds our modules only through `PYTHONPATH`.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        forkserver.ensure_running()
    process = _SERVER.Process(target=_child, args=(before, [str(item) for item in argv], str(log)))
    process.start()
    atexit.register(process.kill)  # otherwise this process would wait for one that a failed test left behind
    return process


def wait(process: Any, log: Path) -> Done:
    """Waits for the process that `start` started."""
    process.join(120)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise AssertionError("it hangs")
    out, err = (Path(f"{log}.{name}").read_text(errors="replace") for name in ("out", "err"))
    return ended(process.exitcode, out, err)


def run_forked(log: Path, *argv: object, before: Callable[[], None] | None = None) -> Done:
    """Runs the command line in a forked process."""
    return wait(start(log, *argv, before=before), log)


def at_call(target: str, text: str, number: int, act: Callable[[], None]) -> None:
    """Patches a function so that something happens right before one of its calls.

    Args:
      target: `module:function`.
      text: Counts only calls with an argument that contains it.
      number: Number of the call, from 1.
      act: Function to call then.
    """
    module_name, name = target.split(":")
    module = importlib.import_module(module_name)
    real = getattr(module, name)
    seen = itertools.count(1)

    def patched(*args: Any, **kwargs: Any) -> Any:
        if any(text in str(arg) for arg in args) and next(seen) == number:
            act()
        return real(*args, **kwargs)

    setattr(module, name, patched)


def signal_self(number: int) -> None:
    """Sends this process a signal."""
    if number == signal.SIGSTOP:  # otherwise another thread may get it, and this one continues for a while
        signal.pthread_kill(threading.get_ident(), number)
    else:
        os.kill(os.getpid(), number)


def limit_file_size(size: int) -> None:
    """Limits the size of files, like a full disk; the shell's `ulimit -f`."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@contextlib.contextmanager
def mounted(place: Path, options: str) -> Iterator[Path]:
    """Mounts a disk in memory at a new folder until the block ends; skips the test if this is forbidden."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("cannot mount here")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def flip(path: Path, place: int | None = None) -> None:
    """Changes a bit of a file, by default in its middle, and keeps its size and times."""
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if place is None else place] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


class Terminal(io.StringIO):
    """A terminal, whose width is in COLUMNS."""

    def isatty(self) -> bool:
        return True


def leftovers(root: Path) -> list[str]:
    """Returns the unfinished files below a directory."""
    return [str(path) for path in root.rglob("*.tmp")]


def without_times(data: str | bytes) -> dict[str, Any]:
    """Returns the content of a `findings.json` without its times; other documents are returned as text."""
    try:
        document = json.loads(data)
    except ValueError:
        return {"text": data}
    for item in (document, *document.get("checks", ()), *document.get("findings", ())):
        item.pop("time", None)
    document.pop("digest", None)  # it covers everything, including the times
    return dict(document)
