"""Sources with one file for many images, such as COCO's JSON: what all such formats have in common.

A format recognizes a file by its first bytes, and says which image an entry names (`image_of`) and what the
entry says about it (`annotate`). This module finds the files and their images, reads large files entry by
entry, and reports what has no partner. `create_ml.py` is a short example.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import IO, Any, NamedTuple, Protocol

from shardwright.core import storage
from shardwright.core.sources.annotation_files import AnnotationFault
from shardwright.core.sources.entries import JsonFault, JsonItems
from shardwright.core.sources.file_states import FileStates, with_states
from shardwright.core.sources.image_files import (
    MISSING,
    bad_entry,
    below,
    check_folders,
    find_root,
    folder_of,
    inner_path,
    join,
    key_of,
    parent_of,
    split_token,
)
from shardwright.core.sources.image_lists import (
    MAX_TRIED,
    names_with,
    placed_lists,
    prefix_of_images,
)
from shardwright.core.sources.input_probe import InputProbe, look_at
from shardwright.core.sources.moved_files import file_name, find_moved, with_slashes
from shardwright.core.sources.source import Context, Input, InputSplit, Source
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef, printable
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import Needs

#: Bytes at the beginning of a file from which its format and the folder of its images are found.
_HEAD_BYTES = 1 << 20
#: Number of entries whose images are tried to find their folder.
_IMAGES_TRIED = 5
#: Folder in which files are found, too.
_ANNOTATIONS = "annotations"
#: Folders of images beside a file: of most exporters, and of FiftyOne.
_IMAGE_FOLDERS = ("images", "data")


class DocumentFile(NamedTuple):
    """A file of an input.

    Attributes:
      key: Path relative to the input.
      root: Folder of its images; empty if its beginning does not show that.
      split: Split from its name or folder; empty if it is the only one.
    """

    path: str
    key: str
    root: str
    split: str


class ImagePaths(NamedTuple):
    """What an entry says about the place of its image.

    Attributes:
      written: The name as written. If it is a path below the folder of images, it gives the key of an image
        that is missing.
      paths: Paths and file names that the image may have below the folder of images, the likeliest first.
      uri: The image in object storage, if no local file has one of the names; empty if there is none.
    """

    written: str
    paths: tuple[str, ...]
    uri: str = ""


class Entries(Protocol):
    """The entries of an open file."""

    def scan(self) -> Iterator[Any]:
        """Yields all entries. Raises AnnotationFault or JsonFault if the file cannot be used."""

    def number(self, index: int) -> int:
        """Returns the number of an entry for messages: its place from 1, or its line."""

    def read(self, index: int) -> Any:
        """Returns an entry that `scan` yielded."""


class Document(NamedTuple):
    """A file and its entries."""

    file: DocumentFile
    entries: Entries


#: An entry: the place of its file among those that are read together, and its own place in the file.
_Place = tuple[int, int]


def usual_folders(path: str, settings: ConvertSettings) -> list[str]:
    """Returns the folders that may contain the images of a file, the likeliest first.

    Args:
      path: Path of the file; the images of `instances_val2017.json` may be in `val2017/` or `val/`.
      settings: Settings with `image_root`.
    """
    stem = path.rpartition("/")[2].rpartition(".")[0]
    inner = [name for name in (stem.rpartition("_")[2], split_token(stem)) if name]
    here = _folder_named(path, settings)
    if settings.image_root:
        return [here, *(join(here, name) for name in inner)]
    above = parent_of(here)
    folders = [join(place, name) for name in _IMAGE_FOLDERS for place in (here, above)]
    of_split = [join(place, name) for name in inner for place in (here, above, *folders)]
    return [here, *folders, *of_split, above]


def _folder_named(path: str, settings: ConvertSettings) -> str:
    """Returns `--image_root`, or the folder of the file."""
    return settings.image_root.rstrip("/") or "/" if settings.image_root else folder_of(path)


@dataclass(frozen=True)
class DocumentFormat:
    """A format with one file for many images.

    Attributes:
      name: Name of the source.
      title: Name of the format for messages.
      expected: What an input has to be; the end of the message if it is not.
      noun: Word for an entry.
      recognizes: Returns whether a file with these first bytes is of the format.
      image_of: Returns what an entry says about the place of its image. Raises AnnotationFault if it names
        none.
      annotate: Returns a reference with the annotations of an entry. Raises AnnotationFault if they are
        wrong.
      provides: Kinds of annotations that it provides.
      settings: Settings that it uses.
      suffix: End of the names of its files.
      open: Returns the entries of an open file, of which only the beginning may be there.
      summarize: Returns what a description says about a file, from its first entries. Raises UsageError if
        the layout does not fit them.
      is_beside: Whether the images are below the folder of the file, so that its path is part of their keys;
        otherwise usual folders are tried.
      leave_out: Returns file -> reason for the files that are left out.
      begin: Yields class ids, and (file, name, fault) of entries without an image. Raises UsageError if the
        files do not fit the layout.
      is_joined: Whether several files may describe one image. `annotate` then gets its entries as documents
        with numbers of entries.
      has_keypoints: Whether it has key points.
    """

    name: str
    title: str
    expected: str
    noun: str
    recognizes: Callable[[bytes], bool]
    image_of: Callable[[Any, ConvertSettings], ImagePaths]
    annotate: Callable[[ImageRef, Any, ConvertSettings], ImageRef]
    provides: frozenset[Needs] = frozenset({Needs.OBJECTS})
    settings: frozenset[str] = frozenset({"image_root"})
    suffix: str = ".json"
    open: Callable[[IO[bytes], ConvertSettings], Entries] = lambda file, settings: JsonItems(file)
    summarize: Callable[[DocumentFile, Sequence[Any], ConvertSettings], str] = lambda *_: ""
    is_beside: bool = True
    leave_out: Callable[[InputProbe, Sequence[str], ConvertSettings], Mapping[str, str]] = lambda *_: {}
    begin: Callable[[Sequence[Document], ConvertSettings], Iterator[ClassId | tuple[Document, str, str]]] = (
        lambda *_: iter(())
    )
    is_joined: bool = False
    has_keypoints: bool = False

    def source(self) -> Source:
        """Returns the source that reads this format."""
        return Source(
            name=self.name,
            provides=self.provides,
            settings=self.settings,
            accepts=lambda probe, settings: next(self._names(probe, MAX_TRIED), None) is not None,
            describe=self.describe,
            list_part=self.list_part,
            split=self.split,
            has_keypoints=self.has_keypoints,
        )

    def _names(self, probe: InputProbe, tried: int | None = None) -> Iterator[str]:
        """Yields the paths of the files in an input; an empty path if the input is a file."""
        if probe.is_file:
            yield from [""] if self._is_one(probe.path) else []
            return
        yield from names_with(probe, self.suffix, tried, self._is_one)
        inner = [name for name in probe.folders if name == _ANNOTATIONS or split_token(name)]
        for folder in inner[:tried]:
            names = names_with(probe.inside(folder), self.suffix, tried, self._is_one)
            yield from (f"{folder}/{name}" for name in names)

    def _is_one(self, path: str) -> bool:
        return path.lower().endswith(self.suffix) and self.recognizes(_head(path))

    def _files(
        self, probe: InputProbe, settings: ConvertSettings
    ) -> tuple[list[tuple[DocumentFile, list[Any]]], Mapping[str, str]]:
        """Returns the files of an input with their first entries, and what is left out and why."""
        names = [""] if probe.is_file else [*self._names(probe)]
        left_out = self.leave_out(probe, names, settings)
        files = []
        for path, key, split in placed_lists(probe, [name for name in names if name not in left_out]):
            entries: list[Any] = []
            with contextlib.suppress(AnnotationFault, JsonFault):  # the end of the file is missing
                entries.extend(self.open(io.BytesIO(_head(path)), settings).scan())
            images = []
            for entry in entries[:_IMAGES_TRIED]:
                with contextlib.suppress(AnnotationFault):
                    images.append(self.image_of(entry, settings))
            files.append((DocumentFile(path, key, self._root(path, images, settings), split), entries))
        return files, left_out

    def _root(self, path: str, names: Sequence[ImagePaths], settings: ConvertSettings) -> str:
        """Returns the folder of the images of a file; empty if no names are given.

        Raises:
          UsageError: If no folder has one of the images with the names.
        """
        if self.is_beside:
            return _folder_named(path, settings)
        folders = usual_folders(path, settings)
        paths = [path for image in names for path in image.paths]
        found = find_root(folders, [inner for path in paths for inner in _inner_paths(path, "")])
        found = found or find_root(folders, [file_name(path) for path in paths])
        if not found and settings.image_root:
            return folders[0]
        if not found and paths:
            raise UsageError(
                f"--input {printable(path)}: its images, such as {printable(paths[0])}, are neither beside "
                "it nor in a usual folder; name the folder of its images with --image_root."
            )
        return found

    def describe(self, probe: InputProbe, settings: ConvertSettings) -> str:
        """Returns a description of an input.

        Raises:
          UsageError: If it has no file of this format, or a file does not fit the settings.
        """
        check_folders(settings, self.settings)
        files, left_out = self._files(probe, settings)
        if not files:
            kind = self.suffix[1:].upper()
            raise UsageError(
                f"--input {printable(probe.path)} holds no {self.title} {kind}; {self.expected}."
            )
        places = []
        for file, entries in files:
            where = f"images in {printable(file.root)}" if file.root else "images beside it"
            split = f", split {file.split}" if file.split else ""
            places.append(f"{printable(file.key)} ({where}{split}{self.summarize(file, entries, settings)})")
        without = "; ".join(f"{printable(name)} ({why})" for name, why in left_out.items())
        return f"{self.title}: {'; '.join(places)}{f'; left out: {without}' if without else ''}"

    def split(self, item: Input, context: Context) -> Iterator[InputSplit]:
        """Yields a part for each file, or for all files that may describe the same images."""
        groups: dict[tuple[str, str], list[DocumentFile]] = {}
        for file, _ in self._files(look_at(item.path), context.settings)[0]:
            group = (file.root or file.path, file.split) if self.is_joined else (file.path, "")
            groups.setdefault(group, []).append(file)
        for files in groups.values():
            yield InputSplit(item, files[0].path, detail=json.dumps([file._asdict() for file in files]))

    def list_part(self, part: InputSplit, context: Context) -> Iterator[ImageRef | ClassId]:
        """Yields a reference for each image that the files name, and for each entry without an image."""
        settings = context.settings
        with contextlib.ExitStack() as stack:
            documents = []
            for file in (DocumentFile(**values) for values in json.loads(part.detail)):
                with storage.translated_errors("read", file.path):
                    opened = stack.enter_context(storage.open_local(file.path))
                documents.append(Document(file, self.open(opened, settings)))
            named: dict[ImagePaths, list[_Place]] = {}
            for index, document in enumerate(documents):
                for entry, value in enumerate(_scan(document)):
                    try:
                        named.setdefault(self.image_of(value, settings), []).append((index, entry))
                    except AnnotationFault as fault:
                        yield self._bad_place(part, document, entry, str(fault))
            for found in self.begin(documents, settings):
                yield found if isinstance(found, ClassId) else _bad_entry(part, *found)
            file = documents[0].file
            root = file.root or self._root(file.path, [*islice(named, _IMAGES_TRIED)], settings)
            root = root or _folder_named(file.path, settings)
            states = FileStates(root, len(named))
            images: dict[str, tuple[str, str, list[_Place]]] = {}
            for names, uri, path, why in _find_images(named, root, states):
                if uri:
                    images.setdefault(uri, (path, why, []))[2].extend(named[names])
                    continue
                for index, entry in named[names]:
                    yield self._bad_place(part, documents[index], entry, why)
            prefix = prefix_of_images(part, root, context)
            refs = (
                ref
                for uri, (path, why, places) in images.items()
                for ref in self._refer(
                    ImageRef(prefix + key_of(path), uri), why, sorted(places), documents, part, settings
                )
            )
            yield from with_states(refs, states, root)

    def _bad_place(self, part: InputSplit, document: Document, entry: int, why: str) -> ImageRef:
        return _bad_entry(part, document, f"{self.noun} {document.entries.number(entry)}", why)

    def _refer(
        self,
        ref: ImageRef,
        fault: str,
        places: Sequence[_Place],
        documents: Sequence[Document],
        part: InputSplit,
        settings: ConvertSettings,
    ) -> Iterator[ImageRef]:
        """Yields the reference of an image, and references for further entries of the same file about it."""
        by_file: dict[int, int] = {}
        for index, entry in places:
            first = by_file.setdefault(index, entry)
            if first != entry:
                file, entries = documents[index]
                earlier, again = map(entries.number, (first, entry))
                why = f"{self.noun} {earlier} names the same image"
                yield self._bad_place(part, documents[index], entry, why)
                fault = fault or f"{self.noun}s {earlier} and {again} of {printable(file.key)} both name it"
        several = [(documents[index], entry) for index, entry in by_file.items()]
        (file, entries), entry = several[0]
        where = f"{self.noun} {entries.number(entry)} of {printable(file.key)}"
        ref = ref._replace(split=file.split, message=where)
        try:
            if fault:
                raise AnnotationFault(fault)
            yield self.annotate(ref, several if self.is_joined else entries.read(entry), settings)
        except AnnotationFault as error:
            yield ref.quarantined(QuarantineReason.BAD_ANNOTATION, f"{where}: {error}")


def _head(path: str) -> bytes:
    with storage.translated_errors("read", path):
        return storage.read_head(path, _HEAD_BYTES)


def _scan(document: Document) -> Iterator[Any]:
    path = document.file.path
    try:
        with storage.translated_errors("read", path):
            yield from document.entries.scan()
    except AnnotationFault as fault:
        raise UsageError(f"--input {printable(path)}: {fault}.") from None
    except JsonFault as fault:
        raise UsageError(
            f"--input {printable(path)} is not complete JSON: {fault}; fetch it again or fix it."
        ) from None


def _bad_entry(part: InputSplit, document: Document, name: str, why: str) -> ImageRef:
    key = f"{part.item.prefix}{key_of(document.file.key)}:{name}"
    return bad_entry(key, document.file.path, why)


def _inner_paths(path: str, root: str) -> Iterator[str]:
    """Yields the paths below the folder of images that a path in a file may mean."""
    texts = [path, with_slashes(path)] if "\\" in path else [path]
    if path.startswith("/") and root and "\0" not in path:
        texts.append(below(os.path.normpath(path), os.path.abspath(root)) or "")
    yield from filter(None, map(inner_path, texts))


def _find_images(
    named: Collection[ImagePaths], root: str, states: FileStates
) -> Iterator[tuple[ImagePaths, str, str, str]]:
    """Yields the URI of each image, its path below the folder for its key, and why it was not found.

    If no path exists in the folder, the only file with one of the file names is the image. Without such a
    file, it is that in object storage. Otherwise it is missing; it has a URI then, if its path can be a key.
    """
    stated = {names: _find_inside(names, root, states) for names in named}
    lost = (path for names, inner in stated.items() if not inner for path in names.paths)
    moved = find_moved(lost, root)
    for names, path in stated.items():
        fault = ""
        if not path:
            path, fault = next((moved[path] for path in names.paths if path in moved), ("", ""))
        if inner := path or inner_path(names.written):
            yield names, join(root, inner), inner, fault
        elif names.uri and not fault:
            yield names, names.uri, names.paths[0], ""
        else:
            written = printable(names.written)
            yield names, "", "", f"{fault} ({written})" if fault else f"{MISSING}: {written}"


def _find_inside(names: ImagePaths, root: str, states: FileStates) -> str:
    """Returns the path of an image that exists where its entry says; empty if none does.

    In a large bucket, the stated path is not checked.
    """
    for path in names.paths:
        for inner in _inner_paths(path, root):
            exists = states.has(join(root, inner))
            if exists or (exists is None and inner == inner_path(names.written)):
                return inner
    return ""
