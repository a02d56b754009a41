"""The main job end to end; TensorFlow reads its output."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from helpers.fewer_imports import late
from helpers.hostile import shard_hashes
from helpers.repository import PHOTOS
from PIL import Image, ImageOps

from shardwright.pipelines.convert import convert
from shardwright.pipelines.plan import plan
from shardwright.pipelines.results import ConvertResult
from shardwright.schemas.dataset import fingerprint

tf = late("tensorflow")

#: Feature -> name of its type.
TYPES = {
    "image/encoded": "string",
    "image/format": "string",
    "image/height": "int64",
    "image/width": "int64",
    "image/channels": "int64",
    "image/class/label": "int64",
    "image/class/text": "string",
    "image/filename": "string",
    "image/key/sha256": "string",
}
TF_COMPRESSION = {"none": "", "gzip": "GZIP", "zlib": "ZLIB"}


def read_all(result: ConvertResult, compression: str = "none") -> list[dict[str, object]]:
    """Reads every record with TensorFlow, in the order of the shards."""
    spec = {name: tf.io.FixedLenFeature([], tf.as_dtype(kind)) for name, kind in TYPES.items()}
    files = [
        str(Path(result.path) / shard.file) for shards in result.dataset.splits.values() for shard in shards
    ]
    records = tf.data.TFRecordDataset(files, compression_type=TF_COMPRESSION[compression])
    return [
        {name: value.numpy() for name, value in tf.io.parse_single_example(record, spec).items()}
        for record in records
    ]


def reference(path: Path, size: tuple[int, int]) -> np.ndarray:
    """Returns the stored pixels as Pillow would compute them: upright, over white, RGB, bilinear."""
    with Image.open(path) as opened:
        image = ImageOps.exif_transpose(opened).convert("RGBA")
    canvas = Image.new("RGBA", image.size, "white")
    canvas.alpha_composite(image)
    return np.asarray(canvas.convert("RGB").resize(size, Image.Resampling.BILINEAR))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_tensorflow_reads_every_record_with_the_right_pixels(
    convert_photos: Callable[..., ConvertResult], compression: str
) -> None:
    result = convert_photos(
        resize="48x32", image_format="png", compression=compression, splits="train=0.7,test=0.3"
    )
    records = read_all(result, compression)
    files = sorted(path for path in PHOTOS.rglob("*") if path.is_file())
    assert sorted(r["image/filename"].decode() for r in records) == [
        path.relative_to(PHOTOS).as_posix() for path in files
    ]
    labels = result.dataset.labels
    assert labels == tuple(sorted(path.name for path in PHOTOS.iterdir()))
    for record in records:
        path = PHOTOS / record["image/filename"].decode()
        assert labels[record["image/class/label"]] == path.parent.name
        assert record["image/class/text"].decode() == path.parent.name
        assert record["image/key/sha256"].decode() == hashlib.sha256(path.read_bytes()).hexdigest()
        assert record["image/format"] == b"png"
        pixels = tf.io.decode_png(record["image/encoded"]).numpy()
        assert pixels.shape == (32, 48, 3)
        shape = tuple(record[f"image/{name}"] for name in ("height", "width", "channels"))
        assert shape == pixels.shape
        difference = pixels.astype(float) - reference(path, (48, 32))
        # JPEGs much larger than the target are decoded DCT-scaled: 42 dB. In others, only rounding differs.
        psnr = 10 * np.log10(255**2 / max(np.mean(difference**2), 1e-9))
        assert psnr >= 42 if path.suffix == ".jpg" else np.abs(difference).max() <= 2, path


def test_kept_originals_are_the_source_bytes(convert_photos: Callable[..., ConvertResult]) -> None:
    result = convert_photos()
    kept = 0
    for record in read_all(result):
        source = (PHOTOS / record["image/filename"].decode()).read_bytes()
        kept += record["image/encoded"] == source
        assert tf.io.decode_image(record["image/encoded"]).shape[2] == record["image/channels"]
    assert kept == result.outcome["kept"] > 10
    jpegs = [r for r in read_all(result) if r["image/filename"].lower().endswith(b".jpg")]
    assert {r["image/format"] for r in jpegs} == {b"jpg"}


def test_the_directory_has_the_documented_files(sound_dataset: Path) -> None:
    document = json.loads((sound_dataset / "dataset.json").read_text())
    names = {path.relative_to(sound_dataset).as_posix() for path in sound_dataset.rglob("*")}
    shards = {s["file"] for split in document["splits"].values() for s in split["shards"]}
    ledgers = {f"_shards/{name.removesuffix('.tfrecord')}.jsonl.gz" for name in shards}
    side_files = {
        "dataset.json", "labels.txt", "quarantine.jsonl", "findings.json",
        "run.json", "_shards", "_work", "_work/outcome.json", "_index", "croissant.json",
        "dataset_info.json", "features.json", "parse.py", "schema.pbtxt", "README.md",
        "_card", "_card/.samples.jpg",
    }  # fmt: skip
    indexes = {f"_index/{name.removesuffix('.tfrecord')}.idx" for name in shards}
    assert names == shards | ledgers | indexes | side_files
    assert document["format_version"] == 1
    labels = (sound_dataset / "labels.txt").read_text().splitlines()
    assert labels == [f"{i}:{name}" for i, name in enumerate(document["labels"])]
    hashes = {}
    for name in shards:
        data = (sound_dataset / name).read_bytes()
        hashes[name] = hashlib.sha256(data).hexdigest()
    assert hashes == shard_hashes(sound_dataset)
    assert document["fingerprint"] == fingerprint(hashes, document["labels"], document["features"])


def test_the_shard_ledgers_locate_every_record(sound_dataset: Path) -> None:
    document = json.loads((sound_dataset / "dataset.json").read_text())
    counted = {"written": 0, "listed": 0}
    for path in sorted((sound_dataset / "_shards").iterdir()):
        header, *entries = map(json.loads, gzip.decompress(path.read_bytes()).splitlines())
        data = (sound_dataset / header["file"]).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (header["bytes"], header["sha256"])
        for entry in entries:
            counted["listed"] += 1
            counted["written"] += entry["outcome"] == "written"
            frame = data[entry["offset"] : entry["offset"] + entry["length"]]
            example = tf.train.Example.FromString(frame[12:-4])
            assert example.features.feature["image/filename"].bytes_list.value == [entry["key"].encode()]
    assert counted == {name: document["ledger"][name] for name in counted}


def test_a_carried_plan_keeps_settings_labels_and_shard_counts(
    tmp_path: Path, convert_photos: Callable[..., ConvertResult]
) -> None:
    first = convert_photos(resize=40, splits="train=0.7,test=0.3", shard_size="20kB", seed=5)
    again = convert_photos(plan_from=f"{first.path}/dataset.json")
    assert again.dataset.fingerprint == first.dataset.fingerprint
    assert again.dataset.plan == first.dataset.plan
    other = convert_photos(plan_from=first.path, seed=6)
    assert other.dataset.fingerprint != first.dataset.fingerprint
    # A removed class keeps its id, and a new one comes last.
    folder = tmp_path / "changed"
    for name in ("zebra", "aardvark", *first.dataset.labels[1:]):
        (folder / name).mkdir(parents=True)
        Image.new("RGB", (50, 50)).save(folder / name / "x.png")
    changed = convert(input=str(folder), output=str(tmp_path / "c"), plan_from=first.path)
    assert changed.dataset.labels == (*first.dataset.labels, "aardvark", "zebra")


def test_the_plan_predicts_what_convert_writes(convert_photos: Callable[..., ConvertResult]) -> None:
    settings = {"resize": 64, "splits": "train=0.8,test=0.2", "shard_size": "40kB"}
    forecast = plan(input=str(PHOTOS), **settings)
    result = convert_photos(**settings)
    assert forecast.plan == result.dataset.plan
    assert forecast.candidates == {s: result.dataset.records(s) for s in result.dataset.splits}
    written = sum(s.bytes for shards in result.dataset.splits.values() for s in shards)
    assert abs(sum(forecast.plan.estimate.values()) - written) < 0.1 * written


@pytest.mark.parametrize("processes", [(), pytest.param((1, 2, 3, 8), marks=pytest.mark.slow)], ids=str)
def test_the_contents_of_shards_do_not_depend_on_workers_runner_or_listing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, convert_photos: Callable[..., ConvertResult],
    processes: tuple[int, ...],
) -> None:  # fmt: skip
    from shardwright.core.concurrency import converters
    from shardwright.core.sources import folder_walk

    settings = {"resize": 48, "splits": "train=0.8,test=0.2", "shards": "train=5,test=2"}
    hashes = []
    for threads in (1, 2, 8):
        monkeypatch.setattr(converters, "worker_threads", lambda threads=threads: threads)
        hashes.append(shard_hashes(Path(convert_photos(**settings).path)))
    scan = folder_walk._scan
    monkeypatch.setattr(folder_walk, "_scan", lambda folder: scan(folder)[::-1])
    hashes.append(shard_hashes(Path(convert_photos(**settings).path)))
    # Worker processes do not import TensorFlow either: one that does fails.
    (tmp_path / "tensorflow.py").write_text("raise ImportError('tensorflow is not for workers')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    hashes.append(shard_hashes(Path(convert_photos(beam_options=["--pool=processes"], **settings).path)))
    for workers in processes:
        options = ["--direct_running_mode=multi_processing", f"--direct_num_workers={workers}"]
        hashes.append(shard_hashes(Path(convert_photos(beam_options=options, **settings).path)))
    assert len(hashes[0]) == 7
    assert all(found == hashes[0] for found in hashes)
