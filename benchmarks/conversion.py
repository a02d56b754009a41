"""Converts images in a process of its own, as users do, and measures it."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import Measurement, run_measured

PROGRAM = Path(sys.executable).with_name("shardwright")
TIMEOUT = 6 * 3600.0
#: Options of most benchmarks.
USUAL = ("--resize=224", "--shards=8")
#: Measures of `Converted.turn`, with their units.
UNITS = {"time": "s", "converting": "images/s", "processor time": "s", "peak": "MB"}


@dataclass(frozen=True)
class Converted:
    """A measured conversion.

    Attributes:
      measurement: Time and memory of the whole process.
      run: Contents of run.json.
      dataset: Contents of dataset.json.
    """

    measurement: Measurement
    run: dict[str, Any]
    dataset: dict[str, Any]

    def turn(self) -> dict[str, float]:
        """Returns the measures named in `UNITS`."""
        return {
            "time": self.measurement.seconds,
            "converting": self.dataset["ledger"]["written"] / self.run["convert_seconds"],
            "processor time": self.measurement.processor_seconds,
            "peak": self.measurement.peak_mb,
        }


def run_program(
    words: Sequence[str], timeout: float = TIMEOUT, program: Sequence[str] = (str(PROGRAM),)
) -> Measurement:
    """Runs a command of Shardwright in a process and measures it.

    Args:
      words: The command and its arguments.
      timeout: Seconds after which it is killed.
      program: The program and its first arguments.

    Raises:
      SystemExit: If it fails, with the end of its output.
    """
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch, "log")
        measured = run_measured([*program, *words], log, timeout)
        if measured.exit_code:
            raise SystemExit(f"{words[0]} failed:\n{log.read_text(errors='replace')[-3000:]}")
    return measured


def convert_once(
    source: str | Path,
    options: Sequence[str] = USUAL,
    output: Path | None = None,
    program: Sequence[str] = (str(PROGRAM),),
) -> Converted:
    """Converts and measures.

    Args:
      source: Input of the conversion.
      options: Further options of `shardwright convert`.
      output: Folder for the dataset, which is kept; None for one that is removed.
      program: As in `run_program`.

    Raises:
      SystemExit: If the conversion fails.
    """
    if output is None:
        with tempfile.TemporaryDirectory() as scratch:
            return convert_once(source, options, Path(scratch, "out"), program)
    measured = run_program(["convert", f"--input={source}", f"--output={output}", *options], program=program)
    run, dataset = (json.loads((output / name).read_text()) for name in ("run.json", "dataset.json"))
    return Converted(measured, run, dataset)


def kept_dataset(work: Path, photos: Path, options: Sequence[str] = USUAL) -> Path:
    """Returns a dataset of the images; converts them if it does not exist yet.

    Args:
      work: Folder for datasets.
      photos: Folder of class folders.
      options: Further options of `shardwright convert`; they are part of the folder's name.
    """
    output = work / "-".join(
        (photos.name, "dataset", *(word.lstrip("-").replace("=", "") for word in options))
    )
    if not (output / "dataset.json").exists():
        convert_once(photos, [*options, "--overwrite"], output)
    return output
