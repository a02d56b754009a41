"""Measures the time to plan a manifest, from its rows to the forecast, without images.

Each kind of manifest is planned as `shardwright plan` does, in its own process. Only the sample of images is
simulated, because there are no images. `list` is the time to read the rows alone.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

from command import Benchmark, Found, run_benchmark
from measure import run_measured
from rounds import Turn, summarize, take_turns

CLASSES = 1000
SPLITS = ("train",) * 8 + ("validation", "test")
#: Kinds of manifests: a file format, and the location of the images.
KINDS = ("csv gs", "csv quoted gs", "csv local", "csv missing", "jsonl gs", "parquet gs")
TITLES = {
    "csv gs": "CSV, images in a bucket",
    "csv quoted gs": "CSV with quoted texts, images in a bucket",
    "csv local": "CSV, images on the disk, each one checked",
    "csv missing": "CSV, images that do not exist",
    "jsonl gs": "JSON Lines",
    "parquet gs": "Parquet",
}
UNITS = {"listing": "rows/s", "planning": "s", "peak": "MB", "images": ""}


def table(size: int, base: str) -> Iterator[tuple[str, str, str, str]]:
    """Yields rows: an image's path, its class, its split, and unused columns.

    Args:
      size: Number of rows.
      base: Prefix of the paths.
    """
    for i in range(size):
        label = f"class {i // 100 % CLASSES:04d}"
        note = f'said to be "number {i}",\nand more'
        yield f"{base}{label[6:]}/IMG_{i:08d}.jpg", label, SPLITS[i % len(SPLITS)], note


def write_manifest(kind: str, size: int, folder: Path) -> Path:
    """Writes a manifest and, for local images, the files that it names.

    Args:
      kind: One of `KINDS`.
      size: Number of rows.
      folder: Folder to write to.
    """
    where = kind.rpartition(" ")[2]
    rows = table(size, "gs://a-bucket-of-photographs/raw/" if where == "gs" else "")
    names = ("path", "label", "split", "note")
    if where == "local":
        for number in range(CLASSES):
            (folder / f"{number:04d}").mkdir()
        for path, *_ in table(size, ""):
            (folder / path).touch()
    file = folder / f"rows.{kind.partition(' ')[0]}"
    if kind.startswith("parquet"):
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.table(dict(zip(names, map(list, zip(*rows))))), file)
    elif kind.startswith("jsonl"):
        file.write_text("".join(json.dumps(dict(zip(names, row))) + "\n" for row in rows))
    else:
        with file.open("w", newline="") as text:
            writer = csv.writer(text)
            writer.writerow(names)
            writer.writerows(row if "quoted" in kind else (*row[:3], "") for row in rows)
    return file


def list_rows(path: str) -> int:
    """Reads all rows as the workers do, one after the other; returns their number."""
    from shardwright.core.sources.manifest import SOURCE
    from shardwright.core.sources.source import Context, Input
    from shardwright.core.sources.spool import Spool
    from shardwright.schemas.configuration.settings import ConvertSettings

    context = Context(ConvertSettings(input=(path,)), Spool(""))
    parts = SOURCE.parts(Input(path, "", is_file=True), context)
    found = (item for part in parts for item in SOURCE.list_part(part, context))
    counted = enumerate(found, 1)
    return int(deque(counted, maxlen=1)[0][0])


def run_one(path: str, size: int) -> None:
    """Plans one manifest in this process and prints the measurements as a line of JSON.

    Args:
      path: Path of the manifest.
      size: Number of its rows.
    """
    from shardwright.core.plan import forecast
    from shardwright.core.plan.forecast import Sample
    from shardwright.pipelines.plan import plan
    from shardwright.schemas.errors import UsageError

    began = time.perf_counter()
    if list_rows(path) != size:
        raise SystemExit("not all rows arrived")
    listing = time.perf_counter() - began
    sample = Sample(tried=64, faults={}, mean_bytes=10_000, mean_source_bytes=100_000)
    with mock.patch.object(forecast, "take_sample", lambda *_: sample):
        began = time.perf_counter()
        try:
            counted = plan(input=path).total
        except UsageError:  # the images do not exist
            counted = 0
        planning = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    print(json.dumps({"listing": size / listing, "planning": planning, "peak": peak, "images": counted}))


def plan_kind(kind: str, size: int) -> Turn:
    """Plans one kind of manifest in its own process.

    Args:
      kind: One of `KINDS`.
      size: Number of rows.
    """
    here = str(Path(__file__).parent)
    with tempfile.TemporaryDirectory() as scratch:
        path = write_manifest(kind, size, Path(scratch))
        # Import it instead of running it as a script, or the steps would be pickled with this module.
        call = f"manifest.run_one({str(path)!r}, {size})"
        code = f"import sys; sys.path.insert(0, {here!r}); import manifest; {call}"
        log = Path(scratch, "log")
        if run_measured([sys.executable, "-c", code], log, timeout=3600).exit_code != 0:
            raise SystemExit(log.read_text(errors="replace")[-3000:])
        found: Turn = json.loads(log.read_text().splitlines()[-1])
        return found


def measure(options: argparse.Namespace) -> Found:
    """Plans all kinds of manifests in turn."""

    def way(kind: str) -> Callable[[], Turn]:
        return lambda: plan_kind(kind, options.rows)

    found = take_turns({TITLES[kind]: way(kind) for kind in KINDS}, options.rounds)
    return Found(f"{options.rows:,} rows", summarize(found, UNITS))


BENCHMARK = Benchmark(
    "manifest",
    "Measures the time to plan a manifest, from its rows to the forecast, without images.",
    measure,
    quick={"rows": 20_000},
    full={"rows": 200_000, "rounds": 1},
    needs_photos=False,
)

if __name__ == "__main__":
    raise SystemExit(run_benchmark(BENCHMARK))
