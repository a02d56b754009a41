"""A checked request for a conversion, and the custom layout that its settings may name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from shardwright.core import storage
from shardwright.core.sources.folder_tree import WITH_METADATA
from shardwright.core.sources.rules import Rules
from shardwright.core.sources.source import Input
from shardwright.core.sources.unused_settings import ConversionFacts
from shardwright.schemas.configuration.kinds import SOURCES
from shardwright.schemas.configuration.setting import Affects
from shardwright.schemas.configuration.settings import (
    ConvertSettings,
    settings_from,
    settings_that_affect,
)
from shardwright.schemas.layouts import inline_layout, is_layout_file
from shardwright.schemas.plan import Plan


@dataclass(frozen=True)
class ConversionRequest:
    """A checked request for a conversion.

    Attributes:
      settings: The settings.
      inputs: The parsed inputs.
      carried: The plan to carry on, if any.
      class_names: Allowed class names in id order; empty to allow any.
      rules: Which listed images are taken, and how class names of the sources map to labels.
      given: Names of the settings that were given, rather than carried on or left at their defaults.
    """

    settings: ConvertSettings
    inputs: tuple[Input, ...] = ()
    carried: Plan | None = None
    class_names: tuple[str, ...] = ()
    rules: Rules = field(default_factory=Rules)
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
            "lists": sorted(self.rules.files.items()),
            "given": sorted(self.given.difference(how_to_run)),
            "software": sorted(software.items()),
        }
        text = json.dumps(decides, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def checked_settings(given: Mapping[str, Any], carried: Mapping[str, Any] | None = None) -> ConvertSettings:
    """Returns the settings of a conversion, like `settings_from`, after all checks; reads a layout file.

    Raises:
      UsageError: If a setting is wrong; the message names it and says what to write instead.
    """
    if given.get("layout"):
        given = {**given, "layout": read_layout(str(given["layout"]))}
    settings = settings_from(given, carried)
    settings.check()
    return settings


def read_layout(value: str) -> str:
    """Returns a value of `--layout`, with the content of a file instead of its path for workers.

    Raises:
      UsageError: If the file cannot be read, or is wrong.
    """
    if not is_layout_file(value):
        return value
    from shardwright.schemas.configuration.layout_file import parse_layout_file  # imports YAML

    return inline_layout(parse_layout_file(storage.read_text("--layout", value), value))
