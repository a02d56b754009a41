"""The interface of a storage: one class for each, in this folder, and `BeamStore` for what Beam can open.

A store sends requests, and nothing else. The functions of the package add what all stores share: reads of
large objects in parts, listings that end, and answers for missing files. `RemoteStore.run` adds retries with
deadlines and one sentence for each error (`faults`).
"""

from __future__ import annotations

import hashlib
import io
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import IO, Any, ClassVar, NamedTuple

from shardwright.core.concurrency.resources import job_options, values_of
from shardwright.core.storage.faults import Contact, Fault, Result, retried
from shardwright.schemas.errors import EngineError

#: Size of the parts in bytes in which large objects are read and sent. One request carries one part.
PART_BYTES = 16 << 20
#: Number of consecutive pages without new paths; storages send some where objects were deleted.
MAX_EMPTY_PAGES = 1000
_DIGEST_BYTES = 16


class NoConditions(EngineError):
    """A storage rejects conditional requests, so that two writers cannot know who was first."""


class ObjectTooLarge(Exception):
    """An object is larger than the limit of its reader, and was not read to its end.

    Attributes:
      size: Size in bytes; -1 if the storage does not state it.
    """

    def __init__(self, size: int = -1) -> None:
        super().__init__(f"{size} bytes")
        self.size = size


class StoredObject(NamedTuple):
    """An object of a storage.

    Attributes:
      path: Path with its scheme, `gs://BUCKET/NAME`.
      size: Size in bytes.
      version: The storage's mark of its state: its generation, its ETag, or when it was last changed.
      crc32c: crc32c of its bytes, as base64 of the big-endian value; empty if the storage has none.
      modified: When it was last written, by the storage's clock in seconds since the epoch. None if unknown,
        as in listings.
    """

    path: str
    size: int
    version: str
    crc32c: str = ""
    modified: float | None = None


class ListedPage(NamedTuple):
    """A page of a listing.

    Attributes:
      objects: Objects in the storage's order.
      folders: Names of the folders directly in the listed directory.
      token: Where the listing goes on after this page; empty if this is known to be the last page.
    """

    objects: list[StoredObject]
    folders: list[str]
    token: str


def content_type(path: str) -> str:
    """Returns the content type of an object, so that browsers show pages and documents."""
    if path.endswith(".html"):
        return "text/html"
    return "application/json" if path.endswith(".json") else "application/octet-stream"


class Store(ABC):
    """One kind of storage. Paths are whole, such as `gs://BUCKET/NAME`.

    A missing file raises FileNotFoundError, a forbidden one PermissionError.
    """

    def run(self, doing: str, path: str, send: Callable[[], Result]) -> Result:
        """Calls a function that sends requests with the other methods.

        Args:
          doing: What it does, for messages: `read`, `write`, `look for`, `list`, `copy` or `remove`.
          path: Path of the file or folder.
          send: The function.
        """
        return send()

    @abstractmethod
    def pages(self, directory: str, deep: bool) -> Iterator[ListedPage]:
        """Yields the pages of the files below a directory, or directly in it."""

    @abstractmethod
    def read(self, path: str, version: str = "", limit: int = -1) -> bytes:
        """Reads a file; if a version is given, only that version.

        Without a version, the bytes are compared with the checksum of the storage, if it states one.

        Raises:
          ObjectTooLarge: If the file has more bytes than the limit; -1 is none.
        """

    @abstractmethod
    def read_range(self, path: str, offset: int, length: int, size: int = -1, version: str = "") -> bytes:
        """Reads a range of a file, of a version if given; the result is shorter at the end of the file."""

    @abstractmethod
    def write(self, path: str, data: bytes, inside: str = "") -> None:
        """Writes a file that appears whole or not at all; a disk must have the directory `inside`."""

    @abstractmethod
    def write_if(self, path: str, data: bytes, version: str | None) -> bool:
        """Writes a file if its version is unchanged; None if there must be none. Returns whether it did."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Removes a file."""

    @abstractmethod
    def stat(self, path: str) -> StoredObject:
        """Returns the metadata of a file."""


class _Seen:
    """Distinguishes new paths from known ones.

    Storages list in the byte order of names. While they do, a path takes 16 bytes here. After the first one
    that is out of order, each path is looked up.
    """

    def __init__(self) -> None:
        self._last = b""
        self._digests = bytearray()
        self._digest_set: set[bytes] | None = None

    def is_new(self, path: str) -> bool:
        """Returns whether a path is seen for the first time."""
        name = path.encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(name, digest_size=_DIGEST_BYTES).digest()
        if self._digest_set is None and name > self._last:
            self._last = name
            self._digests += digest
            return True
        if self._digest_set is None:
            starts = range(0, len(self._digests), _DIGEST_BYTES)
            self._digest_set = {bytes(self._digests[start : start + _DIGEST_BYTES]) for start in starts}
            self._digests.clear()
        is_new = digest not in self._digest_set
        self._digest_set.add(digest)
        return is_new


class RemoteStore(Store):
    """A storage that answers over a network.

    Attributes:
      environment: Variables that select a server; if one changes, the next request makes a new client.
    """

    environment: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self._contact = Contact()
        self._lock = threading.RLock()
        self._client: Any = None
        self._client_key: tuple[Any, ...] = ()
        self._clients_of_parents: list[Any] = []
        os.register_at_fork(after_in_child=self._start_in_child)

    @abstractmethod
    def connect(self, options: Mapping[str, Any]) -> Any:
        """Returns a new client for the values of Beam's options; there are none if Beam is not in use."""

    @abstractmethod
    def list_pages(self, directory: str, deep: bool, token: str) -> Iterator[ListedPage]:
        """Yields the pages that follow a token, as the storage sends them; all follow the empty token."""

    @abstractmethod
    def upload(self, file: IO[bytes], path: str) -> None:
        """Writes an open local file, from its beginning, so that it appears whole or not at all."""

    @abstractmethod
    def copy(self, source: str, target: str) -> bool:
        """Copies a file without reading it; returns false if the storage cannot do that."""

    @abstractmethod
    def fault(self, doing: str, path: str, error: Exception) -> Fault | None:
        """Explains an error of the client; returns None for any other error."""

    def client(self) -> Any:
        """Returns the client of this process, which all threads share. Other options make a new one."""
        options = job_options()
        key = (options, *map(os.environ.get, self.environment))
        with self._lock:
            if key != self._client_key:
                self._contact.forget()
                self._client, self._client_key = self.connect(values_of(options)), key
            return self._client

    def _start_in_child(self) -> None:
        """Starts anew in a child of `fork`.

        The child keeps the client that it inherits: letting obstore's objects go would wait for a lock that a
        thread of the parent may have held. That is also true of the lock here.
        """
        self._lock = threading.RLock()
        self._clients_of_parents.append(self._client)
        self._client, self._client_key = None, ()

    def write(self, path: str, data: bytes, inside: str = "") -> None:
        """Writes a file in one upload."""
        self.upload(io.BytesIO(data), path)

    def split_path(self, path: str) -> tuple[str, str]:
        """Returns the bucket and the object name of a path."""
        bucket, _, name = path.partition("://")[2].partition("/")
        return bucket, name

    def split_folder(self, path: str) -> tuple[str, str]:
        """Returns the bucket of a folder and the prefix of its objects, which is empty for a whole bucket."""
        bucket, name = self.split_path(path)
        return bucket, f"{name}/" if name and not name.endswith("/") else name

    def pages(self, directory: str, deep: bool) -> Iterator[ListedPage]:
        """Yields the pages of a listing, without repeated paths and without markers of empty folders.

        A listing that was cut off goes on after its last page.

        Raises:
          EngineError: If the listing does not end, because the storage repeats pages.
        """
        seen, tokens, empty, token = _Seen(), set[str](), 0, ""
        pages: Iterator[ListedPage] | None = None

        def next_page() -> ListedPage | None:
            nonlocal pages
            listed, pages = pages or self.list_pages(directory, deep, token), None
            page = next(listed, None)
            pages = listed  # after an error, a new listing goes on
            return page

        while (page := self.run("list", directory, next_page)) is not None:
            objects = [item for item in page.objects if seen.is_new(item.path)]
            folders = [name for name in dict.fromkeys(page.folders) if seen.is_new(f"{directory}/{name}/")]
            yield ListedPage([item for item in objects if not item.path.endswith("/")], folders, page.token)
            empty = 0 if objects or folders else empty + 1
            token = page.token
            if not token:
                return
            if token in tokens or empty >= MAX_EMPTY_PAGES:
                raise EngineError(
                    f"Cannot list {directory}: the storage sends the same page again and again; "
                    "check what stands between this machine and the storage (a proxy, an emulator), then run "
                    "again with --resume."
                )
            tokens.add(token)

    def run(self, doing: str, path: str, send: Callable[[], Result]) -> Result:
        """Calls a function that sends requests until it succeeds, within one deadline."""
        return retried(self._contact, path, send, partial(self._explained, doing, path))

    def _explained(self, doing: str, path: str, error: Exception) -> Fault | None:
        """Returns what `fault` does. After a refusal, the next request makes a new client.

        By then, a notebook may have other credentials, as after `aws configure`.
        """
        fault = self.fault(doing, path, error)
        if fault is not None and not fault.retries and isinstance(fault.error, EngineError):
            self._client_key = ()
        return fault
