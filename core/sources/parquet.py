"""Parquet and Arrow files with the images inside, as Hugging Face's datasets library writes them.

pyarrow reads the rows once, in parts, and their images are copied into spool files.

Keys are `FILE!000017`, with the number of the row from 0. A row without bytes whose image has a path names an
image file, and is read like a row of a manifest.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import Any

from shardwright.core import storage
from shardwright.core.images.signatures import is_image_name
from shardwright.core.sources import containers
from shardwright.core.sources.image_files import files_below, folder_of, is_hidden, key_of, split_name
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.source import Context, Input, InputPart, Source
from shardwright.core.sources.tables import columns, parquet
from shardwright.core.sources.tables.columns import OBJECTS, usual_columns
from shardwright.core.sources.tables.files import Table
from shardwright.core.sources.tables.parquet import kind_of_file
from shardwright.core.sources.tables.rows import SETTINGS, list_rows
from shardwright.core.sources.tfrecord.files import split_of
from shardwright.core.storage.store import StoredObject
from shardwright.schemas.codes import FilterReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.json_values import json_object
from shardwright.schemas.layouts import Needs
from shardwright.schemas.plain_text import printable
from shardwright.schemas.units import counted

#: Files with which the datasets library describes what it saves.
_STATE, _DICT = "state.json", "dataset_dict.json"
#: Files beside the data that describe it, or that tools leave there; nobody expects images in them.
_BESIDE = re.compile(
    r"dataset_infos?\.json|state\.json|dataset_dict\.json|readme.*|licen[cs]e.*|.*\.(?:md|lock|crc)|"
    r"_SUCCESS|_(?:common_)?metadata|_committed_.*|_started_.*",
    re.IGNORECASE,
)
#: Results of transformations that the datasets library keeps beside its files.
_CACHE = "cache-"
#: Files of a split on the Hugging Face Hub, which may have any name; a number may follow.
_HUB = re.compile(r"(?:.*/)?data/([\w.]+?)-\d{5}-of-\d{5}\Z", re.ASCII)
_HUB_MARK = re.compile(r"(?<=-of-\d{5})-[0-9a-f]{16}\Z", re.ASCII)
#: Number of files that are opened before the conversion begins; others are opened when they are listed.
_LOOKED_AT = 16


def _accepts(probe: InputProbe, settings: ConvertSettings) -> bool:
    try:
        near = containers.first_containers(probe, kind_of_file, is_image_name)
        if not (probe.is_file or (near and not probe.images_below)):
            return False
        files, _, images = _files(probe)
        if not files or images:
            return False
        first = containers.path_of(probe.path, probe.is_file, next(iter(files)))
        return table_in(containers.state_of(first), settings) is not None
    except (OSError, EngineError):
        return False


def _table(path: str, settings: ConvertSettings) -> Table:
    """Returns the table in a file.

    Raises:
      UsageError: If it has no table with images.
    """
    table = table_in(containers.state_of(path), settings)
    if table is not None:
        return table
    named = f"column {printable(settings.image_column)!r}" if settings.image_column else "column"
    raise UsageError(
        f"--input {path} has no {named} of images (bytes, or a struct of bytes and path); name "
        "the column with --image_column, or choose --source manifest if its rows have paths."
    )


def _describe(probe: InputProbe, settings: ConvertSettings) -> str:
    files, _, images = _files(probe)
    if not files:
        raise UsageError(f"{probe.where} has no Parquet or Arrow files; check the path.")
    first = [containers.path_of(probe.path, probe.is_file, name) for name in islice(files, _LOOKED_AT)]
    tables = [_table(path, settings) for path in first]
    kinds = Counter(kind_of_file(name) or tables[0].kind for name in files)
    counts = " and ".join(counted(count, f"{kind} file") for kind, count in kinds.items())
    splits = containers.of_splits(files.values() if containers.keeps_splits(settings) else ())
    # The names belong to the classes of images, or of objects.
    noun = "objects" if settings.record_layout.needs is Needs.OBJECTS else "classes"
    names = f" ({counted(len(tables[0].classes), 'name')})" if tables[0].classes else ""
    described = tables[0].describe_columns({noun: names})
    beside = f"; {counted(images, 'image file')} beside them are read only where a row has their path"
    return f"{counts}{splits}: {described}{beside if images else ''}"


def _parts(item: Input, context: Context) -> Iterator[InputPart]:
    """Yields one part for each file or some of its row groups, and one for all other files."""
    files, left_out, _ = _files(InputProbe(item.path, item.is_file))
    if left_out:
        yield InputPart(item, item.path, left_out=left_out)
    for name, split in files.items():
        path = containers.path_of(item.path, item.is_file, name)
        table = _table(path, context.settings)
        split = split if containers.keeps_splits(context.settings) else ""
        folder, _, _ = name.rpartition("/")
        root, prefix = context.settings.image_root or folder_of(path), f"{key_of(folder)}/" if folder else ""
        yield from table._replace(root=root, prefix=prefix, split=split).parts(item)


def _files(probe: InputProbe) -> tuple[dict[str, str], dict[str, str], int]:
    """Returns file -> split, file that is left out -> reason, and the number of images beside them.

    Where the datasets library has saved a dataset, its `state.json` names the files.

    Raises:
      UsageError: If a file that it names is missing, or it has a form that cannot be read.
    """
    if probe.is_file:
        return {probe.name: ""} if kind_of_file(probe.name, probe.head) else {}, {}, 0
    names = {name for name, _ in files_below(probe.path)}
    places = {name: name.rpartition("/") for name in names if not is_hidden(name)}
    saved = sorted(above for above, _, last in places.values() if last == _STATE)
    files = dict(chain.from_iterable(_files_of_state(probe.path, above, names) for above in saved))
    left_out: dict[str, str] = {}
    images = 0
    for name in sorted(names - files.keys()):
        above, _, last = name.rpartition("/")
        if is_hidden(name):
            left_out[name] = FilterReason.DOTFILE
        elif kind_of_file(last):
            # state.json is complete, so other files in the folder are caches.
            if above not in saved and not last.startswith(_CACHE):
                files[name] = split_of_file(name)
        elif is_image_name(last):
            images += 1
        elif not _BESIDE.fullmatch(last):
            left_out[name] = FilterReason.NOT_AN_IMAGE
    return dict(sorted(files.items())), left_out, images


def split_of_file(relative: str) -> str:
    """Returns the split in the name of a file or its folders; empty if they have none.

    >>> split_of_file("data/unsupervised-00000-of-00002.parquet"), split_of_file("en/test/0000.parquet")
    ('unsupervised', 'test')
    """
    stem = _HUB_MARK.sub("", relative.rpartition(".")[0])
    hub = _HUB.match(stem)
    try:
        return split_of(stem) or (split_name(hub[1]) if hub else "")
    except ValueError:
        return ""


def _files_of_state(folder: str, inner: str, names: set[str]) -> Iterator[tuple[str, str]]:
    """Yields (relative path, split) of the files that a `state.json` names."""
    path = storage.join(folder, storage.join(inner, _STATE))
    state = json_object(storage.read_existing(path))
    files = state.get("_data_files")
    if not isinstance(files, list):
        return  # some other state.json
    if state.get("_indices_data_files") or state.get("_indices_files"):
        raise UsageError(
            f"{path}: its rows are chosen by a separate file of indices; call flatten_indices() and "
            "save the dataset again."
        )
    above, _, name = inner.rpartition("/")
    split = name if name and storage.join(above, _DICT) in names else str(state.get("_split") or "")
    try:
        split = split_name(split)
    except ValueError as error:
        raise UsageError(f"{path}: {error}; rename the split.") from None
    for item in files:
        file = str(item.get("filename") if isinstance(item, Mapping) else None)
        relative = storage.join(inner, file)
        if relative not in names:
            raise UsageError(f"{path} names the file {printable(file)!r}, which is missing; copy it too.")
        yield relative, split


def table_in(file: StoredObject, settings: ConvertSettings) -> Table | None:
    """Returns the table in a file; None if it has no column of images.

    Raises:
      UsageError: If the file is damaged, or does not go with the settings.
    """
    with storage.translated_errors("read", file.path):
        if not file.size:
            raise UsageError(f"--input {file.path} is empty; write it again or remove it.")
        head = storage.read_range(file.path, 0, parquet.HEAD_BYTES, file.size, file.version)
        kind = parquet.kind_of_file(file.path.rpartition("/")[2], head) or parquet.PARQUET
        table: Table | None = parquet.read_apart(kind, file, _table_in, kind, file, settings)
    if table is not None:
        table.check_layout(settings, "parquet")
    return table


def _table_in(
    opened: parquet.Opened, kind: str, file: StoredObject, settings: ConvertSettings
) -> Table | None:
    header = opened.schema.names
    columns.check_unique(file.path, header)
    features = parquet.described_columns(opened.schema)
    image = _image_column(file.path, opened, features, settings.image_column)
    if not image:
        return None
    label = settings.label_column
    if not label and not usual_columns("label", header, {}):
        numbered = [name for name in header if parquet.class_names(features.get(name))]
        label = numbered[0] if len(numbered) == 1 else ""
    named = replace(settings, image_column=image, label_column=label)
    names = columns.choose_columns(file.path, header, named, {})
    classes = {
        Needs.LABEL: parquet.class_names(features.get(names[1])),
        Needs.OBJECTS: parquet.object_classes(features.get(OBJECTS)),
    }
    classes_of_rows = classes.get(settings.record_layout.needs, ())
    return Table(file, kind, names, tuple(header), number=0, has_images=True, classes=classes_of_rows)


def _image_column(table_name: str, opened: parquet.Opened, features: Mapping[str, Any], named: str) -> str:
    """Returns the name of the column of images; empty if there is none.

    Raises:
      UsageError: If several columns have images.
    """
    types = {field.name: field.type for field in opened.schema if field.name and named in ("", field.name)}
    structs = [name for name, type_ in types.items() if parquet.is_struct_of_bytes(type_)]
    images = [name for name in structs if parquet.type_of(features.get(name)) == "Image"] or structs
    images = images or [
        name for name in types if parquet.is_bytes(types[name]) and parquet.holds_images(opened, name)
    ]
    usual = usual_columns("image", images, {})
    if len(images) > 1 and not usual:
        raise UsageError(
            f"--input {table_name}: several of its columns hold images ({columns.names_shown(images)}); name "
            "one with --image_column."
        )
    return next(iter(usual or images), "")


SOURCE = Source(
    name="parquet",
    provides=frozenset({Needs.LABEL, Needs.OBJECTS, Needs.IMAGE}),
    settings=SETTINGS,
    accepts=_accepts,
    describe=_describe,
    list_part=list_rows,
    parts=_parts,
)
