"""No shard is empty if there are at least as many images as shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.hostile import document, make_tree, outcomes, run

from shardwright.pipelines.convert import convert


def _records(output: Path) -> dict[str, list[int]]:
    return {
        split: [shard["records"] for shard in found["shards"]]
        for split, found in document(output)["splits"].items()
    }


def _made(source: Path, output: Path, **settings: Any) -> Path:
    convert(input=str(source), output=str(output), **settings)
    return output


def test_a_limit_leaves_no_shard_empty(tmp_path: Path) -> None:
    source = make_tree(tmp_path / "in", images=80)
    output = _made(source, tmp_path / "out", limit=20, shards=4)
    (records,) = _records(output).values()
    assert sum(records) == 20 and min(records) > 0
    found = list(outcomes(output).values())
    assert found.count("limit") == 60 and found.count("written") == 20


def test_as_many_images_as_shards_fill_each_shard(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source = make_tree(tmp_path / "in", images=12)
    (source / "ant/notes.txt").write_text("no image")
    output = _made(source, tmp_path / "out", shards=6, splits="train=0.5,test=0.5")
    found = _records(output)
    assert {split: len(records) for split, records in found.items()} == {"train": 6, "test": 6}
    for records in found.values():
        assert 0 not in records if sum(records) >= 6 else sum(records) <= 6
    assert max(sum(records) for records in found.values()) >= 6
    # The source is compared with the shards as they were filled.
    done = run(capfd, "validate", "--dataset", output, "--against", source)
    assert done.code == 0, done
    again = _made(source, tmp_path / "again", plan_from=str(output / "dataset.json"))
    assert document(again)["fingerprint"] == document(output)["fingerprint"]
