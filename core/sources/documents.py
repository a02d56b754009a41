"""Sources with one file for many images, such as COCO's JSON: what all such formats have in common.

A format recognizes a file by its first bytes, and says which image an entry names (`image_of`) and what the
entry says about it (`annotate`). This module finds the images, reads large files entry by entry, and reports
what has no partner. `create_ml.py` is a short example.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import IO, Any, NamedTuple, Protocol

from shardwright.core import storage
from shardwright.core.sources.annotation_files import AnnotationFault
from shardwright.core.sources.entries import JsonItems
from shardwright.core.sources.file_states import FileStates, with_states
from shardwright.core.sources.image_files import (
    MISSING,
    bad_entry,
    below,
    inner_path,
    join,
    key_of,
)
from shardwright.core.sources.image_lists import (
    ListFile,
    ListFormat,
    named_folder,
    prefix_of_images,
    required_root,
)
from shardwright.core.sources.moved_files import file_name, find_moved, with_slashes
from shardwright.core.sources.source import Context, InputSplit
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef, printable
from shardwright.schemas.labels import ClassId

#: Bytes at the beginning of a file from which its format and the folder of its images are found.
_HEAD_BYTES = 1 << 20
#: Number of entries whose images are tried to find their folder.
_IMAGES_TRIED = 5


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
        """Yields all entries. Raises AnnotationFault if the file cannot be used."""

    def number(self, index: int) -> int:
        """Returns the number of an entry for messages: its place from 1, or its line."""

    def read(self, index: int) -> Any:
        """Returns an entry that `scan` yielded."""


class Document(NamedTuple):
    """A file and its entries."""

    file: ListFile
    entries: Entries


#: An entry: the place of its file among those that are read together, and its own place in the file.
_Place = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class DocumentFormat(ListFormat):
    """A format with one file for many images.

    Attributes:
      entry: Word for an entry.
      recognizes: Returns whether a file with these first bytes is of the format.
      image_of: Returns what an entry says about the place of its image. Raises AnnotationFault if it names
        none.
      annotate: Returns a reference with the annotations of an entry. Raises AnnotationFault if they are
        wrong. If several files may describe one image, it gets its entries as documents with numbers of
        entries.
      open: Returns the entries of an open file, of which only the beginning may be there.
      summarize: Returns what a description says about a file, from its first entries. Raises UsageError if
        the layout does not fit them.
      is_beside: Whether the images are below the folder of the file, so that its path is part of their keys;
        otherwise usual folders are tried.
      begin: Yields class ids, and (file, name, fault) of entries without an image. Raises UsageError if the
        files do not fit the layout.
    """

    entry: str
    recognizes: Callable[[bytes], bool]
    image_of: Callable[[Any, ConvertSettings], ImagePaths]
    annotate: Callable[[ImageRef, Any, ConvertSettings], ImageRef]
    suffixes: str | tuple[str, ...] = ".json"
    open: Callable[[IO[bytes], ConvertSettings], Entries] = lambda file, settings: JsonItems(file)
    summarize: Callable[[ListFile, Sequence[Any], ConvertSettings], str] = lambda *_: ""
    is_beside: bool = True
    begin: Callable[[Sequence[Document], ConvertSettings], Iterator[ClassId | tuple[Document, str, str]]] = (
        lambda *_: iter(())
    )
    has_more_in_folders = True

    def is_one(self, path: str, settings: ConvertSettings) -> bool:
        """Returns whether a file is of the format."""
        return path.lower().endswith(self.suffixes) and self.recognizes(_head(path))

    def examine(self, file: ListFile, settings: ConvertSettings) -> tuple[str, str]:
        """Returns the folder of the images of a file, and a description of its first entries."""
        entries: list[Any] = []
        with contextlib.suppress(AnnotationFault):  # the end of the file is missing
            entries.extend(self.open(io.BytesIO(_head(file.path)), settings).scan())
        images = []
        for entry in entries[:_IMAGES_TRIED]:
            with contextlib.suppress(AnnotationFault):
                images.append(self.image_of(entry, settings))
        return self._root(file.path, images, settings), self.summarize(file, entries, settings)

    def _root(self, path: str, names: Sequence[ImagePaths], settings: ConvertSettings) -> str:
        """Returns the folder of the images of a file; empty if no names are given.

        Raises:
          UsageError: If no folder has one of the images with the names.
        """
        if self.is_beside:
            return named_folder(path, settings)
        paths = [path for image in names for path in image.paths]
        inner = [inner for path in paths for inner in _inner_paths(path, "")]
        return required_root(path, paths, settings, inner, [*map(file_name, paths)])

    def list_part(self, part: InputSplit, context: Context) -> Iterator[ImageRef | ClassId]:
        """Yields a reference for each image that the files name, and for each entry without an image."""
        settings = context.settings
        with contextlib.ExitStack() as stack:
            documents = []
            for file in part.detail:
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
            root = root or named_folder(file.path, settings)
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
        return _bad_entry(part, document, f"{self.entry} {document.entries.number(entry)}", why)

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
                why = f"{self.entry} {earlier} names the same image"
                yield self._bad_place(part, documents[index], entry, why)
                fault = fault or f"{self.entry}s {earlier} and {again} of {printable(file.key)} both name it"
        several = [(documents[index], entry) for index, entry in by_file.items()]
        (file, entries), entry = several[0]
        where = f"{self.entry} {entries.number(entry)} of {printable(file.key)}"
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
