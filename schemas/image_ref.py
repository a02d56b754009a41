"""`ImageRef`: the reference that travels through the pipeline instead of image bytes."""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

from shardwright.schemas.annotations import Annotations
from shardwright.schemas.codes import Outcome
from shardwright.schemas.plain_text import printable

#: A batch of references between two stages: compressed JSON with a list per field.
EncodedRefs = bytes
#: Separates the class names of an image with several classes.
LABEL_SEPARATOR = "\x1f"
#: The escapes of keys: of `%` itself, and of bytes that are not UTF-8.
_ESCAPES = re.compile("%25|%[89A-F][0-9A-F]")
#: Split that counts files without a key of their own: rows that name no image, damaged archives.
NO_SPLIT = "none"


class ImageRef(NamedTuple):
    """A reference to one source image, with everything that planning needs; it holds no pixels.

    Attributes:
      key: Path relative to its input, `/`-separated, NFC; unique in a dataset.
      uri: Location of the bytes. Local paths carry undecodable bytes as surrogate escapes.
      label: Class name; empty if the source gives none; several names are joined by `LABEL_SEPARATOR`.
      split: Split name; empty until the plan assigns one, unless the source names it.
      group: Images of the same group go to the same split; empty means that the key is the group.
      size: Size of the source in bytes; -1 if unknown.
      version: State of the source: its mtime in ns, or an object's generation.
      sha256: Hex digest of the source bytes if it is already known, else empty.
      outcome: Outcome if it is known before reading (filtered, deduplicated, quarantined), else empty.
      reason: Reason for that outcome: a filter reason, the winning key, or a quarantine reason.
      crc32c: Checksum of the source bytes as object storage lists it (base64, big endian), else empty.
      place: The part of the file with the bytes (`ByteRange.encode`); empty for the whole file.
      message: One sentence about the fault of a quarantined reference; for other references the row or record
        of the source, or what it lacks, if any.
      annotations: Annotations of the image (`annotated` sets them), else empty.
      extra: Values of extra columns (`encode_extra`), else empty.
      source_id: Id that the source gives the image, for `image/source_id`; else empty.
      file_name: File name in a record of the source if it is not the key; else empty.
      has_mask_parts: See `Annotations.has_mask_parts`.
      has_unmarked_mask: See `Annotations.has_unmarked_mask`.
      fold: Number of its fold from 0; -1 until the plan assigns one.
    """

    key: str
    uri: str
    label: str = ""
    split: str = ""
    group: str = ""
    size: int = -1
    version: str = ""
    sha256: str = ""
    outcome: str = ""
    reason: str = ""
    crc32c: str = ""
    place: str = ""
    message: str = ""
    annotations: str = ""
    extra: str = ""
    source_id: str = ""
    file_name: str = ""
    has_mask_parts: bool = False
    has_unmarked_mask: bool = False
    fold: int = -1

    @property
    def labels(self) -> tuple[str, ...]:
        """The class names; most images have one."""
        return tuple(self.label.split(LABEL_SEPARATOR)) if self.label else ()

    @property
    def location(self) -> str:
        """Location of the image, for people: its file, and the member of an archive."""
        if not self.place:
            return self.uri
        container = key_from_bytes(os.fsencode(self.uri.rpartition("/")[2])) + "!"
        _, separator, member = self.key.partition(container)
        return f"{self.uri}!{member}" if separator else self.uri

    @property
    def is_candidate(self) -> bool:
        """Whether the image can still be written: no outcome is known yet."""
        return not self.outcome

    def annotated(self, annotations: Annotations) -> ImageRef:
        """Returns the reference with annotations."""
        return self._replace(
            annotations=annotations.encode(),
            has_mask_parts=annotations.has_mask_parts,
            has_unmarked_mask=annotations.has_unmarked_mask,
        )

    def filtered(self, reason: str) -> ImageRef:
        """Returns the reference with the outcome filtered: the file is not a candidate."""
        return self._replace(outcome=Outcome.FILTERED, reason=reason)

    def quarantined(self, reason: str, message: str = "") -> ImageRef:
        """Returns the reference with the outcome quarantined, and the fault."""
        return self._replace(outcome=Outcome.QUARANTINED, reason=reason, message=message)

    @property
    def fingerprint(self) -> str:
        """The source's state as one string; equal fingerprints mean unchanged bytes."""
        return f"{self.size}:{self.version}"

    @property
    def has_known_state(self) -> bool:
        """Whether the states of the image and its mask are known, so that a change can be detected."""
        return self.size >= 0 and bool(self.version) and not self.has_unmarked_mask


def is_image(ref: ImageRef) -> bool:
    """Whether the reference is to an image, even a faulty one, and not to a file of another kind."""
    return not ref.outcome or ref.outcome == Outcome.QUARANTINED


def encode_refs(refs: Iterable[ImageRef]) -> EncodedRefs:
    """Packs references for a stage boundary (20 to 40 bytes each if there are many).

    Fields are stored in columns; if all values of a column are equal, it stores one. If a URI ends with its
    key, only the rest is stored, which the references of an input share; any other URI is stored as a list of
    one.
    """
    columns = list(zip(*refs, strict=True))
    if not columns:
        return b""
    keys, uris, *others = columns
    places = [uri.removesuffix(key) if uri.endswith(key) else [uri] for key, uri in zip(keys, uris)]
    packed: list[Sequence[object]] = [keys]
    for column in (places, *others):
        packed.append(column[:1] if column.count(column[0]) == len(column) else column)
    # ASCII escapes would join surrogates that do not belong to one character.
    text = json.dumps(packed, ensure_ascii=False, separators=(",", ":"))
    return zlib.compress(text.encode("utf-8", "surrogatepass"), 1)


def decode_refs(batch: EncodedRefs) -> Iterator[ImageRef]:
    """Unpacks the result of `encode_refs`."""
    if not batch:
        return iter(())
    packed = json.loads(zlib.decompress(batch).decode("utf-8", "surrogatepass"))
    keys, places, *others = (column * len(packed[0]) if len(column) == 1 else column for column in packed)
    uris = [place + key if type(place) is str else place[0] for key, place in zip(keys, places)]
    # Does the same as ImageRef._make, without a Python call for each.
    return map(tuple.__new__, repeat(ImageRef), zip(keys, uris, *others))


def one_label(name: str) -> str:
    """Returns a folder's name as the name of one class; it may contain any character."""
    return name.replace(LABEL_SEPARATOR, f"%{ord(LABEL_SEPARATOR):02X}")


def key_from_bytes(path: bytes) -> str:
    """Returns the key of a relative path: NFC UTF-8, `%` as `%25`, undecodable bytes as `%HH`.

    >>> key_from_bytes(b"cats/100%/\\xff.png")
    'cats/100%25/%FF.png'
    """
    if path.isascii():
        return path.decode().replace("%", "%25")
    text = path.decode("utf-8", "surrogateescape").replace("%", "%25")
    return unicodedata.normalize("NFC", printable(text))


def as_in_keys(name: str) -> str:
    """Returns the name of a class as folders give it, if a person may have written `%` without `25`.

    A name that already is as in keys is returned unchanged.

    >>> as_in_keys("100%"), as_in_keys("100%25"), as_in_keys("caf%E9")
    ('100%25', '100%25', 'caf%E9')
    """
    escaped = _ESCAPES.sub("", name)
    return name.replace("%", "%25") if "%" in escaped else name


#: `image/source_id` is the number by which evaluation tools identify an image. Readers convert the text with
#: `tf.strings.to_number(text, tf.int64)`. So a generated id is a number from 0 to 2^63 - 1. An id in a record
#: of the source stays as it is.
_NUMBER = re.compile(r"-?[0-9]{1,19}\Z", re.ASCII)


def number_text(value: int | str) -> str:
    """Returns an id as the text of a 64-bit number; empty if it is not one.

    >>> number_text("000000000139"), number_text("a1"), number_text(2**63)
    ('139', '', '')
    """
    if isinstance(value, str) and not _NUMBER.match(value):
        return ""
    number = int(value)
    return str(number) if -(2**63) <= number < 2**63 else ""


def number_of_key(key: str) -> int:
    """Returns the number of an image whose source has no id: 63 bits of the hash of its key."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") >> 1


def source_id_of(ref: ImageRef) -> str:
    """Returns the id that the record of an image stores."""
    return ref.source_id or str(number_of_key(ref.key))
