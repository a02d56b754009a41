"""Validation of damaged shards, odd documents, leaks and foreign files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.fewer_imports import late
from helpers.planting import (
    SHARD,
    rewrite,
    set_text,
    texts,
    written_lines,
)
from helpers.resealing import read_shard

from shardwright.pipelines.cli import main
from shardwright.pipelines.validate import validate

tf = late("tensorflow")


@pytest.fixture
def dataset(sound_dataset: Path, tmp_path: Path) -> Path:
    """A copy of the sound dataset that a test may damage."""
    return Path(shutil.copytree(sound_dataset, tmp_path / "dataset"))


def test_files_that_no_reader_takes_for_a_shard_are_left_alone(dataset: Path) -> None:
    for name in (
        f"._{SHARD}",
        f"_work/{SHARD}",
        f"another/{SHARD}",
        "another/dataset.json",
        "notes.tfrecord",
    ):
        (dataset / name).parent.mkdir(exist_ok=True)
        (dataset / name).write_bytes(b"")
    assert validate(str(dataset)).counts == {}


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda data: b"\xef\xbb\xbf" + data, "it begins with a byte order mark"),
        (lambda data: data.replace(b"{", b'{"labels": ["fish"],', 1), "it names 'labels' twice"),
        (lambda data: data.decode().encode("utf-16"), "it is not UTF-8"),
    ],
)
def test_a_document_that_readers_understand_differently_is_reported(
    dataset: Path, capsys: pytest.CaptureFixture[str], change: Callable[[bytes], bytes], part: str
) -> None:
    path = dataset / "dataset.json"
    path.write_bytes(change(path.read_bytes()))
    assert main(["validate", str(dataset), "--fast"]) == 1
    out = capsys.readouterr().out
    assert "DATASET_MISMATCH" in out and f"{part}: other readers may fail or find other values" in out


def test_leakage_is_a_warning_unless_a_gate_names_it(dataset: Path) -> None:
    shard = "test-00000-of-00001.tfrecord"
    label = written_lines(dataset, shard)[0]["label"]
    number = next(i for i, line in enumerate(written_lines(dataset, SHARD)) if line["label"] == label)
    leaked = tf.train.Example.FromString(read_shard(dataset / SHARD)[number])
    sha256 = texts(leaked, "image/key/sha256")[0]
    rewrite(dataset, set_text("image/key/sha256", sha256), number=0, shard=shard, sha256=sha256.decode())
    report = validate(str(dataset))
    assert (report.counts, report.sound) == ({"SPLIT_LEAKAGE": 1}, True)
    assert not validate(str(dataset), fail_on=["SPLIT_LEAKAGE"]).sound
    assert main(["validate", "--dataset", str(dataset), "--fast"]) == 0
    assert main(["validate", "--dataset", str(dataset), "--fast", "--fail_on", "SPLIT_LEAKAGE"]) == 1


def foreign_example(image: bytes, label: int) -> bytes:
    feature = {
        "image_raw": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_foreign_files_validate_with_features_inferred(
    tmp_path: Path, photos: Path, compression: str, capsys: pytest.CaptureFixture[str]
) -> None:
    suffix = ".gz" if compression else ""
    images = [path.read_bytes() for path in sorted(photos.rglob("*.jpg"))]
    options = tf.io.TFRecordOptions(compression_type=compression)
    for i in range(2):
        with tf.io.TFRecordWriter(str(tmp_path / f"part {i}.tfrecord{suffix}"), options) as writer:
            for j, image in enumerate(images[:5]):
                writer.write(foreign_example(image, j))
    pattern = str(tmp_path / f"*.tfrecord{suffix}")
    assert main(["validate", "--dataset", pattern]) == 0
    with tf.io.TFRecordWriter(str(tmp_path / f"part 2.tfrecord{suffix}"), options) as writer:
        writer.write(foreign_example(images[0][: len(images[0]) // 2], 0))
        writer.write(tf.train.Example().SerializeToString())
    assert main(["validate", "--dataset", pattern]) == 1
    printed = capsys.readouterr().out
    assert "UNDECODABLE" in printed and "MISSING_FEATURE" in printed
