"""What `convert` and `plan` share: settings to a checked request, and the planning part of the graph."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardwright.pipelines import options as cli_options
from shardwright.schemas.dataset import DATASET_JSON, Dataset
from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.image_ref import EncodedRefs, printable
from shardwright.schemas.labels import check_carried, parse_class_names
from shardwright.schemas.layouts import Needs
from shardwright.schemas.plan import Plan
from shardwright.schemas.settings import ConvertSettings
from shardwright.transforms import storage
from shardwright.transforms.publish import repair_swap
from shardwright.transforms.sources.inputs import check_inputs
from shardwright.transforms.sources.label_rules import LabelRules, make_label_rules
from shardwright.transforms.sources.source import Context, Input
from shardwright.transforms.sources.spool import Spool


@dataclass(frozen=True)
class Request:
    """What was asked for, checked.

    Attributes:
      settings: the settings.
      inputs: the inputs, parsed.
      carried: the plan to carry on, if any.
      class_names: the only class names allowed, in id order; empty for any.
      explicit_shards: shard settings were given, so carried counts do not hold.
      rules: what becomes of the class names that the sources say.
    """

    settings: ConvertSettings
    inputs: tuple[Input, ...]
    carried: Plan | None
    class_names: tuple[str, ...]
    explicit_shards: bool
    rules: LabelRules


def make_request(values: Mapping[str, Any], with_output: bool) -> Request:
    """Checks everything that can be told before any image is looked at; writes nothing.

    Args:
      values: the settings that were given, by name.
      with_output: whether `output` counts.

    Raises:
      UsageError: if a setting, a named file or an input is wrong.
    """
    plan_from = str(values.get("plan_from") or "")
    storage.require_known("--plan_from", plan_from)
    carried = read_plan(plan_from) if plan_from else None
    settings = cli_options.build_settings(values, carried.settings if carried else None)
    if with_output:
        storage.require_known("--output", settings.output)
    first_label = settings.record_layout.first_label
    class_names = read_class_names(settings.class_names, first_label)
    if class_names and carried:
        check_carried(class_names, carried.labels, first_label, settings.class_names, plan_from)
    inputs = check_inputs(settings, settings.output if with_output else None)
    if carried is None and "color" not in values:
        settings = _with_own_colors(settings, inputs)
    return Request(
        settings=settings,
        inputs=inputs,
        carried=carried,
        class_names=class_names,
        explicit_shards=bool({"shards", "shard_size"} & set(values)),
        rules=make_label_rules(settings),
    )


def _with_own_colors(settings: ConvertSettings, inputs: Sequence[Input]) -> ConvertSettings:
    """Returns settings by which the pictures of records stay as they are where nothing is asked of them.

    Grey ones would be made RGB, as those of files are, and so be encoded anew.
    """
    as_they_are = settings.stored_format == "keep" and not settings.resize
    if as_they_are and all(item.source == "tfrecord" for item in inputs):
        return replace(settings, color="keep")
    return settings


def read_plan(path: str) -> Plan:
    """Reads the plan that `--plan_from` names: a `dataset.json`, or the directory that holds it.

    Raises:
      UsageError: if there is none.
    """
    if not storage.is_remote(path):
        named = os.path.basename(path) == DATASET_JSON
        repair_swap(os.path.dirname(path) or "." if named else path)
        if os.path.isdir(path):
            path = storage.join(path, DATASET_JSON)
    elif not path.endswith(".json"):
        path = storage.join(path, DATASET_JSON)
    try:
        data = storage.read_bytes(path)
    except OSError as error:
        raise UsageError(
            f"--plan_from {path}: {(error.strerror or str(error)).lower()}; name the dataset.json "
            "of an earlier build."
        ) from None
    return Dataset.from_bytes(data, f"--plan_from {path}").plan


def read_class_names(path: str, first_label: int = 0) -> tuple[str, ...]:
    """Reads the `--class_names` file, in the order of ids; empty without one."""
    if not path:
        return ()
    return parse_class_names(storage.read_text("--class_names", path), path, first_label)


def build_forecast(pipeline: Any, request: Request, spool: Spool) -> tuple[Any, Any]:
    """Builds the planning part of a conversion: list, batch, deduplicate, forecast.

    Args:
      pipeline: a Beam pipeline.
      request: what was asked for.
      spool: takes what cannot be read at random.

    Returns:
      The PCollections of reference batches and of the one forecast.
    """
    import apache_beam as beam

    from shardwright.transforms.dedupe import DedupeExact
    from shardwright.transforms.plan.transforms import BatchRefs, ForecastDataset
    from shardwright.transforms.sources.transforms import ListSources

    settings = request.settings
    refs, class_ids = pipeline | "ListSources" >> ListSources(
        request.inputs, Context(settings, spool), request.rules
    )  # ImageRef, ClassId
    batches = refs | "BatchRefs" >> beam.ParDo(BatchRefs()).with_output_types(EncodedRefs)  # EncodedRefs
    if settings.dedupe == "exact":
        # Elsewhere an unknown class is a fault of one object, and none of the image.
        fatal = request.class_names if settings.record_layout.needs is Needs.LABEL else ()
        batches = batches | "DedupeExact" >> DedupeExact(settings.max_source_bytes, fatal)  # EncodedRefs
    forecast = batches | "ForecastDataset" >> ForecastDataset(
        settings, class_ids, request.rules, request.carried, request.class_names, request.explicit_shards
    )  # Forecast
    return batches, forecast


def as_beam_options(beam_options: Any) -> Any:
    """Returns Beam's PipelineOptions from themselves, a list of options, or None.

    From here on they count for the storage too: what is checked first may be in a bucket.
    """
    if not hasattr(beam_options, "view_as"):
        beam_options = cli_options.beam_options(beam_options or (), ())
    storage.use_options(beam_options)
    return beam_options


def fetch_result(path: str, option: str) -> bytes:
    """Reads what the last step of a pipeline wrote, wherever its worker ran.

    Args:
      path: where it wrote; a remote one where workers have other disks than this machine.
      option: that would make it one.

    Raises:
      EngineError: if it is not there.
    """
    with storage.faults("read", path):
        try:
            return storage.read_bytes(path)
        except FileNotFoundError:
            raise EngineError(
                "The workers ran on other machines and left their result there; name a place that all "
                f"can reach with {option} gs://BUCKET/..."
            ) from None


def places_read(request: Request) -> dict[str, list[str]]:
    """Returns the paths that a conversion reads, by the name of their option."""
    return {
        "input": [item.path for item in request.inputs],
        "image_root": [request.settings.image_root],
        "mask_dir": [request.settings.mask_dir],
    }


def check_reachable(beam_options: Any, **places: str | Sequence[str]) -> None:
    """Checks that the machines of a job on Dataflow can reach what it reads and writes.

    Args:
      beam_options: Beam's options.
      **places: paths by the name of their option.

    Raises:
      UsageError: naming the path that only this machine has.
    """
    from apache_beam.options.pipeline_options import StandardOptions

    if "dataflow" not in (beam_options.view_as(StandardOptions).runner or "").lower():
        return
    for option, paths in places.items():
        for path in (paths,) if isinstance(paths, str) else paths:
            if path and not storage.is_remote(path):
                raise UsageError(
                    f"--{option} {printable(path)} is on this machine, which Dataflow's workers cannot "
                    "reach; name a place in a bucket, gs://BUCKET/..."
                )
