"""Plans the content of a shard, and computes the digests that are compared with earlier builds."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from shardwright.schemas.configuration.settings import (
    RECORDED_IF_GIVEN,
    Affects,
    ConvertSettings,
    settings_that_affect,
)
from shardwright.schemas.digests import plan_digest, recipe_digest, ref_digest
from shardwright.schemas.feature_roles import FeatureRole
from shardwright.schemas.image_ref import EncodedRefs, ImageRef, decode_refs
from shardwright.schemas.plan import Forecast
from shardwright.schemas.source_ids import source_id_of
from shardwright.transforms.conversion.convert import ShardRecipe
from shardwright.transforms.images.encode import HEIF_DECODER
from shardwright.transforms.images.signatures import has_extension_of
from shardwright.transforms.plan.assign import shard_order
from shardwright.transforms.plan.planned_shard import PlannedShard, ShardDigests
from shardwright.transforms.records.build import label_ids

#: Settings that determine the bytes of a record, and of a shard, for given references.
_RECORD_SETTINGS = settings_that_affect(Affects.RECORD)
_SHARD_SETTINGS = settings_that_affect(Affects.RECORD, Affects.SHARD)
#: Roles of the features that hold the name of an image.
_NAMES = frozenset({FeatureRole.KEY, FeatureRole.FILE_BASENAME})
#: Software that frames records but does not build them.
_FRAMING = ("beam",)
#: Number of hex digits of `ref_digest`.
_HEX_DIGITS = 16


class ShardPlan:
    """The content of a shard, and how it is converted.

    Args:
      recipe: settings and class names for the conversion.
      recipe_digest: digest of the settings and versions that determine the bytes of a record.
      digests: digests of the shard.
      refs: function that returns its references in order. It is called when they are needed, because a shard
        that is reused as a whole does without.

    Attributes:
      recipe: as above.
      recipe_digest: as above.
      digests: as above.
    """

    def __init__(
        self,
        recipe: ShardRecipe,
        recipe_digest: str,
        digests: ShardDigests,
        refs: Callable[[], list[ImageRef]],
    ) -> None:
        self.recipe = recipe
        self.recipe_digest = recipe_digest
        self.digests = digests
        self._read_refs = refs

    @property
    def digest(self) -> str:
        """The digest of everything that determines the shard's bytes."""
        return self.digests.shard

    @cached_property
    def refs(self) -> list[ImageRef]:
        """The references of the shard in order."""
        return self._read_refs()

    @cached_property
    def ref_digests(self) -> list[str]:
        """The digest of the data that each reference adds to its record."""
        text = self.digests.refs.hex()
        return [text[start : start + _HEX_DIGITS] for start in range(0, len(text), _HEX_DIGITS)]


def plan_shard(
    planned: PlannedShard, forecast: Forecast, settings: ConvertSettings, versions: Mapping[str, str]
) -> ShardPlan:
    """Returns the plan of a shard.

    Args:
      planned: split, number and references of the shard.
      forecast: forecast with the plan of the dataset.
      settings: checked settings.
      versions: versions of the software that determines bytes.
    """
    layout, texts = settings.record_layout, forecast.plan.text_of
    ids = label_ids(forecast.plan.labels, layout.first_label)
    recipe = ShardRecipe(settings, layout, ids, texts, forecast.keys)
    recipes = recipes_of(settings.identity(), versions)
    known = planned.digests
    if known is not None:
        return ShardPlan(recipe, recipes.record, known, lambda: _in_order(planned.refs, known.order))
    unsorted = _decoded(planned.refs)
    places = [shard_order(settings.seed, ref.key) for ref in unsorted]
    order = sorted(range(len(unsorted)), key=places.__getitem__)
    refs = [unsorted[place] for place in order]
    roles = layout.by_role().keys()
    said = (planned.split,) if FeatureRole.SPLIT in roles else ()
    lines = [
        ref_digest(
            ref,
            [ids.get(name, -1) for name in ref.labels],
            *said,
            *([("fold", ref.fold)] if ref.fold >= 0 else ()),
            *_texts_of(ref, texts),
            *_names_of(ref, roles),
            *_least_bytes(ref, settings),
            *_decoders_of(ref, versions),
        )
        for ref in refs
    ]
    candidates = [ref for ref in refs if ref.is_candidate]
    digests = ShardDigests(
        plan_digest(recipes.shard, zip(refs, lines, strict=True)),
        bytes.fromhex("".join(lines)),
        struct.pack(f"<{len(order)}I", *order),
        len(candidates),
        all(ref.has_known_state for ref in candidates),
    )
    return ShardPlan(recipe, recipes.record, digests, lambda: refs)


def _decoded(packed: Iterable[EncodedRefs]) -> list[ImageRef]:
    return [ref for batch in packed for ref in decode_refs(batch)]


def _in_order(packed: Iterable[EncodedRefs], order: bytes) -> list[ImageRef]:
    unsorted = _decoded(packed)
    return [unsorted[place] for place in struct.unpack(f"<{len(unsorted)}I", order)]


class Recipes(NamedTuple):
    """Digests of the settings and versions that determine bytes.

    Attributes:
      record: digest of what determines the bytes of a record.
      shard: digest of what determines the bytes of a shard, for given references.
    """

    record: str
    shard: str


def recipes_of(identity: Mapping[str, Any], versions: Mapping[str, str]) -> Recipes:
    """Returns the digests of settings and versions.

    Args:
      identity: settings, as `ConvertSettings.identity` returns them and a plan stores them.
      versions: versions of the software that determines bytes.

    Raises:
      KeyError: if a setting is missing.
    """
    versions = {name: number for name, number in versions.items() if name != HEIF_DECODER}
    chosen = {
        name: identity[name] for name in _SHARD_SETTINGS if name in identity or name not in RECORDED_IF_GIVEN
    }
    making = {name: value for name, value in chosen.items() if name in _RECORD_SETTINGS}
    makers = {name: version for name, version in versions.items() if name not in _FRAMING}
    return Recipes(recipe_digest(making, makers), recipe_digest(chosen, versions))


def _decoders_of(ref: ImageRef, versions: Mapping[str, str]) -> list[tuple[str, str]]:
    """Returns the version of the decoder of an image if it is not one that every image depends on."""
    if has_extension_of(ref.key, "heif") and (number := versions.get(HEIF_DECODER)):
        return [(HEIF_DECODER, number)]
    return []


def _names_of(ref: ImageRef, roles: Collection[FeatureRole]) -> list[tuple[str, str]]:
    """Returns the names of an image in its record, besides its key."""
    names = [("source_id", source_id_of(ref))] if FeatureRole.SOURCE_ID in roles else []
    if ref.file_name and not _NAMES.isdisjoint(roles):
        names.append(("file_name", ref.file_name))
    return names


def _least_bytes(ref: ImageRef, settings: ConvertSettings) -> list[tuple[str, int]]:
    """Returns the least size of a file, if only reading the file shows whether it is large enough."""
    return [("min_bytes", settings.min_source_bytes)] if ref.size < 0 and settings.min_source_bytes else []


def _texts_of(ref: ImageRef, texts: Mapping[str, str]) -> list[str]:
    """Returns the readable names of an image's classes, if they differ from the class names."""
    return [texts[name] for name in ref.labels if name in texts] if texts else []
