"""Leaves out listed images by their keys and the sizes of their files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from shardwright.core import storage
from shardwright.schemas.codes import FilterReason
from shardwright.schemas.configuration.kinds import list_entries
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef, is_image
from shardwright.schemas.key_rules import KeyList, KeyRules, parse_key_list
from shardwright.schemas.labels import lines_of


@dataclass(frozen=True)
class ListingRules:
    """Which listed images are taken.

    Attributes:
      keys: Rules of `--include` and `--exclude`.
      min_bytes: Least size of a file. Files of unknown size are measured when they are read.
      files: The lists that were read: path -> sha256 of the list.
    """

    keys: KeyRules = field(default_factory=KeyRules)
    min_bytes: int = 0
    files: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def _takes_all(self) -> bool:
        return not (self.lists or self.min_bytes)

    @cached_property
    def lists(self) -> Mapping[str, KeyList]:
        """Option -> its list, for the options that are given."""
        lists = {"--include": self.keys.include, "--exclude": self.keys.exclude}
        return {option: keys for option, keys in lists.items() if keys}

    @cached_property
    def lines_of_files(self) -> Mapping[str, str]:
        """File name, as `file_name` returns it -> a line that names such a file."""
        lines = (line for keys in self.lists.values() for line in keys.keys)
        return {file_name(line): line for line in sorted(lines, reverse=True)}

    def apply(self, ref: ImageRef) -> ImageRef:
        """Returns a reference, filtered if the rules leave it out."""
        if self._takes_all or not is_image(ref):
            return ref
        reason = self.keys.reason_by_key(ref.key)
        if reason is None and ref.is_candidate and 0 < ref.size < self.min_bytes:
            reason = FilterReason.MIN_BYTES
        return ref if reason is None else ref.filtered(reason)


def file_name(line: str) -> str:
    """Returns the file name in a key or in a line that names one, without quotes and in one case."""
    return line.replace("\\", "/").rpartition("/")[2].strip("\"' ").casefold()


def make_listing_rules(settings: ConvertSettings) -> ListingRules:
    """Returns the rules that the settings define.

    Args:
      settings: Checked settings.

    Raises:
      UsageError: If a file cannot be read or is empty.
    """
    files: dict[str, str] = {}
    keys = KeyRules(
        _read_list("--include", settings.include, files), _read_list("--exclude", settings.exclude, files)
    )
    return ListingRules(keys, settings.min_source_bytes, files)


def _read_list(option: str, text: str, files: dict[str, str]) -> KeyList:
    """Reads the list of an option; adds the digests of the files that it names to `files`."""
    patterns, paths = list_entries(text)
    lines = []
    for path in paths:
        content = storage.read_text(option, path)
        found = lines_of(content)
        if option == "--include" and not found:
            raise UsageError(f"{option} @{path}: the file lists no image; write a key or a sha256 per line.")
        lines += found
        files[path] = hashlib.sha256(content.encode()).hexdigest()
    return parse_key_list(patterns, lines)
