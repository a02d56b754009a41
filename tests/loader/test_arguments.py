"""Messages about wrong arguments: sentences, also in a notebook, before anything is read."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from helpers.fewer_imports import late

import shardwright.loader
from shardwright import loader
from shardwright.loader import Records
from shardwright.pipelines.run import run_pipeline
from shardwright.schemas.errors import EngineError, UsageError

tf = late("tensorflow")


def test_an_error_is_its_message(tmp_path: Path) -> None:
    for read in (loader.load, Records):
        with pytest.raises(UsageError) as caught:
            read(tmp_path)
        assert str(caught.value) == caught.value.message
        assert str(caught.value).startswith(f"{tmp_path} is not a dataset, ")
        assert str(pickle.loads(pickle.dumps(caught.value))) == caught.value.message


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


def test_an_empty_path_is_refused() -> None:
    for read in (loader.load, Records):
        with pytest.raises(UsageError, match="is an empty string"):
            read("")


@pytest.mark.parametrize(
    "more, what",
    [
        ({"split": ["train", "test"]}, "is not text; write train, train+test"),
        ({"batch_size": 2.5}, "batch_size 2.5"),
        ({"batch_size": "32"}, "batch_size '32'"),
        ({"image_size": 22.5}, "image_size 22.5"),
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
        ({"dtype": "int8"}, "choose one of uint8"),
        ({"shuffle": -1}, "shuffle -1"),
        ({"repeat": -1}, "repeat -1"),
    ],
)
def test_wrong_arguments_of_load_are_refused(sound_dataset: Path, more: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError) as caught:
        loader.load(sound_dataset, **more)
    assert what in str(caught.value)


@pytest.mark.parametrize(
    "more, what",
    [
        ({"batch_size": 2.5}, "batch_size 2.5"),
        ({"seed": -1, "shuffle": True}, "seed -1"),
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
    assert (
        loader.load(sound_dataset, image_size=np.int64(8), dtype=np.float16).element_spec[0].dtype
        == tf.float16
    )


def test_an_impossible_cache_is_refused(sound_dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match=r"Cannot write .*/file/cache: "):
        loader.load(sound_dataset, cache=tmp_path / "file" / "cache")


def _removed(shard: Path) -> None:
    shard.unlink()


def _cut_off(shard: Path) -> None:
    shard.write_bytes(shard.read_bytes()[:-1])


@pytest.mark.parametrize(
    "damage, what",
    [(_removed, "is missing; restore it"), (_cut_off, r"has \d+ bytes instead of \d+; restore")],
)
def test_a_missing_shard_is_reported_before_training(
    sound_dataset: Path, tmp_path: Path, damage: Callable[[Path], None], what: str
) -> None:
    dataset = Path(shutil.copytree(sound_dataset, tmp_path / "dataset"))
    damage(shard := sorted(dataset.glob("train-*"))[1])
    with pytest.raises(EngineError, match=f"{shard.name} {what}"):
        loader.load(dataset)
    assert loader.load(dataset, "test").num_examples  # this does not need the shard
    if not shard.exists():
        with pytest.raises(EngineError, match=f"{shard.name} {what}"):
            list(Records(dataset))


def test_a_notebook_completes_the_names() -> None:
    assert {"Records", "load", "select"} <= set(dir(shardwright.loader))
