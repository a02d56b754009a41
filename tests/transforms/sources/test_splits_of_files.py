"""Splits that the names of annotation files state."""

from __future__ import annotations

import pytest

from shardwright.transforms.sources.image_files import splits_of_files


@pytest.mark.parametrize(
    ("paths", "splits"),
    [
        ([""], [""]),
        (["train.csv"], [""]),
        (["train.csv", "train_more.csv"], ["", ""]),
        (["train.csv", "val.csv", "notes.csv"], ["train", "val", ""]),
        (["train/boxes.xml", "test/boxes.xml"], ["train", "test"]),
        (["train/test.xml", "train/val.xml"], ["test", "val"]),
    ],
)
def test_names_state_splits_only_if_they_differ(paths: list[str], splits: list[str]) -> None:
    assert list(splits_of_files(paths).items()) == list(zip(paths, splits))
