"""Files that list images, such as a CSV file of boxes: finds them in an input, and their images' folders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from shardwright.core import storage
from shardwright.core.sources.image_files import (
    below,
    check_folders,
    find_root,
    folder_of,
    join,
    key_of,
    parent_of,
    split_token,
    splits_of_files,
)
from shardwright.core.sources.input_probe import InputProbe, look_at
from shardwright.core.sources.source import Context, Input, InputSplit, Source
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef, printable
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import Needs

#: Number of files, and of folders, that are tried to detect a format.
_MAX_TRIED = 50
#: Folder that may hold the files of formats with large files.
_ANNOTATIONS = "annotations"
#: Folders of images beside a file: of most exporters, and of FiftyOne.
_IMAGE_FOLDERS = ("images", "data")


class ListFile(NamedTuple):
    """A file of an input.

    Attributes:
      key: Path relative to the input.
      split: Split from its name or folder; empty if it is the only one.
      root: Folder of its images; empty if its beginning does not show that.
    """

    path: str
    key: str
    split: str
    root: str = ""


@dataclass(frozen=True, kw_only=True)
class ListFormat(ABC):
    """A format of files that list images.

    Attributes:
      name: Name of the source.
      title: Name of the format for messages.
      noun: Name of one of its files, for messages about an input without one.
      rule: What an input has to be; the end of these messages.
      suffixes: Ends of the names, in lower case, of files that are found in folders.
      settings: Settings that it uses.
      provides: Kinds of annotations that it provides.
      suits: Returns whether `--source auto` looks for this format in an input.
      leave_out: Returns file -> reason for the files that are left out.
      is_joined: Whether several files may describe one image.
      has_keypoints: Whether it has key points.
      has_more_in_folders: Whether files in folders, also in `annotations`, belong to those at the top of an
        input. Otherwise only split folders are searched, and only if no file is at the top.
    """

    name: str
    title: str
    noun: str
    rule: str
    suffixes: str | tuple[str, ...]
    settings: frozenset[str]
    provides: frozenset[Needs] = frozenset({Needs.OBJECTS})
    suits: Callable[[InputProbe, ConvertSettings], bool] = lambda probe, settings: True
    leave_out: Callable[[InputProbe, Sequence[str], ConvertSettings], Mapping[str, str]] = lambda *_: {}
    is_joined: bool = False
    has_keypoints: bool = False
    has_more_in_folders: ClassVar[bool] = False

    @abstractmethod
    def is_one(self, path: str, settings: ConvertSettings) -> bool:
        """Returns whether a file is of the format."""

    @abstractmethod
    def examine(self, file: ListFile, settings: ConvertSettings) -> tuple[str, str]:
        """Returns the folder of the images of a file, and what a description says about the file.

        Raises:
          UsageError: If the file does not fit the settings, or its images are missing.
        """

    @abstractmethod
    def list_part(self, part: InputSplit, context: Context) -> Iterator[ImageRef | ClassId]:
        """Yields a reference for each image of a part, and for each entry without an image."""

    def source(self) -> Source:
        """Returns the source that reads this format."""
        return Source(
            name=self.name,
            provides=self.provides,
            settings=self.settings,
            accepts=self._accepts,
            describe=self._describe,
            list_part=self.list_part,
            split=self._split,
            has_keypoints=self.has_keypoints,
        )

    def _accepts(self, probe: InputProbe, settings: ConvertSettings) -> bool:
        if not self.suits(probe, settings):
            return False
        if probe.is_file:
            return self.is_one(probe.path, settings)
        return next(self._names(probe, settings, _MAX_TRIED), None) is not None

    def _names(self, probe: InputProbe, settings: ConvertSettings, tried: int | None = None) -> Iterator[str]:
        """Yields the paths of the files in a folder, relative to it."""

        def names_in(folder: InputProbe) -> list[str]:
            return names_with(folder, self.suffixes, tried, lambda path: self.is_one(path, settings))

        names = names_in(probe)
        yield from names
        if names and not self.has_more_in_folders:
            return
        folders = [name for name in probe.folders if split_token(name) and not name.startswith(".")]
        if self.has_more_in_folders:
            folders = [name for name in probe.folders if name == _ANNOTATIONS or name in folders]
        for folder in folders[:tried]:
            yield from (f"{folder}/{name}" for name in names_in(probe.inside(folder)))

    def _files(
        self, probe: InputProbe, settings: ConvertSettings
    ) -> tuple[dict[ListFile, str], Mapping[str, str]]:
        """Returns the files of an input with their descriptions, and what is left out and why.

        Raises:
          UsageError: If there are none, or one does not fit the settings.
        """
        names = [""] if probe.is_file else [*self._names(probe, settings)]
        if not names:
            raise UsageError(f"--input {printable(probe.path)} holds no {self.noun}; {self.rule}")
        left_out = self.leave_out(probe, names, settings)
        files: dict[ListFile, str] = {}
        for name, split in splits_of_files(name for name in names if name not in left_out).items():
            path, key = (storage.join(probe.path, name), name) if name else (probe.path, probe.name)
            file = ListFile(path, key, split)
            root, description = self.examine(file, settings)
            files[file._replace(root=root)] = description
        return files, left_out

    def _describe(self, probe: InputProbe, settings: ConvertSettings) -> str:
        """Returns a description of an input."""
        check_folders(settings, self.settings)
        files, left_out = self._files(probe, settings)
        places = []
        for file, description in files.items():
            where = f"images in {printable(file.root)}" if file.root else "images beside it"
            split = f", split {file.split}" if file.split else ""
            places.append(f"{printable(file.key)} ({where}{split}{description})")
        without = "; ".join(f"{printable(name)} ({why})" for name, why in left_out.items())
        return f"{self.title}: {'; '.join(places)}{f'; left out: {without}' if without else ''}"

    def _split(self, item: Input, context: Context) -> Iterator[InputSplit]:
        """Yields a part for each file, or for all files that may describe the same images."""
        groups: dict[tuple[str, str], list[ListFile]] = {}
        for file in self._files(look_at(item.path), context.settings)[0]:
            group = (file.root or file.path, file.split) if self.is_joined else (file.path, "")
            groups.setdefault(group, []).append(file)
        for files in groups.values():
            yield InputSplit(item, files[0].path, detail=files)


def names_with(
    probe: InputProbe, suffixes: str | tuple[str, ...], tried: int | None, is_one: Callable[[str], bool]
) -> list[str]:
    """Returns the names of the files in a folder that have a suffix and pass a test.

    Args:
      probe: The folder.
      suffixes: Suffixes of the names, in lower case.
      tried: Number of files to test, the first by name; None for all.
      is_one: Returns whether the file with this path is of the format.
    """
    names = [name for name in probe.files if name.lower().endswith(suffixes) and not name.startswith(".")]
    return [name for name in names[:tried] if is_one(storage.join(probe.path, name))]


def _usual_folders(path: str, settings: ConvertSettings) -> list[str]:
    """Returns the folders that may contain the images of a file, the likeliest first.

    Args:
      path: Path of the file; the images of `instances_val2017.json` may be in `val2017/` or `val/`.
      settings: Settings with `image_root`.
    """
    stem = path.rpartition("/")[2].rpartition(".")[0]
    inner = [name for name in (stem.rpartition("_")[2], split_token(stem)) if name]
    here = named_folder(path, settings)
    if settings.image_root:
        return [here, *(join(here, name) for name in inner)]
    above = parent_of(here)
    folders = [join(place, name) for name in _IMAGE_FOLDERS for place in (here, above)]
    of_split = [join(place, name) for name in inner for place in (here, above, *folders)]
    return [here, *folders, *of_split, above]


def named_folder(path: str, settings: ConvertSettings) -> str:
    """Returns `--image_root`, or the folder of the file."""
    return settings.image_root.rstrip("/") or "/" if settings.image_root else folder_of(path)


def usual_root(path: str, settings: ConvertSettings, *attempts: Sequence[str]) -> str:
    """Returns the usual folder that has images of a file, or else `--image_root`; empty if there is neither.

    Args:
      path: Path of the file.
      settings: Settings with `image_root`.
      *attempts: Paths that a few images may have below the folder, the likeliest forms first.
    """
    folders = _usual_folders(path, settings)
    roots = filter(None, (find_root(folders, names) for names in attempts))
    return next(roots, folders[0] if settings.image_root else "")


def required_root(
    path: str, written: Sequence[str], settings: ConvertSettings, *attempts: Sequence[str]
) -> str:
    """Returns the folder that `usual_root` does; empty if no names of images are given.

    Args:
      path: Path of the file.
      written: Names of the images as written.
      settings: Settings with `image_root`.
      *attempts: Paths that they may have below the folder.

    Raises:
      UsageError: If no folder has one of the images.
    """
    root = usual_root(path, settings, *attempts)
    if not root and written:
        raise UsageError(
            f"--input {printable(path)}: its images, such as {printable(written[0])}, are neither beside it "
            "nor in a usual folder; name the folder of its images with --image_root."
        )
    return root


def prefix_of_images(part: InputSplit, root: str, context: Context) -> str:
    """Returns the prefix of the keys of a file's images.

    Args:
      part: The file.
      root: Folder of its images.
      context: Context with `--image_root`.
    """
    folder = "" if part.path == part.item.path else part.item.path
    return part.item.prefix + key_of(key_prefix(root, folder, context.settings.image_root))


def key_prefix(root: str, input_folder: str, named: str) -> str:
    """Returns the prefix of the keys of an annotation file's images: their folder, if the input is a folder.

    Args:
      root: Folder of the images.
      input_folder: The input if it is a folder; empty if it is the file.
      named: Folder that `--image_root` names; empty if it is not given.
    """
    if not input_folder:
        return ""
    inner = below(f"{root}/", input_folder.rstrip("/"))
    if inner is None and named:
        inner = below(f"{root}/", named.rstrip("/"))
    return f"{root.rpartition('/')[2]}/" if inner is None else inner
