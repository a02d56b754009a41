"""Checks one record against the features that it should have, and its image against what it says."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardwright.schemas.codes import FindingCode
from shardwright.schemas.errors import ImageFault, NotACandidate
from shardwright.schemas.example import Feature, parse_example
from shardwright.schemas.labels import UNLABELLED
from shardwright.schemas.layouts import FeatureSpec, Fill
from shardwright.transforms.checks.contract import Contract, Problem
from shardwright.transforms.checks.objects import check_class, check_masks, check_objects
from shardwright.transforms.images.convert import channels_of
from shardwright.transforms.images.decode import load, open_image
from shardwright.transforms.images.encode import FORMAT_NAMES
from shardwright.transforms.images.signatures import HEAD_BYTES, kind_of

#: Spellings of `image/format` in wide use, and the one that is compared.
_SPELLINGS = {"jpeg": "jpg"}
#: A stored picture may be as large as its writer chose; only absurd headers are refused.
_MAX_PIXELS = 2**31 - 1


@dataclass(frozen=True)
class CheckedRecord:
    """What a check found, and what is needed to compare records with each other."""

    problems: tuple[Problem, ...]
    key: str | None = None
    source: str | None = None


def check_record(data: bytes, contract: Contract, decode: bool) -> CheckedRecord:
    """Checks a record.

    Args:
      data: the serialised Example.
      contract: what it promises.
      decode: whether to decode the image and compare it with what the record says.
    """
    try:
        features = parse_example(data)
    except ValueError as error:
        return CheckedRecord(((FindingCode.UNPARSEABLE, f"it is no tf.train.Example: {error}"),))
    problems = list(_check_features(features, contract.features))
    values = _values(features, contract)
    if not problems:
        problems += _check_labels(features, contract)
        problems += check_objects(features, contract)
    if decode and isinstance(values.get(Fill.ENCODED), bytes):
        problems += _check_image(values)
    if decode:
        problems += check_masks(features, contract)
    key, sha256 = values.get(Fill.KEY), values.get(Fill.SOURCE_SHA256)
    encoded = values.get(Fill.ENCODED)
    if isinstance(sha256, bytes):
        source: str | None = sha256.decode("utf-8", "replace")
    else:
        source = hashlib.sha256(encoded).hexdigest() if isinstance(encoded, bytes) else None
    return CheckedRecord(
        tuple(problems),
        key.decode("utf-8", "replace") if isinstance(key, bytes) else None,
        source,
    )


def _check_features(features: Mapping[str, Feature], specs: Sequence[FeatureSpec]) -> Iterator[Problem]:
    for spec in specs:
        feature = features.get(spec.name)
        if feature is None and spec.optional:
            continue
        if feature is None or (feature.type is None and spec.length):
            yield FindingCode.MISSING_FEATURE, f"feature {spec.name!r} is missing"
        elif feature.type is not None and feature.type is not spec.type:
            yield (
                FindingCode.WRONG_TYPE,
                f"feature {spec.name!r} is {feature.type.value}, not {spec.type.value}",
            )
        elif spec.length is not None and len(feature.values) != spec.length:
            yield (
                FindingCode.WRONG_SHAPE,
                f"feature {spec.name!r} has {len(feature.values)} values, not {spec.length}",
            )


def _values(features: Mapping[str, Feature], contract: Contract) -> dict[Fill, bytes | int | float]:
    """Returns the single values of the features that are there and of the right type."""
    values: dict[Fill, bytes | int | float] = {}
    for spec in contract.features:
        feature = features.get(spec.name)
        if spec.fill and feature and feature.type is spec.type and len(feature.values) == 1:
            values[spec.fill] = feature.values[0]
    return values


def _check_labels(features: Mapping[str, Feature], contract: Contract) -> Iterator[Problem]:
    """Compares the classes of the image with the dataset's."""
    label, text = (contract.spec(fill) for fill in (Fill.LABEL, Fill.LABEL_TEXT))
    if label is None:
        return
    ids = features[label.name].values
    text_name = text.name if text else ""
    names = features[text_name].values if text else None
    if contract.unlabelled and (list(ids), list(names or ())) in (([UNLABELLED], []), ([UNLABELLED], [b""])):
        return
    if names is not None and len(names) != len(ids):
        yield (
            FindingCode.LENGTH_MISMATCH,
            f"feature {label.name!r} has {len(ids)} values, {text_name!r} has {len(names)}",
        )
        return
    for number, name in zip(ids, names or [None] * len(ids)):
        yield from check_class(number, name, contract)


def _check_image(values: Mapping[Fill, bytes | int | float]) -> Iterator[Problem]:
    encoded, stored = values[Fill.ENCODED], values.get(Fill.FORMAT)
    assert isinstance(encoded, bytes)
    claimed = stored.decode("utf-8", "replace") if isinstance(stored, bytes) else None
    sizes: dict[Fill, Any] = {fill: values.get(fill) for fill in (Fill.HEIGHT, Fill.WIDTH, Fill.CHANNELS)}
    if claimed == "raw":
        if not _fits_raw(len(encoded), *sizes.values()):
            yield (
                FindingCode.SIZE_MISMATCH,
                f"{len(encoded)} raw bytes are not {' x '.join(str(s) for s in sizes.values())}",
            )
        return
    kind = kind_of(encoded[:HEAD_BYTES])
    if claimed is not None and kind is not None:
        name = FORMAT_NAMES.get(kind, kind)
        if _SPELLINGS.get(claimed.lower(), claimed.lower()) != name:
            yield (
                FindingCode.FORMAT_MISMATCH,
                f"the image is {name} but the record says {claimed}",
            )
    try:
        opened = open_image(encoded, "image", _MAX_PIXELS)
        image = load(opened, _MAX_PIXELS)
    except NotACandidate:
        yield FindingCode.UNDECODABLE, "its bytes are those of no image format that can be decoded"
        return
    except ImageFault as fault:
        yield FindingCode.UNDECODABLE, fault.message
        return
    truth = {
        Fill.HEIGHT: image.height,
        Fill.WIDTH: image.width,
        Fill.CHANNELS: channels_of(image),
    }
    for fill, true in truth.items():
        if sizes[fill] is not None and sizes[fill] != true:
            yield (
                FindingCode.SIZE_MISMATCH,
                f"the image's {fill.value} is {true} but the record says {sizes[fill]}",
            )


def _fits_raw(size: int, height: Any, width: Any, channels: Any) -> bool:
    """Whether bare pixels can be of the sides that a record says; None for one that it does not."""
    if height is None or width is None:
        return True
    pixels = int(height) * int(width)
    return size in [pixels * count for count in ((1, 2, 3, 4) if channels is None else (int(channels),))]
