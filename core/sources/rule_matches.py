"""What the names and lists of the settings match in an input, to report those that match nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from shardwright.core.sources.label_rules import LabelRules
from shardwright.core.sources.selection import ListingRules
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import nearest
from shardwright.schemas.image_ref import ImageRef, as_in_keys, is_image
from shardwright.schemas.key_rules import KeyList
from shardwright.schemas.units import counted

#: Number of names or entries in a warning.
_SHOWN = 5
#: Number of lines for which a part of an input remembers a key with the same file name.
_MAX_SIMILAR = 1000


@dataclass
class RuleMatches:
    """What matched in a part of an input. Parts can be merged in any order.

    Attributes:
      names: Class names of images, before they are renamed.
      entries: Option -> its patterns and lines that match an image.
      similar: Line without a match -> key with the same file name.
      example: The first key in order; empty without an image.
    """

    names: set[str] = field(default_factory=set)
    entries: dict[str, set[str]] = field(default_factory=dict)
    similar: dict[str, str] = field(default_factory=dict)
    example: str = ""

    def merge(self, other: RuleMatches) -> None:
        """Adds what matched in another part."""
        self.names |= other.names
        for option, entries in other.entries.items():
            self.entries.setdefault(option, set()).update(entries)
        for line, key in other.similar.items():
            self.similar[line] = min(key, self.similar.get(line, key))
        self.example = min(filter(None, (self.example, other.example)), default="")


class RuleMatcher:
    """Collects the `RuleMatches` of a listing.

    Args:
      rules: Rules for class names.
      selection: Rules that leave out images.

    Attributes:
      matches: What has matched.
    """

    def __init__(self, rules: LabelRules, selection: ListingRules) -> None:
        self._rules = rules
        lists = {"--include": selection.keys.include, "--exclude": selection.keys.exclude}
        self._lists = {option: keys for option, keys in lists.items() if keys}
        self.matches = RuleMatches()

    @cached_property
    def _lines_of_files(self) -> Mapping[str, str]:
        """File name -> a line that names such a file."""
        lines = (line for keys in self._lists.values() for line in keys.keys)
        return {_file_name(line): line for line in sorted(lines, reverse=True)}

    def add(self, ref: ImageRef) -> None:
        """Adds a reference that a source has listed, before any rule is applied."""
        if not is_image(ref):
            return
        matches = self.matches
        if self._rules.changes_names:
            matches.names.update(self._rules.old_names(ref))
        if not self._lists:
            return
        if not matches.example or ref.key < matches.example:
            matches.example = ref.key
        listed = {option: {*keys.entries_of(ref.key)} for option, keys in self._lists.items()}
        for option, entries in listed.items():
            matches.entries.setdefault(option, set()).update(entries)
        line = self._lines_of_files.get(_file_name(ref.key))
        if line is not None and not any(listed.values()) and len(matches.similar) < _MAX_SIMILAR:
            matches.similar.setdefault(line, ref.key)


def _file_name(line: str) -> str:
    return line.replace("\\", "/").rpartition("/")[2].strip("\"' ").casefold()


def unmatched_warnings(
    parts: Iterable[RuleMatches], settings: ConvertSettings, rules: LabelRules, selection: ListingRules
) -> list[str]:
    """Returns a sentence for each setting with names, patterns or lines that match no image.

    Args:
      parts: What matched in each part of the inputs.
      settings: Checked settings.
      rules: Rules for class names.
      selection: Rules that leave out images.
    """
    matches = RuleMatches()
    for part in parts:
        matches.merge(part)
    keys = selection.keys
    return [
        *_unmatched_names(matches.names, settings, rules),
        *_unmatched_entries("--include", settings.include, keys.include, matches),
        *_unmatched_entries("--exclude", settings.exclude, keys.exclude, matches),
    ]


def _unmatched_names(names: set[str], settings: ConvertSettings, rules: LabelRules) -> Iterator[str]:
    new_names = {rules.rename.get(name, name) for name in names}
    seen = {as_in_keys(name) for name in names}
    old_names = sorted({as_in_keys(name) for name in rules.rename} - seen)
    for unused, known, option, where in (
        (old_names, names, "--rename_labels", settings.rename_labels),
        (rules.keeps_none(new_names), new_names, "--keep_labels", settings.keep_labels),
    ):
        if unused:
            hint = nearest(unused[0], sorted(known)) or "; check the spelling."
            yield f"No image has the class {_shown(unused)} of {option} {where}{hint}"


def _unmatched_entries(option: str, text: str, keys: KeyList, matches: RuleMatches) -> Iterator[str]:
    matched = matches.entries.get(option, set())
    patterns = [pattern for pattern in keys.patterns if pattern not in matched]
    key = f", such as {matches.example!r}" if matches.example else ""
    if patterns:
        which = option if len(keys.patterns) == 1 else f"{option} {text}:"
        match = "matches" if len(patterns) == 1 else "match"
        yield f"{which} {_shown(patterns)} {match} no key; a key is the path below the input{key}."
    lines = sorted(keys.keys - matched)
    if lines:
        first = next((line for line in lines if line in matches.similar), lines[0])
        hint = f"; did you mean {matches.similar[first]}?" if first in matches.similar else "."
        yield (
            f"{option} {text}: {len(lines):,} of {counted(len(keys.keys), 'line')} "
            f"{'matches' if len(lines) == 1 else 'match'} no image: {first!r}{hint} A line is one whole key, "
            f"the path below the input{key}; write patterns and folders beside @FILE, as in "
            f"{option} 'drafts/,@FILE'."
        )


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more
