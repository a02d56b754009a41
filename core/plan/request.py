"""A checked request for a conversion, and the forecast of what it will write."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from shardwright.core.concurrency.progress import PROGRESS
from shardwright.core.plan.forecast import RefSummary, make_forecast
from shardwright.core.sources.folder_tree import WITH_METADATA
from shardwright.core.sources.label_rules import LabelRules
from shardwright.core.sources.selection import ListingRules
from shardwright.core.sources.source import SOURCES, Input
from shardwright.core.sources.unused_settings import ConversionFacts, without_effect
from shardwright.schemas.configuration.setting import Affects
from shardwright.schemas.configuration.settings import ConvertSettings, settings_that_affect
from shardwright.schemas.labels import ClassId, check_numbering, merge_class_ids, merge_class_texts
from shardwright.schemas.part_bounds import PartBounds
from shardwright.schemas.plan import Forecast, Plan

_LOG = logging.getLogger(__name__)
#: Settings that determine the number of shards.
_SHARD_COUNTS = ("shards", "shard_size")


@dataclass(frozen=True)
class ConversionRequest:
    """A checked request for a conversion.

    Attributes:
      settings: The settings.
      inputs: The parsed inputs.
      carried: The plan to carry on, if any.
      class_names: Allowed class names in id order; empty to allow any.
      explicit_shards: Whether shard settings were given, which replace the carried shard counts.
      rules: How class names of the sources map to labels.
      selection: Which listed images are taken.
      given: Names of the settings that were given, rather than carried on or left at their defaults.
    """

    settings: ConvertSettings
    inputs: tuple[Input, ...] = ()
    carried: Plan | None = None
    class_names: tuple[str, ...] = ()
    explicit_shards: bool = False
    rules: LabelRules = field(default_factory=LabelRules)
    selection: ListingRules = field(default_factory=ListingRules)
    given: frozenset[str] = frozenset()

    @property
    def facts(self) -> ConversionFacts:
        """Facts about the conversion that are known before the inputs are listed."""
        metadata = any(WITH_METADATA in item.detected_as for item in self.inputs)
        return ConversionFacts(
            self.settings, frozenset(item.source for item in self.inputs), metadata=metadata
        )

    def digest(self, software: Mapping[str, str]) -> str:
        """Returns a digest of everything besides the listing that decides what a conversion makes.

        Args:
          software: Versions of all software that takes part.

        Returns:
          The sha256 as a hex digest. Empty if a package added a source, since its code is not known.
        """
        if not all(item.source in SOURCES for item in self.inputs):
            return ""
        keep, how_to_run = self.rules.keep, settings_that_affect(Affects.RUN)
        settings = asdict(self.settings)
        decides = {
            "settings": {name: value for name, value in settings.items() if name not in how_to_run},
            "inputs": self.inputs,
            "carried": self.carried.as_json() if self.carried is not None else None,
            "class_names": self.class_names,
            "first_number": self.rules.first_number,
            "rename": sorted(self.rules.rename.items()),
            "keep": sorted(keep) if keep is not None else None,
            "lists": sorted(self.selection.files.items()),
            "given": sorted(self.given.difference(how_to_run)),
            "software": sorted(software.items()),
        }
        text = json.dumps(decides, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def merged_summaries(summaries: Iterable[RefSummary], settings: ConvertSettings) -> RefSummary:
    """Returns the sum of summaries, without changing them."""
    merged = RefSummary()
    for summary in summaries:
        merged.merge(summary, settings)
    return merged


def forecast_of(
    request: ConversionRequest,
    summary: RefSummary,
    class_ids: Sequence[ClassId],
    unmatched: Sequence[str] = (),
    split_bounds: PartBounds | None = None,
    fold_bounds: PartBounds | None = None,
) -> Forecast:
    """Returns the forecast of a request; notes in it, and on a terminal, what has no effect.

    Args:
      request: The request, with the plan to carry on.
      summary: Summary of all references.
      class_ids: Ids that sources give to class names.
      unmatched: Sentences about names and lists of settings that match no image.
      split_bounds: Chosen bounds of the splits, if `--splits` alone does not decide them.
      fold_bounds: Chosen bounds of the folds, if `--folds` alone does not decide them.

    Raises:
      UsageError: There is nothing to convert, or the source counts its classes from 1.
    """
    settings, rules, carried = request.settings, request.rules, request.carried
    explicit = request.explicit_shards
    if carried is not None:  # unchanged shard settings do not choose the numbers of shards again
        identity = settings.identity()
        explicit = any(carried.settings.get(name) != identity[name] for name in _SHARD_COUNTS)
    forecast = make_forecast(
        summary,
        settings,
        rules.apply_to_ids(merge_class_ids(class_ids)),
        carried,
        request.class_names,
        explicit,
        rules.apply_to_texts(merge_class_texts(class_ids)),
        split_bounds,
        request.selection.keys,
        fold_bounds,
        unmatched,
    )
    forecast = _with_numbering_checked(forecast, request, class_ids)
    facts = replace(request.facts, splits_from=forecast.splits_from)
    notes = tuple(without_effect(request.given, facts, request.facts))
    PROGRESS.tell(*notes)
    PROGRESS.tree = forecast.tree
    _LOG.info("The input holds %s", forecast.tree)
    PROGRESS.total_images = forecast.total
    PROGRESS.total_shards = sum(forecast.plan.shards.values())
    return replace(forecast, warnings=(*forecast.warnings, *notes))


def _with_numbering_checked(
    forecast: Forecast, request: ConversionRequest, class_ids: Iterable[ClassId]
) -> Forecast:
    """Adds a warning to a forecast if no image has the number of the first class name.

    Raises:
      UsageError: The source counts its classes from 1, but the class names are counted from 0.
    """
    names, seen = request.rules.names, forecast.class_counts
    if not names or request.rules.first_number or names[0] in seen:
        return forecast
    first_label = request.settings.record_layout.first_label
    check_numbering(seen, names, first_label, request.settings.class_names)
    if not any(item.name == str(item.id) for item in class_ids):
        return forecast
    warning = (
        f"No image has the class number 0 ({names[0]!r}); check that the source does not count "
        "its classes from 1."
    )
    return replace(forecast, warnings=(*forecast.warnings, warning))
