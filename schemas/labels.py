"""Class names in id order and the files that list them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from shardwright.schemas.errors import UsageError


def order_labels(seen: Iterable[str], carried: Sequence[str] = ()) -> tuple[str, ...]:
    """Returns class names in id order: carried ones keep their place, new ones follow.

    New names are sorted by their UTF-8 bytes, so the order never depends on a locale.
    """
    known = set(carried)
    new = sorted({name for name in seen if name not in known}, key=str.encode)
    return (*carried, *new)


def labels_txt(labels: Sequence[str], first_label: int = 0) -> str:
    """Returns TF-Slim's `id:name` lines (research/slim/datasets/dataset_utils.py).

    A line break inside a name (file systems allow it) is written as `\\n`.
    """
    names = (name.replace("\n", "\\n").replace("\r", "\\r") for name in labels)
    return "".join(f"{first_label + i}:{name}\n" for i, name in enumerate(names))


def label_map_pbtxt(labels: Sequence[str]) -> str:
    """Returns a `StringIntLabelMap`, ids from 1, as the TF Object Detection API reads it."""
    return "".join(f"item {{\n  id: {i}\n  name: {_quoted(name)}\n}}\n" for i, name in enumerate(labels, 1))


def _quoted(name: str) -> str:
    """Quotes a string for protobuf's text format."""
    out = []
    for byte in name.encode():
        char = chr(byte)
        if char in "\"\\'":
            out.append("\\" + char)
        elif 0x20 <= byte < 0x7F:
            out.append(char)
        else:
            out.append(f"\\{byte:03o}")
    return '"' + "".join(out) + '"'


def parse_class_names(text: str, path: str) -> tuple[str, ...]:
    """Reads a `--class_names` file: one name a line, in id order; `id:name` lines work too.

    Raises:
      UsageError: if a name is empty or stands twice, or the ids are not 0, 1, 2, ...
    """
    lines = [line.strip() for line in re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff"))]
    names = [line for line in lines if line]
    if names and all(re.match(r"[0-9]+:", name) for name in names):
        pairs = [name.split(":", 1) for name in names]
        ids = [int(number) for number, _ in pairs]
        if ids != list(range(len(ids))):
            raise UsageError(
                f"--class_names {path}: ids must run 0, 1, 2, ... without gaps; number them anew."
            )
        names = [name.strip() for _, name in pairs]
    if "" in names:
        raise UsageError(f"--class_names {path}: id {names.index('')} has no name; give it one.")
    if not names:
        raise UsageError(f"--class_names {path}: the file names no class; put one name on a line.")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UsageError(f"--class_names {path}: {twice[0]!r} stands twice; remove one of them.")
    return tuple(names)
