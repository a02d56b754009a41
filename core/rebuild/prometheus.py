"""Facts about the last rebuild, as metrics in Prometheus' text format (`OUT/metrics.prom`).

All metrics are gauges that the last run set, because nobody can scrape a scheduled job. The textfile
collector of node_exporter, or any web server, serves the file. A failed run knows nothing about the dataset.
Values that a run does not know keep the values of the previous run.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families

from shardwright.core import storage
from shardwright.schemas.errors import ShardwrightError
from shardwright.schemas.image_ref import printable
from shardwright.schemas.version import METRICS_PROM

#: Ways in which a run may end. Hooks get the same words.
OUTCOMES = ("success", "no_change", "refused", "failure")
#: Outcomes after which the latest version matches the input.
_UP_TO_DATE = ("success", "no_change")

#: Mapping of metric name to its labels besides the dataset and its help text, in the order of the file.
_METRICS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "shardwright_rebuild_last_run_timestamp_seconds": ((), "When the last rebuild ended."),
    "shardwright_rebuild_last_run_duration_seconds": ((), "How long the last rebuild took."),
    "shardwright_rebuild_last_run_outcome":
        (("outcome",), "1 for how the last rebuild ended, 0 for the other ways."),
    "shardwright_rebuild_last_success_timestamp_seconds":
        ((), "When a rebuild last ended well: with a new version, or with nothing to change."),
    "shardwright_rebuild_last_publication_timestamp_seconds":
        ((), "When a rebuild last published a new version."),
    "shardwright_rebuild_shards":
        (("result",), "Shards of the last rebuild, by result: written or reused."),
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


@dataclass(frozen=True)
class RunMetrics:
    """Facts that are known when a run ends; None if the run does not know a fact.

    Attributes:
      dataset: Name of the dataset, a label of all metrics.
      outcome: One of `OUTCOMES`.
      ended: End of the run, in seconds since the epoch.
      seconds: Duration of the run.
      version: The latest version after the run.
      fingerprint: Fingerprint of the latest version.
      records: Number of records of the latest version.
      total_bytes: Size of the latest version's shards.
      classes: Number of classes of the latest version.
      versions: Number of versions.
      shards: Mapping of result (`written`, `reused`) to number of shards.
      images: Mapping of result (`converted`, `copied`, `quarantined`) to number of images.
      findings: Mapping of code to number of findings. Empty if there were none.
      scrubbed: `shards` and `bytes` of the previous version that were read again, and how many are `damaged`.
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


#: Mapping of label values besides the dataset, in the order of `_METRICS`, to the value.
_Samples = dict[tuple[str, ...], float]


@dataclass(frozen=True)
class _LastRun:
    """Collector for `prometheus_client`.

    Attributes:
      dataset: Name of the dataset.
      samples: Samples of each metric.
    """

    dataset: str
    samples: Mapping[str, _Samples]

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics that have samples."""
        for name, (labels, meaning) in _METRICS.items():
            if samples := self.samples.get(name):
                family = GaugeMetricFamily(name, meaning, labels=("dataset", *labels))
                for values in sorted(samples):
                    family.add_metric([_encodable(text) for text in (self.dataset, *values)], samples[values])
                yield family


def metrics_text(run: RunMetrics, before: str = "") -> str:
    """Returns the contents of the file.

    Args:
      run: Facts of the last run.
      before: Contents after the previous run. Empty if there was none.
    """
    return generate_latest(_LastRun(run.dataset, {**_stored(before), **_of_run(run)})).decode()


def write_metrics(output: str, run: RunMetrics) -> str:
    """Replaces `metrics.prom` as a whole, and keeps the values that a failed run does not know.

    Returns:
      A warning if the file cannot be written, else an empty text. Metrics never make a run fail.
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
    """Returns the samples of the facts that a run knows, by metric."""
    rebuild, dataset = "shardwright_rebuild_", "shardwright_dataset_"
    ended: _Samples = {(): run.ended}
    info: _Samples | None = {(run.fingerprint, run.version): 1.0} if run.version else None
    read = run.scrubbed
    damaged = read["damaged"] if read else 0
    known: dict[str, _Samples | None] = {
        f"{rebuild}last_run_timestamp_seconds": ended,
        f"{rebuild}last_run_duration_seconds": {(): run.seconds},
        f"{rebuild}last_run_outcome": _by({name: name == run.outcome for name in OUTCOMES}),
        f"{rebuild}last_success_timestamp_seconds": ended if run.outcome in _UP_TO_DATE else None,
        f"{rebuild}last_publication_timestamp_seconds": ended if run.outcome == "success" else None,
        f"{rebuild}shards": _by(run.shards),
        f"{rebuild}images": _by(run.images),
        f"{rebuild}findings": _by(run.findings),
        f"{rebuild}scrubbed_shards": _by(
            {"sound": read["shards"] - damaged, "damaged": damaged} if read else None
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


def _by(values: Mapping[str, float] | None) -> _Samples | None:
    return None if values is None else {(name,): value for name, value in values.items()}


def _encodable(text: str) -> str:
    """Returns a label's value without the surrogates of undecodable bytes."""
    return printable(text).encode("utf-8", "replace").decode()


def _stored(text: str) -> dict[str, _Samples]:
    """Returns the samples of an earlier file and skips damaged lines."""
    stored: dict[str, _Samples] = {}
    for line in text.split("\n"):
        with contextlib.suppress(Exception):  # The parser raises many kinds of errors on damaged lines.
            for family in text_string_to_metric_families(line):
                for name, labels, value, *_ in family.samples:
                    names, _meaning = _METRICS[name]
                    if labels.keys() == {"dataset", *names} and math.isfinite(value):
                        stored.setdefault(name, {})[tuple(labels[key] for key in names)] = value
    return stored
