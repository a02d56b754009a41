"""Checks `dataset.json` against the shards, ledgers and other files that it describes."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from shardwright.core import storage
from shardwright.core.shards.quarantined import LedgerFile, quarantined_lines, sorted_lines
from shardwright.core.shards.shard_plan import Recipes, recipes_of
from shardwright.core.validation.directory import balances, other_digest
from shardwright.core.validation.ledger import LedgerSummary, ledger_summary, mismatch
from shardwright.core.validation.shard import ShardCheck
from shardwright.schemas.codes import FindingCode, Outcome
from shardwright.schemas.configuration.settings import settings_from
from shardwright.schemas.dataset import (
    DATASET_JSON,
    DIGEST,
    LOST_JSONL,
    QUARANTINE_JSONL,
    SHARDS_DIR,
    STATEMENTS_VERSION,
    Dataset,
    fingerprint,
    has_own_digest,
    strict_json,
)
from shardwright.schemas.errors import UsageError
from shardwright.schemas.findings import Finding
from shardwright.schemas.image_ref import NO_SPLIT
from shardwright.schemas.json_values import to_json
from shardwright.schemas.ledger import sums_of_headers
from shardwright.schemas.sidecars import SIDECARS, with_sidecars
from shardwright.schemas.units import counted

#: Fields that are compared with the shards' ledgers or with the layout instead of the rest of the document,
#: and the digest of all others.
_COMPARED_ELSEWHERE = ("ledger", "class_counts", "formats", "dtypes", "first_label", DIGEST)
#: Number of characters of a value, and of digits of a digest, that a message shows.
_SHOWN, _HEX = 80, 12


def recipes_of_dataset(dataset: Dataset) -> Recipes | None:
    """Returns the digests of a dataset's settings and versions; None if other code computed them."""
    if dataset.statements_version != STATEMENTS_VERSION:
        return None
    try:
        return recipes_of(dataset.plan.settings, dataset.versions)
    except (KeyError, TypeError, ValueError):
        return None


# --- dataset.json by itself ---


def check_document(document: Mapping[str, Any], dataset: Dataset) -> Iterator[Finding]:
    """Yields the fields of `dataset.json` that disagree with its other fields.

    Args:
      document: The document as it is stored.
      dataset: The document as it was parsed.
    """
    true = json.loads(json.dumps(dataset.as_json()))
    plan = document["plan"]
    true["settings"] = plan["settings"]  # as stored, because a layout can be written in several ways
    true["features"] = document["features"]
    with contextlib.suppress(TypeError, AttributeError):
        digests = {shard.file: shard.sha256 for shard in dataset.shards}
        true["fingerprint"] = fingerprint(digests, plan["labels"], document["features"])
    for name, value in true.items():
        if name not in _COMPARED_ELSEWHERE:
            yield from _differences(name, document.get(name), value)
    shards = {split: len(split_shards) for split, split_shards in dataset.splits.items()}
    yield from _differences("plan.shards", dict(dataset.plan.shards), shards)
    if DIGEST not in document:
        yield _wrong(f"field {DIGEST!r} is missing; convert wrote it")
    if dataset.statements_version == STATEMENTS_VERSION:
        yield from _check_layout(document, dataset)


def _wrong(message: str) -> Finding:
    return Finding(FindingCode.DATASET_MISMATCH, message, DATASET_JSON)


def _differences(name: str, value: Any, true: Any) -> Iterator[Finding]:
    """Yields the innermost fields that differ."""
    if isinstance(value, Mapping) and isinstance(true, Mapping):
        for key in [*true, *(key for key in value if key not in true)]:
            yield from _differences(f"{name}.{key}", value.get(key), true.get(key))
    elif value != true or isinstance(value, bool) != isinstance(true, bool):
        missing = f"field {name!r} is missing; it should be {str(true)[:_SHOWN]}"
        yield _wrong(missing if value is None else mismatch(f"field {name!r}", value, true))


def _check_layout(document: Mapping[str, Any], dataset: Dataset) -> Iterator[Finding]:
    """Compares layout and features with those that the settings choose."""
    try:
        layout = settings_from({}, dataset.plan.settings).record_layout
    except (UsageError, ValueError, KeyError, TypeError) as error:
        reason = str(error).removeprefix("--plan_from: ").removesuffix(".")
        yield _wrong(f"field 'settings' chooses no layout ({reason})")
        return
    expected = {
        "layout": layout.name,
        "first_label": layout.first_label,
        "features": json.loads(json.dumps(to_json(layout.features))),
    }
    for name, value in expected.items():
        yield from _differences(name, document.get(name), value)


# --- dataset.json and the ledgers ---


class DatasetLedgers(NamedTuple):
    """Contents of all ledgers of a dataset.

    Attributes:
      by_shard: Mapping of shard file to the summary of its ledger. None if the ledger is unusable.
      without_shard: Mapping of path to summary, for ledgers without a shard.
      salvaged: Whether salvage wrote some of the ledgers.
    """

    by_shard: Mapping[str, LedgerSummary | None]
    without_shard: Mapping[str, LedgerSummary]
    salvaged: bool

    @property
    def complete(self) -> list[LedgerSummary] | None:
        """Summaries of all ledgers. None if some are missing, or salvage wrote some of them."""
        summaries = [*self.by_shard.values(), *self.without_shard.values()]
        present = [item for item in summaries if item is not None]
        return None if self.salvaged or len(present) < len(summaries) else present

    def by_file(self, dataset: Dataset) -> dict[str, LedgerSummary | None]:
        """Returns the summaries of all ledgers, with and without a shard, by the path of the ledger."""
        of_shards = {path: self.by_shard.get(shard) for shard, path in dataset.ledger_files().items()}
        return {**of_shards, **self.without_shard}


def gather_ledgers(directory: str, checks: Iterable[ShardCheck], files: Sequence[str]) -> DatasetLedgers:
    """Collects the summaries of all ledgers, and reads the ledgers without a shard.

    Raises:
      EngineError: If the storage failed.
    """
    by_shard = {check.file: check.ledger_summary for check in checks}
    without_shard = {}
    for file in files:
        if file.startswith(f"{SHARDS_DIR}/{NO_SPLIT}-"):
            summary = ledger_summary(storage.read_existing(storage.join(directory, file)))
            if summary is not None:
                without_shard[file] = summary
    # Salvage omits the digest of a ledger if it left out records.
    salvaged = LOST_JSONL in files and any(
        item is not None and not item.header.plan_digest for item in by_shard.values()
    )
    return DatasetLedgers(by_shard, without_shard, salvaged)


def check_counts(document: Mapping[str, Any], dataset: Dataset, ledgers: DatasetLedgers) -> Iterator[Finding]:
    """Yields the counts of `dataset.json` that differ from the lines of all ledgers."""
    summaries = ledgers.complete
    if summaries is None:
        return
    headers = [ledger.counted for ledger in summaries]
    true = sums_of_headers(headers, dataset.splits)
    if not true["dtypes"] and "dtypes" not in document:
        del true["dtypes"]
    if not balances(dataset.ledger, dataset):
        # The check of the whole directory reports these.
        true["ledger"] = {**true["ledger"], **{name: dataset.ledger[name] for name in ("listed", *Outcome)}}
    for name, value in true.items():
        if name in document:  # otherwise its digest is wrong
            for finding in _differences(name, document[name], value):
                yield replace(finding, code=FindingCode.COUNT_MISMATCH)


def check_recipes(dataset: Dataset, ledgers: DatasetLedgers) -> Iterator[Finding]:
    """Yields shards that were not made with the settings and versions in `dataset.json`.

    If no ledger agrees, the document is reported, otherwise the ledgers that differ.
    """
    recipes = recipes_of_dataset(dataset)
    if recipes is None:
        return
    summaries = {
        file: item for file, item in ledgers.by_shard.items() if item is not None and item.header.sha256
    }
    for name in ("recipe", "plan_digest"):
        wrong: dict[str, tuple[str, str]] = {}
        for file, item in sorted(summaries.items()):
            value = getattr(item.header, name)
            true = recipes.record if name == "recipe" else item.plan_digest
            if value != true and (value or not ledgers.salvaged):  # salvage leaves these fields empty
                wrong[file] = value, true
        if wrong and len(wrong) == len(summaries) and (len(summaries) > 1 or name == "recipe"):
            yield _wrong(
                "its fields 'settings' and 'versions' differ from those that the shards were made with: "
                f"{name!r} differs in {'all ledgers' if len(summaries) > 1 else 'the ledger'}"
            )
            return
        for file, (value, true) in wrong.items():
            message = mismatch(f"field {name!r} of its ledger's header", value[:_HEX], true[:_HEX])
            yield Finding(FindingCode.LEDGER_MISMATCH, message, file)


def check_order_of_shards(dataset: Dataset, ledgers: DatasetLedgers) -> Iterator[Finding]:
    """Yields shards with records that belong into another shard, judged by neighboring shards."""
    for shards in dataset.splits.values():
        before: tuple[str, tuple[int, str]] | None = None
        for shard in shards:
            summary = ledgers.by_shard.get(shard.file)
            if not (summary and summary.first and summary.last and summary.header.plan_digest):
                continue
            if before is not None and summary.first < before[1]:
                message = f"the plan places some of its records before records of {before[0]}"
                yield Finding(FindingCode.RECORD_ORDER, message, shard.file)
            before = shard.file, summary.last


def check_quarantine(directory: str, dataset: Dataset, ledgers: DatasetLedgers) -> Iterator[Finding]:
    """Compares `quarantine.jsonl` line by line with the quarantined images of all ledgers.

    Raises:
      EngineError: If the storage failed.
    """

    def wrong(message: str) -> Finding:
        return Finding(FindingCode.QUARANTINE_MISMATCH, message, QUARANTINE_JSONL)

    data = storage.read_if_exists(storage.join(directory, QUARANTINE_JSONL))
    if data is None:
        yield wrong("the file is missing; convert wrote it")
        return
    sha256 = hashlib.sha256(data).hexdigest()
    if ledgers.complete is not None:
        files = [
            LedgerFile(file, summary.counted.counts, summary.sha256)
            for file, summary in ledgers.by_file(dataset).items()
            if summary is not None
        ]
        digest = hashlib.sha256()
        with sorted_lines(quarantined_lines(directory, files)) as texts:
            for text in texts:
                digest.update(text)
        if digest.hexdigest() != sha256:  # only then, all lines are needed in memory
            with sorted_lines(quarantined_lines(directory, files)) as texts:
                problems = list(_differing_lines(data, b"".join(texts)))
            yield from map(wrong, problems)
            if problems:
                return
    recorded = dataset.files.get(QUARANTINE_JSONL, sha256)
    if recorded != sha256:
        yield wrong(other_digest(sha256, recorded))


def _differing_lines(data: bytes, expected: bytes) -> Iterator[str]:
    """Yields what is wrong with the lines of a `quarantine.jsonl`, whatever their order."""
    lines, true = data.split(b"\n"), expected.split(b"\n")
    missing, extra = Counter(true) - Counter(lines), Counter(lines) - Counter(true)
    for line in sorted(extra):
        position = lines.index(line) + 1
        yield f"line {position} ({_key_of(line)}) does not match a quarantined image of a ledger"
    if len(missing) > len(extra):
        left_out = sorted(set(missing))[len(extra) :]
        yield f"{counted(len(left_out), 'quarantined image')} missing, such as {_key_of(left_out[0])}"


def _key_of(line: bytes) -> str:
    try:
        return repr(json.loads(line)["key"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return repr(line[:_SHOWN].decode("utf-8", "replace"))


# --- files ---


def check_ledger_files(dataset: Dataset, ledgers: DatasetLedgers, files: Sequence[str]) -> Iterator[Finding]:
    """Yields ledgers that belong to no shard, or whose bytes changed."""
    own = {ledger: shard for shard, ledger in dataset.ledger_files().items()}
    for file in files:
        if not file.startswith(f"{SHARDS_DIR}/") or file in own:
            continue
        if file in ledgers.without_shard and file in dataset.files:
            continue
        message = "the file is not the ledger of a shard of dataset.json"
        yield Finding(FindingCode.LEDGER_MISMATCH, message, file)
    for path, summary in ledgers.by_file(dataset).items():
        recorded = dataset.files.get(path)
        if summary is not None and recorded is not None and summary.sha256 != recorded:
            message = f"{path}: {other_digest(summary.sha256, recorded)}"
            yield Finding(FindingCode.LEDGER_MISMATCH, message, own.get(path, path))
    for path in dataset.files:
        if path.startswith(f"{SHARDS_DIR}/{NO_SPLIT}-") and path not in files:
            yield Finding(FindingCode.LEDGER_MISMATCH, "the ledger is missing; convert wrote it", path)


def check_listed_files(dataset: Dataset) -> Iterator[Finding]:
    """Yields published files without a digest in `dataset.json`."""
    expected = {QUARANTINE_JSONL, *dataset.ledger_files().values(), *dataset.index_files().values()}
    for path in sorted(expected - dataset.files.keys()):
        yield _wrong(f"field 'files' has no sha256 of {path}")


def check_made_files(directory: str, dataset: Dataset) -> Iterator[Finding]:
    """Computes the files for other tools again and compares them, if the same code wrote them.

    Raises:
      EngineError: If the storage failed.
    """
    if dataset.statements_version != STATEMENTS_VERSION:
        message = (
            f"field 'statements_version' says {dataset.statements_version}, this software has "
            f"{STATEMENTS_VERSION}: side files, features and recipes were not compared"
        )
        yield Finding(FindingCode.NOT_COMPARED, message, DATASET_JSON)
        return
    try:
        computed, contents = with_sidecars(dataset)
    except (ValueError, TypeError, LookupError):
        return  # a wrong field was already reported
    for name in SIDECARS:
        if name in contents and name not in dataset.sidecars:
            yield _wrong(f"field 'sidecars.{name}' is missing; convert wrote that file")
        elif name in dataset.sidecars and dataset.sidecars[name] != computed.sidecars.get(name):
            data = storage.read_if_exists(storage.join(directory, name))
            if data is None or hashlib.sha256(data).hexdigest() != dataset.sidecars[name]:
                continue  # already reported
            pairs = zip(data.split(b"\n"), contents.get(name, b"").split(b"\n"))
            line = next((position for position, (stored, true) in enumerate(pairs, 1) if stored != true), 0)
            where = f"line {line}" if line else "its end"
            message = f"{where} differs from what dataset.json gives"
            yield Finding(FindingCode.SIDECAR_MISMATCH, message, name)


def check_dataset_json(
    directory: str, data: bytes, dataset: Dataset, checks: Iterable[ShardCheck]
) -> list[Finding]:
    """Returns the wrong statements of a dataset about itself; needs the ledgers of all shards.

    Args:
      directory: The dataset directory.
      data: Contents of its `dataset.json`.
      dataset: The parsed `dataset.json`.
      checks: Checks of all shards, at least to the depth of Examples.

    Raises:
      EngineError: If the storage failed.
    """
    document = json.loads(data)
    with storage.translated_errors("list", directory):
        files = storage.list_files(directory)
    ledgers = gather_ledgers(directory, checks, files)
    findings = []
    try:
        strict_json(data)
    except ValueError as error:
        findings.append(_wrong(f"{error}: other readers may fail or find other values"))
    findings += [
        *check_document(document, dataset),
        *check_recipes(dataset, ledgers),
        *check_counts(document, dataset, ledgers),
        *check_order_of_shards(dataset, ledgers),
        *check_quarantine(directory, dataset, ledgers),
        *check_ledger_files(dataset, ledgers, files),
        *check_listed_files(dataset),
    ]
    if not _are_about_document(findings):  # otherwise they would be computed from wrong fields
        findings += check_made_files(directory, dataset)
    agrees = balances(dataset.ledger, dataset) and not _are_about_document(findings)
    if agrees and not has_own_digest(document):
        message = f"its fields are not those that its field {DIGEST!r} was made of: one of them was changed"
        findings.append(_wrong(message))
    return findings


def _are_about_document(findings: Iterable[Finding]) -> bool:
    """Returns whether `dataset.json` itself is wrong, according to some findings."""
    codes = {finding.code for finding in findings if finding.shard == DATASET_JSON}
    return bool(codes - {FindingCode.NOT_COMPARED})
