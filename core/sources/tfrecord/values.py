"""Reads the classes, objects, masks, captions and extra columns of records."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from shardwright.core.images.signatures import claims_to_be_image
from shardwright.core.sources.tfrecord.record import FeatureNames, SourceRecord
from shardwright.schemas.annotations import Annotations, ObjectAnnotation
from shardwright.schemas.columns import ExtraColumn, column_values, encode_extra
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.example import FeatureType, Span
from shardwright.schemas.feature_roles import KEYPOINT_ROLES
from shardwright.schemas.labels import UNLABELLED, ClassId
from shardwright.schemas.layouts import FeatureRole, Layout, Needs
from shardwright.schemas.tensor_proto import parse_tensor
from shardwright.schemas.units import counted

#: Largest number of objects of an image, and of bytes of its captions and of its extra columns.
_MAX_OBJECTS, _MAX_CAPTION_BYTES, _MAX_EXTRA_BYTES = 100_000, 1 << 20, 1 << 20
#: Greater than every id that fits into a record.
_MAX_ID = 2**63
_FLAGS = {
    "difficult": FeatureRole.OBJECT_DIFFICULT,
    "truncated": FeatureRole.OBJECT_TRUNCATED,
    "occluded": FeatureRole.OBJECT_OCCLUDED,
    "group_of": FeatureRole.OBJECT_GROUP_OF,
    "depiction": FeatureRole.OBJECT_DEPICTION,
}

#: Function that returns the encoded `ByteRange` of a value, given the feature and the span.
PlaceOf = Callable[[str, Span], str]


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
    for number, text in zip(numbers, texts or [""] * len(numbers)):
        name = text or ("" if number == UNLABELLED else class_names.get(number, str(number)))
        names.append(name)
        if name and number != UNLABELLED:
            ids.append(ClassId(name, number))
    return Classes(tuple(names), tuple(ids))


def classes_of_image(
    record: SourceRecord,
    names: FeatureNames,
    class_names: Mapping[int, str],
    exact: bool = False,
    synsets: bool = False,
) -> Classes:
    """Returns the classes of a record's image.

    Args:
      record: Record to read.
      names: Roles of its features.
      class_names: Class names by id, from a file beside the records.
      exact: Whether names are used as written, without guessing.
      synsets: Whether synset ids, if there are any, are the class names, and names their descriptions.

    Raises:
      ValueError: If the classes cannot be determined.
    """
    numbers: list[int] = []
    label, text, synset = map(names.name, (FeatureRole.LABEL, FeatureRole.LABEL_TEXT, FeatureRole.SYNSET))
    texts, called = record.texts(text), list[str]()
    ids = record.texts(synset) if synsets or not any(texts) else []
    if any(ids):
        called, texts = texts, ids
    elif text == "name" and not exact and any(map(claims_to_be_image, texts)):  # the name of a file
        texts = []
    feature = record.feature(label)
    if feature.type is FeatureType.BYTES:
        texts = texts if any(texts) else _plain(label, record.texts(label))
    elif label:
        numbers = _class_numbers(label, feature.values, feature.type)
        if feature.type is FeatureType.FLOAT and len(texts) != len(numbers):
            texts = []
    if len(texts) == 1 and len(numbers) > 1:
        texts = []
    found = named(numbers, texts if exact else [text.strip() for text in texts], class_names)
    if called and len(called) == len(found.names) == len(found.ids):
        found = found._replace(ids=tuple(i._replace(text=text) for i, text in zip(found.ids, called)))
    return found._replace(names=tuple(dict.fromkeys(filter(None, found.names))))


def _plain(name: str, texts: list[str]) -> list[str]:
    """Returns the texts after a check that they are not numbers stored as bytes.

    Raises:
      ValueError: If a text is a number stored as bytes.
    """
    if any(letter < " " for text in texts for letter in text.strip()):
        raise ValueError(
            f"its feature {name!r} holds the bytes of numbers, not a class name; write it as an int64_list"
        )
    return texts


def _class_numbers(name: str, values: Sequence[Any], kind: FeatureType | None) -> list[int]:
    """Returns class ids; for one-hot values, the position of the 1.

    Raises:
      ValueError: If a value is not a whole number.
    """
    fewest = 3 if kind is FeatureType.INT64 else 2  # two whole numbers may be two classes
    if len(values) >= fewest and values.count(1) == 1 and values.count(0) == len(values) - 1:
        return [values.index(1)]
    for value in values:
        if value != value or value != int(value if abs(value) < _MAX_ID else 0):
            raise ValueError(f"its feature {name!r} is {value}, which is not a class id")
    return list(map(int, values))


def annotations_of(
    record: SourceRecord,
    names: FeatureNames,
    layout: Layout,
    class_names: Mapping[int, str],
    place_of: PlaceOf,
    must: bool = True,
) -> tuple[Annotations, Classes]:
    """Returns the annotations of a record that a layout stores, and the classes of its objects.

    Args:
      record: Record to read.
      names: Roles of its features.
      layout: Layout of the records to write.
      class_names: Class names by id, from a file beside the records.
      place_of: Function that returns the encoded byte range of a mask.
      must: Whether the record must have the masks that the layout needs.

    Raises:
      ValueError: If the record contradicts itself, or has no value that is needed.
    """
    roles = layout.by_role().keys()
    found, classes = Annotations(size=_size(record, names)), Classes()
    if layout.needs is Needs.OBJECTS:
        objects, classes = _objects(record, names, class_names, place_of)
        found = replace(found, objects=objects, relative=True, captions=_captions(record, names))
        if not roles.isdisjoint(KEYPOINT_ROLES):
            found = _with_keypoints(found, record, names)

    def mask(role: FeatureRole, needs: Needs, what: str) -> str:
        """Returns the encoded byte range of a mask; empty if it is missing."""
        span = record.only_bytes(names.name(role))
        if span and span.begin < span.end:
            return place_of(names.name(role), span)
        if must and layout.needs is needs:
            raise ValueError(f"it has no {what}")
        return ""

    if FeatureRole.SEMANTIC_MASK in roles:
        place = mask(FeatureRole.SEMANTIC_MASK, Needs.SEMANTIC, "mask with the class of every pixel")
        found = replace(found, semantic_place=place)
    panoptic = (FeatureRole.PANOPTIC_CATEGORY, FeatureRole.PANOPTIC_INSTANCE)
    if not roles.isdisjoint(panoptic):
        what = "panoptic masks of categories and instances"
        category, instance = (mask(role, Needs.PANOPTIC, what) for role in panoptic)
        if category and instance:
            found = replace(found, category_place=category, instance_place=instance)
    return found, classes


def _size(record: SourceRecord, names: FeatureNames) -> tuple[int, int] | None:
    """Returns the width and height in a record; None if it has none."""
    sides = [record.numbers(names.name(role)) for role in (FeatureRole.WIDTH, FeatureRole.HEIGHT)]
    if all(len(side) == 1 and isinstance(side[0], int) and side[0] > 0 for side in sides):
        return sides[0][0], sides[1][0]
    return None


def _captions(record: SourceRecord, names: FeatureNames) -> tuple[str, ...]:
    caption = names.name(FeatureRole.CAPTION)
    spans = record.bytes_of(caption) or ()
    if sum(span.end - span.begin for span in spans) > _MAX_CAPTION_BYTES:
        raise ValueError(f"its captions have more than {_MAX_CAPTION_BYTES:,} bytes")
    return tuple(str(record.value_of(caption, span), "utf-8", "replace") for span in spans)


def _objects(
    record: SourceRecord, names: FeatureNames, class_names: Mapping[int, str], place_of: PlaceOf
) -> tuple[tuple[ObjectAnnotation, ...], Classes]:
    boxes = _boxes(record, names.boxes)
    label, text = names.name(FeatureRole.OBJECT_LABEL), names.name(FeatureRole.OBJECT_TEXT)
    view, mask = names.name(FeatureRole.OBJECT_VIEW), names.name(FeatureRole.OBJECT_MASK)
    numbers = [int(number) for number in record.numbers(label) if abs(number) < _MAX_ID]
    if numbers != list(record.numbers(label)):
        raise ValueError(f"its feature {label!r} has values that are not class ids")
    classes = named(numbers, record.texts(text), class_names)
    count = len(boxes) or len(classes.names)
    if count > _MAX_OBJECTS:
        raise ValueError(f"it has {counted(count, 'object')}, more than {_MAX_OBJECTS:,}")

    def each(what: str, values: Sequence[Any], missing: Any = None) -> Sequence[Any]:
        if len(values) not in (0, count):
            raise ValueError(
                f"it has {counted(count, 'object')} and {counted(len(values), 'value')} of {what}"
            )
        return values or [missing] * count

    def numbers_of(what: str, role: FeatureRole, missing: Any = None) -> Sequence[Any]:
        return each(what, record.numbers(names.name(role)), missing)

    columns: dict[str, Sequence[Any]] = {
        "label": each("the class", classes.names, ""),
        "box": each("the box", boxes),
        "crowd": [value == 1 for value in numbers_of("is_crowd", FeatureRole.OBJECT_CROWD, 0)],
        "area": numbers_of("the area", FeatureRole.OBJECT_AREA),
        "view": [value or None for value in each("the view", record.texts(view))],
        "mask_place": [
            place_of(mask, span) if span and span.end > span.begin else ""
            for span in each("the mask", record.bytes_of(mask) or [])
        ],
    }
    for flag, role in _FLAGS.items():
        columns[flag] = [None if value is None else value == 1 for value in numbers_of(flag, role)]
    objects = tuple(
        ObjectAnnotation(**dict(zip(columns, values, strict=True)))
        for values in zip(*columns.values(), strict=True)
    )
    return objects, classes


def _with_keypoints(found: Annotations, record: SourceRecord, names: FeatureNames) -> Annotations:
    """Returns annotations with the key points of all objects.

    Raises:
      ValueError: If the lists of key points do not fit the objects.
    """
    x, y, visibility, text = map(names.name, KEYPOINT_ROLES)
    xs, ys, seen = map(record.numbers, (x, y, visibility))
    points, objects = record.texts(text), found.objects or ()
    count = len(xs)
    if not count:
        return found
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
        found,
        objects=tuple(
            replace(item, keypoints=tuple(values[3 * i * size : 3 * (i + 1) * size]))
            for i, item in enumerate(objects)
        ),
        keypoint_names=tuple(points[:size]) or tuple(map(str, range(1, size + 1))),
    )


def _boxes(record: SourceRecord, names: tuple[str, ...]) -> list[tuple[float, float, float, float]]:
    """Returns xmin, ymin, xmax, ymax of every box, relative to the image size."""
    lists = [record.numbers(name) for name in names]
    if len(lists) == 4:
        if len(set(map(len, lists))) > 1:
            lengths = ", ".join(str(len(found)) for found in lists)
            raise ValueError(f"its lists of box corners differ in length ({lengths})")
        return list(zip(*lists, strict=True))
    values = lists[0] if lists else ()
    if len(values) % 4:
        raise ValueError(f"the {len(values)} numbers of its feature {names[0]!r} are not boxes")
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
        begin_end = record.features.get(name, ())
        size += sum(begin_end[1::2]) - sum(begin_end[::2])
        if size > _MAX_EXTRA_BYTES:
            raise ValueError(f"its extra columns have more than {_MAX_EXTRA_BYTES:,} bytes")
        found: Any = _column(record, name, column)
        if not column.is_list:
            found = found[0] if len(found) == 1 else found or None
        values[column.name] = column_values(column, found, settings.label_separator)
    return encode_extra(values) if extra else ""


def _column(record: SourceRecord, name: str, column: ExtraColumn) -> list[Any]:
    """Returns the values of a feature, or of its serialized tensor if the column has numbers."""
    feature = record.feature(name)
    values = list(feature.values)
    if len(values) == 1 and feature.type is FeatureType.BYTES and column.type is not FeatureType.BYTES:
        with contextlib.suppress(ValueError):  # the value may be a number as text
            return list(parse_tensor(values[0]).values)
    return values
