"""Shows what convert would write with the same settings; writes nothing."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from shardwright.core.sources.spool import Spool
from shardwright.core.sources.unused_settings import without_effect
from shardwright.pipelines import cli, prepare
from shardwright.pipelines import options as cli_options
from shardwright.pipelines.command import CommandResult
from shardwright.pipelines.convert import add_arguments as add_arguments
from shardwright.pipelines.results import print_inputs, print_reasons
from shardwright.pipelines.tables import console, print_table, warn
from shardwright.schemas.layouts import Needs, layout_by_name
from shardwright.schemas.plan import Forecast
from shardwright.schemas.splits import by_split
from shardwright.schemas.units import counted, format_size

EXAMPLE = "shardwright plan --input photos/ --resize 224 --splits train=0.9,test=0.1"
_MAX_CLASSES_SHOWN = 40


def plan(*, beam_options: Any = None, progress: bool = False, **values: Any) -> Forecast:
    """Plans a dataset: the same as `shardwright plan`, as a function.

    It takes the settings of `convert`; `output` is not needed.

    Args:
      beam_options: Beam's PipelineOptions, or a list of its command-line options.
      progress: Whether to show progress on stderr.
      **values: Settings by name.

    Returns:
      A forecast of what `convert` would write with the same settings.

    Raises:
      UsageError: If the settings or the input are wrong.
      EngineError: If the engine, the storage or the machine failed.
    """
    beam_options = prepare.as_beam_options(beam_options)
    request = prepare.make_request(values, with_output=False)
    prepare.check_reachable(beam_options, **prepare.places_read(request))
    if progress:
        print_inputs(request, without_effect(request.given, request.facts))

    def build(pipeline: Any, scratch: str) -> Any:
        from shardwright.transforms.plan import PlanDataset, PlanShards

        batches, forecast, _ = pipeline | "PlanDataset" >> PlanDataset(request, Spool(scratch))
        # EncodedRefs; Forecast; ListingDigest
        _ = batches | "PlanShards" >> PlanShards(request, forecast)  # refuses equal keys, as in a conversion
        return forecast

    forecast: Forecast = prepare.run_for_result(build, beam_options, progress)
    return forecast


def print_forecast(forecast: Forecast) -> None:
    """Prints the forecast."""
    out = console()
    out.print(f"found: {forecast.tree}")
    shards, estimate = forecast.plan.shards, forecast.plan.estimate
    rows: list[list[object]] = []
    for split, listed_files in by_split(forecast.listed).items():
        count, size = shards.get(split, 0), estimate.get(split, 0)
        sizes = (format_size(size), format_size(size / count)) if count else ("", "")
        rows.append([split, listed_files, forecast.candidates.get(split, 0), count, *sizes])
    print_table(out, ("split", "listed", "images", "shards", "bytes", "bytes per shard"), rows)
    counts = forecast.class_counts
    layout = layout_by_name(forecast.plan.settings["layout"])
    classes = forecast.plan.classes(layout.first_label)
    if classes:
        rows = [[number, name, counts.get(name, 0)] for number, name in classes.items()]
        print_table(out, ("id", "class", "images"), rows, most=_MAX_CLASSES_SHOWN, noun="class")
    in_classes = "" if layout.needs is Needs.IMAGE else f" in {counted(len(classes), 'class')}"
    out.print(
        f"  {counted(forecast.total, 'image')}{in_classes}, "
        f"{format_size(forecast.source_bytes)} of sources; about "
        f"{format_size(sum(estimate.values()))} in {counted(sum(shards.values()), 'shard')}"
    )
    if forecast.split_shares is not None:
        out.print(f"  {forecast.split_shares.sentence}")
    print_reasons(out, {"filtered": forecast.filtered, "bad in the sample": forecast.sample_faults})
    if forecast.deduplicated:
        out.print(f"  deduplicated: {forecast.deduplicated:,}")
    bad = sum(forecast.sample_faults.values())
    out.print(f"  sample: {counted(forecast.sampled, 'image')} tried, {bad:,} bad")
    warn(out, *forecast.warnings, *forecast.balance.sentences)


def execute(options: argparse.Namespace) -> CommandResult:
    """Runs the command."""
    settings = cli_options.given_settings(options)
    forecast = plan(beam_options=options.beam_options, progress=True, **settings)
    return CommandResult(lambda: print_forecast(forecast), forecast.as_json)


if __name__ == "__main__":
    sys.exit(cli.main(["plan", *sys.argv[1:]]))
