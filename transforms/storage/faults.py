"""Messages for faults of the storage or the machine."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from shardwright.schemas.errors import EngineError, ShardwrightError
from shardwright.schemas.image_ref import printable
from shardwright.transforms.storage.deadlines import BYTES_PER_SECOND, TooSlow

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


def is_too_slow(error: BaseException) -> bool:
    """Returns whether an error or one of its causes says that bytes flowed too slowly."""
    left: list[object] = [error]
    seen: set[int] = set()
    while left:
        item = left.pop()
        if isinstance(item, TooSlow):
            return True
        if isinstance(item, BaseException) and id(item) not in seen:
            seen.add(id(item))
            left += [item.__cause__ or item.__context__, getattr(item, "cause", None)]
    return False


def too_slow(doing: str, shown: str) -> EngineError:
    """Returns the error of an operation whose bytes never flowed fast enough."""
    return EngineError(
        f"Cannot {doing} {shown}: its bytes come or go at less than {BYTES_PER_SECOND:,} a second, again "
        "and again; check the network, then run again with --resume."
    )


def no_answer_of_its_own(doing: str, shown: str, storage: str) -> EngineError:
    """Returns the error of an operation whose answer is incomplete or not from the storage."""
    return EngineError(
        f"Cannot {doing} {shown}: the answer is incomplete or not from {storage}, again and "
        "again; check what is between this machine and the storage (a proxy, a login page), then run "
        "again with --resume."
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
