"""Compares the processor time of reads through obstore with that of reads through a storage's own client.

A server in another process sends the same object again and again, so only the time of the reader counts. Both
readers run in this process, one after the other, through the functions that a conversion uses.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from command import Benchmark, Found, run_benchmark
from results import Result
from rounds import Rounds, Turn, summarize, take_turns

from shardwright.transforms import storage
from shardwright.transforms.storage import azure, s3

_THREADS = 64
MEASURE = "processor time per read"
#: Sends an object of a size, in bytes, as the answer to every request; prints its port.
_SERVER = """
import asyncio, sys
size, md5 = int(sys.argv[1]), sys.argv[2]
head = "\\r\\n".join((
    "HTTP/1.1 200 OK", f"Content-Length: {size}", f'ETag: "{md5}"',
    f"Content-Range: bytes 0-{size - 1}/{size}",
    "Last-Modified: Sat, 21 Nov 2026 10:00:00 GMT", "x-ms-blob-type: BlockBlob", "", "",
)).encode()
async def answer(reader, writer):
    try:
        while True:
            await reader.readuntil(b"\\r\\n\\r\\n")
            writer.write(head + bytes(size))
            await writer.drain()
    except (ConnectionError, asyncio.IncompleteReadError):
        writer.close()
async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


def milliseconds(read: Callable[[int], bytes], count: int) -> float:
    """Returns the processor time of this process for one read."""
    with ThreadPoolExecutor(_THREADS) as executor:
        list(executor.map(read, range(_THREADS)))
        begun = time.process_time()
        for _ in executor.map(read, range(count)):
            pass
        return (time.process_time() - begun) / count * 1e3


def compare(scheme: str, size: int, count: int, rounds: int) -> Rounds:
    """Reads objects of one size with both readers in turn."""
    md5 = hashlib.md5(bytes(size)).hexdigest()
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(size), md5], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        os.environ.update(AWS_ENDPOINT_URL_S3=url, AZURE_STORAGE_ENDPOINT=f"{url}/account")
        module = {"s3": s3, "az": azure}[scheme]
        version = md5 if scheme == "s3" else f"{md5}-{md5}"
        module._made = (None, None)

        def read(number: int) -> bytes:
            return storage.read_version(f"{scheme}://photos/{number}.jpg", version)

        read(0)
        quick = dict(module._quick_readers)

        def way(readers: dict[str, Any]) -> Callable[[], Turn]:
            def run() -> Turn:
                module._quick_readers.update(readers)
                return {MEASURE: milliseconds(read, count)}

            return run

        title = f"{scheme}://, {size // 1000} kB: "
        return take_turns(
            {f"{title}own client": way({"photos": None}), f"{title}obstore": way(quick)}, rounds
        )
    finally:
        server.kill()


def measure(options: argparse.Namespace) -> Found:
    """Compares the readers for both storages and both sizes."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_ACCOUNT"):
        os.environ[name] = "account"
    os.environ.update(AWS_DEFAULT_REGION="us-east-1", AZURE_STORAGE_KEY="a2V5")
    results: list[Result] = []
    for scheme in ("s3", "az"):
        for size in (43_000, 870_000):
            found = compare(scheme, size, options.reads, options.rounds)
            own, quick = found
            results += summarize(found, {MEASURE: "ms"}, {quick: own})
    return Found(f"{options.reads:,} reads, {_THREADS} in flight", results)


BENCHMARK = Benchmark(
    "quick_reads",
    "Compares the processor time of reads through obstore with that through a storage's own client.",
    measure,
    quick={"reads": 200, "rounds": 2},
    full={"reads": 1000, "rounds": 5},
    needs_photos=False,
)

if __name__ == "__main__":
    raise SystemExit(run_benchmark(BENCHMARK))
