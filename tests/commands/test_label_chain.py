"""A chain of real builds with `--plan_from`: class ids in the records never change."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.fewer_imports import late
from helpers.hostile import refused, shard_hashes
from helpers.repository import PHOTOS

from shardwright.pipelines.convert import convert
from shardwright.pipelines.results import ConvertResult

tf = late("tensorflow")

PICTURES = sorted((PHOTOS / "fruit").glob("*"))
#: The classes of each build: the second lacks one and has new ones in several places.
BUILDS = (
    {"dog": 2, "cat": 1, "10": 1},
    {"ant": 1, "bee": 1, "dog": 1, "10": 1, "zebra": 1},
    {"cat": 2, "ant": 1, "cow/calf": 1, "9": 1},
)
FINAL = ("10", "cat", "dog", "ant", "bee", "zebra", "9", "cow/calf")


def ids_in_records(dataset: Path) -> dict[str, set[tuple[int, ...]]]:
    """Returns class names (joined by +) -> their ids, read with TensorFlow."""
    found: dict[str, set[tuple[int, ...]]] = {}
    for record in tf.data.TFRecordDataset([str(dataset / file) for file in shard_hashes(dataset)]):
        features = tf.train.Example.FromString(record.numpy()).features.feature
        names = b"+".join(features["image/class/text"].bytes_list.value).decode()
        found.setdefault(names, set()).add(tuple(features["image/class/label"].int64_list.value))
    return found


def build(folder: Path, number: int, **settings: Any) -> ConvertResult:
    """Converts the tree of one of the builds, which continues the previous build."""
    pictures = iter(PICTURES)
    for name, count in BUILDS[number].items():
        (folder / f"in{number}" / name).mkdir(parents=True)
        for _ in range(count):
            picture = next(pictures)
            shutil.copy(picture, folder / f"in{number}" / name / picture.name)
    carried = {"plan_from": str(folder / f"out{number - 1}")} if number else {}
    values = {"input": str(folder / f"in{number}"), "output": str(folder / f"out{number}"), "resize": 16}
    return convert(**{**values, **carried, **settings})


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chain")
    for number in range(len(BUILDS)):
        build(folder, number, **({} if number else {"label_depth": "all"}))
    return folder


def test_ids_stay_the_same_over_three_builds(chain: Path) -> None:
    for number, known in enumerate((3, 6, 8)):
        labels = FINAL[:known]
        output = chain / f"out{number}"
        assert (output / "labels.txt").read_text() == "".join(
            f"{i}:{name}\n" for i, name in enumerate(labels)
        )
        assert ids_in_records(output) == {name: {(labels.index(name),)} for name in BUILDS[number]}


def names_file(folder: Path, names: Sequence[str]) -> str:
    (folder / "names.txt").write_text("\n".join(names))
    return str(folder / "names.txt")


def test_class_names_may_agree_with_the_plan(chain: Path, tmp_path: Path) -> None:
    names = (*FINAL, "more", "and more")
    made = convert(
        input=str(chain / "in0"), output=str(tmp_path / "out"), plan_from=str(chain / "out2"),
        class_names=names_file(tmp_path, names),
    )  # fmt: skip
    assert made.dataset.labels == names
    assert ids_in_records(tmp_path / "out") == {name: {(names.index(name),)} for name in BUILDS[0]}


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (["10", "cat"], "lacks class 'dog', which has id 2 in"),
        (["cat", "dog", "10"], "gives class '10' the id 2, which has id 0 in"),
    ],
)
def test_class_names_that_contradict_the_plan_are_refused(
    chain: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], names: list[str], fault: str
) -> None:
    file, plan = names_file(tmp_path, names), str(chain / "out0")
    for command in (["convert", "--output", tmp_path / "out"], ["plan"]):
        argv = [*command, "--input", chain / "in0", "--plan_from", plan, "--class_names", file]
        message = refused(capfd, tmp_path, *argv)
        assert f"--class_names {file} {fault} --plan_from {plan}" in message
    assert not (tmp_path / "out").exists()


def test_ids_stay_the_same_with_several_classes_per_image_from_one(tmp_path: Path) -> None:
    builds = (["dog|cat", "cat"], ["ant|dog", "bee"], ["cat|bee|zoo"])
    labels = ("cat", "dog", "ant", "bee", "zoo")
    for number, classes in enumerate(builds):
        rows = [f"{path.name},{names}" for path, names in zip(PICTURES, classes)]
        (tmp_path / f"{number}.csv").write_text("\n".join(["path,label", *rows]))
        made = convert(
            input=str(tmp_path / f"{number}.csv"), output=str(tmp_path / f"out{number}"),
            image_root=str(PHOTOS / "fruit"),
            **({"plan_from": str(tmp_path / f"out{number - 1}")} if number
               else {"layout": "imagenet", "label_separator": "|"}),
        )  # fmt: skip
        assert made.dataset.first_label == 1 and made.dataset.labels == labels[: len(made.dataset.labels)]
        assert ids_in_records(tmp_path / f"out{number}") == {
            names.replace("|", "+"): {tuple(1 + labels.index(name) for name in names.split("|"))}
            for names in classes
        }
