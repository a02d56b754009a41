"""Parts of a folder, which workers list in parallel, and the meaning of its folders, as text."""

from __future__ import annotations

import functools
import json
from dataclasses import asdict, replace
from typing import NamedTuple

from shardwright.transforms.sources.folder_tree import FolderTree


class FolderPart(NamedTuple):
    """A part of an input that is a folder.

    Attributes:
      folder: Path below the input: in a bucket with a slash at its end; empty for the input itself.
      deep: Whether the folders inside belong to the part too.
    """

    folder: str = ""
    deep: bool = True


#: The whole input.
WHOLE = FolderPart()


def encode_tree(tree: FolderTree) -> str:
    """Returns the meaning of folders as text, without what only describes it."""
    return json.dumps(asdict(replace(tree, empty=())))  # the order of the splits counts


def encode_part(part: FolderPart, tree: str) -> str:
    """Returns the detail of an `InputSplit`.

    Args:
      part: The part.
      tree: Meaning of the folders as `encode_tree` returns it.
    """
    return json.dumps([*part, tree])


def decode_part(detail: str) -> tuple[FolderPart, FolderTree]:
    """Returns what `encode_part` was given."""
    folder, deep, tree = json.loads(detail)
    return FolderPart(folder, deep), _decode_tree(tree)


@functools.lru_cache(maxsize=8)  # a worker lists many parts of the same input
def _decode_tree(text: str) -> FolderTree:
    values = json.loads(text)
    return FolderTree(**{**values, "empty": tuple(values["empty"])})
