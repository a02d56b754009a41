"""Compares a conversion from object storage with the same conversion from the local disk.

An emulator of Google Cloud Storage runs on this machine, behind a proxy that delays every request, as a
network does. Local and remote runs take turns, each as a whole process, including its start. Both must make
the same dataset. The emulator is a Python program that uses the same processors, so its own time is printed
too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
from measure import run_measured

_BUCKET = "photos"
_HOST = "127.0.0.1"
_END_OF_HEAD = b"\r\n\r\n"
#: Length of the emulator's queue of connections; the kernel delays connections beyond it by a second.
_EMULATOR_QUEUE = 5
_TIMEOUT = 1800.0


def free_port() -> int:
    """Returns a free port."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def start_emulator(port: int) -> subprocess.Popen[bytes]:
    """Starts the emulator and waits until it answers."""
    program = Path(sys.executable).with_name("gcp-storage-emulator")
    where = (f"--host={_HOST}", f"--port={port}", f"--default-bucket={_BUCKET}")
    emulator = subprocess.Popen(
        [program, "start", "--in-memory", *where],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex((_HOST, port)) == 0:
                return emulator
        time.sleep(0.1)
    raise SystemExit("The emulator does not start; install the dev extra.")


class DelayingProxy(threading.Thread):
    """Delays every request, and keeps connections open like Google's servers.

    The emulator closes each connection after one answer.
    """

    def __init__(self, port: int, target: int, delay: float) -> None:
        super().__init__(daemon=True)
        self._port, self._target, self._delay = port, target, delay
        self.requests = self.waiting = self.most_waiting = 0

    def run(self) -> None:
        """Serves until the process ends."""
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._turns = asyncio.Semaphore(_EMULATOR_QUEUE)
        server = await asyncio.start_server(self._connection, _HOST, self._port, backlog=1024)
        await server.serve_forever()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(_END_OF_HEAD)
                body = await reader.readexactly(_content_length(head))
                self.requests += 1
                self.waiting += 1
                self.most_waiting = max(self.most_waiting, self.waiting)
                await asyncio.sleep(self._delay)
                async with self._turns:
                    answer = await self._ask(head + body)
                self.waiting -= 1
                writer.write(_kept_alive(answer))
                await writer.drain()
        writer.close()

    async def _ask(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(_HOST, self._target)
        writer.write(request)
        answer = await reader.read(-1)
        writer.close()
        return answer


def _content_length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


def _kept_alive(answer: bytes) -> bytes:
    """Turns an HTTP/1.0 answer, which ends with its connection, into an HTTP/1.1 answer, which does not."""
    head, _, body = answer.partition(_END_OF_HEAD)
    status, *lines = head.split(b"\r\n")
    lines = [line for line in lines if not line.lower().startswith((b"content-length:", b"connection:"))]
    lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join([status.replace(b"HTTP/1.0", b"HTTP/1.1"), *lines, b"", body])


def upload(photos: Path, port: int) -> int:
    """Uploads a folder; returns the number of objects."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    client = storage.Client(
        project="none",
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": f"http://{_HOST}:{port}"},
    )
    bucket = client.bucket(_BUCKET)
    files = [path for path in photos.rglob("*") if path.is_file()]

    def send(path: Path) -> None:
        bucket.blob(f"photos/{path.relative_to(photos)}").upload_from_filename(path)

    with ThreadPoolExecutor(8) as executor:
        list(executor.map(send, files))
    return len(files)


def measure(name: str, source: str, options: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """Converts once; returns the measurements and the fingerprint."""
    program = Path(sys.executable).with_name("shardwright")
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "out"
        command = [str(program), "convert", f"--input={source}", f"--output={output}", *options]
        os.environ.update(environment)
        measured = run_measured(command, Path(scratch) / "log", _TIMEOUT)
        run = json.loads((output / "run.json").read_text())
        dataset = json.loads((output / "dataset.json").read_text())
    return {
        "name": name,
        "seconds": measured.seconds,
        "convert_seconds": run["convert_seconds"],
        "peak_mb": measured.peak_mb,
        "records": dataset["ledger"]["written"],
        "fingerprint": dataset["fingerprint"],
    }


def main() -> int:
    """Runs the rounds and prints the medians."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--photos", type=Path, required=True, help="a folder of class folders")
    parser.add_argument("--delay", type=float, default=0.05, help="seconds each request waits (default 0.05)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("options", nargs="*", help="further options of shardwright convert, after --")
    arguments = parser.parse_args()
    options = arguments.options or ["--resize=224", "--shards=8"]
    port, proxy_port = free_port(), free_port()
    emulator = start_emulator(port)
    try:
        objects = upload(arguments.photos, port)
        print(f"{objects} objects, each request held back {arguments.delay * 1e3:.0f} ms")
        proxy = DelayingProxy(proxy_port, port, arguments.delay)
        proxy.start()
        served: list[float] = []
        runs: dict[str, list[dict[str, Any]]] = {"local": [], "remote": []}
        there = {"STORAGE_EMULATOR_HOST": f"http://{_HOST}:{proxy_port}"}
        for _ in range(arguments.rounds):
            runs["local"].append(measure("local", str(arguments.photos), options, {}))
            before = _served_seconds(emulator)
            runs["remote"].append(measure("remote", f"gs://{_BUCKET}/photos", options, there))
            served.append(_served_seconds(emulator) - before)
    finally:
        emulator.kill()
    report(runs, statistics.median(served), proxy)
    return 0


def _served_seconds(emulator: subprocess.Popen[bytes]) -> float:
    """Returns the processor time of the emulator and of this process, which runs the proxy."""
    return sum(psutil.Process(emulator.pid).cpu_times()[:2]) + time.process_time()


def report(runs: dict[str, list[dict[str, Any]]], served: float, proxy: DelayingProxy) -> None:
    """Prints the medians and the ratio, and checks that all runs made the same dataset."""
    fingerprints = {run["fingerprint"] for of_one in runs.values() for run in of_one}
    if len(fingerprints) != 1:
        raise SystemExit(f"The datasets differ: {fingerprints}")
    medians = {}
    for name, of_one in runs.items():
        seconds = medians[name] = statistics.median(run["seconds"] for run in of_one)
        working = statistics.median(run["convert_seconds"] for run in of_one)
        peak = max(run["peak_mb"] for run in of_one)
        records = of_one[0]["records"]
        print(
            f"{name:7} {seconds:6.2f} s whole, {working:6.2f} s converting, "
            f"{records / working:5.0f} images/s, {peak:.0f} MB"
        )
    print(f"remote runs at {medians['local'] / medians['remote']:.2f} of the local speed, the same bytes")
    own = medians["remote"] - served / (os.cpu_count() or 1)
    print(
        f"emulator and proxy took {served:.2f} s of processor time a run, which are elsewhere with a real "
        f"storage: {medians['local'] / own:.2f} without them; "
        f"{proxy.requests // len(runs['remote'])} requests, at most {proxy.most_waiting} at once"
    )


if __name__ == "__main__":
    sys.exit(main())
