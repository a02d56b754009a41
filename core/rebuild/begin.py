"""The first step of a rebuild: takes the lease, finds the version to continue, and cleans up."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from shardwright.core import storage, versions
from shardwright.core.dataset_files import missing_shards, read_dataset
from shardwright.core.rebuild.task import OUTCOMES_DIR, RebuildTask, read_document, read_outcome, stage
from shardwright.core.sources.file_states import TouchedFiles
from shardwright.core.sources.spool import Spool
from shardwright.schemas.dataset import DATASET_JSON, WORK_DIR, Dataset
from shardwright.schemas.errors import EngineError, ShardwrightError, UsageError
from shardwright.schemas.plain_text import printable, shell_word
from shardwright.schemas.version import (
    CHECKS_DIR,
    INPUT_JSON,
    VERSION_JSON,
    VERSIONS_DIR,
    InputState,
    VersionRecord,
    VersionState,
    version_path,
)

#: Number of unfinished versions, newest first, whose finished shards are reused.
MAX_ABANDONED = 3

#: Function that gets a warning.
Warn = Callable[[str], object]


class PreviousState(NamedTuple):
    """State of the output when a rebuild begins.

    Attributes:
      version: Version that the pointer names. Empty if there is none.
      tag: Tag of the pointer's state. None if there is no pointer.
      dataset: Dataset that the pointer names. None if there is none.
      missing: Shards and indexes of that dataset whose files are missing.
      offering: Directories of builds whose finished shards can be reused, this run's first, each with the
        start of its run in seconds since the epoch.
      abandoned: Versions that no run works on any more. They are removed.
      rolled_back: Fingerprints and descriptions of versions that were, or may have been, rolled back.
      damaged: One sentence for each version that is skipped because its `version.json` is damaged.
      checked: Time at which the input was as that version states, in seconds since the epoch. Infinity if
        that is unknown.
      ended: Whether the gates judged the version in an earlier attempt, so that nothing is built any more.
    """

    version: str = ""
    tag: str | None = None
    dataset: Dataset | None = None
    missing: frozenset[str] = frozenset()
    offering: tuple[tuple[str, float], ...] = ()
    abandoned: tuple[str, ...] = ()
    rolled_back: tuple[tuple[str, str], ...] = ()
    damaged: tuple[str, ...] = ()
    checked: float = math.inf
    ended: bool = False


def begin(task: RebuildTask) -> PreviousState:
    """Takes the lease and reads the state of the output.

    An engine may run this step again. In the middle of the work, finished shards count. After the gates have
    judged the version, the version stays as it is. After the end there is nothing to do.

    Raises:
      EngineError: If another rebuild is at work, or has overtaken this one.
      UsageError: If the latest version is unknown, or cannot be read.
    """
    if read_outcome(task) is not None:
        return PreviousState(ended=True)
    task.hold.acquire(task.wait_seconds, lambda holder: stage(task, "waiting", holder))
    with storage.translated_errors("read and write the versions in", task.output):
        pointer, tag = versions.read_pointer(task.output)
        records = versions.list_versions(task.output)
        others = [record for record in records if record.version != task.version]
        latest = pointer.version if pointer else ""
        published = [item for item in others if item.state is VersionState.PUBLISHED and not item.is_unseen]
        if pointer is None and published:
            task.hold.release()
            newest = published[-1].version
            raise UsageError(
                f"{task.output}/latest.json is missing, although version {newest} was "
                "published; name the version in use with shardwright rollback "
                f"{shell_word(task.output)} {newest}, then run again."
            )
        if is_overtaken(task, records) or any(record.version > task.version for record in others):
            task.hold.release()
            raise EngineError(
                f"Another rebuild of {task.output} began version {records[-1].version} meanwhile; run again."
            )
        own = next((record for record in records if record.version == task.version), None)
        if own is not None:
            versions.require_undamaged(own)
        if own is not None and own.state is not VersionState.BUILDING:
            # If another run has moved the pointer since then, its choice stays.
            return PreviousState(own.previous, tag if latest == own.previous else None, ended=True)
        if not _write_building(task, latest):
            raise EngineError(f"Version {task.version} was made by another worker meanwhile; run again.")
        abandoned = [record.version for record in others if is_abandoned(record, latest)]
        # Each failed run leaves a version behind; only a run that ends properly removes them.
        warn = partial(stage, task, "warning")
        for version in abandoned[:-MAX_ABANDONED]:
            with warned(warn, f"Version {version} could not be removed"):
                versions.remove_version(task.output, version)
        with warned(warn, f"The files of killed runs in {printable(task.output)} could not be removed"):
            remove_leftovers(task.output, task.version)
        others = [record for record in others if record.version not in abandoned[:-MAX_ABANDONED]]
    dataset, missing = _latest(task.output, latest)
    state = read_input(task.output)
    checked = next((record.created for record in others if record.version == latest), math.inf)
    if state is not None and state.version == latest:
        checked = state.checked
    for record in others:
        if pointer and record.version == latest and record.is_unseen:
            # Its run was interrupted before it could.
            versions.mark_published(task.output, record, pointer.published)
    # Refused and interrupted builds since the latest version. This run's own comes first: after the loss of a
    # worker, shards that exist are requested again.
    sound = [record for record in others if record.state is not VersionState.DAMAGED]
    since = [(record.version, record.created) for record in reversed(sound) if record.version > latest]
    builds = [(task.version, task.started), *since]
    offering = [(version_path(task.output, version), started) for version, started in builds]
    return PreviousState(
        version=latest,
        tag=tag,
        dataset=dataset,
        missing=missing,
        offering=tuple(offering),
        abandoned=tuple(abandoned[-MAX_ABANDONED:]),
        rolled_back=tuple(_rolled_back(task.output, others, latest)),
        damaged=tuple(record.problem for record in others if record.problem),
        checked=checked,
    )


def _rolled_back(output: str, others: list[VersionRecord], latest: str) -> Iterator[tuple[str, str]]:
    """Yields the fingerprints and descriptions of versions that were, or may have been, rolled back."""
    for record in others:
        if record.state is VersionState.WITHDRAWN and record.fingerprint:
            yield record.fingerprint, f"version {record.version}, which was rolled back"
        if record.state is VersionState.DAMAGED and record.version > latest:
            description = "has a damaged version.json, so nobody knows if it was rolled back"
            with contextlib.suppress(ShardwrightError, OSError):
                fingerprint = read_dataset(version_path(output, record.version)).fingerprint
                yield fingerprint, f"version {record.version}, which {description}"


def read_input(output: str) -> InputState | None:
    """Returns the stored state of the input; None if there is none, or if it cannot be used."""
    return read_document(output, INPUT_JSON, InputState)


def is_overtaken(task: RebuildTask, records: Sequence[VersionRecord]) -> bool:
    """Returns whether another run made this version, or a newer one, before this run began.

    A version without a record is what this run left when it could not write the record.
    """
    own = [record.holder in ("", task.holder) for record in records if record.version == task.version]
    return own == [False] or (not own and any(record.version > task.version for record in records))


def is_abandoned(record: VersionRecord, latest: str) -> bool:
    """Returns whether a version, other than this run's own, belongs to an interrupted run."""
    return record.version != latest and (record.state is VersionState.BUILDING or record.is_unseen)


def _latest(output: str, version: str) -> tuple[Dataset | None, frozenset[str]]:
    """Returns the dataset that the pointer names, and which of its shards and indexes are missing."""
    if not version:
        return None, frozenset()
    directory = version_path(output, version)
    path = storage.join(directory, DATASET_JSON)
    data = storage.read_if_exists(path)
    if data is None:
        raise UsageError(
            f"{output}/latest.json names version {version}, which has no dataset.json; go "
            f"back to another one with shardwright rollback {shell_word(output)}."
        )
    dataset = Dataset.from_bytes(data, path)
    with storage.translated_errors("list", directory):
        return dataset, frozenset(missing_shards(dataset, storage.list_files(directory), with_indexes=True))


def _write_building(task: RebuildTask, previous: str) -> bool:
    """Marks the new directory as a build before it gets any other file; returns whether it could.

    It never overwrites the verdict of the gates there, even if this worker was thought dead.
    """
    record = VersionRecord(
        task.version, VersionState.BUILDING, task.started, previous=previous, holder=task.holder
    )
    path = storage.join(task.directory, VERSION_JSON)
    stored = storage.read_with_etag(path)
    if versions.read_version_record(task.output, task.version).state is not VersionState.BUILDING:
        return False
    if storage.write_if_match(path, record.dumps().encode(), stored[1] if stored else None):
        return True
    # Another attempt may have written it.
    return versions.read_version_record(task.output, task.version).state is VersionState.BUILDING


def touched_files(task: RebuildTask, previous: PreviousState) -> TouchedFiles:
    """Returns the files of the input whose states do not prove that they are as the latest version states."""
    return TouchedFiles(previous.checked, Spool(task.directory).path)


@contextlib.contextmanager
def warned(warn: Warn, what: str) -> Iterator[None]:
    """Turns a storage error in the block into a warning.

    Args:
      warn: Function that gets the warning.
      what: What failed, as the beginning of a sentence.
    """
    try:
        yield
    except (OSError, ShardwrightError) as error:
        reason = error.message if isinstance(error, ShardwrightError) else error.strerror or str(error)
        warn(f"{what}: {reason.rstrip('.')}; the next run tries again.")


def remove_leftovers(output: str, version_at_work: str) -> None:
    """Removes the unfinished files that killed runs left beside the versions.

    Only local disks have them: an object in a bucket appears whole or not at all. One of them may belong to a
    process that is writing now. That process then writes its file again (`storage.write_bytes`).

    Args:
      output: Directory that contains the versions.
      version_at_work: Version that is being built. Its workers may still write.

    Raises:
      OSError: If the storage failed.
    """
    if storage.is_remote(output):
        return
    folders = [output, *(storage.join(output, name) for name in (VERSIONS_DIR, OUTCOMES_DIR))]
    for version in versions.version_names(output):
        directory = version_path(output, version)
        work = [storage.join(directory, name) for name in (WORK_DIR, CHECKS_DIR)]
        folders += [directory, *(work if version != version_at_work else ())]
    for folder in folders:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for entry in list(os.scandir(folder)):
                if entry.is_file(follow_symlinks=False) and storage.is_temporary(entry.name):
                    storage.remove(entry.path)
