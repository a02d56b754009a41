"""Checks one record against the features that it should have, and its image against what it says."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from shardwright.schemas.codes import FindingCode
from shardwright.schemas.errors import ImageFault, NotACandidate
from shardwright.schemas.example import Feature, FeatureType, parse_example
from shardwright.schemas.layouts import FeatureSpec, Fill
from shardwright.transforms.images.convert import channels_of
from shardwright.transforms.images.decode import load, open_image
from shardwright.transforms.images.encode import FORMAT_NAMES
from shardwright.transforms.images.signatures import HEAD_BYTES, kind_of

#: Spellings of `image/format` in wide use, and the one that is compared.
_SPELLINGS = {"jpeg": "jpg"}
#: A stored picture may be as large as its writer chose; only absurd headers are refused.
_MAX_PIXELS = 2**31 - 1

Problem = tuple[FindingCode, str]


class Contract(NamedTuple):
    """What every record of a dataset promises.

    Attributes:
      features: the features that must be there.
      labels: class names in id order; None if they are not known.
      first_label: the id of the first class.
    """

    features: tuple[FeatureSpec, ...]
    labels: tuple[str, ...] | None = None
    first_label: int = 0

    def spec(self, fill: Fill) -> FeatureSpec | None:
        """Returns the feature that is filled by `fill`, if there is one."""
        return next((spec for spec in self.features if spec.fill is fill), None)


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
        problems += _check_label(values, contract)
    if decode and isinstance(values.get(Fill.ENCODED), bytes):
        problems += _check_image(values)
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


def _check_label(values: Mapping[Fill, bytes | int | float], contract: Contract) -> Iterator[Problem]:
    label, text = values.get(Fill.LABEL), values.get(Fill.LABEL_TEXT)
    if contract.labels is None or not isinstance(label, int):
        return
    place = label - contract.first_label
    if not 0 <= place < len(contract.labels):
        low, high = contract.first_label, contract.first_label + len(contract.labels) - 1
        yield FindingCode.LABEL_RANGE, f"label {label} is not between {low} and {high}"
    elif isinstance(text, bytes) and text.decode("utf-8", "replace") != contract.labels[place]:
        yield (
            FindingCode.LABEL_TEXT,
            f"label {label} is {contract.labels[place]!r} but the record says "
            f"{text.decode('utf-8', 'replace')!r}",
        )


def _check_image(values: Mapping[Fill, bytes | int | float]) -> Iterator[Problem]:
    encoded, stored = values[Fill.ENCODED], values.get(Fill.FORMAT)
    assert isinstance(encoded, bytes)
    claimed = stored.decode("utf-8", "replace") if isinstance(stored, bytes) else None
    sizes: dict[Fill, Any] = {fill: values.get(fill) for fill in (Fill.HEIGHT, Fill.WIDTH, Fill.CHANNELS)}
    if claimed == "raw":
        product = 1
        for size in sizes.values():
            product *= int(size or 0)
        if product != len(encoded):
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


#: Names under which layouts in wide use store what can be checked.
_KNOWN_NAMES = {
    "image/encoded": Fill.ENCODED,
    "image/format": Fill.FORMAT,
    "image/height": Fill.HEIGHT,
    "image/width": Fill.WIDTH,
    "image/channels": Fill.CHANNELS,
    "image/key/sha256": Fill.SOURCE_SHA256,
}


def infer_contract(records: Sequence[bytes]) -> Contract:
    """Infers from some records of unknown origin which features all of them have.

    A feature is required if every one of the records has it, and of fixed length if they agree.
    The encoded image is found by its name or, failing that, by its bytes.
    """
    examples = []
    for data in records:
        try:
            examples.append(parse_example(data))
        except ValueError:
            continue
    if not examples:
        return Contract(())
    shared = set.intersection(*(set(example) for example in examples))
    specs = []
    for name in sorted(shared):
        features = [example[name] for example in examples]
        types = {feature.type for feature in features if feature.type is not None}
        if len(types) != 1:
            continue
        type_: FeatureType = types.pop()
        lengths = {len(feature.values) for feature in features}
        shape: tuple[int | None, ...] = (None,)
        if len(lengths) == 1:
            length = lengths.pop()
            shape = () if length == 1 else (length,)
        specs.append(FeatureSpec(name, type_, shape, _KNOWN_NAMES.get(name)))
    if not any(spec.fill is Fill.ENCODED for spec in specs):
        for i, spec in enumerate(specs):
            if spec.type is FeatureType.BYTES and spec.shape == ():
                value = examples[0][spec.name].values[0]
                if isinstance(value, bytes) and kind_of(value[:HEAD_BYTES]):
                    specs[i] = FeatureSpec(spec.name, spec.type, spec.shape, Fill.ENCODED)
                    break
    return Contract(tuple(specs))
