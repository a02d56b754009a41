"""Reads classes from file names: `--label_regex '(?P<label>[a-z]+)\\d+\\.jpg'` for apple01.jpg."""

from __future__ import annotations

import re
from collections.abc import Iterator

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef, printable
from shardwright.schemas.layouts import Needs
from shardwright.transforms.sources.archives.kinds import first_archive
from shardwright.transforms.sources.class_folders import (
    NO_MEANING,
    is_listed_whole,
    list_class_folders,
    split_folders_of,
)
from shardwright.transforms.sources.folder_parts import WHOLE, decode_part
from shardwright.transforms.sources.input_probe import InputProbe
from shardwright.transforms.sources.label_regex import take_apart
from shardwright.transforms.sources.source import Context, Input, InputSplit, Source, whole


def _accepts(probe: InputProbe, settings: ConvertSettings) -> bool:
    return bool(settings.label_regex) and not probe.is_file and not first_archive(probe)


def _describe(probe: InputProbe, settings: ConvertSettings) -> str:
    if probe.is_file:
        raise UsageError(f"--input {printable(probe.path)} is not a folder; name the folder of the images.")
    if not settings.label_regex:
        raise UsageError(
            "--source file_names needs --label_regex, such as '(?P<label>[a-z]+)\\d+\\.jpg' for apple01.jpg."
        )
    return "file names that say the class"


def split(item: Input, context: Context) -> Iterator[InputSplit]:
    """Yields a part for each folder at the top, and one for the files beside these.

    The input stays whole if one worker lists it, and if its storage lists all objects at once.

    Raises:
      EngineError: if a folder cannot be listed.
    """
    yield from whole(item, context) if is_listed_whole(item, context) else split_folders_of(item, NO_MEANING)


def list_part(part: InputSplit, context: Context) -> Iterator[ImageRef]:
    """Yields a reference for each file in a part of a folder."""
    pattern = re.compile(context.settings.label_regex)
    folder = decode_part(part.detail)[0] if part.detail else WHOLE
    for ref in list_class_folders(part.item, part=folder):
        yield take_apart(ref, pattern, part.item.prefix)


SOURCE = Source(
    name="file_names",
    provides=frozenset({Needs.LABEL, Needs.IMAGE}),
    settings=frozenset({"label_regex"}),
    accepts=_accepts,
    describe=_describe,
    list_part=list_part,
    split=split,
    unique_keys=True,
)
