"""Lists the images of JSON files that are one array with an entry for each image.

A source gives an `EntryFormat`: how to find the image and the annotations in an entry. This module finds the
files and their images, and reads large files in pieces.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef, printable
from shardwright.transforms import storage
from shardwright.transforms.sources.annotation_files import AnnotationFault
from shardwright.transforms.sources.coco.json_stream import JsonFault, parse_item, stream_list
from shardwright.transforms.sources.file_states import FileStates, with_states
from shardwright.transforms.sources.image_files import (
    MISSING,
    bad_entry,
    check_folder,
    folder_of,
    inner_path,
    join,
    key_of,
)
from shardwright.transforms.sources.image_lists import (
    MAX_TRIED,
    describe_list,
    find_lists,
    names_with,
    placed_lists,
    prefix_of_images,
    split_lists,
)
from shardwright.transforms.sources.input_probe import InputProbe, look_at
from shardwright.transforms.sources.moved_files import find_moved, with_slashes
from shardwright.transforms.sources.source import Context, Input, InputSplit

_SUFFIX = ".json"
#: Bytes at the beginning of a file from which its format is detected and described.
_HEAD_BYTES = 1 << 20


class JsonFile(NamedTuple):
    """A file, its path relative to the input, the folder of its images, and its split (or empty)."""

    path: str
    key: str
    root: str
    split: str


class ImagePaths(NamedTuple):
    """Names of an entry's image.

    Attributes:
      written: The name as written in the entry.
      paths: Relative paths and file names that the image may have, the likeliest first.
      uri: The image in object storage, if no local file has one of the names; empty if there is none.
    """

    written: str
    paths: tuple[str, ...]
    uri: str = ""


@dataclass(frozen=True)
class EntryFormat:
    """How a source reads the entries of its files.

    Attributes:
      name: Name of the format, for messages.
      noun: Word for an entry.
      recognizes: Returns whether a value is an entry of this format.
      image_of: Returns the names of an entry's image. Raises AnnotationFault if it names none.
      annotate: Returns a reference with the annotations of an entry. Raises AnnotationFault if they are
        wrong.
      summarize: Returns what a message says about the first entries. Raises UsageError if the layout does
        not fit them.
    """

    name: str
    noun: str
    recognizes: Callable[[Any], bool]
    image_of: Callable[[Mapping[str, Any], ConvertSettings], ImagePaths]
    annotate: Callable[[ImageRef, Mapping[str, Any], ConvertSettings], ImageRef]
    summarize: Callable[[str, Sequence[Any], ConvertSettings], str]

    def accepts(self, probe: InputProbe, settings: ConvertSettings) -> bool:
        """Returns whether an input is a file of this format, or a folder with one."""
        return bool(self._files_in(probe, MAX_TRIED))

    def _files_in(self, probe: InputProbe, tried: int | None = None) -> list[str]:
        if probe.is_file:
            return [""] if self._is_one(probe.path) else []
        return find_lists(
            probe, lambda folder, tried: names_with(folder, _SUFFIX, tried, self._is_one), tried
        )

    def _is_one(self, path: str) -> bool:
        if not path.lower().endswith(_SUFFIX):
            return False
        entries = _first_entries(path)
        return bool(entries) and self.recognizes(entries[0])

    def describe(self, probe: InputProbe, settings: ConvertSettings) -> str:
        """Returns a description of an input."""
        if settings.image_root:
            check_folder("--image_root", settings.image_root)
        files = self.find_files(probe, settings)
        if not files:
            raise UsageError(
                f"--input {printable(probe.path)} holds no JSON of {self.name}; name the file, or the folder "
                "that holds it."
            )
        places = []
        for file in files:
            text = self.summarize(printable(file.path), _first_entries(file.path), settings)
            places.append(describe_list(file, text))
        return f"{self.name}: {'; '.join(places)}"

    def find_files(self, probe: InputProbe, settings: ConvertSettings) -> list[JsonFile]:
        """Returns the files of an input."""
        named = settings.image_root.rstrip("/")
        return [
            JsonFile(path, key, named or folder_of(path), split)
            for path, key, split in placed_lists(probe, self._files_in(probe))
        ]

    def split(self, item: Input, context: Context) -> Iterator[InputSplit]:
        """Yields one input split for each file."""
        yield from split_lists(item, self.find_files(look_at(item.path), context.settings))

    def list_part(self, part: InputSplit, context: Context) -> Iterator[ImageRef]:
        """Yields a reference for each image that a file names, and for each entry without an image."""
        file = JsonFile(*json.loads(part.detail))
        settings = context.settings
        prefix = prefix_of_images(part, file.root, context)
        with storage.translated_errors("read", file.path), storage.open_local(file.path) as opened:
            index = _index(opened, file.path)
            entry_key = f"{part.item.prefix}{key_of(file.key)}:{self.noun} "
            named: dict[int, ImagePaths] = {}
            for number, place in enumerate(index, 1):
                try:
                    named[number] = self.image_of(_entry(opened, place), settings)
                except AnnotationFault as fault:
                    yield bad_entry(f"{entry_key}{number}", file.path, str(fault))
            states = FileStates(file.root, len(named))
            images = _find_images(named, file.root, states)
            numbers: dict[str, list[int]] = {}
            for number, (uri, _, _) in images.items():
                numbers.setdefault(uri, []).append(number)

            def refs() -> Iterator[ImageRef]:
                for uri, found in numbers.items():
                    first = found[0]
                    _, inner, why = images[first]
                    shown = f"{self.noun} {first} of {printable(file.key)}"
                    if not uri:
                        for number in found:
                            missing = images[number][2]
                            yield bad_entry(f"{entry_key}{number}", file.path, missing)
                        continue
                    ref = ImageRef(prefix + key_of(inner), uri, split=file.split, message=shown)
                    if len(found) > 1:
                        for number in found[1:]:
                            again = f"{self.noun} {first} names the same image"
                            yield bad_entry(f"{entry_key}{number}", file.path, again)
                        why = f"{self.noun}s {first} and {found[1]} of {printable(file.key)} both name it"
                    try:
                        if why:
                            raise AnnotationFault(why)
                        yield self.annotate(ref, _entry(opened, index[first - 1]), settings)
                    except AnnotationFault as fault:
                        yield ref.quarantined(QuarantineReason.BAD_ANNOTATION, f"{shown}: {fault}")

            yield from with_states(refs(), states, file.root)


def _first_entries(path: str) -> list[Any]:
    """Returns the entries at the beginning of a file that are complete there; empty if it is not an array."""
    with storage.translated_errors("read", path):
        head = storage.read_head(path, _HEAD_BYTES)
    entries = []
    try:
        for item in stream_list(io.BytesIO(head)):
            entries.append(item.value)
    except JsonFault:
        pass
    return entries


def _index(opened: Any, path: str) -> list[tuple[int, int]]:
    """Returns offset and length of each entry in a file."""
    try:
        return [(item.begin, item.length) for item in stream_list(opened)]
    except JsonFault as fault:
        raise UsageError(
            f"--input {printable(path)} is not a complete JSON array: {fault}; fetch it again or fix it."
        ) from None


def _entry(opened: Any, place: tuple[int, int]) -> Any:
    begin, length = place
    return parse_item(os.pread(opened.fileno(), length, begin))


def _find_images(
    named: Mapping[int, ImagePaths], root: str, states: FileStates
) -> dict[int, tuple[str, str, str]]:
    """Returns number of an entry -> (URI, path for the key, fault) of its image.

    If no path exists in the folder, the only file with one of the file names is the image. Without such a
    file, the URI is that in object storage, or empty.
    """
    found: dict[int, tuple[str, str, str]] = {}
    for number, names in named.items():
        inner = (inner_path(with_slashes(path)) for path in names.paths)
        path = next((path for path in inner if path and states.has(join(root, path))), "")
        if path:
            found[number] = join(root, path), path, ""
    rest = {number: names for number, names in named.items() if number not in found}
    moved = find_moved([path for names in rest.values() for path in names.paths], root) if rest else {}
    for number, names in rest.items():
        candidates = [moved[path] for path in names.paths if path in moved]
        if candidates and candidates[0].path:
            path = candidates[0].path
            found[number] = join(root, path), path, ""
        elif candidates:
            found[number] = "", "", f"{candidates[0].fault} ({printable(names.written)})"
        elif names.uri:
            found[number] = names.uri, names.paths[0], ""
        else:
            found[number] = "", "", f"{MISSING}: {printable(names.written)}"
    return found
