"""Reads COCO's JSON files of instances, captions and panoptic segments, and folders of such files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import IO, Any

from shardwright.schemas.annotations import Annotations, ObjectAnnotation, PanopticSegment
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef, printable
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import FeatureRole, Needs
from shardwright.schemas.source_ids import number_text
from shardwright.transforms import storage
from shardwright.transforms.sources.coco.files import (
    KEY_POINTS_LEFT_OUT,
    CocoFile,
    coco_files,
    decode_files,
    encode_files,
    find_files,
    has_key_points,
    is_coco,
    is_panoptic,
    mask_folder,
    names_show,
    repeats_objects,
    root_among,
    root_candidates,
    stores_key_points,
    stores_panoptic,
)
from shardwright.transforms.sources.coco.index import CocoIndex, Id, id_of, index_coco
from shardwright.transforms.sources.coco.json_stream import JsonFault
from shardwright.transforms.sources.coco.values import category_of, keypoints_of, object_of
from shardwright.transforms.sources.file_states import FileStates, with_states
from shardwright.transforms.sources.image_files import (
    annotated,
    bad_entry,
    below,
    check_folder,
    inner_path,
    is_text,
    join,
    key_of,
    number,
)
from shardwright.transforms.sources.image_lists import MAX_TRIED, prefix_of_images
from shardwright.transforms.sources.input_probe import InputProbe, look_at
from shardwright.transforms.sources.moved_files import MovedFile, find_moved, with_slashes
from shardwright.transforms.sources.source import Context, Input, InputSplit, Source

#: Keys of annotations that describe objects.
_OBJECT_KEYS = {"category_id", "bbox"}
_NO_MASK = storage.StoredObject("", -1, "")
#: Images whose files are searched if the beginning of a JSON file names none.
_NAMES_TRIED = 20


class _Bad(Exception):
    """The annotations of an image cannot be used; the message gives the reason."""


@dataclass(frozen=True)
class _Opened:
    """An open JSON file and its index."""

    source: CocoFile
    file: IO[bytes]
    index: CocoIndex
    masks: str
    mask_states: FileStates

    @property
    def key(self) -> str:
        return key_of(self.source.key)


@dataclass
class _Found:
    """Content of an image's annotations."""

    objects: list[ObjectAnnotation] | None = None
    captions: list[str] = field(default_factory=list)
    mask: storage.StoredObject = _NO_MASK
    segments: tuple[PanopticSegment, ...] = ()
    #: Id of an annotation -> its place among the objects.
    numbers: dict[Id, int] = field(default_factory=dict)


# Entry of an image: number of the file, and number of the entry in it.
_Entry = tuple[int, int]


def _accepts(probe: InputProbe, settings: ConvertSettings) -> bool:
    if probe.is_file:
        return is_coco(probe.head)
    return next(coco_files(probe, MAX_TRIED), None) is not None


def _describe(probe: InputProbe, settings: ConvertSettings) -> str:
    for option in ("image_root", "mask_dir"):
        if getattr(settings, option):
            check_folder(f"--{option}", getattr(settings, option))
    files, left_out = find_files(probe, settings)
    if not files:
        raise UsageError(
            f"--input {printable(probe.path)} holds no COCO JSON; write --input FILE.json, or name the "
            "folder with it, with annotations/ or with train/ and valid/; or write --source class_folders if "
            "folders name classes."
        )
    places = []
    for file in files:
        if not file.root and names_show(file.path):
            if settings.image_root:
                file = file._replace(root=settings.image_root)
            else:
                raise _no_images(file.path)
        where = f"images in {printable(file.root)}" if file.root else "images beside it"
        split = f", split {file.split}" if file.split else ""
        if masks := _masks_of(file, settings):
            where += f", masks in {printable(masks)}"
        places.append(f"{printable(file.key)} ({where}{split})")
        if not stores_key_points(settings) and has_key_points(file.path):
            left_out[f"the key points of {file.key}"] = KEY_POINTS_LEFT_OUT
    without = "; ".join(f"{printable(name)} ({why})" for name, why in left_out.items())
    return f"COCO: {'; '.join(places)}{f'; left out: {without}' if without else ''}"


def _no_images(path: str) -> UsageError:
    return UsageError(
        f"--input {printable(path)}: its images are neither beside it nor in a folder named after it; name "
        "the folder of its images with --image_root."
    )


def _masks_of(file: CocoFile, settings: ConvertSettings) -> str:
    """Returns the folder with the panoptic masks of a file; empty if the layout does not store them."""
    if settings.record_layout.needs is not Needs.PANOPTIC:
        wanted = stores_panoptic(settings) and is_panoptic(file.key)
        return mask_folder(file.path, settings) if wanted else ""
    found = mask_folder(file.path, settings)
    if not found:
        stem = printable(file.path.rpartition("/")[2].rpartition(".")[0])
        raise UsageError(
            f"--input {printable(file.path)}: there is no folder {stem} with its masks beside it; name "
            "the folder with --mask_dir."
        )
    return found


def split(item: Input, context: Context) -> Iterator[InputSplit]:
    """Yields one input split for all files whose images have the same folder and split."""
    groups: dict[tuple[str, str], list[CocoFile]] = {}
    for file in find_files(look_at(item.path), context.settings)[0]:
        groups.setdefault((file.root or file.path, file.split), []).append(file)
    for files in groups.values():
        yield InputSplit(item, files[0].path, detail=encode_files(files))


def list_part(part: InputSplit, context: Context) -> Iterator[ImageRef | ClassId]:
    """Yields a reference for each image that the files list, and for each entry without an image."""
    settings = context.settings
    with contextlib.ExitStack() as stack:
        files = [_open(file, settings, stack) for file in decode_files(part.detail)]
        _check_kinds(files, settings)
        names = _keypoint_names(files, settings)
        root = files[0].source.root or _look_for_images(files[0], part, settings)
        prefix = prefix_of_images(part, root, context)
        for opened in files:
            index = opened.index
            for number_of, name in index.categories.items():
                if isinstance(number_of, int):
                    yield ClassId(name, number_of)
            for place, why in index.orphans():
                key = f"{part.item.prefix}{opened.key}:annotation {place}"
                yield bad_entry(key, opened.source.path, why)
        named: dict[str, list[_Entry]] = {}
        for number_of_file, opened in enumerate(files):
            for count in range(len(opened.index.images) // 2):
                name, why = _name_of(opened, count)
                if why:
                    yield _bad_image(part, opened, count, why)
                else:
                    named.setdefault(name, []).append((number_of_file, count))
        states = FileStates(root, len(named))
        entries: dict[str, list[_Entry]] = {}
        faults: dict[str, str] = {}
        for name, (path, why) in find_images(named, root, states).items():
            if not path:
                for number_of_file, count in named[name]:
                    yield _bad_image(part, files[number_of_file], count, why)
                continue
            entries.setdefault(path, []).extend(named[name])
            if why:
                faults[path] = why
        refs = (
            ref
            for name, found in entries.items()
            for ref in _refer(name, found, files, root, prefix, part, settings, faults.get(name, ""), names)
        )
        yield from with_states(refs, states, root)


def _bad_image(part: InputSplit, opened: _Opened, count: int, why: str) -> ImageRef:
    """Returns the reference for an entry whose image cannot be found."""
    return bad_entry(f"{part.item.prefix}{opened.key}:image {count + 1}", opened.source.path, why)


def find_images(names: Collection[str], root: str, states: FileStates) -> dict[str, tuple[str, str]]:
    """Returns `file_name` -> (path relative to the folder, fault) of the images of a JSON file.

    If a path does not exist or leads out of the folder, its last part is searched. The path in the result
    is empty if the name cannot be that of an image. A fault with a path is about a missing image.

    Args:
      names: File names in the JSON file.
      root: Folder of the images.
      states: States of the files in the folder.
    """
    found = {name: _inside(name, root, states) for name in names}
    moved = find_moved([name for name, path in found.items() if not path], root)
    return {name: (path, "") if path else _or_moved(name, moved.get(name)) for name, path in found.items()}


def _inside(name: str, root: str, states: FileStates) -> str:
    """Returns the path of an image in the folder of the images; empty if it does not exist."""
    inner = inner_path(name)
    if inner and states.has(join(root, inner)) is not False:
        return inner
    if name.startswith("/") and "\0" not in name:
        inner = inner_path(below(os.path.normpath(name), os.path.abspath(root)) or "")
    else:
        inner = inner_path(with_slashes(name)) if "\\" in name else ""
    return inner if inner and states.has(join(root, inner)) else ""


def _or_moved(name: str, moved: MovedFile | None) -> tuple[str, str]:
    if moved and moved.path:
        return moved.path, ""
    why = moved.fault if moved else ""
    if inner := inner_path(name):
        return inner, why
    return "", why or f"its file_name {name!r} leads out of the folder of the images"


def _open(file: CocoFile, settings: ConvertSettings, stack: contextlib.ExitStack) -> _Opened:
    shown = printable(file.path)
    with storage.translated_errors("read", file.path):
        opened = stack.enter_context(storage.open_local(file.path))
        try:
            index = index_coco(opened)
        except JsonFault as fault:
            raise UsageError(
                f"--input {shown} is not a complete JSON object: {fault}; fetch it again or fix it."
            ) from None
    if not index.has_images:
        raise UsageError(f"--input {shown} is not COCO JSON: it has no array of images; name another file.")
    if index.contradictory is not None:
        raise UsageError(
            f"--input {shown}: the category id {index.contradictory!r} stands for two names; "
            "fix its categories."
        )
    wants_names = settings.record_layout.needs is Needs.OBJECTS and "category_id" in index.kinds
    if wants_names and not index.categories:
        raise UsageError(f"--input {shown} names no categories; add an array of categories with id and name.")
    masks = _masks_of(file, settings)
    return _Opened(file, opened, index, masks, FileStates(masks, len(index.ids) if masks else 0))


def _check_kinds(files: list[_Opened], settings: ConvertSettings) -> None:
    """Checks that the annotations are of the kind that the layout stores.

    Raises:
      UsageError: if there are annotations, but none of this kind.
    """
    kinds = set().union(*(opened.index.kinds for opened in files))
    shown = printable(files[0].source.path)
    panoptic = "segments_info" in kinds
    if settings.record_layout.needs is Needs.PANOPTIC:
        if not panoptic:
            raise UsageError(
                f"--layout {settings.record_layout.name}: {shown} has no panoptic segments (segments_info); "
                "choose --layout detection."
            )
    elif panoptic and not kinds & {*_OBJECT_KEYS, "caption"}:
        raise UsageError(
            f"--layout {settings.record_layout.name}: {shown} has panoptic segments only; "
            "choose --layout panoptic."
        )


def _keypoint_names(files: list[_Opened], settings: ConvertSettings) -> tuple[str, ...]:
    """Returns the names of all key points in the order of the categories; none if no feature stores them.

    Every object gets a point for each name, so that readers can reshape the lists of a record.

    Raises:
      UsageError: if the layout requires key points and there are none, or their names are missing.
    """
    if not stores_key_points(settings):
        return ()
    shown, layout = printable(files[0].source.path), settings.record_layout
    kinds = set().union(*(opened.index.kinds for opened in files))
    names = [name for opened in files for points in opened.index.keypoints.values() for name in points]
    if "keypoints" in kinds and not names:
        raise UsageError(
            f"--layout {layout.name}: {shown} does not name its key points; add an array keypoints with "
            "their names to its categories."
        )
    spec = layout.by_role().get(FeatureRole.KEYPOINT_X)
    if kinds & _OBJECT_KEYS and "keypoints" not in kinds and spec is not None and not spec.optional:
        raise UsageError(
            f"--layout {layout.name}: {shown} has no key points; name the folder that also has its "
            "person_keypoints file, or choose --layout detection."
        )
    return tuple(dict.fromkeys(names))


def _look_for_images(opened: _Opened, part: InputSplit, settings: ConvertSettings) -> str:
    """Returns the folder of the images of a file whose beginning names no images.

    Raises:
      UsageError: if no folder contains them.
    """
    count = min(len(opened.index.images) // 2, _NAMES_TRIED)
    named = (_name_of(opened, entry)[0] for entry in range(count))
    names = [name for name in named if name]
    candidates = root_candidates(opened.source.path, settings, alone=part.path == part.item.path)
    found = root_among(candidates, names)
    if not found and names and not settings.image_root:
        raise _no_images(opened.source.path)
    return found or candidates[-1 if settings.image_root else 0]


def _name_of(opened: _Opened, count: int) -> tuple[str, str]:
    """Returns (`file_name` of an image, "") by the number of its entry, or ("", why it has none)."""
    value = opened.index.image(opened.file, count)
    if not isinstance(value, dict):
        return "", "its entry is not an object"
    if opened.index.image_id(value) is None:
        return "", "its entry has no id"
    name = value.get("file_name")
    if not isinstance(name, str) or not name:
        return "", "its entry has no file_name"
    return name, ""


def _refer(
    name: str,
    entries: list[_Entry],
    files: list[_Opened],
    root: str,
    prefix: str,
    part: InputSplit,
    settings: ConvertSettings,
    fault: str,
    keypoint_names: tuple[str, ...],
) -> Iterator[ImageRef]:
    """Yields the reference of an image, and references for duplicate entries of it."""
    first = files[entries[0][0]]
    image = first.index.image(first.file, entries[0][1])
    image_id = first.index.image_id(image)
    ref = ImageRef(
        key=prefix + key_of(name),
        uri=join(root, name),
        split=first.source.split,
        message=f"image {image_id} of {first.key}",
        source_id="" if image_id is None else number_text(image_id),
    )
    seen = set()
    for number_of_file, count in entries:
        if number_of_file in seen:
            yield _bad_image(part, files[number_of_file], count, f"{name!r} is already listed")
        seen.add(number_of_file)
    try:
        if fault:
            raise _Bad(fault)
        if len(seen) < len(entries):
            raise _Bad("it is listed twice, so its annotations may belong to another image")
        found = _Found()
        size = _size_of(image)
        for number_of_file, count in entries:
            _gather(found, files[number_of_file], count, name, settings, keypoint_names)
    except _Bad as bad:
        yield ref.quarantined(QuarantineReason.BAD_ANNOTATION, str(bad))
        return
    annotations = Annotations(
        objects=None if found.objects is None else tuple(found.objects),
        size=size,
        captions=tuple(found.captions),
        panoptic_mask=found.mask.path,
        segments=found.segments,
        mask_size=found.mask.size,
        mask_version=found.mask.version,
        keypoint_names=keypoint_names,
    )
    yield annotated(ref, annotations)


def _size_of(values: Mapping[str, Any]) -> tuple[int, int] | None:
    """Returns the width and height of an image's entry; None if it gives none, or 0."""
    sides = []
    for side in ("width", "height"):
        value = values.get(side)
        found = 0.0 if value is None else number(value)
        if found is None or found != int(found):
            raise _Bad(f"its {side} is {value!r}")
        sides.append(int(found))
    return (sides[0], sides[1]) if min(sides) > 0 else None


def _gather(
    found: _Found,
    opened: _Opened,
    count: int,
    name: str,
    settings: ConvertSettings,
    keypoint_names: tuple[str, ...],
) -> None:
    """Adds an image's annotations from one file to those from other files.

    Raises:
      _Bad: if the annotations cannot be used.
      UsageError: if two files describe the same objects.
    """
    index = opened.index
    if count in index.twice:
        raise _Bad("another image has the same id, so its annotations may belong to the other image")
    image = index.image_id(index.image(opened.file, count))
    assert image is not None
    wants_objects = settings.record_layout.needs is Needs.OBJECTS
    of_objects = bool(index.kinds & _OBJECT_KEYS) or not index.kinds
    if wants_objects and of_objects and found.objects and index.kinds:
        if keypoint_names and repeats_objects(opened.key):
            _add_keypoints(found, index.annotations(opened.file, image), index, keypoint_names)
            return
        raise UsageError(
            f"--input {printable(opened.source.path)} and another JSON file both list the objects of "
            f"{printable(name)}; name one of them as --input."
        )
    if wants_objects and of_objects and found.objects is None:
        found.objects = []
    for value in index.annotations(opened.file, image):
        if "segments_info" in value:
            if opened.masks:
                _take_segments(found, value, opened)
        elif "caption" in value and not _OBJECT_KEYS & value.keys():
            if not is_text(value["caption"]):
                raise _Bad("one of its captions is not text")
            found.captions.append(value["caption"].strip())
        elif wants_objects and found.objects is not None:
            number_of = id_of(value.get("id"))
            if number_of is not None:
                found.numbers[number_of] = len(found.objects)
            found.objects.append(object_of(value, index.categories, index.keypoints, keypoint_names))


def _add_keypoints(
    found: _Found, values: Iterator[dict[str, Any]], index: CocoIndex, names: tuple[str, ...]
) -> None:
    """Adds the key points of a file that repeats the objects of another file.

    Raises:
      _Bad: if the other file has no object with the id of an annotation.
    """
    assert found.objects is not None
    for value in values:
        points = keypoints_of(value, index.keypoints, names)
        number_of = id_of(value.get("id"))
        place = found.numbers.get(number_of) if number_of is not None else None
        if place is None:
            raise _Bad(f"no object has the id {number_of!r} of its key points")
        found.objects[place] = replace(found.objects[place], keypoints=points)


def _take_segments(found: _Found, value: Mapping[str, Any], opened: _Opened) -> None:
    if found.mask.path:
        raise _Bad("it has two panoptic masks")
    name = value.get("file_name")
    mask = inner_path(name) if isinstance(name, str) else ""
    if not mask:
        raise _Bad(f"the file_name {name!r} of its mask is not a file in the folder of the masks")
    infos = value["segments_info"]
    segments = []
    for segment in infos if isinstance(infos, list) else [None]:
        found_id = id_of(segment.get("id")) if isinstance(segment, dict) else None
        if not isinstance(segment, dict) or not isinstance(found_id, int):
            raise _Bad("one of its segments has no id")
        crowd = bool(number(segment.get("iscrowd")))
        category = category_of(segment, opened.index.categories)
        thing = id_of(segment.get("category_id")) not in opened.index.stuff
        segments.append(PanopticSegment(found_id, category, crowd, thing))
    path = join(opened.masks, mask)
    found.mask = opened.mask_states.find(path) or storage.StoredObject(path, -1, "")
    found.segments = tuple(segments)


SOURCE = Source(
    name="coco",
    provides=frozenset({Needs.OBJECTS, Needs.PANOPTIC}),
    settings=frozenset({"image_root", "mask_dir"}),
    accepts=_accepts,
    describe=_describe,
    list_part=list_part,
    split=split,
    names_images=True,
    has_keypoints=True,
)
