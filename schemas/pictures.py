"""What was seen of one record's picture: the rows from which statistics and duplicates are reckoned."""

from __future__ import annotations

from typing import NamedTuple


class ImageQuality(NamedTuple):
    """What the pixels of one picture are like.

    Attributes:
      sums: per channel, the sum of its uint8 values.
      squares: per channel, the sum of their squares.
      pixels: number of pixels.
      digest: 16 bytes that are equal for pictures with equal pixels, size and mode.
      hash: 32 bytes, near each other (in bits) for pictures that look alike.
      patch: a small picture, for the second look at those.
      issues: finding codes of what is odd about this picture alone.
      scores: the measures behind them, as `transforms/images/quality_metrics.py` names them.
    """

    sums: tuple[int, ...]
    squares: tuple[int, ...]
    pixels: int
    digest: bytes
    hash: bytes
    patch: bytes
    issues: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()


class Picture(NamedTuple):
    """The picture of one record: what costs next to nothing to know, and its looks if they were taken.

    Attributes:
      file: the shard's name.
      number: of the record in it, from 0.
      offset: of the record's frame.
      key: the image's key, None where records have none.
      split: of the shard, empty if unknown.
      labels: names of the image's classes.
      bytes: of the stored picture.
      format: jpg, png, webp, raw, ... as its bytes say.
      width: in pixels.
      height: in pixels.
      channels: 1 to 4.
      boxes: width and height of each object's box, as shares of the picture's.
      source: sha256 of the source picture, where the record says it.
      looks: what its pixels are like; None where nobody looked.
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
    channels: int
    boxes: tuple[tuple[float, float], ...] = ()
    source: str | None = None
    looks: ImageQuality | None = None
