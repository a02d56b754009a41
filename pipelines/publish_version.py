"""Publishes a version that a gate refused."""

from __future__ import annotations

import argparse
import getpass
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from shardwright.core import versions
from shardwright.core.dataset_files import read_dataset
from shardwright.pipelines import options as cli_options
from shardwright.pipelines.command import CommandResult
from shardwright.pipelines.rollback import moved_meanwhile, newest_published, note_publication
from shardwright.pipelines.tables import console, visible
from shardwright.pipelines.versions import output_of, read_versions, redraw_index
from shardwright.schemas.errors import DataRefused, UsageError, nearest
from shardwright.schemas.plain_text import printable, shell_word
from shardwright.schemas.version import Acceptance, Pointer, VersionRecord, VersionState, split_version

EXAMPLE = "shardwright publish pets/@20261121T020000Z --accept drift"
#: Names of gates, which may be accepted even if they did not refuse.
_GATES = ("all", "findings", "drift", "bad_images", "rolled_back")
_SHOWN = 3


class PublishResult(NamedTuple):
    """The version that readers get after publishing.

    Attributes:
      output: Directory of the versions.
      version: The version that readers get now.
      left: The version that they got before; empty if it is the same, or there was none.
      accepted: Names of the accepted refusals or gates.
      acceptance: Who accepted the refusals, when and why; None if nothing had to be accepted.
      warning: A problem that did not stop the command, or an option without an effect; empty for none.
    """

    output: str
    version: str
    left: str
    accepted: tuple[str, ...] = ()
    acceptance: Acceptance | None = None
    warning: str = ""

    def as_json(self) -> dict[str, Any]:
        """Returns the result as `--json` prints it."""
        return {
            "output": printable(self.output),
            "dataset_version": self.version,
            "left": self.left or None,
            "accepted": list(self.accepted),
            "acceptance": self.acceptance._asdict() if self.acceptance else None,
            "warnings": [self.warning] if self.warning else [],
        }


def publish(
    version: str | os.PathLike[str],
    *,
    accept: str | Sequence[str] = (),
    reason: str = "",
) -> PublishResult:
    """Publishes a version that a gate refused: the same as `shardwright publish`, as a function.

    Args:
      version: Directory and version, as `OUT@V`.
      accept: Refusals to accept, by their names or by those of gates (findings, drift, bad_images,
        rolled_back), or `all`; a text with commas, or a list.
      reason: Why they are accepted. It is stored in the version's record with the time and your account.

    Returns:
      The version that readers get now.

    Raises:
      UsageError: If the version does not exist, or was not refused for this; nothing was changed.
      DataRefused: If there are other refusals, too; nothing was changed.
      EngineError: If another process switched the pointer meanwhile, or the storage or the machine failed.
    """
    output, name = split_version(os.fspath(version))
    output = output_of(output)
    records = read_versions(output, name)
    if not name:
        raise UsageError(_which_one(output, records))
    record = records[name]
    versions.require_judged(output, record)
    # This raises if the version is not complete.
    fingerprint = read_dataset(versions.located(f"{output}@{name}")).fingerprint
    pointer, tag = versions.read_pointer(output, damaged_is_none=True)
    current = pointer.version if pointer else ""
    names = [accept] if isinstance(accept, str) else list(accept)
    names = [word.strip() for text in names for word in text.split(",") if word.strip()]
    if reason.strip() and not names:
        raise UsageError("--reason says why a refusal is accepted; name the refusal with --accept.")
    accepted = _accepted(output, record, names)
    # A newer version is published but not the latest if its rebuild was interrupted before the switch.
    is_withdrawn = record.state is VersionState.WITHDRAWN
    was_seen = is_withdrawn or (record.state is VersionState.PUBLISHED and name < current)
    if was_seen and name != current:
        raise UsageError(
            f"{output}@{name} {'was rolled back' if is_withdrawn else 'was published before'}; return to it "
            f"with shardwright rollback {shell_word(output)} {name}."
        )
    if current != name:
        before = records.get(current)
        note_publication(output, before, pointer)
        stays = before is not None and before.state is VersionState.PUBLISHED
        previous = current if stays else newest_published(records, name)
        if not versions.switch_pointer(output, Pointer(name, fingerprint, time.time(), previous), tag):
            raise moved_meanwhile(output)
        versions.located(f"{output}@{name}")  # retention may have removed it meanwhile
    # After the switch, so that the same command can repeat everything if it is interrupted before.
    acceptance, unused = None, ""
    if record.state is not VersionState.REFUSED:
        unused = f"--accept has no effect, because version {name} is not refused" if names else ""
        versions.mark_published(output, record, time.time())
    else:
        if names:
            acceptance = Acceptance(tuple(names), this_account(), round(time.time(), 3), reason.strip())
        acceptances = (*record.acceptances, *([acceptance] if acceptance else ()))
        published = replace(record, state=VersionState.PUBLISHED, accepted=accepted, acceptances=acceptances)
        versions.write_version_record(output, published)
    left = "" if current == name else current
    warning = "; ".join(filter(None, (unused, redraw_index(output))))
    return PublishResult(output, name, left, accepted, acceptance, warning)


def this_account() -> str:
    """Returns the account that runs this process, and its machine: `ana@trainer`."""
    try:
        account = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container may run as a user number without a name
        account = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return printable(f"{account}@{platform.node() or 'unknown'}")


def _which_one(output: str, records: Mapping[str, VersionRecord]) -> str:
    refused = [name for name, record in records.items() if record.state is VersionState.REFUSED]
    text = f"shardwright publish takes one version, {shell_word(output)}@V"
    if not refused:
        return f"{text}, and none is refused; see shardwright versions {shell_word(output)}."
    return f"{text}; refused are {', '.join(refused[: -_SHOWN - 1 : -1])}."


def _accepted(output: str, record: VersionRecord, names: Sequence[str]) -> tuple[str, ...]:
    """Returns the refusals of a version that are accepted now or were accepted before.

    Raises:
      UsageError: If a given name is not a refusal.
      DataRefused: If there are other refusals.
    """
    place = f"{output}@{record.version}"
    choices = dict.fromkeys(word for refusal in record.refusals for word in (refusal.name, refusal.gate))
    for word in names:
        if word not in choices and word not in _GATES:
            hint = nearest(word, [*choices, *_GATES])
            refused = ", ".join(dict.fromkeys(refusal.name for refusal in record.errors))
            reason = (
                f"it was refused because of {refused}"
                if refused
                else "it was not refused, so leave --accept out"
            )
            raise UsageError(
                f"--accept {word}: no gate refused {place} for that reason" + (hint or f"; {reason}.")
            )
    if record.state is not VersionState.REFUSED:
        return record.accepted
    accepted = tuple(dict.fromkeys((*record.accepted, *names)))
    still = [refusal for refusal in record.errors if not versions.is_accepted(refusal, accepted)]
    if not still:
        return accepted
    text = "; ".join(refusal.message.rstrip(".") for refusal in still[:_SHOWN])
    more = f"; and {len(still) - _SHOWN} more" if len(still) > _SHOWN else ""
    raise DataRefused(
        f"{place} was not published, because gates refused it: {text}{more}; to "
        f"publish it anyway, run {versions.accept_command(place, record, names)}."
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.add_argument("version", metavar="OUT@V", help="the version to publish")
    parser.add_argument(
        "--accept", action="append", default=[], metavar="X,Y",
        help="refusals to accept: their names, or gates (findings, drift, bad_images, rolled_back), "
        "or all",
    )  # fmt: skip
    why = "why they are accepted; stored in the version's record with the time and your account"
    cli_options.add_text(parser, "reason", "TEXT", why)


def execute(options: argparse.Namespace) -> CommandResult:
    """Runs the command."""
    result = publish(options.version, accept=options.accept, reason=options.reason)
    return CommandResult(lambda: print_publication(result), result.as_json)


def print_publication(result: PublishResult) -> None:
    """Prints which version readers get now."""
    out = console()
    after = f"; before it was {result.left}" if result.left else ""
    out.print(f"  {result.output}: {result.version} is the latest{after}")
    if result.acceptance:
        out.print(f"  {visible(str(result.acceptance))}")
    if result.warning:
        out.print(f"  {result.warning}")
