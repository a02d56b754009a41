"""Reads lists of images.

The paths in a list are relative to the folder of the list, to that of the dataset, or to the folder in which
Darknet runs. So `data/train.txt` may contain `data/obj/1.jpg`, and so may the list of an export to another
folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from shardwright.core import storage
from shardwright.core.sources import image_files
from shardwright.core.sources.file_states import FileStates, with_states
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.image_ref import ImageRef, printable
from shardwright.schemas.plain_text import check_utf8


def list_images(path: str, root: str, prefix: str) -> Iterator[ImageRef]:
    """Yields a reference for each line of a list.

    If a path does not exist, the folder of the dataset is searched for its file name.

    Args:
      path: Path of the list.
      root: Folder of the dataset, to which keys are relative.
      prefix: Beginning of the keys.

    Raises:
      UsageError: If a line has an unsupported scheme, such as that of a web address.
      EngineError: If the list cannot be read.
    """
    lines = _read_list(path)
    states = FileStates(root, len(lines))
    found = {line: _find(line, image_files.folder_of(path), root, states) for line in dict.fromkeys(lines)}
    moved = image_files.find_moved((line for line in lines if not found[line]), root)

    def refs() -> Iterator[ImageRef]:
        for line in lines:
            inner, fault = moved.get(line, ("", image_files.MISSING))
            named = image_files.join(root, inner) if inner else resolve(root, line.removeprefix("./"))
            uri = found[line] or named
            key = prefix + _key_of(uri, root)
            ref = ImageRef(key, uri, message=f"listed in {printable(path)}")
            is_there = found[line] or inner
            yield ref if is_there else ref.quarantined(QuarantineReason.BAD_ANNOTATION, fault)

    return with_states(refs(), states)


def _read_list(path: str) -> list[str]:
    """Returns the lines of a list that are not blank."""
    with storage.translated_errors("read", path):
        data = storage.read_bytes(path)
    check_utf8(f"--input {printable(path)}", data)
    lines = [line.strip() for line in data.decode("utf-8-sig", "surrogateescape").splitlines()]
    for number, line in enumerate(lines, 1):
        if storage.is_remote(line):
            storage.require_known(f"--input {printable(path)}: line {number}:", line)
    return [line for line in lines if line]


def _find(line: str, here: str, root: str, states: FileStates) -> str:
    """Returns the path of the image that a line names; empty if it does not exist.

    If the check would need a request for each image, the likeliest path is returned unchecked.
    """
    folders = here, root, image_files.parent_of(root)
    tried = [resolve(root, line)] if is_absolute(line) else [*possible_paths(line, folders)]
    found = next(filter(states.has, tried), "")
    is_unknown = not found and all(states.has(path) is None for path in tried)
    return tried[0] if tried and is_unknown else found


def _key_of(path: str, root: str) -> str:
    inner = image_files.below(path, root)
    key = image_files.key_of((path.partition("://")[2] or path).lstrip("/") if inner is None else inner)
    return "/".join(step for step in key.split("/") if step != "..")


def possible_paths(text: str, folders: Sequence[str]) -> Iterator[str]:
    """Yields the files that a relative path may mean, the likeliest first.

    The path is first joined with each folder. Then its leading folders are removed one by one, as long as
    a folder remains in the path, or the removed one is `data` or has the name of the folder.

    >>> list(possible_paths("data/obj/1.jpg", ["/set"]))
    ['/set/data/obj/1.jpg', '/set/obj/1.jpg']
    """
    parts = [part for part in image_files.with_slashes(text).split("/") if part not in ("", ".")]
    for begin in range(len(parts)):
        for folder in folders:
            own = folder.rstrip("/").rpartition("/")[2]
            if not begin or begin < len(parts) - 1 or parts[begin - 1] in ("data", own):
                yield image_files.join(folder, "/".join(parts[begin:]))


def resolve(here: str, text: str) -> str:
    """Returns a path joined with a folder; a path in a bucket stays in its bucket."""
    if storage.is_remote(here) and not storage.is_remote(text):
        text = text.lstrip("/")  # a dataset in a bucket cannot name local files
    path = text if is_absolute(text) else image_files.join(here, text)
    scheme, found, rest = path.rpartition("://")
    if not found:
        return os.path.normpath(path)
    bucket, _, name = rest.partition("/")
    return f"{scheme}://{bucket}{os.path.normpath(f'/{name}')}"


def is_absolute(path: str) -> bool:
    """Returns whether a path does not start at the folder of its file."""
    return storage.is_remote(path) or path.startswith("/")
