"""Facts about the last rebuild, as metrics in Prometheus' text format (`OUT/metrics.prom`).

All metrics are gauges that the last run set, because nobody can scrape a scheduled job. The textfile
collector of node_exporter, or any web server, serves the file. A failed run knows nothing about the dataset.
Values that a run does not know keep the values of the previous run.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families

from shardwright.core import storage
from shardwright.core.rebuild.begin import warned
from shardwright.schemas.image_ref import printable
from shardwright.schemas.version import METRICS_PROM

#: Ways in which a run may end. Hooks get the same words.
OUTCOMES = ("success", "no_change", "refused", "failure")
#: Outcomes after which the latest version matches the input.
_UP_TO_DATE = ("success", "no_change")

#: Values of the labels besides the dataset, in the order of `_METRICS` -> the value.
_Samples = dict[tuple[str, ...], float]
#: A number; or the numbers by the value of a label, or by the values of several.
_Value = float | Mapping[str, float] | Mapping[tuple[str, str], float]


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
      scrubbed: Mapping of result (`sound`, `damaged`) to number of shards that were read again.
      scrubbed_bytes: Size of the shards that were read again.
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
    scrubbed_bytes: int | None = None


#: Metric -> its labels besides the dataset, its help text, and its value in a run (see `_samples`), in the
#: order of the file.
_METRICS: Mapping[str, tuple[tuple[str, ...], str, Callable[[RunMetrics], _Value | None]]] = {
    "shardwright_rebuild_last_run_timestamp_seconds":
        ((), "When the last rebuild ended.", lambda run: run.ended),
    "shardwright_rebuild_last_run_duration_seconds":
        ((), "How long the last rebuild took.", lambda run: run.seconds),
    "shardwright_rebuild_last_run_outcome":
        (("outcome",), "1 for how the last rebuild ended, 0 for the other ways.",
         lambda run: {name: name == run.outcome for name in OUTCOMES}),
    "shardwright_rebuild_last_success_timestamp_seconds":
        ((), "When a rebuild last ended well: with a new version, or with nothing to change.",
         lambda run: run.ended if run.outcome in _UP_TO_DATE else None),
    "shardwright_rebuild_last_publication_timestamp_seconds":
        ((), "When a rebuild last published a new version.",
         lambda run: run.ended if run.outcome == "success" else None),
    "shardwright_rebuild_shards":
        (("result",), "Shards of the last rebuild, by result: written or reused.", lambda run: run.shards),
    "shardwright_rebuild_images":
        (("result",), "Images of the last rebuild, by result: converted, copied or quarantined.",
         lambda run: run.images),
    "shardwright_rebuild_findings":
        (("code",), "Findings of the last validation of a rebuild, by code.", lambda run: run.findings),
    "shardwright_rebuild_scrubbed_shards":
        (("result",), "Shards of the latest version that the last rebuild read again: sound or damaged.",
         lambda run: run.scrubbed),
    "shardwright_rebuild_scrubbed_bytes":
        ((), "Bytes of the shards that the last rebuild read again.", lambda run: run.scrubbed_bytes),
    "shardwright_dataset_records":
        ((), "Records of the latest version, in all splits.", lambda run: run.records),
    "shardwright_dataset_size_bytes":
        ((), "Bytes of the latest version's shards.", lambda run: run.total_bytes),
    "shardwright_dataset_classes": ((), "Classes of the latest version.", lambda run: run.classes),
    "shardwright_dataset_versions": ((), "Number of versions of the dataset.", lambda run: run.versions),
    "shardwright_dataset_latest_version_info":
        (("fingerprint", "version"), "Always 1; the labels name the latest version.",
         lambda run: {(run.fingerprint, run.version): 1.0} if run.version else None),
}  # fmt: skip


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
        for name, (labels, meaning, _) in _METRICS.items():
            if samples := self.samples.get(name):
                family = GaugeMetricFamily(name, meaning, labels=("dataset", *labels))
                for values in sorted(samples):
                    # Without the surrogates of undecodable bytes.
                    texts = (printable(text).encode("utf-8", "replace") for text in (self.dataset, *values))
                    family.add_metric([text.decode() for text in texts], samples[values])
                yield family


def metrics_text(run: RunMetrics, before: str = "") -> str:
    """Returns the contents of the file.

    Args:
      run: Facts of the last run.
      before: Contents after the previous run. Empty if there was none.
    """
    values = {name: value_of(run) for name, (_, _, value_of) in _METRICS.items()}
    samples = {name: _samples(value) for name, value in values.items() if value is not None}
    return generate_latest(_LastRun(run.dataset, {**_stored(before), **samples})).decode()


def write_metrics(output: str, run: RunMetrics) -> list[str]:
    """Replaces `metrics.prom` as a whole, and keeps the values that a failed run does not know.

    Returns:
      A warning if the file cannot be written. Metrics never make a run fail.
    """
    path = storage.join(output, METRICS_PROM)
    warnings: list[str] = []
    with warned(warnings, f"The metrics of this run could not be written to {printable(path)}"):
        before = b""
        with contextlib.suppress(FileNotFoundError):
            before = storage.read_bytes(path)
        storage.write_bytes(path, metrics_text(run, before.decode("utf-8", "replace")).encode())
    return warnings


def _samples(value: _Value) -> _Samples:
    """Returns the samples of a metric's value in a run."""
    if not isinstance(value, Mapping):
        return {(): value}
    return {key if isinstance(key, tuple) else (key,): number for key, number in value.items()}


def _stored(text: str) -> dict[str, _Samples]:
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
