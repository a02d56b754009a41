"""Decides whether a fork of the command converts images while the command still starts, and which."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

from shardwright.pipelines.beam_imports import is_process_ours
from shardwright.pipelines.prepare import ConversionRequest
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import ImageRef
from shardwright.transforms import storage
from shardwright.transforms.concurrency.workers import usable_cpus, usable_memory
from shardwright.transforms.conversion.head_start import MAX_IMAGES, head_start
from shardwright.transforms.plan.assign import shard_order, split_bounds, split_of
from shardwright.transforms.sources.listing import list_part, split_inputs
from shardwright.transforms.sources.source import Context
from shardwright.transforms.sources.spool import Spool

#: Sources whose inputs are folders of image files, and quick to list twice.
_SOURCES = frozenset(("class_folders", "file_names"))
#: Least memory of the machine in bytes: the fork takes up to a tenth of it.
_MIN_MEMORY = 2 * 10**9


@contextlib.contextmanager
def converting_early(request: ConversionRequest, processes: int) -> Iterator[None]:
    """Converts images in a fork of this process while the block runs, if that is safe and saves time.

    Args:
      request: The checked request.
      processes: Number of worker processes; 1 for this process alone, 0 if Beam's options decide.
    """
    if processes != 1 or not _can_fork() or not _is_worthwhile(request):
        yield
        return
    with head_start(request.settings, lambda: early_refs(request)):
        yield


def _can_fork() -> bool:
    """Returns whether this process can be forked, and has a processor and memory for the fork."""
    if sys.platform != "linux" or not is_process_ours() or "apache_beam" in sys.modules:
        return False  # a program of somebody else, or one with threads of Beam, may hold any lock
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


def early_refs(request: ConversionRequest) -> list[ImageRef]:
    """Lists the images of a request in the order in which they will be converted; none if there are many."""
    settings = request.settings
    context = Context(settings, Spool(settings.output), one_worker=True)
    found: list[ImageRef] = []
    for part in split_inputs(request.inputs, context):
        for ref in list_part(part, context, request.rules, request.selection):
            if isinstance(ref, ImageRef) and ref.is_candidate and ref.size >= 0:
                found.append(ref)
                if len(found) > MAX_IMAGES:
                    return []
    return sorted(found, key=lambda ref: (_split_of(ref, settings), shard_order(settings.seed, ref.key)))


def _split_of(ref: ImageRef, settings: ConvertSettings) -> str:
    """Returns the split of an image; empty if only the plan will know it. Then the order is a guess."""
    if ref.split or settings.split_mode != "hash":
        return ref.split
    return split_of(settings.seed, ref.group or ref.key, split_bounds(settings.parsed_splits))
