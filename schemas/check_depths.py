"""The depths of a check: which findings each depth looks for, and which it finds completely."""

from __future__ import annotations

from enum import IntEnum

from shardwright.schemas.codes import (
    DECODED,
    OF_DIRECTORY,
    OF_EQUAL_PICTURES,
    OF_FILES,
    OF_SOURCE,
    QUALITY,
    FindingCode,
)

_ALL = frozenset(FindingCode)
#: Found in records without decoding an image.
_OF_EXAMPLES = _ALL - DECODED - QUALITY - OF_SOURCE


class CheckDepth(IntEnum):
    """Depth of a check. Each depth includes those before it."""

    NONE = 0  # only the names of the files, and the ledgers
    FRAMES = 1  # framing, checksums, counts: `convert --verify fast`
    FAST = 2  # every Example: `validate --fast`
    FULL = 3  # every image decoded
    QUALITY = 4  # measurements of every image

    @property
    def word(self) -> str:
        """The word for the depth in stored files."""
        return self.name.lower()

    @staticmethod
    def of(word: str) -> CheckDepth:
        """Returns the depth for a stored word.

        Raises:
          ValueError: If there is no such depth.
        """
        try:
            return CheckDepth[word.upper()]
        except KeyError:
            raise ValueError(f"there is no depth {word!r}") from None

    @staticmethod
    def of_verification(verify: str) -> CheckDepth:
        """Returns the depth for a value of `--verify`, where `fast` checks only frames, not records."""
        return CheckDepth.FRAMES if verify == "fast" else CheckDepth.of(verify)


def time_in_words(time: str) -> str:
    """Returns the stored time of a check as people write it: `2026-10-05 14:03 UTC`."""
    return f"{time[:10]} {time[11:16]} UTC" if len(time) >= 16 else time or "an unknown time"


_SOUGHT = {
    CheckDepth.NONE: OF_DIRECTORY | OF_EQUAL_PICTURES | {FindingCode.OBJECTS_DROPPED},
    CheckDepth.FRAMES: OF_FILES,
    CheckDepth.FAST: _OF_EXAMPLES,
    CheckDepth.FULL: _OF_EXAMPLES | DECODED,
    CheckDepth.QUALITY: _ALL - OF_SOURCE,
}


def sought(depth: CheckDepth, with_source: bool = False) -> frozenset[FindingCode]:
    """Returns the codes that a check looks for.

    Args:
      depth: Depth of the check.
      with_source: Whether the check compares the dataset with its source.
    """
    return _SOUGHT[depth] | OF_SOURCE if with_source else _SOUGHT[depth]


def found_completely(depth: CheckDepth, with_source: bool = False) -> frozenset[FindingCode]:
    """Returns the codes for which a deeper check finds nothing more.

    Args:
      depth: Depth of the check.
      with_source: Whether the check compares the dataset with its source.
    """
    found = sought(depth, with_source and depth >= CheckDepth.FULL)
    return found if depth is CheckDepth.QUALITY else found - OF_EQUAL_PICTURES
