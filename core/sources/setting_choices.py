"""Checks settings that have a fixed set of values, including names of sources."""

from __future__ import annotations

from typing import Any

from shardwright.core.sources.source import SOURCES, plugin_sources
from shardwright.schemas.configuration.setting import Setting
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.configuration.settings_values import setting_fields, stored_value
from shardwright.schemas.errors import UsageError, nearest


def choices_of(item: Setting) -> tuple[str, ...]:
    """Returns the fixed values of a setting, without sources of other packages; empty if it has none."""
    return ("auto", *SOURCES) if item.name == "source" else item.kind.choices


def checked_value(item: Setting, value: Any) -> Any:
    """Returns a given value in the form of its setting, after all checks that need no other setting.

    Raises:
      UsageError: If it is wrong; the message says what to write instead.
    """
    stored = stored_value(item, value)
    choices = choices_of(item)
    if item.name == "source" and stored not in choices and stored not in plugin_sources():
        choices = (*choices, *plugin_sources())
        hint = nearest(stored, choices) or "."
        raise UsageError(f"--source {stored}: choose one of {', '.join(choices)}{hint}")
    item.check_option(stored)
    return stored


def check_settings(settings: ConvertSettings) -> None:
    """Checks all settings and their combination.

    Raises:
      UsageError: If a setting is wrong; the message names it and says what to write instead.
    """
    checked_value(setting_fields()["source"], settings.source)
    settings.check()
