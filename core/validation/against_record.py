"""Compares one record with the present state of its source. Needs no Beam."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shardwright.core.conversion import Converted, ReadImage, decided_entry, entry_of_problem
from shardwright.core.images.decode import load_checked, load_samples, open_image
from shardwright.core.images.metadata import strip_metadata
from shardwright.core.images.signatures import HEAD_BYTES, kind_of
from shardwright.core.records.encodings import plain_spec
from shardwright.core.records.record_schema import Problem
from shardwright.core.sources.image_files import MISSING
from shardwright.core.validation.values import (
    ValuesByRole,
    decoded_features,
    only_bytes,
    only_text,
    specs_with_roles,
    values_by_role,
)
from shardwright.schemas.codes import FilterReason, FindingCode, Outcome, QuarantineReason
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.example import Feature, parse_example
from shardwright.schemas.feature_roles import CLASS_ROLES, IMAGE_ROLES, PICTURE_SIDES
from shardwright.schemas.image_formats import FORMAT_NAMES
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.labels import UNLABELLED
from shardwright.schemas.layouts import FeatureRole, FeatureSpec, pixel_type_of
from shardwright.schemas.ledger import Entry
from shardwright.schemas.sample_types import SAMPLE_TYPES
from shardwright.schemas.units import is_or_are

_OBJECT_CLASSES = (FeatureRole.OBJECT_LABEL, FeatureRole.OBJECT_TEXT)
#: Roles of features that depend only on the stored image.
_OF_PICTURE = (
    FeatureRole.ENCODED,
    FeatureRole.FORMAT,
    *PICTURE_SIDES,
    FeatureRole.SHAPE,
    FeatureRole.DTYPE,
    FeatureRole.COLORSPACE,
)
_MAX_PIXELS = 2**31 - 1
#: Largest root mean square difference of 8-bit values at which the images of two encoders count as equal:
#: over all pixels, and over any square with this many pixels on a side.
ALIKE, ALIKE_SQUARE, SQUARE = 8.0, 24.0, 8
_SHOWN = 12


@dataclass(frozen=True)
class ComparisonSettings:
    """Settings for comparing the records of a dataset.

    Attributes:
      features: Features of a record.
      labels: Class names in id order.
      first_label: Id of the first class.
      same_software: Whether an image converted here must give exactly the bytes of its record.
      stripped: Whether kept originals lost their metadata.
      mapped: Whether `--map` may have changed the classes.
    """

    features: tuple[FeatureSpec, ...]
    labels: tuple[str, ...]
    first_label: int
    same_software: bool
    stripped: bool
    mapped: bool = False


class ExpectedRecord(NamedTuple):
    """Present state of a source image.

    Attributes:
      entry: Outcome for the image: written, quarantined, filtered.
      example: Record to which it converts. None if it was not converted.
      data: Bytes of the source, if it was only read.
    """

    entry: Entry
    example: bytes | None = None
    data: bytes | None = None


def truth_of(image: Converted | ReadImage) -> ExpectedRecord:
    """Returns the state of an image that was converted or only read."""
    if isinstance(image, Converted):
        return ExpectedRecord(image.entry, image.example)
    ref = image.ref
    if not ref.is_candidate:
        return ExpectedRecord(decided_entry(ref))
    if image.problem is not None:
        return ExpectedRecord(entry_of_problem(ref, image.problem, image.sha256))
    return ExpectedRecord(Entry(ref.key, Outcome.WRITTEN, sha256=image.sha256), data=image.data)


class ParsedRecord(NamedTuple):
    """A record of a dataset.

    Attributes:
      features: Features as they are stored.
      values: Decoded values by the roles of the features.
    """

    features: Mapping[str, Feature]
    values: ValuesByRole

    @staticmethod
    def of(data: bytes, facts: ComparisonSettings) -> ParsedRecord:
        """Parses a record.

        Raises:
          ValueError: If it is not an Example.
        """
        features = parse_example(data)
        decoded, _, _ = decoded_features(features, facts.features)
        return ParsedRecord(
            features, values_by_role(decoded, specs_with_roles(map(plain_spec, facts.features)))
        )

    @property
    def sha256(self) -> str:
        """Checksum of the source that the record states; empty if it states none."""
        return only_text(self.values, FeatureRole.SOURCE_SHA256) or ""

    def names(self, facts: ComparisonSettings) -> tuple[str, ...] | None:
        """Returns the classes of the image, from their ids if it has any; None if it does not say."""
        if FeatureRole.LABEL in self.values:
            name_of = dict(enumerate(facts.labels, facts.first_label))
            ids = [class_id for class_id in self.values[FeatureRole.LABEL] if class_id != UNLABELLED]
            return tuple(name_of.get(class_id, str(class_id)) for class_id in ids)
        for role in (FeatureRole.SYNSET, FeatureRole.LABEL_TEXT):
            if role in self.values:
                return tuple(name.decode("utf-8", "replace") for name in self.values[role] if name)
        return None


def gone(entry: Entry) -> Problem:
    """Returns the problem of a record whose source would not be written now."""
    reason, message = entry.reason, entry.message
    if reason == QuarantineReason.UNREADABLE:
        return FindingCode.SOURCE_MISSING, f"its source cannot be read: {message}"
    if message == MISSING:
        return FindingCode.SOURCE_MISSING, f"the source still lists it, but {message}"
    if reason in (QuarantineReason.UNKNOWN_LABEL, FilterReason.LABEL_NOT_KEPT):
        return FindingCode.SOURCE_LABEL, f"its source would be left out now: {message or reason}"
    what = f"{reason}: {message}" if message else reason
    return FindingCode.SOURCE_CHANGED, f"its source would be left out now as {what}"


def compare_record(
    data: bytes, ref: ImageRef, entry: Entry | None, truth: ExpectedRecord, facts: ComparisonSettings
) -> Iterator[Problem]:
    """Yields the differences between a record and the present state of its source.

    Args:
      data: The record.
      ref: Reference to its source.
      entry: Its ledger entry, if any.
      truth: Present state of the source.
      facts: Settings for the comparison.
    """
    if truth.entry.outcome != Outcome.WRITTEN:
        yield gone(truth.entry)
        return
    try:
        parsed = ParsedRecord.of(data, facts)
    except ValueError:
        return  # reported elsewhere
    before = parsed.sha256 or (entry.sha256 if entry else "")
    changed = bool(before) and before != truth.entry.sha256
    if changed:
        yield FindingCode.SOURCE_CHANGED, other_source(truth.entry.sha256, before)
    expected = ParsedRecord.of(truth.example, facts) if truth.example else None
    if wrong_label := _wrong_label(parsed, ref, expected, facts):
        yield FindingCode.SOURCE_LABEL, wrong_label
    picture = list(_compare_pictures(parsed, entry, truth, expected, before, facts))
    yield from picture
    if expected and not changed:
        ignored = {FeatureRole.ENCODED, *CLASS_ROLES, *(_OF_PICTURE if picture else ())}
        if not facts.same_software:  # other versions of an encoder write other bytes
            ignored.update(IMAGE_ROLES)
        yield from _compare_others(parsed, expected, ignored, facts)


def other_source(now: str, before: str) -> str:
    """Returns a short text with the sha256 of a source, and with the one that its record was made from."""
    return f"its source's sha256 begins with {now[:_SHOWN]}, but the record was made from {before[:_SHOWN]}"


def _wrong_label(
    parsed: ParsedRecord, ref: ImageRef, expected: ParsedRecord | None, facts: ComparisonSettings
) -> str:
    """Returns how the classes of an image differ from the source's; empty if they do not."""
    mine = parsed.names(facts)
    if mine is None or (expected is None and facts.mapped):
        return ""
    if expected is None:  # a record cannot have the id of a class that the dataset does not know
        wrong = mine != tuple(name for name in ref.labels if name in facts.labels)
    else:
        wrong = mine != expected.names(facts)
    if wrong:
        return f"the source says {classes(ref.labels)}, the record {classes(mine)}"
    if expected:  # the name may be wrong even if the id is right
        for role in CLASS_ROLES[1:]:
            texts = [
                [name.decode("utf-8", "replace") for name in side.values.get(role, ())]
                for side in (expected, parsed)
            ]
            if texts[0] != texts[1]:
                return f"the source says {classes(texts[0])}, the record's text {classes(texts[1])}"
    return ""


def classes(names: Sequence[str]) -> str:
    """Returns class names for use in a sentence."""
    if not any(names):
        return "no class"
    return f"class{'es' if len(names) > 1 else ''} {', '.join(map(repr, names))}"


def _compare_pictures(
    parsed: ParsedRecord,
    entry: Entry | None,
    truth: ExpectedRecord,
    expected: ParsedRecord | None,
    before: str,
    facts: ComparisonSettings,
) -> Iterator[Problem]:
    """Compares the stored image with the source, converted or as it is."""
    mine = only_bytes(parsed.values, FeatureRole.ENCODED)
    if mine is None:
        return
    changed = bool(before) and before != truth.entry.sha256
    stored = entry.stored if entry and entry.stored else truth.entry.stored
    kept = stored == "kept"
    other_bytes = "it should contain the source's own bytes, but contains others"
    if kept and not facts.stripped and before:
        sha256 = hashlib.sha256(mine).hexdigest()
        if sha256 != before:
            begins = f"their sha256 begins {sha256[:_SHOWN]}, not {before[:_SHOWN]}"
            yield FindingCode.KEPT_BYTES, f"{other_bytes}: {begins}"
        return
    true = truth.data if kept and not facts.stripped else None
    if expected:
        true = only_bytes(expected.values, FeatureRole.ENCODED)
    if true is None or changed or mine == true:
        return
    if kept:
        yield FindingCode.KEPT_BYTES, other_bytes
    elif facts.same_software:
        yield FindingCode.SOURCE_CHANGED, "its image differs from what its source converts to"
    elif not _is_bare(mine) and _is_bare(true):
        message = "its image has metadata or bytes after its end, but what its source converts to has none"
        yield FindingCode.SOURCE_CHANGED, message
    elif not look_alike(mine, true, _dtype_of(parsed, facts)):
        yield FindingCode.SOURCE_CHANGED, "its image looks different from what its source converts to"


def _dtype_of(parsed: ParsedRecord, facts: ComparisonSettings) -> str:
    """Returns the type of an image's samples; empty if neither layout nor record states a known one."""
    dtype = pixel_type_of(facts.features) or only_text(parsed.values, FeatureRole.DTYPE)
    return dtype if dtype in SAMPLE_TYPES else ""


def _is_bare(data: bytes) -> bool:
    """Returns whether an image file has neither metadata nor bytes after its end."""
    return strip_metadata(data, kind_of(data[:HEAD_BYTES]) or "") == data


def look_alike(one: bytes, other: bytes, dtype: str) -> bool:
    """Returns whether two stored images have one format and size, and equal pixels within a tolerance.

    Args:
      one: The image of a record.
      other: The image that its source converts to.
      dtype: Type of the samples; empty if records do not state it.
    """
    if kind_of(one[:HEAD_BYTES]) != kind_of(other[:HEAD_BYTES]):
        return False
    first, second = (_pixels(data, dtype) for data in (one, other))
    if first is None or second is None or first.shape != second.shape:
        return False
    difference = _difference(first, second)
    if difference is None:
        return False
    squares = difference**2
    if np.sqrt(np.mean(squares, dtype=np.float64)) > ALIKE:
        return False
    if squares.ndim < 2:
        return True
    rows, columns = (range(0, size, SQUARE) for size in squares.shape[:2])
    sums, counts = (
        np.add.reduceat(np.add.reduceat(values, rows, axis=0), columns, axis=1).reshape(
            len(rows), len(columns), -1
        ).sum(axis=2)
        for values in (squares, np.ones_like(squares))
    )  # fmt: skip
    return bool(np.sqrt((sums / counts).max()) <= ALIKE_SQUARE)


def _difference(first: np.ndarray, second: np.ndarray) -> np.ndarray | None:
    """Returns the differences of two images in 8-bit units; None if other samples are not finite.

    Args:
      first: uint8, uint16 or float32. The range of a float image counts as 255 units.
      second: The same type and shape.
    """
    if first.dtype.kind != "f":
        units: np.ndarray = (first.astype(np.float32) - second) / (np.iinfo(first.dtype).max / 255)
        return units
    finite = np.isfinite(second)
    if (
        not np.array_equal(first[~finite], second[~finite], equal_nan=True)
        or not np.isfinite(first[finite]).all()
    ):
        return None
    span = np.ptp(second[finite].astype(np.float64)) if finite.any() else 0.0
    units = (np.where(finite, first, 0).astype(np.float64) - np.where(finite, second, 0)) * 255
    return units / (span or 1.0)


def _pixels(data: bytes, dtype: str) -> np.ndarray | None:
    """Returns the pixels of an image file, or raw pixels in one row; None if they cannot be read."""
    if kind_of(data[:HEAD_BYTES]) not in FORMAT_NAMES:
        stored = np.dtype(dtype or "uint8").newbyteorder("<")
        return None if len(data) % stored.itemsize else np.frombuffer(data, stored)
    try:
        opened = open_image(data, "", _MAX_PIXELS, keep_depth=dtype == "uint16")
        if opened.deep is not None:
            return load_samples(opened, _MAX_PIXELS)
        return np.asarray(load_checked(opened, _MAX_PIXELS).image.convert("RGB"))
    except ImageFault:
        return None


def _compare_others(
    parsed: ParsedRecord, expected: ParsedRecord, ignored: Collection[FeatureRole], facts: ComparisonSettings
) -> Iterator[Problem]:
    """Compares all features other than the image and its class."""
    wrong: dict[FindingCode, list[str]] = {}
    roles: Mapping[str, FeatureRole | None] = {spec.name: spec.fill for spec in facts.features}
    for name in sorted(parsed.features.keys() | expected.features.keys()):
        role = roles.get(name)
        if role in ignored or repr(parsed.features.get(name)) == repr(expected.features.get(name)):
            continue  # compare as text, because NaN does not equal itself
        code = FindingCode.SOURCE_LABEL if role in _OBJECT_CLASSES else FindingCode.SOURCE_CHANGED
        wrong.setdefault(code, []).append(repr(name))
    for code, names in wrong.items():
        features = f"feature{'s' if len(names) > 1 else ''} {', '.join(names)}"
        yield code, f"its {features} {is_or_are(len(names))} not what the source gives now"
