"""Measures Shardwright and its peers side by side.

Competitors take turns, A B C, A B C, ..., each as a whole process, including its start. So other work on the
machine and its temperature affect all of them equally. Each run writes into a new folder, and the records in
it are counted before the folder is removed.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from machine import machine_facts, missing_modules, package_versions
from measure import run_measured
from records import count_litdata, count_tfrecords, count_webdataset
from report import print_report

HERE = Path(__file__).parent


@dataclass
class Competitor:
    """A program to measure, and its runs so far.

    Attributes:
      name: name to print, and for `--only`.
      script: script of the peer; empty for Shardwright itself.
      modules: modules that the peer imports; if one is missing, the peer is not installed.
      count: counts the records of an output folder.
      command: command that starts it, without the folders; empty if it is not installed.
      problem: why there is no result; empty if there is one.
      versions: versions of the packages in its interpreter.
      runs: one entry per round: the measurement, and the program's own figures.
    """

    name: str
    script: str
    modules: tuple[str, ...]
    count: Callable[[Path], int]
    command: list[str] = field(default_factory=list)
    problem: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)


def all_competitors() -> list[Competitor]:
    """Returns all programs that can be measured, in the order of the rounds."""
    beam = ("apache_beam", "tensorflow", "PIL")
    return [
        Competitor("shardwright", "", (), count_tfrecords),
        Competitor("first_pipeline", "first_pipeline.py", beam, count_tfrecords),
        Competitor("plain_loop", "plain_loop.py", ("tensorflow", "PIL"), count_tfrecords),
        Competitor("tf_data", "tf_data.py", ("tensorflow", "PIL"), count_tfrecords),
        Competitor("img2dataset", "img2dataset_peer.py", ("img2dataset", "PIL"), count_webdataset),
        Competitor("litdata", "litdata_peer.py", ("litdata", "PIL"), count_litdata),
    ]


def locate(competitor: Competitor, peer_pythons: list[str], extra: str) -> None:
    """Fills in the command of a competitor, or the problem if it is not installed.

    Args:
      competitor: competitor to look for.
      peer_pythons: interpreters for the peers that the current one does not have.
      extra: additional arguments for Shardwright.
    """
    if not competitor.script:
        beside = Path(sys.executable).with_name("shardwright")
        program = str(beside) if beside.exists() else shutil.which("shardwright")
        if program is None:
            competitor.problem = "not installed"
            return
        competitor.command = [program, "convert", "--resize", "224", "--shards", "8"]
        competitor.command += shlex.split(extra)
        competitor.versions = package_versions(sys.executable)
        return
    # The current interpreter comes first: with it, all competitors use the same Pillow.
    for python in (sys.executable, *peer_pythons):
        if not missing_modules(python, competitor.modules):
            competitor.command = [python, str(HERE / "peers" / competitor.script)]
            competitor.versions = package_versions(python)
            return
    competitor.problem = "not installed"


def run_once(competitor: Competitor, photos: Path, expected: int, timeout: float) -> None:
    """Runs a competitor and stores the result, or the problem, in it.

    Args:
      competitor: competitor to run.
      photos: input folder.
      expected: number of records that it must write.
      timeout: seconds after which it is killed.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        output, log = Path(scratch, "out"), Path(scratch, "log")
        command = [*competitor.command, "--input", str(photos), "--output", str(output)]
        result = run_measured(command, log, timeout)
        if result.exit_code != 0:
            competitor.problem = f"failed (exit code {result.exit_code})"
            print(log.read_text(errors="replace")[-2000:], file=sys.stderr)
            return
        try:
            written = competitor.count(output)
        except (OSError, ValueError, KeyError) as error:
            competitor.problem = f"unreadable output ({error})"
            return
        if written != expected:
            competitor.problem = f"wrote {written} of {expected} records"
            return
        own: dict[str, Any] = {}
        if not competitor.script and (output / "run.json").exists():
            own = json.loads((output / "run.json").read_text())
        competitor.runs.append({**asdict(result), "convert_seconds": own.get("convert_seconds")})


def run_codec_limit(photos: Path, timeout: float) -> dict[str, Any] | None:
    """Measures the codec limit in a separate process.

    Args:
      photos: input folder.
      timeout: seconds after which it is killed.

    Returns:
      Its report, or None if it failed.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        report, log = Path(scratch, "report.json"), Path(scratch, "log")
        script = str(HERE / "codec_limit.py")
        command = [sys.executable, script, "--photos", str(photos), "--json", str(report)]
        if run_measured(command, log, timeout).exit_code != 0:
            print(log.read_text(errors="replace")[-2000:], file=sys.stderr)
            return None
        loaded: dict[str, Any] = json.loads(report.read_text())
        return loaded


def read_all(photos: Path) -> int:
    """Reads every photo once, so that the first competitor also finds them in memory.

    Args:
      photos: input folder.

    Returns:
      The number of photos.
    """
    paths = list(photos.glob("*/*.jpg"))
    for path in paths:
        path.read_bytes()
    return len(paths)


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--photos", type=Path, required=True, help="a folder of class folders")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="names with commas; codec_limit is one too")
    parser.add_argument(
        "--peer_python",
        action="append",
        default=[],
        help="an interpreter for the peers that this one does not have; repeatable",
    )
    parser.add_argument("--shardwright_args", default="", help="further arguments for convert")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds for one run")
    parser.add_argument("--json", type=Path, help="a file for all raw numbers")
    options = parser.parse_args()

    competitors = all_competitors()
    known = [competitor.name for competitor in competitors] + ["codec_limit"]
    chosen = [name for name in options.only.split(",") if name] or known
    unknown = sorted(set(chosen) - set(known))
    if unknown:
        parser.error(f"no competitor {', '.join(unknown)}; there are {', '.join(known)}")
    competitors = [competitor for competitor in competitors if competitor.name in chosen]
    for competitor in competitors:
        locate(competitor, options.peer_python, options.shardwright_args)
    photos = options.photos.resolve()
    facts = machine_facts()
    expected = read_all(photos)
    if not expected:
        parser.error("the folder of photos holds no class folders with .jpg files")

    limits: list[dict[str, Any]] = []
    for number in range(1, options.rounds + 1):
        for competitor in competitors:
            if competitor.problem:
                continue
            run_once(competitor, photos, expected, options.timeout)
            state = competitor.problem or f"{competitor.runs[-1]['seconds']:.2f} s"
            print(f"round {number}: {competitor.name}: {state}", file=sys.stderr, flush=True)
        if "codec_limit" in chosen:
            report = run_codec_limit(photos, options.timeout)
            if report:
                limits.append(report)
    results = {
        "machine": facts,
        "images": expected,
        "rounds": options.rounds,
        "competitors": [
            {
                "name": competitor.name,
                "problem": competitor.problem,
                "versions": competitor.versions,
                "runs": competitor.runs,
            }
            for competitor in competitors
        ],
        "codec_limits": limits,
    }
    print_report(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    # A competitor that is not installed is not a failure, but a wrong result is.
    return int(any(c.problem not in ("", "not installed") for c in competitors))


if __name__ == "__main__":
    raise SystemExit(main())
