"""What the page shows: plain numbers, names and small pictures, gathered once and drawn by pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shardwright.schemas.split_balance import SplitBalance, compare_splits
from shardwright.schemas.version import VersionRecord

#: Findings shown one by one, per code and in all.
MAX_ROWS_PER_CODE, MAX_ROWS = 60, 600
#: Quarantined images listed one by one.
MAX_QUARANTINED = 120
#: No page is larger; what does not fit is left out, the pictures first.
MAX_PAGE_BYTES = 5_000_000


class Thumbnail(NamedTuple):
    """A small picture.

    Attributes:
      jpeg: its bytes; empty if it could not be decoded.
      width: in pixels.
      height: in pixels.
      problem: why there is none, in a few words.
    """

    jpeg: bytes = b""
    width: int = 0
    height: int = 0
    problem: str = ""


class RecordAt(NamedTuple):
    """The place of a record: its shard's path, and the offset of its frame when unpacked."""

    path: str
    offset: int


class PictureSize(NamedTuple):
    """Width, height and number of bytes of one picture."""

    width: int
    height: int
    bytes: int


class Sample(NamedTuple):
    """A record that is shown.

    Attributes:
      at: its place.
      split: its split.
      label: its class, several joined by `LABEL_SEPARATOR`.
      key: the image's key.
      picture: drawn small; None if nobody has looked.
      original: size of the picture that it was made from; None where it is not known.
    """

    at: RecordAt
    split: str
    label: str
    key: str
    picture: Thumbnail | None = None
    original: PictureSize | None = None


class Input(NamedTuple):
    """What was converted.

    Attributes:
      path: as it was named.
      detected_as: the kind of source, such as `class folders`; empty where it is not known.
    """

    path: str
    detected_as: str = ""


class ClassSheet(NamedTuple):
    """Some pictures of one class."""

    label: str
    records: int
    samples: tuple[Sample, ...]


class ShownFinding(NamedTuple):
    """A finding as the page lists it.

    Attributes:
      code: what kind.
      severity: error, warning or note.
      message: one sentence.
      shard: the file; empty where it is about none.
      record: the record's number; None where it is about none.
      offset: byte offset.
      key: the image's key.
      other_shard: of the other record of a pair.
      other_offset: of the other record of a pair.
      other_key: of the other record of a pair.
      picture: of the record, where the page shows one.
      other_picture: of the other record.
    """

    code: str
    severity: str
    message: str
    shard: str = ""
    record: int | None = None
    offset: int | None = None
    key: str = ""
    other_shard: str = ""
    other_offset: int | None = None
    other_key: str = ""
    picture: Thumbnail | None = None
    other_picture: Thumbnail | None = None


class Quarantined(NamedTuple):
    """An image that was left out for a fault."""

    key: str
    uri: str
    stage: str
    reason: str
    message: str
    picture: Thumbnail | None = None


class EarlierCheck(NamedTuple):
    """An earlier check of the same build, whose findings still count.

    Attributes:
      depth: how deep it looked.
      time: when it ended, in words.
      counts: code -> number of its findings that still count.
    """

    depth: str
    time: str
    counts: Mapping[str, int]


@dataclass(frozen=True)
class Checked:
    """What a validation said.

    Attributes:
      mode: none, frames, fast, full or quality.
      sound: whether nothing speaks against the dataset; None if nobody read it.
      errors: number of findings that fail it.
      warnings: number of those to look at.
      notes: number of those that are only counted.
      counts: code -> number.
      severities: code -> severity.
      findings: those that are listed, by severity and place.
      pairs: those of duplicates that are shown side by side.
      looks: code -> findings about single pictures that are shown.
      records: that were read.
      current: whether it is about the dataset as it is now.
      when: when it was written, if that is known.
      earlier: earlier checks whose findings still count.
    """

    mode: str
    sound: bool | None
    errors: int
    warnings: int
    notes: int
    counts: Mapping[str, int]
    severities: Mapping[str, str]
    findings: tuple[ShownFinding, ...] = ()
    pairs: tuple[ShownFinding, ...] = ()
    looks: Mapping[str, tuple[ShownFinding, ...]] = field(default_factory=dict)
    records: int = 0
    current: bool = True
    when: str = ""
    earlier: tuple[EarlierCheck, ...] = ()


class OfVersion(NamedTuple):
    """Which version of a dataset it is.

    Attributes:
      name: of the version.
      record: its `version.json`; None if that cannot be read.
      list_page: that of all versions, seen from this page; empty where it is not.
    """

    name: str
    record: VersionRecord | None
    list_page: str = ""


@dataclass(frozen=True)
class ReportData:
    """Everything that the page shows.

    Attributes:
      name: of the dataset.
      place: where it is, for the commands that the page recommends.
      drawn: when the page was drawn; empty if that does not matter.
      version: of this software.
      fingerprint: of the dataset; empty for files without a `dataset.json`.
      layout: of the records.
      labels: class names in id order.
      splits: split -> (records, bytes, shards).
      class_counts: split -> class -> records.
      formats: split -> format -> records.
      ledger: the books of `dataset.json`; empty for foreign files.
      settings: of the conversion.
      versions: of the software that wrote it.
      checked: what a validation said; None if none was kept.
      statistics: `statistics.json`; None if there is none.
      sheets: pictures of some classes.
      sampled: sizes of the pictures that were read for this page.
      originals: sizes of what these pictures were made from, as far as they are known.
      inputs: what was converted.
      splits_from: `source` or `hash` or `both`: what decided the splits; empty where it is not known.
      sources: sizes of all originals, as `run.json` adds them up; empty where they are not known.
      read_again: how much of the version before a rebuild read again, in words; empty for nothing.
      quarantine: some of the images left out for a fault.
      drift: what `diff` said of the previous dataset; None without one.
      of_version: which version of a dataset it is; None for a dataset without versions.
      left_out: what could not be read, a sentence each.
    """

    name: str
    place: str = ""
    drawn: str = ""
    version: str = ""
    fingerprint: str = ""
    layout: str = ""
    labels: tuple[str, ...] = ()
    splits: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    class_counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    formats: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    ledger: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    checked: Checked | None = None
    statistics: Mapping[str, Any] | None = None
    sheets: tuple[ClassSheet, ...] = ()
    sampled: tuple[PictureSize, ...] = ()
    originals: tuple[PictureSize, ...] = ()
    inputs: tuple[Input, ...] = ()
    splits_from: str = ""
    sources: Mapping[str, Any] = field(default_factory=dict)
    read_again: str = ""
    quarantine: tuple[Quarantined, ...] = ()
    drift: Mapping[str, Any] | None = None
    of_version: OfVersion | None = None
    left_out: tuple[str, ...] = ()

    @property
    def balance(self) -> SplitBalance:
        """How the classes are spread over the splits."""
        return compare_splits(
            self.class_counts, {split: records for split, (records, _, _) in self.splits.items()}
        )

    @property
    def records(self) -> int:
        """Records of all splits."""
        return sum(records for records, _, _ in self.splits.values())

    @property
    def bytes(self) -> int:
        """Bytes of all shards."""
        return sum(size for _, size, _ in self.splits.values())

    @property
    def shards(self) -> int:
        """Shards of all splits."""
        return sum(shards for _, _, shards in self.splits.values())
