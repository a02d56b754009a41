"""Finds the settings that have no effect in a conversion, in order to report them.

The declaration of a setting names the conditions under which it has an effect, and each source names the
settings that it uses. This module checks both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from shardwright.core.sources.source import all_sources, source_by_name
from shardwright.schemas.configuration.setting import Condition, settings_of
from shardwright.schemas.configuration.settings import ConvertSettings, is_on
from shardwright.schemas.layouts import Needs
from shardwright.schemas.plan import SplitsFrom
from shardwright.schemas.units import listed


@dataclass(frozen=True)
class ConversionFacts:
    """Facts about a conversion that decide which settings have an effect.

    Attributes:
      settings: All settings, with their defaults.
      sources: Names of the sources that read the inputs; None if unknown.
      splits_from: What decides the splits; None before the inputs are listed.
      metadata: Whether metadata files are beside the images of class folders.
      on_background: Number of images that show the background color; None before the conversion.
    """

    settings: ConvertSettings
    sources: frozenset[str] | None
    splits_from: SplitsFrom | None = None
    metadata: bool = False
    on_background: int | None = None


def _is_met(condition: Condition, name: str, facts: ConversionFacts) -> bool:
    """Returns whether a condition of a setting is, or may be, met."""
    settings, needs = facts.settings, facts.settings.record_layout.needs
    match condition:
        case Condition.SOURCE:
            if facts.sources is None or (name in ("extra_columns", "label_separator") and settings.map):
                return True  # a hook can return columns and several classes
            return any(source_by_name(source).uses(name, facts.metadata) for source in facts.sources)
        case Condition.RESIZING:
            return bool(settings.resize)
        case Condition.LOSSY_FORMAT:
            return settings.stored_format in ("keep", "jpeg", "webp")
        case Condition.KEPT_ORIGINALS:
            return settings.stored_format == "keep"
        case Condition.OBJECTS:
            return any(str(role).startswith("object_") for role in settings.record_layout.by_role)
        case Condition.CLASSES:
            return needs is not Needs.OBJECTS
        case Condition.STORED_CLASSES:
            return needs is not Needs.IMAGE
        case Condition.SEVERAL_SPLITS:
            return len(settings.parsed_splits) > 1 or settings.folds > 0
        case Condition.DRAWN_SPLITS:
            # Folds do not depend on what decides the splits.
            has_folds = name != "splits" and settings.folds > 0
            return facts.splits_from is not SplitsFrom.SOURCE or has_folds
        case Condition.CONVERTED_COLORS:
            return not settings.channels
        case Condition.VISIBLE_BACKGROUND:
            return facts.on_background != 0


def _why_unused(name: str, facts: ConversionFacts) -> str:
    """Returns the end of "--NAME has no effect ..."; empty if the setting has, or may have, an effect."""
    needs = settings_of(ConvertSettings)[name].needs
    unmet = next((condition for condition in needs if not _is_met(condition, name, facts)), None)
    if unmet is not Condition.SOURCE:
        return unmet.value if unmet else ""
    users = [source for source in all_sources() if source.uses(name)]
    read_as, names = listed(sorted(facts.sources or ())), listed(source.name for source in users)
    metadata = any(name in source.metadata_settings for source in users)
    beside = " (class_folders if a .json lies beside every image)" if metadata else ""
    return f"on inputs that are read as {read_as}; only {names} can use it{beside}"


def has_effect(name: str, facts: ConversionFacts) -> bool:
    """Returns whether a setting has, or may have, an effect."""
    return not _why_unused(name, facts)


def given_names(values: Mapping[str, Any]) -> frozenset[str]:
    """Returns the names of the settings that were given; empty and false values do not count.

    Args:
      values: Values by name, from a command line, a job file or a notebook.
    """
    return frozenset(name for name, value in values.items() if is_on(value) and str(value) != "0")


def without_effect(
    names: Iterable[str], facts: ConversionFacts, before: ConversionFacts | None = None
) -> Iterator[str]:
    """Yields a sentence for each given setting that is known to have no effect.

    Args:
      names: Names of the given settings, in any order.
      facts: Facts that are known now.
      before: Facts at the previous call, whose sentences are not repeated; None for the first call.
    """
    for name in sorted(names):
        why = _why_unused(name, facts)
        if why and (before is None or has_effect(name, before)):
            yield f"--{name} has no effect {why}."
