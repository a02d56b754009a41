"""Converts images in a second process, while this one is still starting, and beside it after that.

A command that converts in threads uses one processor for its first second, because imports and planning hold
Python's lock. A fork of it uses the other processor: it lists the input itself, converts the images in the
order of the shards, and leaves the results in memory that both processes share. The threads of the command
take these results, and convert all other images. When they have caught up with the fork, it jumps ahead of
them. So both work until the end, and neither ever waits for the other.

A converted image depends only on its bytes and the settings, so it does not matter which process made it. A
result counts only for the same state of the same file. If there is none, for any reason, the command
converts the image, and reports its fault.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import hashlib
import mmap
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import google_crc32c

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import ImageRef
from shardwright.transforms.concurrency.underway import UNDERWAY
from shardwright.transforms.conversion.early_image import EarlyImage, state_of
from shardwright.transforms.images.convert import convert_image
from shardwright.transforms.images.read import read_image

#: Largest number of images that the two processes share. Larger inputs get worker processes.
MAX_IMAGES = 20_000
#: Largest number of bytes of results. Only those that were written take memory.
MAX_BYTES = 40_000_000
#: Number of images by which the fork jumps ahead of the command. Its threads read 16 images at a time each.
_LEAD = 96
#: Largest number of bytes of a file, and of what converting it takes. The command converts the others.
_WORKING_BYTES = 32_000_000
#: The fork ends after so many images that gave no result, with few others between: the disk is busy enough.
_MAX_WITHOUT_RESULT = 32
#: Nanoseconds after which a new change of a file gives it a new time, even on a disk with a coarse clock.
_SETTLED_NS = 2_500_000_000
#: Images are started once for their shard, and some of them for the sample before.
_MAX_STARTED = 2 * MAX_IMAGES
_NUMBER_BYTES = 8
_NUMBER_MASK = 2**64 - 1
#: Option of prctl(2) that names the signal for a process whose parent ends.
_PR_SET_PDEATHSIG = 1
#: File of Linux that says which processes end first if memory runs out, and the value for "at once".
_OOM_FILE, _OOM_FIRST = "/proc/self/oom_score_adj", "1000"
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Log:
    """A list of 64-bit numbers that one process appends to and another one reads.

    Args:
      limit: largest number of numbers.
    """

    def __init__(self, limit: int) -> None:
        self._numbers = memoryview(mmap.mmap(-1, (limit + 1) * _NUMBER_BYTES)).cast("Q")
        self._read = 0

    def append(self, *numbers: int) -> bool:
        """Appends numbers, which a reader gets together; returns whether there was room for them."""
        begin = self._numbers[0] + 1
        end = begin + len(numbers)
        if end > len(self._numbers):
            return False
        for place, number in enumerate(numbers, begin):
            self._numbers[place] = number
        self._numbers[0] = end - 1  # last, since a reader looks at it first
        return True

    def unread(self) -> list[int]:
        """Returns the numbers that were appended since the last call."""
        begin, self._read = self._read, self._numbers[0]
        return self._numbers[begin + 1 : self._read + 1].tolist()


class Order:
    """Decides which image the fork converts next.

    Args:
      numbers: numbers of all images, in the order in which the command converts them.
      lead: number of images by which the fork jumps ahead of the command.
    """

    def __init__(self, numbers: Sequence[int], lead: int = _LEAD) -> None:
        self._numbers = numbers
        self._lead = lead
        self._started: set[int] = set()
        self._front = 0
        self._next = 0

    def next(self, started: Sequence[int]) -> int | None:
        """Returns the place of the next image; None if there is no further one.

        Args:
          started: numbers of images that the command has started since the last call.
        """
        numbers = self._numbers
        self._started.update(started)
        while self._front < len(numbers) and numbers[self._front] in self._started:
            self._front += 1
        if self._front >= max(self._next, 1):
            self._next = self._front + self._lead
        while self._next < len(numbers):
            self._next += 1
            if numbers[self._next - 1] not in self._started:
                return self._next - 1
        return None


class HeadStart:
    """A fork that converts images before the command asks for them.

    Args:
      settings: settings of the conversion.
      max_bytes: largest number of bytes of results.

    Attributes:
      settings: settings of the conversion; the results are valid only for them.
      pid: number of the forked process; 0 without one.

    Raises:
      OSError: There is no memory that two processes can share.
    """

    def __init__(self, settings: ConvertSettings, max_bytes: int = MAX_BYTES) -> None:
        self.settings = settings
        self.pid = 0
        self._results = mmap.mmap(-1, max_bytes)
        #: The command writes it: the number of each image that it starts.
        self._started = _Log(_MAX_STARTED)
        #: The fork writes it: number, place, size and checksum of each result.
        self._made = _Log(4 * MAX_IMAGES)
        self._places: dict[int, tuple[int, int, int]] = {}
        self._lock = threading.Lock()

    def start(self, list_refs: Callable[[], Sequence[ImageRef]]) -> None:
        """Starts the fork. The caller is the main thread of its process.

        Args:
          list_refs: function that returns the images in the order in which the command converts them. The
            fork calls it.

        Raises:
          OSError: There can be no further process.
        """
        parent = os.getpid()
        # A signal in the fork must not run the handlers of the command.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        try:
            self.pid = os.fork()
            if not self.pid:
                self._run(list_refs, parent, blocked)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def take(self, ref: ImageRef) -> EarlyImage | None:
        """Returns the result of the fork for an image; None if there is none.

        Several threads may call it. From now on, the fork leaves the image to the caller.
        """
        identity = state_of(ref)
        number = _number_of(identity)
        with self._lock:
            self._started.append(number)
            made = self._made.unread()
            self._places.update(
                (made[at], (made[at + 1], made[at + 2], made[at + 3])) for at in range(0, len(made), 4)
            )
            place = self._places.get(number)
        if place is None:
            return None
        begin, size, checksum = place
        packed = self._results[begin : begin + size]
        # Some processors show numbers before the bytes, or one number before another.
        if not packed or google_crc32c.value(packed) != checksum:
            return None
        found, early = pickle.loads(packed)
        return early if found == identity else None

    def end(self) -> None:
        """Ends the fork."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                # If signals of children are ignored, its number may belong to another process by now.
                if os.waitpid(self.pid, os.WNOHANG) == (0, 0):
                    os.kill(self.pid, signal.SIGKILL)
                    os.waitpid(self.pid, 0)
            self.pid = 0

    def _run(self, list_refs: Callable[[], Sequence[ImageRef]], parent: int, blocked: Iterable[int]) -> None:
        """Converts images; ends the process, which is the fork."""
        try:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            for number in _ENDING:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            silence = os.open(os.devnull, os.O_WRONLY)  # the command prints the same warnings
            os.dup2(silence, 1)
            os.dup2(silence, 2)
            with contextlib.suppress(OSError), open(_OOM_FILE, "w") as file:
                file.write(_OOM_FIRST)  # without the fork, only time is lost
            UNDERWAY.leave_board()
            gc.freeze()
            if os.getppid() == parent:
                self._convert(list_refs())
        finally:
            os._exit(0)

    def _convert(self, refs: Sequence[ImageRef]) -> None:
        # A file that was just written may change again, and have the same size and time after that.
        settled = time.time_ns() - _SETTLED_NS
        refs = [ref for ref in refs if ref.size <= _WORKING_BYTES and int(ref.version or 0) <= settled]
        identities = [state_of(ref) for ref in refs]
        numbers = [_number_of(identity) for identity in identities]
        order = Order(numbers)
        end = without_result = 0
        while (place := order.next(self._started.unread())) is not None:
            early = _convert_early(refs[place], self.settings)
            if early is None:
                without_result += 1
                if without_result > _MAX_WITHOUT_RESULT:
                    return
                continue
            without_result = max(without_result - 1, 0)
            packed = pickle.dumps((identities[place], early), pickle.HIGHEST_PROTOCOL)
            begin, end = end, end + len(packed)
            if end > len(self._results):
                return
            self._results[begin:end] = packed
            if not self._made.append(numbers[place], begin, len(packed), google_crc32c.value(packed)):
                return


def _number_of(identity: tuple[str, str, str, int, str]) -> int:
    """Returns a number that stands for an image; a fork has the same hashes as its parent."""
    return hash(identity) & _NUMBER_MASK


def _convert_early(ref: ImageRef, settings: ConvertSettings) -> EarlyImage | None:
    """Reads and converts an image; returns None if the command has to do it."""
    start = time.thread_time()
    try:
        data = read_image(ref, settings.max_source_bytes)
        image = convert_image(data, ref.key, settings, _reserve)
    except Exception:  # the command finds it again, and reports it
        return None
    return EarlyImage(hashlib.sha256(data).hexdigest(), len(data), time.thread_time() - start, image)


def _reserve(size: int) -> AbstractContextManager[None]:
    """Refuses the memory for large pictures: the command counts what its own threads take."""
    if size > _WORKING_BYTES:
        raise MemoryError
    return nullcontext()


#: The fork of this process; None without one.
_current: HeadStart | None = None


def current_head_start(settings: ConvertSettings) -> HeadStart | None:
    """Returns the fork that converts images of this process with the same settings; None if there is none."""
    return _current if _current is not None and _current.settings == settings else None


@contextlib.contextmanager
def head_start(settings: ConvertSettings, list_refs: Callable[[], Sequence[ImageRef]]) -> Iterator[None]:
    """Converts images in a fork while the block runs, if the machine allows one.

    Args:
      settings: settings of the conversion.
      list_refs: function that returns the images in the order in which the block converts them.
    """
    global _current
    fork: HeadStart | None = None
    try:
        with contextlib.suppress(OSError):  # no memory, or no further process
            fork = HeadStart(settings)
            fork.start(list_refs)
            _current = fork
        yield
    finally:
        _current = None
        if fork is not None:
            fork.end()
