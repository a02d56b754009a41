"""Label Studio: exports as JSON and JSON-MIN, an array with an entry for each task.

Shapes are in percent of the image as a browser shows it, with its EXIF orientation applied. A rectangle turns
clockwise around its upper left corner.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from shardwright.core import storage
from shardwright.core.images.signatures import is_image_name
from shardwright.core.sources import shapes
from shardwright.core.sources.annotation_files import AnnotationFault, faults_in, first_item
from shardwright.core.sources.documents import Document, DocumentFormat, ImagePaths
from shardwright.core.sources.image_files import annotated, class_name, is_text, labelled, number
from shardwright.schemas.annotations import Annotations, ObjectAnnotation
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.layouts import Needs

_ANNOTATIONS = ("annotations", "completions")
#: Fields of JSON-MIN that are about the task, not its data or results.
_ABOUT_TASK = frozenset(
    {"id", "annotator", "annotation_id", "created_at", "updated_at", "lead_time", "agreement", "sentiment"}
)
_IMAGE_FIELDS = ("image", "img", "image_url", "url", "photo", "picture")
#: Kinds of results with shapes that are read, and with shapes that are not.
_SHAPES = ("rectanglelabels", "polygonlabels", "ellipselabels", "labels")
_LEFT_OUT = ("brushlabels", "bitmasklabels", "keypointlabels", "vectorlabels", "videorectangle")
_CHOICES = "choices"
#: What Label Studio puts before the name of an uploaded file.
_UPLOAD = re.compile(r"[0-9a-f]{8}-(?=.)")
_LOCAL_FILES = "/data/local-files/"
#: A result of a task, with `from_name`, the name of its control, and `value`.
_Result = Mapping[str, Any]


def _is_task(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("data"), dict)


def _is_export(entry: Any) -> bool:
    """Returns whether an entry is a task of Label Studio with an image."""
    if _is_task(entry):
        results = (entry.get(name) for name in (*_ANNOTATIONS, "predictions"))
        return any(isinstance(items, list) for items in results) and bool(_image_field(entry["data"], ""))
    is_short = isinstance(entry, dict) and {"annotation_id", "annotator"} <= entry.keys()
    return is_short and bool(_image_field(entry, ""))


def _image_field(data: Mapping[str, Any], named: str) -> str:
    """Returns the field with the image's path; empty if there is none, or several could be."""
    if named:
        return named if is_text(data.get(named)) else ""
    usual = [name for name in _IMAGE_FIELDS if is_text(data.get(name))]
    texts = [name for name, value in data.items() if is_text(value) and is_image_name(_plain_path(value))]
    return (usual or texts)[0] if usual or len(texts) == 1 else ""


def _plain_path(value: str) -> str:
    """Returns the path in a URL: without its host, query and escapes.

    >>> _plain_path("/data/local-files/?d=photos/a%20cat.jpg")
    'photos/a cat.jpg'
    """
    if "://" not in value and not value.startswith("/data/"):
        return value
    try:
        url = urlsplit(value)
    except ValueError:  # some other text that begins like a URL, or one with a wrong host
        return value
    if _LOCAL_FILES in value:
        return parse_qs(url.query).get("d", [""])[0] or value
    return unquote(url.path).lstrip("/")


def paths_of(value: str) -> tuple[str, ...]:
    """Returns the relative paths that an image may have after an export, the likeliest first.

    >>> paths_of("/data/upload/1a2b3c4d-cat.jpg")
    ('upload/1a2b3c4d-cat.jpg', '1a2b3c4d-cat.jpg', 'cat.jpg')
    """
    parts = _plain_path(value).removeprefix("data/").split("/")
    inner = ["/".join(parts[begin:]) for begin in range(len(parts))]
    return tuple(dict.fromkeys(filter(None, (*inner, _UPLOAD.sub("", parts[-1], count=1)))))


def _image_of(entry: Any, settings: ConvertSettings) -> ImagePaths:
    data = entry["data"] if _is_task(entry) else entry if isinstance(entry, dict) else {}
    field = _image_field(data, settings.image_column)
    value = data[field].strip() if field else ""
    paths = paths_of(value)
    if not paths:
        raise AnnotationFault("it names no image, or several; name the field with --image_column")
    return ImagePaths(value, paths, value if storage.is_remote(value) else "")


def _results(entry: Mapping[str, Any], settings: ConvertSettings) -> list[_Result] | None:
    """Returns the results of a task in the form of JSON exports; None if nobody has annotated it.

    Raises:
      AnnotationFault: If several annotations could be meant.
    """
    if not _is_task(entry):
        return list(_short_results(entry, settings))
    annotations = next((items for name in _ANNOTATIONS if isinstance(items := entry.get(name), list)), [])
    valid = [item for item in annotations if isinstance(item, dict) and not item.get("was_cancelled")]
    truth = [item for item in valid if item.get("ground_truth") is True]
    if len(valid) > 1 and len(truth) != 1:
        raise AnnotationFault(
            f"it has {len(valid)} annotations; mark one of them as ground truth, or delete the others"
        )
    if not valid:
        return None
    results = (truth if len(valid) > 1 else valid)[0].get("result")
    items = results if isinstance(results, list) else []
    return [item for item in items if isinstance(item, dict) and isinstance(item.get("value"), dict)]


def _short_results(entry: Mapping[str, Any], settings: ConvertSettings) -> Iterator[_Result]:
    """Yields the results of a JSON-MIN entry, whose fields have the names of the controls."""
    image = _image_field(entry, settings.image_column)
    for name, value in entry.items():
        if name in _ABOUT_TASK or name == image:
            continue
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                yield {**item, "from_name": name, "value": item}
            elif is_text(item) and (name == settings.label_column or name in ("choice", "choices", "label")):
                yield {"from_name": name, "value": {_CHOICES: [item]}}


def objects_of(results: Sequence[_Result]) -> Annotations:
    """Returns the shapes of a task as objects, in shares of the upright image.

    Raises:
      AnnotationFault: If a shape is wrong, or only kinds of shapes are present that are not read.
    """
    objects: list[ObjectAnnotation] = []
    for place, result in enumerate(results):
        value = result["value"]
        kind = next((kind for kind in _SHAPES if isinstance(value.get(kind), list)), "")
        if not kind:
            continue
        if number(result.get("image_rotation")):
            raise AnnotationFault("its image was rotated in Label Studio, so that its shapes do not fit")
        with faults_in(f"result {place}"):
            box, outline = _shape(result)
        if box is not None:
            labels = map(class_name, value[kind] or [""])
            objects += [ObjectAnnotation(label, box, segmentation=outline) for label in labels]
    others = [kind for result in results for kind in _LEFT_OUT if kind in result["value"]]
    if others and not objects:
        raise AnnotationFault(f"it only has {others[0]}, which are not read")
    return Annotations(objects=tuple(objects), relative=True, upright=True)


def _shape(result: _Result) -> tuple[shapes.Box | None, shapes.Outline | None]:
    """Returns box and outline of a shape, in shares; (None, None) for labels of something else.

    Raises:
      ValueError: If its numbers are wrong.
    """
    value = result["value"]
    if "points" in value:
        return shapes.polygon([side / 100 for side in shapes.corners_of(value["points"])])
    is_round = "radiusX" in value
    if not is_round and not {"width", "height"} <= value.keys():
        return None, None
    names = ("x", "y", "radiusX", "radiusY") if is_round else ("x", "y", "width", "height")
    sides = shapes.numbers_of(value, names)
    angle = number(value.get("rotation")) or 0.0
    # Angles are true only in pixels, because the sides of the image have different units.
    units = shapes.size_of(result, ("original_width", "original_height")) if angle else (1, 1)
    if units is None:
        raise ValueError("it is rotated, but original_width and original_height of the image are missing")
    x, y, width, height = (side / 100 * units[place % 2] for place, side in enumerate(sides))
    if is_round:
        box, outline = shapes.ellipse(x, y, width, height, angle)
    else:
        box, outline = shapes.rectangle((x, y, x + width, y + height), angle, around=(x, y))
    left, top, right, lower = (side / units[place % 2] for place, side in enumerate(box))
    corners = [side / units[place % 2] for place, side in enumerate(outline[0])] if outline else []
    return (left, top, right, lower), [corners] if corners else None


def classes_of(results: Sequence[_Result], control: str) -> list[str]:
    """Returns the choices for the whole image.

    Args:
      results: Results of a task.
      control: Control whose choices are meant; empty for the only one.

    Raises:
      AnnotationFault: If several controls have choices.
    """
    by_control: dict[str, list[str]] = {}
    for result in results:
        choices, name = result["value"].get(_CHOICES), str(result.get("from_name", ""))
        # Choices for a region have its position.
        if isinstance(choices, list) and "x" not in result["value"] and control in ("", name):
            by_control.setdefault(name, []).extend(filter(None, map(class_name, choices)))
    if len(by_control) > 1:
        controls = " and ".join(sorted(by_control)[:3])
        raise AnnotationFault(f"it has choices of {controls}; name one of them with --label_column")
    return [*dict.fromkeys(name for names in by_control.values() for name in names)]


def _annotate(ref: ImageRef, entry: Mapping[str, Any], settings: ConvertSettings) -> ImageRef:
    results = _results(entry, settings)
    has_classes = settings.record_layout.needs is Needs.LABEL
    if results is None and (has_classes or settings.missing_annotations != "empty"):
        why = "it was skipped" if any(entry.get(name) for name in _ANNOTATIONS) else "nobody has annotated it"
        hint = "" if has_classes else " (--missing_annotations empty stores it without objects)"
        raise AnnotationFault(why + hint)
    if has_classes:
        return labelled(ref, classes_of(results or (), settings.label_column), "choices", settings)
    return annotated(ref, objects_of(results or ()))


def _summarize(document: Document, entries: Sequence[Any], settings: ConvertSettings) -> str:
    """Returns the kinds of annotations in a file that are left out, judged by its first tasks.

    Raises:
      UsageError: If the tasks have other annotations than the layout stores.
    """
    kinds: set[str] = set()
    for entry in entries:
        with contextlib.suppress(AnnotationFault):
            for result in (_results(entry, settings) if isinstance(entry, dict) else None) or ():
                kinds.update(result["value"].keys() & {*_SHAPES, *_LEFT_OUT, _CHOICES})
    has_classes = settings.record_layout.needs is Needs.LABEL
    left_out = kinds - ({_CHOICES} if has_classes else {*_SHAPES})
    if kinds and left_out == kinds:
        lacks = "choices" if has_classes else "rectangles, polygons or ellipses"
        fitting = "detection" if has_classes else "classification for choices, or export other shapes as COCO"
        raise UsageError(
            f"--layout {settings.record_layout.name}: the first tasks of {document.path} have "
            f"{' and '.join(sorted(kinds))}, but no {lacks}; choose --layout {fitting}."
        )
    return f"; left out: {', '.join(sorted(left_out))}" if left_out else ""


SOURCE = DocumentFormat(
    name="label_studio",
    title="Label Studio",
    noun="Label Studio JSON",
    entry="task",
    recognizes=lambda head, *_: _is_export(first_item(head)),
    image_of=_image_of,
    is_beside=True,
    annotate=_annotate,
    summarize=_summarize,
    provides=frozenset({Needs.OBJECTS, Needs.LABEL}),
    settings=frozenset(
        {"image_root", "image_column", "label_column", "label_separator", "missing_annotations"}
    ),
).source()
