"""Compares the processor time of reads through obstore with that of reads through a storage's own client.

A server in another process sends the same object again and again, so only the time of the reader counts. Both
readers run in this process, one after the other, through the functions that a conversion uses.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from shardwright.transforms import storage
from shardwright.transforms.storage import azure, s3

_THREADS = 64
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


def compare(scheme: str, size: int, count: int, rounds: int) -> None:
    """Prints the medians for objects of one size."""
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
        times: dict[str, list[float]] = {"own": [], "obstore": []}
        for _ in range(rounds):
            for name, readers in (("own", {"photos": None}), ("obstore", quick)):
                module._quick_readers.update(readers)
                times[name].append(milliseconds(read, count))
    finally:
        server.kill()
    own, fast = (statistics.median(times[name]) for name in ("own", "obstore"))
    saved = f"own client {own:.2f} ms, obstore {fast:.2f} ms: {own / fast:.1f} times"
    print(f"{scheme}://  {size / 1e3:5.0f} kB  {saved}")


def main() -> int:
    """Runs all rounds."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=1000, help="reads per round (default 1000)")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_ACCOUNT"):
        os.environ[name] = "account"
    os.environ.update(AWS_DEFAULT_REGION="us-east-1", AZURE_STORAGE_KEY="a2V5")
    for scheme in ("s3", "az"):
        for size in (43_000, 870_000):
            compare(scheme, size, arguments.count, arguments.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
