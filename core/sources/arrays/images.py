"""Checks that an array holds images: its shape, its type and its first values."""

from __future__ import annotations

import math

import numpy as np

from shardwright.core.images.pixel_order import PICTURES, are_planar
from shardwright.core.sources.arrays.files import ArrayFile, ArrayHeader, Rows
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.units import parse_pixel_shape

_CHANNELS = (1, 3, 4)
#: Bytes of the first images to check.
_FIRST_BYTES = 1 << 18


def image_shape(header: ArrayHeader, settings: ConvertSettings, where: str) -> tuple[tuple[int, ...], bool]:
    """Returns (height, width, channels) of the images of an array, and whether they are planar.

    Raises:
      UsageError: If its values or its shape are not those of images, or the shape is ambiguous.
    """
    dtype, row = np.dtype(header.dtype), header.shape[1:]
    if dtype.kind not in "buif" or dtype.itemsize > 8:
        raise UsageError(
            f"{where} holds values of type {dtype}, which is not a type of pixels; name the array of "
            "images with --image_column, or save it as uint8."
        )
    if settings.pixel_shape:
        height, width, channels = given = parse_pixel_shape(settings.pixel_shape)
        if row in (given, given[:2] if channels == 1 else given, (math.prod(given),)):
            return given, False
        if row == (channels, height, width):
            return given, True
        raise UsageError(
            f"{where} holds images of shape {times(row)}, which is not --pixel_shape {times(given)}."
        )
    counts = (settings.channels,) if settings.channels else _CHANNELS
    if 0 not in row:
        if len(row) == 2 and min(row) > max(_CHANNELS):
            return (*row, 1), False
        last, first = (row[2] in counts, row[0] in counts) if len(row) == 3 else (False, False)
        if last and (not first or row == (3, 3, 3)):
            return row, False
        if first and not last:
            return (*row[1:], row[0]), True
        if len(row) == 1 or (len(row) in (2, 3) and min(row) <= max(_CHANNELS)):
            raise UsageError(
                f"{where} has shape {times(header.shape)}, which leaves open what is height, width and "
                "channels of an image; give them with --pixel_shape HxWxC, such as 32x32x3."
            )
    raise UsageError(
        f"{where} has shape {times(header.shape)}, which is not a shape of images (N x height x width, with "
        f"{' or '.join(map(str, counts))} channels after N or last); name the right array with "
        "--image_column, or give another number of channels with --channels."
    )


def times(shape: tuple[int, ...]) -> str:
    """Returns a shape as text, such as 32x32x3."""
    return "x".join(map(str, shape))


def rows_are_planar(rows: Rows, shape: tuple[int, ...]) -> bool:
    """Returns whether flat rows hold images channel by channel, as CIFAR does."""
    if len(rows.shape) != 1 or shape[2] == 1:
        return False
    # One image at a time, because images may be large.
    return are_planar((rows.values(number, 1), shape) for number in range(min(PICTURES, rows.whole)))


def check_first_images(array: ArrayFile, settings: ConvertSettings) -> None:
    """Checks that the values of the first images can be pixels, before anything is written.

    In Fortran order, the first values are values of many images, which serve as well.

    Raises:
      UsageError: If they cannot be pixels.
    """
    header = array.header
    dtype = np.dtype(header.dtype)
    if dtype.kind == "b" or dtype.str[1:] in ("u1", "u2") or header.row_bytes > settings.max_source_bytes:
        return
    most = header.begin + min(header.end - header.begin, max(header.row_bytes, _FIRST_BYTES))
    data = array.read_first(most)[header.begin :]
    count = len(data) // header.row_bytes
    values = np.frombuffer(data[: count * header.row_bytes], dtype).reshape(count, -1)
    highest = 1 if dtype.kind == "f" else 255
    wrong = ~((values >= 0) & (values <= highest)).all(axis=1)  # NaN fails both comparisons
    if 2 * wrong.sum() <= count:  # the conversion leaves a few bad images out
        return
    seen = values[np.isfinite(values)]
    low, high = (seen.min().item(), seen.max().item()) if seen.size else (math.nan, math.nan)
    raise UsageError(
        f"{array.name}: the values of its first images run from {low:g} to {high:g}, but pixels of type "
        f"{dtype} must be between 0 and {highest}; scale them, or save them as uint8, or as uint16 if they "
        "have 16 bits."
    )
