"""What decides whether a validation passes: codes named on the command line, and gate files."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Sequence

from shardwright.pipelines.datasets import Target
from shardwright.schemas.codes import QUALITY, FindingCode, Severity
from shardwright.schemas.configuration.expectations import Expectations
from shardwright.schemas.configuration.job import JobGates
from shardwright.schemas.errors import UsageError, nearest
from shardwright.schemas.findings import Gates
from shardwright.schemas.image_ref import printable
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


def read_gate_file(option: str, path: str) -> JobGates:
    """Reads a gate file; an empty path has no gates.

    Args:
      option: that names the file.
      path: of the file.

    Raises:
      UsageError: if it cannot be read, or is wrong.
    """
    if not path:
        return JobGates()
    from shardwright.schemas.configuration.gate_file import parse_gates  # and with it pydantic

    return parse_gates(storage.read_text(option, path), option, path)


def expected_of(gates: JobGates, path: str) -> Expectations:
    """Returns what a gate file asks of one dataset; says on stderr which gates need another dataset.

    Args:
      gates: what the file says.
      path: of the file.
    """
    others = [name for name in gates.limits.names if name != "max_bad_fraction"]
    notes = list(gates.notes)
    if others:
        notes.append(f"{', '.join(others)} compare two datasets and are left aside; run shardwright diff")
    tell(path, notes)
    return gates.alone


def findings_of(said: Gates, file: Gates) -> Gates:
    """Returns the gates of options with those of a file; the options count more."""
    chosen = (*said.fail_on, *said.warn_on)
    fail_on, warn_on = (
        tuple(code for code in codes if code not in chosen) for codes in (file.fail_on, file.warn_on)
    )
    return Gates((*said.fail_on, *fail_on), (*said.warn_on, *warn_on))


def tell(path: str, notes: Iterable[str]) -> None:
    """Prints notes about a gate file on stderr."""
    for note in notes:
        print(f"{printable(path)}: {note}", file=sys.stderr)


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
