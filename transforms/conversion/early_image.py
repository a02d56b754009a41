"""Images that were converted before their shard is written."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import NamedTuple, Protocol

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import ImageRef
from shardwright.transforms.images.convert import ConvertedImage
from shardwright.transforms.storage import is_remote

#: Largest number of bytes of the images of a sample that are kept.
_MAX_BYTES = 16_000_000


class EarlyImage(NamedTuple):
    """An image that was converted early.

    Attributes:
      sha256: hex digest of its source bytes.
      source_bytes: number of source bytes.
      processor_seconds: processor time of its conversion.
      image: the converted image.
    """

    sha256: str
    source_bytes: int
    processor_seconds: float
    image: ConvertedImage


class EarlyImages(Protocol):
    """A place with images that were converted early."""

    def take(self, ref: ImageRef) -> EarlyImage | None:
        """Returns the result for an image; None if there is none. Several threads may call it."""


def state_of(ref: ImageRef) -> tuple[str, str, str, int, str]:
    """Returns what names an image and the state of its file. A plan changes other parts of its reference."""
    return ref.key, ref.uri, ref.place, ref.size, ref.version


class SampledImages:
    """The images of the sample that a plan is made from, until their shards are written.

    Objects of a storage are kept, since their version stands for their bytes. A local file is read again: it
    can change and look the same.

    Args:
      settings: settings of the conversion; the results are valid only for them.

    Attributes:
      settings: settings of the conversion.
    """

    def __init__(self, settings: ConvertSettings) -> None:
        self.settings = settings
        self._images: dict[Hashable, EarlyImage] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def keep(self, ref: ImageRef, early: EarlyImage) -> None:
        """Keeps the result for an image if its object has a version, and there is room."""
        if not is_remote(ref.uri) or not ref.version or ref.size < 0:
            return
        with self._lock:
            size = len(early.image.encoded)
            if self._bytes + size <= _MAX_BYTES:
                self._bytes += size
                self._images[state_of(ref)] = early

    def has(self, ref: ImageRef) -> bool:
        """Returns whether there is a result for an image."""
        return state_of(ref) in self._images

    def take(self, ref: ImageRef) -> EarlyImage | None:
        """Returns the result for an image once; None if there is none."""
        return self._images.pop(state_of(ref), None)


_sampled: SampledImages | None = None


def begin_sample(settings: ConvertSettings) -> SampledImages:
    """Returns the place for the images of a new sample of this process; drops those of the last one."""
    global _sampled
    _sampled = SampledImages(settings)
    return _sampled


def sampled_images(settings: ConvertSettings) -> SampledImages | None:
    """Returns the sample of this process with the same settings; None if there is none."""
    return _sampled if _sampled is not None and _sampled.settings == settings else None
