"""Finds images in JSON Lines whose rows contain them as base64 text, also in data URLs.

The text is a range of bytes in the file, from which a worker reads it again.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any

from shardwright.core.images.signatures import is_image_name, kind_of
from shardwright.core.sources.annotation_files import AnnotationFault
from shardwright.core.sources.containers import content_digest
from shardwright.core.sources.tables.columns import looks_like_path, usual_columns
from shardwright.core.sources.tables.lines import named_value
from shardwright.core.sources.tables.paths import EmbeddedImage
from shardwright.core.storage.store import StoredObject
from shardwright.schemas.byte_range import BASE64, ByteRange
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.errors import words_of

#: Fields of an image that is an object.
_BYTES, _PATH = "bytes", "path"
_DATA_URL = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)
#: Number of characters to look at, and the fewest that an image has.
_HEAD, _FEWEST = 88, 32
#: Longest text that may be a path.
_MAX_PATH_LENGTH = 1024


def base64_column(values: Mapping[str, object], named: str) -> str:
    """Returns the column with images as base64 text; empty if there is none, or a usual one has paths.

    Args:
      values: Known values in the first rows, by name.
      named: Column that the settings name; empty for the usual ones.
    """
    names = [named]
    if not named:
        names = usual_columns("image", list(dict.fromkeys(name.partition(".")[0] for name in values)), {})
        if any(looks_like_path(str(values.get(name, ""))[:_MAX_PATH_LENGTH]) for name in names):
            return ""
    candidates = (column for name in names for column in (name, f"{name}.{_BYTES}"))
    return next((name for name in candidates if _is_image(values.get(name))), "")


def _is_image(value: Any) -> bool:
    """Returns whether a value is the base64 text of an image, or a data URL with it."""
    if not isinstance(value, str):
        return False
    head = re.sub(r"\s", "", _payload(value)[:_HEAD])
    try:
        return len(head) >= _FEWEST and kind_of(_decoded(head[: len(head) // 4 * 4])) is not None
    except ValueError:
        return False


def embedded_image(
    row: dict[str, Any], name: str, line: bytes, offset: int, file: StoredObject
) -> EmbeddedImage | AnnotationFault | str | None:
    """Returns the image of a row, or why it cannot be read, or its path; None if the row has neither.

    Args:
      row: The row.
      name: Name of its base64 text.
      line: Line with the row.
      offset: Byte offset of the line.
      file: File with the line.
    """
    text = named_value(row, name)
    outer, _, last = name.rpartition(".")
    if text in (None, "") and last == _BYTES and outer:
        text = named_value(row, f"{outer}.{_PATH}")
        return text if isinstance(text, str) else None
    if text in (None, ""):
        return None
    if not isinstance(text, str):
        return _bad(f"its image is not base64 text but {type(text).__name__}")
    payload = _payload(text)
    if payload == text and is_image_name(text) and len(text) <= _MAX_PATH_LENGTH:
        return text
    try:
        image = _decoded("".join(payload.split()))
    except ValueError as error:
        return _bad(f"its base64 cannot be read: {words_of(error)}")
    written = next((spelling for spelling in _spellings(payload) if spelling in line), None)
    if written is None:
        return _bad("its base64 has unusual escapes; write it again")
    place = ByteRange("", offset + line.find(written), len(written), BASE64, file.size, file.version)
    return EmbeddedImage(place, len(image), content_digest(image))


def _payload(text: str) -> str:
    """Returns base64 text without the beginning of a data URL."""
    url = _DATA_URL.match(text)
    return text[url.end() :] if url else text


def _bad(message: str) -> AnnotationFault:
    return AnnotationFault(message, QuarantineReason.CORRUPT)


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
    return base64.b64decode(data + b"=" * (-len(data) % 4), validate=True)
