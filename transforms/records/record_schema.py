"""What every record of a dataset promises, and how that is inferred from records of unknown origin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from shardwright.schemas.bounds import DEFAULT_BOUNDS, Bounds, parse_bounds
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.dataset import PictureShape, picture_shape_of
from shardwright.schemas.example import FeatureType, parse_example
from shardwright.schemas.feature_roles import OBJECT_ROLES
from shardwright.schemas.layouts import DETECTION, PANOPTIC, SEGMENTATION, FeatureRole, FeatureSpec
from shardwright.schemas.plan import Plan
from shardwright.transforms.images.signatures import HEAD_BYTES, kind_of

Problem = tuple[FindingCode, str]


class RecordSchema(NamedTuple):
    """What every record of a dataset promises.

    Attributes:
      features: the features that must be there.
      labels: class names in id order; None if they are not known.
      first_label: the id of the first class.
      unlabelled: whether records may say that their image has no class.
      pixels: height, width and channels (None for what varies) of bare pixels where all records hold
        such; None where they hold image files, or say what they hold.
      texts: what the classes are called, in id order, where their names are synset ids.
      split: of the records at hand; empty if unknown.
      damaged_too: whether images with missing or damaged data were written on purpose.
      unused_ids: ids that no class has; a number stands for them in `labels`.
      bounds: the most parts that a stored image may have.
    """

    features: tuple[FeatureSpec, ...]
    labels: tuple[str, ...] | None = None
    first_label: int = 0
    unlabelled: bool = False
    pixels: PictureShape | None = None
    texts: tuple[str, ...] = ()
    split: str = ""
    damaged_too: bool = False
    unused_ids: tuple[int, ...] = ()
    bounds: Bounds = DEFAULT_BOUNDS

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names in id order, without what stands for ids that no class has."""
        unused = set(self.unused_ids)
        return tuple(n for i, n in enumerate(self.labels or (), self.first_label) if i not in unused)

    @property
    def own(self) -> bool:
        """Whether the records were written by this project, and so keep all that their layout says."""
        return self.labels is not None

    def spec(self, role: FeatureRole) -> FeatureSpec | None:
        """Returns the feature with a role, if there is one."""
        return next((spec for spec in self.features if spec.fill is role), None)


#: Names under which layouts in wide use store what can be checked.
_KNOWN_NAMES = {
    "image/encoded": FeatureRole.ENCODED,
    "image/format": FeatureRole.FORMAT,
    "image/height": FeatureRole.HEIGHT,
    "image/width": FeatureRole.WIDTH,
    "image/channels": FeatureRole.CHANNELS,
    "image/key/sha256": FeatureRole.SOURCE_SHA256,
}


#: Features with objects and masks of the layouts in wide use, by name.
_KNOWN_SPECS: Mapping[str, FeatureSpec] = {
    spec.name: spec
    for layout in (DETECTION, SEGMENTATION, PANOPTIC)
    for spec in layout.features
    if spec.fill
    in (
        *OBJECT_ROLES,
        FeatureRole.SEMANTIC_MASK,
        FeatureRole.PANOPTIC_CATEGORY,
        FeatureRole.PANOPTIC_INSTANCE,
    )
}


def contract_of_plan(features: Sequence[FeatureSpec], first_label: int, plan: Plan) -> RecordSchema:
    """Returns what every record promises of a dataset that was built by a plan."""
    settings = plan.settings
    return RecordSchema(
        tuple(features),
        plan.labels,
        first_label,
        settings.get("unlabelled") == "keep",
        picture_shape_of(settings) if settings.get("image_format") == "raw" else None,
        plan.label_texts if plan.texts else (),
        damaged_too=settings.get("damaged") == "keep",
        unused_ids=plan.unused_ids,
        bounds=_bounds_of(settings),
    )


def _bounds_of(settings: Mapping[str, Any]) -> Bounds:
    """Returns the bounds of a dataset; the defaults where its settings say nothing that is right."""
    try:
        return parse_bounds(str(settings.get("bounds", "")))
    except ValueError:
        return DEFAULT_BOUNDS


def infer_contract(records: Sequence[bytes]) -> RecordSchema:
    """Infers from some records of unknown origin which features all of them have.

    A feature is required if every one of the records has it, and of fixed length if they agree; those
    with something for each object are neither. The encoded image is found by its name or, failing
    that, by its bytes.
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
        known = _KNOWN_SPECS.get(name)
        if known is not None and types <= {known.type}:
            specs.append(replace(known, optional=True))
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
