"""JPEG (ITU-T T.81): decoded by libjpeg-turbo, with the damage reported that Pillow hides.

libjpeg repairs what it can and counts warnings. Pillow, TensorFlow and OpenCV drop them, so half a gray
picture passes for a photograph. simplejpeg can turn the first warning into an error; its pixels are the
same as Pillow's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import simplejpeg
from PIL import Image, JpegImagePlugin

from shardwright.core.images.faults import corrupt, truncated
from shardwright.core.images.formats.containers import check_tags
from shardwright.core.images.formats.opened_image import LoadedImage, MetadataBlock, OpenedImage
from shardwright.schemas.bounds import NO_BOUNDS, Bounds
from shardwright.schemas.errors import ImageFault, words_of

_START_OF_SCAN, _END_OF_IMAGE, _EXIF_MARKER, _COMMENT = 0xDA, 0xD9, 0xE1, 0xFE
_SOI_BYTES = 2
#: Markers without a segment: TEM, RST0 to RST7, SOI and the end of the image.
_ALONE = frozenset((0x01, *range(0xD0, 0xDA)))
_MARKER = re.compile(rb"\xff[\x01-\xfe]")
#: The end of a scan: a marker that is neither a stuffed byte, a fill byte nor a restart (B.1.1.2).
_AFTER_SCAN = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")
#: Markers of frames (table B.1): SOF0 to SOF15 without DHT, JPG and DAC.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
#: Markers of sequential frames. If one scan has all components, it is the only one.
_SEQUENTIAL = frozenset((0xC0, 0xC1, 0xC3, 0xC9, 0xCB))
#: Pixels in all scans, for each scan that is allowed. A hundred scans take half a second to decode.
_PIXELS_OF_SCANS, _SCANS = 1 << 32, 100
_COEFFICIENT_BYTES = 2
#: For sides below this number of pixels, two scales of libjpeg can give pictures of the same size.
_SMALLEST_SCALED_SIDE = 8

_EXIF = b"Exif\0\0"
#: Names of metadata that may name persons or places, and its kind.
_METADATA = (
    (_EXIF, "exif"),
    (b"http://ns.adobe.com/xap/1.0/\0", "xmp"),
    (b"http://ns.adobe.com/xmp/extension/\0", "xmp"),
    (b"Photoshop 3.0\0", "iptc"),
)
#: Most blocks of metadata with the same name, and the largest content of a segment.
_MAX_BLOCKS, _SEGMENT_BYTES = 64, 65_533
#: The application segments that a decoder needs: JFIF, a color profile, Adobe's color transform.
_DECODING = {0xE0: b"JFIF\0", 0xE2: b"ICC_PROFILE\0", 0xEE: b"Adobe"}

#: Pillow's mode -> simplejpeg's color space.
_SPACES = {"RGB": "RGBX", "L": "GRAY", "CMYK": "CMYK"}
#: A file with this many runs of stray bytes is decoded with them; libjpeg's warning then decides.
_MAX_CLEANINGS = 8
#: libjpeg's warnings (jerror.h of libjpeg-turbo 3.1) for data that ends before the picture is complete.
_TRUNCATED = ("premature end",)
#: libjpeg's warnings about metadata, which do not concern the pixels.
_HARMLESS = ("unknown jfif revision", "unknown adobe color transform", "bad icc marker")
_EXTRANEOUS = re.compile(r"(\d+) extraneous bytes before marker 0x([0-9a-f]{2})", re.IGNORECASE)
#: Errors of TurboJPEG for files that libjpeg decodes, such as unusual chroma subsampling.
_REFUSED_BY_TURBOJPEG = ("could not determine subsampling", "could not determine colorspace")


def segments(
    data: bytes, bounds: Bounds = NO_BOUNDS, last: int = _END_OF_IMAGE
) -> list[tuple[int, int, int]]:
    """Returns the segments after the first marker, also of a damaged file.

    Bytes between two segments are stray, unless they are the data of a scan.

    Args:
      data: The whole file. A segment may state an end behind the end of the file.
      bounds: Limit on segments.
      last: The second byte of the marker of the last segment that is needed.

    Returns:
      For each segment the second byte of its marker, the position of the marker, and the position after the
      segment. The data of a scan is not part of its segment.

    Raises:
      ImageFault: If there are too many.
    """
    listed: list[tuple[int, int, int]] = []
    marker, position = 0, _SOI_BYTES
    while marker != last and marker != _END_OF_IMAGE and (match := _MARKER.search(data, position)):
        start = match.start()
        marker = data[start + 1]
        position = start + 2
        if marker not in _ALONE:
            position += max(2, int.from_bytes(data[position : position + 2], "big"))
        listed.append((marker, start, position))
        if len(listed) > bounds.segments:
            raise bounds.fault("segments", f"jpeg: it has at least {len(listed)} segments")
        if marker == _START_OF_SCAN and marker != last:
            after = _AFTER_SCAN.search(data, position)
            position = len(data) if after is None else after.start()
    return listed


def check_header(data: bytes, bounds: Bounds = NO_BOUNDS) -> bool:
    """Checks the segments before the first scan.

    Args:
      data: The whole file.
      bounds: Limits on segments and tags.

    Returns:
      Whether there may be several scans, so that libjpeg keeps all coefficients until the last one.

    Raises:
      ImageFault: If there are too many.
    """
    exif: list[bytes] = []  # as Pillow joins it
    stray, expected = 0, _SOI_BYTES
    several_scans, components = True, 0
    for marker, start, end in segments(data, bounds, _START_OF_SCAN):
        stray += start - expected
        expected = end
        if stray > bounds.stray_bytes:
            raise bounds.fault("stray_bytes", f"jpeg: it has at least {stray} bytes between its segments")
        if marker == _EXIF_MARKER and data.startswith(_EXIF, start + 4):
            exif.append(data[start + 10 : end])
            bounds.check(
                "exif_segments", len(exif), f"jpeg: it has at least {len(exif)} segments with Exif data"
            )
        elif marker in _FRAMES and len(data) > start + 9:
            several_scans, components = marker not in _SEQUENTIAL, data[start + 9]
        elif marker == _START_OF_SCAN and len(data) > start + 4:
            several_scans = several_scans or data[start + 4] < components
    if exif:
        check_tags(b"".join(exif), "exif", bounds)
    return several_scans


class JpegImage(OpenedImage):
    """A JPEG.

    Attributes:
      factor: Factor by which the decoder reduces each side.
    """

    kind = "jpeg"
    storable = True
    factor = 1
    _plugin = "JPEG"
    image: JpegImagePlugin.JpegImageFile
    _has_frames = False  # a file of several pictures holds one photograph and its previews

    def _read_header(self, max_pixels: int) -> Image.Image:
        self._several_scans = check_header(self.data, self.bounds)
        return super()._read_header(max_pixels)

    def _check_content(self) -> None:
        """Checks the scans if there are several; each may cover the whole picture."""
        if not self._several_scans:
            return
        # The coefficients are kept at full size even for a smaller result.
        factors = [(max(1, across), max(1, down)) for _, across, down, _ in self.image.layer] or [(1, 1)]
        max_across, max_down = max(h for h, _ in factors), max(v for _, v in factors)
        share = sum(Fraction(h * v, max_across * max_down) for h, v in factors)
        pixels = self.image.width * self.image.height
        self._extra_bytes = int(pixels * share * _COEFFICIENT_BYTES)
        scans = 0
        for marker, _, _ in segments(self.data, self.bounds):
            scans += marker == _START_OF_SCAN
            if scans * pixels > self.bounds.scans * _PIXELS_OF_SCANS // _SCANS:
                self.bounds.check("scans", scans, f"jpeg: it has at least {scans} scans of {pixels} pixels")

    def is_lossy(self) -> bool:
        """Returns whether the compression changes pixels."""
        return True

    def reduce(self, factor: int) -> int:
        """Requests DCT-scaled decoding."""
        width, height = self.image.size
        if factor == 1 or min(width, height) < factor or max(width, height) < _SMALLEST_SCALED_SIDE:
            return 1
        reduced = (math.ceil(width / factor), math.ceil(height / factor))
        if self.image.draft(None, (width // factor, height // factor)) is None:
            return 1
        self.factor = factor if self.image.size == reduced else 1
        return self.factor

    def decode(self, keep_damaged: bool) -> LoadedImage:
        """Decodes with TurboJPEG, and again without the bytes that cause a harmless warning.

        Pillow decodes what TurboJPEG does not support.
        """
        note, data = "", self.data
        for _ in range(_MAX_CLEANINGS):
            try:
                return LoadedImage(self._pixels(data), note)
            except ValueError as error:
                warning = words_of_libjpeg(error)
            if any(words in warning.lower() for words in _REFUSED_BY_TURBOJPEG):
                self.image.load()
                return LoadedImage(self.image)
            cleaned = _without_harmless(data, warning)
            if cleaned is None:
                break
            note, data = note or warning, cleaned
        if not keep_damaged:
            raise _fault(warning)
        try:
            return LoadedImage(self._pixels(self.data, strict=False), note, warning)
        except ValueError as error:
            raise _fault(words_of_libjpeg(error)) from error

    def _pixels(self, data: bytes, strict: bool = True) -> Image.Image:
        """Decodes a JPEG with the header of this one; raises a ValueError with libjpeg's words."""
        mode, (width, height) = self.image.mode, self.image.size
        pixels = simplejpeg.decode_jpeg(
            data, _SPACES[mode], min_height=height, min_width=width, min_factor=self.factor, strict=strict
        )
        if pixels.shape[:2] != (height, width):
            raise ValueError(
                f"it decodes to {pixels.shape[1]} x {pixels.shape[0]} pixels, not {width} x {height}"
            )
        if mode == "RGB":
            decoded = wrap_rgb(pixels)
        else:
            # Adobe's programs store inks inverted.
            is_inverted = mode == "CMYK" and "adobe_transform" in self.image.info
            raw_mode = "CMYK;I" if is_inverted else mode
            decoded = Image.frombytes(mode, (width, height), pixels, "raw", raw_mode)
        decoded.info = self.image.info
        return decoded

    @staticmethod
    def without_metadata(data: bytes) -> bytes:
        """Drops descriptive segments and all bytes after the picture (B.1.1).

        The bytes after the picture are not part of it: previews with their own metadata, makers' trailers.
        """
        out: list[bytes] = []
        begin, previous_end, in_scans = 0, _SOI_BYTES, False
        for marker, start, end in segments(data):
            if 0xE0 <= marker <= 0xEF:
                needed = data.startswith(_DECODING.get(marker, b"\0none"), start + 4, end)
            else:
                needed = marker not in (_COMMENT, _END_OF_IMAGE)
            if not needed or (start > previous_end and not in_scans):
                # Fill bytes before a marker go with it. So do stray bytes before the first scan: if the file
                # began with them, readers would not know it as a JPEG.
                scan = data[previous_end:start].rstrip(b"\xff") if in_scans else b""
                out += [data[begin:previous_end], scan]
                if marker == _END_OF_IMAGE:
                    return b"".join((*out, b"\xff\xd9"))
                begin = start if needed else end
            in_scans = in_scans or marker == _START_OF_SCAN
            previous_end = end
        return b"".join((*out, data[begin:]))

    @staticmethod
    def metadata(data: bytes) -> Iterator[MetadataBlock]:
        """Yields metadata of this image and of those behind it: previews, pictures of the same moment."""
        for name, kind in _METADATA:
            at = data.find(name)
            for _ in range(_MAX_BLOCKS):
                if at < 0:
                    break
                yield MetadataBlock(kind, data[at + len(name) : at + _SEGMENT_BYTES])
                at = data.find(name, at + len(name))


def wrap_rgb(pixels: np.ndarray) -> Image.Image:
    """Wraps an array of four bytes per pixel as a picture in mode RGB; copies it with Pillow 13 and later.

    Args:
      pixels: uint8 [height, width, 4], contiguous; the fourth byte is ignored.
    """
    height, width = pixels.shape[:2]
    image = Image.frombuffer("RGBX", (width, height), pixels, "raw", "RGBX", 0, 1)
    if not hasattr(image.im, "setmode"):  # Pillow 13 removed it
        return Image.frombytes("RGB", (width, height), pixels, "raw", "RGBX")
    image.im.setmode("RGB")
    return image._new(image.im)


def words_of_libjpeg(error: ValueError) -> str:
    """Returns libjpeg's message: `tjDecompress2(): Premature end of JPEG file` without the function."""
    return words_of(error).partition("(): ")[2] or words_of(error)


def _fault(warning: str) -> ImageFault:
    is_cut = any(words in warning.lower() for words in _TRUNCATED)
    return (truncated if is_cut else corrupt)(f"jpeg: {warning}")


def _without_harmless(data: bytes, warning: str) -> bytes | None:
    """Removes from a file the bytes that cause a harmless warning; returns None if the warning means damage.

    libjpeg reports only its first warning. Decoding the file again without these bytes finds damage after
    them.
    """
    extraneous = _EXTRANEOUS.search(warning)
    if extraneous:
        return _without_stray_bytes(data, int(extraneous[1]), int(extraneous[2], 16))
    if not any(words in warning.lower() for words in _HARMLESS):
        return None
    # The segments with a profile or a program's own data (APP0 to APP15, except Adobe's).
    kept, position = [], 0
    for marker, start, end in segments(data, last=_START_OF_SCAN):
        if 0xE0 <= marker <= 0xEF and marker != 0xEE:
            kept.append(data[position:start])
            position = end
    return b"".join((*kept, data[position:])) if kept else None


def _without_stray_bytes(data: bytes, count: int, marker: int) -> bytes | None:
    """Drops `count` stray bytes before a marker; returns None if they may be a scan's data.

    Bytes between two segments are always stray. After a scan, bytes that are all 0x00 or all 0xFF are
    padding; otherwise the decoder lost its place and did not read a part of the picture.
    """
    previous_end, previous = 2, 0
    for current, start, end in segments(data):
        if current == marker:
            stray = data[start - count : start] if start - count >= previous_end else b""
            if previous == _START_OF_SCAN:
                if stray and not stray.strip(b"\0" if stray[0] == 0 else b"\xff"):
                    return data[: start - count] + data[start:]
            elif start > previous_end:
                return data[:previous_end] + data[start:]
        previous_end, previous = end, current
    return None
