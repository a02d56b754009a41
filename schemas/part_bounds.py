"""Bounds that divide hashes into parts: the splits of a dataset, or the folds of a split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Number of buckets of hashes where whole buckets are given to parts.
BUCKETS = 1024
#: Numbers of the parts in the table of buckets, one character each.
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_HASH_RANGE = 1 << 64


@dataclass(frozen=True)
class PartBounds:
    """How the hashes of images are divided into parts. A plan stores it, so that no image moves later.

    A scope is what is divided: the split whose folds these are, or "" for all images that get a split.

    Attributes:
      bounds: Scope -> class name, or "" for all classes -> exclusive upper bound of the hashes of each part
        but the last.
      buckets: Scope -> number of the part of each of `BUCKETS` equal ranges of hashes, as one of `DIGITS`.
    """

    bounds: Mapping[str, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)
    buckets: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_used(self) -> bool:
        """Whether there was anything to divide."""
        return bool(self.bounds or self.buckets)

    def as_json(self) -> dict[str, Any]:
        """Returns the bounds as `dataset.json` stores them: hashes are hexadecimal text."""
        bounds = {
            scope: {name: [f"{bound:x}" for bound in of_class] for name, of_class in classes.items()}
            for scope, classes in self.bounds.items()
        }
        return {
            **({"bounds": bounds} if bounds else {}),
            **({"buckets": dict(self.buckets)} if self.buckets else {}),
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> PartBounds:
        """Reads the result of `as_json`.

        Raises:
          TypeError, ValueError or AttributeError: if it is not such a result.
        """
        found = PartBounds(
            {
                str(scope): {
                    str(name): tuple(int(bound, 16) for bound in some) for name, some in items.items()
                }
                for scope, items in value.get("bounds", {}).items()
            },
            {str(scope): str(text) for scope, text in value.get("buckets", {}).items()},
        )
        for classes in found.bounds.values():
            for name, bounds in classes.items():
                if list(bounds) != sorted(bounds) or not all(0 <= bound <= _HASH_RANGE for bound in bounds):
                    raise ValueError(f"the bounds of {name!r} are not hashes in order")
        for scope, text in found.buckets.items():
            if len(text) != BUCKETS or not set(text) <= set(DIGITS):
                raise ValueError(f"the buckets of {scope!r} are not {BUCKETS} numbers of parts")
        return found
