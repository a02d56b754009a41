"""Conditional requests to Google Cloud Storage: an object's generation is the tag of its state."""

from __future__ import annotations

import contextlib

from shardwright.transforms.storage import gcs
from shardwright.transforms.storage.faults import changed
from shardwright.transforms.storage.stored_object import content_type

#: Number of attempts to read an object that is written between the request for its state and its reading.
_ATTEMPTS_TO_MEET = 20


def read_with_etag(path: str) -> tuple[bytes, str] | None:
    """Reads an object and its generation; None if there is none."""
    for _ in range(_ATTEMPTS_TO_MEET):
        found = gcs.stat(path)
        if found is None:
            return None
        with contextlib.suppress(FileNotFoundError):  # written in between
            return gcs.read_bytes(path, found.version), found.version
    raise changed(path)


def write_if_match(path: str, data: bytes, tag: str | None) -> bool:
    """Writes an object if its generation is unchanged; with None, only if it does not exist."""
    from google.api_core.exceptions import PreconditionFailed

    def upload() -> None:
        blob = gcs._blob(path)
        blob.cache_control = "no-store"  # otherwise caches serve public objects for an hour
        blob.upload_from_string(
            data,
            content_type(path),
            checksum="crc32c",
            retry=gcs._retry(),
            timeout=gcs._TIMEOUT,
            if_generation_match=int(tag or 0),
        )

    with gcs._translated_errors("write", path):
        try:
            gcs._again(upload, gcs._UPLOAD_AGAIN)
        except PreconditionFailed:
            return False
    return True


def remove_if_match(path: str, tag: str) -> bool:
    """Removes an object if its generation is unchanged."""
    from google.api_core.exceptions import PreconditionFailed

    with contextlib.suppress(FileNotFoundError), gcs._translated_errors("remove", path):
        try:
            gcs._blob(path).delete(retry=gcs._retry(), timeout=gcs._TIMEOUT, if_generation_match=int(tag))
        except PreconditionFailed:
            return not gcs.exists(path)
    return True
