"""The contents of the page, gathered from a dataset directory; reads only what it needs."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, zip_longest
from typing import Any, NamedTuple, TypeVar

from shardwright.core import storage
from shardwright.core.dataset_files import read_dataset, short_names
from shardwright.core.preview import ledger_entries
from shardwright.core.records.compression import read_lazily
from shardwright.core.records.framing import Record
from shardwright.core.records.record_schema import infer_schema, schema_of_plan
from shardwright.core.report import thumbnails
from shardwright.core.report.measures import Document, Measures, ObjectCounts, SourceSummary, measure, ranked
from shardwright.core.versions import read_version_record
from shardwright.schemas.codes import QUALITY, FindingCode
from shardwright.schemas.dataset import (
    DATASET_JSON,
    FINDINGS_JSON,
    REPORT_HTML,
    RUN_JSON,
    STATISTICS_JSON,
    Dataset,
)
from shardwright.schemas.drift import drift_tables
from shardwright.schemas.errors import EngineError, ShardwrightError, UsageError
from shardwright.schemas.feature_roles import FeatureRole
from shardwright.schemas.findings import Finding, ValidationReport
from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.schemas.json_values import from_json
from shardwright.schemas.ledger import Entry
from shardwright.schemas.plain_text import printable
from shardwright.schemas.plan import SplitsFrom
from shardwright.schemas.splits import totals_of
from shardwright.schemas.version import (
    DIFF_JSON,
    INDEX_HTML,
    VERSION_JSON,
    VersionRecord,
    VersionState,
    scrub_text,
    split_version,
    time_text,
    version_name,
)

#: For files without a `dataset.json`: number of records that are shown, and of files that are read for them.
_FOREIGN_SAMPLES, _FOREIGN_FILES = 48, 8
_INFER_FROM = 64
#: Errors of damaged documents.
_DAMAGES = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)

_T = TypeVar("_T")


class Sample(NamedTuple):
    """A record that is shown, and the key of its image."""

    at: thumbnails.RecordAt
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
    pictures: Mapping[thumbnails.RecordAt, thumbnails.Thumbnail] = field(default_factory=dict)
    run: RunFacts = field(default_factory=RunFacts)
    annotated: bool = False
    quarantine: tuple[thumbnails.Quarantined, ...] = ()
    drift: Document | None = None
    of_version: VersionRecord | None = None
    list_page: str = ""
    left_out: tuple[str, ...] = ()


def gather(
    directory: str,
    *,
    validation: ValidationReport | None = None,
    statistics: Document | None = None,
    drift: Document | None = None,
    record: VersionRecord | None = None,
    page: str | None = None,
) -> ReportData:
    """Gathers the contents of a dataset's page.

    Args:
      directory: The dataset directory.
      validation: Contents that `findings.json` will have. None to read it.
      statistics: Contents that `statistics.json` will have. None to read it.
      drift: Differences from the previous dataset, as `diff.json` states them. None to read that file of a
        version.
      record: Contents that `version.json` will have. None to read it, if the directory is a version's.
      page: Path of the page, for its links. None for the usual path in the directory.

    Raises:
      UsageError: If there is no readable `dataset.json`.
      EngineError: If it cannot be read.
    """
    dataset = read_dataset(directory)
    left_out: list[str] = []
    try:
        data = _gather(directory, dataset, validation, statistics, left_out)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        path = storage.join(directory, DATASET_JSON)
        raise UsageError(f"{path} is damaged ({error!r}); restore it or convert again.") from error
    place, version = place_of(directory)
    if version and record is None:
        try:
            record = read_version_record(split_version(place)[0], version)
        except ShardwrightError:
            record = VersionRecord(version, VersionState.DAMAGED, 0.0)
            left_out.append(f"{VERSION_JSON} cannot be read, so the state of version {version} is unknown.")
    if version and drift is None:
        drift = _read_json(directory, DIFF_JSON, _read_drift, left_out)
        if drift is not None and drift["fingerprints"]["new"] != dataset.fingerprint:
            left_out.append(f"{DIFF_JSON} is about another build.")
            drift = None
    beside = page in (None, storage.join(directory, REPORT_HTML))
    return replace(
        data,
        place=printable(place),
        drift=drift,
        of_version=record,
        list_page=f"../../{INDEX_HTML}" if version and beside else "",
        left_out=tuple(left_out),
    )


def _read_drift(document: Document) -> Document:
    _ = drift_tables(document), document["datasets"]["old"], document["fingerprints"]["new"]  # reports damage
    return document


def place_of(directory: str) -> tuple[str, str]:
    """Returns the names of a dataset for the page, if it is a version.

    Returns:
      The name for commands (`OUT@V`) and the version's name. For other datasets, the directory and "".
    """
    absolute = directory if storage.is_remote(directory) else os.path.abspath(directory)
    for path in (directory.rstrip("/"), absolute.rstrip("/")):
        place = version_name(path)
        if place != path:
            return place, split_version(place)[1]
    return directory, ""


def _gather(
    directory: str,
    dataset: Dataset,
    validation: ValidationReport | None,
    statistics: Document | None,
    left_out: list[str],
) -> ReportData:
    if validation is None:
        validation = _read_json(directory, FINDINGS_JSON, ValidationReport.from_json, left_out)

    def read_statistics(document: Document) -> Document:
        if document.get("fingerprint") == dataset.fingerprint:
            measure(document, ())  # reports damage
        return document

    if statistics is None:
        statistics = _read_json(directory, STATISTICS_JSON, read_statistics, left_out)
        if statistics is not None and statistics.get("fingerprint") != dataset.fingerprint:
            left_out.append(f"{STATISTICS_JSON} is about another build; validate with --quality again.")
            statistics = None
    run = (
        _read_json(directory, RUN_JSON, _read_run, left_out, "what was converted is not known") or RunFacts()
    )
    paths = {shard.file: storage.join(directory, shard.file) for shard in dataset.shards}
    checked = select_findings(validation, dataset.fingerprint)
    sheets = choose_sheets(directory, dataset)
    places = {sample.at for sheet in sheets for sample in sheet.samples}
    schema = schema_of_plan(dataset.features, dataset.first_label, dataset.plan)
    seen = thumbnails.read_thumbnails([*places, *shown_places(checked, paths)], paths, schema)
    total = sum(map(dataset.size, dataset.splits))
    sizes = [picture.stored for at, picture in seen.items() if at in places and picture.stored]
    objects = count_objects(directory, dataset)
    quarantine = thumbnails.read_quarantine(directory) if dataset.ledger["quarantined"] else ()
    return ReportData(
        name=dataset.name,
        drawn=time_text(time.time()),
        dataset=dataset,
        records=dataset.all_records,
        bytes=total,
        shards=len(paths),
        checked=_with_images(checked, seen),
        measures=measure(statistics, sizes, run.sources, objects, total),
        sheets=with_some_samples(sheets, lambda some: [sample for sample in some if sample.at in seen]),
        pictures=seen,
        run=run,
        annotated=thumbnails.has_drawn_annotations(dataset.features),
        quarantine=thumbnails.draw_quarantine(quarantine, directory),
    )


def gather_files(
    name: str,
    files: Sequence[str],
    *,
    validation: ValidationReport | None = None,
    statistics: Document | None = None,
) -> ReportData:
    """Gathers the contents of a page about TFRecord files of unknown origin: findings, and some images.

    Args:
      name: Name of the files.
      files: Paths of the files.
      validation: Findings of a validation of the files.
      statistics: Statistics of their images.
    """
    left_out: list[str] = []
    first = _first_records(files)
    schema = infer_schema([data for _, data in first[:_INFER_FROM]])
    seen = dict(thumbnails.draw_thumbnails(first, schema))
    samples = tuple(Sample(at, f"{os.path.basename(at.file)}, byte {at.offset}") for at in seen)
    sizes = [picture.stored for picture in seen.values() if picture.stored]
    paths = short_names(files)
    checked = select_findings(validation, "")
    seen |= thumbnails.read_thumbnails(shown_places(checked, paths), paths, schema)
    total = 0
    for name_of_file, path in paths.items():
        try:
            total += storage.size_of(path)
        except OSError:
            left_out.append(f"{printable(name_of_file)} cannot be read.")
    records = validation.records if validation else 0
    return ReportData(
        name=printable(name),
        place=printable(name),
        drawn=time_text(time.time()),
        records=records,
        bytes=total,
        shards=len(files),
        checked=_with_images(checked, seen),
        measures=measure(statistics, sizes),
        sheets=(ClassSheet(NO_CLASS, records, samples),) if samples else (),
        pictures=seen,
        annotated=thumbnails.has_drawn_annotations(schema.features),
        left_out=tuple(left_out),
    )


def _with_images(checked: Checked | None, seen: Container[object]) -> Checked | None:
    """Removes the findings about single images whose image was not found."""
    return checked and checked.with_some_images(
        lambda findings: [one for one in findings if (one.shard, one.offset) in seen]
    )


def _first_records(files: Sequence[str]) -> list[tuple[thumbnails.RecordAt, bytes]]:
    samples: list[tuple[thumbnails.RecordAt, bytes]] = []
    share = max(1, _FOREIGN_SAMPLES // max(1, min(len(files), _FOREIGN_FILES)))
    for path in files[:_FOREIGN_FILES]:
        with contextlib.suppress(EngineError):
            records = (item for item in read_lazily(path) if isinstance(item, Record))
            samples += [
                (thumbnails.RecordAt(path, item.offset), item.data) for item in islice(records, share)
            ]
    return samples


def _read_json(
    directory: str,
    name: str,
    read: Callable[[Document], _T],
    left_out: list[str],
    then: str = "validate again to replace it",
) -> _T | None:
    """Reads a JSON document of a dataset, if it exists.

    Args:
      directory: The dataset directory.
      name: Name of the document.
      read: Function that reads its contents.
      left_out: List that gets a sentence if the document cannot be read.
      then: Consequence, or advice, for that sentence.
    """
    try:
        data = storage.read_if_exists(storage.join(directory, name))
        if data is None:
            return None
        document = json.loads(data)
        if not isinstance(document, Mapping):
            raise TypeError("it is not an object")
        return read(document)
    except (OSError, EngineError):
        left_out.append(f"{name} cannot be read; {then}.")
    except _DAMAGES:
        left_out.append(f"{name} is damaged or has another version; {then}.")
    return None


def _read_run(document: Document) -> RunFacts:
    run = from_json(RunFacts, document)
    _ = run.read_again  # reports damage at once
    return run


#: Classes whose images are shown: up to this many all, else the largest, the smallest and some between.
_MAX_CLASSES = 48
#: Largest number of images, together and of one class.
_PICTURES = 288
_MAX_PER_CLASS, _MIN_PER_CLASS = 12, 3
_WITHOUT_CLASSES = 48
#: Such numbers for images with annotations, which are larger.
_ANNOTATED, _MAX_ANNOTATED = 96, 4
#: Limits of the search for images of rare classes: number of ledger lines, and of ledgers.
_MAX_LINES = 150_000
_MAX_LEDGERS = 64
NO_CLASS = ""
#: Codes whose two records are shown side by side, the most severe first, and the number of pairs of each.
PAIRS = (
    FindingCode.SPLIT_LEAKAGE, FindingCode.LABEL_CONFLICT, FindingCode.EXACT_DUPLICATE,
    FindingCode.NEAR_DUPLICATE, FindingCode.DUPLICATE_KEY,
)  # fmt: skip
_PAIRS_OF_CODE = 12
#: Codes about a single picture that are easier to see than to read.
_VISIBLE = (
    *sorted(QUALITY - set(PAIRS)),
    FindingCode.LABEL_RANGE, FindingCode.LABEL_TEXT, FindingCode.BOX_RANGE, FindingCode.BOX_ORDER,
    FindingCode.KEYPOINT_RANGE, FindingCode.OBJECTS_DROPPED,
    FindingCode.MASK_MISMATCH, FindingCode.SIZE_MISMATCH, FindingCode.FORMAT_MISMATCH,
    FindingCode.SOURCE_LABEL, FindingCode.SOURCE_CHANGED, FindingCode.SOURCE_MISSING, FindingCode.KEPT_BYTES,
)  # fmt: skip
_FINDINGS_OF_CODE = 10


def shown_classes(dataset: Dataset) -> list[str]:
    """Returns the classes whose images are shown: in id order if all are shown, else by frequency."""
    totals = totals_of(dataset.class_counts)
    filled = [name for name in dataset.labels if totals[name]]
    filled += sorted(name for name in totals.keys() - set(filled) if totals[name])
    if len(filled) <= _MAX_CLASSES:
        return filled
    names = ranked({name: totals[name] for name in filled})
    third = _MAX_CLASSES // 3
    middle = names[third:-third]
    between = [middle[i * len(middle) // third] for i in range(third)]
    return [*names[:third], *between, *names[-third:]]


def choose_sheets(directory: str, dataset: Dataset) -> list[ClassSheet]:
    """Chooses some records of each shown class, without reading them.

    The lines of a ledger are in the order of their hashes, and so are the shards of a split. So any reader
    that follows this rule chooses the same records.
    """
    totals = totals_of(dataset.class_counts)
    names = shown_classes(dataset)
    chosen: dict[str, list[Sample]] = {name: [] for name in names}
    annotated = thumbnails.has_drawn_annotations(dataset.features)
    pictures, most = (_ANNOTATED, _MAX_ANNOTATED) if annotated else (_PICTURES, _MAX_PER_CLASS)
    quota = max(_MIN_PER_CLASS, min(most, pictures // max(1, len(names))))
    if not names:
        chosen, quota = {NO_CLASS: []}, _WITHOUT_CLASSES
        totals[NO_CLASS] = dataset.all_records
    missing = {name: min(quota, totals[name]) for name in chosen}
    for file, entry in islice(_entries(directory, dataset), _MAX_LINES):
        assert entry.offset is not None  # because the image was written
        for label in entry.label.split(LABEL_SEPARATOR) if names else [NO_CLASS]:
            if missing.get(label):
                chosen[label].append(Sample(thumbnails.RecordAt(file, entry.offset), entry.key))
                missing[label] -= 1
        if not any(missing.values()):
            break
    return [ClassSheet(name, totals[name], tuple(samples)) for name, samples in chosen.items() if samples]


def _entries(directory: str, dataset: Dataset) -> Iterator[tuple[str, Entry]]:
    """Yields shard and entry of records: of the first shard of each split first, then of the second ones."""
    for place, shard in islice(dataset.filled_shards_in_turn(), _MAX_LEDGERS):
        with contextlib.suppress(EngineError):
            for entry in ledger_entries(directory, place, shard):
                yield shard.file, entry


def count_objects(directory: str, dataset: Dataset) -> ObjectCounts | None:
    """Counts the objects of the images from the ledgers; None if the records have no boxes."""
    if not any(spec.fill in (FeatureRole.BOX_XMIN, FeatureRole.BOXES) for spec in dataset.features):
        return None
    images: Counter[int] = Counter()
    lost = 0
    for _, entry in islice(_entries(directory, dataset), _MAX_LINES):
        counts = entry.boxes or {}
        written, *left_out = (counts.get(name, 0) for name in ("written", "dropped", "vanished"))
        if written >= 0:  # the ledger may be damaged
            images[written] += 1
            lost += sum(left_out)
    return ObjectCounts(images, lost) if images else None


def select_findings(report: ValidationReport | None, fingerprint: str) -> Checked | None:
    """Selects the findings whose images are shown.

    Args:
      report: Contents of `findings.json`. None if there is none.
      fingerprint: Fingerprint of the present dataset. Empty for foreign files.
    """
    if report is None:
        return None

    def some(code: FindingCode, most: int, of: Sequence[Finding]) -> tuple[Finding, ...]:
        return tuple(islice((one for one in of if one.code is code), most))

    pairs = [one for one in report.findings if one.other]
    placed = [one for one in report.findings if one.shard and one.offset is not None]
    return Checked(
        report,
        tuple(one for code in PAIRS for one in some(code, _PAIRS_OF_CODE, pairs)),
        {code: findings for code in _VISIBLE if (findings := some(code, _FINDINGS_OF_CODE, placed))},
        report.fingerprint in (fingerprint or None, None),
    )


def shown_places(checked: Checked | None, shards: Container[str]) -> Iterator[thumbnails.RecordAt]:
    """Yields the places of the records whose images are needed.

    Args:
      checked: Results of a validation. None if there are none.
      shards: Shards of the dataset. A damaged `findings.json` may name other files.
    """
    if checked is not None:
        images = (one for some in checked.image_findings.values() for one in some)
        for at in (*images, *checked.pairs, *(one.other for one in checked.pairs)):
            if at is not None and at.shard is not None and at.shard in shards and at.offset is not None:
                yield thumbnails.RecordAt(at.shard, at.offset)
