"""The measurements of each record's picture, from which statistics and duplicates are computed."""

from __future__ import annotations

from typing import NamedTuple

#: Names of the values in `ImageQuality.scores`. `brightness` is the mean, 0 to 1; `brightness_5` and
#: `brightness_99` are percentiles of the pixels' brightness; `information` is the entropy, 1 from ten bits
#: on; `sharpness` is 0 to 1; `aspect_ratio` is the shorter side divided by the longer.
SCORES = ("brightness", "brightness_5", "brightness_99", "information", "sharpness", "aspect_ratio")


class ChannelSamples(NamedTuple):
    """Exact sums over one channel of a picture, in the units of its samples.

    Attributes:
      finite: Number of finite samples.
      total: Their sum; of float32 times 2^149, which makes it a whole number.
      squares: The sum of their squares; of float32 times 2^298.
      low: The least of them; 0 if there are none.
      high: The greatest of them; 0 if there are none.
      nan: Number of samples that are NaN.
      infinite: Number of samples that are infinite.
    """

    finite: int
    total: int
    squares: int
    low: float
    high: float
    nan: int = 0
    infinite: int = 0


class Samples(NamedTuple):
    """The samples of a picture whose record states their type.

    Attributes:
      dtype: uint8, uint16 or float32.
      channels: Sums over each channel, without transparency.
    """

    dtype: str
    channels: tuple[ChannelSamples, ...]


class ImageQuality(NamedTuple):
    """Measurements of the pixels of one picture.

    Attributes:
      sums: Sum of the uint8 values of each channel, as the picture is displayed.
      squares: Sum of their squares for each channel.
      pixels: Number of pixels.
      digest: 16 bytes that are equal for pictures with equal pixels, size and mode.
      hash: 32 bytes; similar pictures differ in few bits.
      patch: A small copy of the picture, for the second comparison of similar pictures.
      issues: Finding codes of problems of this picture alone.
      scores: The values behind these codes, named by `SCORES`.
      samples: Sums over the stored samples, if the record states their type; else None.
    """

    sums: tuple[int, ...]
    squares: tuple[int, ...]
    pixels: int
    digest: bytes
    hash: bytes
    patch: bytes
    issues: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    samples: Samples | None = None


class Picture(NamedTuple):
    """The picture of one record: facts that are cheap to read, and measurements if the pixels were decoded.

    Attributes:
      file: Name of the shard file.
      number: Number of the record in the shard, from 0.
      offset: Byte offset of the record's frame.
      key: Key of the image; None if records have no key.
      split: Split of the shard; empty if unknown.
      labels: Class names of the image.
      bytes: Size of the stored picture in bytes.
      format: Format detected from the bytes: jpg, png, webp, raw, ...
      width: Width in pixels.
      height: Height in pixels.
      boxes: Width and height of each object's box, as shares of the picture's width and height.
      source: sha256 of the source picture, if the record states it.
      quality: Measurements of the pixels; None if they were not decoded.
    """

    file: str
    number: int
    offset: int
    key: str | None
    split: str
    labels: tuple[str, ...]
    bytes: int
    format: str
    width: int
    height: int
    boxes: tuple[tuple[float, float], ...] = ()
    source: str | None = None
    quality: ImageQuality | None = None
