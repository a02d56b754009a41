"""Limits the structure of an image file before a decoder sees it.

A small file can keep a decoder busy for hours or make it ask for gigabytes: a JPEG with thousands of scans, a
GIF with millions of blocks, a TIFF with millions of strips. The functions below count such parts and compare
them with `Bounds`. They depend on the file alone and never on the time or memory of a machine, so the same
file always has the same outcome.

Sources: ITU-T T.81; PNG specification (third edition); GIF89a specification; TIFF 6.0; BigTIFF design;
RFC 9649 (WebP); Netpbm's ppm(5); Pillow's decoders, which these bounds protect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from shardwright.schemas.bounds import Bounds
from shardwright.transforms.images.jpeg_segments import START_OF_SCAN, jpeg_segments

#: Pixels in all scans of a JPEG, for each scan that is allowed. A hundred scans take half a second to decode.
_PIXELS_OF_SCANS, _SCANS = 1 << 32, 100

_SOI_BYTES, _EXIF_MARKER = 2, 0xE1
#: Markers of frames (ITU-T T.81, table B.1): SOF0 to SOF15 without DHT, JPG and DAC.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
#: Markers of sequential frames. If one scan has all components, it is the only one.
_SEQUENTIAL = frozenset((0xC0, 0xC1, 0xC3, 0xC9, 0xCB))
_SIGNATURE_BYTES, _CHUNK_BYTES = 8, 12
_RIFF_HEADER_BYTES, _RIFF_CHUNK_BYTES = 12, 8
_SCREEN_BYTES, _DESCRIPTOR_BYTES = 13, 10
_IMAGE, _TRAILER, _COMMENT = 0x2C, 0x3B, 0xFE
#: Bound -> what it counts in a GIF.
_GIF_WORDS = {
    "blocks": "blocks of pixels",
    "comment_blocks": "blocks of comments",
    "extension_blocks": "blocks of extensions that are not comments",
}
_GIF_BLOCK = re.compile(rb"[!,;]")
#: Type of a TIFF tag -> (bytes of a value, weight of a value in memory). Text and bytes are not converted.
_TAG_TYPES = {
    1: (1, 0), 2: (1, 0), 7: (1, 0), 6: (1, 1), 3: (2, 1), 8: (2, 1), 4: (4, 1), 9: (4, 1), 11: (4, 1),
    13: (4, 1), 5: (8, 8), 10: (8, 8), 12: (8, 1), 16: (8, 1), 17: (8, 1), 18: (8, 1),
}  # fmt: skip
#: Tags that name another directory of tags: Exif, GPS, interoperability.
_DIRECTORY_TAGS = frozenset((34665, 34853, 40965))
_MAX_DIRECTORIES = 8
_STRIP_TAGS = frozenset((273, 279, 324, 325))
_BIG_TIFF = 43
_BLANK = rb"(?=[\s#])\s*(?:#[^\r\n]*[\r\n]\s*)*"
#: Kind of PNM -> fields in its header: width and height, and the highest value unless samples are bits.
_PNM_BITS = re.compile(rb"P." + 2 * (_BLANK + rb"\d+"))
_PNM_LEVELS = re.compile(rb"P." + 3 * (_BLANK + rb"\d+"))
_BMP_INFO_BYTES = 40
_RLE8, _RLE4 = 1, 2


def check_structure(data: bytes, kind: str, bounds: Bounds) -> None:
    """Checks that a file has no more parts than a decoder can process in seconds.

    Args:
      data: the whole file.
      kind: its format, one of `SUPPORTED_KINDS`.
      bounds: limits on the parts of the file.

    Raises:
      ImageFault: if it has more parts; the reason names the bound. Decoders report damage.
    """
    check = _CHECKS.get(kind)
    if check is not None:
        check(data, bounds)


def check_work(data: bytes, kind: str, size: tuple[int, int], bounds: Bounds) -> None:
    """Checks that a decoder does not process the pixels too often or too slowly.

    Args:
      data: the whole file, which `check_structure` accepted.
      kind: its format, one of `SUPPORTED_KINDS`.
      size: width and height in pixels, within `max_pixels`.
      bounds: limits on the parts of the file.

    Raises:
      ImageFault: if decoding takes too much work; the reason names the bound.
    """
    check = _WORK_CHECKS.get(kind)
    if check is not None:
        check(data, *size, bounds)


def _check_scans(data: bytes, width: int, height: int, bounds: Bounds) -> None:
    """Checks the scans of a JPEG that has several; each may cover the whole picture."""
    pixels = width * height
    max_pixels = bounds.scans * _PIXELS_OF_SCANS // _SCANS
    scans = components = 0
    for segments, (marker, start, _, _) in enumerate(jpeg_segments(data), 1):
        if segments > bounds.segments:  # builds no message for each of them
            raise bounds.fault("segments", f"jpeg: it has at least {segments} segments")
        if marker in _FRAMES:
            components = data[start + 9] if marker in _SEQUENTIAL and start + 9 < len(data) else 0
        elif marker == START_OF_SCAN:
            scans += 1
            if components and start + 4 < len(data) and data[start + 4] == components:
                return  # one scan has all components: decoders ignore what follows
            if scans * pixels > max_pixels:
                bounds.check("scans", scans, f"jpeg: it has at least {scans} scans of {pixels} pixels")


def check_exif(info: Mapping[Any, Any], bounds: Bounds) -> None:
    """Checks the tags of the Exif data that Pillow found in an image.

    Args:
      info: Pillow's `Image.info`.
      bounds: limits on tags and values.

    Raises:
      ImageFault: if there are too many values.
    """
    exif = info.get("exif")
    if exif is None and isinstance(info.get("Raw profile type exif"), str):
        try:
            exif = bytes.fromhex("".join(info["Raw profile type exif"].split("\n")[3:]))
        except ValueError:
            return
    if isinstance(exif, bytes):
        check_tags(exif.removeprefix(b"Exif\0\0"), "exif", bounds)


def check_tags(data: bytes, what: str, bounds: Bounds) -> None:
    """Checks the tags in a TIFF's first two directories and in their sub-directories.

    Args:
      data: a TIFF file, or Exif data without its prefix.
      what: the format, for messages.
      bounds: limits on tags, values and strips.

    Raises:
      ImageFault: if there are too many tags, values or strips.
    """
    order: Any = {b"II": "little", b"MM": "big"}.get(data[:2])
    if order is None:
        return

    def number(position: int, size: int) -> int:
        return int.from_bytes(data[position : position + size], order)

    big = number(2, 2) == _BIG_TIFF
    wide = 8 if big else 4
    entry_bytes, count_bytes = (20, 8) if big else (12, 2)
    directories = [number(8, 8) if big else number(4, 4)]
    next_directory = True
    tags = values = value_bytes = 0
    for _ in range(_MAX_DIRECTORIES):
        if not directories:
            return
        begin = directories.pop(0)
        entries = number(begin, count_bytes) if begin + count_bytes <= len(data) else 0
        tags += entries
        bounds.check("tags", tags, f"{what}: it has at least {tags} tags")
        position = begin + count_bytes
        for _ in range(entries):
            if position + entry_bytes > len(data):
                break
            tag, kind = number(position, 2), number(position + 2, 2)
            count = number(position + 4, wide)
            size, weight = _TAG_TYPES.get(kind, (0, 0))
            fits = size * count <= len(data)  # decoders do not read values beyond the end of the file
            if fits:
                if tag in _STRIP_TAGS:
                    bounds.check("strips", count, f"{what}: it has {count} strips or tiles")
                values += weight * count
                value_bytes += size * count if size * count > wide else 0
                bounds.check("tag_values", values, f"{what}: its tags have at least {values} values")
                shared = value_bytes - len(data)
                bounds.check(
                    "shared_bytes", shared, f"{what}: its tags have {shared} bytes more than the file"
                )
            if tag in _DIRECTORY_TAGS:
                directories.append(number(position + 4 + wide, wide))
            position += entry_bytes
        if next_directory:
            next_directory = False
            if following := number(position, wide):
                directories.append(following)


class JpegFrame(NamedTuple):
    """The frame header of a JPEG.

    Attributes:
      width: width in pixels.
      height: height in pixels.
      sampling: horizontal and vertical sampling factor of each component, at least 1.
      several_scans: whether libjpeg has to keep all coefficients until the last scan.
    """

    width: int
    height: int
    sampling: tuple[tuple[int, int], ...]
    several_scans: bool


def jpeg_frame(data: bytes) -> JpegFrame | None:
    """Returns the frame header of a JPEG; None if there is none before the first scan."""
    frame: JpegFrame | None = None
    for marker, start, _, _ in jpeg_segments(data):
        if marker in _FRAMES and len(data) > start + 9:
            height, width = (int.from_bytes(data[at : at + 2], "big") for at in (start + 5, start + 7))
            factors = data[start + 11 : start + 10 + 3 * data[start + 9] : 3]
            sampling = tuple((max(1, both >> 4), max(1, both & 15)) for both in factors) or ((1, 1),)
            frame = JpegFrame(width, height, sampling, marker not in _SEQUENTIAL)
        if marker == START_OF_SCAN:
            if frame is not None and len(data) > start + 4 and data[start + 4] < len(frame.sampling):
                return frame._replace(several_scans=True)
            return frame
    return frame


def _check_jpeg(data: bytes, bounds: Bounds) -> None:
    """Checks the segments before the first scan."""
    stray = exif = 0
    expected = _SOI_BYTES
    for number, (marker, start, _, data_end) in enumerate(jpeg_segments(data), 1):
        stray += start - expected
        expected = data_end
        if number > bounds.segments:  # builds no message for each of them
            raise bounds.fault("segments", f"jpeg: it has at least {number} segments")
        if stray > bounds.stray_bytes:
            raise bounds.fault("stray_bytes", f"jpeg: it has at least {stray} bytes between its segments")
        if marker == _EXIF_MARKER and data[start + 4 : start + 10] == b"Exif\0\0":
            exif += 1
            bounds.check("exif_segments", exif, f"jpeg: it has at least {exif} segments with Exif data")
            if exif == 1:
                size = int.from_bytes(data[start + 2 : start + 4], "big")
                first = start, start + 2 + size
        if marker == START_OF_SCAN:
            break
    if exif:
        check_tags(_joined_exif(data) if exif > 1 else data[first[0] + 10 : first[1]], "exif", bounds)


def _joined_exif(data: bytes) -> bytes:
    """Returns the Exif data of all segments as Pillow joins it."""
    parts: list[bytes] = []
    for marker, start, _, _ in jpeg_segments(data):
        if marker == START_OF_SCAN:
            break
        if marker == _EXIF_MARKER and data[start + 4 : start + 10] == b"Exif\0\0":
            parts.append(data[start + 10 : start + 2 + int.from_bytes(data[start + 2 : start + 4], "big")])
    return b"".join(parts)


def _check_png(data: bytes, bounds: Bounds) -> None:
    _count_chunks(data, "png", _SIGNATURE_BYTES, _CHUNK_BYTES, 0, "big", bounds)


def _check_webp(data: bytes, bounds: Bounds) -> None:
    _count_chunks(data, "webp", _RIFF_HEADER_BYTES, _RIFF_CHUNK_BYTES, 4, "little", bounds)


def _count_chunks(
    data: bytes, kind: str, position: int, overhead: int, size_at: int, order: Any, bounds: Bounds
) -> None:
    chunks = 0
    while position + overhead <= len(data):
        chunks += 1
        bounds.check("chunks", chunks, f"{kind}: it has at least {chunks} chunks")
        size = int.from_bytes(data[position + size_at : position + size_at + 4], order)
        position += overhead + size + (size & 1 if kind == "webp" else 0)


def _check_gif(data: bytes, bounds: Bounds) -> None:
    """Counts the blocks up to the second frame, which is found but not decoded."""
    if len(data) < _SCREEN_BYTES:
        return
    position = _SCREEN_BYTES + _color_table_bytes(data[10])
    comments = extensions = frames = stray = 0
    while frames < 2 and (found := _GIF_BLOCK.search(data, position)):
        stray += found.start() - position
        bounds.check("stray_bytes", stray, f"gif: it has at least {stray} bytes between its blocks")
        position = found.start()
        kind = data[position]
        if kind == _TRAILER or position + _DESCRIPTOR_BYTES >= len(data):
            return
        if kind == _IMAGE:
            frames += 1
            position += _DESCRIPTOR_BYTES + _color_table_bytes(data[position + 9]) + 1
            position, _ = _after_blocks(data, position, bounds, "blocks", 0)
        elif data[position + 1] == _COMMENT:
            position, comments = _after_blocks(data, position + 2, bounds, "comment_blocks", comments)
        else:
            position, extensions = _after_blocks(data, position + 2, bounds, "extension_blocks", extensions)


def _color_table_bytes(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _after_blocks(data: bytes, position: int, bounds: Bounds, name: str, before: int) -> tuple[int, int]:
    """Skips a chain of sub-blocks and counts them.

    Args:
      data: the whole file.
      position: position of the first sub-block.
      bounds: limits on the blocks of the file.
      name: name of the bound for blocks of this kind.
      before: number of earlier blocks of this kind.

    Returns:
      The position after the chain, and the number of blocks of this kind so far, including terminators.
    """
    blocks, most = before, getattr(bounds, name)
    while position < len(data):
        blocks += 1
        if blocks > most:
            raise bounds.fault(name, f"gif: it has at least {blocks} {_GIF_WORDS[name]}")
        size = data[position]
        position += 1 + size
        if size == 0:
            break
    return position, blocks


def _check_bmp(data: bytes, width: int, height: int, bounds: Bounds) -> None:
    """Checks a run-length encoded BMP, which Pillow decodes in Python."""
    if int.from_bytes(data[14:18], "little") < _BMP_INFO_BYTES:
        return
    if int.from_bytes(data[30:34], "little") not in (_RLE8, _RLE4):
        return
    pixels, size = width * height, f"{width} x {height} pixels"
    bounds.check("runs", pixels, f"bmp: {size} as runs are {pixels}")
    bounds.check("columns", width, f"bmp: {size} as runs have {width} columns")
    bounds.check("runs", len(data), f"bmp: its runs take {len(data)} bytes")
    # A command takes two bytes: each pixel may be a run, and each row has an end.
    stray = len(data) - 4 * (width + 1) * (height + 1)
    bounds.check("stray_bytes", stray, f"bmp: its runs take {stray} bytes beyond what {size} can need")


def _check_pnm(data: bytes, bounds: Bounds) -> None:
    """Checks the header of a PNM, which Pillow reads byte by byte."""
    head = data[: bounds.comments]
    found = (_PNM_BITS if head[1:2] in b"14" else _PNM_LEVELS).match(head)
    if (found is None or found.end() == len(head)) and len(head) < len(data):
        raise bounds.fault("comments", f"ppm: its header has at least {len(head) + 1} bytes")


_CHECKS: dict[str, Callable[[bytes, Bounds], None]] = {
    "jpeg": _check_jpeg,
    "png": _check_png,
    "webp": _check_webp,
    "gif": _check_gif,
    "tiff": lambda data, bounds: check_tags(data, "tiff", bounds),
    "ppm": _check_pnm,
}
_WORK_CHECKS: dict[str, Callable[[bytes, int, int, Bounds], None]] = {
    "jpeg": _check_scans,
    "bmp": _check_bmp,
}
