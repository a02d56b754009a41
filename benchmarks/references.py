"""Measures planning and grouping alone, with generated references and no images.

The graph is that of `convert` up to the references of each shard: batches, forecast, assignment, the check of
keys, and the first steps of the writer for each shard (decode, sort, digest). Each size runs on the
in-process runner, in a separate process. `job_model.py` computes the needs of a large job.
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
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

from command import Benchmark, Found, run_benchmark
from job_model import RECORD_BYTES, SOURCE_BYTES
from measure import run_measured
from rounds import SPEED, Turn, summarize, take_turns

CLASSES = 1000
#: Number of references in one listing.
LISTING = 100_000
#: The phases, in the order in which they end; the runner finishes one before it begins the next.
PHASES = ("plan", "group", "check", "sort")


def synthetic_refs(numbers: range) -> Iterator[Any]:
    """Yields references like those of a listing of Google Cloud Storage.

    Args:
      numbers: Numbers of the images; the key of each ends with its number.
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
    from shardwright.core.shards.shard_plan import plan_shard
    from shardwright.schemas.configuration.settings import ConvertSettings

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
      size: Number of references.
      result: File for the sums of `prepare_shard`.
    """
    import apache_beam as beam

    from shardwright.core.plan.assign import check_keys
    from shardwright.core.plan.request import ConversionRequest
    from shardwright.schemas.configuration.settings import ConvertSettings
    from shardwright.schemas.image_ref import EncodedRefs
    from shardwright.transforms.plan import (
        AssignShards,
        BatchRefs,
        ForecastDataset,
        name_planned_shard,
    )

    settings = ConvertSettings(resize="224")
    listings = [range(start, min(start + LISTING, size)) for start in range(0, size, LISTING)]
    batches = (
        pipeline
        | "NameListings" >> beam.Create(listings, reshuffle=False)
        | "ListSynthetic" >> beam.FlatMap(synthetic_refs)
        | "BatchRefs" >> beam.ParDo(BatchRefs()).with_output_types(EncodedRefs)
    )
    ids = pipeline | "NoClassIds" >> beam.Create([], reshuffle=False)
    nothing = pipeline | "NoMatches" >> beam.Create([], reshuffle=False)
    forecast = (
        batches
        | "ForecastDataset" >> ForecastDataset(ConversionRequest(settings), ids, nothing)
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
      size: Number of references.
    """
    from shardwright.core.plan import forecast
    from shardwright.core.plan.forecast import Sample
    from shardwright.pipelines.prepare import as_beam_options
    from shardwright.pipelines.run import run_pipeline

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


def run_apart(size: int) -> Turn:
    """Runs one size in a separate process.

    Args:
      size: Number of references.

    Returns:
      Its measures; the seconds of each phase without those of the phases before.
    """
    here = str(Path(__file__).parent)
    # Import it instead of running it as a script, or the steps would be pickled with copies of `Marks`.
    code = f"import sys; sys.path.insert(0, {here!r}); import references; references.run_one({size})"
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch, "log")
        if run_measured([sys.executable, "-c", code], log, timeout=36_000).exit_code != 0:
            raise SystemExit(log.read_text(errors="replace")[-3000:])
        report = json.loads(log.read_text().splitlines()[-1])
    ends = [report["ends"][phase] for phase in PHASES]
    total, processor, peak = ends[-1]
    return {
        "shards": report["shards"],
        **{
            phase: end[0] - start
            for phase, end, start in zip(PHASES, ends, [0.0] + [end[0] for end in ends], strict=False)
        },
        "in all": total,
        "processor time": processor,
        "of it making them": report["making"],
        SPEED: size / total,
        "peak": peak,
        "a reference": report["encoded"] / size,
    }


UNITS = {
    "shards": "",
    **dict.fromkeys((*PHASES, "in all", "processor time", "of it making them"), "s"),
    SPEED: "refs/s",
    "peak": "MB",
    "a reference": "bytes",
}


def measure(options: argparse.Namespace) -> Found:
    """Runs all sizes in turn."""
    sizes = [int(float(size)) for size in options.sizes.split(",")]
    found = take_turns({f"{size:,} references": partial(run_apart, size) for size in sizes}, options.rounds)
    return Found(f"generated references, {CLASSES:,} classes", summarize(found, UNITS))


BENCHMARK = Benchmark(
    "references",
    "Measures planning and grouping alone, with generated references and no images.",
    measure,
    quick={"sizes": "10000,100000"},
    full={"sizes": "10000,100000,1000000", "rounds": 1},
    needs_photos=False,
)

if __name__ == "__main__":
    raise SystemExit(run_benchmark(BENCHMARK))
