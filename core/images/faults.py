"""The faults of images that cannot be decoded, and the settings of Pillow while it decodes.

Pillow and Python keep some settings for the whole process: the largest picture that is opened, whether
truncated pictures are loaded, and which warnings are shown. The results depend on them, and a notebook may
have set them. So they are changed while a decoder runs, and restored after it.
"""

from __future__ import annotations

import contextlib
import re
import threading
import warnings
from collections.abc import Iterator
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


class _Process:
    """Pillow's settings of the process while blocks change them."""

    lock = threading.Lock()
    #: The limits of the blocks that run.
    limits: ClassVar[list[int]] = []
    #: What the first block found: the limit, and whether truncated pictures are loaded.
    found: ClassVar[tuple[int | None, bool]] = (None, False)
    #: The limit that the blocks have set, and the list with their filters of warnings.
    limit: ClassVar[int | None] = None
    filters: ClassVar[Any] = []


@contextlib.contextmanager
def pillow_settings(max_pixels: int, kind: str = "") -> Iterator[None]:
    """Changes Pillow's settings while a block runs; several threads may enter one at once.

    Pillow rejects pictures above the largest limit of all threads, before it allocates memory for them. So
    callers that open a picture must also compare its size with their own limit.

    Args:
      max_pixels: Largest width x height that is accepted.
      kind: Name of a format, to turn any exception of its decoder into an `ImageFault`. Empty to pass
        exceptions on.
    """
    with _Process.lock:
        if not _Process.limits:
            _Process.found = Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES
            ImageFile.LOAD_TRUNCATED_IMAGES = False
            _Process.filters = warnings.filters
            _Process.filters[:0] = _FILTERS
        _Process.limits.append(max_pixels)
        _Process.limit = Image.MAX_IMAGE_PIXELS = max(_Process.limits)
    try:
        yield
    except (ImageFault, ImportError, MemoryError):
        raise  # a missing package or missing memory says nothing about the file
    except Exception as error:
        if not kind:
            raise
        raise _fault_of(error, kind, max_pixels) from error
    finally:
        with _Process.lock:
            _Process.limits.remove(max_pixels)
            limit, truncated_too = _Process.found
            if _Process.limit == Image.MAX_IMAGE_PIXELS:  # otherwise other code has set it since
                Image.MAX_IMAGE_PIXELS = _Process.limit = max(_Process.limits, default=limit)
            if not _Process.limits:
                ImageFile.LOAD_TRUNCATED_IMAGES = truncated_too
                _remove_filters(_Process.filters)
                if warnings.filters is not _Process.filters:  # another thread has replaced the list by a copy
                    _remove_filters(warnings.filters)


def _fault_of(error: Exception, kind: str, max_pixels: int) -> ImageFault:
    """Returns the fault of a file whose decoder raised an exception."""
    if isinstance(error, (Image.DecompressionBombError, Image.DecompressionBombWarning)):
        pixels = _PIXELS_IN_MESSAGE.search(str(error))
        return too_many_pixels(pixels[1] if pixels else "its", max_pixels)
    if isinstance(error, UnidentifiedImageError):
        return corrupt(f"begins like {kind} but its header is damaged")
    text = words_of(error)
    is_cut = isinstance(error, EOFError) or any(sign in text.lower() for sign in _SIGNS_OF_TRUNCATION)
    return (truncated if is_cut else corrupt)(f"{kind}: {text}")


def _remove_filters(filters: Any) -> None:
    """Removes our filters, and no equal ones of other code."""
    filters[:] = [item for item in filters if id(item) not in _IDS]


def limit_of_process() -> int | None:
    """Returns Pillow's limit outside of our blocks."""
    with _Process.lock:
        return _Process.found[0] if _Process.limits else Image.MAX_IMAGE_PIXELS
