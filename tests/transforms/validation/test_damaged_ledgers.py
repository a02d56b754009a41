"""A shard is compared with its ledger up to the damage of the ledger, in little memory."""

from __future__ import annotations

import gzip
import json
import shutil
import tracemalloc
from pathlib import Path

import pytest
from helpers.resealing import read_ledger, write_ledger
from PIL import Image

from shardwright.pipelines.convert import convert
from shardwright.pipelines.datasets import resolve_target, schema_of
from shardwright.pipelines.validate import list_tasks
from shardwright.schemas import ledger as ledger_lines
from shardwright.schemas.dataset import Shard
from shardwright.transforms.validation.ledger import LedgerCheck
from shardwright.transforms.validation.shard import Depth, check_shard


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with one shard of 120 small photos."""
    root = tmp_path_factory.mktemp("many")
    for number in range(120):
        (root / "in" / f"class{number % 3}").mkdir(parents=True, exist_ok=True)
        picture = Image.new("RGB", (24, 24), (2 * number, 90, 30))
        picture.save(root / "in" / f"class{number % 3}" / f"{number:03}.jpg")
    convert(input=str(root / "in"), output=str(root / "out"), verify="none")
    return root / "out"


@pytest.mark.parametrize("share", [0.3, 0.6, 0.99])
def test_records_before_damage_in_a_ledger_are_compared_with_it(
    many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    monkeypatch.setattr(ledger_lines, "_BLOCK_BYTES", 2000)  # so that the ledger has several blocks
    shutil.copytree(many, tmp_path / "out")
    (shard,) = (tmp_path / "out").glob("*.tfrecord")
    lines = read_ledger(tmp_path / "out", shard.stem)
    lines[3]["label"] = "wrong"
    write_ledger(tmp_path / "out", shard.stem, lines)
    (path,) = (tmp_path / "out" / "_shards").iterdir()
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    target = resolve_target(str(tmp_path / "out"))
    (task,) = list_tasks(target)
    messages = [finding.message for finding in check_shard(task, schema_of(target), Depth.FAST).findings]
    assert any("its class is" in message for message in messages)
    assert any("it is damaged" in message for message in messages)


def test_endless_empty_lines_of_a_ledger_need_no_memory(many: Path) -> None:
    (shard,) = many.glob("*.tfrecord")
    header = read_ledger(many, shard.stem)[0] | {"counts": {"written": 10**9}}
    data = gzip.compress(json.dumps(header).encode() + b"\n" * 10_000_000, 1)
    tracemalloc.start()
    try:
        check = LedgerCheck(data, Shard(header["file"], 0, 0, header["sha256"]))
        ((_, message),) = check.finish(sound=False)
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()
    assert "it is damaged" in message
