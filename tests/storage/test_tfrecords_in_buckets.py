"""TFRecord files in a bucket: listed from a copy, read in ranges, with the same dataset as on a disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers.hostile import check_books, shard_hashes
from helpers.storage.buckets import Bucket

from shardwright.pipelines.convert import convert


@pytest.mark.slow
def test_a_dataset_in_a_bucket_can_be_resharded(bucket: Bucket, sound_dataset: Path, tmp_path: Path) -> None:
    bucket.put_tree(sound_dataset, "own/")
    convert(input=str(sound_dataset), output=str(tmp_path / "local"), shards=2)
    convert(input=f"{bucket.url}/own", output=str(tmp_path / "remote"), shards=2)
    check_books(tmp_path / "remote")
    assert shard_hashes(tmp_path / "remote") == shard_hashes(tmp_path / "local")


@pytest.mark.slow
def test_compressed_files_without_dataset_json_are_read(
    bucket: Bucket, sound_dataset: Path, tmp_path: Path
) -> None:
    convert(input=str(sound_dataset), output=str(tmp_path / "packed"), shards=1, compression="gzip")
    files = tmp_path / "files" / "sub"
    files.mkdir(parents=True)
    for path in (tmp_path / "packed").glob("*.tfrecord.gz"):
        shutil.copy(path, files / path.name)
    shutil.copy(tmp_path / "packed" / "labels.txt", files / "labels.txt")
    bucket.put_tree(tmp_path / "files", "foreign/")
    convert(input=str(tmp_path / "files"), output=str(tmp_path / "local"), shards=2)
    convert(input=f"{bucket.url}/foreign", output=f"{bucket.url}/out", shards=2)
    fetched = bucket.fetch("out", tmp_path / "fetched")
    assert shard_hashes(fetched) == shard_hashes(tmp_path / "local")
    assert bucket.document("out")["splits"].keys() == {"train", "validation", "test"}
    one = f"{bucket.url}/foreign/sub/train-00000-of-00001.tfrecord.gz"
    convert(input=one, output=str(tmp_path / "one"), shards=1)
    assert check_books(tmp_path / "one").keys()


def test_a_pattern_in_a_bucket_selects_files(bucket: Bucket, sound_dataset: Path, tmp_path: Path) -> None:
    bucket.put_tree(sound_dataset, "own/")
    convert(input=f"{sound_dataset}/train-*", output=str(tmp_path / "local"), shards=2)
    convert(input=f"{bucket.url}/own/train-*", output=str(tmp_path / "remote"), shards=2)
    assert shard_hashes(tmp_path / "remote") == shard_hashes(tmp_path / "local")
