"""`ChooseParts`: the Beam transform that chooses the bounds of splits or folds from all images' hashes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import apache_beam as beam
from apache_beam.utils.windowed_value import WindowedValue

from shardwright.core.plan.assign import FOLD, SPLIT, shares_of
from shardwright.core.plan.choose_parts import CollectedHashes, choose_parts
from shardwright.core.plan.forecast import Placement
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import EncodedRefs, decode_refs
from shardwright.schemas.part_bounds import PartBounds
from shardwright.schemas.plan import Plan
from shardwright.transforms.shared import MergeAll, composite, in_global_window

#: Settings that decide the hashes and the shares. If one of them changes, the parts are chosen again.
_OF_SPLITS = ("split_mode", "splits", "seed", "split_by", "group_column", "label_regex", "label_separator")
_DECIDING = {SPLIT: _OF_SPLITS, FOLD: (*_OF_SPLITS, "folds")}


def carried_bounds(settings: ConvertSettings, purpose: str, carried: Plan | None) -> PartBounds | None:
    """Returns the bounds of the splits or folds of an earlier build, if they still apply."""
    if carried is None:
        return None
    identity = settings.identity()
    same = all(
        (carried.settings.get(name) or "") == (identity.get(name) or "") for name in _DECIDING[purpose]
    )
    if not same:
        return None
    return carried.split_bounds if purpose == SPLIT else carried.fold_bounds


class _CollectHashes(beam.DoFn):
    """Collects the hashes of the candidates of a bundle."""

    def __init__(self, settings: ConvertSettings, purpose: str) -> None:
        self._settings = settings
        self._purpose = purpose

    def start_bundle(self) -> None:
        self._collected = CollectedHashes(self._settings)
        self._placement: Placement | None = None

    def process(self, batch: EncodedRefs, splits: PartBounds | None) -> Iterator[CollectedHashes]:
        if self._placement is None:
            self._placement = Placement(self._settings, splits)
        for ref in decode_refs(batch):
            if ref.is_candidate:
                self._collected.add(ref.key, self._placement.hashed(ref, self._purpose))
        yield from ()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        self._collected.taken.trim()
        yield in_global_window(self._collected)


@composite
def ChooseParts(
    batches: beam.PCollection,
    settings: ConvertSettings,
    purpose: str,
    carried: Plan | None = None,
    found: beam.pvalue.AsSingleton | None = None,
    splits: beam.pvalue.AsSingleton | None = None,
) -> beam.PCollection:
    """Chooses the bounds of splits or folds. `PCollection[EncodedRefs] -> [PartBounds]`.

    Args:
      batches: References of images.
      settings: Checked settings; the split mode is not `hash`.
      purpose: `SPLIT` or `FOLD`.
      carried: Plan to carry on.
      found: Side input with the plan to carry on, if the job finds it itself; or None.
      splits: For folds, side input with the bounds of the splits; None if `--splits` alone decides them.
    """

    def choose(collected: CollectedHashes, found: Plan | None) -> PartBounds:
        shares = shares_of(settings, purpose)
        return choose_parts(collected, shares, carried_bounds(settings, purpose, found or carried))

    merge = MergeAll(partial(CollectedHashes, settings), finish=CollectedHashes.finish)
    return (
        batches
        | "CollectHashes"
        >> beam.ParDo(_CollectHashes(settings, purpose), splits).with_output_types(CollectedHashes)
        # CollectedHashes of a bundle
        | "MergeHashes" >> beam.CombineGlobally(merge).with_output_types(CollectedHashes)
        # CollectedHashes of all bundles
        | "ChooseBounds" >> beam.Map(choose, found).with_output_types(PartBounds)  # PartBounds
    )
