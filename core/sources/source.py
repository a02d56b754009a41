"""Defines sources, which recognize an input format, divide an input and list its images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from typing import Any, NamedTuple

from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.rules import Rules
from shardwright.core.sources.spool import Spool
from shardwright.schemas.configuration.kinds import SOURCE_GROUP, SOURCES
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import Needs
from shardwright.schemas.plugins import entry_points_of, load_plugin, package_of


class Input(NamedTuple):
    """An input of a conversion.

    Attributes:
      path: Path of the file or folder.
      prefix: Prefix of its keys: empty, or `name/`.
      source: Name of the source that reads the input.
      detected_as: Description of the detected format for messages.
      is_file: Whether the input is a single file.
    """

    path: str
    prefix: str
    source: str = ""
    detected_as: str = ""
    is_file: bool = False


class InputPart(NamedTuple):
    """A part of an input that one worker lists.

    Attributes:
      item: Input.
      path: File or folder to list.
      detail: What else the source needs to list the part; it can be pickled.
      left_out: Files below the folder that are not read -> the reason. A part with such files is only these.
    """

    item: Input
    path: str
    detail: Any = ""
    left_out: Mapping[str, str] = {}


@dataclass(frozen=True)
class Context:
    """Context of a listing.

    Attributes:
      settings: Checked settings.
      spool: Directory for spool files.
      rules: Rules for class names, and for the images that are left out; by default none.
      one_worker: Whether one worker lists everything, so that small parts have no use.
    """

    settings: ConvertSettings
    spool: Spool
    rules: Rules = field(default_factory=Rules)
    one_worker: bool = False


def whole(item: Input, context: Context) -> Iterator[InputPart]:
    """Yields the whole input as one part."""
    yield InputPart(item, item.path)


@dataclass(frozen=True)
class Source:
    """A reader of one input format, as functions; `docs/sources.md` shows how to add one.

    Attributes:
      name: Name for `--source`, and name of the module.
      provides: Kinds of annotations that the source can provide.
      accepts: Function that returns whether an input looks like this format; `--source auto` calls it.
      describe: Function that returns a short description of an input. It raises UsageError if the input
        cannot be read in this format, or does not work with the settings.
      list_part: Function that yields a reference for every item in a part, in any order, and the class
        ids if the source has its own.
      parts: Function that yields the parts of an input, which workers list in parallel.
      unique_keys: Whether every key is unique within an input, as for files in a folder.
      has_keypoints: Whether the source can provide the key points of objects.
      settings: Settings that this source uses, out of those that only some sources use.
      metadata_settings: Further such settings that apply if metadata files are beside the images.
    """

    name: str
    provides: frozenset[Needs]
    accepts: Callable[[InputProbe, ConvertSettings], bool]
    describe: Callable[[InputProbe, ConvertSettings], str]
    list_part: Callable[[InputPart, Context], Iterator[ImageRef | ClassId]]
    parts: Callable[[Input, Context], Iterator[InputPart]] = whole
    unique_keys: bool = False
    has_keypoints: bool = False
    settings: frozenset[str] = frozenset()
    metadata_settings: frozenset[str] = frozenset()

    def uses(self, setting: str, metadata: bool = True) -> bool:
        """Returns whether this source uses a setting.

        Args:
          setting: Name of the setting.
          metadata: Whether metadata files are, or may be, beside the images.
        """
        return setting in self.settings or (metadata and setting in self.metadata_settings)


@cache
def plugin_sources() -> Mapping[str, Source]:
    """Returns the sources that installed packages add, by name, in the order of their names.

    A package adds a source with an entry point in the group `shardwright.sources`. The entry point
    has the name of the source, and its object is a `Source`.

    Raises:
      UsageError: If one cannot be loaded, is not a `Source`, or has a name that is in use.
    """
    sources: dict[str, Source] = {}
    for point in entry_points_of(SOURCE_GROUP):
        if point.name in SOURCES or point.name in sources or point.name == "auto":
            raise UsageError(
                f"The source {point.name!r} of the package {package_of(point)} has a name that is in use; "
                "rename it."
            )
        fits = partial(_is_source, point.name)
        sources[point.name] = load_plugin(point, "source", "a Source with this name", fits, UsageError)
    return sources


def _is_source(name: str, plugin: Any) -> bool:
    return isinstance(plugin, Source) and plugin.name == name


def source_by_name(name: str) -> Source:
    """Returns a source by name, loading only the module of that source.

    Raises:
      UsageError: If there is no such source; on a worker, its package is not installed there.
    """
    if name not in SOURCES:
        if name not in plugin_sources():
            raise UsageError(f"There is no source {name!r} here; install the package that adds it.")
        return plugin_sources()[name]
    source: Source = import_module(f"shardwright.core.sources.{name}").SOURCE
    return source


def all_sources() -> Iterator[Source]:
    """Yields all sources in the order in which `auto` tries them: first those of installed packages."""
    yield from plugin_sources().values()
    yield from map(source_by_name, SOURCES)
