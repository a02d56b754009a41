"""Open Images: a CSV file with a row for each box, relative to the size of image `<ImageID>.jpg`."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, NamedTuple

from shardwright.schemas.annotations import Annotations, ObjectAnnotation
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError, words_of
from shardwright.schemas.image_ref import ImageRef, printable
from shardwright.schemas.layouts import Needs
from shardwright.schemas.plain_text import check_utf8
from shardwright.transforms import storage
from shardwright.transforms.sources.file_states import FileStates, with_states
from shardwright.transforms.sources.image_files import (
    annotated,
    bad_entry,
    check_folder,
    class_name,
    folder_of,
    inner_path,
    join,
    key_of,
    number_in,
    split_token,
)
from shardwright.transforms.sources.image_lists import (
    MAX_TRIED,
    describe_list,
    find_image_root,
    names_with,
    placed_lists,
    prefix_of_images,
    prefix_of_lines,
    split_lists,
)
from shardwright.transforms.sources.input_probe import HEAD_BYTES, InputProbe, look_at
from shardwright.transforms.sources.row_runs import MAX_LINE_BYTES, RowRuns
from shardwright.transforms.sources.source import Context, Input, InputSplit, Source

_SIDES = ("XMin", "XMax", "YMin", "YMax")
_NEEDED = ("ImageID", "LabelName", *_SIDES)
#: Part of the names of the files that name the classes.
DESCRIPTIONS = "class-descriptions"
#: What a message says about an input without boxes, after its name.
NO_BOXES = (
    "has no CSV file of Open Images' boxes, such as train-annotations-bbox.csv, whose first line names "
    f"{', '.join(_NEEDED)}; write --input FILE.csv --image_root FOLDER with the folder of the images."
)
_FLAGS = ("IsOccluded", "IsTruncated", "IsGroupOf", "IsDepiction")
_FLAG_VALUES = {"1": True, "0": False, "-1": None, "": None}
_SUFFIX, _TABLE_SUFFIX = ".jpg", ".csv"
_NAMES_TRIED = 5


class _BadRow(Exception):
    """Raised if a row cannot be used; the message says why."""


class BoxFile(NamedTuple):
    """A CSV file of boxes.

    Attributes:
      path: Path of the file.
      key: Path relative to the input.
      root: Folder of its images.
      split: Split in its file name; empty if all files have the same split.
    """

    path: str
    key: str
    root: str
    split: str


def _columns(head: bytes) -> list[str]:
    """Returns the column names in the first line of a file; none if it is not a CSV file of boxes."""
    line = head.partition(b"\n")[0].decode("utf-8-sig", "replace").strip()
    names = line.split(",")
    return names if set(_NEEDED) <= set(names) else []


def _names_in(probe: InputProbe, tried: int | None = None) -> list[str]:
    """Returns the names of the CSV files of boxes in a folder; for a CSV file itself, one empty name."""
    if probe.is_file:
        return [""] if _columns(probe.head) else []
    return names_with(
        probe, _TABLE_SUFFIX, tried, lambda path: bool(_columns(storage.read_head(path, HEAD_BYTES)))
    )


def _find_files(probe: InputProbe, settings: ConvertSettings) -> list[BoxFile]:
    """Returns the CSV files of an input and their image folders.

    Raises:
      UsageError: If there are no CSV files, or their images are not found.
    """
    names = _names_in(probe)
    if not names and probe.is_file:
        raise UsageError(
            f"--input {printable(probe.path)} is not a CSV file of Open Images' boxes: the first line "
            f"must name {', '.join(_NEEDED)}."
        )
    if not names:
        raise UsageError(f"--input {printable(probe.path)} {NO_BOXES}")
    return [
        BoxFile(path, key, _root_of(path, settings), split) for path, key, split in placed_lists(probe, names)
    ]


def _root_of(path: str, settings: ConvertSettings) -> str:
    head = storage.read_head(path, HEAD_BYTES)
    place = _columns(head).index("ImageID")
    rows = [line.decode("utf-8", "replace").strip().split(",") for line in head.split(b"\n")[1:-1]]
    names = list(dict.fromkeys(row[place] + _SUFFIX for row in rows if len(row) > place))
    names = [name for name in names if inner_path(name)][:_NAMES_TRIED]
    token = split_token(path.rpartition("/")[2])
    found = find_image_root(path, names, settings.image_root, token)
    if not found and names:
        raise UsageError(
            f"--input {printable(path)}: {printable(names[0])} is neither beside it nor in images; set "
            "--image_root to the folder of its images."
        )
    return found or folder_of(path)


def _describe(probe: InputProbe, settings: ConvertSettings) -> str:
    if settings.image_root:
        check_folder("--image_root", settings.image_root)
    files = _find_files(probe, settings)
    return f"Open Images' boxes: {'; '.join(map(describe_list, files))}"


def split(item: Input, context: Context) -> Iterator[InputSplit]:
    """Yields one split for each CSV file of an input."""
    yield from split_lists(item, _find_files(look_at(item.path), context.settings))


def list_part(part: InputSplit, context: Context) -> Iterator[ImageRef]:
    """Yields a reference for every image that a file names, and for every row without an image name."""
    file = BoxFile(*json.loads(part.detail))
    names = _class_names(file.path)
    prefix, row_key = prefix_of_images(part, file.root, context), prefix_of_lines(part, file.key)
    with storage.translated_errors("read", file.path), storage.open_local(file.path) as opened:
        columns = _columns(opened.readline(MAX_LINE_BYTES))
        if not columns:
            raise storage.changed(file.path)
        runs = RowRuns()
        for line in runs.index(opened, _image_of(columns), first=2):
            yield bad_entry(f"{row_key}{line}", file.path, "it names no image", QuarantineReason.BAD_ROW)
        refs = (
            ref
            for group in runs.groups()
            for ref in _images(opened, columns, runs, group, file, prefix, names)
        )
        states = FileStates(file.root, len(runs))
        yield from with_states(refs, states, file.root)


def _image_of(columns: Sequence[str]) -> Callable[[bytes, int], str]:
    """Returns a function that gets the image name of a row, empty if the row has none."""
    place = columns.index("ImageID")

    def image_of(line: bytes, number: int) -> str:
        pieces = line.split(b",", place + 1)
        named = pieces[place].strip().decode("utf-8", "surrogateescape") if len(pieces) > place else ""
        return named if inner_path(named) else ""

    return image_of


def _images(
    opened: IO[bytes],
    columns: Sequence[str],
    runs: RowRuns,
    group: list[int],
    file: BoxFile,
    prefix: str,
    names: Mapping[str, str],
) -> Iterator[ImageRef]:
    """Yields the references of the images in runs of rows: one image, unless two ids have the same hash."""
    rows: dict[str, list[tuple[int, str]]] = {}
    place = columns.index("ImageID")
    for line, text in runs.rows(opened, group):
        rows.setdefault(text.split(",", place + 1)[place].strip(), []).append((line, text))
    for image, found in rows.items():
        name = inner_path(image) + _SUFFIX
        message = f"line {found[0][0]} of {printable(file.key)}"
        ref = ImageRef(prefix + key_of(name), join(file.root, name), split=file.split, message=message)
        try:
            objects = [_object(line, text, columns, names) for line, text in found]
        except _BadRow as bad:
            yield ref.quarantined(QuarantineReason.BAD_ROW, str(bad))
            continue
        yield annotated(ref, Annotations(objects=tuple(objects), relative=True))


def _object(line: int, text: str, columns: Sequence[str], names: Mapping[str, str]) -> ObjectAnnotation:
    try:
        fields = next(csv.reader([text])) if '"' in text else text.split(",")
    except csv.Error as error:
        raise _BadRow(f"line {line}: {error}") from None
    if len(fields) != len(columns):
        raise _BadRow(f"line {line} has {len(fields)} fields instead of {len(columns)}")
    row = dict(zip(columns, fields))
    xmin, xmax, ymin, ymax = (_side(line, name, row[name]) for name in _SIDES)
    occluded, truncated, group_of, depiction = (_flag(line, name, row.get(name, "")) for name in _FLAGS)
    class_code = row["LabelName"].strip()
    return ObjectAnnotation(
        class_name(names.get(class_code, class_code)),
        (xmin, ymin, xmax, ymax),
        occluded=occluded,
        truncated=truncated,
        group_of=group_of,
        depiction=depiction,
    )


def _side(line: int, name: str, text: str) -> float:
    side = number_in(text)
    if side is None:
        raise _BadRow(f"line {line}: {name} is {text!r}, which is not a number")
    return side


def _flag(line: int, name: str, text: str) -> bool | None:
    try:
        return _FLAG_VALUES[text.strip()]
    except KeyError:
        raise _BadRow(f"line {line}: {name} is {text!r} instead of 0, 1 or -1") from None


def _class_names(path: str) -> dict[str, str]:
    """Returns class names by LabelName, from the `class-descriptions` file beside a file of boxes."""
    here = folder_of(path)
    beside = InputProbe(here, is_file=False).files
    found = [name for name in beside if DESCRIPTIONS in name and name.lower().endswith(".csv")]
    found.sort(key=lambda name: ("boxable" not in name, name))
    if not found:
        return {}
    table = join(here, found[0])
    with storage.translated_errors("read", table):
        data = storage.read_bytes(table)
    check_utf8(printable(table), data)
    try:
        rows = [row for row in csv.reader(data.decode("utf-8-sig", "replace").splitlines()) if len(row) >= 2]
    except csv.Error as error:
        raise UsageError(
            f"{printable(table)} is not a table of class names: {words_of(error)}; fix it."
        ) from None
    return {row[0].strip(): row[1].strip() for row in rows if row[:2] != ["LabelName", "DisplayName"]}


SOURCE = Source(
    name="open_images",
    provides=frozenset({Needs.OBJECTS}),
    settings=frozenset({"image_root"}),
    accepts=lambda probe, settings: bool(_names_in(probe, MAX_TRIED)),
    describe=_describe,
    list_part=list_part,
    split=split,
    names_images=True,
)
