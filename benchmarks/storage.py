"""Compares reading from object storage with reading from the local disk.

`conversion` converts a folder from the local disk and from gs://, in turn, each as a whole process, including
its start. Both must make the same dataset. A server process on this machine stands for the storage and can
delay each answer, as a network does. Its processor time, which is elsewhere with a real storage, is
subtracted.

`objects` reads the objects of a folder with this project's reader and with Google's own client, in turn, with
64 requests in flight, and prints the processor time that each object costs.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
from measure import run_measured
from object_server import BUCKET, HOST

_TIMEOUT = 1800.0
_IN_FLIGHT = 64


def free_port() -> int:
    """Returns a free port."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


class Server:
    """The storage: a process that serves a folder.

    Args:
      folder: folder with the files.
      delay: seconds that each answer waits.
      tls: files of a certificate and its key; empty for plain HTTP.
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


def measure(source: str, options: list[str], server: Server) -> dict[str, Any]:
    """Converts once; returns the measurements and the fingerprint."""
    program = Path(sys.executable).with_name("shardwright")
    before = server.seconds()
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "out"
        command = [str(program), "convert", f"--input={source}", f"--output={output}", *options]
        measured = run_measured(command, Path(scratch) / "log", _TIMEOUT)
        if measured.exit_code:
            raise SystemExit((Path(scratch) / "log").read_text())
        run = json.loads((output / "run.json").read_text())
        dataset = json.loads((output / "dataset.json").read_text())
    return {
        "seconds": measured.seconds,
        "processor": measured.processor_seconds,
        "converting": run["convert_seconds"],
        "peak_mb": measured.peak_mb,
        "served": server.seconds() - before,
        "records": dataset["ledger"]["written"],
        "fingerprint": dataset["fingerprint"],
    }


def compare_conversions(arguments: argparse.Namespace) -> None:
    """Converts from both places in turn and prints the medians."""
    options = arguments.options or ["--resize=224", "--shards=8"]
    runs: dict[str, list[dict[str, Any]]] = {"local": [], "remote": []}
    with Server(arguments.photos, arguments.delay) as server:
        os.environ["STORAGE_EMULATOR_HOST"] = server.url
        for _ in range(arguments.rounds):
            runs["local"].append(measure(str(arguments.photos), options, server))
            runs["remote"].append(measure(f"gs://{BUCKET}", options, server))
    if len({run["fingerprint"] for of_one in runs.values() for run in of_one}) != 1:
        raise SystemExit("The datasets differ.")
    print(f"{runs['local'][0]['records']} images, each answer held back {arguments.delay * 1e3:.0f} ms")
    found = {name: {key: _median(of_one, key) for key in _SHOWN} for name, of_one in runs.items()}
    for name, of_one in found.items():
        print(
            f"{name:7} {of_one['seconds']:6.2f} s whole, {of_one['converting']:6.2f} s converting, "
            f"{of_one['processor']:6.2f} s of processor time, {of_one['peak_mb']:.0f} MB, "
            f"server {of_one['served']:.2f} s"
        )
    local, remote = found["local"], found["remote"]
    elsewhere = remote["served"] / (os.cpu_count() or 1)
    print(
        f"remote/local speed: {local['seconds'] / remote['seconds']:.2f} whole, "
        f"{local['seconds'] / (remote['seconds'] - elsewhere):.2f} without the server's processor time, "
        f"{local['converting'] / (remote['converting'] - elsewhere):.2f} of it converting, "
        f"{local['processor'] / remote['processor']:.2f} by processor time"
    )


_SHOWN = ("seconds", "processor", "converting", "peak_mb", "served")


def _median(runs: list[dict[str, Any]], key: str) -> float:
    return statistics.median(run[key] for run in runs)


def compare_clients(arguments: argparse.Namespace) -> None:
    """Reads all objects with both clients in turn and prints the processor time per object."""
    tls = (arguments.certificate, arguments.key) if arguments.certificate else ()
    with Server(arguments.photos, arguments.delay, tls) as server:
        os.environ["STORAGE_EMULATOR_HOST"] = server.url
        if tls:
            os.environ["REQUESTS_CA_BUNDLE"] = str(arguments.certificate)
        from shardwright.transforms import storage
        from shardwright.transforms.storage import gcs

        objects = [(item.path, item.version) for item in storage.list_objects(f"gs://{BUCKET}")]
        readers: dict[str, Callable[[str, str], bytes]] = {
            "google-cloud-storage": lambda path, version: gcs._download(path, version, checksum=None),
            "shardwright": storage.read_version,
        }
        times: dict[str, list[float]] = {name: [] for name in readers}
        size = 0
        for round_ in range(arguments.rounds + 1):  # the first one opens connections
            for name, read in readers.items():
                before = time.process_time()
                with ThreadPoolExecutor(_IN_FLIGHT) as executor:
                    size = sum(executor.map(lambda item, read=read: len(read(*item)), objects))
                if round_:
                    times[name].append(time.process_time() - before)
    print(f"{len(objects)} objects of {size / len(objects) / 1e3:.0f} kB, {arguments.rounds} rounds in turn")
    medians = {name: statistics.median(of_one) / len(objects) * 1e3 for name, of_one in times.items()}
    for name, milliseconds in medians.items():
        print(f"{name:22} {milliseconds:6.3f} ms of processor time per object")
    print(f"ratio {medians['google-cloud-storage'] / medians['shardwright']:.1f}")


def main() -> int:
    """Runs one of the comparisons."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("conversion", "objects"))
    parser.add_argument("--photos", type=Path, required=True, help="a folder of class folders")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds each answer waits (default 0)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--certificate", type=Path, help="certificate for 127.0.0.1; objects only")
    parser.add_argument("--key", type=Path, help="key of the certificate")
    parser.epilog = "Options of shardwright convert follow after --."
    words = [*sys.argv[1:], "--"]
    end = words.index("--")
    arguments = parser.parse_args(words[:end])
    arguments.options = words[end + 1 : -1]
    (compare_conversions if arguments.what == "conversion" else compare_clients)(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
