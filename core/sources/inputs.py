"""Parses inputs (paths, with a prefix if there are several) and recognizes the source of each.

A folder that looks like a dataset with annotations but has none to read is refused: the message says what
is missing. So is one whose images a table names, if folders give no classes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

from shardwright.core import storage
from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.core.images.signatures import is_image_name
from shardwright.core.sources import image_files
from shardwright.core.sources.containers import state_of
from shardwright.core.sources.files_beside import check_columns
from shardwright.core.sources.folder_tree import AUTO, split_of_folder
from shardwright.core.sources.input_probe import InputProbe, is_pattern
from shardwright.core.sources.open_images import DESCRIPTIONS, NOUN, RULE
from shardwright.core.sources.source import Input, Source, all_sources, source_by_name
from shardwright.core.sources.tables import files, texts
from shardwright.core.sources.tables.columns import usual_columns
from shardwright.core.sources.yolo import holds_labels
from shardwright.core.sources.yolo_dataset import texts_beside_images
from shardwright.core.versions import located
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.dataset import DATASET_JSON
from shardwright.schemas.errors import UsageError
from shardwright.schemas.layouts import LAYOUTS, FeatureRole, Layout, Needs
from shardwright.schemas.plain_text import printable
from shardwright.schemas.version import LATEST_JSON, split_version

_IMAGE_FOLDERS = ("images", "image", "imgs", "img")
_MASK_FOLDERS = ("masks", "mask", "segmentation", "segmentations")
_CLASSES = "or --folders classes if each folder is a class"

#: Number of slashes in `gs://BUCKET`.
_SLASHES_OF_BUCKET = 2
#: Values of --source that read a Shardwright dataset as a dataset.
_READS_DATASETS = ("auto", "tfrecord")
#: Most folders, and tables in a folder, that are examined.
_FOLDERS, _TABLES = 20, 20
_MAX_COLUMNS = 5

#: Extensions of text files that may describe images.
_TEXTS = (
    "csv", "tsv", "txt", "json", "jsonl", "ndjson", "xml", "yaml", "yml", "data", "names", "lst", "list",
)  # fmt: skip
_NAMED = re.compile(r"([A-Za-z0-9_.-]+)=(.+)\Z", re.DOTALL)


def parse_input(text: str) -> Input:
    """Parses `PATH` or `NAME=PATH`; a path that exists as written is never split."""
    match = _NAMED.match(text)
    if match and (storage.is_remote(text) or not os.path.lexists(text)):
        return Input(match[2], f"{match[1]}/")
    return Input(text, "")


def check_inputs(settings: ConvertSettings, output: str | None) -> tuple[Input, ...]:
    """Parses inputs, recognizes them, and checks that they are readable and separate from the output.

    Raises:
      UsageError: If an input is wrong; the message names it and says what to do.
    """
    if output:
        for option, folder in (("--image_root", settings.image_root), ("--mask_dir", settings.mask_dir)):
            if folder:
                _check_outside(option, folder, output)
    inputs = []
    for item in map(parse_input, settings.input):
        if split_version(item.path)[1]:
            item = item._replace(path=located(item.path))
        with UNDERWAY.working_on(item.path, "recognize"), storage.translated_errors("list", item.path):
            probe = _look_at_remote(item.path) if storage.is_remote(item.path) else _look_at_local(item.path)
            may_point = settings.source in _READS_DATASETS and not (probe.is_file or is_pattern(probe.path))
            if may_point and LATEST_JSON in probe.files and DATASET_JSON not in probe.files:
                item = item._replace(path=located(item.path))
                probe = InputProbe(item.path, is_file=False)
            if output:
                if image_files.as_prefix(output).startswith(image_files.as_prefix(item.path)):
                    raise UsageError(
                        f"--output {output} lies inside --input {item.path}; choose a place outside of it."
                    )
                _check_outside("--input", item.path, output)
            inputs.append(recognize(item, probe, settings))
    for option, value in (("folders", settings.folders), ("label_depth", settings.label_depth)):
        if value not in (AUTO, "1") and not any(source_by_name(item.source).uses(option) for item in inputs):
            raise UsageError(
                f"--{option} {value}: {inputs[0].path} is read as {inputs[0].source}, where "
                f"folders do not name the classes; leave --{option} out, or choose --source class_folders "
                "(archives) if they do."
            )
    return tuple(inputs)


def recognize(item: Input, probe: InputProbe, settings: ConvertSettings) -> Input:
    """Returns the input with the source that reads it.

    Raises:
      UsageError: If no source can read it, or the named source cannot, or a folder of images or masks that
        the source uses does not exist.
    """
    if probe.is_file and is_text_name(probe.name):
        storage.check_utf8(probe.where, probe.head)
    source = _source_of(probe, settings)
    _check_layout(source, probe, settings)
    if not source.uses("extra_columns"):
        check_columns(item.path, source.name, settings, unless="")
    for name, path in (("image_root", settings.image_root), ("mask_dir", settings.mask_dir)):
        if path and name in source.settings:
            storage.require_known(f"--{name}", path)
            if not image_files.is_folder(path):
                raise UsageError(f"--{name} {path} is not a folder, or is empty; check the path.")
    detected_as = source.describe(probe, settings)
    return item._replace(source=source.name, detected_as=detected_as, is_file=probe.is_file)


def _source_of(probe: InputProbe, settings: ConvertSettings) -> Source:
    """Returns the source that the settings name, or else the first that accepts an input."""
    if settings.source != "auto":
        return source_by_name(settings.source)
    if is_pattern(probe.path):
        return source_by_name("tfrecord")  # the only source with such file names
    # The layout `images` takes the images of a folder and no annotations.
    only = {Needs.IMAGE} & {settings.record_layout.needs}
    for source in all_sources():
        if only <= source.provides and source.accepts(probe, settings):
            if source.name == "class_folders":
                check_parts(probe, settings)
                check_tables(probe, settings)
            return source
    kind = "file" if probe.is_file else "folder"
    raise UsageError(
        f"{probe.where}: no source recognizes this {kind}; name the source with --source, "
        "or name the folder that holds the images."
    )


def _check_layout(source: Source, probe: InputProbe, settings: ConvertSettings) -> None:
    """Checks that a source provides what the layout needs.

    Raises:
      UsageError: If it does not; the message names layouts that it fits.
    """
    layout = settings.record_layout
    if _fits(source, layout):
        return
    if not (probe.is_file or is_pattern(probe.path) or probe.files or probe.folders):
        raise UsageError(f"{probe.where} is empty; name a folder that holds images, or a table of images.")
    fitting = [other for other in LAYOUTS.values() if _fits(source, other)]
    if settings.source != "auto":
        as_first = replace(settings, layout=fitting[0].name)
        if not source.accepts(probe, as_first):
            source.describe(probe, as_first)  # says what the input lacks for any layout
    other = "another --source"
    if settings.source == "auto" and not probe.is_file and layout.needs is Needs.LABEL:
        other = "--source class_folders if each class has a folder"
    if layout.needs is Needs.IMAGE:
        other = "name the folder of its images, which is read as class_folders"
    provides = layout.needs in source.provides
    lacks = "key points" if provides else f"what the layout needs ({layout.needs.value})"
    raise UsageError(
        f"--layout {layout.name}: {probe.path} is read as {source.name}, which does not provide "
        f"{lacks}; choose --layout {', '.join(each.name for each in fitting)}, or {other}."
    )


def _fits(source: Source, layout: Layout) -> bool:
    points = layout.by_role.get(FeatureRole.KEYPOINT_X)
    needs_points = points is not None and not points.optional
    return layout.needs in source.provides and (source.has_keypoints or not needs_points)


def _look_at_local(path: str) -> InputProbe:
    if is_pattern(path):
        return InputProbe(path, is_file=False)
    if not path:
        raise UsageError("--input is an empty text; name a folder of images.")
    try:
        os.lstat(path)
    except PermissionError:  # of a folder above it
        raise UsageError(f"--input {path} cannot be read: permission denied.") from None
    except (OSError, ValueError):
        name, is_named, rest = path.partition("=")
        if is_named and not rest:
            message = f"--input {path} has no path after the =; write {name}=PATH."
        else:
            message = f"--input {path} does not exist; check the path."
        raise UsageError(message) from None
    if not os.path.isdir(path) and not os.path.isfile(path):
        raise UsageError(f"--input {path} is neither a folder nor a file; check the path.")
    if not os.access(path, os.R_OK | (os.X_OK if os.path.isdir(path) else 0)):
        raise UsageError(f"--input {path} cannot be read: permission denied.")
    return InputProbe(path, os.path.isfile(path))


def _check_outside(option: str, path: str, output: str) -> None:
    """Checks that --overwrite would not replace files that are read."""
    if image_files.as_prefix(path).startswith(image_files.as_prefix(output)):
        raise UsageError(f"{option} {path} lies inside --output {output}; choose another --output.")


def _look_at_remote(path: str) -> InputProbe:
    """Returns the probe of an object, or of a folder with objects."""
    storage.require_known("--input", path)
    if next(storage.list_objects(path), None) is not None:
        return InputProbe(path, is_file=False)
    if path.rstrip("/").count("/") > _SLASHES_OF_BUCKET and storage.stat(path.rstrip("/")) is not None:
        return InputProbe(path.rstrip("/"), is_file=True)
    if is_pattern(path):
        return InputProbe(path, is_file=False)
    raise UsageError(f"--input {path} does not exist: there is no such object; check the path.")


def check_parts(probe: InputProbe, settings: ConvertSettings) -> None:
    """Checks that a folder without recognized annotations does not look like one that has them.

    Raises:
      UsageError: If it does; the message says what is missing and what to write.
    """
    needs = settings.record_layout.needs
    if probe.is_file or settings.folders != AUTO or needs is Needs.IMAGE:
        return
    images, masks = (
        next((name for name in probe.folders if name.lower() in names), "")
        for names in (_IMAGE_FOLDERS, _MASK_FOLDERS)
    )
    if images and masks and needs in (Needs.LABEL, Needs.SEMANTIC):
        places = [storage.join(probe.path, name) for name in (images, masks)]
        end = f", {_CLASSES}" if needs is Needs.LABEL else ""
        raise UsageError(
            f"{probe.where} has images and masks; write --layout segmentation --input {places[0]} --mask_dir "
            f"{places[1]}{end}."
        )
    if needs is Needs.SEMANTIC:
        raise UsageError(
            f"--layout {settings.record_layout.name}: {probe.where} has no masks; name their folder with "
            "--mask_dir."
        )
    labels = _label_file(probe, beside=needs is Needs.OBJECTS)
    if labels:
        names = storage.join(probe.path, "classes.txt")
        layout, end = (" and --layout detection", f", {_CLASSES}") if needs is Needs.LABEL else ("", "")
        raise UsageError(
            f"{probe.where}: {labels} looks like labels of YOLO, but no file names the classes; "
            f"add {names} with a class on each line and write --source yolo{layout}{end}."
        )
    if needs is Needs.OBJECTS and any(DESCRIPTIONS in name for name in probe.files):
        raise UsageError(f"{probe.where} holds no {NOUN}; {RULE}")


def _label_file(probe: InputProbe, beside: bool) -> str:
    """Returns a text file with YOLO's labels; empty for none. It is in `labels`, or beside the images."""
    paths: list[str] = []
    if "images" in probe.folders and "labels" in probe.folders:
        labels = probe.inside("labels")
        for folder in (labels, *map(labels.inside, labels.folders[:1])):
            paths += [storage.join(folder.path, name) for name in folder.files if name.endswith(".txt")][:1]
    if beside:
        paths += [storage.join(probe.path, name) for name in texts_beside_images(probe)[:1]]
    return next(filter(holds_labels, paths), "")


# Tables that name the images of a folder, whose classes would be lost if folders gave them


def check_tables(probe: InputProbe, settings: ConvertSettings) -> None:
    """Checks that no table names the images of a folder that has no more than one class.

    Raises:
      UsageError: If there is such a table; the message says how to read it, and how to leave it out. Or if
        a text beside the images cannot be read.
    """
    needs = settings.record_layout.needs
    wants_classes = needs is Needs.LABEL and settings.folders == AUTO and not _has_classes(probe)
    if wants_classes or needs is Needs.OBJECTS:  # no source would recognize a text in UTF-16
        for folder in (probe, *_first_folders(probe)):
            for name in islice(filter(is_text_name, folder.files), _TABLES):
                path = storage.join(folder.path, name)
                storage.check_utf8(f"{probe.where}: {path}", storage.read_head(path, 2))
    tables = dict(_tables(probe, settings)) if wants_classes else {}
    if tables:
        does, them = ("names", "it is") if len(tables) == 1 else ("each name", "they are")
        raise UsageError(
            f"{probe.where}: {', '.join(tables)} {does} its images, whose folders give no classes; write "
            f"{', or '.join(tables.values())}, or --source class_folders if {them} to be left out."
        )


def is_text_name(name: str) -> bool:
    """Returns whether a file is a text that may describe images, judged by its name."""
    return name.rpartition(".")[2].lower() in _TEXTS


def _first_folders(probe: InputProbe) -> list[InputProbe]:
    return probe.folders_inside(probe.folders[:_FOLDERS])


def _has_classes(probe: InputProbe) -> bool:
    """Returns whether folders of different names have images, in split folders or else at the top."""
    inner = (_first_folders(top) if split_of_folder(top.name) else [top] for top in _first_folders(probe))
    names = (folder.name for folder in chain.from_iterable(inner) if folder.has_images)
    first = next(names, "")
    return any(name != first for name in names)


def _tables(probe: InputProbe, settings: ConvertSettings) -> Iterator[tuple[str, str]]:
    """Yields the tables at the top of a folder, and in its folders, that name images below it.

    The items are the path of a table and the options that read it, for a message.
    """
    folders = _first_folders(probe)
    deeper = [inner for folder in folders for inner in _first_folders(folder)]
    places = [folder.path for folder in (probe, *folders, *deeper) if any(map(is_image_name, folder.files))]
    for folder in (probe, *folders):
        tables = (name for name in folder.files if texts.kind_of(name) in (texts.CSV, texts.JSONL))
        for name in islice(tables, _TABLES):
            stem = name.partition(".")[0]
            near = sorted(places, key=lambda place: place.rpartition("/")[2] != stem)
            path = storage.join(folder.path, name)
            options = _options(path, [folder.path, probe.path, *near], settings)
            if options:
                yield printable(path), options


def _options(path: str, places: Sequence[str], settings: ConvertSettings) -> str:
    """Returns the options that read a table; empty if it does not name images in one of the folders."""
    try:
        table, first = files.open_table(state_of(path), settings)
    except UsageError:  # it is empty, or no table
        return ""
    image = next((name for name, value in first.items() if is_image_name(str(value))), "")
    if not image and table.header:
        return ""
    named = table._replace(names=(image, "", "", "", "")) if image else table
    written = filter(None, files.first_images(named, settings))
    images = (image_files.inner_path(image_files.with_slashes(str(name).strip())) for name in written)
    root = image_files.find_root(places, [*filter(None, images)])
    if not root:
        return ""
    options = f"--input {printable(path)}"
    if root != image_files.folder_of(path):
        options += f" --image_root {printable(root)}"
    others = [name for name in table.header if name != image]
    if image and usual_columns("image", table.header, first)[:1] != [image]:
        options += f" --image_column {printable(image)}"
    if image and not usual_columns("label", others, {}):
        options += f" --label_column COLUMN ({', '.join(map(printable, others[:_MAX_COLUMNS]))})"
    return options
