"""Saves the sound records of a damaged dataset."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from shardwright.core import storage
from shardwright.core.dataset_files import left_behind, read_dataset, remove_work_leftovers, stored_document
from shardwright.core.lease import HeldLease
from shardwright.core.records.record_schema import RecordSchema
from shardwright.core.salvage.commit import SalvageJob
from shardwright.core.salvage.shard import SalvageTask
from shardwright.core.sources.image_files import as_prefix
from shardwright.pipelines import cli, log
from shardwright.pipelines import options as cli_options
from shardwright.pipelines.command import CommandResult
from shardwright.pipelines.places import Target, files_of_output, one_writer, resolve_target, schema_of
from shardwright.pipelines.prepare import as_beam_options, check_reachable, fetch_result, launch_facts
from shardwright.pipelines.progress import show_progress
from shardwright.pipelines.run import description_of, run_pipeline
from shardwright.pipelines.tables import console, warn
from shardwright.schemas.configuration.settings import SUFFIXES
from shardwright.schemas.dataset import DATASET_JSON, LOST_JSONL, OUTCOME_JSON, WORK_DIR, Dataset, pretty_json
from shardwright.schemas.errors import DataRefused, EngineError, UsageError
from shardwright.schemas.plain_text import printable, shell_word
from shardwright.schemas.plan import shard_file
from shardwright.schemas.units import counted

EXAMPLE = "shardwright salvage damaged/ --output saved/"
#: Marks a directory as an unfinished salvage, and names the dataset.
_MARK = f"{WORK_DIR}/salvage.json"


@dataclass(frozen=True)
class SalvageResult:
    """The result of a salvage.

    Attributes:
      path: Directory of the saved dataset.
      dataset: Contents of its `dataset.json`; None for foreign files.
      outcome: Numbers of shards, copied shards, records, lost records and unnamed records.
    """

    path: str
    dataset: Dataset | None
    outcome: Mapping[str, Any]

    @property
    def records(self) -> int:
        """Number of saved records."""
        return int(self.outcome["records"])

    @property
    def lost(self) -> int:
        """Number of lost records; `lost.jsonl` names them."""
        return int(self.outcome["lost"])

    def as_json(self) -> dict[str, Any]:
        """Returns the result as `--json` prints it."""
        return {
            "output": printable(self.path),
            "fingerprint": self.dataset.fingerprint if self.dataset else None,
            **{name: self.outcome[name] for name in ("records", "shards", "copied_shards", "lost")},
            "lost_codes": dict(self.outcome["lost_codes"]),
            "unnamed": self.outcome["unnamed"],
            "left_out": self.outcome["unexpected"],
            "warnings": list(self.outcome["warnings"]),
        }


def list_tasks(target: Target, output: str, hold: HeldLease | None = None) -> Iterator[SalvageTask]:
    """Yields the shards to save; `hold` is the lease that this needs."""
    if target.directory is None:
        for path in target.files:
            yield SalvageTask(path, output, os.path.basename(path), hold=hold)
        return
    for place, shard in read_dataset(target.directory).placed_shards():
        path = storage.join(target.directory, shard.file)
        yield SalvageTask(path, output, shard.file, target.directory, place, shard, hold)


def build_salvage(pipeline: Any, target: Target, job: SalvageJob) -> Any:
    """Builds the salvage: one element per shard, then the commit.

    Args:
      pipeline: A Beam pipeline.
      target: What to save.
      job: How and where to save it.

    Returns:
      A PCollection with one outcome.
    """
    import apache_beam as beam

    from shardwright.transforms.salvage import SalvageDataset

    dataset = read_dataset(target.directory) if target.directory else None
    begin = pipeline | "Begin" >> beam.Impulse()  # bytes
    schema = begin | "ReadSchema" >> beam.Map(lambda _: schema_of(target)).with_output_types(
        RecordSchema
    )  # RecordSchema
    tasks = begin | "ListShards" >> beam.FlatMap(
        lambda _: list_tasks(target, job.output, job.hold)
    ).with_output_types(SalvageTask)  # SalvageTask
    return tasks | "SalvageDataset" >> SalvageDataset(job, schema, dataset)  # outcome


def salvage(
    dataset: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    fast: bool = False,
    beam_options: Any = None,
    progress: bool = False,
) -> SalvageResult:
    """Saves the sound records of a dataset, like `shardwright salvage`.

    Args:
      dataset: Dataset directory, or a pattern of TFRecord files.
      output: Directory that is empty or does not exist.
      fast: Whether to skip decoding the images.
      beam_options: Beam's PipelineOptions, or a list of its command-line options.
      progress: Whether to show progress on stderr.

    Returns:
      The saved dataset.

    Raises:
      UsageError: If there is nothing to save, or the output is not empty; nothing was written.
      DataRefused: If no record could be saved; nothing was published.
      EngineError: If the engine, the storage or the machine failed.
    """
    started = time.time()
    dataset, output = os.fspath(dataset), os.fspath(output)
    beam_options = as_beam_options(beam_options)
    if description_of(beam_options):
        raise UsageError(
            "salvage looks at its output before it runs, so it describes no job for later; leave out "
            "--dry_run, --template_location and --output_executable_path."
        )
    if not output:
        raise UsageError("--output is missing; name an empty directory for what is saved.")
    storage.require_known("--output", output)
    target = _target(dataset)
    check_reachable(beam_options, dataset=target.name, output=output)
    _check_output(target, output)
    with one_writer(output, beam_options, described=False) as hold:
        if hold is not None:
            _check_output(target, output, hold.holder)  # another run may have written it meanwhile
        with storage.translated_errors("write to", output):
            storage.make_dirs(output)
            mark = pretty_json({"dataset": printable(target.name)})
            storage.write_bytes(storage.join(output, _MARK), mark.encode())
        log.warning(*remove_work_leftovers(output))
        run = launch_facts(beam_options)
        job = SalvageJob(target.name, target.directory or "", output, not fast, run, started, hold)
        try:
            with show_progress(progress):
                run_pipeline(lambda pipeline: build_salvage(pipeline, target, job), beam_options)
        except DataRefused:
            # It was empty, and contains nothing worth keeping. The root of a file system stays.
            with contextlib.suppress(OSError, EngineError):
                storage.remove_tree(output)
            raise
        outcome = json.loads(fetch_result(storage.join(output, OUTCOME_JSON), "--output"))
        if target.directory is None:
            work = storage.join(output, WORK_DIR)
            outcome["warnings"] += left_behind(work, lambda: storage.remove_tree(work))
        return SalvageResult(output, read_dataset(output) if target.directory else None, outcome)


def _target(name: str) -> Target:
    """Returns the dataset or the files to save.

    Raises:
      UsageError: If there is nothing to save, or its `dataset.json` is missing or damaged.
    """
    target = resolve_target(name, "salvage")
    if target.directory is None:
        by_name: dict[str, str] = {}
        for path in target.files:
            other = by_name.setdefault(os.path.basename(path), path)
            if other != path:
                raise UsageError(
                    f"--dataset {name} names two files that would get the same name, {other} and "
                    f"{path}; salvage one directory at a time."
                )
        return target
    try:
        dataset = read_dataset(target.directory)
    except UsageError as error:
        raise UsageError(f"{error.message.partition(';')[0]}; {_advice(name)}") from None
    for shard_place, shard in dataset.placed_shards():
        if shard.file not in [shard_file(*shard_place, suffix) for suffix in SUFFIXES.values()]:
            raise UsageError(
                f"--dataset {name}: its dataset.json lists a shard {printable(shard.file)!r}, a name "
                f"that convert never gives; {_advice(name)}"
            )
    return target


def _advice(dataset: str) -> str:
    return (
        "restore it, or run the same convert command again with --resume, which reuses every sound shard; "
        f"without the images, save only the records with --dataset '{dataset.rstrip('/')}/*.tfrecord*'."
    )


def _check_output(target: Target, output: str, holder: str = "") -> None:
    """Checks that the saved records would not mix with other files.

    Args:
      target: What to save.
      output: Output directory.
      holder: Holder of the output's lease, if this run has it already.

    Raises:
      UsageError: If the output is not empty, or inside the dataset.
      EngineError: If the output is not writable, or another run writes there.
    """
    if target.directory and as_prefix(output).startswith(as_prefix(target.directory)):
        raise UsageError(f"--output {output} is inside the dataset; choose another place.")
    files = files_of_output(output, holder)
    # An unfinished salvage of the same dataset is repeated.
    mark = stored_document(output, _MARK) if _MARK in files and DATASET_JSON not in files else None
    if files and mark != {"dataset": printable(target.name)}:
        raise UsageError(f"--output {output} is not empty; choose another place.")


def print_salvage_summary(result: SalvageResult) -> None:
    """Prints the number of saved records, and the next command."""
    out = console()
    outcome = result.outcome
    rewritten = outcome["shards"] - outcome["copied_shards"]
    out.print(
        f"  {counted(result.records, 'record')} saved in {counted(outcome['shards'], 'shard')}: "
        f"{outcome['copied_shards']:,} copied unchanged, {rewritten:,} rewritten"
    )
    if result.lost:
        codes = ", ".join(f"{count:,} {code}" for code, count in outcome["lost_codes"].items())
        unnamed = f"; {outcome['unnamed']:,} of them have no known key" if outcome["unnamed"] else ""
        what = "record" if result.dataset else "stretch or record"
        lost = counted(result.lost, what, "" if result.dataset else "stretches or records")
        out.print(f"  {lost} lost ({codes}){unnamed}: see {storage.join(result.path, LOST_JSONL)}")
    if outcome["unexpected"]:
        out.print(f"  left out: {counted(outcome['unexpected'], 'record')} of no shard, or found twice")
    if misplaced := outcome.get("misplaced"):
        out.print(f"  {counted(misplaced, 'shard')} found under the name of another one")
    warn(out, *outcome["warnings"])
    if result.dataset:
        out.print(f"  fingerprint {result.dataset.fingerprint}")
        out.print(f"next: shardwright validate --dataset {shell_word(result.path)}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    cli_options.add_dataset(parser, "a damaged dataset directory, or 'dir/*.tfrecord'")
    cli_options.add_text(parser, "output", "DIR", "an empty directory for the saved dataset")
    parser.add_argument(
        "--fast", action="store_true", help="decode no images: keep every record that is a sound Example"
    )


def execute(options: argparse.Namespace) -> CommandResult:
    """Runs the command."""
    if not options.output and len(options.place) == 2:
        damaged, saved = map(shell_word, options.place)
        raise UsageError(f"--output is missing; write shardwright salvage {damaged} --output {saved}.")
    result = salvage(**cli_options.arguments_of(salvage, options))
    return CommandResult(lambda: print_salvage_summary(result), result.as_json)


if __name__ == "__main__":
    sys.exit(cli.main(["salvage", *sys.argv[1:]]))
