"""Reads objects through obstore, at about a sixth of the processor time of a storage's own client.

A quick read is one attempt, and only an answer that passes every check counts. Otherwise the storage's own
client reads the object, with its retries, its deadlines and its messages. So a quick read never decides that
an object is missing, forbidden, damaged or changed.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import time
from datetime import timedelta
from typing import Any

from shardwright.transforms.storage.deadlines import current

#: Seconds that a quick read may take in all, to connect, and without a byte. An operation with less time left
#: leaves the read to the storage's own client, which keeps to any deadline.
READ_SECONDS, CONNECT_SECONDS, SILENT_SECONDS = 30, 5, 10
#: Number of consecutive failures after which a bucket is left to its own client, and the seconds of the first
#: and of the longest such rest.
FAILURES, FIRST_REST_SECONDS, MAX_REST_SECONDS = 3, 60.0, 3600.0
#: Names that obstore changes or refuses: empty segments, `.` and `..`, control characters, text that is not
#: Unicode.
_OTHER_NAMES = re.compile(r"\A/|//|/\Z|\A\Z|(?:\A|/)\.\.?(?:/|\Z)|[\x00-\x1f\x7f\ud800-\udfff]")
_MD5 = re.compile(r"[0-9a-f]{32}")

_forked = False


def _note_fork() -> None:
    """Notes in a child of `fork` that obstore cannot be used: its threads exist in the parent only."""
    global _forked
    _forked = _forked or "obstore" in sys.modules


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def keeps_name(name: str) -> bool:
    """Returns whether obstore asks for an object of exactly this name."""
    return not _OTHER_NAMES.search(name)


def is_md5(text: str) -> bool:
    """Returns whether a text looks like the hex digits of an MD5."""
    return bool(_MD5.fullmatch(text))


def client_options(url: str) -> dict[str, Any]:
    """Returns the options of obstore's HTTP client for the server of a URL."""
    return {
        "allow_http": url.startswith("http://"),
        "timeout": timedelta(seconds=READ_SECONDS),
        "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
        "read_timeout": timedelta(seconds=SILENT_SECONDS),
    }


def no_retries() -> dict[str, Any]:
    """Returns obstore's settings for a single attempt."""
    return {"max_retries": 0, "retry_timeout": timedelta(0)}


class QuickReader:
    """Reads the objects of one bucket through obstore; rests for a while if that keeps failing.

    Args:
      store: obstore's store of the bucket.
    """

    def __init__(self, store: Any) -> None:
        self._store = store
        self._failures, self._rests_until = 0, 0.0

    def read(
        self,
        name: str,
        etag: str = "",
        md5: str | None = None,
        span: tuple[int, int] | None = None,
        limit: int = -1,
    ) -> bytes | None:
        """Reads an object or a range of it.

        Args:
          name: name of the object.
          etag: ETag that the object must have, without quotation marks; empty if unknown.
          md5: MD5 of the object in hex digits; empty if unknown; None if its ETag is its MD5.
          span: offsets of the first byte and after the last byte; None for the whole object.
          limit: largest size to read in bytes; -1 for none.

        Returns:
          The bytes; None if the storage's own client must read the object.
        """
        operation = current()
        if (
            _forked
            or time.monotonic() < self._rests_until
            or (operation is not None and operation.seconds_left() < READ_SECONDS)
            or not keeps_name(name)
        ):
            return None
        data = self._attempt(name, etag, md5, span, limit)
        if data is not None:
            self._failures = 0
        return data

    def _attempt(
        self, name: str, etag: str, md5: str | None, span: tuple[int, int] | None, limit: int
    ) -> bytes | None:
        from obstore import get
        from obstore.exceptions import PreconditionError

        options: Any = {
            **({"if_match": f'"{etag}"'} if etag else {}),
            **({"range": span} if span else {}),
        }
        try:
            answer = get(self._store, name, options=options or None)
            if 0 <= limit < answer.meta["size"]:
                return None
            found = (answer.meta["e_tag"] or "").strip('"')
            data: bytes = answer.bytes().to_bytes()
        except (FileNotFoundError, PreconditionError):  # the other client asks again, because it must be sure
            return None
        except Exception:  # a fault of the storage, of the network or of obstore
            self._failed()
            return None
        expected = "" if span else found if md5 is None else md5
        if (etag and found != etag) or (expected and expected != _md5_of(data)):
            self._failed()
            return None
        return data

    def _failed(self) -> None:
        """Records a failure; after some, the reader rests."""
        self._failures += 1
        if self._failures >= FAILURES:
            seconds = FIRST_REST_SECONDS * 2.0 ** min(self._failures - FAILURES, 10)
            self._rests_until = time.monotonic() + min(seconds, MAX_REST_SECONDS)


def _md5_of(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
