"""BMP: limits pictures that are stored as runs, because Pillow decodes them in Python."""

from __future__ import annotations

from shardwright.core.images.formats.opened_image import OpenedImage

_INFO_BYTES = 40
_RLE8, _RLE4 = 1, 2


class BmpImage(OpenedImage):
    """A BMP."""

    kind = "bmp"
    _plugin = "BMP"

    def _check_content(self) -> None:
        data, bounds = self.data, self.bounds
        header_bytes, compression = (int.from_bytes(data[at : at + 4], "little") for at in (14, 30))
        if header_bytes < _INFO_BYTES or compression not in (_RLE8, _RLE4):
            return
        width, height = self.image.size
        pixels, size = width * height, f"{width} x {height} pixels"
        bounds.check("runs", pixels, f"bmp: {size} as runs are {pixels}")
        bounds.check("columns", width, f"bmp: {size} as runs have {width} columns")
        bounds.check("runs", len(data), f"bmp: its runs take {len(data)} bytes")
        # A command takes two bytes: each pixel may be a run, and each row has an end.
        stray = len(data) - 4 * (width + 1) * (height + 1)
        bounds.check("stray_bytes", stray, f"bmp: its runs take {stray} bytes beyond what {size} can need")
