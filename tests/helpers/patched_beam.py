"""Runs the suite with the patches of Beam that commands apply, because they save time.

`SHARDWRIGHT_PLAIN_BEAM=1` leaves Beam unchanged, as calls of the library do.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from shardwright.pipelines import beam_patches

_PLAIN = bool(os.environ.get("SHARDWRIGHT_PLAIN_BEAM"))
#: The context of the patches; closing it undoes them.
_patches = contextlib.ExitStack()


def patch_beam() -> None:
    """Applies the patches until the process ends."""
    if not _PLAIN:
        _patches.enter_context(beam_patches.patching())
        beam_patches.apply_patches()


@contextlib.contextmanager
def unpatched() -> Iterator[None]:
    """Runs a block with unchanged Beam."""
    _patches.close()
    try:
        yield
    finally:
        patch_beam()
