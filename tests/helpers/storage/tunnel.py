"""A proxy that only opens tunnels (CONNECT), as networks have for TLS."""

from __future__ import annotations

import contextlib
import select
import socket
import socketserver
import threading
from collections.abc import Iterator

_BYTES = 1 << 16


class Tunnels(socketserver.ThreadingTCPServer):
    """Opens every tunnel to one server, whatever host is asked for.

    Args:
      target: Address of the server.
      status: Status that tunnels are answered with; only 200 opens one.

    Attributes:
      requests: Hosts and ports that tunnels were asked for.
    """

    daemon_threads = True

    def __init__(self, target: tuple[str, int], status: int) -> None:
        super().__init__(("127.0.0.1", 0), _Tunnel)
        self.target, self.status = target, status
        self.requests: list[str] = []


class _Tunnel(socketserver.StreamRequestHandler):
    server: Tunnels

    def handle(self) -> None:
        method, place, _ = self.rfile.readline().decode().split()
        assert method == "CONNECT"
        self.server.requests.append(place)
        while self.rfile.readline().strip():
            pass
        self.wfile.write(f"HTTP/1.1 {self.server.status} Scripted\r\n\r\n".encode())
        if self.server.status == 200:
            with socket.create_connection(self.server.target) as other, contextlib.suppress(OSError):
                _pass_on(self.connection, other)


def _pass_on(first: socket.socket, second: socket.socket) -> None:
    """Passes bytes on in both directions until one side ends."""
    other = {first: second, second: first}
    while True:
        for ready in select.select([first, second], [], [])[0]:
            data = ready.recv(_BYTES)
            if not data:
                return
            other[ready].sendall(data)


@contextlib.contextmanager
def tunnels(target: tuple[str, int], status: int = 200) -> Iterator[tuple[str, Tunnels]]:
    """Runs such a proxy; yields its address."""
    with Tunnels(target, status) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", server
        finally:
            server.shutdown()
