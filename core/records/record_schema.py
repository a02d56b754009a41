"""The schema that all records of a dataset follow, known from its plan or inferred from its records."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from shardwright.core.images.signatures import HEAD_BYTES, kind_of
from shardwright.schemas.bounds import DEFAULT_BOUNDS, Bounds, parse_bounds
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.dataset import PictureShape, picture_shape
from shardwright.schemas.example import FeatureType, parse_example
from shardwright.schemas.feature_roles import KEYPOINT_ROLES, OBJECT_ROLES, PIXEL_MASKS
from shardwright.schemas.layouts import KEYPOINTS, PANOPTIC, SEGMENTATION, FeatureRole, FeatureSpec
from shardwright.schemas.plan import Plan

Problem = tuple[FindingCode, str]


class RecordSchema(NamedTuple):
    """The schema that all records of a dataset follow.

    Attributes:
      features: The required features.
      labels: Class names in id order; None if unknown.
      first_label: Id of the first class.
      unlabelled: Whether records may have no class.
      pixels: Height, width and channels (None for what varies) if all records hold raw pixels; None if
        they hold image files, or state their format.
      texts: Readable names of the classes, in id order, if their names are synset ids.
      split: Split of these records; empty if unknown.
      damaged_too: Whether images with missing or damaged data were written on purpose.
      classes: Class names in id order, without the numbers that `labels` has for unused ids.
      bounds: Limits on the parts of a stored image.
    """

    features: tuple[FeatureSpec, ...]
    labels: tuple[str, ...] | None = None
    first_label: int = 0
    unlabelled: bool = False
    pixels: PictureShape | None = None
    texts: tuple[str, ...] = ()
    split: str = ""
    damaged_too: bool = False
    classes: tuple[str, ...] = ()
    bounds: Bounds = DEFAULT_BOUNDS

    @property
    def own(self) -> bool:
        """Whether Shardwright wrote the records, so that they follow their layout exactly."""
        return self.labels is not None

    def spec(self, role: FeatureRole) -> FeatureSpec | None:
        """Returns the feature with a role; None if there is none."""
        return next((spec for spec in self.features if spec.fill is role), None)


#: Names of checkable features in widely used layouts.
_KNOWN_NAMES = {
    "image/encoded": FeatureRole.ENCODED,
    "image/format": FeatureRole.FORMAT,
    "image/height": FeatureRole.HEIGHT,
    "image/width": FeatureRole.WIDTH,
    "image/channels": FeatureRole.CHANNELS,
    "image/dtype": FeatureRole.DTYPE,
    "image/key/sha256": FeatureRole.SOURCE_SHA256,
}


#: Name -> feature for objects and masks in widely used layouts.
_KNOWN_SPECS: Mapping[str, FeatureSpec] = {
    spec.name: spec
    for layout in (KEYPOINTS, SEGMENTATION, PANOPTIC)
    for spec in layout.features
    if spec.fill in (*OBJECT_ROLES, *KEYPOINT_ROLES, *PIXEL_MASKS)
}


def schema_of_plan(features: Sequence[FeatureSpec], first_label: int, plan: Plan) -> RecordSchema:
    """Returns the record schema of a dataset that was built from a plan."""
    settings, bounds = plan.settings, DEFAULT_BOUNDS
    with contextlib.suppress(ValueError):  # the file may be damaged
        bounds = parse_bounds(str(settings.get("bounds", "")))
    return RecordSchema(
        tuple(features),
        plan.labels,
        first_label,
        settings.get("unlabelled") == "keep",
        picture_shape(settings) if settings.get("image_format") == "raw" else None,
        plan.label_texts if plan.texts else (),
        damaged_too=settings.get("damaged") == "keep",
        classes=tuple(plan.classes(first_label).values()),
        bounds=bounds,
    )


def infer_schema(records: Sequence[bytes]) -> RecordSchema:
    """Infers the schema of records of unknown origin from some of them.

    A feature is required if all records have it, and has a fixed length if all lengths are equal. Features
    with values per object are neither. The encoded image is found by its name, or else by its bytes.
    """
    examples = []
    for data in records:
        try:
            examples.append(parse_example(data))
        except ValueError:
            continue
    if not examples:
        return RecordSchema(())
    shared = set.intersection(*(set(example) for example in examples))
    specs = []
    for name in sorted(set().union(*examples)):
        features = [example[name] for example in examples if name in example]
        types = {feature.type for feature in features if feature.type is not None}
        known_spec = _KNOWN_SPECS.get(name)
        if known_spec is not None and types <= {known_spec.type}:
            specs.append(replace(known_spec, optional=True))
        if len(types) != 1 or name not in shared or name in _KNOWN_SPECS:
            continue
        type_: FeatureType = types.pop()
        lengths = {len(feature.values) for feature in features}
        shape: tuple[int | None, ...] = (None,)
        if len(lengths) == 1:
            length = lengths.pop()
            shape = () if length == 1 else (length,)
        specs.append(FeatureSpec(name, type_, shape, _KNOWN_NAMES.get(name)))
    if not any(spec.fill is FeatureRole.ENCODED for spec in specs):
        for i, spec in enumerate(specs):
            if spec.type is FeatureType.BYTES and spec.shape == () and spec.fill is None:
                value = examples[0][spec.name].values[0]
                if isinstance(value, bytes) and kind_of(value[:HEAD_BYTES]):
                    specs[i] = FeatureSpec(spec.name, spec.type, spec.shape, FeatureRole.ENCODED)
                    break
    return RecordSchema(tuple(specs))
