"""Changes the settings of Pillow that the results depend on, and restores those of the process.

Pillow and Python keep some settings for the whole process: the largest picture that is opened, whether
truncated pictures are loaded, and which warnings are shown. A notebook may have set them, so they are
restored after each call.
"""

from __future__ import annotations

import contextlib
import re
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from PIL import Image, ImageFile

#: Limit for pictures that were accepted before; it rejects only absurd headers.
NO_LIMIT = 2**31 - 1
#: A picture above the limit is an error. Broken metadata does not make the pixels wrong.
_FILTERS: list[Any] = [
    ("error", None, Image.DecompressionBombWarning, None, 0),
    ("ignore", None, UserWarning, re.compile(r"PIL\."), 0),
]
_IDS = frozenset(map(id, _FILTERS))


class _Settings:
    """Pillow's settings, changed while at least one thread needs them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._limits: list[int] = []
        self._found: tuple[int | None, bool] = (None, False)
        self._set: int | None = None
        self._filters: list[Any] = []

    def begin(self, max_pixels: int) -> None:
        """Changes the settings, unless another thread has done so."""
        with self._lock:
            if not self._limits:
                self._found = Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES
                ImageFile.LOAD_TRUNCATED_IMAGES = False
                self._filters = warnings.filters  # type: ignore[assignment]
                self._filters[:0] = _FILTERS
            self._limits.append(max_pixels)
            self._set = Image.MAX_IMAGE_PIXELS = max(self._limits)

    def end(self, max_pixels: int) -> None:
        """Restores the settings, unless another thread needs them."""
        with self._lock:
            self._limits.remove(max_pixels)
            is_ours = self._set == Image.MAX_IMAGE_PIXELS  # otherwise other code has set it since
            if self._limits:
                if is_ours:
                    self._set = Image.MAX_IMAGE_PIXELS = max(self._limits)
                return
            limit, ImageFile.LOAD_TRUNCATED_IMAGES = self._found
            if is_ours:
                Image.MAX_IMAGE_PIXELS = limit
            # Another thread may have replaced the list by a copy.
            _remove_filters(self._filters)
            if warnings.filters is not self._filters:
                _remove_filters(warnings.filters)

    def limit_of_process(self) -> int | None:
        """Returns Pillow's limit outside of our calls."""
        with self._lock:
            return self._found[0] if self._limits else Image.MAX_IMAGE_PIXELS


def _remove_filters(filters: Any) -> None:
    """Removes our filters, and no equal ones of other code."""
    filters[:] = [item for item in filters if id(item) not in _IDS]


_SETTINGS = _Settings()
change_settings, restore_settings = _SETTINGS.begin, _SETTINGS.end
limit_of_process = _SETTINGS.limit_of_process


@contextlib.contextmanager
def pillow_settings(max_pixels: int) -> Iterator[None]:
    """Changes Pillow's settings while a block runs; several threads may do so at once.

    Pillow rejects pictures above the largest limit of all threads, before it allocates memory for them. So
    callers that open a picture must also compare its size with their own limit.

    Args:
      max_pixels: Largest width x height that is accepted.
    """
    change_settings(max_pixels)
    try:
        yield
    finally:
        restore_settings(max_pixels)
