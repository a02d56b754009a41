"""How many bytes a dataset will have, from a sample, and how many shards that makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from shardwright.schemas.codes import Outcome
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.ledger import Entry
from shardwright.schemas.plan import MAX_SHARDS
from shardwright.transforms.concurrency.pool import working_budget
from shardwright.transforms.conversion.convert import ShardRecipe, convert_ref
from shardwright.transforms.records.framing import FRAME_BYTES

#: Readable images whose mean encoded size is taken for that of all.
SAMPLE_IMAGES = 64
#: Images with the lowest hashes among which readable ones are looked for.
SAMPLE_CANDIDATES = 1024
#: A shard holds at most this many records (on average).
MAX_RECORDS_PER_SHARD = 100_000


@dataclass(frozen=True)
class Sample:
    """What the sample showed.

    Attributes:
      tried: images read.
      faults: quarantine reason -> images.
      mean_bytes: mean size of a record with its frame; 0 without a readable image.
      mean_source_bytes: mean size of the readable images' sources.
      rejected: the images with faults.
    """

    tried: int
    faults: Mapping[str, int]
    mean_bytes: float
    mean_source_bytes: float
    rejected: Sequence[ImageRef] = ()

    @property
    def readable(self) -> int:
        """Images of the sample that could be converted."""
        return self.tried - sum(self.faults.values())


def take_sample(candidates: Sequence[ImageRef], recipe: ShardRecipe, executor: ThreadPoolExecutor) -> Sample:
    """Converts the first `SAMPLE_IMAGES` readable images of `candidates`, in their order."""
    budget = working_budget()

    def measure(ref: ImageRef) -> tuple[int, Entry]:
        # The record itself goes at once: sixty of bare pixels could be gigabytes.
        converted = convert_ref(ref, recipe, budget)
        return len(converted.example), converted.entry

    tried = 0
    faults: Counter[str] = Counter()
    sizes: list[int] = []
    sources: list[int] = []
    rejected: list[ImageRef] = []
    position = 0
    while position < len(candidates) and len(sizes) < SAMPLE_IMAGES:
        # Exactly as many as are missing, so that the result does not depend on the threads.
        batch = candidates[position : position + SAMPLE_IMAGES - len(sizes)]
        position += len(batch)
        for ref, (size, entry) in zip(batch, executor.map(measure, batch), strict=True):
            tried += 1
            if size:
                sizes.append(size + FRAME_BYTES)
                sources.append(max(ref.size, 0))
            elif entry.outcome == Outcome.QUARANTINED:
                faults[entry.reason] += 1
                rejected.append(ref)
    return Sample(
        tried=tried,
        faults=dict(sorted(faults.items())),
        mean_bytes=sum(sizes) / len(sizes) if sizes else 0.0,
        mean_source_bytes=sum(sources) / len(sources) if sources else 0.0,
        rejected=rejected,
    )


def estimate_bytes(sample: Sample, records: int, source_bytes: int, settings: ConvertSettings) -> int:
    """Returns the bytes that a split will have.

    Where bytes are kept the sources' own sizes count, with what the sample's records have on top;
    otherwise the mean of the sample.
    """
    if settings.stored_format == "keep" and settings.target is None and sample.mean_source_bytes:
        return round(source_bytes * sample.mean_bytes / sample.mean_source_bytes)
    return round(records * sample.mean_bytes)


def shard_count(estimate: int, records: int, shard_size: int) -> int:
    """Returns the number of shards of a split.

    ceil(estimate / shard_size), at most one per record, at least what keeps 100,000 records a
    shard, and at least one.
    """
    by_size = -(-estimate // shard_size)
    by_records = -(-records // MAX_RECORDS_PER_SHARD)
    return max(1, min(max(by_size, by_records), records, MAX_SHARDS))


def carried_count(old_count: int, old_estimate: int, new_estimate: int, fresh: int) -> int:
    """Returns the number of shards of a split that has a plan already.

    It is chosen anew only when the estimate reaches twice or half of that it was chosen from.
    """
    if old_estimate <= 0:
        return old_count if new_estimate <= 0 else fresh
    grown, shrunk = new_estimate >= 2 * old_estimate, 2 * new_estimate <= old_estimate
    return fresh if grown or shrunk else old_count
