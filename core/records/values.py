"""Reads the classes, objects, masks, captions and extra columns of records."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from shardwright.core.images.signatures import claims_to_be_image
from shardwright.core.records.record import MASK_PLACES, SourceRecord
from shardwright.schemas.annotations import Annotations, ObjectAnnotation
from shardwright.schemas.byte_range import ByteRange
from shardwright.schemas.columns import column_values, encode_extra
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.example import FeatureType
from shardwright.schemas.feature_roles import FLAGS, KEYPOINT_ROLES
from shardwright.schemas.labels import UNLABELLED, ClassId
from shardwright.schemas.layouts import FeatureRole, Layout, Needs
from shardwright.schemas.units import counted

#: Largest number of objects of an image, and of bytes of its captions and of its extra columns.
_MAX_OBJECTS, _MAX_CAPTION_BYTES, _MAX_EXTRA_BYTES = 100_000, 1 << 20, 1 << 20
#: Greater than every id that fits into a record.
_MAX_ID = 2**63

#: Function that returns the encoded place in its file of a part of a record.
PlaceOf = Callable[[ByteRange], str]


class Classes(NamedTuple):
    """Classes of an image or of objects.

    Attributes:
      names: Class names; empty for an object without a class.
      ids: Ids of the names in the record.
    """

    names: tuple[str, ...] = ()
    ids: tuple[ClassId, ...] = ()


def named(numbers: Sequence[int], texts: Sequence[str], class_names: Mapping[int, str]) -> Classes:
    """Returns the classes for numbers and texts; -1 and an empty text mean no class.

    Args:
      numbers: Class ids; may be empty.
      texts: Class names; may be empty.
      class_names: Class names by id, from a file beside the records.

    Raises:
      ValueError: If numbers and texts differ in length.
    """
    if numbers and texts and len(numbers) != len(texts):
        several = f"{counted(len(numbers), 'class id')} and {counted(len(texts), 'class name')}"
        raise ValueError(f"it has {several}")
    if not numbers:
        return Classes(tuple(texts))
    names, ids = [], []
    for class_id, text in zip(numbers, texts or [""] * len(numbers)):
        name = text or ("" if class_id == UNLABELLED else class_names.get(class_id, str(class_id)))
        names.append(name)
        if name and class_id != UNLABELLED:
            ids.append(ClassId(name, class_id))
    return Classes(tuple(names), tuple(ids))


def classes_of_image(
    record: SourceRecord, class_names: Mapping[int, str], exact: bool = False, synsets: bool = False
) -> Classes:
    """Returns the classes of a record's image.

    Args:
      record: Record to read.
      class_names: Class names by id, from a file beside the records.
      exact: Whether names are used as written, without guessing.
      synsets: Whether synset ids, if there are any, are the class names, and names their descriptions.

    Raises:
      ValueError: If the classes cannot be determined.
    """
    texts, called = record.texts(FeatureRole.LABEL_TEXT), list[str]()
    ids = record.texts(FeatureRole.SYNSET) if synsets or not any(texts) else []
    if any(ids):
        called, texts = texts, ids
    elif not exact and record.name(FeatureRole.LABEL_TEXT) == "name":  # it may be the name of a file
        texts = [] if any(map(claims_to_be_image, texts)) else texts
    label = record.name(FeatureRole.LABEL)
    kind, values = record.feature(label)
    numbers: list[int] = []
    if kind is FeatureType.BYTES and not any(texts):
        texts = record.texts(FeatureRole.LABEL)
        if any(letter < " " for text in texts for letter in text.strip()):
            raise ValueError(
                f"its feature {label!r} holds the bytes of numbers, not a class name; write it as an "
                "int64_list"
            )
    elif kind is not FeatureType.BYTES:
        # Values may be one-hot, but two whole numbers may be two classes.
        is_long = len(values) > (2 if kind is FeatureType.INT64 else 1)
        one_hot = is_long and values.count(1) == 1 and values.count(0) == len(values) - 1
        numbers = [values.index(1)] if one_hot else _whole_numbers(label, values)
    if len(texts) == 1 and len(numbers) > 1:
        texts = []
    classes = named(numbers, texts if exact else [text.strip() for text in texts], class_names)
    if called and len(called) == len(classes.names) == len(classes.ids):
        classes = classes._replace(ids=tuple(i._replace(text=text) for i, text in zip(classes.ids, called)))
    return classes._replace(names=tuple(dict.fromkeys(filter(None, classes.names))))


def _whole_numbers(name: str, values: Sequence[Any]) -> list[int]:
    """Returns class ids.

    Raises:
      ValueError: If a value is not a whole number.
    """
    for value in values:
        if value != value or value != int(value if abs(value) < _MAX_ID else 0):
            raise ValueError(f"its feature {name!r} is {value}, which is not a class id")
    return list(map(int, values))


def annotations_of(
    record: SourceRecord,
    layout: Layout,
    class_names: Mapping[int, str],
    place_of: PlaceOf,
    must: bool = True,
) -> tuple[Annotations, Classes]:
    """Returns the annotations of a record that a layout stores, and the classes of its objects.

    Args:
      record: Record to read.
      layout: Layout of the records to write.
      class_names: Class names by id, from a file beside the records.
      place_of: Function that returns the encoded place of a mask.
      must: Whether the record must have the masks that the layout needs.

    Raises:
      ValueError: If the record contradicts itself, or has no value that is needed.
    """
    roles = layout.by_role.keys()
    annotations, classes = Annotations(size=size_of(record)), Classes()
    if layout.needs is Needs.OBJECTS:
        objects, classes = _objects(record, class_names, place_of)
        annotations = replace(annotations, objects=objects, relative=True, captions=_captions(record))
        if not roles.isdisjoint(KEYPOINT_ROLES):
            annotations = _with_keypoints(annotations, record)

    places: dict[str, Any] = {}
    for role, place in MASK_PLACES.items():
        part = record.only_part(record.name(role)) if role in roles else None
        if part and part.length:
            places[place] = place_of(part)
        elif must and role in roles and role.needs is layout.needs:
            raise ValueError(f"it has no {layout.needs} mask")
    if not {"category_place", "instance_place"} <= places.keys():
        places = {name: place for name, place in places.items() if name == "semantic_place"}
    return replace(annotations, **places), classes


def size_of(record: SourceRecord) -> tuple[int, int] | None:
    """Returns the width and height in a record; None if it has none."""
    sides = [record.numbers(role) for role in (FeatureRole.WIDTH, FeatureRole.HEIGHT)]
    if all(len(side) == 1 and isinstance(side[0], int) and side[0] > 0 for side in sides):
        return sides[0][0], sides[1][0]
    return None


def _captions(record: SourceRecord) -> tuple[str, ...]:
    kind, values = record.feature(record.name(FeatureRole.CAPTION))
    captions = values if kind is FeatureType.BYTES else ()
    if sum(map(len, captions)) > _MAX_CAPTION_BYTES:
        raise ValueError(f"its captions have more than {_MAX_CAPTION_BYTES:,} bytes")
    return tuple(str(caption, "utf-8", "replace") for caption in captions)


def _objects(
    record: SourceRecord, class_names: Mapping[int, str], place_of: PlaceOf
) -> tuple[tuple[ObjectAnnotation, ...], Classes]:
    boxes, masks = boxes_of(record), record.parts_of(record.name(FeatureRole.OBJECT_MASK))
    label = record.name(FeatureRole.OBJECT_LABEL)
    numbers = _whole_numbers(label, record.numbers(FeatureRole.OBJECT_LABEL))
    classes = named(numbers, record.texts(FeatureRole.OBJECT_TEXT), class_names)
    count = len(boxes) or len(classes.names)
    if count > _MAX_OBJECTS:
        raise ValueError(f"it has {counted(count, 'object')}, more than {_MAX_OBJECTS:,}")
    lists: dict[str, Sequence[Any]] = {
        "label": classes.names,
        "box": boxes,
        "crowd": [value == 1 for value in record.numbers(FeatureRole.OBJECT_CROWD)],
        "area": record.numbers(FeatureRole.OBJECT_AREA),
        "view": [value or None for value in record.texts(FeatureRole.OBJECT_VIEW)],
        "mask_place": [place_of(part) if part.length else "" for part in masks],
        **{flag: [value == 1 for value in record.numbers(role)] for flag, role in FLAGS.items()},
    }
    for name, values in lists.items():
        if len(values) not in (0, count):
            what = name.removesuffix("_place")
            raise ValueError(
                f"it has {counted(count, 'object')} and {counted(len(values), 'value')} of {what}"
            )
    objects = (
        {"label": "", **{name: values[i] for name, values in lists.items() if values}} for i in range(count)
    )
    return tuple(ObjectAnnotation(**item) for item in objects), classes


def _with_keypoints(annotations: Annotations, record: SourceRecord) -> Annotations:
    """Returns annotations with the key points of all objects.

    Raises:
      ValueError: If the lists of key points do not fit the objects.
    """
    x, y, visibility, text = KEYPOINT_ROLES
    xs, ys, seen = map(record.numbers, (x, y, visibility))
    points, objects = record.texts(text), annotations.objects or ()
    count = len(xs)
    if not count:
        return annotations
    if any(len(values) not in (0, count) for values in (seen, points)) or len(ys) != count:
        raise ValueError("its lists of key points differ in length")
    if not objects or count % len(objects):
        raise ValueError(f"it has {counted(count, 'key point')} and {counted(len(objects), 'object')}")
    size = count // len(objects)
    if any(points[i] != points[i % size] for i in range(len(points))):
        raise ValueError("the key points of its objects have different names")
    seen = seen or [2 if math.isfinite(a) and math.isfinite(b) else 0 for a, b in zip(xs, ys)]
    # JSON has no numbers that are not finite, and the position of such a point has no meaning.
    values = [value for a, b, v in zip(xs, ys, seen) for value in ((a, b, v) if v else (0.0, 0.0, 0))]
    return replace(
        annotations,
        objects=tuple(
            replace(item, keypoints=tuple(values[3 * i * size : 3 * (i + 1) * size]))
            for i, item in enumerate(objects)
        ),
        keypoint_names=tuple(points[:size]) or tuple(map(str, range(1, size + 1))),
    )


def boxes_of(record: SourceRecord) -> list[tuple[float, float, float, float]]:
    """Returns xmin, ymin, xmax, ymax of every box, relative to the image size.

    Raises:
      ValueError: If the corners of boxes are missing.
    """
    roles = record.names.boxes
    lists = [record.numbers(role) for role in roles]
    if len(lists) == 4:
        if len(set(map(len, lists))) > 1:
            lengths = ", ".join(str(len(values)) for values in lists)
            raise ValueError(f"its lists of box corners differ in length ({lengths})")
        return list(zip(*lists, strict=True))
    values = lists[0] if lists else ()
    if len(values) % 4:
        raise ValueError(f"the {len(values)} numbers of its feature {record.name(roles[0])!r} are not boxes")
    corners = zip(values[::4], values[1::4], values[2::4], values[3::4], strict=True)
    return [(xmin, ymin, xmax, ymax) for ymin, xmin, ymax, xmax in corners]


def extra_of(record: SourceRecord, columns: Mapping[str, str], settings: ConvertSettings) -> str:
    """Returns a record's values of the extra columns, encoded for a reference; empty if there are none.

    Args:
      record: Record to read.
      columns: Mapping of column to feature, for columns whose feature has another name.
      settings: Checked settings.

    Raises:
      ValueError: If a needed value is missing or has the wrong type.
    """
    extra = settings.parsed_extra_columns
    values: dict[str, list[Any]] = {}
    size = 0
    for column in extra:
        name = columns.get(column.name, column.name)
        size += record.features[name].ByteSize() if name in record.features else 0
        if size > _MAX_EXTRA_BYTES:
            raise ValueError(f"its extra columns have more than {_MAX_EXTRA_BYTES:,} bytes")
        cell: Any = list(record.feature(name).values)
        if not column.is_list:
            cell = cell[0] if len(cell) == 1 else cell or None
        values[column.name] = column_values(column, cell, settings.label_separator)
    return encode_extra(values) if extra else ""
