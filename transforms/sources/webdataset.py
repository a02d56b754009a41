"""WebDataset: tar files whose members `KEY.jpg`, `KEY.cls`, `KEY.json` and `KEY.txt` form a sample."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from shardwright.schemas.byte_range import decode_place
from shardwright.schemas.codes import FilterReason, QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault, UsageError
from shardwright.schemas.image_ref import ImageRef, is_image, printable
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import Needs
from shardwright.transforms.images.byte_ranges import read_part
from shardwright.transforms.images.signatures import is_image_name
from shardwright.transforms.sources.archives import why_filtered
from shardwright.transforms.sources.archives.compressed import COMPRESSED, unpack_head
from shardwright.transforms.sources.archives.files import (
    OpenArchive,
    archive_of,
    damaged_archive,
    is_listed_archive,
    open_archive,
    split_archives,
)
from shardwright.transforms.sources.archives.kinds import (
    TAR,
    extension_kind,
    first_archive,
    kind_of_archive,
)
from shardwright.transforms.sources.archives.members import ArchiveDamage, Member, member_key
from shardwright.transforms.sources.archives.tars import list_tar
from shardwright.transforms.sources.class_folders import list_class_folders
from shardwright.transforms.sources.image_metadata import (
    MAX_METADATA_BYTES,
    METADATA,
    BadMetadata,
    decoded,
    read_metadata,
)
from shardwright.transforms.sources.input_probe import InputProbe, look_at
from shardwright.transforms.sources.source import Context, InputSplit, Source
from shardwright.transforms.storage.ranges import open_ranges

#: Members and compressed bytes that are read to detect a WebDataset.
_MEMBERS_LOOKED_AT, _PACKED_BYTES = 12, 4 << 20


def take_name_apart(name: str) -> tuple[str, str]:
    """Returns the sample and the field of a member; the field follows the first dot of the file name.

    >>> take_name_apart("train/0001.seg.png")
    ('train/0001', 'seg.png')
    """
    folder, slash, last = name.rpartition("/")
    stem, _, field_name = last.partition(".")
    return folder + slash + stem, field_name.lower()


@dataclass
class _Sample:
    """Members of one sample, which are adjacent in the tar file."""

    name: str
    images: list[ImageRef] = field(default_factory=list)
    metadata: dict[str, ImageRef] = field(default_factory=dict)


def _shows_samples(members: Iterator[Member]) -> bool:
    """Returns whether the first members of an archive form samples that are not in folders."""
    fields: dict[str, set[str]] = {}
    with contextlib.suppress(ArchiveDamage):  # also where the head of a compressed tar ends
        for member in islice(members, _MEMBERS_LOOKED_AT):
            if not member.is_folder and not member.name.startswith("."):
                sample, name = take_name_apart(member.name)
                fields.setdefault(sample, set()).add(name)
    flat = (names for sample, names in fields.items() if "/" not in sample)
    return any(
        names.intersection(METADATA) and any(is_image_name(f"x.{name}") for name in names) for names in flat
    )


def _accepts(probe: InputProbe, settings: ConvertSettings) -> bool:
    if settings.label_regex:
        return False
    if not probe.is_file:
        path = first_archive(probe)
        return bool(path) and _accepts(look_at(path), settings)
    if not extension_kind(probe.name):
        return False
    with open_ranges(probe.path) as reader:
        kind = kind_of_archive(reader, probe.name)
        if kind in COMPRESSED:
            head = unpack_head(reader.read_at(0, _PACKED_BYTES), kind, 4 * _PACKED_BYTES)
            return _shows_samples(list_tar(lambda offset, length: head[offset : offset + length], len(head)))
        return kind == TAR and _shows_samples(list_tar(reader.read_at, reader.size))


def _describe(probe: InputProbe, settings: ConvertSettings) -> str:
    if not probe.is_file:
        if not first_archive(probe):
            raise UsageError(
                f"--input {printable(probe.path)} has no tar files; name the folder with the "
                "shards of a WebDataset."
            )
        return "a folder with the shards of a WebDataset"
    with open_ranges(probe.path) as reader:
        if not kind_of_archive(reader, probe.name):
            raise UsageError(
                f"--input {printable(probe.path)} is not a tar file; name a shard of a WebDataset."
            )
    return "a shard of a WebDataset"


def list_part(part: InputSplit, context: Context) -> Iterator[ImageRef | ClassId]:
    """Yields references to images and to files without an image, and the ids of classes."""
    archive = archive_of(part)
    if archive is None:
        for ref in list_class_folders(part.item):
            if not is_listed_archive(ref.key.removeprefix(part.item.prefix), ref.size):
                ref = ref._replace(label="", split="")
                yield ref.filtered(FilterReason.NOT_LISTED) if is_image(ref) else ref  # in no sample
        return
    with open_archive(part, archive, context) as opened:
        if isinstance(opened, ArchiveDamage):
            yield damaged_archive(part, archive, opened)
            return
        numbers: set[ClassId] = set()
        for found in _list_samples(opened, context.settings):
            if isinstance(found, ImageRef):
                yield found
            elif found not in numbers:
                numbers.add(found)
                yield found


def _list_samples(opened: OpenArchive, settings: ConvertSettings) -> Iterator[ImageRef | ClassId]:
    sample = _Sample("")
    for ref, member in opened.entries():
        if member is None:
            yield ref
            continue
        name, field_name = take_name_apart(member_key(member.name))
        if name != sample.name:
            yield from _finish(sample, settings)
            sample = _Sample(name)
        if ref.is_candidate and field_name in METADATA and field_name not in sample.metadata:
            sample.metadata[field_name] = ref
        elif not ref.is_candidate:
            yield ref
        elif reason := why_filtered(member_key(member.name)):
            yield ref.filtered(reason)
        elif is_image_name(member.name):
            sample.images.append(ref)
        else:
            yield ref.filtered(FilterReason.NOT_AN_IMAGE)
    yield from _finish(sample, settings)


def _finish(sample: _Sample, settings: ConvertSettings) -> Iterator[ImageRef | ClassId]:
    """Yields the images of a sample with their metadata; metadata without an image is filtered."""
    if not sample.images:
        for ref in sample.metadata.values():
            yield ref.filtered(FilterReason.NOT_AN_IMAGE)
        return
    try:
        metadata = read_metadata({name: _text(name, ref) for name, ref in sample.metadata.items()}, settings)
    except BadMetadata as error:
        for ref in sample.images:
            yield ref.quarantined(QuarantineReason.BAD_ANNOTATION, str(error))
        return
    yield from metadata.numbers
    for ref in sample.images:
        ref = ref._replace(label=metadata.label, message=metadata.message, extra=metadata.extra)
        yield ref.annotated(metadata.annotations) if metadata.annotations else ref


def _text(name: str, ref: ImageRef) -> str:
    if ref.size > MAX_METADATA_BYTES:
        raise BadMetadata(f"its .{name} is too large")
    try:
        data = read_part(ref.uri, decode_place(ref.place), ref.size, MAX_METADATA_BYTES)
    except ImageFault as fault:
        raise BadMetadata(f"its .{name}: {fault.message}") from None
    return decoded(name, data)


SOURCE = Source(
    name="webdataset",
    provides=frozenset({Needs.LABEL, Needs.IMAGE}),
    settings=frozenset({"label_column", "extra_columns", "label_separator"}),
    accepts=_accepts,
    describe=_describe,
    list_part=list_part,
    split=split_archives,
)
