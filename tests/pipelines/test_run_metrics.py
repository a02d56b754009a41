"""The metrics of a run, from the reports of different runners."""

from __future__ import annotations

from typing import Any

from apache_beam.metrics.cells import DistributionData, DistributionResult
from apache_beam.metrics.execution import MetricKey, MetricResult
from apache_beam.metrics.metric import MetricResults
from apache_beam.metrics.metricbase import MetricName

from shardwright.pipelines.run import metrics_of


class _Told(MetricResults):
    def query(self, filter: Any = None) -> Any:
        def key(step: str, name: str) -> MetricKey:
            return MetricKey(step, MetricName("shardwright", name))

        spread = DistributionResult(DistributionData(6, 2, 2, 4))
        return {
            self.COUNTERS: [
                MetricResult(key("a", "written"), 3, 3),
                MetricResult(key("b", "written"), None, 4),
                MetricResult(key("a", "filtered"), 0, None),
            ],
            self.DISTRIBUTIONS: [
                MetricResult(key("a", "bytes"), spread, spread),
                MetricResult(key("b", "sizes"), None, None),
            ],
        }


class _Ended:
    def metrics(self) -> MetricResults:
        return _Told()


def test_values_that_a_runner_omits_count_as_zero() -> None:
    assert metrics_of(_Ended()) == {
        "bytes": {"count": 2, "sum": 6, "min": 2, "max": 4, "mean": 3.0},
        "filtered": 0,
        "written": 7,
    }
