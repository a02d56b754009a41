"""Decides whether a validation passes, by codes named on the command line and by gate files."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from shardwright.core import storage
from shardwright.pipelines import log
from shardwright.pipelines.datasets import Target
from shardwright.schemas.check_depths import CheckDepth
from shardwright.schemas.codes import QUALITY, FindingCode, Severity
from shardwright.schemas.configuration.expectations import Expectations
from shardwright.schemas.configuration.job import JobGates
from shardwright.schemas.errors import UsageError, nearest
from shardwright.schemas.findings import Gates

_LISTED = "; shardwright validate --help lists them."
#: Words for the depths of a validation.
MODES = tuple(depth.word for depth in (CheckDepth.FAST, CheckDepth.FULL, CheckDepth.QUALITY))


def _codes(names: str | Sequence[str]) -> tuple[str, ...]:
    """Returns the given codes, from a list or from an option's value in any case and with any spaces."""
    codes = names.split(",") if isinstance(names, str) else names
    return tuple(code.strip().upper() for code in codes if code.strip())


def code_list() -> str:
    """Returns all codes of findings by severity, as the help shows them."""
    lines = []
    for severity in Severity:
        codes = ", ".join(code for code in FindingCode if Gates().severity(code) is severity)
        lines += textwrap.wrap(f"{severity}s: {codes}", 76, subsequent_indent="  ")
    return "\n".join(["findings (docs/dataset.md says what they mean):", *(f"  {line}" for line in lines)])


def read_gates(fail_on: str | Sequence[str], warn_on: str | Sequence[str]) -> Gates:
    """Returns the user's choice of errors and warnings.

    Raises:
      UsageError: A code is unknown, or is both an error and a warning.
    """
    fail_on, warn_on = _codes(fail_on), _codes(warn_on)
    for option, codes in (("fail_on", fail_on), ("warn_on", warn_on)):
        for code in codes:
            if code not in FindingCode.__members__:
                hint = nearest(code, list(FindingCode.__members__))
                raise UsageError(f"--{option} {code}: there is no such finding{hint or _LISTED}")
            if code in fail_on and code in warn_on:
                raise UsageError(f"{code} is in both --fail_on and --warn_on; choose one.")
    return Gates(fail_on, warn_on)


def read_gate_file(option: str, path: str) -> JobGates:
    """Reads a gate file; returns no gates for an empty path.

    Args:
      option: Option that names the file.
      path: Path of the file.

    Raises:
      UsageError: The file cannot be read, or is wrong.
    """
    if not path:
        return JobGates()
    from shardwright.schemas.configuration.gate_file import parse_gates  # and with it pydantic

    return parse_gates(storage.read_text(option, path), option, path)


def expected_of(gates: JobGates, path: str) -> Expectations:
    """Returns the gates for one dataset; names on stderr the gates that need two datasets.

    Args:
      gates: Contents of the file.
      path: Path of the file.
    """
    others = [name for name in gates.limits.names if name != "max_bad_fraction"]
    if others:
        note = (
            f"{', '.join(others)} compare two datasets, so they are ignored here; use shardwright diff "
            "for them"
        )
        log.about(path, note)
    return gates.alone


def findings_of(options: Gates, file: Gates) -> Gates:
    """Merges the gates of options with those of a file; options take precedence."""
    chosen = (*options.fail_on, *options.warn_on)
    fail_on, warn_on = (
        tuple(code for code in codes if code not in chosen) for codes in (file.fail_on, file.warn_on)
    )
    return Gates((*options.fail_on, *fail_on), (*options.warn_on, *warn_on))


def mode_for(mode: str, gates: Gates, expectations: Expectations, target: Target) -> str:
    """Returns the mode that the gates need: `quality` if a gate depends on image statistics.

    Raises:
      UsageError: The mode is unknown, or a gate needs what the mode or the files do not have.
    """
    if mode not in MODES:
        raise UsageError(f"There is no mode {mode!r}; choose one of {', '.join(MODES)}.")
    asking = [f"--fail_on {code}" for code in gates.fail_on if code in QUALITY]
    asking += [f"--warn_on {code}" for code in gates.warn_on if code in QUALITY]
    counted = target.directory is not None
    asking += [f"--expect {name}" for name in expectations.measured_names(counted)]
    for name in ("min_images_per_split", "max_bad_fraction"):
        if name in expectations.names and not counted:
            raise UsageError(
                f"--expect {name} needs a dataset.json, which these files do not have; leave {name} out."
            )
    if asking and mode == "fast":
        raise UsageError(f"{asking[0]} needs decoded images, and --fast decodes none; leave --fast out.")
    return "quality" if asking else mode
