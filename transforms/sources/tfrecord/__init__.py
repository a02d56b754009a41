"""TFRecord files: a dataset of our own or anybody's, to be sharded, split, packed or laid out anew.

Every record is read once, its checksums are compared, and its image becomes a reference to a stretch
of the file: a worker reads just these bytes. Damaged records are quarantined with their byte offsets;
the sound ones before and after are kept.

Keys: records of a finished dataset keep theirs, which its ledgers say where the layout has none, so
that splits and shards come out alike. Others have `FILE!NAME`, the name being what the record calls
its image, or `FILE!NUMBER` where it says none or says it twice: names alone stand twice as soon as two
folders had an `img_0001.jpg`, and one such pair would end the job.

Splits: those of the source, told by `dataset.json`, or by the names of files and folders. If
`--splits` asks for others, all images are split anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import IO, Any

from shardwright.schemas.byte_range import ByteRange
from shardwright.schemas.codes import FindingCode, QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.example_spans import Span
from shardwright.schemas.image_ref import LABEL_SEPARATOR, ImageRef, key_from_bytes, printable
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import FeatureRole, Needs
from shardwright.schemas.source_ids import number_text
from shardwright.schemas.units import counted
from shardwright.transforms import storage
from shardwright.transforms.records.framing import (
    HEADER_BYTES,
    DamagedRange,
    Record,
    decompress_into,
    masked_crc32c,
    read_records,
)
from shardwright.transforms.sources.input_probe import InputProbe, is_pattern, look_at
from shardwright.transforms.sources.source import Context, Input, InputSplit, Source
from shardwright.transforms.sources.split_names import split_name
from shardwright.transforms.sources.spool import Spool
from shardwright.transforms.sources.tfrecord import files as record_files
from shardwright.transforms.sources.tfrecord.annotations import annotations_of
from shardwright.transforms.sources.tfrecord.columns import extra_of
from shardwright.transforms.sources.tfrecord.files import (
    RecordFile,
    class_names_in,
    compression_in,
    dataset_of,
    files_of,
)
from shardwright.transforms.sources.tfrecord.images import NoImage
from shardwright.transforms.sources.tfrecord.labels import classes_of_image
from shardwright.transforms.sources.tfrecord.layouts import (
    SOURCE_ID,
    FeatureNames,
    layout_name,
    names_by_role,
)
from shardwright.transforms.sources.tfrecord.own import LedgerKeys, OwnRecords, keys_of_shard, own_records
from shardwright.transforms.sources.tfrecord.record import SourceRecord
from shardwright.transforms.sources.tfrecord.sample import check_sample, image_of, pixels_are_planar, sample

#: Bytes of a name that becomes a key.
_MAX_NAME = 1024
#: Missing records of a file that are accounted for one by one.
_MAX_MISSING = 1_000_000
_OUR_DEFAULT_SPLITS = ConvertSettings().splits


def _keeps_splits(settings: ConvertSettings) -> bool:
    return settings.splits == _OUR_DEFAULT_SPLITS


def _describe(glimpse: InputProbe, settings: ConvertSettings) -> str:
    found = files_of(glimpse.path, glimpse.is_file, settings.record_layout.needs, _keeps_splits(settings))
    files = [file for file in found if not file.filtered]
    if not files and is_pattern(glimpse.path):
        raise UsageError(
            f"--input {printable(glimpse.path)} does not exist, and as a pattern it fits no TFRecord "
            "file; check the path, or name the folder."
        )
    if not files:
        raise UsageError(f"--input {printable(glimpse.path)} holds no TFRecord file; check the path.")
    paths = [record_files.path_of(glimpse.path, glimpse.is_file, file) for file in files]
    for path in paths:
        if not storage.is_remote(path) and not os.path.exists(path):
            raise UsageError(f"--input {printable(path)} is a link to nowhere; mend or remove it.")
    records = sample(paths)
    own = own_records(dataset_of(files[0]), settings.record_layout) if files[0].own else None
    names = check_sample(glimpse.path, records, settings, own)
    if not (records or own) and glimpse.head and not record_files.holds_records(glimpse.name, glimpse.head):
        raise UsageError(f"--input {printable(glimpse.path)} is no TFRecord file; check the path.")
    count = "a TFRecord file" if len(files) == 1 else f"{len(files):,} TFRecord files"
    if files[0].own:
        some = glimpse.is_file or is_pattern(glimpse.path)
        shards = "a shard" if len(files) == 1 else counted(len(files), "shard")
        return f"{shards} of a dataset of shardwright" if some else "a dataset of shardwright"
    return f"{count} ({layout_name(names)})" if names else count


def split(item: Input, context: Context) -> Iterator[InputSplit]:
    """Yields every file of an input."""
    settings = context.settings
    with storage.translated_errors("list", item.path):
        is_file = not is_pattern(item.path) and look_at(item.path).is_file
        for file in files_of(item.path, is_file, settings.record_layout.needs, _keeps_splits(settings)):
            path = record_files.path_of(item.path, is_file, file)
            yield InputSplit(item, path, detail=file.encode())


@dataclass
class _Opened:
    """A file whose records are listed.

    Attributes:
      part: the file.
      file: what is known of it.
      settings: checked settings.
      known: id -> class name of the file that lists them.
      state: its size and version.
      own: what its dataset says of its records, if it is one of ours.
      own_keys: the keys of our own records, as their ledger says.
      spooled: the spool file with its unpacked bytes; empty where it is read itself.
      keys: those that are taken.
      said: class name -> id, as records say.
      records: the unpacked file.
    """

    part: InputSplit
    file: RecordFile
    settings: ConvertSettings
    known: Mapping[int, str]
    state: storage.StoredObject
    own: OwnRecords | None = None
    own_keys: LedgerKeys = field(default_factory=LedgerKeys)
    spooled: str = ""
    keys: set[str] = field(default_factory=set)
    said: set[ClassId] = field(default_factory=set)
    records: IO[bytes] | None = None

    @cached_property
    def key(self) -> str:
        """What the keys of records without one of their own begin with."""
        return self.part.item.prefix + key_from_bytes(os.fsencode(self.file.relative))

    @cached_property
    def unpacked_state(self) -> tuple[int, str]:
        """Size and version of the file that workers read."""
        if not self.spooled:
            return self.state.size, self.state.version
        return storage.size_of(self.spooled), ""

    @cached_property
    def planar(self) -> bool:
        """Whether the channels of bare pixels stand one after another, where records do not say it."""
        return self.records is not None and pixels_are_planar(self.records, self.settings)

    def place(self, begin: int, length: int, **how: Any) -> str:
        """Returns a stretch of the file as a reference carries it."""
        size, version = self.unpacked_state
        return ByteRange(self.spooled, begin, length, file_size=size, file_version=version, **how).encode()

    def key_of(self, name: str, number: int) -> str:
        """Returns a key for a record: of its name, or its number if that is none or taken."""
        key = f"{self.key}!{name}" if name else ""
        if not key or key in self.keys:
            key = f"{self.key}!{number:06d}"
            while key in self.keys:
                key += "_"
        self.keys.add(key)
        return key


def list_part(part: InputSplit, context: Context) -> Iterator[ImageRef | ClassId]:
    """Yields a reference for every record of a file, and the ids of its classes."""
    file = RecordFile.decode(part.detail)
    if file.filtered:
        key = part.item.prefix + key_from_bytes(os.fsencode(file.relative))
        yield ImageRef(key=key, uri=part.path).filtered(file.filtered)
        return
    with storage.translated_errors("read", part.path):
        state = storage.stat(part.path)
        if state is None:
            raise storage.changed(part.path)
        dataset = dataset_of(file) if file.own else None
        own = own_records(dataset, context.settings.record_layout) if dataset else None
        known = own.names if own else class_names_in(file.classes)
        opened = _Opened(part, file, context.settings, known, state, own)
        if dataset and own:
            opened.own_keys = keys_of_shard(part.path, dataset)
        compression = compression_in(part.path, storage.read_head(part.path, 4096))
        if compression == "none":
            with storage.open_local(part.path) as records:
                yield from _list_records(opened, records, "")
        else:
            opened.spooled, fault = _spool(part.path, state, compression, context.spool)
            with storage.open_local(opened.spooled) as records:
                yield from _list_records(opened, records, fault)
        now = storage.stat(part.path)
        if now is None or (now.size, now.version) != (state.size, state.version):
            raise storage.changed(part.path)
    yield from _class_ids(opened)


def _spool(path: str, state: storage.StoredObject, compression: str, spool: Spool) -> tuple[str, str]:
    """Unpacks a file once; returns the spool file, and what was wrong with the stream."""
    identity = f"{path}:{state.size}:{state.version}"

    def unpack(target: IO[bytes]) -> None:
        with storage.open_local(path) as source:
            fault = decompress_into(target, source, compression) or ""
        # Before the unpacked file is there, so that whoever finds that one finds this, too.
        spool.fill(f"{identity}:fault", path, lambda note: _write(note, fault.encode()))

    spooled = spool.fill(identity, path, unpack)
    note = spool.fill(f"{identity}:fault", path, lambda note: _write(note, b""))
    return spooled, storage.read_bytes(note).decode()


def _write(file: IO[bytes], data: bytes) -> None:
    file.write(data)


def _class_ids(opened: _Opened) -> Iterator[ClassId]:
    """Yields the ids that classes have in the file, with those that a file beside it lists in accord.

    Those of a dataset of ours count from the first id of the layout that is to be written.
    """
    shift = opened.own.id_shift(opened.settings.record_layout) if opened.own else 0
    for item in _ids_in(opened):
        yield item._replace(id=item.id + shift)


def _ids_in(opened: _Opened) -> Iterator[ClassId]:
    yield from opened.said
    names, numbers = {item.name for item in opened.said}, {item.id for item in opened.said}
    said = {item._replace(text="") for item in opened.said}
    listed = {ClassId(name, number) for number, name in opened.known.items()}
    rest = {item for item in listed - said if item.name in names or item.id in numbers}
    if not rest:
        yield from listed - said


def _list_records(opened: _Opened, records: IO[bytes], fault: str) -> Iterator[ImageRef]:
    """Yields the references of a file's records.

    Args:
      opened: the file.
      records: its unpacked bytes.
      fault: what was wrong with the compressed stream; empty if nothing was.
    """
    opened.records = records
    number = -1
    damaged_end = False
    for item in read_records(records):
        number = item.number
        damaged_end = isinstance(item, DamagedRange)
        if isinstance(item, Record):
            yield _reference(opened, item)
        else:
            yield _damaged(opened, item, fault if item.code is FindingCode.SHARD_TRUNCATED else "")
    missing = opened.file.records - number - 1
    if missing > 0:
        message = fault or f"the file ends after {number + 1:,} of {counted(opened.file.records, 'record')}"
        for lost in range(number + 1, number + 1 + min(missing, _MAX_MISSING)):
            yield _faulty(opened, lost, QuarantineReason.TRUNCATED, message)
    elif fault and not damaged_end and opened.file.records < 0:
        yield _faulty(opened, number + 1, QuarantineReason.TRUNCATED, fault)


def _faulty(opened: _Opened, number: int, reason: QuarantineReason, message: str) -> ImageRef:
    """Returns the reference of a record that cannot be read."""
    ref = ImageRef(key=opened.key_of("", number), uri=opened.part.path, split=opened.file.split)
    return ref.quarantined(reason, message)


def _damaged(opened: _Opened, damage: DamagedRange, fault: str) -> ImageRef:
    truncated = damage.code is FindingCode.SHARD_TRUNCATED
    reason = QuarantineReason.TRUNCATED if truncated else QuarantineReason.CORRUPT
    where = f"record {damage.number}, bytes {damage.offset:,} to {damage.end:,}: "
    return _faulty(opened, damage.number, reason, where + (fault or damage.message))


def _reference(opened: _Opened, record: Record) -> ImageRef:
    """Returns the reference of a sound record's image."""
    where = f"record {record.number}, byte {record.offset:,}"
    try:
        example = SourceRecord(record.data, opened.own.encoded) if opened.own else SourceRecord(record.data)
    except ValueError as error:
        message = f"{where}: no tf.train.Example: {error}"
        return _faulty(opened, record.number, QuarantineReason.CORRUPT, message)
    names = opened.own.feature_names if opened.own else names_by_role(tuple(example.features))
    ref = ImageRef(
        key="",
        uri=opened.part.path,
        split=opened.file.split,
        version=f"{masked_crc32c(record.data):08x}",
        message=where,
    )
    reason = QuarantineReason.CORRUPT
    try:
        ref = ref._replace(key=_key(opened, example, names, record), source_id=_source_id(example, names))
        ref = ref._replace(file_name=_file_name(opened, example, names, record, ref.key))
        image = image_of(example, opened.own, opened.settings)
        base = record.offset + HEADER_BYTES
        size = image.span.end - image.span.begin
        ref = ref._replace(
            size=image.size if image.size >= 0 else size,
            place=opened.place(
                base + image.span.begin,
                size,
                method=image.method,
                shape=image.shape,
                planar=opened.planar if image.planar is None and image.shape[-1] > 1 else bool(image.planar),
                dtype=image.dtype,
            ),
        )
        reason = QuarantineReason.BAD_ANNOTATION
        ref = _with_classes(ref, opened, example, names, base)
        reason = QuarantineReason.BAD_ROW
        columns = opened.own.columns if opened.own else {}
        return ref._replace(extra=extra_of(example, columns, opened.settings))
    except NoImage as error:
        reason = error.reason
        return ref.quarantined(reason, f"{where}: {error}")
    except ValueError as error:
        ref = ref if ref.key else ref._replace(key=opened.key_of("", record.number))
        return ref.quarantined(reason, f"{where}: {error}")


def _key(opened: _Opened, example: SourceRecord, names: FeatureNames, record: Record) -> str:
    """Returns the key of a record."""
    if opened.own and record.offset in opened.own_keys.by_offset:
        return opened.part.item.prefix + opened.own_keys.by_offset[record.offset]
    name = b""
    for feature in names.file_names:
        spans = example.bytes_of(feature)
        if spans and len(spans) == 1 and 0 < spans[0].end - spans[0].begin <= _MAX_NAME:
            name = example.value_of(feature, spans[0])
            break
    if opened.own and opened.own.has_keys and name:
        text = str(name, "utf-8")
        return opened.part.item.prefix + opened.own_keys.by_name.get(text, text)
    return opened.key_of(key_from_bytes(name), record.number)


def _text_of(example: SourceRecord, feature: str) -> str:
    """Returns the only value of a feature as text; empty if it has none, several, or one that is not text."""
    found = example.feature(feature) if feature else None
    if found is None or len(found.values) != 1:
        return ""
    value = found.values[0]
    if isinstance(value, int):
        return str(value)
    try:
        return str(value, "utf-8") if isinstance(value, bytes) and len(value) <= _MAX_NAME else ""
    except UnicodeDecodeError:
        return ""


def _source_id(example: SourceRecord, names: FeatureNames) -> str:
    """Returns the id that a record gives its image, as it stands there; empty without one."""
    feature = names.name(FeatureRole.SOURCE_ID)
    text = _text_of(example, feature)
    return text if feature == SOURCE_ID else number_text(text)


def _file_name(opened: _Opened, example: SourceRecord, names: FeatureNames, record: Record, key: str) -> str:
    """Returns the file name that a record gives its image; empty if it gives none, or its key."""
    name = _text_of(example, names.name(FeatureRole.KEY) or names.name(FeatureRole.FILE_BASENAME))
    before = opened.own_keys.by_offset.get(record.offset, "") if opened.own else ""
    is_key = opened.part.item.prefix + name == key
    return "" if is_key or name in (before, before.rpartition("/")[2]) else name


def _with_classes(
    ref: ImageRef, opened: _Opened, example: SourceRecord, names: FeatureNames, base: int
) -> ImageRef:
    """Returns a reference with the classes, annotations and split that the record says.

    Raises:
      ValueError: if it contradicts itself, or lacks what the layout needs.
    """
    settings = opened.settings
    layout = settings.record_layout
    if layout.needs is Needs.LABEL:
        synsets = FeatureRole.SYNSET in layout.by_role()
        classes = classes_of_image(example, names, opened.known, opened.own is not None, synsets)
        if len(classes.names) > 1 and not settings.label_separator:
            raise ValueError(
                f"it has {counted(len(classes.names), 'class')}; give --label_separator to store "
                f"several of an image"
            )
        ref = ref._replace(label=LABEL_SEPARATOR.join(classes.names))
        if not classes.names:
            ref = ref._replace(message=f"{ref.message}: it names no class")
    else:
        known, classes = annotations_of(
            example,
            names,
            layout,
            opened.known,
            lambda name, span: opened.place(
                base + span.begin, span.end - span.begin, method=example.method_of(name)
            ),
            must=settings.unlabelled != "keep",
        )
        class_names = sorted({name for name in classes.names if name})
        ref = ref.annotated(known)._replace(label=LABEL_SEPARATOR.join(class_names))
    opened.said.update(classes.ids)
    if (split := names.name(FeatureRole.SPLIT)) and not ref.split and _keeps_splits(settings):
        spans = example.bytes_of(split) or [Span(0, 0)]
        text = example.value_of(split, spans[0]).decode("utf-8", "replace")
        return ref._replace(split=split_name(text))
    return ref


SOURCE = Source(
    name="tfrecord",
    provides=frozenset(Needs),
    settings=frozenset({"extra_columns", "label_separator", "pixel_shape"}),
    accepts=lambda glimpse, settings: record_files.accepts(glimpse),
    describe=_describe,
    list_part=list_part,
    split=split,
    has_columns=True,
)
