"""Checks one record against its expected features, and its image against its other features."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from PIL.Image import Image

from shardwright.core.images.convert import Reserve, reserve_nothing
from shardwright.core.images.metadata import private_metadata, strip_metadata
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
from shardwright.core.validation.values import has_rules, presence_problem, value_problem
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
#: Roles of features that state the class of an image.
_LABELS = frozenset((FeatureRole.LABEL, *_NAMES))
#: Roles of features with one value that each check needs.
_SINGLE = (
    FeatureRole.ENCODED,
    FeatureRole.KEY,
    FeatureRole.FILE_BASENAME,
    FeatureRole.SOURCE_SHA256,
    FeatureRole.FORMAT,
    FeatureRole.COLORSPACE,
    FeatureRole.DTYPE,
)


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


class RecordChecker:
    """Checks records of one schema; several threads can use it.

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
        self._with_rules = tuple(filter(has_rules, schema.features))
        roles = {spec.fill for spec in schema.features}
        self._of_objects = not roles.isdisjoint((*OBJECT_ROLES, *KEYPOINT_ROLES, FeatureRole.BOXES))
        self._folded = FeatureRole.FOLD in roles
        self._masked = not roles.isdisjoint(MASKS)
        self._names = {role: spec.name if (spec := schema.spec(role)) else None for role in _SINGLE}

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
        wrong: set[str] = set()
        tensors: list[Sequence[int]] = []
        for spec in self._stored:
            if problem := presence_problem(features.get(spec.name), spec):
                problems.append(problem)
                wrong.add(spec.name)
        if self._encoded:
            features, faults, tensors = _without_encodings(features, self._stored)
            problems += faults
        problems += self._value_problems(features, wrong)
        if self._of_objects and not problems:
            problems += check_objects(features, self._schema)
            problems += check_keypoints(features, self._schema)
        return self._finish(features, tensors, problems, stored)

    def _value_problems(self, features: Mapping[str, Feature], wrong: set[str]) -> Iterator[Problem]:
        """Yields the problems with values, and compares the classes of the image.

        Args:
          features: Features of the record, decoded.
          wrong: Names of those with a problem, which are not looked at.
        """
        schema = self._schema
        own, split = schema.own, schema.split
        for spec in self._with_rules:
            feature = features.get(spec.name)
            if (
                feature is not None
                and spec.name not in wrong
                and feature.type in (spec.type, None)
                and (problem := value_problem(feature, spec, own, split))
            ):
                wrong.add(spec.name)
                yield problem
        if not any(spec.fill in _LABELS for spec in schema.features if spec.name in wrong):
            yield from _check_labels(features, schema)

    def _check_encoded(
        self, encoded: bytes, declared: DeclaredImage, held: ExitStack, problems: list[Problem]
    ) -> tuple[str, bool, tuple[str, ...], Seen]:
        """Checks an image, and adds its problems.

        Args:
          encoded: Bytes of the image.
          declared: What its record declares about it.
          held: Stack that holds the memory of the decoded image.
          problems: Where the problems go.

        Returns:
          Its sha256 if requested, whether it is bare, its private data, and the result of the check.
        """
        stored_sha256 = hashlib.sha256(encoded).hexdigest() if self._hash_images else ""
        seen = check_image(
            encoded,
            declared,
            self._look,
            lambda size: held.enter_context(self._reserve(size)),
            self._schema.damaged_too,
            self._schema.bounds,
        )
        problems += seen.problems
        bare, kind = _is_bare(encoded, declared)
        private = (
            private_metadata(encoded, kind) if seen.image is not None and (not bare or kind == "tiff") else ()
        )
        return stored_sha256, bare, private, seen

    def _declared(self, features: Mapping[str, Feature], tensors: Sequence[Sequence[int]]) -> DeclaredImage:
        """Returns what a record declares about its image."""
        return DeclaredImage(
            _declared_shapes(features, tensors, self._schema),
            self._text(features, FeatureRole.FORMAT),
            _only_bytes(features, self._names[FeatureRole.COLORSPACE]),
            self._schema.pixels is not None,
            self._dtype(features),
        )

    def _dtype(self, features: Mapping[str, Feature]) -> str | None:
        dtype = self._text(features, FeatureRole.DTYPE)
        return dtype if dtype is not None else self._pixel_type or None

    def _text(self, features: Mapping[str, Feature], role: FeatureRole) -> str | None:
        value = _only_bytes(features, self._names[role])
        return None if value is None else value.decode("utf-8", "replace")

    def _finish(
        self,
        features: Mapping[str, Feature],
        tensors: Sequence[Sequence[int]],
        problems: list[Problem],
        stored: dict[str, Feature] | None,
    ) -> CheckedRecord:
        """Checks the image, and combines the results for the record."""
        schema = self._schema
        key, basename, sha256 = (
            self._text(features, role)
            for role in (FeatureRole.KEY, FeatureRole.FILE_BASENAME, FeatureRole.SOURCE_SHA256)
        )
        if schema.own and None not in (key, basename) and (key or "").rpartition("/")[2] != basename:
            message = f"its file name is {basename!r}, but its key ends differently"
            problems.append((FindingCode.WRONG_VALUE, message))
        image = self._names[FeatureRole.ENCODED]
        encoded = _only_bytes(features, image)
        classes = _class_names(features, schema)
        picture, stored_sha256, bare = None, "", None
        private: tuple[str, ...] = ()
        if self._decode:
            with ExitStack() as held:
                if encoded is not None:
                    encoded = bytes(encoded)
                    declared = self._declared(features, tensors)
                    stored_sha256, bare, private, seen = self._check_encoded(
                        encoded, declared, held, problems
                    )
                    if self._tell:
                        picture = self._picture(features, classes, seen, encoded, sha256)
                    del seen  # free the memory for others
                if self._masked:
                    problems += check_masks(features, schema)
        source = sha256
        if source is None and encoded is not None:
            source = stored_sha256 or hashlib.sha256(encoded).hexdigest()
        objects = _number_of_objects(features, schema) if self._of_objects else None
        if self._of_objects:
            classes = _object_classes(features, schema)
        if stored is not None and image in stored and not self._encoded and encoded is not None:
            stored[image] = Feature(FeatureType.BYTES, [bytes(encoded)])
        folds = _integers(features, schema, FeatureRole.FOLD) if self._folded else ()
        return CheckedRecord(
            tuple(problems), key, source, picture, sha256 is not None, classes, basename, stored,
            stored_sha256, bare, objects, private, folds[0] if folds else None, self._dtype(features) or "",
        )  # fmt: skip

    def _picture(
        self,
        features: Mapping[str, Feature],
        labels: tuple[str, ...] | None,
        seen: Seen,
        encoded: bytes,
        sha256: str | None,
    ) -> Picture | None:
        """Returns the description of an image, without its place; None if it could not be decoded."""
        if seen.image is None:
            return None
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
