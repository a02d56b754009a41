"""A storage server with scripted answers, for the clients of Google, Amazon and Microsoft."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit


class Response(NamedTuple):
    """A scripted answer.

    Attributes:
      body: Body of the answer.
      status: HTTP status.
      pause: Seconds between single bytes; 0 sends them at once.
      head: Seconds before anything is sent.
      headers: Additional headers.
      only: Number of bytes of the body after which the connection ends; -1 sends all.
      closes: Whether the connection ends after the answer, without notice.
      drops: Whether the connection is reset instead of an answer.
    """

    body: bytes = b""
    status: int = 200
    pause: float = 0.0
    head: float = 0.0
    headers: tuple[tuple[str, str], ...] = ()
    only: int = -1
    closes: bool = False
    drops: bool = False


class Request(NamedTuple):
    """A request: its method, path, query, the number of requests before it, and its headers."""

    method: str
    path: str
    query: dict[str, str]
    number: int
    headers: Mapping[str, str] = MappingProxyType({})

    @property
    def token(self) -> str:
        """The page that it asks for; empty for the first."""
        names = ("pageToken", "continuation-token", "marker")
        return next((self.query[name] for name in names if name in self.query), "")


class Answers(ABC):
    """What a server answers; `stopped` is set when the server ends."""

    def __init__(self) -> None:
        self.stopped = threading.Event()

    @abstractmethod
    def answer(self, method: str, target: str, headers: Any, body: bytes) -> Response:
        """Returns the answer to a request."""


class Scripted(Answers):
    """The answers of a script; `requests` lists what clients sent."""

    def __init__(self, script: Callable[[Request], Response]) -> None:
        super().__init__()
        self.script, self.requests = script, list[Request]()
        self._lock = threading.Lock()

    def answer(self, method: str, target: str, headers: Any, body: bytes) -> Response:
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
def scripted(script: Script, tls: ssl.SSLContext | None = None) -> Iterator[tuple[str, Scripted]]:
    """Serves a script on a free port; yields its URL and the requests."""
    answers = Scripted(script)
    with serving(answers, tls) as url:
        yield url, answers


@contextlib.contextmanager
def serving(answers: Answers, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serves answers on a free port; yields its URL."""
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"answers": answers}))
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
    finally:
        answers.stopped.set()
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores clients that disconnect."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    answers: Answers

    def log_message(self, format: str, *args: Any) -> None:
        """Prints nothing."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        response = self.answers.answer(self.command, self.path, self.headers, body)
        self.answers.stopped.wait(response.head)
        if response.drops:
            self.close_connection = True
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            return
        self.send_response_only(response.status)
        for name, value in (("Content-Length", str(len(response.body))), *response.headers):
            self.send_header(name, value)
        self.end_headers()
        self._send_body(response)
        self.close_connection |= response.closes or response.only >= 0

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = _serve  # noqa: N815

    def _send_body(self, response: Response) -> None:
        if not response.pause:
            self.wfile.write(response.body[: response.only] if response.only >= 0 else response.body)
            return
        for byte in response.body:
            self.wfile.write(bytes((byte,)))
            self.wfile.flush()
            time.sleep(response.pause)
            if self.answers.stopped.is_set():
                return
