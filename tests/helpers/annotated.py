"""Converts pictures with annotations, and returns the values that their record would hold."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from shardwright.core.images.annotate import Annotated, annotate, read_mask
from shardwright.core.images.convert import ConvertedImage, convert_image
from shardwright.schemas.annotations import Annotations, ObjectAnnotation
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import ImageRef

IDS = {"cat": 1, "dog": 2, "owl": 7}


def settings_of(layout: str, **values: Any) -> ConvertSettings:
    settings = replace(ConvertSettings(input=("in",), output="out", layout=layout), **values)
    settings.check()
    return settings


def annotated(
    data: bytes,
    annotations: Annotations | None,
    layout: str = "detection",
    ids: Mapping[str, int] = IDS,
    **values: Any,
) -> tuple[ConvertedImage, Annotated]:
    """Converts an image file and its annotations."""
    settings = settings_of(layout, **values)
    image = convert_image(data, "a.png", settings)
    ref = ImageRef("a.png", "a.png", annotations=annotations.encode() if annotations else "")
    return image, annotate(ref, image, settings, ids, read_mask(ref, settings))


def cat(*box: float, **values: Any) -> ObjectAnnotation:
    """Returns an object: a cat in a box."""
    return ObjectAnnotation("cat", box or None, **values)  # type: ignore[arg-type]


def boxes_of(image: ConvertedImage, result: Annotated) -> list[tuple[float, float, float, float]]:
    """Returns the boxes of a record in pixels: xmin, ymin, xmax, ymax."""
    names = ("box_xmin", "box_ymin", "box_xmax", "box_ymax")
    columns: Sequence[Sequence[float]] = [result.values[name] for name in names]  # type: ignore[index]
    width, height = image.width, image.height
    return [(a * width, b * height, c * width, d * height) for a, b, c, d in zip(*columns, strict=True)]


def png_pixels(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        assert image.format == "PNG"
        return np.asarray(image)


def saved(path: Path, pixels: np.ndarray, **options: Any) -> str:
    """Writes the picture of a mask; returns its path."""
    Image.fromarray(pixels).save(path, **options)
    return str(path)
