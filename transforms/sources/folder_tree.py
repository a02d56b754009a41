"""What the folders of an input mean: classes, splits with classes inside, or nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import one_label, printable
from shardwright.schemas.units import ALL_FOLDERS, LAST_FOLDER

#: Words for splits, in the order in which splits are listed.
SPLIT_FOLDERS = (
    "train", "training", "val", "valid", "validation", "dev", "test", "testing", "eval", "evaluation"
)  # fmt: skip
#: A folder that is named like a split, such as `Train`, `TEST` or `training_set`.
_SPLIT_FOLDER = re.compile(rf"({'|'.join(SPLIT_FOLDERS)})([ _-]?set)?\Z", re.IGNORECASE)
#: A folder that is named like a shard, such as img2dataset's `00000`. Shorter numbers are often classes.
_SHARD_NUMBER = re.compile(r"[0-9]{5,}\Z")
_NAMES_SHOWN = 3

#: What an input is taken for whose folders are classes, and nothing else is to be said of them.
CLASS_FOLDERS = "class folders"
#: What is said of folders with metadata.
WITH_METADATA = "a metadata file beside each image"
AUTO, CLASSES, SPLITS, IGNORE = "auto", "classes", "splits", "ignore"


def split_of_folder(name: str) -> str:
    """Returns the split that a folder's name says, in lower case; empty if it says none.

    >>> split_of_folder("Train"), split_of_folder("Test-Set"), split_of_folder("trains")
    ('train', 'test_set', '')
    """
    return re.sub(r"[ -]", "_", name.lower()) if _SPLIT_FOLDER.match(name) else ""


def _split_order(name: str) -> tuple[int, str]:
    match = _SPLIT_FOLDER.match(name)
    assert match is not None
    return SPLIT_FOLDERS.index(match[1].lower()), name


def split_folders(names: Iterable[str]) -> dict[str, str]:
    """Returns folder -> split for the folders that are named like splits, in the order of splits."""
    return {name: split_of_folder(name) for name in sorted(filter(split_of_folder, names), key=_split_order)}


def could_be_splits(names: Iterable[str]) -> bool:
    """Whether all folders, hidden ones left out, are named like splits."""
    shown = [name for name in names if not name.startswith(".")]
    return bool(shown) and all(map(split_of_folder, shown))


def is_shard_number(name: str) -> bool:
    """Whether a folder's name is a number as writers of shards give it: five digits or more."""
    return bool(_SHARD_NUMBER.match(name))


@dataclass(frozen=True)
class FolderTree:
    """What the folders of an input mean.

    Attributes:
      splits: folder at the top -> split, in the order of splits; empty if no folder is a split.
      names_classes: whether the first folder (inside the split) is the class.
      only_splits: whether everything outside of the split folders is left out.
      empty: folders at the top that hold no images, as far as they were looked into.
      metadata: whether a metadata file lies beside each image.
    """

    splits: Mapping[str, str] = field(default_factory=dict)
    names_classes: bool = True
    only_splits: bool = False
    empty: tuple[str, ...] = ()
    metadata: bool = False

    def place(self, key: str, depth: int = 1) -> tuple[str, str]:
        """Returns (split, class) that the folders of a key say; empty where they say none.

        What lies outside of the split folders goes to the first split.

        Args:
          key: the path of a file below the input.
          depth: how many folders make a class name, as far as there are so many; or `ALL_FOLDERS` or
            `LAST_FOLDER`.
        """
        if not self.names_classes:
            return "", ""
        folders = key.split("/")[:-1]
        if not self.splits:
            return "", _label_of(folders, depth)
        if not folders or folders[0] not in self.splits:
            return next(iter(self.splits.values())), ""
        return self.splits[folders[0]], _label_of(folders[1:], depth)

    def leaves_out(self, key: str) -> bool:
        """Whether a file lies outside of the split folders and only these are read."""
        top, slash, _ = key.partition("/")
        return self.only_splits and not (slash and top in self.splits)

    @property
    def text(self) -> str:
        """What the folders mean, in a few words."""
        if not self.names_classes:
            text = "folders that say nothing of the images"
        elif self.splits:
            text = f"{CLASS_FOLDERS} in {_listed(self.splits)}"
        else:
            text = CLASS_FOLDERS
        more = [WITH_METADATA] if self.metadata else []
        if self.only_splits:
            more.append("what lies outside of these is left out")
        elif self.empty:
            more.append(f"no images in {_listed(self.empty)}")
        return "; ".join([text, *more])


def _label_of(folders: Sequence[str], depth: int) -> str:
    if depth == LAST_FOLDER:
        folders = folders[-1:]
    elif depth != ALL_FOLDERS:
        folders = folders[:depth]
    return one_label("/".join(filter(None, folders)))  # in a bucket names may be empty


def _listed(names: Iterable[str]) -> str:
    shown = [printable(name) for name in names]
    if len(shown) > _NAMES_SHOWN:
        return f"{', '.join(shown[:_NAMES_SHOWN])} and {len(shown) - _NAMES_SHOWN:,} more"
    return " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))


class TopFolders:
    """The folders at the top that hold images, as far as they decide what folders mean.

    Attributes:
      splits: the folders named like splits -> whether images lie in folders inside.
      number: the first folder that is named like a shard; empty without one.
      other: the first folder with another name; empty without one.
    """

    def __init__(self) -> None:
        self.splits: dict[str, bool] = {}
        self.number = self.other = ""

    def add(self, name: str, nested: bool) -> None:
        """Takes note of a folder that holds an image.

        Args:
          name: the name of the folder.
          nested: whether the image lies in a folder inside.
        """
        if split_of_folder(name):
            self.splits[name] = self.splits.get(name, False) or nested
        elif is_shard_number(name):
            self.number = min(filter(None, (self.number, name)))
        else:
            self.other = min(filter(None, (self.other, name)))


def decide(
    tops: TopFolders,
    folders: str,
    where: str,
    named: Iterable[str] = (),
    metadata: bool = False,
) -> FolderTree:
    """Decides what the folders of an input mean.

    Args:
      tops: the folders at the top that hold images.
      folders: the setting `--folders`.
      where: the input, for messages.
      named: the names of all folders at the top, those without images too.
      metadata: whether a metadata file lies beside each image.

    Raises:
      UsageError: if they could mean two things; the message says how to write each.
    """
    splits = split_folders({*named, *tops.splits})
    if folders == CLASSES:
        return FolderTree(metadata=metadata)
    if folders == IGNORE:
        return FolderTree(names_classes=False, metadata=metadata)
    where = f"--input {printable(where)}"
    if folders == SPLITS:
        if not splits:
            raise UsageError(
                f"--folders splits: {where} has no folder that is named like a split (train, validation, "
                "test, ...); rename the folders, or take their names for the splits with --label_regex "
                "'(?P<split>[^/]+)/(?P<label>[^/]+)/.*'."
            )
        return FolderTree(splits, only_splits=True, metadata=metadata)
    other = tops.other or tops.number
    if tops.splits and other:
        called, like = ("are", "splits") if len(splits) > 1 else ("is", "a split")
        raise UsageError(
            f"{where}: {_listed(splits)} {called} named like {like}, and {printable(other)}, which holds "
            f"images too, is not. Write --folders splits if {_listed(splits)} {called} {like}: the rest is "
            "left out then. Write --folders classes if each folder is a class."
        )
    if any(tops.splits.values()):
        return FolderTree(splits, metadata=metadata)
    if tops.splits:
        raise UsageError(
            f"{where}: the images lie directly in {_listed(split_folders(tops.splits))}, so that every class "
            "would be named like a split. Write --folders splits --unlabelled keep if the folders are splits "
            "of images without a class. Write --folders classes if each folder is a class."
        )
    if tops.number and not tops.other:
        if metadata:
            return FolderTree(names_classes=False, metadata=metadata)
        raise UsageError(
            f"{where}: the folders are named like shards ({printable(tops.number)}, ...). Write --folders "
            "ignore --unlabelled keep if the names of the folders say nothing of the images. Write --folders "
            "classes if each folder is a class."
        )
    return FolderTree(metadata=metadata)
