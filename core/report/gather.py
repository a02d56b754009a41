"""Gathers the contents of the page from a dataset directory, and reads only what it needs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from shardwright.core import storage
from shardwright.core.dataset_files import dataset_name
from shardwright.core.records.compression import read_lazily
from shardwright.core.records.framing import Record
from shardwright.core.records.record_schema import infer_schema, schema_of_plan
from shardwright.core.report.data import Checked, ClassSheet, RecordAt, ReportData, RunFacts, Sample
from shardwright.core.report.measures import Document, Measures, measure
from shardwright.core.report.samples import (
    NO_CLASS,
    choose_sheets,
    count_objects,
    read_report,
    select_findings,
    shown_places,
)
from shardwright.core.report.thumbnails import (
    Seen,
    draw_quarantine,
    draw_thumbnails,
    has_drawn_annotations,
    read_quarantine,
    read_thumbnails,
)
from shardwright.core.versions import read_version_record
from shardwright.schemas.dataset import (
    DATASET_JSON,
    FINDINGS_JSON,
    REPORT_HTML,
    RUN_JSON,
    STATISTICS_JSON,
    Dataset,
    is_about,
)
from shardwright.schemas.drift import Drift, drift_tables
from shardwright.schemas.errors import EngineError, ShardwrightError, UsageError
from shardwright.schemas.findings import ValidationReport
from shardwright.schemas.image_ref import printable
from shardwright.schemas.json_values import from_json
from shardwright.schemas.version import (
    DIFF_JSON,
    INDEX_HTML,
    VERSION_JSON,
    VersionRecord,
    VersionState,
    split_version,
    version_name,
)

#: Documents above this size are not read for the page.
_MAX_DOCUMENT = 400_000_000
#: For files without a `dataset.json`: number of records that are shown, and of files that are read for them.
_FOREIGN_SAMPLES, _FOREIGN_FILES = 48, 8
_INFER_FROM = 64
#: Errors of damaged documents.
_DAMAGES = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)

_T = TypeVar("_T")


def gather(
    directory: str,
    *,
    validation: ValidationReport | None = None,
    statistics: Document | None = None,
    drift: Drift | None = None,
    record: VersionRecord | None = None,
    page: str | None = None,
    drawn: str = "",
) -> ReportData:
    """Gathers the contents of a dataset's page.

    Args:
      directory: The dataset directory.
      validation: Contents that `findings.json` will have. None to read it.
      statistics: Contents that `statistics.json` will have. None to read it.
      drift: Differences from the previous dataset. None to read the `diff.json` of a version.
      record: Contents that `version.json` will have. None to read it, if the directory is a version's.
      page: Path of the page, for its links. None for the usual path in the directory.
      drawn: When the page is drawn.

    Raises:
      UsageError: If there is no readable `dataset.json`.
      EngineError: If it cannot be read.
    """
    path = storage.join(directory, DATASET_JSON)
    with storage.translated_errors("read", path):
        dataset = Dataset.from_bytes(storage.read_bytes(path), path)
    try:
        data = _gather(directory, dataset, validation, statistics, drawn)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{printable(path)} is damaged ({error!r}); restore it or convert again.") from error
    return _as_version(replace(data, drift=drift), dataset, directory, record, page)


def _as_version(
    data: ReportData, dataset: Dataset, directory: str, record: VersionRecord | None, page: str | None
) -> ReportData:
    """Adds the facts about a version; does not change other datasets."""
    place, version = place_of(directory)
    if not version:
        return data
    output, left_out = split_version(place)[0], list(data.left_out)
    if record is None:
        try:
            record = read_version_record(output, version)
        except ShardwrightError:
            record = VersionRecord(version, VersionState.DAMAGED, 0.0)
            left_out.append(f"{VERSION_JSON} cannot be read, so the state of version {version} is unknown.")
    drift = data.drift
    if drift is None:
        drift = _stored(directory, DIFF_JSON, _read_drift, left_out)
        if drift is not None and drift.fingerprints.new != dataset.fingerprint:
            left_out.append(f"{DIFF_JSON} is about another build.")
            drift = None
    beside = page is None or page == storage.join(directory, REPORT_HTML)
    return replace(
        data,
        # Its directory is named after the version, which does not name the dataset.
        name=dataset_name(output) if data.name == version else data.name,
        place=printable(place),
        drift=drift,
        of_version=record,
        list_page=f"../../{INDEX_HTML}" if beside else "",
        left_out=tuple(left_out),
    )


def _read_drift(document: Document) -> Drift:
    drift = Drift.from_json(document)
    drift_tables(drift)  # reports damage at once
    return drift


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
    drawn: str,
) -> ReportData:
    left_out: list[str] = []
    when = drawn if validation is not None else _written(directory, FINDINGS_JSON)
    if validation is None:
        validation = _stored(directory, FINDINGS_JSON, read_report, left_out)
    if statistics is None:
        statistics = _stored(directory, STATISTICS_JSON, dict, left_out)
        if statistics is not None and not is_about(statistics, dataset.fingerprint):
            left_out.append(f"{STATISTICS_JSON} is about another build; validate with --quality again.")
            statistics = None
    run = _stored(directory, RUN_JSON, _read_run, left_out, "what was converted is not known") or RunFacts()
    paths = {shard.file: storage.join(directory, shard.file) for _, _, _, shard in dataset.placed_shards()}
    checked = select_findings(validation, dataset.fingerprint, when)
    sheets = choose_sheets(directory, dataset)
    places = [sample.at for sheet in sheets for sample in sheet.samples]
    schema = schema_of_plan(dataset.features, dataset.first_label, dataset.plan)
    seen = read_thumbnails([*places, *shown_places(checked, paths)], paths, schema)
    sampled = [seen[place][1] for place in dict.fromkeys(places) if place in seen]
    total = sum(shard.bytes for _, _, _, shard in dataset.placed_shards())
    measured = partial(
        measure,
        sampled=[size for size in sampled if size],
        sources=run.sources,
        objects=count_objects(directory, dataset),
        shard_bytes=total,
    )
    quarantine = read_quarantine(directory) if dataset.ledger["quarantined"] else ()
    return ReportData(
        name=dataset.name,
        place=printable(directory),
        drawn=drawn,
        dataset=dataset,
        records=dataset.all_records,
        bytes=total,
        shards=len(paths),
        checked=_visible(checked, seen),
        measures=_measures(measured, statistics, left_out),
        sheets=_drawn(sheets, seen),
        pictures={place: picture for place, (picture, _) in seen.items()},
        run=run,
        annotated=has_drawn_annotations(dataset.features),
        quarantine=draw_quarantine(quarantine, directory),
        left_out=tuple(left_out),
    )


def _measures(
    measured: Callable[[Document | None], Measures], statistics: Document | None, left_out: list[str]
) -> Measures:
    """Returns the measurements, without those of statistics that are damaged."""
    try:
        return measured(statistics)
    except _DAMAGES:
        left_out.append(f"{STATISTICS_JSON} is damaged or has another version; validate again to replace it.")
        return measured(None)


def gather_files(
    name: str,
    files: Sequence[str],
    *,
    validation: ValidationReport | None = None,
    statistics: Document | None = None,
    drawn: str = "",
) -> ReportData:
    """Gathers the contents of a page about TFRecord files of unknown origin: findings, and some images.

    Args:
      name: Name of the files.
      files: Paths of the files.
      validation: Findings of a validation of the files.
      statistics: Statistics of their images.
      drawn: When the page is drawn.
    """
    left_out: list[str] = []
    first = _first_records(files)
    schema = infer_schema([data for _, data in first[:_INFER_FROM]])
    seen = dict(draw_thumbnails(first, schema))
    samples = tuple(Sample(at, f"{os.path.basename(at.file)}, byte {at.offset}") for at in seen)
    sizes = [size for _, size in seen.values() if size]
    paths = {os.path.basename(path): path for path in files}
    checked = select_findings(validation, "", drawn)
    seen |= read_thumbnails(shown_places(checked, paths), paths, schema)
    total = 0
    for path in files:
        try:
            total += storage.size_of(path)
        except OSError:
            left_out.append(f"{printable(os.path.basename(path))} cannot be read.")
    records = validation.records if validation else 0
    return ReportData(
        name=printable(name),
        place=printable(name),
        drawn=drawn,
        records=records,
        bytes=total,
        shards=len(files),
        checked=_visible(checked, seen),
        measures=_measures(partial(measure, sampled=sizes), statistics, left_out),
        sheets=(ClassSheet(NO_CLASS, records, samples),) if samples else (),
        pictures={place: picture for place, (picture, _) in seen.items()},
        annotated=has_drawn_annotations(schema.features),
        left_out=tuple(left_out),
    )


def _first_records(files: Sequence[str]) -> list[tuple[RecordAt, bytes]]:
    found: list[tuple[RecordAt, bytes]] = []
    share = max(1, _FOREIGN_SAMPLES // max(1, min(len(files), _FOREIGN_FILES)))
    for path in files[:_FOREIGN_FILES]:
        try:
            records = (item for item in read_lazily(path) if isinstance(item, Record))
            found += [(RecordAt(path, item.offset), item.data) for item in islice(records, share)]
        except (EngineError, OSError):
            continue
    return found


def _stored(
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
        path = storage.join(directory, name)
        if not storage.exists(path):
            return None
        if storage.size_of(path) > _MAX_DOCUMENT:
            left_out.append(f"{name} is too large for this page.")
            return None
        return read(_as_mapping(json.loads(storage.read_bytes(path))))
    except (OSError, EngineError):
        left_out.append(f"{name} cannot be read; {then}.")
    except _DAMAGES:
        left_out.append(f"{name} is damaged or has another version; {then}.")
    return None


def _as_mapping(document: Any) -> Document:
    if not isinstance(document, Mapping):
        raise TypeError("it is not an object")
    return document


def _read_run(document: Document) -> RunFacts:
    run = from_json(RunFacts, document)
    _ = run.read_again  # reports damage at once
    return run


def _written(directory: str, name: str) -> str:
    """Returns when a local file was written; empty if it is missing or the storage does not know."""
    if storage.is_remote(directory):
        return ""
    try:
        return as_time(os.path.getmtime(storage.join(directory, name)))
    except OSError:
        return ""


def as_time(seconds: float) -> str:
    """Returns seconds since the epoch as text for people."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def _drawn(sheets: Sequence[ClassSheet], seen: Mapping[RecordAt, Seen]) -> tuple[ClassSheet, ...]:
    """Removes samples whose record was not found."""
    drawn = (
        sheet._replace(samples=tuple(sample for sample in sheet.samples if sample.at in seen))
        for sheet in sheets
    )
    return tuple(sheet for sheet in drawn if sheet.samples)


def _visible(checked: Checked | None, seen: Mapping[RecordAt, Seen]) -> Checked | None:
    """Removes findings about single images whose image was not found."""
    if checked is None:
        return None
    found = {
        code: tuple(one for one in some if (one.shard, one.offset) in seen)
        for code, some in checked.image_findings.items()
    }
    return replace(checked, image_findings={code: some for code, some in found.items() if some})
