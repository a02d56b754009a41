"""The last step of a salvage: the updated ledger totals, the side files, `lost.jsonl`, and `dataset.json`."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from typing import Any

from shardwright.core import dataset_files, storage
from shardwright.core.lease import HeldLease, write_held
from shardwright.core.preview import draw_card_samples
from shardwright.core.salvage.shard import SavedShard
from shardwright.core.shards.finish import condense, with_shards
from shardwright.core.shards.quarantined import (
    ledgers_of,
    quarantined_lines,
    sorted_lines,
    write_in_parts,
)
from shardwright.schemas import dataset as files
from shardwright.schemas.codes import Outcome, QuarantineReason
from shardwright.schemas.dataset import LOST_JSONL, STATEMENTS_VERSION, Dataset, pretty_json
from shardwright.schemas.errors import DataRefused
from shardwright.schemas.image_ref import NO_SPLIT
from shardwright.schemas.json_values import json_object
from shardwright.schemas.ledger import ShardResult, ledger_json
from shardwright.schemas.plain_text import printable
from shardwright.schemas.sidecars import with_sidecars

_SHOWN = 3


@dataclass(frozen=True)
class SalvageJob:
    """A salvage: the dataset, and where it is saved.

    Attributes:
      dataset: Path that the user named.
      directory: The dataset directory. Empty for foreign files.
      output: Directory in which the records are saved.
      decode: Whether to leave out records whose image cannot be decoded, too.
      run: Values for `run.json` (command, runner).
      started: Start of the run, in seconds since the epoch.
      hold: Lease that the run must hold for each write. None if it needs no lease.
    """

    dataset: str
    directory: str
    output: str
    decode: bool
    run: Mapping[str, Any] = field(default_factory=dict)
    started: float = 0.0
    hold: HeldLease | None = None


def commit_salvage(
    job: SalvageJob, damaged: Dataset | None, saved: Iterable[SavedShard], results: Iterable[ShardResult]
) -> dict[str, Any]:
    """Commits the saved shards as a dataset, or ends a salvage of foreign files.

    Args:
      job: The salvage.
      damaged: The damaged dataset. None for foreign files, of which `lost.jsonl` marks the end.
      saved: The saved shards.
      results: Their results for the dataset's ledger. Foreign files have none.

    Returns:
      The outcome, as `_work/outcome.json` stores it.

    Raises:
      DataRefused: If nothing could be saved.
      EngineError: If the lease was lost, or the storage failed.
    """
    saved = sorted(saved, key=lambda item: item.file)
    results = sorted(condense(results), key=lambda result: result.header.file)
    with storage.translated_errors("write to", job.output):
        if job.hold is not None:
            job.hold.keep()
        outcome = _outcome(job, saved)
        listed = storage.list_files(job.output)
        if damaged is None:
            outcome["warnings"] = dataset_files.left_behind(
                job.output, lambda: dataset_files.remove_temporary(job.output, listed)
            )
            dataset_files.write_text(job.output, files.OUTCOME_JSON, pretty_json(outcome), job.hold)
            _write_lost(job, saved)
            return outcome
        by_file = {item.file: item for item in saved}
        of_split = {split: [by_file[item.file] for item in items] for split, items in damaged.splits.items()}
        # The features come from another version, but the side files are written by this one.
        version = STATEMENTS_VERSION if damaged.statements_version == STATEMENTS_VERSION else 0
        bare = replace(
            damaged, name=dataset_files.dataset_name(job.output), sidecars={}, statements_version=version
        )
        ledger = _salvaged_ledger(damaged.ledger, of_split)
        dataset = replace(with_shards(bare, results), ledger=ledger)
        dataset_files.check_shards(job.output, dataset, listed)
        dataset, sidecars = with_sidecars(dataset, draw_card_samples(job.output, dataset))
        outcome |= {"fingerprint": dataset.fingerprint, "ledger": dataset.ledger}
        digests = _copy_other_ledgers(job, damaged)
        digests[files.QUARANTINE_JSONL] = _write_quarantine(job, results)
        digests[LOST_JSONL] = _write_lost(job, saved)
        dataset = replace(dataset, files={**dataset.files, **digests})
        facts = {"salvaged": printable(job.dataset), "convert_seconds": 0.0, "reused_shards": 0}
        run = dataset_files.run_document(job.run, job.output, job.started, facts)
        dataset_files.write_commit(job.output, dataset, sidecars, run, outcome, listed, job.hold)
        return outcome


def _outcome(job: SalvageJob, saved: Sequence[SavedShard]) -> dict[str, Any]:
    record_count, lost = sum(item.records for item in saved), sum(len(item.lost) for item in saved)
    codes = Counter(lost.code for item in saved for lost in item.lost)
    if lost and not record_count:
        codes_text = ", ".join(f"{count} {code}" for code, count in codes.most_common(_SHOWN))
        raise DataRefused(
            f"No record of {job.dataset} could be saved ({codes_text}), so nothing was published; "
            "restore its files, or convert the images again."
        )
    return {
        **dataset_files.new_outcome(job.started, job.hold),
        "shards": len(saved),
        "copied_shards": sum(item.copied for item in saved),
        "records": record_count,
        "lost": lost,
        "lost_codes": dict(codes.most_common()),
        "unnamed": sum(lost.key is None for item in saved for lost in item.lost),
        "unexpected": sum(item.unexpected for item in saved),
        "misplaced": sum(item.misplaced for item in saved),
    }


def _salvaged_ledger(ledger: Mapping[str, Any], saved: Mapping[str, Sequence[SavedShard]]) -> dict[str, Any]:
    """Returns the ledger of a dataset with the lost records as quarantined instead of written."""
    splits = {split: Counter(counts) for split, counts in ledger.get("splits", {}).items()}
    reasons = {outcome: Counter(counts) for outcome, counts in ledger.get("reasons", {}).items()}
    for split, items in saved.items():
        counts = splits.setdefault(split, Counter())
        counts[Outcome.WRITTEN.value] = sum(item.records for item in items)
        if lost := sum(len(item.lost) for item in items):
            counts[Outcome.QUARANTINED.value] += lost
            of_faults = reasons.setdefault(Outcome.QUARANTINED.value, Counter())
            of_faults[QuarantineReason.DAMAGED_RECORD.value] += lost
    return ledger_json(splits, reasons)


def _copy_other_ledgers(job: SalvageJob, damaged: Dataset) -> dict[str, str]:
    """Copies the ledgers without a shard (files without a key of their own); returns their digests."""
    digests = {}
    own = set(damaged.ledger_files().values())
    for file in storage.list_files(job.directory):
        if file.startswith(f"{files.SHARDS_DIR}/{NO_SPLIT}-") and file not in own:
            data = storage.read_bytes(storage.join(job.directory, file))
            write_held(job.output, file, data, job.hold)
            digests[file] = hashlib.sha256(data).hexdigest()
    return digests


def _write_quarantine(job: SalvageJob, results: Iterable[ShardResult]) -> str:
    """Writes the old lines of `quarantine.jsonl` and one for each lost record, by key; returns its sha256."""
    every = chain(_old_quarantine(job), quarantined_lines(job.output, ledgers_of(results)))
    with sorted_lines(every, key=lambda line: str(line["key"])) as lines:
        return write_in_parts(job.output, files.QUARANTINE_JSONL, _without_repeats(lines), job.hold)


def _without_repeats(texts: Iterable[bytes]) -> Iterator[bytes]:
    """Removes repeated lines, which occur when the old file and a ledger both describe an image.

    Two lost records without a key stay two lines, even if the lines are equal.
    """
    for key, same in groupby(texts, key=lambda text: json.loads(text)["key"]):
        seen = set[str]()
        for text in same:
            words = json.dumps(json.loads(text), sort_keys=True)
            if words not in seen:
                yield text
            if key:
                seen.add(words)


def _old_quarantine(job: SalvageJob) -> Iterator[dict[str, Any]]:
    """Yields the readable lines with a key of the dataset's own quarantine list."""
    path = storage.join(job.directory, files.QUARANTINE_JSONL)
    with contextlib.suppress(FileNotFoundError), storage.open_local(path) as file:
        for line in file:
            value = json_object(line.decode("utf-8", "replace"))
            if value.get("key") and isinstance(value["key"], str):
                yield value


def _write_lost(job: SalvageJob, saved: Iterable[SavedShard]) -> str:
    lines = (lost._asdict() for item in saved for lost in item.lost)
    return dataset_files.write_text(job.output, LOST_JSONL, dataset_files.json_lines(lines), job.hold)
