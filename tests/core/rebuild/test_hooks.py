"""Hooks with real processes and a real web server: what they receive, and that they never end a run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from helpers.storage.scripted import Answers, Response, serving

from shardwright.core.concurrency.resources import RUN_FOLDER
from shardwright.core.rebuild import notify
from shardwright.core.rebuild.notify import run_hooks
from shardwright.schemas.configuration.job import Hook

FACTS = {"output": "gs://b/pets", "version": "20261121T020000Z", "message": "Two classes <vanished>.", "n": 7}
SECRET = "s3cr3t"


def python(script: str, *arguments: object) -> tuple[Hook, ...]:
    return (Hook(command=(sys.executable, "-c", script, *map(str, arguments))),)


class Seen(NamedTuple):
    """A received request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Server(Answers):
    """A web server whose answer to each path is a function of the number of requests.

    Attributes:
      seen: Received requests.
      answers: Path -> that function; other paths are answered with status 200.
      url: Its address.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Seen] = []
        self.answers: dict[str, Callable[[int], Response]] = {}
        self.url = ""

    def answer(self, method: str, target: str, headers: Any, body: bytes) -> Response:
        self.seen.append(Seen(method, target, dict(headers), body))
        return self.answers.get(target, lambda _: Response())(len(self.asked(target)))

    def asked(self, path: str) -> list[Seen]:
        return [request for request in self.seen if request.path == path]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A web server; retries follow at once."""
    monkeypatch.setattr(notify, "PAUSES", (0.0, 0.0))
    made = Server()
    with serving(made) as made.url:
        yield made


def post(server: Server, path: str, event: str = "refused") -> list[str]:
    return run_hooks((Hook(webhook=server.url + path),), event, FACTS)


def test_a_command_gets_the_facts_by_stdin_and_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", f"{tmp_path}/{RUN_FOLDER}x")  # goes with this process
    script = """
import json, os, sys
told = {key: value for key, value in os.environ.items() if key.startswith(("SHARDWRIGHT_", "TMPDIR"))}
json.dump([json.load(sys.stdin), told, sys.argv[2:]], open(sys.argv[1], "w"))
"""
    facts = {**FACTS, "bad": float("nan"), "nul": "a\0b", "work": {"shards": 3}, "long": "é" * 100_000}
    assert run_hooks(python(script, tmp_path / "told", "$HOME; exit 1"), "refused", facts) == []
    body, environment, arguments = json.loads((tmp_path / "told").read_text())
    assert arguments == ["$HOME; exit 1"]
    assert body["event"] == "refused" and body["bad"] is None and body["work"] == {"shards": 3}
    assert body["text"] == (
        "shardwright: gs://b/pets refused version 20261121T020000Z: Two classes <vanished>."
    )
    assert environment["SHARDWRIGHT_EVENT"] == "refused" and environment["SHARDWRIGHT_N"] == "7"
    assert environment["SHARDWRIGHT_OUTPUT"] == "gs://b/pets" and environment["SHARDWRIGHT_NUL"] == "ab"
    assert environment["SHARDWRIGHT_VERSION"] == "20261121T020000Z" and environment["TMPDIR"] == str(tmp_path)
    assert environment["SHARDWRIGHT_MESSAGE"] == "Two classes <vanished>."
    assert 0 < len(environment["SHARDWRIGHT_LONG"]) <= 15_000 and "SHARDWRIGHT_WORK" not in environment


@pytest.mark.parametrize("event", ["success", "no_change", "refused", "failure", "another"])
def test_every_event_has_its_sentence(tmp_path: Path, event: str) -> None:
    script = "import json, sys; open(sys.argv[1], 'w').write(json.load(sys.stdin)['text'])"
    assert run_hooks(python(script, tmp_path / "text"), event, {"output": "gs://b/pets"}) == []
    text = (tmp_path / "text").read_text()
    assert text.startswith("shardwright: gs://b/pets ") and text.endswith(".") and "None" not in text


def test_the_output_of_a_command_does_not_mix_with_ours(capfd: pytest.CaptureFixture[str]) -> None:
    script = "import os; [os.write(n, b'x' * 4096) for n in (1, 2) for _ in range(500)]"
    # And the command does not read it.
    assert run_hooks(python(script), "success", {"much": "x" * 10**6}) == []
    assert capfd.readouterr() == ("", "")


def test_a_command_that_fails_is_a_warning_with_its_last_output() -> None:
    script = "import sys; print('first', file=sys.stderr); sys.exit('no\\x1b[31m\\x85route')"
    (warning,) = run_hooks(python(script, SECRET), "failure", FACTS)
    assert "exit status 1: " in warning and "first" not in warning and SECRET not in warning
    assert warning.isprintable() and len(warning) < 500
    (warning,) = run_hooks(python("import os; os.kill(os.getpid(), 9)"), "failure", FACTS)
    assert "signal 9" in warning


@pytest.mark.parametrize("command", ["/no/such/command", "/", "bad\0name", __file__])
def test_a_command_that_does_not_start_is_a_warning(command: str) -> None:
    (warning,) = run_hooks((Hook(command=(command, SECRET)),), "success", FACTS)
    assert "did not start" in warning and warning.endswith(".") and SECRET not in warning
    assert warning.isprintable()


def test_a_command_that_does_not_end_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "COMMAND_SECONDS", 1.5)
    script = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open(sys.argv[1] + ".new", "w").write(str(child.pid))
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(600)
"""
    after = python("import sys; open(sys.argv[1], 'w')", tmp_path / "next")
    (warning,) = run_hooks((*python(script, tmp_path / "pid"), *after), "success", FACTS)
    assert "did not end within" in warning and (tmp_path / "next").exists()
    pid, deadline = int((tmp_path / "pid").read_text()), time.monotonic() + 30
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the child lives"
        time.sleep(0.01)


def test_background_processes_of_a_command_delay_nothing(tmp_path: Path) -> None:
    script = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
open(sys.argv[1], "w").write(str(child.pid))
sys.exit(int(sys.argv[2]))
"""
    for status in (0, 3):
        warnings = run_hooks(python(script, tmp_path / "pid", status), "success", FACTS)
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)  # it is still running
        assert len(warnings) == bool(status)


def test_a_webhook_gets_the_facts(server: Server) -> None:
    assert post(server, "/services/hook") == []
    (request,) = server.seen
    assert request.method == "POST" and request.headers["Content-Type"].startswith("application/json")
    body = json.loads(request.body)
    assert body["version"] == FACTS["version"] and body["message"] == FACTS["message"]
    assert body["text"].endswith("refused version 20261121T020000Z: Two classes &lt;vanished&gt;.")


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_temporary_failure_of_the_server_is_retried(server: Server, status: int) -> None:
    server.answers["/a"] = lambda count: Response(status=status if count < 3 else 204)
    assert post(server, "/a") == []
    assert len({request.body for request in server.asked("/a")}) == 1 and len(server.seen) == 3
    server.answers["/b"] = lambda _: Response(status=status)
    (warning,) = post(server, "/b")
    assert f"HTTP status {status}" in warning and len(server.asked("/b")) == 3


def test_a_refusal_of_the_server_is_not_retried_and_its_url_stays_secret(server: Server) -> None:
    server.answers[f"/{SECRET}?key={SECRET}"] = lambda _: Response(status=404)
    address = server.url.replace("//", f"//me:{SECRET}@") + f"/{SECRET}?key={SECRET}"
    (warning,) = run_hooks((Hook(webhook=address),), "failure", FACTS)
    assert SECRET not in warning and server.url in warning and "404" in warning
    assert len(server.seen) == 1


class Dripping(socketserver.BaseRequestHandler):
    """Sends one byte at a time, so that no single read takes long."""

    connections = 0

    def handle(self) -> None:
        Dripping.connections += 1
        with contextlib.suppress(OSError):  # the client has gone
            for _ in range(200):
                self.request.send(b"H")
                time.sleep(0.01)


def test_an_endless_answer_delays_nothing(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "WEBHOOK_SECONDS", 0.3)
    server.answers["/hang"] = lambda _: Response(head=60.0)
    (warning,) = post(server, "/hang")
    assert "no answer within" in warning and len(server.asked("/hang")) == 3
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Dripping) as dripping:
        dripping.daemon_threads = True
        threading.Thread(target=dripping.serve_forever, args=(0.01,)).start()
        (warning,) = run_hooks(
            (Hook(webhook=f"http://127.0.0.1:{dripping.server_address[1]}"),), "refused", FACTS
        )
        dripping.shutdown()
    assert "no answer within" in warning and Dripping.connections == 3


def test_an_unreachable_server_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "PAUSES", (0.0, 0.0))
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/{SECRET}"
        (warning,) = run_hooks((Hook(webhook=url),), "failure", FACTS)
    assert "no connection" in warning and SECRET not in warning


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_a_warning_and_is_not_followed(server: Server, status: int) -> None:
    """Most clients then send GET without the body, and take the answer as a success."""
    server.answers["/a"] = lambda _: Response(status=status, headers=(("Location", f"/b?key={SECRET}"),))
    (warning,) = post(server, "/a")
    assert f"redirects with HTTP status {status}; write its new address" in warning
    assert SECRET not in warning and len(server.seen) == 1


def test_a_message_answered_with_see_other_was_delivered(server: Server) -> None:
    server.answers["/a"] = lambda _: Response(status=303, headers=(("Location", "/b"),))
    assert post(server, "/a") == [] and server.asked("/b") == []


def test_a_hook_may_have_both_and_a_failure_does_not_skip_the_next(server: Server, tmp_path: Path) -> None:
    both: Any = Hook(python("raise SystemExit(1)")[0].command, server.url + "/a")
    warnings = run_hooks((both, Hook(webhook=server.url + "/b")), "success", FACTS)
    assert len(warnings) == 1 and [request.path for request in server.seen] == ["/a", "/b"]
