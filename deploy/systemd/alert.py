"""Sends an alert that a systemd unit has failed, with the end of its log; see shardwright-alert@.service."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from email.message import EmailMessage
from http.client import HTTPException

#: What the exit codes of `shardwright rebuild` mean.
MEANINGS = {
    "1": "a gate refused the new version, readers keep the latest one: look at the new version's report",
    "2": "the job file, its settings or its input are wrong: nothing was written",
    "3": "the machine, the network or the storage failed: the next run continues",
}


def text_of(unit: str, environment: Mapping[str, str], log: str) -> str:
    """Returns the text of the alert; systemd 251 and later give the reason in MONITOR_..."""
    status = environment.get("MONITOR_EXIT_STATUS", "")
    result = environment.get("MONITOR_SERVICE_RESULT", "")
    reason = MEANINGS.get(status) if result in ("exit-code", "") else None
    parts = [item for item in (result, status) if item]
    reason = reason or (f"it ended with {' '.join(parts)}" if parts else "its log says why")
    return f"{unit} on {socket.gethostname()} failed: {reason}.\n\n{log}"


def log_of(unit: str) -> str:
    """Returns the last lines of the unit's log, or why it cannot be read; the alert is sent anyway."""
    command = ["journalctl", "--unit", unit, "--lines", "20", "--output", "cat", "--no-pager"]
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=30).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return f"Its log cannot be read: {error}\n"


def post(url: str, text: str) -> None:
    """Sends a text to a webhook."""
    body = json.dumps({"text": text}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=30).close()


def mail(address: str, subject: str, text: str) -> None:
    """Sends a text by mail."""
    message = EmailMessage()
    message["To"], message["Subject"] = address, subject
    message.set_content(text)
    subprocess.run(["sendmail", "-t", "-i"], input=message.as_bytes(), check=True, timeout=60)


def main() -> int:
    """Sends the alert to every configured address; if one fails, the others are still tried."""
    unit = sys.argv[1]
    text = text_of(unit, os.environ, log_of(unit))
    webhook, address = os.environ.get("ALERT_WEBHOOK", ""), os.environ.get("ALERT_MAIL", "")
    ways = [(post, (webhook, text))] if webhook else []
    ways += [(mail, (address, f"{unit} failed", text))] if address else []
    failed = not ways
    if failed:
        print("alert.py: neither ALERT_WEBHOOK nor ALERT_MAIL is set", file=sys.stderr)
    for send, arguments in ways:
        try:
            send(*arguments)
        except (OSError, ValueError, HTTPException, subprocess.SubprocessError) as error:
            print(f"alert.py: {send.__name__} failed: {error}", file=sys.stderr)
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
