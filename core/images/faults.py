"""The faults of images that cannot be decoded, and the settings of Pillow while it decodes.

Pillow and Python keep some settings for the whole process: the largest picture that is opened, whether
truncated pictures are loaded, and which warnings are shown. The results depend on them, and a notebook may
have set them. So they are changed while a decoder runs, and restored after it.
"""

from __future__ import annotations

import re
import threading
import warnings
from contextlib import ContextDecorator
from typing import Any, ClassVar

from PIL import Image, ImageFile, UnidentifiedImageError

from shardwright.schemas.codes import QuarantineReason, Stage
from shardwright.schemas.errors import ImageFault, words_of

#: Limit for pictures that were accepted before; it rejects only absurd headers.
NO_LIMIT = 2**31 - 1
#: A picture above the limit is an error. Broken metadata does not make the pixels wrong.
_FILTERS: list[Any] = [
    ("error", None, Image.DecompressionBombWarning, None, 0),
    ("ignore", None, UserWarning, re.compile(r"PIL\."), 0),
]
_IDS = frozenset(map(id, _FILTERS))
#: The number of pixels in Pillow's message about a picture that is too large.
_PIXELS_IN_MESSAGE = re.compile(r"\((\d+) pixels\)")
_SIGNS_OF_TRUNCATION = ("truncated", "unexpected end", "buffer is not large enough")


def corrupt(message: str) -> ImageFault:
    """Returns the fault of a file that is damaged."""
    return ImageFault(QuarantineReason.CORRUPT, Stage.DECODE, message)


def truncated(message: str) -> ImageFault:
    """Returns the fault of a file that lacks a part."""
    return ImageFault(QuarantineReason.TRUNCATED, Stage.DECODE, message)


def unsupported(message: str) -> ImageFault:
    """Returns the fault of a file that uses a part of its format that is not read."""
    return ImageFault(QuarantineReason.UNSUPPORTED_FORMAT, Stage.DECODE, message)


def unread(reason: QuarantineReason, message: str) -> ImageFault:
    """Returns the fault of a file whose bytes cannot be read, or are not those that are expected."""
    return ImageFault(reason, Stage.READ, message)


def too_many_pixels(pixels: int | str, max_pixels: int) -> ImageFault:
    """Returns the fault of a picture that is larger than the user accepts."""
    message = f"{pixels} pixels are more than {max_pixels}; raise --max_pixels to accept it"
    return ImageFault(QuarantineReason.TOO_MANY_PIXELS, Stage.DECODE, message)


class PillowSettings(ContextDecorator):
    """A block that changes Pillow's settings while it runs; several threads may enter one at once.

    Pillow rejects pictures above the largest limit of all threads, before it allocates memory for them. So
    callers that open a picture must also compare its size with their own limit. Every image enters a few
    blocks; a generator would take twice the time.

    Args:
      max_pixels: Largest width x height that is accepted.
      kind: Name of a format, to turn any exception of its decoder into an `ImageFault`. Empty to pass
        exceptions on.
    """

    _lock: ClassVar = threading.Lock()
    _limits: ClassVar[list[int]] = []
    _found: ClassVar[tuple[int | None, bool]] = (None, False)
    _set: ClassVar[int | None] = None
    _filters: ClassVar[list[Any]] = []

    def __init__(self, max_pixels: int, kind: str = "") -> None:
        self._max_pixels, self._kind = max_pixels, kind

    def __enter__(self) -> None:
        shared = PillowSettings
        with shared._lock:
            if not shared._limits:
                shared._found = Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES
                ImageFile.LOAD_TRUNCATED_IMAGES = False
                shared._filters = warnings.filters  # type: ignore[assignment]
                shared._filters[:0] = _FILTERS
            shared._limits.append(self._max_pixels)
            shared._set = Image.MAX_IMAGE_PIXELS = max(shared._limits)

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        shared = PillowSettings
        with shared._lock:
            shared._limits.remove(self._max_pixels)
            is_ours = shared._set == Image.MAX_IMAGE_PIXELS  # otherwise other code has set it since
            if is_ours and shared._limits:
                shared._set = Image.MAX_IMAGE_PIXELS = max(shared._limits)
            elif not shared._limits:
                limit, ImageFile.LOAD_TRUNCATED_IMAGES = shared._found
                if is_ours:
                    Image.MAX_IMAGE_PIXELS = limit
                _remove_filters(shared._filters)
                if warnings.filters is not shared._filters:  # another thread has replaced the list by a copy
                    _remove_filters(warnings.filters)
        # A missing package or missing memory says nothing about the file.
        passed_on = (ImageFault, ImportError, MemoryError)
        if self._kind and isinstance(error, Exception) and not isinstance(error, passed_on):
            self._raise_fault(error)

    def _raise_fault(self, error: Exception) -> None:
        if isinstance(error, (Image.DecompressionBombError, Image.DecompressionBombWarning)):
            pixels = _PIXELS_IN_MESSAGE.search(str(error))
            raise too_many_pixels(pixels[1] if pixels else "its", self._max_pixels) from None
        if isinstance(error, UnidentifiedImageError):
            raise corrupt(f"begins like {self._kind} but its header is damaged") from None
        text = words_of(error)
        is_cut = isinstance(error, EOFError) or any(sign in text.lower() for sign in _SIGNS_OF_TRUNCATION)
        raise (truncated if is_cut else corrupt)(f"{self._kind}: {text}") from error


def _remove_filters(filters: Any) -> None:
    """Removes our filters, and no equal ones of other code."""
    filters[:] = [item for item in filters if id(item) not in _IDS]


def limit_of_process() -> int | None:
    """Returns Pillow's limit outside of our blocks."""
    with PillowSettings._lock:
        return PillowSettings._found[0] if PillowSettings._limits else Image.MAX_IMAGE_PIXELS
