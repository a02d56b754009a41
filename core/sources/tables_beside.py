"""Finds tables that name the images of a folder, whose classes would be lost if folders gave them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from shardwright.core import storage
from shardwright.core.images.signatures import is_image_name
from shardwright.core.sources.containers import state_of
from shardwright.core.sources.folder_tree import AUTO, split_of_folder
from shardwright.core.sources.image_files import find_root, folder_of, inner_path, with_slashes
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.tables import files, texts
from shardwright.core.sources.tables.columns import usual_columns
from shardwright.core.sources.tables.files import TableFile
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import printable
from shardwright.schemas.layouts import Needs
from shardwright.schemas.plain_text import check_utf8

#: Most folders, and tables in a folder, that are examined.
_FOLDERS, _TABLES = 20, 20
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
    tables = dict(_tables(probe, settings)) if wants_classes else {}
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


def _tables(probe: InputProbe, settings: ConvertSettings) -> Iterator[tuple[str, str]]:
    """Yields the tables at the top of a folder, and in its folders, that name images below it.

    The items are the path of a table and the options that read it, for a message.
    """
    folders = _shown(probe)
    deeper = [inner for folder in folders for inner in _shown(folder)]
    places = [folder.path for folder in (probe, *folders, *deeper) if any(map(is_image_name, folder.files))]
    for folder in (probe, *folders):
        for name in _first_files(folder, lambda name: texts.kind_of(name) in (texts.CSV, texts.JSONL)):
            stem = name.partition(".")[0]
            near = sorted(places, key=lambda place: place.rpartition("/")[2] != stem)
            path = storage.join(folder.path, name)
            options = _options(path, [folder.path, probe.path, *near], settings)
            if options:
                yield printable(path), options


def _first_files(folder: InputProbe, suits: Callable[[str], bool]) -> Iterator[str]:
    return islice((name for name in folder.files if suits(name) and not name.startswith(".")), _TABLES)


def _options(path: str, places: Sequence[str], settings: ConvertSettings) -> str:
    """Returns the options that read a table; empty if it does not name images in one of the folders."""
    file = state_of(path)
    try:
        table, first = files.open_table(file, settings)
    except UsageError:  # it is empty, or no table
        return ""
    image = next((name for name, value in first.items() if is_image_name(str(value))), "")
    if not image and table.header:
        return ""
    named = table._replace(names=(image, "", "", "", "")) if image else table
    written = filter(None, files.first_images(TableFile(file, named, ""), settings))
    images = filter(None, (inner_path(with_slashes(str(name).strip())) for name in written))
    root = find_root(dict.fromkeys(places), [*images])
    if not root:
        return ""
    options = f"--input {printable(path)}"
    if root != folder_of(path):
        options += f" --image_root {printable(root)}"
    others = [name for name in table.header if name != image]
    if image and usual_columns("image", table.header, first)[:1] != [image]:
        options += f" --image_column {printable(image)}"
    if image and not usual_columns("label", others, {}):
        options += f" --label_column COLUMN ({', '.join(map(printable, others[:_NAMES_SHOWN]))})"
    return options
