"""Lists the inputs of a conversion as references, and computes a digest of a listing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from shardwright.core import storage
from shardwright.core.concurrency.progress import PROGRESS
from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.core.images.decode import check_kind
from shardwright.core.images.read import read_head
from shardwright.core.images.signatures import HEAD_BYTES
from shardwright.core.sources.image_files import as_prefix, folder_of, key_of
from shardwright.core.sources.input_probe import is_pattern
from shardwright.core.sources.rules import RuleMatches
from shardwright.core.sources.source import Context, Input, InputPart, source_by_name
from shardwright.schemas.annotations import decode_annotations
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.errors import ImageFault, LeftOut
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.labels import ClassId
from shardwright.schemas.plain_text import printable

_DIGEST_BYTES = 16
#: Replaces the path of the folder of spool files, which differs between runs.
_SPOOL = "spool://"


def input_parts(inputs: Sequence[Input], context: Context) -> Iterator[InputPart]:
    """Yields the parts of the inputs, which workers list in parallel.

    Raises:
      EngineError: If a storage failed.
    """
    for item in inputs:
        with storage.translated_errors("list", item.path):
            yield from UNDERWAY.each(source_by_name(item.source).parts(item, context), item.path, "list")


def list_part(
    part: InputPart, context: Context, matches: RuleMatches | None = None
) -> Iterator[ImageRef | ClassId]:
    """Yields a reference for every item in a part, in any order, with all rules applied.

    Args:
      part: The part.
      context: Settings, rules and a directory for spool files.
      matches: Collects what the rules match; None to collect nothing.

    Raises:
      EngineError: If a storage failed.
    """
    rules = context.rules
    with storage.translated_errors("read", part.path):
        confinement = Confinement(part.item, context) if context.settings.confine else None
        source = source_by_name(part.item.source)
        listed = left_out_refs(part) if part.left_out else source.list_part(part, context)
        for item in UNDERWAY.each(listed, part.path, "list"):
            if isinstance(item, ClassId):
                if rules.class_stored:
                    yield item
                continue
            PROGRESS.add(listed=1)
            if confinement is not None:
                item = confinement.check(item)
            item = _without_skipped(item, context.settings.skipped_formats)
            if matches is not None:
                matches.add(item, rules)
            yield rules.apply(item)


def left_out_refs(part: InputPart) -> Iterator[ImageRef]:
    """Yields a reference to each file of a part that is not read."""
    for name, reason in part.left_out.items():
        yield ImageRef(part.item.prefix + key_of(name), storage.join(part.path, name)).filtered(reason)


def _without_skipped(ref: ImageRef, skipped: frozenset[str]) -> ImageRef:
    """Returns a reference, filtered if a source quarantined it for a format that is skipped.

    Its first bytes are read again, because the reference does not have the format. Images of formats that
    are read are filtered when they are converted.

    Args:
      ref: The reference, as a source listed it.
      skipped: The formats to leave out.
    """
    if not skipped or ref.reason != QuarantineReason.UNSUPPORTED_FORMAT:
        return ref
    try:
        check_kind(read_head(ref, HEAD_BYTES), ref.key, skipped)
    except LeftOut as left_out:
        return ref._replace(message="").filtered(left_out.reason)
    except (ImageFault, OSError):
        pass
    return ref


class Confinement:
    """Confines the images and masks of an input to the places that the command names.

    These places are the input's folder (of a file: the folder that contains it) or its bucket,
    `--image_root` and `--mask_dir`. Absolute paths, `..` and symbolic links cannot lead out of them.

    Args:
      item: The input.
      context: The settings, and the folder of spool files, which may be read too.
    """

    def __init__(self, item: Input, context: Context) -> None:
        settings = context.settings
        self._folder = folder_of(item.path) if item.is_file or is_pattern(item.path) else item.path
        places = (self._folder, settings.image_root, settings.mask_dir, context.spool.path)
        roots = ("/".join(place.split("/")[:3]) if storage.is_remote(place) else place for place in places)
        self._roots = tuple(as_prefix(root) for root in roots if root)

    def check(self, ref: ImageRef) -> ImageRef:
        """Returns the reference, quarantined if its image or mask is outside."""
        if not ref.is_candidate:
            return ref
        paths = [ref.uri]
        if ref.annotations:
            annotations = decode_annotations(ref.annotations)
            paths += [path for path in (annotations.semantic_mask, annotations.panoptic_mask) if path]
        outside = next((path for path in paths if not self.holds(path)), None)
        if outside is None:
            return ref
        what = "it" if outside == ref.uri else f"its mask {printable(outside)}"
        message = f"{what} lies outside of {printable(self._folder)}; with --confine it is not read"
        return ref.quarantined(QuarantineReason.UNREADABLE, message)

    def holds(self, path: str) -> bool:
        """Returns whether a file is below one of the places, after resolving symbolic links."""
        try:
            resolved = as_prefix(path)
        except (OSError, ValueError):  # the path contains a NUL
            return False
        return any(resolved.startswith(root) for root in self._roots)


@dataclass
class ListingDigest:
    """The digest of a listing or of a part of it. The order of items and of parts does not matter.

    Attributes:
      items: Number of references and class ids.
      total: Sum of the digests of all items.
      untrusted: Number of images that may have changed although the digest is equal, because the listing does
        not state their size and version.
    """

    items: int = 0
    total: int = 0
    untrusted: int = 0

    @property
    def text(self) -> str:
        """The digest as it is stored."""
        total = self.total % (1 << (8 * _DIGEST_BYTES))
        return f"{self.items}:{total:0{2 * _DIGEST_BYTES}x}"

    def add(self, item: ImageRef | ClassId, spool: str) -> None:
        """Adds a reference, or the id of a class.

        Args:
          item: The reference or id.
          spool: Path of the folder of spool files, of which each name states what was unpacked.
        """
        text = tuple.__repr__(item).replace(f"{spool.rstrip('/')}/", _SPOOL)
        self.items += 1
        digest = hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()
        self.total += int.from_bytes(digest, "big")
        if isinstance(item, ImageRef) and not item.outcome:
            self.untrusted += not item.has_known_state


def add_up(parts: Iterable[ListingDigest]) -> ListingDigest:
    """Returns the digest of the parts together."""
    columns = zip(*((part.items, part.total, part.untrusted) for part in parts))
    return ListingDigest(*map(sum, columns))
