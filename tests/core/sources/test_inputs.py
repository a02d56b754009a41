"""Inputs: several at once, those that are refused, and settings without an effect, which are reported."""

from __future__ import annotations

import errno
import inspect
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from helpers.annotation_sets.formats import FORMATS
from helpers.annotation_sets.kitti import put_kitti
from helpers.annotation_sets.semantic_masks import put_set as put_masks
from helpers.annotation_sets.voc import put_list, put_voc
from helpers.annotation_sets.yolo import DARKNET, put_darknet, put_labels
from helpers.hostile import check_books, make_tree
from helpers.listing import listed, put_photos, refusal
from helpers.packing import PICTURES, tar_of, zip_of
from helpers.records import labels_by_key
from helpers.repository import PHOTOS, ROOT
from helpers.trees import put_files

from shardwright.core.sources import image_files
from shardwright.core.sources.inputs import check_inputs
from shardwright.core.sources.rules import make_rules
from shardwright.core.sources.source import all_sources
from shardwright.core.sources.unused_settings import (
    ConversionFacts,
    given_names,
    has_effect,
    without_effect,
)
from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.schemas.configuration.kinds import SOURCES
from shardwright.schemas.configuration.setting import Condition
from shardwright.schemas.configuration.settings import CONVERT_SETTINGS, ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.plan import SplitsFrom


def test_inputs_of_different_kinds_give_one_dataset(tmp_path: Path) -> None:
    fruit = enumerate(sorted((PHOTOS / "fruit").iterdir()))
    put_files(tmp_path / "flat", {f"fruit{i}{path.suffix}": path.read_bytes() for i, path in fruit})
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


def test_an_input_below_an_unreadable_folder_is_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        os, "lstat", mock.Mock(side_effect=PermissionError(errno.EACCES, "Permission denied"))
    )
    with pytest.raises(UsageError, match="--input secret/photos cannot be read: permission denied"):
        check_inputs(ConvertSettings(input=("secret/photos",)), None)


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
    np.save(tmp_path / "images.npy", np.zeros((4, 8, 8, 3), np.uint8))
    contents = {
        ".zip": zip_of(PICTURES),
        ".tar": tar_of(PICTURES),
        ".tfrecord": next(sound_dataset.glob("*.tfrecord")).read_bytes(),
        ".npy": (tmp_path / "images.npy").read_bytes(),
        ".csv": b"image,label\na.png,a\n",
    }
    put_files(tmp_path / "in", {stray: contents[Path(stray).suffix]})
    settings = ConvertSettings(input=(str(tmp_path / "in"),))
    assert [item.source for item in check_inputs(settings, None)] == ["class_folders"]


def test_a_folder_name_with_the_separator_is_one_class(tmp_path: Path) -> None:
    shutil.copytree(PHOTOS / "fruit", tmp_path / "in" / "fr\x1fuit")
    refs = listed(tmp_path / "in", "classification").refs.values()
    assert {ref.labels for ref in refs} == {("fr%1Fuit",)}


Capture = pytest.CaptureFixture[str]


def _error(root: Path, layout: str = "classification", **settings: Any) -> str:
    """Returns the message with which an input is refused, without the name of the input."""
    return refusal(root, layout, **settings).replace(str(root), "IN")


@pytest.mark.parametrize("layout", ["classification", "segmentation"])
def test_images_and_masks(layout: str, tmp_path: Path) -> None:
    put_masks(tmp_path / "images", tmp_path / "masks")
    error = _error(tmp_path, layout)
    assert "write --layout segmentation --input IN/images --mask_dir IN/masks" in error
    assert ("--folders classes" in error) == (layout == "classification")
    assert not listed(tmp_path / "images", "segmentation", mask_dir=tmp_path / "masks").reasons()


def test_masks_without_their_folder(tmp_path: Path) -> None:
    put_photos(tmp_path, ["eagle"])
    assert "has no masks; name their folder with --mask_dir." in _error(tmp_path, "segmentation")


@pytest.mark.parametrize("layout", ["classification", "detection"])
@pytest.mark.parametrize("split", ["", "train"])
def test_yolo_without_class_names(layout: str, split: str, tmp_path: Path) -> None:
    put_labels(tmp_path / "labels" / split, put_photos(tmp_path / "images" / split))
    message = "no file names the classes; add IN/classes.txt with a class on each line"
    assert message in _error(tmp_path, layout)
    message = "has neither data.yaml nor obj.data nor a file of class names; add classes.txt"
    assert message in _error(tmp_path, layout, source="yolo")
    (tmp_path / "classes.txt").write_text("thing\nno\nbird\n")
    assert not listed(tmp_path, source="yolo").reasons()


def test_yolo_labels_beside_images_without_class_names(tmp_path: Path) -> None:
    put_labels(tmp_path, put_photos(tmp_path))
    message = "add IN/classes.txt with a class on each line and write --source yolo."
    assert message in _error(tmp_path, "detection")


@pytest.mark.parametrize("source", ["auto", "open_images"])
def test_open_images_without_boxes(source: str, tmp_path: Path) -> None:
    put_photos(tmp_path / "train", ["eagle"])
    (tmp_path / "class-descriptions-boxable.csv").write_text("/m/0thing,thing\n")
    error = _error(tmp_path, "detection", source=source)
    assert "holds no CSV file of Open Images' boxes, such as train-annotations-bbox.csv" in error
    assert "write --input FILE.csv --image_root FOLDER" in error


@pytest.mark.parametrize("layout", ["classification", "detection"])
def test_coco_for_a_folder_of_photos(layout: str, tmp_path: Path) -> None:
    put_photos(tmp_path / "bird", ["eagle"])
    error = _error(tmp_path, layout, source="coco")
    assert "IN holds no COCO JSON; write --input FILE.json" in error and "--source class_folders" in error


_SENTENCE = "is not UTF-8 text but UTF-16; save it as UTF-8, such as with iconv -f UTF-16 -t UTF-8 FILE > NEW"
_TEXTS = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".xml", ".yaml", ".data", ".names")


def _encode(path: Path, encoding: str = "utf-16") -> None:
    path.write_bytes(path.read_text().encode(encoding))


@pytest.mark.parametrize("name", [name for name, form in FORMATS.items() if form.damage])
def test_every_format_refuses_it(name: str, tmp_path: Path) -> None:
    """Files of single images are bad, a file about all images is refused."""
    form = FORMATS[name]
    form.put(tmp_path)
    for path in tmp_path.rglob("*"):
        if path.suffix in _TEXTS:
            _encode(path)
    # In a folder, nothing shows what these two are.
    place = {"open_images": "boxes.csv", "panoptic": "panoptic.json"}.get(name, "")
    try:
        says = [*listed(tmp_path / place, **form.options(tmp_path)).faults().values()]
    except UsageError as error:
        says = [error.message]
    assert says and all(_SENTENCE in message for message in says)


@pytest.mark.parametrize("name", ["obj.data", "obj.names", "train.txt"])
def test_each_file_of_darknet_refuses_it(name: str, tmp_path: Path) -> None:
    put_darknet(tmp_path, DARKNET, "data/")
    _encode(tmp_path / name)
    error = _error(tmp_path, "detection")
    assert name in error and _SENTENCE in error


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.txt", "a.json", "a.xml"])
def test_tables_refuse_it(name: str, tmp_path: Path) -> None:
    put_photos(tmp_path, ["eagle"])
    (tmp_path / name).write_text("image,label\neagle.jpg,bird\n", encoding="utf-16")
    assert f"IN {_SENTENCE}" in _error(tmp_path / name)
    error = _error(tmp_path)  # beside images
    assert name in error and _SENTENCE in error


@pytest.mark.parametrize(
    "option", ["--class_names", "--keep_labels", "--rename_labels", "--include", "--exclude"]
)
def test_files_that_options_name_refuse_it(option: str, tmp_path: Path, capsys: Capture) -> None:
    put_photos(tmp_path / "in" / "bird", ["eagle"])
    put_photos(tmp_path / "in" / "fruit", ["apple"])
    file = tmp_path / "list.txt"
    line = "bird=animal" if option == "--rename_labels" else "bird/eagle.jpg" if "clude" in option else "bird"
    file.write_text(f"{line}\n", encoding="utf-16")
    named = f"@{file}" if "clude" in option else str(file)
    args = ["convert", "--input", str(tmp_path / "in"), "--output", str(tmp_path / "out"), option, named]
    assert main(args) == 2
    error = capsys.readouterr().err
    assert option in error and _SENTENCE in error
    if option in ("--keep_labels", "--include"):
        file.write_text(f"{line}\n", encoding="utf-8-sig")
        rules = make_rules(ConvertSettings(**{option.removeprefix("--"): named}))
        refs = map(rules.apply, listed(tmp_path / "in", "classification").refs.values())
        assert [ref.key for ref in refs if ref.is_candidate] == ["bird/eagle.jpg"]


@pytest.mark.parametrize("kind", ["kitti", "voc"])
def test_lists_of_splits_refuse_it(kind: str, tmp_path: Path) -> None:
    if kind == "kitti":
        put_kitti(tmp_path)
        put_files(tmp_path, {"ImageSets/train.txt": "eagle\n"})
    else:
        put_voc(tmp_path)
        put_list(tmp_path, "Main", train=("eagle",), val=("apple",))
    (file,) = tmp_path.rglob("train.txt")
    _encode(file)
    error = _error(tmp_path, "detection")
    assert "train.txt" in error and _SENTENCE in error


def test_the_mark_of_utf_8_is_ignored(tmp_path: Path) -> None:
    photos = put_photos(tmp_path / "images")
    put_labels(tmp_path / "labels", photos)
    (tmp_path / "classes.txt").write_text("thing\nno\nbird\n", encoding="utf-8-sig")
    for path in (tmp_path / "labels").iterdir():
        _encode(path, "utf-8-sig")
    found = listed(tmp_path)
    assert found.ids == {"thing": 0, "no": 1, "bird": 2}
    found.check_boxes(photos, "images/")


SPLITS = "train=0.8,test=0.2"


def judged(
    *names: str,
    source: str = "class_folders",
    late: SplitsFrom | None = None,
    metadata: bool = False,
    **values: object,
) -> str:
    settings = replace(ConvertSettings(), **values)  # type: ignore[arg-type]
    listed = ConversionFacts(settings, frozenset({source}), late, metadata)
    before = replace(listed, splits_from=None) if late else None
    return "\n".join(without_effect(names, listed, before))


def used_by(name: str) -> set[str]:
    """Returns the sources that declare the use of a setting."""
    return {source.name for source in all_sources() if name in source.settings | source.metadata_settings}


def test_sources_use_exactly_the_settings_that_need_a_source() -> None:
    needing = {name for name, item in CONVERT_SETTINGS.items() if Condition.SOURCE in item.needs}
    used = {name for source in all_sources() for name in source.settings | source.metadata_settings}
    assert used == needing and "label_regex" in needing


@pytest.mark.parametrize("name", sorted(CONVERT_SETTINGS))
def test_every_setting_has_an_effect_somewhere(name: str) -> None:
    full = replace(
        ConvertSettings(),
        splits=SPLITS,
        resize="224",
        image_format="keep",
        layout="detection",
        label_regex="",
    )
    layouts = (full, replace(full, layout="classification"))
    cases = [ConversionFacts(settings, frozenset({source})) for settings in layouts for source in SOURCES]
    assert any(has_effect(name, known) for known in cases)


def test_the_sources_use_the_settings_in_the_table() -> None:
    """A module uses a setting if it reads it itself, or with a helper of its package or for records."""
    folder = ROOT / "core" / "sources"
    texts = {}
    for source in SOURCES:
        path = folder / source
        files = path.rglob("*.py") if path.is_dir() else [folder / f"{source}.py"]
        texts[source] = "".join(file.read_text() for file in files)
        if re.search(r"tables\.rows import .*\bSETTINGS\b", texts[source]):
            texts[source] += (folder / "tables" / "rows.py").read_text()
        if "with_metadata" in texts[source] or "add_metadata" in texts[source]:
            texts[source] += (folder / "files_beside.py").read_text()
        for module in re.findall(r"core\.records\.(images|values) import", texts[source]):
            texts[source] += (ROOT / "core" / "records" / f"{module}.py").read_text()
        if re.search(r"\blabelled\(", texts[source]):
            texts[source] += inspect.getsource(image_files.labelled)
    for name in ("mask_dir", "pixel_shape", "label_separator"):
        reading = {source for source, text in texts.items() if re.search(rf"settings\.{name}\b", text)}
        assert used_by(name) == reading, name
    assert used_by("label_depth") == used_by("folders")
    assert used_by("image_root") == {source for source, text in texts.items() if "image_root" in text}


@pytest.mark.parametrize(
    ("name", "without", "having"),
    [
        ("fit", {}, {"resize": "224"}),
        ("resample", {}, {"resize": "224"}),
        ("quality", {"image_format": "png"}, {"image_format": "webp"}),
        ("quality", {"image_format": "raw", "resize": "8"}, {}),
        ("strip_metadata", {"resize": "224"}, {"image_format": "keep"}),
        ("color", {"channels": 4}, {}),
        ("bad_boxes", {}, {"layout": "detection"}),
        ("unlabelled", {"layout": "detection"}, {}),
        ("split_by", {}, {"splits": SPLITS}),
        ("extra_columns", {}, {"source": "manifest"}),
        ("extra_columns", {}, {"source": "tfrecord"}),
        ("image_root", {}, {"source": "coco"}),
        ("mask_dir", {}, {"source": "semantic_masks"}),
        ("label_regex", {}, {"source": "file_names"}),
        ("label_column", {"source": "coco"}, {"source": "manifest"}),
        ("split_column", {}, {"source": "manifest"}),
        ("group_column", {"source": "manifest"}, {"source": "manifest", "splits": SPLITS}),
        ("group_column", {"splits": SPLITS}, {"source": "manifest", "splits": SPLITS}),
        ("sha256_column", {"source": "webdataset"}, {"source": "manifest"}),
        ("image_column", {"source": "tfrecord"}, {"source": "arrays"}),
        ("label_separator", {}, {"source": "arrays"}),
        ("label_column", {}, {"metadata": True}),
        ("extra_columns", {}, {"source": "archives"}),
        ("label_depth", {"source": "voc"}, {"source": "archives"}),
        ("pixel_shape", {}, {"source": "arrays"}),
    ],
)
def test_a_setting_has_an_effect_only_under_its_conditions(
    name: str, without: dict[str, str], having: dict[str, str]
) -> None:
    def sentence(values: dict[str, str]) -> str:
        return judged(name, **{"source": "class_folders", **values})  # type: ignore[arg-type]

    assert sentence(without).startswith(f"--{name} has no effect ") and sentence(without).endswith(".")
    assert sentence(having) == ""


def test_sentences_name_the_missing_condition() -> None:
    assert judged("fit") == "--fit has no effect without --resize."
    assert judged("mask_dir") == (
        "--mask_dir has no effect on inputs that are read as class_folders; only semantic_masks, coco and "
        "voc can use it."
    )


def test_conditions_of_the_listing_are_reported_after_it_and_only_once() -> None:
    assert judged("splits", "fit", splits=SPLITS) == "--fit has no effect without --resize."
    named = judged("splits", "split_by", "fit", splits=SPLITS, late=SplitsFrom.SOURCE)
    assert named.splitlines() == [
        "--split_by has no effect because the source names the split of every image.",
        "--splits has no effect because the source names the split of every image.",
    ]
    for drawn in (SplitsFrom.HASH, SplitsFrom.BOTH):
        assert judged("splits", "split_by", splits=SPLITS, late=drawn) == ""
    assert judged("split_by", late=SplitsFrom.SOURCE) == ""  # reported before: there is only one split


def test_a_background_that_no_image_shows_is_reported_at_the_end() -> None:
    before = ConversionFacts(ConvertSettings(), frozenset({"class_folders"}))
    shown = [
        list(without_effect(["background", "fit"], replace(before, on_background=count), before))
        for count in (None, 0, 3)
    ]
    sentence = (
        "--background has no effect because no image was padded or has transparent pixels that were filled."
    )
    assert shown == [[], [sentence], []]


def test_only_values_that_request_something_count_as_given() -> None:
    values = {"fit": "pad", "resize": "", "limit": 0, "overwrite": False, "input": ["x"], "resume": "false"}
    assert given_names({**values, "seed": np.int64(3)}) == {"fit", "input", "seed"}
