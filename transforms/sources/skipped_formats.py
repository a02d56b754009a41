"""Leaves out the images of formats that a user does not want, although they are not read anyway."""

from __future__ import annotations

from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.errors import ImageFault, NotACandidate
from shardwright.schemas.image_ref import ImageRef
from shardwright.transforms.images.decode import check_kind
from shardwright.transforms.images.read import read_head
from shardwright.transforms.images.signatures import HEAD_BYTES


def without_skipped(ref: ImageRef, skipped: frozenset[str]) -> ImageRef:
    """Returns a reference, filtered if a source quarantined it for a format that is skipped.

    Its first bytes are read again, because the reference does not have the format. Images of formats that
    are read are filtered when they are converted.

    Args:
      ref: The reference, as a source listed it.
      skipped: The formats to leave out.
    """
    if not skipped or ref.reason != QuarantineReason.UNSUPPORTED_FORMAT:
        return ref
    try:
        check_kind(read_head(ref, HEAD_BYTES), ref.key, skipped)
    except NotACandidate as left_out:
        return ref._replace(message="").filtered(left_out.reason)
    except (ImageFault, OSError):
        pass
    return ref
