"""What a source is: how it knows its inputs, takes them apart, and lists what is in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import NamedTuple

from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import Needs
from shardwright.schemas.settings import SOURCES, ConvertSettings
from shardwright.transforms.sources.input_probe import InputProbe
from shardwright.transforms.sources.spool import Spool


class Input(NamedTuple):
    """One input.

    Attributes:
      path: where it is.
      prefix: what its keys begin with: empty, or `name/`.
      source: the name of the source that reads it.
      taken_for: what that source takes it for, for people.
      is_file: whether it is a single file.
    """

    path: str
    prefix: str
    source: str = ""
    taken_for: str = ""
    is_file: bool = False


class InputSplit(NamedTuple):
    """A part of an input that a worker lists by itself.

    Attributes:
      item: the input.
      path: the file or folder to list.
      begin: of a stretch of that file: a byte or the number of a row group, as the source has it.
      end: of the stretch; -1 for the end of the file.
      number: of the first row in the stretch, from 1.
      detail: whatever else the source needs to know of it.
    """

    item: Input
    path: str
    begin: int = 0
    end: int = -1
    number: int = 1
    detail: str = ""


@dataclass(frozen=True)
class Context:
    """What listing needs besides the part: checked settings, and a place for spool files."""

    settings: ConvertSettings
    spool: Spool


def whole(item: Input, context: Context) -> Iterator[InputSplit]:
    """Yields an input as one part."""
    yield InputSplit(item, item.path)


@dataclass(frozen=True)
class Source:
    """A kind of input, as functions; `docs/sources.md` shows how to add one.

    Attributes:
      name: what `--source` calls it, and the module that holds it.
      provides: what it can say of an image.
      accepts: whether an input looks like one of this kind (asked by `--source auto`).
      describe: what the input is taken for, in a few words; raises UsageError if it cannot be read
        as such, or the settings do not go with it.
      list_part: yields a reference for everything in a part, in no particular order, and the ids of
        classes where the source has ids of its own.
      split: yields the parts of an input, listed side by side.
      unique_keys: whether no key can stand twice in one input, as with the files of a folder.
      names_images: whether a file of this kind names images instead of holding them.
      has_columns: whether it can say more of an image, for `--extra_columns` and columns of layouts.
      names_classes_by_folder: whether classes are folders, of which `--label_depth` takes several.
    """

    name: str
    provides: frozenset[Needs]
    accepts: Callable[[InputProbe, ConvertSettings], bool]
    describe: Callable[[InputProbe, ConvertSettings], str]
    list_part: Callable[[InputSplit, Context], Iterator[ImageRef | ClassId]]
    split: Callable[[Input, Context], Iterator[InputSplit]] = whole
    unique_keys: bool = False
    names_images: bool = False
    names_classes_by_folder: bool = False
    has_columns: bool = False


def source_by_name(name: str) -> Source:
    """Returns a source; only the modules of those that are used are loaded."""
    found: Source = import_module(f"shardwright.transforms.sources.{name}").SOURCE
    return found


def all_sources() -> Iterator[Source]:
    """Yields every source in the order in which `auto` asks them."""
    return map(source_by_name, SOURCES)
