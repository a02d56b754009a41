"""Finds the splits and images of a dataset from Darknet's obj.data, or from lists of images alone.

Paths are relative to the folder in which Darknet runs. So `data/obj.data` may contain
`train = data/train.txt`, and so may the `obj.data` of an export to another folder (CVAT, Datumaro).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from shardwright.schemas.image_ref import printable
from shardwright.schemas.plain_text import check_utf8
from shardwright.transforms import storage
from shardwright.transforms.images.signatures import claims_to_be_image
from shardwright.transforms.sources.image_files import folder_of, join, parent_of, split_token
from shardwright.transforms.sources.input_probe import InputProbe
from shardwright.transforms.sources.moved_files import with_slashes
from shardwright.transforms.sources.split_names import split_name

#: Roboflow's file of class names, which it writes into the folder of each split.
ROBOFLOW_NAMES = "_darknet.labels"
NAME_FILES = ("classes.txt", "obj.names", "classes.names", ROBOFLOW_NAMES)
DATA_SUFFIX = ".data"
#: Folders that may contain obj.data in a dataset or in Darknet itself.
_FOLDERS = ("", "data", "cfg")
#: Options that do not name the images of a split.
_OTHER_OPTIONS = ("classes", "names", "labels", "backup", "results", "eval", "map", "top", "tree", "leaves")
#: Splits that Darknet knows. Another option names a split only if its value has one of these extensions.
_SPLITS = ("train", "valid", "val", "test")
_LIST_SUFFIXES = (".txt", ".list")
#: Smallest number of lists that are splits; a single list is not a split.
_MIN_LISTS = 2


def read_options(text: str) -> dict[str, str]:
    """Returns the options in a file of `name = value` lines; none if any other line occurs.

    >>> read_options("classes = 2\\ntrain  = data/train.txt")
    {'classes': '2', 'train': 'data/train.txt'}
    """
    options = {}
    for line in text.removeprefix("\ufeff").splitlines():
        line = line.strip()
        if not line or line.startswith(("#", ";")):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            return {}
        options[name.strip().lower()] = value.strip()
    return options


def split_options(options: dict[str, str]) -> dict[str, str]:
    """Returns a mapping of split to the list of its images."""
    found = {}
    for name, value in options.items():
        known = name in _SPLITS or value.lower().endswith(_LIST_SUFFIXES)
        if value and known and name not in _OTHER_OPTIONS:
            try:
                found[split_name(name)] = value
            except ValueError:
                continue
    return {name: value for name, value in found.items() if name}


def is_darknet(probe: InputProbe) -> bool:
    """Returns whether a file is Darknet's obj.data."""
    if not probe.name.lower().endswith(DATA_SUFFIX):
        return False
    check_utf8(f"--input {printable(probe.path)}", probe.head)
    options = read_options(probe.head.decode("utf-8", "replace"))
    return bool(split_options(options)) and bool(options.keys() & {"names", "classes"})


def find_data(probe: InputProbe) -> str:
    """Returns the path of an input's obj.data; empty if it has none."""
    if probe.is_file:
        return probe.path if is_darknet(probe) else ""
    for folder in _FOLDERS:
        if folder and folder not in probe.folders:
            continue
        inner = probe.inside(folder) if folder else probe
        names = [name for name in inner.files if name.lower().endswith(DATA_SUFFIX)]
        for name in sorted(names, key=lambda name: (name != "obj.data", name)):
            if is_darknet(inner.inside(name)):
                return storage.join(inner.path, name)
    return ""


def split_lists(probe: InputProbe) -> dict[str, str]:
    """Returns a mapping of split to list of images, for a folder without obj.data.

    The mapping is empty if the folder has fewer than two lists.
    """
    found: dict[str, str] = {}
    for name in probe.files:
        stem, dot, suffix = name.rpartition(".")
        if dot + suffix.lower() not in _LIST_SUFFIXES or split_token(stem) != stem.lower():
            continue
        path = storage.join(probe.path, name)
        head = storage.read_head(path, 1 << 12)
        check_utf8(f"--input {printable(path)}", head)
        lines = head.decode("utf-8-sig", "replace").splitlines()
        first = next((line.strip() for line in lines if line.strip()), "")
        if claims_to_be_image(first):
            found[stem.lower()] = path
    return found if len(found) >= _MIN_LISTS else {}


def possible_paths(text: str, folders: Sequence[str]) -> Iterator[str]:
    """Yields the files that a relative path may mean, the likeliest first.

    The path is first joined with each folder. Then its leading folders are removed one by one, as long as
    a folder remains in the path, or the removed one is `data` or has the name of the folder.

    >>> list(possible_paths("data/obj/1.jpg", ["/set"]))
    ['/set/data/obj/1.jpg', '/set/obj/1.jpg']
    """
    parts = [part for part in with_slashes(text).split("/") if part not in ("", ".")]
    for folder in folders:
        yield join(folder, "/".join(parts))
    for begin in range(1, len(parts)):
        for folder in folders:
            own = folder.rstrip("/").rpartition("/")[2]
            if begin < len(parts) - 1 or parts[begin - 1] in ("data", own):
                yield join(folder, "/".join(parts[begin:]))


def resolve(text: str, data: str, is_file: Callable[[str], bool]) -> str:
    """Returns the path of the file that an option of obj.data names; empty if it is missing.

    Args:
      text: Value of the option.
      data: Path of obj.data.
      is_file: Function that returns whether a path is a file.
    """
    here = folder_of(data)
    absolute = text.startswith("/") or storage.is_remote(text)
    if absolute and not (storage.is_remote(here) and not storage.is_remote(text)) and is_file(text):
        return text
    if ".." in with_slashes(text).split("/"):
        return ""
    places = possible_paths(text.partition("://")[2] or text, (here, parent_of(here)))
    return next((path for path in places if is_file(path)), "")
