"""Some of the quarantined images, with thumbnails if their sources can still be read."""

from __future__ import annotations

import contextlib
import io
import json
import os
import stat
import threading
import time
from collections import defaultdict
from collections.abc import Sequence

from PIL import Image

from shardwright.core import storage
from shardwright.core.images.color import to_color
from shardwright.core.images.contact_sheet import SIDE, thumbnail
from shardwright.core.images.decode import open_image
from shardwright.core.images.pillow_settings import pillow_settings
from shardwright.core.images.signatures import HEAD_BYTES, kind_of
from shardwright.core.report.data import MAX_QUARANTINED, Quarantined, Thumbnail
from shardwright.core.report.thumbnails import as_thumbnail
from shardwright.schemas.dataset import QUARANTINE_JSONL
from shardwright.schemas.errors import EngineError, ImageFault

#: Number of bytes of `quarantine.jsonl` that are read.
_MAX_BYTES = 2_000_000
#: Largest number of images that are tried, together and per reason.
_MAX_PICTURES, _MAX_OF_REASON = 24, 6
#: Largest size in bytes and in pixels of a source that is read.
_MAX_SOURCE = 16_000_000
_MAX_PIXELS = 24_000_000
#: Seconds for all images together. If a network does not answer, the page is drawn without them.
PATIENCE = 6.0
#: Formats in which a part of an image can be decoded.
_PARTIAL = frozenset({"jpeg", "png"})


def read_quarantine(directory: str) -> list[Quarantined]:
    """Reads the beginning of `quarantine.jsonl`, and selects some lines of each reason.

    Returns:
      The selected lines. Empty if there is no such file, or it is damaged.
    """
    try:
        data = storage.read_range(storage.join(directory, QUARANTINE_JSONL), 0, _MAX_BYTES)
    except (OSError, EngineError):
        return []
    by_reason: defaultdict[str, list[Quarantined]] = defaultdict(list)
    for line in data.split(b"\n"):
        try:
            value = json.loads(line)
            item = Quarantined(
                key=str(value["key"]), uri=str(value["uri"]), stage=str(value["stage"]),
                reason=str(value["reason"]), message=str(value["message"]),
            )  # fmt: skip
        except (ValueError, KeyError, TypeError, RecursionError):
            continue  # an empty, incomplete or foreign line
        by_reason[item.reason].append(item)
    share = max(1, MAX_QUARANTINED // max(1, len(by_reason)))
    taken = [item for _, items in sorted(by_reason.items()) for item in items[:share]]
    return taken[:MAX_QUARANTINED]


def draw_quarantine(items: Sequence[Quarantined], directory: str) -> tuple[Quarantined, ...]:
    """Adds thumbnails of images whose source still exists; reads no storage except the dataset's own."""
    tried: list[int] = []
    of_reason: defaultdict[str, int] = defaultdict(int)
    for i, item in enumerate(items):
        if len(tried) < _MAX_PICTURES and of_reason[item.reason] < _MAX_OF_REASON and _near(item, directory):
            of_reason[item.reason] += 1
            tried.append(i)
    found: dict[int, Thumbnail] = {}
    end = time.monotonic() + PATIENCE

    def work() -> None:
        for i in tried:
            if time.monotonic() > end:
                return
            picture = _look(items[i].uri)
            if picture is not None:
                found[i] = picture

    # A read that hangs in a network must delay neither the page nor the end of the process.
    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(PATIENCE)
    pictures = dict(found)
    return tuple(item._replace(picture=pictures.get(i)) for i, item in enumerate(items))


def _near(item: Quarantined, directory: str) -> bool:
    """Returns whether a source is a local file, or an object in the dataset's own kind of storage."""
    if not storage.is_remote(item.uri):
        return bool(item.uri) and not storage.is_remote(directory)
    return item.uri.startswith(("gs://", "s3://", "az://")) and item.uri[:5] == directory[:5]


def _look(uri: str) -> Thumbnail | None:
    """Returns a thumbnail of a faulty image, or None if it cannot be decoded at all."""
    try:
        data = _read(uri)
        if not data:
            return None
        try:
            open_image(data, "image", _MAX_PIXELS)
            return as_thumbnail(thumbnail(data))
        except ImageFault:
            partial = _partial(data)
            return as_thumbnail(partial) if partial is not None else None
    except Exception:  # expected, because the image is faulty
        return None


def _read(uri: str) -> bytes:
    """Reads a source if it is a regular file within the size limit."""
    if storage.is_remote(uri):
        return storage.read_range(uri, 0, _MAX_SOURCE) if storage.size_of(uri) <= _MAX_SOURCE else b""
    descriptor = os.open(uri, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_SOURCE:
            return b""
        return storage.read_fully(descriptor, 0, status.st_size)
    finally:
        os.close(descriptor)


def _partial(data: bytes) -> Image.Image | None:
    """Decodes the readable part of a truncated or damaged image."""
    kind = kind_of(data[:HEAD_BYTES])
    if kind not in _PARTIAL:
        return None
    with pillow_settings(_MAX_PIXELS):
        image = Image.open(io.BytesIO(data), formats=[kind])
        if image.width * image.height > _MAX_PIXELS:
            return None
        with contextlib.suppress(Exception):  # keep the part before the damage
            image.load()
    image.tile = []  # stop Pillow from trying again
    small = to_color(image, "rgb", (255, 255, 255)).copy()
    small.thumbnail((SIDE, SIDE))
    return small
