"""Files that cannot become records do not affect the number of shards."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from shardwright.pipelines.plan import plan


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(16):
        path = tmp_path / "in" / f"class{number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), (number, 0, 0)).save(path)
    return tmp_path / "in"


@pytest.mark.parametrize("limit", [0, 10_000])
def test_a_rejected_file_of_ten_gigabytes_adds_no_shards(folder: Path, limit: int) -> None:
    with open(folder / "class0" / "huge.jpg", "wb") as file:
        file.write(b"\xff\xd8\xff\xe0")
        file.truncate(10_000_000_000)  # it uses no block of the disk
    assert plan(input=str(folder), limit=limit, max_bad_fraction=1.0).plan.shards == {"train": 1}


def test_a_rejected_file_of_the_sample_adds_no_shards(folder: Path) -> None:
    before = plan(input=str(folder), shard_size="1MB").plan
    (folder / "class0" / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0" + bytes(5_000_000))
    after = plan(input=str(folder), shard_size="1MB", max_bad_fraction=1.0).plan
    assert before.shards == after.shards == {"train": 1}
    assert before.estimate == after.estimate
