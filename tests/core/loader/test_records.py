"""`Records`, batches and `load`: what TensorFlow reads in the same shards, for every layout and format."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.depths import compared, findings_of
from helpers.described import described
from helpers.fewer_imports import late
from helpers.ledgers import dump_ledger
from helpers.tensorflow_records import read_records
from helpers.tfrecords import features_of
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from shardwright import loader
from shardwright.loader import Records, select
from shardwright.loader.selection import number_of_records
from shardwright.pipelines.convert import convert
from shardwright.schemas.dataset import picture_shape, with_digest
from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.ledger import load_ledger

tf = late("tensorflow")

#: Kinds of `described` whose pictures have one size.
KINDS = ("photos", "hostile", "gray", "webp", "detection", "vision", "tfrecorder", "raw", "shapes")
LABELS = ("image/class/label", "label")


def serialized(dataset: Path) -> list[bytes]:
    """Returns the records as TensorFlow reads them."""
    document = json.loads((dataset / "dataset.json").read_text())
    files = [dataset / shard["file"] for shard in document["splits"]["train"]["shards"]]
    return read_records(files, document["settings"]["compression"])


def pixels_by_tensorflow(records: Records, features: dict[str, list[Any]]) -> np.ndarray[Any, Any]:
    """Returns the picture as TensorFlow decodes it."""
    (value,) = next(
        features[name] for name in ("image/encoded", "image", "image_raw", "data") if name in features
    )
    channels = picture_shape(records.dataset.plan.settings)[2] or 3
    if records.dataset.layout == "tfrecorder":
        value = tf.io.decode_base64(value.rstrip(b"="))
    if records.dataset.plan.settings["image_format"] == "raw":
        return np.asarray(tf.reshape(tf.io.decode_raw(value, tf.uint8), (24, 24, channels)))
    if value[:2] == b"\xff\xd8":
        return np.asarray(tf.io.decode_jpeg(value, channels, dct_method="INTEGER_ACCURATE"))
    if value[:4] == b"RIFF":
        return np.asarray(tf.io.decode_webp(value, channels))[0]
    return np.asarray(tf.io.decode_png(value, channels))


@pytest.mark.parametrize("kind", KINDS)
def test_values_and_pictures_equal_tensorflows(kind: str) -> None:
    records = Records(described(kind))
    theirs = serialized(described(kind))
    loaded = loader.load(described(kind), batch_size=None, shuffle=False, as_dict=True)
    assert len(records) == len(theirs) == loaded.num_examples > 2
    assert [records.raw(i) for i in range(len(records))] == theirs
    rows = zip(records, loaded.as_numpy_iterator(), theirs, strict=True)
    for i, (iterated, row, data) in enumerate(rows):
        record, features = records[i], features_of(data)
        assert set(record) == set(iterated) >= set(features)
        for name, values in features.items():
            if not (name == "image" and kind == "tfrecorder"):
                found = record[name]
                assert (found.tolist() if isinstance(found, np.ndarray) else [found]) == values
                assert np.array_equal(found, iterated[name])
        image = records.image(i)
        expected = pixels_by_tensorflow(records, features)
        np.testing.assert_array_equal(row["image"], expected)
        sides = (None, None, 3) if kind == "webp" else expected.shape  # its pictures are contained in a box
        assert loaded.element_spec["image"].shape.as_list() == [*sides]
        assert "image/encoded" not in row
        assert image.dtype == np.uint8 and image.shape == expected.shape
        if not np.array_equal(image, expected):
            # Two builds of the JPEG decoder may differ by a level of rounding; other formats must be equal.
            assert records.dataset.plan.settings["image_format"] == "jpeg"
            assert np.abs(image.astype(int) - expected).max() <= 2
        assert np.array_equal(np.asarray(records.pil(i)).reshape(image.shape), image)
        label = next((features[name][0] for name in LABELS if name in features), None)
        if label is not None:
            first = {"gray": 1}.get(kind, 0)
            assert records.label(i) == row["label"] == max(-1, label - first)
        if "name" in features:  # of a layout without ids
            assert records.labels[int(records.label(i))] == records.labels[row["label"]]
            assert [records.labels[row["label"]].encode()] == features["name"]


def test_keys_equal_those_of_the_records() -> None:
    records = Records(described("photos"))
    assert records.keys == [record["image/filename"].decode() for record in records]
    assert records[3:9:2].keys == records.keys[3:9:2]
    assert records[::-1].keys == records.keys[::-1]
    names = [records.labels[int(records.label(i))] for i in range(len(records))]
    assert names == [key.partition("/")[0] for key in records.keys]


def test_a_layout_without_classes_of_images_is_reported() -> None:
    records = Records(described("detection"), "all")
    with pytest.raises(UsageError, match="layout detection have no class for the whole image"):
        records.label(0)
    empty = [r for r in records if not len(r["image/object/bbox/xmin"])]
    assert len(empty) == 1 and empty[0]["image/object/view"].shape == (0,)
    assert records[0]["image/object/bbox/xmin"].dtype == np.float32


@given(st.slices(12), st.slices(12), st.integers(-40, 40))
def test_indices_and_slices_work_as_for_a_list(first: slice, second: slice, index: int) -> None:
    records = Records(described("photos"), "all")
    plain = [records.raw(number) for number in range(12)]
    part, expected = records[first][second], plain[first][second]
    assert len(part) == len(expected)
    assert [part.raw(number) for number in range(len(part))] == expected
    in_order = [plain.index(data) for data in expected]
    assert [record["image/filename"] for record in part] == [records[n]["image/filename"] for n in in_order]
    if -len(expected) <= index < len(expected):
        assert part.raw(np.int64(index)) == part.raw(index) == expected[index]
    else:
        with pytest.raises(IndexError, match=f"record {index} is out of range: there are {len(expected)}"):
            part[index]


def test_wrong_indices_are_refused() -> None:
    records = Records(described("raw"))
    for wrong in (1.0, "1", None):
        with pytest.raises(TypeError):
            records[wrong]  # type: ignore[call-overload]


def _raws(records: Records) -> list[bytes]:
    return [records.raw(i) for i in (*range(0, len(records), 2), *range(1, len(records), 2))]


def test_forked_processes_share_records() -> None:
    records = [Records(described(kind), open_files=2) for kind in ("photos", "shapes")]
    expected = [_raws(item) for item in records]  # files are open when the process forks
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(_raws, records * 2) == expected * 2
    assert [_raws(item) for item in records] == expected


def test_spawned_processes_share_records() -> None:
    records = Records(described("shapes"))[1:]
    expected = _raws(records)  # shards are unpacked when it is pickled
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(_raws, [records] * 2) == [expected] * 2


def test_threads_share_records_with_fewer_files_than_threads() -> None:
    for kind in ("photos", "shapes"):
        records = Records(described(kind), open_files=1, unpacked_bytes=1)
        order = np.random.default_rng(1).integers(0, len(records), 600)
        expected = serialized(described(kind))
        with ThreadPoolExecutor(8) as executor:
            assert list(executor.map(records.raw, order)) == [expected[i] for i in order]


def test_neither_tensorflow_nor_beam_is_imported() -> None:
    script = f"""
import sys
from shardwright.loader import Records
records = Records({str(described("photos"))!r})
next(records.batches(4, shuffle=True)), records.keys, records.pil(0), list(records)
assert not {{"tensorflow", "apache_beam", "google.cloud.storage", "obstore"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.fixture
def broken(tmp_path: Path) -> Callable[[str], Path]:
    """Copies a dataset, so that a test can damage it."""
    return lambda kind: Path(shutil.copytree(described(kind), tmp_path / kind))


def test_damage_is_reported_with_its_place(broken: Callable[[str], Path]) -> None:
    dataset = broken("hostile")
    (shard,) = dataset.glob("train-*.tfrecord")
    index = [list(map(int, line.split())) for line in next(dataset.glob("_index/*")).read_text().splitlines()]
    data = bytearray(shard.read_bytes())
    data[index[2][0] + 50] ^= 1
    data[index[4][0] + 1] ^= 1
    shard.write_bytes(data[:-7])
    records = Records(dataset)
    last = len(index) - 1
    for number, reason in (
        (2, f"the checksum of the record's {index[2][1] - 16} bytes is wrong"),
        (4, "the checksum of the record's length is wrong"),
        (last, "the file ends inside it"),
    ):
        place = f"{shard.name}: record {number} at byte {index[number][0]} is damaged"
        with pytest.raises(EngineError, match=f"{place}: {reason};"):
            records[number]
    assert records[3]["image/format"] == b"png"  # sound records can still be read
    seen = []
    with pytest.raises(EngineError, match="record 2 at byte"):
        seen += [record["image/filename"] for record in records]
    careless = Records(dataset, verify=False)
    with pytest.raises(EngineError, match=r"record 4 at byte .* is damaged: it has"):
        careless.raw(4)
    assert careless.raw(2) != b""


def test_a_picture_that_cannot_be_decoded_is_reported_with_its_place(broken: Callable[[str], Path]) -> None:
    from shardwright.core.records.framing import masked_crc32c

    dataset = broken("hostile")
    (shard,) = dataset.glob("train-*.tfrecord")
    offset, length = map(int, next(dataset.glob("_index/*")).read_text().splitlines()[1].split())
    data = bytearray(shard.read_bytes())
    begin, end = offset + 12, offset + length - 4
    place = data.index(b"IDAT", begin)
    data[place + 8 : place + 30] = bytes(22)
    data[end : end + 4] = masked_crc32c(bytes(data[begin:end])).to_bytes(4, "little")
    shard.write_bytes(data)
    with pytest.raises(EngineError, match=rf"record 1 at byte {offset} is damaged: its image cannot be"):
        Records(dataset).image(1)


def test_a_truncated_compressed_shard_is_reported(broken: Callable[[str], Path]) -> None:
    dataset = broken("shapes")
    shard = next(dataset.glob("train-00000-*.tfrecord.gz"))
    shard.write_bytes(shard.read_bytes()[:-2000])
    with pytest.raises(EngineError, match=r"record \d+ at byte \d+ is damaged: from there on the compressed"):
        Records(dataset)[0]


@pytest.mark.parametrize("kind", ["photos", "raw", "shapes"])
def test_records_are_found_without_indexes_and_ledgers(broken: Callable[[str], Path], kind: str) -> None:
    dataset = broken(kind)
    expected = serialized(dataset)
    assert (dataset / "_index").exists() == (kind == "photos")
    for index, text in zip(sorted(dataset.glob("_index/train-*")), ("0 17\n17 99\n", f"0 {10**30}\n")):
        index.write_text(text)
    assert [Records(dataset).raw(i) for i in range(len(expected))] == expected
    shutil.rmtree(dataset / "_index", ignore_errors=True)
    assert [Records(dataset).raw(i) for i in range(len(expected))] == expected
    shutil.rmtree(dataset / "_shards")
    records = Records(dataset)
    assert [records.raw(i) for i in range(len(expected))] == expected
    assert len(list(records)) == len(expected)
    with pytest.raises(UsageError, match="is missing"):
        _ = records.keys


@pytest.fixture(scope="module")
def records(sound_dataset: Path) -> Records:
    """All records of a dataset of several shards."""
    return Records(sound_dataset, "all")


def test_batches_hold_the_records_in_order(records: Records) -> None:
    batches = list(records.batches(8))
    assert [len(images) for images, _ in batches] == [8] * 7 + [5]
    images = np.concatenate([images for images, _ in batches])
    assert images.shape == (61, 64, 64, 3) and images.dtype == np.uint8
    assert all(np.array_equal(images[i], records.image(i)) for i in range(61))
    labels = np.concatenate([labels for _, labels in batches])
    assert labels.dtype == np.int64 and labels.tolist() == [records.label(i) for i in range(61)]


def test_an_incomplete_last_batch_can_be_dropped(records: Records) -> None:
    assert [len(images) for images, _ in records.batches(8, drop_remainder=True)] == [8] * 7
    assert list(records[:5].batches(8, drop_remainder=True)) == []
    assert [len(images) for images, _ in records[:5].batches(8)] == [5]
    assert list(records[:0].batches(8)) == []


def test_the_order_depends_only_on_the_seed(records: Records) -> None:
    def first_pixels(seed: int, threads: int) -> list[bytes]:
        batches = records.batches(16, shuffle=True, seed=seed, threads=threads)
        return [image.tobytes() for images, _ in batches for image in images]

    once = first_pixels(3, 1)
    assert first_pixels(3, 7) == once != first_pixels(4, 2)
    in_order = [records.image(i).tobytes() for i in range(61)]
    assert once != in_order and sorted(once) == sorted(in_order)
    # The expected order is fixed here, so that no version of NumPy can change it.
    assert [in_order.index(image) for image in once[:5]] == [20, 28, 0, 31, 4]


def test_a_function_can_change_pictures_in_the_threads(records: Records) -> None:
    threads: set[str] = set()

    def halved(image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        threads.add(threading.current_thread().name)
        return image[::2, ::2].astype(np.float32) / 255

    images, _ = next(records.batches(4, transform=halved))
    assert images.shape == (4, 32, 32, 3) and images.dtype == np.float32
    assert all(name.startswith("shardwright-batches") for name in threads)


def test_pictures_of_several_sizes_are_refused(records: Records) -> None:
    odd = iter(range(100))
    with pytest.raises(UsageError, match=r"have \d+ shapes, such as .* give them one shape"):
        list(records.batches(8, transform=lambda image: image[next(odd) :]))


def test_abandoned_batches_leave_no_thread(records: Records) -> None:
    before = set(threading.enumerate())
    batches = records.batches(2, shuffle=True)
    next(batches)
    assert set(threading.enumerate()) - before
    batches.close()  # type: ignore[attr-defined]
    assert set(threading.enumerate()) <= before  # threads of other tests may end meanwhile


def test_damage_is_reported_by_batches(records: Records) -> None:
    def fail(image: Any) -> Any:
        raise EngineError("the record is damaged.")

    for shuffle in (False, True):
        with pytest.raises(EngineError, match="is damaged"):
            list(records.batches(8, shuffle=shuffle, transform=fail))


def test_pairs_are_a_sequence_for_other_loaders(records: Records) -> None:
    pictures = records[10:20].pictures(lambda image: image.mean())
    assert len(pictures) == 10
    mean, label = pictures[3]
    assert (mean, label) == (records.image(13).mean(), records.label(13))
    with pytest.raises(IndexError):
        pictures[10]


tfds = late("tensorflow_datasets")


@pytest.fixture(scope="module")
def folded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three stratified folds in each of two splits: 41 cats, 20 dogs and 2 birds."""
    root = tmp_path_factory.mktemp("folded")
    for label, count in (("cat", 41), ("dog", 20), ("bird", 2)):
        (root / "in" / label).mkdir(parents=True)
        for number in range(count):
            color = (number, len(label), ord(label[0]))
            Image.new("RGB", (8, 8), color).save(root / "in" / label / f"{number}.png")
    settings = {"splits": "train=0.75,test=0.25", "split_mode": "stratified", "folds": 3, "resize": 8}
    convert(input=root / "in", output=root / "out", image_format="png", verify="none", **settings)
    return root / "out"


def test_folds_divide_a_split_evenly_by_class(folded: Path) -> None:
    whole = Records(folded, "train")
    held_out = [Records(folded, "train", fold=fold, part="validation") for fold in range(3)]
    assert sorted(key for part in held_out for key in part.keys) == sorted(whole.keys)
    for fold, part in enumerate(held_out):
        rest = Records(folded, fold=fold)
        assert not set(rest.keys) & set(part.keys) and len(rest) + len(part) == len(whole)
        assert {record["image/fold"] for record in part} == {fold}
        assert fold not in {record["image/fold"] for record in rest}
    counts = [Counter(key.split("/")[0] for key in part.keys) for part in held_out]
    for name in ("cat", "dog", "bird"):
        numbers = [count[name] for count in counts]
        assert max(numbers) - min(numbers) <= 1
    run = json.loads((folded / "run.json").read_text())
    assert run["folds"]["train"] == [len(part) for part in held_out]
    assert sum(run["folds"]["test"]) == len(Records(folded, "test"))
    assert max(run["folds"]["train"]) - min(run["folds"]["train"]) <= 1


def test_load_shuffles_only_the_folds_to_train_on(folded: Path) -> None:
    keys = Records(folded, fold=1, part="validation").keys
    held_out = loader.load(folded, fold=1, part="validation", as_dict=True, batch_size=None)
    assert [item["image/filename"].decode() for item in held_out.as_numpy_iterator()] == keys
    assert held_out.num_examples == len(keys)
    train = loader.load(folded, fold=1, as_dict=True, batch_size=None, keep=["cat"])
    read = [item["image/filename"].decode() for item in train.as_numpy_iterator()]
    expected = [key for key in Records(folded, fold=1).keys if key.startswith("cat/")]
    assert sorted(read) == sorted(expected) and read != expected


def test_tensorflow_datasets_reads_the_folds(folded: Path) -> None:
    data = tfds.builder_from_directory(folded).as_dataset("test")
    folds = Counter(int(item["image/fold"]) for item in data.as_numpy_iterator())
    run = json.loads((folded / "run.json").read_text())
    assert [folds[fold] for fold in range(3)] == run["folds"]["test"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fold": 3}, "fold 3: the dataset has the folds 0 to 2."),
        ({"fold": -1}, "fold -1: the dataset has the folds 0 to 2."),
        ({"fold": "1"}, "fold '1': the dataset has the folds 0 to 2."),
        ({"fold": 1, "part": "test"}, "part 'test': choose train or validation."),
        ({"part": "validation"}, "part 'validation' needs a fold, such as fold=0."),
    ],
)
def test_wrong_folds_are_refused(folded: Path, arguments: Mapping[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Records(folded, **arguments)
    assert caught.value.message == message


def test_a_dataset_without_folds_says_how_to_get_them(folded: Path, tmp_path: Path) -> None:
    shutil.copytree(folded, tmp_path / "out")
    document = json.loads((tmp_path / "out" / "dataset.json").read_text())
    del document["plan"]["settings"]["folds"], document["plan"]["fold_bounds"]
    (tmp_path / "out" / "dataset.json").write_text(json.dumps(with_digest(document)))
    with pytest.raises(UsageError, match="no folds; convert it again with --folds 5"):
        select(tmp_path / "out", fold=0)
    assert number_of_records(select(tmp_path / "out")) == len(Records(folded))


def test_validation_compares_the_folds_of_records_and_ledgers(folded: Path) -> None:
    assert not compared(folded, folded.parent / "in", mode="fast")
    path = folded / "_shards" / "train-00000-of-00001.jsonl.gz"
    data = path.read_bytes()
    header, lines = load_ledger(data)
    entries = [entry._replace(fold=entry.fold and 3 - entry.fold) for entry in lines]
    path.write_bytes(dump_ledger(header, entries))
    try:
        findings = findings_of(folded, "fast")
    finally:
        path.write_bytes(data)
    assert any("its fold is 1, the shard's ledger says 2" in str(finding) for finding in findings)
