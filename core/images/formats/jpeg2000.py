"""Checks that a JPEG 2000 is complete and moderate before OpenJPEG sees it, and finds its color profile.

Pillow decodes it, except for colors that do not have 8 bits per channel: it turns 16-bit white black, and
4-bit white gray.
OpenJPEG fills in tiles that are missing, and its memory depends on the numbers of tiles, code blocks and
packets, which a header of a few bytes can make absurd. Pillow does not read the ICC profile of a JP2.

Sources: ISO/IEC 15444-1, annexes A (codestream), B (order of the data) and I (JP2).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from PIL import Image

from shardwright.core.images.color import scaled_to_8_bits
from shardwright.core.images.deep_pixels import UINT16, DeepHeader
from shardwright.core.images.faults import corrupt, truncated, unsupported
from shardwright.core.images.formats.containers import Box, boxes, number
from shardwright.core.images.formats.opened_image import OpenedImage
from shardwright.schemas.bounds import Bounds

_KIND = "jpeg2000"
_CODESTREAM = b"\xff\x4f\xff\x51"
_COD, _COC, _SOT, _SOD, _EOC = 0xFF52, 0xFF53, 0xFF90, 0xFF93, 0xFFD9
_SIZ_BYTES = 38
_SOT_BYTES = 12
#: Pillow's modes have at most this many components.
_MAX_COMPONENTS = 4
_RESTRICTED_ICC, _ANY_ICC = 2, 3
_UNKNOWN_COLOR = -1
#: Color spaces (ISO/IEC 15444-2, M.11.7.3.1) with one channel of brightness and two of color.
_LUMA_AND_CHROMA = frozenset((1, 3, 4, 18, 24))
_SHALLOW = 8
#: Modes that Pillow decodes well at any depth.
_DECODED_BY_PILLOW = frozenset(("I;16", "P", "PA"))
_MAX_LEVELS = 32
_SIGNED = 0x80


class Size(NamedTuple):
    """The grid of a codestream (segment SIZ).

    Attributes:
      picture: Width and height of the picture in pixels.
      tile: Width and height of a tile.
      tiles: Number of tiles in a row and in a column.
      components: Number of components.
      bits: Most bits per sample.
    """

    picture: tuple[int, int]
    tile: tuple[int, int]
    tiles: tuple[int, int]
    components: int
    bits: int


class Jpeg2000Image(OpenedImage):
    """A JPEG 2000."""

    kind = _KIND
    _turned_by_decoder = True
    _plugin = "JPEG2000"
    #: A sample of 4 bytes for each channel, a copy, and Pillow's picture.
    _bytes_per_pixel = 24

    def _read_header(self, max_pixels: int) -> Image.Image:
        data, bounds = self.data, self.bounds
        header, codestream = _find_parts(data, bounds)
        size = _read_size(data, codestream.begin)
        profile = b"" if header is None else _check_image_header(data, header, size, bounds)
        if math.prod(size.picture) <= max_pixels:  # a larger picture is refused
            bounds.check("tiles", math.prod(size.tiles), f"{_KIND}: it has {math.prod(size.tiles)} tiles")
            first_tile = _check_segments(data, codestream.begin + 2, _SOT, codestream.end, size, bounds)
            _check_tile_parts(data, first_tile, codestream.end, size, bounds)
        image = super()._read_header(max_pixels)
        self.depth = size.bits
        if profile:
            image.info["icc_profile"] = profile
        return image

    def deep_header(self) -> DeepHeader | None:
        """Returns the samples of a picture with more than 8 bits."""
        if self.depth <= _SHALLOW:
            return None
        bands = self.image.getbands()
        alpha = "straight" if bands[-1] == "A" else ""
        return DeepHeader(UINT16, len(bands), self.image.size, (1 << self.depth) - 1, alpha)

    def _load(self) -> Image.Image:
        """Scales to 8 bits what Pillow does not scale."""
        if self.depth == _SHALLOW or self.image.mode in _DECODED_BY_PILLOW:
            return super()._load()
        scaled = scaled_to_8_bits(self._deep_samples(), (1 << self.depth) - 1)
        decoded = Image.frombytes(self.image.mode, self.image.size, scaled.tobytes())
        decoded.info = self.image.info
        return decoded

    def _deep_samples(self) -> np.ndarray:
        """Decodes integers of any number of bits with imagecodecs.

        Raises:
          ImageFault: If its channels differ in type or size.
          RuntimeError: If it cannot be decoded.
        """
        import imagecodecs

        pixels: np.ndarray = imagecodecs.jpeg2k_decode(self.data, numthreads=1)
        bands = len(self.image.getbands())
        shape = (self.image.height, self.image.width, bands)[: 2 if bands == 1 else 3]
        if pixels.shape != shape or pixels.dtype.kind != "u":
            raise unsupported("jpeg2000: its channels have different kinds of samples; convert it to PNG")
        return pixels


def _find_parts(data: bytes, bounds: Bounds) -> tuple[Box | None, Box]:
    """Returns the header box of a JP2, if it is one, and the codestream."""
    if data.startswith(_CODESTREAM):
        return None, Box(b"jp2c", 0, len(data))
    header = None
    for box in boxes(data, 0, len(data), _KIND, bounds):
        if box.type == b"jp2h" and header is None:
            header = box
        elif box.type == b"jp2c":
            if header is None:
                raise corrupt("jpeg2000: it has no header")
            if box.end > len(data):
                raise truncated(f"jpeg2000: it ends after {len(data)} of {box.end} bytes")
            return header, box
        elif box.end > len(data):
            break
    raise truncated("jpeg2000: it ends before its pixels")


def _read_size(data: bytes, begin: int) -> Size:
    if data[begin : begin + 4] != _CODESTREAM:
        raise corrupt("jpeg2000: its codestream does not begin with its size")
    at = begin + 4
    x1, y1, x0, y0, tile_width, tile_height, tile_x0, tile_y0 = (
        number(data, at + 4 + 4 * i, 4) for i in range(8)
    )
    count = number(data, at + 36, 2)
    if at + _SIZ_BYTES + 3 * count > len(data):
        raise truncated("jpeg2000: it ends in its header")
    if not 0 < count <= _MAX_COMPONENTS:
        raise unsupported(f"jpeg2000: it has {count} components, and at most {_MAX_COMPONENTS} are read")
    triples = data[at + _SIZ_BYTES : at + _SIZ_BYTES + 3 * count]  # bits, and spacings on the grid
    sound = x0 < x1 and y0 < y1 and tile_width and tile_height
    sound = sound and tile_x0 <= x0 < tile_x0 + tile_width and tile_y0 <= y0 < tile_y0 + tile_height
    if not sound or not all(triples[1::3]) or not all(triples[2::3]):
        raise corrupt("jpeg2000: the size in its header is not possible")
    return Size(
        picture=(x1 - x0, y1 - y0),
        tile=(tile_width, tile_height),
        tiles=(-(-(x1 - tile_x0) // tile_width), -(-(y1 - tile_y0) // tile_height)),
        components=count,
        bits=max(stated & ~_SIGNED for stated in triples[::3]) + 1,
    )


def _check_image_header(data: bytes, header: Box, size: Size, bounds: Bounds) -> bytes:
    """Compares the header of a JP2, which Pillow reads, with the codestream; returns the ICC profile."""
    profile, color, stated = b"", None, None
    for box in boxes(data, header.begin, min(header.end, len(data)), _KIND, bounds):
        if box.type == b"ihdr":
            height, width, count = (number(data, box.begin + at, n) for at, n in ((0, 4), (4, 4), (8, 2)))
            stated = width, height, count
        elif box.type == b"colr" and color is None:  # readers ignore all but the first
            color = number(data, box.begin + 3, 4)
            if data[box.begin] in (_RESTRICTED_ICC, _ANY_ICC):
                color, profile = _UNKNOWN_COLOR, data[box.begin + 3 : box.end]
    if stated != (*size.picture, size.components):
        raise corrupt(f"jpeg2000: its header says {stated or 'nothing'}, its codestream {size.picture}")
    if profile[16:20] == b"CMYK":
        raise unsupported("jpeg2000: CMYK with an ICC profile is not read; convert it to PNG")
    if size.bits > _SHALLOW and color in _LUMA_AND_CHROMA:
        raise unsupported("jpeg2000: YCC with more than 8 bits is not read; convert it to PNG")
    return profile


def _check_segments(data: bytes, position: int, last: int, end: int, size: Size, bounds: Bounds) -> int:
    """Counts code blocks and packets from the segments of a header; returns the position after them.

    Args:
      data: The whole file.
      position: Position of the first segment.
      last: Marker that ends the header: that of a tile-part, or of its data.
      end: Position after the codestream.
      size: Grid of the codestream.
      bounds: Limits on the parts of the file.
    """
    tiles = math.prod(size.tiles) if last == _SOT else 1
    coded = last != _SOT
    for count in range(1, bounds.segments + 2):
        bounds.check("segments", count, f"{_KIND}: it has at least {count} segments")
        if position + 4 > end:
            raise truncated("jpeg2000: it ends in a header")
        marker, length = number(data, position, 2), number(data, position + 2, 2)
        if marker == last:
            break
        if marker < 0xFF00 or length < 2:
            raise corrupt("jpeg2000: a segment of a header is damaged")
        if marker == _COD:
            layers = tiles * number(data, position + 6, 2)
            _check_blocks(data, position + 9, bool(data[position + 4] & 1), layers, tiles, size, bounds)
            coded = True
        elif marker == _COC:  # the component takes one byte: there are at most four
            _check_blocks(data, position + 6, bool(data[position + 5] & 1), tiles, tiles, size, bounds)
        position += 2 + length
    if not coded:
        raise corrupt("jpeg2000: its header does not say how it is coded")
    return position


def _check_blocks(
    data: bytes, at: int, has_precincts: bool, layers: int, tiles: int, size: Size, bounds: Bounds
) -> None:
    """Counts the code blocks and packets of one tile or of all.

    Args:
      data: The whole file.
      at: Position of the number of decompositions, followed by width and height of a code block.
      has_precincts: Whether the sizes of the precincts follow.
      layers: Number of quality layers of all these tiles.
      tiles: Number of tiles that are coded in this way.
      size: Grid of the codestream.
      bounds: Limits on the parts of the file.
    """
    levels = data[at]
    if levels > _MAX_LEVELS or at + 5 + has_precincts * (levels + 1) > len(data):
        raise corrupt(f"jpeg2000: its header says {levels} decompositions")
    block_width, block_height = ((data[at + i] & 15) + 2 for i in (1, 2))
    width, height = map(min, size.tile, size.picture)
    blocks = packets = 0
    for level in range(levels + 1):  # of resolutions; the first is the smallest
        sizes = data[at + 5 + level] if has_precincts else 0xFF
        precinct_width, precinct_height = sizes & 15, sizes >> 4
        shrink = levels - level
        columns, rows = (-(-side >> shrink) for side in (width, height))
        # An edge may cut one more block or precinct on each side.
        precincts = ((columns >> precinct_width) + 2) * ((rows >> precinct_height) + 2)
        lower = 1 if level else 0  # a precinct covers half as many samples of a band
        side = [
            max(0, min(block, precinct - lower))
            for block, precinct in ((block_width, precinct_width), (block_height, precinct_height))
        ]
        bands = 3 if level else 1
        inside = ((columns >> lower >> side[0]) + 2) * ((rows >> lower >> side[1]) + 2)
        blocks += bands * inside
        packets += precincts
    blocks *= tiles * size.components
    packets *= layers * size.components
    bounds.check("code_blocks", blocks, f"{_KIND}: it has up to {blocks} code blocks")
    bounds.check("packets", packets, f"{_KIND}: it has up to {packets} packets")


def _check_tile_parts(data: bytes, position: int, end: int, size: Size, bounds: Bounds) -> None:
    """Checks that every tile is there and complete (ISO/IEC 15444-1, A.4.2)."""
    tiles = math.prod(size.tiles)
    seen = bytearray(tiles)
    while number(data, position, 2) == _SOT:
        if position + _SOT_BYTES > end:
            break
        tile, length = number(data, position + 4, 2), number(data, position + 6, 4)
        if tile >= tiles or 0 < length < _SOT_BYTES + 2:
            raise corrupt(f"jpeg2000: its tile {tile} has {length} bytes")
        _check_segments(data, position + _SOT_BYTES, _SOD, end, size, bounds)
        seen[tile] = 1
        # Without a length it is the last one, and ends with the codestream.
        position = position + length if length else end - 2
    if position + 2 > end:
        raise truncated(f"jpeg2000: it ends after {end} bytes, inside of a tile")
    if number(data, position, 2) != _EOC:
        raise corrupt("jpeg2000: a tile does not end where it says")
    missing = tiles - sum(seen)
    if missing:
        raise truncated(f"jpeg2000: {missing} of {tiles} tiles are missing")
