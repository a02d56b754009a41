"""Fills the features of a layout for one image and serializes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from shardwright.core.images.convert import ConvertedImage
from shardwright.core.records.encodings import encoded_values
from shardwright.schemas.codes import QuarantineReason, Stage
from shardwright.schemas.columns import decode_extra
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.example import Feature, FeatureType, encode_example
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.labels import UNLABELLED
from shardwright.schemas.layouts import Encoding, FeatureRole, FeatureSpec, Layout, Needs
from shardwright.schemas.source_ids import source_id_of

#: Names of color spaces in ImageNet.
RGB, GRAY = b"RGB", b"Grayscale"


def label_ids(labels: Sequence[str], first_label: int = 0) -> dict[str, int]:
    """Returns class name -> id."""
    return {name: first_label + i for i, name in enumerate(labels)}


def check_labels(ref: ImageRef, layout: Layout, ids: Mapping[str, int]) -> None:
    """Checks that the classes of an image are known.

    Raises:
      ImageFault: If a class is unknown, and the layout stores classes.
    """
    if layout.needs is not Needs.LABEL:
        return
    unknown = [name for name in ref.labels if name not in ids]
    if unknown:
        raise ImageFault(
            QuarantineReason.UNKNOWN_LABEL,
            Stage.BUILD,
            f"its class {unknown[0]!r} is not among the class names"
            f"{' (%25 stands for the % of a folder)' if '%25' in unknown[0] else ''}",
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
      ref: The image's reference.
      image: The image as it is stored.
      sha256: Hex digest of the source bytes.
      layout: The record layout.
      ids: Class name -> id.
      annotated: Values from the annotations of the image.
      texts: Class name -> readable name, for classes named by a synset id.

    Raises:
      ImageFault: If an extra column does not fit.
    """
    values = {**_values_of(ref, image, sha256, layout, ids, texts or {}), **(annotated or {})}
    extra = decode_extra(ref.extra) if ref.extra else {}
    picture = (image.height, image.width, image.channels)
    features: dict[str, Feature] = {}
    content: Sequence[Any]
    for spec in layout.features:
        assert spec.fill is not None
        if spec.fill is FeatureRole.EXTRA:
            there = extra.get(spec.column or spec.name, [])
            if not there and spec.optional:
                continue
            content = _extra_values(spec, there)
        elif spec.fill is FeatureRole.CONSTANT:
            content = spec.value
        else:
            content = values.get(spec.fill, ())
            if not content and spec.optional:
                continue
            if not content and spec.shape == spec.tensor_shape == ():
                content = [UNLABELLED] if spec.fill is FeatureRole.LABEL else [b""]
        if spec.encoding is not Encoding.PLAIN:
            content = encoded_values(spec, content, picture)
        features[spec.name] = Feature(spec.type, content)
    return features


def _values_of(
    ref: ImageRef,
    image: ConvertedImage,
    sha256: str,
    layout: Layout,
    ids: Mapping[str, int],
    texts: Mapping[str, str],
) -> dict[FeatureRole, Sequence[Any]]:
    """Returns the values that every image has, by the roles of features."""
    labels = ref.labels
    names = [name.encode() for name in labels]
    file_name = ref.file_name or ref.key
    shape = [image.height, image.width, image.channels]
    values: dict[FeatureRole, Sequence[Any]] = {
        FeatureRole.ENCODED: [image.encoded],
        FeatureRole.FORMAT: [layout.format_names.get(image.format, image.format).encode()],
        FeatureRole.HEIGHT: shape[:1],
        FeatureRole.WIDTH: shape[1:2],
        FeatureRole.CHANNELS: shape[2:],
        FeatureRole.SHAPE: shape,
        FeatureRole.DTYPE: [image.dtype.encode()],
        FeatureRole.COLORSPACE: [GRAY if image.channels < 3 else RGB],
        FeatureRole.LABEL: [ids[name] for name in labels if name in ids],
        FeatureRole.LABEL_TEXT: [texts.get(name, name).encode() for name in labels] if texts else names,
        FeatureRole.SYNSET: names,
        FeatureRole.KEY: [file_name.encode()],
        FeatureRole.FILE_BASENAME: [file_name.rpartition("/")[2].encode()],
        FeatureRole.SPLIT: [ref.split.encode()],
        FeatureRole.FOLD: [ref.fold],
        FeatureRole.SOURCE_SHA256: [sha256.encode()],
    }
    if FeatureRole.SOURCE_ID in layout.by_role():
        values[FeatureRole.SOURCE_ID] = [source_id_of(ref).encode()]
    return values


def _extra_values(spec: FeatureSpec, found: Sequence[Any]) -> Sequence[Any]:
    """Returns the values of an extra column.

    Raises:
      ImageFault: If a required value is missing, or the number of values is wrong.
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
