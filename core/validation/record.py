"""Checks one record against its expected features, and its image against its other features."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from PIL.Image import Image

from shardwright.core.images.convert import Reserve, reserve_nothing
from shardwright.core.images.metadata import strip_metadata
from shardwright.core.images.private_metadata import private_metadata
from shardwright.core.images.quality_metrics import measure_quality, measure_stored_samples
from shardwright.core.images.signatures import HEAD_BYTES, kind_of
from shardwright.core.records.encodings import WrongEncoding, plain_feature, plain_spec
from shardwright.core.records.record_schema import Problem, RecordSchema
from shardwright.core.validation.image import SIDES, DeclaredImage, Seen, check_image
from shardwright.core.validation.masks import MASKS, check_masks
from shardwright.core.validation.objects import (
    box_sizes,
    check_class,
    check_keypoints,
    check_objects,
    lists_of,
)
from shardwright.core.validation.values import presence_problems, sound_test, value_problems
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.dataset import PictureShape
from shardwright.schemas.example import Feature, FeatureType, parse_example
from shardwright.schemas.feature_roles import KEYPOINT_ROLES, OBJECT_ROLES
from shardwright.schemas.labels import UNLABELLED
from shardwright.schemas.layouts import Encoding, FeatureRole, FeatureSpec
from shardwright.schemas.pictures import ImageQuality, Picture
from shardwright.schemas.tensor_proto import parse_tensor
from shardwright.schemas.units import counted

#: Roles of features that contain the class name.
_NAMES = (FeatureRole.LABEL_TEXT, FeatureRole.SYNSET)
#: Roles of features whose values repeat in many records, so that they are checked once.
_REPEATING = frozenset(
    {
        FeatureRole.CHANNELS,
        FeatureRole.DTYPE,
        FeatureRole.HEIGHT,
        FeatureRole.WIDTH,
        FeatureRole.SHAPE,
        FeatureRole.COLORSPACE,
        FeatureRole.FORMAT,
        FeatureRole.LABEL,
        FeatureRole.LABEL_TEXT,
        FeatureRole.SYNSET,
        FeatureRole.SPLIT,
        FeatureRole.CONSTANT,
        FeatureRole.SEMANTIC_FORMAT,
    }
)
#: Roles of features that contain sizes. They are only compared with decoded images.
_SIZES = frozenset({FeatureRole.HEIGHT, FeatureRole.WIDTH, FeatureRole.SHAPE})
#: Number of combinations of repeating values that are cached.
_MAX_KNOWN = 10_000


class CheckedRecord(NamedTuple):
    """Result of checking a record, with the values that are compared with other records and with the ledger.

    Attributes:
      problems: Problems that were found.
      key: Key of the image. None if the record does not say.
      source: sha256 of the source image, or else of the stored image.
      picture: Description of the image, without its place. None if it was not decoded or not requested.
      source_in_record: Whether `source` comes from the record itself.
      classes: Names of the image's or its objects' classes. None if the record does not say.
      basename: Last part of the key, if the record stores that.
      features: Features as they are stored. None if they were not requested.
      stored_sha256: sha256 of the stored image. Empty if it was not decoded, or not requested.
      bare: Whether the stored image is a file without metadata or bytes after its end. None if it was not
        decoded.
      objects: Number of objects. None if the record does not say.
      private: Kinds of private data in the metadata of the stored image (`PRIVATE_KINDS`).
      fold: Fold of the image. None if the record does not say.
      dtype: Type of the image's samples. Empty if the record does not say.
    """

    problems: tuple[Problem, ...]
    key: str | None = None
    source: str | None = None
    picture: Picture | None = None
    source_in_record: bool = False
    classes: tuple[str, ...] | None = None
    basename: str | None = None
    features: Mapping[str, Feature] | None = None
    stored_sha256: str = ""
    bare: bool | None = None
    objects: int | None = None
    private: tuple[str, ...] = ()
    fold: int | None = None
    dtype: str = ""


class _Common(NamedTuple):
    """Result for the repeating features, shared by all records with equal values."""

    problems: tuple[Problem, ...]
    declared: DeclaredImage
    classes: tuple[str, ...] | None


class RecordChecker:
    """Checks records of one schema; several threads can use it.

    A worker process that gets a checker gets a new one with the same arguments, which learns for itself.

    Args:
      schema: Record schema of the dataset.
      decode: Whether to decode images and compare them with their records.
      look: Whether to compute quality metrics of the decoded images, too.
      picture: Whether to describe the images even without quality metrics.
      reserve: Function that is called with the memory in bytes that an image needs while it is decoded.
      hash_images: Whether to compute the sha256 of the stored images that are decoded.
    """

    def __init__(
        self,
        schema: RecordSchema,
        decode: bool,
        look: bool = False,
        picture: bool = False,
        reserve: Reserve | None = None,
        hash_images: bool = False,
    ) -> None:
        self._arguments = (schema, decode, look, picture, reserve, hash_images)
        self._stored = schema.features
        self._encoded = any(spec.encoding is not Encoding.PLAIN for spec in schema.features)
        if self._encoded:
            schema = schema._replace(features=tuple(map(plain_spec, schema.features)))
        self._schema = schema
        encoded = schema.spec(FeatureRole.ENCODED)
        self._pixel_type = encoded.pixel_type if encoded is not None else ""
        self._decode, self._look, self._tell = decode, look, picture or look
        self._reserve = reserve or reserve_nothing
        self._hash_images = hash_images
        repeating = _REPEATING if decode else _REPEATING - _SIZES
        self._repeating = [spec for spec in schema.features if spec.fill in repeating and not self._encoded]
        single = [spec for spec in schema.features if spec not in self._repeating]
        self._single = [
            (spec, spec.name, spec.type, spec.length, sound_test(spec, schema.own)) for spec in single
        ]
        roles = {spec.fill for spec in schema.features}
        self._of_objects = not roles.isdisjoint((*OBJECT_ROLES, *KEYPOINT_ROLES, FeatureRole.BOXES))
        self._folded = FeatureRole.FOLD in roles
        self._masked = not roles.isdisjoint(MASKS)
        self._image, self._key, self._basename, self._sha256 = (
            spec.name if (spec := schema.spec(role)) else None
            for role in (
                FeatureRole.ENCODED,
                FeatureRole.KEY,
                FeatureRole.FILE_BASENAME,
                FeatureRole.SOURCE_SHA256,
            )
        )
        #: Types and values of the repeating features -> their result, if they are sound.
        self._known: dict[tuple[Any, ...], _Common] = {}

    def __reduce__(self) -> tuple[type[RecordChecker], tuple[Any, ...]]:
        return RecordChecker, self._arguments

    def check(self, data: bytes) -> CheckedRecord:
        """Checks a record.

        Args:
          data: The serialized Example.
        """
        try:
            features: dict[str, Feature] = parse_example(data)
        except ValueError as error:
            return CheckedRecord(((FindingCode.UNPARSEABLE, f"it is not a tf.train.Example: {error}"),))
        stored = features if self._look else None
        problems: list[Problem] = []
        tensors: list[Sequence[int]] = []
        if self._encoded:
            for spec in self._stored:
                problems += presence_problems(features.get(spec.name), spec)
            features, faults, tensors = _without_encodings(features, self._stored)
            problems += faults
        common = self._common(features, tensors, bool(problems))
        problems += common.problems
        for spec, name, type_, length, is_sound in self._single:
            feature = features.get(name)
            if (
                self._encoded
                or feature is None
                or feature.type is not type_
                or (length is not None and len(feature.values) != length)
                or not is_sound(feature.values)
            ):
                self._check_single(feature, spec, problems)
        if self._of_objects and not problems:
            problems += check_objects(features, self._schema)
            problems += check_keypoints(features, self._schema)
        return self._finish(features, common, problems, stored)

    def _check_encoded(
        self, encoded: bytes, common: _Common, held: ExitStack, problems: list[Problem]
    ) -> tuple[str, bool, tuple[str, ...], Seen]:
        """Checks an image, and adds its problems.

        Args:
          encoded: Bytes of the image.
          common: Result for the repeating features of its record.
          held: Stack that holds the memory of the decoded image.
          problems: Where the problems go.

        Returns:
          Its sha256 if requested, whether it is bare, its private data, and the result of the check.
        """
        stored_sha256 = hashlib.sha256(encoded).hexdigest() if self._hash_images else ""
        seen = check_image(
            encoded,
            common.declared,
            self._look,
            lambda size: held.enter_context(self._reserve(size)),
            self._schema.damaged_too,
            self._schema.bounds,
        )
        problems += seen.problems
        bare, kind = _is_bare(encoded, common.declared)
        private = (
            private_metadata(encoded, kind) if seen.image is not None and (not bare or kind == "tiff") else ()
        )
        return stored_sha256, bare, private, seen

    def _common(
        self, features: Mapping[str, Feature], tensors: Sequence[Sequence[int]], faulty: bool
    ) -> _Common:
        """Returns the result for the repeating features; sound values are checked once."""
        if self._encoded:
            return self._examine(features, tensors, faulty)
        found = (features.get(spec.name) for spec in self._repeating)
        values = tuple([None if feature is None else (feature.type, *feature.values) for feature in found])
        common = self._known.get(values)
        if common is None:
            common = self._examine(features, tensors, faulty)
            if not common.problems:
                if len(self._known) >= _MAX_KNOWN:
                    self._known.clear()
                self._known[values] = common
        return common

    def _examine(
        self, features: Mapping[str, Feature], tensors: Sequence[Sequence[int]], faulty: bool
    ) -> _Common:
        """Checks the repeating features."""
        schema, problems = self._schema, list[Problem]()
        for spec in self._repeating:
            problems += presence_problems(features.get(spec.name), spec)
        if not problems and not faulty:
            for spec in self._repeating if not self._encoded else schema.features:
                if spec.name in features and spec.fill in _REPEATING:
                    found = value_problems(features[spec.name], spec, schema.own, schema.split)
                    problems += found
            if not problems:
                problems += _check_labels(features, schema)
        values = _values(features, schema)
        format_, colorspace = values.get(FeatureRole.FORMAT), values.get(FeatureRole.COLORSPACE)
        dtype = values.get(FeatureRole.DTYPE)
        declared = DeclaredImage(
            _declared_shapes(features, tensors, schema),
            format_.decode("utf-8", "replace") if isinstance(format_, bytes) else None,
            colorspace if isinstance(colorspace, bytes) else None,
            schema.pixels is not None,
            dtype.decode("utf-8", "replace") if isinstance(dtype, bytes) else self._pixel_type or None,
        )
        return _Common(tuple(problems), declared, _class_names(features, schema))

    def _check_single(self, feature: Feature | None, spec: FeatureSpec, problems: list[Problem]) -> None:
        """Checks a feature whose value differs in every record."""
        if self._encoded:  # its stored form was already checked
            if feature is None or feature.type is not spec.type or spec.fill in _REPEATING:
                return
        elif feature is None or feature.type is not spec.type or len(feature.values) != spec.length:
            found = list(presence_problems(feature, spec))
            problems += found
            if found or feature is None:
                return
        if spec.fill is not FeatureRole.ENCODED:
            problems += value_problems(feature, spec, self._schema.own)

    def _finish(
        self,
        features: Mapping[str, Feature],
        common: _Common,
        problems: list[Problem],
        stored: dict[str, Feature] | None,
    ) -> CheckedRecord:
        """Checks the image, and combines the results for the record."""
        schema = self._schema
        key, basename, sha256 = (
            _text_of(features, name) for name in (self._key, self._basename, self._sha256)
        )
        if schema.own:
            problems += _name_problems(key, basename)
        encoded = _only_bytes(features, self._image)
        picture, stored_sha256, bare = None, "", None
        private: tuple[str, ...] = ()
        if self._decode:
            with ExitStack() as held:
                if encoded is not None:
                    encoded = bytes(encoded)
                    stored_sha256, bare, private, seen = self._check_encoded(encoded, common, held, problems)
                    if self._tell:
                        picture = self._picture(features, common, seen, encoded, sha256)
                    del seen  # free the memory for others
                if self._masked:
                    problems += check_masks(features, schema)
        source = sha256
        if source is None and encoded is not None:
            source = stored_sha256 or hashlib.sha256(encoded).hexdigest()
        objects = _number_of_objects(features, schema) if self._of_objects else None
        classes = _object_classes(features, schema) if self._of_objects else common.classes
        if stored is not None and self._image in stored and not self._encoded and encoded is not None:
            stored[self._image] = Feature(FeatureType.BYTES, [bytes(encoded)])
        return CheckedRecord(
            tuple(problems), key, source, picture, sha256 is not None, classes, basename, stored,
            stored_sha256, bare, objects, private, self._fold_of(features), common.declared.dtype or "",
        )  # fmt: skip

    def _fold_of(self, features: Mapping[str, Feature]) -> int | None:
        numbers = _integers(features, self._schema, FeatureRole.FOLD) if self._folded else ()
        return numbers[0] if numbers else None

    def _picture(
        self,
        features: Mapping[str, Feature],
        common: _Common,
        seen: Seen,
        encoded: bytes,
        sha256: str | None,
    ) -> Picture | None:
        """Returns the description of an image, without its place; None if it could not be decoded."""
        if seen.image is None:
            return None
        labels = common.classes
        if labels is None:
            labels = tuple(map(str, _integers(features, self._schema, FeatureRole.LABEL)))
        return Picture(
            "", 0, 0, None, "",
            labels=labels,
            bytes=len(encoded),
            format=seen.format,
            width=seen.size[0],
            height=seen.size[1],
            channels=seen.channels,
            boxes=box_sizes(features, self._schema),
            source=sha256,
            quality=_measured(seen.image, seen) if self._look else None,
        )  # fmt: skip


def after_crash(checked: CheckedRecord, how: str) -> CheckedRecord:
    """Returns the result for a record whose check ended its worker process.

    Args:
      checked: Result of checking the record without decoding its image.
      how: Signal or exit code of the process.
    """
    problem = FindingCode.UNDECODABLE, f"the decoder crashed ({how})"
    return checked._replace(problems=(*checked.problems, problem))


def _measured(image: Image, seen: Seen) -> ImageQuality:
    if seen.samples is None:
        return measure_quality(image)
    return measure_stored_samples(image, seen.samples)


def _name_problems(key: str | None, basename: str | None) -> Iterator[Problem]:
    """Compares the file name in a record with its key."""
    if key is not None and basename is not None and key.rpartition("/")[2] != basename:
        yield FindingCode.WRONG_VALUE, f"its file name is {basename!r}, but its key ends differently"


def _is_bare(encoded: bytes, declared: DeclaredImage) -> tuple[bool, str]:
    """Returns whether an image is a file without metadata or bytes after its end, and its format.

    Args:
      encoded: Bytes of the image.
      declared: What its record declares about it.
    """
    kind = "" if declared.format == "raw" else kind_of(encoded[:HEAD_BYTES]) or ""
    return strip_metadata(encoded, kind) == encoded, kind


def _only_bytes(features: Mapping[str, Feature], name: str | None) -> bytes | None:
    """Returns the one value of a bytes feature; None if it does not have exactly one value."""
    feature = features.get(name) if name is not None else None
    if feature is None or feature.type is not FeatureType.BYTES or len(feature.values) != 1:
        return None
    value: bytes = feature.values[0]
    return value


def _text_of(features: Mapping[str, Feature], name: str | None) -> str | None:
    value = _only_bytes(features, name)
    return None if value is None else value.decode("utf-8", "replace")


def _class_names(features: Mapping[str, Feature], schema: RecordSchema) -> tuple[str, ...] | None:
    """Returns the names of the image's classes: from its ids, or else from its texts."""
    label = schema.spec(FeatureRole.LABEL)
    if label is not None and schema.labels is not None:
        places = [number - schema.first_label for number in _integers(features, schema, FeatureRole.LABEL)]
        return tuple(schema.labels[place] for place in places if 0 <= place < len(schema.labels))
    for spec in (schema.spec(role) for role in _NAMES):
        feature = features.get(spec.name) if spec else None
        if feature is not None and feature.type is FeatureType.BYTES:
            return tuple(name.decode("utf-8", "replace") for name in feature.values if name)
    return None


def _number_of_objects(features: Mapping[str, Feature], schema: RecordSchema) -> int | None:
    """Returns the number of objects, by the boxes; None if the record has no boxes."""
    boxes = lists_of(features, schema, (FeatureRole.BOX_XMIN,)).get(FeatureRole.BOX_XMIN)
    return None if boxes is None else len(boxes)


def _object_classes(features: Mapping[str, Feature], schema: RecordSchema) -> tuple[str, ...] | None:
    """Returns the names of the classes of an image's objects, each once; None if the record does not say."""
    lists = lists_of(features, schema, (FeatureRole.OBJECT_LABEL, FeatureRole.OBJECT_TEXT))
    if FeatureRole.OBJECT_LABEL in lists and schema.labels is not None:
        places = [number - schema.first_label for number in lists[FeatureRole.OBJECT_LABEL]]
        names = {schema.labels[place] for place in places if 0 <= place < len(schema.labels)}
    elif FeatureRole.OBJECT_TEXT in lists:
        names = {name.decode("utf-8", "replace") for name in lists[FeatureRole.OBJECT_TEXT]}
    else:
        return None
    return tuple(sorted(names))


def _without_encodings(
    features: Mapping[str, Feature], specs: Sequence[FeatureSpec]
) -> tuple[dict[str, Feature], list[Problem], list[Sequence[int]]]:
    """Returns the features with decoded values, without those that cannot be decoded.

    It also returns the problems of the latter, and the shapes of tensors of pixels.
    """
    plain, problems, shapes = dict(features), list[Problem](), list[Sequence[int]]()
    for spec in specs:
        feature = features.get(spec.name)
        if feature is None or spec.encoding is Encoding.PLAIN:
            continue
        del plain[spec.name]
        if feature.type is not spec.type or spec.length not in (None, len(feature.values)):
            continue  # already reported
        try:
            plain[spec.name] = plain_feature(spec, feature)
            if spec.holds_pixels:
                shapes.append(parse_tensor(feature.values[0]).shape)
        except WrongEncoding as wrong:
            problems.append((wrong.code, str(wrong)))
    return plain, problems, shapes


def _values(features: Mapping[str, Feature], schema: RecordSchema) -> dict[FeatureRole, bytes | int | float]:
    """Returns the single values of the features that exist and have the right type."""
    values: dict[FeatureRole, bytes | int | float] = {}
    for spec in schema.features:
        feature = features.get(spec.name)
        if spec.fill and feature and feature.type is spec.type and len(feature.values) == 1:
            values[spec.fill] = feature.values[0]
    return values


def _check_labels(features: Mapping[str, Feature], schema: RecordSchema) -> Iterator[Problem]:
    """Compares the classes of the image with the dataset's classes."""
    label = schema.spec(FeatureRole.LABEL)
    texts = [spec for role in _NAMES if (spec := schema.spec(role)) and spec.name in features]
    if label is None or label.name not in features:
        for spec in texts:
            yield from _check_names(features[spec.name].values, _naming(spec, schema))
        return
    ids = features[label.name].values
    unlabelled = schema.unlabelled and list(ids) in ([], [UNLABELLED])
    if unlabelled and all(list(features[spec.name].values) in ([], [b""]) for spec in texts):
        return
    for spec in texts:
        names = features[spec.name].values
        if len(names) != len(ids):
            yield (
                FindingCode.LENGTH_MISMATCH,
                f"feature {label.name!r} has {counted(len(ids), 'value')}, {spec.name!r} has {len(names)}",
            )
            return
    # A wrong id is reported once, without the names that are stored with it.
    found = (
        problem
        for spec in texts or [label]
        for number, name in zip(ids, features[spec.name].values)
        for problem in check_class(number, name, _naming(spec, schema))
    )
    yield from dict.fromkeys(found)


def _naming(spec: FeatureSpec, schema: RecordSchema) -> RecordSchema:
    """Returns a schema with the class names that a feature contains: synset ids, or display names."""
    if spec.fill is FeatureRole.LABEL_TEXT and schema.texts:
        return schema._replace(labels=schema.texts)
    return schema


def _check_names(names: Sequence[Any], schema: RecordSchema) -> Iterator[Problem]:
    """Checks class names that are stored without ids."""
    for name in names:
        text = name.decode("utf-8", "replace")
        if schema.labels is not None and text not in schema.labels and (text or not schema.unlabelled):
            yield FindingCode.LABEL_TEXT, f"class {text!r} is not among the class names"


def _declared_shapes(
    features: Mapping[str, Feature], tensors: Sequence[Sequence[int]], schema: RecordSchema
) -> list[PictureShape]:
    """Returns height, width and channels from each feature that states some of them, and from the schema.

    Args:
      features: Features of the record, decoded.
      tensors: Shapes of its tensors of pixels.
      schema: Record schema of the dataset.
    """
    shapes = [schema.pixels] if schema.pixels else []
    shapes += [(tensor[0], tensor[1], tensor[2]) for tensor in tensors]
    shape = _integers(features, schema, FeatureRole.SHAPE)
    if len(shape) == len(SIDES):
        shapes.append((shape[0], shape[1], shape[2]))
    height, width, channels = (_integers(features, schema, role) for role in SIDES)
    shapes.append((_only(height), _only(width), _only(channels)))
    return shapes


def _integers(features: Mapping[str, Feature], schema: RecordSchema, role: FeatureRole) -> Sequence[int]:
    spec = schema.spec(role)
    feature = features.get(spec.name) if spec else None
    return feature.values if feature and feature.type is FeatureType.INT64 else ()


def _only(values: Sequence[int]) -> int | None:
    return values[0] if len(values) == 1 else None
