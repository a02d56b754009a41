"""Serves the files of a folder from memory as objects in gs://, with little processor time of its own.

It knows listings, metadata, and objects that are read as one part from their beginning. It keeps connections
open like Google's servers, and can delay each answer. Storages with other protocols are not served.

    python object_server.py FOLDER PORT [--delay 0.05] [--certificate FILE --key FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import ssl
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import cast
from urllib.parse import parse_qs, unquote, urlsplit

import google_crc32c

BUCKET = "photos"
HOST = "127.0.0.1"
_END_OF_HEAD = b"\r\n\r\n"
_PAGE = 1000
#: As many and as long headers as Google's servers send.
_HEAD = (
    'HTTP/1.1 {status}\r\nX-GUploader-UploadID: {filler}\r\nETag: "COjV2bXq"\r\nContent-Type: {kind}\r\n'
    "Content-Disposition: attachment\r\nContent-Length: {size}\r\nX-Goog-Generation: 1\r\n"
    "X-Goog-Metageneration: 1\r\nX-Goog-Storage-Class: STANDARD\r\nX-Goog-Hash: crc32c={crc32c}\r\n"
    "Vary: Origin\r\nVary: X-Origin\r\nCache-Control: no-cache, no-store, max-age=0, must-revalidate\r\n"
    "Expires: Mon, 01 Jan 1990 00:00:00 GMT\r\nPragma: no-cache\r\nDate: Mon, 23 Nov 2026 04:00:00 GMT\r\n"
    "Last-Modified: Mon, 23 Nov 2026 04:00:00 GMT\r\nContent-Range: bytes 0-{last}/{size}\r\n"
    "Server: UploadServer\r\n\r\n"
)


class Objects:
    """The objects of a bucket, with prepared answers.

    Args:
      folder: Folder with the files.
    """

    def __init__(self, folder: Path) -> None:
        self._answers: dict[str, bytes] = {}
        self._listed: dict[str, dict[str, str]] = {}
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            data, name = path.read_bytes(), path.relative_to(folder).as_posix()
            crc32c = base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()
            self._answers[name] = _answer(data, "application/octet-stream", crc32c, "206 Partial Content")
            self._listed[name] = {
                "name": name, "bucket": BUCKET, "size": str(len(data)), "generation": "1", "crc32c": crc32c
            }  # fmt: skip

    def answer(self, target: str) -> bytes:
        """Returns the answer to a GET request."""
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path.startswith(f"/{BUCKET}/"):  # the XML API
            return self._answers[unquote(parts.path.removeprefix(f"/{BUCKET}/"))]
        _, found, name = parts.path.partition("/o/")
        if not found:
            return _answer(json.dumps(self._page(query)).encode(), "application/json")
        name = unquote(name)
        if query.get("alt") == "media" and name in self._answers:
            return self._answers[name]
        if name in self._listed:
            return _answer(json.dumps(self._listed[name]).encode(), "application/json")
        return _answer(b"No such object", "text/plain").replace(b"200 OK", b"404 Not Found", 1)

    def _page(self, query: Mapping[str, str]) -> dict[str, object]:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        names = [name for name in self._listed if name.startswith(prefix)]
        if delimiter:
            rests = {name: name[len(prefix) :].partition(delimiter) for name in names}
            folders = sorted({prefix + rest[0] + delimiter for rest in rests.values() if rest[1]})
            names = [name for name in names if not rests[name][1]]
        else:
            folders = []
        start = int(query.get("pageToken", "0"))
        page: dict[str, object] = {"items": [self._listed[name] for name in names[start : start + _PAGE]]}
        if folders and not start:
            page["prefixes"] = folders
        if start + _PAGE < len(names):
            page["nextPageToken"] = str(start + _PAGE)
        return page


def _answer(body: bytes, kind: str, crc32c: str = "", status: str = "200 OK") -> bytes:
    size = len(body)
    head = _HEAD.format(filler="A" * 60, kind=kind, size=size, last=size - 1, crc32c=crc32c, status=status)
    return head.encode() + body


class _Connection(asyncio.Protocol):
    def __init__(self, objects: Objects, delay: float) -> None:
        self._objects, self._delay, self._received = objects, delay, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while _END_OF_HEAD in self._received:
            head, _, self._received = self._received.partition(_END_OF_HEAD)
            answer = self._objects.answer(head.split(b" ", 2)[1].decode())
            if self._delay:
                asyncio.get_running_loop().call_later(self._delay, self._transport.write, answer)
            else:
                self._transport.write(answer)


async def _serve(objects: Objects, port: int, delay: float, tls: ssl.SSLContext | None) -> None:
    server = await asyncio.get_running_loop().create_server(
        lambda: _Connection(objects, delay), HOST, port, backlog=512, ssl=tls
    )
    await server.serve_forever()


def main() -> int:
    """Serves until the process is killed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds each answer waits")
    parser.add_argument("--certificate", type=Path)
    parser.add_argument("--key", type=Path)
    arguments = parser.parse_args()
    tls = None
    if arguments.certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(arguments.certificate, arguments.key)
    asyncio.run(_serve(Objects(arguments.folder), arguments.port, arguments.delay, tls))
    return 0


if __name__ == "__main__":
    sys.exit(main())
