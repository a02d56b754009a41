"""Files that hold many images, such as tables, arrays and records: where they are, and which are not read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from shardwright.core import storage
from shardwright.core.sources.image_files import key_of
from shardwright.core.sources.source import Input, InputSplit
from shardwright.core.storage.store import StoredObject
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef, printable


class ContainerFile(NamedTuple):
    """A file of an input.

    Attributes:
      relative: Path relative to the input; its name if it is the input.
      split: Split of its images; empty if unknown.
      filtered: Reason why the file is not read; empty if it is read.
    """

    relative: str
    split: str = ""
    filtered: str = ""


def content_digest(data: bytes | memoryview) -> str:
    """Returns the digest of an image inside a file."""
    return hashlib.blake2b(data, digest_size=8, usedforsecurity=False).hexdigest()


def keeps_splits(settings: ConvertSettings) -> bool:
    """Returns whether images stay in the splits of their source, because the user chose no others."""
    return settings.splits == ConvertSettings.splits


def path_of(path: str, is_file: bool, relative: str) -> str:
    """Returns the path of a file of an input, which may be that file."""
    return path if is_file else storage.join(path, relative)


def state_of(path: str) -> StoredObject:
    """Returns the state of a file.

    Raises:
      UsageError: If it does not exist.
    """
    with storage.translated_errors("look for", path):
        state = storage.stat(path)
    if state is None:
        raise UsageError(f"--input {printable(path)} does not exist any more; check the path.")
    return state


def filtered_part(item: Input, folder: str, files: Iterable[ContainerFile]) -> Iterator[InputSplit]:
    """Yields one input split for all files that are not read, if there are any.

    Args:
      item: Input.
      folder: Folder to which the paths of the files are relative.
      files: Files of the input.
    """
    filtered = [file for file in files if file.filtered]
    if filtered:
        yield InputSplit(item, folder, detail=filtered)


def filtered_refs(part: InputSplit) -> list[ImageRef]:
    """Returns a reference to each file that is not read; none if the split is a container."""
    files = part.detail if isinstance(part.detail, list) else ()
    return [
        ImageRef(part.item.prefix + key_of(name), storage.join(part.path, name)).filtered(reason)
        for name, _, reason in files
    ]
