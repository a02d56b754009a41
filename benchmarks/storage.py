"""Compares reading from object storage with reading from the local disk.

It converts a folder from the local disk and from gs://, in turn, each as a whole process, including its
start. Both must make the same dataset. A server process on this machine stands for the storage and delays
each answer by 0 or 50 ms, as a network does. Its processor time, which is elsewhere with a real storage, is
subtracted.

Then it reads the objects of the folder with this project's reader and with Google's own client, in turn, with
64 requests in flight, and measures the processor time that each object costs. With `--certificate` and
`--key`, files of a certificate for 127.0.0.1, it also does so over TLS.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
from command import Benchmark, Found, run_benchmark
from conversion import convert_once
from inputs import photos
from object_server import BUCKET, HOST
from results import Result
from rounds import Turn, summarize, take_turns

_IN_FLIGHT = 64


def free_port() -> int:
    """Returns a free port."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


class Server:
    """The storage: a process that serves a folder.

    Args:
      folder: Folder with the files.
      delay: Seconds that each answer waits.
      tls: Files of a certificate and its key; empty for plain HTTP.
    """

    def __init__(self, folder: Path, delay: float = 0.0, tls: tuple[Path, ...] = ()) -> None:
        port = free_port()
        program = [sys.executable, str(Path(__file__).with_name("object_server.py")), str(folder), str(port)]
        certificate = [f"--certificate={tls[0]}", f"--key={tls[1]}"] if tls else []
        self._process = subprocess.Popen([*program, f"--delay={delay}", *certificate])
        self.url = f"http{'s' if tls else ''}://{HOST}:{port}"
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex((HOST, port)) == 0:
                    return
            time.sleep(0.1)
        raise SystemExit("The server does not start.")

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()

    def seconds(self) -> float:
        """Returns its processor time so far."""
        return float(sum(psutil.Process(self._process.pid).cpu_times()[:2]))


def convert_from_both(folder: Path, delay: float, rounds: int, title: str) -> list[Result]:
    """Converts from both places in turn.

    Args:
      folder: Folder of class folders.
      delay: Seconds that each answer of the storage waits.
      rounds: Number of rounds.
      title: Start of the subjects.

    Raises:
      SystemExit: If the datasets differ.
    """
    fingerprints = set()

    def way(source: str | Path, server: Server) -> Callable[[], Turn]:
        def run() -> Turn:
            before = server.seconds()
            converted = convert_once(source)
            fingerprints.add(converted.dataset["fingerprint"])
            elsewhere = (server.seconds() - before) / (os.cpu_count() or 1)
            return {
                "time": converted.measurement.seconds - elsewhere,
                "converting": converted.run["convert_seconds"] - elsewhere,
                "processor time": converted.measurement.processor_seconds,
                "peak": converted.measurement.peak_mb,
            }

        return run

    with Server(folder, delay) as server:
        os.environ["STORAGE_EMULATOR_HOST"] = server.url
        local, remote = f"{title}: from the disk", f"{title}: from the bucket, {delay * 1e3:.0f} ms"
        ways = {local: way(folder, server), remote: way(f"gs://{BUCKET}", server)}
        found = take_turns(ways, rounds)
    if len(fingerprints) != 1:
        raise SystemExit("The datasets differ.")
    units = {"time": "s", "converting": "s", "processor time": "s", "peak": "MB"}
    results = summarize(found, units, {remote: local}, only=tuple(units)[:3])
    # The disk is shown once, but each delay is compared with its own runs from the disk.
    return [result for result in results if result.subject == remote or not delay]


def read_with_both(folder: Path, rounds: int, title: str, tls: tuple[Path, ...] = ()) -> list[Result]:
    """Reads all objects with both clients in turn.

    Args:
      folder: Folder of class folders.
      rounds: Number of rounds.
      title: Start of the subjects.
      tls: Files of a certificate and its key; empty for plain HTTP.
    """
    measure_name = "processor time per object"
    with Server(folder, tls=tls) as server:
        os.environ["STORAGE_EMULATOR_HOST"] = server.url
        if tls:
            os.environ["REQUESTS_CA_BUNDLE"] = str(tls[0])
        from google.auth.credentials import AnonymousCredentials
        from google.cloud import storage as google_storage
        from requests.adapters import HTTPAdapter

        from shardwright.core import storage

        client = google_storage.Client("photos", AnonymousCredentials())
        client._http.mount("http", HTTPAdapter(_IN_FLIGHT, _IN_FLIGHT))

        listed = [*storage.list_objects(f"gs://{BUCKET}")]
        objects = [(item.path, item.version) for item in listed]

        def with_google(path: str, version: str) -> None:
            name = path.removeprefix(f"gs://{BUCKET}/")
            blob = client.bucket(BUCKET).blob(name, generation=int(version))
            blob.download_as_bytes(raw_download=True, checksum=None, single_shot_download=True)

        def way(read: Callable[[str, str], object]) -> Callable[[], Turn]:
            def run() -> Turn:
                before = time.process_time()
                with ThreadPoolExecutor(_IN_FLIGHT) as executor:
                    for _ in executor.map(read, *zip(*objects)):
                        pass
                return {measure_name: (time.process_time() - before) / len(objects) * 1e3}

            return run

        google, ours = (f"{title}: {name}" for name in ("google-cloud-storage", "Shardwright"))
        ways = {google: way(with_google), ours: way(storage.read_bytes)}
        found = take_turns(ways, rounds, warm_up=True)  # the first round opens connections
    return summarize(found, {measure_name: "ms"}, {ours: google})


def measure(options: argparse.Namespace) -> Found:
    """Compares conversions and single reads of small and of large images."""
    small = photos(options, options.count)
    large = photos(options, options.large, "--megapixels=8")
    results: list[Result] = []
    for title, given in (("small", small), ("large", large)):
        for delay in (0.0, 0.05):
            results += convert_from_both(given.folder, delay, options.rounds, title)
    for title, given in (("small", small), ("large", large)):
        results += read_with_both(given.folder, 2 * options.rounds, title)
        if options.certificate:
            tls = (Path(options.certificate), Path(options.key))
            results += read_with_both(given.folder, 2 * options.rounds, f"{title}, TLS", tls)
    return Found(f"small: {small.text}; large: {large.text}", results)


BENCHMARK = Benchmark(
    "storage",
    "Compares reading from object storage with reading from the local disk.",
    measure,
    quick={"count": 300, "large": 12, "rounds": 1},
    full={"count": 3000, "large": 150, "rounds": 3, "certificate": "", "key": ""},
)

if __name__ == "__main__":
    raise SystemExit(run_benchmark(BENCHMARK))
