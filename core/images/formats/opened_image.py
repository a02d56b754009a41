"""The interface of an image format: how a file of it is opened, checked and decoded."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import numpy as np
from PIL import Image

from shardwright.core.images.deep_pixels import UINT8, DeepHeader
from shardwright.core.images.faults import corrupt, too_many_pixels
from shardwright.core.images.formats.containers import check_tags
from shardwright.schemas.bounds import DEFAULT_BOUNDS, Bounds
from shardwright.schemas.errors import ImageFault

#: EXIF orientation (TIFF 6.0, tag 274).
_ORIENTATION_TAG = 274
ORIENTATIONS = range(1, 9)
#: EXIF orientations of files that store columns as rows.
SWAPS_SIDES = frozenset((5, 6, 7, 8))


class OpenOptions(NamedTuple):
    """How images are opened.

    Attributes:
      max_pixels: Largest width x height that is accepted.
      bounds: Limits on the parts of a file.
      keep_depth: Whether to read more than 8 bits per channel with `load_samples`.
      all_channels: Whether to read all channels with `load_samples`.
      white: 16-bit sample that becomes white in 8 bits; 0 if it is not stated.
    """

    max_pixels: int
    bounds: Bounds = DEFAULT_BOUNDS
    keep_depth: bool = False
    all_channels: bool = False
    white: int = 0


class LoadedImage(NamedTuple):
    """Decoded pixels and the decoder's warnings about them.

    Attributes:
      image: The pixels of the first frame, as stored.
      note: A harmless irregularity of the file; empty for none.
      damage: Why a part of the pixels is missing; empty unless damaged images are kept.
    """

    image: Image.Image
    note: str = ""
    damage: str = ""


class MetadataBlock(NamedTuple):
    """Metadata in a file.

    Attributes:
      kind: exif, xmp, iptc or author.
      content: Its bytes, without the name that marks it.
    """

    kind: str
    content: bytes


class OpenedImage:
    """An image whose header was read, and whose pixels are not decoded yet.

    Each format is a module with a subclass, which overrides what Pillow does not do as this class needs it.

    Args:
      data: The whole file.
      options: How it is opened.

    Attributes:
      kind: Name of the format.
      storable: Whether records may hold the file as it is.
      data: The whole file.
      bounds: Limits on the parts of the file.
      image: Pillow's lazy image. One that Pillow does not decode has a size and a mode, but no pixels.
      size: Width and height of the upright picture, in pixels, before any reduction.
      orientation: EXIF orientation, 1 to 8, that the decoder does not apply.
      animated: Whether the file has more than one frame.
      depth: Bits per channel in the file if known (PNG, JPEG 2000), else 8.
      deep: The samples of a picture that is decoded by `read_samples`; None for one that Pillow holds.
      scaled: 16-bit samples that `decode.load_checked` scales to 8 bits, because their white is stated.

    Raises:
      ImageFault: If it is damaged, too large, or has too many parts.
      Exception: What Pillow raises (see `pillow_settings`).
    """

    kind: str
    storable: bool = False
    depth: int = 8
    deep: DeepHeader | None = None
    scaled: DeepHeader | None = None
    #: The plugin of Pillow that may open the format.
    _plugin: ClassVar[str] = ""
    #: Whether the decoder applies the orientation, or the format has none.
    _turned_by_decoder: ClassVar[bool] = False
    #: Whether several pictures in a file are frames of one.
    _has_frames: ClassVar[bool] = True
    #: Largest number of bytes that the decoder holds for each pixel, with the decoded picture, and besides.
    _bytes_per_pixel: int = 4
    _extra_bytes: int = 0

    def __init__(self, data: bytes, options: OpenOptions) -> None:
        self.data = data
        self.bounds = options.bounds
        self.image = self._read_header(options.max_pixels)
        width, height = self.image.size
        if width * height > options.max_pixels:
            raise too_many_pixels(width * height, options.max_pixels)
        if width < 1 or height < 1:
            raise corrupt(f"{width} x {height} pixels")
        self._check_content()
        self.orientation = 1 if self._turned_by_decoder else self._read_orientation()
        self.size = (height, width) if self.orientation in SWAPS_SIDES else (width, height)
        self.animated = self._has_frames and self._is_animated()

    @classmethod
    def open(cls, data: bytes, options: OpenOptions) -> OpenedImage:
        """Opens a file of the format."""
        return cls(data, options)

    def _read_header(self, max_pixels: int) -> Image.Image:
        """Checks the structure of the file, and returns an image that is not decoded."""
        return Image.open(io.BytesIO(self.data), formats=(self._plugin,))

    def _check_content(self) -> None:
        """Checks what depends on the size of the picture, which was accepted."""

    def _read_orientation(self) -> int:
        """Checks the tags of the Exif data that Pillow found, and returns the orientation in it.

        Returns:
          The orientation; 1 if there is none or it cannot be read.

        Raises:
          ImageFault: If there are too many values.
        """
        exif, profile = self.image.info.get("exif"), self.image.info.get("Raw profile type exif")
        if exif is None and isinstance(profile, str):
            with contextlib.suppress(ValueError):
                exif = bytes.fromhex("".join(profile.split("\n")[3:]))
        if isinstance(exif, bytes):
            check_tags(exif.removeprefix(b"Exif\0\0"), "exif", self.bounds)
        try:
            # The PNG plugin's own method would decode the picture to read the chunks after it.
            value = Image.Image.getexif(self.image).get(_ORIENTATION_TAG, 1)
        except MemoryError:
            raise
        except Exception:  # the pixels may be sound despite broken metadata
            return 1
        return value if value in ORIENTATIONS else 1

    def _is_animated(self) -> bool:
        """Returns whether there is a second frame, without decoding it."""
        try:
            return bool(getattr(self.image, "is_animated", False))
        except MemoryError:
            raise
        except Exception:  # only the first frame is used
            return False

    def reduce(self, factor: int) -> int:
        """Requests decoding at 1/`factor` of each side; returns the factor that will be used."""
        return 1

    def decoder_bytes(self) -> int:
        """Returns the largest number of bytes that decoding takes, with the decoded picture."""
        width, height = self.image.size
        needed, samples = width * height * self._bytes_per_pixel + self._extra_bytes, self.deep or self.scaled
        return max(needed, samples.decoded_bytes) if samples is not None else needed

    def is_lossy(self) -> bool:
        """Returns whether the compression changes pixels, so that the numbers of a mask are lost."""
        return False

    def deep_header(self) -> DeepHeader | None:
        """Returns the samples if they have more than 8 bits and `_deep_samples` can keep them, else None."""
        return None

    def _deep_samples(self) -> np.ndarray:
        """Decodes the samples of `deep_header`, as they are in the file; raises what `decode` raises."""
        raise NotImplementedError

    def decode(self, keep_damaged: bool) -> LoadedImage:
        """Decodes the pixels of the first frame, as stored, after a check that they are complete.

        Args:
          keep_damaged: Whether to return a damaged picture, as lenient decoders do, instead of refusing it.

        Raises:
          ImageFault: If some are missing.
          Exception: What the decoder raises (see `pillow_settings`).
        """
        damage = ""
        try:
            self._check_pixels()
        except ImageFault as fault:
            if not keep_damaged:
                raise
            damage = fault.message
        return LoadedImage(self._load(), damage=damage)

    def _check_pixels(self) -> None:
        """Checks that all pixels are there, if Pillow does not."""

    def _load(self) -> Image.Image:
        """Decodes the pixels of the first frame, also of a file that is damaged."""
        self.image.load()
        return self.image

    def read_samples(self, header: DeepHeader) -> np.ndarray:
        """Decodes the samples as they are in the file; raises what `decode` raises."""
        if header.dtype != UINT8:
            return self._deep_samples()
        return np.asarray(self.decode(keep_damaged=False).image)

    @staticmethod
    def without_metadata(data: bytes) -> bytes:
        """Returns a file, which can be decoded, without its descriptive metadata, if the format is known."""
        return data

    @staticmethod
    def metadata(data: bytes) -> Iterator[MetadataBlock]:
        """Yields the metadata of a file in which persons or places may be named."""
        return iter(())


def without_pixels(size: tuple[int, int], mode: str) -> Image.Image:
    """Returns an image with a size and a mode, and no pixels, for a file that Pillow does not decode."""
    image = Image.Image()
    image._size, image._mode = size, mode
    return image
