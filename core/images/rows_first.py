"""Resamples with Pillow alone, which readers of datasets need, too."""

from __future__ import annotations

from PIL import Image


def resize_rows_first(
    image: Image.Image,
    size: tuple[int, int],
    resample: str,
    box: tuple[float, float, float, float],
) -> Image.Image:
    """Resamples part of a picture in any mode with Pillow: each row, then each column.

    Pillow 12 does so itself. Pillow 13 chooses the faster order, which rounds other pixels.
    """
    method = Image.Resampling[resample.upper()]
    if method is Image.Resampling.NEAREST:
        return image.resize(size, method, box=box)
    left, upper, right, lower = box
    rows = image.resize((size[0], image.height), method, box=(left, 0, right, image.height))
    return rows.resize(size, method, box=(0, upper, size[0], lower))
