"""Chooses images by their keys and by the sha256 of their bytes: `--include` and `--exclude`.

A rule is a list of patterns, keys and digests. Patterns are compared with keys:

- `*` and `?` match within one folder, `**` matches any number of folders, `[0-9]` matches one character.
- A pattern that ends with a slash matches everything in that folder.
- A pattern without another slash matches files and folders of that name anywhere. Others match whole keys.

A leading `./` does not count, and a backslash also stands for a slash.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from shardwright.schemas.codes import FilterReason
from shardwright.schemas.image_ref import as_in_keys

#: A digest, alone or followed by a file name, as `sha256sum` prints it.
_DIGEST_LINE = re.compile(r"([0-9a-fA-F]{64})(?:[ \t]+\*?.*)?\Z")
_LEADING_DOTS = re.compile(r"\A(?:\./)+")
_CLASS = re.compile(r"\[(!?)([^\]]+)\]")
#: Wildcard -> its regular expression, a longer wildcard before a shorter one that it begins with.
_WILDCARDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
_PIECES = re.compile(rf"({'|'.join(map(re.escape, _WILDCARDS))}|\[!?[^\]]+\])")


@dataclass(frozen=True)
class KeyList:
    """Patterns, keys and digests of images.

    Attributes:
      patterns: Patterns of keys.
      keys: Whole keys.
      digests: sha256 digests of source bytes.
    """

    patterns: tuple[str, ...] = ()
    keys: frozenset[str] = frozenset()
    digests: frozenset[bytes] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.patterns or self.keys or self.digests)

    @cached_property
    def _respelled(self) -> Mapping[str, str]:
        """Key -> line, for lines that write a key in another way: `./a.jpg`, `cats\\a.jpg`, `100%.jpg`."""
        spelled = ((as_in_keys(_LEADING_DOTS.sub("", line.replace("\\", "/"))), line) for line in self.keys)
        return {key: line for key, line in spelled if key not in self.keys}

    @cached_property
    def _regexes(self) -> Mapping[str, re.Pattern[str]]:
        return {pattern: re.compile(pattern_regex(pattern), re.DOTALL) for pattern in self.patterns}

    def has_key(self, key: str) -> bool:
        """Returns whether the list contains a key, or a pattern that matches it."""
        return any(True for _ in self.entries_of(key))

    def entries_of(self, key: str) -> Iterator[str]:
        """Yields the lines and patterns that match a key."""
        if key in self.keys:
            yield key
        elif key in self._respelled:
            yield self._respelled[key]
        yield from (pattern for pattern, regex in self._regexes.items() if regex.fullmatch(key))

    def has_digest(self, sha256: str) -> bool:
        """Returns whether the list contains a digest; an unknown digest is empty."""
        try:
            return bool(self.digests) and bytes.fromhex(sha256) in self.digests
        except ValueError:  # what a source states may be anything
            return False


@dataclass(frozen=True)
class KeyRules:
    """Which images are chosen by `--include` and `--exclude`.

    Attributes:
      include: Images to take; empty to take all.
      exclude: Images to leave out, also if `include` has them.
    """

    include: KeyList = KeyList()
    exclude: KeyList = KeyList()

    @cached_property
    def need_bytes(self) -> bool:
        """Whether the bytes of an image may decide."""
        return bool(self.include.digests or self.exclude.digests)

    def reason_by_key(self, key: str) -> FilterReason | None:
        """Returns why an image is left out because of its key; None if it may be taken."""
        if self.exclude and self.exclude.has_key(key):
            return FilterReason.EXCLUDED
        if self.include and not self.include.digests and not self.include.has_key(key):
            return FilterReason.NOT_INCLUDED
        return None

    def reason_by_bytes(self, key: str, sha256: str) -> FilterReason | None:
        """Returns why an image with this digest is left out; None if it is taken.

        Args:
          key: Key of the image, which `reason_by_key` lets through.
          sha256: Hex digest of its bytes.
        """
        if self.exclude.has_digest(sha256):
            return FilterReason.EXCLUDED
        include = self.include
        if include.digests and not include.has_key(key) and not include.has_digest(sha256):
            return FilterReason.NOT_INCLUDED
        return None


def parse_key_list(entries: Iterable[str], lines: Iterable[str] = ()) -> KeyList:
    """Returns the list of a setting.

    Args:
      entries: Patterns in the setting itself.
      lines: Lines of files that it names: a key, or a digest as `sha256sum` prints it.

    Raises:
      ValueError: If a pattern is empty or cannot be understood.
    """
    patterns = tuple(dict.fromkeys(unicodedata.normalize("NFC", entry) for entry in entries))
    for pattern in patterns:
        try:
            re.compile(pattern_regex(pattern))
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a pattern ({error})") from None
    keys, digests = set(), set()
    for line in lines:
        digest = _DIGEST_LINE.match(line)
        if digest:
            digests.add(bytes.fromhex(digest[1]))
        else:
            keys.add(unicodedata.normalize("NFC", line))  # as keys are
    return KeyList(patterns, frozenset(keys), frozenset(digests))


def pattern_regex(pattern: str) -> str:
    """Returns the regular expression of a pattern, for a match of the whole key.

    Raises:
      ValueError: If the pattern is empty.
    """
    if not pattern.strip("/"):
        raise ValueError(f"{pattern!r} matches nothing; write a pattern such as 'drafts/' or '*.png'")
    if "\\" in pattern:
        with_slashes = pattern_regex(pattern.replace("\\", "/"))
        return f"(?:{with_slashes}|{re.escape(pattern)})"
    # A member of an archive may be named without the archive.
    begin = "" if "/" in pattern.removesuffix("/") else "(?:.*[/!])?"
    if pattern.startswith("./"):
        begin, pattern = r"(?:\./)?", pattern[1:]
    parts = [begin]
    for piece in _PIECES.split(pattern.removeprefix("/") + ("**" if pattern.endswith("/") else "")):
        if match := _CLASS.fullmatch(piece):
            inside = match[2].replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^")
            parts.append(f"(?!/)[{'^' if match[1] else ''}{inside}]")
        else:
            parts.append(_WILDCARDS.get(piece) or re.escape(piece))
    return f"(?:{''.join(parts)})"
