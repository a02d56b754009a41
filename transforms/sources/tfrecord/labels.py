"""Reads the classes in records, stored as text, number or one-hot values, and their ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shardwright.schemas.example import Feature, FeatureType
from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.schemas.labels import UNLABELLED, ClassId
from shardwright.schemas.layouts import FeatureRole
from shardwright.schemas.units import counted
from shardwright.transforms.images.signatures import claims_to_be_image
from shardwright.transforms.sources.tfrecord.layouts import FeatureNames
from shardwright.transforms.sources.tfrecord.record import SourceRecord

#: Largest number of bytes in a class name.
_MAX_NAME = 1000


class Classes(NamedTuple):
    """Classes of an image or of objects.

    Attributes:
      names: Class names; empty for an object without a class.
      ids: Ids of the names in the record.
    """

    names: tuple[str, ...]
    ids: tuple[ClassId, ...]


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
        return Classes(tuple(texts), ())
    names, ids = [], []
    for i, number in enumerate(numbers):
        name = texts[i] if texts else ""
        if not name and number != UNLABELLED:
            name = class_names.get(number, str(number))
        names.append(name)
        if name and number != UNLABELLED:
            ids.append(ClassId(name, number))
    return Classes(tuple(names), tuple(ids))


def texts_of(record: SourceRecord, name: str) -> list[str]:
    """Returns the texts of a feature; none if it has no bytes.

    Raises:
      ValueError: If a text cannot be a class name.
    """
    texts = []
    for span in (record.bytes_of(name) if name else None) or ():
        if span.end - span.begin > _MAX_NAME:
            raise ValueError(
                f"its feature {name!r} has {span.end - span.begin} bytes, which is not a class name"
            )
        try:
            text = str(record.value_of(name, span), "utf-8")
        except UnicodeDecodeError:
            raise ValueError(f"its feature {name!r} is not UTF-8 text") from None
        if LABEL_SEPARATOR in text:
            raise ValueError(f"its feature {name!r} holds the control character U+001F")
        texts.append(text)
    return texts


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
    texts = texts_of(record, text)
    called: list[str] = []
    if synset and (synsets or not any(texts)):
        found_synsets = texts_of(record, synset)
        if any(found_synsets):
            called, texts = texts, found_synsets
    elif text == "name" and not exact and any(map(claims_to_be_image, texts)):  # the name of a file
        texts = []
    if label:
        feature = record.feature(label)
        if feature.type is FeatureType.BYTES:
            texts = texts if any(texts) else _plain(label, texts_of(record, label))
        else:
            numbers = _numbers(label, feature)
            if feature.type is FeatureType.FLOAT and len(texts) != len(numbers):
                texts = []
    if len(texts) == 1 and len(numbers) > 1:
        texts = []
    found = named(numbers, texts if exact else [text.strip() for text in texts], class_names)
    if called and len(called) == len(found.names) == len(found.ids):
        found = found._replace(ids=tuple(i._replace(text=text) for i, text in zip(found.ids, called)))
    return found._replace(names=tuple(dict.fromkeys(name for name in found.names if name)))


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


def _numbers(name: str, feature: Feature) -> list[int]:
    """Returns class ids; for one-hot values, the position of the 1."""
    values = feature.values
    fewest = 3 if feature.type is FeatureType.INT64 else 2  # two whole numbers may be two classes
    if len(values) >= fewest and values.count(1) == 1 and values.count(0) == len(values) - 1:
        return [values.index(1)]
    numbers = []
    for value in values:
        if value != value or value != int(value if abs(value) < 2**63 else 0):
            raise ValueError(f"its feature {name!r} is {value}, which is not a class id")
        numbers.append(int(value))
    return numbers
