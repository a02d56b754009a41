"""Files that hold many images, such as tables, arrays and records: where they are, and which are not read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

from shardwright.core import storage
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.storage.store import StoredObject
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.splits import in_split_order


def content_digest(data: bytes | memoryview) -> str:
    """Returns the digest of an image inside a file."""
    return hashlib.blake2b(data, digest_size=8, usedforsecurity=False).hexdigest()


def keeps_splits(settings: ConvertSettings) -> bool:
    """Returns whether images stay in the splits of their source, because the user chose no others."""
    return settings.splits == ConvertSettings.splits


def path_of(path: str, is_file: bool, relative: str) -> str:
    """Returns the path of a file of an input, which may be that file."""
    return path if is_file else storage.join(path, relative)


def first_containers(
    probe: InputProbe, is_container: Callable[[str], object], is_image: Callable[[str], bool]
) -> list[str]:
    """Returns the containers in the first folder near an input that has some; none if images come first.

    Only these folders are listed, because inputs of other sources may be large.

    Args:
      probe: The input.
      is_container: Returns whether a file is a container, judged by its name.
      is_image: Returns whether a file is an image, judged by its name.
    """
    for folder in probe.folders_near():
        if any(map(is_image, folder.files)):
            return []
        if paths := [storage.join(folder.path, name) for name in folder.files if is_container(name)]:
            return paths
    return []


def state_of(path: str) -> StoredObject:
    """Returns the state of a file.

    Raises:
      UsageError: If it does not exist.
    """
    with storage.translated_errors("look for", path):
        state = storage.stat(path)
    if state is None:
        raise UsageError(f"--input {path} does not exist any more; check the path.")
    return state


def of_splits(splits: Iterable[str]) -> str:
    """Returns the names of splits for messages, such as ` of train, test`; an empty name is no split."""
    names = in_split_order({*splits} - {""})
    return f" of {', '.join(names)}" if names else ""
