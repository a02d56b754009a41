"""Gives Pillow the settings that our results rely on, and puts back those of the process.

Pillow and Python keep some settings for the whole process: the largest picture that is opened, whether
truncated pictures are loaded, and which warnings are shown. Whoever calls us from a notebook may have set
them, and finds them unchanged afterwards.
"""

from __future__ import annotations

import contextlib
import re
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from PIL import Image, ImageFile

#: For pictures that were accepted before; only absurd headers are refused.
NO_LIMIT = 2**31 - 1
#: A picture above the limit is an error. Broken metadata says nothing about the pixels.
_FILTERS: list[Any] = [
    ("error", None, Image.DecompressionBombWarning, None, 0),
    ("ignore", None, UserWarning, re.compile(r"PIL\."), 0),
]


class _Settings:
    """The settings, while at least one thread needs them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._limits: list[int] = []
        self._found: tuple[int | None, bool] = (None, False)
        self._set: int | None = None
        self._filters: list[Any] = []

    def begin(self, max_pixels: int) -> None:
        """Sets what is needed, if no other thread has done so."""
        with self._lock:
            if not self._limits:
                self._found = Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES
                ImageFile.LOAD_TRUNCATED_IMAGES = False
                self._filters = warnings.filters  # type: ignore[assignment]
                self._filters[:0] = _FILTERS
            self._limits.append(max_pixels)
            self._set = Image.MAX_IMAGE_PIXELS = max(self._limits)

    def end(self, max_pixels: int) -> None:
        """Puts back what was found, if no other thread needs the settings."""
        with self._lock:
            self._limits.remove(max_pixels)
            is_ours = self._set == Image.MAX_IMAGE_PIXELS  # else somebody has set it since
            if self._limits:
                if is_ours:
                    self._set = Image.MAX_IMAGE_PIXELS = max(self._limits)
                return
            limit, ImageFile.LOAD_TRUNCATED_IMAGES = self._found
            if is_ours:
                Image.MAX_IMAGE_PIXELS = limit
            # Another thread may have put a copy of the list in its place.
            for filters in (self._filters, warnings.filters):
                filters[:] = [item for item in filters if not any(item is ours for ours in _FILTERS)]  # type: ignore[index]

    def limit_of_process(self) -> int | None:
        """Returns the limit that stands outside of our calls."""
        with self._lock:
            return self._found[0] if self._limits else Image.MAX_IMAGE_PIXELS


_SETTINGS = _Settings()
limit_of_process = _SETTINGS.limit_of_process


@contextlib.contextmanager
def pillow_settings(max_pixels: int) -> Iterator[None]:
    """Sets Pillow's settings while the block runs; several threads may do so at once.

    Pillow itself refuses pictures above the largest of their limits, before it takes memory for them. So
    whoever opens a picture compares its size with the limit, too.

    Args:
      max_pixels: width x height of the largest picture that is taken.
    """
    _SETTINGS.begin(max_pixels)
    try:
        yield
    finally:
        _SETTINGS.end(max_pixels)
