"""The main job end to end; TensorFlow reads its output."""

from __future__ import annotations

import gzip
import hashlib
import io
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


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("image_format", "stored", "decode"),
    [
        ("jpeg", b"jpg", lambda data: tf.io.decode_jpeg(data)),
        ("webp", b"webp", lambda data: np.asarray(Image.open(io.BytesIO(data.numpy())))),
        ("raw", b"raw", lambda data: tf.reshape(tf.io.decode_raw(data, tf.uint8), (40, 40, 3))),
    ],
)
def test_every_stored_format_is_readable(
    convert_photos: Callable[..., ConvertResult], image_format: str, stored: bytes, decode: Callable
) -> None:
    result = convert_photos(resize=40, image_format=image_format)
    for record in read_all(result):
        assert record["image/format"] == stored
        pixels = np.asarray(decode(tf.constant(record["image/encoded"])))
        assert pixels.shape == (40, 40, 3)
        truth = reference(PHOTOS / record["image/filename"].decode(), (40, 40))
        assert np.abs(pixels.astype(int) - truth).mean() < 15


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


@pytest.mark.sampled(2)
@pytest.mark.parametrize("fit", ["stretch", "contain", "cover", "fit", "pad"])
def test_sizes_follow_imageops(convert_photos: Callable[..., ConvertResult], fit: str) -> None:
    result = convert_photos(resize="60x40", fit=fit, image_format="png")
    for record in read_all(result):
        with Image.open(PHOTOS / record["image/filename"].decode()) as opened:
            image = ImageOps.exif_transpose(opened)
        truth = image.resize((60, 40)) if fit == "stretch" else getattr(ImageOps, fit)(image, (60, 40))
        assert (record["image/width"], record["image/height"]) == truth.size


def test_train_val_test_folders_keep_their_splits(tmp_path: Path) -> None:
    for i, split in enumerate(("train", "val", "test")):
        for label in ("ant", "bee"):
            folder = tmp_path / "in" / split / label
            folder.mkdir(parents=True)
            for j in range(3 - i):
                Image.new("RGB", (8, 8), (i * 40, j * 40, 90)).save(folder / f"{j}.png")
    result = convert(input=str(tmp_path / "in"), output=str(tmp_path / "out"), splits="train=0.5,other=0.5")
    assert {split: result.dataset.records(split) for split in result.dataset.splits} == {
        "train": 6,
        "val": 4,
        "test": 2,
    }
    assert result.dataset.labels == ("ant", "bee")


def test_groups_never_straddle_splits(tmp_path: Path) -> None:
    folder = tmp_path / "in" / "scan"
    folder.mkdir(parents=True)
    (tmp_path / "in" / "other").mkdir()
    for patient in range(20):
        for i in range(3):
            Image.new("L", (6, 6), patient * 10 + i).save(folder / f"p{patient:02d}_{i}.png")
    Image.new("L", (6, 6)).save(tmp_path / "in" / "other" / "p00_9.png")
    result = convert(
        input=str(tmp_path / "in"), output=str(tmp_path / "out"),
        splits="train=0.5,test=0.5", split_by=r"/p(\d+)_",
    )  # fmt: skip
    split_of: dict[str, set[str]] = {}
    for path in (tmp_path / "out" / "_shards").iterdir():
        for line in gzip.decompress(path.read_bytes()).splitlines()[1:]:
            key = json.loads(line)["key"]
            split_of.setdefault(key.rsplit("/p")[1][:2], set()).add(path.name.split("-")[0])
    assert len(split_of) == 20
    assert all(len(splits) == 1 for splits in split_of.values())
    assert result.dataset.records("train") and result.dataset.records("test")


def test_exact_copies_leave_the_smallest_key(tmp_path: Path) -> None:
    for name, shade in (("a/1", 1), ("a/2", 2), ("b/0", 1), ("b/3", 3), ("b/4", 1)):
        path = tmp_path / "in" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (6, 6), shade).save(path)
    result = convert(input=str(tmp_path / "in"), output=str(tmp_path / "out"), dedupe="exact")
    ledger = result.dataset.ledger
    assert (ledger["listed"], ledger["written"], ledger["deduplicated"]) == (5, 3, 2)
    keys = {r["image/filename"] for r in read_all(result)}
    assert keys == {b"a/1.png", b"a/2.png", b"b/3.png"}


def test_a_limit_takes_the_lowest_hashes_and_the_ledger_lists_the_rest(
    convert_photos: Callable[..., ConvertResult],
) -> None:
    small, large = convert_photos(resize=32, limit=10), convert_photos(resize=32, limit=20)
    assert small.dataset.ledger["written"] == 10
    assert small.dataset.ledger["reasons"]["filtered"] == {"limit": 51}
    keys = [{r["image/filename"] for r in read_all(result)} for result in (small, large)]
    assert keys[0] < keys[1]


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
    from shardwright.transforms.concurrency import converters
    from shardwright.transforms.sources import class_folders

    settings = {"resize": 48, "splits": "train=0.8,test=0.2", "shards": "train=5,test=2"}
    hashes = []
    for threads in (1, 2, 8):
        monkeypatch.setattr(converters, "worker_threads", lambda threads=threads: threads)
        hashes.append(shard_hashes(Path(convert_photos(**settings).path)))
    scan = class_folders._scan
    monkeypatch.setattr(class_folders, "_scan", lambda folder: scan(folder)[::-1])
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


def test_a_full_verification_decodes_the_written_images(
    convert_photos: Callable[..., ConvertResult],
) -> None:
    result = convert_photos(resize=32, verify="full")
    report = json.loads((Path(result.path) / "findings.json").read_text())
    assert (report["mode"], report["sound"], report["records"]) == ("full", True, 61)


def test_class_counts_and_labels_agree_with_the_folders(sound_dataset: Path) -> None:
    document = json.loads((sound_dataset / "dataset.json").read_text())
    truth = {folder.name: len(list(folder.iterdir())) for folder in PHOTOS.iterdir()}
    counted: dict[str, int] = {}
    for classes in document["class_counts"].values():
        for name, count in classes.items():
            counted[name] = counted.get(name, 0) + count
    assert counted == truth
