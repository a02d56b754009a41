"""Chooses the bounds of parts with exact shares.

A part is a range of hashes. With `--split_mode exact`, the bounds of the ranges are chosen from the sorted
hashes so that each part gets its number of images. With `stratified`, each class has its own bounds. The plan
carries the bounds on, so an image never moves, and new images follow them.

A group has one hash, so it is never divided. But the images of a group, or one image, may have several
classes, and then there are no bounds for each class. Instead, the hashes are divided into `BUCKETS` equal
ranges, and each of these buckets goes to one part, so that every part gets its share of each class as nearly
as possible.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from shardwright.core.plan.assign import FOLD, SPLIT, ideal_bounds
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.schemas.labels import in_name_order
from shardwright.schemas.plan import BUCKETS, DIGITS, HASH_RANGE, PartBounds, Plan
from shardwright.schemas.splits import totals_of

#: Stands for all images of a bucket, beside the names of their classes.
_IMAGES = "\x00"

Hashes = npt.NDArray[np.uint64]

#: Settings that decide the hashes and the shares. If one of them changes, the parts are chosen again.
_OF_SPLITS = ("split_mode", "splits", "seed", "split_by", "group_column", "label_regex", "label_separator")
_DECIDING = {SPLIT: _OF_SPLITS, FOLD: (*_OF_SPLITS, "folds")}


@dataclass
class CollectedHashes:
    """The hashes of all images to divide. Collections can be merged in any order.

    Attributes:
      settings: Checked settings.
      values: Scope -> class -> hashes, 8 bytes each.
      buckets: Scope -> bucket -> number of images, in all and of each class.
    """

    settings: ConvertSettings
    values: defaultdict[str, defaultdict[str, array[int]]] = field(
        default_factory=lambda: defaultdict(partial(defaultdict, partial(array, "Q")))
    )
    buckets: defaultdict[str, defaultdict[int, Counter[str]]] = field(
        default_factory=lambda: defaultdict(partial(defaultdict, Counter))
    )

    def add(self, scope: str, label: str, value: int) -> None:
        """Adds an image.

        Args:
          scope: What is divided (`PartBounds`).
          label: Class of the image; several are joined.
          value: Hash of its group or key.
        """
        if not self.settings.divides_buckets:
            self.values[scope][label if self.settings.split_mode == "stratified" else ""].append(value)
            return
        counts = self.buckets[scope][value * BUCKETS >> 64]
        counts[_IMAGES] += 1
        for name in label.split(LABEL_SEPARATOR) if label else ():
            counts[name] += 1

    def merge(self, other: CollectedHashes) -> None:
        """Adds the images of another collection."""
        for scope, classes in other.values.items():
            for name, hashes in classes.items():
                self.values[scope][name].extend(hashes)
        for scope, buckets in other.buckets.items():
            for bucket, counts in buckets.items():
                self.buckets[scope][bucket].update(counts)


def choose_parts(
    collected: CollectedHashes, shares: Sequence[Fraction], carried: PartBounds | None = None
) -> PartBounds:
    """Chooses the bounds of the parts, for all scopes and classes that have none yet.

    Args:
      collected: Hashes of all images to divide.
      shares: Shares of the parts.
      carried: Bounds of an earlier build, which stay.
    """
    carried = carried or PartBounds()
    buckets = dict(carried.buckets)
    for scope, counts in sorted(collected.buckets.items()):
        if scope not in buckets:
            buckets[scope] = choose_buckets(counts, shares)
    bounds = {scope: dict(values) for scope, values in carried.bounds.items()}
    for scope, classes in collected.values.items():
        bounds[scope] = choose_bounds(classes, shares, bounds.get(scope, {}))
    return PartBounds(
        {scope: in_name_order(values) for scope, values in sorted(bounds.items())},
        dict(sorted(buckets.items())),
    )


def choose_bounds(
    hashes: Mapping[str, Sequence[int]],
    shares: Sequence[Fraction],
    carried: Mapping[str, tuple[int, ...]],
) -> dict[str, tuple[int, ...]]:
    """Chooses bounds for each class that has none yet.

    Each part gets its share of the class, rounded down or up, if groups allow. Where rounding leaves a
    choice, the part with the largest deficit over all classes gets the image, so that many small classes do
    not all round in the same direction.

    Args:
      hashes: Class -> hashes of its images.
      shares: Shares of the parts.
      carried: Class -> bounds of an earlier build, which stay.
    """
    chosen = dict(carried)
    total, assigned = 0, [0] * len(shares)
    # Classes with bounds come first, because the others fill what these leave.
    for name in sorted(hashes, key=lambda name: (name not in carried, name.encode())):
        ordered = np.sort(np.array(hashes[name], np.uint64))
        if name not in carried:
            deficits = [share * total - count for share, count in zip(shares, assigned, strict=True)]
            counts = allocate(len(ordered), shares, deficits)
            chosen[name] = cut(ordered, counts, shares)
        total += len(ordered)
        inside = np.array([bound for bound in chosen[name] if bound < HASH_RANGE], np.uint64)
        below = np.searchsorted(ordered, inside).tolist()
        ends = [0, *below, *[len(ordered)] * (len(shares) - len(below))]
        for part, (begin, end) in enumerate(pairwise(ends)):
            assigned[part] += end - begin
    return chosen


def allocate(count: int, shares: Sequence[Fraction], deficits: Sequence[Fraction]) -> list[int]:
    """Returns the number of images of each part: its share, rounded down or up.

    If nothing is lacking, this is the method of the largest remainder; the first parts win ties.

    Args:
      count: Number of images.
      shares: Shares of the parts.
      deficits: Number of images that each part lacks so far.
    """
    exact = [count * share for share in shares]
    counts = [int(quota) for quota in exact]
    lacking = [quota - floor + deficit for quota, floor, deficit in zip(exact, counts, deficits, strict=True)]
    eligible = [part for part, quota in enumerate(exact) if quota.denominator > 1]
    eligible.sort(key=lambda part: -lacking[part])
    for part in eligible[: count - sum(counts)]:
        counts[part] += 1
    return counts


def cut(ordered: Hashes, counts: Sequence[int], shares: Sequence[Fraction]) -> tuple[int, ...]:
    """Returns bounds that divide hashes into parts with these numbers of images.

    Images of one group have equal hashes. Where a group crosses a bound, the bound is moved to its nearer
    end. Of all bounds with the same effect, the result has those that are nearest to the shares, so that new
    images are divided by the shares.

    Args:
      ordered: Hashes in ascending order.
      counts: Numbers of images.
      shares: Shares of the parts.
    """
    bounds = []
    end = 0
    for ideal, count in zip(ideal_bounds(shares), counts):
        end += count
        where = end
        if 0 < end < len(ordered) and ordered[end - 1] == ordered[end]:
            first, last = (int(np.searchsorted(ordered, ordered[end], side)) for side in ("left", "right"))
            where = first if end - first <= last - end else last
        low = int(ordered[where - 1]) + 1 if where else 0
        high = int(ordered[where]) if where < len(ordered) else HASH_RANGE
        bounds.append(min(max(ideal, low), high))
    return tuple(bounds)


def choose_buckets(counts: Mapping[int, Mapping[str, int]], shares: Sequence[Fraction]) -> str:
    """Gives each bucket to a part, so that every part gets its share of each class as nearly as possible.

    The largest bucket comes first. Each goes to the part where it lowers the sum of the squared errors most,
    each relative to the wanted number. Empty buckets are then given out by the shares.

    Args:
      counts: Bucket -> class -> number of images.
      shares: Shares of the parts.

    Returns:
      The number of the part of each bucket, as a character of `DIGITS`.
    """
    totals = totals_of(counts)
    parts = [float(share) for share in shares]
    lacking = [{name: share * total for name, total in totals.items()} for share in parts]
    chosen = [0] * BUCKETS
    sizes = [0] * len(parts)

    def error(part: int, of_bucket: Mapping[str, int]) -> float:
        share, of_part = parts[part], lacking[part]
        return sum(
            count * (count - 2 * of_part[name]) / (share * totals[name])
            for name, count in sorted(of_bucket.items())
        )

    for bucket in sorted(counts, key=lambda bucket: (-counts[bucket][_IMAGES], bucket)):
        part = min(range(len(parts)), key=lambda part: error(part, counts[bucket]))
        chosen[bucket] = part
        sizes[part] += 1
        for name, count in counts[bucket].items():
            lacking[part][name] -= count
    for bucket in range(BUCKETS):
        if bucket not in counts:
            part = max(range(len(parts)), key=lambda part: shares[part] * (sum(sizes) + 1) - sizes[part])
            chosen[bucket] = part
            sizes[part] += 1
    return "".join(DIGITS[part] for part in chosen)


def carried_bounds(settings: ConvertSettings, purpose: str, carried: Plan | None) -> PartBounds | None:
    """Returns the bounds of the splits or folds of an earlier build, if they still apply."""
    if carried is None:
        return None
    identity = settings.identity()
    if any((carried.settings.get(name) or "") != (identity.get(name) or "") for name in _DECIDING[purpose]):
        return None
    return carried.split_bounds if purpose == SPLIT else carried.fold_bounds
