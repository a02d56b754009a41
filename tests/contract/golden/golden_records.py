"""One record of every built-in layout, and of a custom one, as the bytes that are currently written."""

from __future__ import annotations

import hashlib
from typing import Any

from shardwright.core.images.convert import ConvertedImage
from shardwright.core.images.geometry import Frame, plan_geometry
from shardwright.core.records.build import build_example, label_ids
from shardwright.schemas.columns import encode_extra
from shardwright.schemas.configuration.layout_file import parse_layout_file
from shardwright.schemas.example import Feature, parse_example
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.layouts import LAYOUTS, FeatureRole, Layout

OWN = """
extends: vision
needs: objects
pixels: true
features:
  picture: {fill: encoded, tensor: true}
  size: {fill: shape, tensor: true}
  name: {fill: file_basename, base64: true}
  corners: {fill: boxes, tensor: true}
  price: {column: price, type: double}
  exact: {column: price64, type: double, tensor: true}
  tags: {column: tags, type: string, shape: [null], tensor: true}
  grid: {column: grid, type: int32, shape: [2, 2]}
  rare: {column: rare, type: string, optional: true}
  version: {constant: 3, type: int32}
  mean: {constant: [[0.5, 0.25], [1, 2]], type: float, tensor: true}
  kind: {constant: "photo", type: string, base64: true}
"""
HEIGHT, WIDTH = 2, 3
PIXELS = bytes(range(HEIGHT * WIDTH * 3))
ANNOTATED = {
    FeatureRole.BOX_XMIN: [0.0, 0.25],
    FeatureRole.BOX_YMIN: [0.0, 0.5],
    FeatureRole.BOX_XMAX: [1.0, 0.5],
    FeatureRole.BOX_YMAX: [0.5, 1.0],
    FeatureRole.BOXES: [0.0, 0.0, 0.5, 1.0, 0.5, 0.25, 1.0, 0.5],
    FeatureRole.OBJECT_LABEL: [1, 2],
    FeatureRole.OBJECT_TEXT: [b"cat", b"dog"],
    FeatureRole.OBJECT_CROWD: [0, 1],
    FeatureRole.OBJECT_AREA: [3.0, 0.75],
    FeatureRole.OBJECT_DIFFICULT: [0, 1],
    FeatureRole.OBJECT_MASK: [b"mask 1", b"mask 2"],
    FeatureRole.KEYPOINT_X: [0.25, 0.5, 0.0, 0.75],
    FeatureRole.KEYPOINT_Y: [0.5, 0.5, 0.0, 1.0],
    FeatureRole.KEYPOINT_VISIBILITY: [2, 1, 0, 2],
    FeatureRole.KEYPOINT_TEXT: [b"nose", b"tail", b"nose", b"tail"],
    FeatureRole.KEYPOINT_NUM: [2, 1],
    FeatureRole.CAPTION: [b"two of them"],
    FeatureRole.SEMANTIC_MASK: [b"mask"],
    FeatureRole.SEMANTIC_FORMAT: [b"png"],
    FeatureRole.PANOPTIC_CATEGORY: [b"categories"],
    FeatureRole.PANOPTIC_INSTANCE: [b"instances"],
}


def layouts() -> dict[str, Layout]:
    """Returns the layouts by name."""
    return {**LAYOUTS, "own": parse_layout_file(OWN, "own.yaml")}


def record(layout: Layout) -> bytes:
    """Returns the record of a picture of 3 x 2 pixels; its file is a placeholder."""
    wanted = layout.by_role
    image = ConvertedImage(
        encoded=PIXELS if layout.pixels else b"\xff\xd8 a file \xff\xd9",
        format="raw" if layout.pixels else "jpg",
        height=HEIGHT,
        width=WIDTH,
        channels=3,
        kept=False,
        animated=False,
        frame=Frame((WIDTH, HEIGHT), 1, plan_geometry(WIDTH, HEIGHT, None, "stretch")),
    )
    extra = {"price": [0.5], "price64": [0.1], "tags": ["a", "ü"], "grid": [1, 2, 3, 4]}
    ref = ImageRef(key="dog/größe 1.jpg", uri="x", label="dog", split="train", extra=encode_extra(extra))
    annotated = {role: value for role, value in ANNOTATED.items() if role in wanted}
    sha256 = hashlib.sha256(b"source").hexdigest()
    ids = label_ids(("cat", "dog"), layout.first_label)
    return build_example(layout, ids, ref, image, sha256, annotated)


def document() -> dict[str, Any]:
    """Returns for each layout its record in hex, and its content in readable form."""
    return {
        name: {"features": shown(record(layout)), "record": record(layout).hex()}
        for name, layout in layouts().items()
    }


def shown(data: bytes) -> dict[str, Any]:
    return {name: _values(feature) for name, feature in sorted(parse_example(data).items())}


def _values(feature: Feature) -> list[Any]:
    return [
        value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
        for value in feature.values
    ]
