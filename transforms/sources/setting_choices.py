"""Checks settings that have a fixed set of values, including names of sources."""

from __future__ import annotations

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.configuration.settings_values import setting_fields
from shardwright.schemas.errors import UsageError, nearest
from shardwright.transforms.sources.source import SOURCES, plugin_sources


def choices_of(name: str) -> tuple[str, ...]:
    """Returns the fixed values of a setting, without sources of other packages; empty if it has none."""
    return ("auto", *SOURCES) if name == "source" else tuple(setting_fields()[name].metadata["choices"])


def check_setting(settings: ConvertSettings, name: str) -> None:
    """Checks the value of one setting.

    Raises:
      UsageError: if the value is wrong; the message says what to write instead.
    """
    choices = choices_of("source")
    if name == "source" and settings.source not in choices and settings.source not in plugin_sources():
        choices = (*choices, *plugin_sources())
        hint = nearest(settings.source, choices) or "."
        raise UsageError(f"--source {settings.source}: choose one of {', '.join(choices)}{hint}")
    settings.check_one(name)


def check_settings(settings: ConvertSettings) -> None:
    """Checks all settings and their combination.

    Raises:
      UsageError: if a setting is wrong; the message names it and says what to write instead.
    """
    check_setting(settings, "source")
    settings.check()
