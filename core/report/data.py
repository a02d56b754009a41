"""Contents of the page: plain numbers, names and thumbnails, gathered once and drawn by pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shardwright.schemas.codes import FindingCode
from shardwright.schemas.findings import Finding, ValidationReport
from shardwright.schemas.split_balance import SplitBalance, compare_splits
from shardwright.schemas.version import VersionRecord

#: Largest number of findings that are listed, per code and together.
MAX_ROWS_PER_CODE, MAX_ROWS = 60, 600
#: Largest number of quarantined images that are listed.
MAX_QUARANTINED = 120
#: Largest size of a page. If it would be larger, parts are omitted, images first.
MAX_PAGE_BYTES = 5_000_000


class Thumbnail(NamedTuple):
    """A small image.

    Attributes:
      jpeg: Contents of the JPEG. Empty if the image could not be decoded.
      width: Width in pixels.
      height: Height in pixels.
      problem: Short reason why there is no thumbnail.
    """

    jpeg: bytes = b""
    width: int = 0
    height: int = 0
    problem: str = ""


class RecordAt(NamedTuple):
    """The place of a record: its shard's path, and the offset of its frame in the uncompressed shard."""

    path: str
    offset: int


class PictureSize(NamedTuple):
    """Width, height and number of bytes of one image."""

    width: int
    height: int
    bytes: int


class Sample(NamedTuple):
    """A record that is shown.

    Attributes:
      at: Place of the record.
      split: Split of the record.
      label: Class of the record. Several classes are joined by `LABEL_SEPARATOR`.
      key: Key of the image.
      picture: Thumbnail of the image. None if it was not read yet.
    """

    at: RecordAt
    split: str
    label: str
    key: str
    picture: Thumbnail | None = None


class Input(NamedTuple):
    """An input of the conversion.

    Attributes:
      path: Path as the user wrote it.
      detected_as: Kind of source, such as `class folders`. Empty if it is not known.
    """

    path: str
    detected_as: str = ""


class ClassSheet(NamedTuple):
    """Some images of one class."""

    label: str
    records: int
    samples: tuple[Sample, ...]


class ObjectCounts(NamedTuple):
    """The objects in the images whose lines in the ledgers were read.

    Attributes:
      images: Number of objects -> number of images.
      lost: Number of objects of their sources that the records do not have.
    """

    images: Mapping[int, int]
    lost: int = 0

    @property
    def read(self) -> int:
        """Number of images."""
        return sum(self.images.values())

    @property
    def objects(self) -> int:
        """Number of objects in them."""
        return sum(number * images for number, images in self.images.items())

    @property
    def without(self) -> int:
        """Number of images without objects."""
        return self.images.get(0, 0)


class ShownFinding(NamedTuple):
    """A finding with the thumbnails of its record and, of a pair, of the other record."""

    finding: Finding
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


@dataclass(frozen=True)
class Checked:
    """Results of a validation.

    Attributes:
      report: Contents of `findings.json`.
      pairs: Findings about duplicates that are shown side by side.
      image_findings: Mapping of code to the findings about single images that are shown.
      current: Whether the results are about the present build of the dataset.
      when: When the results were written, if known.
    """

    report: ValidationReport
    pairs: tuple[ShownFinding, ...] = ()
    image_findings: Mapping[str, tuple[ShownFinding, ...]] = field(default_factory=dict)
    current: bool = True
    when: str = ""

    def severity(self, code: str) -> str:
        """Returns the severity of the findings with a code."""
        return self.report.gates.severity(FindingCode(code)).value


@dataclass(frozen=True)
class ReportData:
    """Contents of the page.

    Attributes:
      name: Name of the dataset.
      place: Path of the dataset, for the commands that the page recommends.
      drawn: When the page was drawn. Empty to omit it.
      fingerprint: Fingerprint of the dataset. Empty for files without a `dataset.json`.
      layout: Layout of the records.
      labels: Class names in id order.
      splits: Mapping of split to (records, bytes, shards).
      class_counts: Mapping of split to class to number of records.
      formats: Mapping of split to format to number of records.
      dtypes: Mapping of type of samples to number of records. Empty if the dataset does not state it.
      ledger: Ledger of `dataset.json`. Empty for foreign files.
      settings: Settings of the conversion.
      versions: Versions of the software that wrote the dataset.
      checked: Results of a validation. None if there are none.
      statistics: Contents of `statistics.json`. None if there is none.
      sheets: Images of some classes.
      sampled: Sizes of the images that were read for this page.
      inputs: Inputs of the conversion.
      splits_from: What decided the splits: `source`, `hash` or `both`. Empty if it is not known.
      sources: Summed sizes of all originals from `run.json`. Empty if they are not known.
      read_again: How much of the previous version a rebuild read again, as text. Empty for nothing.
      annotated: Whether boxes, masks or key points are drawn on the images.
      objects: Objects in the images. None if they are not known.
      quarantine: Some of the quarantined images.
      drift: Differences from the previous dataset, from `diff`. None if there is none.
      of_version: The `version.json` of a version. None for a dataset without versions.
      list_page: Relative link to the page of all versions. Empty if there is none.
      left_out: One sentence for each part that could not be read.
    """

    name: str
    place: str = ""
    drawn: str = ""
    fingerprint: str = ""
    layout: str = ""
    labels: tuple[str, ...] = ()
    splits: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    class_counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    formats: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    dtypes: Mapping[str, int] = field(default_factory=dict)
    ledger: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    checked: Checked | None = None
    statistics: Mapping[str, Any] | None = None
    sheets: tuple[ClassSheet, ...] = ()
    sampled: tuple[PictureSize, ...] = ()
    inputs: tuple[Input, ...] = ()
    splits_from: str = ""
    sources: Mapping[str, Any] = field(default_factory=dict)
    read_again: str = ""
    annotated: bool = False
    objects: ObjectCounts | None = None
    quarantine: tuple[Quarantined, ...] = ()
    drift: Mapping[str, Any] | None = None
    of_version: VersionRecord | None = None
    list_page: str = ""
    left_out: tuple[str, ...] = ()

    @property
    def balance(self) -> SplitBalance:
        """Distribution of the classes over the splits."""
        return compare_splits(
            self.class_counts, {split: records for split, (records, _, _) in self.splits.items()}
        )

    @property
    def records(self) -> int:
        """Number of records in all splits."""
        return sum(records for records, _, _ in self.splits.values())

    @property
    def bytes(self) -> int:
        """Number of bytes in all shards."""
        return sum(size for _, size, _ in self.splits.values())

    @property
    def shards(self) -> int:
        """Number of shards in all splits."""
        return sum(shards for _, _, shards in self.splits.values())
