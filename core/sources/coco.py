"""COCO's JSON files of instances, captions and panoptic segments, and folders of such files."""

from __future__ import annotations

import contextlib
import io
import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import IO, Any

from shardwright.core import storage
from shardwright.core.sources.annotation_files import AnnotationFault
from shardwright.core.sources.documents import (
    Document,
    DocumentFile,
    DocumentFormat,
    ImagePaths,
    usual_folders,
)
from shardwright.core.sources.file_states import FileStates
from shardwright.core.sources.files_beside import stem_of
from shardwright.core.sources.image_files import (
    annotated,
    class_name,
    folder_of,
    inner_path,
    is_folder,
    is_text,
    join,
    number,
    parent_of,
)
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.json_stream import Item, JsonFault, JsonItems, stream_object
from shardwright.core.sources.moved_files import file_name
from shardwright.schemas.annotations import Annotations, ObjectAnnotation, PanopticSegment
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.feature_roles import KEYPOINT_ROLES
from shardwright.schemas.image_ref import ImageRef, printable
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import FeatureRole, Needs
from shardwright.schemas.source_ids import number_text

#: Keys of annotations that describe objects, and all keys that identify their kind.
_OBJECT_KEYS = {"category_id", "bbox"}
_KINDS = {"segments_info", "caption", "keypoints", *_OBJECT_KEYS}
_FIRST_IMAGES = 5

Id = int | str


def id_of(value: Any) -> Id | None:
    """Returns a normalized id, so that both sides of a reference match; None if it is not an id."""
    if isinstance(value, str):
        return value or None
    found = number(value)
    return None if found is None or found != int(found) else int(found)


class _Coco(JsonItems):
    """The images of a file, and all that the file says about them.

    Attributes:
      annotations: All annotations.
      of_image: Id of an image -> its annotations.
      ids: Ids of the images.
      twice: Ids that several images have.
      strays: Annotations without the id of an image -> the fault.
      kinds: Keys of the annotations that identify their kind.
      categories: Category id -> class name.
      stuff: Ids of the categories that are not things (`isthing` of panoptic segments).
      points: Category id -> names of its key points.
      point_names: Names of the key points that every object of a record has.
      masks: Folder of the panoptic masks; empty if they are not stored.
      mask_states: States of these masks.
    """

    def __init__(self, file: IO[bytes], source: DocumentFile, settings: ConvertSettings) -> None:
        super().__init__(file)
        self.annotations = JsonItems(file)
        self.of_image: dict[Id, array[int]] = {}
        self.ids: set[Id] = set()
        self.twice: set[Id] = set()
        self.strays: dict[int, str] = {}
        self.kinds: set[str] = set()
        self.categories: dict[Id | None, str] = {}
        self.stuff: set[Id] = set()
        self.points: dict[Id | None, tuple[str, ...]] = {}
        self.point_names: tuple[str, ...] = ()
        self._has_objects = settings.record_layout.needs is Needs.OBJECTS
        self.masks = _masks_of(source, settings)

    def scan(self) -> Iterator[Any]:
        """Yields the entries of all images, and notes the rest of the file.

        Raises:
          AnnotationFault: If it is not COCO's JSON, or is incomplete; the message says what is wrong.
        """
        has_images = False
        try:
            for item in stream_object(self._file):
                if item.name == "images" and not item.length:
                    has_images = True
                elif item.name == "images":
                    self._add_image(item)
                    yield item.value
                elif item.name == "categories" and isinstance(item.value, dict):
                    self._add_category(item.value)
                elif item.name == "annotations" and item.length:
                    self._add_annotation(item)
        except JsonFault as fault:
            raise AnnotationFault(
                f"it is not a complete JSON object: {fault}; fetch it again or fix it"
            ) from None
        if not has_images:
            raise AnnotationFault("it is not COCO JSON: it has no array of images; name another file")
        if self._has_objects and "category_id" in self.kinds and not self.categories:
            raise AnnotationFault("it names no categories; add an array of categories with id and name")
        self.mask_states = FileStates(self.masks, len(self.ids) if self.masks else 0)

    def _add_image(self, item: Item) -> None:
        self.add(item)
        found = id_of(item.value.get("id")) if isinstance(item.value, dict) else None
        if found in self.ids:
            self.twice.add(found)
        elif found is not None:
            self.ids.add(found)

    def _add_annotation(self, item: Item) -> None:
        index, value = len(self.annotations), item.value
        self.annotations.add(item)
        image = id_of(value.get("image_id")) if isinstance(value, dict) else None
        if image is None:
            self.strays[index] = "it has no image_id" if isinstance(value, dict) else "it is not an object"
        else:
            self.kinds.update(value.keys() & _KINDS)
            self.of_image.setdefault(image, array("q")).append(index)

    def _add_category(self, value: Mapping[str, Any]) -> None:
        """Adds a category; a category without an id or a name is ignored."""
        found, name = id_of(value.get("id")), class_name(value.get("name"))
        if found is None or not name:
            return
        if self.categories.setdefault(found, name) != name:
            raise AnnotationFault(f"the category id {found!r} stands for two names; fix its categories")
        points = value.get("keypoints")
        if isinstance(points, list) and points and all(isinstance(point, str) for point in points):
            self.points[found] = tuple(points)
        if value.get("isthing", 1) in (0, False):
            self.stuff.add(found)

    def annotations_of(self, image: Id) -> Iterator[Any]:
        """Yields the annotations of an image."""
        return map(self.annotations.read, self.of_image.get(image, ()))

    def orphans(self) -> Iterator[tuple[int, str]]:
        """Yields number and fault of the annotations without an image."""
        yield from self.strays.items()
        for image, indexes in self.of_image.items():
            if image not in self.ids:
                yield from ((index, f"no image has its image_id {image!r}") for index in indexes)

    def category_of(self, value: Mapping[str, Any]) -> str:
        """Returns the name of a category; empty if no category has that id."""
        return self.categories.get(id_of(value.get("category_id")), "")

    def object_of(self, value: Mapping[str, Any]) -> ObjectAnnotation:
        """Returns an object; an invalid box becomes one that the settings handle as invalid."""
        outline = value.get("segmentation")
        return ObjectAnnotation(
            label=self.category_of(value),
            box=_box(value.get("bbox")),
            crowd=_is_true(value.get("iscrowd")),
            area=number(value.get("area")),
            segmentation=outline if outline and isinstance(outline, list | dict) else None,
            keypoints=self.keypoints_of(value),
        )

    def segment_of(self, value: Any) -> PanopticSegment:
        """Returns a segment of a panoptic mask."""
        found = id_of(value.get("id")) if isinstance(value, dict) else None
        if not isinstance(found, int):
            raise AnnotationFault("one of its segments has no id")
        thing = id_of(value.get("category_id")) not in self.stuff
        return PanopticSegment(found, self.category_of(value), _is_true(value.get("iscrowd")), thing)

    def keypoints_of(self, value: Mapping[str, Any]) -> tuple[float, ...] | None:
        """Returns x, y and visibility of each named key point; None if the object has none.

        Points that its category does not have are not labelled. If the number of values is wrong, the result
        has a wrong length, so that the settings handle the object as invalid.
        """
        coordinates = value.get("keypoints")
        if not self.point_names or not coordinates:
            return None
        own = self.points.get(id_of(value.get("category_id")), ())
        if not isinstance(coordinates, list) or len(coordinates) != 3 * len(own):
            return (math.nan,)
        numbers = [math.nan if (side := number(item)) is None else side for item in coordinates]
        points = {name: numbers[3 * i : 3 * i + 3] for i, name in enumerate(own)}
        return tuple(item for name in self.point_names for item in points.get(name, (0.0, 0.0, 0.0)))


def _is_true(value: Any) -> bool:
    return value is True or bool(number(value))


def _box(value: Any) -> tuple[float, float, float, float] | None:
    """Returns xmin, ymin, xmax, ymax of COCO's x, y, width, height; not numbers if these are wrong."""
    if value is None or value == []:
        return None
    sides = [number(side) for side in value] if isinstance(value, list) else []
    left, upper, width, height = sides if len(sides) == 4 and None not in sides else [math.nan] * 4
    return left, upper, left + width, upper + height  # type: ignore[operator,return-value]


# Which files of a folder are read


def _items_in(head: bytes) -> Iterator[Item]:
    """Yields the items that are complete in the first bytes of a file."""
    with contextlib.suppress(JsonFault):
        yield from stream_object(io.BytesIO(head))


def _is_coco(head: bytes) -> bool:
    """Returns whether a file begins like COCO's JSON: an object with images or annotations."""
    keys = {"images": {"id", "file_name"}, "annotations": {"image_id"}}
    return any(
        item.name in keys and isinstance(item.value, dict) and keys[item.name] <= item.value.keys()
        for item in _items_in(head)
    )


def _first_images(head: bytes) -> list[Any]:
    """Returns the entries of the first images; none if the file begins with annotations."""
    images = (item.value for item in _items_in(head) if item.name == "images" and item.length)
    return [*islice(images, _FIRST_IMAGES)]


def _stores_panoptic(settings: ConvertSettings) -> bool:
    roles = settings.record_layout.by_role().keys()
    return FeatureRole.PANOPTIC_CATEGORY in roles or FeatureRole.PANOPTIC_INSTANCE in roles


def _stores_key_points(settings: ConvertSettings) -> bool:
    return not settings.record_layout.by_role().keys().isdisjoint(KEYPOINT_ROLES)


def _leave_out(probe: InputProbe, names: Sequence[str], settings: ConvertSettings) -> dict[str, str]:
    """Returns file -> why it is left out, judged by COCO's own file names."""
    layout = settings.record_layout
    panoptic = [name for name in names if "panoptic" in name]
    others = [name for name in names if "panoptic" not in name]
    if layout.needs is Needs.PANOPTIC and panoptic:
        return dict.fromkeys(others, f"--layout {layout.name} stores panoptic segments only")
    left_out = {}
    for name in panoptic if others else ():
        partners = [name.replace("panoptic", kind) for kind in ("instances", "captions")]
        if not _stores_panoptic(settings):
            left_out[name] = f"--layout {layout.name} stores no panoptic segments"
        elif not _mask_folder(storage.join(probe.path, name), settings):
            left_out[name] = "there is no folder with its masks; name it with --mask_dir"
        elif len(others) > 1 and not {*partners} & {*others}:
            left_out[name] = f"there is no {file_name(partners[0])}"
    # Files of key points and of stuff repeat the same objects with fewer details.
    repeating = {"stuff": "its objects are in the other files"}
    if not _stores_key_points(settings):
        repeating["person_keypoints"] = "--layout keypoints stores them"
    for kind, why in repeating.items():
        instances = {name: name.replace(f"{kind}_", "instances_") for name in others if f"{kind}_" in name}
        left_out |= {name: why for name, instance in instances.items() if instance in others}
    return left_out


def _mask_folder(path: str, settings: ConvertSettings) -> str:
    """Returns the folder with the panoptic masks of a JSON file; empty if there is none."""
    stem, named, here = stem_of(file_name(path)), settings.mask_dir.rstrip("/"), folder_of(path)
    places = [join(named, stem), named] if named else [join(here, stem), join(parent_of(here), stem)]
    return next(filter(is_folder, places), "")


def _masks_of(file: DocumentFile, settings: ConvertSettings) -> str:
    """Returns the folder with the panoptic masks of a file; empty if the layout does not store them."""
    required = settings.record_layout.needs is Needs.PANOPTIC
    if not required and not (_stores_panoptic(settings) and "panoptic" in file.key):
        return ""
    found = _mask_folder(file.path, settings)
    if required and not found:
        raise UsageError(
            f"--input {printable(file.path)}: the folder with its masks is not beside it; name the folder "
            "with --mask_dir."
        )
    return found


def _summarize(file: DocumentFile, images: Sequence[Any], settings: ConvertSettings) -> str:
    masks = _masks_of(file, settings)
    return f", masks in {printable(masks)}" if masks else ""


# What the files say


def _begin(
    documents: Sequence[Document], settings: ConvertSettings
) -> Iterator[ClassId | tuple[Document, str, str]]:
    """Yields the ids of classes, and the annotations without an image.

    Raises:
      UsageError: If the files have no annotations of the kind that the layout stores.
    """
    files: list[_Coco] = [document.entries for document in documents]  # type: ignore[misc]
    path, layout = printable(documents[0].file.path), settings.record_layout
    kinds = set().union(*(file.kinds for file in files))
    needs_segments = layout.needs is Needs.PANOPTIC
    if "segments_info" not in kinds if needs_segments else kinds == {"segments_info"}:
        only, fitting = ("no", "detection") if needs_segments else ("only", "panoptic")
        raise UsageError(
            f"--layout {layout.name}: {path} has {only} panoptic segments; choose --layout {fitting}."
        )
    names: tuple[str, ...] = ()
    if _stores_key_points(settings):
        points = (points for file in files for points in file.points.values())
        names = tuple(dict.fromkeys(name for several in points for name in several))
        spec = layout.by_role().get(FeatureRole.KEYPOINT_X)
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
        file.point_names = names
        yield from (ClassId(name, found) for found, name in file.categories.items() if isinstance(found, int))
        for index, why in file.orphans():
            yield document, f"annotation {index + 1}", why


def _image_of(value: Any, settings: ConvertSettings) -> ImagePaths:
    if not isinstance(value, dict):
        raise AnnotationFault("its entry is not an object")
    if id_of(value.get("id")) is None:
        raise AnnotationFault("its entry has no id")
    name = value.get("file_name")
    if not isinstance(name, str) or not name:
        raise AnnotationFault("its entry has no file_name")
    return ImagePaths(name, (name,), is_path=bool(inner_path(name)))


def _size_of(values: Mapping[str, Any]) -> tuple[int, int] | None:
    """Returns the width and height of an image's entry; None if it gives none, or 0."""
    sides = []
    for side in ("width", "height"):
        value = values.get(side)
        found = 0.0 if value is None else number(value)
        if found is None or found != int(found):
            raise AnnotationFault(f"its {side} is {value!r}")
        sides.append(int(found))
    return (sides[0], sides[1]) if min(sides) > 0 else None


class _Image:
    """What several files say about one image.

    Attributes:
      objects: Objects by the id of their annotation; one without an id has a key of its own. None if no file
        lists objects.
      captions: Captions.
      mask: Panoptic mask; None if there is none.
      segments: Segments of the mask.
    """

    def __init__(self) -> None:
        self.objects: dict[Any, ObjectAnnotation] | None = None
        self.captions: list[str] = []
        self.mask: storage.StoredObject | None = None
        self.segments: tuple[PanopticSegment, ...] = ()

    def add(self, document: Document, image: Id, has_objects: bool) -> None:
        """Adds what a file says.

        Raises:
          AnnotationFault: If it cannot be used.
          UsageError: If two files describe the same objects.
        """
        file: _Coco = document.entries  # type: ignore[assignment]
        if image in file.twice:
            raise AnnotationFault(
                "another image has the same id, so its annotations may belong to the other image"
            )
        if has_objects and (file.kinds & _OBJECT_KEYS or not file.kinds):
            if self.objects and file.kinds:
                self._add_key_points(document, file, image)
                return
            self.objects = self.objects or {}
        for value in file.annotations_of(image):
            if "segments_info" in value:
                if file.masks:
                    self._add_segments(value, file)
            elif "caption" in value and not _OBJECT_KEYS & value.keys():
                if not is_text(value["caption"]):
                    raise AnnotationFault("one of its captions is not text")
                self.captions.append(value["caption"].strip())
            elif self.objects is not None:
                found = id_of(value.get("id"))
                key = (len(self.objects),) if found is None or found in self.objects else found
                self.objects[key] = file.object_of(value)

    def _add_key_points(self, document: Document, file: _Coco, image: Id) -> None:
        """Adds the key points of a file that repeats the objects of another file."""
        assert self.objects is not None
        if not file.point_names or "person_keypoints" not in document.file.key:
            raise UsageError(
                f"--input {printable(document.file.path)} and another JSON file both list the objects of the "
                "same images; name one of them as --input."
            )
        for value in file.annotations_of(image):
            found = id_of(value.get("id"))
            if found not in self.objects:
                raise AnnotationFault(f"no object has the id {found!r} of its key points")
            self.objects[found] = replace(self.objects[found], keypoints=file.keypoints_of(value))

    def _add_segments(self, value: Mapping[str, Any], file: _Coco) -> None:
        if self.mask:
            raise AnnotationFault("it has two panoptic masks")
        name = value.get("file_name")
        mask = inner_path(name) if isinstance(name, str) else ""
        if not mask:
            raise AnnotationFault(
                f"the file_name {name!r} of its mask is not a file in the folder of the masks"
            )
        path, infos = join(file.masks, mask), value["segments_info"]
        segments = infos if isinstance(infos, list) else [None]
        self.segments = tuple(map(file.segment_of, segments))
        self.mask = file.mask_states.find(path) or storage.StoredObject(path, -1, "")


def _join(ref: ImageRef, entries: Sequence[tuple[Document, int]], settings: ConvertSettings) -> ImageRef:
    """Returns the reference of an image with the annotations of all files."""
    found = _Image()
    values = [(document, document.entries.read(index)) for document, index in entries]
    for document, value in values:
        found.add(document, _id_of_image(value), settings.record_layout.needs is Needs.OBJECTS)
    first, value = values[0]
    mask = found.mask or storage.StoredObject("", -1, "")
    annotations = Annotations(
        objects=None if found.objects is None else tuple(found.objects.values()),
        size=_size_of(value),
        captions=tuple(found.captions),
        panoptic_mask=mask.path,
        segments=found.segments,
        mask_size=mask.size,
        mask_version=mask.version,
        keypoint_names=first.entries.point_names,  # type: ignore[attr-defined]
    )
    image_id = _id_of_image(value)
    message = f"image {image_id} of {printable(first.file.key)}"
    return annotated(ref, annotations)._replace(source_id=number_text(image_id), message=message)


def _id_of_image(value: Mapping[str, Any]) -> Id:
    found = id_of(value["id"])
    assert found is not None  # `_image_of` checked it
    return found


SOURCE = DocumentFormat(
    name="coco",
    title="COCO",
    expected=(
        "write --input FILE.json, or name the folder with it, with annotations/ or with train/ and valid/; "
        "or write --source class_folders if folders name classes"
    ),
    noun="image",
    recognizes=_is_coco,
    first=_first_images,
    open=_Coco,
    image_of=_image_of,
    annotate=lambda ref, entry, settings: ref,
    join=_join,
    begin=_begin,
    summarize=_summarize,
    roots=usual_folders,
    leave_out=_leave_out,
    provides=frozenset({Needs.OBJECTS, Needs.PANOPTIC}),
    settings=frozenset({"image_root", "mask_dir"}),
    has_keypoints=True,
).source()
