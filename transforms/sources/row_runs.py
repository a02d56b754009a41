"""Groups the rows of a file by image. The rows of an image may be anywhere in the file."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO

import numpy as np

from shardwright.transforms.concurrency.underway import UNDERWAY
from shardwright.transforms.sources.hashing import name_hash
from shardwright.transforms.sources.tables.lines import Lines, Row


class RowRuns:
    """Runs of consecutive rows of the same image.

    A run takes 32 bytes in four columns. Most images have one run.
    """

    def __init__(self) -> None:
        self._identity = array("Q")  # hash of the image's name
        self._begin = array("q")
        self._length = array("q")
        self._line = array("q")  # number of the first line

    def __len__(self) -> int:
        return len(self._identity)

    def index(
        self, lines: Lines, rows: Iterable[Row], image_of: Callable[[Sequence[str]], str]
    ) -> Iterator[tuple[int, str]]:
        """Stores the position of every run; yields (line, fault) for rows that name no image.

        Args:
          lines: Lines of the file, the first of which has the number 1, up to the first row to store.
          rows: Iterator that parses a row from the lines at a time.
          image_of: Function that returns the image name of a row; empty if the row has none.
        """
        last, begin, line = "", lines.position, lines.count + 1
        for number, cells in UNDERWAY.passing(rows):
            image = "" if isinstance(cells, str) else image_of(cells)
            if not image:
                yield number, cells if isinstance(cells, str) else "it names no image"
            elif image == last:
                self._length[-1] = lines.position - self._begin[-1]
            else:
                self._identity.append(name_hash(image))
                self._begin.append(begin)
                self._length.append(lines.position - begin)
                self._line.append(line)
            last, begin, line = image, lines.position, lines.count + 1

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

    def rows(
        self, file: IO[bytes], group: Iterable[int], parse: Callable[[Lines, int], Iterable[Row]]
    ) -> Iterator[tuple[int, Sequence[str]]]:
        """Yields (line, cells) of the rows in a group of runs.

        Args:
          file: The file.
          group: Indices of the runs.
          parse: Function that parses rows from lines, given the number of the first line.
        """
        for run in group:
            data = os.pread(file.fileno(), self._length[run], self._begin[run])
            for line, cells in parse(Lines([data]), self._line[run]):
                if not isinstance(cells, str):
                    yield line, cells
