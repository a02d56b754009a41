"""Lets one run at a time write to an output, by taking, renewing and releasing the lease."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from typing import Any

from shardwright.core import storage
from shardwright.core.lease import HeldLease, heartbeat, this_process
from shardwright.pipelines import log
from shardwright.schemas.dataset import WORK_DIR, WRITER_JSON
from shardwright.schemas.image_ref import printable
from shardwright.schemas.lease import Lease

#: Duration of a lease without renewal. Runs renew it after every quarter of this.
LEASE_SECONDS = 1800.0


def dies_with_launcher(beam_options: Any) -> bool:
    """Returns whether the job ends with the process that started it."""
    from apache_beam.options.pipeline_options import StandardOptions

    runner = (beam_options.view_as(StandardOptions).runner or "").rpartition(".")[2].lower()
    return runner.removesuffix("runner") in ("", "fnapi", "inprocess", "direct", "switchingdirect", "prism")


def launcher_of(beam_options: Any) -> tuple[str, int, str]:
    """Returns host, pid and start time of the process that the job ends with, if there is one."""
    return this_process() if dies_with_launcher(beam_options) else ("", 0, "")


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
      EngineError: Another run has the lease, or the storage failed.
    """
    if not storage.knows_conditions(output):
        yield None
        return
    lease = Lease(uuid.uuid4().hex, "", *launcher_of(beam_options), seconds=LEASE_SECONDS)
    hold = HeldLease(output, lease, WRITER_JSON)
    if described:
        yield hold
        return
    fresh = not storage.is_remote(output) and not storage.exists(output)
    with storage.translated_errors("write to", output):
        storage.make_dirs(storage.join(output, WORK_DIR))
    if not _acquired(hold):
        yield None
        return
    try:
        with heartbeat(output, hold.holder, hold.file):
            yield hold
    except KeyboardInterrupt:
        if lease.pid:  # otherwise the job continues
            _release(hold, fresh)
        raise
    except BaseException:
        _release(hold, fresh)
        raise
    _release(hold, fresh)


def _acquired(hold: HeldLease) -> bool:
    """Takes the lease; returns whether the storage supports it."""
    try:
        hold.acquire()
    except storage.NoConditions:
        log.info(
            f"the storage of {printable(hold.output)} does not support conditional requests; make sure that "
            "no other run writes there."
        )
        return False
    return True


def _release(hold: HeldLease, fresh: bool) -> None:
    """Releases the lease, and removes the directories that were created for it."""
    hold.release()
    if not storage.is_remote(hold.output):
        with contextlib.suppress(OSError):  # usually they are not empty
            os.rmdir(storage.join(hold.output, WORK_DIR))
            if fresh:
                os.rmdir(hold.output)
