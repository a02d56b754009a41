"""Decides what the folders of an input mean: classes, splits with classes inside, or nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import one_label
from shardwright.schemas.layouts import Needs
from shardwright.schemas.plain_text import printable
from shardwright.schemas.units import ALL_FOLDERS, LAST_FOLDER, listed

#: Words for splits, in the order of listing.
SPLIT_FOLDERS = (
    "train", "training", "val", "valid", "validation", "dev", "test", "testing", "eval", "evaluation"
)  # fmt: skip
#: A folder that is named like a split, such as `Train`, `TEST` or `training_set`.
_SPLIT_FOLDER = re.compile(rf"({'|'.join(SPLIT_FOLDERS)})([ _-]?set)?\Z", re.IGNORECASE)
#: A folder that is named like a shard, such as img2dataset's `00000`. Shorter numbers are often classes.
_SHARD_NUMBER = re.compile(r"[0-9]{5,}\Z")
_MAX_NAMES = 3

#: Description of an input whose folders are plain classes.
CLASS_FOLDERS = "class folders"
#: Description of folders with metadata.
WITH_METADATA = "a metadata file beside each image"
_EACH_IS_A_CLASS = "classes if each folder is a class"
AUTO, CLASSES, SPLITS, IGNORE = "auto", "classes", "splits", "ignore"


def split_of_folder(name: str) -> str:
    """Returns the split that a folder's name gives, in lower case; empty if it gives none.

    >>> split_of_folder("Train"), split_of_folder("Test-Set"), split_of_folder("trains")
    ('train', 'test_set', '')
    """
    return re.sub(r"[ -]", "_", name.lower()) if _SPLIT_FOLDER.match(name) else ""


def split_folders(names: Iterable[str]) -> dict[str, str]:
    """Returns folder -> split for the folders that are named like splits, in the order of splits."""
    matches = {name: match for name in names if (match := _SPLIT_FOLDER.match(name))}
    order = sorted(matches, key=lambda name: (SPLIT_FOLDERS.index(matches[name][1].lower()), name))
    return {name: split_of_folder(name) for name in order}


def beside_splits(where: str, splits: Iterable[str], name: str, title: str) -> UsageError:
    """Returns the error for a folder of a format beside folders of the same format that may be splits."""
    return UsageError(
        f"{where}: {listed(splits)} may be splits, but {name}, which is {title} "
        "too, is not; move it out of the input, or rename the folders."
    )


def is_shard_number(name: str) -> bool:
    """Returns whether a folder is named like a shard: a number of five digits or more."""
    return bool(_SHARD_NUMBER.match(name))


@dataclass(frozen=True)
class FolderTree:
    """Meaning of an input's folders.

    Attributes:
      splits: Folder at the top -> split, in the order of splits; empty if no folder is a split.
      names_classes: Whether the first folder (inside the split) is the class.
      only_splits: Whether everything outside the split folders is left out.
      empty: Folders at the top in which no images were found.
      metadata: Whether a metadata file is beside each image.
      classless: Whether the layout stores no classes, so that folders can only be splits.
    """

    splits: Mapping[str, str] = field(default_factory=dict)
    names_classes: bool = True
    only_splits: bool = False
    empty: tuple[str, ...] = ()
    metadata: bool = False
    classless: bool = False

    def place(self, key: str, depth: int = 1) -> tuple[str, str]:
        """Returns (split, class) from the folders of a key; each is empty if no folder gives it.

        Files outside the split folders go to the first split.

        Args:
          key: Path of a file below the input.
          depth: Number of folders that make a class name, or fewer if there are fewer; or `ALL_FOLDERS` or
            `LAST_FOLDER`.
        """
        split, folders = "", key.split("/")[:-1]
        if self.splits:
            if not folders or folders[0] not in self.splits:
                return next(iter(self.splits.values())), ""
            split, folders = self.splits[folders[0]], folders[1:]
        if not self.names_classes:
            return split, ""
        if depth == LAST_FOLDER:
            folders = folders[-1:]
        elif depth != ALL_FOLDERS:
            folders = folders[:depth]
        return split, one_label("/".join(filter(None, folders)))  # names in a bucket can be empty

    def leaves_out(self, key: str) -> bool:
        """Returns whether a file is left out because it is outside the split folders."""
        top, slash, _ = key.partition("/")
        return self.only_splits and not (slash and top in self.splits)

    @property
    def text(self) -> str:
        """Short description of what the folders mean."""
        if self.classless:
            text = f"images in {_listed(self.splits)}" if self.splits else "a folder of images"
        elif not self.names_classes:
            text = "folders without a meaning"
        elif self.splits:
            text = f"{CLASS_FOLDERS} in {_listed(self.splits)}"
        else:
            text = CLASS_FOLDERS
        more = [WITH_METADATA] if self.metadata else []
        if self.only_splits:
            more.append("files outside of these are left out")
        elif self.empty:
            more.append(f"no images in {_listed(self.empty)}")
        return "; ".join([text, *more])


def _listed(names: Iterable[str]) -> str:
    return listed(map(printable, names), _MAX_NAMES)


def decide(
    tops: Mapping[str, bool], settings: ConvertSettings, where: str, named: Iterable[str], metadata: bool
) -> FolderTree:
    """Decides what the folders of an input mean.

    Args:
      tops: Folder at the top that holds images -> whether some are in its subfolders. As many folders as are
        needed to decide.
      settings: Settings with `folders` and the layout, which may store no classes.
      where: Name of the input, for messages.
      named: Names of all folders at the top, also of those without images.
      metadata: Whether a metadata file is beside each image.

    Raises:
      UsageError: If the folders are ambiguous; the message gives the option for each meaning.
    """
    in_splits = {name: nested for name, nested in tops.items() if split_of_folder(name)}
    others = sorted(tops.keys() - in_splits.keys(), key=lambda name: (is_shard_number(name), name))
    splits = split_folders({*named, *in_splits})
    folders, classless = settings.folders, settings.record_layout.needs is Needs.IMAGE
    by_class = FolderTree(names_classes=not classless, metadata=metadata, classless=classless)
    no_meaning = replace(by_class, names_classes=False)
    where = f"--input {where}"
    if folders == SPLITS:
        if not splits:
            raise UsageError(
                f"--folders splits: {where} has no folder that is named like a split (train, validation, "
                "test, ...); rename the folders, or use their names as splits with --label_regex "
                "'(?P<split>[^/]+)/(?P<label>[^/]+)/.*'."
            )
        return replace(by_class, splits=splits, only_splits=True)
    if folders != AUTO:
        return by_class if folders == CLASSES else no_meaning
    if in_splits and others:
        called, like = ("are", "splits") if len(splits) > 1 else ("is", "a split")
        end = "ignore if the names of the folders have no meaning" if classless else _EACH_IS_A_CLASS
        raise UsageError(
            f"{where}: {_listed(splits)} {called} named like {like}, and {others[0]}, which holds "
            f"images too, is not. Write --folders splits if {_listed(splits)} {called} {like}: the rest is "
            f"left out then. Write --folders {end}."
        )
    if in_splits and (classless or any(in_splits.values())):
        return replace(by_class, splits=splits, only_splits=classless)
    if in_splits:
        raise UsageError(
            f"{where}: the images lie directly in {_listed(split_folders(in_splits))}, so that every class "
            "would be named like a split. Write --folders splits --unlabelled keep if the folders are splits "
            f"of images without a class. Write --folders {_EACH_IS_A_CLASS}."
        )
    if not others or not is_shard_number(others[0]) or classless:
        return by_class
    if metadata:
        return no_meaning
    raise UsageError(
        f"{where}: the folders are named like shards ({others[0]}, ...). Write --folders ignore --unlabelled "
        f"keep if the names of the folders have no meaning. Write --folders {_EACH_IS_A_CLASS}."
    )
