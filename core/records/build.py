"""Fills the features of a layout for one image and serializes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from shardwright.core.images.convert import ConvertedImage
from shardwright.core.records.encodings import encoded_values
from shardwright.schemas.codes import QuarantineReason, Stage
from shardwright.schemas.columns import decode_extra
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.example import Feature, FeatureType, encode_example
from shardwright.schemas.image_ref import ImageRef, source_id_of
from shardwright.schemas.labels import UNLABELLED
from shardwright.schemas.layouts import Encoding, FeatureRole, FeatureSpec, Layout, Needs
from shardwright.schemas.units import shape_text

#: Names of color spaces in ImageNet.
RGB, GRAY = b"RGB", b"Grayscale"


def label_ids(labels: Sequence[str], first_label: int = 0) -> dict[str, int]:
    """Returns class name -> id."""
    return {name: class_id for class_id, name in enumerate(labels, first_label)}


def check_labels(ref: ImageRef, settings: ConvertSettings, ids: Mapping[str, int]) -> None:
    """Checks that the classes of an image are known.

    Raises:
      ImageFault: If a class is unknown or there is none, and the layout stores classes.
    """
    if settings.record_layout.needs is not Needs.LABEL:
        return
    if not ref.label and settings.unlabelled == "quarantine":
        raise ImageFault(QuarantineReason.UNKNOWN_LABEL, Stage.BUILD, "it has no class")
    for name in ref.labels:
        if name not in ids:
            raise ImageFault(
                QuarantineReason.UNKNOWN_LABEL,
                Stage.BUILD,
                f"its class {name!r} is not among the class names"
                f"{' (%25 stands for the % of a folder)' if '%25' in name else ''}",
            )


def build_example(
    layout: Layout,
    ids: Mapping[str, int],
    ref: ImageRef,
    image: ConvertedImage,
    sha256: str,
    annotated: Mapping[FeatureRole, Sequence[Any]] | None = None,
    texts: Mapping[str, str] | None = None,
) -> bytes:
    """Returns one image's record, a serialized `tf.train.Example`.

    Args:
      layout: The record layout.
      ids: Class name -> id.
      ref: The image's reference.
      image: The image as it is stored.
      sha256: Hex digest of the source bytes.
      annotated: Role -> values from the annotations of the image.
      texts: Class name -> readable name, for classes named by a synset id.

    Raises:
      ImageFault: If an extra column does not fit.
    """
    labels = ref.labels
    names = list(map(str.encode, labels))
    file_name = ref.file_name or ref.key
    values: dict[Any, Sequence[Any]] = {
        "encoded": [image.encoded],
        "format": [layout.format_names.get(image.format, image.format).encode()],
        "height": [image.height],
        "width": [image.width],
        "channels": [image.channels],
        "shape": [image.height, image.width, image.channels],
        "dtype": [image.dtype.encode()],
        "colorspace": [GRAY if image.channels < 3 else RGB],
        "label": [ids[name] for name in labels if name in ids],
        "label_text": [texts.get(name, name).encode() for name in labels] if texts else names,
        "synset": names,
        "key": [file_name.encode()],
        "file_basename": [file_name.rpartition("/")[2].encode()],
        "split": [ref.split.encode()],
        "fold": [ref.fold],
        "source_sha256": [sha256.encode()],
        **(annotated or {}),
    }
    if FeatureRole.SOURCE_ID in layout.by_role:
        values["source_id"] = [source_id_of(ref).encode()]
    extra = decode_extra(ref.extra) if ref.extra else {}
    features: dict[str, Feature] = {}
    for spec in layout.features:
        role = spec.fill
        if role is FeatureRole.EXTRA:
            content: Sequence[Any] = extra.get(spec.column or spec.name, ())
        elif role is FeatureRole.CONSTANT:
            content = spec.constant
        else:
            assert role is not None
            content = values.get(role, ())
        if not content and spec.optional:
            continue
        if role is FeatureRole.EXTRA:
            content = _extra_values(spec, content)
        elif not content and spec.shape == spec.tensor_shape == ():  # nothing states its one value
            content = [UNLABELLED if role is FeatureRole.LABEL else b""]
        if spec.encoding is not Encoding.PLAIN:
            content = encoded_values(spec, content, (image.height, image.width, image.channels))
        features[spec.name] = Feature(spec.type, content)
    return encode_example(features)


def _extra_values(spec: FeatureSpec, values: Sequence[Any]) -> Sequence[Any]:
    """Returns the values of an extra column.

    Raises:
      ImageFault: If a required value is missing, or the number of values is wrong.
    """
    column = spec.column or spec.name
    shape = spec.value_shape
    if shape == () and not values:
        raise _bad_row(f"its source has no value of the extra column {column}")
    size = prod(side for side in shape if side is not None)
    # One dimension may be unknown.
    if len(values) % size if None in shape and size else len(values) != size:
        raise _bad_row(f"the extra column {column} has {len(values)} values, not {shape_text(shape)}")
    if spec.type is FeatureType.BYTES and spec.dtype in ("", "object"):
        return [value.encode("utf-8", "surrogateescape") for value in values]
    return values


def _bad_row(message: str) -> ImageFault:
    return ImageFault(QuarantineReason.BAD_ROW, Stage.BUILD, message)
