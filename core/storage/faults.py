"""Messages for faults of the storage or the machine."""

from __future__ import annotations

import contextlib
import errno
import math
from collections.abc import Iterator
from dataclasses import dataclass

from shardwright.schemas.errors import EngineError, ShardwrightError
from shardwright.schemas.image_ref import printable

#: The advice if there is no space.
FREE_SPACE = "free some space, then run again"
_ADVICE = {
    errno.ENOSPC: f"the disk is full; {FREE_SPACE} with --resume",
    errno.EDQUOT: f"the disk quota is used up; {FREE_SPACE} with --resume",
    errno.EFBIG: "the file is larger than this system allows; choose a smaller --shard_size",
    errno.EMFILE: "too many files are open; raise `ulimit -n`, then run again with --resume",
    errno.ENFILE: "the system has too many files open; run again with --resume later",
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
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _PRECONDITION_FAILED = 401, 403, 404, 412


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
        if status in (_NOT_FOUND, _PRECONDITION_FAILED):
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
    return Fault(EngineError(f"Cannot {doing} {printable(path)}: {text}."), retries)


def fault(error: OSError, doing: str, path: str) -> EngineError:
    """Returns the error that ends the command when the storage fails, in one sentence."""
    number = error.errno or 0
    reason = _ADVICE.get(number) or error.strerror or str(error)
    return EngineError(f"Cannot {doing} {printable(path)}: {reason}.")


def changed(path: str) -> EngineError:
    """Returns the error that stops a job when its input changes."""
    return EngineError(
        f"{printable(path)} changed while the job was reading its input; "
        "run again with --resume when nothing writes there."
    )


@contextlib.contextmanager
def translated_errors(doing: str, path: str) -> Iterator[None]:
    """Turns any OSError in the block into an `EngineError` that names the operation."""
    try:
        yield
    except ShardwrightError:
        raise
    except OSError as error:
        raise fault(error, doing, path) from error
