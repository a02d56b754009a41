"""Measures a conversion from object storage beside the same one from the local disk.

An emulator of Google Cloud Storage runs on this machine, behind a proxy that holds every request
back for a while, as a network does. Local and remote runs take turns, each as a whole process,
start-up included; both must make the same dataset. The emulator is a Python program that shares
the processors with what is measured, so its own time is shown beside.
"""

from __future__ import annotations

import argparse
import asyncio
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
_COPY_BYTES = 1 << 18
#: Connections that the emulator lets wait; one more and the kernel drops it for a second.
_EMULATOR_QUEUE = 5
_TIMEOUT = 1800.0


def free_port() -> int:
    """Returns a port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


def start_emulator(port: int) -> subprocess.Popen[bytes]:
    """Starts the emulator and waits until it answers."""
    program = Path(sys.executable).with_name("gcp-storage-emulator")
    where = ("--host=localhost", f"--port={port}", f"--default-bucket={_BUCKET}")
    emulator = subprocess.Popen(
        [program, "start", "--in-memory", *where],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("localhost", port)) == 0:
                return emulator
        time.sleep(0.1)
    raise SystemExit("The emulator does not start; install the dev extra.")


class DelayingProxy(threading.Thread):
    """Passes connections on after a delay; the emulator answers one request a connection."""

    def __init__(self, port: int, target: int, delay: float) -> None:
        super().__init__(daemon=True)
        self._port, self._target, self._delay = port, target, delay
        self.requests = self.open = self.most_open = 0

    def run(self) -> None:
        """Serves until the process ends."""
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._turns = asyncio.Semaphore(_EMULATOR_QUEUE)
        server = await asyncio.start_server(self._connection, "localhost", self._port, backlog=1024)
        await server.serve_forever()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests += 1
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        await asyncio.sleep(self._delay)
        try:
            async with self._turns:
                there, back = await asyncio.open_connection("localhost", self._target)
                await asyncio.gather(_pass_on(reader, back), _pass_on(there, writer))
        except OSError:
            pass
        finally:
            writer.close()
            self.open -= 1


async def _pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(_COPY_BYTES):
            sink.write(data)
            await sink.drain()
    finally:
        sink.close()


def upload(photos: Path, port: int) -> int:
    """Uploads a folder; returns the number of objects."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    client = storage.Client(
        project="none",
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": f"http://localhost:{port}"},
    )
    bucket = client.bucket(_BUCKET)
    files = [path for path in photos.rglob("*") if path.is_file()]

    def send(path: Path) -> None:
        bucket.blob(f"photos/{path.relative_to(photos)}").upload_from_filename(path)

    with ThreadPoolExecutor(8) as executor:
        list(executor.map(send, files))
    return len(files)


def measure(name: str, source: str, options: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """Converts once; returns what was measured and the fingerprint."""
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
        there = {"STORAGE_EMULATOR_HOST": f"http://localhost:{proxy_port}"}
        for _ in range(arguments.rounds):
            runs["local"].append(measure("local", str(arguments.photos), options, {}))
            before = sum(psutil.Process(emulator.pid).cpu_times()[:2])
            runs["remote"].append(measure("remote", f"gs://{_BUCKET}/photos", options, there))
            served.append(sum(psutil.Process(emulator.pid).cpu_times()[:2]) - before)
    finally:
        emulator.kill()
    report(runs, statistics.median(served), proxy)
    return 0


def report(runs: dict[str, list[dict[str, Any]]], served: float, proxy: DelayingProxy) -> None:
    """Prints the medians and the ratio, and checks that all made the same dataset."""
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
    print(
        f"the emulator took {served:.2f} s of processor time a run; "
        f"{proxy.requests // len(runs['remote'])} requests, at most {proxy.most_open} at once"
    )


if __name__ == "__main__":
    sys.exit(main())
