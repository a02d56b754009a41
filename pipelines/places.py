"""The places of a command: the dataset or the files that it reads, and the output of a run.

An output is checked before anything is written, and written by one run at a time.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import glob
import os
import re
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from shardwright.core import storage
from shardwright.core.dataset_files import read_dataset
from shardwright.core.lease import HeldLease, Lease, check_free, this_process
from shardwright.core.overwrite import is_being_replaced, repair_swap, staging_path
from shardwright.core.records.compression import read_lazily
from shardwright.core.records.framing import Record
from shardwright.core.records.record_schema import RecordSchema, infer_schema, schema_of_plan
from shardwright.core.storage.faults import FREE_SPACE
from shardwright.core.versions import located, version_names
from shardwright.pipelines import log
from shardwright.pipelines.options import runner_of
from shardwright.pipelines.run import without_resume
from shardwright.schemas import version
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.dataset import DATASET_JSON, INDEX_DIR, SHARDS_DIR, WORK_DIR, WRITER_JSON
from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.plain_text import printable, shell_word
from shardwright.schemas.units import counted

#: Duration of a lease without renewal. Runs renew it after every quarter of this.
LEASE_SECONDS = 1800.0
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
        """The foreign files, sorted: those that match a pattern with `*`, `?` and `[...]`.

        The name of an existing file matches only that file.
        """
        pattern = self.name
        if not storage.is_remote(pattern):
            if os.path.isfile(pattern):
                return [pattern]
            return sorted(path for path in glob.glob(pattern) if os.path.isfile(path))
        with storage.translated_errors("look for", pattern):
            if not glob.has_magic(pattern):
                return [pattern] if storage.exists(pattern) else []
            folder = re.split(r"[*?[]", pattern)[0].rpartition("/")[0]
            slashes = pattern.count("/")
            paths = (item.path for item in storage.list_objects(folder))
            return sorted(p for p in paths if p.count("/") == slashes and fnmatch.fnmatchcase(p, pattern))


def resolve_target(name: str, command: str = "validate") -> Target:
    """Finds out whether a name means a dataset directory or a pattern of TFRecord files.

    Args:
      name: Name as the user wrote it.
      command: Name of the command that reads, for the advice in messages.

    Raises:
      UsageError: If there is neither.
    """
    if not name:
        raise UsageError("--dataset is missing; name a dataset directory or 'dir/*.tfrecord'.")
    storage.require_known("--dataset", name)
    repair_swap(name)
    directory = located(name)
    with storage.translated_errors("look for", directory):
        finished = storage.exists(storage.join(directory, DATASET_JSON))
    if finished:
        return Target(version.version_name(directory) if directory != name else name, directory)
    is_part = re.compile(rf"{WORK_DIR}$|.*\.tfrecord").match
    if os.path.isdir(name) and not any(map(is_part, os.listdir(name))):
        raise UsageError(
            f"--dataset {name} has no dataset.json and no TFRecord files; name the --output of a conversion, "
            f"or make a dataset of the images in it with shardwright convert {shell_word(name)} OUT."
        )
    if os.path.isdir(name) or (storage.is_remote(name) and "*" not in name and storage.list_files(name)):
        raise UsageError(
            f"--dataset {name} has no dataset.json: the run that wrote it did not finish, or it "
            f"is not a Shardwright dataset; finish it with convert --resume, or {command} its files "
            f"with --dataset '{name.rstrip('/')}/*.tfrecord*'."
        )
    target = Target(name, None)
    if not target.files:
        raise UsageError(f"--dataset {name} does not exist; {version.path_advice(name)}.")
    return target


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


def check_output(settings: ConvertSettings, holder: str = "") -> str:
    """Checks the output and returns the directory to build in; writes nothing.

    A replacement is built beside the dataset that it replaces, and `--resume` continues it there.

    Args:
      settings: Checked settings.
      holder: Holder of the output's lease, if this run has it already.

    Raises:
      UsageError: If the output is missing, not a directory, or not empty without --overwrite or --resume.
      EngineError: If the output is not writable, or another run writes there.
    """
    output = settings.output
    if not output:
        raise UsageError("--output is missing; name the dataset directory to write.")
    remote = storage.is_remote(output)
    _check_no_version(output)
    repair_swap(output)
    files = files_of_output(output, holder)
    if holder and is_being_replaced(output):
        raise EngineError(f"{output} is being replaced by another run; run again when that has ended.")
    paths = (file.split("/") for file in files)
    of_versions = (
        path[0] == version.VERSIONS_DIR and version.is_version(path[1]) for path in paths if len(path) > 2
    )
    if version.LATEST_JSON in files or any(of_versions):
        raise UsageError(
            f"--output {output} holds versions, and a conversion there would delete all of "
            "them; make the next one with shardwright rebuild, or choose another place."
        )
    staging = staging_path(output)
    if settings.resume and storage.list_files(staging):
        return staging
    _check_free(files, settings)
    if settings.overwrite and files and not remote:
        _check_replaceable(output, staging)
    return staging if settings.overwrite and files else output


def files_of_output(output: str, holder: str) -> list[str]:
    """Returns the files in an output besides its lease, after a check that this run can write there.

    Args:
      output: Output directory.
      holder: Holder of the output's lease, if this run has it already; else empty.

    Raises:
      UsageError: If the output cannot be a directory.
      EngineError: If the output is not writable, or another run writes there.
    """
    if not storage.is_remote(output):
        check_place(output)
    if storage.knows_conditions(output):
        check_free(output, holder)
    with storage.translated_errors("list", output):
        return [file for file in storage.list_files(output) if not file.startswith(WRITER_JSON)]


def clear_staging(settings: ConvertSettings) -> None:
    """Removes what an abandoned --overwrite left behind, unless this run resumes it. Needs the lease."""
    if not settings.resume:
        staging = staging_path(settings.output)
        with storage.translated_errors("remove", staging):
            storage.remove_tree(staging)


def _check_no_version(output: str) -> None:
    """Checks that an output is not a version, since versions never change, and has no version's name."""
    versions_of = version.split_version(version.version_name(output))[0]
    if versions_of != output:
        raise UsageError(
            f"--output {output} is a version, which only rebuilds write; choose another place, "
            f"or make the next version with shardwright rebuild --output {versions_of}."
        )


def check_versioned_output(output: str) -> None:
    """Checks that an output contains versions, or is empty.

    Beside the lease of another run it writes a probe of the clock; nothing else is written.

    Raises:
      UsageError: If the output is missing, not a directory, or contains only something else.
      EngineError: If the output is not writable, or a conversion or salvage writes there.
    """
    if not output:
        raise UsageError("--output is missing; name the directory that holds the versions of the dataset.")
    _check_no_version(output)
    if not storage.is_remote(output):
        check_place(output)
    with storage.translated_errors("list", output):
        if storage.exists(storage.join(output, DATASET_JSON)):
            raise UsageError(
                f"--output {output} is a dataset made by convert, and rebuild needs a directory of "
                f"versions; choose another place, and reuse its plan with --plan_from {output}."
            )
        files = (
            version.LATEST_JSON,
            version.LEASE_JSON,
            version.INDEX_HTML,
            version.METRICS_PROM,
            version.SCRUB_JSON,
        )
        kept = (*files, f"{WORK_DIR}/", f"{version.VERSIONS_DIR}/")
        top_files = _top_files(output)
        # Versions that cannot be listed end a rebuild here, where its hooks are told.
        if version_names(output):
            return
        if all(file.startswith(kept) for file in top_files):
            if f"{WORK_DIR}/" in top_files and storage.knows_conditions(output):
                check_free(output)  # a conversion may be writing its first shards here
            return
    if any(version.is_version(file.rstrip("/")) for file in top_files):
        above = os.path.dirname(output.rstrip("/")) or "."
        raise UsageError(
            f"--output {output} is the folder of the versions; name the directory above it, {above}."
        )
    raise UsageError(f"--output {output} holds files but no versions; choose another place, or empty it.")


def _top_files(output: str) -> list[str]:
    """Returns the names at the top of an output; names of folders end with a slash."""
    if not storage.is_remote(output):
        entries = os.scandir(output) if os.path.isdir(output) else ()
        return sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries)
    files, folders = storage.list_level(output, sys.maxsize)
    return sorted([*files, *(f"{name}/" for name in folders or ())])


def check_remote_writable(output: str) -> None:
    """Checks that objects in an output can be written and overwritten: writes one, then removes it.

    Raises:
      EngineError: If they cannot.
    """
    probe = storage.join(output, WORK_DIR, "probe")
    with storage.translated_errors("write to", output):
        storage.write_bytes(probe, b"")
        storage.remove(probe)


def _check_free(files: Sequence[str], settings: ConvertSettings) -> None:
    """Checks that the output contains nothing that the dataset would mix with."""
    if not files or settings.overwrite:
        return
    output = settings.output
    ours = tuple(f"{folder}/" for folder in (SHARDS_DIR, WORK_DIR, INDEX_DIR))
    # A run that ended after its first shard left an empty folder (`mark_stopped_run`), in a bucket its lease.
    mark = storage.join(output, WRITER_JSON if storage.is_remote(settings.output) else WORK_DIR)
    unfinished = any(file.startswith(ours) for file in files) or storage.exists(mark)
    if settings.resume and (unfinished or DATASET_JSON in files):
        return
    if settings.resume:
        what = "holds files but no run that could be resumed; choose another place"
    elif DATASET_JSON in files:
        what = "holds a dataset; choose another place, or replace it with --overwrite"
    elif unfinished:
        what = "holds an unfinished run; finish it with --resume, or start again with --overwrite"
    else:
        what = "is not empty; choose another place, or replace its content with --overwrite"
    raise UsageError(f"--output {output} {what}.")


def check_place(output: str) -> None:
    """Checks that a local output is a writable directory, or can be created."""
    try:
        os.lstat(output)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise UsageError(f"--output {output}: the name is too long; choose a shorter one.") from None
    if os.path.islink(output) and not os.path.exists(output):
        raise UsageError(f"--output {output} is a broken symbolic link; name a directory.")
    if os.path.lexists(output) and not os.path.isdir(output):
        raise UsageError(f"--output {output} is a file; name a directory.")
    existing = nearest_existing(output)
    if not os.path.isdir(existing):
        raise UsageError(f"--output {output}: {existing} is a file.")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise EngineError(
            f"Cannot write to {existing}: permission denied; choose another --output or "
            "change its permissions."
        )


def _check_replaceable(output: str, staging: str) -> None:
    """Checks that renames can swap a directory for another."""
    real = os.path.realpath(output)
    if os.path.ismount(real):
        raise UsageError(
            f"--output {output} is the root of a file system, which --overwrite cannot replace; "
            "name a directory inside it."
        )
    if os.path.commonpath((real, os.getcwd())) == real:
        raise UsageError(
            f"--output {output} is the current directory, and --overwrite would replace it; run "
            "from another directory."
        )
    check_place(staging)


def mark_stopped_run(directory: str, existed: str, error: BaseException) -> None:
    """Keeps a folder for work files if a stopped run wrote something; `--resume` knows the run by it.

    Otherwise it removes the empty directories of the run. The message of a full disk says what the run left.

    Args:
      directory: Directory of the dataset that was being built.
      existed: `nearest_existing` of the output before the run.
      error: Error that stopped the run.
    """
    if storage.is_remote(directory):
        return
    with contextlib.suppress(OSError):  # the error that stopped the run is reported
        files = storage.list_files(directory)
        if files:
            storage.make_dirs(storage.join(directory, WORK_DIR))
        elif os.path.abspath(directory) != existed:
            storage.remove_tree(directory)
            remove_empty_folders(directory, existed)
        if not isinstance(error, EngineError) or FREE_SPACE not in error.message:
            return
        shards = sum(file.startswith(f"{SHARDS_DIR}/") for file in files)
        if not files:
            error.message = without_resume(error.message)
        elif shards:
            kept = f"the {counted(shards, 'finished shard')} in {printable(directory)}"
            error.message = f"{error.message.removesuffix('.')}, which keeps {kept}."


def nearest_existing(path: str) -> str:
    """Returns a path if it exists, or else the nearest parent that exists."""
    path = os.path.abspath(path)
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def remove_empty_folders(folder: str, existed: str) -> None:
    """Removes a folder and those above it, up to one that existed before the run, as long as they are empty.

    Args:
      folder: The innermost folder.
      existed: `nearest_existing` of the output before the run.
    """
    folder = os.path.abspath(folder)
    is_below = os.path.commonpath((folder, existed)) == existed
    with contextlib.suppress(OSError):  # usually they are not empty
        while is_below and folder != existed:
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(folder)
            folder = os.path.dirname(folder)


def check_result_place(option: str, path: str) -> None:
    """Checks that a file can be written, without writing it.

    Args:
      option: Option that names the file, or could name another.
      path: Path of the file; empty if no file is written.

    Raises:
      UsageError: If the storage is unknown, or the path cannot be a file.
      EngineError: If the path is not writable.
    """
    storage.require_known(option, path)
    remote = storage.is_remote(path)
    is_bucket = remote and "/" not in path.partition("://")[2]
    if path.endswith("/") or is_bucket or os.path.isdir(path):
        raise UsageError(f"{option} {path} is a directory; name a file in it.")
    if not path or remote:
        return
    if os.path.exists(path) and not os.path.isfile(path):  # a rename would replace a device by a file
        raise UsageError(f"{option} {path} is a device or a pipe; name a file.")
    folder = nearest_existing(os.path.dirname(os.path.abspath(path)))
    if not os.path.isdir(folder):
        raise UsageError(f"{option} {path}: {folder} is not a directory; choose another place.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise EngineError(
            f"Cannot write {path}: {folder} is not writable; choose another place with {option}."
        )


def launcher_of(beam_options: Any) -> tuple[str, int, str]:
    """Returns host, pid and start time of the process that the job ends with, if there is one."""
    ends_with_this = runner_of(beam_options) in ("fnapi", "inprocess", "direct", "switchingdirect", "prism")
    return this_process() if ends_with_this else ("", 0, "")


@contextlib.contextmanager
def one_writer(output: str, beam_options: Any, described: bool) -> Iterator[HeldLease | None]:
    """Holds the lease of an output while the block runs.

    Args:
      output: Output directory.
      beam_options: Beam's options, which decide whether the job ends with this process.
      described: Whether the job is only described; it then takes the lease itself when it runs.

    Yields:
      The lease; None on storages without conditional requests, which cannot hold a lease.

    Raises:
      EngineError: If another run has the lease, or the storage failed.
    """
    if not storage.knows_conditions(output):
        yield None
        return
    lease = Lease(uuid.uuid4().hex, "", *launcher_of(beam_options), seconds=LEASE_SECONDS)
    hold = HeldLease(output, lease, WRITER_JSON)
    if described:
        yield hold
        return
    existed = nearest_existing(output)
    with storage.translated_errors("write to", output):
        storage.make_dirs(storage.join(output, WORK_DIR))
    try:
        hold.acquire()
    except storage.NoConditions:
        log.info(
            f"the storage of {printable(output)} does not support conditional requests; make sure that no "
            "other run writes there."
        )
        yield None
        return
    continues = False
    try:
        with hold.heartbeat():
            yield hold
    except KeyboardInterrupt:
        continues = not lease.pid
        raise
    finally:
        if not continues:
            hold.release()
            if not storage.is_remote(output):
                remove_empty_folders(storage.join(output, WORK_DIR), existed)
