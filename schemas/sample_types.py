"""The types that a picture's samples can have, and how their ranges relate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

#: From the narrowest on, as NumPy and TensorFlow call them. Each can hold the values of those before it.
SAMPLE_TYPES = ("uint8", "uint16", "float32")
#: Type -> the value of full brightness. Floats have no such value; integers become floats from 0 to 1.
HIGHEST: Mapping[str, int] = {"uint8": 0xFF, "uint16": 0xFFFF}
#: 255 * 257 is 65535, so this factor turns 8 bits into 16 without a loss.
UINT16_OF_UINT8 = HIGHEST["uint16"] // HIGHEST["uint8"]


def widest(types: Iterable[str]) -> str:
    """Returns the sample type that holds the values of all given types."""
    return max(types, key=SAMPLE_TYPES.index)
