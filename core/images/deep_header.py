"""The type and the number of the samples in an image file that has more than gray or RGB of 8 bits."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

UINT8, UINT16, FLOAT32 = "uint8", "uint16", "float32"


@dataclass(frozen=True)
class DeepHeader:
    """The samples of a picture, known before it is decoded.

    Attributes:
      dtype: Type in which the samples are kept: uint8, uint16 or float32.
      channels: Number of channels in the file, with alpha.
      size: Width and height of the picture in pixels, upright if it is a TIFF.
      highest: Value of white: 255, 65535, less for samples of 9 to 15 bits, and 1 for floating-point numbers.
      alpha: `straight` or `premultiplied` if the last channel is alpha, else empty.
      inverted: Whether the lowest value is white.
      cmyk: Whether the color channels are inks.
      profile: ICC profile, unless Pillow's image has it; empty if there is none.
      problem: Why the color channels have no meaning as gray or RGB; empty if they have one.
    """

    dtype: str
    channels: int
    size: tuple[int, int]
    highest: int = 65535
    alpha: str = ""
    inverted: bool = False
    cmyk: bool = False
    profile: bytes = b""
    problem: str = ""

    @property
    def sample_bytes(self) -> int:
        """Bytes of a sample, as it is decoded."""
        return {UINT8: 1, UINT16: 2}.get(self.dtype, 4)

    @property
    def has_whole_range(self) -> bool:
        """Whether samples have 16 bits, and the file does not state that they use fewer."""
        return self.dtype == UINT16 and self.highest == 65535

    def with_white(self, white: int) -> Self:
        """Returns the header with a stated value of white for 16-bit samples; 0 for none."""
        if not white or not self.has_whole_range:
            return self
        return replace(self, highest=min(white, self.highest))

    @property
    def decoded_bytes(self) -> int:
        """Largest number of bytes that decoding takes: all rows twice."""
        return 2 * math.prod(self.size) * self.channels * self.sample_bytes
