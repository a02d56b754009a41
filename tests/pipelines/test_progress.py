"""What the progress line says at each stage of a run."""

from __future__ import annotations

import pytest

from shardwright.pipelines.progress import progress_text
from shardwright.transforms.progress import PROGRESS


@pytest.fixture(autouse=True)
def fresh_board() -> None:
    PROGRESS.reset()


def test_it_tells_images_rate_time_left_shards_and_bad_ones() -> None:
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


def test_workers_in_other_processes_show_by_their_ledgers(tmp_path) -> None:
    (tmp_path / "_shards").mkdir()
    for i in range(3):
        (tmp_path / "_shards" / f"{i}.jsonl.gz").touch()
    assert progress_text(5, str(tmp_path)) == "3 shards, 0 bad"
