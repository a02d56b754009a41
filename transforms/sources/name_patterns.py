"""What an expression (`--label_regex`) says of an image by its name."""

from __future__ import annotations

import re

from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.image_ref import ImageRef, one_label
from shardwright.transforms.sources.split_names import split_name


def take_apart(ref: ImageRef, pattern: re.Pattern[str], prefix: str) -> ImageRef:
    """Returns a reference with what its file name says, or with why it says nothing.

    Args:
      ref: of a file; what its folders say does not count.
      pattern: with a group `label`, and perhaps `split` and `group`. It has to match the whole of the
        file's name, or of its path below the input or in its archive.
      prefix: what the keys of the input begin with.
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
