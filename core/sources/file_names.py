"""Reads classes from file names: `--label_regex '(?P<label>[a-z]+)\\d+\\.jpg'` for apple01.jpg."""

from __future__ import annotations

import re
from collections.abc import Iterator

from shardwright.core.sources.archives.files import first_archive
from shardwright.core.sources.class_folders import NO_MEANING, folder_parts, list_class_folders
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.rules import take_apart
from shardwright.core.sources.source import Context, InputPart, Source
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.layouts import Needs


def _describe(probe: InputProbe, settings: ConvertSettings) -> str:
    if probe.is_file:
        raise UsageError(f"{probe.where} is not a folder; name the folder of the images.")
    if not settings.label_regex:
        raise UsageError(
            "--source file_names needs --label_regex, such as '(?P<label>[a-z]+)\\d+\\.jpg' for apple01.jpg."
        )
    return "file names that say the class"


def list_part(part: InputPart, context: Context) -> Iterator[ImageRef]:
    """Yields a reference for each file in a part of a folder."""
    pattern = re.compile(context.settings.label_regex)
    for ref in list_class_folders(part.item, part=part.detail[1]):
        yield take_apart(ref, pattern, part.item.prefix)


SOURCE = Source(
    name="file_names",
    provides=frozenset({Needs.LABEL, Needs.IMAGE}),
    settings=frozenset({"label_regex"}),
    accepts=lambda probe, settings: (
        bool(settings.label_regex) and not probe.is_file and not first_archive(probe)
    ),
    describe=_describe,
    list_part=list_part,
    parts=lambda item, context: folder_parts(item, NO_MEANING, context),
    unique_keys=True,
)
