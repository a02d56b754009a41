"""Decides whether a fork of the command converts images while the command still starts, and which."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

from shardwright.pipelines.beam_imports import is_process_ours
from shardwright.pipelines.prepare import ConversionRequest
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.ledger import WrittenEntries, entries_of, load_blocks
from shardwright.schemas.plan import ledger_file
from shardwright.transforms import storage
from shardwright.transforms.concurrency.workers import usable_cpus, usable_memory
from shardwright.transforms.conversion.head_start import MAX_IMAGES, head_start
from shardwright.transforms.dataset_files import read_dataset
from shardwright.transforms.plan.assign import shard_order, split_bounds, split_of
from shardwright.transforms.sources.listed_parts import LISTED_PARTS
from shardwright.transforms.sources.listing import list_part, split_inputs
from shardwright.transforms.sources.source import Context
from shardwright.transforms.sources.spool import Spool

#: Sources whose inputs are folders of image files, and quick to list twice.
_SOURCES = frozenset(("class_folders", "file_names"))
#: Least memory of the machine in bytes: the fork takes up to a tenth of it.
_MIN_MEMORY = 2 * 10**9
#: Most records of a version whose ledgers the fork compares with the listing. 200,000 take about 60 MB.
_MAX_COMPARED = 10 * MAX_IMAGES


@contextlib.contextmanager
def converting_early(
    request: ConversionRequest, processes: int, directory: str = "", latest: str = ""
) -> Iterator[None]:
    """Converts images in a fork of this process while the block runs, if that is safe and saves time.

    Args:
      request: The checked request.
      processes: Number of worker processes; 1 for this process alone, 0 if Beam's options decide.
      directory: Directory of the dataset; empty for the output itself.
      latest: Directory of the latest version, whose images are not converted again unless they changed; empty
        without one.
    """
    # In a fork, the connections of this process to a bucket cannot be used.
    remote = storage.is_remote(directory)
    if processes != 1 or remote or not _can_fork() or not _is_worthwhile(request):
        yield
        return
    with head_start(request.settings, lambda: early_refs(request, directory, latest)):
        yield


def _can_fork() -> bool:
    """Returns whether this process can be forked, and has a processor and memory for the fork."""
    if sys.platform != "linux" or not is_process_ours() or "apache_beam" in sys.modules:
        return False  # a program of somebody else, or one with threads of Beam, may hold any lock
    # A rebuild has threads by now that renew its lease and show its progress. A lock that one of them holds
    # would stop the fork, which nobody waits for.
    if threading.current_thread() is not threading.main_thread():
        return False
    import resource

    limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    return usable_cpus() > 1 and not limited and usable_memory() >= _MIN_MEMORY


def _is_worthwhile(request: ConversionRequest) -> bool:
    """Returns whether nearly all images will be resized, and can be listed twice."""
    settings = request.settings
    leaves_out = settings.limit or settings.max_per_class or settings.dedupe != "none" or settings.resume
    if settings.target is None or settings.map or leaves_out:
        return False
    return all(item.source in _SOURCES and not storage.is_remote(item.path) for item in request.inputs)


def early_refs(request: ConversionRequest, directory: str = "", latest: str = "") -> list[ImageRef]:
    """Lists the images of a request in the order in which they will be converted; none if there are many.

    Args:
      request: The checked request.
      directory: As in `converting_early`.
      latest: As in `converting_early`.
    """
    settings = request.settings
    context = Context(settings, Spool(directory or settings.output), one_worker=True)
    states: dict[str, str] = {}
    if latest:
        dataset = read_dataset(latest)
        if dataset.all_records > _MAX_COMPARED:
            return []
        states = _states_in(dataset, latest)
    found: list[ImageRef] = []
    for part in split_inputs(request.inputs, context):
        # A rebuild has often listed the input before the fork began.
        listed = LISTED_PARTS.take(context.spool.path, part)
        for ref in listed.found if listed else list_part(part, context, request.rules, request.selection):
            if not isinstance(ref, ImageRef) or not ref.is_candidate or ref.size < 0:
                continue
            if ref.has_known_state and states.get(ref.key) == ref.fingerprint:
                continue
            found.append(ref)
            if len(found) > MAX_IMAGES:
                return []
    return sorted(found, key=lambda ref: (_split_of(ref, settings), shard_order(settings.seed, ref.key)))


def _states_in(dataset: Dataset, version: str) -> dict[str, str]:
    """Returns key -> state of the source, for the files of a version in this directory.

    Raises:
      ValueError: A ledger is damaged.
      OSError: A file cannot be read.
    """
    states: dict[str, str] = {}
    for split, number, count, _ in dataset.placed_shards():
        data = storage.read_bytes(storage.join(version, ledger_file(split, number, count)))
        for block in load_blocks(data)[1]:
            if isinstance(block, WrittenEntries):
                states.update(zip(block.keys, block.fingerprints, strict=True))
            else:
                states.update((entry.source, entry.fingerprint) for entry in entries_of(block))
    return states


def _split_of(ref: ImageRef, settings: ConvertSettings) -> str:
    """Returns the split of an image; empty if only the plan will know it. Then the order is a guess."""
    if ref.split or settings.split_mode != "hash":
        return ref.split
    return split_of(settings.seed, ref.group or ref.key, split_bounds(settings.parsed_splits))
