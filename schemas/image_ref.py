"""`ImageRef`: what travels through the pipeline instead of image bytes."""

from __future__ import annotations

import json
import unicodedata
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

#: A batch of references as it crosses a stage boundary: compressed JSON lines.
EncodedRefs = bytes


class ImageRef(NamedTuple):
    """A pointer to one source image with all that planning needs to know; no pixels.

    Attributes:
      key: path relative to its input, `/`-separated, NFC; unique in a dataset.
      uri: where the bytes are. Local paths carry undecodable bytes as surrogate escapes.
      label: class name; empty when the source gives none.
      split: split name; empty until the plan assigns one, unless the source says it.
      group: what must not straddle two splits; empty means the key itself.
      size: source bytes; -1 when unknown.
      version: the source's own mark of its state (mtime in ns, or an object's generation).
      sha256: hex digest of the source bytes when already known, else empty.
      outcome: decided before reading (filtered, deduplicated, quarantined), else empty.
      reason: of that outcome: a filter reason, the winning key, or a quarantine reason.
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

    @property
    def is_candidate(self) -> bool:
        """True while nothing speaks against the image."""
        return not self.outcome

    @property
    def fingerprint(self) -> str:
        """The source's state as one string; equal fingerprints mean unchanged bytes."""
        return f"{self.size}:{self.version}"


def encode_refs(refs: Iterable[ImageRef]) -> EncodedRefs:
    """Packs references for a stage boundary (about 60 bytes each)."""
    lines = "\n".join(json.dumps(ref, separators=(",", ":")) for ref in refs)
    return zlib.compress(lines.encode("ascii"), 1)


def decode_refs(batch: EncodedRefs) -> Iterator[ImageRef]:
    """Unpacks what `encode_refs` packed."""
    text = zlib.decompress(batch).decode("ascii")
    for line in text.split("\n") if text else ():
        yield ImageRef._make(json.loads(line))


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
