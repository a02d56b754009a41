"""Arrays of images: MNIST's idx files, CIFAR, and NumPy's `.npy` and `.npz`, with their labels."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from shardwright.core import storage
from shardwright.core.images.signatures import claims_to_be_image
from shardwright.core.sources import containers
from shardwright.core.sources.arrays import cifar, values
from shardwright.core.sources.arrays.files import CIFAR, CIFAR_ARCHIVE, IDX, NPY, NPZ, ArrayFile, Rows
from shardwright.core.sources.folder_tree import SPLIT_FOLDERS
from shardwright.core.sources.image_files import folder_of, is_hidden, key_of
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.source import Context, Input, InputPart, Source
from shardwright.schemas.byte_range import PIXELS
from shardwright.schemas.codes import FilterReason, QuarantineReason, Stage
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import EngineError, ImageFault, UsageError, nearest
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import Needs
from shardwright.schemas.units import counted

IMAGES, LABELS = "images", "labels"
#: Most files of a folder with arrays.
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
#: Most arrays whose headers are checked before the start; others are checked when they are listed.
_LOOKED_AT = 16
#: Most bytes of images, and most images, that are listed in one batch.
_BATCH_BYTES, _BATCH_ROWS = 4 << 20, 1 << 16
#: Most missing images of a file that are listed one by one; the rest is given as a number.
_MAX_MISSING = 10_000
_DIGITS = 6


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


#: Dataset, split and number of an array, which images and their labels have in common.
_Group = tuple[str, str, str]


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
        """Combines the name with the name of its file or folder; the inner name takes precedence."""
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
    digits: list[str] = []
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
            digits.append(word)
        elif word not in _EMPTY_WORDS:
            rest.append(word)
    return NamedArray(role, split, " ".join(digits), " ".join(rest), rank)


#: An array that holds images or labels, judged by its name.
_Candidate = tuple[NamedArray, ArrayFile]


def find_arrays(probe: InputProbe, settings: ConvertSettings) -> tuple[list[FoundArray], list[str]]:
    """Returns the arrays of images below a folder, or in a file, in order; and the files that are not used.

    Raises:
      UsageError: If it is unclear which arrays belong together.
    """
    if probe.is_file:
        return sorted(_find_in_file(probe, settings), key=lambda array: array.images), []
    auto = settings.source == "auto"
    if auto and (
        not containers.first_containers(probe, _is_array_name, claims_to_be_image) or probe.images_below
    ):
        return [], []
    candidates: list[_Candidate] = []
    arrays: list[FoundArray] = []
    others: list[str] = []
    for folder, names in _files_by_folder(probe.path).items():
        hidden = is_hidden(folder)
        if auto and not hidden and any(map(claims_to_be_image, names)):
            return [], []  # this is a folder of image files
        if len(names) >= _MAX_FILES and any(map(_kind_of, names)):
            place = storage.join(probe.path, folder)
            raise UsageError(
                f"--input {place} holds {_MAX_FILES} files or more; put the arrays into a separate folder."
            )
        batches = [] if hidden else cifar.batches_among(names)
        arrays += [_cifar_batch(name, probe.path, folder) for name in batches]
        used = {*batches, *(cifar.meta_among(names) if batches else ())}
        for name in names:
            if name not in used:
                in_file = [] if hidden else list(_candidates(probe.path, folder, name, settings))
                candidates += in_file
                others += [] if in_file else [folder + name]
    arrays += _pair(candidates, settings)
    arrays.sort(key=lambda array: array.images)
    datasets = sorted({array.dataset for array in arrays})
    if len(datasets) > 1 and auto:
        first = (next(array.images.file for array in arrays if array.dataset == name) for name in datasets)
        raise UsageError(
            f"--input {probe.path} seems to hold several datasets, such as {next(first)} and {next(first)}: "
            "name one of them as --input, or take all as one with --source arrays."
        )
    return arrays, others


def _cifar_batch(name: str, root: str, relative: str = "") -> FoundArray:
    return FoundArray(ArrayFile(CIFAR, root, relative + name), None, cifar.split_of_batch(name), relative)


def _find_in_file(probe: InputProbe, settings: ConvertSettings) -> Iterable[FoundArray]:
    path, name = folder_of(probe.path), probe.name
    if cifar.is_cifar_archive(probe.head):
        return [FoundArray(ArrayFile(CIFAR_ARCHIVE, path, name))]
    beside = InputProbe(path, is_file=False).files
    if name in cifar.batches_among(beside):
        return [_cifar_batch(name, path)]
    candidates = list(_candidates(path, "", name, settings, alone=True))
    for other in beside if candidates else ():
        if other != name and parse_array_name(other).role == LABELS:
            candidates += _candidates(path, "", other, settings)
    return [array for array in _pair(candidates, settings) if array.images.file == name]


def _is_array_name(name: str) -> bool:
    """Returns whether a file may be an array, or a batch of CIFAR-10 or CIFAR-100."""
    return bool(_kind_of(name) or cifar.batches_among((name.removesuffix(".bin"), "meta")))


def _files_by_folder(path: str) -> dict[str, list[str]]:
    """Returns the names of all files below a folder by their folder, such as `a/b/`, sorted."""
    folders = defaultdict[str, list[str]](list)
    for file in storage.list_files(path):
        folder, slash, name = file.rpartition("/")
        folders[folder + slash].append(name)
    return folders


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
        for member, named in _members_of_npz(array, own, settings):
            yield named, replace(array, member=member)
    elif array.kind and (own.role or alone):
        yield own._replace(role=own.role or IMAGES), array


def _members_of_npz(
    array: ArrayFile, own: NamedArray, settings: ConvertSettings
) -> Iterator[tuple[str, NamedArray]]:
    """Yields the arrays in a `.npz` file that hold images or labels, as settings or their names say."""
    members = array.members
    plain = own._replace(role="")
    chosen = {LABELS: settings.label_column, IMAGES: settings.image_column}
    for role, column in chosen.items():
        if column and column not in members:
            raise UsageError(
                f"--{role.removesuffix('s')}_column {column}: {array.name} has no such array; it has "
                f"{', '.join(members) or 'none'}{nearest(column, members) or '.'}"
            )
        if column:
            yield column, plain._replace(role=role)
    if members == ["arr_0"]:  # `np.savez` was given no name, so the name of the file counts
        yield "arr_0", plain._replace(role=own.role or IMAGES)
    for member in members:
        inner = parse_array_name(member)
        if inner.role and not chosen[inner.role]:
            yield member, inner.within(plain)


def _pair(candidates: Iterable[_Candidate], settings: ConvertSettings) -> Iterator[FoundArray]:
    """Yields the arrays of images, each with the labels whose name matches."""
    groups = {IMAGES: defaultdict[_Group, list[ArrayFile]](list)}
    labels = groups[LABELS] = defaultdict(list)
    # Clear names come first, and files that need no unpacking.
    in_order = sorted(candidates, key=lambda item: (item[0].rank, item[1].file.endswith(".gz"), item[1]))
    for named, array in in_order:
        groups[named.role][named.dataset, named.split, named.number].append(array)
    for group, (images, *rest) in groups[IMAGES].items():
        for other in rest:
            if other.file not in (images.file, f"{images.file}.gz"):
                both = f"{images.file} and {other.file}"
                raise UsageError(f"{both} both seem to hold the same images; name one of them as --input.")
        fitting = labels.get(group, [])
        if not fitting:  # the names differ, but there is no other array of labels
            others = [item for other, items in labels.items() if other[1:] == group[1:] for item in items]
            fitting = others if len(others) == 1 and others[0].kind == images.kind else []
        of_images = fitting[0] if fitting else None
        if settings.label_column and images.kind == NPZ:
            of_images = replace(images, member=settings.label_column)
        dataset, split, _ = group
        yield FoundArray(images, of_images, split, dataset)


def _accepts(probe: InputProbe, settings: ConvertSettings) -> bool:
    try:
        arrays, _ = find_arrays(probe, settings)
    except (OSError, EngineError):
        return False
    return bool(arrays) or (probe.is_file and probe.name.lower().endswith((".npz", ".npy")))


def _describe(probe: InputProbe, settings: ConvertSettings) -> str:
    arrays, _ = find_arrays(probe, settings)
    if not arrays:
        raise UsageError(
            f"--input {probe.path} holds no array with a name of an image array, such as "
            "train-images-idx3-ubyte.gz, data_batch_1, or x_train or images in a .npz file; name the array "
            "in a .npz file with --image_column."
        )
    for array in arrays[:_LOOKED_AT]:
        if not array.images.is_cifar:
            _check(array, settings)
    first = arrays[0].images
    if not first.is_cifar and first.header.shape[0] and settings.depth == "8":
        values.check_first_images(first, settings)
    unlabelled = sum(not (array.labels or array.images.is_cifar) for array in arrays)
    without = f", {unlabelled} of them without labels" if unlabelled else ""
    splits = containers.of_splits(array.split for array in arrays)
    return f"{counted(len(arrays), 'array')} ({first.kind}{without}){splits}"


def _check(array: FoundArray, settings: ConvertSettings) -> tuple[tuple[int, ...], bool]:
    """Returns the shape of the images of an array, and whether they are planar (`image_shape`).

    Raises:
      UsageError: If it is not an array of images, or there are more or fewer labels.
    """
    images, labels = array.images, array.labels
    shape = values.image_shape(images.header, settings, images.name)
    if labels and labels.header.shape[0] != images.header.shape[0]:
        raise UsageError(
            f"{images.name} has {counted(images.header.shape[0], 'image')}, but "
            f"{labels.name} has {counted(labels.header.shape[0], 'label')}; the numbers must be equal."
        )
    return shape


def _parts(item: Input, context: Context) -> Iterator[InputPart]:
    """Yields one part for each array of images, and one for all other files."""
    arrays, others = find_arrays(InputProbe(item.path, item.is_file), context.settings)
    for array in arrays:
        yield InputPart(item, array.images.path, array)
    if others:
        reasons = {True: FilterReason.DOTFILE, False: FilterReason.NOT_AN_IMAGE}
        yield InputPart(item, item.path, left_out={name: reasons[is_hidden(name)] for name in others})


def list_part(part: InputPart, context: Context) -> Iterator[ImageRef | ClassId]:
    """Yields a reference for each image of an array, and the ids of its classes."""
    array: FoundArray = part.detail
    key = f"{part.item.prefix}{key_of(array.images.file)}!"
    keeps = containers.keeps_splits(context.settings)
    parts = cifar.read_batches(part, context) if array.images.is_cifar else _read(array, context)
    for inner, split, rows, reader in parts:
        keep = context.settings.keeps_samples(rows.dtype)
        yield from list_rows(rows, reader, key + inner, split if keeps else "", keep)
        yield from reader.class_ids()


def _read(array: FoundArray, context: Context) -> Iterator[tuple[str, str, Rows, values.LabelReader]]:
    """Yields (rest of the keys, split, images, labels) of an array."""
    images, labels = array.images, array.labels
    shape, planar = _check(array, context.settings)
    rows = images.rows(context)
    rows = replace(rows, shape=shape, planar=planar or values.rows_are_planar(rows, shape))
    label_rows = labels.rows(context) if labels else None
    where, separator = (labels or images).name, context.settings.label_separator
    reader = values.LabelReader(where, label_rows, separator=separator)
    yield f"{key_of(images.member)}/" if images.member else "", array.split, rows, reader


def list_rows(
    rows: Rows, reader: values.LabelReader, key: str, split: str, keep: bool = False
) -> Iterator[ImageRef]:
    """Yields a reference for each image of an array, also for images that are missing from its file.

    Args:
      rows: Images of the array.
      reader: Reader of their labels.
      key: Prefix of the keys; the number of the image follows.
      split: Split of all images.
      keep: Whether images keep their type and all channels.
    """
    digits = max(_DIGITS, len(str(max(rows.count - 1, 0))))
    file_slice, length, stride = rows.file_slice, rows.length, rows.stride
    uri = file_slice.uri
    place = file_slice.place._replace(
        length=length, method=PIXELS, shape=rows.shape, planar=rows.planar, dtype=rows.dtype, keep=keep
    )
    order = rows.dtype[0] if rows.dtype[0] == ">" else ""
    form = f".{values.times(rows.shape)}.{rows.dtype[1:]}{order}{'.planar' if rows.planar else ''}"
    marked = not storage.is_remote(file_slice.file)
    state = "" if marked else containers.state_of(uri).version
    step = min(_BATCH_ROWS, max(1, _BATCH_BYTES // stride))
    for first in range(0, rows.whole, step):
        count = min(step, rows.whole - first)
        data = memoryview(rows.read(first, count) if marked else b"")
        for i, ref in enumerate(reader.read_rows(first, count)):
            index = first + i
            if marked:
                state = containers.content_digest(data[i * stride : i * stride + length])
            yield ref._replace(
                key=f"{key}{index:0{digits}}",
                uri=uri,
                split=split,
                size=length,
                version=state + form,
                place=place._replace(offset=place.offset + index * stride).encode(),
            )
    yield from _missing(rows, ImageRef("", uri, split=split), key, digits)


def _missing(rows: Rows, ref: ImageRef, key: str, digits: int) -> Iterator[ImageRef]:
    """Yields references for missing images and for bytes after the last image."""
    cut = f"the file ends after {rows.whole:,} of {counted(rows.count, 'image')}; download it again"
    fault = rows.damage or ImageFault(QuarantineReason.TRUNCATED, Stage.LIST, cut)
    end = min(rows.count, rows.whole + _MAX_MISSING)
    for index in range(rows.whole, end):
        yield ref._replace(key=f"{key}{index:0{digits}}").quarantined(fault.reason, fault.message)
    if end < rows.count:
        rest = f"this one and {rows.count - end - 1} more: {fault.message}"
        yield ref._replace(key=f"{key}{end:0{digits}}").quarantined(fault.reason, rest)
    if rows.bytes_behind:
        behind = f"at least {rows.bytes_behind} bytes after the last image belong to no image"
        yield ref._replace(key=f"{key}{rows.count:0{digits}}").quarantined(QuarantineReason.CORRUPT, behind)


SOURCE = Source(
    name="arrays",
    provides=frozenset({Needs.LABEL, Needs.IMAGE}),
    settings=frozenset({"image_column", "label_column", "label_separator", "pixel_shape"}),
    accepts=_accepts,
    describe=_describe,
    list_part=list_part,
    parts=_parts,
)
