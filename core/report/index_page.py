"""One version as pages show it, and `index.html`, which lists all of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, NamedTuple

from shardwright.core import storage
from shardwright.core.dataset_files import dataset_name, utc
from shardwright.core.report.pages import draw_page, first_small_page
from shardwright.core.versions import accept_command, is_accepted, list_versions, read_pointer
from shardwright.schemas.codes import Severity
from shardwright.schemas.dataset import DATASET_JSON, REPORT_HTML
from shardwright.schemas.drift import Kind
from shardwright.schemas.errors import UsageError
from shardwright.schemas.plain_text import printable, shell_word
from shardwright.schemas.units import counted, format_size
from shardwright.schemas.version import (
    DIFF_JSON,
    INDEX_HTML,
    LATEST_JSON,
    Pointer,
    VersionRecord,
    VersionState,
    created_at,
    time_text,
    version_path,
)

#: Largest number of a version's refusals that are listed. The others are counted.
MAX_REFUSALS = 12
#: Number of versions that have a row: the newest ones, and the one that readers get.
MAX_VERSIONS = 300
#: Numbers of versions and of refusals per version, tried in turn until the page is small enough.
_AMOUNTS = ((MAX_VERSIONS, MAX_REFUSALS), (MAX_VERSIONS, 2), (100, 1), (10, 1))
#: Files of a version to which the page links.
_LINKS = (("report", REPORT_HTML), ("diff", DIFF_JSON), ("dataset.json", DATASET_JSON))
_CHANGES = {
    Kind.ADDED: ("+", "added"), Kind.REMOVED: ("−", "removed"), Kind.CHANGED: ("", "changed"),
    Kind.RELABELLED: ("", "relabelled"), Kind.MOVED: ("", "moved to another split"),
    Kind.RENAMED: ("", "renamed"), Kind.RE_ENCODED: ("", "stored differently"),
}  # fmt: skip
_MAX_COUNT = 10**18
_COMPLETE = (VersionState.PUBLISHED, VersionState.REFUSED, VersionState.WITHDRAWN)


class State(NamedTuple):
    """A state as pages show it, which never depends on color alone.

    Attributes:
      sign: Character for the state.
      tone: Color: good, error, warning or note.
      meaning: Sentence that explains the state.
    """

    sign: str
    tone: str
    meaning: str


_STATES = {
    VersionState.PUBLISHED: State("✓", "good", "It passed its gates."),
    VersionState.REFUSED: State("✗", "error", "A gate refused it, so readers do not get it."),
    VersionState.WITHDRAWN: State("↩", "warning", "It was published, and rolled back later."),
    VersionState.BUILDING: State(
        "…",
        "note",
        "It is being built, or its run was interrupted and the next run continues it.",
    ),
    VersionState.DAMAGED: State(
        "?",
        "warning",
        "Its version.json cannot be read, so it is skipped; restore that file, or remove the directory.",
    ),
}


def version_view(place: str, record: VersionRecord, most: int = MAX_REFUSALS) -> dict[str, Any]:
    """Returns a version as the templates show it.

    Args:
      place: Name of the version for commands, `OUT@V`.
      record: Its `version.json`.
      most: Largest number of violations that are listed.

    Returns:
      The time when the work on the version `began` is for people, and `stamp` is the same time for programs.
      Each of the `refusals` has the mark whether somebody accepted it; errors come first. `unlisted` is the
      number of the others. `accept` is the command that publishes a refused version.
    """
    seconds = created_at(record.version)  # eight digits are not always a date
    began, stamp = (time_text(seconds), utc(seconds)) if seconds > 0 else ("", "")
    refusals = sorted(record.refusals, key=lambda refusal: refusal.severity is not Severity.ERROR)
    accepted = [one for one in refusals if is_accepted(one, record.accepted)]
    errors = sum(refusal.severity is Severity.ERROR for refusal in refusals)
    state, built = _STATES[record.state], bool(record.fingerprint)
    unchanged = "no image" if record.previous else "the first version"
    return {
        "record": record,
        "name": record.version,
        "began": began,
        "stamp": stamp,
        "state": state,
        "refusals": [
            # Limits have their name at the beginning of their message, too.
            (one._replace(message=one.message.removeprefix(f"{one.name}: ")), one in accepted)
            for one in refusals[:most]
        ],
        "unlisted": max(0, len(refusals) - most),
        "errors": errors,
        "warnings": len(refusals) - errors,
        "accept": accept_command(place, record) if record.state is VersionState.REFUSED else "",
        "records": f"{_count(record.records):,}" if built else "–",
        "size": format_size(_count(record.total_bytes)) if built else "–",
        "changes": _changes(record.changes),
        "no_changes": unchanged if built else state.meaning,
        "work": _work(record.work),
    }


@dataclass(frozen=True)
class IndexData:
    """Contents of the page.

    Attributes:
      output: Directory that contains the versions.
      records: Mapping of version to its `version.json`.
      files: Linked files that exist, each as version and name.
      pointer: Version that readers get. None if there is none.
      problem: Reason why the pointer cannot be read. Empty if it can.
      drawn: When the page is drawn. Empty to omit it.
    """

    output: str
    records: Mapping[str, VersionRecord]
    files: Collection[tuple[str, str]]
    pointer: Pointer | None = None
    problem: str = ""
    drawn: str = ""


def render_index(data: IndexData) -> str:
    """Draws the page of all versions, with fewer versions if it would be too large."""
    return first_small_page(_render(data, versions, refusals) for versions, refusals in _AMOUNTS)


def _render(data: IndexData, most: int, refusals: int) -> str:
    pointer, word = data.pointer, shell_word(data.output)
    names = shown_versions(data.records, pointer, most)
    largest = max((_count(data.records[name].records) for name in names), default=0)
    rows = {}
    for name in names:
        record = data.records[name]
        share = 100 * _count(record.records) / largest if record.fingerprint and largest else 0
        rows[name] = {
            **version_view(f"{data.output.rstrip('/')}@{name}", record, refusals),
            "latest": pointer is not None and pointer.version == name,
            "share": round(share, 2),  # percentage of the records of the largest listed version
            "links": [link for link in _LINKS if (name, link[1]) in data.files],
        }
    latest = rows.get(pointer.version) if pointer else None
    newest = next((row for row in rows.values() if row["record"].state in _COMPLETE), None)
    problem = data.problem
    if pointer and not latest:
        problem = (
            f"{LATEST_JSON} points to version {pointer.version}, which is missing; return to another one "
            f"with shardwright rollback {word} V."
        )
    counts = Counter(record.state for record in data.records.values())
    context = {
        "title": dataset_name(data.output),
        "place": data.output,
        "word": word,
        "drawn": data.drawn,
        "rows": list(rows.values()),
        "total": len(data.records),
        "latest": latest,
        "problem": problem,
        "published": time_text(pointer.published) if pointer else "",
        "fingerprint": pointer.fingerprint if pointer and latest else "",
        "refused": newest if newest and newest["accept"] and newest is not latest else None,
        "states": [(state, counts[state]) for state in _STATES if counts[state]],
        "commands": _commands(data.output, [data.records[name] for name in names], latest),
        "fewer": (most, refusals) != _AMOUNTS[0],
    }
    return draw_page("index.html", context)


def shown_versions(names: Mapping[str, Any], pointer: Pointer | None, most: int = MAX_VERSIONS) -> list[str]:
    """Returns the versions that have a row: the newest, and always the one that readers get."""
    newest = sorted(names, reverse=True)
    versions = newest[:most]
    if pointer and pointer.version in names and pointer.version not in versions:
        versions[-1] = pointer.version
    return versions


def _changes(changes: Mapping[str, int]) -> tuple[tuple[str, str], ...]:
    counts = ((kind, _count(changes.get(kind.value, 0))) for kind in _CHANGES)
    return tuple((f"{_CHANGES[kind][0]}{count:,}", _CHANGES[kind][1]) for kind, count in counts if count)


def _work(work: Mapping[str, int]) -> tuple[str, ...]:
    """Returns the work that was done for a version, one line for each kind of work."""
    shards, reused, copied, converted, quarantined = (
        _count(work.get(name, 0))
        for name in ("shards", "reused_shards", "copied", "converted", "quarantined")
    )
    lines = (
        (shards, f"{reused:,} of {counted(shards, 'shard')} reused"),
        (copied, f"{counted(copied, 'record')} copied"),
        (converted, f"{counted(converted, 'image')} converted"),
        (quarantined, f"{quarantined:,} quarantined"),
    )
    return tuple(line for count, line in lines if count)


def _count(value: int) -> int:
    """Returns a number of a document within limits, which one that somebody wrote by hand may exceed."""
    return min(max(value, 0), _MAX_COUNT)


def _commands(
    output: str, records: Sequence[VersionRecord], latest: Mapping[str, Any] | None
) -> list[tuple[str, str]]:
    """Returns what can be done with the versions, with the command for each action."""
    word = shell_word(output)
    commands = [("list them", f"shardwright versions {word}")]
    if latest:
        at = shell_word(f"{output.rstrip('/')}@{latest['name']}")
        commands += [
            ("read one fixed version", f"shardwright inspect {at}"),
            ("keep one from removal", f"shardwright versions {word} --pin {latest['name']}"),
        ]
        older = (record for record in records if record.version < latest["name"])
        before = next((one.version for one in older if one.state is VersionState.PUBLISHED), "")
        if before:
            commands.append(("go back to the one before", f"shardwright rollback {word} {before}"))
    return commands


def gather_index(output: str, now: float) -> IndexData:
    """Gathers the contents of the page; looks for files only of the versions that are shown.

    Args:
      output: Directory that contains the versions.
      now: Time in seconds since the epoch.

    Raises:
      EngineError: If the storage failed.
    """
    problem, pointer = "", None
    try:
        pointer, _ = read_pointer(output)
    except UsageError as error:
        problem = error.message

    records = {record.version: record for record in list_versions(output)}
    places = [(version, file) for version in shown_versions(records, pointer) for _, file in _LINKS]

    def is_there(place: tuple[str, str]) -> bool:
        path = storage.join(version_path(output, place[0]), place[1])
        with storage.translated_errors("look for", path):
            return storage.exists(path)

    files = set(compress(places, storage.at_once(is_there, places)))
    return IndexData(printable(output), records, files, pointer, problem, time_text(now))


def write_index(output: str) -> None:
    """Draws `index.html` of a directory of versions and writes it there.

    Args:
      output: Directory that contains the versions.

    Raises:
      EngineError: If the storage failed.
    """
    page = render_index(gather_index(output, time.time()))
    path = storage.join(output, INDEX_HTML)
    with storage.translated_errors("write", path):
        storage.write_bytes(path, page.encode())
