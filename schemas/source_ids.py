"""`image/source_id`: the number by which evaluation tools identify an image.

Readers convert the text with `tf.strings.to_number(text, tf.int64)`. So a generated id is a number from 0 to
2^63 - 1. An id in a record of the source stays as it is.
"""

from __future__ import annotations

import hashlib
import re

from shardwright.schemas.image_ref import ImageRef

_NUMBER = re.compile(r"-?[0-9]{1,19}\Z", re.ASCII)
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


def number_text(value: int | str) -> str:
    """Returns an id as the text of a 64-bit number; empty if it is not one.

    >>> number_text("000000000139"), number_text("a1"), number_text(2**63)
    ('139', '', '')
    """
    if isinstance(value, str) and not _NUMBER.match(value):
        return ""
    number = int(value)
    return str(number) if _LOWEST <= number <= _HIGHEST else ""


def number_of_key(key: str) -> int:
    """Returns the number of an image whose source has no id: 63 bits of the hash of its key."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") >> 1


def source_id_of(ref: ImageRef) -> str:
    """Returns the id that the record of an image stores."""
    return ref.source_id or str(number_of_key(ref.key))
