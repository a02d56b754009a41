"""The ledger: the outcome of every listed file, per shard on disk and summed up per dataset."""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from itertools import chain, groupby, islice, repeat
from typing import Any, NamedTuple

from shardwright.schemas.codes import Outcome
from shardwright.schemas.dataset import Shard
from shardwright.schemas.image_ref import printable
from shardwright.schemas.split_order import by_split

LEDGER_VERSION = 2
#: Version 1 had no sizes of sources; they are unknown then.
READABLE_VERSIONS = (1, LEDGER_VERSION)
#: gzip level of the ledgers. Checksums hardly compress, so a higher level does not help.
_LEVEL = 1
#: Number of bytes to unpack at once to read the header alone.
_HEADER_STEP = 1 << 16
#: Maximum length of a line, in bytes. A header counts classes and reasons, not images.
_MAX_LINE = 1 << 24
#: Number of bytes to unpack at once to read the whole ledger, and of packed bytes that zlib gets at once.
_BLOCK_BYTES, _PACKED_BYTES = 1 << 17, 1 << 16
#: Number of bytes of lines that are kept, so that the ledger of an ordinary shard is unpacked only once.
_KEPT_BYTES = 3 << 20


#: Types of values that a line states even if they are zero or empty; other such values say nothing.
_KEPT_IF_EMPTY = frozenset((int, dict))


class Entry(NamedTuple):
    """One line of a shard's ledger: the outcome of one listed file.

    Attributes:
      key: key of the file.
      outcome: written, quarantined, filtered or deduplicated.
      fingerprint: state of the source when it was listed, `size:version`.
      sha256: hex digest of the source bytes; empty if they were not read.
      label: class name.
      offset: byte offset of the record's frame in the uncompressed shard.
      length: bytes of the frame: the record, its length and its checksums (16 bytes).
      stored: kept (the source's own bytes) or encoded.
      format: format of the stored image: jpg, png, webp or raw.
      animated: whether the source has several frames, of which the first was stored.
      reason: why the file was left out; for a deduplicated file, the key of the image that was kept.
      stage: step at which it was left out; empty for a file that was filtered without reading it.
      message: one sentence about the fault or the reason; for a written image, about its first bad box,
        which was dropped.
      uri: location of the bytes, for quarantined files.
      boxes: for an annotated image, how many boxes were written, clipped, removed by a crop, and dropped.
      digest: digest of everything that decides the record besides the source's bytes and the recipe
        (`digests.ref_digest`).
      mask_sha256: hex digest of its mask's file; empty if none was read.
      source_width: width of the source in pixels, upright, if it was written or filtered; None if unknown.
      source_height: height of that source in pixels, upright; None if unknown.
      source_bytes: size of a written image's source in bytes; None if unknown.
      decoder_warning: decoder's warning about a written image's file; empty if there was none.
      damaged: whether the image was written although data was missing or damaged (`--damaged keep`).
      file_name: file name in the record, if the source's record had one that is not the key.
      source_key: key of the source image, if `--map` made several images of it or changed its key.
      fold: fold of a written image, from 0; None if the dataset has no folds.
      private: kinds of private data in the metadata of a kept original, joined by commas.
      dtype: type of the stored samples (uint8, uint16, float32), if the dataset states it (`--depth keep`,
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
          TypeError: if it is not such a result.
        """
        try:
            return Entry(**value)
        except TypeError:
            return Entry(**{name: value[name] for name in Entry._fields if name in value})

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
        return {
            "key": self.key,
            "uri": printable(self.uri),
            "stage": self.stage,
            "reason": self.reason,
            "message": self.message,
        }


#: Fields of a header that are absent if they have these values.
OPTIONAL_TOTALS: Mapping[str, Any] = {"multiplied": 0, "folds": {}, "private": {}, "dtypes": {}}


class WrittenEntries(NamedTuple):
    """Columns of consecutive entries of written images that have no other values than these.

    All columns have one value for each entry, but those of lengths and of the sources' sizes are empty if the
    entries do not have them.

    Attributes:
      keys: keys of the images.
      sha256: digests of the sources' bytes.
      labels: class names.
      offsets: byte offsets of the records' frames.
      lengths: bytes of the frames.
      formats: formats of the stored images.
      stored: kept or encoded.
      digests: digests of the references.
      fingerprints: states of the sources.
      widths: widths of the sources in pixels.
      heights: heights of the sources in pixels.
      sizes: sizes of the sources in bytes.
    """

    keys: Sequence[str]
    sha256: Sequence[str]
    labels: Sequence[str]
    offsets: Sequence[int]
    lengths: Sequence[int]
    formats: Sequence[str]
    stored: Sequence[str]
    digests: Sequence[str]
    fingerprints: Sequence[str]
    widths: Sequence[int]
    heights: Sequence[int]
    sizes: Sequence[int]

    def entries(self) -> Iterator[Entry]:
        """Yields the entries."""
        columns, count = self._by_field(), len(self.keys)
        missing = {name: repeat(value, count) for name, value in Entry._field_defaults.items()}
        return map(Entry._make, zip(*(columns.get(name) or missing.get(name, ()) for name in Entry._fields)))

    def lines(self) -> bytes:
        """Returns the lines of the entries as `entry_lines` does, in a tenth of its time."""
        columns = self._by_field()
        forms = {
            name: '"{}"' if name in _WRITTEN_TEXTS else "{}"
            for name in Entry._fields
            if any(columns.get(name, ())) or (name in _WRITTEN_NUMBERS and columns[name])
        }
        texts = (columns[name] for name in forms if name in _WRITTEN_TEXTS)
        if "key" not in forms or not all(map(all, texts)):  # some entries lack a field that others have
            return entry_lines(self.entries())
        line = "".join(("{{", ", ".join(f'"{name}": {value}' for name, value in forms.items()), "}}\n"))
        values = (_escaped(columns[name]) if name in _WRITTEN_TEXTS else columns[name] for name in forms)
        return "".join(map(line.format, *values)).encode("ascii")

    def index_lines(self) -> bytes:
        """Returns the lines of the entries in the index of their shard (`dump_index`)."""
        return b"".join(map(index_line, self.offsets, self.lengths))

    def part(self, first: int, stop: int) -> WrittenEntries:
        """Returns some of the entries."""
        columns: Iterable[Any] = (column[first:stop] for column in self)
        return WrittenEntries(*columns)

    def moved(self, distance: int) -> WrittenEntries:
        """Returns the entries of the same records in another shard.

        Args:
          distance: number of bytes by which the records lie farther behind; it may be negative.
        """
        return self._replace(offsets=[offset + distance for offset in self.offsets])

    def _by_field(self) -> dict[str, Sequence[Any]]:
        """Returns field of `Entry` -> column, which may be empty."""
        return {
            "key": self.keys,
            "outcome": (Outcome.WRITTEN.value,) * len(self.keys),
            "fingerprint": self.fingerprints,
            "sha256": self.sha256,
            "label": self.labels,
            "offset": self.offsets,
            "length": self.lengths,
            "stored": self.stored,
            "format": self.formats,
            "digest": self.digests,
            "source_width": self.widths,
            "source_height": self.heights,
            "source_bytes": self.sizes,
        }


#: Fields of the entries that `written_columns` accepts: texts, and integers.
_WRITTEN_TEXTS = ("key", "outcome", "fingerprint", "sha256", "label", "stored", "format", "digest")
_WRITTEN_NUMBERS = ("offset", "length", "source_width", "source_height", "source_bytes")
_WRITTEN_FIELDS = frozenset((*_WRITTEN_TEXTS, *_WRITTEN_NUMBERS))
#: Fewest lines that are read by column.
_MIN_TOGETHER = 4
#: Regular expression of the name of a field.
_NAME = re.compile(rb'"[a-z0-9_]+": ')
#: Regular expressions of their values in JSON: texts without a quotation mark, and numbers of 64 bits. Short
#: classes, with the usual alternative first, take half of the time.
_TEXT, _NUMBER = r'"([^"]*)"', r"([1-9][0-9]{0,17}|0)"
#: Bytes below are control characters, which texts in JSON do not have.
_FIRST_VISIBLE = 0x20
#: Escapes in JSON that a text may end with, or that may hide its end.
_HIDING = (b'\\"', b"\\\\")


def written_columns(lines: Sequence[bytes]) -> WrittenEntries | None:
    """Returns the columns of some lines of a ledger, in a third of the time that it takes to parse each.

    Args:
      lines: lines without line ends, at least one.

    Returns:
      The columns; None unless all lines are of written images, as `convert` writes them, and have the same
      fields, all of which are in `WrittenEntries`, without a quotation mark or backslash in a text.
    """
    try:
        first = json.loads(lines[0])
    except (ValueError, RecursionError):
        return None
    names = tuple(first) if isinstance(first, dict) else ()
    if not {"key", "outcome", "offset"} <= set(names) <= _WRITTEN_FIELDS:
        return None
    import numpy as np  # small commands start without it

    text = b"\n".join(lines)
    escaped = b"\\" in text  # one byte is found much faster than two
    controls = np.count_nonzero(np.frombuffer(text, np.uint8) < _FIRST_VISIBLE)
    plain = (
        controls < len(lines)
        and text.isascii()
        and not (escaped and any(escape in text for escape in _HIDING))
    )
    rows = _written_line(names).findall(text.decode()) if plain else ()  # each is a line, if as many
    if len(rows) != len(lines):
        return None
    captured = (name for name in names if name != "outcome")
    columns: dict[str, tuple[str, ...]] = dict(zip(captured, zip(*rows)))
    if escaped:
        try:
            columns = {name: _unescaped(column) for name, column in columns.items()}
        except ValueError:
            return None
    blank = ("",) * len(lines)
    text_of = {name: columns.get(name, blank) for name in _WRITTEN_TEXTS}
    number_of = {name: tuple(map(int, columns.get(name, ()))) for name in _WRITTEN_NUMBERS}
    return WrittenEntries(
        keys=text_of["key"],
        sha256=text_of["sha256"],
        labels=text_of["label"],
        offsets=number_of["offset"],
        lengths=number_of["length"],
        formats=text_of["format"],
        stored=text_of["stored"],
        digests=text_of["digest"],
        fingerprints=text_of["fingerprint"],
        widths=number_of["source_width"],
        heights=number_of["source_height"],
        sizes=number_of["source_bytes"],
    )


def _unescaped(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the strings that texts of JSON, without their quotation marks, encode.

    Raises:
      ValueError: if one of them has an unknown escape.
    """
    joined = '","'.join(texts)
    return tuple(json.loads(f'["{joined}"]')) if "\\" in joined else texts


def _escaped(texts: Sequence[str]) -> Sequence[str]:
    """Returns texts as JSON has them between quotation marks."""
    joined = "".join(texts)
    if joined.isascii() and joined.isprintable() and not any(char in joined for char in '"\\'):
        return texts
    return [json.dumps(text)[1:-1] for text in texts]


def written_runs(lines: Sequence[bytes]) -> Iterator[tuple[Sequence[bytes], WrittenEntries | None]]:
    """Yields the lines of a ledger: runs that can be read by column, and the lines between them.

    Args:
      lines: lines without line ends.

    Yields:
      Pairs (lines, columns). The columns are None for lines that must be parsed one by one.
    """
    if not lines:
        return
    columns = written_columns(lines)
    if columns is not None or len(lines) < _MIN_TOGETHER:
        yield lines, columns
        return
    for _, run in groupby(lines, _NAME.findall):
        alike = list(run)
        yield alike, written_columns(alike) if len(alike) >= _MIN_TOGETHER else None


@lru_cache(maxsize=64)
def _written_line(names: tuple[str, ...]) -> re.Pattern[str]:
    """Returns the regular expression of a line with some fields, and a group for each but the outcome."""
    values = {"outcome": f'"{Outcome.WRITTEN.value}"', **dict.fromkeys(_WRITTEN_NUMBERS, _NUMBER)}
    fields_ = (f'"{name}": {values.get(name, _TEXT)}' for name in names)
    return re.compile(rf"^\{{{', '.join(fields_)}\}}$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ShardHeader:
    """The header of a shard's ledger: facts about the shard, and the sums of its entries.

    Attributes:
      file: name of the shard file.
      split: name of its split.
      shard: number of the shard in its split, from 0.
      num_shards: number of shards in the split.
      plan_digest: digest of everything that decides the shard's bytes (`digests.PlanDigest`).
      records: number of records.
      bytes: size of the shard file.
      sha256: hex digest of the shard file.
      counts: outcome -> files.
      reasons: outcome -> reason -> files.
      class_counts: class name -> records.
      kept: number of records with the source's own bytes.
      animated: number of records whose source has several frames, of which the first was stored.
      damaged: number of records of images that were written although they are damaged.
      warned: number of records of images whose decoder gave a harmless warning.
      boxes: for annotated images, how many boxes were written, clipped, removed by a crop, and dropped.
      formats: format of the stored image -> records.
      bad_boxes: key and reason for some images with dropped boxes.
      recipe: digest of the settings and versions that decide the bytes of a record (`digests.recipe_digest`).
      crc32c: checksum of the shard file in the form that object storage uses.
      sources: sizes of the written images' sources (`SourceSizes.state`); empty if unknown.
      multiplied: number of images that `--map` added: those of each source image after the first.
      folds: fold -> records; empty if the dataset has no folds.
      private: kind of private data -> number of kept originals with it in their metadata.
      dtypes: type of the stored samples -> records; empty if the dataset does not state it.
    """

    file: str
    split: str
    shard: int
    num_shards: int
    plan_digest: str
    records: int
    bytes: int
    sha256: str
    counts: Mapping[str, int]
    reasons: Mapping[str, Mapping[str, int]]
    class_counts: Mapping[str, int]
    kept: int = 0
    animated: int = 0
    damaged: int = 0
    warned: int = 0
    boxes: Mapping[str, int] = field(default_factory=dict)
    formats: Mapping[str, int] = field(default_factory=dict)
    bad_boxes: tuple[str, ...] = ()
    recipe: str = ""
    crc32c: str = ""
    sources: Mapping[str, Any] = field(default_factory=dict)
    multiplied: int = 0
    folds: Mapping[str, int] = field(default_factory=dict)
    private: Mapping[str, int] = field(default_factory=dict)
    dtypes: Mapping[str, int] = field(default_factory=dict)

    @property
    def place(self) -> tuple[str, int, int]:
        """Its split, its number and the number of shards in the split."""
        return self.split, self.shard, self.num_shards

    def as_shard(self) -> Shard:
        """Returns the shard's entry in `dataset.json`."""
        return Shard(self.file, self.records, self.bytes, self.sha256)

    def as_json(self) -> dict[str, Any]:
        """Returns the first line of the shard's ledger."""
        values = {name: getattr(self, name) for name in _HEADER_FIELDS}
        header = {"ledger_version": LEDGER_VERSION, **values}
        for name in OPTIONAL_TOTALS:  # ledgers from before these fields keep their bytes
            if not header[name]:
                del header[name]
        return header


_HEADER_FIELDS = tuple(item.name for item in fields(ShardHeader))


@dataclass(frozen=True, slots=True)
class ShardResult:
    """The result of a finished shard: the header of its ledger, and what the run did with the shard.

    It holds nothing per image, because the results of all shards go to one step.

    Attributes:
      header: header of its ledger.
      reused: whether the shard was reused from an earlier run.
      carried: whether it was reused from a finished dataset, which was verified.
      copied: number of records whose bytes were copied from an earlier build.
      rejected: shards of an earlier build that were not used because their bytes do not match their sha256.
      started: start time in seconds since the epoch.
      finished: end time in seconds since the epoch.
      files: path -> sha256 of its ledger and its index.
    """

    header: ShardHeader
    reused: bool = False
    carried: bool = False
    copied: int = 0
    rejected: tuple[str, ...] = ()
    started: float = 0.0
    finished: float = 0.0
    files: Mapping[str, str] = field(default_factory=dict)


def ledger_header(data: bytes) -> ShardHeader:
    """Reads the header of a shard's ledger without its other lines.

    Raises:
      ValueError: if it is damaged or of another version.
    """
    unpacker, head = zlib.decompressobj(wbits=31), b""
    try:
        while b"\n" not in head:
            more = unpacker.decompress(data, _HEADER_STEP)
            data = unpacker.unconsumed_tail
            if not more:
                raise ValueError("the shard ledger is damaged: it has no header")
            head += more
        return _header_of(head.partition(b"\n")[0])
    except (zlib.error, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the shard ledger is damaged: {error}") from error


def is_whole(data: bytes) -> bool:
    """Returns whether no part of a ledger's file is damaged or missing."""
    try:
        return sum(map(len, line_blocks(data))) > 0
    except (OSError, EOFError, zlib.error, ValueError, RecursionError):
        return False


def line_blocks(data: bytes) -> Iterator[list[bytes]]:
    """Yields the lines of a ledger's file in groups; the first group is the header alone.

    This bounds memory. A small file cannot unpack to endless lines, because the header counts the lines.

    Raises:
      OSError, EOFError, zlib.error, ValueError, RecursionError: if it is damaged.
    """
    left = -1
    partial: list[bytes] = []
    partial_bytes = 0
    for block in _unpacked(data):
        partial_bytes += len(block)
        if partial_bytes > _MAX_LINE:
            raise ValueError("a line is too long")
        partial.append(block)
        if b"\n" not in block:
            continue
        *lines, rest = b"".join(partial).split(b"\n")
        partial, partial_bytes = [rest], len(rest)
        if left < 0 and lines:
            left = _counted_lines(lines[0])
            yield [lines.pop(0)]
        left -= len(lines)
        if lines and left < 0:
            raise ValueError("it has more lines than its header counts")
        yield lines
    rest = b"".join(partial)
    if rest and left == 0:
        raise ValueError("it has more lines than its header counts")
    yield [rest] if rest else []


def _unpacked(data: bytes) -> Iterator[bytes]:
    """Yields the content of a gzip file in blocks, in half of the time that `gzip.GzipFile` takes.

    Raises:
      EOFError: if its end is missing.
      zlib.error: if it is damaged.
    """
    at = 0
    while at < len(data):
        member, waiting = zlib.decompressobj(wbits=31), b""  # checks the checksum and the length, too
        while not member.eof:
            if not waiting:
                waiting = data[at : at + _PACKED_BYTES]
                at += len(waiting)
            block = member.decompress(waiting, _BLOCK_BYTES)
            if block:
                yield block
            elif not (waiting or member.eof):
                raise EOFError("the end of the file is missing")
            waiting = member.unconsumed_tail
        at -= len(member.unused_data)
        while data[at : at + 1] == b"\0":  # files may be padded
            at += 1


def _counted_lines(header: bytes) -> int:
    """Returns the number of lines that a ledger's header counts.

    Raises:
      ValueError: if it has no such counts.
    """
    try:
        return sum(int(count) for count in json.loads(header)["counts"].values())
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"its header does not count its lines: {error!r}") from None


def _header_of(line: str | bytes) -> ShardHeader:
    return header_from_json(json.loads(line))


def header_from_json(header: Mapping[str, Any]) -> ShardHeader:
    """Reads the first line of a ledger.

    Raises:
      ValueError: if it is of another version.
      KeyError or TypeError: if it lacks a field.
    """
    if header["ledger_version"] not in READABLE_VERSIONS:
        raise ValueError("the shard ledger is of another version")
    return ShardHeader(**{name: value for name, value in header.items() if name in _HEADER_FIELDS})


def entry_lines(entries: Iterable[Entry]) -> bytes:
    """Returns the lines of entries in a ledger, each with its line end."""
    return "".join(f"{json.dumps(entry.as_json())}\n" for entry in entries).encode("ascii")


def pack_ledger(header: ShardHeader, lines: Iterable[bytes]) -> bytes:
    """Returns a shard's ledger file: gzip without a time stamp; a header line, then a line per file.

    Args:
      header: its header.
      lines: its other lines as `entry_lines` returns them. How they are grouped does not change the file.
    """
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0, filename="", compresslevel=_LEVEL) as file:
        file.write(json.dumps(header.as_json(), sort_keys=True).encode("ascii") + b"\n")
        for group in lines:
            file.write(group)
    return buffer.getvalue()


#: Consecutive entries of a ledger: as columns if possible.
EntryBlock = WrittenEntries | list[Entry]


def load_ledger(data: bytes) -> tuple[ShardHeader, Iterator[Entry]]:
    """Reads a shard's ledger.

    Raises:
      ValueError: if it is damaged or of another version.
    """
    header, blocks = load_blocks(data)
    return header, chain.from_iterable(map(entries_of, blocks))


def load_lines(data: bytes) -> tuple[ShardHeader, list[bytes]]:
    """Reads a shard's ledger, and returns its other lines without line ends.

    Raises:
      ValueError: if it is damaged or of another version.
    """
    try:
        header, lines = b"", list[bytes]()
        for number, group in enumerate(line_blocks(data)):
            if number == 0:
                (header,) = group
            else:
                lines += group
        return _header_of(header), lines
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"the shard ledger is damaged: {error}") from error


def entries_of(block: EntryBlock) -> Iterable[Entry]:
    """Returns the entries of a block."""
    return block.entries() if isinstance(block, WrittenEntries) else block


def load_blocks(data: bytes) -> tuple[ShardHeader, Iterator[EntryBlock]]:
    """Reads a shard's ledger in blocks of consecutive entries.

    The blocks are parsed when they are needed, which raises ValueError, TypeError or RecursionError if a line
    is wrong.

    Raises:
      ValueError: if it is damaged or of another version.
    """
    try:
        first, kept, kept_bytes = b"", list[list[bytes]](), 0
        for number, lines in enumerate(
            line_blocks(data)
        ):  # read all lines first, to find damage before the entries are used
            if number == 0:
                (first,) = lines
            elif kept_bytes <= _KEPT_BYTES:
                kept.append(lines)
                kept_bytes += sum(map(len, lines))
        header = _header_of(first)
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"the shard ledger is damaged: {error}") from error
    blocks = kept if kept_bytes <= _KEPT_BYTES else islice(line_blocks(data), 1, None)
    return header, chain.from_iterable(map(_parsed_blocks, blocks))


def _parsed_blocks(lines: Sequence[bytes]) -> Iterator[EntryBlock]:
    """Parses lines of a ledger, mostly by column.

    Raises:
      ValueError or RecursionError: if a line is not an object.
      TypeError: if a line is not one of a ledger.
    """
    for run, columns in written_runs(lines):
        yield columns or parsed_entries(run)


def parsed_entries(lines: Sequence[bytes]) -> list[Entry]:
    """Parses lines of a ledger one by one.

    Raises:
      ValueError or RecursionError: if a line is not an object.
      TypeError: if a line is not one of a ledger.
    """
    return [Entry.from_json(line) for line in parsed_lines(lines)]


def parsed_lines(lines: Sequence[bytes]) -> list[dict[str, Any]]:
    """Parses lines of a ledger as one list, which takes half of the time.

    Raises:
      ValueError or RecursionError: if a line is not an object.
    """
    found: list[dict[str, Any]] = json.loads(b"[" + b",".join(lines) + b"]")
    if len(found) != len(lines) or not all(isinstance(item, dict) for item in found):
        raise ValueError("a line is not an object")
    return found


class OtherBuild(ValueError):
    """The ledger belongs to another shard."""


def ledger_of(data: bytes, sha256: str, outcome: Outcome | None = None) -> tuple[ShardHeader, list[Entry]]:
    """Reads the ledger of one particular shard.

    Args:
      data: content of the ledger file.
      sha256: checksum of the shard in `dataset.json`.
      outcome: outcome of the entries to keep; None for all. Any number of files may be left out.

    Raises:
      OtherBuild: if it belongs to another shard.
      ValueError: if it is damaged or of another version.
    """
    try:
        header, entries = load_ledger(data)
        if header.sha256 != sha256:
            raise OtherBuild("the shard ledger belongs to another build")
        return header, [entry for entry in entries if outcome is None or entry.outcome == outcome]
    except (TypeError, RecursionError) as error:
        raise ValueError(f"the shard ledger is damaged: {error}") from error


def written_entries(data: bytes, sha256: str) -> list[Entry]:
    """Returns the entries of a shard's records, in the order of the records.

    Args:
      data: content of the ledger file.
      sha256: checksum of the shard in `dataset.json`.

    Raises:
      OtherBuild: if it belongs to another shard.
      ValueError: if it is damaged or of another version.
    """
    return ledger_of(data, sha256, Outcome.WRITTEN)[1]


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
      ValueError: if it is not an index.
    """
    numbers = [int(number) for number in data.split()]
    if len(numbers) % 2 or any(number < 0 for number in numbers):
        raise ValueError("the index is not a list of offsets and lengths")
    return list(zip(numbers[::2], numbers[1::2]))


@dataclass
class LedgerTotals:
    """The ledger of the dataset: `listed = written + quarantined + filtered + deduplicated`."""

    splits: dict[str, Counter[str]] = field(default_factory=dict)
    reasons: dict[str, Counter[str]] = field(default_factory=dict)

    @staticmethod
    def of(headers: Iterable[ShardHeader]) -> LedgerTotals:
        """Returns the ledger of a dataset that consists of these shards."""
        totals = LedgerTotals()
        for header in headers:
            totals.add(header)
        return totals

    def add(self, header: ShardHeader) -> None:
        """Adds a shard's counts."""
        self.splits.setdefault(header.split, Counter()).update(header.counts)
        for outcome, reasons in header.reasons.items():
            self.reasons.setdefault(outcome, Counter()).update(reasons)

    def total(self, outcome: Outcome) -> int:
        """Number of files with one outcome in all splits."""
        return sum(counts[outcome] for counts in self.splits.values())

    @property
    def bad_fraction(self) -> float:
        """Quarantined / (written + quarantined); 0 if both are 0."""
        bad = self.total(Outcome.QUARANTINED)
        tried = bad + self.total(Outcome.WRITTEN)
        return bad / tried if tried else 0.0

    def as_json(self) -> dict[str, Any]:
        """Returns the `ledger` of `dataset.json`."""

        def row(counts: Mapping[str, int]) -> dict[str, int]:
            values = {outcome.value: counts.get(outcome, 0) for outcome in Outcome}
            return {"listed": sum(values.values()), **values}

        total: Counter[str] = Counter()
        for counts in self.splits.values():
            total.update(counts)
        return {
            **row(total),
            "splits": {name: row(counts) for name, counts in by_split(self.splits).items()},
            "reasons": {name: dict(sorted(c.items())) for name, c in sorted(self.reasons.items())},
        }
