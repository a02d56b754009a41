"""Has one run at a time write to an output: takes the lease before it, renews it, gives it back."""

from __future__ import annotations

import contextlib
import os
import sys
import uuid
from collections.abc import Iterator
from typing import Any

from shardwright.schemas.dataset import WORK_DIR, WRITER_JSON
from shardwright.schemas.image_ref import printable
from shardwright.schemas.lease import Lease
from shardwright.transforms import storage
from shardwright.transforms.lease import HeldLease, heartbeat, this_process

#: After which the lease of a run that is not heard of is void. It is renewed every quarter of that.
LEASE_SECONDS = 1800.0


def dies_with_launcher(beam_options: Any) -> bool:
    """Whether the job ends with the process that started it."""
    from apache_beam.options.pipeline_options import StandardOptions

    runner = (beam_options.view_as(StandardOptions).runner or "").rpartition(".")[2].lower()
    return runner.removesuffix("runner") in ("", "fnapi", "inprocess", "direct", "switchingdirect", "prism")


def launcher_of(beam_options: Any) -> tuple[str, int, str]:
    """Returns the host, pid and beginning of the process whose end is the job's, if there is one."""
    return this_process() if dies_with_launcher(beam_options) else ("", 0, "")


@contextlib.contextmanager
def one_writer(output: str, beam_options: Any, described: bool) -> Iterator[HeldLease | None]:
    """Holds the lease of an output while the block runs.

    Args:
      output: the directory that is written to.
      beam_options: Beam's options, which say whether the job dies with this process.
      described: whether the job is described only, and takes the lease itself when it runs.

    Yields:
      The lease; None on storages without conditional requests, where nobody could tell who was first.

    Raises:
      EngineError: if another run has the lease, or the storage fails.
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
        if lease.pid:  # else the job goes on
            _release(hold, fresh)
        raise
    except BaseException:
        _release(hold, fresh)
        raise
    _release(hold, fresh)


def _acquired(hold: HeldLease) -> bool:
    """Takes the lease; returns whether the storage has what that needs."""
    try:
        hold.acquire()
    except storage.NoConditions:
        print(
            f"shardwright: the storage of {printable(hold.output)} knows no conditional requests; make sure "
            "that no other run writes there.",
            file=sys.stderr,
        )
        return False
    return True


def _release(hold: HeldLease, fresh: bool) -> None:
    """Gives the lease back, and removes directories that were made for nothing else."""
    hold.release()
    if not storage.is_remote(hold.output):
        with contextlib.suppress(OSError):  # as a rule they are not empty
            os.rmdir(storage.join(hold.output, WORK_DIR))
            if fresh:
                os.rmdir(hold.output)
