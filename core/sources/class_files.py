"""Reads files of class names beside TFRecords, such as `labels.txt` and `label_map.pbtxt`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from shardwright.schemas.labels import MAX_OWN_ID

#: Names of such files, most likely first: TF-Slim's and TFDS's for images, the Object Detection API's and
#: TFDS's for objects.
IMAGE_CLASS_FILES = (
    "labels.txt", "label.labels.txt", "labels.labels.txt", "class_names.txt", "classes.txt",
)  # fmt: skip
OBJECT_CLASS_FILES = ("label_map.pbtxt", "labelmap.pbtxt", "objects-label.labels.txt")

_NUMBERED = re.compile(r"(\d{1,18}):(.*)\Z")
_ITEM = re.compile(r"item\s*:?\s*\{([^{}]*)\}")
_STRING = r"""\s*:\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')"""
_NAME = re.compile(r"(?<![a-z_])name" + _STRING)
_DISPLAY_NAME = re.compile(r"display_name" + _STRING)
_ID = re.compile(r"(?<![a-z_])id\s*:\s*(\d{1,18})")


def class_names_of(name: str, text: str) -> Mapping[int, str]:
    """Returns id -> class name from such a file; empty if it is not one."""
    parse: Callable[[str], dict[int, str]] = parse_label_map if name.endswith(".pbtxt") else parse_labels
    found = parse(text)
    return {number: label for number, label in found.items() if label and number <= MAX_OWN_ID}


def parse_labels(text: str) -> dict[int, str]:
    """Reads lines of `id:name`, or lines of names whose ids count from 0."""
    lines = [line.strip() for line in text.removeprefix("\ufeff").splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    matches = [_NUMBERED.match(line) for line in lines]
    if lines and all(matches):
        return {int(match[1]): match[2].strip().replace("\\n", "\n") for match in matches if match}
    return dict(enumerate(lines))


def parse_label_map(text: str) -> dict[int, str]:
    """Reads a `StringIntLabelMap` in protobuf's text format, as the TensorFlow Object Detection API uses it.

    Display names replace names that are codes of Open Images.
    """
    names: dict[int, str] = {}
    for item in _ITEM.findall(re.sub(r"(?m)^\s*#.*$", "", text)):
        number, name, shown = _ID.search(item), _NAME.search(item), _DISPLAY_NAME.search(item)
        chosen = shown if shown and (not name or _unquoted(name).startswith("/m/")) else name
        if number and chosen:
            names[int(number[1])] = _unquoted(chosen)
    return names


def _unquoted(match: re.Match[str]) -> str:
    """Returns a string without its quotes; its escapes stand for bytes of UTF-8."""
    quoted: str = match[1] if match[1] is not None else match[2]
    unescaped = quoted.encode().decode("unicode_escape", "replace")
    return unescaped.encode("latin-1", "replace").decode("utf-8", "replace")
