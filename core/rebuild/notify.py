"""Tells others that a run has ended: hooks, and metrics in Prometheus' text format (`OUT/metrics.prom`).

A command gets the facts on stdin, a webhook gets them by POST. No failure here ends a run; it becomes a
warning. A warning names only the host of a web address, because the rest may be secret.

All metrics are gauges that the last run set, because nobody can scrape a scheduled job. The textfile
collector of node_exporter, or any web server, serves the file. A failed run knows nothing about the dataset.
Values that a run does not know keep the values of the previous run.
"""

from __future__ import annotations

import contextlib
import html
import json
import math
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from shardwright.core import storage
from shardwright.core.concurrency.resources import RUN_FOLDER
from shardwright.core.dataset_files import dataset_name
from shardwright.core.rebuild.begin import warned
from shardwright.schemas import __version__
from shardwright.schemas.configuration.job import Hook
from shardwright.schemas.log_lines import dumps, one_line, plain_value
from shardwright.schemas.plain_text import printable
from shardwright.schemas.version import METRICS_PROM

#: Seconds for a command, and for one attempt to reach a web address.
COMMAND_SECONDS = 60.0
WEBHOOK_SECONDS = 10.0
#: Seconds to wait before each further attempt.
PAUSES = (1.0, 4.0)
_REDIRECTS = (301, 302, 307, 308)
#: The message was received; the answer is at another address.
_SEE_OTHER = 303
#: Limits in bytes for the last output of a command and for a value in its environment.
_LAST_BYTES = 4096
_MAX_ERROR_CHARACTERS = 200
_MAX_VARIABLE = 30_000


def run_hooks(hooks: Sequence[Hook], event: str, facts: Mapping[str, Any]) -> list[str]:
    """Runs each hook, one after the other.

    Args:
      hooks: Hooks to run.
      event: success, no_change, refused or failure.
      facts: Facts to report: output, version, message (one sentence), and others.

    Returns:
      A sentence for each hook that failed.
    """
    sent = plain_value({**facts, "event": event, "text": _sentence(event, facts)})
    warnings = []
    for hook in hooks:
        if hook.command:
            warnings.append(_run(hook.command, sent))
        if hook.webhook:
            warnings.append(_post(hook.webhook, sent))
    return [warning for warning in warnings if warning]


def _sentence(event: str, facts: Mapping[str, Any]) -> str:
    """Returns a sentence that says what happened."""
    output, version, message = (
        one_line(str(facts.get(key) or "")) for key in ("output", "version", "message")
    )
    happened = {
        "success": f"has the new version {version}",
        "no_change": "has not changed",
        "refused": f"refused version {version}",
        "failure": "could not be rebuilt",
    }.get(event, event)
    return f"shardwright: {output} {happened}" + (f": {message}" if message else ".")


def _run(command: Sequence[str], facts: Mapping[str, Any]) -> str:
    """Runs a command; returns the error, or an empty text."""
    hook_name = f"The hook {one_line(command[0])}"
    environment = {**os.environ, **_variables(facts)}
    folder, name = os.path.split(environment.get("TMPDIR", ""))
    if name.startswith(RUN_FOLDER):  # what a command leaves running needs a folder that stays
        environment["TMPDIR"] = folder
    with contextlib.ExitStack() as stack:
        try:
            # Files and not pipes, which a command need not read, and its children may keep open.
            document, errors = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            document.write(dumps(facts).encode() + b"\n")
            document.seek(0)
            process = subprocess.Popen(
                command, stdin=document, stdout=subprocess.DEVNULL, stderr=errors,
                env=environment, start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
            return f"{hook_name} did not start ({reason.lower()}); check its path in the job file."
        try:
            status = process.wait(COMMAND_SECONDS)
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            limit = f"{COMMAND_SECONDS:.0f} seconds"
            return f"{hook_name} did not end within {limit} and was killed; make it faster."
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - _LAST_BYTES))
        lines = errors.read(_LAST_BYTES).decode("utf-8", "replace").strip().splitlines()
    if status == 0:
        return ""
    ended = f"exit status {status}" if status > 0 else f"signal {-status}"
    words = f": {one_line(lines[-1])[:_MAX_ERROR_CHARACTERS]}" if lines else ""
    return f"{hook_name} failed with {ended}{words}; run it by hand with the JSON of a run on stdin."


def _variables(facts: Mapping[str, Any]) -> dict[str, str]:
    """Returns the scalar facts as environment variables such as SHARDWRIGHT_VERSION."""
    variables = {}
    for key, value in facts.items():
        name = f"SHARDWRIGHT_{key.upper()}"
        if name.isidentifier() and isinstance(value, str | int | float):
            text = value if isinstance(value, str) else json.dumps(value)
            encoded = text.replace("\0", "").encode("utf-8", "replace")[:_MAX_VARIABLE]
            variables[name] = encoded.decode("utf-8", "ignore")
    return variables


def _post(url: str, facts: Mapping[str, Any]) -> str:
    """Posts the facts to a web address, in several attempts; returns the error, or an empty text."""
    parts = urlsplit(url)
    webhook = f"The webhook {parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")
    # Escaped, so that a class named `<!channel>` does not notify everybody in a chat.
    body = dumps({**facts, "text": html.escape(facts["text"], quote=False)}).encode()
    for pause in (*PAUSES, None):
        wrong, lasting = _within(WEBHOOK_SECONDS, lambda: _send(url, body))
        if not wrong or lasting or pause is None:
            break
        time.sleep(pause)
    return wrong and f"{one_line(webhook)} did not accept the message ({wrong}); check hooks in the job file."


def _within(seconds: float, send: Callable[[], tuple[str, bool]]) -> tuple[str, bool]:
    """Sends in a thread and abandons it when the time is over: a server may send one byte a minute."""
    result: deque[tuple[str, bool]] = deque(maxlen=1)
    thread = threading.Thread(target=lambda: result.append(send()), daemon=True)
    thread.start()
    thread.join(seconds)
    return result[0] if result else (f"no answer within {seconds:.0f} seconds", False)


def _send(url: str, body: bytes) -> tuple[str, bool]:
    """Sends a message once.

    Returns:
      The error, if any, and whether a retry would fail too.
    """
    import requests

    headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": f"shardwright/{__version__}"}
    try:
        with requests.post(
            url, data=body, headers=headers, timeout=WEBHOOK_SECONDS, allow_redirects=False, stream=True
        ) as answer:
            status = answer.status_code
    except requests.exceptions.SSLError:
        return "its certificate is not trusted", True
    except requests.exceptions.Timeout:
        return f"no answer within {WEBHOOK_SECONDS:.0f} seconds", False
    except requests.exceptions.ConnectionError:
        return "no connection", False
    except Exception as error:  # its message may contain the address
        return type(error).__name__, True
    if status in _REDIRECTS:
        # After some of them, clients send a GET without a body, and the message would be lost.
        return f"it redirects with HTTP status {status}; write its new address", True
    failed = status != _SEE_OTHER and not 200 <= status < 300
    return f"HTTP status {status}" if failed else "", status not in (408, 429) and status < 500


#: Ways in which a run may end. Hooks get the same words.
OUTCOMES = ("success", "no_change", "refused", "failure")
#: Outcomes after which the latest version matches the input.
_UP_TO_DATE = ("success", "no_change")

#: Values of the labels besides the dataset, in the order of `_METRICS` -> the value.
_Samples = dict[tuple[str, ...], float]
#: A number; or the numbers by the value of a label, or by the values of several.
Value = float | Mapping[str, float] | Mapping[tuple[str, str], float]


#: Metric -> its labels besides the dataset, and its help text, in the order of the file.
_METRICS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "shardwright_rebuild_last_run_timestamp_seconds": ((), "When the last rebuild ended."),
    "shardwright_rebuild_last_run_duration_seconds": ((), "How long the last rebuild took."),
    "shardwright_rebuild_last_run_outcome":
        (("outcome",), "1 for how the last rebuild ended, 0 for the other ways."),
    "shardwright_rebuild_last_success_timestamp_seconds":
        ((), "When a rebuild last ended well: with a new version, or with nothing to change."),
    "shardwright_rebuild_last_publication_timestamp_seconds":
        ((), "When a rebuild last published a new version."),
    "shardwright_rebuild_shards": (("result",), "Shards of the last rebuild, by result: written or reused."),
    "shardwright_rebuild_images":
        (("result",), "Images of the last rebuild, by result: converted, copied or quarantined."),
    "shardwright_rebuild_findings": (("code",), "Findings of the last validation of a rebuild, by code."),
    "shardwright_rebuild_scrubbed_shards":
        (("result",), "Shards of the latest version that the last rebuild read again: sound or damaged."),
    "shardwright_rebuild_scrubbed_bytes": ((), "Bytes of the shards that the last rebuild read again."),
    "shardwright_dataset_records": ((), "Records of the latest version, in all splits."),
    "shardwright_dataset_size_bytes": ((), "Bytes of the latest version's shards."),
    "shardwright_dataset_classes": ((), "Classes of the latest version."),
    "shardwright_dataset_versions": ((), "Number of versions of the dataset."),
    "shardwright_dataset_latest_version_info":
        (("fingerprint", "version"), "Always 1; the labels name the latest version."),
}  # fmt: skip


def run_values(outcome: Mapping[str, Any], ended: float) -> dict[str, Value]:
    """Returns the values of metrics that an outcome of a rebuild states.

    Args:
      outcome: The outcome, as it is stored, or as hooks get it after a failure.
      ended: End of the run, in seconds since the epoch.
    """
    state = outcome["state"]
    values: dict[str, Value] = {
        "shardwright_rebuild_last_run_timestamp_seconds": ended,
        "shardwright_rebuild_last_run_duration_seconds": outcome["seconds"],
        "shardwright_rebuild_last_run_outcome": {name: name == state for name in OUTCOMES},
    }
    if state in _UP_TO_DATE:
        values["shardwright_rebuild_last_success_timestamp_seconds"] = ended
    if state == "success":
        values["shardwright_rebuild_last_publication_timestamp_seconds"] = ended
    if "work" in outcome:
        work, scrub = Counter(outcome["work"]), outcome["scrub"]
        reused, damaged = work["reused_shards"], len(scrub["damaged"])
        values |= {
            "shardwright_rebuild_shards": {"written": work["shards"] - reused, "reused": reused},
            "shardwright_rebuild_images": {
                name: work[name] for name in ("converted", "copied", "quarantined")
            },
            "shardwright_rebuild_scrubbed_shards": {"sound": scrub["shards"] - damaged, "damaged": damaged},
            "shardwright_rebuild_scrubbed_bytes": scrub["bytes"],
        }
    return values


def metrics_text(dataset: str, values: Mapping[str, Value], before: str = "") -> str:
    """Returns the contents of the file.

    Args:
      dataset: Name of the dataset, a label of all metrics.
      values: Values of the metrics that the last run knows.
      before: Contents after the previous run. Empty if there was none.
    """
    samples: dict[str, _Samples] = {}
    for name, value in values.items():
        by_labels = value if isinstance(value, Mapping) else {(): value}
        samples[name] = {key if isinstance(key, tuple) else (key,): n for key, n in by_labels.items()}
    samples = {**_parse_metrics(before), **samples}
    registry = CollectorRegistry()
    for name, (labels, meaning) in _METRICS.items():
        if metric_samples := samples.get(name):
            gauge = Gauge(name, meaning, ("dataset", *labels), registry=registry)
            for of_labels in sorted(metric_samples):
                # Without the surrogates of undecodable bytes.
                texts = (printable(text).encode("utf-8", "replace") for text in (dataset, *of_labels))
                gauge.labels(*(text.decode() for text in texts)).set(metric_samples[of_labels])
    return generate_latest(registry).decode()


def write_metrics(output: str, values: Mapping[str, Value]) -> list[str]:
    """Replaces `metrics.prom` as a whole, and keeps the values that a failed run does not know.

    Returns:
      A warning if the file cannot be written. Metrics never make a run fail.
    """
    path = storage.join(output, METRICS_PROM)
    warnings: list[str] = []
    with warned(warnings.append, f"The metrics of this run could not be written to {printable(path)}"):
        before = b""
        with contextlib.suppress(FileNotFoundError):
            before = storage.read_bytes(path)
        text = metrics_text(dataset_name(output), values, before.decode("utf-8", "replace"))
        storage.write_bytes(path, text.encode())
    return warnings


def _parse_metrics(text: str) -> dict[str, _Samples]:
    """Returns the samples of an earlier file and skips damaged lines."""
    stored: dict[str, _Samples] = {}
    for line in text.split("\n"):
        with contextlib.suppress(Exception):  # The parser raises many kinds of errors on damaged lines.
            for family in text_string_to_metric_families(line):
                for name, labels, value, *_ in family.samples:
                    names = _METRICS[name][0]
                    if labels.keys() == {"dataset", *names} and math.isfinite(value):
                        stored.setdefault(name, {})[tuple(labels[key] for key in names)] = value
    return stored
