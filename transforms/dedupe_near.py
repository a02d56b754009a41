"""`DedupeNear`: keeps one of several images that look alike, the largest.

Every image is read and decoded once, small if its format allows that, for hashes of 320 bytes
(`images/near_duplicates.py`). They are compared as a validation compares those of records:

    HashPictures           -> pictures, and the digests of their bands
    GroupPicturesThatShare -> the pictures that share a band with another one
    LinkSimilar            -> pairs of keys, after comparing all pictures that share a band
    JoinGroups             -> key of a copy -> key of the image that is kept

A validation has the second step, too.

Images that are linked directly or through others form a group. So no two images of a group are kept, and none
can be in two splits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam

from shardwright.core.conversion import ShardRecipe
from shardwright.core.dedupe import copies_of, hash_pictures, link_similar, mark_similar
from shardwright.core.validation.duplicates import bucketed_hashes, pictures_by_place
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import EncodedRefs
from shardwright.schemas.key_rules import KeyRules
from shardwright.transforms.building_blocks import CallOnce, composite
from shardwright.transforms.validate import GroupPicturesThatShare

#: Number of buckets in which values meet, and so of workers that can share the comparison.
_BUCKETS = 512
_HASHES = "hashes"


def _hash_pictures(batch: EncodedRefs, recipe: ShardRecipe, class_names: frozenset[str]) -> Iterator[Any]:
    """Yields the pictures of a batch by its bucket, and the digests of their bands by their own buckets."""
    rows = hash_pictures(batch, recipe, class_names)
    yield from pictures_by_place(rows, _BUCKETS)
    for packed in bucketed_hashes(rows, _BUCKETS):
        yield beam.pvalue.TaggedOutput(_HASHES, packed)


@composite
def DedupeNear(
    batches: beam.PCollection[EncodedRefs],
    settings: ConvertSettings,
    keys: KeyRules,
    class_names: Sequence[str],
) -> beam.PCollection[EncodedRefs]:
    """Marks images that look like a larger one. `PCollection[EncodedRefs] -> PCollection[EncodedRefs]`.

    Args:
      batches: References of images.
      settings: Checked settings.
      keys: Rules of `--include` and `--exclude`.
      class_names: Class names that are allowed. Empty to allow any.
    """
    recipe = ShardRecipe(settings, settings.record_layout, {}, keys=keys)  # to read, not to convert
    seen = (
        batches
        | "SpreadOut" >> beam.Reshuffle()  # EncodedRefs
        | "HashPictures"
        >> beam.FlatMap(_hash_pictures, recipe, frozenset(class_names))
        .with_output_types(tuple[int, bytes])
        .with_outputs(_HASHES, main="pictures")
    )  # (bucket, pictures); (bucket, hashes)
    links = (
        (seen[_HASHES], seen.pictures)
        | "GroupPictures" >> GroupPicturesThatShare(_BUCKETS)  # ((band, bucket), [rows])
        | "LinkSimilar" >> beam.FlatMap(link_similar)  # [(copy, better one)]
    )
    copies = batches.pipeline | "JoinGroups" >> CallOnce(copies_of, beam.pvalue.AsIter(links))
    # {copy: kept}
    mark = beam.Map(mark_similar, beam.pvalue.AsSingleton(copies)).with_output_types(EncodedRefs)
    return batches | "MarkCopies" >> mark  # EncodedRefs
