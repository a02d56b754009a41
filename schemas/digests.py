"""Digests of everything that decides the bytes of a record or a shard."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring_ascii
from typing import Any

from shardwright.schemas.byte_range import BARE_PIXELS, decode_place
from shardwright.schemas.codes import Outcome, Stage
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.ledger import Entry

#: Outcomes of files that are not read unless they have a stage, and the step at which others may fail before
#: that. These are plain strings, because looking up a member of an enumeration takes longer.
_NOT_READ, _LISTED = (Outcome.FILTERED.value, Outcome.DEDUPLICATED.value), Stage.LIST.value


def ref_digest(key: str, line: str) -> str:
    """Returns the digest of a reference: of its part in the record and the ledger line, without its state.

    Args:
      key: Key of the reference.
      line: The rest of what the digest covers (`line_after_key`).

    Returns:
      16 hex digits. That is enough, because only digests of the same key are compared.
    """
    return hashlib.blake2b(f"[{encode_basestring_ascii(key)}, {line}".encode(), digest_size=8).hexdigest()


def line_after_key(ref: ImageRef, label_ids: Sequence[int], *others: object) -> str:
    """Returns everything besides the key that the digest of a reference covers.

    Args:
      ref: The reference.
      label_ids: Ids of its classes, -1 for an unknown one.
      *others: Further values that go into its record.
    """
    line: list[object] = [
        ref.label, *label_ids, ref.sha256, ref.outcome, ref.reason, _lasting(ref), ref.extra, *others,
    ]  # fmt: skip
    if ref.outcome == Outcome.QUARANTINED:
        line.append(ref.message)  # other messages name the place in the listing, which may change
    elif ref.place and (place := decode_place(ref.place)).method in BARE_PIXELS:
        # Raw pixels of another shape are another picture.
        line += [place.method, place.shape, place.planar, place.dtype]
    return json.dumps(line)[1:]


def _lasting(ref: ImageRef) -> str:
    """Returns an image's annotations without the parts that vary between runs or copies of the same source.

    The state of the reference also covers masks in the image's own file, because they are parts of its
    record.
    """
    if not ref.has_mask_parts:
        return ref.annotations
    annotations = json.loads(ref.annotations)
    for holder in (annotations, *annotations.get("objects", ())):
        for name, text in holder.items():
            if name.endswith("_place") and text:
                holder[name] = decode_place(text)._replace(file="", offset=0, file_size=-1, file_version="")
    return json.dumps([annotations, ref.version])


def recipe_digest(settings: Mapping[str, Any], versions: Mapping[str, str]) -> str:
    """Returns the digest of the settings and the software that decide the records of a dataset."""
    head = {"settings": dict(settings), "versions": dict(versions)}
    return hashlib.sha256(json.dumps(head, sort_keys=True).encode()).hexdigest()


class PlanDigest:
    """Computes the digest of everything that decides a shard's bytes, one reference at a time, in order.

    Args:
      recipe: Digest of the settings and versions that decide the records.
    """

    def __init__(self, recipe: str) -> None:
        self._digest = hashlib.sha256(recipe.encode())
        self._source_key = ""

    def add(self, line: str, state: str) -> None:
        """Adds a reference.

        Args:
          line: Digest of the reference (`ref_digest`).
          state: State of its source; empty if it was left out when it was listed.
        """
        self._digest.update(f"\n{line} {state}".encode("utf-8", "surrogateescape"))

    def add_refs(self, refs: Sequence[ImageRef], lines: Sequence[str]) -> None:
        """Adds references; the states of images that are left out do not matter.

        Args:
          refs: The references.
          lines: Their digests (`ref_digest`).
        """
        states = ["" if ref.outcome else ref.fingerprint for ref in refs]
        text = "".join(map("\n{} {}".format, lines, states))
        self._digest.update(text.encode("utf-8", "surrogateescape"))

    def add_entry(self, entry: Entry) -> None:
        """Adds the reference of an entry in the shard's ledger, once for all images made of it."""
        again = bool(entry.source_key) and entry.source_key == self._source_key
        self._source_key = entry.source_key
        if again:
            return
        listed_only = (entry.outcome in _NOT_READ and not entry.stage) or entry.stage == _LISTED
        self.add(entry.digest, "" if listed_only else entry.fingerprint)

    def hexdigest(self) -> str:
        """Returns the sha256 of all references added so far."""
        return self._digest.hexdigest()
