"""The records that a split expression selects: the same as in TFDS, filtered and divided with the ledgers."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from helpers.fewer_imports import late
from hypothesis import assume, given
from hypothesis import strategies as st

from shardwright.loader import Resplit, ShardSlice, open_dataset, select
from shardwright.loader.selection import number_of_records, slices_of
from shardwright.pipelines.convert import convert
from shardwright.schemas.dataset import Dataset, Shard
from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.ledger import load_ledger
from shardwright.schemas.plan import Plan

naming = late("tensorflow_datasets.core.naming")
tfds_splits = late("tensorflow_datasets.core.splits")

LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=5).filter(any)


def made_of(**splits: Sequence[int]) -> Dataset:
    """Returns a dataset whose shards have these numbers of records."""
    shards = {
        name: tuple(
            Shard(f"{name}-{i:05d}-of-{len(lengths):05d}.tfrecord", n, 0, "") for i, n in enumerate(lengths)
        )
        for name, lengths in splits.items()
    }
    plan = Plan((), {}, {}, {"compression": "none"})
    return Dataset("made", "classification", (), plan, {}, shards, {}, {})


def as_tfds(dataset: Dataset, expression: str) -> list[tuple[str, int]]:
    """Returns (file, number) of each record that TFDS reads for an expression."""
    infos = [
        tfds_splits.SplitInfo(
            name=name,
            shard_lengths=[shard.records for shard in shards],
            num_bytes=0,
            filename_template=naming.ShardedFileTemplate(
                "/", template="{SPLIT}-{SHARD_INDEX}-of-{NUM_SHARDS}.tfrecord", split=name
            ),
        )
        for name, shards in dataset.splits.items()
    ]
    found = []
    for item in tfds_splits.SplitDict(infos)[expression].file_instructions:
        end = item.examples_in_shard if item.take == -1 else item.skip + item.take
        found += [(Path(item.filename).name, number) for number in range(item.skip, end)]
    return found


def rows(slices: Sequence[ShardSlice]) -> list[tuple[str, int]]:
    return [(item.file, number) for item in slices for number in item.numbers]


def bounds(low: int, high: int, unit: str) -> st.SearchStrategy[str]:
    number = st.one_of(st.just(""), st.integers(low, high).map(lambda n: f"{n}{unit}"))
    return st.tuples(number, number).filter(any).map(":".join)


@given(LENGTHS, LENGTHS, st.data())
def test_slices_equal_those_of_tfds(train: list[int], test: list[int], data: st.DataObject) -> None:
    dataset = made_of(train=train, test=test)
    terms = ["train", "test", "all"]
    for name, lengths in (("train", train), ("test", test)):
        records = sum(lengths)
        some = st.one_of(bounds(-records, records, ""), bounds(-100, 100, "%"))
        terms.append(f"{name}[{data.draw(some)}]")
    expression = data.draw(st.lists(st.sampled_from(terms), min_size=1, max_size=3).map("+".join))
    assume(_ascending(dataset, expression))
    assert rows(slices_of(dataset, expression, "")) == as_tfds(dataset, expression)


def _ascending(dataset: Dataset, expression: str) -> bool:
    """Returns whether no slice ends before it begins; TFDS treats such slices inconsistently."""
    infos = {
        name: tfds_splits.SplitInfo(name=name, shard_lengths=[s.records for s in shards], num_bytes=0)
        for name, shards in dataset.splits.items()
    }
    absolute = tfds_splits.AbstractSplit.from_spec(expression).to_absolute(infos)
    return all((item.from_ or 0) <= (item.to or infos[item.splitname].num_examples) for item in absolute)


@given(LENGTHS, st.integers(0, 100), st.integers(0, 100))
def test_adjacent_shares_contain_each_record_once(lengths: list[int], a: int, b: int) -> None:
    dataset = made_of(train=lengths)
    low, high = sorted((a, b))
    parts = slices_of(dataset, f"train[:{low}%]+train[{low}%:{high}%]+train[{high}%:]", "")
    assert rows(parts) == rows(slices_of(dataset, "train", ""))
    assert number_of_records(parts) == sum(lengths)


@pytest.mark.parametrize(
    "expression, what",
    [
        ("tran", "there is no split 'tran'; the dataset has train, test; did you mean train?"),
        ("train+", "'' is not a split"),
        ("train[:11]", "11 is beyond the end, after 10 records"),
        ("train[:101%]", "101% is beyond 100%"),
        ("train[5]", "'train[5]' is not a split"),
        ("train[1.5:]", "1.5 is not a whole number"),
        ("train[a:b]", "[a:b] is not a slice"),
        ("all[:50%]", "all cannot be sliced"),
        ("", "'' is not a split"),
        ("train[:50%", "'train[:50%' is not a split"),
    ],
)
def test_wrong_splits_are_refused(expression: str, what: str) -> None:
    with pytest.raises(UsageError) as error:
        slices_of(made_of(train=[4, 6], test=[3]), expression, "")
    assert what in error.value.message


@pytest.fixture(scope="module")
def photos_dataset(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("selection") / "out"
    convert(input=str(photos), output=str(out), resize=16, splits="train=0.7,test=0.3", shards=3)
    return out


def ledger_rows(directory: Path) -> dict[tuple[str, int], tuple[str, str]]:
    """Returns (file, number) -> (key, label), from the ledgers alone."""
    found = {}
    for path in sorted((directory / "_shards").iterdir()):
        result, entries = load_ledger(path.read_bytes())
        written = (entry for entry in entries if entry.outcome == "written")
        found |= {(result.file, i): (entry.key, entry.label) for i, entry in enumerate(written)}
    return found


def test_classes_can_be_selected(photos_dataset: Path) -> None:
    dataset, everything = open_dataset(photos_dataset), ledger_rows(photos_dataset)
    names = dataset.labels[:2]
    found = rows(select(photos_dataset, "all", keep=names))
    assert set(found) == {row for row, (_, label) in everything.items() if label in names}
    assert len(found) == sum(dataset.class_counts[split][name] for split in dataset.splits for name in names)
    assert rows(select(photos_dataset, "all", keep=names[0])) == [
        row for row in rows(select(photos_dataset, "all")) if everything[row][1] == names[0]
    ]


def test_a_function_selects_records_before_slices_count_them(photos_dataset: Path) -> None:
    dataset, everything = open_dataset(photos_dataset), ledger_rows(photos_dataset)
    asked: Counter[str] = Counter()

    def odd(key: str, label: str) -> bool:
        asked[key] += 1
        assert key.startswith(label)
        return len(key) % 2 == 1

    kept = rows(select(photos_dataset, "train", keep=odd))
    assert {everything[row][0] for row in kept} == {key for key in asked if len(key) % 2}
    assert 2 < len(kept) < dataset.records("train") == asked.total()
    assert rows(select(photos_dataset, "train[1:3]", keep=odd)) == kept[1:3]


def test_splits_can_be_divided_again(photos_dataset: Path) -> None:
    dataset = open_dataset(photos_dataset)

    def numbers(split: str, **more: object) -> set[tuple[str, int]]:
        found = rows(select(photos_dataset, split, **more))
        assert len(set(found)) == len(found)
        return set(found)

    shares = {"fit": 0.6, "holdout": 0.4}
    fit, holdout = numbers("fit", resplit=shares), numbers("holdout", resplit=shares)
    assert fit.isdisjoint(holdout) and fit | holdout == numbers("train")
    # The shares hold inside the selected split, although a hash chose that split too.
    assert 0.4 < len(fit) / dataset.records("train") < 0.8
    assert numbers("fit", resplit="fit=0.6,holdout=0.4") == fit
    assert numbers("fit", resplit=Resplit(shares, seed=1)) != fit
    assert numbers("test", resplit=shares) == numbers("test")
    assert numbers("a+b", resplit=Resplit({"a": 1 / 3, "b": 2 / 3}, of="all")) == numbers("all")
    both = {"resplit": shares, "keep": dataset.labels[:1]}
    assert numbers("fit", **both) == fit & numbers("train", keep=dataset.labels[:1])


@pytest.mark.parametrize(
    "more, what",
    [
        ({"keep": ["Tulip!"]}, "the dataset has no class 'Tulip!'"),
        ({"resplit": {"fit": 0.5, "holdout": 0.4}}, "the shares add up to 0.9"),
        ({"resplit": {"fit": 0.5, "test": 0.5}}, "split 'test' is not divided"),
        ({"resplit": Resplit({"a": 1}, of="dev")}, "there is no split 'dev'"),
        ({"resplit": {"a b": 1.0}}, "'a b=1' is not a split"),
    ],
)
def test_impossible_selections_are_refused(photos_dataset: Path, more: dict[str, object], what: str) -> None:
    with pytest.raises(UsageError) as error:
        select(photos_dataset, "train", **more)
    assert what in error.value.message


def test_images_of_a_group_stay_together(photos: Path, tmp_path: Path) -> None:
    convert(input=str(photos), output=str(tmp_path / "out"), resize=8, split_by="^[^/]+", shards=2)
    dataset, everything = open_dataset(tmp_path / "out"), ledger_rows(tmp_path / "out")

    def divided(name: str) -> list[tuple[str, int]]:
        return rows(select(tmp_path / "out", name, resplit="a=0.5,b=0.5"))

    folders = [
        {everything[row][0].partition("/")[0] for row in rows(select(tmp_path / "out", name, resplit=shares))}
        for shares in ({"a": 0.5, "b": 0.5},)
        for name in shares
    ]
    assert folders[0].isdisjoint(folders[1]) and folders[0] | folders[1] == set(dataset.labels)


def _spoil(change: Callable[[list[str]], list[str]]) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
        path.write_bytes(gzip.compress("\n".join(change(lines)).encode()))

    return spoil


@pytest.mark.parametrize(
    "spoil, error, what",
    [
        (Path.unlink, UsageError, "is missing"),
        (lambda path: path.write_bytes(b"none"), EngineError, "damaged"),
        (_spoil(lambda lines: lines[:-1]), EngineError, "restore it"),
        (
            _spoil(lambda lines: [json.dumps({**json.loads(lines[0]), "sha256": "0"}), *lines[1:]]),
            UsageError,
            "belongs to another build",
        ),
    ],
)
def test_an_impossible_ledger_is_reported(
    photos_dataset: Path, tmp_path: Path, spoil: Callable[[Path], None], error: type, what: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(photos_dataset, copy)
    spoil(copy / "_shards" / "train-00001-of-00003.jsonl.gz")
    dataset = open_dataset(copy)
    assert number_of_records(select(copy, "all")) == 61  # this needs no ledger
    with pytest.raises(error) as raised:
        select(copy, "train", keep=dataset.labels)
    assert what in raised.value.message


@pytest.mark.parametrize(
    "content, what", [(None, "is not a dataset"), ("{", "is not JSON"), ("{}", "not a dataset.json")]
)
def test_other_directories_are_refused(tmp_path: Path, content: str | None, what: str) -> None:
    if content is not None:
        (tmp_path / "dataset.json").write_text(content)
    with pytest.raises(UsageError, match=what):
        open_dataset(tmp_path)


def test_a_missing_tensorflow_is_reported() -> None:
    code = (
        "import sys; sys.modules['tensorflow'] = None\n"
        "from shardwright.loader import Records\n"
        "try:\n    from shardwright.loader import load\n"
        "except ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "load needs TensorFlow; install it with `pip install 'shardwright[tensorflow]'`" in done.stdout
