"""A storage server with scripted answers, for the clients of Google, Amazon and Microsoft."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

_HOLD_STEP = 0.02


class Response(NamedTuple):
    """A scripted answer.

    Attributes:
      body: Body of the answer.
      status: HTTP status.
      pause: Seconds between single bytes; 0 sends them at once.
      head: Seconds before anything is sent.
      headers: Additional headers.
      cut: Number of bytes at the end of the body that never arrive.
      only: Number of bytes of the body after which the connection ends; -1 sends all.
      closes: Whether the connection ends after the answer, without notice.
    """

    body: bytes = b""
    status: int = 200
    pause: float = 0.0
    head: float = 0.0
    headers: tuple[tuple[str, str], ...] = ()
    cut: int = 0
    only: int = -1
    closes: bool = False


class Request(NamedTuple):
    """A request: its method, path, query, the number of requests before it, and its headers."""

    method: str
    path: str
    query: dict[str, str]
    number: int
    headers: Mapping[str, str] = MappingProxyType({})

    @property
    def agent(self) -> str:
        """The program that sends it."""
        return self.headers.get("User-Agent", "")

    @property
    def is_listing(self) -> bool:
        """Whether it asks for a listing, in any API."""
        kinds = "list-type" in self.query or self.query.get("comp") == "list"
        return self.method == "GET" and (kinds or self.path.endswith("/o"))

    @property
    def token(self) -> str:
        """The page that it asks for; empty for the first."""
        names = ("pageToken", "continuation-token", "marker")
        return next((self.query[name] for name in names if name in self.query), "")


class Scripted:
    """The server; `script` gives the answers, `requests` lists what clients sent."""

    def __init__(self, script: Callable[[Request], Response]) -> None:
        self.script, self.requests = script, list[Request]()
        self.stopped = threading.Event()
        self._lock = threading.Lock()

    def answer(self, method: str, target: str, headers: Any) -> Response:
        """Returns the script's answer to a request."""
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        with self._lock:
            request = Request(method, parts.path, query, len(self.requests), headers)
            self.requests.append(request)
        return self.script(request)


Script = Callable[[Request], Response]
Serve = Callable[..., contextlib.AbstractContextManager[Scripted]]


@contextlib.contextmanager
def scripted(
    script: Script, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> Iterator[tuple[str, Scripted]]:
    """Serves a script on a free port; yields its URL and the requests."""
    storage = Scripted(script)
    kind = type(
        "Server",
        (ThreadingHTTPServer,),
        {"address_family": socket.AF_INET6 if ":" in host else socket.AF_INET, "request_queue_size": 128},
    )
    server = kind((host, 0), type("Handler", (_Handler,), {"storage": storage}))
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        shown = f"[{host}]" if ":" in host else host
        yield f"http{'s' if tls else ''}://{shown}:{server.server_address[1]}", storage
    finally:
        storage.stopped.set()
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    storage: Scripted

    def handle(self) -> None:
        """Answers requests until the client closes the connection, in whatever way."""
        with contextlib.suppress(ConnectionError):
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:
        """Prints nothing."""

    def _serve(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        response = self.storage.answer(self.command, self.path, self.headers)
        self.storage.stopped.wait(response.head)
        with contextlib.suppress(OSError):
            self.send_response_only(response.status)
            for name, value in (("Content-Length", str(len(response.body))), *response.headers):
                self.send_header(name, value)
            self.end_headers()
            self._send_body(response)
            self.close_connection |= response.closes or response.only >= 0
            return
        self.close_connection = True

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _serve  # noqa: N815

    def _send_body(self, response: Response) -> None:
        if response.cut:
            self.wfile.write(response.body[: -response.cut])
            self.close_connection = True
            return
        if not response.pause:
            self.wfile.write(response.body[: response.only] if response.only >= 0 else response.body)
            return
        for byte in response.body:
            self.wfile.write(bytes((byte,)))
            time.sleep(response.pause)
            if self.storage.stopped.is_set():
                return


def google_page(*names: str, token: str = "") -> bytes:
    """Returns a page of a listing in Google's format."""
    items = [{"name": name, "size": "1", "generation": "1", "crc32c": "AAAAAA=="} for name in names]
    return json.dumps({"items": items, **({"nextPageToken": token} if token else {})}).encode()


def amazon_page(*names: str, token: str = "") -> bytes:
    """Returns a page of a listing in Amazon's format."""
    items = "".join(
        f"<Contents><Key>{name}</Key><Size>1</Size><ETag>&quot;7&quot;</ETag>"
        "<LastModified>2026-11-24T10:00:00.000Z</LastModified></Contents>"
        for name in names
    )
    more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    return (
        '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult '
        'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name>'
        f"<IsTruncated>{'true' if token else 'false'}</IsTruncated>{more}{items}</ListBucketResult>"
    ).encode()


def azure_page(*names: str, token: str = "") -> bytes:
    """Returns a page of a listing in Azure's format."""
    kind = "<BlobType>BlockBlob</BlobType>"
    date = "<Last-Modified>Tue, 24 Nov 2026 10:00:00 GMT</Last-Modified>"
    size = "<Content-Length>1</Content-Length><Content-Type>image/png</Content-Type>"
    about = f"<Properties><Etag>7</Etag>{size}{kind}{date}</Properties>"
    items = "".join(f"<Blob><Name>{name}</Name>{about}</Blob>" for name in names)
    return (
        '<?xml version="1.0" encoding="utf-8"?><EnumerationResults ContainerName="b">'
        f"<Blobs>{items}</Blobs><NextMarker>{token}</NextMarker></EnumerationResults>"
    ).encode()
