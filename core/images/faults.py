"""The faults of images that cannot be decoded."""

from __future__ import annotations

from shardwright.schemas.codes import QuarantineReason, Stage
from shardwright.schemas.errors import ImageFault


def corrupt(message: str) -> ImageFault:
    """Returns the fault of a file that is damaged."""
    return ImageFault(QuarantineReason.CORRUPT, Stage.DECODE, message)


def truncated(message: str) -> ImageFault:
    """Returns the fault of a file that lacks a part."""
    return ImageFault(QuarantineReason.TRUNCATED, Stage.DECODE, message)


def unsupported(message: str) -> ImageFault:
    """Returns the fault of a file that uses a part of its format that is not read."""
    return ImageFault(QuarantineReason.UNSUPPORTED_FORMAT, Stage.DECODE, message)
