"""The metrics of a run, from the reports of different runners."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.metrics.cells import DistributionData, DistributionResult
from apache_beam.metrics.execution import MetricKey, MetricResult
from apache_beam.metrics.metric import Lineage, MetricResults
from apache_beam.metrics.metricbase import MetricName
from helpers.repository import PHOTOS

from shardwright.pipelines import cli
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


@pytest.mark.parametrize("command", ["convert", "rebuild"])
def test_a_job_reports_its_inputs_and_its_output_once(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[Any] = []
    run = beam.Pipeline.run
    monkeypatch.setattr(beam.Pipeline, "run", lambda pipeline: ended.append(run(pipeline)) or ended[-1])
    inputs = [PHOTOS / "birds", PHOTOS / "fruit"]
    names = [f"--input={path.name}={path}" for path in inputs]
    output = tmp_path / "out"
    assert cli.main([command, *names, f"--output={output}", "--resize=16", "--unlabelled=keep"]) == 0
    (result,) = ended
    assert Lineage.query(result.metrics(), Lineage.SOURCE) == {
        f"filesystem:localhost.{path}" for path in inputs
    }
    assert Lineage.query(result.metrics(), Lineage.SINK) == {f"filesystem:localhost.{output}"}
