"""A salvage that is described now and runs later takes the lease when it runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from shardwright.pipelines.datasets import Target
from shardwright.pipelines.one_writer import one_writer
from shardwright.pipelines.prepare import as_beam_options
from shardwright.pipelines.run import run_pipeline
from shardwright.pipelines.salvage import build_salvage
from shardwright.pipelines.validate import validate
from shardwright.schemas.errors import EngineError
from shardwright.schemas.lease import Lease
from shardwright.transforms.lease import HeldLease
from shardwright.transforms.salvage.commit import SalvageJob, outcome_of

LEASE = "_work/lease.json"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("foreign", [False, True])
def test_a_described_salvage_takes_a_lease_each_time(
    sound_dataset: Path, tmp_path: Path, foreign: bool
) -> None:
    output, options = tmp_path / "out", as_beam_options(None)
    damaged = shutil.copytree(sound_dataset, tmp_path / "damaged")
    target = Target("it", None, f"{damaged}/*.tfrecord") if foreign else Target("it", str(damaged), None)
    with one_writer(str(output), options, described=True) as hold:
        assert hold is not None
    directory = "" if foreign else str(damaged)
    job = SalvageJob("it", directory, str(output), True, {}, 1.0, hold, described=True)
    holders = set()
    for _ in range(2):
        run_pipeline(lambda pipeline: build_salvage(pipeline, target, job), options)
        outcome = json.loads((output / "_work" / "outcome.json").read_text())
        holders.add(outcome["holder"])
        assert outcome["records"] and not (output / LEASE).exists()
    assert len(holders) == 2 and hold.holder not in holders
    assert foreign or validate(str(output)).sound
    before = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    HeldLease(str(output), Lease("theirs", "", "elsewhere", 7), LEASE).acquire()
    with pytest.raises(EngineError, match="process 7 on elsewhere"):
        run_pipeline(lambda pipeline: build_salvage(pipeline, target, job), options)
    (output / LEASE).unlink()
    assert {path: path.read_bytes() for path in output.rglob("*") if path.is_file()} == before


def test_an_engine_that_repeats_the_last_step_gets_its_outcome(tmp_path: Path) -> None:
    hold = HeldLease(str(tmp_path), Lease("mine", ""), LEASE)
    job = SalvageJob("it", "", str(tmp_path), True, hold=hold, described=True)
    assert outcome_of(job) is None
    (tmp_path / "_work").mkdir()
    for holder, found in (("theirs", False), ("mine", True)):
        (tmp_path / "_work" / "outcome.json").write_text(json.dumps({"holder": holder}))
        assert (outcome_of(job) is not None) == found
