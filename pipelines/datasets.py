"""The input of commands that read: a dataset directory, or TFRecord files of unknown origin."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from dataclasses import dataclass
from itertools import islice

from shardwright.core import storage
from shardwright.core.dataset_files import read_dataset
from shardwright.core.overwrite import repair_swap
from shardwright.core.records.compression import read_lazily
from shardwright.core.records.framing import Record
from shardwright.core.records.record_schema import RecordSchema, infer_schema, schema_of_plan
from shardwright.core.versions import located
from shardwright.schemas.dataset import DATASET_JSON, WORK_DIR
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import printable
from shardwright.schemas.plain_text import shell_word
from shardwright.schemas.version import path_advice, version_name

_RECORDS_TO_INFER_FROM = 64


@dataclass(frozen=True)
class Target:
    """A dataset directory, or TFRecord files of unknown origin.

    Attributes:
      name: Name as the user wrote it, the pattern of foreign files; for a dataset with versions, the version
        at the start of the command.
      directory: Dataset directory; None for foreign files.
    """

    name: str
    directory: str | None

    @property
    def files(self) -> list[str]:
        """The foreign files, sorted."""
        return foreign_files(self.name)


def resolve_target(name: str, command: str = "validate") -> Target:
    """Finds out whether a name means a dataset directory or a pattern of TFRecord files.

    Args:
      name: Name as the user wrote it.
      command: Name of the command that reads, for the advice in messages.

    Raises:
      UsageError: There is neither.
    """
    if not name:
        raise UsageError("--dataset is missing; name a dataset directory or 'dir/*.tfrecord'.")
    shown = printable(name)
    storage.require_known("--dataset", name)
    repair_swap(name)
    directory = located(name)
    with storage.translated_errors("look for", directory):
        finished = storage.exists(storage.join(directory, DATASET_JSON))
    if finished:
        return Target(version_name(directory) if directory != name else name, directory)
    is_part = re.compile(rf"{WORK_DIR}$|.*\.tfrecord").match
    if os.path.isdir(name) and not any(map(is_part, os.listdir(name))):
        raise UsageError(
            f"--dataset {shown} has no dataset.json and no TFRecord files; name the --output of a "
            "conversion, or make a dataset of the images in it with "
            f"shardwright convert {shell_word(name)} OUT."
        )
    if os.path.isdir(name) or (storage.is_remote(name) and "*" not in name and storage.list_files(name)):
        raise UsageError(
            f"--dataset {shown} has no dataset.json: the run that wrote it did not finish, or it "
            f"is not a Shardwright dataset; finish it with convert --resume, or {command} its files "
            f"with --dataset '{shown.rstrip('/')}/*.tfrecord*'."
        )
    if not foreign_files(name):
        raise UsageError(f"--dataset {shown} does not exist; {path_advice(name)}.")
    return Target(name, None)


def foreign_files(pattern: str) -> list[str]:
    """Returns the files that match a pattern, sorted; the name of an existing file matches only that file."""
    if storage.is_remote(pattern):
        return _foreign_objects(pattern)
    if os.path.isfile(pattern):
        return [pattern]
    return sorted(path for path in glob.glob(pattern) if os.path.isfile(path))


def _foreign_objects(pattern: str) -> list[str]:
    """Returns the objects that match a pattern with `*`, `?` and `[...]`."""
    with storage.translated_errors("look for", pattern):
        if not glob.has_magic(pattern):
            return [pattern] if storage.exists(pattern) else []
        folder = pattern[: re.search(r"[*?[]", pattern).start()].rpartition("/")[0]  # type: ignore[union-attr]
        slashes = pattern.count("/")
        paths = (item.path for item in storage.list_objects(folder))
        return sorted(p for p in paths if p.count("/") == slashes and fnmatch.fnmatchcase(p, pattern))


def schema_of(target: Target) -> RecordSchema:
    """Returns the schema of the records, from `dataset.json` or inferred from the first records."""
    if target.directory is not None:
        dataset = read_dataset(target.directory)
        return schema_of_plan(dataset.features, dataset.first_label, dataset.plan)
    for path in target.files:
        sound = (item.data for item in read_lazily(path) if isinstance(item, Record))
        records = list(islice(sound, _RECORDS_TO_INFER_FROM))
        if records:
            return infer_schema(records)
    return RecordSchema(())
