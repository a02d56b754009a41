"""Ends a rebuild early if its input and its request are those of the latest version.

It lists the input as any rebuild does, but plans nothing. If anything differs or fails, the graph runs from
its beginning.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from shardwright.core import storage
from shardwright.core.concurrency.progress import PROGRESS
from shardwright.core.plan.request import ConversionRequest
from shardwright.core.rebuild.begin import PreviousState, begin, read_input, touched_files
from shardwright.core.rebuild.compare import Decision, chosen_shards, report_decision, scrub_shard
from shardwright.core.rebuild.finish import finish
from shardwright.core.rebuild.task import RebuildTask
from shardwright.core.sources.file_states import TouchedFiles
from shardwright.core.sources.listing import ListingDigest, add_up, input_parts, list_part
from shardwright.core.sources.source import Context, InputPart
from shardwright.core.sources.spool import Spool
from shardwright.core.sources.unused_settings import without_effect
from shardwright.core.validation.directory import compare_files
from shardwright.core.versions import read_pointer
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.dataset import DATASET_JSON, SHARDS_DIR
from shardwright.schemas.errors import ShardwrightError
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.plan import SplitsFrom
from shardwright.schemas.version import InputState, version_path


def end_if_unchanged(task: RebuildTask, request: ConversionRequest) -> bool:
    """Ends a rebuild as `finish` does if request and input are those of the latest version.

    Args:
      task: The rebuild.
      request: The checked request.

    Returns:
      Whether the rebuild has ended. Otherwise nothing was decided.

    Raises:
      EngineError: If another rebuild is at work, or the storage failed.
    """
    state = _same_request(task)
    if state is None:
        return False
    previous = begin(task)
    dataset = previous.dataset
    if previous.ended or dataset is None or previous.missing:
        return False
    if (previous.version, dataset.fingerprint) != (state.version, state.fingerprint):
        return False
    scrub = partial(scrub_shard, previous=previous, task=task)
    try:
        listed = _list(task, request, touched_files(task, previous))
        if listed is None or listed.text != state.listing:
            return False
        if not _has_sound_ledgers(task, previous, state.planned):
            return False
        scrubbed = tuple(sorted(storage.at_once(scrub, chosen_shards(task, previous))))
    except ShardwrightError:
        return False  # the whole rebuild fails in the same way and says where
    decision = Decision(False, 0, scrubbed=scrubbed, input=state)
    if decision.damaged:
        return False
    facts = replace(request.facts, splits_from=SplitsFrom(state.splits_from))
    PROGRESS.tell(*without_effect(request.given, facts, request.facts))
    PROGRESS.tree = state.tree
    report_decision(task, previous, decision, state)
    finish(task, previous, decision, None)
    return True


def _same_request(task: RebuildTask) -> InputState | None:
    """Returns the input of the latest version; None if it was made by another request."""
    if not task.request or task.rules.verify_sources:
        return None
    try:
        state, (pointer, _) = read_input(task.output), read_pointer(task.output)
    except ShardwrightError:
        return None  # the whole rebuild finds this again and reports it
    if state is None or pointer is None:
        return None
    return state if (state.request, state.version) == (task.request, pointer.version) else None


def _list(task: RebuildTask, request: ConversionRequest, touched: TouchedFiles) -> ListingDigest | None:
    """Returns the digest of the inputs.

    Returns:
      The digest; None if the file of an image was touched, so that its bytes have to be compared.

    Raises:
      ShardwrightError: If an input cannot be listed.
    """
    context = Context(task.settings, Spool(task.directory), request.rules, one_worker=True)

    def digest_of(part: InputPart) -> tuple[ListingDigest, bool]:
        digest, doubt = ListingDigest(), False
        for item in list_part(part, context):
            digest.add(item, context.spool.path)
            doubt = doubt or (isinstance(item, ImageRef) and item.is_candidate and touched.has(item))
        task.hold.renew()
        return digest, doubt

    parts = input_parts(request.inputs, context)
    is_remote = any(storage.is_remote(item.path) for item in request.inputs)
    # Threads that list a disk would only wait for each other.
    listed = storage.at_once(digest_of, parts) if is_remote else [*map(digest_of, parts)]
    return None if any(doubt for _, doubt in listed) else add_up(digest for digest, _ in listed)


def _has_sound_ledgers(task: RebuildTask, previous: PreviousState, planned: int) -> bool:
    """Returns whether all ledgers of the latest version have the sha256 in its `dataset.json`."""
    dataset, directory = previous.dataset, version_path(task.output, previous.version)
    assert dataset is not None
    ledgers = {file: digest for file, digest in dataset.files.items() if file.startswith(f"{SHARDS_DIR}/")}
    if len(ledgers) != planned or not ledgers.keys() >= set(dataset.ledger_files().values()):
        return False
    differences = compare_files(directory, ledgers, FindingCode.LEDGER_MISMATCH, DATASET_JSON, "rebuild")
    return not any(differences)
