"""Writes the files of a dataset beside its shards, and results to the paths that the user gave.

`dataset.json` is the commit, so it is written last.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from shardwright.core import storage
from shardwright.core.lease import HeldLease, write_held
from shardwright.core.sources.spool import Spool
from shardwright.schemas import __version__, dataset
from shardwright.schemas.codes import ExitCode
from shardwright.schemas.dataset import Dataset, pretty_json, with_digest
from shardwright.schemas.errors import EngineError
from shardwright.schemas.findings import ValidationReport
from shardwright.schemas.json_values import json_object
from shardwright.schemas.plain_text import printable
from shardwright.schemas.units import counted, is_or_are
from shardwright.schemas.version import split_version, version_name


def dataset_name(output: str) -> str:
    """Returns the name of a dataset: that of its directory, or of the directory with its versions."""
    path = output if storage.is_remote(output) else os.path.abspath(output)
    path, _ = split_version(version_name(path))
    return printable(path.rstrip("/").rpartition("/")[2]) or "dataset"


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """Returns a unique short name -> path, in order.

    The names are the names of the files, or with the folders in which they differ if two have one name.
    """
    names = {path.rpartition("/")[2]: path for path in paths}
    if len(names) < len(paths):
        split = [path.split("/") for path in paths]
        shared = len(list(takewhile(lambda parts: len(set(parts)) == 1, zip(*split))))
        names = {"/".join(parts[shared:]): path for parts, path in zip(split, paths)}
    return names


def utc(seconds: float) -> str:
    """Returns a time in the format of `run.json`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def read_dataset(directory: str) -> Dataset:
    """Reads a dataset's `dataset.json`.

    Raises:
      UsageError: If it is not a readable document.
      EngineError: If it does not exist any more, or the storage failed.
    """
    path = storage.join(directory, dataset.DATASET_JSON)
    with storage.translated_errors("read", path):
        try:
            return Dataset.from_bytes(storage.read_bytes(path), path)
        except FileNotFoundError:  # it existed when the command began
            raise storage.changed(path) from None


def read_measured(directory: str, file: str, fingerprint: str) -> Mapping[str, Any] | None:
    """Reads the `findings.json` or `statistics.json` of a dataset.

    Args:
      directory: The dataset directory.
      file: Name of the file.
      fingerprint: Fingerprint of the dataset.

    Returns:
      The document. None if there is no document, or if it describes another build.

    Raises:
      ValueError: If the document is damaged.
      EngineError: If the storage failed.
    """
    data = storage.read_if_exists(storage.join(directory, file))
    if data is None:
        return None
    try:
        document = json.loads(data)
    except RecursionError as error:
        raise ValueError(str(error)) from error
    if not isinstance(document, Mapping):
        raise ValueError(f"{file} is not a JSON object")
    return document if document.get("fingerprint") == fingerprint else None


def read_findings(directory: str, fingerprint: str) -> ValidationReport | None:
    """Reads the `findings.json` of a dataset; None if there is none, or if it describes another build.

    Raises:
      ValueError: If it is damaged, or has words of a later version.
      EngineError: If the storage failed.
    """
    document = read_measured(directory, dataset.FINDINGS_JSON, fingerprint)
    try:
        return None if document is None else ValidationReport.from_json(document)
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{dataset.FINDINGS_JSON} is damaged: {error!r}") from error


def stored_document(directory: str, name: str) -> dict[str, Any]:
    """Returns a JSON document of a dataset; empty if it is missing or damaged.

    Raises:
      EngineError: If the storage failed.
    """
    return json_object(storage.read_if_exists(storage.join(directory, name)) or b"")


def own_outcome(directory: str, hold: HeldLease | None) -> dict[str, Any]:
    """Returns the outcome that the holder of a lease has stored, since an engine may run any step again.

    Args:
      directory: The dataset directory.
      hold: Lease of the run. None if it needs no lease, so that its outcomes look like those of others.

    Returns:
      The outcome; empty if the run has stored none.

    Raises:
      EngineError: If the storage failed.
    """
    outcome = stored_document(directory, dataset.OUTCOME_JSON)
    return outcome if hold is not None and outcome.get("holder") == hold.holder else {}


def new_outcome(started: float, hold: HeldLease | None) -> dict[str, Any]:
    """Returns the outcome of a run that succeeds, without its results."""
    holder = hold.holder if hold is not None else ""
    return {"run": started, "holder": holder, "exit_code": int(ExitCode.DONE), "message": ""}


def run_document(
    run: Mapping[str, Any], output: str, started: float, facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the contents of `run.json` for a run that ends now.

    Args:
      run: What is known since its start (command, runner).
      output: Its output.
      started: Its start, in seconds since the epoch.
      facts: Other facts about it.
    """
    finished = time.time()
    return {
        **run,
        "output": printable(output),
        "started": utc(started),
        "finished": utc(finished),
        "seconds": round(finished - started, 3),
        **facts,
        "machine": {
            "host": platform.node(),
            "system": platform.platform(),
            "processor": platform.machine(),
            "cpus": os.cpu_count(),
            "python": sys.version.split()[0],
            "shardwright": __version__,
        },
    }


def write_text(directory: str, name: str, text: str, hold: HeldLease | None = None) -> str:
    """Writes a file of a dataset while holding the lease `hold`, if given; returns the file's sha256."""
    data = text.encode()
    write_held(directory, name, data, hold)
    return hashlib.sha256(data).hexdigest()


def json_lines(lines: Iterable[Mapping[str, Any]]) -> str:
    """Returns the text of a file with one JSON document on each line."""
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def missing_shards(described: Dataset, listed: Iterable[str], with_indexes: bool = False) -> list[str]:
    """Returns the shards of a dataset that are not in its directory.

    Args:
      described: The dataset.
      listed: Files in the directory.
      with_indexes: Whether to return missing indexes too.
    """
    present = set(listed)
    files = [shard.file for shard in described.shards]
    if with_indexes:
        files += described.index_files().values()
    return [file for file in files if file not in present]


def check_shards(directory: str, described: Dataset, listed: Iterable[str]) -> None:
    """Checks that every shard to publish is in its directory.

    Args:
      directory: Directory in which the shards should be.
      described: The dataset.
      listed: Files in the directory.

    Raises:
      EngineError: If a shard is missing.
    """
    missing = missing_shards(described, listed)
    if missing:
        raise EngineError(
            f"{counted(len(missing), 'shard')} {is_or_are(len(missing))} missing in {directory}, the first "
            f"one is {missing[0]}: nothing was published; run again with --resume."
        )


def write_commit(
    directory: str,
    described: Dataset,
    sidecars: Mapping[str, bytes],
    run: Mapping[str, Any],
    outcome: dict[str, Any],
    listed: Iterable[str],
    hold: HeldLease | None,
) -> None:
    """Writes the files that were not written with the shards, and commits the dataset.

    If work files cannot be removed, the dataset is still published, and its outcome gets warnings.

    Args:
      directory: Directory that contains the shards.
      described: The dataset, with its sidecars and the digests of the files written before.
      sidecars: Mapping of file name to content.
      run: Contents of `run.json`.
      outcome: Contents of `_work/outcome.json`. Warnings are added to it.
      listed: Files that were in the directory before.
      hold: Lease that the run must hold for each write. None if it needs no lease.

    Raises:
      EngineError: If the lease was lost.
    """
    for name, content in sidecars.items():
        write_held(directory, name, content, hold)
    write_text(directory, dataset.RUN_JSON, pretty_json(with_digest(run)), hold)
    outcome["warnings"] = [
        *outcome.get("warnings", ()),
        *left_behind(directory, lambda: remove_temporary(directory, listed)),
        *left_behind(Spool(directory).path, Spool(directory).remove),
    ]
    write_text(directory, dataset.OUTCOME_JSON, pretty_json(with_digest(outcome)), hold)
    write_text(directory, dataset.DATASET_JSON, pretty_json(described.as_json()), hold)


def remove_temporary(directory: str, listed: Iterable[str]) -> None:
    """Removes the unfinished files of killed workers from the listed files."""
    for file in listed:
        if storage.is_temporary(file):
            storage.remove(storage.join(directory, file))


def remove_work_leftovers(directory: str) -> list[str]:
    """Removes the unfinished files of killed workers before a run begins; returns a warning if that fails.

    Hold the lease when you call this. In a bucket an object appears whole or not at all, so it does nothing.
    """
    if storage.is_remote(directory):
        return []
    return left_behind(directory, lambda: remove_temporary(directory, storage.list_files(directory)))


def left_behind(place: str, clean_up: Callable[[], None]) -> list[str]:
    """Cleans up after finished work; returns a warning if that fails, else nothing.

    Args:
      place: Path that is cleaned up.
      clean_up: Function that cleans up.
    """
    try:
        with storage.translated_errors("clean up", place):
            clean_up()
    except EngineError as error:
        return [f"Some work files are left and can be removed by hand: {error.message}"]
    return []


def remove_unfinished(results: Iterable[str]) -> None:
    """Tries to remove the files that killed commands left beside result files.

    Only local disks have them: an object in a bucket appears whole or not at all. One of them may belong to a
    process that is writing now. That process then writes its file again (`storage.write_bytes`).

    Args:
      results: Paths of result files. The files need not exist.
    """
    for result in results:
        if not result or storage.is_remote(result):
            continue
        with contextlib.suppress(OSError):
            for path in filter(storage.is_temporary, glob.glob(f"{glob.escape(result)}.*")):
                os.unlink(path)


def write_result(
    path: str, data: bytes, option: str, what: str = "report", hold: HeldLease | None = None
) -> None:
    """Writes a result file.

    Args:
      path: Path of the file.
      data: Contents of the file.
      option: Option that sets the path, for the advice in the error message.
      what: Word for the file in the error message.
      hold: Lease that the run must hold. None if it needs no lease.

    Raises:
      EngineError: If the file cannot be written.
    """
    try:
        write_held(*os.path.split(path), data, hold)
    except OSError as error:
        raise EngineError(
            f"Cannot write the {what} to {path}: {(error.strerror or str(error)).lower()}; "
            f"choose another place with {option}."
        ) from error
