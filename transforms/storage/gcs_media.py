"""Sends GET requests of the JSON API of Google Cloud Storage through libcurl, one for each object.

Google's own client spends more than ten times the processor time on a small object. libcurl transfers without
the interpreter lock, so that other threads decode meanwhile. One thread runs all transfers (`transfers.py`).
"""

from __future__ import annotations

import base64
import json
import os
import select
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import IO, Any, NamedTuple
from urllib.parse import quote, urlencode

import google_crc32c

from shardwright.schemas import __version__
from shardwright.schemas.errors import words_of
from shardwright.transforms.concurrency.pool import CONNECTIONS, READS_AHEAD
from shardwright.transforms.concurrency.underway import UNDERWAY
from shardwright.transforms.storage.deadlines import CONNECT_SECONDS, TransferClock, current
from shardwright.transforms.storage.stored_object import ObjectTooLarge
from shardwright.transforms.storage.transfers import Transfer, Transfers

try:
    import pycurl
except ImportError:  # no wheel for this system: Google's own client reads
    pycurl = None

#: Statuses of an answer that the same request may not get again.
TRANSIENT_STATUSES = frozenset((408, 429, 500, 502, 503, 504))
_OK, _PARTIAL, _UNAUTHORIZED, _NOT_FOUND = 200, 206, 401, 404
#: Bytes that libcurl receives at once.
_BUFFER_BYTES = 1 << 19
#: Bytes of a refusal that are kept for the message.
_REFUSAL_BYTES = 1 << 14
_MAX_REDIRECTS = 5
_HAS_POLL = hasattr(select, "poll")
#: Environment variables with other certificates, in the order in which they count.
_CERTIFICATES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")


def is_available() -> bool:
    """Returns whether libcurl is installed, and the system can wait for its sockets; Windows cannot."""
    return pycurl is not None and _HAS_POLL


class Refused(Exception):
    """The storage answers with an error.

    Attributes:
      status: HTTP status.
      message: what the storage says.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status} {message}")
        self.status, self.message = status, message

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in TRANSIENT_STATUSES


class Unreachable(Exception):
    """A request got no complete answer.

    Attributes:
      is_transient: whether the same request may succeed later.
    """

    def __init__(self, message: str, is_transient: bool = True) -> None:
        super().__init__(message)
        self.is_transient = is_transient


class Damaged(Exception):
    """The bytes of an object do not match its checksum."""


def object_place(path: str) -> str:
    """Returns the place of an object in the JSON API, for its `gs://` path."""
    bucket, _, name = path.removeprefix("gs://").partition("/")
    return f"/b/{quote(bucket, safe='')}/o/{quote(name, safe='')}"


class Download:
    """Bytes on their way to this machine: an object, a range of it, or a document of the JSON API.

    A transfer of an object that breaks off goes on where it stopped.

    Args:
      target: path of the request with the beginning of its query.
      generation: generation to read; empty for the newest.
      first: offset of the first byte.
      length: number of bytes; -1 for all.
      checked: whether to compare the bytes with the checksum in the answer; only for whole objects.
      file: file that gets the bytes; None to keep them in memory.
      limit: number of bytes after which the transfer is given up; -1 for none.
    """

    def __init__(
        self,
        target: str,
        generation: str = "",
        first: int = 0,
        length: int = -1,
        checked: bool = False,
        file: IO[bytes] | None = None,
        limit: int = -1,
    ) -> None:
        self._target = target
        self._wanted, self._first, self._length = generation, first, length
        self._checked, self._file, self._limit = checked, file, limit
        self.restart()

    @property
    def is_object(self) -> bool:
        """Whether these are the bytes of an object, not a document about it."""
        return "alt=media" in self._target

    @property
    def is_to_file(self) -> bool:
        """Whether a file gets the bytes."""
        return self._file is not None

    @property
    def is_checked(self) -> bool:
        """Whether the bytes are compared with the checksum in the answer."""
        return self._checked

    @property
    def limit(self) -> int:
        """Number of bytes after which the transfer is given up; -1 for none."""
        return self._limit

    @classmethod
    def of_object(cls, path: str, generation: str = "", **options: Any) -> Download:
        """Returns the download of an object, for its `gs://` path."""
        return cls(f"/download/storage/v1{object_place(path)}?alt=media", generation, **options)

    @classmethod
    def of_document(cls, place: str, query: Mapping[str, str]) -> Download:
        """Returns the download of a document of the JSON API."""
        return cls(f"/storage/v1{place}?alt=json&{urlencode(query)}")

    def restart(self) -> None:
        """Drops what has arrived."""
        self._parts: list[bytes] = []
        self._received, self._crc32c = 0, 0
        self._generation, self._expected_crc32c = self._wanted, ""
        self._is_whole = False
        if self._file is not None:
            self._file.seek(0)
            self._file.truncate()

    def target(self) -> str:
        """Returns path and query of the request."""
        generation = f"&generation={self._generation}" if self._generation else ""
        return f"{self._target}{generation}"

    def range(self) -> str:
        """Returns the range of bytes to request, as HTTP writes it; empty for the whole object."""
        begin = self._first + self._received
        if self._length < 0:
            return f"bytes={begin}-" if begin else ""
        return f"bytes={begin}-{self._first + self._length - 1}"

    def begin(self, status: int, size: int = 0) -> None:
        """Prepares for the bytes of an answer. One to a range may hold the whole object all the same.

        Args:
          status: HTTP status.
          size: number of bytes on their way; 0 if unknown.

        Raises:
          ObjectTooLarge: if they are more than the limit.
        """
        self._is_whole = False
        if status == _OK and self.range():
            generation, crc32c = self._generation, self._expected_crc32c
            self.restart()
            self._generation, self._expected_crc32c, self._is_whole = generation, crc32c, True
        if 0 <= self._limit < self._received + size:
            raise ObjectTooLarge(self._received + size)

    def note_header(self, line: bytes) -> None:
        """Keeps the headers that say which bytes are on their way."""
        name, _, value = line.decode("latin-1").partition(":")
        name = name.lower()
        if name == "x-goog-generation":
            self._generation = value.strip()
        elif name == "x-goog-hash":
            for part in value.split(","):
                method, _, digest = part.strip().partition("=")
                if method == "crc32c":
                    self._expected_crc32c = digest

    def take(self, data: bytes) -> None:
        """Adds bytes.

        Raises:
          ObjectTooLarge: if there are more than the limit.
        """
        if self._file is None:
            self._parts.append(data)
        else:
            self._file.write(data)
        self._received += len(data)
        if 0 <= self._limit < self._received:
            raise ObjectTooLarge
        if self._checked:
            self._crc32c = google_crc32c.extend(self._crc32c, data)

    def interrupted(self) -> None:
        """Prepares for the next attempt, which continues from here if it certainly gets the same object."""
        if self._is_whole or not self._generation:
            self.restart()

    def vanished(self) -> bool:
        """Returns whether the object was replaced while it was read, so that its start is of no use."""
        if self._received and not self._wanted:
            self.restart()
            return True
        return False

    def check(self) -> None:
        """Compares the bytes with the checksum that the storage states.

        Raises:
          Damaged: if they differ.
        """
        if self._checked and self._expected_crc32c:
            found = base64.b64encode(self._crc32c.to_bytes(4, "big")).decode()
            if found != self._expected_crc32c:
                self.restart()
                raise Damaged(f"crc32c is {found} instead of {self._expected_crc32c}")

    def content(self) -> bytes:
        """Returns the bytes."""
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        if not self._is_whole:
            return data
        return data[self._first : self._first + self._length if self._length >= 0 else None]


#: What a handle without a request downloads.
_NOTHING = Download("")

_leaving = threading.Lock()  # held by the thread of a child of `fork` that makes its connections


def _begin_child() -> None:
    global _leaving
    _leaving = threading.Lock()  # a thread of the parent may have held the other one


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_child)


class SentRequest(NamedTuple):
    """A request that was sent, or will be soon.

    Attributes:
      download: gets the bytes.
      token: headers with the token that it carries.
      request: the request; no other thread uses it.
      transfers: runs it.
    """

    download: Download
    token: list[str]
    request: _Request
    transfers: Transfers


class MediaReader:
    """Reads objects and documents; all threads share its connections.

    Args:
      endpoint: address of the storage without a path.
      credentials: credentials of google-auth.
      user_project: project that pays; empty for none.
    """

    def __init__(self, endpoint: str, credentials: Any, user_project: str = "") -> None:
        self._endpoint = endpoint
        self._authorization = _Authorization(credentials)
        self._project = f"&userProject={quote(user_project, safe='')}" if user_project else ""
        self._common = [f"User-Agent: shardwright/{__version__}", "Accept: */*"]
        self._inherited: list[object] = []
        self._open()

    def _open(self) -> None:
        transfers = Transfers(CONNECTIONS), Transfers(CONNECTIONS)
        self._transfers, self._transfers_to_files = transfers
        self._idle: deque[_Request] = deque(maxlen=READS_AHEAD)
        self._process = os.getpid()  # last: from now on, other threads use them

    def _leave_parent(self) -> None:
        """Makes new connections in a child of `fork`, because the parent still uses its own."""
        if self._process != os.getpid():
            with _leaving:
                if self._process != os.getpid():
                    self._inherited += (self._idle, self._transfers, self._transfers_to_files)
                    self._open()

    def fetch(self, download: Download, sent: SentRequest | None = None) -> None:
        """Sends the request for a download, once more if the storage does not accept the token.

        Args:
          download: what to fetch.
          sent: its first request, if that was sent ahead.

        Raises:
          Refused: if the storage answers with an error.
          Unreachable: if the answer does not arrive; the same download can be fetched again.
          Damaged: if the bytes do not match the checksum.
          google.auth.exceptions.GoogleAuthError: if there is no token.
          OSError: if the download's file cannot be written.
        """
        for is_last in (False, True):
            if sent is None:
                self._leave_parent()
                sent = self._request(download)
                sent.transfers.begin((sent.request,))
            status, refusal = self._answer(sent)
            if status != _UNAUTHORIZED or is_last or not self._authorization.renew(sent.token):
                break
            sent = None
        if status == _NOT_FOUND and download.vanished():
            raise Unreachable("the object was replaced while it was read")
        if status not in (_OK, _PARTIAL):
            raise Refused(status, _message_in(refusal))
        download.check()

    def begin_ahead(self, downloads: Sequence[Download]) -> list[SentRequest]:
        """Sends the requests for downloads that this thread will fetch soon.

        Returns:
          The requests; empty if they cannot be sent. Pass each to `fetch` or to `cancel`.
        """
        try:
            self._leave_parent()
            sent = [self._request(download) for download in downloads]
        except Exception:  # the fetch says so
            return []
        if sent:
            sent[0].transfers.begin([item.request for item in sent], ahead=True)
        return sent

    def is_usable(self, sent: SentRequest) -> bool:
        """Returns whether a request was sent by this reader, and by this process."""
        return sent.transfers is self._transfers and self._process == os.getpid()

    def cancel(self, sent: Sequence[SentRequest]) -> None:
        """Drops requests that were sent ahead; in a child of `fork`, the parent still needs them."""
        if sent and self.is_usable(sent[0]):
            self._transfers.cancel(*(item.request for item in sent))

    def _request(self, download: Download) -> SentRequest:
        """Returns the request for what a download still needs."""
        url = f"{self._endpoint}{download.target()}{self._project}"
        wanted = download.range()
        particular = [f"Range: {wanted}"] if wanted else []
        if download.is_object:  # packed ones arrive as they are stored, and nothing else is packed
            particular.append("Accept-Encoding: gzip")
        token = self._authorization.headers(url)
        try:
            request = self._idle.pop()
        except IndexError:
            request = _Request()
        request.ask(url, [*self._common, *particular, *token], download)
        # A slow disk must not keep the thread from receiving other objects.
        transfers = self._transfers_to_files if download.is_to_file else self._transfers
        return SentRequest(download, token, request, transfers)

    def _answer(self, sent: SentRequest) -> tuple[int, bytes]:
        """Waits for the answer; returns the status, and the body of a refusal."""
        request = sent.request
        request.adopt()
        sent.transfers.wait(request)
        try:
            return request.answer()
        finally:
            request.forget()
            self._idle.append(request)


class _Authorization:
    """The headers that carry the token; one thread at a time renews it."""

    def __init__(self, credentials: Any) -> None:
        self._credentials = credentials
        self._lock = threading.Lock()
        self._token: object = None
        self._headers: list[str] = []

    def headers(self, url: str) -> list[str]:
        """Returns the headers for a request, with a token that is valid for some minutes.

        Raises:
          Unreachable: if the server that gives tokens does not answer.
          google.auth.exceptions.GoogleAuthError: if there is no token.
        """
        credentials = self._credentials
        if credentials.valid and credentials.token is self._token:
            return self._headers
        with self._lock:
            if not (credentials.valid and credentials.token is self._token):
                made: dict[str, str] = {}
                self._ask(lambda request: credentials.before_request(request, "GET", url, made))
                self._headers = _header_lines(made)
                self._token = credentials.token
            return self._headers

    def renew(self, refused: list[str]) -> bool:
        """Fetches a new token after the storage refused one.

        Args:
          refused: headers with the refused token.

        Returns:
          Whether there may be another token, so that another request makes sense.
        """
        from google.auth.exceptions import InvalidOperation

        with self._lock:
            if self._headers is not refused:
                return True  # another thread was first
            try:
                self._ask(self._credentials.refresh)
            except InvalidOperation:  # anonymous
                return False
            self._token, self._headers = None, []  # other headers than those of the threads that wait here
            return True

    @staticmethod
    def _ask(act: Any) -> None:
        from google.auth.exceptions import TransportError
        from google.auth.transport.requests import Request

        try:
            act(Request())
        except TransportError as error:
            raise Unreachable(f"no token: {words_of(error)}") from error


def _header_lines(headers: Mapping[str, str]) -> list[str]:
    return [f"{name}: {value}" for name, value in headers.items()]


class _Request(Transfer):
    """A GET request, one at a time."""

    def __init__(self) -> None:
        curl = pycurl.Curl()
        curl.setopt(pycurl.NOSIGNAL, 1)
        curl.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1)
        curl.setopt(pycurl.PATH_AS_IS, 1)  # an object may be named `..`
        curl.setopt(pycurl.BUFFERSIZE, _BUFFER_BYTES)
        curl.setopt(pycurl.FOLLOWLOCATION, 1)
        curl.setopt(pycurl.MAXREDIRS, _MAX_REDIRECTS)
        curl.setopt(pycurl.WRITEFUNCTION, self._on_bytes)
        certificates = _certificates()
        kind = pycurl.CAPATH if os.path.isdir(certificates) else pycurl.CAINFO
        curl.setopt(kind, certificates)
        self._head: list[bytes] = []
        curl.setopt(pycurl.HEADERFUNCTION, self._head.append)  # no bytecode for each of some twenty lines
        super().__init__(curl)

    def ask(self, url: str, headers: list[str], download: Download) -> None:
        """Prepares a request; the download gets the bytes of an answer that is not a refusal.

        Raises:
          Unreachable: if this thread's operation has no time left.
        """
        self.prepare()
        curl, operation = self.curl, current()
        self._download, self._status, self._refusal = download, 0, b""
        self._head.clear()
        self._clock, self._counted = TransferClock(is_reading=True), 0
        seconds = CONNECT_SECONDS
        if operation:
            seconds = min(seconds, operation.seconds_left())
            if seconds <= 0:
                raise Unreachable("timed out") from TimeoutError("timed out")
        curl.setopt(pycurl.URL, url)
        curl.setopt(pycurl.HTTPHEADER, headers)
        curl.setopt(pycurl.CONNECTTIMEOUT_MS, max(int(seconds * 1000), 1))

    def starts(self) -> None:
        """Begins to count the time."""
        super().starts()
        self._clock.restart()

    def adopt(self) -> None:
        """Makes the request part of this thread's operation, whose deadline limits it from now on."""
        self._operation = current()
        self._quiet_since = self._operation.quiet_since if self._operation else 0.0
        self._clock.adopt(self._operation)

    def report(self) -> None:
        """Reports progress if bytes have arrived at a good rate."""
        if self._operation and self._operation.quiet_since > self._quiet_since:
            self._quiet_since = self._operation.quiet_since
            UNDERWAY.progress()

    def answer(self) -> tuple[int, bytes]:
        """Returns the status, and the beginning of the body of a refusal.

        Raises:
          Unreachable: if the answer did not arrive.
        """
        if self.error is not None:
            self._download.interrupted()
            if self.fault is not None and not isinstance(self.fault, TimeoutError):
                raise self.fault from None
            raise _unreachable(*self.error) from self.fault
        if not self._status:  # an answer without a body
            self._read_head()
        self._count()
        return self._status, self._refusal

    def forget(self) -> None:
        """Releases the bytes of the last answer, which would wait here for the next request."""
        self._download = _NOTHING

    def _read_head(self) -> None:
        """Reads the head of the answer. A redirect or a proxy sends a head of its own before it."""
        size, notes = 0, list[bytes]()
        for line in self._head:
            first = line[:1]
            if first == b"H" and line.startswith(b"HTTP/"):
                self._status, size, notes = int(line.split(None, 2)[1]), 0, []
            elif first in (b"C", b"c") and line[:15].lower() == b"content-length:":
                size = int(line[15:])
            elif first in (b"X", b"x"):
                notes.append(line)
        self._clock.answer_begins(self._status, size)
        if self._status in (_OK, _PARTIAL):
            for line in notes:
                self._download.note_header(line)
            self._download.begin(self._status, size)

    def _on_bytes(self, data: bytes) -> int | None:
        """Takes bytes; another number than theirs ends the transfer."""
        try:
            if not self._status:
                self._read_head()
            if self._status in (_OK, _PARTIAL):
                self._download.take(data)
            else:
                self._refusal += data[: _REFUSAL_BYTES - len(self._refusal)]
        except BaseException as error:
            self.fault = error
            return -1
        return None

    def look(self) -> None:
        """Compares the transfer with its deadline.

        Raises:
          TimeoutError: if no time is left.
        """
        if self._status:
            self._count()
        self._clock.limit()

    def _count(self) -> None:
        """Counts the bytes that have arrived since the last time."""
        done = int(self.curl.getinfo(pycurl.SIZE_DOWNLOAD))
        self._clock.count(done - self._counted)
        self._counted = done


def _certificates() -> str:
    """Returns the file or folder of the certificates to trust, as requests chooses it."""
    for name in _CERTIFICATES:
        found = os.environ.get(name, "")
        if found and os.path.exists(found):
            return found
    import certifi

    return certifi.where()


def _unreachable(code: int, text: str) -> Unreachable:
    """Translates an error of libcurl."""
    if code in (pycurl.E_PEER_FAILED_VERIFICATION, pycurl.E_SSL_CACERT_BADFILE):
        return Unreachable(text, is_transient=False)
    return Unreachable("timed out" if code == pycurl.E_ABORTED_BY_CALLBACK else text)


def _message_in(refusal: bytes) -> str:
    """Returns what a refusal says: plain text, or an error of the JSON API."""
    text = refusal.decode("utf-8", "replace")
    try:
        return str(json.loads(text)["error"]["message"])
    except (LookupError, TypeError, ValueError):
        return text
