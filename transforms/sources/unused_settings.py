"""Finds the settings that have no effect in a conversion, in order to report them.

The declaration of a setting names the conditions under which it has an effect, and each source names the
settings that it uses. This module checks both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from shardwright.schemas.configuration.setting import Condition, settings_of
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.layouts import Needs
from shardwright.schemas.plan import SplitsFrom
from shardwright.transforms.sources.source import all_sources, source_by_name


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


class _Condition(NamedTuple):
    """A condition that a setting needs to have an effect.

    Attributes:
      has_effect: Function of the setting's name and the facts; returns whether the condition is, or may
        be, met.
      otherwise: Function that returns the end of "--NAME has no effect ..." if it is not met.
    """

    has_effect: Callable[[str, ConversionFacts], bool]
    otherwise: Callable[[str, ConversionFacts], str]


def _is_used(name: str, facts: ConversionFacts) -> bool:
    """Returns whether a source of the conversion uses a setting."""
    if facts.sources is None or (name == "extra_columns" and facts.settings.map):
        return True  # a hook can fill the columns
    return any(source_by_name(source).uses(name, facts.metadata) for source in facts.sources)


def _not_used(name: str, facts: ConversionFacts) -> str:
    """Returns why a setting has no effect with these sources, and which sources use it."""
    sources = list(all_sources())
    users = [source.name for source in sources if source.uses(name)]
    text = (
        f"on inputs that are read as {_listed(sorted(facts.sources or ()))}; only {_listed(users)} can use it"
    )
    if any(name in source.metadata_settings for source in sources):
        text += " (class_folders if a .json lies beside every image)"
    return text


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _needs(has_effect: Callable[[ConversionFacts], bool], otherwise: str) -> _Condition:
    return _Condition(lambda name, facts: has_effect(facts), lambda name, facts: otherwise)


_CONDITIONS: Mapping[Condition, _Condition] = {
    Condition.SOURCE: _Condition(_is_used, _not_used),
    Condition.RESIZING: _needs(lambda facts: bool(facts.settings.resize), "without --resize"),
    Condition.LOSSY_FORMAT: _needs(
        lambda facts: facts.settings.stored_format in ("keep", "jpeg", "webp"),
        "on images that are not stored as JPEG or WebP",
    ),
    Condition.KEPT_ORIGINALS: _needs(
        lambda facts: facts.settings.stored_format == "keep",
        "unless the original bytes are kept (--image_format keep): re-encoded images have no metadata",
    ),
    Condition.OBJECTS: _needs(
        lambda facts: any(str(role).startswith("object_") for role in facts.settings.record_layout.by_role()),
        "with a layout that stores no objects",
    ),
    Condition.CLASSES: _needs(
        lambda facts: facts.settings.record_layout.needs is not Needs.OBJECTS,
        "with a layout of objects: images without objects are kept anyway",
    ),
    Condition.STORED_CLASSES: _needs(
        lambda facts: facts.settings.record_layout.needs is not Needs.IMAGE,
        "with a layout that stores no classes",
    ),
    Condition.SEVERAL_SPLITS: _needs(
        lambda facts: len(facts.settings.parsed_splits) > 1 or facts.settings.folds > 0,
        "without several --splits or --folds",
    ),
    Condition.DRAWN_SPLITS: _Condition(
        # Folds are chosen whatever decides the splits.
        lambda name, facts: (
            facts.splits_from is not SplitsFrom.SOURCE or (name != "splits" and facts.settings.folds > 0)
        ),
        lambda name, facts: "because the source names the split of every image",
    ),
    Condition.VISIBLE_BACKGROUND: _needs(
        lambda facts: facts.on_background != 0,
        "because no image was padded or has transparent pixels that were filled",
    ),
}


def _missing(name: str, facts: ConversionFacts) -> _Condition | None:
    """Returns the first condition of a setting that is not met; None if all are met."""
    for condition in settings_of(ConvertSettings)[name].needs:
        if not _CONDITIONS[condition].has_effect(name, facts):
            return _CONDITIONS[condition]
    return None


def has_effect(name: str, facts: ConversionFacts) -> bool:
    """Returns whether a setting has, or may have, an effect."""
    return _missing(name, facts) is None


def given_names(values: Mapping[str, Any]) -> frozenset[str]:
    """Returns the names of the settings that were given; empty and false values do not count.

    Args:
      values: Values by name, from a command line, a job file or a notebook.
    """
    return frozenset(
        name
        for name, value in values.items()
        if value not in ("", None, (), [], {}) and str(value).lower() not in ("false", "no", "0")
    )


def without_effect(
    given: Iterable[str], facts: ConversionFacts, before: ConversionFacts | None = None
) -> Iterator[str]:
    """Yields a sentence for each given setting that is known to have no effect.

    Args:
      given: Names of the given settings, in any order.
      facts: Facts that are known now.
      before: Facts at the previous call, whose sentences are not repeated; None for the first call.
    """
    for name in sorted(given):
        missing = _missing(name, facts)
        if missing is not None and (before is None or has_effect(name, before)):
            yield f"--{name} has no effect {missing.otherwise(name, facts)}."
