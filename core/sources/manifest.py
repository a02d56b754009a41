"""Manifests: CSV, JSON Lines and Parquet files with a row for each image, and lists of paths and classes.

Files are read as streams and split so that workers read them in parallel. A bad row is quarantined with its
line number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardwright.core import storage
from shardwright.core.images.signatures import is_image_name
from shardwright.core.sources import image_files
from shardwright.core.sources.containers import state_of
from shardwright.core.sources.documents import named_folder, usual_root
from shardwright.core.sources.folder_tree import split_of_folder
from shardwright.core.sources.input_probe import HEAD_BYTES, InputProbe
from shardwright.core.sources.source import Context, Input, InputPart, Source
from shardwright.core.sources.tables import files, texts
from shardwright.core.sources.tables.files import Table
from shardwright.core.sources.tables.rows import SETTINGS, list_rows
from shardwright.core.storage.store import StoredObject
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.layouts import Needs
from shardwright.schemas.plain_text import printable

#: Prefixes of the files that Spark and Hadoop write beside their output.
_MARKERS = ("_SUCCESS", "_committed_", "_started_")
#: Number of files in a folder to read for detection.
_FILES_TRIED = 10
#: Names of the manifest in Hugging Face's "imagefolder", and of its column of file names.
_METADATA, _FILE_NAME = ("metadata.csv", "metadata.jsonl", "metadata.parquet"), "file_name"


def _accepts(probe: InputProbe, settings: ConvertSettings) -> bool:
    if probe.is_file:
        return bool(texts.kind_of_table(probe.name, probe.head))
    return bool(_names_in(probe, settings, _FILES_TRIED))


def _names_in(probe: InputProbe, settings: ConvertSettings, tried: int | None = None) -> list[str]:
    """Returns the names of the manifests in a folder; for a file, one empty name.

    Args:
      probe: The input.
      settings: Checked settings.
      tried: Number of lists to examine, which is enough to detect them; None for all.
    """
    if probe.is_file:
        return [""]
    return _only_manifests(probe) or _metadata_in(probe, settings) or _lists_in(probe, settings, tried)


def _only_manifests(probe: InputProbe) -> list[str]:
    """Returns the file names in a folder that contains only manifests of one kind; else none."""
    names = [name for name in probe.files if not _is_marker(name)]
    kinds = set(map(texts.kind_of, names))
    if len(kinds) != 1 or "" in kinds or probe.folders:
        return []
    # The probe does not list all files of a large folder.
    return sorted(name for name, _ in image_files.files_below(probe.path) if not _is_marker(name))


def _is_marker(name: str) -> bool:
    return name.startswith((".", *_MARKERS)) or name.endswith(".crc")


def _metadata_in(probe: InputProbe, settings: ConvertSettings) -> list[str]:
    """Returns the metadata file of a folder, or the metadata files of all its split folders.

    A metadata file counts only if it has classes or objects, and its images exist.
    """
    name = _metadata_beside_images(probe)
    if not name and settings.record_layout.needs is Needs.OBJECTS:  # the images may be in subfolders
        name = next(filter(probe.has_file, _METADATA), "")
    names = [name] if name else []
    if not names and all(map(split_of_folder, probe.folders)):
        beside = {folder: _metadata_beside_images(probe.inside(folder)) for folder in probe.folders}
        names = [f"{folder}/{name}" for folder, name in beside.items()] if all(beside.values()) else []
    return names if all(_goes_with_images(probe, name, settings) for name in names) else []


def _metadata_beside_images(folder: InputProbe) -> str:
    if not any(map(is_image_name, folder.files)):
        return ""
    return next(filter(folder.has_file, _METADATA), "")


def _goes_with_images(probe: InputProbe, name: str, settings: ConvertSettings) -> bool:
    try:
        table = _manifest(state_of(storage.join(probe.path, name)), name, (), settings)
    except UsageError:
        return False
    needs = settings.record_layout.needs
    if table.names[0] != (settings.image_column or _FILE_NAME):
        return False
    has_values = table.has_objects if needs is Needs.OBJECTS else table.names[1] or table.has_objects
    return bool(has_values) and not files.missing_images(table, settings)


def _lists_in(probe: InputProbe, settings: ConvertSettings, tried: int | None) -> list[str]:
    """Returns the names of the lists of paths and classes in a folder whose images exist."""
    if settings.record_layout.needs is not Needs.LABEL:
        return []

    def is_list(path: str) -> bool:
        if not texts.is_path_list(storage.read_head(path, HEAD_BYTES)):
            return False
        return bool(_list_root(files.load_table(state_of(path), settings), settings))

    return probe.files_with(texts.LIST_SUFFIXES, tried, is_list)


def _list_root(table: Table, settings: ConvertSettings) -> str:
    """Returns the folder to which the paths of a list are relative; empty if no usual folder fits."""
    names = [name for name in files.first_images(table, settings) if name and image_files.inner_path(name)]
    return usual_root(table.file.path, settings, names)


def _manifest(file: StoredObject, name: str, beside: Sequence[str], settings: ConvertSettings) -> Table:
    """Returns a manifest.

    Args:
      file: The file.
      name: Its path relative to the input; empty if it is the input.
      beside: Names of all manifests of the input.
      settings: Checked settings.

    Raises:
      UsageError: If it cannot be read.
    """
    table, path = files.load_table(file, settings), file.path
    root = settings.image_root or path.rpartition("/")[0] or ("/" if path.startswith("/") else "")
    if table.kind != texts.LIST:
        folder = name.rpartition("/")[0]
        prefix = f"{folder}/" if folder else ""
        return table._replace(root=root, prefix=prefix, split=split_of_folder(folder))
    # Paths become keys. If they are relative to the folder of a split, that folder comes first.
    root = _list_root(table, settings) or root
    # The name of a list gives its split if the names of the lists give different ones.
    name, *others = (other.rpartition("/")[2] for other in (path, *settings.input, *beside))
    split = image_files.splits_of_files([name, *others])[name]
    prefix = image_files.key_prefix(root, [named_folder(path, settings)], root.rpartition("/")[2])
    return table._replace(root=root, prefix=prefix, split=split)


def _manifests(probe: InputProbe, names: Sequence[str], settings: ConvertSettings) -> Iterator[Table]:
    """Yields the manifests with these names in an input, without the empty files of a folder."""
    for name in names:
        file = state_of(storage.join(probe.path, name) if name else probe.path)
        if file.size or not name:
            yield _manifest(file, name, names, settings)


def _describe(probe: InputProbe, settings: ConvertSettings) -> str:
    names = _names_in(probe, settings)
    manifest = next(_manifests(probe, names, settings), None)
    if manifest is None:
        raise UsageError(
            f"{probe.where} is neither a manifest nor a folder of manifests of one kind; "
            "name a CSV, JSON Lines or Parquet file with a row for each image."
        )
    file = manifest.file
    if not probe.is_file:
        _check_one_metadata(file.path)
    manifest.check_layout(settings, "manifest")
    described = manifest.describe() + files.missing_images(manifest, settings)
    if manifest.kind == texts.LIST:
        split_names = printable(", ".join(name or probe.name for name in names))
        where = f"images in {printable(manifest.root) or 'the working directory'}"
        kind = "are splits" if len(names) > 1 else "is a split"
        return f"{described}: {split_names}{f' {kind} by name' if manifest.split else ''} ({where})"
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
    beside = [storage.join(image_files.folder_of(path), name) for name in _METADATA]
    others = [other for other in beside if path in beside and other != path and storage.exists(other)]
    if others:
        paths = [path, *others]
        raise UsageError(
            f"{' and '.join(paths)} may both name the images; write --input {' or --input '.join(paths)}."
        )


def _parts(item: Input, context: Context) -> Iterator[InputPart]:
    """Yields the parts of a manifest, or of all manifests in a folder."""
    probe = InputProbe(item.path, item.is_file)
    for manifest in _manifests(probe, _names_in(probe, context.settings), context.settings):
        yield from manifest.parts(item)


SOURCE = Source(
    name="manifest",
    provides=frozenset({Needs.LABEL, Needs.OBJECTS, Needs.IMAGE}),
    settings=SETTINGS,
    accepts=_accepts,
    describe=_describe,
    list_part=list_rows,
    parts=_parts,
)
