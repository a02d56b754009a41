"""Measures planning and grouping alone, with generated references and no images.

The graph is that of `convert` up to the references of each shard: batches, forecast, assignment, the check of
keys, and the first steps of the writer for each shard (decode, sort, digest). Each size runs on the
in-process runner, in a separate process. `--model 1e9` computes the needs of a large job.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import resource
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

from machine import machine_facts
from measure import run_measured
from scale_model import INPUTS, RECORD_BYTES, SOURCE_BYTES, print_model

CLASSES = 1000
#: Number of references in one listing.
LISTING = 100_000
#: The phases, in the order in which they end; the runner finishes one before it begins the next.
PHASES = ("plan", "group", "check", "sort")


def synthetic_refs(numbers: range) -> Iterator[Any]:
    """Yields references like those of a listing of Google Cloud Storage.

    Args:
      numbers: numbers of the images; the key of each ends with its number.
    """
    from shardwright.schemas.image_ref import ImageRef

    noise = random.Random(numbers.start)
    for i in numbers:
        label = f"class_{i // 100 % CLASSES:04d}"
        key = f"{label}/IMG_{i:08d}.jpg"
        bits = noise.getrandbits(96)
        yield ImageRef(
            key=key,
            uri=f"gs://a-bucket-of-photographs/raw/{key}",
            label=label,
            size=SOURCE_BYTES // 2 + bits % SOURCE_BYTES,
            version=f"17{bits >> 50:014d}",
            crc32c=base64.b64encode((bits & 0xFFFFFFFF).to_bytes(4, "big")).decode(),
        )


class Marks:
    """The end of each phase: seconds, CPU seconds, and the peak memory so far in 10^6 bytes.

    The steps run in this process and find this class by its name, so they share its state.
    """

    began: ClassVar[tuple[float, float]] = (0.0, 0.0)
    ends: ClassVar[dict[str, tuple[float, float, float]]] = {}

    @classmethod
    def begin(cls) -> None:
        """Starts the clocks."""
        cls.began = (time.perf_counter(), time.process_time())

    @classmethod
    def end(cls, phase: str) -> None:
        """Records the end of a phase, only the first time."""
        if phase not in cls.ends:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
            seconds, cpu = cls.began
            cls.ends[phase] = (time.perf_counter() - seconds, time.process_time() - cpu, peak)


def _note_planned(forecast: Any) -> Any:
    Marks.end("plan")
    return forecast


def _note_grouped(shard: Any) -> Any:
    Marks.end("group")
    return shard


def prepare_shard(planned: Any, forecast: Any) -> tuple[int, int, int, int]:
    """Does the same as the writer before it reads the first image.

    Returns:
      1, the number of references in the shard, the sum of their numbers, and their encoded bytes.
    """
    from shardwright.schemas.configuration.settings import ConvertSettings
    from shardwright.transforms.shards.shard_plan import plan_shard

    Marks.end("check")
    batches = list(planned.refs)
    refs = plan_shard(planned._replace(refs=batches), forecast, ConvertSettings(resize="224"), {}).refs
    return 1, len(refs), sum(int(ref.key[-12:-4]) for ref in refs), sum(map(len, batches))


def _add_up(counts: Iterable[Sequence[int]]) -> tuple[int, ...]:
    return tuple(map(sum, zip((0, 0, 0, 0), *counts, strict=True)))


def build(pipeline: Any, size: int, result: str) -> None:
    """Builds the graph of `build_convert` up to the shards' references.

    Args:
      pipeline: Beam pipeline.
      size: number of references.
      result: file for the sums of `prepare_shard`.
    """
    import apache_beam as beam

    from shardwright.schemas.configuration.settings import ConvertSettings
    from shardwright.schemas.image_ref import EncodedRefs
    from shardwright.transforms.plan.transforms import (
        AssignShards,
        BatchRefs,
        ForecastDataset,
        check_keys,
        name_planned_shard,
    )
    from shardwright.transforms.sources.label_rules import LabelRules

    settings = ConvertSettings(resize="224")
    listings = [range(start, min(start + LISTING, size)) for start in range(0, size, LISTING)]
    batches = (
        pipeline
        | "NameListings" >> beam.Create(listings, reshuffle=False)
        | "ListSynthetic" >> beam.FlatMap(synthetic_refs)
        | "BatchRefs" >> beam.ParDo(BatchRefs()).with_output_types(EncodedRefs)
    )
    ids = pipeline | "NoClassIds" >> beam.Create([], reshuffle=False)
    forecast = (
        batches
        | "ForecastDataset" >> ForecastDataset(settings, ids, LabelRules())
        | "NotePlanned" >> beam.Map(_note_planned)
    )  # fmt: skip
    grouped = (
        batches
        | "AssignShards" >> AssignShards(settings, forecast)
        | "NoteGrouped" >> beam.Map(_note_grouped)
    )  # fmt: skip
    keys_checked = grouped | "CheckKeys" >> beam.FlatMap(check_keys)
    the_forecast = beam.pvalue.AsSingleton(forecast)
    _ = (
        grouped
        | "NamePlannedShards" >> beam.Map(name_planned_shard, the_forecast, beam.pvalue.AsIter(keys_checked))
        | "PrepareShard" >> beam.Map(prepare_shard, the_forecast)
        | "AddUp" >> beam.CombineGlobally(_add_up)
        | "Keep" >> beam.Map(lambda sums: Path(result).write_text(json.dumps(sums)) and None)
    )


def run_one(size: int) -> None:
    """Runs one size in this process and prints the measurements as a line of JSON.

    Args:
      size: number of references.
    """
    from shardwright.pipelines.prepare import as_beam_options
    from shardwright.pipelines.run import run_pipeline
    from shardwright.transforms.plan import forecast
    from shardwright.transforms.plan.estimate import Sample

    began = time.process_time()
    deque(synthetic_refs(range(size)), maxlen=0)
    making = time.process_time() - began
    # There are no images to sample. The forecast needs only the mean size of a record from them.
    sample = Sample(tried=64, faults={}, mean_bytes=RECORD_BYTES, mean_source_bytes=SOURCE_BYTES)
    no_images = mock.patch.object(forecast, "take_sample", lambda *_: sample)
    with tempfile.TemporaryDirectory() as scratch, no_images:
        result = Path(scratch, "sums")
        Marks.begin()
        run_pipeline(lambda pipeline: build(pipeline, size, str(result)), as_beam_options(None))
        Marks.end("sort")
        shards, count, numbers, encoded = json.loads(result.read_text())
    # The check of keys fails if a key arrives twice, so here all of them arrived once.
    if (count, numbers) != (size, size * (size - 1) // 2):
        raise SystemExit(f"{count} references arrived, of {size}")
    print(json.dumps({"making": making, "shards": shards, "encoded": encoded, "ends": Marks.ends}))


def measure(size: int) -> dict[str, Any]:
    """Runs one size in a separate process.

    Args:
      size: number of references.

    Returns:
      The report of `run_one`.
    """
    here = str(Path(__file__).parent)
    # Import it instead of running it as a script, or the steps would be pickled with copies of `Marks`.
    code = f"import sys; sys.path.insert(0, {here!r}); import scale; scale.run_one({size})"
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch, "log")
        if run_measured([sys.executable, "-c", code], log, timeout=36_000).exit_code != 0:
            raise SystemExit(log.read_text(errors="replace")[-3000:])
        report: dict[str, Any] = json.loads(log.read_text().splitlines()[-1])
    return report


def row(size: int, report: dict[str, Any]) -> str:
    """Returns a report as a row of the table.

    Args:
      size: number of references.
      report: report of `run_one`.
    """
    ends = [report["ends"][phase] for phase in PHASES]
    seconds = [end[0] - start for end, start in zip(ends, [0.0] + [end[0] for end in ends])]
    total, cpu, peak = ends[-1]
    cells = [f"{size:,}", f"{report['shards']:,}", *(f"{value:.1f}" for value in seconds), f"{total:.1f}"]
    cells += [f"{cpu:.1f}", f"{report['making']:.1f}", f"{size / total:,.0f}", f"{peak:.0f}"]
    cells += [f"{report['encoded'] / size:.0f}"]
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default="10000,100000,1000000,10000000", help="numbers with commas")
    parser.add_argument("--rounds", type=int, default=1, help="of each size; the median one is shown")
    parser.add_argument("--model", type=float, help="compute what so many images need instead")
    parser.add_argument(
        "--given", action="append", default=[], metavar="NAME=VALUE", help="an input of the model; repeatable"
    )
    options = parser.parse_args()
    if options.model:
        given = {name: float(value) for name, _, value in (item.partition("=") for item in options.given)}
        if unknown := given.keys() - INPUTS.keys():
            parser.error(f"the model has no input {', '.join(sorted(unknown))}")
        print_model(round(options.model), given)
        return 0
    sizes = [int(float(size)) for size in options.sizes.split(",")]
    print(*(f"{name}: {value}" for name, value in machine_facts().items()), sep="\n", end="\n\n")
    columns = (
        "references", "shards", "plan s", "group s", "check s", "sort s", "in all s", "CPU s",
        "of it making them", "refs/s", "peak MB", "bytes a ref",
    )  # fmt: skip
    print(f"| {' | '.join(columns)} |")
    print(f"|{'---:|' * len(columns)}", flush=True)
    for size in sizes:
        reports = [measure(size) for _ in range(options.rounds)]
        reports.sort(key=lambda report: report["ends"][PHASES[-1]][0])
        print(row(size, reports[len(reports) // 2]), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
