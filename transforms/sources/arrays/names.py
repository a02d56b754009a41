"""Parses the names of arrays: whether they hold images or labels, and their split and dataset."""

from __future__ import annotations

import re
from typing import NamedTuple

from shardwright.transforms.sources.folder_tree import SPLIT_FOLDERS

IMAGES, LABELS = "images", "labels"
#: Words for images, clearest first; among several arrays, the clearest is used.
_IMAGE_WORDS = ("images", "image", "imgs", "img", "x", "pixels", "data")
_LABEL_WORDS = ("labels", "label", "lbls", "y", "targets", "target")
_SPLIT_WORDS = {**{word: word for word in SPLIT_FOLDERS}, "t10k": "test"}
#: Words that do not identify a dataset.
_EMPTY_WORDS = frozenset(("idx1", "idx2", "idx3", "idx4", "ubyte", "int", "raw", "part", "batch", "shard"))
_EXTENSION = re.compile(r"\.(?:gz|npy|npz)\Z")
_WORD = re.compile(r"[^\W_]+")


class NamedArray(NamedTuple):
    """Parts of the name of an array.

    Attributes:
      role: Either images or labels; empty if the name gives neither.
      split: Split; empty if the name gives none.
      number: Number of a part of the array, such as 001.
      dataset: The rest of the name.
      rank: How clearly the name gives its role; 0 is clearest.
    """

    role: str
    split: str
    number: str
    dataset: str
    rank: int = 0


def parse_array_name(name: str) -> NamedArray:
    """Parses the name of an array or of its file.

    >>> parse_array_name("emnist-letters-train-images-idx3-ubyte.gz")
    NamedArray(role='images', split='train', number='', dataset='emnist letters', rank=0)
    """
    stem = name
    while (shorter := _EXTENSION.sub("", stem)) != stem:
        stem = shorter
    role, split, rank = "", "", 0
    numbers: list[str] = []
    rest: list[str] = []
    for word in _WORD.findall(stem.lower()):
        if word in _LABEL_WORDS:
            role, rank = LABELS, _LABEL_WORDS.index(word)
        elif word in _IMAGE_WORDS:
            if role != LABELS:
                role, rank = IMAGES, _IMAGE_WORDS.index(word)
        elif word in _SPLIT_WORDS and not split:
            split = _SPLIT_WORDS[word]
        elif word.isdigit():
            numbers.append(word)
        elif word not in _EMPTY_WORDS:
            rest.append(word)
    return NamedArray(role, split, " ".join(numbers), " ".join(rest), rank)
