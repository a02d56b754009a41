"""The meaning of the names of arrays and of their files."""

from __future__ import annotations

import pytest

from shardwright.transforms.sources.arrays.names import IMAGES, LABELS, parse_array_name


@pytest.mark.parametrize(
    ("name", "role", "split", "number", "dataset"),
    [
        ("train-images-idx3-ubyte.gz", IMAGES, "train", "", ""),
        ("t10k-labels.idx1-ubyte", LABELS, "test", "", ""),
        ("emnist-byclass-test-images-idx3-ubyte.gz", IMAGES, "test", "", "emnist byclass"),
        ("x_train", IMAGES, "train", "", ""),
        ("y_test.npy", LABELS, "test", "", ""),
        ("X", IMAGES, "", "", ""),
        ("train_images_007.npy", IMAGES, "train", "007", ""),
        ("val_labels", LABELS, "val", "", ""),
        ("image_labels", LABELS, "", "", ""),
        ("kmnist-train-imgs.npz", IMAGES, "train", "", "kmnist"),
        ("features", "", "", "", "features"),
    ],
)
def test_names_give_role_split_number_and_dataset(
    name: str, role: str, split: str, number: str, dataset: str
) -> None:
    assert parse_array_name(name)[:4] == (role, split, number, dataset)
