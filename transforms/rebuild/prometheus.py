"""What the last rebuild did, as metrics in Prometheus' text format (`OUT/metrics.prom`).

All are gauges that the last run set, for a scheduled job is not there to be asked: node_exporter's textfile
collector, or any web server, hands the file on. What a run does not know (one that failed says nothing of the
dataset) stays as the run before said it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shardwright.schemas.errors import ShardwrightError
from shardwright.schemas.image_ref import printable
from shardwright.schemas.version import METRICS_PROM
from shardwright.transforms import storage

#: How a run may end; hooks are told of the same.
OUTCOMES = ("success", "no_change", "refused", "failure")
#: Those after which the latest version is as good as the input.
_UP_TO_DATE = ("success", "no_change")
#: A line of ours; what is none is not taken over.
_SAMPLE = re.compile(
    r'([a-z_]+)\{((?:[a-z]+="(?:[^"\\]|\\["\\n])*",?)+)\} (-?\d{1,19}(?:\.\d{1,19})?(?:e[+-]?\d\d?)?)'
)
_LABEL = re.compile(r'([a-z]+)="((?:[^"\\]|\\["\\n])*)"')
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

#: Name -> what it says, in the order of the file.
_HELP = {
    "shardwright_rebuild_last_run_timestamp_seconds": "When the last rebuild ended.",
    "shardwright_rebuild_last_run_duration_seconds": "How long the last rebuild took.",
    "shardwright_rebuild_last_run_outcome": "1 for how the last rebuild ended, 0 for the other ways.",
    "shardwright_rebuild_last_success_timestamp_seconds":
        "When a rebuild last ended well: with a new version, or with nothing to change.",
    "shardwright_rebuild_last_publication_timestamp_seconds": "When a rebuild last published a new version.",
    "shardwright_rebuild_shards": "Shards of the last rebuild that came so far: written or reused.",
    "shardwright_rebuild_images":
        "Images of the last rebuild that came so far: converted, copied or quarantined.",
    "shardwright_rebuild_findings": "Findings of the last validation of a rebuild, by code.",
    "shardwright_rebuild_scrubbed_shards":
        "Shards of the latest version that the last rebuild read again: sound or damaged.",
    "shardwright_rebuild_scrubbed_bytes": "Bytes of these shards.",
    "shardwright_dataset_records": "Records of the latest version, in all splits.",
    "shardwright_dataset_size_bytes": "Bytes of the latest version's shards.",
    "shardwright_dataset_classes": "Classes of the latest version.",
    "shardwright_dataset_versions": "Versions there are.",
    "shardwright_dataset_latest_version_info": "Always 1; the labels name the latest version.",
}  # fmt: skip


@dataclass(frozen=True)
class RunMetrics:
    """What is known when a run ends; None is for what it does not know.

    Attributes:
      dataset: its name, a label of all metrics.
      outcome: one of `OUTCOMES`.
      ended: seconds since the epoch.
      seconds: that the run took.
      version: the latest one, now.
      fingerprint: of that.
      records: of that.
      total_bytes: of that.
      classes: of that.
      versions: how many there are.
      shards: what was done (`written`, `reused`) -> shards.
      images: what was done (`converted`, `copied`, `quarantined`) -> images.
      findings: code -> how many; empty if there was none.
      scrubbed: what was read again of the version before: `shards`, `bytes`, and how many were `damaged`.
    """

    dataset: str
    outcome: str
    ended: float
    seconds: float
    version: str = ""
    fingerprint: str = ""
    records: int | None = None
    total_bytes: int | None = None
    classes: int | None = None
    versions: int | None = None
    shards: Mapping[str, int] | None = None
    images: Mapping[str, int] | None = None
    findings: Mapping[str, int] | None = None
    scrubbed: Mapping[str, int] | None = None


#: Labels beside the dataset -> value.
_Samples = dict[tuple[tuple[str, str], ...], float]


def metrics_text(run: RunMetrics, before: str = "") -> str:
    """Returns the contents of the file.

    Args:
      run: the last one.
      before: the contents after the run before; empty if there was none.
    """
    known = {**_stored(before), **_of_run(run)}
    lines = []
    for name, meaning in _HELP.items():
        if samples := known.get(name):
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} gauge"]
            lines += [
                _line(name, (("dataset", run.dataset), *labels), samples[labels])
                for labels in sorted(samples)
            ]
    return "".join(f"{line}\n" for line in lines)


def write_metrics(output: str, run: RunMetrics) -> str:
    """Writes `metrics.prom` so that it appears whole, and keeps what a failed run does not know.

    Returns:
      A warning if it cannot be written, else nothing: metrics are no reason for a run to fail.
    """
    path = storage.join(output, METRICS_PROM)
    try:
        try:
            before = storage.read_bytes(path).decode("utf-8", "replace")
        except FileNotFoundError:
            before = ""
        storage.write_bytes(path, metrics_text(run, before).encode())
    except (OSError, ShardwrightError) as error:
        reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
        return f"The metrics of this run could not be written to {printable(path)}: {reason.rstrip('.')}."
    return ""


def _of_run(run: RunMetrics) -> dict[str, _Samples]:
    """Returns the samples of what a run knows, by metric."""
    rebuild, dataset = "shardwright_rebuild_", "shardwright_dataset_"
    ended: _Samples = {(): run.ended}
    info: _Samples | None = (
        {(("fingerprint", run.fingerprint), ("version", run.version)): 1.0} if run.version else None
    )
    read = run.scrubbed
    damaged = read["damaged"] if read else 0
    known: dict[str, _Samples | None] = {
        f"{rebuild}last_run_timestamp_seconds": ended,
        f"{rebuild}last_run_duration_seconds": {(): run.seconds},
        f"{rebuild}last_run_outcome": _by("outcome", {name: name == run.outcome for name in OUTCOMES}),
        f"{rebuild}last_success_timestamp_seconds": ended if run.outcome in _UP_TO_DATE else None,
        f"{rebuild}last_publication_timestamp_seconds": ended if run.outcome == "success" else None,
        f"{rebuild}shards": _by("result", run.shards),
        f"{rebuild}images": _by("result", run.images),
        f"{rebuild}findings": _by("code", run.findings),
        f"{rebuild}scrubbed_shards": _by(
            "result", {"sound": read["shards"] - damaged, "damaged": damaged} if read else None
        ),
        f"{rebuild}scrubbed_bytes": _one(read["bytes"] if read else None),
        f"{dataset}records": _one(run.records),
        f"{dataset}size_bytes": _one(run.total_bytes),
        f"{dataset}classes": _one(run.classes),
        f"{dataset}versions": _one(run.versions),
        f"{dataset}latest_version_info": info,
    }
    return {name: samples for name, samples in known.items() if samples is not None}


def _one(value: float | None) -> _Samples | None:
    return None if value is None else {(): value}


def _by(label: str, values: Mapping[str, float] | None) -> _Samples | None:
    return None if values is None else {((label, name),): value for name, value in values.items()}


def _line(name: str, labels: Iterable[tuple[str, str]], value: float) -> str:
    shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
    return f"{name}{{{shown}}} {int(value) if value == int(value) else float(value)!r}"


def _escaped(text: str) -> str:
    return printable(text).encode("utf-8", "replace").decode().translate(_ESCAPES)


def _stored(text: str) -> dict[str, _Samples]:
    """Returns what a file of ours says, by metric, without the dataset's label and without damaged lines."""
    stored: dict[str, _Samples] = {}
    for line in text.split("\n"):
        match = _SAMPLE.fullmatch(line)
        if match and match[1] in _HELP:
            labels = tuple(
                (key, _unescaped(value)) for key, value in _LABEL.findall(match[2]) if key != "dataset"
            )
            stored.setdefault(match[1], {})[labels] = float(match[3])
    return stored


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], text)
