"""Checks that a HEIF is complete and moderate before libheif sees it, and decodes it.

libheif fills in tiles that it cannot decode, so half a photograph would pass for a whole one. It refuses
frames of another size than the file says (from 1.23 on), before it allocates memory for them. It also applies
the rotation, mirroring and crop of a file, and a reader has to ignore the Exif orientation (ISO/IEC 23008-12,
6.5.10 and annex A).

Sources: ISO/IEC 14496-12, 8.11 (items); ISO/IEC 23008-12 (HEIF); ISO/IEC 14496-15, 8.3 (HEVC in files).
"""

from __future__ import annotations

import contextlib
import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from PIL import Image, UnidentifiedImageError

from shardwright.core.images.faults import corrupt, truncated, unsupported
from shardwright.core.images.formats.containers import Box, Numbers, boxes, check_tags, number
from shardwright.core.images.formats.opened_image import OpenedImage
from shardwright.schemas.bounds import Bounds
from shardwright.schemas.errors import words_of
from shardwright.schemas.missing_packages import MissingPackage, needed_by

_KIND = "heif"
_HEVC = frozenset((b"hvc1", b"hev1"))
#: Pixels that are decoded for each pixel of the picture: the picture, its alpha, and the edges of tiles.
_PIXELS_PER_PIXEL, _MORE_PIXELS = 4, 1 << 24
_SLICES_UNTIL = 32
#: Bytes that a unit never has (ITU-T H.265, 7.4.2.1), but a download that was not finished.
_START_CODE = re.compile(rb"\0\0[\0-\2]")
_MAX_DEPTH = 8
#: Position of the length of lengths in an `hvcC`.
_LENGTHS_AT = 21
_OF_FILE, _OF_ITEM_DATA = 0, 1


@dataclass
class _Items:
    """The items of a file (ISO/IEC 14496-12, 8.11).

    Attributes:
      primary: Number of the item that is the picture.
      types: Item -> its type.
      extents: Item -> its parts in the file: the position of each, and the one after it.
      parts: Item -> the items that it consists of.
      extras: Item -> the items that add to it, such as its alpha channel.
      properties: Item -> the boxes that describe it.
    """

    primary: int
    types: dict[int, bytes] = field(default_factory=dict)
    extents: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    parts: dict[int, list[int]] = field(default_factory=dict)
    extras: dict[int, list[int]] = field(default_factory=dict)
    properties: dict[int, list[Box]] = field(default_factory=dict)


class HeifImage(OpenedImage):
    """A HEIF."""

    kind = _KIND
    _turned_by_decoder = True
    _bytes_per_pixel = 12

    def _read_header(self, max_pixels: int) -> Image.Image:
        try:
            with needed_by("HEIC (HEIF)"):
                from pillow_heif.as_plugin import HeifImageFile
        except MissingPackage as error:
            raise unsupported(_KIND + ": " + str(error).rstrip(".")) from error
        data, bounds = self.data, self.bounds
        items = _read_items(data, bounds)
        size = _size_of(data, items, items.primary)
        if size[0] * size[1] <= max_pixels:  # a larger picture is refused
            _check_picture(data, items, size, bounds)
        for item in (item for item, kind in items.types.items() if kind == b"Exif"):
            content = b"".join(data[begin:end] for begin, end in items.extents.get(item, ()))
            check_tags(content[4 + number(content, 0, 4) :], "exif", bounds)
        with _libheif_faults():
            image: Image.Image = HeifImageFile(io.BytesIO(data))
        return image

    def _load(self) -> Image.Image:
        """Decodes the picture, upright, unless libheif reports damage."""
        size = self.image.size
        with _libheif_faults():
            self.image.load()
        if self.image.size != size:
            raise corrupt("heif: its pixels do not have the size of its header")
        return self.image


class AvifImage(OpenedImage):
    """An AVIF: a HEIF with frames of AV1. Pillow opens, checks and decodes it."""

    kind = "avif"
    _plugin = "AVIF"
    #: Planes of up to 16 bits, the decoder's image, and Pillow's image.
    _bytes_per_pixel = 14

    def _read_header(self, max_pixels: int) -> Image.Image:
        """Tells a file that ends early from other damage, which Pillow does not."""
        try:
            return super()._read_header(max_pixels)
        except UnidentifiedImageError:
            *_, last = boxes(self.data, 0, len(self.data), self.kind, self.bounds)
            if last.end > len(self.data):
                raise truncated(f"avif: it ends after {len(self.data)} of {last.end} bytes") from None
            raise


@contextlib.contextmanager
def _libheif_faults() -> Iterator[None]:
    """Tells what libheif does not support, and frames that are too large, from other damage.

    `pillow_settings` reports the latter.
    """
    try:
        yield
    except (SyntaxError, RuntimeError, ValueError) as error:
        if "unsupported" in str(error).lower():
            raise unsupported(f"{_KIND}: {words_of(error)}") from error
        if "exceeds the maximum image size" in str(error):
            raise corrupt("heif: a frame in it is larger than the file says") from error
        raise


def _read_items(data: bytes, bounds: Bounds) -> _Items:
    """Reads the `meta` box."""
    for box in boxes(data, 0, len(data), _KIND, bounds):
        if box.end > len(data) and box.type in (b"ftyp", b"meta"):
            raise truncated(f"heif: it ends after {len(data)} bytes, in its header")
        if box.type == b"meta":
            break
        if box.type == b"moov":
            raise unsupported("heif: it is a film without a picture; extract its frames")
    else:
        raise truncated("heif: it ends before its header")
    inside = {}
    for child in boxes(data, box.begin + 4, box.end, _KIND, bounds):
        if child.end > box.end:
            raise corrupt("heif: a box of its header is larger than the header")
        inside[child.type] = child
    missing = [name for name in (b"pitm", b"iloc", b"iinf", b"iprp") if name not in inside]
    if missing:
        raise corrupt(f"heif: its header lacks {missing[0].decode()}")
    items = _Items(number(data, inside[b"pitm"].begin + 4, 4 if data[inside[b"pitm"].begin] else 2))
    types = inside[b"iinf"]
    for entry in boxes(data, types.begin + (8 if data[types.begin] else 6), types.end, _KIND, bounds):
        wide = 4 if data[entry.begin] >= 3 else 2
        item = number(data, entry.begin + 4, wide)
        items.types[item] = data[entry.begin + 6 + wide : entry.begin + 10 + wide]
    _read_locations(data, inside[b"iloc"], inside.get(b"idat"), items, bounds)
    if b"iref" in inside:
        _read_references(data, inside[b"iref"], items, bounds)
    _read_properties(data, inside[b"iprp"], items, bounds)
    return items


def _read_locations(data: bytes, box: Box, inner: Box | None, items: _Items, bounds: Bounds) -> None:
    """Reads `iloc`, the positions of the items."""
    version, sizes = data[box.begin], number(data, box.begin + 4, 2)
    offset_bytes, length_bytes, base_bytes, index_bytes = (sizes >> shift & 15 for shift in (12, 8, 4, 0))
    wide = 4 if version == 2 else 2
    numbers = Numbers(data, box.begin + 6, box.end, f"{_KIND}: the list of its parts")
    entries = 0
    for _ in range(numbers.next(wide)):
        item = numbers.next(wide)
        method = numbers.next(2) & 15 if version else _OF_FILE
        numbers.next(2)  # the file that has it: always this one
        base = numbers.next(base_bytes)
        if method == _OF_ITEM_DATA and inner is not None:
            base += inner.begin
        extents = items.extents.setdefault(item, [])
        for _ in range(numbers.next(2)):
            entries += 1
            bounds.check("boxes", entries, f"{_KIND}: its items have at least {entries} parts")
            if version:
                numbers.next(index_bytes)
            start = base + numbers.next(offset_bytes)
            length = numbers.next(length_bytes)
            extents.append((start, start + length if length else len(data)))


def _read_references(data: bytes, box: Box, items: _Items, bounds: Bounds) -> None:
    wide = 4 if data[box.begin] else 2
    total = 0
    for reference in boxes(data, box.begin + 4, box.end, _KIND, bounds):
        end = min(reference.end, box.end)
        numbers = Numbers(data, reference.begin, end, f"{_KIND}: the list of its tiles")
        item = numbers.next(wide)
        others = [numbers.next(wide) for _ in range(numbers.next(2))]
        total += len(others)
        bounds.check("tiles", total, f"{_KIND}: it has at least {total} tiles")
        if reference.type == b"dimg":
            items.parts.setdefault(item, []).extend(others)
        elif reference.type == b"auxl":
            for other in others:
                items.extras.setdefault(other, []).append(item)


def _read_properties(data: bytes, box: Box, items: _Items, bounds: Bounds) -> None:
    """Reads `iprp`: the properties, and which item has which of them."""
    properties: list[Box] = []
    links: list[Box] = []
    for child in boxes(data, box.begin, box.end, _KIND, bounds):
        if child.type == b"ipco":
            properties.extend(boxes(data, child.begin, min(child.end, box.end), _KIND, bounds))
        elif child.type == b"ipma":
            links.append(child)
    total = 0
    for link in links:
        wide, step = 4 if data[link.begin] else 2, 2 if data[link.begin + 3] & 1 else 1
        end = min(link.end, box.end)
        numbers = Numbers(data, link.begin + 4, end, f"{_KIND}: the list of its properties")
        for _ in range(numbers.next(4)):
            item, owned = numbers.next(wide), numbers.next(1)
            total += 1 + owned
            bounds.check("boxes", total, f"{_KIND}: its items have at least {total} properties")
            of_item = items.properties.setdefault(item, [])
            for _ in range(owned):
                index = numbers.next(step) & (0x7FFF if step == 2 else 0x7F)
                if 0 < index <= len(properties):
                    of_item.append(properties[index - 1])


def _property(items: _Items, item: int, kind: bytes) -> Box | None:
    return next((box for box in items.properties.get(item, ()) if box.type == kind), None)


def _size_of(data: bytes, items: _Items, item: int) -> tuple[int, int]:
    """Returns width and height of an item, before it is cropped or rotated."""
    box = _property(items, item, b"ispe")
    if box is None or box.begin + 12 > len(data):
        raise corrupt("heif: an image in it has no size")
    return number(data, box.begin + 4, 4), number(data, box.begin + 8, 4)


def _check_picture(data: bytes, items: _Items, size: tuple[int, int], bounds: Bounds) -> None:
    """Checks everything that is decoded for the picture."""
    most = _PIXELS_PER_PIXEL * size[0] * size[1] + _MORE_PIXELS
    pixels = 0
    checked: set[int] = set()
    for item in _needed(items, bounds):
        pixels += math.prod(_size_of(data, items, item))
        if pixels > most:
            times = pixels // max(1, size[0] * size[1])
            raise bounds.fault("tiles", f"{_KIND}: its tiles have at least {times} times its pixels")
        if item in checked:
            continue
        checked.add(item)
        kind = items.types.get(item, b"")
        extents = items.extents.get(item, [])
        if not extents and kind != b"iden":
            raise corrupt(f"heif: its image {item} has no content")
        for begin, end in extents:
            if end > len(data) or begin >= end:
                raise truncated(f"heif: it ends after {len(data)} bytes; one of its images ends at {end}")
        content = b"".join(data[begin:end] for begin, end in extents)
        if kind == b"grid":
            if len(content) < 8:
                raise truncated("heif: the list of its tiles ends early")
            needed, present = (content[2] + 1) * (content[3] + 1), len(items.parts.get(item, ()))
            if needed != present:
                raise corrupt(f"heif: it has {present} of {needed} tiles")
        if kind in _HEVC:
            _check_frame(data, content, _property(items, item, b"hvcC"))


def _needed(items: _Items, bounds: Bounds) -> Iterator[int]:
    """Yields the item of the picture and all items that it needs, each as often as it is decoded."""
    waiting = [(items.primary, 0)]
    count = 0
    while waiting:
        item, depth = waiting.pop()
        if depth > _MAX_DEPTH:
            raise corrupt("heif: its images consist of each other")
        count += 1
        bounds.check("tiles", count, f"{_KIND}: it has at least {count} tiles")
        yield item
        for others in (items.extras, items.parts):
            waiting.extend((other, depth + 1) for other in others.get(item, ()))


def _check_frame(data: bytes, content: bytes, setup: Box | None) -> None:
    """Checks that the units of a frame fill its item; libheif compares the sizes of both."""
    if setup is None or setup.begin + _LENGTHS_AT >= len(data):
        raise corrupt("heif: an image in it lacks its parameters")
    length_bytes = (data[setup.begin + _LENGTHS_AT] & 3) + 1
    position = slices = 0
    while position < len(content):
        length = number(content, position, length_bytes)
        position += length_bytes
        if length < 2 or position + length > len(content):
            raise corrupt("heif: the data of an image in it is damaged")
        if _START_CODE.search(content, position, position + length) or not content[position + length - 1]:
            raise corrupt("heif: the data of an image in it is damaged")
        slices += (content[position] >> 1 & 63) < _SLICES_UNTIL
        position += length
    if not slices:
        raise corrupt("heif: an image in it has no pixels")
