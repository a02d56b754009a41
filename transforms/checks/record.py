"""Checks one record against the features that it should have, and its image against what it says."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardwright.schemas.codes import FindingCode
from shardwright.schemas.dataset import PictureShape
from shardwright.schemas.errors import ImageFault, NotACandidate
from shardwright.schemas.example import Feature, FeatureType, parse_example
from shardwright.schemas.labels import UNLABELLED
from shardwright.schemas.layouts import Encoding, FeatureSpec, Fill
from shardwright.schemas.tensor_proto import parse_tensor
from shardwright.transforms.checks.contract import Contract, Problem
from shardwright.transforms.checks.objects import check_class, check_masks, check_objects
from shardwright.transforms.images.convert import channels_of
from shardwright.transforms.images.decode import load, open_image
from shardwright.transforms.images.encode import FORMAT_NAMES
from shardwright.transforms.images.signatures import HEAD_BYTES, kind_of
from shardwright.transforms.records.encodings import WrongValue, plain_feature, plain_spec

#: Spellings of `image/format` in wide use, and the one that is compared.
_SPELLINGS = {"jpeg": "jpg"}
_SIDES = (Fill.HEIGHT, Fill.WIDTH, Fill.CHANNELS)
#: What holds the class name.
_NAMES = (Fill.LABEL_TEXT, Fill.SYNSET)
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
    tensors: list[Sequence[int]] = []
    if any(spec.encoding is not Encoding.PLAIN for spec in contract.features):
        features, faults, tensors = _without_encodings(features, contract.features)
        contract = contract._replace(features=tuple(map(plain_spec, contract.features)))
        problems += faults
    values = _values(features, contract)
    if not problems:
        problems += _check_labels(features, contract)
        problems += check_objects(features, contract)
    if decode and isinstance(values.get(Fill.ENCODED), bytes):
        said = _sides_said(features, tensors, contract)
        problems += _check_image(values, said, contract.pixels is not None)
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


def _without_encodings(
    features: Mapping[str, Feature], specs: Sequence[FeatureSpec]
) -> tuple[dict[str, Feature], list[Problem], list[Sequence[int]]]:
    """Returns features whose values are not encoded, without those that cannot be decoded.

    With them what is wrong with those, and the shapes of tensors of pixels.
    """
    plain, problems, shapes = dict(features), list[Problem](), list[Sequence[int]]()
    for spec in specs:
        feature = features.get(spec.name)
        if feature is None or spec.encoding is Encoding.PLAIN:
            continue
        del plain[spec.name]
        if feature.type is not spec.type or spec.length not in (None, len(feature.values)):
            continue  # which has been said
        try:
            plain[spec.name] = plain_feature(spec, feature)
            if spec.holds_pixels:
                shapes.append(parse_tensor(feature.values[0]).shape)
        except WrongValue as wrong:
            problems.append((wrong.code, str(wrong)))
    return plain, problems, shapes


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
    label = contract.spec(Fill.LABEL)
    texts = [spec for fill in _NAMES if (spec := contract.spec(fill)) and spec.name in features]
    if label is None or label.name not in features:
        for spec in texts:
            yield from _check_names(features[spec.name].values, _naming(spec, contract))
        return
    ids = features[label.name].values
    unlabelled = contract.unlabelled and list(ids) in ([], [UNLABELLED])
    if unlabelled and all(list(features[spec.name].values) in ([], [b""]) for spec in texts):
        return
    for spec in texts:
        names = features[spec.name].values
        if len(names) != len(ids):
            yield (
                FindingCode.LENGTH_MISMATCH,
                f"feature {label.name!r} has {len(ids)} values, {spec.name!r} has {len(names)}",
            )
            return
    # An id that is wrong is said once, whatever names stand with it.
    found = (
        problem
        for spec in texts or [label]
        for number, name in zip(ids, features[spec.name].values)
        for problem in check_class(number, name, _naming(spec, contract))
    )
    yield from dict.fromkeys(found)


def _naming(spec: FeatureSpec, contract: Contract) -> Contract:
    """Returns a contract with the class names that a feature holds: synset ids, or what they are called."""
    if spec.fill is Fill.LABEL_TEXT and contract.texts:
        return contract._replace(labels=contract.texts)
    return contract


def _check_names(names: Sequence[Any], contract: Contract) -> Iterator[Problem]:
    """Checks class names that stand without ids."""
    for name in names:
        text = name.decode("utf-8", "replace")
        if contract.labels is not None and text not in contract.labels and (text or not contract.unlabelled):
            yield FindingCode.LABEL_TEXT, f"class {text!r} is not among the class names"


def _sides_said(
    features: Mapping[str, Feature], tensors: Sequence[Sequence[int]], contract: Contract
) -> list[PictureShape]:
    """Returns height, width and channels each time that a record says some of them, or all promise them.

    Args:
      features: of the record, without their encodings.
      tensors: shapes of its tensors of pixels.
      contract: what all records promise.
    """
    said = [contract.pixels] if contract.pixels else []
    said += [(tensor[0], tensor[1], tensor[2]) for tensor in tensors]
    shape = _integers(features, contract, Fill.SHAPE)
    if len(shape) == len(_SIDES):
        said.append((shape[0], shape[1], shape[2]))
    height, width, channels = (_integers(features, contract, fill) for fill in _SIDES)
    said.append((_only(height), _only(width), _only(channels)))
    return said


def _integers(features: Mapping[str, Feature], contract: Contract, fill: Fill) -> Sequence[int]:
    spec = contract.spec(fill)
    feature = features.get(spec.name) if spec else None
    return feature.values if feature and feature.type is FeatureType.INT64 else ()


def _only(values: Sequence[int]) -> int | None:
    return values[0] if len(values) == 1 else None


def _check_image(values: Mapping[Fill, Any], said: Sequence[PictureShape], pixels: bool) -> Iterator[Problem]:
    """Checks the image.

    Args:
      values: what the record says.
      said: height, width and channels, each time that somebody says some of them.
      pixels: whether it is promised to be bare pixels.
    """
    encoded, stored = values[Fill.ENCODED], values.get(Fill.FORMAT)
    claimed = stored.decode("utf-8", "replace") if isinstance(stored, bytes) else None
    if claimed == "raw" or (pixels and claimed is None):
        yield from _check_pixels(len(encoded), said)
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
    truth = (image.height, image.width, channels_of(image))
    for fill, true, claims in zip(_SIDES, truth, zip(*said)):
        for claim in dict.fromkeys(claims):
            if claim is not None and claim != true:
                yield (
                    FindingCode.SIZE_MISMATCH,
                    f"the image's {fill.value} is {true} but the record says {claim}",
                )


def _check_pixels(size: int, said: Sequence[PictureShape]) -> Iterator[Problem]:
    """Checks that bare pixels can be of the sides that are said of them."""
    sides: list[int | None] = []
    for fill, claims in zip(_SIDES, zip(*said)):
        known = list(dict.fromkeys(claim for claim in claims if claim is not None))
        if len(known) > 1:
            yield FindingCode.SIZE_MISMATCH, f"its {fill.value} is {known[0]} and {known[1]}"
            return
        sides.append(known[0] if known else None)
    height, width, channels = sides
    if height is None or width is None:
        return
    if size not in [height * width * count for count in ((1, 2, 3, 4) if channels is None else (channels,))]:
        shown = " x ".join("any" if side is None else str(side) for side in sides)
        yield FindingCode.SIZE_MISMATCH, f"{size} raw bytes are not {shown}"
