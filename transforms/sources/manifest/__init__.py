"""Manifests: CSV, JSON Lines and Parquet files with a row for each image, and lists of paths and classes.

Files are read as streams and split so that workers read them in parallel. A bad row is quarantined with its
line number.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from itertools import islice

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef, printable
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import Needs
from shardwright.schemas.units import counted
from shardwright.transforms import storage
from shardwright.transforms.images.signatures import is_image_name
from shardwright.transforms.sources.folder_tree import could_be_splits, split_of_folder
from shardwright.transforms.sources.image_files import folder_of, inner_path, split_token
from shardwright.transforms.sources.image_lists import find_image_root, key_prefix
from shardwright.transforms.sources.input_probe import HEAD_BYTES, InputProbe
from shardwright.transforms.sources.manifest import columns
from shardwright.transforms.sources.manifest.base64_rows import base64_rows
from shardwright.transforms.sources.manifest.columns import Table
from shardwright.transforms.sources.manifest.lines import (
    LONGEST,
    STEP,
    Row,
    csv_cells,
    csv_rows,
    find_row_starts,
    json_rows,
    list_rows,
    read_steps,
    row_pattern,
)
from shardwright.transforms.sources.manifest.parquet import parquet_parts, parquet_rows, parquet_table
from shardwright.transforms.sources.manifest.paths import FileFault, ImageRoot, RowFault, state_of
from shardwright.transforms.sources.manifest.rows import SETTINGS, Rows, bare_rows
from shardwright.transforms.sources.moved_files import find_moved
from shardwright.transforms.sources.source import Context, Input, InputSplit, Source
from shardwright.transforms.storage.stored_object import StoredObject

#: Number of bytes of CSV or JSON Lines in one split.
STRETCH = 16_000_000
#: Numbers of bytes to read, each if fewer do not show the format of a file.
_HEADS = (HEAD_BYTES, 4 << 20, LONGEST + STEP)
#: Prefixes of the files that Spark and Hadoop write beside their output.
_MARKERS = ("_SUCCESS", "_committed_", "_started_")
#: Number of files in a folder to read for detection.
_FILES_TRIED = 10
#: Names of the manifest in Hugging Face's "imagefolder", and of its column of file names.
_METADATA, _FILE_NAME = ("metadata.csv", "metadata.jsonl", "metadata.parquet"), "file_name"
#: Number of rows whose images are checked before the conversion begins.
_ROWS_TRIED = 50
_LIST_SUFFIXES = ("txt", "lst")


def _accepts(probe: InputProbe, settings: ConvertSettings) -> bool:
    if not probe.is_file:
        return bool(
            _only_manifests(probe)
            or _metadata_in(probe, settings)
            or _lists_in(probe, settings, _FILES_TRIED)
        )
    kind = columns.kind_of(probe.name)
    if not kind:
        return _may_be_list(probe.name) and (
            columns.is_listing(probe.head) or columns.is_path_list(probe.head)
        )
    return kind != columns.CSV or not columns.is_open_images(probe.head)


def _may_be_list(name: str) -> bool:
    """Returns whether a file name may be that of a list: `train.txt`, `train.lst` or without extension."""
    return "." not in name or name.rpartition(".")[2].lower() in _LIST_SUFFIXES


def _lists_in(probe: InputProbe, settings: ConvertSettings, tried: int | None = None) -> list[str]:
    """Returns the names of the lists of paths and classes in a folder whose images exist.

    Args:
      probe: The folder.
      settings: Checked settings.
      tried: Number of files to examine, which is enough to detect lists; None for all.
    """
    if settings.record_layout.needs is not Needs.LABEL:
        return []
    named = [name for name in probe.files if "." in name and _may_be_list(name) and not name.startswith(".")]
    names = [name for name in named[:tried] if columns.is_path_list(probe.inside(name).head)]
    return [name for name in names if _list_root(storage.join(probe.path, name), settings)]


def _list_root(path: str, settings: ConvertSettings) -> str:
    """Returns the folder to which the paths of a list are relative; empty if no usual folder fits."""
    with storage.translated_errors("read", path):
        lines = storage.read_head(path, HEAD_BYTES).decode("utf-8-sig", "surrogateescape").splitlines()
    names = [columns.path_and_label(line)[0] for line in lines[:_ROWS_TRIED]]
    names = [name for name in names if inner_path(name)]
    return find_image_root(path, names, settings.image_root, split_token(path.rpartition("/")[2]))


def _list_split(path: str, settings: ConvertSettings, beside: Sequence[str]) -> str:
    """Returns the split in a list's name; empty unless the names of the lists have different splits."""
    others = settings.input
    tokens = {split_token(name.rpartition("/")[2]) for name in (*others, *beside)}
    return split_token(path.rpartition("/")[2]) if len(tokens - {""}) > 1 else ""


def _only_manifests(probe: InputProbe) -> list[str]:
    """Returns the file names in a folder that contains only manifests of one kind; else none."""
    names = [name for name in probe.files if not _is_marker(name)]
    kinds = {columns.kind_of(name) for name in names}
    if len(kinds) != 1 or "" in kinds or probe.folders:
        return []
    heads = (probe.inside(name).head for name in names[:_FILES_TRIED] if kinds == {columns.CSV})
    return [] if any(map(columns.is_open_images, heads)) else names


def _metadata_in(probe: InputProbe, settings: ConvertSettings) -> list[str]:
    """Returns the metadata file of a folder, or those of all its split folders.

    A metadata file counts only if it has classes or objects, and its images exist.
    """
    names = _metadata_beside_images(probe, "") or _metadata_above_images(probe, settings)
    if not names and could_be_splits(probe.folders):
        splits = [folder for folder in probe.folders if not folder.startswith(".")]
        found = [_metadata_beside_images(probe, folder) for folder in splits]
        names = [name for each in found for name in each] if all(found) else []
    return names if all(_goes_with_images(probe, name, settings) for name in names) else []


def _metadata_beside_images(probe: InputProbe, inner: str) -> list[str]:
    folder = InputProbe(storage.join(probe.path, inner), is_file=False) if inner else probe
    if not any(is_image_name(name) for name in folder.files):
        return []
    # The probe does not list all files of a large folder.
    there = (name for name in _METADATA if storage.exists(storage.join(folder.path, name)))
    return [f"{inner}/{name}" if inner else name for name in islice(there, 1)]


def _metadata_above_images(probe: InputProbe, settings: ConvertSettings) -> list[str]:
    """Returns the metadata file of a folder with images in its subfolders, for layouts with objects."""
    if settings.record_layout.needs is not Needs.OBJECTS:
        return []
    return [name for name in probe.files if name in _METADATA][:1]


def _goes_with_images(probe: InputProbe, name: str, settings: ConvertSettings) -> bool:
    file = storage.stat(storage.join(probe.path, name))
    try:
        table = load_table(file, settings) if file is not None and file.size else None
    except UsageError:
        return False
    if file is None or table is None or table.names[0] != (settings.image_column or _FILE_NAME):
        return False
    if settings.record_layout.needs is Needs.OBJECTS and not table.has_objects:
        return False
    return bool(table.names[1] or table.has_objects) and not _missing(
        table, file, _root(settings, file.path), settings
    )


def _is_marker(name: str) -> bool:
    return name.startswith((".", *_MARKERS)) or name.endswith(".crc")


def load_table(file: StoredObject, settings: ConvertSettings) -> Table:
    """Returns the table that tells how to read a manifest.

    Raises:
      UsageError: If the file is not a manifest, or has no column that is named or needed.
    """
    kind = columns.kind_of(file.path.rpartition("/")[2])
    if not kind and _may_be_list(file.path.rpartition("/")[2]):
        head = storage.read_range(file.path, 0, HEAD_BYTES, file.size, file.version)
        kind = columns.LIST if not columns.is_listing(head) and columns.is_path_list(head) else ""
    if not kind:
        kind = columns.kind_by_look(storage.read_range(file.path, 0, HEAD_BYTES, file.size, file.version))
    if not file.size:
        raise UsageError(f"--input {printable(file.path)} is empty; add a row for each image.")
    if kind == columns.PARQUET:
        return parquet_table(file.path, file.size, file.version, settings)
    makers = {columns.CSV: columns.csv_table, columns.LIST: columns.list_table}
    make = makers.get(kind, columns.jsonl_table)
    for length in _HEADS:
        head = storage.read_range(file.path, 0, length, file.size, file.version)
        whole = len(head) >= file.size
        try:
            return make(file.path, head, whole, settings)
        except UsageError:
            if whole or length == _HEADS[-1]:
                raise
    raise AssertionError


def _describe(probe: InputProbe, settings: ConvertSettings) -> str:
    file = _first_file(probe, settings)
    name = file.path
    if not probe.is_file:
        _check_one_metadata(name)
    if settings.image_root:
        storage.require_known("--image_root", settings.image_root)
        if not storage.is_remote(settings.image_root) and not os.path.isdir(settings.image_root):
            raise UsageError(
                f"--image_root {printable(settings.image_root)} is not a folder; check the path."
            )
    table = load_table(file, settings)
    if probe.is_file and not table.any_rows:
        raise UsageError(f"--input {printable(name)} has columns but no rows; add a row for each image.")
    needs_label = settings.record_layout.needs is Needs.LABEL and settings.unlabelled != "keep"
    if settings.record_layout.needs is Needs.OBJECTS and not table.has_objects:
        raise UsageError(
            f"--layout {settings.record_layout.name}: {printable(name)} is read as manifest, "
            "but it has no column objects; choose --layout "
            "classification, or another --source."
        )
    if needs_label and not table.names[1] and table.has_objects:
        raise UsageError(
            f"--layout {settings.record_layout.name}: the rows of {printable(name)} have objects and no "
            "class; choose --layout detection."
        )
    if needs_label and not table.names[1]:
        raise UsageError(
            f"--input {printable(name)}: none of its columns ({table.header}) has a usual name for classes; "
            "name the column with --label_column, or keep images without a class with --unlabelled keep."
        )
    root = _root_of(table, name, settings)
    described = table.describe() + _missing(table, file, root, settings)
    if table.kind == columns.LIST:
        return _describe_lists(probe, name, root, described, settings)
    if probe.is_file:
        return described
    if _only_manifests(probe):
        return f"a folder of manifests, the first is {described}"
    return f"a folder of images that {printable(file.path)} names, {described}"


def _check_one_metadata(path: str) -> None:
    """Checks that no other file beside a metadata file could be meant.

    Raises:
      UsageError: If there is one.
    """
    beside = [storage.join(folder_of(path), name) for name in _METADATA]
    others = [other for other in beside if path in beside and other != path and storage.exists(other)]
    if others:
        shown = [printable(name) for name in (path, *others)]
        raise UsageError(
            f"{' and '.join(shown)} may both name the images; write --input {' or --input '.join(shown)}."
        )


def _describe_lists(
    probe: InputProbe, first: str, root: str, described: str, settings: ConvertSettings
) -> str:
    names = [probe.name] if probe.is_file else _only_manifests(probe) or _lists_in(probe, settings)
    split = _list_split(first, settings, names)
    shown = printable(", ".join(names))
    where = f"images in {printable(root) or 'the working directory'}"
    kind = "are splits" if len(names) > 1 else "is a split"
    return f"{described}: {shown}{f' {kind} by name' if split else ''} ({where})"


def _first_file(probe: InputProbe, settings: ConvertSettings) -> StoredObject:
    """Returns the manifest, or the first manifest in a folder that is not empty."""
    names = [probe.path]
    if not probe.is_file:
        inside = _only_manifests(probe) or _metadata_in(probe, settings) or _lists_in(probe, settings)
        names = [storage.join(probe.path, name) for name in inside]
    found = None
    for name in names:
        found = storage.stat(name) or found
        if found is not None and found.size:
            return found
    if found is None:
        raise UsageError(
            f"--input {printable(probe.path)} is neither a manifest nor a folder of manifests of one "
            "kind; name a CSV, JSON Lines or Parquet file."
        )
    return found


def _root(settings: ConvertSettings, path: str) -> str:
    """Returns the folder to which the paths of a manifest are relative."""
    if settings.image_root:
        return settings.image_root
    return path.rpartition("/")[0] or ("/" if path.startswith("/") else "")


def _root_of(table: Table, path: str, settings: ConvertSettings) -> str:
    """Returns the folder to which the paths of a manifest or list are relative."""
    found = _list_root(path, settings) if table.kind == columns.LIST else ""
    return found or _root(settings, path)


def _missing(table: Table, file: StoredObject, root: str, settings: ConvertSettings) -> str:
    """Returns a warning if none of the first images exists; else an empty string."""
    if not table.any_rows:
        return ""
    part = InputSplit(Input(file.path, ""), file.path, table.begin, min(table.begin + HEAD_BYTES, file.size))
    if table.kind == columns.PARQUET:
        part = part._replace(begin=0, end=1)
    image_root, tried = ImageRoot(root), 0
    paths: list[str] = []
    for _, values in _rows(part, table, file, settings.label_separator):
        if isinstance(values, str) or not isinstance(values[0], str):
            continue
        try:
            _, uri = image_root.find(values[0])
            if storage.is_remote(uri):
                return ""
            tried += 1
            paths.append(values[0])
            state_of(uri)
            return ""
        except (RowFault, FileFault):
            pass
        if tried >= _ROWS_TRIED:
            break
    if not tried:
        return ""
    if find_moved(paths, root or "."):
        return "; its images are not at these paths, so they are searched by file name"
    where = printable(root) or "the working directory"
    return (
        f"; none of the first {counted(tried, 'image')} is there, --image_root says where paths "
        f"begin (now {where})"
    )


def _split(item: Input, context: Context) -> Iterator[InputSplit]:
    """Yields the splits of a manifest, or of all manifests in a folder."""
    with storage.translated_errors("read", item.path):
        names = [""] if item.is_file else _files_to_split(item.path, context.settings)
        for name in names:
            path = storage.join(item.path, name) if name else item.path
            file = storage.stat(path)
            if file is None:
                raise storage.changed(path)
            if file.size:
                yield from _split_file(item, file, name.rpartition("/")[0], names, context.settings)


def _files_to_split(folder: str, settings: ConvertSettings) -> list[str]:
    probe = InputProbe(folder, is_file=False)
    if _only_manifests(probe):
        return _all_files(folder)
    return _metadata_in(probe, settings) or _lists_in(probe, settings)


def _all_files(folder: str) -> list[str]:
    """Returns the names of all manifests directly in a folder."""
    if not storage.is_remote(folder):
        return sorted(name for name in os.listdir(folder) if not _is_marker(name))
    base = folder.rstrip("/") + "/"
    names = (item.path.removeprefix(base) for item in storage.list_objects(base))
    return sorted(name for name in names if name and not _is_marker(name))


def _split_file(
    item: Input, file: StoredObject, folder: str, names: Sequence[str], settings: ConvertSettings
) -> Iterator[InputSplit]:
    table = load_table(file, settings)
    root, split = _root_of(table, file.path, settings), split_of_folder(folder)
    if table.kind == columns.LIST:
        # Paths become keys. If they are relative to the folder of a split, that folder comes first.
        above = settings.image_root.rstrip("/") or folder_of(file.path)
        folder = key_prefix(root, above, "").rstrip("/")
        split = _list_split(file.path, settings, names)
    detail = json.dumps(
        {
            "size": file.size,
            "version": file.version,
            "table": table.encode(),
            "folder": folder,
            "split": split,
            "root": root,
        }
    )
    if table.kind == columns.PARQUET:
        for begin, end, number in parquet_parts(file.path, file.size, file.version):
            yield InputSplit(item, file.path, begin, end, number, detail)
        return
    begin, number = table.begin, table.number
    if file.size - begin > STRETCH:
        pattern = row_pattern(table.delimiter, table.skip_spaces) if table.kind == columns.CSV else None
        steps = read_steps(file.path, begin, file.size, file.size, file.version, min(STEP, STRETCH))
        for end, lines in find_row_starts(steps, begin, STRETCH, pattern):
            yield InputSplit(item, file.path, begin, end, number, detail)
            begin, number = end, table.number + lines
    if begin < file.size:
        yield InputSplit(item, file.path, begin, file.size, number, detail)


def _rows(part: InputSplit, table: Table, file: StoredObject, separator: str) -> Iterator[Row]:
    """Yields the rows of a split."""
    if table.kind == columns.PARQUET:
        groups = (part.begin, part.end)
        return parquet_rows(file.path, file.size, file.version, groups, part.number, table.names)
    steps = read_steps(file.path, part.begin, part.end, file.size, file.version)
    if table.kind == columns.LIST:
        return list_rows(steps, part.number, columns.path_and_label, separator)
    if table.is_base64:
        return base64_rows(steps, part.begin, part.number, table.names, file)
    if table.kind == columns.JSONL:
        return json_rows(steps, part.number, table.names)
    cells = csv_cells(steps, part.number, table.delimiter, table.skip_spaces)
    return csv_rows(cells, table.width, table.positions) if table.width else bare_rows(cells, separator)


def list_part(part: InputSplit, context: Context) -> Iterator[ImageRef | ClassId]:
    """Yields a reference for every row of a split, and the ids of classes that are numbers."""
    settings = context.settings
    detail = json.loads(part.detail)
    table = Table.decode(detail["table"])
    file = StoredObject(part.path, detail["size"], detail["version"])
    folder = detail["folder"]  # the folder of a split, or the image folder of a list
    is_list = table.kind == columns.LIST
    rows = Rows(
        settings=settings,
        root=detail["root"],
        prefix=f"{part.item.prefix}{folder}/" if folder and not is_list else part.item.prefix,
        manifest=part.path,
        shown=part.path.rpartition("/")[2],
        unit="row" if table.kind == columns.PARQUET else "line",
        folder_split=detail["split"],
        ml_use=table.names[2].lower().endswith(columns.ML_USE),
        key_folder=f"{folder}/" if folder and is_list else "",
    )
    with storage.translated_errors("read", part.path):
        yield from rows.refs(_rows(part, table, file, settings.label_separator))


SOURCE = Source(
    name="manifest",
    provides=frozenset({Needs.LABEL, Needs.OBJECTS, Needs.IMAGE}),
    settings=SETTINGS,
    accepts=_accepts,
    describe=_describe,
    list_part=list_part,
    split=_split,
    names_images=True,
    has_columns=True,
)
