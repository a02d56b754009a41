"""Finds the arrays of images below an input, and the labels of each array."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import printable
from shardwright.transforms import storage
from shardwright.transforms.images.signatures import claims_to_be_image
from shardwright.transforms.sources.arrays.cifar import (
    batches_among,
    is_cifar_archive,
    meta_among,
    split_of_batch,
)
from shardwright.transforms.sources.arrays.idx import is_idx_name
from shardwright.transforms.sources.arrays.names import IMAGES, LABELS, NamedArray, parse_array_name
from shardwright.transforms.sources.arrays.numpy_files import npz_member, npz_members
from shardwright.transforms.sources.input_probe import InputProbe

IDX, NPY, NPZ, CIFAR, CIFAR_ARCHIVE = "idx", "npy", "npz", "cifar", "cifar_archive"
#: Most levels of folders below the input, and most subfolders of a folder, that are searched.
_DEPTH = 3
_FOLDERS = 8
#: Most files of a folder; `InputProbe` shows no more.
_MAX_FILES = 2000


class FoundArray(NamedTuple):
    """An array of images, with its labels.

    Attributes:
      kind: Kind of the file: idx, npy, npz, cifar, cifar_archive.
      file: Path of the file, relative to the folder of the input.
      member: Name of the array in the file, if the file holds several.
      split: Split from its name; empty if it has none.
      labels_file: File with the labels; empty if there is none, and for CIFAR batches.
      labels_member: Name of the labels array in that file.
      labels_kind: Kind of that file.
      dataset: The rest of its name, which identifies the dataset.
    """

    kind: str
    file: str
    member: str = ""
    split: str = ""
    labels_file: str = ""
    labels_member: str = ""
    labels_kind: str = ""
    dataset: str = ""


class FoundArrays(NamedTuple):
    """Arrays and other files below an input.

    Attributes:
      folder: Folder that the paths of the files are relative to.
      arrays: Arrays of images, in order.
      others: Files that are not used.
      has_images: Whether there are image files too.
    """

    folder: str
    arrays: tuple[FoundArray, ...]
    others: tuple[str, ...] = ()
    has_images: bool = False


class _Candidate(NamedTuple):
    kind: str
    file: str
    member: str
    named: NamedArray

    @property
    def group(self) -> tuple[str, str, str]:
        return self.named.dataset, self.named.split, self.named.number

    @property
    def label(self) -> str:
        return printable(f"{self.file}!{self.member}" if self.member else self.file)

    @property
    def preference(self) -> tuple[int, bool, str, str]:
        """Sort key: clear names first, and files that need no unpacking."""
        return self.named.rank, self.file.endswith(".gz"), self.file, self.member


def find_arrays(probe: InputProbe, settings: ConvertSettings) -> FoundArrays:
    """Finds the arrays of images below a folder, or in a file.

    Raises:
      UsageError: if it is unclear which arrays belong together.
    """
    if probe.is_file:
        return _find_in_file(probe, settings)
    candidates: list[_Candidate] = []
    arrays: list[FoundArray] = []
    others: list[str] = []
    has_images = False
    for folder, relative in _folders(probe):
        if len(folder.files) >= _MAX_FILES and any(map(_kind_of, folder.files)):
            raise UsageError(
                f"--input {printable(folder.path)} holds {_MAX_FILES} files or more; put the arrays into a "
                "separate folder."
            )
        has_images |= any(map(claims_to_be_image, folder.files))
        if has_images and settings.source == "auto":  # this is a folder of image files
            return FoundArrays(probe.path, (), (), has_images)
        batches = batches_among(folder.files)
        for name in batches:
            arrays.append(FoundArray(CIFAR, relative + name, split=split_of_batch(name), dataset=relative))
        used = {*batches, *(meta_among(folder.files) if batches else ())}
        for name in folder.files:
            found = [] if name in used else list(_candidates(folder, relative, name, settings))
            candidates += found
            if not found and name not in used:
                others.append(relative + name)
    arrays += _pair(candidates, settings)
    arrays.sort()
    datasets = sorted({array.dataset for array in arrays})
    if len(datasets) > 1 and settings.source == "auto":
        first = (next(array.file for array in arrays if array.dataset == name) for name in datasets[:2])
        raise UsageError(
            f"--input {printable(probe.path)} seems to hold several datasets, such as "
            f"{' and '.join(map(printable, first))}: name one of them as --input, "
            "or take all as one with --source arrays."
        )
    return FoundArrays(probe.path, tuple(arrays), tuple(others), has_images)


def _find_in_file(probe: InputProbe, settings: ConvertSettings) -> FoundArrays:
    path, _, name = probe.path.rpartition("/")
    path = path or ("/" if probe.path.startswith("/") else ".")
    if is_cifar_archive(probe.head):
        return FoundArrays(path, (FoundArray(CIFAR_ARCHIVE, name),))
    folder = InputProbe(path, is_file=False)
    if probe.head[:1] == b"\x80" or name.endswith(".bin"):
        batch = name in batches_among(folder.files)
        return FoundArrays(path, (FoundArray(CIFAR, name, split=split_of_batch(name)),) if batch else ())
    if not _kind_of(name):
        return FoundArrays(path, ())
    candidates = list(_candidates(folder, "", name, settings, alone=True))
    for other in folder.files:
        if other != name and parse_array_name(other).role == LABELS:
            candidates += _candidates(folder, "", other, settings)
    arrays = [array for array in _pair(candidates, settings) if array.file == name]
    return FoundArrays(path, tuple(sorted(arrays)))


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
    if name.startswith("."):
        return ""
    if name.lower().endswith((".npy", ".npz")):
        return name[-3:].lower()
    return IDX if is_idx_name(name) else ""


def _candidates(
    folder: InputProbe, relative: str, name: str, settings: ConvertSettings, alone: bool = False
) -> Iterator[_Candidate]:
    """Yields the arrays in a file that hold images or labels, judged by their names."""
    kind = _kind_of(name)
    if not kind:
        return
    outer = parse_array_name(relative.rstrip("/")) if relative else NamedArray("", "", "", "")
    own = _within(outer, parse_array_name(name))
    if kind == NPZ:
        yield from _candidates_in_npz(storage.join(folder.path, name), relative + name, own, settings)
        return
    if not own.role and alone:
        own = own._replace(role=IMAGES)
    if own.role:
        yield _Candidate(kind, relative + name, "", own)


def _within(outer: NamedArray, inner: NamedArray) -> NamedArray:
    """Combines two parsed names; the inner name takes precedence."""
    dataset, number = (
        f"{a} {b}".strip() for a, b in ((outer.dataset, inner.dataset), (outer.number, inner.number))
    )
    plain = inner if inner.role else outer
    return NamedArray(plain.role, inner.split or outer.split, number, dataset, plain.rank)


def _candidates_in_npz(
    path: str, file: str, own: NamedArray, settings: ConvertSettings
) -> Iterator[_Candidate]:
    try:
        members = npz_members(path)
    except ValueError as error:
        raise UsageError(f"--input {printable(path)}: {error}.") from None
    plain = own._replace(role="")
    if settings.image_column or settings.label_column:
        if settings.label_column:
            member = npz_member(members, settings.label_column, path, "--label_column")
            yield _Candidate(NPZ, file, member, plain._replace(role=LABELS))
        if settings.image_column:
            member = npz_member(members, settings.image_column, path, "--image_column")
            yield _Candidate(NPZ, file, member, plain._replace(role=IMAGES))
    unnamed = sorted(name for name in members if name.startswith("arr_") and name[4:].isdigit())
    if len(unnamed) == len(members) <= 2:
        roles = [own.role or IMAGES] if len(unnamed) == 1 else [IMAGES, LABELS]
        for member, role in zip(unnamed, roles):
            yield _Candidate(NPZ, file, member, plain._replace(role=role))
        return
    for member in sorted(members):
        inner = parse_array_name(member)
        named = {IMAGES: settings.image_column, LABELS: settings.label_column}.get(inner.role)
        if inner.role and not named:
            yield _Candidate(NPZ, file, member, _within(plain, inner))


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
            if other.file not in (images.file, f"{images.file}.gz"):
                of = f" of {images.named.split}" if images.named.split else ""
                raise UsageError(
                    f"{images.label} and {other.label} both seem to hold the same images{of}; "
                    "name one of them as --input."
                )
        found = _labels_for(images, labels, settings)
        yield FoundArray(
            images.kind,
            images.file,
            images.member,
            images.named.split,
            *(found.file, found.member, found.kind) if found else ("", "", ""),
            dataset=images.named.dataset,
        )


def _labels_for(images: _Candidate, labels: list[_Candidate], settings: ConvertSettings) -> _Candidate | None:
    if settings.label_column and images.kind == NPZ:
        return next(
            item for item in labels if (item.file, item.member) == (images.file, settings.label_column)
        )
    fitting = [item for item in labels if item.group == images.group]
    if not fitting:  # the names differ, but there is no other array of labels
        fitting = [item for item in labels if item.group[1:] == images.group[1:]]
        fitting = fitting if len(fitting) == 1 and images.kind == fitting[0].kind else []
    return min(fitting, key=lambda item: item.preference, default=None)
