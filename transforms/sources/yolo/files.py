"""Finds images, labels and class names with YOLO's data.yaml, Darknet's obj.data or neither."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from shardwright.schemas.errors import UsageError, words_of
from shardwright.schemas.image_ref import printable
from shardwright.schemas.plain_text import check_utf8
from shardwright.transforms import storage
from shardwright.transforms.concurrency.underway import UNDERWAY
from shardwright.transforms.images.signatures import is_image_name
from shardwright.transforms.sources.file_states import FileStates
from shardwright.transforms.sources.folder_tree import split_folders
from shardwright.transforms.sources.image_files import (
    MISSING,
    folder_of,
    is_file,
    is_folder,
    join,
    parent_of,
    split_token,
)
from shardwright.transforms.sources.input_probe import InputProbe, look_at
from shardwright.transforms.sources.moved_files import MovedFile, find_moved
from shardwright.transforms.sources.yolo.darknet import (
    NAME_FILES,
    ROBOFLOW_NAMES,
    find_data,
    possible_paths,
    read_options,
    resolve,
    split_lists,
    split_options,
)

_SPLITS = ("train", "val", "test")
#: Smallest number of folders that are splits; a single one says nothing about splits.
_MIN_SPLITS = 2
_MAX_BYTES = 2_000_000
_SUFFIXES = (".yaml", ".yml")


class YoloPlace(NamedTuple):
    """A folder of images, or a file that lists images.

    Attributes:
      path: Path of the folder or file.
      split: Split of the images; empty if the dataset has only one split.
      is_list: Whether it is a file that lists images, one on each line.
    """

    path: str
    split: str
    is_list: bool


class YoloSet(NamedTuple):
    """A YOLO dataset.

    Attributes:
      root: Folder to which keys are relative.
      places: Folders and lists of its images.
      names: Class names by id.
      is_pose: Whether label lines have key points after the box.
      missing: Entries whose files are missing or in another split, for messages.
    """

    root: str
    places: tuple[YoloPlace, ...]
    names: Mapping[int, str]
    is_pose: bool = False
    missing: tuple[str, ...] = ()


def find_yaml(probe: InputProbe) -> str:
    """Returns the path of an input's YOLO YAML file; empty if it has none."""
    if probe.is_file:
        return probe.path if probe.name.lower().endswith(_SUFFIXES) and _is_yolo(probe) else ""
    names = [name for name in probe.files if name.lower().endswith(_SUFFIXES)]
    names.sort(key=lambda name: (not name.startswith("data."), name))
    found = (storage.join(probe.path, name) for name in names if _is_yolo(probe.inside(name)))
    return next(found, "")


def _is_yolo(probe: InputProbe) -> bool:
    try:
        document = _parse(probe.head)
    except yaml.YAMLError:
        return False
    return (
        isinstance(document, dict)
        and bool(document.keys() & {"names", "nc"})
        and bool(document.keys() & {*_SPLITS})
    )


class _Loader(yaml.BaseLoader):
    """Loads only strings, lists and mappings, because a class may be called `no`. It creates no objects."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):  # aliases can expand a few lines to gigabytes
            mark = self.peek_event().start_mark
            raise yaml.MarkedYAMLError(problem="write out what *name stands for", problem_mark=mark)
        return super().compose_node(parent, index)


def _parse(data: bytes) -> Any:
    try:
        return yaml.load(data, Loader=_Loader)
    except (RecursionError, UnicodeDecodeError, ValueError) as error:
        raise yaml.YAMLError(str(error)) from None


def find_names(probe: InputProbe) -> str:
    """Returns the path of the class name file in a YOLO folder without YAML; empty if it is not YOLO.

    Images and labels are beside the file, in `images` and `labels`, in such folders for each split
    (`train/images`), in Darknet's `obj_train_data`, or in `data`, which FiftyOne lists in `images.txt`.
    """
    if probe.is_file:
        return ""
    for name in NAME_FILES:
        if name in probe.files:
            texts = [file for file in probe.files if file.lower().endswith(".txt") and file != name]
            folders = has_labels(probe) or bool(_splits_with_labels(probe))
            folders = folders or "obj_train_data" in probe.folders
            folders = folders or ("images.txt" in probe.files and "data" in probe.folders)
            stems = {file.rpartition(".")[0] for file in probe.files if file not in texts}
            beside = any(file.rpartition(".")[0] in stems for file in texts)
            if folders or beside or split_lists(probe):
                return storage.join(probe.path, name)
    return ""


def has_labels(probe: InputProbe) -> bool:
    """Returns whether a folder has the folders `images` and `labels`."""
    return {"images", "labels"} <= {*probe.folders}


def _splits_with_labels(probe: InputProbe) -> dict[str, str]:
    """Returns folder -> split for the split folders that have `images` and `labels`."""
    found = split_folders(probe.folders)
    return {name: split for name, split in found.items() if has_labels(probe.inside(name))}


def _image_folders(probe: InputProbe, root: str) -> tuple[YoloPlace, ...]:
    """Returns a place for each split folder of a dataset without YAML, or one for all images.

    Raises:
      UsageError: If split folders and others have images.
    """
    if "images" in probe.folders:
        where, path, inner = probe.inside("images"), "images/", ""
        splits = split_folders(where.folders)
    else:
        where, path, inner = probe, "", "/images"
        splits = _splits_with_labels(probe)
    folders = {f"{path}{name}{inner}": split for name, split in splits.items()}
    if splits and (other := _other_images(where, splits)):
        entries = ", ".join(f"{split}: {name}" for name, split in folders.items())
        raise UsageError(
            f"--input {printable(root)}: {printable(', '.join(folders))} may be splits, but "
            f"{printable(path + other)} is not in them; write a data.yaml with names: [CLASS, ...] and "
            f"{printable(entries)}, or with train: {path.rstrip('/') or '.'} if the folders are no splits."
        )
    if len(folders) < _MIN_SPLITS:
        return (YoloPlace(join(root, path.rstrip("/")) if path else root, "", False),)
    return tuple(YoloPlace(join(root, name), split, False) for name, split in folders.items())


def _other_images(probe: InputProbe, splits: Mapping[str, str]) -> str:
    """Returns an image, or a folder with images, that is outside of all split folders; empty if none is."""
    image = next((name for name in probe.files if is_image_name(name) and not name.startswith(".")), "")
    folders = (name for name in probe.folders if name not in splits and not name.startswith("."))
    return image or next((name for name in folders if _has_images(probe.inside(name))), "")


def _has_images(probe: InputProbe) -> bool:
    return any(map(is_image_name, probe.files)) or probe.images_below > 0


def _find_split_names(probe: InputProbe) -> dict[str, str]:
    """Returns folder -> file of class names, for split folders with images, labels and Roboflow's file."""
    if probe.is_file:
        return {}
    found = {}
    for folder in probe.folders:
        inner = probe.inside(folder) if split_token(folder) == folder.lower() else None
        if inner is not None and ROBOFLOW_NAMES in inner.files and find_names(inner):
            found[folder] = storage.join(inner.path, ROBOFLOW_NAMES)
    return found


def _from_split_folders(root: str, found: Mapping[str, str]) -> YoloSet:
    """Returns the dataset in split folders that each have a file of class names.

    Raises:
      UsageError: If the files differ.
    """
    names = {folder: _lines(path) for folder, path in found.items()}
    first = next(iter(names))
    for folder, lines in names.items():
        if lines != names[first]:
            raise UsageError(
                f"--input {printable(root)}: {first}/{ROBOFLOW_NAMES} and {folder}/{ROBOFLOW_NAMES} name "
                "different classes; export the dataset again."
            )
    splits = {folder: folder.lower() if len(names) > 1 else "" for folder in names}
    places = tuple(YoloPlace(join(root, folder), split, False) for folder, split in splits.items())
    return YoloSet(root, places, dict(enumerate(names[first])))


def read_set(path: str) -> YoloSet:
    """Returns the dataset that an input describes.

    Raises:
      UsageError: If the input cannot be read, or a folder that it names is missing.
    """
    probe = look_at(path)
    named = probe.is_file and probe.name.lower().endswith(_SUFFIXES)
    found = path if named else find_yaml(probe)
    if found:
        return _from_yaml(found)
    found = find_data(probe)
    if found:
        return _from_data(found, folder_of(found) if probe.is_file else path.rstrip("/") or "/")
    found = find_names(probe)
    if found:
        root = path.rstrip("/") or "/"
        names = dict(enumerate(_lines(found)))
        lists = split_lists(probe)
        if lists:
            return YoloSet(root, tuple(YoloPlace(file, split, True) for split, file in lists.items()), names)
        return YoloSet(root, _image_folders(probe, root), names)
    if folders := _find_split_names(probe):
        return _from_split_folders(path.rstrip("/") or "/", folders)
    raise UsageError(
        f"--input {printable(path)} is not a YOLO dataset: it has neither data.yaml nor obj.data nor a file "
        "of class names; add classes.txt, with a class on each line, beside images/ and labels/, or write "
        "--input PATH/data.yaml."
    )


def recognizes(probe: InputProbe) -> bool:
    """Returns whether an input looks like a YOLO dataset."""
    return bool(find_yaml(probe) or find_data(probe) or find_names(probe) or _find_split_names(probe))


def _read(path: str) -> bytes:
    with storage.translated_errors("read", path):
        data = storage.read_head(path, _MAX_BYTES)
    check_utf8(f"--input {printable(path)}", data)
    if len(data) >= _MAX_BYTES:
        raise UsageError(
            f"--input {printable(path)} is larger than {_MAX_BYTES // 10**6} MB, too large for a YOLO file."
        )
    return data


def _lines(path: str) -> list[str]:
    try:
        lines = _read(path).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise UsageError(f"--input {printable(path)} is not UTF-8 text; save it as UTF-8.") from None
    while lines and not lines[-1].strip():
        lines.pop()
    return [line.strip() for line in lines]


def _from_yaml(path: str) -> YoloSet:
    shown = printable(path)
    try:
        data = _read(path)
        with UNDERWAY.working_on(path, "parse"):
            document = _parse(data)
    except yaml.YAMLError as error:
        raise UsageError(f"--input {shown} is not YAML: {words_of(error)}.") from None
    if not isinstance(document, dict):
        raise UsageError(f"--input {shown} is not a YAML mapping; name YOLO's data.yaml.")
    if isinstance(document.get("path"), str):
        storage.require_known(f"--input {shown}: path:", document["path"])
    root = _root(document.get("path"), folder_of(path))
    places: list[YoloPlace] = []
    missing = []
    for split in _SPLITS:
        entries = document.get(split) or []
        for entry in entries if isinstance(entries, list) else [entries]:
            if isinstance(entry, str):
                storage.require_known(f"--input {shown}: {split}:", entry)
            found = _find_place(entry, root, folder_of(path), split) if isinstance(entry, str) else None
            if found is None and split != "test":
                raise UsageError(
                    f"--input {shown}: {split}: {entry!r} is neither a folder nor a list of images; fix it."
                )
            if found is None:
                missing.append(f"{split} {entry}")
            elif all(found.path != place.path for place in places):
                places.append(found)
            else:
                missing.append(f"{split} {entry}, which is in a different split")
    if not places:
        raise UsageError(f"--input {shown} names no images; give train or val a folder.")
    if len({place.split for place in places}) == 1:
        places = [place._replace(split="") for place in places]
    names = _class_names(document, shown)
    return YoloSet(root, tuple(places), names, "kpt_shape" in document, tuple(missing))


def _from_data(path: str, root: str) -> YoloSet:
    """Returns the dataset that Darknet's obj.data describes.

    Args:
      path: Path of obj.data.
      root: Folder to which keys are relative.
    """
    shown = printable(path)
    options = read_options(_read(path).decode("utf-8-sig", "replace"))
    places: list[YoloPlace] = []
    missing = []
    for split, text in split_options(options).items():
        found = resolve(text, path, is_file)
        if not found and split != "test":
            raise UsageError(
                f"--input {shown}: {split} = {text} is not a list of images there; fix the path or add "
                "the file."
            )
        if not found:
            missing.append(f"{split} {text}")
        elif all(found != place.path for place in places):
            places.append(YoloPlace(found, split, True))
        else:
            missing.append(f"{split} {text}, which is in a different split")
    if not places:
        raise UsageError(f"--input {shown} names no list of images; give train or valid a file.")
    if len(places) == 1:
        places = [places[0]._replace(split="")]
    named = resolve(options["names"], path, is_file) if options.get("names") else ""
    beside = (join(folder_of(path), name) for name in NAME_FILES)
    file = named or next((name for name in beside if is_file(name)), "")
    if not file:
        raise UsageError(
            f"--input {shown}: the class names {options.get('names', 'obj.names')} are missing; add the file."
        )
    return YoloSet(root, tuple(places), dict(enumerate(_lines(file))), missing=tuple(missing))


def _root(value: Any, here: str) -> str:
    """Returns the folder that the YAML key `path` names, or the folder of the YAML file."""
    if isinstance(value, str) and value and "\0" not in value:
        for text in (value, value.lstrip("/")):
            folder = _resolve(here, text)
            if is_folder(folder):
                return folder.rstrip("/") or "/"
    return here


def _resolve(here: str, text: str) -> str:
    """Returns a path joined with a folder; a remote path stays in its bucket."""
    if storage.is_remote(here) and not storage.is_remote(text):
        text = text.lstrip("/")  # a dataset in a bucket cannot name local files
    path = text if _is_absolute(text) else join(here, text)
    scheme, found, rest = path.rpartition("://")
    if not found:
        return os.path.normpath(path)
    bucket, _, name = rest.partition("/")
    return f"{scheme}://{bucket}{os.path.normpath(f'/{name}')}"


def _is_absolute(path: str) -> bool:
    return storage.is_remote(path) or path.startswith("/")


def _find_place(text: str, root: str, here: str, split: str) -> YoloPlace | None:
    """Returns the folder or list of images that an entry names.

    Roboflow writes `../train/images` and means `train/images`.
    """
    if not text or "\0" in text:
        return None
    inner = text
    while inner.startswith(("../", "./")):
        inner = inner.partition("/")[2]
    for path in (_resolve(root, text), _resolve(here, text), _resolve(root, inner)):
        if is_folder(path):
            return YoloPlace(path.rstrip("/"), split, False)
        if path.lower().endswith(".txt") and is_file(path):
            return YoloPlace(path, split, True)
    return None


def _class_names(values: Mapping[str, Any], shown: str) -> dict[int, str]:
    names = values.get("names")
    if isinstance(names, list):
        found = dict(enumerate(names))
    elif isinstance(names, dict):
        try:
            found = {int(number): name for number, name in names.items()}
        except (ValueError, TypeError):
            raise UsageError(
                f"--input {shown}: a key of names is not a number; number the classes."
            ) from None
    elif names in (None, "") and str(values.get("nc", "")).isdecimal() and int(values["nc"]) <= 10**6:
        found = {number: str(number) for number in range(int(values["nc"]))}
    else:
        raise UsageError(
            f"--input {shown} names no classes; give it names, a list in the order of their ids."
        )
    wrong = [name for name in found.values() if not isinstance(name, str)]
    if wrong:
        raise UsageError(f"--input {shown}: {wrong[0]!r} is not a class name; fix names.")
    return {number: name.strip() for number, name in found.items()}


def label_path(image: str) -> str:
    """Returns the path of an image's labels: in `labels` instead of the last `images`, or beside the image.

    >>> label_path("/data/images/train/a.b.jpg")
    '/data/labels/train/a.b.txt'
    """
    folder, slash, name = image.rpartition("/")
    return f"{label_folder(folder)}{slash}{name.rpartition('.')[0] or name}.txt"


def label_folder(images: str) -> str:
    """Returns the label folder of an image folder; Darknet's VOC images are in `JPEGImages`."""
    parts = images.split("/")
    name = next((name for name in ("images", "JPEGImages") if name in parts), "")
    if not name:
        return images
    last = len(parts) - 1 - parts[::-1].index(name)
    return "/".join([*parts[:last], "labels", *parts[last + 1 :]])


class ListedImage(NamedTuple):
    """A line of a list of images.

    Attributes:
      path: Path of the image.
      fault: Reason why no image was found; empty if there is none, or if it is only known after reading.
    """

    path: str
    fault: str = ""


def find_entries(
    lines: Sequence[str], place: YoloPlace, root: str, states: FileStates
) -> Iterator[ListedImage]:
    """Yields the images that the lines of a list name.

    If a path does not exist, the folder of the dataset is searched for its file name.

    Args:
      lines: Lines of the list.
      place: List.
      root: Folder of the dataset.
      states: States of the files in the folder.
    """
    found = [_find_entry(line, place, root, states) for line in lines]
    moved = find_moved((line for line, path in zip(lines, found) if not path), root)
    for line, path in zip(lines, found):
        yield ListedImage(path) if path else _entry_of(line, root, moved.get(line))


def _entry_of(line: str, root: str, moved: MovedFile | None) -> ListedImage:
    if moved and moved.path:
        return ListedImage(join(root, moved.path))
    return ListedImage(_resolve(root, line.removeprefix("./")), moved.fault if moved else MISSING)


def _find_entry(line: str, place: YoloPlace, root: str, states: FileStates) -> str:
    """Returns the path of the image that a line names; empty if it does not exist.

    If the check would need a request for each image, the likeliest path is returned unchecked.
    """
    here = folder_of(place.path)
    if _is_absolute(line):
        path = _resolve(root, line)
        return "" if states.has(path) is False else path
    # In Ultralytics, `./` is the folder of the list. In Darknet, it is the folder in which it runs.
    folders = dict.fromkeys((here, root, parent_of(root)))
    inner = line.removeprefix("./")
    as_given = [join(folder, inner) for folder in folders]
    if line.startswith("./"):
        as_given = as_given[:1]
    if all(states.has(path) is None for path in as_given):
        return as_given[0]
    if (found := next((path for path in as_given if states.has(path)), "")) or ".." in inner.split("/"):
        return found
    places = possible_paths(inner, list(folders)[:2])
    return next((path for path in places if states.has(path)), "")


def read_list(path: str) -> list[str]:
    """Returns the lines of a list of images that are not blank.

    Raises:
      UsageError: If a line has an unsupported scheme, such as that of a web address.
      EngineError: If the list cannot be read.
    """
    with storage.translated_errors("read", path):
        data = storage.read_bytes(path)
    check_utf8(f"--input {printable(path)}", data)
    lines = [line.strip() for line in data.decode("utf-8-sig", "surrogateescape").splitlines()]
    for number, line in enumerate(lines, 1):
        if storage.is_remote(line):
            storage.require_known(f"--input {printable(path)}: line {number}:", line)
    return [line for line in lines if line]
