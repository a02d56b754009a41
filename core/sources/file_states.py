"""Gets the states of files that annotations name, with which resume and rebuild detect changes."""

from __future__ import annotations

import hashlib
import math
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from shardwright.core import storage
from shardwright.core.sources.annotation_files import side_by_side
from shardwright.core.sources.image_files import MISSING, below, is_file
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.image_ref import ImageRef

#: Fewest objects that are listed before the listing is given up.
MIN_LISTED = 10_000
#: Objects to list for each wanted one: listing a thousand takes as long as one request.
LISTED_FOR_EACH = 10


def name_hash(name: str) -> int:
    """Returns 64 bits of a name's BLAKE2b digest, which is the same in every process, unlike `hash`.

    Hashes save memory where millions of names would be stored.

    Args:
      name: Name; bytes that are not UTF-8 are surrogate escapes.

    Returns:
      A number from 0 to 2**64 - 1.
    """
    digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


class FileStates:
    """Finds the states of files, most of which are in one folder.

    A folder of object storage is listed completely, unless it holds far more objects than are wanted.

    Args:
      folder: Folder of the files, which is listed if it is remote.
      count: Approximate number of wanted files.
    """

    def __init__(self, folder: str, count: int) -> None:
        self.folder = folder.rstrip("/")
        #: Hash of each object's path -> its size, checksum and version: about 200 bytes for each.
        self._listing: dict[int, str] | None = None
        if count and storage.is_remote(folder):
            items = storage.list_objects(f"{self.folder}/")
            listed = islice(items, max(MIN_LISTED, LISTED_FOR_EACH * count))
            listing = {name_hash(item.path): f"{item.size} {item.crc32c} {item.version}" for item in listed}
            self._listing = listing if next(items, None) is None else None

    def has(self, path: str) -> bool | None:
        """Returns whether a file exists; None if only a request for this file would tell."""
        if storage.is_remote(path):
            listed = self._listing is not None and below(path, self.folder) is not None
            return self.find(path) is not None if listed else None
        return is_file(path)

    def find(self, path: str) -> storage.StoredObject | None:
        """Returns the state of a file; None if it does not exist or cannot be read."""
        if self._listing is not None and below(path, self.folder) is not None:
            state = self._listing.get(name_hash(path))
            if state is None:
                return None
            size, crc32c, version = state.split(" ", 2)
            return storage.StoredObject(path, int(size), version, crc32c)
        try:
            return storage.stat(path)
        except (OSError, ValueError):  # reading the file later reports the fault
            return None


@dataclass(frozen=True)
class TouchedFiles:
    """The local files that may have new bytes although their sizes and modification times are the same.

    A copy that keeps the modification time, or a program that sets it, cannot set the change time (ctime).
    Other names, permissions and copies of a folder change it, too, so only the bytes of such a file decide.
    The change time is compared and never stored: equal files give equal ledgers.

    Attributes:
      since: Time in seconds since the epoch at which the files were as the earlier build states; infinity to
        trust every state.
      spool: Folder of spool files, which each run writes again. Their names state the files they are from.
    """

    since: float = math.inf
    spool: str = ""

    def has(self, ref: ImageRef) -> bool:
        """Returns whether the file of a reference was touched since then."""
        if self.since == math.inf or storage.is_remote(ref.uri):
            return False
        if self.spool and ref.uri.startswith(f"{self.spool}/"):
            return False
        try:
            return os.stat(ref.uri).st_ctime > self.since
        except (OSError, ValueError):  # reading the file later reports the fault
            return False


def with_states(refs: Iterable[ImageRef], states: FileStates) -> Iterator[ImageRef]:
    """Yields references in order, with the sizes and states of their files, or marked as missing.

    Args:
      refs: References; those that are not candidates stay unchanged.
      states: States of the files, most of which are in its folder.
    """
    return side_by_side(lambda ref: _with_state(ref, states), refs, states.folder)


def _with_state(ref: ImageRef, states: FileStates) -> ImageRef:
    if not ref.is_candidate:
        return ref
    if not storage.is_remote(ref.uri):
        return _with_local_state(ref)
    found = states.find(ref.uri)
    if found is None:
        return ref.quarantined(QuarantineReason.BAD_ANNOTATION, MISSING)
    return ref._replace(size=found.size, version=found.version, crc32c=found.crc32c)


def _with_local_state(ref: ImageRef) -> ImageRef:
    try:
        status = os.stat(ref.uri)
    except PermissionError:
        return ref
    except (OSError, ValueError):
        return ref.quarantined(QuarantineReason.BAD_ANNOTATION, MISSING)
    if not stat.S_ISREG(status.st_mode):
        return ref.quarantined(QuarantineReason.BAD_ANNOTATION, "its image is not a regular file")
    return ref._replace(size=status.st_size, version=storage.local_version(status))
