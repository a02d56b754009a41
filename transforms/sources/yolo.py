"""YOLO: a text file for each image with lines of `class cx cy w h`, relative to the image size.

Ultralytics' data.yaml or Darknet's obj.data names the images and classes. Without them, a file of class names
beside the usual folders does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from shardwright.schemas.annotations import Annotations, ObjectAnnotation
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError, words_of
from shardwright.schemas.image_ref import printable
from shardwright.schemas.plain_text import check_utf8
from shardwright.schemas.units import counted
from shardwright.transforms import storage
from shardwright.transforms.concurrency.underway import UNDERWAY
from shardwright.transforms.images.signatures import claims_to_be_image, is_image_name
from shardwright.transforms.sources.annotation_files import AnnotationFault, read_annotation_file
from shardwright.transforms.sources.files_beside import stem_of
from shardwright.transforms.sources.folder_tree import split_folders
from shardwright.transforms.sources.image_files import (
    class_name,
    folder_of,
    is_file,
    is_folder,
    join,
    parent_of,
    split_name,
    split_token,
)
from shardwright.transforms.sources.input_probe import InputProbe
from shardwright.transforms.sources.listed_images import possible_paths, resolve
from shardwright.transforms.sources.moved_files import with_slashes
from shardwright.transforms.sources.pairs import PairedFolders, PairFormat

_SPLITS, _YAML, _DATA, _LISTS = ("train", "val", "test"), (".yaml", ".yml"), ".data", (".txt", ".list")
_MAX_BYTES = 2_000_000
#: Roboflow's file of class names, which it writes into the folder of each split.
_ROBOFLOW_NAMES = "_darknet.labels"
_NAME_FILES = ("classes.txt", "obj.names", "classes.names", _ROBOFLOW_NAMES)
#: Folders that may contain obj.data in a dataset or in Darknet itself.
_DATA_FOLDERS = ("data", "cfg")
#: Options of obj.data that do not name the images of a split.
_OTHER_OPTIONS = ("classes", "names", "labels", "backup", "results", "eval", "map", "top", "tree", "leaves")
#: Names of text files that do not contain labels.
_NO_LABELS = ("classes.txt", "images.txt", "train.txt", "val.txt", "valid.txt", "test.txt")
#: Numbers of a line with a box, of one with the confidence of a model, and of the smallest outline.
_BOX, _BOX_AND_CONFIDENCE, _MIN_OUTLINE = 5, 6, 7
_POSE = "pose"


def parse_labels(data: bytes, names: Mapping[int, str], is_pose: bool = False) -> list[ObjectAnnotation]:
    """Returns the objects that a label file lists; the confidence that models write is ignored.

    Args:
      data: Contents of the file.
      names: Class names by id; an object with any other id has no class.
      is_pose: Whether lines have a box and key points; otherwise they have a box or an outline.

    Raises:
      AnnotationFault: If a line is wrong; the message names the line.
    """
    objects = []
    for line, text in enumerate(data.decode("utf-8-sig", "replace").splitlines(), 1):
        where = f"line {line} of its labels"
        try:
            values = [float(value) for value in text.split()]
        except ValueError:
            raise AnnotationFault(f"{where} has a value that is not a number") from None
        if not values:
            continue
        if not all(map(math.isfinite, values)):
            raise AnnotationFault(f"{where} has a number that is not finite")
        if values[0] != int(values[0]):
            raise AnnotationFault(f"{where} begins with {values[0]}, which is not a class id")
        label = names.get(int(values[0]), "")
        if not is_pose and len(values) == _BOX_AND_CONFIDENCE and 0 <= values[-1] <= 1:
            values.pop()
        if len(values) == _BOX or (is_pose and len(values) > _BOX):
            x, y, width, height = values[1:_BOX]
            box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            objects.append(ObjectAnnotation(label, box))
        elif len(values) >= _MIN_OUTLINE and len(values) % 2:
            xs, ys = values[1::2], values[2::2]
            box = (min(xs), min(ys), max(xs), max(ys))
            objects.append(ObjectAnnotation(label, box, segmentation=[values[1:]]))
        else:
            raise AnnotationFault(
                f"{where} has {counted(len(values), 'number')} instead of a class and a box, or an outline"
            )
    return objects


def label_path(image: str) -> str:
    """Returns the path of an image's labels: in `labels` instead of the last `images`, or beside the image.

    >>> label_path("/data/images/train/a.b.jpg")
    '/data/labels/train/a.b.txt'
    """
    folder, slash, name = image.rpartition("/")
    return f"{label_folder(folder)}{slash}{stem_of(name)}.txt"


def label_folder(images: str) -> str:
    """Returns the label folder of an image folder; Darknet's VOC images are in `JPEGImages`."""
    parts = images.split("/")
    name = next((name for name in ("images", "JPEGImages") if name in parts), "")
    if not name:
        return images
    last = len(parts) - 1 - parts[::-1].index(name)
    return "/".join([*parts[:last], "labels", *parts[last + 1 :]])


def holds_labels(path: str) -> bool:
    """Returns whether a text file contains labels; among images it may be any other text."""
    try:
        return bool(parse_labels(read_annotation_file(path) or b"", {}))
    except AnnotationFault:
        return False


class _Dataset(NamedTuple):
    """A dataset.

    Attributes:
      root: Folder to which keys are relative.
      names: Class names by id.
      places: Split of each folder of images and each list of images, by path.
      is_pose: Whether label lines have key points after the box.
      missing: Entries whose files are missing or in another split, for messages.
    """

    root: str
    names: Mapping[int, str]
    places: Mapping[str, str]
    is_pose: bool = False
    missing: Sequence[str] = ()


def _read_dataset(probe: InputProbe) -> _Dataset:
    """Returns the dataset that an input describes.

    Raises:
      UsageError: If the input cannot be read, or a folder that it names is missing.
    """
    root = folder_of(probe.path) if probe.is_file else probe.path.rstrip("/") or "/"
    is_named = probe.is_file and probe.name.lower().endswith(_YAML)
    if path := probe.path if is_named else _find_description(probe):
        return _from_yaml(path) if path.lower().endswith(_YAML) else _from_data(path, root)
    if path := _find_names(probe):
        places = {file: split for split, file in _split_lists(probe).items()}
        return _Dataset(root, dict(enumerate(_lines(path))), places or _image_folders(probe, root))
    if files := _split_names(probe):
        return _from_split_folders(root, files)
    raise UsageError(
        f"--input {printable(probe.path)} is not a YOLO dataset: it has neither data.yaml nor obj.data nor a "
        "file of class names; add classes.txt, with a class on each line, beside images/ and labels/, or "
        "write --input PATH/data.yaml."
    )


def _find_description(probe: InputProbe) -> str:
    """Returns the path of data.yaml or obj.data, whatever their names are; empty if an input has none."""
    if probe.is_file:
        return probe.path if _is_description(probe) else ""
    inner = [probe.inside(name) for name in _DATA_FOLDERS if name in probe.folders]
    for folder, suffixes in ((probe, _YAML), *((folder, (_DATA,)) for folder in (probe, *inner))):
        names = [name for name in folder.files if name.lower().endswith(suffixes)]
        for name in sorted(names, key=lambda name: (not name.startswith(("data.", "obj.")), name)):
            if _is_description(folder.inside(name)):
                return storage.join(folder.path, name)
    return ""


def _is_description(probe: InputProbe) -> bool:
    if probe.name.lower().endswith(_YAML):
        try:
            document = _parse(probe.head)
        except yaml.YAMLError:
            return False
        keys = document.keys() if isinstance(document, dict) else set()
        return bool(keys & {"names", "nc"}) and bool(keys & {*_SPLITS})
    if not probe.name.lower().endswith(_DATA):
        return False
    check_utf8(f"--input {printable(probe.path)}", probe.head)
    options = _read_options(probe.head.decode("utf-8", "replace"))
    return bool(_lists_in(options)) and bool(options.keys() & {"names", "classes"})


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
        text = _read(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"--input {printable(path)} is not UTF-8 text; save it as UTF-8.") from None
    return [line.strip() for line in text.rstrip().splitlines()]


# Ultralytics' data.yaml


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


def _from_yaml(path: str) -> _Dataset:
    shown = printable(path)
    try:
        data = _read(path)
        with UNDERWAY.working_on(path, "parse"):
            document = _parse(data)
    except yaml.YAMLError as error:
        raise UsageError(f"--input {shown} is not YAML: {words_of(error)}.") from None
    if not isinstance(document, dict):
        raise UsageError(f"--input {shown} is not a YAML mapping; name YOLO's data.yaml.")
    here = folder_of(path)
    root = _yaml_root(document.get("path"), here, shown)
    entries = []
    for split in _SPLITS:
        value = document.get(split) or []
        for entry in value if isinstance(value, list) else [value]:
            if isinstance(entry, str):
                storage.require_known(f"--input {shown}: {split}:", entry)
            entries.append((split, entry))
    places, missing = _find_places(entries, (root, here), shown)
    return _Dataset(root, _class_names(document, shown), places, "kpt_shape" in document, missing)


def _yaml_root(value: Any, here: str, shown: str) -> str:
    """Returns the folder that the YAML key `path` names, or the folder of the YAML file."""
    if not isinstance(value, str) or not value or "\0" in value:
        return here
    storage.require_known(f"--input {shown}: path:", value)
    folders = (resolve(here, text) for text in (value, value.lstrip("/")))
    return next((folder.rstrip("/") or "/" for folder in folders if is_folder(folder)), here)


def _find_places(
    entries: Iterable[tuple[str, Any]], folders: Sequence[str], shown: str
) -> tuple[dict[str, str], list[str]]:
    """Returns path -> split of the folders and lists of images, and the entries that are left out.

    Raises:
      UsageError: If one is missing, except that of the split `test`, or if there are none.
    """
    places: dict[str, str] = {}
    missing = []
    for split, entry in entries:
        is_path = isinstance(entry, str) and entry and "\0" not in entry
        path = next(filter(_is_place, _possible_places(entry, folders)), "") if is_path else ""
        if not path and split != "test":
            raise UsageError(
                f"--input {shown}: {split}: {entry!r} is neither a folder nor a list of images; fix it."
            )
        if not path:
            missing.append(f"{split} {entry}")
        elif path in places:
            missing.append(f"{split} {entry}, which is in a different split")
        else:
            places[path] = split
    if not places:
        raise UsageError(f"--input {shown} names no images; give train or val a folder or a list of images.")
    return places, missing


def _is_place(path: str) -> bool:
    is_list = path.lower().endswith(_LISTS) or "." not in path.rpartition("/")[2]
    return is_folder(path) or (is_list and is_file(path))


def _possible_places(text: str, folders: Sequence[str]) -> Iterator[str]:
    """Yields the paths that an entry may mean, the likeliest first.

    Roboflow writes `../train/images` and means `train/images`. Darknet's paths start where it runs.
    """
    yield from (resolve(folder, text).rstrip("/") for folder in folders)
    inner = text
    while inner.startswith(("../", "./")):
        inner = inner.partition("/")[2]
    yield resolve(folders[0], inner).rstrip("/")
    if ".." not in with_slashes(text).split("/"):
        yield from possible_paths(text.partition("://")[2] or text, folders)


def _class_names(values: Mapping[str, Any], shown: str) -> dict[int, str]:
    names, count = values.get("names"), str(values.get("nc", ""))
    if names in (None, "") and count.isdecimal() and int(count) <= 10**6:
        names = [str(number) for number in range(int(count))]
    if isinstance(names, list):
        names = dict(enumerate(names))
    if not isinstance(names, dict):
        raise UsageError(
            f"--input {shown} names no classes; give it names, a list in the order of their ids."
        )
    wrong = [name for name in names.values() if not isinstance(name, str)]
    if wrong:
        raise UsageError(f"--input {shown}: {wrong[0]!r} is not a class name; fix names.")
    try:
        return {int(number): name.strip() for number, name in names.items()}
    except (ValueError, TypeError):
        raise UsageError(f"--input {shown}: a key of names is not a number; number the classes.") from None


# Darknet's obj.data


def _read_options(text: str) -> dict[str, str]:
    """Returns the options in a file of `name = value` lines; none if any other line occurs.

    >>> _read_options("classes = 2\\ntrain  = data/train.txt")
    {'classes': '2', 'train': 'data/train.txt'}
    """
    lines = [line.strip() for line in text.removeprefix("\ufeff").splitlines()]
    pairs = [line.partition("=") for line in lines if line and not line.startswith(("#", ";"))]
    if not all(equals and name.strip() for name, equals, _ in pairs):
        return {}
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _lists_in(options: Mapping[str, str]) -> dict[str, str]:
    """Returns split -> list of its images. An option with any other name needs the value of a list."""
    found = {}
    for name, value in options.items():
        is_list = name in (*_SPLITS, "valid") or value.lower().endswith(_LISTS)
        if value and is_list and name not in _OTHER_OPTIONS:
            try:
                found[split_name(name)] = value
            except ValueError:
                continue
    return {name: value for name, value in found.items() if name}


def _from_data(path: str, root: str) -> _Dataset:
    shown, here = printable(path), folder_of(path)
    options = _read_options(_read(path).decode("utf-8-sig", "replace"))
    folders = (here, parent_of(here))
    places, missing = _find_places(_lists_in(options).items(), folders, shown)
    named = options.get("names", "")
    beside = [join(here, name) for name in _NAME_FILES]
    names = next(filter(is_file, [*(_possible_places(named, folders) if named else ()), *beside]), "")
    if not names:
        raise UsageError(
            f"--input {shown}: the class names {named or 'obj.names'} are missing; add the file."
        )
    return _Dataset(root, dict(enumerate(_lines(names))), places, missing=missing)


# Folders without a description


def _find_names(probe: InputProbe) -> str:
    """Returns the path of the file of class names in a folder without a description; empty if it is not YOLO.

    Images and labels are beside the file, in `images` and `labels`, in such folders for each split
    (`train/images`), in Darknet's `obj_train_data`, or in `data`, which FiftyOne lists in `images.txt`.
    """
    name = next((name for name in _NAME_FILES if name in probe.files), "")
    texts = [file for file in probe.files if file.lower().endswith(".txt") and file != name]
    stems = {stem_of(file) for file in probe.files if file not in texts}
    if name and (
        _has_labels(probe)
        or _splits_with_labels(probe)
        or "obj_train_data" in probe.folders
        or ("images.txt" in probe.files and "data" in probe.folders)
        or any(stem_of(file) in stems for file in texts)
        or _split_lists(probe)
    ):
        return storage.join(probe.path, name)
    return ""


def _has_labels(probe: InputProbe) -> bool:
    return {"images", "labels"} <= {*probe.folders}


def _splits_with_labels(probe: InputProbe) -> dict[str, str]:
    """Returns folder -> split for the split folders that have `images` and `labels`."""
    found = split_folders(probe.folders)
    return {name: split for name, split in found.items() if _has_labels(probe.inside(name))}


def _split_lists(probe: InputProbe) -> dict[str, str]:
    """Returns split -> list of images, in a folder without obj.data; none if there are fewer than two."""
    found: dict[str, str] = {}
    for name in probe.files:
        stem = stem_of(name)
        if not name.lower().endswith(_LISTS) or split_token(stem) != stem.lower():
            continue
        path = storage.join(probe.path, name)
        head = storage.read_head(path, 1 << 12)
        check_utf8(f"--input {printable(path)}", head)
        if claims_to_be_image(head.decode("utf-8-sig", "replace").strip().partition("\n")[0].strip()):
            found[stem.lower()] = path
    return found if len(found) > 1 else {}


def _image_folders(probe: InputProbe, root: str) -> dict[str, str]:
    """Returns path -> split for each split folder, or for one folder with all images.

    Raises:
      UsageError: If split folders and others have images.
    """
    has_images = "images" in probe.folders
    where, path, inner = (probe.inside("images"), "images/", "") if has_images else (probe, "", "/images")
    splits = split_folders(where.folders) if has_images else _splits_with_labels(probe)
    folders = {f"{path}{name}{inner}": split for name, split in splits.items()}
    if splits and (other := _other_images(where, splits)):
        entries = ", ".join(f"{split}: {name}" for name, split in folders.items())
        raise UsageError(
            f"--input {printable(root)}: {printable(', '.join(folders))} may be splits, but "
            f"{printable(path + other)} is not in them; write a data.yaml with names: [CLASS, ...] and "
            f"{printable(entries)}, or with train: {path.rstrip('/') or '.'} if the folders are no splits."
        )
    if len(folders) > 1:
        return {join(root, name): split for name, split in folders.items()}
    return {join(root, "images") if has_images else root: ""}


def _other_images(probe: InputProbe, splits: Mapping[str, str]) -> str:
    """Returns an image, or a folder with images, that is outside of all split folders; empty if none is."""
    shown = [name for name in probe.files if is_image_name(name) and not name.startswith(".")]
    folders = (name for name in probe.folders if name not in splits and not name.startswith("."))
    inner = ((name, probe.inside(name)) for name in folders)
    with_images = (
        name for name, folder in inner if any(map(is_image_name, folder.files)) or folder.images_below
    )
    return next(iter(shown), "") or next(with_images, "")


def _split_names(probe: InputProbe) -> dict[str, str]:
    """Returns folder -> file of class names, for split folders with images, labels and Roboflow's file."""
    folders = [name for name in probe.folders if split_token(name) == name.lower()]
    inner = {name: probe.inside(name) for name in folders}
    return {
        name: storage.join(folder.path, _ROBOFLOW_NAMES)
        for name, folder in inner.items()
        if _ROBOFLOW_NAMES in folder.files and _find_names(folder)
    }


def _from_split_folders(root: str, files: Mapping[str, str]) -> _Dataset:
    """Returns the dataset in split folders that each have a file of class names.

    Raises:
      UsageError: If the files differ.
    """
    names = {folder: _lines(path) for folder, path in files.items()}
    first = next(iter(names))
    for folder, lines in names.items():
        if lines != names[first]:
            raise UsageError(
                f"--input {printable(root)}: {first}/{_ROBOFLOW_NAMES} and {folder}/{_ROBOFLOW_NAMES} name "
                "different classes; export the dataset again."
            )
    places = {join(root, folder): folder.lower() for folder in names}
    return _Dataset(root, dict(enumerate(names[first])), places)


def _find(probe: InputProbe, settings: ConvertSettings) -> list[PairedFolders]:
    dataset = _read_dataset(probe)
    names = tuple((number, class_name(name)) for number, name in dataset.names.items())
    several = len({*dataset.places.values()}) > 1
    found = []
    for path, split in dataset.places.items():
        is_list = not is_folder(path)
        found.append(
            PairedFolders(
                images=dataset.root if is_list else path,
                annotations=dataset.root if is_list else label_folder(path),
                suffixes=(".txt",),
                split=split if several else "",
                image_list=path if is_list else "",
                root=dataset.root,
                classes=names,
                dialect=_POSE if dataset.is_pose else "",
            )
        )
    return found


def _is_surplus(folders: PairedFolders, path: str) -> bool:
    if path.rpartition("/")[2].lower() in _NO_LABELS:
        return False
    return folders.images != folders.annotations or holds_labels(path)


def _recognizes(probe: InputProbe, settings: ConvertSettings) -> bool:
    return bool(_find_description(probe) or _find_names(probe) or _split_names(probe))


def _summarize(probe: InputProbe, settings: ConvertSettings) -> str:
    dataset = _read_dataset(probe)
    left_out = f"; left out: {printable(', '.join(dataset.missing))}" if dataset.missing else ""
    return f", {counted(len(dataset.names), 'class')}{left_out}"


def _parse_labels(data: bytes, folders: PairedFolders) -> Annotations:
    objects = parse_labels(data, dict(folders.classes), folders.dialect == _POSE)
    return Annotations(objects=tuple(objects), relative=True)


SOURCE = PairFormat(
    name="yolo",
    title="YOLO",
    expected="write --input PATH/data.yaml",
    find=_find,
    recognizes=_recognizes,
    summarize=_summarize,
    parse=_parse_labels,
    noun="label file",
    settings=frozenset(),
    file_of=label_path,
    is_surplus=_is_surplus,
    without_file=Annotations(objects=(), relative=True),
).source()
