"""Sources with one file for many images, such as COCO's JSON or a CSV file with a row for each box.

A format recognizes a file by its first bytes, and says which image an entry names (`image_of`) and what the
entry says about it (`annotate`). This module finds the files of an input and their images, reads large files
entry by entry, and reports what has no partner. `create_ml.py` is a short example.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import IO, Any, NamedTuple

from shardwright.core import storage
from shardwright.core.sources import image_files
from shardwright.core.sources.annotation_files import AnnotationFault, JsonItems
from shardwright.core.sources.file_states import FileStates, ImageRoot, with_states
from shardwright.core.sources.folder_tree import beside_splits
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.source import Context, Input, InputPart, Source
from shardwright.core.sources.tables.rows import with_class_ids
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import Needs
from shardwright.schemas.plain_text import printable

#: Bytes at the beginning of a file from which its format and the folder of its images are found.
_HEAD_BYTES = 1 << 20
#: Number of entries whose images are tried to find their folder.
_IMAGES_TRIED = 5
#: Number of files, and of folders, that are tried to detect a format.
_MAX_TRIED = 50
#: Folders of images beside a file: of most exporters, and of FiftyOne.
_IMAGE_FOLDERS = ("images", "data")
#: Ends of the names of tables that are named as input.
_TABLES = (".csv", ".tsv", ".txt")
#: Folder that may hold the files of formats with large files.
_ANNOTATIONS = "annotations"


class Document(NamedTuple):
    """A file of an input.

    Attributes:
      key: Path relative to the input.
      split: Split from its name or folder; empty if it is the only one.
      root: Folder of its images; empty if its beginning does not show that.
      entries: What `DocumentFormat.open` returned; None if the file is not open.
    """

    path: str
    key: str
    split: str
    root: str = ""
    entries: Any = None


class ImagePaths(NamedTuple):
    """What an entry says about the place of its image.

    Attributes:
      written: The name as written. If it is a path below the folder of images, it gives the key of an image
        that is missing.
      paths: Paths and file names that the image may have below the folder of images, the likeliest first;
        empty if the image is exactly where its name says, which may be outside of that folder.
      uri: The image in object storage, if no local file has one of the names; empty if there is none.
    """

    written: str
    paths: tuple[str, ...]
    uri: str = ""


#: An entry: the number of its file among those that are read together, its own number there, and the file.
_Place = tuple[int, int, Document]


@dataclass(frozen=True, kw_only=True)
class DocumentFormat:
    """A format with one file for many images.

    Attributes:
      name: Name of the source.
      title: Name of the format for messages.
      noun: Name of one of its files, for messages about an input without one.
      rule: What an input has to be; the end of these messages.
      entry: Word for an entry.
      recognizes: Returns whether a file with these first bytes and this path is of the format.
      image_of: Returns what an entry says about the place of its image. Raises AnnotationFault if it names
        none.
      annotate: Returns a reference with the annotations of an entry. Raises AnnotationFault if they are
        wrong. If several entries may describe one image, it gets them as documents with numbers of entries.
      settings: Settings that it uses.
      provides: Kinds of annotations that it provides.
      suffixes: Ends of the names of files, in lower case.
      suits: Returns whether `--source auto` looks for this format in an input.
      leave_out: Returns file -> reason for the files that are left out.
      open: Returns the entries of an open file with this path, of which only the beginning may be there.
        They have the methods of `JsonItems`: `scan` yields all entries, and raises AnnotationFault if the
        file cannot be used; `number` returns the number of an entry for messages, its place from 1 or its
        line; and `read` returns one of the entries. Raises UsageError if the file is not of the format.
      summarize: Returns what a description says about a file, from its first entries. Raises UsageError if
        the layout does not fit them.
      begin: Yields class ids, and (file, name, fault) of entries without an image. Raises UsageError if the
        files do not fit the layout.
      is_beside: Whether the images are below the folder of the file, so that its path is part of their keys;
        otherwise usual folders are tried.
      is_joined: Whether several files may describe one image.
      is_table: Whether several entries of a file, its rows, may describe one image. An entry without an image
        is a bad row then. If the input is the file, it may have any name of a table. Only split folders are
        searched for files, and only if no file is at the top of an input; otherwise files in folders, also in
        `annotations`, belong to those at the top.
      has_keypoints: Whether it has key points.
      has_numbers: Whether classes that are numbers have these as ids.
    """

    name: str
    title: str
    noun: str
    entry: str
    recognizes: Callable[[bytes, str, ConvertSettings], bool]
    image_of: Callable[[Any, ConvertSettings], ImagePaths]
    annotate: Callable[[ImageRef, Any, ConvertSettings], ImageRef]
    settings: frozenset[str]
    rule: str = "name the file, or the folder that holds it."
    provides: frozenset[Needs] = frozenset({Needs.OBJECTS})
    suffixes: tuple[str, ...] = (".json",)
    suits: Callable[[InputProbe, ConvertSettings], bool] = lambda *_: True
    leave_out: Callable[[InputProbe, Sequence[str], ConvertSettings], Mapping[str, str]] = lambda *_: {}
    open: Callable[[IO[bytes], str, ConvertSettings], Any] = lambda file, *_: JsonItems(file)
    summarize: Callable[[Document, Sequence[Any], ConvertSettings], str] = lambda *_: ""
    begin: Callable[[Sequence[Document], ConvertSettings], Iterator[ClassId | tuple[Document, str, str]]] = (
        lambda *_: iter(())
    )
    is_beside: bool = False
    is_joined: bool = False
    is_table: bool = False
    has_keypoints: bool = False
    has_numbers: bool = False

    def source(self) -> Source:
        """Returns the source that reads this format."""
        return Source(
            name=self.name,
            provides=self.provides,
            settings=self.settings,
            accepts=self._accepts,
            describe=self._describe,
            list_part=self.list_part,
            parts=self._parts,
            has_keypoints=self.has_keypoints,
        )

    def _accepts(self, probe: InputProbe, settings: ConvertSettings) -> bool:
        if probe.is_file:
            has_name = probe.name.lower().endswith(_TABLES if self.is_table else self.suffixes)
            return has_name and self.suits(probe, settings) and self._is_one(probe.path, settings)
        return self.suits(probe, settings) and any(self._names(probe, settings, _MAX_TRIED))

    def _names(self, probe: InputProbe, settings: ConvertSettings, tried: int | None = None) -> Iterator[str]:
        """Yields the paths of the files in a folder, relative to it."""
        names = self._names_in(probe, settings, tried)
        yield from names
        if names and self.is_table:
            return
        beside = "" if self.is_table else _ANNOTATIONS
        folders = [name for name in probe.folders if name == beside or image_files.split_token(name)]
        for folder in folders[:tried]:
            names = self._names_in(probe.inside(folder), settings, tried)
            yield from (f"{folder}/{name}" for name in names)

    def _names_in(self, folder: InputProbe, settings: ConvertSettings, tried: int | None) -> list[str]:
        return folder.files_with(self.suffixes, tried, lambda path: self._is_one(path, settings))

    def _check_others(
        self, probe: InputProbe, names: Sequence[str], settings: ConvertSettings
    ) -> Iterator[tuple[str, str]]:
        """Checks that files in folders that are named like splits are all.

        Yields:
          The folder of a split with images and without such a file, and why it is left out.

        Raises:
          UsageError: If a folder of another name has such a file.
        """
        used = {name.rpartition("/")[0] for name in names}
        # The folders are only listed if they matter: beside many files in a bucket, this takes long.
        for name in () if used & {"", _ANNOTATIONS} else probe.folders:
            if name in used:
                continue
            if self._names_in(probe.inside(name), settings, _MAX_TRIED):
                raise beside_splits(probe.where, sorted(used), name, self.title)
            if image_files.split_token(name) == name and probe.inside(name).has_images:
                yield name, f"it holds no {self.noun}"

    def _files(
        self, probe: InputProbe, settings: ConvertSettings
    ) -> tuple[dict[Document, str], Mapping[str, str]]:
        """Returns the files of an input with their descriptions, and what is left out and why.

        Raises:
          UsageError: If there are none, or one does not fit the settings.
        """
        names = [""] if probe.is_file else [*self._names(probe, settings)]
        if not names:
            raise UsageError(f"{probe.where} holds no {self.noun}; {self.rule}")
        others = self._check_others(probe, names, settings)
        left_out = {**self.leave_out(probe, names, settings), **dict(others)}
        files: dict[Document, str] = {}
        read = [name for name in names if name not in left_out]
        for name, split in image_files.splits_of_files(read).items():
            path, key = (storage.join(probe.path, name), name) if name else (probe.path, probe.name)
            file = Document(path, key, split)
            root, description = self._examine(file, settings)
            files[file._replace(root=root)] = description
        return files, left_out

    def _describe(self, probe: InputProbe, settings: ConvertSettings) -> str:
        """Returns a description of an input."""
        files, left_out = self._files(probe, settings)
        places = []
        for file, description in files.items():
            where = f"images in {printable(file.root)}" if file.root else "images beside it"
            split = f", split {file.split}" if file.split else ""
            places.append(f"{printable(file.key)} ({where}{split}{description})")
        without = "; ".join(f"{printable(name)} ({why})" for name, why in left_out.items())
        return f"{self.title}: {'; '.join(places)}{f'; left out: {without}' if without else ''}"

    def _parts(self, item: Input, context: Context) -> Iterator[InputPart]:
        """Yields a part for each file, or for all files that may describe the same images."""
        groups: dict[tuple[str, str], list[Document]] = {}
        for file in self._files(InputProbe(item.path, item.is_file), context.settings)[0]:
            group = (file.root or file.path, file.split) if self.is_joined else (file.path, "")
            groups.setdefault(group, []).append(file)
        for files in groups.values():
            yield InputPart(item, files[0].path, detail=files)

    def _is_one(self, path: str, settings: ConvertSettings) -> bool:
        """Returns whether a file is of the format."""
        return self.recognizes(_head(path), path, settings)

    def _examine(self, file: Document, settings: ConvertSettings) -> tuple[str, str]:
        """Returns the folder of the images of a file, and a description of its first entries.

        Raises:
          UsageError: If the file does not fit the settings, or its images are missing.
        """
        opened = self.open(io.BytesIO(_head(file.path)), file.path, settings)
        entries: list[Any] = []
        with contextlib.suppress(AnnotationFault):  # the end of the file is missing
            entries.extend(opened.scan())
        images = []
        for entry in entries[:_IMAGES_TRIED]:
            with contextlib.suppress(AnnotationFault):
                images.append(self.image_of(entry, settings))
        described = self.summarize(file._replace(entries=opened), entries, settings)
        return self._root(file.path, images, settings), described

    def _root(self, path: str, names: Sequence[ImagePaths], settings: ConvertSettings) -> str:
        """Returns the folder of the images of a file; empty if no names are given.

        Raises:
          UsageError: If no folder has one of the images with the names.
        """
        if self.is_beside:
            return named_folder(path, settings)
        paths = [path for image in names for path in image.paths]
        inner = [inner for path in paths for inner in _inner_paths(path, "")]
        root = usual_root(path, settings, inner, [*map(image_files.file_name, paths)])
        if not root and paths:
            raise UsageError(
                f"--input {path}: its images, such as {paths[0]}, are neither beside "
                "it nor in a usual folder; name the folder of its images with --image_root."
            )
        return root

    def list_part(self, part: InputPart, context: Context) -> Iterator[ImageRef | ClassId]:
        """Yields a reference for each image that the files name, and for each entry without an image."""
        settings = context.settings
        with contextlib.ExitStack() as stack:
            documents = []
            for file in part.detail:
                with storage.translated_errors("read", file.path):
                    opened = stack.enter_context(storage.open_local(file.path))
                documents.append(file._replace(entries=self.open(opened, file.path, settings)))
            named: dict[ImagePaths, list[_Place]] = {}
            for index, document in enumerate(documents):
                for entry, value in enumerate(_scan(document)):
                    try:
                        names = self.image_of(value, settings)
                        named.setdefault(names, []).append((index, entry, document))
                    except AnnotationFault as fault:
                        yield self._bad_place(part, document, entry, str(fault))
            for item in self.begin(documents, settings):
                yield item if isinstance(item, ClassId) else self._bad_entry(part, *item)
            first = documents[0]
            root = first.root or self._root(first.path, [*islice(named, _IMAGES_TRIED)], settings)
            root = root or named_folder(first.path, settings)
            states = FileStates(root, len(named))
            images: dict[str, tuple[str, str, list[_Place]]] = {}
            for names, uri, key, why in _find_images(named, root, states):
                places = named.pop(names)
                if uri:
                    images.setdefault(uri, (key, why, []))[2].extend(places)
                    continue
                for _, entry, document in places:
                    yield self._bad_place(part, document, entry, why)
            prefix = part.item.prefix
            if part.path != part.item.path:
                roots = part.item.path, settings.image_root
                prefix += image_files.key_prefix(root, roots, root.rpartition("/")[2])
            refs = (
                ref
                for uri, (key, why, places) in images.items()
                for ref in self._refer(ImageRef(prefix + key, uri), why, sorted(places), part, settings)
            )
            yield from with_class_ids((ref, self.has_numbers) for ref in with_states(refs, states))

    def _bad_place(self, part: InputPart, document: Document, entry: int, why: str) -> ImageRef:
        name = f"{self.entry} {document.entries.number(entry)}"
        return self._bad_entry(part, document, name, why)

    def _bad_entry(self, part: InputPart, document: Document, name: str, why: str) -> ImageRef:
        key = f"{part.item.prefix}{image_files.key_of(document.key)}:{name}"
        reason = QuarantineReason.BAD_ROW if self.is_table else QuarantineReason.BAD_ANNOTATION
        message = f"{name} of {printable(document.key)}: {why}"
        return image_files.bad_entry(key, document.path, message, reason)

    def _refer(
        self, ref: ImageRef, fault: str, places: Sequence[_Place], part: InputPart, settings: ConvertSettings
    ) -> Iterator[ImageRef]:
        """Yields the reference of an image, and references for further entries of the same file about it."""
        several: list[tuple[Document, int]] = []
        for _, entry, document in places:
            if self.is_table or not several or several[-1][0] is not document:
                several.append((document, entry))
                continue
            earlier, again = map(document.entries.number, (several[-1][1], entry))
            yield self._bad_place(part, document, entry, f"{self.entry} {earlier} names the same image")
            both = f"{self.entry}s {earlier} and {again} of {printable(document.key)} both name it"
            fault = fault or both
        document, entry = several[0]
        where = f"{self.entry} {document.entries.number(entry)} of {printable(document.key)}"
        ref = ref._replace(split=document.split, message=where)
        try:
            if fault:
                raise AnnotationFault(fault)
            is_single = not (self.is_joined or self.is_table)
            yield self.annotate(ref, document.entries.read(entry) if is_single else several, settings)
        except AnnotationFault as error:
            yield ref.quarantined(QuarantineReason.BAD_ANNOTATION, f"{where}: {error}")


def _head(path: str) -> bytes:
    with storage.translated_errors("read", path):
        return storage.read_head(path, _HEAD_BYTES)


def _scan(document: Document) -> Iterator[Any]:
    path = document.path
    try:
        with storage.translated_errors("read", path):
            yield from document.entries.scan()
    except AnnotationFault as fault:
        raise UsageError(f"--input {path}: {fault}.") from None


def _inner_paths(path: str, root: str) -> Iterator[str]:
    """Yields the paths below the folder of images that a path in a file may mean."""
    texts = [path, image_files.with_slashes(path)] if "\\" in path else [path]
    if path.startswith("/") and root and "\0" not in path:
        texts.append(image_files.below(path, root) or "")
    yield from filter(None, map(image_files.inner_path, texts))


def _find_images(
    named: Collection[ImagePaths], root: str, states: FileStates
) -> Iterator[tuple[ImagePaths, str, str, str]]:
    """Yields the URI of each image, the end of its key, and why it was not found.

    If no path exists in the folder, the only file with one of the file names is the image. Without such a
    file, the image is the object that the entry names. Otherwise it is missing; it has a URI then, if its
    path can be a key.
    """
    anywhere = ImageRoot("" if root == "." else root)
    stated = {names: _find_inside(names, root, states) for names in named}
    lost = (path for names, inner in stated.items() if not inner for path in names.paths)
    moved = image_files.find_moved(lost, root)
    for names, path in stated.items():
        fault = ""
        if not path:
            path, fault = next((moved[path] for path in names.paths if path in moved), ("", ""))
        if inner := path or image_files.inner_path(names.written):
            yield names, image_files.join(root, inner), image_files.key_of(inner), fault
        elif names.uri and not fault:
            yield names, names.uri, image_files.key_of(names.paths[0]), ""
        elif not names.paths:
            try:
                key, uri = anywhere.find(names.written)
                yield names, uri, key, ""
            except AnnotationFault as error:
                yield names, "", "", str(error)
        else:
            written = printable(names.written)
            yield names, "", "", f"{fault} ({written})" if fault else f"{image_files.MISSING}: {written}"


def _find_inside(names: ImagePaths, root: str, states: FileStates) -> str:
    """Returns the path of an image that exists where its entry says; empty if none does.

    In a large bucket, the stated path is not checked.
    """
    for path in names.paths:
        for inner in _inner_paths(path, root):
            exists = states.has(image_files.join(root, inner))
            if exists or (exists is None and inner == image_files.inner_path(names.written)):
                return inner
    return ""


def named_folder(path: str, settings: ConvertSettings) -> str:
    """Returns `--image_root`, or the folder of the file."""
    return settings.image_root.rstrip("/") or "/" if settings.image_root else image_files.folder_of(path)


def usual_root(path: str, settings: ConvertSettings, *attempts: Sequence[str]) -> str:
    """Returns the usual folder that has images of a file, or else `--image_root`; empty if there is neither.

    Args:
      path: Path of the file; the images of `instances_val2017.json` may be in `val2017/` or `val/`.
      settings: Settings with `image_root`.
      *attempts: Paths that a few images may have below the folder, the likeliest forms first.
    """
    stem = path.rpartition("/")[2].rpartition(".")[0]
    inner = [name for name in (stem.rpartition("_")[2], image_files.split_token(stem)) if name]
    here = named_folder(path, settings)
    above = image_files.parent_of(here)
    usual = [image_files.join(place, name) for name in _IMAGE_FOLDERS for place in (here, above)]
    places = [here] if settings.image_root else [here, above, *usual]
    inside = [image_files.join(place, name) for name in inner for place in places]
    folders = [here, *inside] if settings.image_root else [here, *usual, *inside, above]
    roots = filter(None, (image_files.find_root(folders, names) for names in attempts))
    return next(roots, here if settings.image_root else "")
