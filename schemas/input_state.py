"""The state of the input of a rebuild, by which the next rebuild detects that nothing has changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardwright.schemas.dataset import WORK_DIR, Document

#: Path of the document, relative to the directory that contains the versions.
INPUT_JSON = f"{WORK_DIR}/input.json"


@dataclass(frozen=True)
class InputState(Document):
    """The input of the latest version. With the same request and listing, there is nothing to rebuild.

    Attributes:
      version: Version that was made of this input, or that this input would not change.
      fingerprint: Fingerprint of that version.
      request: Digest of everything besides the listing that decides what is made: settings, lists of names,
        software.
      listing: Digest of all references of the input (`ListingDigest.text`).
      images: Number of images to convert.
      classes: Number of classes.
      planned: Number of planned shards, with one for files without a key.
      shards: Split -> number of shards.
      tree: Description of the input (`Forecast.tree`).
      splits_from: Whether the source names the splits (`SplitsFrom`).
      checked: Start of the run that compared the input with this version, in seconds since the epoch.
    """

    has_digest = True

    version: str
    fingerprint: str
    request: str
    listing: str
    images: int
    classes: int
    planned: int
    shards: Mapping[str, int]
    tree: str
    splits_from: str
    checked: float
