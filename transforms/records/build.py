"""Fills a layout's features for one image and serialises them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardwright.schemas.codes import QuarantineReason, Stage
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.example import Feature, FeatureType, encode_example
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.layouts import Fill, Layout
from shardwright.transforms.images.convert import ConvertedImage


def label_ids(labels: Sequence[str], first_label: int = 0) -> dict[str, int]:
    """Returns class name -> id."""
    return {name: first_label + i for i, name in enumerate(labels)}


def build_features(
    ref: ImageRef, image: ConvertedImage, sha256: str, layout: Layout, ids: Mapping[str, int]
) -> dict[str, Feature]:
    """Returns the features of one image's record.

    Args:
      ref: the image's reference.
      image: the image as it is stored.
      sha256: hex digest of the source bytes.
      layout: the record layout.
      ids: class name -> id.

    Raises:
      ImageFault: if the label is not among the class names.
    """
    if ref.label not in ids:
        raise ImageFault(
            QuarantineReason.UNKNOWN_LABEL, Stage.BUILD, f"class {ref.label!r} is not a known name"
        )
    values: dict[Fill, bytes | int] = {
        Fill.ENCODED: image.encoded,
        Fill.FORMAT: image.format.encode(),
        Fill.HEIGHT: image.height,
        Fill.WIDTH: image.width,
        Fill.CHANNELS: image.channels,
        Fill.LABEL: ids[ref.label],
        Fill.LABEL_TEXT: ref.label.encode(),
        Fill.KEY: ref.key.encode(),
        Fill.SOURCE_SHA256: sha256.encode(),
    }
    features: dict[str, Feature] = {}
    for spec in layout.features:
        assert spec.fill is not None
        value = values[spec.fill]
        assert isinstance(value, bytes) == (spec.type is FeatureType.BYTES)
        features[spec.name] = Feature(spec.type, [value])
    return features


def build_example(
    ref: ImageRef, image: ConvertedImage, sha256: str, layout: Layout, ids: Mapping[str, int]
) -> bytes:
    """Returns `build_features` serialised as `tf.train.Example`."""
    return encode_example(build_features(ref, image, sha256, layout, ids))
