"""Decides which listed images are copies of others: by equal source bytes, or by pictures that look alike.

The steps that bring images together are in `transforms/dedupe.py`.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from shardwright.core.concurrency.thread_pool import reserve_working_bytes
from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.core.conversion import ReadImage, ShardRecipe, check_quality, map_reads
from shardwright.core.images import color, convert, deep_pixels
from shardwright.core.images.near_duplicates import alike
from shardwright.core.images.quality_metrics import hashes_of
from shardwright.core.images.read import check_sha256, map_refs, read_image
from shardwright.core.validation import duplicates
from shardwright.schemas.codes import Outcome, QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault, LeftOut, NotACandidate
from shardwright.schemas.image_ref import EncodedRefs, ImageRef, decode_refs, encode_refs
from shardwright.schemas.key_rules import KeyRules
from shardwright.schemas.pictures import ImageQuality

#: For its hashes, a JPEG is decoded at the smallest scale whose longer side has at least this many pixels:
#: twice the pixels of the small copy that the hash is computed from.
_MIN_SIDE = 128
_SCALES = (8, 4, 2)
_NAME_BYTES = 8
#: An image of a pair: negative number of pixels, and key, so that the image that is kept is the smallest.
Ranked = tuple[int, str]


def _may_have_copies(ref: ImageRef, class_names: frozenset[str]) -> bool:
    """Returns whether copies may be removed in favor of an image; one of an unknown class is quarantined."""
    return ref.is_candidate and (not class_names or class_names.issuperset(ref.labels))


def hash_sources(
    batch: EncodedRefs, max_bytes: int, keys: KeyRules, class_names: frozenset[str]
) -> EncodedRefs:
    """Returns references with the sha256 of their sources, without it where no copy may be removed for them.

    A reference whose source states another checksum is quarantined.

    Args:
      batch: References of images.
      max_bytes: Largest size of a file that is read.
      keys: Rules of `--include` and `--exclude`.
      class_names: Class names that are allowed. Empty to allow any.
    """

    def hashed_ref(ref: ImageRef) -> ImageRef:
        bare = ref._replace(sha256="")
        if not _may_have_copies(ref, class_names):
            return bare
        try:
            sha256 = hashlib.sha256(read_image(ref, max_bytes)).hexdigest()
            check_sha256(ref, sha256)
        except ImageFault as fault:
            wrong = fault.reason == QuarantineReason.CHECKSUM_MISMATCH
            return bare.quarantined(fault.reason, fault.message) if wrong else bare
        left_out = keys.need_bytes and keys.reason_by_bytes(ref.key, sha256)
        return bare if left_out else ref._replace(sha256=sha256)

    return encode_refs(map_refs(hashed_ref, list(decode_refs(batch))))


def keys_of(batch: EncodedRefs) -> Iterator[tuple[bytes, str]]:
    """Yields the checksum and the key of each image whose checksum is known."""
    for ref in decode_refs(batch):
        if ref.sha256:
            yield bytes.fromhex(ref.sha256), ref.key


def first_of_equal(images: tuple[bytes, Iterable[str]]) -> Iterator[tuple[str, str]]:
    """Yields the checksum in hex and the smallest key of images with one checksum, if there are several."""
    sha256, keys = images
    smallest = heapq.nsmallest(2, keys)
    if len(smallest) > 1:
        yield sha256.hex(), smallest[0]


def mark_copies(batch: EncodedRefs, first_keys: Mapping[str, str]) -> EncodedRefs:
    """Marks those references as copies whose checksum belongs to an image with a smaller key.

    Args:
      batch: References with the sha256 of their sources, or without it if that is not known.
      first_keys: sha256 in hex -> the smallest key, for checksums that several images have.
    """

    def marked(ref: ImageRef) -> ImageRef:
        first = first_keys.get(ref.sha256, ref.key) if ref.sha256 else ref.key
        return ref if first == ref.key else ref._replace(outcome=Outcome.DEDUPLICATED, reason=first)

    return encode_refs(map(marked, decode_refs(batch)))


def hash_picture(data: bytes, name: str, settings: ConvertSettings) -> ImageQuality:
    """Decodes an image, reduced if possible, and computes its hashes: its pixels, hash and patch alone.

    Args:
      data: The source file's bytes.
      name: Its key; only the extension is used.
      settings: Checked settings.

    Raises:
      ImageFault: If the image is faulty.
      LeftOut: If its sides are not as the settings want them.
      NotACandidate: If the file is not an image by content or by name.
    """
    opened = convert.open_chosen(data, name, settings)
    width, height = opened.size
    scale = next((scale for scale in _SCALES if max(width, height) >= scale * _MIN_SIDE), 1)
    if opened.deep is None:  # with `--channels`, all samples are read
        opened.reduce(scale)
    working = max(math.prod(opened.image.size) * convert.BYTES_PER_PIXEL, opened.decoder_bytes())
    with convert.transform_faults(opened.kind), reserve_working_bytes(working):
        if opened.deep is not None:
            image = deep_pixels.displayed(convert.decode_deep(opened, settings))
        else:
            image, _ = convert.decode_upright(opened, settings)
            image = color.to_color(image, settings.color, settings.background_rgb)
        return ImageQuality((), (), width * height, b"", *hashes_of(image))


def hash_read(settings: ConvertSettings, read: ReadImage) -> ImageQuality | None:
    """Returns the hashes of an image, by which near duplicates are found.

    It is None if the conversion will leave the image out. Such an image must not be kept in favor of one that
    would become a record.
    """
    if read.problem:
        return None
    try:
        with UNDERWAY.working_on(read.ref.location, "decode"):
            if settings.drop:  # only the stored image can show this
                check_quality(convert.convert_image(read.data, read.ref.key, settings), settings)
            return hash_picture(read.data, read.ref.key, settings)
    except (ImageFault, LeftOut, NotACandidate):
        return None


def hash_pictures(
    batch: EncodedRefs, recipe: ShardRecipe, class_names: frozenset[str]
) -> list[duplicates.ComparedRecord]:
    """Returns the images of a batch that can be decoded, as rows with hashes.

    The batch stands for their shard. In place of an offset they have the number of their pixels, by which
    `link_similar` ranks them.

    Args:
      batch: References of images.
      recipe: How the images are read.
      class_names: Class names that are allowed. Empty to allow any.
    """
    refs = [ref for ref in decode_refs(batch) if _may_have_copies(ref, class_names)]
    reads = map_reads(partial(hash_read, recipe.settings), refs, recipe)
    # A batch that is processed again gets the same name.
    name = hashlib.blake2b("\n".join(ref.key for ref in refs).encode(), digest_size=_NAME_BYTES).hexdigest()
    return [
        duplicates.ComparedRecord(
            name, place, seen.pixels, ref.key, "", digest=seen.digest, hash=seen.hash, patch=seen.patch
        )
        for place, (ref, seen) in enumerate(zip(refs, reads, strict=True))
        if seen is not None
    ]


def link_similar(bucket: tuple[duplicates.Bucket, Iterable[bytes]]) -> Iterator[list[tuple[Ranked, Ranked]]]:
    """Yields pairs that connect all similar images of a bucket: each image with the best of its group."""
    (kind, _), packs = bucket
    groups: defaultdict[bytes, list[duplicates.ComparedRecord]] = defaultdict(list)
    for value, row in duplicates.shared_rows(packs):
        groups[value].append(row)
    for group in groups.values():
        rows = sorted(group, key=lambda row: str(row.key))  # the order of arrival does not count
        for begin in range(0, len(rows), duplicates.MAX_IN_BAND):
            part = rows[begin : begin + duplicates.MAX_IN_BAND]
            pairs = alike(
                [row.hash for row in part], [row.patch for row in part], duplicates.band_number(kind)
            )
            ranked = [(-row.offset, str(row.key)) for row in part]
            links = join_groups((ranked[first], ranked[second]) for first, second, _ in pairs)
            if links:
                yield list(links.items())


def join_groups(pairs: Iterable[tuple[Ranked, Ranked]]) -> dict[Ranked, Ranked]:
    """Returns, for each image that is not the best of its group, the best one.

    A group has all images that pairs connect, directly or through others.

    Args:
      pairs: Pairs of similar images, in any order.
    """
    parents: dict[Ranked, Ranked] = {}

    def best(item: Ranked) -> Ranked:
        path = []
        while item in parents:
            path.append(item)
            item = parents[item]
        for passed in path[:-1]:
            parents[passed] = item
        return item

    for pair in pairs:
        first, second = sorted(map(best, pair))
        if first != second:
            parents[second] = first
    return {item: best(item) for item in list(parents)}


def copies_of(links: Iterable[list[tuple[Ranked, Ranked]]]) -> dict[str, str]:
    """Returns key of a copy -> key of the image that is kept."""
    joined = join_groups(itertools.chain.from_iterable(links))
    return {copy[1]: kept[1] for copy, kept in sorted(joined.items())}


def mark_similar(batch: EncodedRefs, copies: Mapping[str, str]) -> EncodedRefs:
    """Marks the copies in a batch."""
    return encode_refs(
        ref._replace(outcome=Outcome.DEDUPLICATED, reason=copies[ref.key], message="")
        if ref.is_candidate and ref.key in copies
        else ref
        for ref in decode_refs(batch)
    )
