"""Finds the arrays of images below an input, and the labels of each array, by their names."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from shardwright.core import storage
from shardwright.core.images.signatures import claims_to_be_image
from shardwright.core.sources.arrays.cifar import (
    batches_among,
    is_cifar_archive,
    meta_among,
    split_of_batch,
)
from shardwright.core.sources.arrays.files import IDX, NPZ, ArrayFile, npz_members
from shardwright.core.sources.folder_tree import SPLIT_FOLDERS
from shardwright.core.sources.input_probe import InputProbe
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError, nearest
from shardwright.schemas.image_ref import printable

CIFAR, CIFAR_ARCHIVE = "cifar", "cifar_archive"
IMAGES, LABELS = "images", "labels"
#: Most levels of folders below the input, and most subfolders of a folder, that are searched.
_DEPTH, _FOLDERS = 3, 8
#: Most files of a folder with arrays; `InputProbe` may not show more.
_MAX_FILES = 2000
_IDX_NAME = re.compile(r"idx\d|ubyte\Z", re.IGNORECASE)
#: Words for images, clearest first; among several arrays, the clearest is used.
_IMAGE_WORDS = ("images", "image", "imgs", "img", "x", "pixels", "data")
_LABEL_WORDS = ("labels", "label", "lbls", "y", "targets", "target")
_SPLIT_WORDS = {**{word: word for word in SPLIT_FOLDERS}, "t10k": "test"}
#: Words that do not identify a dataset.
_EMPTY_WORDS = frozenset(("idx1", "idx2", "idx3", "idx4", "ubyte", "int", "raw", "part", "batch", "shard"))
_EXTENSIONS = re.compile(r"(?:\.(?:gz|npy|npz))+\Z")
_WORD = re.compile(r"[^\W_]+")


class ArrayPlace(NamedTuple):
    """Where an array is.

    Attributes:
      kind: Kind of the file: idx, npy, npz, cifar, cifar_archive.
      file: Path of the file, relative to the folder of the input.
      member: Name of the array in the file, if the file holds several.
    """

    kind: str
    file: str
    member: str = ""

    @property
    def is_cifar(self) -> bool:
        """Whether it is a batch or an archive of CIFAR, which has its labels inside."""
        return self.kind in (CIFAR, CIFAR_ARCHIVE)

    def array_in(self, folder: str) -> ArrayFile:
        """Returns the array, in the folder of the input."""
        return ArrayFile(self.kind, storage.join(folder, self.file), self.member)


class FoundArray(NamedTuple):
    """An array of images, with its labels.

    Attributes:
      images: Place of the array.
      labels: Place of its labels; None if there are none, and for CIFAR.
      split: Split from its name; empty if it has none.
      dataset: The rest of its name, which identifies the dataset.
    """

    images: ArrayPlace
    labels: ArrayPlace | None = None
    split: str = ""
    dataset: str = ""


class FoundArrays(NamedTuple):
    """Arrays and other files below an input.

    Attributes:
      folder: Folder that the paths of the files are relative to.
      arrays: Arrays of images, in order.
      others: Files that are not used.
    """

    folder: str
    arrays: tuple[FoundArray, ...] = ()
    others: tuple[str, ...] = ()


class NamedArray(NamedTuple):
    """Parts of the name of an array.

    Attributes:
      role: Either images or labels; empty if the name gives neither.
      split: Split; empty if the name gives none.
      number: Number of a part of the array, such as 001.
      dataset: The rest of the name.
      rank: How clearly the name gives its role; 0 is clearest.
    """

    role: str = ""
    split: str = ""
    number: str = ""
    dataset: str = ""
    rank: int = 0

    def within(self, outer: NamedArray) -> NamedArray:
        """Combines the name with that of its file or folder; the inner name takes precedence."""
        clear = self if self.role else outer
        return NamedArray(
            clear.role,
            self.split or outer.split,
            f"{outer.number} {self.number}".strip(),
            f"{outer.dataset} {self.dataset}".strip(),
            clear.rank,
        )


def parse_array_name(name: str) -> NamedArray:
    """Parses the name of an array or of its file.

    >>> parse_array_name("emnist-letters-train-images-idx3-ubyte.gz")
    NamedArray(role='images', split='train', number='', dataset='emnist letters', rank=0)
    """
    role, split, rank = "", "", 0
    numbers: list[str] = []
    rest: list[str] = []
    for word in _WORD.findall(_EXTENSIONS.sub("", name).lower()):
        if word in _LABEL_WORDS:
            role, rank = LABELS, _LABEL_WORDS.index(word)
        elif word in _IMAGE_WORDS:
            if role != LABELS:
                role, rank = IMAGES, _IMAGE_WORDS.index(word)
        elif word in _SPLIT_WORDS and not split:
            split = _SPLIT_WORDS[word]
        elif word.isdigit():
            numbers.append(word)
        elif word not in _EMPTY_WORDS:
            rest.append(word)
    return NamedArray(role, split, " ".join(numbers), " ".join(rest), rank)


class _Candidate(NamedTuple):
    """An array that holds images or labels, judged by its name."""

    place: ArrayPlace
    named: NamedArray

    @property
    def group(self) -> tuple[str, str, str]:
        return self.named.dataset, self.named.split, self.named.number

    @property
    def preference(self) -> tuple[int, bool, ArrayPlace]:
        """Sort key: clear names first, and files that need no unpacking."""
        return self.named.rank, self.place.file.endswith(".gz"), self.place


def find_arrays(probe: InputProbe, settings: ConvertSettings) -> FoundArrays:
    """Finds the arrays of images below a folder, or in a file.

    Raises:
      UsageError: If it is unclear which arrays belong together.
    """
    if probe.is_file:
        return _find_in_file(probe, settings)
    candidates: list[_Candidate] = []
    arrays: list[FoundArray] = []
    others: list[str] = []
    for folder, relative in _folders(probe):
        if len(folder.files) >= _MAX_FILES and any(map(_kind_of, folder.files)):
            raise UsageError(
                f"--input {printable(folder.path)} holds {_MAX_FILES} files or more; put the arrays into a "
                "separate folder."
            )
        if settings.source == "auto" and any(map(claims_to_be_image, folder.files)):
            return FoundArrays(probe.path)  # this is a folder of image files
        batches = batches_among(folder.files)
        arrays += [_cifar_batch(name, relative) for name in batches]
        used = {*batches, *(meta_among(folder.files) if batches else ())}
        for name in folder.files:
            if name not in used:
                in_file = list(_candidates(folder, relative, name, settings))
                candidates += in_file
                others += [] if in_file else [relative + name]
    arrays += _pair(candidates, settings)
    arrays.sort(key=lambda array: array.images)
    datasets = sorted({array.dataset for array in arrays})
    if len(datasets) > 1 and settings.source == "auto":
        first = (next(array.images.file for array in arrays if array.dataset == name) for name in datasets)
        raise UsageError(
            f"--input {printable(probe.path)} seems to hold several datasets, such as "
            f"{next(first)} and {next(first)}: name one of them as --input, or take all as one with --source "
            "arrays."
        )
    return FoundArrays(probe.path, tuple(arrays), tuple(others))


def _cifar_batch(name: str, relative: str = "") -> FoundArray:
    return FoundArray(ArrayPlace(CIFAR, relative + name), None, split_of_batch(name), relative)


def _find_in_file(probe: InputProbe, settings: ConvertSettings) -> FoundArrays:
    path, _, name = probe.path.rpartition("/")
    path = path or ("/" if probe.path.startswith("/") else ".")
    if is_cifar_archive(probe.head):
        return FoundArrays(path, (FoundArray(ArrayPlace(CIFAR_ARCHIVE, name)),))
    folder = InputProbe(path, is_file=False)
    if probe.head[:1] == b"\x80" or name.endswith(".bin"):
        return FoundArrays(path, (_cifar_batch(name),) if name in batches_among(folder.files) else ())
    if not _kind_of(name):
        return FoundArrays(path)
    candidates = list(_candidates(folder, "", name, settings, alone=True))
    for other in folder.files:
        if other != name and parse_array_name(other).role == LABELS:
            candidates += _candidates(folder, "", other, settings)
    arrays = [array for array in _pair(candidates, settings) if array.images.file == name]
    return FoundArrays(path, tuple(sorted(arrays, key=lambda array: array.images)))


def _folders(probe: InputProbe, relative: str = "", depth: int = 0) -> Iterator[tuple[InputProbe, str]]:
    """Yields a folder and the folders below it, if there are only a few."""
    yield probe, relative
    if depth == _DEPTH or len(probe.folders) > _FOLDERS:
        return
    for name in probe.folders:
        if not name.startswith("."):
            below = InputProbe(storage.join(probe.path, name), is_file=False)
            yield from _folders(below, f"{relative}{name}/", depth + 1)


def _kind_of(name: str) -> str:
    """Returns the kind of a file from its name; empty if it is not the name of an array."""
    if name.startswith("."):
        return ""
    if name.lower().endswith((".npy", ".npz")):
        return name[-3:].lower()
    return IDX if _IDX_NAME.search(name.removesuffix(".gz")) else ""


def _candidates(
    folder: InputProbe, relative: str, name: str, settings: ConvertSettings, alone: bool = False
) -> Iterator[_Candidate]:
    """Yields the arrays in a file that hold images or labels, judged by their names."""
    kind = _kind_of(name)
    own = parse_array_name(name).within(parse_array_name(relative.rstrip("/")))
    if kind == NPZ:
        for member, named in _members_of_npz(storage.join(folder.path, name), own, settings):
            yield _Candidate(ArrayPlace(NPZ, relative + name, member), named)
    elif kind and (own.role or alone):
        yield _Candidate(ArrayPlace(kind, relative + name), own._replace(role=own.role or IMAGES))


def _members_of_npz(
    path: str, own: NamedArray, settings: ConvertSettings
) -> Iterator[tuple[str, NamedArray]]:
    """Yields the arrays in a `.npz` file that hold images or labels, as settings or their names say."""
    members = npz_members(path)
    plain = own._replace(role="")
    chosen = {LABELS: settings.label_column, IMAGES: settings.image_column}
    for role, column in chosen.items():
        if column and column not in members:
            raise UsageError(
                f"--{role.removesuffix('s')}_column {column}: {printable(path)} has no such array; it has "
                f"{', '.join(members) or 'none'}{nearest(column, members) or '.'}"
            )
        if column:
            yield column, plain._replace(role=role)
    unnamed = all(name.startswith("arr_") and name[4:].isdigit() for name in members)
    if unnamed and len(members) <= 2:  # as `np.savez` names them
        roles = [own.role or IMAGES] if len(members) == 1 else [IMAGES, LABELS]
        yield from ((member, plain._replace(role=role)) for member, role in zip(members, roles))
        return
    for member in members:
        inner = parse_array_name(member)
        if inner.role and not chosen[inner.role]:
            yield member, inner.within(plain)


def _pair(candidates: list[_Candidate], settings: ConvertSettings) -> Iterator[FoundArray]:
    """Yields the arrays of images, each with the labels whose name matches."""
    groups: defaultdict[tuple[str, str, str], list[_Candidate]] = defaultdict(list)
    labels = [candidate for candidate in candidates if candidate.named.role == LABELS]
    for candidate in candidates:
        if candidate.named.role == IMAGES:
            groups[candidate.group].append(candidate)
    for several in groups.values():
        images, *rest = sorted(several, key=lambda item: item.preference)
        for other in rest:
            if other.place.file not in (images.place.file, f"{images.place.file}.gz"):
                raise UsageError(
                    f"{printable(images.place.file)} and {printable(other.place.file)} both seem to hold the "
                    "same images; name one of them as --input."
                )
        found = _labels_for(images, labels, settings)
        yield FoundArray(
            images.place, found.place if found else None, images.named.split, images.named.dataset
        )


def _labels_for(images: _Candidate, labels: list[_Candidate], settings: ConvertSettings) -> _Candidate | None:
    if settings.label_column and images.place.kind == NPZ:
        chosen = images.place._replace(member=settings.label_column)
        return next(item for item in labels if item.place == chosen)
    fitting = [item for item in labels if item.group == images.group]
    if not fitting:  # the names differ, but there is no other array of labels
        fitting = [item for item in labels if item.group[1:] == images.group[1:]]
        fitting = fitting if len(fitting) == 1 and images.place.kind == fitting[0].place.kind else []
    return min(fitting, key=lambda item: item.preference, default=None)
