"""Bounds what an image file may consist of, before a decoder sees it.

A small file can keep a decoder busy for hours or make it ask for gigabytes: a JPEG with thousands of scans, a
GIF with millions of blocks, a TIFF with millions of strips. The bounds below count such parts. They depend on
the file alone and never on the time or memory of a machine, so the same file always has the same outcome.
Each bound is far above what programs write, and each has a reason of its own.

Sources: ITU-T T.81; PNG specification (third edition); GIF89a specification; TIFF 6.0; BigTIFF design;
RFC 9649 (WebP); Netpbm's ppm(5); Pillow's decoders, which these bounds protect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from shardwright.schemas.codes import QuarantineReason, Stage
from shardwright.schemas.errors import ImageFault

#: Scans of a JPEG that are always accepted. Encoders write 10 to 20.
MAX_SCANS = 100
#: Scans of a JPEG times its pixels, where it has more scans: about half a second of decoding.
MAX_SCAN_PIXELS = 1 << 32
#: Segments of a JPEG, and bytes between them. A color profile takes up to 255 segments.
MAX_JPEG_SEGMENTS, MAX_STRAY_BYTES = 1 << 16, 1 << 20
#: Segments of a JPEG with Exif data. One is the rule; Pillow joins more of them.
MAX_EXIF_SEGMENTS = 64
#: Chunks of a PNG or a WebP.
MAX_CHUNKS = 1 << 17
#: Blocks of a GIF's comments, of its other extensions, and of its pixels, up to the second frame.
MAX_COMMENT_BLOCKS, MAX_EXTENSION_BLOCKS, MAX_PIXEL_BLOCKS = 1 << 12, 1 << 16, 1 << 20
#: Tags of a TIFF or of Exif data, and all of their values. A fraction weighs as much as eight numbers.
MAX_TAGS, MAX_TAG_VALUES = 1 << 16, 1 << 20
#: Strips or tiles of a TIFF; a row each in the tallest scans.
MAX_STRIPS = 1 << 17
#: Bytes by which the values of all tags, or all strips, may pass the file: some share their bytes.
MAX_SHARED_BYTES = 1 << 26
#: Bytes of a PNM's header.
MAX_PNM_HEADER = 1 << 16
#: Pixels, and bytes, of a run-length encoded BMP, which Pillow decodes in Python.
MAX_RUN_LENGTH_PIXELS = 1 << 25
#: Columns of a run-length encoded BMP. One command may skip 255 rows.
MAX_RUN_LENGTH_WIDTH = 1 << 17

_SOI_BYTES = 2
_START_OF_SCAN, _END_OF_IMAGE, _EXIF_MARKER = 0xDA, 0xD9, 0xE1
#: Markers of frames (ITU-T T.81, table B.1): SOF0 to SOF15 without DHT, JPG and DAC.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
#: Those of frames that may have all components in one scan, and then have no other.
_SEQUENTIAL = frozenset((0xC0, 0xC1, 0xC3, 0xC9, 0xCB))
#: Markers without a segment: TEM, RST0 to RST7, SOI.
_ALONE = frozenset((0x01, *range(0xD0, 0xD9)))
_MARKER = re.compile(rb"\xff[\x01-\xfe]")
#: The end of a scan: a marker that is neither a stuffed byte nor a restart.
_AFTER_SCAN = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")
_SIGNATURE_BYTES, _CHUNK_BYTES = 8, 12
_RIFF_HEADER_BYTES, _RIFF_CHUNK_BYTES = 12, 8
_SCREEN_BYTES, _DESCRIPTOR_BYTES = 13, 10
_IMAGE, _TRAILER, _COMMENT = 0x2C, 0x3B, 0xFE
_GIF_BLOCK = re.compile(rb"[!,;]")
#: Type of a TIFF tag -> (bytes of a value, weight of a value in memory). Text and bytes stay as they are.
_TAG_TYPES = {
    1: (1, 0), 2: (1, 0), 7: (1, 0), 6: (1, 1), 3: (2, 1), 8: (2, 1), 4: (4, 1), 9: (4, 1), 11: (4, 1),
    13: (4, 1), 5: (8, 8), 10: (8, 8), 12: (8, 1), 16: (8, 1), 17: (8, 1), 18: (8, 1),
}  # fmt: skip
#: Tags that name another directory of tags: Exif, GPS, interoperability.
_DIRECTORY_TAGS = frozenset((34665, 34853, 40965))
_MAX_DIRECTORIES = 8
_STRIP_TAGS = frozenset((273, 279, 324, 325))
_BIG_TIFF = 43
_BLANK = rb"(?:\s|#[^\r\n]*[\r\n])"
#: Width and height, and where samples are no bits the highest value.
_PNM_BITS = re.compile(rb"P." + 2 * (_BLANK + rb"++\d++"))
_PNM_LEVELS = re.compile(rb"P." + 2 * (_BLANK + rb"++\d++") + _BLANK + rb"++\d++")
_BMP_INFO_BYTES = 40
_RLE8, _RLE4 = 1, 2


def check_structure(data: bytes, kind: str) -> None:
    """Checks that a file has no more parts than a decoder can go through in seconds.

    Args:
      data: the whole file.
      kind: its format, of `SUPPORTED_KINDS`.

    Raises:
      ImageFault: if it has; the reason names the bound. Damage is left to the decoder.
    """
    check = _CHECKS.get(kind)
    if check is not None:
        check(data)


def check_work(data: bytes, kind: str, size: tuple[int, int]) -> None:
    """Checks that a decoder does not go through the pixels too often or too slowly.

    Args:
      data: the whole file, which `check_structure` accepted.
      kind: its format, of `SUPPORTED_KINDS`.
      size: width and height in pixels, which are not too many.

    Raises:
      ImageFault: if it does; the reason names the bound.
    """
    check = _WORK_CHECKS.get(kind)
    if check is not None:
        check(data, *size)


def _check_scans(data: bytes, width: int, height: int) -> None:
    """Checks the scans of a JPEG that has several; each may go through the whole picture."""
    pixels = width * height
    scans = components = 0
    for segments, (marker, start, _) in enumerate(_jpeg_segments(data), 1):
        if segments > MAX_JPEG_SEGMENTS:
            raise _too_many(
                QuarantineReason.TOO_MANY_SEGMENTS, f"jpeg: it has more than {MAX_JPEG_SEGMENTS} segments"
            )
        if marker in _FRAMES:
            components = data[start + 9] if marker in _SEQUENTIAL and start + 9 < len(data) else 0
        elif marker == _START_OF_SCAN:
            scans += 1
            if components and start + 4 < len(data) and data[start + 4] == components:
                return  # all components in one scan: nothing after it is decoded
            if scans > MAX_SCANS and scans * pixels > MAX_SCAN_PIXELS:
                raise _too_many(
                    QuarantineReason.TOO_MANY_SCANS,
                    f"jpeg: it has more than {scans - 1} scans of {pixels} pixels; "
                    f"at most {MAX_SCANS} scans, or {MAX_SCAN_PIXELS} pixels in all of them, are decoded",
                )


def check_exif(info: Mapping[Any, Any]) -> None:
    """Checks the tags of the Exif data that Pillow found in an image.

    Args:
      info: Pillow's `Image.info`.

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
        check_tags(exif.removeprefix(b"Exif\0\0"), "exif")


def check_tags(data: bytes, what: str) -> None:
    """Checks the tags of a TIFF's first two directories, and of those that they name.

    Args:
      data: a TIFF file, or Exif data without its prefix.
      what: the format, for messages.

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
        if tags > MAX_TAGS:
            raise _too_many(QuarantineReason.TOO_MANY_TAG_VALUES, f"{what}: it has more than {MAX_TAGS} tags")
        position = begin + count_bytes
        for _ in range(entries):
            if position + entry_bytes > len(data):
                break
            tag, kind = number(position, 2), number(position + 2, 2)
            count = number(position + 4, wide)
            size, weight = _TAG_TYPES.get(kind, (0, 0))
            fits = size * count <= len(data)  # what is not in the file is never read
            if tag in _STRIP_TAGS and count > MAX_STRIPS and fits:
                raise _too_many(
                    QuarantineReason.TOO_MANY_STRIPS,
                    f"{what}: it has {count} strips or tiles, more than {MAX_STRIPS}",
                )
            if fits:
                values += weight * count
                value_bytes += size * count if size * count > wide else 0
            if values > MAX_TAG_VALUES or value_bytes > len(data) + MAX_SHARED_BYTES:
                raise _too_many(
                    QuarantineReason.TOO_MANY_TAG_VALUES,
                    f"{what}: its tags have more than {MAX_TAG_VALUES} values, or more bytes than the file",
                )
            if tag in _DIRECTORY_TAGS:
                directories.append(number(position + 4 + wide, wide))
            position += entry_bytes
        if next_directory:
            next_directory = False
            if following := number(position, wide):
                directories.append(following)


class JpegFrame(NamedTuple):
    """What a JPEG's frame header says.

    Attributes:
      width: pixels.
      height: pixels.
      sampling: horizontal and vertical sampling factor of each component, at least 1.
      several_scans: whether libjpeg has to keep all coefficients until the last scan.
    """

    width: int
    height: int
    sampling: tuple[tuple[int, int], ...]
    several_scans: bool


def jpeg_frame(data: bytes) -> JpegFrame | None:
    """Returns what a JPEG's frame header says; None if there is none before the first scan."""
    frame: JpegFrame | None = None
    for marker, start, _ in _jpeg_segments(data):
        if marker in _FRAMES and len(data) > start + 9:
            height, width = (int.from_bytes(data[at : at + 2], "big") for at in (start + 5, start + 7))
            factors = data[start + 11 : start + 10 + 3 * data[start + 9] : 3]
            sampling = tuple((max(1, both >> 4), max(1, both & 15)) for both in factors) or ((1, 1),)
            frame = JpegFrame(width, height, sampling, marker not in _SEQUENTIAL)
        if marker == _START_OF_SCAN:
            if frame is not None and len(data) > start + 4 and data[start + 4] < len(frame.sampling):
                return frame._replace(several_scans=True)
            return frame
    return frame


def _too_many(reason: QuarantineReason, message: str) -> ImageFault:
    return ImageFault(reason, Stage.DECODE, message)


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yields (marker, start, bytes before it that belong to nothing) of each segment of a JPEG."""
    position, stray_from = _SOI_BYTES, _SOI_BYTES
    while found := _MARKER.search(data, position):
        start = found.start()
        marker = data[start + 1]
        yield marker, start, start - stray_from
        if marker == _END_OF_IMAGE:
            return
        position = start + 2
        if marker not in _ALONE:
            position += max(2, int.from_bytes(data[start + 2 : start + 4], "big"))
        if marker == _START_OF_SCAN:
            after = _AFTER_SCAN.search(data, position)
            if after is None:
                return
            position = after.start()
        stray_from = position


def _check_jpeg(data: bytes) -> None:
    """Checks what stands before the first scan."""
    stray = exif = 0
    for number, (marker, start, gap) in enumerate(_jpeg_segments(data), 1):
        stray += gap
        if number > MAX_JPEG_SEGMENTS or stray > MAX_STRAY_BYTES:
            raise _too_many(
                QuarantineReason.TOO_MANY_SEGMENTS,
                f"jpeg: it has more than {MAX_JPEG_SEGMENTS} segments or {MAX_STRAY_BYTES} bytes between",
            )
        if marker == _EXIF_MARKER and data[start + 4 : start + 10] == b"Exif\0\0":
            exif += 1
            if exif > MAX_EXIF_SEGMENTS:
                raise _too_many(
                    QuarantineReason.TOO_MANY_SEGMENTS,
                    f"jpeg: it has more than {MAX_EXIF_SEGMENTS} segments with Exif data",
                )
            if exif == 1:
                size = int.from_bytes(data[start + 2 : start + 4], "big")
                first = start, start + 2 + size
        if marker == _START_OF_SCAN:
            break
    if exif:
        check_tags(_joined_exif(data) if exif > 1 else data[first[0] + 10 : first[1]], "exif")


def _joined_exif(data: bytes) -> bytes:
    """Returns the Exif data of all segments as Pillow joins it."""
    parts: list[bytes] = []
    for marker, start, _ in _jpeg_segments(data):
        if marker == _START_OF_SCAN:
            break
        if marker == _EXIF_MARKER and data[start + 4 : start + 10] == b"Exif\0\0":
            parts.append(data[start + 10 : start + 2 + int.from_bytes(data[start + 2 : start + 4], "big")])
    return b"".join(parts)


def _check_png(data: bytes) -> None:
    _count_chunks(data, "png", _SIGNATURE_BYTES, _CHUNK_BYTES, 0, "big")


def _check_webp(data: bytes) -> None:
    _count_chunks(data, "webp", _RIFF_HEADER_BYTES, _RIFF_CHUNK_BYTES, 4, "little")


def _count_chunks(data: bytes, kind: str, position: int, overhead: int, size_at: int, order: Any) -> None:
    chunks = 0
    while position + overhead <= len(data):
        chunks += 1
        if chunks > MAX_CHUNKS:
            raise _too_many(QuarantineReason.TOO_MANY_CHUNKS, f"{kind}: it has more than {MAX_CHUNKS} chunks")
        size = int.from_bytes(data[position + size_at : position + size_at + 4], order)
        position += overhead + size + (size & 1 if kind == "webp" else 0)


def _check_gif(data: bytes) -> None:
    """Counts the blocks up to the second frame, which is looked for and not decoded."""
    if len(data) < _SCREEN_BYTES:
        return
    position = _SCREEN_BYTES + _color_table_bytes(data[10])
    comments = extensions = frames = stray = 0
    while frames < 2 and (found := _GIF_BLOCK.search(data, position)):
        stray += found.start() - position
        if stray > MAX_STRAY_BYTES:
            raise _too_many(
                QuarantineReason.TOO_MANY_BLOCKS,
                f"gif: it has more than {MAX_STRAY_BYTES} bytes between its blocks",
            )
        position = found.start()
        kind = data[position]
        if kind == _TRAILER or position + _DESCRIPTOR_BYTES >= len(data):
            return
        if kind == _IMAGE:
            frames += 1
            position += _DESCRIPTOR_BYTES + _color_table_bytes(data[position + 9]) + 1
            position, _ = _after_blocks(data, position, MAX_PIXEL_BLOCKS)
            continue
        is_comment = data[position + 1] == _COMMENT
        left = MAX_COMMENT_BLOCKS - comments if is_comment else MAX_EXTENSION_BLOCKS - extensions
        position, blocks = _after_blocks(data, position + 2, left)
        comments += blocks if is_comment else 0
        extensions += 0 if is_comment else blocks


def _color_table_bytes(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _after_blocks(data: bytes, position: int, most: int) -> tuple[int, int]:
    """Returns the position behind a chain of sub-blocks, and how many they are with their terminator."""
    blocks = 0
    while position < len(data):
        blocks += 1
        if blocks > most:
            raise _too_many(
                QuarantineReason.TOO_MANY_BLOCKS,
                f"gif: it has more than {MAX_COMMENT_BLOCKS} blocks of comments, {MAX_EXTENSION_BLOCKS} of "
                f"other extensions or {MAX_PIXEL_BLOCKS} of pixels",
            )
        size = data[position]
        position += 1 + size
        if size == 0:
            break
    return position, blocks


def _check_bmp(data: bytes, width: int, height: int) -> None:
    """Checks a BMP whose pixels are runs, which Pillow decodes in Python."""
    if int.from_bytes(data[14:18], "little") < _BMP_INFO_BYTES:
        return
    if int.from_bytes(data[30:34], "little") not in (_RLE8, _RLE4):
        return
    if width * height > MAX_RUN_LENGTH_PIXELS or width > MAX_RUN_LENGTH_WIDTH:
        raise _too_many(
            QuarantineReason.TOO_MANY_RUNS,
            f"bmp: {width} x {height} pixels as runs are more than {MAX_RUN_LENGTH_PIXELS}, or wider than "
            f"{MAX_RUN_LENGTH_WIDTH}; convert it to PNG",
        )
    # A command takes two bytes: each pixel may be a run, and each row has an end.
    if len(data) > min(MAX_RUN_LENGTH_PIXELS, 4 * (width + 1) * (height + 1) + MAX_STRAY_BYTES):
        raise _too_many(
            QuarantineReason.TOO_MANY_RUNS, f"bmp: it has more runs than {width} x {height} pixels can need"
        )


def _check_pnm(data: bytes) -> None:
    """Checks the header of a PNM, which Pillow reads byte by byte."""
    head = data[:MAX_PNM_HEADER]
    found = (_PNM_BITS if head[1:2] in b"14" else _PNM_LEVELS).match(head)
    if (found is None or found.end() == len(head)) and len(head) < len(data):
        raise _too_many(
            QuarantineReason.TOO_MANY_COMMENTS, f"ppm: its header is longer than {MAX_PNM_HEADER} bytes"
        )


_CHECKS: dict[str, Callable[[bytes], None]] = {
    "jpeg": _check_jpeg,
    "png": _check_png,
    "webp": _check_webp,
    "gif": _check_gif,
    "tiff": lambda data: check_tags(data, "tiff"),
    "ppm": _check_pnm,
}
_WORK_CHECKS: dict[str, Callable[[bytes, int, int], None]] = {
    "jpeg": _check_scans,
    "bmp": _check_bmp,
}
