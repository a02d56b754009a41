"""A first look at an input: enough to tell what it is, and no more."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from shardwright.transforms import storage
from shardwright.transforms.images.signatures import is_image_name

HEAD_BYTES = 1 << 16
#: Names of a folder that are looked at.
_NAMES = 2000
#: What a system says of a link that cannot be followed.
_LEADS_NOWHERE = (errno.ENOENT, errno.ELOOP)
#: Folders that are looked into for images.
_FOLDERS_TRIED = 20


@dataclass(frozen=True)
class InputProbe:
    """What an input shows at first sight; nothing is read before it is asked for.

    Attributes:
      path: where it is.
      is_file: whether it is a single file.
      inner: whether it lies below the input.
    """

    path: str
    is_file: bool
    inner: bool = False

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rstrip("/").rpartition("/")[2]

    @cached_property
    def head(self) -> bytes:
        """The first 64 kB of a file, all of them if it is smaller; nothing of a folder."""
        return storage.read_head(self.path, HEAD_BYTES) if self.is_file else b""

    @cached_property
    def files(self) -> tuple[str, ...]:
        """The names of the files directly in a folder, at most 2,000 of them, sorted.

        Links that lead nowhere or in a circle are left out: they say nothing about the input. Listing the
        input puts them into the books.
        """
        if self.is_file:
            return ()
        if storage.is_remote(self.path):
            base = self.path.rstrip("/") + "/"
            deep = not storage.has_folders(base)
            names = (item.path.removeprefix(base) for item in storage.list_objects(base, deep=deep))
            return tuple(sorted(islice((name for name in names if "/" not in name), _NAMES)))
        with self._entries() as entries:
            return tuple(sorted(entry.name for entry in islice(entries, _NAMES) if _leads_to_file(entry)))

    @cached_property
    def folders(self) -> tuple[str, ...]:
        """The names of the folders directly in a folder, sorted."""
        if self.is_file:
            return ()
        if storage.is_remote(self.path):
            base = self.path.rstrip("/") + "/"
            return tuple(storage.list_folders(base)) if storage.has_folders(base) else ()
        with self._entries() as entries:
            return tuple(sorted(entry.name for entry in entries if _is_folder(entry)))

    @contextlib.contextmanager
    def _entries(self) -> Iterator[Iterator[os.DirEntry[str]]]:
        """Opens a local folder; a folder below the input that may not be read seems empty.

        Listing the input names such a folder and says what to do.
        """
        try:
            opened = os.scandir(self.path)
        except PermissionError:
            if not self.inner:
                raise
            yield iter(())
            return
        with opened:
            yield opened

    @cached_property
    def images_below(self) -> int:
        """How many images, by their names, lie in the first folders below.

        Where they are more than the archives or the like at the top, these are stray ones.
        """
        found, waiting = 0, deque(self._shown_folders())
        for _ in range(_FOLDERS_TRIED):
            if not waiting:
                break
            folder = waiting.popleft()
            images = sum(is_image_name(name) and not name.startswith(".") for name in folder.files)
            found += images
            if not images:
                waiting += folder._shown_folders()
        return found

    def _shown_folders(self) -> Iterator[InputProbe]:
        names = (name for name in self.folders if not name.startswith("."))
        for name in islice(names, _FOLDERS_TRIED):
            yield InputProbe(f"{self.path.rstrip('/')}/{name}", is_file=False, inner=True)

    def inside(self, *names: str) -> InputProbe:
        """Returns a look at something in a folder; it has to be there."""
        path = storage.join(self.path, *names)
        return InputProbe(path, names[-1] in self.files if len(names) == 1 else _is_file(path), inner=True)


def look_at(path: str) -> InputProbe:
    """Returns a look at a path that exists.

    Raises:
      FileNotFoundError: if nothing is there.
    """
    if not storage.is_remote(path):
        os.stat(path)
    return InputProbe(path, _is_file(path))


def is_pattern(path: str) -> bool:
    """Whether a path ends with a pattern, such as `train-*`, and not the name of something that is there."""
    if not glob.has_magic(path.rpartition("/")[2]):
        return False
    if storage.is_remote(path):
        return not storage.exists(path) and next(storage.list_objects(path), None) is None
    return not os.path.lexists(path)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder or a link to one; a link that cannot be followed is not."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _leads_to_file(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is no folder, and no link that leads nowhere."""
    if _is_folder(entry):
        return False
    if entry.is_symlink():
        try:
            os.stat(entry.path)
        except OSError as error:
            return error.errno not in _LEADS_NOWHERE
    return True


def _is_file(path: str) -> bool:
    if not storage.is_remote(path):
        return os.path.isfile(path)
    return not path.endswith("/") and storage.stat(path) is not None
