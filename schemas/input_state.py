"""The state of the input of a rebuild, by which the next rebuild detects that nothing has changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from shardwright.schemas.dataset import DIGEST, WORK_DIR, has_own_digest, pretty_json, with_digest

FORMAT_VERSION = 1
#: Path of the document, relative to the directory that contains the versions.
INPUT_JSON = f"{WORK_DIR}/input.json"


@dataclass(frozen=True)
class InputState:
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

    def dumps(self) -> str:
        """Returns the document as it is stored."""
        return pretty_json(with_digest({"format_version": FORMAT_VERSION, **asdict(self)}))

    @staticmethod
    def loads(data: bytes) -> InputState:
        """Reads a stored document.

        Raises:
          ValueError: If it is damaged or has another format.
        """
        try:
            value = json.loads(data)
            if value["format_version"] != FORMAT_VERSION:
                raise ValueError("it has another format_version")
            if DIGEST not in value or not has_own_digest(value):
                raise ValueError("it does not match its digest")
            return InputState(
                version=str(value["version"]),
                fingerprint=str(value["fingerprint"]),
                request=str(value["request"]),
                listing=str(value["listing"]),
                images=int(value["images"]),
                classes=int(value["classes"]),
                planned=int(value["planned"]),
                shards={str(split): int(count) for split, count in value["shards"].items()},
                tree=str(value["tree"]),
                splits_from=str(value["splits_from"]),
                checked=float(value["checked"]),
            )
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"it is damaged ({error!r})") from error
