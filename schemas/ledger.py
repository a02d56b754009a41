"""The ledger: the outcome of every listed file, per shard and per dataset, and the digests of shards.

`LedgerLines` collects the lines of a shard in a fraction of the memory of its entries, and sums them up.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial, reduce
from itertools import islice
from typing import Any, NamedTuple, Self

from shardwright.schemas.byte_range import BARE_PIXELS, decode_place
from shardwright.schemas.codes import Outcome, Stage
from shardwright.schemas.dataset import Shard
from shardwright.schemas.image_ref import LABEL_SEPARATOR, ImageRef
from shardwright.schemas.json_values import fields_json, from_json
from shardwright.schemas.labels import in_name_order
from shardwright.schemas.plain_text import printable
from shardwright.schemas.plan import ShardPlace
from shardwright.schemas.sketches import Moments, Sums
from shardwright.schemas.splits import by_split, totals_of

LEDGER_VERSION = 2
#: gzip level of the ledgers. Checksums hardly compress, so a higher level does not help.
_LEVEL = 1
#: Maximum length of a line, in bytes. A header counts classes and reasons, not images.
_MAX_LINE = 1 << 24
#: Number of bytes to unpack at once to read the whole ledger.
BLOCK_BYTES = 1 << 17
#: Types of values that a line states even if they are zero or empty; other such values say nothing.
_KEPT_IF_EMPTY = frozenset((int, dict))


class Entry(NamedTuple):
    """One line of a shard's ledger: the outcome of one listed file.

    Attributes:
      key: Key of the file.
      outcome: Written, quarantined, filtered or deduplicated.
      fingerprint: State of the source when it was listed, `size:version`.
      sha256: Hex digest of the source bytes; empty if they were not read.
      label: Class name.
      offset: Byte offset of the record's frame in the uncompressed shard.
      length: Bytes of the frame: the record, its length and its checksums (16 bytes).
      stored: Kept (the source's own bytes) or encoded.
      format: Format of the stored image: jpg, png, webp or raw.
      animated: Whether the source has several frames, of which the first was stored.
      reason: Why the file was left out; for a deduplicated file, the key of the image that was kept.
      stage: Step at which it was left out; empty for a file that was filtered without reading it.
      message: One sentence about the fault or the reason; for a written image, about its first bad box,
        which was dropped.
      uri: Location of the bytes, for quarantined files.
      boxes: For an annotated image, how many boxes were written, clipped, removed by a crop, and dropped.
      digest: Digest of everything that decides the record besides the source's bytes and the recipe
        (`ref_digest`).
      mask_sha256: Hex digest of its mask's file; empty if none was read.
      source_width: Width of the source in pixels, upright, if it was written or filtered; None if unknown.
      source_height: Height of that source in pixels, upright; None if unknown.
      source_bytes: Size of a written image's source in bytes; None if unknown.
      decoder_warning: Decoder's warning about a written image's file; empty if there was none.
      damaged: Whether the image was written although data was missing or damaged (`--damaged keep`).
      file_name: File name in the record, if the source's record had one that is not the key.
      source_key: Key of the source image, if `--map` made several images of it or changed its key.
      fold: Fold of a written image, from 0; None if the dataset has no folds.
      private: Kinds of private data in the metadata of a kept original, joined by commas.
      dtype: Type of the stored samples (uint8, uint16, float32), if the dataset states it (`--depth keep`,
        `--channels`); else empty.
    """

    key: str
    outcome: str
    fingerprint: str = ""
    sha256: str = ""
    label: str = ""
    offset: int | None = None
    length: int | None = None
    stored: str = ""
    animated: bool = False
    reason: str = ""
    stage: str = ""
    message: str = ""
    uri: str = ""
    boxes: Mapping[str, int] | None = None
    format: str = ""
    digest: str = ""
    mask_sha256: str = ""
    source_width: int | None = None
    source_height: int | None = None
    source_bytes: int | None = None
    decoder_warning: str = ""
    damaged: bool = False
    file_name: str = ""
    source_key: str = ""
    fold: int | None = None
    private: str = ""
    dtype: str = ""

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Entry:
        """Reads the result of `as_json`; fields of later versions are ignored.

        Raises:
          TypeError: If it is not such a result.
        """
        known = {name: item for name, item in value.items() if name in _TYPES}
        for name, item in known.items():
            if type(item) is not _TYPES[name]:
                raise TypeError(f"its {name} is {item!r:.80}")
        entry = Entry(**known)
        if entry.boxes and {*map(type, entry.boxes.values())} != {int}:
            raise TypeError(f"its boxes are {entry.boxes!r:.80}")
        return entry

    @property
    def source(self) -> str:
        """The key of the source image, of which `--map` may have made several."""
        return self.source_key or self.key

    @property
    def name_in_record(self) -> str:
        """The name of the image in its record: its key, or the name that its source's record gave it."""
        return self.file_name or self.key

    def as_json(self) -> dict[str, Any]:
        """Returns the entry without its empty fields; `key` and `outcome` are always included."""
        return {
            name: value
            for name, value in zip(self._fields, self, strict=True)
            if value or type(value) in _KEPT_IF_EMPTY or name == "key"
        }

    def quarantine_line(self) -> dict[str, str]:
        """Returns the entry as a line of `quarantine.jsonl`."""
        names = ("key", "uri", "stage", "reason", "message")
        return {name: getattr(self, name) for name in names} | {"uri": printable(self.uri)}


#: Field of an entry -> type of its value, if it is stored.
_TYPES: Mapping[str, type] = {
    **dict.fromkeys(("key", "outcome"), str),
    **{name: int if value is None else type(value) for name, value in Entry._field_defaults.items()},
    "boxes": dict,
}


#: Maximum number of images for which a shard says why boxes were dropped.
_SHOWN = 3


@dataclass(kw_only=True)
class ShardTotals(Sums):
    """The sums of the entries of shards; those of one shard grow only with the number of classes.

    Attributes:
      counts: Outcome -> files.
      reasons: Outcome -> reason -> files.
      class_counts: Class name -> records.
      kept: Number of records with the source's own bytes.
      animated: Number of records whose source has several frames, of which the first was stored.
      damaged: Number of records of images that were written although they are damaged.
      warned: Number of records of images whose decoder gave a harmless warning.
      boxes: For annotated images, how many boxes were written, clipped, removed by a crop, and dropped.
      formats: Format of the stored image -> records.
      bad_boxes: Key and reason for some images with dropped boxes.
      sources: Measure (width, height, bytes) -> its values for the sources of the written images.
      multiplied: Number of images that `--map` added: those of each source image after the first.
      folds: Fold -> records; empty if the dataset has no folds.
      private: Kind of private data -> number of kept originals with it in their metadata.
      dtypes: Type of the stored samples -> records; empty if the dataset does not state it.
    """

    counts: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, Counter[str]] = field(default_factory=dict)
    class_counts: Counter[str] = field(default_factory=Counter)
    kept: int = 0
    animated: int = 0
    damaged: int = 0
    warned: int = 0
    boxes: Counter[str] = field(default_factory=Counter)
    formats: Counter[str] = field(default_factory=Counter)
    bad_boxes: tuple[str, ...] = ()
    sources: dict[str, Moments] = field(default_factory=lambda: defaultdict(Moments))
    multiplied: int = 0
    folds: Counter[str] = field(default_factory=Counter)
    private: Counter[str] = field(default_factory=Counter)
    dtypes: Counter[str] = field(default_factory=Counter)

    _source_key = ""  # of the entry before

    def add(self, entry: Entry) -> None:
        """Adds an entry."""
        outcome = entry.outcome
        self.counts[outcome] += 1
        # The images that were made of one source follow each other.
        self.multiplied += bool(entry.source_key) and entry.source_key == self._source_key
        self._source_key = entry.source_key
        if outcome == Outcome.WRITTEN:
            if entry.label:
                for name in entry.label.split(LABEL_SEPARATOR):
                    self.class_counts[name] += 1
            if entry.message and len(self.bad_boxes) < _SHOWN:
                self.bad_boxes += (f"{entry.key} ({entry.message})",)
        elif outcome != Outcome.DEDUPLICATED:
            self.reasons.setdefault(outcome, Counter())[entry.reason] += 1
        if entry.format:
            self.formats[entry.format] += 1
        if entry.private:
            self.private.update(entry.private.split(","))
        if entry.dtype:
            self.dtypes[entry.dtype] += 1
        if entry.boxes:
            self.boxes.update(entry.boxes)
        if entry.fold is not None:
            self.folds[str(entry.fold)] += 1
        width, height, size = entry.source_width, entry.source_height, entry.source_bytes
        if width is not None and height is not None and size is not None:
            for name, value in (("width", width), ("height", height), ("bytes", size)):
                self.sources[name].add(value)
        self.kept += entry.stored == "kept"
        self.animated += bool(entry.animated)
        self.damaged += bool(entry.damaged)
        self.warned += bool(entry.decoder_warning) and not entry.damaged

    def merge(self, other: Self) -> Self:
        """Adds the sums over other entries; of the texts, only a few are kept."""
        super().merge(other)
        self.bad_boxes = self.bad_boxes[:_SHOWN]
        return self

    def sizes_of_sources(self) -> dict[str, Any]:
        """Returns the entry for `run.json`: the number of sources, and the moments of each measure."""
        sums = {
            name: {**moments.summary(), "sum": int(moments.sum)} for name, moments in self.sources.items()
        }
        return {"images": max((moments.count for moments in self.sources.values()), default=0), **sums}

    def header(self, place: ShardPlace) -> ShardHeader:
        """Returns the totals as the header of a shard, without the fields that need the shard's file."""
        sums = {item.name: getattr(self, item.name) for item in fields(ShardTotals)}
        records = self.counts[Outcome.WRITTEN]
        return ShardHeader("", *place, plan_digest="", records=records, bytes=0, sha256="", **sums)


#: Fields of a header that are absent if they have these values.
OPTIONAL_TOTALS: Mapping[str, Any] = {"multiplied": 0, "folds": {}, "private": {}, "dtypes": {}}


@dataclass
class ShardHeader(ShardTotals):
    """The header of a shard's ledger: facts about the shard, and the sums of its entries.

    Attributes:
      file: Name of the shard file.
      split: Name of its split.
      shard: Number of the shard in its split, from 0.
      num_shards: Number of shards in the split.
      plan_digest: Digest of everything that decides the shard's bytes (`PlanDigest`).
      records: Number of records.
      bytes: Size of the shard file.
      sha256: Hex digest of the shard file.
      recipe: Digest of the settings and versions that decide the bytes of a record (`recipe_digest`).
      crc32c: Checksum of the shard file in the form that object storage uses.
    """

    file: str
    split: str
    shard: int
    num_shards: int
    plan_digest: str
    records: int
    bytes: int
    sha256: str
    recipe: str = ""
    crc32c: str = ""

    @property
    def place(self) -> ShardPlace:
        """The place of the shard."""
        return ShardPlace(self.split, self.shard, self.num_shards)

    def as_shard(self) -> Shard:
        """Returns the shard's entry in `dataset.json`."""
        return Shard(self.file, self.records, self.bytes, self.sha256)

    def as_json(self) -> dict[str, Any]:
        """Returns the first line of the shard's ledger."""
        values = fields_json(self)
        given = {name: value for name, value in values.items() if value or name not in OPTIONAL_TOTALS}
        return {"ledger_version": LEDGER_VERSION, **given}


@dataclass(frozen=True, slots=True)
class ShardResult:
    """The result of a finished shard: the header of its ledger, and what the run did with the shard.

    It holds nothing per image, because the results of all shards go to one step.

    Attributes:
      header: Header of its ledger.
      reused: Whether the shard was reused from an earlier run.
      carried: Whether it was reused from a finished dataset, which was verified.
      copied: Number of records whose bytes were copied from an earlier build.
      rejected: Shards of an earlier build that were not used because their bytes do not match their sha256.
      started: Start time in seconds since the epoch.
      finished: End time in seconds since the epoch.
      files: Path -> sha256 of its ledger and its index.
    """

    header: ShardHeader
    reused: bool = False
    carried: bool = False
    copied: int = 0
    rejected: tuple[str, ...] = ()
    started: float = 0.0
    finished: float = 0.0
    files: Mapping[str, str] = field(default_factory=dict)


def line_blocks(data: bytes) -> Iterator[list[bytearray]]:
    """Yields the lines of a ledger's file in groups; the first group is the header alone.

    This bounds memory. A small file cannot unpack to endless lines, because the header counts the lines.

    Raises:
      OSError, EOFError, zlib.error, ValueError, RecursionError: if it is damaged.
    """
    left, rest = -1, bytearray()
    for block in iter(partial(gzip.GzipFile(fileobj=io.BytesIO(data)).read1, BLOCK_BYTES), b""):
        rest += block
        if len(rest) > _MAX_LINE:
            raise ValueError("a line is too long")
        *lines, rest = rest.split(b"\n")
        if left < 0 and lines:
            try:
                left = sum(int(count) for count in json.loads(lines[0])["counts"].values())
            except (KeyError, TypeError, AttributeError) as error:
                raise ValueError(f"its header does not count its lines: {error!r}") from None
            yield [lines.pop(0)]
        if lines:
            left -= len(lines)
            if left < 0:
                raise ValueError("it has more lines than its header counts")
            yield lines
    if not rest and left < 0:
        raise ValueError("it has no header")
    if rest and left == 0:
        raise ValueError("it has more lines than its header counts")
    yield [rest] if rest else []


def header_from_json(header: Mapping[str, Any]) -> ShardHeader:
    """Reads the first line of a ledger.

    Raises:
      ValueError, KeyError or TypeError: if it is of another version, or a field is missing or wrong.
    """
    if header["ledger_version"] != LEDGER_VERSION:
        raise ValueError("the shard ledger is of another version")
    return from_json(ShardHeader, header)


def load_ledger(data: bytes, sha256: str | None = None) -> tuple[ShardHeader, Iterator[Entry]]:
    """Reads a shard's ledger.

    The entries are parsed when they are needed, which raises ValueError if a line is wrong. Any number of
    files may be left out of a shard, so they need not all be in memory.

    Args:
      data: Content of the ledger file.
      sha256: Checksum of the shard in `dataset.json`; None to read the ledger of any shard.

    Raises:
      OtherBuild: If it belongs to another shard.
      ValueError: If it is damaged or of another version.
    """
    try:
        blocks = line_blocks(data)
        (first,) = next(blocks)
        header = header_from_json(json.loads(first))
        for _ in blocks:  # finds damage before the entries are used
            pass
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"the shard ledger is damaged: {error}") from error
    if sha256 is not None and header.sha256 != sha256:
        raise OtherBuild("the shard ledger belongs to another build")
    return header, _entries(data)


def _entries(data: bytes) -> Iterator[Entry]:
    try:
        for lines in islice(line_blocks(data), 1, None):
            yield from map(Entry.from_json, parsed_lines(lines))
    except (TypeError, RecursionError) as error:
        raise ValueError(f"the shard ledger is damaged: {error}") from error


def parsed_lines(lines: Sequence[bytearray]) -> list[dict[str, Any]]:
    """Parses lines of a ledger as one list, which takes half of the time.

    Raises:
      ValueError or RecursionError: if a line is not an object.
    """
    rows: list[dict[str, Any]] = json.loads(b"[" + b",".join(lines) + b"]")
    if len(rows) != len(lines) or not all(isinstance(item, dict) for item in rows):
        raise ValueError("a line is not an object")
    return rows


class OtherBuild(ValueError):
    """The ledger belongs to another shard."""


def written_entries(data: bytes, sha256: str | None = None) -> Iterator[Entry]:
    """Yields the entries of a shard's records, in the order of the records.

    A wrong line is noticed when it is reached.

    Args:
      data: Content of the ledger file.
      sha256: Checksum of the shard in `dataset.json`; None to read the ledger of any shard.

    Raises:
      OtherBuild: If it belongs to another shard.
      ValueError: If it is damaged or of another version.
    """
    _, entries = load_ledger(data, sha256)
    return (entry for entry in entries if entry.outcome == Outcome.WRITTEN)


def dump_index(entries: Iterable[Entry]) -> bytes:
    """Returns the index of an uncompressed shard: a line `OFFSET LENGTH` for each record's frame.

    NVIDIA DALI's tfrecord2idx writes this format, and DALI and other readers require it.
    """
    return b"".join(
        index_line(entry.offset, entry.length)
        for entry in entries
        if entry.offset is not None and entry.length is not None
    )


def index_line(offset: int, length: int) -> bytes:
    """Returns a record's line in the index of its shard: offset and total length of its frame."""
    return b"%d %d\n" % (offset, length)


def load_index(data: bytes) -> list[tuple[int, int]]:
    """Reads a shard's index: the offset and the length of each frame.

    Raises:
      ValueError: If it is not an index.
    """
    numbers = [int(number) for number in data.split()]
    if len(numbers) % 2 or any(number < 0 for number in numbers):
        raise ValueError("the index is not a list of offsets and lengths")
    return list(zip(numbers[::2], numbers[1::2]))


def ledger_json(
    splits: Mapping[str, Mapping[str, int]], reasons: Mapping[str, Mapping[str, int]]
) -> dict[str, Any]:
    """Returns the `ledger` of `dataset.json`: `listed = written + quarantined + filtered + deduplicated`.

    Args:
      splits: Split -> outcome -> files.
      reasons: Outcome -> reason -> files.
    """

    def row(counts: Mapping[str, int]) -> dict[str, int]:
        values = {outcome.value: counts.get(outcome, 0) for outcome in Outcome}
        return {"listed": sum(values.values()), **values}

    return {
        **row(totals_of(splits)),
        "splits": {name: row(counts) for name, counts in by_split(splits).items()},
        "reasons": {name: dict(sorted(counts.items())) for name, counts in sorted(reasons.items())},
    }


def total_of(parts: Iterable[ShardTotals]) -> ShardTotals:
    """Returns the sums of parts together, such as the headers of shards."""
    return reduce(ShardTotals.merge, parts, ShardTotals())


def totals_of_splits(headers: Iterable[ShardHeader]) -> defaultdict[str, ShardTotals]:
    """Returns the sums of the shards of each split; a split without shards has sums of nothing."""
    totals = defaultdict[str, ShardTotals](ShardTotals)
    for header in headers:
        totals[header.split].merge(header)
    return totals


def sums_of_headers(headers: Iterable[ShardHeader], splits: Iterable[str]) -> dict[str, Any]:
    """Returns the fields `ledger`, `class_counts`, `formats` and `dtypes` of `dataset.json`.

    Args:
      headers: Headers of all ledgers.
      splits: The splits of the dataset. The ledger also counts files without a split.
    """
    of_split = totals_of_splits(headers)
    total, counts = total_of(of_split.values()), {split: sums.counts for split, sums in of_split.items()}
    return {
        "ledger": ledger_json(counts, total.reasons),
        "class_counts": {split: in_name_order(of_split[split].class_counts) for split in splits},
        "formats": {split: in_name_order(of_split[split].formats) for split in splits},
        "dtypes": in_name_order(total.dtypes),
    }


#: Outcomes of files that are not read unless they have a stage.
_NOT_READ = (Outcome.FILTERED, Outcome.DEDUPLICATED)


def ref_digest(ref: ImageRef, label_ids: Sequence[int], *others: object) -> str:
    """Returns the digest of a reference: of its part in the record and the ledger line, without its state.

    Args:
      ref: The reference.
      label_ids: Ids of its classes, -1 for an unknown one.
      *others: Further values that go into its record.

    Returns:
      16 hex digits. That is enough, because only digests of the same key are compared.
    """
    line: list[object] = [
        ref.key, ref.label, *label_ids, ref.sha256, ref.outcome, ref.reason,
        _lasting(ref), ref.extra, *others,
    ]  # fmt: skip
    if ref.outcome == Outcome.QUARANTINED:
        line.append(ref.message)  # other messages name the place in the listing, which may change
    elif ref.place and (place := decode_place(ref.place)).method in BARE_PIXELS:
        # Raw pixels of another shape are another picture.
        line += [place.method, place.shape, place.planar, place.dtype]
    return hashlib.blake2b(json.dumps(line).encode(), digest_size=8).hexdigest()


def _lasting(ref: ImageRef) -> str:
    """Returns an image's annotations without the parts that vary between runs or copies of the same source.

    The state of the reference also covers masks in the image's own file, because they are parts of its
    record.
    """
    if not ref.has_mask_parts:
        return ref.annotations
    annotations = json.loads(ref.annotations)
    for holder in (annotations, *annotations.get("objects", ())):
        for name, text in holder.items():
            if name.endswith("_place") and text:
                holder[name] = decode_place(text)._replace(file="", offset=0, file_size=-1, file_version="")
    return json.dumps([annotations, ref.version])


def recipe_digest(settings: Mapping[str, Any], versions: Mapping[str, str]) -> str:
    """Returns the digest of the settings and the software that decide the records of a dataset."""
    head = {"settings": dict(settings), "versions": dict(versions)}
    return hashlib.sha256(json.dumps(head, sort_keys=True).encode()).hexdigest()


class PlanDigest:
    """Computes the digest of everything that decides a shard's bytes, one reference at a time, in order.

    Args:
      recipe: Digest of the settings and versions that decide the records.
    """

    def __init__(self, recipe: str) -> None:
        self._digest = hashlib.sha256(recipe.encode())
        self._source_key = ""

    def add_refs(self, refs: Sequence[ImageRef], lines: Sequence[str]) -> None:
        """Adds references; the states of images that are left out do not matter.

        Args:
          refs: The references.
          lines: Their digests (`ref_digest`).
        """
        states = ["" if ref.outcome else ref.fingerprint for ref in refs]
        text = "".join(map("\n{} {}".format, lines, states))
        self._digest.update(text.encode("utf-8", "surrogateescape"))

    def add_entry(self, entry: Entry) -> None:
        """Adds the reference of an entry in the shard's ledger, once for all images made of it."""
        again = bool(entry.source_key) and entry.source_key == self._source_key
        self._source_key = entry.source_key
        if again:
            return
        listed_only = (entry.outcome in _NOT_READ and not entry.stage) or entry.stage == Stage.LIST
        state = "" if listed_only else entry.fingerprint
        self._digest.update(f"\n{entry.digest} {state}".encode("utf-8", "surrogateescape"))

    def hexdigest(self) -> str:
        """Returns the sha256 of all references added so far."""
        return self._digest.hexdigest()


#: Number of entries that are turned into lines and compressed at once.
ENTRIES_TOGETHER = 4096


class LedgerLines:
    """The lines of a shard's ledger and their sums.

    The header is the first line of the file and has the sums of all others, so the lines have to wait for it.
    A shard has 100,000 records at most, but any number of files may be left out.

    Args:
      entries: The first entries; `add` adds more.
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._entries: list[Entry] = []
        self._packed: list[bytes] = []
        self._index: list[bytes] = []
        self._totals = ShardTotals()
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> None:
        """Adds an entry."""
        self._entries.append(entry)
        if len(self._entries) >= ENTRIES_TOGETHER:
            self._settle()

    def _settle(self) -> None:
        if self._entries:
            entries, self._entries = self._entries, []
            for entry in entries:
                self._totals.add(entry)
            self._index.append(dump_index(entries))
            lines = "".join(f"{json.dumps(entry.as_json())}\n" for entry in entries)
            self._packed.append(zlib.compress(lines.encode("ascii"), 1))

    def header(self, place: ShardPlace) -> ShardHeader:
        """Returns the header of a shard with the sums, without the fields that need the shard's file."""
        self._settle()
        return self._totals.header(place)

    @property
    def index(self) -> bytes:
        """The index of the shard's records (`dump_index`)."""
        self._settle()
        return b"".join(self._index)

    def dump(self, header: ShardHeader) -> bytes:
        """Returns the ledger file: gzip without a time stamp; a header line, then a line per file."""
        self._settle()
        buffer = io.BytesIO()
        with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0, filename="", compresslevel=_LEVEL) as file:
            file.write(json.dumps(header.as_json(), sort_keys=True).encode("ascii") + b"\n")
            for lines in self._packed:
                file.write(zlib.decompress(lines))
        return buffer.getvalue()
