"""WebDataset: tar files whose members `KEY.jpg`, `KEY.cls`, `KEY.json` and `KEY.txt` form a sample."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, groupby

from shardwright.core.images.signatures import is_image_name
from shardwright.core.sources.annotation_files import AnnotationFault
from shardwright.core.sources.archives import files
from shardwright.core.sources.class_folders import list_class_folders
from shardwright.core.sources.files_beside import METADATA, take_name_apart, with_metadata
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.source import Context, InputPart, Source
from shardwright.core.sources.tables.rows import with_class_ids
from shardwright.core.storage.ranges import open_ranges
from shardwright.schemas.codes import FilterReason, QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import ImageRef, is_image
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import Needs


def _accepts(probe: InputProbe, settings: ConvertSettings) -> bool:
    if settings.label_regex:
        return False
    if not probe.is_file:
        path = files.first_archive(probe)
        return bool(path) and _accepts(InputProbe(path, is_file=True), settings)
    if not files.extension_kind(probe.name):
        return False
    samples: defaultdict[str, set[str]] = defaultdict(set)
    with open_ranges(probe.path) as reader:
        for ref in files.first_members(reader.read_at, reader.size):
            if not ref.key.startswith(".") and "/" not in ref.key:  # samples are not in folders
                sample, name = take_name_apart(ref.key)
                samples[sample].add(name)
    return any(
        names.intersection(METADATA) and any(is_image_name(f"x.{name}") for name in names)
        for names in samples.values()
    )


def _describe(probe: InputProbe, settings: ConvertSettings) -> str:
    if files.checked_kind(probe):
        return "a shard of a WebDataset"
    return f"a folder with a WebDataset's shards{files.describe_splits(probe, settings, by_folder=True)}"


def list_part(part: InputPart, context: Context) -> Iterator[ImageRef | ClassId]:
    """Yields references to images and to files without an image, and the ids of classes."""
    if not part.detail:
        for ref in list_class_folders(part.item):
            if not files.is_listed_archive(ref.key.removeprefix(part.item.prefix), ref.size):
                yield ref.filtered(FilterReason.NOT_LISTED) if is_image(ref) else ref  # in no sample
        return
    with files.open_archive(part, context) as opened:
        # The members of a sample are adjacent.
        samples = groupby(opened.entries(), lambda entry: take_name_apart(entry[0])[0])
        listed = (_list_sample(entries, opened, context.settings) for _, entries in samples)
        yield from with_class_ids((ref, True) for ref in chain.from_iterable(listed))


def _list_sample(
    entries: Iterable[tuple[str, ImageRef]], opened: files.OpenArchive, settings: ConvertSettings
) -> Iterator[ImageRef]:
    """Yields the members of one sample; its images have its metadata, which is filtered without an image.

    Beside an image that is named like the sample, others such as `1.seg.png` are parts of it.
    """
    images: list[ImageRef] = []
    parts: list[ImageRef] = []
    is_named = False
    metadata: dict[str, ImageRef] = {}
    for path, ref in entries:
        _, field_name = take_name_apart(path)
        is_named |= is_image_name(path) and "." not in field_name
        reason = files.why_filtered(path) or ("" if is_image_name(path) else FilterReason.NOT_AN_IMAGE)
        if not ref.is_candidate:
            yield ref
        elif field_name in METADATA and field_name not in metadata:
            metadata[field_name] = ref
        elif reason:
            yield ref.filtered(reason)
        else:
            (parts if "." in field_name else images).append(ref)
    if is_named:
        yield from (ref.filtered(FilterReason.NOT_LISTED) for ref in parts)
    else:
        images = parts
    if not images:
        yield from (ref.filtered(FilterReason.NOT_AN_IMAGE) for ref in metadata.values())
        return
    try:
        contents = {name: opened.read_metadata(member, name) for name, member in metadata.items()}
        yield from [with_metadata(ref, contents, settings) for ref in images]
    except AnnotationFault as fault:
        yield from (ref.quarantined(QuarantineReason.BAD_ANNOTATION, str(fault)) for ref in images)


SOURCE = Source(
    name="webdataset",
    provides=frozenset({Needs.LABEL, Needs.IMAGE}),
    settings=frozenset({"label_column", "extra_columns", "label_separator"}),
    accepts=_accepts,
    describe=_describe,
    list_part=list_part,
    parts=partial(files.archive_parts, by_folder=True),  # folders of shards are no classes
)
