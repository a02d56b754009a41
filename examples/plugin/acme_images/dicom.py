"""Reads DICOM files of radiology, through pydicom, as a plugin of Pillow."""

from __future__ import annotations

import io

import numpy as np
import pydicom
from PIL import Image, ImageFile
from pydicom.pixels import apply_modality_lut, apply_voi_lut


class DicomImageFile(ImageFile.ImageFile):
    """The first frame of a DICOM file as 8-bit gray, with the window that the file states."""

    format = "DICOM"

    @staticmethod
    def accept(head: bytes) -> bool:
        """Returns whether a file begins like DICOM (PS3.10, 7.1)."""
        return head[128:132] == b"DICM"

    def _open(self) -> None:
        """Reads the header alone, so that limits apply before pixels are decoded."""
        header = pydicom.dcmread(self.fp, stop_before_pixels=True)
        if header.PhotometricInterpretation not in ("MONOCHROME1", "MONOCHROME2"):
            raise ValueError(f"{header.PhotometricInterpretation} is not gray")
        self._size, self._mode = (header.Columns, header.Rows), "L"
        self.tile = []

    def load(self) -> Image.core.PixelAccess | None:
        """Decodes the pixels."""
        if self.fp:
            self.fp.seek(0)
            data = pydicom.dcmread(io.BytesIO(self.fp.read()))
            pixels = apply_voi_lut(apply_modality_lut(data.pixel_array, data), data).astype(np.float64)
            pixels = pixels[0] if pixels.ndim > len(self.size) else pixels
            low, high = pixels.min(), pixels.max()
            pixels = np.round((pixels - low) * (255 / max(high - low, 1)))
            if data.PhotometricInterpretation == "MONOCHROME1":
                pixels = 255 - pixels
            self.im = Image.fromarray(pixels.astype(np.uint8)).im
            self.fp = None
        return super().load()
