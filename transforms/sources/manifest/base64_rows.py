"""Reads JSON Lines whose rows contain the images as base64 text, also in data URLs.

The text is a range of bytes in the file, from which a worker reads it again.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from shardwright.schemas.byte_range import BASE64, ByteRange
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.columns import finite_or_text
from shardwright.schemas.errors import words_of
from shardwright.transforms.images.signatures import is_image_name, kind_of
from shardwright.transforms.sources.content_digest import content_digest
from shardwright.transforms.sources.manifest.embedded_image import EmbeddedImage
from shardwright.transforms.sources.manifest.lines import LONGEST, Row, named_value
from shardwright.transforms.storage.stored_object import StoredObject

#: Fields of an image that is an object.
BYTES, PATH = "bytes", "path"
_DATA_URL = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)
_LINE_END = re.compile(rb"\r\n?|\n")
#: Number of characters to look at, and the fewest that an image has.
_HEAD, _FEWEST = 88, 32


def is_base64_image(value: Any) -> bool:
    """Returns whether a value is the base64 text of an image, or a data URL with it."""
    if not isinstance(value, str):
        return False
    url = _DATA_URL.match(value)
    begin = url.end() if url else 0
    head = re.sub(r"\s", "", value[begin : begin + _HEAD])
    if len(head) < _FEWEST:
        return False
    try:
        return kind_of(_decoded(head[: len(head) // 4 * 4])) is not None
    except ValueError:
        return False


def base64_column(values: Mapping[str, object], names: Sequence[str]) -> str:
    """Returns the name of the column with base64 text; empty if there is none.

    Args:
      values: Known values in the first rows, by name.
      names: Names of columns that may have images, the likeliest first.
    """
    candidates = (found for name in names for found in (name, f"{name}.{BYTES}"))
    return next((name for name in candidates if is_base64_image(values.get(name))), "")


def base64_rows(
    steps: Iterable[bytes], begin: int, number: int, names: Sequence[str], file: StoredObject
) -> Iterator[Row]:
    """Yields the values of the given names in each line; the first of them is the image or its path.

    Args:
      steps: Bytes of the lines.
      begin: Byte offset of the first line.
      number: Number of the first line.
      names: Names of the values; the first is that of the base64 text.
      file: File with the lines.
    """
    for line, (offset, data) in enumerate(_raw_lines(steps, begin), number):
        if data is None:
            yield line, f"it is longer than {LONGEST >> 20} MiB"
            continue
        if not data.strip():
            continue
        try:
            value = json.loads(data.decode("utf-8", "surrogateescape"), parse_float=finite_or_text)
        except (ValueError, RecursionError) as error:
            what = error.msg.lower() if isinstance(error, json.JSONDecodeError) else "it cannot be read"
            yield line, f"it is not JSON ({what})"
            continue
        if not isinstance(value, dict):
            yield line, "it is not a JSON object"
            continue
        image = _image(value, names[0], data, offset, file)
        yield line, [image, *(named_value(value, name) for name in names[1:])]


def _raw_lines(steps: Iterable[bytes], begin: int) -> Iterator[tuple[int, bytes | None]]:
    """Yields (byte offset, line) for each line; None instead of a line that is too long."""
    rest, skipping = b"", False
    for data in steps:
        buffer, start = rest + data if rest else data, 0
        while end := _LINE_END.search(buffer, start):
            if end.end() == len(buffer) and end[0] == b"\r":
                break  # perhaps the first half of a CR LF
            if not skipping:
                yield begin + start, buffer[start : end.start()]
            skipping, start = False, end.end()
        begin, rest = begin + start, buffer[start:]
        if len(rest) > LONGEST:
            if not skipping:
                yield begin, None
            skipping = True
            begin, rest = begin + len(rest) - 1, rest[-1:]
    if rest and not skipping:
        yield begin, rest.removesuffix(b"\r")


def _image(
    row: dict[str, Any], name: str, line: bytes, offset: int, file: StoredObject
) -> EmbeddedImage | str | None:
    """Returns the image of a row, or its path; None if the row has neither."""
    text = named_value(row, name)
    outer, _, last = name.rpartition(".")
    if text in (None, "") and last == BYTES and outer:
        text = named_value(row, f"{outer}.{PATH}")
        return text if isinstance(text, str) else None
    if text in (None, ""):
        return None
    if not isinstance(text, str):
        return _bad(f"its image is not base64 text but {type(text).__name__}")
    url = _DATA_URL.match(text)
    if not url and is_image_name(text) and len(text) <= MAX_PATH_LENGTH:
        return text
    payload = text[url.end() if url else 0 :]
    try:
        image = _decoded("".join(payload.split()))
    except ValueError as error:
        return _bad(f"its base64 cannot be read: {words_of(error)}")
    for written in _spellings(payload):
        place = line.find(written)
        if place >= 0:
            break
    else:
        return _bad("its base64 has unusual escapes; write it again")
    part = ByteRange("", offset + place, len(written), BASE64, file.size, file.version)
    return EmbeddedImage(part.encode(), len(image), content_digest(image))


#: Longest text that may be a path.
MAX_PATH_LENGTH = 1024


def _bad(message: str) -> EmbeddedImage:
    return EmbeddedImage("", reason=QuarantineReason.CORRUPT, message=message)


def _spellings(payload: str) -> Iterator[bytes]:
    """Yields the ways in which JSON writes base64 text: line ends and often slashes have a backslash."""
    plain = payload.replace("\r", "\\r").replace("\n", "\\n").encode()
    yield plain
    yield plain.replace(b"/", b"\\/")


def _decoded(text: str) -> bytes:
    """Decodes base64 in its standard or URL-safe alphabet, with or without padding.

    Raises:
      ValueError: If the text is not base64.
    """
    data = text.replace("-", "+").replace("_", "/").encode()
    try:
        return base64.b64decode(data + b"=" * (-len(data) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
