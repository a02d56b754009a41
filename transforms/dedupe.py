"""`DedupeExact`: keeps one of several images with equal source bytes, the one with the smallest key.

References stay packed, and only checksums and keys are shuffled:

    HashSources    -> EncodedRefs with checksums; the smallest key of each checksum, in buckets by checksum
    GroupBySha256  -> (bucket, [FirstKeys])
    FindCopies     -> the smallest keys of the checksums that several images have
    MarkCopies     -> EncodedRefs, with the copies marked

A worker reduces what it has seen of a checksum to the smallest key before it emits it, so millions of copies
of one image need no more memory than two.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import apache_beam as beam

from shardwright.core.images.read import check_sha256, map_refs, read_image
from shardwright.schemas.codes import Outcome, QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.image_ref import EncodedRefs, ImageRef, decode_refs, encode_refs
from shardwright.schemas.key_rules import KeyRules
from shardwright.transforms.class_limit import LimitPerClass
from shardwright.transforms.merging import in_global_window

#: Number of buckets in which checksums meet, and so of workers that can share them.
_BUCKETS = 1024
#: Number of hex digits of a checksum that decide its bucket.
_BUCKET_DIGITS = 8
#: Number of checksums that a worker collects before it emits them.
CHECKSUMS_IN_HAND = 100_000
_FIRST_KEYS = "first_keys"

#: Checksums with their smallest keys, packed for a stage boundary (`pack_keys`).
FirstKeys: TypeAlias = bytes


class FirstKey(NamedTuple):
    """The images with one checksum.

    Attributes:
      key: The smallest key of them.
      has_copies: Whether there is more than one image.
    """

    key: str
    has_copies: bool = False

    def merged(self, other: FirstKey) -> FirstKey:
        """Returns the sum of two groups of images with the same checksum."""
        return FirstKey(min(self.key, other.key), True)


def pack_keys(found: Mapping[str, FirstKey]) -> FirstKeys:
    """Packs the smallest keys of checksums in hex."""
    columns = [
        list(found),
        [first.key for first in found.values()],
        [int(f.has_copies) for f in found.values()],
    ]
    text = json.dumps(columns, ensure_ascii=False, separators=(",", ":"))
    return zlib.compress(text.encode("utf-8", "surrogatepass"), 1)


def unpack_keys(packed: FirstKeys) -> Iterator[tuple[str, FirstKey]]:
    """Unpacks the result of `pack_keys`: checksums in hex, and their smallest keys."""
    sha256s, keys, copied = json.loads(zlib.decompress(packed).decode("utf-8", "surrogatepass"))
    for sha256, key, has_copies in zip(sha256s, keys, copied, strict=True):
        yield sha256, FirstKey(key, has_copies)


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
    """Reads every candidate once, and collects the smallest key of each checksum."""

    def __init__(self, max_bytes: int, class_names: Sequence[str]) -> None:
        self._max_bytes = max_bytes
        self._class_names = frozenset(class_names)

    def start_bundle(self) -> None:
        self._found: dict[str, FirstKey] = {}

    def process(self, batch: EncodedRefs) -> Iterator[EncodedRefs | beam.pvalue.TaggedOutput]:
        refs = list(decode_refs(batch))
        hashed = list(map_refs(self._hash, refs, self._max_bytes))
        for ref in hashed:
            if ref.sha256:
                add_key(self._found, ref.sha256, FirstKey(ref.key))
        if len(self._found) >= CHECKSUMS_IN_HAND:
            for packed in self._taken():
                yield beam.pvalue.TaggedOutput(_FIRST_KEYS, packed)
        yield encode_refs(hashed)

    def finish_bundle(self) -> Iterator[beam.pvalue.TaggedOutput]:
        for packed in self._taken():
            yield beam.pvalue.TaggedOutput(_FIRST_KEYS, in_global_window(packed))

    def _taken(self) -> Iterator[tuple[int, FirstKeys]]:
        """Yields the collected checksums by bucket, and begins again."""
        buckets: dict[int, dict[str, FirstKey]] = defaultdict(dict)
        for sha256, first in self._found.items():
            buckets[int(sha256[:_BUCKET_DIGITS], 16) % _BUCKETS][sha256] = first
        self._found = {}
        for bucket, found in buckets.items():
            yield bucket, pack_keys(found)

    def _hash(self, ref: ImageRef) -> ImageRef:
        # An image of an unknown class is quarantined, so no copy may be removed in its favor.
        known = not self._class_names or self._class_names.issuperset(ref.labels)
        return hash_ref(ref, self._max_bytes) if ref.is_candidate and known else ref._replace(sha256="")


def add_key(found: dict[str, FirstKey], sha256: str, first: FirstKey) -> None:
    """Adds images with a checksum to those that were found before."""
    before = found.get(sha256)
    found[sha256] = first if before is None else before.merged(first)


def find_copies(bucket: tuple[int, Iterable[FirstKeys]]) -> Iterator[FirstKeys]:
    """Yields the smallest keys of the checksums in a bucket that several images have."""
    found: dict[str, FirstKey] = {}
    for packed in bucket[1]:
        for sha256, first in unpack_keys(packed):
            add_key(found, sha256, first)
    copied = {sha256: first for sha256, first in found.items() if first.has_copies}
    if copied:
        yield pack_keys(copied)


def mark_copies(refs: Iterable[ImageRef], first_keys: Mapping[str, str]) -> Iterator[ImageRef]:
    """Yields references; marks those as copies whose checksum belongs to an image with a smaller key.

    Args:
      refs: References with the sha256 of their sources, or without it if that is not known.
      first_keys: sha256 in hex -> the smallest key, for checksums that several images have.
    """
    for ref in refs:
        first = first_keys.get(ref.sha256, ref.key) if ref.sha256 else ref.key
        yield ref if first == ref.key else ref._replace(outcome=Outcome.DEDUPLICATED, reason=first)


class _MarkCopies(beam.DoFn):
    """Marks copies in packed references."""

    def start_bundle(self) -> None:
        self._first_keys: dict[str, str] | None = None

    def process(self, batch: EncodedRefs, copied: Iterable[FirstKeys]) -> Iterator[EncodedRefs]:
        if self._first_keys is None:
            self._first_keys = {
                sha256: first.key for packed in copied for sha256, first in unpack_keys(packed)
            }
        yield encode_refs(mark_copies(decode_refs(batch), self._first_keys))


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
            .with_output_types(EncodedRefs)
            .with_outputs(_FIRST_KEYS, main="hashed")
        )  # EncodedRefs, (bucket, FirstKeys)
        copied = (
            hashed[_FIRST_KEYS]
            | "GroupBySha256" >> beam.GroupByKey()  # (bucket, [FirstKeys])
            | "FindCopies" >> beam.FlatMap(find_copies).with_output_types(FirstKeys)  # FirstKeys
        )
        return hashed.hashed | "MarkCopies" >> beam.ParDo(
            _MarkCopies(), beam.pvalue.AsIter(copied)
        ).with_output_types(EncodedRefs)  # EncodedRefs


def chosen_images(
    batches: beam.PCollection, settings: ConvertSettings, keys: KeyRules, class_names: Sequence[str]
) -> beam.PCollection:
    """Adds the steps with which the settings leave out images that were listed: copies, then large classes.

    Args:
      batches: PCollection of EncodedRefs.
      settings: Checked settings.
      keys: Rules of `--include` and `--exclude`.
      class_names: Class names that are allowed. Empty to allow any.

    Returns:
      A PCollection of EncodedRefs.
    """
    if settings.dedupe == "exact":
        exact = DedupeExact(settings.max_source_bytes, class_names)
        batches = batches | "DedupeExact" >> exact  # EncodedRefs
    elif settings.dedupe == "near":
        from shardwright.transforms.dedupe_near import DedupeNear  # decodes images, which others do not need

        batches = batches | "DedupeNear" >> DedupeNear(settings, keys, class_names)  # EncodedRefs
    if settings.max_per_class:
        limit = LimitPerClass(settings.max_per_class, settings.seed)
        batches = batches | "LimitPerClass" >> limit  # EncodedRefs
    return batches
