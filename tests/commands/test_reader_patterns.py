"""The files beside the shards do not disturb readers that choose shards by a pattern."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to
from helpers.fewer_imports import late
from helpers.hostile import run

from shardwright.pipelines.validate import validate
from shardwright.schemas.sidecars import SIDE_FILES

tf = late("tensorflow")

Capture = pytest.CaptureFixture[str]


def counts_of(dataset: Path) -> dict[str, int]:
    """Returns the records of each split that dataset.json names."""
    splits = json.loads((dataset / "dataset.json").read_text())["splits"]
    return {name: split["records"] for name, split in splits.items()}


@pytest.fixture
def copied(sound_dataset: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound_dataset, tmp_path / "copied"))


def test_patterns_that_begin_with_a_split_match_only_its_shards(copied: Path) -> None:
    validate(copied, mode="quality")  # this writes every other file
    others = {path.name for path in copied.iterdir() if not path.name.endswith(".tfrecord")}
    assert others <= set(SIDE_FILES)
    for prefix, split in (
        ("train", "train"),
        ("validation", "validation"),
        ("val", "validation"),
        ("test", "test"),
    ):
        files = tf.io.gfile.glob(f"{copied}/{prefix}*")
        assert sum(1 for _ in tf.data.TFRecordDataset(files)) == counts_of(copied)[split]


def test_tfx_reads_the_patterns_that_the_documents_name(sound_dataset: Path) -> None:
    # ImportExampleGen joins input_base and pattern, and passes the result to Beam's ReadFromTFRecord.
    for split, records in counts_of(sound_dataset).items():
        with beam.Pipeline("FnApiRunner") as pipeline:
            read = pipeline | beam.io.ReadFromTFRecord(file_pattern=f"{sound_dataset}/{split}-*")
            assert_that(read | beam.combiners.Count.Globally(), equal_to([records]))


def test_splits_of_a_source_that_clash_are_refused_before_anything_is_written(
    tmp_path: Path, photos: Path, capfd: Capture
) -> None:
    table = tmp_path / "rows.csv"
    first, second = sorted(photos.rglob("*.jpg"))[:2]
    table.write_text(f"path,label,split\n{first},a,train\n{second},a,data\n")
    output = tmp_path / "out"
    done = run(capfd, "convert", f"--input={table}", f"--output={output}")
    assert done.code == 2
    assert "split 'data' needs another name" in done.err
    assert done.err.endswith("would also match dataset.json; rename it in the source.\n")
    assert not output.exists()
