"""Fills a layout's features for one image and serialises them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardwright.schemas.codes import QuarantineReason, Stage
from shardwright.schemas.columns import decode_extra
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.example import Feature, FeatureType, encode_example
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.labels import UNLABELLED
from shardwright.schemas.layouts import FeatureSpec, Fill, Layout, Needs
from shardwright.transforms.images.convert import ConvertedImage


def label_ids(labels: Sequence[str], first_label: int = 0) -> dict[str, int]:
    """Returns class name -> id."""
    return {name: first_label + i for i, name in enumerate(labels)}


def check_labels(ref: ImageRef, layout: Layout, ids: Mapping[str, int]) -> None:
    """Checks that the classes of an image are known ones.

    Raises:
      ImageFault: if they are not, and the layout is about them.
    """
    unknown = [name for name in ref.labels if name not in ids]
    if unknown and layout.needs is Needs.LABEL:
        raise ImageFault(
            QuarantineReason.UNKNOWN_LABEL,
            Stage.BUILD,
            f"its class {unknown[0]!r} is not among the class names",
        )


def build_features(
    ref: ImageRef,
    image: ConvertedImage,
    sha256: str,
    layout: Layout,
    ids: Mapping[str, int],
    annotated: Mapping[Fill, Sequence[Any]] | None = None,
) -> dict[str, Feature]:
    """Returns the features of one image's record.

    Args:
      ref: the image's reference.
      image: the image as it is stored.
      sha256: hex digest of the source bytes.
      layout: the record layout.
      ids: class name -> id.
      annotated: the values that come from the image's annotations.

    Raises:
      ImageFault: if the label is not among the class names.
    """
    check_labels(ref, layout, ids)
    names = ref.labels
    values: dict[Fill, Sequence[Any]] = {
        Fill.ENCODED: [image.encoded],
        Fill.FORMAT: [(layout.jpeg_name if image.format == "jpg" else image.format).encode()],
        Fill.HEIGHT: [image.height],
        Fill.WIDTH: [image.width],
        Fill.CHANNELS: [image.channels],
        Fill.LABEL: [ids[name] for name in names if name in ids],
        Fill.LABEL_TEXT: [name.encode() for name in names],
        Fill.KEY: [ref.key.encode()],
        Fill.SOURCE_SHA256: [sha256.encode()],
        **(annotated or {}),
    }
    extra = decode_extra(ref.extra)
    features: dict[str, Feature] = {}
    for spec in layout.features:
        if spec.fill is Fill.EXTRA:
            features[spec.name] = _extra_feature(spec, extra.get(spec.name, []))
            continue
        assert spec.fill is not None
        found = values.get(spec.fill, ())
        if not found and spec.optional:
            continue
        if not found and spec.shape == ():
            found = [UNLABELLED] if spec.fill is Fill.LABEL else [b""]
        features[spec.name] = Feature(spec.type, found)
    return features


def _extra_feature(spec: FeatureSpec, found: Sequence[Any]) -> Feature:
    """Returns an extra column's feature.

    Raises:
      ImageFault: if the source has no value and one is needed.
    """
    if spec.shape == () and not found:
        raise ImageFault(
            QuarantineReason.BAD_ROW, Stage.BUILD, f"its source has no value of the extra column {spec.name}"
        )
    if spec.type is FeatureType.BYTES:
        found = [value.encode("utf-8", "surrogateescape") for value in found]
    return Feature(spec.type, found)


def build_example(
    ref: ImageRef,
    image: ConvertedImage,
    sha256: str,
    layout: Layout,
    ids: Mapping[str, int],
    annotated: Mapping[Fill, Sequence[Any]] | None = None,
) -> bytes:
    """Returns `build_features` serialised as `tf.train.Example`."""
    return encode_example(build_features(ref, image, sha256, layout, ids, annotated))
