"""Faults of a storage or the machine: one sentence for each, and how long a request is repeated.

An operation is one request of a caller: one object read or written, or one page of a listing, with all
attempts. It ends when nothing has succeeded for `PATIENCE_SECONDS`; each part of a large object that has
passed counts. Each attempt gets a timeout of its client that is not longer than what is left.

A storage is dead if all attempts of this process have failed for that long, or for `FIRST_PATIENCE_SECONDS`
before its first answer. Then every operation ends. Later operations only check whether the storage is back:
they share `LAST_TRY_SECONDS`, and then each gets `LATER_TRY_SECONDS`. So the last steps of a command take
seconds.
"""

from __future__ import annotations

import contextlib
import errno
import math
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.schemas.errors import EngineError

Result = TypeVar("Result")

#: The advice if there is no space.
FREE_SPACE = "free some space, then run again"
_ADVICE = {
    errno.ENOSPC: f"the disk is full; {FREE_SPACE} with --resume",
    errno.EDQUOT: f"the disk quota is used up; {FREE_SPACE} with --resume",
    errno.EFBIG: "the file is larger than this system allows; choose a smaller --shard_size",
    errno.EMFILE: "too many files are open; raise `ulimit -n`, then run again with --resume",
    errno.ENFILE: "the system has too many files open; run again with --resume later",
    errno.ENOENT: (
        "no such file or directory; choose another place, or find out what removed it and run again with "
        "--resume"
    ),
    errno.EACCES: "permission denied; choose a place you may use or change its permissions",
    errno.EPERM: "the operation is not permitted; choose a place you may use",
    errno.EROFS: "the file system is read-only; choose another place",
    errno.EIO: "the storage reports an input/output error; check the disk, then run again with --resume",
}
_RETRIED_STATUSES = frozenset((408, 429, 500, 502, 503, 504))
#: Answers with another status to a request that may succeed later.
_RETRIED_CODES = frozenset(
    ("RequestTimeout", "SlowDown", "Throttling", "InternalError", "ConditionalRequestConflict",
     "OperationAborted", "BadDigest", "XAmzContentSHA256Mismatch", "Md5Mismatch", "OperationTimedOut")
)  # fmt: skip
#: How often bytes are sent or read again that arrive damaged.
DAMAGED_RETRIES = 2
#: Seconds for which transient faults are retried: after the first answer of a storage, and before it.
PATIENCE_SECONDS, FIRST_PATIENCE_SECONDS = 180.0, 20.0
#: Seconds that operations share once the storage counts as dead, and seconds that each one gets after that.
LAST_TRY_SECONDS, LATER_TRY_SECONDS = 5.0, 1.0
#: Seconds without a request after which a dead storage gets another chance, as in a notebook.
_FORGET_SECONDS = 60.0
FIRST_PAUSE, MAX_PAUSE = 0.2, 10.0
_BAD_REQUEST, _UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _PRECONDITION_FAILED = 400, 401, 403, 404, 412
#: Matches URIs that cannot name an object or a bucket.
_NO_OBJECT = re.compile(r"[\r\n]|\A(?:gs|s3)://(?![A-Za-z0-9][A-Za-z0-9._-]*/)")
#: Largest number of bytes in an object name in Google's and Amazon's storage.
_MAX_OBJECT_NAME = 1024


def is_impossible(path: str) -> bool:
    """Returns whether no object can have a path, so that a storage refuses every request for it."""
    size = len(path.split("/", 3)[-1].encode("utf-8", "replace"))
    return size > _MAX_OBJECT_NAME or bool(_NO_OBJECT.search(path))


class Damaged(Exception):
    """Bytes that arrived differ from their checksum."""


class BadAnswer(Exception):
    """An answer that is incomplete, or does not come from the storage."""


@dataclass(frozen=True)
class Fault:
    """Why a request failed.

    Attributes:
      error: What to raise if it is not repeated.
      retries: How often it may be repeated while there is time.
    """

    error: Exception
    retries: float = 0


@dataclass(frozen=True)
class Answer:
    """What is known of a request that failed.

    Attributes:
      status: HTTP status; 0 if there was no answer.
      code: The storage's name of the error; empty if unknown.
      text: The message of the storage or of its client.
    """

    status: int = 0
    code: str = ""
    text: str = ""

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later."""
        return not self.status or self.status in _RETRIED_STATUSES or self.code in _RETRIED_CODES


@dataclass(frozen=True)
class Service:
    """What a storage calls things in its answers, and we in our messages.

    Attributes:
      name: Its name.
      kind: What it calls a bucket.
      no_bucket: Its codes for a missing bucket.
      bad_login: Its codes for credentials that it does not accept.
      login_advice: How to give credentials.
      certificates: Environment variable for the file with certificates to trust.
    """

    name: str
    kind: str
    no_bucket: frozenset[str]
    bad_login: frozenset[str]
    login_advice: str
    certificates: str

    def no_credentials(self, doing: str, path: str) -> Fault:
        """Explains that there are no credentials."""
        return _failed(doing, path, f"there are no valid credentials for {self.name}; {self.login_advice}")

    def fault(self, doing: str, path: str, answer: Answer) -> Fault:
        """Explains a request that failed."""
        status, code = answer.status, answer.code
        if answer.is_transient:
            answers = (
                f"answers with {status}" if status else f"does not answer ({answer.text or 'timed out'})"
            )
            text = f"{self.name} {answers} again and again; check the network, then run again with --resume"
            return _failed(doing, path, text, math.inf)
        if code in self.no_bucket or (status == _NOT_FOUND and doing in ("list", "write")):
            bucket = path.split("/")[2]
            text = f"there is no {self.kind} {bucket}; check its name or make it first"
            return _failed(doing, path, text)
        if code in self.bad_login or status == _UNAUTHORIZED:
            text = f"{self.name} does not accept the credentials ({code or status}); {self.login_advice}"
            return _failed(doing, path, text)
        is_absent = status == _BAD_REQUEST and doing in ("look for", "read") and is_impossible(path)
        if is_absent or status in (_NOT_FOUND, _PRECONDITION_FAILED):
            return Fault(FileNotFoundError(errno.ENOENT, "no such object", path))
        if status == _FORBIDDEN:
            return Fault(PermissionError(errno.EACCES, "permission denied", path))
        return _failed(doing, path, f"{self.name} refuses it: {answer.text.rstrip('.')}")

    def bad_certificate(self, doing: str, path: str) -> Fault:
        """Explains a server whose certificate is not trusted."""
        text = (
            f"the certificate of the server cannot be checked; set {self.certificates} to the file with the "
            "certificates that your network uses"
        )
        return _failed(doing, path, text)

    def bad_answer(self, doing: str, path: str) -> Fault:
        """Explains an answer that is incomplete or not from the storage."""
        text = (
            f"the answer is incomplete or not from {self.name}, again and again; check what is between this "
            "machine and the storage (a proxy, a login page), then run again with --resume"
        )
        return _failed(doing, path, text, math.inf)


def damaged(doing: str, path: str) -> Fault:
    """Explains bytes that do not match their checksum."""
    text = (
        "its bytes do not match its checksum, again and again; check the network, then run again with "
        "--resume"
    )
    return _failed(doing, path, text, DAMAGED_RETRIES)


def _failed(doing: str, path: str, text: str, retries: float = 0) -> Fault:
    return Fault(EngineError(f"Cannot {doing} {path}: {text}."), retries)


def fault(error: OSError, doing: str, path: str) -> EngineError:
    """Returns the error that ends the command when the storage fails, in one sentence."""
    code = error.errno or 0
    reason = _ADVICE.get(code) or error.strerror or str(error)
    return EngineError(f"Cannot {doing} {path}: {reason}.")


def changed(path: str) -> EngineError:
    """Returns the error that stops a job when its input changes."""
    return EngineError(
        f"{path} changed while the job was reading its input; "
        "run again with --resume when nothing writes there."
    )


@contextlib.contextmanager
def translated_errors(doing: str, path: str) -> Iterator[None]:
    """Turns any OSError in the block into an `EngineError` that names the operation."""
    try:
        yield
    except OSError as error:
        raise fault(error, doing, path) from error


class Contact:
    """The state of a storage for this process: whether it has answered, and since when all requests fail."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Resets the state, for another server."""
        self._answered_at, self._failed_at, self._failing_since = -math.inf, -math.inf, math.inf

    def answered(self) -> None:
        """Records an answer."""
        self._answered_at, self._failing_since = time.monotonic(), math.inf

    def failed(self, since: float) -> None:
        """Records that an attempt failed; `since` is when its operation began."""
        self._failed_at = time.monotonic()
        self._failing_since = min(self._failing_since, max(since, self._answered_at))

    def patience(self) -> float:
        """Returns the seconds for which a fault is retried."""
        return PATIENCE_SECONDS if self._answered_at > -math.inf else FIRST_PATIENCE_SECONDS

    def end(self) -> float:
        """Returns when the storage counts as dead if it keeps failing, on the monotonic clock."""
        if time.monotonic() > self._failed_at + _FORGET_SECONDS:
            self._failing_since = math.inf
        return self._failing_since + self.patience()


class Operation:
    """One operation of a storage, with all its attempts.

    Args:
      contact: State of its storage.
      path: Path of the object or folder.

    Attributes:
      quiet_since: When it began or last made progress, on the monotonic clock.
    """

    def __init__(self, contact: Contact, path: str) -> None:
        self.contact, self.path = contact, path
        self.start = self.quiet_since = time.monotonic()
        self._reached = 0
        self._is_last_try = self.start >= contact.end()
        self._end = math.inf
        if self._is_last_try:
            self._end = max(contact.end() + LAST_TRY_SECONDS, self.start + LATER_TRY_SECONDS)
        if _is_brief.get():
            self._end = min(self._end, self.start + LAST_TRY_SECONDS)

    def reached(self, offset: int) -> None:
        """Records progress: the bytes up to an offset have passed. Bytes that are repeated do not count."""
        if offset > self._reached:
            self._reached, self.quiet_since = offset, time.monotonic()
            UNDERWAY.progress()

    def goes_on(self) -> bool:
        """Records a failed request that its client may repeat itself; returns whether there is time left."""
        self.contact.failed(self.start)
        return self.seconds_left() > 0

    def seconds_left(self) -> float:
        """Returns the seconds until the deadline; 0 or less after it."""
        end = min(self._end, self.quiet_since + self.contact.patience())
        if not self._is_last_try:
            end = min(end, self.contact.end())
        return end - time.monotonic()


_is_brief = ContextVar("is_brief", default=False)
#: Thread -> its operation.
_operations: dict[int, Operation] = {}


def current_operation() -> Operation:
    """Returns the operation of this thread, or a new one that nobody waits for."""
    return _operations.get(threading.get_ident()) or Operation(Contact(), "")


@contextlib.contextmanager
def brief() -> Iterator[None]:
    """Limits each operation that this thread begins in the block to `LAST_TRY_SECONDS`."""
    token = _is_brief.set(True)
    try:
        yield
    finally:
        _is_brief.reset(token)


def longest_wait() -> tuple[str, float] | None:
    """Returns the path and seconds of the longest current wait of this process; None if it does not wait."""
    waiting = [(item.quiet_since, item.path) for item in list(_operations.values())]
    if not waiting:
        return None
    since, path = min(waiting)
    return path, time.monotonic() - since


def retried(
    contact: Contact, path: str, send: Callable[[], Result], fault_of: Callable[[Exception], Fault | None]
) -> Result:
    """Calls a function until it succeeds, with exponential backoff and within one deadline.

    Args:
      contact: State of the storage.
      path: Path of the object or folder.
      send: Function that sends requests.
      fault_of: Explains an error of `send`; None for one that is not of the storage.

    Raises:
      Exception: The explanation of the first fault, or of one that is not transient.
    """
    thread, operation = threading.get_ident(), Operation(contact, path)
    _operations[thread] = operation
    first: Fault | None = None
    pause, count = FIRST_PAUSE, 0
    try:
        while True:
            try:
                result = send()
            except Exception as error:
                fault = fault_of(error)
                if fault is None:
                    raise
                if not fault.retries:
                    contact.answered()
                    raise fault.error from error
                contact.failed(operation.start)
                first = first or fault  # the last one may only say that the deadline has passed
                if count >= fault.retries or operation.seconds_left() <= pause:
                    raise first.error from error
            else:
                contact.answered()
                return result
            time.sleep(random.uniform(pause / 2, pause))
            pause, count = min(2 * pause, MAX_PAUSE), count + 1
    finally:
        _operations.pop(thread, None)
