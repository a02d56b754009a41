"""`ImageRef`: what travels through the pipeline instead of image bytes."""

from __future__ import annotations

import json
import os
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

from shardwright.schemas.annotations import Annotations
from shardwright.schemas.codes import Outcome

#: A batch of references as it crosses a stage boundary: compressed JSON, a list per field.
EncodedRefs = bytes
#: Between the class names of an image that has several.
LABEL_SEPARATOR = "\x1f"
#: Under which what has no key of its own is counted: rows that name no image, damaged archives.
NO_SPLIT = "none"


class ImageRef(NamedTuple):
    """A pointer to one source image with all that planning needs to know; no pixels.

    Attributes:
      key: path relative to its input, `/`-separated, NFC; unique in a dataset.
      uri: where the bytes are. Local paths carry undecodable bytes as surrogate escapes.
      label: class name; empty when the source gives none, several joined by `LABEL_SEPARATOR`.
      split: split name; empty until the plan assigns one, unless the source says it.
      group: what must not straddle two splits; empty means the key itself.
      size: source bytes; -1 when unknown.
      version: the source's own mark of its state (mtime in ns, or an object's generation).
      sha256: hex digest of the source bytes when already known, else empty.
      outcome: decided before reading (filtered, deduplicated, quarantined), else empty.
      reason: of that outcome: a filter reason, the winning key, or a quarantine reason.
      crc32c: of the source bytes as object storage lists it (base64, big endian), else empty.
      place: which part of the file the bytes are (`Place.encode`); empty for all of it.
      message: one sentence about the fault of a reference that is quarantined already; else which row
        or record of its source it comes from, or what that lacks, where there is such a thing.
      annotations: what else is known of the image (`annotated` sets it), else empty.
      extra: the values of extra columns (`encode_extra`), else empty.
      source_id: the id that the source gives the image, for `image/source_id`; else empty.
      file_name: the file name that a record of the source has, where that is not the key; else empty.
      has_mask_parts: as `Annotations.has_mask_parts`.
      has_unmarked_mask: as `Annotations.has_unmarked_mask`.
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

    @property
    def labels(self) -> tuple[str, ...]:
        """The class names; most images have one."""
        if LABEL_SEPARATOR in self.label:
            return tuple(self.label.split(LABEL_SEPARATOR))
        return (self.label,) if self.label else ()

    @property
    def location(self) -> str:
        """Where the image is, for people: its file, and the member of an archive."""
        if not self.place:
            return self.uri
        container = key_from_bytes(os.fsencode(self.uri.rpartition("/")[2])) + "!"
        _, found, member = self.key.partition(container)
        return f"{self.uri}!{member}" if found else self.uri

    @property
    def is_candidate(self) -> bool:
        """True while nothing speaks against the image."""
        return not self.outcome

    def annotated(self, annotations: Annotations) -> ImageRef:
        """Returns the reference with what else is known of its image."""
        return self._replace(
            annotations=annotations.encode(),
            has_mask_parts=annotations.has_mask_parts,
            has_unmarked_mask=annotations.has_unmarked_mask,
        )

    def filtered(self, reason: str) -> ImageRef:
        """Returns the reference as one of what is no candidate."""
        return self._replace(outcome=Outcome.FILTERED, reason=reason)

    def quarantined(self, reason: str, message: str = "") -> ImageRef:
        """Returns the reference as one of an image that has a fault, and what it is."""
        return self._replace(outcome=Outcome.QUARANTINED, reason=reason, message=message)

    @property
    def fingerprint(self) -> str:
        """The source's state as one string; equal fingerprints mean unchanged bytes."""
        return f"{self.size}:{self.version}"

    @property
    def has_known_state(self) -> bool:
        """Whether the known states of the image and its mask suffice to tell that neither changed."""
        return self.size >= 0 and bool(self.version) and not self.has_unmarked_mask


def is_image(ref: ImageRef) -> bool:
    """Whether a reference is to an image, even if a faulty one, and not to a file of another kind."""
    return ref.is_candidate or ref.outcome == Outcome.QUARANTINED


def encode_refs(refs: Iterable[ImageRef]) -> EncodedRefs:
    """Packs references for a stage boundary (20 to 40 bytes each, if they are many).

    Fields stand in columns, one value for all where they agree. Of a URI that ends with its key
    only the rest is stored, which the references of an input share; any other as a list of one.
    """
    columns = list(zip(*refs, strict=True))
    if not columns:
        return b""
    keys, uris, *others = columns
    places = [uri.removesuffix(key) if uri.endswith(key) else [uri] for key, uri in zip(keys, uris)]
    packed = [keys, *(column[:1] if _is_constant(column) else column for column in (places, *others))]
    # Not in ASCII: its escapes would join surrogates that are none of one character.
    text = json.dumps(packed, ensure_ascii=False, separators=(",", ":"))
    return zlib.compress(text.encode("utf-8", "surrogatepass"), 1)


def _is_constant(column: Sequence[object]) -> bool:
    return column.count(column[0]) == len(column)


def decode_refs(batch: EncodedRefs) -> Iterator[ImageRef]:
    """Unpacks what `encode_refs` packed."""
    if not batch:
        return iter(())
    packed = json.loads(zlib.decompress(batch).decode("utf-8", "surrogatepass"))
    keys, places, *others = (column * len(packed[0]) if len(column) == 1 else column for column in packed)
    uris = [place + key if type(place) is str else place[0] for key, place in zip(keys, places)]
    # What ImageRef._make does, without a call of Python code for each.
    return map(tuple.__new__, repeat(ImageRef), zip(keys, uris, *others))


def one_label(name: str) -> str:
    """Returns a name as that of one class, whatever characters a folder's name holds."""
    return name.replace(LABEL_SEPARATOR, f"%{ord(LABEL_SEPARATOR):02X}")


def key_from_bytes(path: bytes) -> str:
    """Returns the key of a relative path: NFC UTF-8, `%` as `%25`, undecodable bytes as `%HH`.

    >>> key_from_bytes(b"cats/100%/\\xff.png")
    'cats/100%25/%FF.png'
    """
    text = path.decode("utf-8", "surrogateescape").replace("%", "%25")
    return unicodedata.normalize("NFC", printable(text))


def printable(text: str) -> str:
    """Replaces the surrogate escapes of undecodable bytes by `%HH`, for files and screens."""
    if text.isascii() or not any("\udc80" <= char <= "\udcff" for char in text):
        return text
    return "".join(f"%{ord(char) - 0xDC00:02X}" if "\udc80" <= char <= "\udcff" else char for char in text)
