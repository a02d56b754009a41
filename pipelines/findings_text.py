"""Prints the result of a validation: counts, examples of errors and warnings, and statistics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from shardwright.pipelines.tables import ERROR, GOOD, WARNING, console, one_line
from shardwright.schemas.check_depths import CheckDepth, time_in_words
from shardwright.schemas.codes import FindingCode, Severity
from shardwright.schemas.findings import Finding, ValidationReport
from shardwright.schemas.units import counted, format_size

_SEVERITIES = list(Severity)
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
#: Headers of the columns of `statistics_table`.
STATISTICS_COLUMNS = ("split", "images", "width", "height", "channel means", "deviations")
_NOTHING = "-"
#: Number of channels in a cell; `statistics.json` has all of them.
_MAX_CHANNELS = 4


def print_findings(report: ValidationReport, stored: bool = False) -> None:
    """Prints what was found.

    Args:
      report: The findings.
      stored: Whether all findings are stored too, so that the terminal may shorten messages.
    """
    out = console()
    codes = sorted(
        map(FindingCode, report.counts),
        key=lambda code: (_SEVERITIES.index(report.gates.severity(code)), code.value),
    )
    if codes:
        width = max(len(f"{report.counts[code.value]:,}") for code in codes)
        for code in codes:
            severity = report.gates.severity(code)
            line = Text(f"  {report.counts[code.value]:>{width},} ").append(code.value, _STYLES[severity])
            line.append(f" ({severity}){_found_before(report, code)}")
            if severity is Severity.NOTE:
                line.append(_worst(report, code))
            out.print(line)
        out.print()
    notes = [code for code in codes if report.gates.severity(code) is Severity.NOTE]
    serious = [code for code in codes if code not in notes]
    if serious:
        shown = list(examples(report, serious))
        for finding in shown:
            line = Text("  ").append(finding.code.value, _STYLES[report.gates.severity(finding.code)])
            cut = out.width if stored and out.is_terminal else None
            out.print(line.append(f" {example_line(finding, cut, line.cell_len + 1)}"))
        more = sum(report.counts[code.value] for code in serious) - len(shown)
        if more > 0:
            out.print(f"  and {more:,} more")
        out.print()
    _print_verdict(out, report)
    if notes and not stored:
        out.print("  --report FILE writes all notes to a file")


def _worst(report: ValidationReport, code: FindingCode) -> str:
    """Returns the worst findings of a code by the names of their images, for the end of its line."""
    found = [finding for finding in report.findings if finding.code is code]
    scored = [finding for finding in found if finding.score is not None]
    worst = sorted(scored, key=lambda finding: finding.score or 0.0) or found
    names = [one_line(finding.key or finding.sentence) for finding in worst[:_EXAMPLES_OF_CODE]]
    if not names:
        return ""
    more = ", ..." if report.counts[code.value] > len(names) else ""
    return f"; {'the worst' if scored else 'such as'}: {', '.join(names)}{more}"


def _found_before(report: ValidationReport, code: FindingCode) -> str:
    """Returns the earlier check that found the findings of a code that this one did not find."""
    number = report.counts[code.value] - report.run.counts.get(code.value, 0)
    run = next((run for run in report.previous if run.counts.get(code.value)), None)
    if not number or run is None:
        return ""
    some = "" if number == report.counts[code.value] else f"{number:,} of them "
    return f", {some}found by the {run.depth} check of {time_in_words(run.time)}"


def examples(report: ValidationReport, codes: list[FindingCode]) -> Iterator[Finding]:
    """Yields some findings of each code, those of the first codes first."""
    of_code: dict[FindingCode, list[Finding]] = {code: [] for code in codes}
    for finding in report.findings:
        if finding.code in of_code:
            of_code[finding.code].append(finding)
    most = max(1, min(_EXAMPLES_OF_CODE, _EXAMPLES // len(codes))) if codes else 0
    shown = [finding for code in codes for finding in of_code[code][:most]]
    yield from shown[:_EXAMPLES]


def example_line(finding: Finding, width: int | None = None, taken: int = 0) -> str:
    """Returns a finding as one line, which begins with the image's key or, failing that, with its place.

    Args:
      finding: The finding.
      width: Width of the terminal; None for no limit. Keys are never cut.
      taken: Number of characters before it in the line.
    """
    place = [finding.shard or ""]
    if finding.record is not None:
        place.append(f"record {finding.record}")
    if finding.offset is not None:
        place.append(f"byte {finding.offset}")
    where = ", ".join(filter(None, place))
    name, rest = (finding.key, f" [{where}]" if where else "") if finding.key else (where, "")
    name = one_line(name)
    text = one_line(finding.sentence + rest)
    if width is not None:
        room = max(width - taken - len(name) - 2, _SHORTEST, _end_of_other_key(finding, text) + 3)
        text = text if len(text) <= room else text[: room - 3] + "..."
    return f"{name}: {text}" if name else text


def _end_of_other_key(finding: Finding, text: str) -> int:
    """Returns the end of the other image's key in a line; 0 if the line has none."""
    key = one_line(finding.other.key) if finding.other is not None and finding.other.key else ""
    return text.index(key) + len(key) if key and key in text else 0


def _print_verdict(out: Console, report: ValidationReport) -> None:
    read = (
        f"{counted(report.records, 'record')} in {counted(report.shards, 'shard')}, "
        f"{format_size(report.bytes)}"
    )
    numbers = {Severity.ERROR: report.errors, Severity.WARNING: report.warnings, Severity.NOTE: report.notes}
    found = ", ".join(counted(number, severity.value) for severity, number in numbers.items() if number)
    line = Text(f"  {one_line(report.dataset)}: ")
    if report.errors:
        line.append("NOT SOUND", ERROR)
    elif report.warnings:
        line.append("no errors, but warnings", WARNING)
    elif report.sound is None:
        line.append("not verified", WARNING).append(", no shard was read")
    else:
        line.append("Sound", GOOD).append(_NOT_LOOKED_AT.get(report.run.check_depth, ""))
    out.print(line.append(f"; {read}" + (f"; {found}" if found else "")))
    if report.passed and report.errors:
        errors = _of_severity(report, report.counts, Severity.ERROR)
        out.print(
            f"  The errors ({errors}) were found by an earlier check of the same build. The exit code is 0 "
            "because this check did not look for them."
        )


def refusal_of(report: ValidationReport) -> str:
    """Returns why a check did not pass, in one sentence."""
    errors = _of_severity(report, report.run.counts, Severity.ERROR)
    number = report.number_of(Severity.ERROR, report.run.counts)
    return f"{one_line(report.dataset)} is not sound: {counted(number, 'error')} ({errors})."


def _of_severity(report: ValidationReport, counts: Mapping[str, int], severity: Severity) -> str:
    return ", ".join(
        f"{count:,} {code}"
        for code, count in counts.items()
        if report.gates.severity(FindingCode(code)) is severity
    )


def statistics_table(document: Mapping[str, Any]) -> list[tuple[object, ...]]:
    """Returns a row for each split and, if there are several, a row for all splits.

    Args:
      document: Content of `statistics.json`.
    """
    splits = document["splits"]
    rows = [_row(split or _NOTHING, sums["all"]) for split, sums in splits.items()]
    if len(splits) > 1:
        rows.append(_row("all", document["total"]["all"]))
    return rows


def _row(split: str, sums: Mapping[str, Any]) -> tuple[object, ...]:
    pixels = sums.get("pixels", {})
    return (
        split,
        sums["records"],
        _range(sums["width"]),
        _range(sums["height"]),
        _numbers(pixels.get("mean", ())),
        _numbers(pixels.get("std", ())),
    )


def _range(spread: Mapping[str, Any]) -> str:
    if not spread["count"]:
        return _NOTHING
    low, high = spread["min"], spread["max"]
    return f"{low}" if low == high else f"{low}-{high}"


def _numbers(values: Sequence[float | None]) -> str:
    """Returns the numbers of the first channels as text; None stands for a channel without finite samples."""
    shown = [_NOTHING if value is None else f"{value:.4f}" for value in values[:_MAX_CHANNELS]]
    return " ".join([*shown, "..."] if len(values) > _MAX_CHANNELS else shown) or _NOTHING
