"""Tables with a column of 0 and 1 for each class, such as Roboflow's `_classes.csv`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import LABEL_SEPARATOR, ImageRef, printable
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import Needs
from shardwright.schemas.units import counted
from shardwright.transforms import storage
from shardwright.transforms.concurrency.underway import UNDERWAY
from shardwright.transforms.sources.file_states import FileStates, with_states
from shardwright.transforms.sources.image_files import (
    bad_entry,
    check_folder,
    class_name,
    folder_of,
    inner_path,
    join,
    key_of,
)
from shardwright.transforms.sources.image_lists import (
    MAX_TRIED,
    describe_list,
    find_lists,
    placed_lists,
    prefix_of_images,
    prefix_of_lines,
    split_lists,
)
from shardwright.transforms.sources.input_probe import HEAD_BYTES, InputProbe, look_at
from shardwright.transforms.sources.manifest.columns import check_text, head_rows, sniff_delimiter
from shardwright.transforms.sources.moved_files import with_slashes
from shardwright.transforms.sources.source import Context, Input, InputSplit, Source

_NAME = "_classes.csv"
_IMAGE_NAMES = ("filename", "file_name", "image", "image_name", "path")
_YES, _NO = ("1", "1.0"), ("0", "0.0", "")


class ClassTable(NamedTuple):
    """A file.

    Attributes:
      path: Path of the file.
      key: Path relative to the input.
      root: Folder of its images.
      split: Split from the name of its folder; empty if it is the only one.
      delimiter: Delimiter of cells.
      classes: Class names in the order of the columns.
    """

    path: str
    key: str
    root: str
    split: str
    delimiter: str
    classes: tuple[str, ...]


def _read_head(path: str, name: str) -> tuple[str, list[list[str]]]:
    """Returns the delimiter and the first rows of a file."""
    with storage.translated_errors("read", path):
        head = storage.read_head(path, HEAD_BYTES)
    check_text(printable(path), head)
    delimiter = sniff_delimiter(name, head)
    rows = head_rows(head, len(head) < HEAD_BYTES, delimiter, False)
    return delimiter, [[cell.strip() for cell in row] for row in rows]


def _is_table(rows: Sequence[Sequence[str]]) -> bool:
    """Returns whether the header names an image first, and a row has only 0 and 1 after it."""
    if not rows or len(rows[0]) < 2 or rows[0][0].lower() not in _IMAGE_NAMES:
        return False
    return any(all(cell in (*_YES, *_NO) for cell in row[1:]) for row in rows[1:] if len(row) > 1)


def _names_in(probe: InputProbe, tried: int | None) -> list[str]:
    names = [_NAME] if _NAME in probe.files else []
    return [name for name in names if _is_table(_read_head(storage.join(probe.path, name), name)[1])]


def _files_in(probe: InputProbe, tried: int | None = None) -> list[str]:
    if probe.is_file:
        named = probe.name == _NAME and _is_table(_read_head(probe.path, probe.name)[1])
        return [""] if named else []
    return find_lists(probe, _names_in, tried)


def _accepts(probe: InputProbe, settings: ConvertSettings) -> bool:
    return settings.record_layout.needs is Needs.LABEL and bool(_files_in(probe, MAX_TRIED))


def _find_tables(probe: InputProbe, settings: ConvertSettings) -> list[ClassTable]:
    names = [""] if probe.is_file else _files_in(probe)
    if not names:
        raise UsageError(
            f"--input {printable(probe.path)} holds no {_NAME} with a column of 0 and 1 for each class; name "
            "the file."
        )
    return [_table(path, key, split, settings) for path, key, split in placed_lists(probe, names)]


def _table(path: str, key: str, split: str, settings: ConvertSettings) -> ClassTable:
    delimiter, rows = _read_head(path, key)
    if not _is_table(rows):
        raise UsageError(
            f"--input {printable(path)} is not a table of classes: its header must name the image and then "
            "the classes (filename,cat,dog), and its rows must have 0 or 1 for each class."
        )
    classes = tuple(map(class_name, rows[0][1:]))
    if not all(classes) or len(set(classes)) < len(classes):
        raise UsageError(
            f"--input {printable(path)}: its header names a class twice, or an empty class; fix it."
        )
    root = settings.image_root.rstrip("/") or folder_of(path)
    return ClassTable(path, key, root, split, delimiter, classes)


def _describe(probe: InputProbe, settings: ConvertSettings) -> str:
    if settings.image_root:
        check_folder("--image_root", settings.image_root)
    tables = _find_tables(probe, settings)
    shown = "; ".join(map(describe_list, tables))
    return f"a column for each of {counted(len(tables[0].classes), 'class')}: {shown}"


def split(item: Input, context: Context) -> Iterator[InputSplit]:
    """Yields one input split for each file."""
    yield from split_lists(item, _find_tables(look_at(item.path), context.settings))


def list_part(part: InputSplit, context: Context) -> Iterator[ImageRef | ClassId]:
    """Yields a reference for each row, and the ids of the classes."""
    path, key, root, split_name, delimiter, classes = json.loads(part.detail)
    table = ClassTable(path, key, root, split_name, delimiter, tuple(classes))
    settings = context.settings
    for number, name in enumerate(table.classes):
        yield ClassId(name, number)
    prefix, row_key = prefix_of_images(part, table.root, context), prefix_of_lines(part, table.key)
    with storage.translated_errors("read", table.path), storage.open_local(table.path) as opened:
        text = io.TextIOWrapper(opened, "utf-8-sig", "surrogateescape", newline="")
        rows = csv.reader(text, delimiter=table.delimiter)
        next(rows, None)
        size = storage.stat(table.path)
        states = FileStates(table.root, max((size.size if size else 0) // 50, 1))
        refs = (
            _ref(row, rows.line_num, table, prefix, row_key, settings)
            for row in UNDERWAY.passing(rows)
            if any(cell.strip() for cell in row)
        )
        yield from with_states(refs, states, table.root)


def _ref(
    row: Sequence[str],
    line: int,
    table: ClassTable,
    prefix: str,
    row_key: str,
    settings: ConvertSettings,
) -> ImageRef:
    shown = f"line {line} of {printable(table.key)}"
    path = inner_path(with_slashes(row[0].strip()))
    if not path:
        return bad_entry(f"{row_key}{line}", table.path, f"{shown} names no image", QuarantineReason.BAD_ROW)
    ref = ImageRef(prefix + key_of(path), join(table.root, path), split=table.split, message=shown)
    cells = [cell.strip() for cell in row[1:]]
    wrong = next((cell for cell in cells if cell not in (*_YES, *_NO)), None)
    if len(cells) != len(table.classes):
        why = f"it has {counted(len(cells), 'class')} instead of {len(table.classes)}"
        return ref.quarantined(QuarantineReason.BAD_ROW, f"{shown}: {why}")
    if wrong is not None:
        return ref.quarantined(QuarantineReason.BAD_ROW, f"{shown}: {wrong[:40]!r} is neither 0 nor 1")
    names = [name for name, cell in zip(table.classes, cells) if cell in _YES]
    if len(names) > 1 and not settings.label_separator:
        several = ", ".join(names[:3])
        why = f"it has several classes ({several}); --label_separator '|' lets an image have several"
        return ref.quarantined(QuarantineReason.BAD_ROW, f"{shown}: {why}")
    return ref._replace(label=LABEL_SEPARATOR.join(names))


SOURCE = Source(
    name="class_columns",
    provides=frozenset({Needs.LABEL}),
    settings=frozenset({"image_root", "label_separator"}),
    accepts=_accepts,
    describe=_describe,
    list_part=list_part,
    split=split,
    names_images=True,
)
