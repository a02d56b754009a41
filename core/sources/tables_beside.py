"""Finds tables that name the images of a folder, whose classes would be lost if folders gave them."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice

from shardwright.core import storage
from shardwright.core.images.signatures import is_image_name
from shardwright.core.sources.folder_tree import AUTO, split_of_folder
from shardwright.core.sources.image_files import find_root, folder_of, inner_path
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.moved_files import with_slashes
from shardwright.core.sources.tables.columns import usual_columns
from shardwright.core.sources.tables.heads import CSV, JSONL, head_rows, kind_of, sniff_delimiter
from shardwright.core.sources.tables.lines import Lines, json_object
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import printable
from shardwright.schemas.layouts import Needs
from shardwright.schemas.plain_text import check_utf8

#: Most folders, tables in a folder, and rows of a table that are examined.
_FOLDERS, _TABLES, _ROWS = 20, 20, 50
_NAMES_SHOWN = 5

#: Extensions of text files that may describe images.
_TEXTS = (
    "csv", "tsv", "txt", "json", "jsonl", "ndjson", "xml", "yaml", "yml", "data", "names", "lst", "list",
)  # fmt: skip


def check_tables(probe: InputProbe, settings: ConvertSettings) -> None:
    """Checks that no table names the images of a folder that has no more than one class.

    Raises:
      UsageError: If there is such a table; the message says how to read it, and how to leave it out. Or if
        a text beside the images cannot be read.
    """
    needs = settings.record_layout.needs
    wants_classes = needs is Needs.LABEL and settings.folders == AUTO and not _has_classes(probe)
    if wants_classes or needs is Needs.OBJECTS:
        _check_texts(probe)
    tables = dict(_tables(probe)) if wants_classes else {}
    if tables:
        does, them = ("names", "it is") if len(tables) == 1 else ("each name", "they are")
        raise UsageError(
            f"--input {printable(probe.path)}: {', '.join(tables)} {does} its images, whose folders give no "
            f"classes; write {', or '.join(tables.values())}, or --source class_folders if {them} to be left "
            "out."
        )


def is_text_name(name: str) -> bool:
    """Returns whether a file name is that of a text that may describe images."""
    return name.rpartition(".")[2].lower() in _TEXTS


def _check_texts(probe: InputProbe) -> None:
    """Checks that no text beside the images is in UTF-16, for which no source would recognize it.

    Raises:
      UsageError: If one is.
    """
    for folder in (probe, *_shown(probe)):
        for name in _first_files(folder, is_text_name):
            path = storage.join(folder.path, name)
            check_utf8(f"--input {printable(probe.path)}: {printable(path)}", storage.read_head(path, 2))


def _shown(probe: InputProbe) -> list[InputProbe]:
    names = (name for name in probe.folders if not name.startswith("."))
    return probe.folders_inside(islice(names, _FOLDERS))


def _has_classes(probe: InputProbe) -> bool:
    """Returns whether folders of different names have images, in split folders or else at the top."""
    names: set[str] = set()
    for folder in _shown(probe):
        for inner in _shown(folder) if split_of_folder(folder.name) else [folder]:
            if any(map(is_image_name, inner.files)) or inner.images_below:
                names.add(inner.name)
            if len(names) > 1:
                return True
    return False


def _tables(probe: InputProbe) -> Iterator[tuple[str, str]]:
    """Yields the tables at the top of a folder, and in its folders, that name images below it.

    The items are the path of a table and the options that read it, for a message.
    """
    folders = _shown(probe)
    deeper = [inner for folder in folders for inner in _shown(folder)]
    places = [folder.path for folder in (probe, *folders, *deeper) if any(map(is_image_name, folder.files))]
    for folder in (probe, *folders):
        for name in _first_files(folder, lambda name: kind_of(name) in (CSV, JSONL)):
            stem = name.partition(".")[0]
            near = sorted(places, key=lambda place: place.rpartition("/")[2] != stem)
            options = _options(folder.inside(name), [folder.path, probe.path, *near])
            if options:
                yield printable(storage.join(folder.path, name)), options


def _first_files(folder: InputProbe, suits: Callable[[str], bool]) -> Iterator[str]:
    return islice((name for name in folder.files if suits(name) and not name.startswith(".")), _TABLES)


def _options(probe: InputProbe, places: Sequence[str]) -> str:
    """Returns the options that read a table; empty if it does not name images in one of the folders."""
    rows = _rows(probe)
    header = list(dict.fromkeys(chain.from_iterable(rows)))
    image = next((name for name in header if is_image_name(rows[0].get(name, ""))), None)
    if image is None:
        return ""
    images = (inner_path(with_slashes(row.get(image, "").strip())) for row in rows)
    root = find_root(dict.fromkeys(places), [path for path in images if path])
    if not root:
        return ""
    options = f"--input {printable(probe.path)}"
    if root != folder_of(probe.path):
        options += f" --image_root {printable(root)}"
    others = [name for name in header if name != image]
    if image and usual_columns("image", header, rows[0])[:1] != [image]:
        options += f" --image_column {printable(image)}"
    if image and not usual_columns("label", others, {}):
        options += f" --label_column COLUMN ({', '.join(map(printable, others[:_NAMES_SHOWN]))})"
    return options


def _rows(probe: InputProbe) -> list[dict[str, str]]:
    """Returns column -> cell for the first rows; the columns of a file without a header have no names."""
    head = probe.head
    if kind_of(probe.name) == JSONL:
        values = map(json_object, Lines([head.removeprefix(codecs.BOM_UTF8)]))
        objects = (value for value in values if isinstance(value, dict))
        return [{name: str(item) for name, item in row.items()} for row in islice(objects, _ROWS)]
    rows = head_rows(head, sniff_delimiter(probe.name, head))[: _ROWS + 1]
    if rows and any(map(is_image_name, rows[0])):
        return [{"": next(filter(is_image_name, row), "")} for row in rows]
    return [dict(zip(map(str.strip, rows[0]), row)) for row in rows[1:]]
