"""Converts the samples of decoded pictures to another type; `tf_images` does the same with TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardwright.schemas.dataset import Dataset, sample_types
from shardwright.schemas.errors import UsageError
from shardwright.schemas.sample_types import HIGHEST, SAMPLE_TYPES, UINT16_OF_UINT8, widest

Pixels = npt.NDArray[Any]

#: The types that NumPy can hold; TensorFlow also has bfloat16.
NUMPY_TYPES = (*SAMPLE_TYPES, "float16")


def stored_types(dataset: Dataset) -> tuple[str, ...]:
    """Returns the sample types of a dataset's pictures, from the narrowest on.

    Raises:
      UsageError: If it has a type that this version does not know.
    """
    unknown = sorted(dataset.dtypes.keys() - set(SAMPLE_TYPES))
    if unknown:
        raise UsageError(
            f"The dataset {dataset.name} has images of the type {unknown[0]}, which this version of "
            "shardwright does not read; use the version that wrote it."
        )
    return sample_types(dataset)


def chosen_type(dtype: str | None, stored: Sequence[str], choices: Sequence[str]) -> str:
    """Returns the sample type to read pictures as.

    Args:
      dtype: The type that the caller wants; None for the narrowest that loses nothing.
      stored: The sample types of a dataset.
      choices: The types that the caller can want.

    Raises:
      UsageError: If there is no such type, or the pictures cannot be converted to it.
    """
    if dtype is None:
        if len(stored) > 1 and "float32" in stored:
            raise UsageError(
                f"The images are {' and '.join(stored)}, which have no common scale; choose dtype='float32' "
                "for integers from 0 to 1 and floats as stored."
            )
        return widest(stored)
    if dtype not in choices:
        raise UsageError(f"dtype {dtype!r}: choose one of {', '.join(choices)}.")
    if dtype in HIGHEST and "float32" in stored:
        raise UsageError(
            f"dtype {dtype!r}: some images are float32, whose values have no fixed range; choose "
            "dtype='float32'."
        )
    return dtype


def converted(pixels: Pixels, dtype: str) -> Pixels:
    """Returns pixels with samples of another type.

    Integers are scaled: 255 becomes 65535, or 1.0 for floats. To uint8, uint16 is rounded. Floats stay as
    they are.

    Args:
      pixels: Height x width x channels; uint8, uint16 or float32.
      dtype: uint8, uint16, float32 or float16; an integer type only for pixels of an integer type.
    """
    stored = pixels.dtype.name
    if stored == dtype:
        return pixels
    if stored not in HIGHEST:
        return pixels.astype(dtype)
    if dtype == "uint16":
        return pixels.astype(np.uint16) * np.uint16(UINT16_OF_UINT8)
    if dtype == "uint8":
        return ((pixels.astype(np.uint32) + UINT16_OF_UINT8 // 2) // UINT16_OF_UINT8).astype(np.uint8)
    if stored == "uint8":  # a product, as in TensorFlow
        product: Pixels = pixels.astype(dtype) * np.dtype(dtype).type(1 / HIGHEST[stored])
        return product
    shares: Pixels = pixels.astype(np.float32) / np.float32(HIGHEST[stored])
    return shares.astype(dtype, copy=False)
