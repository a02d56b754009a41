"""Prints the results of commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from shardwright.core import storage
from shardwright.core.sources.folder_tree import CLASS_FOLDERS
from shardwright.core.sources.unused_settings import without_effect
from shardwright.pipelines import log
from shardwright.pipelines.results import LEDGER_COLUMNS, ledger_rows
from shardwright.pipelines.tables import console, print_table, warn
from shardwright.schemas.changes import Kind
from shardwright.schemas.dataset import QUARANTINE_JSONL, REPORT_HTML
from shardwright.schemas.image_ref import printable
from shardwright.schemas.layouts import Needs, layout_by_name
from shardwright.schemas.plain_text import shell_word
from shardwright.schemas.scrub import scrub_text
from shardwright.schemas.units import counted, format_size
from shardwright.schemas.version import INDEX_HTML

#: Seconds from which on a run is long enough to state its speed.
_SETTLED_SECONDS = 10.0

if TYPE_CHECKING:
    from shardwright.core.plan.request import ConversionRequest
    from shardwright.pipelines.results import ConvertResult, RebuildResult


def print_inputs(request: ConversionRequest, notes: Iterable[str] | None = None) -> None:
    """Prints the detected kind of unclear inputs, and the settings without an effect, on stderr.

    Args:
      request: The checked request.
      notes: A sentence for each setting without an effect; None to derive them from the settings.
    """
    if notes is None:
        notes = without_effect(request.given, request.facts)
    for item in request.inputs:
        if item.detected_as != CLASS_FOLDERS:
            log.about(item.path, item.detected_as)
    for sentence in notes:
        log.note(sentence)


def print_ledger(out: Any, ledger: Mapping[str, Any]) -> None:
    """Prints the ledger, and the reasons for images that were left out."""
    print_table(out, ("split", *LEDGER_COLUMNS), ledger_rows(ledger))
    for outcome, reasons in ledger["reasons"].items():
        listed = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())
        out.print(f"  {outcome}: {listed}")


def _read_text(metrics: Mapping[str, Any]) -> str:
    """Returns the runner's counts of reading; empty if it reports none."""
    decoding, images = metrics.get("decode_us"), metrics.get("images_read", 0)
    if not images or not decoding or not decoding["count"]:
        return ""
    low, mean, high = (decoding[name] / 1000 for name in ("min", "mean", "max"))
    return (
        f"; read {counted(images, 'image')}, {format_size(metrics['bytes_read'])}; decoding took "
        f"{mean:.1f} ms an image ({low:.1f} to {high:.1f})"
    )


def _boxes_text(layout: str, boxes: Mapping[str, int]) -> str:
    """Returns the numbers of kept and dropped annotations, in one line."""
    texts = {
        "written": "written",
        "clipped": "clipped",
        "vanished": "cropped away",
        "dropped": "bad ones dropped",
        "unlisted": "not listed",
    }
    noun = "segments" if layout == Needs.PANOPTIC else "boxes"
    line = f"{noun}: " + ", ".join(
        f"{boxes[name]:,} {text}" for name, text in texts.items() if boxes.get(name)
    )
    points = {"keypoints_outside": "outside their image", "keypoints_vanished": "cropped away"}
    lost = [f"{boxes[name]:,} {text}" for name, text in points.items() if boxes.get(name)]
    if lost:
        line += f"; key points not labelled any more: {', '.join(lost)}"
    segments = [f"{boxes[key]:,} {texts[name]}" for name in texts if boxes.get(key := f"segments_{name}")]
    return f"{line}; segments: {', '.join(segments)}" if segments else line


def print_convert_summary(result: ConvertResult) -> None:
    """Prints the result of a conversion, and the next command."""
    out = console()
    made, outcome = result.dataset, result.outcome
    print_ledger(out, made.ledger)
    shards = sum(len(shards) for shards in made.splits.values())
    size = sum(shard.bytes for shards in made.splits.values() for shard in shards)
    records = made.ledger["written"]
    seconds = result.run["seconds"]
    # A short run takes most of its time to start.
    speed = f", {records / seconds:,.0f} images/s" if seconds >= _SETTLED_SECONDS else ""
    layout = layout_by_name(str(made.plan.settings["layout"]))
    classes = "no classes" if layout.needs is Needs.IMAGE else counted(len(made.classes), "class")
    out.print(
        f"  {counted(records, 'record')} in {counted(shards, 'shard')}, {format_size(size)}, "
        f"{classes}; {seconds:.1f} s{speed}"
    )
    if made.split_shares is not None:
        out.print(f"  {made.split_shares.sentence}", soft_wrap=True)
    for split, folds in result.run.get("folds", {}).items():
        out.print(f"  {counted(len(folds), 'fold')} of {split}: {', '.join(f'{n:,}' for n in folds)} records")
    for path, detected_as in zip(result.run["input"], result.run["detected_as"]):
        out.print(f"  {path}: {detected_as}")
    out.print(f"  {result.run['workers']['text']}{_read_text(result.metrics)}")
    notes = {
        "kept": ("image", "kept as their original bytes"),
        "animated": ("animation", "reduced to their first frame"),
        "damaged": ("damaged image", "kept with pixels that the decoder made up (--damaged keep)"),
        "warned": ("image", "with a harmless decoder warning (decoder_warning in the ledgers)"),
        "reused_shards": ("shard", "reused from the previous run"),
    }
    for name, (noun, text) in notes.items():
        if outcome.get(name):
            out.print(f"  {counted(outcome[name], noun)} {text}")
    if outcome.get("boxes"):
        out.print(f"  {_boxes_text(made.layout, outcome['boxes'])}")
    if made.ledger["quarantined"]:
        out.print(f"  quarantined images: see {printable(storage.join(result.path, QUARANTINE_JSONL))}")
    for note in result.notes:
        out.print(f"  note: {note}", soft_wrap=True)
    for warning in outcome["warnings"]:
        warn(out, warning)
    out.print(f"  fingerprint {made.fingerprint}")
    out.print(f"next: shardwright inspect {shell_word(result.path)}")


def changes_text(changes: Mapping[str, int]) -> str:
    """Returns the changes of images since the previous version; empty for none."""
    return ", ".join(
        f"{changes[kind]:,} {kind.replace('_', '-')}" for kind in Kind if changes.get(kind.value)
    )


def print_rebuild_summary(result: RebuildResult) -> None:
    """Prints the result of a rebuild, and where to find it."""
    from shardwright.core.rebuild.commit import work_text

    out, outcome = console(), result.outcome
    if not result.changed:
        shown = printable(result.output)
        out.print(f"  nothing changed: {result.version} stays the latest version of {shown}", soft_wrap=True)
    else:
        work = outcome["work"]
        out.print(
            f"  version {result.version}: {counted(outcome['records'], 'record')}; {work_text(work)}",
            soft_wrap=True,
        )
        if outcome["previous"]:
            changes = changes_text(outcome["changes"]) or "no image changed"
            out.print(f"  against {outcome['previous']}: {changes}", soft_wrap=True)
        quarantine, report, index = (
            printable(storage.join(directory, name))
            for directory, name in (
                (result.path, QUARANTINE_JSONL),
                (result.path, REPORT_HTML),
                (result.output, INDEX_HTML),
            )
        )
        if work["quarantined"]:
            out.print(f"  quarantined images: see {quarantine}", soft_wrap=True)
        out.print(f"  see {report} and {index}", soft_wrap=True)
    if outcome["scrub"]["shards"]:
        out.print(f"  {scrub_text(outcome['scrub'])}", soft_wrap=True)
    for warning in outcome["warnings"]:
        warn(out, warning)
