"""The progress line at each stage of a run, and the metrics of the run."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.metrics.cells import DistributionData, DistributionResult
from apache_beam.metrics.execution import MetricKey, MetricResult
from apache_beam.metrics.metric import Lineage, MetricResults
from apache_beam.metrics.metricbase import MetricName
from helpers.repository import PHOTOS

from shardwright.core.concurrency.progress import PROGRESS
from shardwright.pipelines import cli, progress
from shardwright.pipelines.progress import progress_text, show_progress
from shardwright.pipelines.run import metrics_of


@pytest.fixture(autouse=True)
def fresh_board() -> None:
    PROGRESS.reset()


def test_the_line_shows_images_rate_time_left_shards_and_faults() -> None:
    assert progress_text(0) == "starting"
    PROGRESS.add(listed=7000)
    assert progress_text(0) == "listing: 7,000 files"
    PROGRESS.total_images, PROGRESS.total_shards = 7000, 8
    PROGRESS.add(images=1000, bad=3, shards=1)
    assert progress_text(0.1) == "1,000/7,000 images, shard 1/8, 3 bad"
    assert progress_text(10) == "1,000/7,000 images, 100 images/s, 1:00 left, shard 1/8, 3 bad"
    assert "1:40:00 left" in progress_text(1000)
    PROGRESS.add(checked_records=6997, checked_shards=8)
    assert progress_text(70) == "reading back: 6,997 records, shard 8/8, 0 findings"


def test_workers_in_other_processes_are_counted_from_their_ledgers(tmp_path) -> None:
    (tmp_path / "_shards").mkdir()
    for i in range(3):
        (tmp_path / "_shards" / f"{i}.jsonl.gz").touch()
    assert progress_text(5, str(tmp_path)) == "3 shards, 0 bad"


def test_the_input_is_described_once_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with show_progress(True, str(tmp_path)):
        PROGRESS.tree = "3 splits x 10 classes, 3,781 images"
    assert capsys.readouterr().err == "shardwright: found: 3 splits x 10 classes, 3,781 images\n"
    with show_progress(True):  # the command prints it itself
        PROGRESS.tree = "10 classes"
    assert not capsys.readouterr().err


def test_an_unchanged_state_is_printed_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "TICK_SECONDS", 0.001)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    states = iter(["starting"] * 6 + ["listing"] * 3 + ["starting"])
    told = threading.Event()

    def state(seconds: float, directory: str = "") -> str:
        text = next(states, "")
        if not text:
            told.set()
        return text or "starting"

    monkeypatch.setattr(progress, "progress_text", state)
    with show_progress(True):
        assert told.wait(60)
    err = capsys.readouterr().err.splitlines()
    assert err == [f"shardwright: {text}" for text in ("starting", "listing", "starting")]


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
