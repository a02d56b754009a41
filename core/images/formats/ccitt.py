"""Decodes CCITT fax data (ITU-T T.4 and T.6) strictly: every row must be there and complete.

The decoders of libtiff and imagecodecs continue after a bad code word and after the end of the data. libtiff
then leaves rows as `malloc` returned them, so this module has to detect incomplete images.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

_WHITE = """
00110101 000111 0111 1000 1011 1100 1110 1111 10011 10100 00111 01000 001000 000011 110100 110101 101010
101011 0100111 0001100 0001000 0010111 0000011 0000100 0101000 0101011 0010011 0100100 0011000 00000010
00000011 00011010 00011011 00010010 00010011 00010100 00010101 00010110 00010111 00101000 00101001 00101010
00101011 00101100 00101101 00000100 00000101 00001010 00001011 01010010 01010011 01010100 01010101 00100100
00100101 01011000 01011001 01011010 01011011 01001010 01001011 00110010 00110011 00110100 11011 10010 010111
0110111 00110110 00110111 01100100 01100101 01101000 01100111 011001100 011001101 011010010 011010011
011010100 011010101 011010110 011010111 011011000 011011001 011011010 011011011 010011000 010011001
010011010 011000 010011011
"""
_BLACK = """
0000110111 010 11 10 011 0011 0010 00011 000101 000100 0000100 0000101 0000111 00000100 00000111 000011000
0000010111 0000011000 0000001000 00001100111 00001101000 00001101100 00000110111 00000101000 00000010111
00000011000 000011001010 000011001011 000011001100 000011001101 000001101000 000001101001 000001101010
000001101011 000011010010 000011010011 000011010100 000011010101 000011010110 000011010111 000001101100
000001101101 000011011010 000011011011 000001010100 000001010101 000001010110 000001010111 000001100100
000001100101 000001010010 000001010011 000000100100 000000110111 000000111000 000000100111 000000101000
000001011000 000001011001 000000101011 000000101100 000001011010 000001100110 000001100111 0000001111
000011001000 000011001001 000001011011 000000110011 000000110100 000000110101 0000001101100 0000001101101
0000001001010 0000001001011 0000001001100 0000001001101 0000001110010 0000001110011 0000001110100
0000001110101 0000001110110 0000001110111 0000001010010 0000001010011 0000001010100 0000001010101
0000001011010 0000001011011 0000001100100 0000001100101
"""
#: Runs of 1,792 pixels and more, for both colors (T.4, table 3b).
_LONG = """
00000001000 00000001100 00000001101 000000010010 000000010011 000000010100 000000010101 000000010110
000000010111 000000011100 000000011101 000000011110 000000011111
"""
_PASS, _HORIZONTAL = 100, 101
#: T.6, table 1: the vertical modes stand for the distance of a1 from b1.
_MODES = {
    "1": 0, "011": 1, "000011": 2, "0000011": 3, "010": -1, "000010": -2, "0000010": -3,
    "0001": _PASS, "001": _HORIZONTAL,
}  # fmt: skip
_RUN_BITS, _MODE_BITS = 13, 7
_END_OF_LINE_BITS = 12
#: T4Options (TIFF 6.0, section 11), bit 0: rows are coded in two dimensions.
_TWO_DIMENSIONS = 1

_Table = Sequence[tuple[int, int] | None]


class BadFaxData(ValueError):
    """The data does not contain a complete image."""


@cache
def _run_table(black: bool) -> _Table:
    words = (_BLACK if black else _WHITE).split() + _LONG.split()
    runs = [*range(64), *range(64, 2561, 64)]
    return _lookup(dict(zip(words, runs, strict=True)), _RUN_BITS)


def _lookup(words: dict[str, int], bits: int) -> _Table:
    """Returns a table: value of the next `bits` bits -> meaning and length of the code word."""
    table: list[tuple[int, int] | None] = [None] * (1 << bits)
    for word, meaning in words.items():
        first = int(word, 2) << bits - len(word)
        table[first : first + (1 << bits - len(word))] = [(meaning, len(word))] * (1 << bits - len(word))
    return table


_MODE_TABLE = _lookup(_MODES, _MODE_BITS)


class _Bits:
    """Reads code words from the data."""

    def __init__(self, data: bytes) -> None:
        padded = np.frombuffer(data + bytes(4), np.uint8).astype(np.uint32)
        # The 32 bits from each byte on; a code word may end in padding.
        windows = padded[:-3] << 24 | padded[1:-2] << 16 | padded[2:-1] << 8 | padded[3:]
        self._windows: list[int] = windows.tolist()
        self._end = 8 * len(data)
        self.position = 0

    def peek(self, count: int) -> int:
        """Returns the next `count` bits, at most 24; zeros after the end."""
        position = min(self.position, self._end)
        return self._windows[position >> 3] >> 32 - (position & 7) - count & (1 << count) - 1

    def word(self, table: _Table, bits: int) -> int:
        """Reads one code word and returns its meaning."""
        position = self.position
        code = table[self._windows[position >> 3] >> 32 - (position & 7) - bits & (1 << bits) - 1]
        if code is None or position + code[1] > self._end:
            problem = "the data ends" if position + bits > self._end else "bad code word"
            raise BadFaxData(f"{problem} at bit {position}")
        self.position = position + code[1]
        return code[0]

    def run(self, black: bool) -> int:
        """Reads the length of a run: make-up codes and a terminating code."""
        table = _run_table(black)
        total = length = self.word(table, _RUN_BITS)
        while length >= 64:
            length = self.word(table, _RUN_BITS)
            total += length
        return total

    def skip_end_of_line(self) -> bool:
        """Skips fill bits and one EOL; returns whether there was an EOL."""
        position = self.position
        while self.peek(_END_OF_LINE_BITS) == 0 and self.position < self._end:
            self.position += 1
        if self.peek(_END_OF_LINE_BITS) == 1 and self.position + _END_OF_LINE_BITS <= self._end:
            self.position += _END_OF_LINE_BITS
            return True
        self.position = position
        return False


def _row_1d(bits: _Bits, width: int) -> list[int]:
    """Returns the changing elements of a row coded in one dimension; the first begins black."""
    changes, position, black = [], 0, False
    while position < width:
        position += bits.run(black)
        changes.append(position)
        black = not black
    if position > width:
        raise BadFaxData(f"a row has {position} pixels, not {width}, at bit {bits.position}")
    return changes


def _row_2d(bits: _Bits, width: int, above: Sequence[int]) -> list[int]:
    """Returns the changing elements of a row coded by its differences from the row above (T.4, 4.2.1)."""
    changes: list[int] = []
    position, index = -1, 0
    above = [*above, width, width, width]
    while position < width:
        # b1: the first change of the row above right of a0, to the color opposite to a0's.
        index = max(index - 1, 0)
        while above[index] < width and (above[index] <= position or index % 2 != len(changes) % 2):
            index += 1
        b1, b2 = above[index], above[index + 1]
        mode = bits.word(_MODE_TABLE, _MODE_BITS)
        if mode == _PASS:
            position = b2
            continue
        if mode == _HORIZONTAL:
            black = bool(len(changes) % 2)
            first = max(position, 0) + bits.run(black)
            position = first + bits.run(not black)
            changes += (first, position)
        else:
            previous = max(position, 0)
            position = b1 + mode
            if position < previous or position < 0:
                raise BadFaxData(f"a row goes back at bit {bits.position}")
            changes.append(position)
        if position > width:
            raise BadFaxData(f"a row has {position} pixels, not {width}, at bit {bits.position}")
    return changes


def decode_fax(data: bytes, rows: int, width: int, compression: str, options: int = 0) -> bytes:
    """Decodes a strip.

    Args:
      data: The strip, most significant bit first.
      rows: Number of rows in the strip.
      width: Number of pixels in a row.
      compression: Pillow's name: `group4` (T.6), `group3` (T.4), or `tiff_ccitt` (T.4 in one dimension, with
        rows that begin at whole bytes).
      options: The T4Options tag of the TIFF.

    Returns:
      A bit per pixel, 0 for white, each row padded to whole bytes.

    Raises:
      BadFaxData: If a code word is bad or rows are missing.
    """
    bits = _Bits(data)
    above: list[int] = []
    changes = np.zeros((rows, width + 1), np.uint8)
    for row in changes:
        above = _row(bits, width, above, compression, options)
        np.add.at(row, above, 1)
    # Every row begins with white; an odd number of changes up to a pixel makes it black.
    colors = np.cumsum(changes, axis=1, dtype=np.uint8)[:, :width] & 1
    return np.packbits(colors, axis=1).tobytes()


def _row(bits: _Bits, width: int, above: Sequence[int], compression: str, options: int) -> list[int]:
    """Returns the changing elements of the next row."""
    if compression == "group4":
        return _row_2d(bits, width, above)
    if compression == "tiff_ccitt":
        bits.position = -(-bits.position // 8) * 8
        return _row_1d(bits, width)
    ended = bits.skip_end_of_line()
    if not options & _TWO_DIMENSIONS:
        return _row_1d(bits, width)
    if not ended:
        raise BadFaxData(f"a row begins without an end of line at bit {bits.position}")
    is_whole = bits.peek(1)
    bits.position += 1
    return _row_1d(bits, width) if is_whole else _row_2d(bits, width, above)
