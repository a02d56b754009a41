"""Estimates the size of a dataset from a sample, and from it the number of shards."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from shardwright.core.concurrency.pool import working_budget
from shardwright.core.conversion import ReadImage, ShardRecipe, convert_read, map_reads
from shardwright.core.images.convert import Brightness, brightness
from shardwright.core.images.read import read_image
from shardwright.core.records.framing import FRAME_BYTES
from shardwright.schemas.byte_range import BARE_PIXELS, decode_place
from shardwright.schemas.codes import Outcome
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.ledger import Entry
from shardwright.schemas.plan import MAX_SHARDS

#: Number of readable images in the sample for the mean encoded size.
SAMPLE_IMAGES = 64
#: Number of images with the lowest hashes that may be tried for the sample.
SAMPLE_CANDIDATES = 1024
#: Largest mean number of records per shard.
MAX_RECORDS_PER_SHARD = 100_000


@dataclass(frozen=True)
class Sample:
    """Results of the sample.

    Attributes:
      tried: Number of images read.
      faults: Quarantine reason -> number of images.
      mean_bytes: Mean size of a framed record in bytes; 0 without a readable image.
      mean_source_bytes: Mean size of the readable images' sources in bytes.
      rejected: The faulty images.
      brightnesses: Brightness of each readable image of 16 bits, unless the settings state what is white.
    """

    tried: int
    faults: Mapping[str, int]
    mean_bytes: float
    mean_source_bytes: float
    rejected: Sequence[ImageRef] = ()
    brightnesses: Sequence[Brightness] = ()


def take_sample(candidates: Sequence[ImageRef], recipe: ShardRecipe) -> Sample:
    """Converts the first `SAMPLE_IMAGES` readable images of `candidates`, in their order."""
    tried = 0
    brightnesses: list[Brightness] = []
    faults: Counter[str] = Counter()
    sizes: list[int] = []
    sources: list[int] = []
    rejected: list[ImageRef] = []
    position = 0
    while position < len(candidates) and len(sizes) < SAMPLE_IMAGES:
        # Exactly the number that is missing, so that the result does not depend on the threads.
        batch = candidates[position : position + SAMPLE_IMAGES - len(sizes)]
        position += len(batch)
        measured = map_reads(partial(_measure, recipe), batch, recipe)
        for ref, (size, entry, bright) in zip(batch, measured, strict=True):
            tried += 1
            if size:
                sizes.append(size)
                sources.append(max(ref.size, 0))
                brightnesses += [bright] if bright is not None else []
            elif entry.outcome == Outcome.QUARANTINED:
                faults[entry.reason] += 1
                rejected.append(ref)
    return Sample(
        tried=tried,
        faults=dict(sorted(faults.items())),
        mean_bytes=sum(sizes) / len(sizes) if sizes else 0.0,
        mean_source_bytes=sum(sources) / len(sources) if sources else 0.0,
        rejected=rejected,
        brightnesses=brightnesses,
    )


def _measure(recipe: ShardRecipe, read: ReadImage) -> tuple[int, Entry, Brightness | None]:
    """Converts an image; returns the size of its framed records in bytes, its entry and its brightness.

    The records are dropped at once: sixty with raw pixels could be gigabytes.
    """
    converted = convert_read(read, recipe)
    records = [len(image.example) + FRAME_BYTES for image in converted.images if image.example]
    return sum(records), converted.entry, _brightness(read, recipe.settings) if records else None


def _brightness(read: ReadImage, settings: ConvertSettings) -> Brightness | None:
    """Returns the brightness of an image of 16 bits that is scaled to 8 bits without a stated white."""
    if settings.depth != "8" or settings.white:
        return None
    ref, data = read.ref, read.data
    place = decode_place(ref.place) if ref.place else None
    if place is not None and place.method in BARE_PIXELS:
        if place.dtype[1:] != "u2":
            return None
        # Read again with all bits.
        ref, data = ref._replace(place=place._replace(keep=True).encode()), b""
    with contextlib.suppress(ImageFault):  # it is sound in 8 bits
        data = data or read_image(ref, settings.max_source_bytes)
        return brightness(data, ref.key, settings, working_budget().reserve)
    return None


def estimate_bytes(sample: Sample, records: int, source_bytes: int, settings: ConvertSettings) -> int:
    """Returns the estimated number of bytes in a split.

    If source bytes are kept, this is the size of the sources plus the mean overhead of a record in the
    sample. Otherwise it is based on the mean size of a record in the sample.
    """
    if settings.stored_format == "keep" and settings.target is None and sample.mean_source_bytes:
        return round(source_bytes * sample.mean_bytes / sample.mean_source_bytes)
    return round(records * sample.mean_bytes)


def shard_count(estimate: int, records: int, shard_size: int) -> int:
    """Returns the number of shards of a split.

    ceil(estimate / shard_size), at most one per record, at least enough for a mean of 100,000 records per
    shard, and at least one.
    """
    by_size = -(-estimate // shard_size)
    by_records = -(-records // MAX_RECORDS_PER_SHARD)
    return max(1, min(max(by_size, by_records), records, MAX_SHARDS))


def carried_count(old_count: int, old_estimate: int, new_estimate: int, fresh: int) -> int:
    """Returns the number of shards of a split with a carried plan.

    It changes only if the estimate reaches twice or half of the one from which it was chosen.
    """
    if old_estimate <= 0:
        return old_count if new_estimate <= 0 else fresh
    grown, shrunk = new_estimate >= 2 * old_estimate, 2 * new_estimate <= old_estimate
    return fresh if grown or shrunk else old_count
