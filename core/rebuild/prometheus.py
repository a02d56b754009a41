"""Facts about the last rebuild, as metrics in Prometheus' text format (`OUT/metrics.prom`).

All metrics are gauges that the last run set, because nobody can scrape a scheduled job. The textfile
collector of node_exporter, or any web server, serves the file. A failed run knows nothing about the dataset.
Values that a run does not know keep the values of the previous run.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families

from shardwright.core import storage
from shardwright.core.dataset_files import dataset_name
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
                    # Without the surrogates of undecodable bytes.
                    texts = (printable(text).encode("utf-8", "replace") for text in (self.dataset, *values))
                    family.add_metric([text.decode() for text in texts], samples[values])
                yield family


def metrics_text(dataset: str, values: Mapping[str, Value], before: str = "") -> str:
    """Returns the contents of the file.

    Args:
      dataset: Name of the dataset, a label of all metrics.
      values: Values of the metrics that the last run knows.
      before: Contents after the previous run. Empty if there was none.
    """
    samples = {name: _samples(value) for name, value in values.items()}
    return generate_latest(_LastRun(dataset, {**_stored(before), **samples})).decode()


def write_metrics(output: str, values: Mapping[str, Value]) -> list[str]:
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
        text = metrics_text(dataset_name(output), values, before.decode("utf-8", "replace"))
        storage.write_bytes(path, text.encode())
    return warnings


def _samples(value: Value) -> _Samples:
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
