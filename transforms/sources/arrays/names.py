"""What the names of arrays say: images or labels, of which split, of which dataset."""

from __future__ import annotations

import re
from typing import NamedTuple

from shardwright.transforms.sources.folder_tree import SPLIT_FOLDERS

IMAGES, LABELS = "images", "labels"
#: Words for images, the clearest first: of several arrays the first one is taken.
_IMAGE_WORDS = ("images", "image", "imgs", "img", "x", "pixels", "data")
_LABEL_WORDS = ("labels", "label", "lbls", "y", "targets", "target")
_SPLIT_WORDS = {**{word: word for word in SPLIT_FOLDERS}, "t10k": "test"}
#: Words that say nothing of which dataset it is.
_EMPTY_WORDS = frozenset(("idx1", "idx2", "idx3", "idx4", "ubyte", "int", "raw", "part", "batch", "shard"))
_EXTENSION = re.compile(r"\.(?:gz|npy|npz)\Z")
_WORD = re.compile(r"[^\W_]+")


class NamedArray(NamedTuple):
    """What the name of an array says.

    Attributes:
      role: images or labels; empty if it says neither.
      split: its split, empty if it says none.
      number: of a part of the array, such as 001.
      dataset: what is left of its name.
      rank: how plainly it says its role; 0 is plainest.
    """

    role: str
    split: str
    number: str
    dataset: str
    rank: int = 0


def parse_array_name(name: str) -> NamedArray:
    """Takes the name of an array or its file apart.

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
