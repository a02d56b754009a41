"""Finds the images and the class names of a YOLO dataset.

Ultralytics' data.yaml or Darknet's obj.data names them. Without one, a file of class names beside the usual
folders, or beside lists of images, does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from shardwright.core import storage
from shardwright.core.images.signatures import claims_to_be_image, is_image_name
from shardwright.core.sources.annotation_files import read_list_file
from shardwright.core.sources.file_states import possible_paths, resolve
from shardwright.core.sources.files_beside import stem_of
from shardwright.core.sources.folder_tree import split_folders
from shardwright.core.sources.image_files import folder_of, is_file, is_folder, join, parent_of, split_token
from shardwright.core.sources.input_probe import InputProbe
from shardwright.schemas.errors import UsageError
from shardwright.schemas.plain_yaml import NotPlain, load_plain_yaml

_YAML, _DATA, _LISTS = (".yaml", ".yml"), (".data",), (".txt", ".list")
#: Keys of data.yaml, and options of obj.data, that name the images of a split.
_SPLITS = ("train", "val", "valid", "test")
#: Files of class names; the last one is Roboflow's, which it writes into the folder of each split.
_NAME_FILES = ("classes.txt", "obj.names", "classes.names", "_darknet.labels")
#: Folders with images and labels beside a file of class names: Darknet's and FiftyOne's.
_IMAGE_FOLDERS = ("obj_train_data", "data")


class Dataset(NamedTuple):
    """A dataset.

    Attributes:
      names: Class names by id.
      places: Split of each folder of images and each list of images, by path.
      root: Folder in which the paths of lists start.
      is_pose: Whether label lines have key points after the box.
      missing: Entries whose files are missing or in another split, for messages.
    """

    names: Mapping[int, str]
    places: Mapping[str, str]
    root: str
    is_pose: bool = False
    missing: Sequence[str] = ()


def read_dataset(probe: InputProbe) -> Dataset | None:
    """Returns the dataset that an input describes; None if it is not of YOLO.

    Raises:
      UsageError: If the input cannot be read, or a folder that it names is missing.
    """
    if path := _find_description(probe):
        return _read_description(path)
    if path := _find_names(probe):
        places = _split_lists(probe) or _image_folders(probe)
        return Dataset(dict(enumerate(_lines(path))), places, probe.root)
    return None


# Descriptions: Ultralytics' data.yaml and Darknet's obj.data


def _find_description(probe: InputProbe) -> str:
    """Returns the path of data.yaml or obj.data, which may have other names; empty if an input has none."""
    if probe.is_file:
        return probe.path if probe.name.lower().endswith((*_YAML, *_DATA)) else ""
    data = probe.inside("data") if "data" in probe.folders else probe
    for folder, suffixes in ((probe, _YAML), (probe, _DATA), (data, _DATA)):
        names = [name for name in folder.files if name.lower().endswith(suffixes)]
        for name in sorted(names, key=lambda name: (not name.startswith(("data.", "obj.")), name)):
            if _is_description(folder.inside(name)):
                return storage.join(folder.path, name)
    return ""


def _is_description(probe: InputProbe) -> bool:
    if probe.name.lower().endswith(_DATA):
        storage.check_utf8(probe.where, probe.head)
    try:
        options = _options(probe.path, probe.head)
    except NotPlain:  # the message about a data.yaml of this kind helps more than another source
        return probe.name == "data.yaml"
    return bool(options.keys() & {"names", "nc", "classes"}) and bool(options.keys() & {*_SPLITS})


def _options(path: str, data: bytes) -> Mapping[str, Any]:
    """Returns the keys of data.yaml, or the `name = value` lines of obj.data; none in any other file.

    Raises:
      NotPlain: If it is not YAML.
    """
    text = data.decode("utf-8-sig", "replace")
    if path.lower().endswith(_YAML):
        document = load_plain_yaml(text, as_texts=True)
        return document if isinstance(document, dict) else {}
    lines = [line.strip() for line in text.splitlines()]
    pairs = [line.partition("=") for line in lines if line and not line.startswith(("#", ";"))]
    if not all(equals and name.strip() for name, equals, _ in pairs):
        return {}
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _read_description(path: str) -> Dataset:
    """Returns the dataset that data.yaml or obj.data describes.

    Raises:
      UsageError: If a folder or list of images is missing, except for the split `test`, or if there are
        none.
    """
    option, here = f"--input {path}", folder_of(path)
    try:
        values = _options(path, read_list_file(path) or b"")
    except NotPlain as error:
        raise UsageError(f"{option} is not YAML: {error}.") from None
    root = here
    if isinstance(named := values.get("path"), str):
        storage.require_known(f"{option}: path:", named)
        folder = resolve(here, named).rstrip("/") or "/"
        root = folder if is_folder(folder) else here
    folders = [root, here, *([] if path.lower().endswith(_YAML) else [parent_of(here)])]
    places: dict[str, str] = {}
    missing = []
    for split in _SPLITS:
        value = values.get(split) or []
        for entry in value if isinstance(value, list) else [value]:
            if isinstance(entry, str):
                storage.require_known(f"{option}: {split}:", entry)
            place = next(filter(_is_place, _possible_places(entry, folders)), "")
            if place and place not in places:
                places[place] = split
            elif place or split == "test":
                missing.append(f"{split} {entry}" + (", which is in a different split" if place else ""))
            else:
                raise UsageError(
                    f"{option}: {split}: {entry!r} is neither a folder nor a list of images; fix it."
                )
    if not places:
        raise UsageError(f"{option} names no images; give train or val a folder or a list of images.")
    return Dataset(_class_names(values, folders, option), places, root, "kpt_shape" in values, missing)


def _is_place(path: str) -> bool:
    is_list = path.lower().endswith(_LISTS) or "." not in path.rpartition("/")[2]
    return is_folder(path) or (is_list and is_file(path))


def _possible_places(text: Any, folders: Sequence[str]) -> Iterator[str]:
    """Yields the paths that an entry may mean, the likeliest first.

    Roboflow writes `../train/images` and means `train/images`. Darknet's paths start where it runs.
    """
    if isinstance(text, str) and text and "\0" not in text:
        yield from (resolve(folder, text).rstrip("/") for folder in folders)
        yield from possible_paths(text.partition("://")[2] or text, folders)


def _class_names(values: Mapping[str, Any], folders: Sequence[str], option: str) -> dict[int, str]:
    """Returns the names of the classes, which are a list, a mapping by id or a file."""
    names = values.get("names") or ""
    if isinstance(names, str):
        beside = [join(folders[0], name) for name in _NAME_FILES]
        path = next(filter(is_file, [*_possible_places(names, folders), *beside]), "")
        if not path:
            raise UsageError(
                f"{option} names no classes; give it names, a list in the order of their ids, or add the "
                f"file {names or _NAME_FILES[0]}."
            )
        names = _lines(path)
    by_id = dict(enumerate(names)) if isinstance(names, list) else names
    if not all(isinstance(name, str) and str(class_id).isdecimal() for class_id, name in by_id.items()):
        raise UsageError(f"{option}: names is neither a list of names nor numbers with a name each; fix it.")
    return {int(class_id): name for class_id, name in by_id.items()}


def _lines(path: str) -> list[str]:
    return [line.strip() for line in storage.read_text("--input", path).rstrip().splitlines()]


# Folders without a description


def _find_names(probe: InputProbe) -> str:
    """Returns the path of the file of class names in a folder without a description; empty if it is not YOLO.

    Images and labels are beside the file, in `images` and `labels`, in folders for each split
    (`train/images`), in Darknet's `obj_train_data`, in FiftyOne's `data`, or where lists of the splits say.
    """
    name = next(filter(probe.has_file, _NAME_FILES), "")
    inner = [name for name in probe.folders if name in _IMAGE_FOLDERS or name in split_folders(probe.folders)]
    folders = [probe, *map(probe.inside, inner)]
    holds_labels = any(
        {"images", "labels"} <= {*folder.folders} or texts_beside_images(folder) for folder in folders
    )
    is_yolo = name and (holds_labels or _split_lists(probe))
    return storage.join(probe.path, name) if is_yolo else ""


def texts_beside_images(probe: InputProbe) -> list[str]:
    """Returns the names of the text files in a folder that are named like an image beside them."""
    stems = {stem_of(name) for name in probe.files if is_image_name(name)}
    return [name for name in probe.files if name.lower().endswith(".txt") and stem_of(name) in stems]


def _split_lists(probe: InputProbe) -> dict[str, str]:
    """Returns list of images -> split, in a folder without obj.data; none if there are fewer than two."""
    places: dict[str, str] = {}
    for name in sorted({*probe.files, *filter(probe.has_file, (f"{split}.txt" for split in _SPLITS))}):
        stem = stem_of(name).lower()
        if not name.lower().endswith(_LISTS) or split_token(stem) != stem:
            continue
        path = storage.join(probe.path, name)
        head = storage.read_head(path, 1 << 12)
        storage.check_utf8(f"--input {path}", head)
        if claims_to_be_image(head.decode("utf-8-sig", "replace").strip().partition("\n")[0].strip()):
            places[path] = stem
    return places if len(places) > 1 else {}


def _image_folders(probe: InputProbe) -> dict[str, str]:
    """Returns path -> split for each split folder, or for one folder with all images.

    Raises:
      UsageError: If split folders and others have images.
    """
    inner = "images/" if "images" in probe.folders else ""
    where = probe.inside("images") if inner else probe
    splits = split_folders(where.folders)
    folders = [where.inside(name) for name in where.folders if name not in splits]
    others = [name for name in where.files if is_image_name(name)]
    others += [folder.name for folder in folders if folder.has_images]
    if splits and others:
        places = ", ".join(f"{split}: {inner}{name}" for name, split in splits.items())
        raise UsageError(
            f"{probe.where}: {', '.join(splits)} may be splits, but "
            f"{inner + others[0]} is not in them; write a data.yaml with names: [CLASS, ...] and "
            f"{places}, or with train: {inner.rstrip('/') or '.'} if the folders are no splits."
        )
    return {join(where.path, name): split for name, split in splits.items()} or {where.path: ""}
