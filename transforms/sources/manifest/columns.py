"""Detects the format of a manifest: its kind, its CSV dialect and the roles of its columns."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError, nearest
from shardwright.schemas.image_ref import printable
from shardwright.schemas.layouts import Needs
from shardwright.schemas.plain_text import check_utf8
from shardwright.transforms.images.signatures import is_image_name
from shardwright.transforms.sources.input_probe import HEAD_BYTES
from shardwright.transforms.sources.manifest.base64_rows import MAX_PATH_LENGTH, base64_column
from shardwright.transforms.sources.manifest.lines import count_lines, csv_cells, row_pattern

CSV, JSONL, PARQUET, LIST = "csv", "jsonl", "parquet", "list"
KINDS = {
    ".csv": CSV, ".tsv": CSV, ".jsonl": JSONL, ".ndjson": JSONL, ".parquet": PARQUET, ".pq": PARQUET,
}  # fmt: skip
#: Roles of columns in the order of a row's values; extra columns follow.
ROLES = ("image", "label", "split", "group", "sha256")
#: Columns of Hugging Face's imagefolder for objects and for the image size.
OBJECTS = "objects"
OBJECT_COLUMNS = (OBJECTS, "width", "height")
#: Name of the split column in files of Vertex AI, also used for files without a header.
ML_USE = "ml_use"
#: Usual names of columns, the most common first. They are compared in lower case, with `-` and blanks as `_`.
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
#: Values of the first cell of a row in files of Google's AutoML and Vertex AI without a header.
SPLIT_WORDS = frozenset(("TRAIN", "TRAINING", "VALIDATE", "VALIDATION", "TEST", "UNASSIGNED"))
_DELIMITERS = ",\t;"
#: Number of names in a message.
_NAMES_SHOWN = 30
_HEAD_ROWS = 200
_LINES_SNIFFED = 20
#: Fraction of the first lines of a list that must look like a path and a class.
_LIKE_A_LIST = 0.75
_PARQUET = b"PAR1"
_BOX = re.compile(r"-?[\d.]+(?:,-?[\d.]+){3,}")
_STORED = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.")


@dataclass(frozen=True)
class Table:
    """Describes how to read a manifest.

    Attributes:
      kind: One of csv, jsonl, parquet and list (a path and a class on each line).
      names: Names of the columns for `ROLES`, then for extra columns, then for `OBJECT_COLUMNS` if the
        layout needs objects. A name is empty if there is no such column.
      positions: Positions of these columns in a CSV row; -1 if there is no such column.
      width: Number of cells in a CSV row; 0 for files without a header, with rows
        `[split,]image[,label...]`.
      delimiter: Delimiter of CSV.
      skip_spaces: Whether blanks before a CSV cell are ignored.
      begin: Byte offset of the first row.
      number: Line number of the first row.
      any_rows: Whether the file has any rows, as far as is known.
      header: Names of all columns, for messages.
      has_objects: Whether a column has objects.
      is_base64: Whether the column of images has the images themselves as base64 text.
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
    is_base64: bool = False

    def encode(self) -> dict[str, object]:
        """Returns the table as a JSON object."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    @staticmethod
    def decode(value: dict[str, object]) -> Table:
        """Returns the table that `encode` wrote."""
        found = {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()}
        return Table(**found)  # type: ignore[arg-type]

    def describe(self) -> str:
        """Returns a description of the detected format for messages."""
        if self.kind == LIST:
            return "a list with a path and a class on each line"
        if self.kind == CSV and not self.width:
            return "a CSV manifest without a header: [split,] image, class"
        kind = {CSV: "CSV", JSONL: "JSON Lines", PARQUET: "Parquet"}[self.kind]
        if self.kind == CSV and self.delimiter == "\t":
            kind = "TSV"
        what = ("images", "classes", "splits", "groups", "checksums")
        taken = [f"{noun} in {name!r}" for noun, name in zip(what, self.names) if name]
        if self.is_base64:
            taken[0] += " as base64"
        taken += [f"objects in {OBJECTS!r}"] if self.has_objects else []
        return f"a {kind} manifest{' with a header' if self.kind == CSV else ''}: {', '.join(taken)}"


def usual_names(role: str) -> tuple[str, ...]:
    """Returns the usual names of the column for a role, the most common first."""
    return _USUAL[role]


def kind_of(name: str) -> str:
    """Returns the kind of manifest that a file name indicates; empty if it indicates none."""
    stem, dot, extension = name.rpartition(".")
    return KINDS.get(f".{extension.lower()}", "") if stem or dot else ""


def kind_by_look(head: bytes) -> str:
    """Returns the kind of manifest that the first bytes of a file indicate."""
    if head.startswith(_PARQUET):
        return PARQUET
    return JSONL if head.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{") else CSV


def looks_like_path(text: str) -> bool:
    """Returns whether a cell looks like the path of an image."""
    text = text.strip()
    return is_image_name(text) or bool(_STORED.match(text))


def is_listing(head: bytes) -> bool:
    """Returns whether the head of a file looks like rows of `[split,]image,label` without a header."""
    rows = head_rows(head, len(head) < HEAD_BYTES, ",", False)[:5]
    return bool(rows) and all(len(row) > 1 and _image_cell(row) is not None for row in rows)


def is_path_list(head: bytes) -> bool:
    """Returns whether the head of a file looks like lines of path and class, such as `a/b.jpg 3`."""
    lines = head.decode("utf-8-sig", "surrogateescape").splitlines()
    if len(head) >= HEAD_BYTES:
        lines = lines[:-1]
    lines = [line for line in lines if line.strip()][:_LINES_SNIFFED]
    pieces = [path_and_label(line) for line in lines]
    # Some training tools write the boxes of an image after its path: 10,20,30,40,0
    telling = [bool(looks_like_path(path) and label and not _BOX.match(label)) for path, label in pieces]
    return bool(pieces) and telling[0] and sum(telling) >= _LIKE_A_LIST * len(telling)


def path_and_label(line: str) -> tuple[str, str]:
    """Returns the path and the class in a line; both may contain blanks.

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
    """Returns whether the columns are those of Open Images' annotations."""
    rows = head_rows(head, len(head) < HEAD_BYTES, ",", False)
    return bool(rows) and {"ImageID", "LabelName"} <= {cell.strip() for cell in rows[0]}


def _image_cell(row: Sequence[str]) -> int | None:
    """Returns the position of the image path in a row without a header; None if no cell looks like one."""
    has_split = len(row) > 1 and row[0].strip().upper() in ("", *SPLIT_WORDS)
    place = 1 if has_split else 0
    return place if looks_like_path(row[place]) else None


def sniff_delimiter(name: str, head: bytes) -> str:
    """Returns the delimiter of a CSV file: a tab for `.tsv`, else the likeliest one in the first line."""
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
    """Returns whether a cell is a usual name of an image column or the path of an image."""
    cell = cell.strip().strip('"')
    if any(mark in cell for mark in _DELIMITERS if mark != delimiter):
        return False
    return _plain(cell) in _USUAL["image"] or looks_like_path(cell)


def head_rows(head: bytes, whole: bool, delimiter: str, skip_spaces: bool) -> list[list[str]]:
    """Returns the cells of the first rows.

    Args:
      head: First bytes of a file.
      whole: Whether `head` is the whole file; if not, its last row may be incomplete.
      delimiter: Delimiter of cells.
      skip_spaces: Whether blanks before a cell are ignored.
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
    """Checks that the head of a file may be UTF-8 text.

    Raises:
      UsageError: If the file is compressed or in another encoding.
    """
    if head.startswith(_PARQUET):
        raise UsageError(f"--input {shown} is a Parquet file by another name; let its name end in .parquet.")
    if head.startswith(b"\x1f\x8b"):
        raise UsageError(f"--input {shown} is compressed; unpack it first.")
    check_utf8(f"--input {shown}", head)
    if len(head) > 3 and head[:200].count(0) >= len(head[:200]) // 3:
        raise UsageError(f"--input {shown} is not UTF-8 text; save it as UTF-8.")


def csv_table(path: str, head: bytes, whole: bool, settings: ConvertSettings) -> Table:
    """Returns the table of a CSV file.

    Args:
      path: Path of the file.
      head: First bytes of the file.
      whole: Whether `head` is the whole file.
      settings: Settings, which may name columns.

    Raises:
      UsageError: If the file has no usable header.
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
    """Returns whether quoted cells follow `, ` in the first lines, which is hardly ever accidental."""
    mark = re.escape(delimiter.encode())
    lines = re.split(rb"\r\n?|\n", head)[:_LINES_SNIFFED]
    return any(re.search(rb'%s +"[^"%s]' % (mark, mark), line) for line in lines)


def _end_of_first_row(data: bytes, delimiter: str, skip: bool) -> int:
    """Returns the end of the first row that is not blank."""
    one = re.compile(row_pattern(delimiter, skip).pattern.removesuffix(b"*+"))
    begin = 0
    while row := one.match(data, begin):
        begin = row.end()
        if head_rows(row.group(), True, delimiter, skip):
            return begin
    return len(data)


def jsonl_table(path: str, head: bytes, whole: bool, settings: ConvertSettings) -> Table:
    """Returns the table of a JSON Lines file; see `csv_table`."""
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
        raise UsageError(f"--input {shown}: {what}; JSON Lines has one object on each line.")
    found = _base64_column(names, settings)
    if found:
        settings = replace(settings, image_column=found)
    chosen = choose_columns(shown, list(names), settings, names)
    has_objects = any(name == OBJECTS or name.startswith(f"{OBJECTS}.") for name in names)
    return Table(
        JSONL,
        chosen,
        begin=mark,
        header=names_shown(list(names)),
        has_objects=has_objects,
        is_base64=bool(found),
    )


def _base64_column(names: Mapping[str, object], settings: ConvertSettings) -> str:
    """Returns the column with images as base64 text; empty if there is none, or a usual one has paths."""
    if settings.image_column:
        return base64_column(names, [settings.image_column])
    plain = {_plain(name.partition(".")[0]): name.partition(".")[0] for name in reversed(list(names))}
    usual = [plain[name] for name in _USUAL["image"] if name in plain]
    if any(looks_like_path(str(names.get(name, ""))[:MAX_PATH_LENGTH]) for name in usual):
        return ""
    return base64_column(names, usual)


def list_table(path: str, head: bytes, whole: bool, settings: ConvertSettings) -> Table:
    """Returns the table of a list with a path and a class on each line; see `csv_table`."""
    check_text(printable(path), head)
    for option, name in _named_columns(settings).items():
        raise UsageError(
            f"{option} {printable(name)}: {printable(path)} is a list of paths and classes, which has no "
            "such column; leave that option out."
        )
    mark = len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0
    return Table(LIST, ("image", "label", *[""] * (len(ROLES) - 2)), begin=mark)


def _values_in(value: dict[str, object], above: str = "", depth: int = 3) -> Iterable[tuple[str, object]]:
    """Yields the names and values in a JSON object; names in nested objects are joined by dots."""
    for name, item in value.items():
        if not isinstance(item, dict):
            yield above + name, item
        elif depth:
            yield from _values_in(item, f"{above}{name}.", depth - 1)


def _named_columns(settings: ConvertSettings) -> dict[str, str]:
    """Returns a mapping of option to the column that it names."""
    named = {f"--{role}_column": str(getattr(settings, f"{role}_column")) for role in ROLES}
    named = {option: name for option, name in named.items() if name}
    return named | {settings.option_of(column): column.name for column in settings.parsed_extra_columns}


def choose_columns(
    shown: str, header: Sequence[str], settings: ConvertSettings, first: Mapping[str, object]
) -> tuple[str, ...]:
    """Returns the names of the columns for `ROLES`, then for extra columns; empty if there is none.

    Args:
      shown: Name of the manifest for messages.
      header: Names of its columns.
      settings: Settings, which may name columns.
      first: Known values of columns in the first rows.

    Raises:
      UsageError: If a named or needed column does not exist.
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
        chosen.append(named or usual_column(role, [name for name in header if name not in chosen], first))
    if not chosen[0]:
        raise UsageError(
            f"--input {shown}: none of its columns ({has}) has a usual name for images; "
            "name the column with their paths with --image_column."
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
    """Returns a list of column names for a message."""
    shown = ", ".join(printable(name)[:60] for name in header[:_NAMES_SHOWN] if name)
    return shown + (", ..." if len(header) > _NAMES_SHOWN else "")


def _plain(name: str) -> str:
    return re.sub(r"[\s-]+", "_", name.strip().lower())


def usual_column(role: str, header: Sequence[str], first: Mapping[str, object]) -> str:
    """Returns the first column with a usual name for a role; empty if there is none.

    For images, columns whose first value looks like a path take precedence.
    """
    plain = {_plain(name): name for name in reversed(header)}
    usual = [plain[name] for name in _USUAL[role] if name in plain]
    paths = [name for name in usual if role == "image" and looks_like_path(str(first.get(name, "")))]
    return next(iter(paths or usual), "")
