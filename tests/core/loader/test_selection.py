"""The records that arguments select, as in TFDS; index files, with which other tools select them."""

from __future__ import annotations

import gzip
import json
import math
import os
import pickle
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from helpers.depths import findings_of
from helpers.described import described
from helpers.fewer_imports import late
from helpers.repository import ran
from helpers.resealing import Forgery, put, read_document, write_document
from helpers.versioned import V1, V2, V3, add_version, point_to
from hypothesis import assume, given
from hypothesis import strategies as st

import shardwright.loader
from shardwright import loader
from shardwright.loader import Records, Resplit, ShardSlice, open_dataset, pin, select
from shardwright.loader.selection import number_of_records, slices_of
from shardwright.pipelines.run import run_pipeline
from shardwright.schemas.dataset import Dataset, Shard, with_digest
from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.ledger import load_index, load_ledger
from shardwright.schemas.plan import Plan, index_file

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
    return Dataset("made", plan, {}, "classification", (), shards, {}, {})


def infos_of(dataset: Dataset) -> list[Any]:
    """Returns TFDS's descriptions of the splits."""
    return [
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


def as_tfds(dataset: Dataset, expression: str) -> list[tuple[str, int]]:
    """Returns (file, number) of each record that TFDS reads for an expression."""
    found = []
    for item in tfds_splits.SplitDict(infos_of(dataset))[expression].file_instructions:
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
    infos = {info.name: info for info in infos_of(dataset)}
    absolute = tfds_splits.AbstractSplit.from_spec(expression).to_absolute(infos)
    return all((item.from_ or 0) <= (item.to or infos[item.splitname].num_examples) for item in absolute)


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
    with pytest.raises(UsageError, match=re.escape(what)):
        slices_of(made_of(train=[4, 6], test=[3]), expression, "")


def ledger_rows(directory: Path) -> dict[tuple[str, int], tuple[str, str]]:
    """Returns (file, number) -> (key, label), from the ledgers alone."""
    found = {}
    for path in sorted((directory / "_shards").iterdir()):
        result, entries = load_ledger(path.read_bytes())
        written = (entry for entry in entries if entry.outcome == "written")
        found |= {(result.file, i): (entry.key, entry.label) for i, entry in enumerate(written)}
    return found


def test_classes_can_be_selected(sound_dataset: Path) -> None:
    dataset, everything = open_dataset(sound_dataset), ledger_rows(sound_dataset)
    names = dataset.labels[:2]
    found = rows(select(sound_dataset, "all", keep=names))
    assert set(found) == {row for row, (_, label) in everything.items() if label in names}
    counts = dataset.class_counts.values()
    assert len(found) == sum(count.get(name, 0) for count in counts for name in names)
    assert rows(select(sound_dataset, "all", keep=names[0])) == [
        row for row in rows(select(sound_dataset, "all")) if everything[row][1] == names[0]
    ]


def test_a_function_selects_records_before_slices_count_them(sound_dataset: Path) -> None:
    dataset, everything = open_dataset(sound_dataset), ledger_rows(sound_dataset)
    asked: Counter[str] = Counter()

    def odd(key: str, label: str) -> bool:
        asked[key] += 1
        assert key.startswith(label)
        return len(key) % 2 == 1

    kept = rows(select(sound_dataset, "train", keep=odd))
    assert {everything[row][0] for row in kept} == {key for key in asked if len(key) % 2}
    assert 2 < len(kept) < dataset.records("train") == asked.total()
    assert rows(select(sound_dataset, "train[1:3]", keep=odd)) == kept[1:3]


def test_splits_can_be_divided_again(sound_dataset: Path) -> None:
    dataset = open_dataset(sound_dataset)

    def numbers(split: str, **more: object) -> set[tuple[str, int]]:
        found = rows(select(sound_dataset, split, **more))
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
        ({"resplit": {"fit": math.inf}}, "resplit {'fit': inf}: cannot convert"),
    ],
)
def test_impossible_selections_are_refused(sound_dataset: Path, more: dict[str, object], what: str) -> None:
    with pytest.raises(UsageError) as error:
        select(sound_dataset, "train", **more)
    assert what in error.value.message


def test_images_of_a_group_stay_together(copied: Path) -> None:
    document = read_document(copied)
    document["plan"]["settings"]["split_by"] = "^[^/]+"
    write_document(copied, with_digest(document))
    dataset, everything = open_dataset(copied), ledger_rows(copied)

    def folders(name: str) -> set[str]:
        divided = rows(select(copied, name, resplit={"a": 0.5, "b": 0.5}))
        return {everything[row][0].partition("/")[0] for row in divided}

    assert folders("a").isdisjoint(folders("b")) and folders("a") | folders("b") == set(dataset.labels)


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
    copied: Path, spoil: Callable[[Path], None], error: type, what: str
) -> None:
    spoil(copied / "_shards" / "train-00001-of-00003.jsonl.gz")
    dataset = open_dataset(copied)
    assert number_of_records(select(copied, "all")) == 61  # this needs no ledger
    with pytest.raises(error, match=what):
        select(copied, "train", keep=dataset.labels)


@pytest.mark.parametrize("content, what", [("{", "is not JSON"), ("{}", "not a dataset.json")])
def test_other_directories_are_refused(tmp_path: Path, content: str, what: str) -> None:
    (tmp_path / "dataset.json").write_text(content)
    with pytest.raises(UsageError, match=what):
        open_dataset(tmp_path)


def test_a_missing_tensorflow_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    monkeypatch.delitem(sys.modules, "shardwright.loader.tf_dataset", raising=False)
    needs = r"load needs TensorFlow; install it with `pip install 'shardwright\[tensorflow\]'`"
    with pytest.raises(ImportError, match=needs):
        _ = shardwright.loader.load


@pytest.fixture
def out(tmp_path: Path) -> str:
    """Versions of 6 and 10 records; the first is the latest, and nothing has been read."""
    for version, kind in ((V1, "hostile"), (V2, "photos")):
        add_version(tmp_path / "out", described(kind), version)
    point_to(tmp_path / "out", V1)
    return str(tmp_path / "out")


def test_a_process_reads_one_version(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(os.path.dirname(out))
    assert len(Records("out")) == 6
    point_to(out, V2)
    monkeypatch.chdir("/")
    assert len(Records(f"{out}/")) == len(Records(Path(out))) == open_dataset(out).all_records == 6
    assert loader.load(out, batch_size=None).num_examples == 6
    assert loader.load(f"{out}@{V2}", batch_size=None).num_examples == len(Records(f"{out}@{V2}")) == 10
    monkeypatch.chdir(os.path.dirname(out))
    assert pin("out") == f"{out}@{V2}"
    assert len(Records(out)) == 10 and loader.load(out, batch_size=None).num_examples == 10
    assert pin(f"{out}@{V1}") == f"{out}@{V1}"
    assert len(Records(out)) == 6


def test_open_versions_stay_the_same(out: str) -> None:
    data = loader.load(out, batch_size=None, shuffle=False)
    records = Records(out)
    copy = pickle.dumps(records)
    point_to(out, V2)
    pin(out)
    assert sum(1 for _ in data) == len(list(records)) == len(list(pickle.loads(copy))) == 6


def test_threads_read_the_same_version(out: str) -> None:
    def ask(number: int) -> int:
        point_to(out, (V1, V2)[number % 2])
        return len(Records(out))

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(ask, range(32)))) == 1


def test_forked_processes_keep_the_version(out: str) -> None:
    """A host gets the name from another host, and a forked process continues with its parent's version."""
    name = pin(out)
    point_to(out, V2)
    code = (
        "import sys; from shardwright.loader import Records; print(*(len(Records(n)) for n in sys.argv[1:]))"
    )
    assert run(code, name, out).split() == ["6", "10"]
    child = os.fork()
    if not child:
        os._exit(len(Records(out)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 6


def test_datasets_without_versions_can_be_opened(tmp_path: Path) -> None:
    assert pin(described("hostile")) == str(described("hostile"))
    assert len(Records(described("hostile"))) == 6
    for read in (pin, Records, open_dataset, loader.load):
        with pytest.raises(UsageError) as caught:
            read(tmp_path)
        assert str(caught.value) == caught.value.message
        assert str(caught.value).startswith(f"{tmp_path} is not a dataset, ")
        assert str(pickle.loads(pickle.dumps(caught.value))) == caught.value.message
        with pytest.raises(UsageError, match="is an empty string"):
            read("")


def test_unreadable_versions_are_reported(out: str, tmp_path: Path) -> None:
    for read in (pin, Records, open_dataset, loader.load):
        with pytest.raises(UsageError, match="has no version"):
            read(f"{out}@{V3}")
    os.unlink(f"{out}/latest.json")
    with pytest.raises(UsageError, match="none is published"):
        Records(out)
    point_to(out, V2)
    assert len(Records(out)) == 10, "a question without an answer is asked again"


tf = late("tensorflow")


@pytest.mark.parametrize("message", ["It is wrong; mend it.", "A name with\na line feed is wrong."])
def test_an_error_of_a_worker_is_the_same_error(message: str) -> None:
    def fail(_: object) -> None:
        raise UsageError(message)

    def in_a_worker(pipeline: beam.Pipeline) -> None:
        _ = pipeline | beam.Create([1]) | beam.Map(fail)

    for build in (in_a_worker, fail):
        with pytest.raises(UsageError) as caught:
            run_pipeline(build, PipelineOptions(["--runner=FnApiRunner"]))
        assert str(caught.value) == caught.value.message == message


@pytest.mark.parametrize("arguments", [{}, {"keep": ["birds"]}])
def test_a_relative_directory_stays_where_it_was(
    sound_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any]
) -> None:
    monkeypatch.chdir(sound_dataset.parent)
    name = sound_dataset.name
    records = Records(f"{name}/", "all", **arguments)
    data = loader.load(Path(name), "all", cache="cached", **arguments)
    monkeypatch.chdir(tmp_path)
    assert len(list(records)) == len(records.keys) == sum(len(labels) for _, labels in data)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    "more, what",
    [
        ({"split": ["train", "test"]}, "is not text; write train, train+test"),
        ({"batch_size": 2.5}, "batch_size 2.5"),
        ({"image_size": "22"}, "image_size '22'"),
        ({"shuffle": "yes"}, "shuffle 'yes'"),
        ({"seed": None}, "seed None"),
        ({"repeat": None}, "repeat None"),
        ({"augment": 3}, "augment 3 is not a function"),
        ({"dtype": "float8"}, "choose one of uint8"),
        ({"keep": 3}, "keep 3: write a list of class names"),
        ({"resplit": 3}, "resplit 3: write the share"),
        ({"split": "tset"}, "did you mean test?"),
        ({"split": "train[:0]"}, "holds no records"),
        ({"keep": lambda key, label: False}, "holds no records that are kept"),
        ({"batch_size": 0}, "batch_size 0"),
        ({"image_size": (0, 3)}, "image_size (0, 3)"),
        ({"image_size": (1, 2, 3)}, "image_size (1, 2, 3)"),
    ],
)
def test_wrong_arguments_of_load_are_refused(sound_dataset: Path, more: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=re.escape(what)):
        loader.load(sound_dataset, **more)


@pytest.mark.parametrize(
    "more, what",
    [
        ({"batch_size": 0}, "batch_size 0"),
        ({"batch_size": 2.5}, "batch_size 2.5"),
        ({"seed": None, "shuffle": True}, "seed None"),
        ({"threads": 0}, "threads 0"),
    ],
)
def test_wrong_arguments_of_batches_are_refused(sound_dataset: Path, more: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        Records(sound_dataset).batches(**{"batch_size": 2, **more})


def test_numbers_and_types_of_numpy_and_tensorflow_are_accepted(sound_dataset: Path) -> None:
    images, _ = loader.load(
        sound_dataset, image_size=(np.int64(8), np.int32(9)), batch_size=np.int64(2), dtype=tf.float32
    ).element_spec
    assert images.shape.as_list() == [None, 8, 9, 3] and images.dtype == tf.float32
    halves, _ = loader.load(sound_dataset, image_size=np.int64(8), dtype=np.float16).element_spec
    assert halves.dtype == tf.float16


def test_an_impossible_cache_is_refused(sound_dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match=r"Cannot write .*/file/cache: "):
        loader.load(sound_dataset, cache=tmp_path / "file" / "cache")


def _cut_off(shard: Path) -> None:
    shard.write_bytes(shard.read_bytes()[:-1])


@pytest.mark.parametrize(
    "damage, what",
    [(Path.unlink, "is missing; restore it"), (_cut_off, r"has \d+ bytes instead of \d+; restore")],
)
def test_a_missing_shard_is_reported_before_training(
    copied: Path, damage: Callable[[Path], None], what: str
) -> None:
    damage(shard := sorted(copied.glob("train-*"))[1])
    with pytest.raises(EngineError, match=f"{shard.name} {what}"):
        loader.load(copied)
    assert loader.load(copied, "test").num_examples  # this does not need the shard
    if not shard.exists():
        with pytest.raises(EngineError, match=f"{shard.name} {what}"):
            list(Records(copied))


def test_a_notebook_completes_the_names() -> None:
    assert {"Records", "load", "select"} <= set(dir(shardwright.loader))


SHARDS = {"train": 3, "validation": 1, "test": 1}
INDEXES = [index_file(split, i, count) for split, count in SHARDS.items() for i in range(count)]


def shard_of(index: Path) -> Path:
    return index.parent.parent / f"{index.stem}.tfrecord"


def run(script: str, *arguments: object) -> str:
    """Runs a script in another process; returns its output."""
    done = ran(sys.executable, "-c", script, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_uncompressed_shard_has_the_same_index_as_from_the_tools(
    sound_dataset: Path, copied: Path
) -> None:
    assert sorted(INDEXES) == sorted(f"_index/{path.name}" for path in (sound_dataset / "_index").iterdir())
    run("from tfrecord.tools.tfrecord2idx import main; main()", copied)  # it writes beside each shard
    for name in INDEXES:
        index = sound_dataset / name
        assert index.read_bytes() == (copied / f"{index.stem}.tfindex").read_bytes()


SHARED = """
import sys
from tfrecord.reader import multi_tfrecord_loader, tfrecord_loader

directory, = sys.argv[1:]
shard, index = directory + "/train-00000-of-00003.tfrecord", directory + "/_index/train-00000-of-00003.idx"

def names(*arguments, **options):
    return [record["image/filename"] for record in tfrecord_loader(*arguments, **options)]

whole = names(shard, None)
parts = [names(shard, index, shard=(worker, 3)) for worker in range(3)]
assert len(whole) > 3 and all(parts)
assert sum(parts, []) == whole
assert sorted(names(shard, index)) == sorted(whole)  # from anywhere on, and round again

found = multi_tfrecord_loader(
    directory + "/{}.tfrecord",
    directory + "/_index/{}.idx",
    {f"train-{i:05d}-of-00003": 1 / 3 for i in range(3)},
    {"image/filename": "byte", "image/class/label": "int"},
    infinite=False,
)
print(len({record["image/filename"] for record in found}))
"""


def test_the_package_tfrecord_reads_shards_by_their_indexes(sound_dataset: Path) -> None:
    document = json.loads((sound_dataset / "dataset.json").read_text())
    assert int(run(SHARED, sound_dataset)) == document["splits"]["train"]["records"]


def test_an_empty_shard_has_no_index() -> None:
    dataset = described("hostile")
    empty, full = sorted(dataset.glob("*.tfrecord"), key=lambda shard: shard.stat().st_size)
    assert not empty.stat().st_size
    assert [path.stem for path in (dataset / "_index").iterdir()] == [full.stem]  # DALI refuses an empty one
    assert [finding.code for finding in findings_of(dataset, "fast")] == ["EMPTY_SPLIT"]


DAMAGES: list[tuple[Callable[[bytes], bytes], str]] = [
    (lambda text: text.replace(b"0 ", b"1 ", 1), "is '1 "),
    (lambda text: text[: len(text) // 2], "not '"),
    (lambda text: text + b"99 99\n", "is '99 99', not ''"),
    (lambda text: text[:-1], "is nothing, not ''"),
    (lambda text: text + b"\nnothing", "is 'nothing', not nothing"),
    (lambda text: b"", "line 1 of its index"),
    (lambda text: b"\xff\x00 <script>" + text, "line 1 of its index"),
    (lambda text: text.replace(b"\n", b"\r\n"), "line 1 of its index"),
]


@pytest.mark.parametrize("damages", [DAMAGES[:4], DAMAGES[4:]])
def test_the_first_wrong_line_of_an_index_is_reported(
    copied: Path, damages: list[tuple[Callable[[bytes], bytes], str]]
) -> None:
    for name, (damage, _) in zip(INDEXES, damages):
        (copied / name).write_bytes(damage((copied / name).read_bytes()))
    found = {finding.shard: finding for finding in findings_of(copied, "fast")}
    for name, (_, message) in zip(INDEXES, damages):
        finding = found.pop(shard_of(copied / name).name)
        assert finding.code == "INDEX_MISMATCH" and message in finding.message
    assert not found


def test_missing_and_unexpected_indexes_are_reported(copied: Path) -> None:
    (copied / INDEXES[2]).rename(copied / "_index" / "train-00009-of-00003.idx")
    assert {(finding.code, finding.shard) for finding in findings_of(copied, "fast")} == {
        ("INDEX_MISMATCH", "train-00002-of-00003.tfrecord"),
        ("INDEX_MISMATCH", "_index/train-00009-of-00003.idx"),
    }


def test_a_wrong_record_does_not_hide_a_wrong_index(copied: Path) -> None:
    forgery = Forgery(copied)
    forgery.edit(("train", 0), 0, put("image/class/text", b"zebra"))
    forgery.seal()
    (copied / INDEXES[0]).write_bytes(b"0 1\n")
    assert sorted(finding.code for finding in findings_of(copied, "fast")) == ["INDEX_MISMATCH", "LABEL_TEXT"]


@pytest.mark.parametrize("text", [b"0 1 2", b"x y", b"0 -1", b"1.5 2"])
def test_other_files_are_not_indexes(text: bytes) -> None:
    with pytest.raises(ValueError):
        load_index(text)
