"""A first look at an input, just enough to recognize it."""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import filterfalse, islice

from shardwright.core import storage
from shardwright.core.images.signatures import extension_of, is_image_name
from shardwright.core.sources.annotation_files import side_by_side
from shardwright.core.sources.image_files import is_hidden

HEAD_BYTES = 1 << 16
#: What glob(3) replaces: a bracket that is not closed is a character.
_PATTERN = re.compile(r"[*?]|\[[^]]+\]")
#: Most names with an image's extension in a folder that are kept, and most with any other extension.
IMAGES, OTHERS = 2_000, 50_000
#: Most names in a folder of a bucket that are listed.
LISTED = 20_000
#: Most folders that are searched to recognize an input, and most subfolders of each.
_FOLDERS_NEAR = 20


@dataclass(frozen=True)
class InputProbe:
    """A first look at an input. Each part is read only when it is needed.

    Attributes:
      path: Path of the file or folder.
      is_file: Whether it is a single file.
      inner: Whether it is below the input.
    """

    path: str
    is_file: bool
    inner: bool = False

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.path.rstrip("/").rpartition("/")[2]

    @property
    def root(self) -> str:
        """Path without a slash at its end."""
        return self.path.rstrip("/") or "/"

    @property
    def where(self) -> str:
        """The option that names the input, for messages."""
        return f"--input {self.path}"

    @cached_property
    def head(self) -> bytes:
        """First 64 kB of a file, or the whole file if it is smaller; empty for a folder."""
        return storage.read_head(self.path, HEAD_BYTES) if self.is_file else b""

    @cached_property
    def files(self) -> tuple[str, ...]:
        """Names of the files directly in a folder, sorted.

        At most 2,000 images of each extension and 50,000 files of any other are among them, so that a list of
        images is found beside the images. In a bucket, only the first 20,000 names are listed. Hidden files,
        broken and circular links, pipes and devices are left out, because they say nothing about the input.
        Listing the input later counts them.
        """
        return tuple(sorted(filterfalse(is_hidden, self._level[0])))

    @cached_property
    def folders(self) -> tuple[str, ...]:
        """Names of the folders directly in a folder that are not hidden, sorted."""
        folders = self._level[1]
        names = storage.list_folders(self.path) if folders is None else sorted(folders)
        return tuple(name for name in names if name and not is_hidden(name))

    def _list_level(self) -> tuple[list[str], list[str] | None]:
        """Returns the names of the first files and, if known, of all folders directly in a folder.

        An unreadable folder below the input counts as empty. Listing the input names it and says what to do.
        """
        counts: Counter[str] = Counter()
        if self.is_file:
            return [], []
        if storage.is_remote(self.path):
            names, listed = storage.list_level(self.path, LISTED)
            return [name for name in names if is_one_of_few(name, counts)], listed
        files, folders = list[str](), list[str]()
        try:
            entries = os.scandir(self.path)
        except PermissionError:
            if not self.inner:
                raise
            return files, folders
        with entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # a link in a circle is neither
                    if entry.is_dir():
                        folders.append(entry.name)
                    elif entry.is_file() and is_one_of_few(entry.name, counts):
                        files.append(entry.name)
        return files, folders

    _level = cached_property(_list_level)

    def has_file(self, name: str) -> bool:
        """Returns whether a file is directly in a folder, though `files` lacks some of a large one."""
        is_large = len(self._level[0]) >= min(IMAGES, LISTED)
        return name in self.files or (is_large and storage.exists(storage.join(self.path, name)))

    def folders_near(self) -> Iterator[InputProbe]:
        """Yields the folder and the first folders below it, level by level."""
        waiting = deque([self])
        for _ in range(_FOLDERS_NEAR):
            if not waiting:
                return
            folder = waiting.popleft()
            yield folder
            waiting += folder.folders_inside(folder.folders[:_FOLDERS_NEAR])

    @property
    def has_images(self) -> bool:
        """Whether images are in a folder, or in the first folders below it."""
        return any(map(is_image_name, self.files)) or self.images_below > 0

    @cached_property
    def images_below(self) -> int:
        """Number of images in the first folders below, judged by their names.

        If there are more of them than archives at the top, the archives are only stray files.
        """
        names = (name for folder in islice(self.folders_near(), 1, None) for name in folder.files)
        return sum(map(is_image_name, names))

    def files_with(
        self, suffixes: str | tuple[str, ...], tried: int | None, is_one: Callable[[str], bool]
    ) -> list[str]:
        """Returns the names of the files in a folder that have a suffix and pass a test.

        Args:
          suffixes: Suffixes of the names, in lower case.
          tried: Number of files to test, the first by name; None for all.
          is_one: Returns whether the file with this path is of the format.
        """
        names = [name for name in self.files if name.lower().endswith(suffixes)]
        return [name for name in names[:tried] if is_one(storage.join(self.path, name))]

    def inside(self, name: str) -> InputProbe:
        """Returns the probe of a file or folder inside; a folder has the same probe each time.

        In a bucket, a file may have the name of a folder. Then the folder is meant.
        """
        if name in self._folders_inside:
            return self._folders_inside[name]
        is_file = name in self.files and name not in self.folders
        probe = InputProbe(storage.join(self.path, name), is_file, inner=True)
        if not is_file:  # the heads of many files would need memory
            self._folders_inside[name] = probe
        return probe

    def folders_inside(self, names: Iterable[str]) -> list[InputProbe]:
        """Returns the probes of folders inside; folders of a bucket are listed at the same time."""
        inner = [self.inside(name) for name in names]
        if storage.is_remote(self.path):
            unlisted = [probe for probe in inner if "_level" not in vars(probe)]
            levels = side_by_side(InputProbe._list_level, unlisted, self.path)
            for probe, level in zip(unlisted, levels):
                vars(probe)["_level"] = level  # until Python 3.12, all probes compute it in turn
        return inner

    @cached_property
    def _folders_inside(self) -> dict[str, InputProbe]:
        """Probes of folders inside, which each kind of source looks into."""
        return {}


def is_pattern(path: str) -> bool:
    """Returns whether a path ends with a pattern, such as `train-*`, and does not exist as written."""
    if not _PATTERN.search(path.rpartition("/")[2]):
        return False
    if storage.is_remote(path):
        return not storage.exists(path) and next(storage.list_objects(path), None) is None
    return not os.path.lexists(path)


def is_one_of_few(name: str, counts: Counter[str]) -> bool:
    """Counts a file by its extension, and returns whether there are not too many of these yet."""
    extension = extension_of(name)
    counts[extension] += 1
    return counts[extension] <= (IMAGES if is_image_name(name) else OTHERS)
