"""Writes the files of a dataset that stand beside its shards; `dataset.json` last, for it is the commit."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

from shardwright.schemas import __version__, dataset
from shardwright.schemas.dataset import Dataset, pretty_json
from shardwright.schemas.errors import EngineError
from shardwright.schemas.image_ref import printable
from shardwright.schemas.plan import index_file, is_compressed
from shardwright.schemas.units import counted, is_or_are
from shardwright.transforms import storage
from shardwright.transforms.sources.spool import Spool


def dataset_name(output: str) -> str:
    """Returns the name of the dataset in a directory: that of the directory."""
    path = output if storage.is_remote(output) else os.path.abspath(output)
    return printable(path.rstrip("/").rpartition("/")[2]) or "dataset"


def machine_facts() -> dict[str, Any]:
    """Returns what `run.json` says of this machine."""
    return {
        "host": platform.node(),
        "system": platform.platform(),
        "processor": platform.machine(),
        "cpus": os.cpu_count(),
        "python": sys.version.split()[0],
        "shardwright": __version__,
    }


def utc(seconds: float) -> str:
    """Returns a time as `run.json` writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def read_dataset(directory: str) -> Dataset:
    """Reads a dataset's `dataset.json`.

    Raises:
      UsageError: if it is no readable document.
      EngineError: if it is there no more, or the storage failed.
    """
    path = storage.join(directory, dataset.DATASET_JSON)
    with storage.faults("read", path):
        try:
            return Dataset.from_bytes(storage.read_bytes(path), path)
        except FileNotFoundError:  # it was there when the command began
            raise storage.changed(path) from None


def stored_names(file: str) -> tuple[str, ...]:
    """Returns the names under which a file of a dataset may be stored, the current name first."""
    return (file, dataset.OLD_FINDINGS_JSON) if file == dataset.FINDINGS_JSON else (file,)


def remove_old_findings(directory: str) -> None:
    """Removes the findings that version 0.1 stored as `validation.json`, which `validation*` matches.

    Call this after the new file was written. Somebody else's file of that name stays.
    """
    path = storage.join(directory, dataset.OLD_FINDINGS_JSON)
    with contextlib.suppress(OSError, EngineError, ValueError, RecursionError):
        document = json.loads(storage.read_bytes(path))
        if isinstance(document, Mapping) and {"mode", "counts", "findings"} <= document.keys():
            storage.remove(path)


def read_measured(directory: str, file: str, fingerprint: str) -> Mapping[str, Any] | None:
    """Reads the `findings.json` or `statistics.json` of a dataset.

    Args:
      directory: of the dataset.
      file: which of them. Findings are also read from the file that version 0.1 wrote.
      fingerprint: of the dataset.

    Returns:
      The document; None if there is none, or it is about another build.

    Raises:
      ValueError: if it is damaged.
      EngineError: if the storage failed.
    """
    for name in stored_names(file):
        path = storage.join(directory, name)
        with storage.faults("read", path):
            try:
                document = json.loads(storage.read_bytes(path))
            except FileNotFoundError:
                continue
            except RecursionError as error:
                raise ValueError(str(error)) from error
        if not isinstance(document, Mapping):
            raise ValueError(f"{name} is not a JSON object")
        return document if dataset.is_about(document, fingerprint) else None
    return None


def write_text(directory: str, name: str, text: str) -> None:
    """Writes a file of a dataset."""
    storage.write_bytes(storage.join(directory, name), text.encode())


def write_lines(directory: str, name: str, lines: Iterable[Mapping[str, Any]]) -> None:
    """Writes a file of a dataset with a JSON document on each line."""
    write_text(directory, name, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def missing_shards(directory: str, made: Dataset, with_indexes: bool = False) -> list[str]:
    """Returns the shards of a dataset that are not in a directory, and likewise their indexes if asked to."""
    present = set(storage.list_files(directory))
    files = [shard.file for shards in made.splits.values() for shard in shards]
    if with_indexes:
        files += [
            index_file(split, number, len(shards))
            for split, shards in made.splits.items()
            for number, shard in enumerate(shards)
            if shard.records and not is_compressed(shard.file)
        ]
    return [file for file in files if file not in present]


def check_shards(directory: str, made: Dataset) -> None:
    """Checks that every shard to be published is where it was written.

    Raises:
      EngineError: if one is not.
    """
    missing = missing_shards(directory, made)
    if missing:
        raise EngineError(
            f"{counted(len(missing), 'shard')} {is_or_are(len(missing))} missing in {printable(directory)}, "
            f"the first one is {missing[0]}: "
            "nothing was published; run again with --resume."
        )


def publish_files(
    directory: str,
    made: Dataset,
    sidecars: Mapping[str, bytes],
    run: Mapping[str, Any],
    outcome: Mapping[str, Any],
) -> None:
    """Writes all that was not written with the shards, and makes them a dataset.

    Args:
      directory: where the shards are.
      made: what they make, with its sidecars.
      sidecars: file name -> content.
      run: what `run.json` says.
      outcome: what `_work/outcome.json` says.
    """
    for name, content in sidecars.items():
        storage.write_bytes(storage.join(directory, name), content)
    write_text(directory, dataset.RUN_JSON, pretty_json(run))
    write_text(directory, dataset.OUTCOME_JSON, pretty_json(outcome))
    remove_temporary(directory)
    Spool(directory).remove()
    write_text(directory, dataset.DATASET_JSON, pretty_json(made.as_json()))


def remove_temporary(directory: str) -> None:
    """Removes the unfinished files that killed workers left."""
    for file in storage.list_files(directory):
        if storage.is_temporary(file):
            storage.remove(storage.join(directory, file))
