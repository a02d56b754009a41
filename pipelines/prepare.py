"""The shared part of `convert` and `plan`: checks the settings, and builds the planning part of the graph."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import platform
import re
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardwright.core import storage
from shardwright.core.dataset_files import left_behind
from shardwright.core.images.encode import codec_versions, decoder_versions, installed_version
from shardwright.core.images.map_hook import hook_versions
from shardwright.core.overwrite import repair_swap
from shardwright.core.plan.request import ConversionRequest, checked_settings
from shardwright.core.sources.inputs import check_inputs
from shardwright.core.sources.rules import make_rules
from shardwright.core.sources.unused_settings import given_names
from shardwright.core.versions import located
from shardwright.pipelines import log
from shardwright.pipelines import options as cli_options
from shardwright.pipelines.progress import show_progress
from shardwright.pipelines.run import Workers, is_dataflow, run_pipeline
from shardwright.schemas import __version__
from shardwright.schemas.dataset import DATASET_JSON, Dataset
from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.labels import check_carried, parse_class_names
from shardwright.schemas.layouts import Needs
from shardwright.schemas.log_lines import without_secrets
from shardwright.schemas.plain_text import printable
from shardwright.schemas.plan import Plan

if TYPE_CHECKING:
    from shardwright.core.validation.against import Comparison

#: Packages of this project whose code decides what is made, and packages that read sources.
_PACKAGES = ("schemas", "core", "transforms", "pipelines")
_LISTING_PACKAGES = ("numpy", "pyarrow")
#: Settings of the listing that `dataset.json` does not store, because they name places. `run.json` has them.
UNSTORED = ("image_root", "mask_dir", "keep_labels", "include", "exclude")
#: Options whose values are passwords.
_SECRET = re.compile("--(s3.secret.access.key|s3.session.token|azure.connection.string)")
#: Key of `run.json`: the first class number, if the source numbers the names of `--class_names`.
FIRST_NUMBER = "class_names_from"
#: Key of `run.json` that is set if nothing outside of the input was read.
CONFINE = "confine"


def make_request(values: Mapping[str, Any], with_output: bool) -> ConversionRequest:
    """Checks everything that can be checked before an image is read; writes nothing.

    Args:
      values: The given settings by name; None means that a setting is not given.
      with_output: Whether `output` is used.

    Raises:
      UsageError: If a setting, a named file or an input is wrong.
    """
    values = {name: value for name, value in values.items() if value is not None}
    plan_from = str(values.get("plan_from") or "")
    storage.require_known("--plan_from", plan_from)
    carried = read_plan(plan_from) if plan_from else None
    settings = checked_settings(values, carried.settings if carried else None)
    if with_output:
        storage.require_known("--output", settings.output)
    hook_versions(settings.map)  # imports it and reads its source
    first_label = settings.record_layout.first_label
    stores_classes = settings.record_layout.needs is not Needs.IMAGE
    class_names: tuple[str, ...] = ()
    first_number = 0
    if settings.class_names and stores_classes:
        text = storage.read_text("--class_names", settings.class_names, "a class name on each line")
        class_names, first_number = parse_class_names(text, settings.class_names, first_label)
    if class_names and carried:
        check_carried(class_names, carried.labels, first_label, settings.class_names, plan_from)
    inputs = check_inputs(settings, settings.output if with_output else None)
    if carried is None and "color" not in values:
        # Otherwise gray images of records would become RGB, as from files, and be encoded again.
        as_they_are = settings.stored_format == "keep" and not settings.resize
        if as_they_are and all(item.source == "tfrecord" for item in inputs):
            settings = replace(settings, color="keep")
    return ConversionRequest(
        settings=settings,
        inputs=inputs,
        carried=carried,
        class_names=class_names,
        rules=make_rules(settings, class_names, first_number),
        given=given_names(values),
    )


def read_plan(path: str) -> Plan:
    """Reads the plan that `--plan_from` names: a `dataset.json`, the directory that holds it, or a version.

    Raises:
      UsageError: If there is none.
    """
    repair_swap(os.path.dirname(path) or "." if os.path.basename(path) == DATASET_JSON else path)
    if not path.endswith(".json") or os.path.isdir(path):
        path = located(path)
        if storage.is_remote(path) or os.path.isdir(path):
            path = storage.join(path, DATASET_JSON)
    try:
        data = storage.read_bytes(path)
    except OSError as error:
        raise UsageError(
            f"--plan_from {path}: {(error.strerror or str(error)).lower()}; name the dataset.json "
            "of an earlier build."
        ) from None
    return Dataset.from_bytes(data, f"--plan_from {path}").plan


def given_options(beam_options: Any) -> list[str] | None:
    """Returns Beam's options as the user wrote them; None if they came as PipelineOptions.

    Raises:
      UsageError: If they are one text, which is not split, or a mapping.
    """
    if isinstance(beam_options, str | Mapping):
        kind = type(beam_options).__name__  # the value may contain a secret
        raise UsageError(f"beam_options is one {kind}; write a list such as ['--runner=DirectRunner'].")
    return None if hasattr(beam_options, "view_as") else list(beam_options or ())


def as_beam_options(beam_options: Any) -> Any:
    """Returns PipelineOptions from PipelineOptions, a list of options, or None.

    The storage uses them from now on, since the first checks may read from a bucket.
    """
    if not hasattr(beam_options, "view_as"):
        beam_options = cli_options.beam_options(given_options(beam_options) or (), ())
    cli_options.use_in_storage(beam_options)
    return beam_options


def run_for_result(build: Callable[[Any, str], Any], beam_options: Any, progress: bool) -> Any:
    """Runs a pipeline whose last step returns one element; returns this element.

    Args:
      build: Builds the pipeline and returns its last PCollection, given the pipeline and a directory for
        temporary files that all workers can reach.
      beam_options: Beam's PipelineOptions.
      progress: Whether to show progress on stderr.

    Raises:
      UsageError: If the workers of the job cannot pass the result to this machine.
      EngineError: If the engine, the storage or the machine failed.
    """
    import apache_beam as beam
    from apache_beam.options.pipeline_options import GoogleCloudOptions

    place = beam_options.view_as(GoogleCloudOptions).temp_location or ""
    if is_dataflow(beam_options) and not storage.is_remote(place):
        raise UsageError(
            "--temp_location is missing, where the job leaves its result for this command; name a place in a "
            "bucket, gs://BUCKET/..."
        )
    with work_folder(place) as scratch:
        path = storage.join(scratch, "result")
        keep = "KeepResult" >> beam.Map(lambda result: storage.write_bytes(path, pickle.dumps(result)))
        with show_progress(progress):
            run_pipeline(lambda pipeline: build(pipeline, scratch) | keep, beam_options)
        return pickle.loads(fetch_result(path, "--temp_location"))


@contextlib.contextmanager
def work_folder(place: str) -> Iterator[str]:
    """Yields a new folder for work files, and removes it at the end of the block.

    Args:
      place: Directory in which it is; empty for one among the temporary files of this machine.
    """
    if not place:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            yield folder
        return
    folder = storage.join(place, f"shardwright-{uuid.uuid4().hex}")
    try:
        storage.make_dirs(folder)
        yield folder
    finally:
        log.warning(*left_behind(folder, lambda: storage.remove_tree(folder)))


def fetch_result(path: str, option: str) -> bytes:
    """Reads the file that the last step of a pipeline wrote.

    Args:
      path: Path of the file; a remote path if workers do not share this machine's disk.
      option: Option that chooses a remote path.

    Raises:
      EngineError: If the file is missing.
    """
    data = storage.read_if_exists(path)
    if data is None:
        raise EngineError(
            "The workers ran on other machines and wrote their result there; name a place that all "
            f"machines can reach with {option} gs://BUCKET/..."
        )
    return data


def places_read(request: ConversionRequest | Comparison) -> dict[str, list[str]]:
    """Returns the paths of sources that a job reads, by option name."""
    return {
        "input": [item.path for item in request.inputs],
        "image_root": [request.settings.image_root],
        "mask_dir": [request.settings.mask_dir],
    }


def check_reachable(beam_options: Any, **places: str | Sequence[str]) -> None:
    """Checks that the machines of a job on Dataflow can reach what it reads and writes.

    Args:
      beam_options: Beam's options.
      **places: Paths by option name.

    Raises:
      UsageError: If only this machine can reach a path; the message names it.
    """
    if not is_dataflow(beam_options):
        return
    for option, paths in places.items():
        for path in (paths,) if isinstance(paths, str) else paths:
            if path and not storage.is_remote(path):
                raise UsageError(
                    f"--{option} {path} is on this machine, which Dataflow's workers cannot "
                    "reach; name a place in a bucket, gs://BUCKET/..."
                )


def software_versions(hook: str = "") -> dict[str, str]:
    """Returns the versions that `dataset.json` records.

    Args:
      hook: The user's function (`--map`); empty if there is none.

    Raises:
      UsageError: If the hook cannot be imported.
    """
    return {
        "shardwright": __version__,
        "beam": installed_version("apache-beam"),
        **codec_versions(),
        **decoder_versions(),
        **hook_versions(hook),
    }


def listing_software(versions: Mapping[str, str]) -> dict[str, str]:
    """Returns the versions of all software that decides how an input is listed and planned.

    Args:
      versions: The result of `software_versions`.
    """
    packages = {package: installed_version(package) for package in _LISTING_PACKAGES}
    return {**versions, **packages, "python": platform.python_version(), "code": _code_state()}


@cache
def _code_state() -> str:
    """Returns a digest of the names, sizes and times of this project's own source files.

    The version of the project does not change with each edit or development version. An edit does not change
    what this process has imported.
    """
    states = []
    for name in _PACKAGES:
        for root in import_module(f"shardwright.{name}").__path__:
            for path in Path(root).rglob("*.py"):
                state = path.stat()
                place = f"{name}/{path.relative_to(root)}"
                states.append(f"{place} {state.st_size} {state.st_mtime_ns}")
    return hashlib.sha256("\n".join(sorted(states)).encode("utf-8", "surrogateescape")).hexdigest()


def launch_facts(beam_options: Any) -> dict[str, Any]:
    """Returns the command and the runner, for `run.json`."""
    from apache_beam.options.pipeline_options import StandardOptions

    return {
        "command": [*_without_secrets(sys.argv)],
        "runner": beam_options.view_as(StandardOptions).runner,
    }


def _without_secrets(words: Sequence[str]) -> Iterator[str]:
    """Yields the words of a command line without passwords, because datasets are passed on."""
    for before, word in zip(("", *words), words):
        name, equals, _ = word.partition("=")
        if _SECRET.fullmatch(before):
            yield "..."
        elif equals and _SECRET.fullmatch(name):
            yield f"{name}=..."
        else:
            yield without_secrets(printable(word))


def run_facts(request: ConversionRequest, beam_options: Any, workers: Workers) -> dict[str, Any]:
    """Returns the contents of `run.json` that are known before the run begins.

    Args:
      request: The checked request.
      beam_options: Beam's options.
      workers: The processes and threads of the run.
    """
    settings, rules = request.settings, request.rules
    listing: dict[str, str | int] = {
        name: printable(getattr(settings, name)) for name in UNSTORED if getattr(settings, name)
    }
    if rules.names:
        listing[FIRST_NUMBER] = rules.first_number
    if settings.confine:
        listing[CONFINE] = "true"
    return {
        **launch_facts(beam_options),
        "workers": {**asdict(workers), "text": str(workers)},
        "input": [printable(item) for item in settings.input],
        "detected_as": [item.detected_as for item in request.inputs],
        "listing": listing,
        **({"lists": dict(rules.files)} if rules.files else {}),
        "launcher": platform.node(),
    }
