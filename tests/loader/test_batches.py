"""Batches of NumPy arrays, and folds: complete, in an order that depends only on the seed."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.fewer_imports import late
from helpers.ledgers import dump_ledger
from PIL import Image

from shardwright import loader
from shardwright.loader import Records, select
from shardwright.loader.selection import number_of_records
from shardwright.pipelines.convert import convert
from shardwright.pipelines.validate import validate
from shardwright.schemas.dataset import with_digest
from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.ledger import load_ledger


def labels_of(batches: Any) -> list[int]:
    return [int(label) for _, labels in batches for label in labels]


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
    assert labels_of(batches) == [records.label(i) for i in range(61)]
    assert all(labels.dtype == np.int64 for _, labels in batches)


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


def test_damage_and_wrong_arguments_are_reported(records: Records, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="batch_size 0"):
        records.batches(0)

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
    convert(input=root / "in", output=root / "out", image_format="png", **settings)
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
    del document["plan"]["settings"]["folds"]
    (tmp_path / "out" / "dataset.json").write_text(json.dumps(with_digest(document)))
    with pytest.raises(UsageError, match="no folds; convert it again with --folds 5"):
        select(tmp_path / "out", fold=0)
    assert number_of_records(select(tmp_path / "out")) == len(Records(folded))


def test_validation_compares_the_folds_of_records_and_ledgers(folded: Path) -> None:
    assert validate(str(folded), against=[str(folded.parent / "in")]).counts == {}
    path = folded / "_shards" / "train-00000-of-00001.jsonl.gz"
    data = path.read_bytes()
    header, lines = load_ledger(data)
    entries = [entry._replace(fold=entry.fold and 3 - entry.fold) for entry in lines]
    path.write_bytes(dump_ledger(header, entries))
    try:
        findings = validate(str(folded)).findings
    finally:
        path.write_bytes(data)
    assert any("its fold is 1, the shard's ledger says 2" in finding.message for finding in findings)
