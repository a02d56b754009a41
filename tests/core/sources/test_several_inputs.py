"""Several inputs at once, of one kind or several, with their classes renamed and filtered."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.hostile import check_books, make_tree
from helpers.listing import listed
from helpers.records import labels_by_key
from helpers.repository import PHOTOS

from shardwright.core.sources.inputs import check_inputs
from shardwright.core.sources.rules import make_rules
from shardwright.pipelines.convert import convert
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError


def test_inputs_of_different_kinds_give_one_dataset(tmp_path: Path) -> None:
    (tmp_path / "flat").mkdir()
    for number, path in enumerate(sorted((PHOTOS / "fruit").iterdir())):
        shutil.copy(path, tmp_path / "flat" / f"fruit{number}{path.suffix}")
    shutil.make_archive(str(tmp_path / "buildings"), "zip", PHOTOS, "buildings")
    made = convert(
        input={"flat": tmp_path / "flat", "zip": tmp_path / "buildings.zip"},
        output=tmp_path / "out",
        label_regex=r"(?P<label>[a-z]+).*",
        rename_labels="fruit=food",
        splits="train=0.7,test=0.3",
        verify="full",
    )
    assert len(made.run["detected_as"]) == 2 and check_books(tmp_path / "out")
    found = {
        (key.partition("/")[0], label == "food") for key, label in labels_by_key(tmp_path / "out").items()
    }
    assert found == {("flat", True), ("zip", False)} and "fruit" not in made.dataset.labels


def test_classes_can_be_renamed_merged_and_filtered(tmp_path: Path) -> None:
    (tmp_path / "keep.txt").write_text("food\nthings\n")
    (tmp_path / "rename.txt").write_text("buildings = things\r\nvehicles=things\nfruit=food\n")
    lists = {"rename_labels": f"{tmp_path}/rename.txt", "keep_labels": f"{tmp_path}/keep.txt"}
    rules = make_rules(ConvertSettings(**lists))
    refs = map(rules.apply, listed(PHOTOS, "classification").refs.values())
    renamed = {"fruit": ("food", ""), "buildings": ("things", ""), "vehicles": ("things", "")}
    for ref in refs:
        folder = ref.key.partition("/")[0]
        assert (ref.label, ref.reason) == renamed.get(folder, (folder, "label_not_kept"))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"rename_labels": "a=b,c"}, "'c' is not an entry"),
        ({"rename_labels": "a=b,a=c"}, "'a' has two new names"),
        ({"rename_labels": "nowhere.txt"}, "nowhere.txt: no such file"),
        ({"keep_labels": "nowhere.txt"}, "nowhere.txt: no such file"),
        ({"keep_labels": __file__[:-3] + "x"}, "no such file"),
        (
            {"layout": "detection"},
            "does not provide what the layout needs (objects); choose --layout classification",
        ),
        ({"source": "file_names"}, "needs --label_regex"),
        ({"resize": "16384x1", "image_format": "webp"}, "webp holds at most 16,383 pixels a side"),
        ({"resize": "65501x1", "fit": "cover"}, "jpeg holds at most 65,500 pixels a side"),
        ({"extra_columns": "image/width:int64"}, "has a feature of that name"),
    ],
)
def test_wrong_settings_write_nothing(tmp_path: Path, settings: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        convert(input=PHOTOS, output=tmp_path / "out", **settings)
    assert says in caught.value.message and not (tmp_path / "out").exists()


def test_an_empty_path_and_an_empty_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--input is an empty text; name a folder"):
        convert(input="", output=tmp_path / "out")
    with pytest.raises(UsageError, match=f"--input {tmp_path} is empty; name a folder"):
        convert(input=tmp_path, output=tmp_path.parent / "out", layout="detection")


@pytest.mark.parametrize("option", ["image_root", "mask_dir"])
def test_files_inside_an_overwritten_output_are_refused_as_input(tmp_path: Path, option: str) -> None:
    shutil.copytree(PHOTOS / "fruit", tmp_path / "out" / "fruit")
    (tmp_path / "rows.csv").write_text("image,label\nfruit/apple.jpg,fruit\n")
    with pytest.raises(UsageError, match=rf"--{option} .* lies inside --output"):
        convert(
            input=tmp_path / "rows.csv",
            output=tmp_path / "out",
            overwrite=True,
            **{option: tmp_path / "out"},
        )
    assert (tmp_path / "out" / "fruit" / "apple.jpg").exists()


@pytest.mark.parametrize("stray", ["a.zip", "a.tar", "a.tfrecord", "images.npy", "rows.csv", "fruit/a.zip"])
def test_a_stray_file_does_not_hide_the_class_folders(
    tmp_path: Path, sound_dataset: Path, stray: str
) -> None:
    make_tree(tmp_path / "in", classes=("fruit", "birds"))
    path = tmp_path / "in" / stray
    if path.suffix in (".zip", ".tar"):
        made = shutil.make_archive(str(tmp_path / "made"), path.suffix[1:], PHOTOS, "fruit")
        shutil.copy(made, path)
    elif path.suffix == ".tfrecord":
        shutil.copy(next(sound_dataset.glob("*.tfrecord")), path)
    elif path.suffix == ".npy":
        np.save(path, np.zeros((4, 8, 8, 3), np.uint8))
    else:
        path.write_text("image,label\na.png,a\n")
    settings = ConvertSettings(input=(str(tmp_path / "in"),))
    assert [item.source for item in check_inputs(settings, None)] == ["class_folders"]


def test_a_folder_name_with_the_separator_is_one_class(tmp_path: Path) -> None:
    shutil.copytree(PHOTOS / "fruit", tmp_path / "in" / "fr\x1fuit")
    refs = listed(tmp_path / "in", "classification").refs.values()
    assert {ref.labels for ref in refs} == {("fr%1Fuit",)}
