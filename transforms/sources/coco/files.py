"""Finds COCO's JSON files in an input, and the folders of their images and masks."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.feature_roles import KEYPOINT_ROLES
from shardwright.schemas.layouts import FeatureRole, Needs
from shardwright.transforms import storage
from shardwright.transforms.sources.coco.json_stream import JsonFault, stream_object
from shardwright.transforms.sources.image_files import (
    find_root,
    folder_of,
    inner_path,
    is_file,
    is_folder,
    join,
    parent_of,
    split_token,
)
from shardwright.transforms.sources.input_probe import InputProbe
from shardwright.transforms.sources.moved_files import file_name, with_slashes

#: Bytes that are read from a file to find a few image names; annotations may precede them.
_HEAD_BYTES = 1 << 20
#: Most image names that are tried in each folder.
_NAMES_TRIED = 5
_ROBOFLOW = "_annotations.coco.json"
#: Folders of images beside a JSON file: of most exporters, and of FiftyOne.
_IMAGE_FOLDERS = ("images", "data")
#: Bytes at the end of a file that are searched for categories.
_TAIL_BYTES = 1 << 16
#: Why key points are left out.
KEY_POINTS_LEFT_OUT = "--layout keypoints stores them"
_KEY_POINTS = re.compile(rb'"keypoints"\s*:\s*\[\s*[^\]\s]')


class CocoFile(NamedTuple):
    """A JSON file.

    Attributes:
      path: Path of the file.
      key: Path relative to the input.
      root: Folder of its images; empty if only the whole file shows that.
      split: Split from its name or folder; empty if it is the only one.
    """

    path: str
    key: str
    root: str
    split: str


def is_coco(head: bytes) -> bool:
    """Returns whether a file's first bytes are COCO's JSON: an object with images or annotations."""
    if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return False
    arrays = set()
    try:
        for item in stream_object(io.BytesIO(head)):
            value = item.value if isinstance(item.value, dict) else {}
            if item.name == "images" and {"id", "file_name"} <= value.keys():
                return True
            if item.name == "annotations" and "image_id" in value:
                return True
            if not item.length:
                arrays.add(item.name)
    except JsonFault:
        return False
    return {"images", "annotations"} <= arrays


def _names_in(head: bytes) -> list[str]:
    """Returns the paths of the first images, as written in the file."""
    names: list[str] = []
    try:
        for item in stream_object(io.BytesIO(head)):
            if item.name == "images" and isinstance(item.value, dict):
                path = item.value.get("file_name")
                if isinstance(path, str) and file_name(path):
                    names.append(path)
            if len(names) == _NAMES_TRIED:
                break
    except JsonFault:
        pass
    return names


def _json_files(probe: InputProbe) -> Iterator[str]:
    """Yields the paths of JSON files in the usual places of COCO, relative to the folder."""
    folders = ["", "annotations", *(name for name in probe.folders if split_token(name))]
    for folder in folders:
        if folder and folder not in probe.folders:
            continue
        inner = probe.inside(folder) if folder else probe
        names = {name for name in inner.files if name.lower().endswith(".json")}
        if len(inner.files) >= 2000 and storage.exists(storage.join(inner.path, _ROBOFLOW)):
            names.add(_ROBOFLOW)  # a probe lists only the first names
        yield from (f"{folder}/{name}" if folder else name for name in sorted(names))


def coco_files(probe: InputProbe, tried: int | None = None) -> Iterator[str]:
    """Yields the paths of COCO's JSON files in a folder, relative to it.

    Args:
      probe: The folder.
      tried: Number of JSON files to examine, which is enough to detect COCO; None for all.
    """
    for name in islice(_json_files(probe), tried):
        if is_coco(storage.read_head(storage.join(probe.path, name), 1 << 16)):
            yield name


def is_panoptic(name: str) -> bool:
    """Returns whether a file is named like COCO's files of panoptic segments."""
    return "panoptic" in name


def stores_panoptic(settings: ConvertSettings) -> bool:
    """Returns whether records have features for panoptic masks."""
    roles = settings.record_layout.by_role().keys()
    return FeatureRole.PANOPTIC_CATEGORY in roles or FeatureRole.PANOPTIC_INSTANCE in roles


def stores_key_points(settings: ConvertSettings) -> bool:
    """Returns whether records have features for key points."""
    return not settings.record_layout.by_role().keys().isdisjoint(KEYPOINT_ROLES)


def repeats_objects(name: str) -> bool:
    """Returns whether a file is named like COCO's files of key points, which repeat the persons of others."""
    return "person_keypoints" in name


def _left_out(probe: InputProbe, names: Sequence[str], settings: ConvertSettings) -> dict[str, str]:
    """Returns file -> why it is left out, judged by COCO's own file names."""
    panoptic = [name for name in names if is_panoptic(name)]
    others = [name for name in names if not is_panoptic(name)]
    layout = settings.record_layout
    if layout.needs is Needs.PANOPTIC and panoptic:
        return dict.fromkeys(others, f"--layout {layout.name} stores panoptic segments only")
    left_out = {}
    if others:
        for name in panoptic:
            partners = [name.replace("panoptic", kind) for kind in ("instances", "captions")]
            if not stores_panoptic(settings):
                left_out[name] = f"--layout {layout.name} stores no panoptic segments"
            elif not mask_folder(storage.join(probe.path, name), settings):
                left_out[name] = "there is no folder with its masks; name it with --mask_dir"
            elif len(others) > 1 and not set(partners) & {*others}:
                left_out[name] = f"there is no {file_name(partners[0])}"
    # Files of key points and of stuff repeat the same objects with fewer details.
    repeating = {"stuff": "its objects are in the other files"}
    if not stores_key_points(settings):
        repeating["person_keypoints"] = KEY_POINTS_LEFT_OUT
    for kind, why in repeating.items():
        again = {name.replace("instances_", f"{kind}_") for name in others if "instances_" in name}
        left_out |= {name: why for name in others if name in again and "instances_" not in name}
    return left_out


def find_files(probe: InputProbe, settings: ConvertSettings) -> tuple[list[CocoFile], dict[str, str]]:
    """Finds the JSON files of an input that the layout needs, and the folders of their images.

    The second result maps each file that is left out to the reason.
    """
    if probe.is_file:
        alone = CocoFile(probe.path, probe.name, _root_of(probe.path, settings, alone=True), "")
        return [alone], _beside(probe, settings)
    found = list(coco_files(probe))
    left_out = _left_out(probe, found, settings)
    names = [name for name in found if name not in left_out]
    return _placed(probe, names, settings), left_out


def _beside(probe: InputProbe, settings: ConvertSettings) -> dict[str, str]:
    """Returns the panoptic file that belongs to a single file, if the layout could store it."""
    if not stores_panoptic(settings) or "instances" not in probe.name:
        return {}
    name = probe.name.replace("instances", "panoptic")
    if not is_file(join(folder_of(probe.path), name)):
        return {}
    return {name: "name the folder as --input to use it too"}


def has_key_points(path: str) -> bool:
    """Returns whether the beginning or the end of a file contains key points."""
    head = storage.read_head(path, _HEAD_BYTES)
    if _KEY_POINTS.search(head):
        return True
    size = storage.size_of(path)
    begin = max(len(head), size - _TAIL_BYTES)
    return begin < size and bool(_KEY_POINTS.search(storage.read_range(path, begin, size - begin)))


def _placed(probe: InputProbe, names: Sequence[str], settings: ConvertSettings) -> list[CocoFile]:
    splits = {name: _split_of(name) for name in names}
    several = len(set(splits.values()) - {""}) > 1
    return [
        CocoFile(
            path := storage.join(probe.path, name),
            name,
            _root_of(path, settings, alone=False),
            splits[name] if several else "",
        )
        for name in names
    ]


def _split_of(name: str) -> str:
    folder, _, file = name.rpartition("/")
    return split_token(file) or split_token(folder)


def _suffix(path: str) -> str:
    """Returns `val2017` of `.../instances_val2017.json`."""
    return path.rpartition("/")[2].rpartition(".")[0].rpartition("_")[2]


def root_candidates(path: str, settings: ConvertSettings, alone: bool) -> list[str]:
    """Returns the folders that may contain a JSON file's images, most likely first.

    Args:
      path: Path of the JSON file.
      settings: Settings with `image_root`, which is used unchanged for a single file.
      alone: Whether the input is this single file.
    """
    suffix, token = _suffix(path), split_token(path.rpartition("/")[2])
    inner = [name for name in (suffix, token) if name]
    if settings.image_root:
        named = settings.image_root.rstrip("/") or "/"
        return [named] if alone else [*(join(named, name) for name in inner), named]
    here = folder_of(path)
    above = parent_of(here)
    folders = [join(place, name) for name in _IMAGE_FOLDERS for place in (here, above)]
    places = [here, *folders]
    for name in inner:
        places += [join(place, name) for place in (here, above, *folders)]
    return [*places, above]


def _root_of(path: str, settings: ConvertSettings, alone: bool) -> str:
    candidates = root_candidates(path, settings, alone)
    if settings.image_root and alone:
        return candidates[0]
    return root_among(candidates, _names_in(storage.read_head(path, _HEAD_BYTES)))


def root_among(candidates: Sequence[str], names: Sequence[str]) -> str:
    """Returns the first folder that contains one of the images; empty if none does.

    Args:
      candidates: Folders, most likely first.
      names: Names of a few images in the JSON file. Of a path from another machine, the last part is used.
    """
    inner = [path for name in names for path in {name: 0, with_slashes(name): 0} if inner_path(path)]
    found = find_root(candidates, [inner_path(path) for path in inner])
    return found or find_root(candidates, [file_name(name) for name in names])


def names_show(path: str) -> bool:
    """Returns whether the beginning of a file names images."""
    return bool(_names_in(storage.read_head(path, _HEAD_BYTES)))


def mask_folder(path: str, settings: ConvertSettings) -> str:
    """Returns the folder with the panoptic masks of a JSON file; empty if there is none."""
    stem = path.rpartition("/")[2].rpartition(".")[0]
    if settings.mask_dir:
        inner = join(settings.mask_dir.rstrip("/"), stem)
        return inner if is_folder(inner) else settings.mask_dir.rstrip("/")
    here = folder_of(path)
    places = (join(here, stem), join(parent_of(here), stem))
    return next((place for place in places if is_folder(place)), "")


def encode_files(files: Sequence[CocoFile]) -> str:
    """Encodes files for `InputSplit.detail`."""
    return json.dumps(files)


def decode_files(text: str) -> list[CocoFile]:
    """Reads what `encode_files` wrote."""
    return [CocoFile(*item) for item in json.loads(text)]
