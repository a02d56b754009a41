"""Compares Shardwright with its peers.

Competitors take turns, A B C, A B C, ..., each as a whole process, including its start. So other work on the
machine and its temperature affect all of them equally. Each run writes into a new folder, and the records in
it are counted before the folder is removed. `benchmarks/README.md` says how the peers differ.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from command import Benchmark, Found, run_benchmark
from conversion import PROGRAM, TIMEOUT, USUAL
from inputs import photos
from machine import missing_modules, package_versions
from measure import run_measured
from records import count_litdata, count_tfrecords, count_webdataset
from rounds import Rounds, Turn, summarize, take_turns

HERE = Path(__file__).parent
SHARDWRIGHT = "Shardwright"
UNITS = {"time": "s", "processor time": "s", "peak, largest process": "MB", "peak, all processes": "MB"}
#: Measures that are compared with Shardwright's.
COMPARED = ("time", "processor time")
STEADY = "Shardwright, without start-up"


@dataclass(frozen=True)
class Peer:
    """A program to compare with.

    Attributes:
      name: Name to show.
      script: Script in the folder peers.
      modules: Modules that it imports; if one is missing, it is not installed.
      count: Counts the records of an output folder.
    """

    name: str
    script: str
    modules: tuple[str, ...]
    count: Callable[[Path], int] = count_tfrecords


PEERS = (
    Peer(
        "the Beam pipeline everyone writes first", "first_pipeline.py", ("apache_beam", "tensorflow", "PIL")
    ),
    Peer("a loop with Pillow and `tf.io.TFRecordWriter`", "plain_loop.py", ("tensorflow", "PIL")),
    Peer("`tf.data` with a writer", "tf_data.py", ("tensorflow", "PIL")),
    Peer("img2dataset", "img2dataset_peer.py", ("img2dataset", "PIL"), count_webdataset),
    Peer("LitData `optimize`, 2 workers", "litdata_peer.py", ("litdata", "PIL"), count_litdata),
)


class Competitor:
    """A program that is installed.

    Args:
      command: Command that starts it, without the folders.
      count: Counts the records of an output folder.
      photos: Input folder.
      expected: Number of records that it must write.
    """

    def __init__(self, command: list[str], count: Callable[[Path], int], photos: Path, expected: int) -> None:
        self._command, self._count, self._photos, self._expected = command, count, photos, expected
        self.problem = ""

    def run(self) -> Turn:
        """Runs the program and returns its measurements; after a problem, nothing."""
        if self.problem:
            return {}
        with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
            output, log = Path(scratch, "out"), Path(scratch, "log")
            words = [*self._command, "--input", str(self._photos), "--output", str(output)]
            measured = run_measured(words, log, TIMEOUT)
            if measured.exit_code:
                self.problem = f"failed (exit code {measured.exit_code})"
                print(log.read_text(errors="replace")[-2000:], file=sys.stderr)
                return {}
            try:
                written = self._count(output)
            except (OSError, ValueError, KeyError) as error:
                self.problem = f"unreadable output ({error})"
                return {}
            if written != self._expected:
                self.problem = f"wrote {written} of {self._expected} records"
                return {}
            figures = (
                measured.seconds, measured.processor_seconds, measured.peak_mb, measured.tree_mb
            )  # fmt: skip
            turn = dict(zip(UNITS, figures, strict=True))
            if (output / "run.json").exists():
                turn["converting"] = json.loads((output / "run.json").read_text())["convert_seconds"]
        return turn


def measure(options: argparse.Namespace) -> Found:
    """Runs all competitors in turn."""
    images = photos(options, options.count)
    words = [str(PROGRAM), "convert", *USUAL]
    found = {SHARDWRIGHT: Competitor(words, count_tfrecords, images.folder, images.count)}
    problems: dict[str, str] = {}
    versions: dict[str, str] = {}
    # The current interpreter comes first: with it, all competitors use the same Pillow.
    interpreters = [sys.executable, *(python for python in options.peer_python.split(",") if python)]
    for peer in PEERS:
        able = [python for python in interpreters if not missing_modules(python, peer.modules)]
        if not able:
            problems[peer.name] = "not installed"
            continue
        versions = package_versions(able[0]) | versions
        command = [able[0], str(HERE / "peers" / peer.script)]
        found[peer.name] = Competitor(command, peer.count, images.folder, images.count)
    ways = {name: competitor.run for name, competitor in found.items()}
    rounds = take_turns(ways, options.rounds, warm_up=True)  # the first round writes bytecode and reads files
    failed = {name: competitor.problem for name, competitor in found.items() if competitor.problem}
    # Medians of the rounds before a failure would look like a result.
    good: Rounds = {name: turns for name, turns in rounds.items() if name not in failed}
    results = summarize(good, UNITS, dict.fromkeys(good, SHARDWRIGHT), only=COMPARED)
    steady: list[Turn] = [{"speed": images.count / turn["converting"]} for turn in good.get(SHARDWRIGHT, [])]
    results += summarize({STEADY: steady}, {"speed": "images/s"})
    return Found(images.text, results, problems | failed, versions, failed=bool(failed))


BENCHMARK = Benchmark(
    "competitors",
    "Compares Shardwright with its peers, as whole processes, from JPEGs to 224x224.",
    measure,
    quick={"count": 600, "rounds": 2},
    full={"count": 20000, "rounds": 3, "peer_python": ""},
)

if __name__ == "__main__":
    raise SystemExit(run_benchmark(BENCHMARK))
