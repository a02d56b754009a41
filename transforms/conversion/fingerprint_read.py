"""Fingerprints the images that a conversion would write. Does not need Beam."""

from __future__ import annotations

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault, LeftOut, NotACandidate
from shardwright.transforms.concurrency.pool import reserve_working_bytes
from shardwright.transforms.concurrency.underway import UNDERWAY
from shardwright.transforms.conversion.convert import ReadImage
from shardwright.transforms.conversion.selection import check_quality
from shardwright.transforms.images.convert import convert_image
from shardwright.transforms.images.fingerprint import Fingerprint, fingerprint


def fingerprint_read(settings: ConvertSettings, read: ReadImage) -> Fingerprint | None:
    """Returns the fingerprint of an image; None if the conversion will leave it out.

    Such an image must not be kept in favor of one that would become a record.

    Args:
      settings: checked settings.
      read: the image, whose bytes are read.
    """
    if read.fault or read.left_out:
        return None
    data, key, reserve = read.data, read.ref.key, reserve_working_bytes
    try:
        with UNDERWAY.working_on(read.ref.location, "decode"):
            if settings.drop:  # only the stored image can show this
                check_quality(convert_image(data, key, settings, reserve), settings, reserve)
            return fingerprint(data, key, settings, reserve)
    except (ImageFault, LeftOut, NotACandidate):
        return None
