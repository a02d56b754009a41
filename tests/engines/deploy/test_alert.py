"""Alerts about a systemd unit that has failed."""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from helpers.repository import ROOT

ALERT = ROOT / "deploy" / "systemd" / "alert.py"
UNIT = "shardwright-rebuild@pets.service"


class _Chat(http.server.BaseHTTPRequestHandler):
    messages: ClassVar[list[dict[str, str]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = 500 if self.path == "/broken" else 200
        _Chat.messages.append(json.loads(body))
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def chat() -> Iterator[str]:
    """A server for webhooks."""
    _Chat.messages = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Chat)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def alert(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the alert with a fake journal, and a sendmail that stores the mail."""
    log = r'printf "first\nlast: \377ü\n"'
    (folder / "journalctl").write_text(f'#!/bin/sh\necho "$@" >{folder}/asked\n{log}\n')
    (folder / "sendmail").write_text(f"#!/bin/sh\ncat >{folder}/mail\n")
    for name in ("journalctl", "sendmail"):
        (folder / name).chmod(0o755)
    return subprocess.run(
        [sys.executable, ALERT, UNIT], env={"PATH": f"{folder}:/usr/bin:/bin"} | environment,
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("status", "result", "says"),
    [
        ("1", "exit-code", "a gate refused"),
        ("2", "exit-code", "the job file, its settings or its input are wrong"),
        ("3", "exit-code", "the machine, the network or the storage failed"),
        ("137", "exit-code", "it ended with exit-code 137"),
        ("130", "timeout", "it ended with timeout 130"),
        ("KILL", "signal", "it ended with signal KILL"),
        ("", "", "its log says why"),
    ],
)
def test_a_webhook_gets_the_reason_and_the_log(
    status: str, result: str, says: str, chat: str, tmp_path: Path
) -> None:
    reason = {"MONITOR_EXIT_STATUS": status, "MONITOR_SERVICE_RESULT": result}
    done = alert(tmp_path, ALERT_WEBHOOK=chat, **reason)
    assert (done.returncode, done.stderr) == (0, "")
    (message,) = _Chat.messages
    assert set(message) == {"text"} and says in message["text"] and message["text"].startswith(UNIT)
    assert message["text"].endswith("first\nlast: �ü\n")
    assert UNIT in (tmp_path / "asked").read_text().split()


def test_a_mail_is_sent_even_if_the_webhook_fails(chat: str, tmp_path: Path) -> None:
    done = alert(tmp_path, ALERT_WEBHOOK=f"{chat}/broken", ALERT_MAIL="team@example.com")
    assert done.returncode == 1 and "post failed" in done.stderr and "Traceback" not in done.stderr
    mail = (tmp_path / "mail").read_text()
    assert "To: team@example.com" in mail and f"Subject: {UNIT} failed" in mail


@pytest.mark.parametrize("where", ["http://127.0.0.1:9", "no address", "https://"])
def test_an_alert_that_cannot_be_sent_fails_in_one_line(where: str, tmp_path: Path) -> None:
    done = alert(tmp_path, ALERT_WEBHOOK=where)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1


def test_an_alert_without_an_address_fails(tmp_path: Path) -> None:
    done = alert(tmp_path)
    assert done.returncode == 1 and "neither ALERT_WEBHOOK nor ALERT_MAIL is set" in done.stderr
