"""`LimitPerClass`: takes at most N images of each class, those with the lowest hashes."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import apache_beam as beam

from shardwright.core.plan.assign import limit_order
from shardwright.schemas.codes import FilterReason
from shardwright.schemas.image_ref import EncodedRefs, ImageRef, decode_refs, encode_refs
from shardwright.transforms.merging import MergeAll

#: Number of hashes that may be collected for a class above its limit before the highest are dropped.
_SLACK = 1024


class LowestHashes:
    """The lowest hashes of each class: eight bytes for each image within the limit.

    Args:
      limit: Largest number of images of a class.
      seed: Seed of the dataset.
    """

    def __init__(self, limit: int, seed: int) -> None:
        self._limit = limit
        self._seed = seed
        self._hashes: dict[str, array[int]] = {}

    def add(self, batch: EncodedRefs) -> None:
        """Counts each image of a batch for each of its classes."""
        for ref in decode_refs(batch):
            if ref.is_candidate:
                value = limit_order(self._seed, ref.key)[0]
                for name in ref.labels:
                    self._put(name, (value,))

    def merge(self, other: LowestHashes) -> None:
        """Adds the images that another one counted."""
        for name, values in other._hashes.items():
            self._put(name, values)

    def _put(self, name: str, values: Iterable[int]) -> None:
        hashes = self._hashes.setdefault(name, array("Q"))
        hashes.extend(values)
        if len(hashes) >= 2 * self._limit + _SLACK:
            self._hashes[name] = array("Q", sorted(hashes)[: self._limit])

    def cuts(self) -> ClassCuts:
        """Returns the highest hashes that are taken."""
        full = {name: hashes for name, hashes in self._hashes.items() if len(hashes) >= self._limit}
        return ClassCuts(self._seed, {name: sorted(found)[self._limit - 1] for name, found in full.items()})


@dataclass(frozen=True)
class ClassCuts:
    """The hashes up to which images of each class are taken.

    Attributes:
      seed: Seed of the dataset.
      highest: Class name -> highest hash that is taken, for classes that reach the limit.
    """

    seed: int
    highest: Mapping[str, int]

    def takes(self, ref: ImageRef) -> bool:
        """Returns whether an image is within the limit of each of its classes."""
        limits = [self.highest[name] for name in ref.labels if name in self.highest]
        return not limits or limit_order(self.seed, ref.key)[0] <= min(limits)


class LimitPerClass(beam.PTransform):
    """Filters images beyond the limit of a class. `PCollection[EncodedRefs] -> PCollection[EncodedRefs]`.

    An image with several classes counts for each of them, and is taken if it is within all their limits. So
    no class has more images than the limit. Images without a class are all taken.

    Args:
      limit: Largest number of images of a class.
      seed: Seed of the dataset.
    """

    def __init__(self, limit: int, seed: int) -> None:
        super().__init__()
        self._limit = limit
        self._seed = seed

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        """Applies the transform."""

        def apply(batch: EncodedRefs, cuts: ClassCuts) -> Iterator[EncodedRefs]:
            yield encode_refs(
                ref
                if not ref.is_candidate or cuts.takes(ref)
                else ref.filtered(FilterReason.MAX_PER_CLASS)._replace(message="")
                for ref in decode_refs(batch)
            )

        combine = beam.CombineGlobally(
            MergeAll(partial(LowestHashes, self._limit, self._seed), LowestHashes.add, LowestHashes.cuts)
        ).with_output_types(ClassCuts)
        cuts = batches | "FindCuts" >> combine  # ClassCuts
        return batches | "FilterBeyond" >> beam.FlatMap(
            apply, beam.pvalue.AsSingleton(cuts)
        ).with_output_types(EncodedRefs)  # EncodedRefs
