"""No pixel comes from memory that no decoder wrote, however damaged a file is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import mutants

_PROGRAM = Path(mutants.__file__)


def _outcomes(kind: str, count: int, fill: int) -> list[str]:
    """Returns the results of mutants if fresh memory is filled with a value (glibc, mallopt(3))."""
    run = subprocess.run(
        [sys.executable, _PROGRAM, kind, str(count)],
        env={**os.environ, "MALLOC_PERTURB_": str(fill)},
        capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    return run.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["group4", "jpeg", "JPEG2000", *mutants.OTHERS[10:]])
def test_runs_with_different_memory_agree(kind: str) -> None:
    first, second = (_outcomes(kind, 150, fill) for fill in (85, 170))
    assert len(first) == 150
    assert first == second


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*mutants.TIFF_COMPRESSIONS, *mutants.OTHERS])
def test_runs_with_different_memory_agree_for_every_kind(kind: str) -> None:
    first, second = (_outcomes(kind, 1500, fill) for fill in (85, 170))
    assert len(first) == 1500
    assert first == second


@pytest.mark.parametrize("kind", [*mutants.TIFF_COMPRESSIONS, *mutants.OTHERS])
def test_a_sound_file_of_each_kind_decodes(kind: str) -> None:
    assert len(mutants.outcome(mutants.original(kind))) == 16
