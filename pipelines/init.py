"""Writes a commented job file for rebuild; on a terminal it asks for missing settings."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from shardwright.core import storage
from shardwright.core.dataset_files import write_result
from shardwright.core.sources.inputs import check_inputs
from shardwright.pipelines import log
from shardwright.pipelines import options as cli_options
from shardwright.pipelines.command import CommandResult
from shardwright.pipelines.places import check_result_place
from shardwright.pipelines.prepare import as_beam_options, make_request
from shardwright.pipelines.tables import visible
from shardwright.schemas.configuration.job import escaped
from shardwright.schemas.configuration.setting import Setting, settings_of
from shardwright.schemas.configuration.settings import (
    CONVERT_SETTINGS,
    NOT_FOR_REBUILDS,
    RebuildSettings,
    settings_from,
)
from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.plain_text import printable, shell_word
from shardwright.schemas.templates import fill_in

EXAMPLE = "shardwright init --input gs://bucket/photos --output gs://bucket/pets --resize 224"
_SPLITS = "train=0.8,validation=0.1,test=0.1"
_KEEP = settings_of(RebuildSettings)["keep"]
_JOB_SCHEMA = Path(__file__).with_name("json_schemas") / "job.schema.json"
_TEMPLATE = Path(__file__).with_name("job.yaml.jinja")
_SIZE = re.compile(r"0|[1-9]\d{0,17}", re.ASCII)
#: Values of the settings of a rebuild that are not set.
_EXAMPLES = {"keep_days": 30, "verify_sources": True, "scrub": "1/30", "lease_minutes": 60}
_OTHER_HELP = {
    "output": "the directory for the versions of the dataset and the pointer to the latest version",
    "plan_from": "the first version continues the plan of this dataset.json",
}


class InitResult(NamedTuple):
    """A job file.

    Attributes:
      path: Path of the file; empty if it was not written.
      text: Contents of the file.
      detected_as: Detected kind of each input; empty if the inputs could not be read.
      unseen: Why the input could not be read; empty if it was read.
    """

    path: str
    text: str
    detected_as: tuple[str, ...]
    unseen: str

    def as_json(self) -> dict[str, Any]:
        """Returns the result as `--json` prints it."""
        return {
            "file": printable(self.path) or None,
            "text": self.text,
            "detected_as": [printable(text) for text in self.detected_as],
            "unread": self.unseen or None,
        }


def init(
    *,
    file: str | os.PathLike[str] = "job.yaml",
    keep: int = RebuildSettings.keep,
    overwrite: bool = False,
    beam_options: Sequence[str] = (),
    **values: Any,
) -> InitResult:
    """Writes a job file, like `shardwright init`, but asks no questions.

    Args:
      file: File to write; empty for none.
      keep: Number of versions to keep.
      overwrite: Whether to replace an existing file.
      beam_options: Beam's command-line options, to be stored in the file.
      **values: The settings of `shardwright convert` by name (input, output, resize, ...), with
        literal values: `{date}` is not replaced by the date.

    Returns:
      The job file.

    Raises:
      UsageError: If a setting, the input or the path is wrong; nothing was written.
      EngineError: If the file cannot be written.
    """
    values = {name: value for name, value in values.items() if value is not None}
    file = os.fspath(file)
    _check_place(file, overwrite)
    keep = _KEEP.checked(keep)
    for name in NOT_FOR_REBUILDS:
        if name in values:
            raise UsageError(f"--{name} is not a setting of a rebuild; leave it out.")
    if beam_options or "apache_beam" in sys.modules:  # an earlier call may have set others
        as_beam_options(list(beam_options))
    if values.get("input") and not values.get("output"):
        raise UsageError("--output is missing; name the directory for the versions of the dataset.")
    detected_as, unseen = [], ""
    try:
        detected_as = [item.detected_as for item in make_request(values, with_output=True).inputs]
    except EngineError as error:  # an input that only the cloud can read is checked there
        unseen = error.message
    stored = settings_from(values)
    settings = {name: getattr(stored, name) for name in values}
    text = job_text(settings, keep=keep, runner=_by_name(beam_options), detected_as=detected_as)
    if file:
        write_result(file, text.encode(), "--file", "job file")
    return InitResult(file, text, tuple(detected_as), unseen)


def _check_place(file: str, overwrite: bool) -> None:
    check_result_place("--file", file)
    with storage.translated_errors("look for", file):
        if file and not overwrite and storage.exists(file):
            raise UsageError(
                f"--file {file} already exists; name another file, or replace it with --overwrite."
            )


def _by_name(options: Sequence[str]) -> dict[str, Any]:
    """Returns options of a command line by name: a text, or several if an option is repeated."""
    by_name: dict[str, list[str]] = {}
    name = ""
    for token in options:
        if token.startswith("--"):
            name, equals, value = token[2:].partition("=")
            by_name.setdefault(name, []).append(value if equals else "true")
        elif name:
            by_name[name][-1] = token
    return {name: values[0] if len(values) == 1 else values for name, values in by_name.items()}


def _ask(question: str, default: str, check: Callable[[str], Any]) -> str:
    """Asks until the answer is valid.

    Raises:
      UsageError: If there is no answer.
    """
    while True:
        print(f"{question}{f' [{default}]' if default else ''}: ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            raise UsageError(
                "The answers ended before the last question; give the rest as options (see --help)."
            )
        answer = line.strip() or default
        try:
            check(answer)
        except (UsageError, EngineError) as error:
            print(f"  {error.message}", file=sys.stderr)
            continue
        return answer


def _asked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the given settings, and asks on the terminal for missing ones."""
    answers = dict(settings)

    def check_input(answer: str) -> None:
        if not answer:
            raise UsageError("Name a folder, a file or an archive.")
        check_inputs(settings_from({**settings, "input": answer}), None)

    def check_output(answer: str) -> None:
        storage.require_known("--output", answer)
        check_inputs(settings_from({**answers, "output": answer}), answer)

    if "input" not in answers:
        answers["input"] = _ask("Where are the images (a folder, file or archive)", "", check_input)
    if "output" not in answers:
        answers["output"] = _ask("Where to write the versions of the dataset", "dataset", check_output)
    if not settings:
        resize, splits = (CONVERT_SETTINGS[name].checked for name in ("resize", "splits"))
        size = _ask("Resize to, such as 224 or 320x240 (empty: keep their size)", "", resize)
        answers |= {"resize": size} if size else {}
        answers["splits"] = _ask("Splits, if the input does not name them", _SPLITS, splits)
    return answers


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    cli_options.add_input_and_output(parser)
    cli_options.add_settings(parser, leave_out=("job", *NOT_FOR_REBUILDS))
    parser.add_argument(
        "--file", default="job.yaml", metavar="FILE",
        help="the file to write, - to print it (default: job.yaml)",
    )  # fmt: skip
    cli_options.add_setting(parser, _KEEP)
    parser.add_argument("--overwrite", action="store_true", help="replace an existing job file")


def execute(options: argparse.Namespace) -> CommandResult:
    """Runs the command."""
    file = "" if options.file == "-" else options.file
    settings = cli_options.own_settings(options)
    settings = {name: value for name, value in settings.items() if name not in NOT_FOR_REBUILDS}
    _check_place(file, options.overwrite)  # before asking questions
    if options.beam_options:  # without options, Beam is not needed
        as_beam_options(options.beam_options)
    if sys.stdin is not None and sys.stdin.isatty() and not (options.json or options.quiet):
        settings = _asked(settings)
    result = init(
        file=file,
        keep=getattr(options, "keep", RebuildSettings.keep),
        overwrite=options.overwrite,
        beam_options=options.beam_options,
        **settings,
    )
    if result.unseen:
        log.info(f"the input was not examined: {result.unseen}")
    return CommandResult(lambda: _show(result), result.as_json)


def _show(result: InitResult) -> None:
    """Prints the contents of the file if it was not written, or else the next step."""
    if not result.path:
        sys.stdout.flush()
        sys.stdout.buffer.write(result.text.encode())
        sys.stdout.buffer.flush()
        return
    for text in result.detected_as:
        print(f"  the input was detected as {printable(text)}")
    print(f"  {printable(result.path)} is written; check it, then run:")
    print(f"  shardwright rebuild --job {shell_word(result.path)}")


def job_text(
    settings: Mapping[str, Any], *, keep: int, runner: Mapping[str, Any], detected_as: Sequence[str] = ()
) -> str:
    """Returns a job file.

    Args:
      settings: Settings by name, as the file will contain them, with placeholders.
      keep: Number of versions to keep.
      runner: Beam's options by name: a text, or several.
      detected_as: Detected kind of the input, in words.
    """
    given: list[str] = []
    for name in sorted(settings, key=list(CONVERT_SETTINGS).index):
        given += [_help(CONVERT_SETTINGS[name]), _pair(name, settings[name])]
        if name == "input":
            given += [f"# detected as: {visible(printable(text))}" for text in detected_as]
    of_rebuilds: list[str] = []
    for name, item in settings_of(RebuildSettings).items():
        pair = _pair(name, keep) if name == "keep" else "#" + _pair(name, _EXAMPLES[name])
        of_rebuilds += [_help(item), pair]
    others: list[str] = []
    for name, item in CONVERT_SETTINGS.items():
        if name not in settings and not item.not_for_rebuilds:
            others += [_help(item), "#" + _pair(name, item.default)]
    return fill_in(
        _TEMPLATE,
        schema=_JOB_SCHEMA.as_uri(),
        given=given,
        of_rebuilds=of_rebuilds,
        runner=[_pair(name, value) for name, value in runner.items()],
        others=others,
    )


def _help(item: Setting) -> str:
    among = f" ({', '.join(item.kind.choices)})" if item.kind.choices else ""
    return f"# {_OTHER_HELP.get(item.name) or item.help}{among}"


def _pair(name: str, value: Any) -> str:
    """Returns the lines that give a key its value, quoted where YAML needs it."""
    if isinstance(value, tuple | list):
        items = [_scalar(item, path=name == "input") for item in value]
        return f"{name}: {items[0]}" if len(items) == 1 else "\n  - ".join([f"{name}:", *items])
    return f"{name}: {_scalar(value)}"


def _scalar(value: Any, path: bool = False) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    text = escaped(str(value))
    if _SIZE.fullmatch(text) and not path:
        return text  # people write resize: 224 without quotes, and it is read as text
    odd = not all(char.isprintable() for char in text)  # YAML folds some of them
    dumped = yaml.safe_dump(text, default_style='"' if odd else None, allow_unicode=not odd, width=1 << 30)
    return dumped.removesuffix("\n").removesuffix("\n...")
