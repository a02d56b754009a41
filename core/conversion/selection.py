"""Leaves out images by what shows only when they are read: bytes, sides, aspect ratio and quality."""

from __future__ import annotations

import math
from contextlib import nullcontext

from shardwright.core.images.boxes import upright_size
from shardwright.core.images.convert import (
    BYTES_PER_PIXEL,
    ConvertedImage,
    Reserve,
    picture_of,
    side_reason,
)
from shardwright.schemas.codes import FilterReason, Outcome, QuarantineReason, Stage
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault, LeftOut, words_of
from shardwright.schemas.key_rules import KeyRules
from shardwright.schemas.ledger import Entry

#: Reasons that the bytes of a file decide, and those that its sides decide.
BY_BYTES = frozenset((FilterReason.EXCLUDED, FilterReason.NOT_INCLUDED))
_BY_SIDES = frozenset((FilterReason.MIN_SIDE, FilterReason.MAX_ASPECT))


def left_out_by_digest(key: str, sha256: str, keys: KeyRules) -> LeftOut | None:
    """Returns why the digest of an image's bytes leaves it out; None if it does not.

    Args:
      key: Key of the image.
      sha256: Hex digest of its bytes.
      keys: Rules of `--include` and `--exclude`.
    """
    reason = keys.reason_by_bytes(key, sha256) if keys.need_bytes else None
    if reason is None:
        return None
    excluded = reason is FilterReason.EXCLUDED
    message = "--exclude lists its sha256" if excluded else "--include lists neither its key nor its sha256"
    return LeftOut(reason, Stage.READ, message)


def check_quality(image: ConvertedImage, settings: ConvertSettings, reserve: Reserve | None = None) -> None:
    """Checks whether an image, as it would be stored, has a finding that `--drop` names.

    The stored bytes are decoded, so that `validate --quality` finds the same images.

    Args:
      image: The converted image.
      settings: Checked settings.
      reserve: Function that reserves working memory; takes a number of bytes.

    Raises:
      LeftOut: If it has one.
      ImageFault: If it cannot be measured.
    """
    if not settings.drop:
        return
    from shardwright.core.images import quality_metrics  # other conversions start without it

    try:
        with (reserve or nullcontext)(math.prod((image.width, image.height, BYTES_PER_PIXEL))):
            quality = quality_metrics.measure_quality(picture_of(image, settings))
    except (ImageFault, MemoryError):
        raise
    except Exception as error:
        raise ImageFault(
            QuarantineReason.CORRUPT, Stage.ENCODE, f"{image.format}: {words_of(error)}"
        ) from error
    for code in settings.dropped_codes:
        if code in quality.issues:
            message = quality_metrics.describe_issue(code, quality.scores)
            raise LeftOut(FilterReason(code.lower()), Stage.ENCODE, message, upright_size(image.frame))


def decides_same(entry: Entry, keys: KeyRules, settings: ConvertSettings, all_read: bool = True) -> bool:
    """Returns whether an earlier outcome is also the outcome under the present rules.

    Codes of `--drop` are not compared, because the recipe of a record contains them.

    Args:
      entry: Ledger entry of an image that would be read now.
      keys: Rules of `--include` and `--exclude`.
      settings: Checked settings.
      all_read: Whether to compare also sides, which the digest of a whole shard contains.
    """
    if entry.outcome == Outcome.FILTERED and not entry.stage:
        return False
    reason: str | None = keys.reason_by_bytes(entry.source, entry.sha256) if entry.sha256 else None
    by_bytes = entry.reason if entry.reason in BY_BYTES and entry.outcome == Outcome.FILTERED else None
    if reason != by_bytes:
        return False
    if reason is not None or not all_read:
        return True
    width, height = entry.source_width, entry.source_height
    if width is None or height is None or settings.map:
        # The header of a quarantined image may have been read or not, and a picture that the function of
        # `--map` made has sides of its own.
        return not (settings.min_side or settings.max_aspect) and entry.reason not in _BY_SIDES
    found = side_reason(width, height, settings)
    recorded = entry.reason if entry.reason in _BY_SIDES and entry.outcome == Outcome.FILTERED else None
    return (found[0] if found else None) == recorded
