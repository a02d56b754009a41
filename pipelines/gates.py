"""What decides whether a validation passes: codes named on the command line, and files of expectations."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from shardwright.pipelines.datasets import Target
from shardwright.schemas.codes import QUALITY, FindingCode, Severity
from shardwright.schemas.errors import UsageError, nearest
from shardwright.schemas.expectations import Expectations, parse_expectations
from shardwright.schemas.findings import Gates
from shardwright.transforms import storage
from shardwright.transforms.validation.shard import Depth

_LISTED = "; shardwright validate --help lists them."
#: How deep a validation looks, by the name that its report says.
MODES = {"fast": Depth.EXAMPLES, "full": Depth.PIXELS, "quality": Depth.LOOKS}


def _codes(said: str | Sequence[str]) -> tuple[str, ...]:
    """Returns the codes that were given, as a list or as an option's value, however cased and spaced."""
    codes = said.split(",") if isinstance(said, str) else said
    return tuple(code.strip().upper() for code in codes if code.strip())


def code_list() -> str:
    """Returns all codes of findings by severity, as the help shows them."""
    lines = []
    for severity in Severity:
        codes = ", ".join(code for code in FindingCode if Gates().severity(code) is severity)
        lines += textwrap.wrap(f"{severity}s: {codes}", 90, subsequent_indent="  ")
    return "\n".join(["findings (docs/dataset.md says what they mean):", *(f"  {line}" for line in lines)])


def read_gates(fail_on: str | Sequence[str], warn_on: str | Sequence[str]) -> Gates:
    """Returns what a user makes of the findings.

    Raises:
      UsageError: if there is no such finding, or one shall be both.
    """
    fail_on, warn_on = _codes(fail_on), _codes(warn_on)
    for option, codes in (("fail_on", fail_on), ("warn_on", warn_on)):
        for code in codes:
            if code not in FindingCode.__members__:
                hint = nearest(code, list(FindingCode.__members__))
                raise UsageError(f"--{option} {code}: there is no such finding{hint or _LISTED}")
            if code in fail_on and code in warn_on:
                raise UsageError(f"{code} stands in --fail_on and in --warn_on; choose one.")
    return Gates(fail_on, warn_on)


def read_expectations(path: str) -> Expectations:
    """Reads a file of expectations; an empty path expects nothing.

    Raises:
      UsageError: if it cannot be read, or is wrong.
    """
    return parse_expectations(storage.read_text("--expect", path), path) if path else Expectations()


def mode_for(mode: str, gates: Gates, expectations: Expectations, target: Target) -> str:
    """Returns the mode that answers what is asked: pictures are looked at if a gate goes by their looks.

    Raises:
      UsageError: if no image shall be decoded all the same, or nothing says what is asked.
    """
    if mode not in MODES:
        raise UsageError(f"There is no mode {mode!r}; choose one of {', '.join(MODES)}.")
    asking = [f"--fail_on {code}" for code in gates.fail_on if code in QUALITY]
    asking += [f"--warn_on {code}" for code in gates.warn_on if code in QUALITY]
    counted = target.directory is not None
    asking += [f"--expect {name}" for name in expectations.names_of_looks(counted)]
    for name in ("min_images_per_split", "max_bad_fraction"):
        if name in expectations.names and not counted:
            raise UsageError(
                f"--expect {name}: these files have no dataset.json, which alone says it; leave {name} out."
            )
    if asking and mode == "fast":
        raise UsageError(
            f"{asking[0]} asks what the pictures are like, and --fast decodes none; leave --fast out."
        )
    return "quality" if asking else mode
