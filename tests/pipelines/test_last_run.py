"""The next run knows how fast the last one was, and a rebuild what it will convert."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from helpers.hostile import make_tree

from shardwright.pipelines import rebuild as rebuilding
from shardwright.pipelines.convert import convert
from shardwright.pipelines.last_run import before_conversion, read_run
from shardwright.pipelines.prepare import make_request
from shardwright.pipelines.rebuild import rebuild
from shardwright.pipelines.workers import LastRun
from shardwright.transforms import commit


def test_a_conversion_knows_the_dataset_that_it_replaces_or_carries_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tree(tmp_path / "in", 12)
    made = tmp_path / "out"
    values: dict[str, Any] = {"input": str(tmp_path / "in"), "output": str(made), "shards": 2}
    convert(**values)
    assert "speed" not in read_run(str(made)), "a few images do not tell"
    monkeypatch.setattr(commit, "MIN_IMAGES", 1)
    convert(**values, overwrite=True)
    stored = read_run(str(made))["speed"]
    assert stored["processor_seconds"] > 0
    sizes = [path.stat().st_size for path in (tmp_path / "in").rglob("*") if path.is_file()]
    assert stored["bytes"] == pytest.approx(sum(sizes) / len(sizes), abs=0.1)
    other = {**values, "output": str(tmp_path / "other")}
    for more in ({"overwrite": True}, {"resume": True}):
        last = before_conversion(make_request({**values, **more}, with_output=True))
        assert last.speed is not None and last.speed.as_json() == stored
    assert before_conversion(make_request(other, with_output=True)) == LastRun()
    del other["shards"]
    for place in (made, made / "dataset.json"):
        last = before_conversion(make_request({**other, "plan_from": str(place)}, with_output=True))
        assert last.speed is not None and last.speed.as_json() == stored
        assert last.shards == {"train": 2}
    (made / "run.json").write_text("[")
    assert read_run(str(made)) == {}


def test_a_rebuild_knows_since_when_files_changed_unless_it_converts_all_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[LastRun] = []

    def choose(given: Any, inputs: Any, settings: Any, last: LastRun) -> int:
        known.append(last)
        return 1

    monkeypatch.setattr(rebuilding, "choose_processes", choose)
    make_tree(tmp_path / "in", 12)
    values: dict[str, Any] = {"input": str(tmp_path / "in"), "output": str(tmp_path / "out"), "shards": 1}
    with monkeypatch.context() as patch:
        patch.setattr(commit, "MIN_IMAGES", 1)
        rebuild(**values)
    rebuild(**values, quality=90)
    run = read_run(rebuild(**values, quality=90).path)
    make_tree(tmp_path / "in", 13)
    rebuild(**values, quality=90)
    assert known[0] == LastRun()
    assert known[1].since is None, "another quality changes all images"
    assert known[1].shards == {"train": 1} and known[1].speed is not None
    assert known[2].since is not None and known[2].speed == known[1].speed, "none was fast enough to tell"
    made = datetime.fromisoformat(run["started"].replace("Z", "+00:00"))
    assert known[2].since == made.timestamp()
