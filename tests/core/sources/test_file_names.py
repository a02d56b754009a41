"""Classes, splits and groups from file names, and files whose names do not match."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers.hostile import picture, refused
from helpers.listing import listed
from helpers.packing import by_key, list_refs
from helpers.records import value
from helpers.repository import PHOTOS
from helpers.trees import put_files

from shardwright.core.plan.assign import Placement
from shardwright.core.sources.rules import make_rules


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    """A flat folder: fruit01.jpg, homes07.png, ..."""
    folder = tmp_path / "flat"
    folder.mkdir()
    for name, kind in (("fruit", "fruit"), ("homes", "buildings")):
        for number, path in enumerate(sorted((PHOTOS / kind).iterdir())[:6]):
            shutil.copy(path, folder / f"{name}{number:02d}{path.suffix}")
    return folder


def test_names_give_classes_and_groups_which_stay_in_one_split(flat: Path) -> None:
    pattern = r"(?P<label>[a-z]+)\d(?P<group>\d)\.(jpg|png)"
    found = listed(flat, "classification", label_regex=pattern, splits="a=0.5,b=0.5")
    assert found.input.detected_as == "file names that say the class"
    assert len(found.refs) == 12 and all(key.startswith(ref.label) for key, ref in found.refs.items())
    assert {ref.label for ref in found.refs.values()} == {"fruit", "homes"}
    placement = Placement(found.settings)
    splits = {(key[6], placement.split(ref)) for key, ref in found.refs.items()}
    assert len(splits) == 6 and {split for _, split in splits} == {"a", "b"}


def test_names_give_splits(flat: Path) -> None:
    pattern = r"(?P<label>[a-z]+)(?P<group>\d)(?P<split>\d)\..*"
    found = by_key(list_refs(flat, "file_names", label_regex=pattern))
    assert {key: (ref.label, ref.group, ref.split) for key, ref in found.items()} == {
        path.name: (path.name[:5], path.name[5], path.name[6]) for path in flat.iterdir()
    }


def test_folders_are_ignored_unless_the_expression_matches_them(tmp_path: Path) -> None:
    names = [f"{split}/kind{kind}_{split}.jpg" for split in ("train", "dev") for kind in "ab"]
    put_files(tmp_path, dict.fromkeys(names, picture(1, "JPEG")))
    pattern = r"(?P<split>[a-z]+)/(?P<label>[a-z]+)_.*"
    found = by_key(list_refs(tmp_path, "file_names", label_regex=pattern))
    assert {(key, ref.split, ref.label) for key, ref in found.items()} == {
        (name, name.partition("/")[0], name.partition("/")[2][:5]) for name in names
    }


def test_names_that_do_not_match_are_reported_and_never_labelled(flat: Path) -> None:
    others = {"Fruit7.jpg", "fruit.jpg", "notes1.jpg.jpg", "xfruit07.jpg9"}
    for name in others:
        shutil.copy(flat / "fruit00.jpg", flat / name)
    found = listed(flat, "classification", label_regex=r"(?P<label>[a-z]+)\d+\.(jpg|png)")
    refs = {key: make_rules(found.settings).apply(ref) for key, ref in found.refs.items()}
    messages = found._replace(refs=refs).faults("UNKNOWN_LABEL")
    assert messages.keys() == others and len(refs) == 12 + len(others)
    assert all("does not match --label_regex" in message for message in messages.values())


def test_images_without_classes_can_be_kept(flat: Path) -> None:
    for record in listed(flat, "classification", unlabelled="keep").records().values():
        assert (value(record, "image/class/label"), value(record, "image/class/text")) == (-1, "")


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("[", "is not a regular expression"),
        (r"[a-z]+\d+", "needs a group (?P<label>...)"),
        (r"(?P<label>a)(?P<class>b)", "group 'class' has no meaning"),
    ],
)
def test_wrong_expressions_are_refused(
    capfd: pytest.CaptureFixture[str], flat: Path, tmp_path: Path, pattern: str, says: str
) -> None:
    argv = ("convert", "--input", flat, "--output", tmp_path / "out", "--label_regex", pattern)
    assert says in refused(capfd, tmp_path, *argv)
