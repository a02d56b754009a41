"""Checks one record against its expected features, and its image against its other features."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from shardwright.core.concurrency.thread_pool import reserve_working_bytes
from shardwright.core.images.metadata import private_metadata, strip_metadata
from shardwright.core.images.quality_metrics import measure_quality, measure_stored_samples
from shardwright.core.images.signatures import HEAD_BYTES, kind_of
from shardwright.core.records.encodings import plain_spec
from shardwright.core.records.record_schema import Problem, RecordSchema
from shardwright.core.validation.image import DeclaredImage, check_image
from shardwright.core.validation.objects import (
    box_sizes,
    check_class,
    check_keypoints,
    check_masks,
    check_objects,
)
from shardwright.core.validation.values import (
    ValueCheck,
    ValuesByRole,
    decoded_features,
    integers,
    only_bytes,
    only_text,
    presence_problem,
    specs_with_roles,
    value_check,
    values_by_role,
)
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.dataset import PictureShape
from shardwright.schemas.example import Feature, parse_example
from shardwright.schemas.feature_roles import CLASS_ROLES, KEYPOINT_ROLES, OBJECT_ROLES, PICTURE_SIDES
from shardwright.schemas.labels import UNLABELLED
from shardwright.schemas.layouts import Encoding, FeatureRole, FeatureSpec, pixel_type_of
from shardwright.schemas.pictures import Picture
from shardwright.schemas.units import counted

#: Roles of features that contain the class name.
_NAMES = (FeatureRole.LABEL_TEXT, FeatureRole.SYNSET)


class CheckedRecord(NamedTuple):
    """Result of checking a record, with the values that are compared with other records and with the ledger.

    Attributes:
      problems: Problems that were found.
      key: Key of the image. None if the record does not say.
      source: sha256 of the source image, or else of the stored image.
      picture: Description of the image, without its place. None if it was not decoded or not measured.
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
      format: Format of the stored image. Empty if it was not decoded.
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
    format: str = ""


@dataclass(frozen=True)
class RecordChecker:
    """Checks records of one schema; several threads can use it.

    Attributes:
      schema: Record schema of the dataset.
      decode: Whether to decode images and compare them with their records.
      look: Whether to compute quality metrics of the decoded images, too.
      hash_images: Whether to compute the sha256 of the stored images that are decoded.
    """

    schema: RecordSchema
    decode: bool
    look: bool = False
    hash_images: bool = False

    @cached_property
    def _plain(self) -> RecordSchema:
        """The schema of records whose features are decoded."""
        return self.schema._replace(features=tuple(map(plain_spec, self.schema.features)))

    @cached_property
    def _encoded(self) -> list[FeatureSpec]:
        """The features whose values have to be decoded."""
        return [spec for spec in self.schema.features if spec.encoding is not Encoding.PLAIN]

    @cached_property
    def _value_checks(self) -> list[tuple[FeatureSpec, ValueCheck]]:
        """The decoded features whose values are checked, with their checks."""
        own, split = self.schema.own, self.schema.split
        return [(spec, check) for spec in self._plain.features if (check := value_check(spec, own, split))]

    @cached_property
    def _pixel_type(self) -> str:
        return pixel_type_of(self.schema.features)

    @cached_property
    def _with_roles(self) -> tuple[FeatureSpec, ...]:
        return specs_with_roles(self._plain.features)

    @cached_property
    def _of_objects(self) -> bool:
        roles = {spec.fill for spec in self._with_roles}
        return not roles.isdisjoint((*OBJECT_ROLES, *KEYPOINT_ROLES, FeatureRole.BOXES))

    def check(self, data: bytes) -> CheckedRecord:
        """Checks a record.

        Args:
          data: The serialized Example.
        """
        try:
            features: dict[str, Feature] = parse_example(data)
        except ValueError as error:
            return CheckedRecord(((FindingCode.UNPARSEABLE, f"it is not a tf.train.Example: {error}"),))
        problems: list[Problem] = []
        wrong: set[str] = set()
        for spec in self.schema.features:
            if problem := presence_problem(features.get(spec.name), spec):
                problems.append(problem)
                wrong.add(spec.name)
        decoded, faults, tensors = decoded_features(features, self._encoded)
        problems += faults
        schema = self._plain
        for spec, check_values in self._value_checks:
            feature = decoded.get(spec.name)
            if feature is None or spec.name in wrong or feature.type not in (spec.type, None):
                continue
            if problem := check_values(feature.values):
                problems.append(problem)
                wrong.add(spec.name)
        values = values_by_role(decoded, self._with_roles)
        if not wrong or not any(spec.fill in CLASS_ROLES for spec in schema.features if spec.name in wrong):
            problems += _check_labels(values, schema)
        if self._of_objects and not problems:
            problems += check_objects(values, schema)
            problems += check_keypoints(values, schema)
        return self._finish(values, tensors, problems, features if self.look else None)

    def _dtype(self, values: ValuesByRole) -> str | None:
        dtype = only_text(values, FeatureRole.DTYPE)
        return dtype if dtype is not None else self._pixel_type or None

    def _finish(
        self,
        values: ValuesByRole,
        tensors: Sequence[Sequence[int]],
        problems: list[Problem],
        stored: Mapping[str, Feature] | None,
    ) -> CheckedRecord:
        """Checks the image, and combines the results for the record.

        The order of the problems is that of the checks: features, image, masks.
        """
        schema = self._plain
        key, basename, sha256 = (
            only_text(values, role)
            for role in (FeatureRole.KEY, FeatureRole.FILE_BASENAME, FeatureRole.SOURCE_SHA256)
        )
        if schema.own and None not in (key, basename) and (key or "").rpartition("/")[2] != basename:
            message = f"its file name is {basename!r}, but its key ends differently"
            problems.append((FindingCode.WRONG_VALUE, message))
        encoded = only_bytes(values, FeatureRole.ENCODED)
        classes = _class_names(values, schema)
        boxes, folds = values.get(FeatureRole.BOX_XMIN), integers(values, FeatureRole.FOLD)
        checked = CheckedRecord(
            tuple(problems),
            key,
            sha256 or None,  # other writers may leave it empty
            source_in_record=bool(sha256),
            classes=_object_classes(values, schema) if self._of_objects else classes,
            basename=basename,
            features=stored,
            objects=None if boxes is None else len(boxes),
            fold=folds[0] if folds else None,
            dtype=self._dtype(values) or "",
        )
        if encoded is not None and self.decode:
            checked = self._with_image(checked, encoded, values, tensors, classes or ())
        if encoded is not None and not sha256:
            source = checked.stored_sha256 or hashlib.sha256(encoded).hexdigest()
            checked = checked._replace(source=source)
        if self.decode:
            checked = checked._replace(problems=(*checked.problems, *check_masks(values, schema)))
        return checked

    def _with_image(
        self,
        checked: CheckedRecord,
        encoded: bytes,
        values: ValuesByRole,
        tensors: Sequence[Sequence[int]],
        labels: tuple[str, ...],
    ) -> CheckedRecord:
        """Decodes the image, compares it with what its record declares, and adds the results."""
        declared = DeclaredImage(
            _declared_shapes(values, tensors, self.schema),
            only_text(values, FeatureRole.FORMAT),
            only_bytes(values, FeatureRole.COLORSPACE),
            self.schema.pixels is not None,
            self._dtype(values),
        )
        with ExitStack() as held:
            seen = check_image(
                encoded,
                declared,
                self.look,
                lambda size: held.enter_context(reserve_working_bytes(size)),
                self.schema.damaged_too,
                self.schema.bounds,
            )
            checked = checked._replace(
                problems=(*checked.problems, *seen.problems),
                stored_sha256=hashlib.sha256(encoded).hexdigest() if self.hash_images else "",
            )
            if seen.image is None:
                return checked
            kind = "" if seen.format == "raw" else kind_of(encoded[:HEAD_BYTES]) or ""
            bare = strip_metadata(encoded, kind) == encoded
            private = private_metadata(encoded, kind) if not bare or kind == "tiff" else ()
            checked = checked._replace(format=seen.format, bare=bare, private=private)
            if not self.look:
                return checked
            samples = seen.samples
            picture = Picture(
                "", 0, 0, None, "",
                labels=labels,
                bytes=len(encoded),
                format=seen.format,
                width=seen.size[0],
                height=seen.size[1],
                boxes=box_sizes(values),
                quality=measure_quality(seen.image)
                if samples is None
                else measure_stored_samples(seen.image, samples),
            )  # fmt: skip
            return checked._replace(picture=picture)


def after_crash(checked: CheckedRecord, how: str) -> CheckedRecord:
    """Returns the result for a record whose check ended its worker process.

    Args:
      checked: Result of checking the record without decoding its image.
      how: Signal or exit code of the process.
    """
    problem = FindingCode.UNDECODABLE, f"the decoder crashed ({how})"
    return checked._replace(problems=(*checked.problems, problem))


def _class_names(values: ValuesByRole, schema: RecordSchema) -> tuple[str, ...] | None:
    """Returns the names of the image's classes: from its ids, or else from its texts."""
    if schema.labels is not None and schema.spec(FeatureRole.LABEL) is not None:
        return _names_of(integers(values, FeatureRole.LABEL), schema.labels, schema.first_label)
    for names in (values[role] for role in _NAMES if role in values):
        return tuple(name.decode("utf-8", "replace") for name in names if name)
    return None


def _object_classes(values: ValuesByRole, schema: RecordSchema) -> tuple[str, ...] | None:
    """Returns the names of the classes of an image's objects, each once; None if the record does not say."""
    if FeatureRole.OBJECT_LABEL in values and schema.labels is not None:
        names = _names_of(values[FeatureRole.OBJECT_LABEL], schema.labels, schema.first_label)
    elif FeatureRole.OBJECT_TEXT in values:
        names = tuple(name.decode("utf-8", "replace") for name in values[FeatureRole.OBJECT_TEXT])
    else:
        return None
    return tuple(sorted(set(names)))


def _names_of(ids: Iterable[int], labels: Sequence[str], first: int) -> tuple[str, ...]:
    """Returns the names of the ids that are valid."""
    return tuple(labels[class_id - first] for class_id in ids if 0 <= class_id - first < len(labels))


def _check_labels(values: ValuesByRole, schema: RecordSchema) -> Iterator[Problem]:
    """Compares the classes of the image with the dataset's classes."""
    texts = {role: values[role] for role in _NAMES if role in values}
    ids = values.get(FeatureRole.LABEL)
    if ids is None:
        for role, names in texts.items():
            labels = _naming(role, schema).labels
            for text in (name.decode("utf-8", "replace") for name in names):
                if labels is not None and text not in labels and (text or not schema.unlabelled):
                    yield FindingCode.LABEL_TEXT, f"class {text!r} is not among the class names"
        return
    unlabelled = schema.unlabelled and list(ids) in ([], [UNLABELLED])
    if unlabelled and all(list(names) in ([], [b""]) for names in texts.values()):
        return
    for role, names in texts.items():
        if len(names) != len(ids):
            label, text = (spec.name for of in (FeatureRole.LABEL, role) if (spec := schema.spec(of)))
            message = f"feature {label!r} has {counted(len(ids), 'value')}, {text!r} has {len(names)}"
            yield FindingCode.LENGTH_MISMATCH, message
            return
    # A wrong id is reported once, without the names that are stored with it.
    problems = (
        problem
        for role, names in (texts or {FeatureRole.LABEL: ids}).items()
        for class_id, name in zip(ids, names)
        for problem in check_class(class_id, name, _naming(role, schema))
    )
    yield from dict.fromkeys(problems)


def _naming(role: FeatureRole, schema: RecordSchema) -> RecordSchema:
    """Returns a schema with the class names that a feature contains: synset ids, or display names."""
    if role is FeatureRole.LABEL_TEXT and schema.texts:
        return schema._replace(labels=schema.texts)
    return schema


def _declared_shapes(
    values: ValuesByRole, tensors: Sequence[Sequence[int]], schema: RecordSchema
) -> list[PictureShape]:
    """Returns height, width and channels from each feature that states some of them, and from the schema.

    Args:
      values: Values of the record by role.
      tensors: Shapes of its tensors of pixels.
      schema: Record schema of the dataset.
    """
    shapes = [schema.pixels] if schema.pixels else []
    shape = integers(values, FeatureRole.SHAPE)
    shapes += [(each[0], each[1], each[2]) for each in (*tensors, *([shape] if len(shape) == 3 else []))]
    sides = [integers(values, role) for role in PICTURE_SIDES]
    height, width, channels = (side[0] if len(side) == 1 else None for side in sides)
    return [*shapes, (height, width, channels)]
