"""Record layouts as data: the features of a record, and the content of each feature."""

from __future__ import annotations

import json
from functools import lru_cache

from shardwright.schemas.errors import UsageError, nearest
from shardwright.schemas.feature_roles import FEATURE_ROLES, FeatureRole, Needs, RoleInfo
from shardwright.schemas.layouts.built_in import (
    CLASSIFICATION,
    DETECTION,
    KEYPOINTS,
    LAYOUTS,
    PANOPTIC,
    SEGMENTATION,
)
from shardwright.schemas.layouts.spec import (
    Encoding,
    FeatureSpec,
    Layout,
    extended,
    features_from_json,
    features_json,
    inline_layout,
    layout_from_json,
)
from shardwright.schemas.values import short_repr

__all__ = [
    "CLASSIFICATION",
    "DETECTION",
    "FEATURE_ROLES",
    "KEYPOINTS",
    "LAYOUTS",
    "PANOPTIC",
    "SEGMENTATION",
    "Encoding",
    "FeatureRole",
    "FeatureSpec",
    "Layout",
    "Needs",
    "RoleInfo",
    "extended",
    "features_from_json",
    "features_json",
    "inline_layout",
    "is_layout_file",
    "layout_by_name",
    "layout_from_json",
]  # fmt: skip


def is_layout_file(value: str) -> bool:
    """Whether a value of `--layout` names a file."""
    return value.lower().endswith((".yaml", ".yml"))


def layout_by_name(value: str) -> Layout:
    """Returns the layout for a value of the setting `layout`: a built-in name or a result of `inline_layout`.

    Raises:
      UsageError: If there is no layout of that name, or the layout is damaged.
    """
    if value.startswith("{"):
        return _inline(value)
    if is_layout_file(value):
        raise UsageError(
            f"--layout {value}: the file has not been read; give settings what "
            "shardwright.core.layout_files.read_layout returns."
        )
    if value not in LAYOUTS:
        raise UsageError(
            f"--layout {short_repr(value)[1:-1]}: unknown layout; name a file that ends in .yaml, or "
            f"choose one of {', '.join(LAYOUTS)}{nearest(value, tuple(LAYOUTS)) or '.'}"
        )
    return LAYOUTS[value]


@lru_cache(maxsize=16)
def _inline(value: str) -> Layout:
    try:
        return layout_from_json(json.loads(value))
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        raise UsageError(
            f"--layout {short_repr(value)}: this is not a layout; name a file that ends in .yaml, or "
            f"choose one of {', '.join(LAYOUTS)}."
        ) from None
