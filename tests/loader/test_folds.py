"""Folds: each record has one, the loader selects by it, and readers of TFRecords see it."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
from shardwright.schemas.errors import UsageError
from shardwright.schemas.ledger import load_ledger

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
