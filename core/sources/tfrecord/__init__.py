"""TFRecord files: datasets of Shardwright or of other tools, converted to other shards, splits or layouts.

Every record is read once and its checksums are compared. Its image becomes a reference to a byte range of
the file, and a worker reads only these bytes. Damaged records are quarantined with their byte offsets; valid
records before and after them are kept.

Keys: records of a finished dataset keep their keys, so that splits and shards are the same as before. If the
layout has no keys, they are read from the ledgers. Other records get the key `FILE!NAME`, with the image name
in the record, or `FILE!NUMBER` if the name is missing or a duplicate. Names alone would not be unique if two
folders have an `img_0001.jpg`, and a duplicate key would end the job.

Splits: records keep the splits of the source, from `dataset.json` or from the names of files and folders. If
`--splits` sets others, all images are split again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import IO

from shardwright.core import storage
from shardwright.core.records.compression import HEAD_BYTES, compression_of, decompress_into
from shardwright.core.records.framing import HEADER_BYTES, Record, masked_crc32c, read_records
from shardwright.core.records.images import NoImage, image_of, pixels_are_planar
from shardwright.core.records.record import MAX_NAME, SOURCE_ID, KnownRecords, SourceRecord
from shardwright.core.records.values import annotations_of, classes_of_image, extra_of
from shardwright.core.sources.containers import keeps_splits
from shardwright.core.sources.image_files import annotated, join, key_of, split_name
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.source import Context, Input, InputPart, Source
from shardwright.core.sources.spool import Spool
from shardwright.core.sources.tables.columns import names_shown
from shardwright.core.sources.tfrecord import files
from shardwright.core.sources.tfrecord.files import RecordFile
from shardwright.schemas.byte_range import ByteRange
from shardwright.schemas.codes import FindingCode, QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.example import FeatureType
from shardwright.schemas.image_ref import LABEL_SEPARATOR, ImageRef, key_from_bytes, number_text
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import FeatureRole, Needs
from shardwright.schemas.units import counted

#: Largest number of missing records in a file that are reported one by one.
_MAX_MISSING = 1_000_000


def _describe(probe: InputProbe, settings: ConvertSettings) -> str:
    folder, read, _ = files.files_of(probe.path, probe.is_file, settings)
    if not read:
        raise UsageError(f"{probe.where} has no TFRecord files; check the path, or name the folder.")
    paths = [join(folder, file.relative) for file in read]
    for path in paths:
        if not storage.is_remote(path) and not os.path.exists(path):
            raise UsageError(f"--input {path} is a link to nowhere; fix or remove it.")
    known_records = files.known_records(read[0], settings)
    names = files.check_sample(probe.path, paths, settings, known_records)
    if not (names or read[0].own) and probe.head and not files.holds_records(probe.name, probe.head):
        raise UsageError(f"{probe.where} is not a TFRecord file; check the path.")
    if read[0].own:
        return f"{counted(len(read), 'shard')} of a dataset of shardwright"
    return counted(len(read), "TFRecord file") + (f" (records with {names_shown(names)})" if names else "")


def _parts(item: Input, context: Context) -> Iterator[InputPart]:
    """Yields one part for each file of an input that is read, and one for all others."""
    folder, read, others = files.files_of(item.path, item.is_file, context.settings)
    for file in read:
        yield InputPart(item, join(folder, file.relative), file)
    if others:
        yield InputPart(item, folder, left_out=others)


def list_part(part: InputPart, context: Context) -> Iterator[ImageRef | ClassId]:
    """Yields a reference for every record of a file, and the ids of its classes."""
    settings = context.settings
    known_records = files.known_records(part.detail, settings, part.path)
    state = storage.state_of(part.path)
    compression = compression_of(part.path, storage.read_head(part.path, HEAD_BYTES))
    unpacked, fault = ByteRange("", 0, 0, file_size=state.size, file_version=state.version), ""
    if compression != "none":
        unpacked, fault = _spool(part.path, state, compression, context.spool)
    with storage.open_local(unpacked.file or part.path) as records:
        opened = _Opened(part, part.detail, settings, known_records, records, unpacked)
        yield from opened.refs(fault)
    if storage.stat(part.path) != state:
        raise storage.changed(part.path)
    yield from opened.ids()


def _spool(path: str, state: storage.StoredObject, compression: str, spool: Spool) -> tuple[ByteRange, str]:
    """Unpacks a file once; returns the bytes in the spool and the fault of the compressed stream."""
    faults: list[str] = []

    def unpack(target: IO[bytes]) -> None:
        with storage.open_local(path) as source:
            faults.append(decompress_into(target, source, compression) or "")

    spooled = spool.fill(f"{path}:{state.size}:{state.version}", path, unpack)
    if not faults:  # another attempt has written the spool file
        with open(os.devnull, "wb") as nothing:
            unpack(nothing)
    return spooled, faults[0]


@dataclass
class _Opened:
    """A file whose records are being listed.

    Attributes:
      part: Part of the input with the file.
      file: Description of the file.
      settings: Checked settings.
      known: What `dataset.json` or the file of class names says about its records.
      records: Unpacked file.
      unpacked: Range of that file, which says where it is, and its size and version.
      keys: Keys that are already used.
      class_ids: Class names and their ids, as found in records.
    """

    part: InputPart
    file: RecordFile
    settings: ConvertSettings
    known: KnownRecords
    records: IO[bytes]
    unpacked: ByteRange
    keys: set[str] = field(default_factory=set)
    class_ids: set[ClassId] = field(default_factory=set)

    @cached_property
    def key(self) -> str:
        """Beginning of the keys of records that have no key of their own."""
        return self.part.item.prefix + key_of(self.file.relative)

    @cached_property
    def planar(self) -> bool:
        """Whether raw pixels are stored channel by channel, if the records do not tell."""
        return pixels_are_planar(files.first_records(self.records), self.settings)

    def refs(self, fault: str) -> Iterator[ImageRef]:
        """Yields the references of the records.

        Args:
          fault: Fault of the compressed stream; empty if there is none.
        """
        count = 0
        for item in read_records(self.records, None if self.file.own else fault):
            count = item.number + 1
            if isinstance(item, Record):
                yield self._ref(item)
                continue
            truncated = item.code is FindingCode.SHARD_TRUNCATED
            reason = QuarantineReason.TRUNCATED if truncated else QuarantineReason.CORRUPT
            where = f"record {item.number}, bytes {item.offset:,} to {item.end:,}"
            yield self._faulty(item.number, reason, f"{where}: {item.message}")
        expected = max(count, self.known.count)
        message = fault or f"the file ends after {count:,} of {counted(expected, 'record')}"
        for lost in range(count, min(expected, count + _MAX_MISSING)):
            yield self._faulty(lost, QuarantineReason.TRUNCATED, message)

    def ids(self) -> Iterator[ClassId]:
        """Yields the class ids in the file, and those in the file beside it if the two do not conflict.

        Ids of a dataset of Shardwright are shifted to the first id of the layout to write.
        """
        shift = self.known.id_shift(self.settings.record_layout)
        in_records = {item._replace(text="") for item in self.class_ids}
        others = {ClassId(name, class_id) for class_id, name in self.known.names.items()} - in_records
        names, ids = {item.name for item in in_records}, {item.id for item in in_records}
        conflict = any(item.name in names or item.id in ids for item in others)
        for item in self.class_ids if conflict else self.class_ids | others:
            yield item._replace(id=item.id + shift)

    def _faulty(self, index: int, reason: QuarantineReason, message: str) -> ImageRef:
        """Returns a reference to a record that cannot be read."""
        ref = ImageRef(self._key_with("", index), self.part.path, split=self.file.split)
        return ref.quarantined(reason, message)

    def _ref(self, record: Record) -> ImageRef:
        """Returns a reference to the image of a record that is not damaged."""
        where = f"record {record.number}, byte {record.offset:,}"
        try:
            example = SourceRecord(record.data, self.known.feature_names)
        except ValueError as error:
            message = f"{where}: not a tf.train.Example: {error}"
            return self._faulty(record.number, QuarantineReason.CORRUPT, message)
        version = f"{masked_crc32c(record.data):08x}"
        ref = ImageRef("", self.part.path, split=self.file.split, version=version, message=where)
        reason, base = QuarantineReason.CORRUPT, record.offset + HEADER_BYTES
        try:
            source_id = example.text(FeatureRole.SOURCE_ID)
            if example.name(FeatureRole.SOURCE_ID) != SOURCE_ID:  # the id of other features may be any text
                source_id = number_text(source_id)
            ref = ref._replace(key=self._key(example, record), source_id=source_id)
            ref = ref._replace(file_name=self._file_name(example, record, ref.key))
            image = image_of(example, self.known, self.settings)
            if image.shape:
                planar = self.planar if image.planar is None and image.shape[-1] > 1 else bool(image.planar)
                image = image._replace(planar=planar, keep=self.settings.keeps_samples(image.dtype))
            ref = ref._replace(size=example.size_of(image), place=self._place(base, image))
            reason = QuarantineReason.BAD_ANNOTATION
            ref = self._with_classes(ref, example, base)
            reason = QuarantineReason.BAD_ROW
            return ref._replace(extra=extra_of(example, self.known.columns, self.settings))
        except ValueError as error:
            ref = ref if ref.key else ref._replace(key=self._key_with("", record.number))
            reason = error.reason if isinstance(error, NoImage) else reason
            return ref.quarantined(reason, f"{where}: {error}")

    def _place(self, base: int, part: ByteRange) -> str:
        """Returns the place of a part of the record that begins at `base`, encoded for a reference."""
        file, _, _, _, size, version, *_ = self.unpacked
        offset = base + part.offset
        return part._replace(file=file, offset=offset, file_size=size, file_version=version).encode()

    def _key(self, example: SourceRecord, record: Record) -> str:
        """Returns the key of a record."""
        prefix = self.part.item.prefix
        if record.offset in self.known.keys_by_offset:
            return prefix + self.known.keys_by_offset[record.offset]
        features = map(example.feature, example.names.file_names)
        texts = (values[0] for kind, values in features if kind is FeatureType.BYTES and len(values) == 1)
        name = next((text for text in texts if 0 < len(text) <= MAX_NAME), b"")
        if self.file.own and name and example.name(FeatureRole.KEY):
            text = str(name, "utf-8")
            return prefix + self.known.keys_by_name.get(text, text)
        return self._key_with(key_from_bytes(name), record.number)

    def _key_with(self, name: str, index: int) -> str:
        """Returns a key with a record's name, or with its number if the name is empty or used."""
        key = f"{self.key}!{name}" if name else ""
        if not key or key in self.keys:
            key = f"{self.key}!{index:06d}"
            while key in self.keys:
                key += "_"
        self.keys.add(key)
        return key

    def _file_name(self, example: SourceRecord, record: Record, key: str) -> str:
        """Returns the file name that a record gives its image; empty if it gives none, or its key."""
        has_name = example.name(FeatureRole.KEY)
        name = example.text(FeatureRole.KEY if has_name else FeatureRole.FILE_BASENAME)
        before = self.known.keys_by_offset.get(record.offset, "")
        is_key = self.part.item.prefix + name == key
        return "" if is_key or name in (before, before.rpartition("/")[2]) else name

    def _with_classes(self, ref: ImageRef, example: SourceRecord, base: int) -> ImageRef:
        """Returns a reference with the classes, annotations and split that the record says.

        Raises:
          ValueError: If the record contradicts itself, or has no value that the layout needs.
        """
        settings, names = self.settings, self.known.names
        layout = settings.record_layout
        if layout.needs is Needs.LABEL:
            synsets = FeatureRole.SYNSET in layout.by_role
            classes = classes_of_image(example, names, self.file.own, synsets)
            if len(classes.names) > 1 and not settings.label_separator:
                count = counted(len(classes.names), "class")
                raise ValueError(f"it has {count}; set --label_separator to store several for an image")
            ref = ref._replace(label=LABEL_SEPARATOR.join(classes.names))
            if not classes.names:
                ref = ref._replace(message=f"{ref.message}: it has no class")
        else:
            must, place_of = settings.unlabelled != "keep", partial(self._place, base)
            annotations, classes = annotations_of(example, layout, names, place_of, must)
            ref = annotated(ref, annotations)
        self.class_ids.update(classes.ids)
        if (split := example.name(FeatureRole.SPLIT)) and not ref.split and keeps_splits(settings):
            kind, values = example.feature(split)
            text = str(values[0], "utf-8", "replace") if kind is FeatureType.BYTES and values else ""
            return ref._replace(split=split_name(text))
        return ref


SOURCE = Source(
    name="tfrecord",
    provides=frozenset(Needs),
    settings=frozenset({"extra_columns", "label_separator", "pixel_shape"}),
    accepts=lambda probe, settings: files.accepts(probe),
    describe=_describe,
    list_part=list_part,
    parts=_parts,
    has_keypoints=True,
)
