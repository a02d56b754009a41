"""`DedupeExact`: keeps one of several images with equal source bytes, the one with the smallest key."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam

from shardwright.schemas.codes import Outcome, QuarantineReason
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.image_ref import EncodedRefs, ImageRef, decode_refs, encode_refs
from shardwright.transforms.concurrency.pool import (
    CHUNK_ITEMS,
    READS_AHEAD,
    converting_executor,
    map_ordered,
    reading_executor,
)
from shardwright.transforms.images.read import check_sha256, read_image
from shardwright.transforms.plan.transforms import BatchRefs
from shardwright.transforms.storage import is_remote

_UNHASHED = "unhashed"


def hash_ref(ref: ImageRef, max_bytes: int) -> ImageRef:
    """Returns the reference with the sha256 of its source, or without it if the source cannot be read.

    The reference is quarantined if its source states another checksum.
    """
    try:
        sha256 = hashlib.sha256(read_image(ref, max_bytes)).hexdigest()
        check_sha256(ref, sha256)
    except ImageFault as fault:
        ref = ref._replace(sha256="")
        wrong = fault.reason == QuarantineReason.CHECKSUM_MISMATCH
        return ref.quarantined(fault.reason, fault.message) if wrong else ref
    return ref._replace(sha256=sha256)


class _HashSources(beam.DoFn):
    """Reads every candidate once and keys it by its checksum."""

    def __init__(self, max_bytes: int, class_names: Sequence[str]) -> None:
        self._max_bytes = max_bytes
        self._class_names = frozenset(class_names)

    def process(self, batch: EncodedRefs) -> Iterator[tuple[bytes, EncodedRefs] | beam.pvalue.TaggedOutput]:
        refs = list(decode_refs(batch))
        remote = any(is_remote(ref.uri) for ref in refs)
        hashed = map_ordered(
            self._hash,
            refs,
            reading_executor() if remote else converting_executor(),
            weigh=lambda ref: max(ref.size, 0),
            max_items=READS_AHEAD,
            chunk_items=1 if remote else CHUNK_ITEMS,
        )
        for ref in hashed:
            if ref.sha256:
                yield bytes.fromhex(ref.sha256), encode_refs([ref])
            else:
                yield beam.pvalue.TaggedOutput(_UNHASHED, ref)

    def _hash(self, ref: ImageRef) -> ImageRef:
        # An image of an unknown class is quarantined, so no copy may be removed in its favor.
        known = not self._class_names or self._class_names.issuperset(ref.labels)
        return hash_ref(ref, self._max_bytes) if ref.is_candidate and known else ref._replace(sha256="")


def choose_smallest_key(group: tuple[bytes, Iterable[EncodedRefs]]) -> Iterator[ImageRef]:
    """Yields the reference with the smallest key unchanged, and the others marked as its copies."""
    refs = sorted((ref for item in group[1] for ref in decode_refs(item)), key=lambda ref: ref.key)
    yield refs[0]
    for ref in refs[1:]:
        yield ref._replace(outcome=Outcome.DEDUPLICATED, reason=refs[0].key)


class DedupeExact(beam.PTransform):
    """Marks copies of images. `PCollection[EncodedRefs] -> PCollection[EncodedRefs]`.

    Args:
      max_bytes: Largest size of a file that is read.
      class_names: Class names that are allowed. Empty to allow any.
    """

    def __init__(self, max_bytes: int, class_names: Sequence[str] = ()) -> None:
        super().__init__()
        self._max_bytes = max_bytes
        self._class_names = tuple(class_names)

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        """Applies the transform."""
        hashed = (
            batches
            | "SpreadOut" >> beam.Reshuffle()  # EncodedRefs
            | "HashSources"
            >> beam.ParDo(_HashSources(self._max_bytes, self._class_names))
            .with_output_types(tuple[bytes, EncodedRefs])
            .with_outputs(_UNHASHED, main="hashed")
        )
        unique = (
            hashed.hashed
            | "GroupBySha256" >> beam.GroupByKey()  # (sha256, [EncodedRefs])
            | "ChooseSmallestKey" >> beam.FlatMap(choose_smallest_key).with_output_types(ImageRef)  # ImageRef
        )
        return (
            (unique, hashed[_UNHASHED])
            | "WithUnhashed" >> beam.Flatten()  # ImageRef
            | "BatchRefs" >> beam.ParDo(BatchRefs()).with_output_types(EncodedRefs)  # EncodedRefs
        )
