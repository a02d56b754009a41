"""Groups the rows of a text file by image. The rows of an image may be anywhere in the file."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator
from typing import IO

import numpy as np

from shardwright.transforms.concurrency.underway import UNDERWAY
from shardwright.transforms.sources.name_hash import name_hash

#: Size of the longest line that is read as a row.
MAX_LINE_BYTES = 1 << 16


class RowRuns:
    """Runs of consecutive rows of the same image.

    A run takes 32 bytes in four columns. Most images have one run.
    """

    def __init__(self) -> None:
        self._identity = array("Q")  # hash of the image's name
        self._begin = array("q")
        self._length = array("q")
        self._line = array("q")  # line number of the first row

    def __len__(self) -> int:
        return len(self._identity)

    def index(self, file: IO[bytes], image_of: Callable[[bytes, int], str], first: int) -> Iterator[int]:
        """Stores the position of every run; yields the numbers of lines that name no image.

        Args:
          file: File, open at its first row.
          image_of: Function that returns the image name of a line, given the line and its number. The name
            is empty if the line has none.
          first: Line number of the first row.
        """
        position, last = file.tell(), ""
        lines = UNDERWAY.passing(iter(lambda: file.readline(MAX_LINE_BYTES), b""))
        for number, line in enumerate(lines, first):
            length = len(line)
            while len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):  # skip the rest of a long line
                line = file.readline(MAX_LINE_BYTES)
                length += len(line)
            position += length
            if not line.strip():
                last = ""
                continue
            image = image_of(line, number) if length < MAX_LINE_BYTES else ""
            if not image:
                yield number
            elif image == last:
                self._length[-1] += length
            else:
                self._identity.append(name_hash(image))
                self._begin.append(position - length)
                self._length.append(length)
                self._line.append(number)
            last = image

    def groups(self) -> Iterator[list[int]]:
        """Yields the indices of the runs that belong together, in the order of the file.

        A group has the runs of one image, unless two names have the same hash.
        """
        if not self._identity:
            return
        identity = np.frombuffer(self._identity, np.uint64)
        order = np.argsort(identity, kind="stable")
        ends = np.append(np.flatnonzero(np.diff(identity[order])) + 1, len(order))
        begins = np.append(0, ends[:-1])
        for number in np.argsort(order[begins]):
            yield order[begins[number] : ends[number]].tolist()

    def rows(self, file: IO[bytes], group: list[int]) -> Iterator[tuple[int, str]]:
        """Yields (line number, text) of the rows in a group of runs."""
        for run in group:
            data = os.pread(file.fileno(), self._length[run], self._begin[run])
            for line, row in enumerate(data.removesuffix(b"\n").split(b"\n"), self._line[run]):
                yield line, row.decode("utf-8", "surrogateescape").rstrip("\r")
