"""Several inputs at once, of one kind or several, with their classes renamed and filtered."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from conftest import PHOTOS
from records import balanced, examples, labels_by_key, value

from shardwright.pipelines.convert import convert
from shardwright.schemas.errors import UsageError


def test_inputs_of_different_kinds_make_one_dataset(tmp_path: Path) -> None:
    (tmp_path / "flat").mkdir()
    for number, path in enumerate(sorted((PHOTOS / "fruit").iterdir())):
        shutil.copy(path, tmp_path / "flat" / f"fruit{number}{path.suffix}")
    shutil.make_archive(str(tmp_path / "buildings"), "zip", PHOTOS, "buildings")
    made = convert(
        input={"flat": tmp_path / "flat", "zip": tmp_path / "buildings.zip"},
        output=tmp_path / "out",
        label_regex=r"(?P<label>[a-z]+).*",
        splits="train=0.7,test=0.3",
        verify="full",
    )
    assert len(made.run["taken_for"]) == 2 and balanced(made.dataset.ledger)
    assert {key.partition("/")[0] for key in labels_by_key(tmp_path / "out")} == {"flat", "zip"}


def test_renamed_and_kept_classes(tmp_path: Path) -> None:
    (tmp_path / "keep.txt").write_text("food\nanimals\n")
    made = convert(
        input=PHOTOS,
        output=tmp_path / "out",
        rename_labels="fruit=food,birds=animals",
        keep_labels=tmp_path / "keep.txt",
    )
    names = set(labels_by_key(tmp_path / "out").values())
    assert names == {"food", "animals"} == set(made.dataset.labels)
    assert made.dataset.ledger["reasons"]["filtered"] == {
        "label_not_kept": 61 - made.dataset.ledger["written"]
    }


def test_two_classes_can_become_one_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "rename.txt").write_text("buildings = things\r\nvehicles=things\n")
    made = convert(input=PHOTOS, output=tmp_path / "out", rename_labels=str(tmp_path / "rename.txt"))
    assert made.dataset.labels == ("birds", "flowers", "fruit", "things")
    (records,) = examples(tmp_path / "out").values()
    things = [record for record in records if value(record, "image/class/label") == 3]
    assert {value(record, "image/filename").partition("/")[0] for record in things} == {
        "buildings",
        "vehicles",
    }


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"rename_labels": "a=b,c"}, "'c' is no entry"),
        ({"rename_labels": "a=b,a=c"}, "'a' stands twice"),
        ({"rename_labels": "nowhere.txt"}, "nowhere.txt: no such file"),
        ({"keep_labels": "nowhere.txt"}, "nowhere.txt: no such file"),
        ({"keep_labels": __file__[:-3] + "x"}, "no such file"),
        ({"layout": "detection"}, "says nothing of the kind (objects); choose --layout classification"),
        ({"source": "file_names"}, "needs --label_regex"),
        ({"extra_columns": "image/width:int64"}, "has a feature of that name"),
    ],
)
def test_wrong_settings_write_nothing(tmp_path: Path, settings: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        convert(input=PHOTOS, output=tmp_path / "out", **settings)
    assert says in caught.value.message and not (tmp_path / "out").exists()
