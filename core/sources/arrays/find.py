"""Finds the arrays of images below an input, and the labels of each array, by their names."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from shardwright.core import storage
from shardwright.core.images.signatures import claims_to_be_image
from shardwright.core.sources.arrays.cifar import (
    batches_among,
    is_cifar_archive,
    meta_among,
    split_of_batch,
)
from shardwright.core.sources.arrays.files import CIFAR, CIFAR_ARCHIVE, IDX, NPY, NPZ, ArrayFile, npz_members
from shardwright.core.sources.folder_tree import SPLIT_FOLDERS
from shardwright.core.sources.image_files import folder_of
from shardwright.core.sources.input_probe import InputProbe
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError, nearest
from shardwright.schemas.image_ref import printable

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


@dataclass(frozen=True)
class FoundArray:
    """An array of images, with its labels.

    Attributes:
      images: The array.
      labels: Its labels; None if there are none, and for CIFAR, whose files hold both.
      split: Split from its name; empty if it has none.
      dataset: The rest of its name, which identifies the dataset.
    """

    images: ArrayFile
    labels: ArrayFile | None = None
    split: str = ""
    dataset: str = ""


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

    @property
    def group(self) -> tuple[str, str, str]:
        """What images and their labels have in common."""
        return self.dataset, self.split, self.number

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

    array: ArrayFile
    named: NamedArray


def find_arrays(probe: InputProbe, settings: ConvertSettings) -> tuple[list[FoundArray], list[str]]:
    """Returns the arrays of images below a folder, or in a file, in order; and the files that are not used.

    Raises:
      UsageError: If it is unclear which arrays belong together.
    """
    if probe.is_file:
        return sorted(_find_in_file(probe, settings), key=lambda array: array.images), []
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
            return [], []  # this is a folder of image files
        batches = batches_among(folder.files)
        arrays += [_cifar_batch(name, probe.path, relative) for name in batches]
        used = {*batches, *(meta_among(folder.files) if batches else ())}
        for name in folder.files:
            if name not in used:
                in_file = list(_candidates(probe.path, relative, name, settings))
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
    return arrays, others


def _cifar_batch(name: str, root: str, relative: str = "") -> FoundArray:
    return FoundArray(ArrayFile(CIFAR, root, relative + name), None, split_of_batch(name), relative)


def _find_in_file(probe: InputProbe, settings: ConvertSettings) -> Iterable[FoundArray]:
    path, name = folder_of(probe.path), probe.name
    if is_cifar_archive(probe.head):
        return [FoundArray(ArrayFile(CIFAR_ARCHIVE, path, name))]
    beside = InputProbe(path, is_file=False).files
    if name in batches_among(beside):
        return [_cifar_batch(name, path)]
    candidates = list(_candidates(path, "", name, settings, alone=True))
    for other in beside if candidates else ():
        if other != name and parse_array_name(other).role == LABELS:
            candidates += _candidates(path, "", other, settings)
    return [array for array in _pair(candidates, settings) if array.images.file == name]


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
        return NPY if name.lower().endswith(".npy") else NPZ
    return IDX if _IDX_NAME.search(name.removesuffix(".gz")) else ""


def _candidates(
    root: str, relative: str, name: str, settings: ConvertSettings, alone: bool = False
) -> Iterator[_Candidate]:
    """Yields the arrays in a file that hold images or labels, judged by their names."""
    array = ArrayFile(_kind_of(name), root, relative + name)
    own = parse_array_name(name).within(parse_array_name(relative.rstrip("/")))
    if array.kind == NPZ:
        for member, named in _members_of_npz(array.path, own, settings):
            yield _Candidate(replace(array, member=member), named)
    elif array.kind and (own.role or alone):
        yield _Candidate(array, own._replace(role=own.role or IMAGES))


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
    if members == ["arr_0"]:  # `np.savez` was given no name, so that of the file counts
        yield "arr_0", plain._replace(role=own.role or IMAGES)
    for member in members:
        inner = parse_array_name(member)
        if inner.role and not chosen[inner.role]:
            yield member, inner.within(plain)


def _pair(candidates: list[_Candidate], settings: ConvertSettings) -> Iterator[FoundArray]:
    """Yields the arrays of images, each with the labels whose name matches."""
    groups: defaultdict[str, defaultdict[tuple[str, str, str], list[_Candidate]]]
    groups = defaultdict(lambda: defaultdict(list))
    for candidate in sorted(candidates, key=_preference):
        groups[candidate.named.role][candidate.named.group].append(candidate)
    labels = groups[LABELS]
    for group, ((images, named), *rest) in groups[IMAGES].items():
        for other, _ in rest:
            if other.file not in (images.file, f"{images.file}.gz"):
                both = f"{printable(images.file)} and {printable(other.file)}"
                raise UsageError(f"{both} both seem to hold the same images; name one of them as --input.")
        fitting = labels.get(group, [])
        if not fitting:  # the names differ, but there is no other array of labels
            others = [item for other, items in labels.items() if other[1:] == group[1:] for item in items]
            fitting = others if len(others) == 1 and others[0].array.kind == images.kind else []
        labels_of = fitting[0].array if fitting else None
        if settings.label_column and images.kind == NPZ:
            labels_of = replace(images, member=settings.label_column)
        yield FoundArray(images, labels_of, named.split, named.dataset)


def _preference(candidate: _Candidate) -> tuple[int, bool, ArrayFile]:
    """Returns a sort key: clear names first, and files that need no unpacking."""
    return candidate.named.rank, candidate.array.file.endswith(".gz"), candidate.array
