"""Gathers the contents of the page from a dataset directory, and reads only what it needs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from shardwright.core import storage
from shardwright.core.dataset_files import dataset_name
from shardwright.core.records.framing import Record
from shardwright.core.records.record_schema import RecordSchema, infer_schema, schema_of_plan
from shardwright.core.records.sample import read_lazily
from shardwright.core.report.data import (
    ClassSheet,
    Input,
    PictureSize,
    Quarantined,
    RecordAt,
    ReportData,
    Sample,
)
from shardwright.core.report.samples import (
    NO_CLASS,
    choose_sheets,
    count_objects,
    places_of,
    read_validation,
    with_pictures,
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
from shardwright.schemas.drift_tables import as_mapping
from shardwright.schemas.errors import EngineError, ShardwrightError, UsageError
from shardwright.schemas.image_ref import printable
from shardwright.schemas.plan import SplitsFrom, settings_json
from shardwright.schemas.scrub import scrub_text
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

Document = Mapping[str, Any]


def gather(
    directory: str,
    *,
    validation: Document | None = None,
    statistics: Document | None = None,
    drift: Document | None = None,
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
        data = _gather(directory, dataset, validation, statistics, drift, drawn)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{printable(path)} is damaged ({error!r}); restore it or convert again.") from error
    return _as_version(data, directory, record, page)


def _as_version(
    data: ReportData, directory: str, record: VersionRecord | None, page: str | None
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
        drift = _stored(directory, DIFF_JSON, left_out)
        if drift is not None and as_mapping(drift.get("fingerprints")).get("new") != data.fingerprint:
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
    validation: Document | None,
    statistics: Document | None,
    drift: Document | None,
    drawn: str,
) -> ReportData:
    left_out: list[str] = []
    when = drawn if validation is not None else _written(directory, FINDINGS_JSON)
    if validation is None:
        validation = _stored(directory, FINDINGS_JSON, left_out)
    if statistics is None:
        statistics = _stored(directory, STATISTICS_JSON, left_out)
        if statistics is not None and not is_about(statistics, dataset.fingerprint):
            left_out.append(f"{STATISTICS_JSON} is about another build; validate with --quality again.")
            statistics = None
    paths = {shard.file: storage.join(directory, shard.file) for _, _, _, shard in dataset.placed_shards()}
    checked = read_validation(validation, dataset.fingerprint, when, left_out)
    sheets = choose_sheets(directory, dataset)
    schema = schema_of_plan(dataset.features, dataset.first_label, dataset.plan)
    seen = read_thumbnails([*_places(sheets), *places_of(checked, paths)], schema)
    run = _stored(directory, RUN_JSON, left_out, "what was converted is not known") or {}
    quarantine: Sequence[Quarantined] = read_quarantine(directory) if dataset.ledger["quarantined"] else ()
    return ReportData(
        name=dataset.name,
        place=printable(directory),
        drawn=drawn,
        fingerprint=dataset.fingerprint,
        layout=dataset.layout,
        labels=tuple(dataset.classes.values()),
        splits={
            split: (dataset.records(split), sum(shard.bytes for shard in shards), len(shards))
            for split, shards in dataset.splits.items()
        },
        class_counts={split: dict(counts) for split, counts in dataset.class_counts.items()},
        formats={split: dict(counts) for split, counts in dataset.formats.items()},
        dtypes=dict(dataset.dtypes),
        ledger=dict(dataset.ledger),
        settings=settings_json(dataset.plan.settings),
        versions=dict(dataset.versions),
        checked=with_pictures(checked, paths, seen),
        statistics=statistics,
        sheets=_drawn(sheets, seen),
        sampled=_facts(sheets, seen),
        inputs=_inputs(run),
        splits_from=next((kind for kind in SplitsFrom if kind == run.get("splits_from")), ""),
        sources=as_mapping(run.get("sources")),
        read_again=_read_again(run.get("scrub")),
        annotated=has_drawn_annotations(dataset.features),
        objects=count_objects(directory, dataset),
        quarantine=draw_quarantine(quarantine, directory),
        drift=drift,
        left_out=tuple(left_out),
    )


def gather_files(
    name: str,
    files: Sequence[str],
    *,
    validation: Document | None = None,
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
    samples, facts, schema = _foreign_samples(files)
    paths = {os.path.basename(path): path for path in files}
    checked = read_validation(validation, "", drawn, left_out)
    seen = read_thumbnails(places_of(checked, paths), schema)
    total = 0
    for path in files:
        try:
            total += storage.size_of(path)
        except OSError:
            left_out.append(f"{printable(os.path.basename(path))} cannot be read.")
    records = checked.report.records if checked else 0
    return ReportData(
        name=printable(name),
        place=printable(name),
        drawn=drawn,
        splits={"": (records, total, len(files))},
        checked=with_pictures(checked, paths, seen),
        statistics=statistics,
        sheets=(ClassSheet(NO_CLASS, records, samples),) if samples else (),
        sampled=facts,
        annotated=has_drawn_annotations(schema.features),
        left_out=tuple(left_out),
    )


def _foreign_samples(
    files: Sequence[str],
) -> tuple[tuple[Sample, ...], tuple[PictureSize, ...], RecordSchema]:
    found: list[tuple[RecordAt, bytes]] = []
    share = max(1, _FOREIGN_SAMPLES // max(1, min(len(files), _FOREIGN_FILES)))
    for path in files[:_FOREIGN_FILES]:
        try:
            records = (item for item in read_lazily(path) if isinstance(item, Record))
            found += [(RecordAt(path, item.offset), item.data) for item in islice(records, share)]
        except (EngineError, OSError):
            continue
    schema = infer_schema([data for _, data in found[:_INFER_FROM]])
    looked = list(draw_thumbnails(found, schema))
    samples = tuple(
        Sample(place, "", "", f"{os.path.basename(place.path)}, byte {place.offset}", picture)
        for place, (picture, _) in looked
    )
    return samples, tuple(facts for _, (_, facts) in looked if facts), schema


def _stored(
    directory: str, name: str, left_out: list[str], then: str = "validate again to replace it"
) -> Document | None:
    """Reads a JSON document of a dataset, if it exists.

    Args:
      directory: The dataset directory.
      name: Name of the document.
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
        value = json.loads(storage.read_bytes(path))
    except (OSError, EngineError, ValueError, RecursionError):
        value = None
    if not isinstance(value, Mapping):
        left_out.append(f"{name} cannot be read; {then}.")
        return None
    return value


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


def _places(sheets: Sequence[ClassSheet]) -> list[RecordAt]:
    return [sample.at for sheet in sheets for sample in sheet.samples]


def _drawn(sheets: Sequence[ClassSheet], seen: Mapping[RecordAt, Seen]) -> tuple[ClassSheet, ...]:
    """Adds the thumbnails of samples, and removes samples whose record was not found."""
    drawn = []
    for sheet in sheets:
        samples = [
            sample._replace(picture=seen[sample.at][0]) for sample in sheet.samples if sample.at in seen
        ]
        if samples:
            drawn.append(sheet._replace(samples=tuple(samples)))
    return tuple(drawn)


def _inputs(run: Document) -> tuple[Input, ...]:
    """Returns the inputs of the conversion from `run.json`."""
    paths, kinds = run.get("input"), run.get("detected_as")
    if not isinstance(paths, list):
        return ()
    kinds = kinds if isinstance(kinds, list) and len(kinds) == len(paths) else [""] * len(paths)
    return tuple(Input(str(path), str(kind)) for path, kind in zip(paths, kinds, strict=True))


def _read_again(facts: Any) -> str:
    """Returns how much of the previous version a rebuild read again, from `run.json`; empty for nothing."""
    try:
        return printable(scrub_text(facts)) if facts else ""
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError):
        return ""


def _facts(sheets: Sequence[ClassSheet], seen: Mapping[RecordAt, Seen]) -> tuple[PictureSize, ...]:
    found = (seen[place][1] for place in dict.fromkeys(_places(sheets)) if place in seen)
    return tuple(facts for facts in found if facts)
