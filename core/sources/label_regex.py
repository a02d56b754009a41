"""Reads class, split and group from file names with a regular expression (`--label_regex`)."""

from __future__ import annotations

import re

from shardwright.core.sources.image_files import split_name
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.image_ref import ImageRef, one_label


def take_apart(ref: ImageRef, pattern: re.Pattern[str], prefix: str) -> ImageRef:
    """Returns a reference with the class, split and group in its file name, or the reason why there are none.

    Args:
      ref: Reference to a file; its folders are not used for class and split.
      pattern: Expression with a group `label`, and optionally `split` and `group`. It must match the whole
        file name, or the whole path below the input or inside the archive.
      prefix: Prefix of all keys of the input.
    """
    if not ref.is_candidate:
        return ref._replace(label="", split="")
    path = ref.key.removeprefix(prefix)
    names = [path.rpartition("/")[2], path]
    if ref.place:
        inside = path.partition("!")[2]
        names += [inside.rpartition("/")[2], inside]
    match = next(filter(None, map(pattern.fullmatch, names)), None)
    named = match.groupdict(default="") if match else {}
    if not named.get("label"):
        return ref._replace(label="", split="", message="its name does not match --label_regex")
    try:
        split = split_name(named.get("split", ""))
    except ValueError as error:
        return ref.quarantined(QuarantineReason.BAD_ANNOTATION, str(error))
    return ref._replace(label=one_label(named["label"]), split=split, group=named.get("group", ""))
