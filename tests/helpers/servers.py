"""The servers that engine tests start: Flink's job server and Beam's worker pool."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

_SECONDS = 60


def free_port() -> int:
    """Returns a free port."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def server(command: Sequence[object], port: int, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a server, with all processes that it starts, until the block ends."""
    # Beam's worker pool starts its workers as `python`.
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    words = [str(word) for word in command]
    with open(folder / "server.log", "wb") as log:
        process = subprocess.Popen(words, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        _wait_for_port(port, process)
        yield process
    finally:
        for child in children(process):
            child.kill()
        process.terminate()
        process.wait(timeout=_SECONDS)


def children(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Returns the processes that a process has started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(process.pid).children()
    return []


def _wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as client:
            if client.connect_ex(("localhost", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"{process.args} does not listen at port {port}")


@contextlib.contextmanager
def flink_job_server(jar: Path, folder: Path) -> Iterator[int]:
    """Runs Beam's Flink job server with a mini-cluster for each job; yields its port."""
    port = free_port()
    # It lives for a minute, so optimizing its code would cost more than it saves.
    command = [
        "java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-jar", jar, "--flink-master=[local]",
        f"--job-port={port}", "--artifact-port=0", "--expansion-port=0", f"--artifacts-dir={folder}",
    ]  # fmt: skip
    with server(command, port, folder):
        yield port


@contextlib.contextmanager
def worker_pool(folder: Path) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Runs Beam's pool, which starts a process for each worker; yields its port and its process."""
    port = free_port()
    command = [sys.executable, "-m", "apache_beam.runners.worker.worker_pool_main", f"--service_port={port}"]
    with server(command, port, folder) as pool:
        yield port, pool
