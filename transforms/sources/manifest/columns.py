"""What a manifest looks like: its kind, its dialect, and which of its columns holds what."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError, nearest
from shardwright.schemas.image_ref import printable
from shardwright.schemas.layouts import Needs
from shardwright.transforms.images.signatures import is_image_name
from shardwright.transforms.sources.input_probe import HEAD_BYTES
from shardwright.transforms.sources.manifest.lines import count_lines, csv_cells, row_pattern

CSV, JSONL, PARQUET, LIST = "csv", "jsonl", "parquet", "list"
KINDS = {
    ".csv": CSV, ".tsv": CSV, ".jsonl": JSONL, ".ndjson": JSONL, ".parquet": PARQUET, ".pq": PARQUET,
}  # fmt: skip
#: What a row says of an image, in the order in which rows yield it; extra columns follow.
ROLES = ("image", "label", "split", "group", "sha256")
#: The column of the objects of Hugging Face's imagefolder, and those of the picture's size.
OBJECTS = "objects"
OBJECT_COLUMNS = (OBJECTS, "width", "height")
#: What the column of splits is called in the files of Vertex AI, and here in those without header.
ML_USE = "ml_use"
#: Names that columns usually have, the likeliest first; compared in lower case, `-` and blanks as `_`.
_USUAL: Mapping[str, tuple[str, ...]] = {
    "image": (
        "image", "image_path", "image_uri", "path", "file", "filename", "file_name", "filepath",
        "file_path", "uri", "image_file", "image_filename", "image_file_name", "image_filepath",
        "image_url", "img", "img_path", "gcs_uri", "imagegcsuri", "url", "image_name",
    ),
    "label": (
        "label", "class", "class_name", "classname", "category", "category_name", "label_name", "labels",
        "classes", "class_label", "target", "label_id", "class_id", "category_id",
        "classificationannotation.displayname",
    ),
    "split": (
        "split", "set", "subset", ML_USE, "data_split", "dataset_split", "partition",
        "dataitemresourcelabels.aiplatform.googleapis.com/ml_use",
    ),
    "group": (),
    "sha256": ("sha256", "sha_256", "image_sha256", "file_sha256"),
}  # fmt: skip
#: What the first cell of a row without header may be in the files of Google's AutoML and Vertex AI.
SPLIT_WORDS = frozenset(("TRAIN", "TRAINING", "VALIDATE", "VALIDATION", "TEST", "UNASSIGNED"))
_DELIMITERS = ",\t;"
#: Names listed in a message.
_NAMES_SHOWN = 30
_HEAD_ROWS = 200
_LINES_SNIFFED = 20
#: The share of the first lines of a list that have to look like a path and a class.
_LIKE_A_LIST = 0.75
_PARQUET = b"PAR1"
_BYTE_ORDER_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_BOX = re.compile(r"-?[\d.]+(?:,-?[\d.]+){3,}")
_STORED = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.")


@dataclass(frozen=True)
class Table:
    """How to read a manifest.

    Attributes:
      kind: csv, jsonl, parquet or list (a path and a class on each line).
      names: of the columns that hold each of `ROLES`, then of the extra ones, then of `OBJECT_COLUMNS` if the
        layout is about objects; empty for none.
      positions: of these columns in a row of CSV, -1 for none.
      width: cells of a row of CSV; 0 where there is no header, and rows are `[split,]image[,label...]`.
      delimiter: of CSV.
      skip_spaces: whether blanks before a cell of CSV do not count.
      begin: the byte at which rows begin.
      number: of the line at which they begin.
      any_rows: whether there are any, as far as was seen.
      header: the names of all columns, for people.
      has_objects: whether a column holds objects.
    """

    kind: str
    names: tuple[str, ...]
    positions: tuple[int, ...] = ()
    width: int = 0
    delimiter: str = ","
    skip_spaces: bool = False
    begin: int = 0
    number: int = 1
    any_rows: bool = True
    header: str = ""
    has_objects: bool = False

    def encode(self) -> dict[str, object]:
        """Returns the table as JSON values."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    @staticmethod
    def decode(value: dict[str, object]) -> Table:
        """Returns the table from JSON values."""
        found = {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()}
        return Table(**found)  # type: ignore[arg-type]

    def describe(self) -> str:
        """Returns what the manifest is taken for, for people."""
        if self.kind == LIST:
            return "a list with a path and a class on each line"
        if self.kind == CSV and not self.width:
            return "a CSV manifest without a header: [split,] image, class"
        kind = {CSV: "CSV", JSONL: "JSON Lines", PARQUET: "Parquet"}[self.kind]
        if self.kind == CSV and self.delimiter == "\t":
            kind = "TSV"
        what = ("images", "classes", "splits", "groups", "checksums")
        taken = [f"{noun} in {name!r}" for noun, name in zip(what, self.names) if name]
        taken += [f"objects in {OBJECTS!r}"] if self.has_objects else []
        return f"a {kind} manifest{' with a header' if self.kind == CSV else ''}: {', '.join(taken)}"


def usual_names(role: str) -> tuple[str, ...]:
    """Returns the names that the column of a role usually has, the likeliest first."""
    return _USUAL[role]


def kind_of(name: str) -> str:
    """Returns the kind that a file's name speaks of; empty if it is none of ours."""
    stem, dot, extension = name.rpartition(".")
    return KINDS.get(f".{extension.lower()}", "") if stem or dot else ""


def kind_by_look(head: bytes) -> str:
    """Returns the kind that the first bytes of a file speak of."""
    if head.startswith(_PARQUET):
        return PARQUET
    return JSONL if head.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{") else CSV


def looks_like_path(text: str) -> bool:
    """Whether a cell looks like the path of an image."""
    text = text.strip()
    return is_image_name(text) or bool(_STORED.match(text))


def is_listing(head: bytes) -> bool:
    """Whether the head of a file looks like rows of `[split,]image,label` without a header."""
    rows = head_rows(head, len(head) < HEAD_BYTES, ",", False)[:5]
    return bool(rows) and all(len(row) > 1 and _image_cell(row) is not None for row in rows)


def is_path_list(head: bytes) -> bool:
    """Whether the head of a file looks like lines with a path and a class, such as `a/b.jpg 3`."""
    lines = head.decode("utf-8-sig", "surrogateescape").splitlines()
    if len(head) >= HEAD_BYTES:
        lines = lines[:-1]
    lines = [line for line in lines if line.strip()][:_LINES_SNIFFED]
    pieces = [path_and_label(line) for line in lines]
    # Some trainers write the boxes of an image behind its path: 10,20,30,40,0
    telling = [bool(looks_like_path(path) and label and not _BOX.match(label)) for path, label in pieces]
    return bool(pieces) and telling[0] and sum(telling) >= _LIKE_A_LIST * len(telling)


def path_and_label(line: str) -> tuple[str, str]:
    """Returns the path and the class of a line; the path may hold blanks, and so may the name of a class.

    >>> path_and_label("my cats/1.jpg great dane")
    ('my cats/1.jpg', 'great dane')
    """
    line = line.strip()
    if "\t" in line:
        path, _, label = line.partition("\t")
        return path.strip(), label.strip()
    for match in reversed([*re.finditer(r"\s+", line)]):
        if is_image_name(line[: match.start()]):
            return line[: match.start()], line[match.end() :]
    path, _, label = line.rpartition(" ")
    return (path.strip(), label) if _STORED.match(line) or label.isdigit() else (line, "")


def is_open_images(head: bytes) -> bool:
    """Whether the columns are those of the annotations of Open Images."""
    rows = head_rows(head, len(head) < HEAD_BYTES, ",", False)
    return bool(rows) and {"ImageID", "LabelName"} <= {cell.strip() for cell in rows[0]}


def _image_cell(row: Sequence[str]) -> int | None:
    """Returns which cell of a row without header names the image, None if none seems to."""
    has_split = len(row) > 1 and row[0].strip().upper() in ("", *SPLIT_WORDS)
    place = 1 if has_split else 0
    return place if looks_like_path(row[place]) else None


def sniff_delimiter(name: str, head: bytes) -> str:
    """Returns the delimiter of a CSV: a tab by the name, else the one that the first line has most of."""
    if name.lower().endswith(".tsv"):
        return "\t"
    first = next((line for line in re.split(rb"[\r\n]+", head) if line.strip()), b"")
    bare = re.sub(rb'"[^"]*"', b"", first)
    marks = sorted(_DELIMITERS, key=lambda mark: -bare.count(mark.encode()))
    line = first.decode("utf-8", "surrogateescape")
    for mark in marks:
        if mark in line and any(_is_telling(cell, mark) for cell in line.split(mark)):
            return mark
    return marks[0]


def _is_telling(cell: str, delimiter: str) -> bool:
    """Whether a cell is the usual name of an image column, or names an image."""
    cell = cell.strip().strip('"')
    if any(mark in cell for mark in _DELIMITERS if mark != delimiter):
        return False
    return _plain(cell) in _USUAL["image"] or looks_like_path(cell)


def head_rows(head: bytes, whole: bool, delimiter: str, skip_spaces: bool) -> list[list[str]]:
    """Returns the cells of the first rows.

    Args:
      head: the first bytes of a file.
      whole: whether they are all of it; if not, its last row may be a part of one.
      delimiter: of cells.
      skip_spaces: whether blanks before a cell do not count.
    """
    head = head.removeprefix(codecs.BOM_UTF8)
    if not whole:
        match = row_pattern(delimiter, skip_spaces).match(head)
        head = head[: match.end()] if match else b""
    rows = []
    for _, cells in csv_cells([head], 1, delimiter, skip_spaces):
        if isinstance(cells, list):
            rows.append(cells)
        if len(rows) >= _HEAD_ROWS:
            break
    return rows


def check_text(shown: str, head: bytes) -> None:
    """Checks that the head of a file can be text.

    Raises:
      UsageError: if it is compressed or in another encoding.
    """
    if head.startswith(_PARQUET):
        raise UsageError(f"--input {shown} is a Parquet file by another name; let its name end in .parquet.")
    if head.startswith(b"\x1f\x8b"):
        raise UsageError(f"--input {shown} is compressed; unpack it first.")
    if head.startswith(_BYTE_ORDER_MARKS) or (len(head) > 3 and head[:200].count(0) >= len(head[:200]) // 3):
        raise UsageError(f"--input {shown} is not UTF-8 but UTF-16 text or no text at all; save it as UTF-8.")


def csv_table(path: str, head: bytes, whole: bool, settings: ConvertSettings) -> Table:
    """Returns how to read a CSV.

    Args:
      path: of the file.
      head: its first bytes.
      whole: whether they are all of it.
      settings: which may name columns.

    Raises:
      UsageError: if it has no header that can be used.
    """
    shown = printable(path)
    name = path.rpartition("/")[2]
    check_text(shown, head)
    mark = len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0
    delimiter = sniff_delimiter(name, head[mark:])
    skip = _has_spaces_before_quotes(head[mark:], delimiter)
    rows = head_rows(head, whole, delimiter, skip)
    if not rows:
        what = "does not begin like a CSV: its first row does not end" if head.strip() else "holds no rows"
        raise UsageError(f"--input {shown} {what}; name a manifest with a row for each image.")
    if not _named_columns(settings) and _image_cell(rows[0]) is not None:
        names = ("image", "label", ML_USE, *[""] * (len(ROLES) - 3))
        return Table(CSV, names, delimiter=delimiter, skip_spaces=skip, begin=mark)
    header = [cell.strip() for cell in rows[0]]
    twice = next((cell for i, cell in enumerate(header) if cell and cell in header[:i]), None)
    if twice is not None:
        raise UsageError(f"--input {shown} has two columns {printable(twice)!r}; rename one of them.")
    chosen = choose_columns(shown, header, settings, dict(zip(header, rows[1])) if len(rows) > 1 else {})
    begin = mark + _end_of_first_row(head[mark:], delimiter, skip)
    return Table(
        CSV,
        chosen,
        positions=tuple(header.index(name) if name else -1 for name in chosen),
        width=len(header),
        delimiter=delimiter,
        skip_spaces=skip,
        begin=begin,
        number=1 + count_lines(head[:begin]),
        any_rows=len(rows) > 1 or not whole,
        header=names_shown(header),
        has_objects=OBJECTS in header,
    )


def _has_spaces_before_quotes(head: bytes, delimiter: str) -> bool:
    """Whether quoted cells stand behind `, ` in the first lines; no writer makes that by chance."""
    mark = re.escape(delimiter.encode())
    lines = re.split(rb"\r\n?|\n", head)[:_LINES_SNIFFED]
    return any(re.search(rb'%s +"[^"%s]' % (mark, mark), line) for line in lines)


def _end_of_first_row(data: bytes, delimiter: str, skip: bool) -> int:
    """Returns where the row after the first that is not blank begins."""
    one = re.compile(row_pattern(delimiter, skip).pattern.removesuffix(b"*+"))
    begin = 0
    while row := one.match(data, begin):
        begin = row.end()
        if head_rows(row.group(), True, delimiter, skip):
            return begin
    return len(data)


def jsonl_table(path: str, head: bytes, whole: bool, settings: ConvertSettings) -> Table:
    """Returns how to read JSON Lines; see `csv_table`."""
    shown = printable(path)
    check_text(shown, head)
    mark = len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0
    lines = re.split(rb"\r\n?|\n", head[mark:])
    if not whole:
        lines.pop()
    names: dict[str, object] = {}
    for line in lines:
        try:
            value = json.loads(line.decode("utf-8", "surrogateescape"))
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            names = dict(_values_in(value)) | names
    if not names:
        what = "none of its first lines is a JSON object" if head[mark:].strip() else "it holds no rows"
        raise UsageError(f"--input {shown}: {what}; JSON Lines have one object on each line.")
    chosen = choose_columns(shown, list(names), settings, names)
    has_objects = any(name == OBJECTS or name.startswith(f"{OBJECTS}.") for name in names)
    return Table(JSONL, chosen, begin=mark, header=names_shown(list(names)), has_objects=has_objects)


def list_table(path: str, head: bytes, whole: bool, settings: ConvertSettings) -> Table:
    """Returns how to read a list with a path and a class on each line; see `csv_table`."""
    check_text(printable(path), head)
    for option, name in _named_columns(settings).items():
        raise UsageError(
            f"{option} {printable(name)}: {printable(path)} is a list of paths and classes, which has no "
            "such column; leave that option out."
        )
    mark = len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0
    return Table(LIST, ("image", "label", *[""] * (len(ROLES) - 2)), begin=mark)


def _values_in(value: dict[str, object], above: str = "", depth: int = 3) -> Iterable[tuple[str, object]]:
    """Yields the names and values of an object, and those of objects in it with dots between."""
    for name, item in value.items():
        if not isinstance(item, dict):
            yield above + name, item
        elif depth:
            yield from _values_in(item, f"{above}{name}.", depth - 1)


def _named_columns(settings: ConvertSettings) -> dict[str, str]:
    """Returns option -> column of the columns that the settings name."""
    named = {f"--{role}_column": str(getattr(settings, f"{role}_column")) for role in ROLES}
    named = {option: name for option, name in named.items() if name}
    return named | {settings.option_of(column): column.name for column in settings.parsed_extra_columns}


def choose_columns(
    shown: str, header: Sequence[str], settings: ConvertSettings, first: Mapping[str, object]
) -> tuple[str, ...]:
    """Returns the column of each of `ROLES`, then the extra ones; empty for none.

    Args:
      shown: the manifest, for messages.
      header: the names of its columns.
      settings: which may name some.
      first: values that columns have, as far as known.

    Raises:
      UsageError: if a column that is named does not exist, or one that is needed.
    """
    has = names_shown(header)
    for option, name in _named_columns(settings).items():
        if name not in header:
            shown_option = f"{option} {printable(name)}" if option.endswith("_column") else option
            raise UsageError(
                f"{shown_option}: {shown} has no such column, it has {has}{nearest(name, header) or '.'}"
            )
    chosen: list[str] = []
    for role in ROLES:
        named = str(getattr(settings, f"{role}_column"))
        chosen.append(named or _usual(role, [name for name in header if name not in chosen], first))
    if not chosen[0]:
        raise UsageError(
            f"--input {shown}: none of its columns ({has}) has a usual name for images; "
            "say with --image_column which one holds their paths."
        )
    extra = [column.name for column in settings.parsed_extra_columns]
    about_objects: list[str] = []
    if settings.record_layout.needs is Needs.OBJECTS:
        size = [name if name in header else "" for name in OBJECT_COLUMNS[1:]]
        about_objects = [OBJECTS, *(size if all(size) else ("", ""))]
        if OBJECTS not in header and not any(name.startswith(f"{OBJECTS}.") for name in header):
            about_objects[0] = ""
    return (*chosen, *extra, *about_objects)


def names_shown(header: Sequence[str]) -> str:
    """Returns the names of columns for a message."""
    shown = ", ".join(printable(name)[:60] for name in header[:_NAMES_SHOWN] if name)
    return shown + (", ..." if len(header) > _NAMES_SHOWN else "")


def _plain(name: str) -> str:
    return re.sub(r"[\s-]+", "_", name.strip().lower())


def _usual(role: str, header: Sequence[str], first: Mapping[str, object]) -> str:
    """Returns the first column that has a usual name for a role; empty if none has.

    Of those that may hold images, one whose first value looks like a path comes before the others.
    """
    plain = {_plain(name): name for name in reversed(header)}
    usual = [plain[name] for name in _USUAL[role] if name in plain]
    paths = [name for name in usual if role == "image" and looks_like_path(str(first.get(name, "")))]
    return next(iter(paths or usual), "")
