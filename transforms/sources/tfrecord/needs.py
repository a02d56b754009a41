"""Checks that records have the annotations that a layout needs."""

from __future__ import annotations

from collections.abc import Sequence

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.layouts import LAYOUTS, FeatureRole, Layout, Needs
from shardwright.transforms.sources.tfrecord.layouts import FeatureNames

#: Descriptions of missing annotations, with the features that contain them in common layouts.
_CLASS = "class of the image (image/class/label, image/class/text, label or the like)"
_BOXES = "boxes (image/object/bbox/xmin, ymin, xmax and ymax, or objects/bbox)"
_OBJECT_CLASSES = "classes of the objects (image/object/class/label or text, or objects/label)"
_SEMANTIC = "mask with the class of every pixel (image/segmentation/class/encoded)"
_PANOPTIC = "panoptic masks (image/panoptic/category_mask and image/panoptic/instance_mask)"
#: Values of objects that only some sources have, and that have no default.
_RARE_ROLES = (
    FeatureRole.OBJECT_DIFFICULT,
    FeatureRole.OBJECT_TRUNCATED,
    FeatureRole.OBJECT_OCCLUDED,
    FeatureRole.OBJECT_GROUP_OF,
    FeatureRole.OBJECT_DEPICTION,
    FeatureRole.OBJECT_VIEW,
    FeatureRole.OBJECT_MASK,
    FeatureRole.KEYPOINT_X,
)


def lacking(names: FeatureNames, layout: Layout) -> list[str]:
    """Returns descriptions of the annotations that a layout needs and records do not have."""
    if layout.needs is Needs.LABEL:
        return [] if names.has(Needs.LABEL) else [_CLASS]
    found = []
    if layout.needs is Needs.OBJECTS:
        if not names.boxes:
            found.append(_BOXES)
        elif not (names.name(FeatureRole.OBJECT_LABEL) or names.name(FeatureRole.OBJECT_TEXT)):
            found.append(_OBJECT_CLASSES)
    if layout.needs is Needs.SEMANTIC and not names.has(Needs.SEMANTIC):
        found.append(_SEMANTIC)
    if layout.needs is Needs.PANOPTIC and not names.has(Needs.PANOPTIC):
        found.append(_PANOPTIC)
    for spec in layout.features:
        if spec.fill not in _RARE_ROLES or spec.optional or spec.fill in names.by_role:
            continue
        if names.has_objects:
            what = spec.fill.removeprefix("object_")
            found.append(f"{what} of the objects (feature {spec.name} of the layout, which is not optional)")
    return found


def check_needs(
    shown: str, features: Sequence[str], names: Sequence[FeatureNames], settings: ConvertSettings
) -> None:
    """Checks that at least one record has the annotations that the layout needs.

    Args:
      shown: Name of the input for messages.
      features: Names of the records' features.
      names: Roles of the features of each record.
      settings: Checked settings.

    Raises:
      UsageError: If annotations are missing; the message names them and the layouts that work.
    """
    layout = settings.record_layout
    if not names or (layout.needs is Needs.LABEL and settings.unlabelled == "keep"):
        return
    missing = min((lacking(found, layout) for found in names), key=len)
    if not missing:
        return
    fitting = [
        item.name
        for item in LAYOUTS.values()
        if item.needs is not Needs.IMAGE and any(not lacking(found, item) for found in names)
    ]
    if fitting:
        advice = f"choose --layout {_either(fitting)}"
        if layout.needs is Needs.LABEL:
            advice += ", or --unlabelled keep, or --layout images to store no classes"
    elif layout.needs is Needs.LABEL:
        advice = "choose --unlabelled keep, or --layout images to store no classes"
    else:
        advice = "name records with annotations of that kind"
    more = ", ..." if len(features) > 20 else ""
    raise UsageError(
        f"--layout {layout.name}: the records of {shown} have no {' and no '.join(missing)}; "
        f"they have the features: {', '.join(features[:20])}{more}; {advice}."
    )


def _either(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
