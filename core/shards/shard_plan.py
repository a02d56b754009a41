"""Plans the content and the order of a shard, and computes its digests to compare it with earlier builds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardwright.core.conversion import ShardRecipe
from shardwright.core.images.encode import HEIF_DECODER
from shardwright.core.images.signatures import extension_of
from shardwright.core.plan.assign import PlannedShard, shard_order
from shardwright.core.records.build import label_ids
from shardwright.schemas.configuration.setting import Affects
from shardwright.schemas.configuration.settings import (
    RECORDED_IF_GIVEN,
    ConvertSettings,
    settings_that_affect,
)
from shardwright.schemas.feature_roles import FeatureRole
from shardwright.schemas.image_formats import SUPPORTED_KINDS
from shardwright.schemas.image_ref import EncodedRefs, ImageRef, decode_refs, encode_refs, source_id_of
from shardwright.schemas.ledger import PlanDigest, recipe_digest, ref_digest
from shardwright.schemas.plan import Forecast, ShardPlace

#: Number of references that are unpacked at once, and of those that are packed together for that. Only shards
#: with many files that are left out have more.
PART, PACKED_TOGETHER = 100_000, 1024


@dataclass(frozen=True, eq=False)
class OrderedRefs:
    """The references of a shard in its order.

    Attributes:
      packed: The references in any order. It is read again for each use.
      places: Place of each reference in `packed`.
    """

    packed: Iterable[EncodedRefs]
    places: NDArray[np.uint32]

    @staticmethod
    def by_hash(packed: Iterable[EncodedRefs], seed: int) -> OrderedRefs:
        """Returns references in the order of `shard_order`.

        Args:
          packed: The references in any order.
          seed: Seed of the dataset.
        """
        hashes = np.fromiter((shard_order(seed, ref.key)[0] for ref in _unpack(packed)), np.uint64)
        places = np.argsort(hashes, kind="stable")
        ordered = hashes[places]
        repeated = ordered[1:][ordered[1:] == ordered[:-1]]
        if len(repeated):  # of different keys, hardly any have the same hash; equal keys have
            tied = dict.fromkeys(np.flatnonzero(np.isin(hashes, repeated)).tolist(), "")
            for place, ref in enumerate(_unpack(packed)):
                if place in tied:
                    tied[place] = ref.key
            by_key = sorted(tied, key=lambda place: (hashes[place], tied[place]))
            places[np.isin(ordered, repeated)] = by_key
        return OrderedRefs(packed, places.astype(np.uint32))

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[ImageRef]:
        return chain.from_iterable(self.parts())

    def parts(self) -> Iterator[Sequence[ImageRef]]:
        """Yields the references in order, in parts that fit into memory."""
        for index, packed in enumerate(self._parts):
            places = self.places[index * PART : (index + 1) * PART]
            unsorted = list(_unpack(packed))  # in the order of their places
            yield [unsorted[rank] for rank in np.argsort(np.argsort(places)).tolist()]

    @cached_property
    def _parts(self) -> Sequence[Iterable[EncodedRefs]]:
        """The references of each part, packed again if there are several, in the order of their places."""
        if len(self) <= PART:
            return [self.packed]
        part_of = np.empty(len(self), np.uint32)
        part_of[self.places] = np.arange(len(self), dtype=np.uint32) // PART
        parts: list[list[EncodedRefs]] = [[] for _ in range(-(-len(self) // PART))]
        waiting: list[list[ImageRef]] = [[] for _ in parts]
        for ref, part in zip(_unpack(self.packed), part_of, strict=True):
            waiting[part].append(ref)
            if len(waiting[part]) >= PACKED_TOGETHER:
                parts[part].append(encode_refs(waiting[part]))
                waiting[part] = []
        for packed, rest in zip(parts, waiting, strict=True):
            packed.append(encode_refs(rest))
        return parts


def _unpack(packed: Iterable[EncodedRefs]) -> Iterator[ImageRef]:
    return chain.from_iterable(map(decode_refs, packed))


#: Settings that determine the bytes of a record, and of a shard, for given references.
_RECORD_SETTINGS = settings_that_affect(Affects.RECORD)
_SHARD_SETTINGS = settings_that_affect(Affects.RECORD, Affects.SHARD)
#: Roles of the features that hold the name of an image.
_NAMES = frozenset({FeatureRole.KEY, FeatureRole.FILE_BASENAME})
#: Software that frames records but does not build them.
_FRAMING = ("beam",)
#: Number of bytes of `ref_digest`.
_DIGEST_BYTES = 8


class ShardPlan(NamedTuple):
    """The content of a shard, and how it is converted.

    Attributes:
      place: Place of the shard.
      recipe: Settings and class names for the conversion.
      recipe_digest: Digest of the settings and versions that determine the bytes of a record.
      refs: Its references.
      digest: Digest of everything that determines the shard's bytes.
      ref_digests: Digests of its references, 8 bytes each, in the order of the shard.
      candidates: Number of references to images that can still be written.
      has_known_states: Whether the states of their sources are known.
    """

    place: ShardPlace
    recipe: ShardRecipe
    recipe_digest: str
    refs: OrderedRefs
    digest: str
    ref_digests: bytes
    candidates: int
    has_known_states: bool

    def parts(self) -> Iterator[tuple[Sequence[ImageRef], list[str]]]:
        """Yields the references in order, in parts that fit into memory, with their digests.

        The digest of a reference covers the data that it adds to its record.
        """
        begin = 0
        for refs in self.refs.parts():
            end = begin + len(refs) * _DIGEST_BYTES
            yield refs, self.ref_digests[begin:end].hex(" ", _DIGEST_BYTES).split()
            begin = end


def plan_shard(
    planned: PlannedShard, forecast: Forecast, settings: ConvertSettings, versions: Mapping[str, str]
) -> ShardPlan:
    """Returns the plan of a shard.

    Args:
      planned: Place and references of the shard.
      forecast: Forecast with the plan of the dataset.
      settings: Checked settings.
      versions: Versions of the software that determines bytes.
    """
    layout, texts = settings.record_layout, forecast.plan.text_of
    ids = label_ids(forecast.plan.labels, layout.first_label)
    recipe = ShardRecipe(settings, layout, ids, texts, forecast.keys)
    recipes = recipes_of(settings.identity(), versions)
    refs = OrderedRefs.by_hash(planned.refs, settings.seed)
    roles = layout.by_role.keys()

    def digest_of(ref: ImageRef) -> str:
        labels = ref.labels
        more: list[Any] = [planned.place.split] if FeatureRole.SPLIT in roles else []
        if ref.fold >= 0:
            more.append(("fold", ref.fold))
        more += [texts[name] for name in labels if name in texts]
        if FeatureRole.SOURCE_ID in roles:
            more.append(("source_id", source_id_of(ref)))
        if ref.file_name and not _NAMES.isdisjoint(roles):
            more.append(("file_name", ref.file_name))
        if ref.size < 0 and settings.min_source_bytes:  # only reading the file shows if it is large enough
            more.append(("min_bytes", settings.min_source_bytes))
        if (version := versions.get(HEIF_DECODER)) and extension_of(ref.key) in SUPPORTED_KINDS["heif"]:
            more.append((HEIF_DECODER, version))
        return ref_digest(ref, [ids.get(name, -1) for name in labels], *more)

    digest, ref_digests = PlanDigest(recipes.shard), bytearray()
    candidates, has_known_states = 0, True
    for part in refs.parts():
        part_digests = list(map(digest_of, part))
        digest.add_refs(part, part_digests)
        ref_digests += bytes.fromhex("".join(part_digests))
        readable = [ref for ref in part if not ref.outcome]
        candidates += len(readable)
        has_known_states = has_known_states and all(map(attrgetter("has_known_state"), readable))
    return ShardPlan(
        planned.place,
        recipe,
        recipes.record,
        refs,
        digest.hexdigest(),
        bytes(ref_digests),
        candidates,
        has_known_states,
    )


class Recipes(NamedTuple):
    """Digests of the settings and versions that determine bytes.

    Attributes:
      record: Digest of what determines the bytes of a record.
      shard: Digest of what determines the bytes of a shard, for given references.
    """

    record: str
    shard: str


def recipes_of(identity: Mapping[str, Any], versions: Mapping[str, str]) -> Recipes:
    """Returns the digests of settings and versions.

    Args:
      identity: Settings, as `ConvertSettings.identity` returns them and a plan stores them.
      versions: Versions of the software that determines bytes.

    Raises:
      KeyError: If a setting is missing.
    """
    versions = {name: version for name, version in versions.items() if name != HEIF_DECODER}
    chosen = {
        name: identity[name] for name in _SHARD_SETTINGS if name in identity or name not in RECORDED_IF_GIVEN
    }
    making = {name: value for name, value in chosen.items() if name in _RECORD_SETTINGS}
    makers = {name: version for name, version in versions.items() if name not in _FRAMING}
    return Recipes(recipe_digest(making, makers), recipe_digest(chosen, versions))
