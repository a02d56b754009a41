"""Ends a rebuild early if its input and its request are those of the latest version. Does not need Beam.

It lists the input as any rebuild does, but plans nothing. If anything differs, or might differ, it leaves the
decision to the whole rebuild.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from shardwright.schemas.dataset import SHARDS_DIR, Dataset
from shardwright.schemas.errors import ShardwrightError
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.input_state import InputState
from shardwright.schemas.labels import ClassId
from shardwright.schemas.plan import ledger_file
from shardwright.schemas.version import version_path
from shardwright.transforms import storage
from shardwright.transforms.concurrency.progress import PROGRESS
from shardwright.transforms.concurrency.workers import usable_cpus
from shardwright.transforms.lease import renew
from shardwright.transforms.rebuild.begin import PreviousState, begin, read_input, touched_files
from shardwright.transforms.rebuild.decision import Decision, report_decision
from shardwright.transforms.rebuild.finish import finish
from shardwright.transforms.rebuild.scrub import ScrubbedShard, chosen_shards, scrub_shard
from shardwright.transforms.rebuild.task import RebuildTask
from shardwright.transforms.sources.file_states import TouchedFiles
from shardwright.transforms.sources.label_rules import LabelRules
from shardwright.transforms.sources.listed_parts import LISTED_PARTS, ListedPart
from shardwright.transforms.sources.listing import list_part, split_inputs
from shardwright.transforms.sources.listing_digest import ListingDigest, ListingDigester, add_up
from shardwright.transforms.sources.rule_matches import RuleMatcher
from shardwright.transforms.sources.selection import ListingRules
from shardwright.transforms.sources.source import Context, Input, InputSplit
from shardwright.transforms.sources.spool import Spool
from shardwright.transforms.versions.pointer import read_pointer

#: Files of a bucket that are read at once, and parts of an input in a bucket that are listed at once.
_REQUESTS_AT_ONCE = 16

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def find_input(task: RebuildTask) -> InputState | None:
    """Returns the input of the latest version, if the request is the same as then."""
    if not task.request or task.verify_sources:
        return None
    try:
        state = read_input(task.output)
        if state is None or state.request != task.request:
            return None
        pointer = read_pointer(task.output)
    except ShardwrightError:
        return None  # the rebuild finds this again and reports it
    return state if pointer is not None and pointer[0].version == state.version else None


def end_if_unchanged(
    task: RebuildTask,
    state: InputState,
    inputs: Sequence[Input],
    rules: LabelRules,
    selection: ListingRules,
    notes: Callable[[InputState], Iterable[str]],
) -> bool:
    """Ends a rebuild as `finish` does if the input is still the same.

    Args:
      task: The rebuild.
      state: Input of the latest version, of the same request.
      inputs: Checked inputs.
      rules: Rules for class names.
      selection: Rules that leave out images.
      notes: Returns the sentences that a rebuild shows once it has listed this input.

    Returns:
      Whether the rebuild has ended. Otherwise nothing was decided.

    Raises:
      EngineError: If another rebuild is at work, or the storage failed.
    """
    previous = begin(task)
    made = previous.dataset
    if previous.ended or made is None or previous.missing:
        return False
    if (previous.version, made.fingerprint) != (state.version, state.fingerprint):
        return False
    try:
        listed = list_digest(task, inputs, rules, selection, touched_files(task, previous))
        if listed is None or listed.text != state.listing:
            return False
        if not has_sound_ledgers(version_path(task.output, previous.version), made, state.planned):
            return False
        scrubbed = tuple(sorted(_scrubbed(task, previous)))
    except ShardwrightError:
        return False  # the whole rebuild fails in the same way and says where
    decision = Decision(False, state.planned, 0, scrubbed=scrubbed, input=state)
    if decision.damaged:
        return False
    PROGRESS.tell(*notes(state))
    PROGRESS.tree = state.tree
    report_decision(task, previous, decision, state)
    finish(task, previous, decision, None)
    return True


def list_digest(
    task: RebuildTask,
    inputs: Sequence[Input],
    rules: LabelRules,
    selection: ListingRules,
    touched: TouchedFiles,
) -> ListingDigest | None:
    """Lists the inputs and returns the digest of all references, which are kept for the whole rebuild.

    Returns:
      The digest; None if the file of an image was touched, so that its bytes have to be compared.

    Raises:
      ShardwrightError: If an input cannot be listed.
    """
    # The parts are those of the whole rebuild in this process, which takes what is listed here.
    context = Context(task.settings, Spool(task.directory), one_worker=True)

    def digest_of(part: InputSplit) -> tuple[ListingDigest, bool]:
        doubt = False
        digester, matcher = ListingDigester(context.spool.path), RuleMatcher(rules, selection)
        room, kept = LISTED_PARTS.room, list[ImageRef | ClassId]()
        for found in list_part(part, context, rules, selection, matcher):
            digester.add(found)
            doubt = doubt or (isinstance(found, ImageRef) and found.is_candidate and touched.has(found))
            if len(kept) <= room:
                kept.append(found)
        renew(task.output, task.holder)
        digest = digester.taken()
        if len(kept) <= room:
            LISTED_PARTS.keep(context.spool.path, part, ListedPart(kept, digest, matcher.taken()))
        return digest, doubt

    parts = split_inputs(inputs, context)
    remote = any(storage.is_remote(item.path) for item in inputs)
    # Threads that list a disk would only wait for each other.
    listed = _each(digest_of, parts, _REQUESTS_AT_ONCE) if remote else [*map(digest_of, parts)]
    return None if any(doubt for _, doubt in listed) else add_up(digest for digest, _ in listed)


def has_sound_ledgers(directory: str, made: Dataset, planned: int) -> bool:
    """Returns whether all ledgers of a version have the sha256 in its `dataset.json`.

    Args:
      directory: Directory of the version.
      made: Its dataset.
      planned: Number of its planned shards, with one for files without a key.

    Raises:
      EngineError: If the storage failed.
    """
    ledgers = {file: digest for file, digest in made.files.items() if file.startswith(f"{SHARDS_DIR}/")}
    of_shards = {ledger_file(split, number, count) for split, number, count, _ in made.placed_shards()}
    if len(ledgers) != planned or not of_shards <= ledgers.keys():
        return False

    def is_sound(file: str) -> bool:
        path = storage.join(directory, file)
        with storage.translated_errors("read", path):
            try:
                data = storage.read_bytes(path)
            except FileNotFoundError:
                return False
        return hashlib.sha256(data).hexdigest() == ledgers[file]

    return all(_each(is_sound, ledgers, _threads(directory)))


def _scrubbed(task: RebuildTask, previous: PreviousState) -> Iterator[ScrubbedShard]:
    """Reads a part of the latest version again."""
    directory = version_path(task.output, previous.version)
    shards = chosen_shards(task, previous)

    def damage_of(number: int) -> str:
        renew(task.output, task.holder)
        return scrub_shard(directory, shards[number].file, shards[number].sha256)

    found = _each(damage_of, range(len(shards)), _threads(directory))
    for shard, damage in zip(shards, found, strict=True):
        yield ScrubbedShard(shard.file, shard.bytes, damage)


def _threads(directory: str) -> int:
    return _REQUESTS_AT_ONCE if storage.is_remote(directory) else usable_cpus()


def _each(work: Callable[[_Item], _Result], items: Iterable[_Item], threads: int) -> list[_Result]:
    """Returns the results of a function for all items, in order. Several threads compute them."""
    with ThreadPoolExecutor(threads) as executor:
        return list(executor.map(work, items))
