"""The errors of Shardwright, each with one sentence for the user.

    ShardwrightError                ends a command or a function; has an exit code
      DataRefused                   1: the data did not pass
      UsageError                    2: the call, its settings or its input are wrong
        MissingPackage              a package is not installed (`schemas/missing_packages.py`)
      EngineError                   3: the engine, the storage or the machine failed
        UnexpectedError             an exception that Shardwright does not know, perhaps a bug
      NotRun                        0: the options only asked for a description of the job
    ImageProblem                    one image is not written, and the job continues
      ImageFault                    it is quarantined
      LeftOut                       it is filtered
    NotACandidate                   the file is filtered, and the job continues

`shardwright.UsageError` and the others that end a function are public. In a program, catch the class that you
can handle, or `ShardwrightError` for all; `error.message` is the sentence.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Generic, TypeVar

from shardwright.schemas.codes import ExitCode, FilterReason, QuarantineReason, Stage
from shardwright.schemas.plain_text import printable

_TAG = re.compile(r"<shardwright:(\d+)>(.*?)</shardwright>", re.DOTALL)
#: The text with which Beam continues after the message of a worker's exception.
_RAISED_IN_A_STEP = " [while running '"

#: Messages of the system's loader and of Python if there is no memory for a library or a thread.
_NO_MEMORY = ("failed to map segment", "Cannot allocate memory", "can't start new thread")


def lacks_memory(error: BaseException) -> bool:
    """Returns whether an exception, or the one whose text it contains, means that memory ran out."""
    text = str(error)
    return (
        isinstance(error, MemoryError)
        or re.match(r"(\w+: )?MemoryError\b", text.strip().rpartition("\n")[2]) is not None
        or any(sign in text for sign in _NO_MEMORY)
    )


#: What an object's default `repr` contains: where it is in memory.
_OBJECT = re.compile(r"<[^<>]* at 0x[0-9a-fA-F]+>|\bat 0x[0-9a-fA-F]+")
#: Names of files that only this run has: those that `tempfile` chooses, and spool files.
_FILE_OF_RUN = re.compile(r"[^\s'\"]*(?:/tmp[a-z0-9_]{8}|\b_work/)[^\s'\",;:]*")
#: Most characters of such a text.
_LONGEST = 200


def words_of(error: BaseException) -> str:
    """Returns what another library's exception says, as one line that is the same in every run.

    Addresses of objects are left out, and the names of temporary files, because messages are stored in
    ledgers, which must be equal for equal inputs. Use it wherever a message quotes an exception of a library.

    >>> words_of(OSError("cannot identify image file <_io.BytesIO object at 0x7f3c0a1b2c30>"))
    'cannot identify image file'
    """
    text = _FILE_OF_RUN.sub("its file", _OBJECT.sub("", str(error)))
    return " ".join(text.split())[:_LONGEST].rstrip() or type(error).__name__


class ShardwrightError(Exception):
    """Ends the command. The message says what is wrong, where, and what to do next.

    A message may contain any path: bytes that are not UTF-8 are shown as in keys (`printable`).

    Engines pass a worker's exception to the launcher as text. So once Beam has added the step to the message,
    `str()` contains the exit code in a tag. `from_text` finds that tag in the text of an engine.
    Otherwise, for example in a notebook, `str()` is the message alone.
    """

    exit_code = ExitCode.ENGINE

    def __init__(self, message: str) -> None:
        self.message = printable(message)
        super().__init__(self.message)

    def __str__(self) -> str:
        if _RAISED_IN_A_STEP not in self.message:
            return self.message
        return f"<shardwright:{int(self.exit_code)}>{self.message}</shardwright>"

    @staticmethod
    def from_text(text: str) -> ShardwrightError | None:
        """Returns the error in an engine's text; None if there is none."""
        match = _TAG.search(text)
        return _BY_CODE[ExitCode(int(match[1]))](match[2]) if match else None


class DataRefused(ShardwrightError):
    """The data did not pass: there are findings, too many bad images, or a gate refused."""

    exit_code = ExitCode.REFUSED


class UsageError(ShardwrightError):
    """The command, its settings or its input are wrong. Nothing was written."""

    exit_code = ExitCode.USAGE


class EngineError(ShardwrightError):
    """The engine, the storage or the machine failed. Running again may help."""

    exit_code = ExitCode.ENGINE


class UnexpectedError(EngineError):
    """Something raised an exception that Shardwright does not know, perhaps because of a bug.

    It keeps the traceback of that exception as its cause.
    """


class NotRun(ShardwrightError):
    """The options asked only for a description of the job, so it did not run. This is not a failure."""

    exit_code = ExitCode.DONE


_BY_CODE = {error.exit_code: error for error in (DataRefused, UsageError, EngineError, NotRun)}


Reason = TypeVar("Reason", QuarantineReason, FilterReason)


class ImageProblem(Exception, Generic[Reason]):
    """Why an image is not written, which shows only when it is processed. The job continues.

    Attributes:
      reason: Code of the problem.
      stage: Step at which it shows.
      message: One sentence for the person who looks for the file.
      size: Width and height of the upright picture in pixels; None if they did not matter.
    """

    def __init__(
        self, reason: Reason, stage: Stage, message: str, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(reason, stage, message, size)  # a copy in another process is made of these
        self.reason: Reason = reason
        self.stage = stage
        self.message = message
        self.size = size

    def __str__(self) -> str:
        return self.message


class ImageFault(ImageProblem[QuarantineReason]):
    """A fault of one image: the image is quarantined."""


class LeftOut(ImageProblem[FilterReason]):
    """An image that a setting leaves out: it is filtered."""


class NotACandidate(Exception):
    """By content, the file is not an image, and its name does not say that it is one. It is filtered."""

    reason = FilterReason.NOT_AN_IMAGE


def as_sentence(text: str) -> str:
    """Returns a message with a full stop, unless it ends with that or a question mark."""
    return text if text.endswith(("?", ".")) else f"{text}."


def nearest(name: str, names: Sequence[str]) -> str:
    """Returns `; did you mean X?` for the known name closest to a wrong one; empty if none is close.

    Upper and lower case count as equal.
    """
    folded = {other.casefold(): other for other in reversed(names)}
    match = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    return f"; did you mean {folded[match[0]]}?" if match else ""
