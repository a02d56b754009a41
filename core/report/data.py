"""Contents of the page: plain numbers, names and thumbnails, gathered once and drawn by pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, NamedTuple

from shardwright.core.report.measures import Document, Measures, PictureSize, SourceSummary
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.findings import Finding, ValidationReport
from shardwright.schemas.plain_text import printable
from shardwright.schemas.plan import SplitsFrom
from shardwright.schemas.version import VersionRecord, scrub_text


class Thumbnail(NamedTuple):
    """A small image.

    Attributes:
      jpeg: Contents of the JPEG. Empty if the image could not be decoded.
      width: Width in pixels.
      height: Height in pixels.
      problem: Short reason why there is no thumbnail.
      stored: Size of the stored image. None if it is not known.
    """

    jpeg: bytes = b""
    width: int = 0
    height: int = 0
    problem: str = ""
    stored: PictureSize | None = None


class RecordAt(NamedTuple):
    """The place of a record: its shard, and the offset of its frame in the uncompressed shard."""

    file: str
    offset: int


class Sample(NamedTuple):
    """A record that is shown, and the key of its image."""

    at: RecordAt
    key: str


class ClassSheet(NamedTuple):
    """Some images of one class."""

    label: str
    records: int
    samples: tuple[Sample, ...]


def with_some_samples(
    sheets: Iterable[ClassSheet], choose: Callable[[Sequence[Sample]], Iterable[Sample]]
) -> tuple[ClassSheet, ...]:
    """Returns the sheets that have samples left after a choice."""
    chosen = (sheet._replace(samples=tuple(choose(sheet.samples))) for sheet in sheets)
    return tuple(sheet for sheet in chosen if sheet.samples)


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
    """

    report: ValidationReport
    pairs: tuple[Finding, ...] = ()
    image_findings: Mapping[str, tuple[Finding, ...]] = field(default_factory=dict)
    current: bool = True

    def with_some_images(self, choose: Callable[[Sequence[Finding]], Iterable[Finding]]) -> Checked:
        """Returns the results with the findings about single images that are left after a choice."""
        chosen = {code: tuple(choose(findings)) for code, findings in self.image_findings.items()}
        return replace(self, image_findings={code: findings for code, findings in chosen.items() if findings})

    def severity(self, code: str) -> str:
        """Returns the severity of the findings with a code."""
        return self.report.gates.severity(FindingCode(code)).value


@dataclass(frozen=True)
class RunFacts:
    """Contents of `run.json` that the page shows.

    Attributes:
      input: Inputs of the conversion, as the user wrote them.
      detected_as: Kind of each input, such as `class folders`.
      splits_from: What decided the splits. None if it is not known.
      sources: Sizes of all originals.
      scrub: What a rebuild read again of the previous version. Empty for nothing.
    """

    input: tuple[str, ...] = ()
    detected_as: tuple[str, ...] = ()
    splits_from: SplitsFrom | None = None
    sources: SourceSummary = field(default_factory=SourceSummary)
    scrub: Mapping[str, Any] = field(default_factory=dict)

    @property
    def inputs(self) -> list[tuple[str, str]]:
        """Each input with its kind, which is empty if it is not known."""
        return list(zip_longest(self.input, self.detected_as[: len(self.input)], fillvalue=""))

    @property
    def read_again(self) -> str:
        """How much of the previous version a rebuild read again, as text."""
        return printable(scrub_text(self.scrub)) if self.scrub else ""


@dataclass(frozen=True)
class ReportData:
    """Contents of the page.

    Attributes:
      name: Name of the dataset.
      place: Path of the dataset, for the commands that the page recommends.
      drawn: When the page was drawn. Empty to omit it.
      dataset: Contents of `dataset.json`. None for files without one.
      records: Number of records.
      bytes: Number of bytes in all shards.
      shards: Number of shards.
      checked: Results of a validation. None if there are none.
      measures: Measurements of images and objects.
      sheets: Images of some classes.
      pictures: Images of the records that are shown.
      run: Facts about the conversion.
      annotated: Whether boxes, masks or key points are drawn on the images.
      quarantine: Some of the quarantined images.
      drift: Contents of `diff.json`: the differences from the previous dataset. None if there is none.
      of_version: The `version.json` of a version. None for a dataset without versions.
      list_page: Relative link to the page of all versions. Empty if there is none.
      left_out: One sentence for each part that could not be read.
    """

    name: str
    place: str = ""
    drawn: str = ""
    dataset: Dataset | None = None
    records: int = 0
    bytes: int = 0
    shards: int = 0
    checked: Checked | None = None
    measures: Measures = field(default_factory=Measures)
    sheets: tuple[ClassSheet, ...] = ()
    pictures: Mapping[RecordAt, Thumbnail] = field(default_factory=dict)
    run: RunFacts = field(default_factory=RunFacts)
    annotated: bool = False
    quarantine: tuple[Quarantined, ...] = ()
    drift: Document | None = None
    of_version: VersionRecord | None = None
    list_page: str = ""
    left_out: tuple[str, ...] = ()
