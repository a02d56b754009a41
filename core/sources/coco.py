"""COCO's JSON files of instances, captions and panoptic segments, and folders of such files."""

from __future__ import annotations

import io
import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import IO, Any, NamedTuple

from shardwright.core import storage
from shardwright.core.sources import image_files
from shardwright.core.sources.annotation_files import (
    AnnotationFault,
    JsonItems,
    complete_items,
    stream_object,
)
from shardwright.core.sources.documents import Document, DocumentFormat, ImagePaths
from shardwright.core.sources.file_states import FileStates
from shardwright.core.sources.files_beside import stem_of
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.shapes import size_of
from shardwright.schemas.annotations import Annotations, ObjectAnnotation, PanopticSegment
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.feature_roles import KEYPOINT_ROLES
from shardwright.schemas.image_ref import ImageRef, number_text
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import FeatureRole, Needs
from shardwright.schemas.plain_text import printable

#: Keys of annotations that describe objects, and all keys that identify their kind.
_OBJECT_KEYS = {"category_id", "bbox"}
_KINDS = {"segments_info", "caption", "keypoints", *_OBJECT_KEYS}
_PANOPTIC_ROLES = (FeatureRole.PANOPTIC_CATEGORY, FeatureRole.PANOPTIC_INSTANCE)

Id = int | str


def _id_in(entry: Any, key: str) -> Id | None:
    """Returns the id in an entry, normalized so that both sides of a reference match; None if it has none."""
    value = entry.get(key) if isinstance(entry, dict) else None
    if isinstance(value, str):
        return value or None
    numeric = image_files.number(value)
    return int(numeric) if numeric is not None and numeric == int(numeric) else None


class _Category(NamedTuple):
    """A category: its class name, the names of its key points, and whether its objects are counted."""

    name: str = ""
    points: tuple[str, ...] = ()
    is_thing: bool = True


class _Coco(JsonItems):
    """The images of a file, and all that the file says about them.

    Attributes:
      annotations: All annotations.
      of_image: Id of an image -> its annotations.
      ids: Id of an image -> number of images that have it.
      kinds: Keys of the annotations that identify their kind.
      categories: Categories by id.
      point_names: Names of the key points that every object of a record has.
      masks: The panoptic masks; their folder is empty if they are not stored.
    """

    def __init__(self, file: IO[bytes], path: str, settings: ConvertSettings) -> None:
        super().__init__(file)
        self.annotations = JsonItems(file)
        self.of_image: dict[Id | None, array[int]] = {}
        self.ids: Counter[Id | None] = Counter()
        self.kinds: set[str] = set()
        self.categories: dict[Id | None, _Category] = {}
        self.point_names: tuple[str, ...] = ()
        self.masks = FileStates("", 0)
        self.has_objects = settings.record_layout.needs is Needs.OBJECTS

    def scan(self) -> Iterator[Any]:
        """Yields the entries of all images, and notes the rest of the file.

        Raises:
          AnnotationFault: If it is not COCO's JSON, or incomplete; the message says what is wrong.
        """
        for item in stream_object(self._file):
            if item.name == "images":
                self.add(item)
                self.ids[_id_in(item.value, "id")] += 1
                yield item.value
            elif item.name == "categories" and isinstance(item.value, dict):
                self._add_category(item.value)
            elif item.name == "annotations":
                image = _id_in(item.value, "image_id")
                self.of_image.setdefault(image, array("q")).append(len(self.annotations))
                self.annotations.add(item)
                if image is not None:
                    self.kinds.update(item.value.keys() & _KINDS)
        if not self.ids:
            raise AnnotationFault("it has no array of images, or an empty one; name another file")
        if self.has_objects and "category_id" in self.kinds and not self.categories:
            raise AnnotationFault("it names no categories; add an array of categories with id and name")

    def _add_category(self, value: Mapping[str, Any]) -> None:
        """Adds a category; a category without an id or a name is ignored."""
        category, name = _id_in(value, "id"), image_files.class_name(value.get("name"))
        if category is None or not name:
            return
        points = value.get("keypoints")
        has_points = isinstance(points, list) and all(isinstance(point, str) for point in points)
        new = _Category(name, tuple(points or ()) if has_points else (), value.get("isthing", 1) != 0)
        if self.categories.setdefault(category, new).name != name:
            raise AnnotationFault(f"the category id {category!r} stands for two names; fix its categories")

    def annotations_of(self, image: Id | None) -> Iterator[Any]:
        """Yields the annotations of an image."""
        return map(self.annotations.read, self.of_image.get(image, ()))

    def category_of(self, value: Mapping[str, Any]) -> _Category:
        """Returns the category of an object or a segment; one without a name if no category has that id."""
        return self.categories.get(_id_in(value, "category_id"), _Category())

    def object_of(self, value: Mapping[str, Any]) -> ObjectAnnotation:
        """Returns an object; an invalid box becomes one that the settings handle as invalid."""
        outline, crowd = value.get("segmentation"), value.get("iscrowd")
        return ObjectAnnotation(
            label=self.category_of(value).name,
            box=_box(value.get("bbox")),
            crowd=crowd is True or bool(image_files.number(crowd)),
            area=image_files.number(value.get("area")),
            segmentation=outline if outline and isinstance(outline, list | dict) else None,
            keypoints=self.keypoints_of(value),
        )

    def segment_of(self, value: Any) -> PanopticSegment:
        """Returns a segment of a panoptic mask."""
        segment_id = _id_in(value, "id")
        if not isinstance(segment_id, int):
            raise AnnotationFault("one of its segments has no id")
        category = self.category_of(value)
        return PanopticSegment(segment_id, category.name, category.is_thing)

    def keypoints_of(self, value: Mapping[str, Any]) -> tuple[float, ...] | None:
        """Returns x, y and visibility of each named key point; None if the object has none.

        Points that its category does not have are not labelled. If the number of values is wrong, the result
        has a wrong length, so that the settings handle the object as invalid.
        """
        coordinates = value.get("keypoints")
        if not self.point_names or not coordinates:
            return None
        own = self.category_of(value).points
        if not isinstance(coordinates, list) or len(coordinates) != 3 * len(own):
            return (math.nan,)
        numbers = [math.nan if (side := image_files.number(item)) is None else side for item in coordinates]
        points = {name: numbers[3 * i : 3 * i + 3] for i, name in enumerate(own)}
        return tuple(item for name in self.point_names for item in points.get(name, (0.0, 0.0, 0.0)))


def _box(value: Any) -> tuple[float, float, float, float] | None:
    """Returns xmin, ymin, xmax, ymax of COCO's x, y, width, height; not numbers if these are wrong."""
    if value is None or value == []:
        return None
    sides = [image_files.number(side) for side in value] if isinstance(value, list) else []
    left, upper, width, height = sides if len(sides) == 4 and None not in sides else [math.nan] * 4
    return left, upper, left + width, upper + height  # type: ignore[operator,return-value]


# Which files of a folder are read


def _is_coco(head: bytes, *_: object) -> bool:
    """Returns whether a file begins like COCO's JSON: an object with images or annotations."""
    keys = {"images": {"id", "file_name"}, "annotations": {"image_id"}}
    return any(
        item.name in keys and isinstance(item.value, dict) and keys[item.name] <= item.value.keys()
        for item in complete_items(stream_object(io.BytesIO(head)))
    )


def _stores(settings: ConvertSettings, roles: Iterable[FeatureRole]) -> bool:
    """Returns whether the layout has a feature with one of these roles."""
    return not settings.record_layout.by_role.keys().isdisjoint(roles)


def _leave_out(probe: InputProbe, names: Sequence[str], settings: ConvertSettings) -> dict[str, str]:
    """Returns file -> why it is left out, judged by COCO's own file names."""
    layout = settings.record_layout
    panoptic = [name for name in names if "panoptic" in name]
    others = [name for name in names if "panoptic" not in name]
    if layout.needs is Needs.PANOPTIC and panoptic:
        return dict.fromkeys(others, f"--layout {layout.name} stores panoptic segments only")
    # Files of stuff and of key points repeat the objects of another file.
    repeating, left_out = {"stuff": "its objects are in the other files"}, dict[str, str]()
    if not _stores(settings, KEYPOINT_ROLES):
        repeating["person_keypoints"] = "--layout keypoints stores them"
    for kind, why in repeating.items():
        repeated = {name for name in others if name.replace(kind, "instances") in {*others} - {name}}
        left_out |= dict.fromkeys(sorted(repeated), why)
    for name in panoptic if others else ():
        if not _stores(settings, _PANOPTIC_ROLES):
            left_out[name] = f"--layout {layout.name} stores no panoptic segments"
        elif not _mask_folder(storage.join(probe.path, name), settings):
            left_out[name] = "there is no folder with its masks; name it with --mask_dir"
    return left_out


def _mask_folder(path: str, settings: ConvertSettings) -> str:
    """Returns the folder with the panoptic masks of a JSON file; empty if there is none."""
    stem, named = stem_of(image_files.file_name(path)), settings.mask_dir.rstrip("/")
    here = named or image_files.folder_of(path)
    other = named or image_files.join(image_files.parent_of(here), stem)
    return next(filter(image_files.is_folder, (image_files.join(here, stem), other)), "")


def _masks_of(document: Document, settings: ConvertSettings) -> str:
    """Returns the folder with the panoptic masks of a file; empty if the layout does not store them."""
    required = settings.record_layout.needs is Needs.PANOPTIC
    if not required and not (_stores(settings, _PANOPTIC_ROLES) and "panoptic" in document.key):
        return ""
    folder = _mask_folder(document.path, settings)
    if required and not folder:
        raise UsageError(
            f"--input {document.path}: the folder with its masks is not beside it; name the "
            "folder with --mask_dir."
        )
    return folder


def _summarize(document: Document, images: Sequence[Any], settings: ConvertSettings) -> str:
    masks = _masks_of(document, settings)
    return f", masks in {printable(masks)}" if masks else ""


# What the files say


def _begin(
    documents: Sequence[Document], settings: ConvertSettings
) -> Iterator[ClassId | tuple[Document, str, str]]:
    """Yields the ids of classes, and the annotations without an image.

    Raises:
      UsageError: If the files have no annotations of the kind that the layout stores.
    """
    files: list[_Coco] = [document.entries for document in documents]
    path, layout = documents[0].path, settings.record_layout
    kinds = set().union(*(file.kinds for file in files))
    needs_segments = layout.needs is Needs.PANOPTIC
    if "segments_info" not in kinds if needs_segments else kinds == {"segments_info"}:
        only, fitting = ("no", "detection") if needs_segments else ("only", "panoptic")
        raise UsageError(
            f"--layout {layout.name}: {path} has {only} panoptic segments; choose --layout {fitting}."
        )
    names: tuple[str, ...] = ()
    if _stores(settings, KEYPOINT_ROLES):
        categories = [category for file in files for category in file.categories.values()]
        names = tuple(dict.fromkeys(name for category in categories for name in category.points))
        spec = layout.by_role.get(FeatureRole.KEYPOINT_X)
        if "keypoints" in kinds and not names:
            raise UsageError(
                f"--layout {layout.name}: {path} does not name its key points; add an array keypoints with "
                "their names to its categories."
            )
        if kinds & _OBJECT_KEYS and "keypoints" not in kinds and spec is not None and not spec.optional:
            raise UsageError(
                f"--layout {layout.name}: {path} has no key points; name the folder that also has its "
                "person_keypoints file, or choose --layout detection."
            )
    for document, file in zip(documents, files):
        folder = _masks_of(document, settings)
        file.point_names, file.masks = names, FileStates(folder, len(file.ids) if folder else 0)
        for category_id, category in file.categories.items():
            if isinstance(category_id, int):
                yield ClassId(category.name, category_id)
        for image, indexes in file.of_image.items():
            for index in () if file.ids[image] and image is not None else indexes:
                why = f"no image has its image_id {image!r}"
                if image is None:
                    is_object = isinstance(file.annotations.read(index), dict)
                    why = "it has no image_id" if is_object else "it is not an object"
                yield document, f"annotation {index + 1}", why


def _image_of(value: Any, settings: ConvertSettings) -> ImagePaths:
    if not isinstance(value, dict):
        raise AnnotationFault("its entry is not an object")
    if _id_in(value, "id") is None:
        raise AnnotationFault("its entry has no id")
    name = value.get("file_name")
    if not isinstance(name, str) or not name:
        raise AnnotationFault("its entry has no file_name")
    return ImagePaths(name, (name,))


def _with_document(
    annotations: Annotations, objects: dict[Any, ObjectAnnotation], document: Document, image: Id | None
) -> Annotations:
    """Returns annotations of an image with what another file says.

    Args:
      annotations: What other files say; its objects are an empty tuple if one of them lists objects.
      objects: Objects by the id of their annotation, to which the objects of the file are added. An object
        without an id has a key of its own.
      document: The file.
      image: Id of the image.

    Raises:
      AnnotationFault: If it cannot be used.
      UsageError: If two files describe the same objects.
    """
    file: _Coco = document.entries
    if file.ids[image] > 1:
        raise AnnotationFault(
            "another image has the same id, so its annotations may belong to the other image"
        )
    if file.has_objects and (file.kinds & _OBJECT_KEYS or not file.kinds):
        if objects and file.kinds:
            _add_key_points(objects, document, image)
            return annotations
        annotations = replace(annotations, objects=())
    for value in file.annotations_of(image):
        if "segments_info" in value:
            annotations = _with_segments(annotations, value, file) if file.masks.folder else annotations
        elif "caption" in value and not _OBJECT_KEYS & value.keys():
            if not image_files.is_text(value["caption"]):
                raise AnnotationFault("one of its captions is not text")
            annotations = replace(annotations, captions=(*annotations.captions, value["caption"].strip()))
        elif annotations.objects is not None:
            annotation_id = _id_in(value, "id")
            is_new = annotation_id is not None and annotation_id not in objects
            objects[annotation_id if is_new else (len(objects),)] = file.object_of(value)
    return annotations


def _add_key_points(objects: dict[Any, ObjectAnnotation], document: Document, image: Id | None) -> None:
    """Adds the key points of a file that repeats the objects of another file."""
    file: _Coco = document.entries
    if not file.point_names or "person_keypoints" not in document.key:
        raise UsageError(
            f"--input {document.path} and another JSON file both list the objects of the "
            "same images; name one of them as --input."
        )
    for value in file.annotations_of(image):
        annotation_id = _id_in(value, "id")
        if annotation_id not in objects:
            raise AnnotationFault(f"no object has the id {annotation_id!r} of its key points")
        objects[annotation_id] = replace(objects[annotation_id], keypoints=file.keypoints_of(value))


def _with_segments(annotations: Annotations, value: Mapping[str, Any], file: _Coco) -> Annotations:
    if annotations.panoptic_mask:
        raise AnnotationFault("it has two panoptic masks")
    name = value.get("file_name")
    mask = image_files.inner_path(name) if isinstance(name, str) else ""
    if not mask:
        raise AnnotationFault(f"the file_name {name!r} of its mask is not a file in the folder of the masks")
    path, infos = image_files.join(file.masks.folder, mask), value["segments_info"]
    segments = tuple(map(file.segment_of, infos if isinstance(infos, list) else [None]))
    state = file.masks.find(path)
    size, version = (state.size, state.version) if state else (-1, "")
    return replace(annotations, panoptic_mask=path, segments=segments, mask_size=size, mask_version=version)


def _annotate(ref: ImageRef, entries: Sequence[tuple[Document, int]], settings: ConvertSettings) -> ImageRef:
    """Returns the reference of an image with the annotations of all files."""
    values = [(document, document.entries.read(index)) for document, index in entries]
    first, value = values[0]
    annotations = Annotations(size=size_of(value), keypoint_names=first.entries.point_names)
    objects: dict[Any, ObjectAnnotation] = {}
    for document, image in values:
        annotations = _with_document(annotations, objects, document, _id_in(image, "id"))
    if annotations.objects is not None:
        annotations = replace(annotations, objects=tuple(objects.values()))
    image_id = _id_in(value, "id") or 0  # it has an id, or `_image_of` had refused it
    message = f"image {image_id} of {printable(first.key)}"
    return image_files.annotated(ref, annotations)._replace(source_id=number_text(image_id), message=message)


SOURCE = DocumentFormat(
    name="coco",
    title="COCO",
    noun="COCO JSON",
    rule=(
        "write --input FILE.json, or name the folder with it, with annotations/ or with train/ and valid/; "
        "or write --source class_folders if folders name classes."
    ),
    entry="image",
    recognizes=_is_coco,
    open=_Coco,
    image_of=_image_of,
    annotate=_annotate,
    is_joined=True,
    begin=_begin,
    summarize=_summarize,
    leave_out=_leave_out,
    provides=frozenset({Needs.OBJECTS, Needs.PANOPTIC}),
    settings=frozenset({"image_root", "mask_dir"}),
    has_keypoints=True,
).source()
