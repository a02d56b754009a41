"""Fills the features of a layout for one image and serializes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from shardwright.schemas.codes import QuarantineReason, Stage
from shardwright.schemas.columns import decode_extra
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.example import Feature, FeatureType, encode_example
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.labels import UNLABELLED
from shardwright.schemas.layouts import Encoding, FeatureRole, FeatureSpec, Layout, Needs
from shardwright.schemas.source_ids import source_id_of
from shardwright.transforms.images.convert import ConvertedImage
from shardwright.transforms.records.encodings import encoded_values

#: Names of color spaces in ImageNet.
RGB, GRAY = b"RGB", b"Grayscale"


def label_ids(labels: Sequence[str], first_label: int = 0) -> dict[str, int]:
    """Returns class name -> id."""
    return {name: first_label + i for i, name in enumerate(labels)}


def check_labels(ref: ImageRef, layout: Layout, ids: Mapping[str, int]) -> None:
    """Checks that the classes of an image are known.

    Raises:
      ImageFault: if a class is unknown, and the layout stores classes.
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
    values = dict(annotated or {})
    if texts:
        values[FeatureRole.LABEL_TEXT] = [texts.get(name, name).encode() for name in ref.labels]
    stored = _Stored(ref, image, sha256, layout, ids)
    extra = decode_extra(ref.extra) if ref.extra else {}
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
            of_image = None if spec.fill in values else _VALUES.get(spec.fill)
            found = values.get(spec.fill, ()) if of_image is None else of_image(stored)
            if not found and spec.optional:
                continue
            if not found and spec.shape == spec.tensor_shape == ():
                found = [UNLABELLED] if spec.fill is FeatureRole.LABEL else [b""]
        if spec.encoding is not Encoding.PLAIN:
            found = encoded_values(spec, found, picture)
        features[spec.name] = Feature(spec.type, found)
    return features


class _Stored(NamedTuple):
    """An image as it is stored, and what its record says about it."""

    ref: ImageRef
    image: ConvertedImage
    sha256: str
    layout: Layout
    ids: Mapping[str, int]

    @property
    def file_name(self) -> str:
        return self.ref.file_name or self.ref.key

    @property
    def format_name(self) -> str:
        return self.layout.format_names.get(self.image.format, self.image.format)

    @property
    def label_texts(self) -> Sequence[bytes]:
        return [name.encode() for name in self.ref.labels]


#: Role of a feature -> function that returns the values that every image has.
_VALUES: Mapping[FeatureRole, Callable[[_Stored], Sequence[Any]]] = {
    FeatureRole.ENCODED: lambda stored: [stored.image.encoded],
    FeatureRole.FORMAT: lambda stored: [stored.format_name.encode()],
    FeatureRole.HEIGHT: lambda stored: [stored.image.height],
    FeatureRole.WIDTH: lambda stored: [stored.image.width],
    FeatureRole.CHANNELS: lambda stored: [stored.image.channels],
    FeatureRole.SHAPE: lambda stored: [stored.image.height, stored.image.width, stored.image.channels],
    FeatureRole.DTYPE: lambda stored: [stored.image.dtype.encode()],
    FeatureRole.COLORSPACE: lambda stored: [GRAY if stored.image.channels < 3 else RGB],
    FeatureRole.LABEL: lambda stored: [stored.ids[name] for name in stored.ref.labels if name in stored.ids],
    FeatureRole.LABEL_TEXT: lambda stored: stored.label_texts,
    FeatureRole.SYNSET: lambda stored: stored.label_texts,
    FeatureRole.KEY: lambda stored: [stored.file_name.encode()],
    FeatureRole.SOURCE_ID: lambda stored: [source_id_of(stored.ref).encode()],
    FeatureRole.FILE_BASENAME: lambda stored: [stored.file_name.rpartition("/")[2].encode()],
    FeatureRole.SPLIT: lambda stored: [stored.ref.split.encode()],
    FeatureRole.FOLD: lambda stored: [stored.ref.fold],
    FeatureRole.SOURCE_SHA256: lambda stored: [stored.sha256.encode()],
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
