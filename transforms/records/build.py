"""Fills the features of a layout for one image and serializes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from shardwright.schemas.codes import QuarantineReason, Stage
from shardwright.schemas.columns import decode_extra
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.example import Feature, FeatureType, encode_example
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.labels import UNLABELLED
from shardwright.schemas.layouts import FeatureRole, FeatureSpec, Layout, Needs
from shardwright.schemas.source_ids import source_id_of
from shardwright.transforms.images.convert import ConvertedImage
from shardwright.transforms.records.encodings import encoded_values

#: Names of color spaces in ImageNet.
RGB, GREY = b"RGB", b"Grayscale"


def label_ids(labels: Sequence[str], first_label: int = 0) -> dict[str, int]:
    """Returns class name -> id."""
    return {name: first_label + i for i, name in enumerate(labels)}


def check_labels(ref: ImageRef, layout: Layout, ids: Mapping[str, int]) -> None:
    """Checks that the classes of an image are known.

    Raises:
      ImageFault: if a class is unknown, and the layout stores classes.
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
    annotated: Mapping[FeatureRole, Sequence[Any]] | None = None,
    texts: Mapping[str, str] | None = None,
) -> dict[str, Feature]:
    """Returns the features of one image's record.

    Args:
      ref: the image's reference.
      image: the image as it is stored.
      sha256: hex digest of the source bytes.
      layout: the record layout.
      ids: class name -> id.
      annotated: values from the annotations of the image.
      texts: class name -> readable name, for classes named by a synset id.

    Raises:
      ImageFault: if the label is not among the class names, or an extra column does not fit.
    """
    check_labels(ref, layout, ids)
    values = {**_values(ref, image, sha256, layout, ids), **(annotated or {})}
    if texts:
        values[FeatureRole.LABEL_TEXT] = [texts.get(name, name).encode() for name in ref.labels]
    extra = decode_extra(ref.extra)
    picture = (image.height, image.width, image.channels)
    features: dict[str, Feature] = {}
    found: Sequence[Any]
    for spec in layout.features:
        assert spec.fill is not None
        if spec.fill is FeatureRole.EXTRA:
            there = extra.get(spec.column or spec.name, [])
            if not there and spec.optional:
                continue
            found = _extra_values(spec, there)
        elif spec.fill is FeatureRole.CONSTANT:
            found = spec.value
        else:
            found = values.get(spec.fill, ())
            if not found and spec.optional:
                continue
            if not found and spec.shape == spec.tensor_shape == ():
                found = [UNLABELLED] if spec.fill is FeatureRole.LABEL else [b""]
        features[spec.name] = Feature(spec.type, encoded_values(spec, found, picture))
    return features


def _values(
    ref: ImageRef, image: ConvertedImage, sha256: str, layout: Layout, ids: Mapping[str, int]
) -> dict[FeatureRole, Sequence[Any]]:
    """Returns the values that every image has, by the role of the feature."""
    names = ref.labels
    texts = [name.encode() for name in names]
    file_name = ref.file_name or ref.key
    return {
        FeatureRole.ENCODED: [image.encoded],
        FeatureRole.FORMAT: [layout.format_names.get(image.format, image.format).encode()],
        FeatureRole.HEIGHT: [image.height],
        FeatureRole.WIDTH: [image.width],
        FeatureRole.CHANNELS: [image.channels],
        FeatureRole.SHAPE: [image.height, image.width, image.channels],
        FeatureRole.DTYPE: [image.dtype.encode()],
        FeatureRole.COLORSPACE: [GREY if image.channels < 3 else RGB],
        FeatureRole.LABEL: [ids[name] for name in names if name in ids],
        FeatureRole.LABEL_TEXT: texts,
        FeatureRole.SYNSET: texts,
        FeatureRole.KEY: [file_name.encode()],
        FeatureRole.SOURCE_ID: [source_id_of(ref).encode()],
        FeatureRole.FILE_BASENAME: [file_name.rpartition("/")[2].encode()],
        FeatureRole.SPLIT: [ref.split.encode()],
        FeatureRole.FOLD: [ref.fold],
        FeatureRole.SOURCE_SHA256: [sha256.encode()],
    }


def _extra_values(spec: FeatureSpec, found: Sequence[Any]) -> Sequence[Any]:
    """Returns the values of an extra column.

    Raises:
      ImageFault: if a required value is missing, or the number of values is wrong.
    """
    column = spec.column or spec.name
    shape = spec.value_shape
    if shape == () and not found:
        raise _bad_row(f"its source has no value of the extra column {column}")
    if not _fits(len(found), shape):
        sides = " x ".join("any" if side is None else str(side) for side in shape)
        raise _bad_row(f"the extra column {column} has {len(found)} values, not {sides}")
    if spec.type is FeatureType.BYTES and spec.dtype in ("", "object"):
        return [value.encode("utf-8", "surrogateescape") for value in found]
    return found


def _fits(count: int, shape: Sequence[int | None]) -> bool:
    """Returns whether a number of values fits a shape, which may have one unknown dimension."""
    known = prod(side for side in shape if side is not None)
    return count % known == 0 if None in shape and known else count == known


def _bad_row(message: str) -> ImageFault:
    return ImageFault(QuarantineReason.BAD_ROW, Stage.BUILD, message)


def build_example(
    ref: ImageRef,
    image: ConvertedImage,
    sha256: str,
    layout: Layout,
    ids: Mapping[str, int],
    annotated: Mapping[FeatureRole, Sequence[Any]] | None = None,
    texts: Mapping[str, str] | None = None,
) -> bytes:
    """Returns the result of `build_features`, serialized as `tf.train.Example`."""
    return encode_example(build_features(ref, image, sha256, layout, ids, annotated, texts))
