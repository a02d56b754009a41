"""Results of conversions, rebuilds and validations, and how they are printed."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from shardwright.core import storage
from shardwright.core.sources.folder_tree import CLASS_FOLDERS
from shardwright.pipelines import log
from shardwright.pipelines.tables import ERROR, GOOD, WARNING, console, print_table, visible, warn
from shardwright.schemas.codes import CheckDepth, Severity, time_in_words
from shardwright.schemas.dataset import QUARANTINE_JSONL, REPORT_HTML, Dataset
from shardwright.schemas.drift import Kind
from shardwright.schemas.findings import Finding, FindingsOfCode, ValidationReport
from shardwright.schemas.layouts import Needs
from shardwright.schemas.plain_text import printable, shell_word
from shardwright.schemas.splits import by_split
from shardwright.schemas.units import counted, format_size
from shardwright.schemas.version import INDEX_HTML, scrub_text, version_path

if TYPE_CHECKING:
    from shardwright.core.plan.request import ConversionRequest

#: Columns of a ledger's table, after the split.
LEDGER_COLUMNS = ("listed", "written", "quarantined", "filtered", "deduplicated")
#: Counts in the outcome of a conversion -> what is counted, and what happened to it.
_COUNTS = {
    "kept": ("image", "kept byte for byte"),
    "animated": ("animation", "reduced to the first frame"),
    "damaged": ("damaged image", "kept with pixels that the decoder made up (--damaged keep)"),
    "warned": ("image", "with a harmless decoder warning (decoder_warning in the ledgers)"),
    "reused_shards": ("shard", "reused from the previous run"),
}
#: Fields of the outcome of a rebuild that `--json` prints.
_OF_REBUILD = (
    "state", "previous", "fingerprint", "records", "work", "changes", "reasons", "scrub", "seconds",
    "warnings",
)  # fmt: skip
#: Seconds from which on a run is long enough to state its speed.
_SETTLED_SECONDS = 10.0
_STYLES = {Severity.ERROR: ERROR, Severity.WARNING: WARNING, Severity.NOTE: ""}
_EXAMPLES = 20
_EXAMPLES_OF_CODE = 3
#: Minimum length of a shortened message, even on a narrow terminal.
_SHORTEST = 20
#: Parts that a check of each depth skips.
_NOT_LOOKED_AT = {
    CheckDepth.FRAMES: ", but records were not read",
    CheckDepth.FAST: ", but images were not decoded",
}
#: Headers of the columns of `print_statistics`.
_STATISTICS_COLUMNS = ("split", "images", "width", "height", "channel means", "deviations")
_NOTHING = "-"
#: Number of channels in a cell; `statistics.json` has all of them.
_MAX_CHANNELS = 4


@dataclass(frozen=True, repr=False)
class ConvertResult:
    """The result of a conversion.

    Attributes:
      path: Dataset directory.
      dataset: Contents of its `dataset.json`.
      outcome: Contents of `_work/outcome.json`; `findings` has the number of findings of each code.
      run: Contents of `run.json`.
      metrics: Metrics that the runner reports (`schemas/codes.py`); some runners report none.
      notes: A sentence for each given setting that had no effect on the images.
    """

    path: str
    dataset: Dataset
    outcome: Mapping[str, Any]
    run: Mapping[str, Any]
    metrics: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def records(self) -> int:
        """Number of records in all splits."""
        return self.dataset.all_records

    @property
    def splits(self) -> dict[str, int]:
        """Split -> number of records."""
        return {split: self.dataset.records(split) for split in self.dataset.splits}

    @property
    def labels(self) -> tuple[str, ...]:
        """Class names in the order of ids."""
        return self.dataset.labels

    def __repr__(self) -> str:
        splits = ", ".join(f"{split}: {count:,}" for split, count in self.splits.items())
        classes = counted(len(self.dataset.classes), "class")
        return f"<{printable(self.path)}: {counted(self.records, 'record')} ({splits}), {classes}>"

    def _repr_html_(self) -> str:
        """Returns what a notebook shows: the ledger of each split, and the reasons for images left out."""
        head = _row("th", ("split", *LEDGER_COLUMNS))
        rows = "".join(_row("td", row) for row in ledger_rows(self.dataset.ledger))
        reasons = [
            f"{outcome}: {count:,} {reason}"
            for outcome, of_outcome in self.dataset.ledger["reasons"].items()
            for reason, count in of_outcome.items()
        ]
        lines = [f"<br>{html.escape(line)}" for line in (*reasons, *self.outcome["warnings"], *self.notes)]
        return f"<p>{html.escape(repr(self))}{''.join(lines)}</p><table>{head}{rows}</table>"

    @property
    def findings(self) -> Mapping[str, int]:
        """Number of findings of each code, such as `LABEL_CONFLICT`."""
        return dict(self.outcome["findings"])

    def as_json(self) -> dict[str, Any]:
        """Returns the result as `--json` prints it."""
        dataset, outcome = self.dataset, self.outcome
        sizes = sizes_of_splits(dataset)
        totals = {name: sum(size[name] for size in sizes.values()) for name in ("records", "shards", "bytes")}
        return {
            "output": printable(self.path),
            "fingerprint": dataset.fingerprint,
            **totals,
            "classes": len(dataset.classes),
            "splits": sizes,
            "ledger": dict(dataset.ledger),
            "findings": self.findings,
            "boxes": dict(outcome.get("boxes") or {}),
            **{name: outcome.get(name, 0) for name in _COUNTS},
            "inputs": [
                {"path": path, "detected_as": kind}
                for path, kind in zip(self.run["input"], self.run["detected_as"])
            ],
            "seconds": self.run["seconds"],
            "convert_seconds": self.run["convert_seconds"],
            "metrics": dict(self.metrics),
            "notes": list(self.notes),
            "warnings": list(outcome["warnings"]),
        }


@dataclass(frozen=True)
class RebuildResult:
    """The result of a rebuild.

    Attributes:
      output: Directory of the versions.
      version: The new version, or the latest if nothing changed.
      changed: Whether there is a new version.
      outcome: Contents of the run's file in `_work/outcomes/` of the output.
    """

    output: str
    version: str
    changed: bool
    outcome: Mapping[str, Any] = field(repr=False)

    @property
    def path(self) -> str:
        """The dataset directory of the version."""
        return version_path(self.output, self.version)

    def as_json(self) -> dict[str, Any]:
        """Returns the result as `--json` prints it."""
        return {
            "output": printable(self.output),
            "dataset_version": self.version,
            "path": printable(self.path),
            "changed": self.changed,
            **{name: self.outcome[name] for name in _OF_REBUILD},
        }


def sizes_of_splits(dataset: Dataset) -> dict[str, dict[str, int]]:
    """Returns the numbers of records, shards and bytes of each split."""
    return {
        split: {"records": dataset.records(split), "shards": len(shards), "bytes": dataset.size(split)}
        for split, shards in dataset.splits.items()
    }


def ledger_rows(ledger: Mapping[str, Any]) -> list[list[object]]:
    """Returns the rows of a ledger's table: one for each split, and the total."""
    rows = [
        [split, *(counts[name] for name in LEDGER_COLUMNS)]
        for split, counts in by_split(ledger["splits"]).items()
    ]
    return [*rows, ["all", *(ledger[name] for name in LEDGER_COLUMNS)]]


def _row(tag: str, values: Iterable[object]) -> str:
    """Returns a row of a table in HTML."""
    texts = (f"{value:,}" if isinstance(value, int) else str(value) for value in values)
    return f"<tr>{''.join(f'<{tag}>{html.escape(text)}</{tag}>' for text in texts)}</tr>"


def print_inputs(request: ConversionRequest, notes: Iterable[str]) -> None:
    """Prints the detected kind of unclear inputs, and the settings without an effect, on stderr.

    Args:
      request: The checked request.
      notes: A sentence for each setting without an effect.
    """
    for item in request.inputs:
        if item.detected_as != CLASS_FOLDERS:
            log.about(item.path, item.detected_as)
    for sentence in notes:
        log.note(sentence)


def print_ledger(out: Any, ledger: Mapping[str, Any]) -> None:
    """Prints the ledger, and the reasons for images that were left out."""
    print_table(out, ("split", *LEDGER_COLUMNS), ledger_rows(ledger))
    print_reasons(out, ledger["reasons"])


def print_reasons(out: Any, reasons: Mapping[str, Mapping[str, int]]) -> None:
    """Prints the number of images for each reason, a line for each outcome that has reasons."""
    for outcome, counts in reasons.items():
        if counts:
            out.print(f"  {outcome}: {', '.join(f'{count:,} {reason}' for reason, count in counts.items())}")


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


def _boxes_text(needs: Needs, boxes: Mapping[str, int]) -> str:
    """Returns the numbers of kept and dropped annotations, in one line."""

    def counts(prefix: str, texts: Mapping[str, str]) -> str:
        numbers = {text: boxes.get(prefix + name) for name, text in texts.items()}
        return ", ".join(f"{number:,} {text}" for text, number in numbers.items() if number)

    fates = {
        "written": "written",
        "clipped": "clipped",
        "vanished": "cropped away",
        "dropped": "dropped as bad",
        "unlisted": "not listed",
    }
    lost = {"outside": "outside their image", "vanished": "cropped away"}
    parts = [f"{'segments' if needs is Needs.PANOPTIC else 'boxes'}: {counts('', fates)}"]
    if points := counts("keypoints_", lost):
        parts.append(f"key points not labelled any more: {points}")
    if segments := counts("segments_", fates):
        parts.append(f"segments: {segments}")
    return "; ".join(parts)


def print_convert_summary(result: ConvertResult) -> None:
    """Prints the result of a conversion, and the next command."""
    out = console()
    dataset, outcome = result.dataset, result.outcome
    print_ledger(out, dataset.ledger)
    sizes = sizes_of_splits(dataset).values()
    records = dataset.ledger["written"]
    seconds = result.run["seconds"]
    # A short run takes most of its time to start.
    speed = f", {records / seconds:,.0f} images/s" if seconds >= _SETTLED_SECONDS else ""
    needs = dataset.record_layout.needs
    classes = "no classes" if needs is Needs.IMAGE else counted(len(dataset.classes), "class")
    out.print(
        f"  {counted(records, 'record')} in {counted(sum(size['shards'] for size in sizes), 'shard')}, "
        f"{format_size(sum(size['bytes'] for size in sizes))}, "
        f"{classes}; {seconds:.1f} s{speed}"
    )
    if dataset.split_shares is not None:
        out.print(f"  {dataset.split_shares.sentence}")
    for split, folds in result.run.get("folds", {}).items():
        out.print(f"  {counted(len(folds), 'fold')} of {split}: {', '.join(f'{n:,}' for n in folds)} records")
    for path, detected_as in zip(result.run["input"], result.run["detected_as"]):
        out.print(f"  {path}: {detected_as}")
    out.print(f"  {result.run['workers']['text']}{_read_text(result.metrics)}")
    for name, (noun, text) in _COUNTS.items():
        if outcome.get(name):
            out.print(f"  {counted(outcome[name], noun)} {text}")
    if outcome.get("boxes"):
        out.print(f"  {_boxes_text(needs, outcome['boxes'])}")
    if dataset.ledger["quarantined"]:
        _print_quarantine(out, result.path)
    for note in result.notes:
        out.print(f"  note: {note}")
    warn(out, *outcome["warnings"])
    out.print(f"  fingerprint {dataset.fingerprint}")
    out.print(f"next: shardwright inspect {shell_word(result.path)}")


def _print_quarantine(out: Console, directory: str) -> None:
    out.print(f"  quarantined images: see {storage.join(directory, QUARANTINE_JSONL)}")


def changes_text(changes: Mapping[str, int]) -> str:
    """Returns the changes of images since the previous version; empty for none."""
    return ", ".join(
        f"{changes[kind]:,} {kind.replace('_', '-')}" for kind in Kind if changes.get(kind.value)
    )


def print_rebuild_summary(result: RebuildResult) -> None:
    """Prints the result of a rebuild, and where to find it."""
    from shardwright.core.rebuild.gate import work_text

    out, outcome = console(), result.outcome
    if not result.changed:
        out.print(f"  nothing changed: {result.version} stays the latest version of {result.output}")
    else:
        work = outcome["work"]
        out.print(f"  version {result.version}: {counted(outcome['records'], 'record')}; {work_text(work)}")
        if outcome["previous"]:
            changes = changes_text(outcome["changes"]) or "no image changed"
            out.print(f"  against {outcome['previous']}: {changes}")
        if work["quarantined"]:
            _print_quarantine(out, result.path)
        report, index = storage.join(result.path, REPORT_HTML), storage.join(result.output, INDEX_HTML)
        out.print(f"  see {report} and {index}")
    if outcome["scrub"]["shards"]:
        out.print(f"  {scrub_text(outcome['scrub'])}")
    warn(out, *outcome["warnings"])


def print_findings(report: ValidationReport, stored: bool = False) -> None:
    """Prints what was found.

    Args:
      report: The findings.
      stored: Whether all findings are stored too, so that the terminal may shorten messages.
    """
    out, groups = console(), report.by_severity()
    if groups:
        width = max(len(f"{group.count:,}") for group in groups)
        for group in groups:
            line = Text(f"  {group.count:>{width},} ").append(group.code.value, _STYLES[group.severity])
            line.append(f" ({group.severity}){_found_before(report, group)}")
            if group.severity is Severity.NOTE:
                line.append(_worst(group))
            out.print(line)
        out.print()
    serious = [group for group in groups if group.severity is not Severity.NOTE]
    if serious:
        most = max(1, min(_EXAMPLES_OF_CODE, _EXAMPLES // len(serious)))
        examples = [(group, finding) for group in serious for finding in group.findings[:most]][:_EXAMPLES]
        for group, finding in examples:
            line = Text("  ").append(group.code.value, _STYLES[group.severity])
            cut = out.width if stored and out.is_terminal else None
            out.print(line.append(f" {example_line(finding, cut, line.cell_len + 1)}"))
        more = sum(group.count for group in serious) - len(examples)
        if more > 0:
            out.print(f"  and {more:,} more")
        out.print()
    _print_verdict(out, report)
    if len(serious) < len(groups) and not stored:
        out.print("  --report FILE writes all notes to a file")


def _worst(group: FindingsOfCode) -> str:
    """Returns the worst findings of a code by the names of their images, for the end of its line."""
    scored = [finding for finding in group.findings if finding.score is not None]
    worst = sorted(scored, key=lambda finding: finding.score or 0.0) or group.findings
    names = [visible(finding.key or finding.sentence) for finding in worst[:_EXAMPLES_OF_CODE]]
    if not names:
        return ""
    more = ", ..." if group.count > len(names) else ""
    return f"; {'the worst' if scored else 'such as'}: {', '.join(names)}{more}"


def _found_before(report: ValidationReport, group: FindingsOfCode) -> str:
    """Returns the earlier check that found the findings of a code that this one did not find."""
    count = group.count - report.run.counts.get(group.code, 0)
    run = next((run for run in report.previous if run.counts.get(group.code)), None)
    if not count or run is None:
        return ""
    some = "" if count == group.count else f"{count:,} of them "
    return f", {some}found by the {run.depth} check of {time_in_words(run.time)}"


def example_line(finding: Finding, width: int | None = None, taken: int = 0) -> str:
    """Returns a finding as one line, which begins with the image's key or, failing that, with its place.

    Args:
      finding: The finding.
      width: Width of the terminal; None for no limit. Keys are never cut.
      taken: Number of characters before it in the line.
    """
    where = finding.place
    name, rest = (finding.key, f" [{where}]" if where else "") if finding.key else (where, "")
    name = visible(name)
    text = visible(finding.sentence + rest)
    if width is not None:
        other = visible(finding.other.key) if finding.other is not None and finding.other.key else ""
        end_of_other = text.index(other) + len(other) if other and other in text else 0
        room = max(width - taken - len(name) - 2, _SHORTEST, end_of_other + 3)
        text = text if len(text) <= room else text[: room - 3] + "..."
    return f"{name}: {text}" if name else text


def _print_verdict(out: Console, report: ValidationReport) -> None:
    read = (
        f"{counted(report.records, 'record')} in {counted(report.shards, 'shard')}, "
        f"{format_size(report.bytes)}"
    )
    numbers = {severity: report.number_of(severity) for severity in Severity}
    totals = ", ".join(counted(count, severity.value) for severity, count in numbers.items() if count)
    line = Text(f"  {visible(report.dataset)}: ")
    if report.errors:
        line.append("NOT SOUND", ERROR)
    elif report.warnings:
        line.append("no errors, but warnings", WARNING)
    elif report.sound is None:
        line.append("not verified", WARNING).append(", no shard was read")
    else:
        line.append("Sound", GOOD).append(_NOT_LOOKED_AT.get(report.run.check_depth, ""))
    out.print(line.append(f"; {read}" + (f"; {totals}" if totals else "")))
    if report.passed and report.errors:
        errors = report.errors_of(report.counts)
        out.print(
            f"  The errors ({errors}) were found by an earlier check of the same build. The exit code is 0 "
            "because this check did not look for them."
        )


def refusal_of(report: ValidationReport) -> str:
    """Returns why a check did not pass, in one sentence."""
    errors = report.errors_of(report.run.counts)
    count = report.number_of(Severity.ERROR, report.run.counts)
    return f"{visible(report.dataset)} is not sound: {counted(count, 'error')} ({errors})."


def print_statistics(document: Mapping[str, Any]) -> None:
    """Prints a row for each split and, if there are several, a row for all splits.

    Args:
      document: Content of `statistics.json`.
    """
    splits = [(split or _NOTHING, sums["all"]) for split, sums in document["splits"].items()]
    if len(splits) > 1:
        splits.append(("all", document["total"]["all"]))
    rows = []
    for split, sums in splits:
        sides = [_range(sums[side]) for side in ("width", "height")]
        channels = [_numbers(sums.get("pixels", {}).get(name, ())) for name in ("mean", "std")]
        rows.append([split, sums["records"], *sides, *channels])
    print_table(console(), _STATISTICS_COLUMNS, rows)


def _range(spread: Mapping[str, Any]) -> str:
    if not spread["count"]:
        return _NOTHING
    low, high = spread["min"], spread["max"]
    return f"{low}" if low == high else f"{low}-{high}"


def _numbers(values: Sequence[float | None]) -> str:
    """Returns the numbers of the first channels as text; None stands for a channel without finite samples."""
    texts = [_NOTHING if value is None else f"{value:.4f}" for value in values[:_MAX_CHANNELS]]
    return " ".join([*texts, "..."] if len(values) > _MAX_CHANNELS else texts) or _NOTHING
