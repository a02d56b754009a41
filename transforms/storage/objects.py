"""What all object storage has in common: what it tells of an object, and who decides how it is reached."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple


class StoredObject(NamedTuple):
    """An object as its storage lists it.

    Attributes:
      path: with its scheme, `gs://BUCKET/NAME`.
      size: bytes.
      version: the storage's own mark of its state: its generation, or when it was last changed.
      crc32c: of its bytes, base64 of the big-endian value; empty where the storage keeps none.
    """

    path: str
    size: int
    version: str
    crc32c: str = ""


def beam_options() -> Any:
    """Returns Beam's options of this process, if Beam is in use: on workers they come with the job."""
    module = sys.modules.get("apache_beam.io.filesystems")
    return module.FileSystems._pipeline_options if module else None
