"""Runs large inputs end to end, each after a tenth of it, to see that no step grows faster than the data.

- photographs: 200,000 JPEGs of 28 kB to 224x224, four files of each image;
- references: 1,000,000 JPEGs of 1 kB as they are, ten files of each image, so that everything but the images
  counts;
- shards: 100,000 of these in 10,000 shards;
- classes: 100,000 of these in 1,000 classes.

Each is converted and then validated, each as a whole process. The ratios compare the whole input with its
tenth: a step that grows with the data has a ratio of 10 by processor time, and of 1 per image. It fails if a
step needs more than `TOLERATED` times as much processor time or memory as the tenth. The full size needs 30
GB of disk for its images and datasets, and hours.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from command import Benchmark, Found, run_benchmark
from conversion import convert_once, run_program
from inputs import photos
from measure import Measurement
from results import Result
from rounds import Turn, summarize, take_turns

PHOTOGRAPH, SMALL = "750x560", "64x64"
PER_IMAGE = "processor time per image"
#: Highest ratio of the whole input to its tenth: 10, and what a busy machine adds.
TOLERATED = 12.5
UNITS = {"time": "s", "processor time": "s", PER_IMAGE: "ms", "peak": "MB"}


class Case(NamedTuple):
    """A large input.

    Attributes:
      images: Number of images.
      pixels: Width and height of the images.
      classes: Number of classes.
      copies: Number of files that hold the same image.
      shards: Number of shards; 0 for the default.
      more: Further options of `shardwright convert`.
      fixed: Whether the tenth has the same number of classes.
    """

    images: int
    pixels: str
    classes: int
    copies: int
    shards: int = 0
    more: tuple[str, ...] = ()
    fixed: bool = True

    def part(self, share: float) -> Case:
        """Returns a part of the input."""
        return self._replace(
            images=round(self.images * share),
            classes=self.classes if self.fixed else max(1, round(self.classes * share)),
            shards=round(self.shards * share),
        )


CASES = {
    "photographs": Case(200_000, PHOTOGRAPH, 100, 4, more=("--resize=224",)),
    "references": Case(1_000_000, SMALL, 1_000, 10),
    "shards": Case(100_000, SMALL, 1_000, 10, shards=10_000, fixed=False),
    "classes": Case(100_000, SMALL, 1_000, 10, fixed=False),
}


def title_of(name: str, case: Case) -> str:
    """Returns the name of an input with the number that matters."""
    return f"{ ({'shards': case.shards, 'classes': case.classes}.get(name, case.images)):,} {name}"


def turn_of(measured: Measurement, images: int) -> Turn:
    """Returns the measures of a process that processed a number of images."""
    figures = (
        measured.seconds,
        measured.processor_seconds,
        measured.processor_seconds / images * 1e3,
        measured.tree_mb,
    )
    return dict(zip(UNITS, figures, strict=True))


def convert(folder: Path, case: Case, output: Path) -> Turn:
    """Converts an input into a folder, and checks that all images arrived."""
    shutil.rmtree(output, ignore_errors=True)
    more = [*case.more, *([f"--shards={case.shards}"] if case.shards else [])]
    converted = convert_once(folder, more, output)
    written = converted.dataset["ledger"]["written"]
    if written != case.images:
        raise SystemExit(f"{written} records were written of {case.images}.")
    return turn_of(converted.measurement, case.images)


def validate(case: Case, output: Path) -> Turn:
    """Validates the dataset of an input."""
    return turn_of(run_program(["validate", f"--dataset={output}"]), case.images)


def growing(results: Sequence[Result]) -> dict[str, str]:
    """Returns the steps that grow faster than the data, with the reason."""
    return {
        result.subject: f"{result.measure} grows {result.ratio:.1f} times with ten times the data"
        for result in results
        if result.measure in ("processor time", "peak") and (result.ratio or 0) > TOLERATED
    }


def measure(options: argparse.Namespace) -> Found:
    """Runs all inputs, each after its tenth."""
    results: list[Result] = []
    for name in options.cases.split(","):
        ways: dict[str, Callable[[], Turn]] = {}
        ratios = {}
        with tempfile.TemporaryDirectory(dir=options.work, prefix="scale-") as scratch:
            whole = CASES[name].part(options.share)
            tenth = whole.part(0.1)
            for case in (tenth, whole):
                make = (f"--pieces={case.pixels}", f"--classes={case.classes}", f"--copies={case.copies}")
                folder = photos(options, case.images, *make).folder
                output = Path(scratch, title_of(name, case))
                ways[f"{title_of(name, case)}: convert"] = partial(convert, folder, case, output)
                ways[f"{title_of(name, case)}: validate"] = partial(validate, case, output)
            for step in ("convert", "validate"):
                ratios[f"{title_of(name, whole)}: {step}"] = f"{title_of(name, tenth)}: {step}"
            compared = ("processor time", PER_IMAGE, "peak")
            results += summarize(take_turns(ways, options.rounds), UNITS, ratios, only=compared)
    text = f"JPEGs of {PHOTOGRAPH} (photographs) and {SMALL} (others)"
    problems = growing(results)
    return Found(text, results, problems, failed=bool(problems))


BENCHMARK = Benchmark(
    "scale",
    "Runs large inputs end to end, and a tenth of each before it.",
    measure,
    quick={"share": 0.01},
    full={"share": 1.0, "rounds": 1, "cases": ",".join(CASES)},
)

if __name__ == "__main__":
    raise SystemExit(run_benchmark(BENCHMARK))
