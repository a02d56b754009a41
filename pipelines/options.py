"""Command-line options: declares options for all settings, passes the rest to Beam, refuses unknown ones."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Sequence
from itertools import takewhile
from typing import Any

from shardwright.core.concurrency.resources import POOLS
from shardwright.core.concurrency.watchdog import STUCK_AFTER_MINUTES, STUCK_EXPERIMENT
from shardwright.pipelines import log
from shardwright.pipelines.help_text import LONGEST_VALUE, HelpFormatter, examples_text, print_help, width
from shardwright.pipelines.process import WATCHDOG
from shardwright.schemas.configuration.setting import Setting, Topic
from shardwright.schemas.configuration.settings import CONVERT_SETTINGS, settings_over
from shardwright.schemas.errors import UsageError, nearest
from shardwright.schemas.log_lines import LOG_FORMATS
from shardwright.schemas.missing_packages import needed_by
from shardwright.schemas.plain_text import printable

#: Runners whose options are all known in advance; other runners get theirs from a job server.
_CLOSED_RUNNERS = ("fnapi", "direct", "switchingdirect", "bundlebaseddirect", "dataflow", "testdataflow")
#: Without this, workers of portable runners start only if they can read a file in the launcher's temporary
#: folder: a list of installed packages, which Beam only logs.
_NO_LIST_OF_PACKAGES = "disable_logging_submission_environment"
DEFAULT_RUNNER = "FnApiRunner"
#: Beginnings of the options that a storage uses.
_STORAGE_OPTIONS = (
    "--no_auth", "--impersonate_service_account", "--gcs_user_project", "--blob_service_endpoint",
    "--s3_", "--azure_",
)  # fmt: skip
#: Options with which Beam describes a job and does not run it.
_ONLY_DESCRIBE = ("--dry_run", "--template_location", "--output_executable_path")


class _Parser(argparse.ArgumentParser):
    """A parser that raises `UsageError` instead of printing the usage and exiting."""

    def error(self, message: str) -> Any:
        raise UsageError(f"{message[0].upper()}{message[1:]}; see {self.prog} --help.")

    def print_help(self, file: Any = None) -> None:
        print_help(self.format_help(), file or sys.stdout)


def make_parser(prog: str, description: str, example: str, note: str = "") -> argparse.ArgumentParser:
    """Returns a parser without abbreviations whose help ends with examples, and a note below them."""
    parser = _Parser(
        prog=prog,
        description=textwrap.fill(description, width()),
        epilog="\n\n".join(filter(None, (examples_text(example), note))),
        formatter_class=HelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    parser._positionals.title = "arguments"
    return parser


def _group(parser: argparse.ArgumentParser, title: str) -> argparse._ArgumentGroup:
    """Returns the group of options with a title, which is created on first use."""
    groups = (group for group in parser._action_groups if group.title == title)
    return next(groups, None) or parser.add_argument_group(title)


def use_in_storage(options: Any) -> None:
    """Applies Beam's options (credentials, endpoints) to the storage access of this process."""
    from apache_beam.io.filesystems import FileSystems

    FileSystems.set_options(options)


def use_without_job(rest: Sequence[str], known: Sequence[str], command: str, with_storage: bool) -> None:
    """Applies Beam's options for a command that runs no job, and notes those without an effect.

    Args:
      rest: Options that are not the command's own, each with its value in one token.
      known: Names of the command's own options, to suggest the nearest for an unknown one.
      command: Name of the command.
      with_storage: Whether the command uses the storage options.

    Raises:
      UsageError: If Beam does not know an option either, or it asks that the command does nothing.
    """
    of_storage = [token for token in rest if with_storage and token.startswith(_STORAGE_OPTIONS)]
    unused = dict.fromkeys(token.partition("=")[0] for token in rest if token not in of_storage)
    for name in _ONLY_DESCRIBE:
        if name in unused:
            raise UsageError(f"{name} describes a job instead of running it, and this command runs none.")
    _refuse_unknown(rest, known, suggest_beams=False)
    for name in unused:
        log.note(f"{name} has no effect, because {command} runs no job.")
    if with_storage:
        use_in_storage(beam_options(of_storage, known))


def add_settings(parser: argparse.ArgumentParser, leave_out: Collection[str] = ()) -> None:
    """Adds an option for each setting of a conversion, and `--job`, except those in `leave_out`."""
    topics = list(Topic)
    items = [item for name, item in CONVERT_SETTINGS.items() if name not in leave_out]
    for item in sorted(items, key=lambda item: topics.index(item.topic)):
        add_setting(_group(parser, item.topic.value), item)
    if "job" not in leave_out:
        group = _group(parser, Topic.RUNNING.value)
        add_text(group, "job", "FILE", "the same settings as a YAML file")


def add_text(group: argparse._ActionsContainer, name: str, metavar: str, what: str) -> None:
    """Adds an option whose value is a text; it is empty if the option is not given."""
    group.add_argument(f"--{name}", default="", metavar=metavar, help=what)


def add_setting(group: argparse._ActionsContainer, item: Setting, before: str = "") -> None:
    """Adds the option of a setting.

    Args:
      group: The options among which it appears in `--help`.
      item: The setting.
      before: Words before its description.
    """
    value, text = item.kind.metavar or f"{{{','.join(item.kind.choices)}}}", before + item.help
    if len(value) > LONGEST_VALUE:
        value, text = item.name.upper(), f"{text}; one of {', '.join(item.kind.choices)}"
    if not (item.is_switch or before) and item.default not in ("", ()) and "(default:" not in text:
        text += f" (default: {item.default})"
    kind: dict[str, Any] = {"action": "append"} if item.name == "input" else {}
    if item.is_switch:
        kind = {"nargs": "?", "const": True}  # templates and schedulers can only pass --overwrite=true
    group.add_argument(
        f"--{item.name}", default=argparse.SUPPRESS, metavar=value, help=text.replace("%", "%%"), **kind
    )


def output_options(argv: Sequence[str]) -> argparse.Namespace:
    """Reads the options for the output even if another one is wrong, so that they apply to its message.

    Returns:
      `json` (stdout gets a JSON object), `quiet` (stderr gets only errors), `verbose` (stderr gets Beam's log
      and tracebacks) and `log_format` (text or json).
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    _add_output(parser)
    words = [_with_underscores(word) for word in takewhile(lambda word: word != "--", argv)]
    try:
        return parser.parse_known_args(words)[0]
    except argparse.ArgumentError:
        switches = {name: f"--{name}" in words for name in ("json", "quiet", "verbose")}
        return argparse.Namespace(**switches, log_format="text")


def _add_output(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--json", action="store_true", help="print the result as one JSON object (docs/scripting.md)"
    )
    parser.add_argument("--quiet", action="store_true", help="print only errors, and the object of --json")
    parser.add_argument(
        "--log_format",
        default="text",
        choices=LOG_FORMATS,
        help="format of the lines on stderr (default: text)",
    )
    parser.add_argument("--verbose", action="store_true", help="show Beam's log and tracebacks")


def add_common(parser: argparse.ArgumentParser, with_job: bool = False) -> None:
    """Adds the options that every command has, and `--pool` if it runs a job, which gets it with Beam's."""
    group = _group(parser, Topic.RUNNING.value)
    if with_job:
        group.add_argument(
            "--pool",
            choices=POOLS,
            help="what decodes and encodes images: worker processes, of which a decoder that crashes costs "
            "one image, or threads (default: processes if a machine has several processors; docs/engines.md)",
        )
    _add_output(group)
    group.add_argument(
        "--stuck_after",
        default=STUCK_AFTER_MINUTES,
        metavar="MINUTES",
        help="end with exit code 3 if one file takes longer than this without progress (default: 10)",
    )
    group.add_argument("-h", "--help", action="help", help="show this help and end")


def number_of(option: str, text: str | int, low: float, high: float, kind: type[float] = float) -> Any:
    """Returns the number in an option's value.

    Args:
      option: Name of the option.
      text: Its value.
      low: Smallest number.
      high: Largest number.
      kind: Type of the number, float or int.

    Raises:
      UsageError: If it is not such a number.
    """
    with contextlib.suppress(ValueError):
        number = kind(text)
        if low <= number <= high:
            return number
    whole = "whole " if kind is int else ""
    raise UsageError(f"--{option} {text}: write a {whole}number from {low:g} to {high:,.0f}.")


def add_input_and_output(parser: argparse.ArgumentParser) -> None:
    """Adds `IN OUT` as another way to write `--input IN --output OUT`."""
    parser.add_argument(
        "places", nargs="*", metavar="IN OUT", help="the same as --input IN --output OUT, for one input"
    )


def add_dataset(parser: argparse.ArgumentParser, what: str) -> None:
    """Adds the dataset argument: DIR, or `--dataset DIR`."""
    parser.add_argument("place", nargs="*", metavar="DIR", help=what)
    add_text(parser, "dataset", "DIR", "the same as the argument DIR")


def arguments_of(function: Callable[..., Any], namespace: argparse.Namespace) -> dict[str, Any]:
    """Returns the arguments of a command's function that the command line gives, by name.

    Options have the names of the function's parameters. The command shows its progress.

    Raises:
      UsageError: If there are several datasets.
    """
    arguments = {**vars(namespace), "progress": True}
    if "place" in arguments:  # of `add_dataset`
        places = [*namespace.place, *filter(None, [namespace.dataset])]
        if len(places) > 1:
            raise UsageError("Name one dataset, or one pattern in quotes, such as 'dir/*.tfrecord'.")
        arguments["dataset"] = places[0] if places else ""
    parameters = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in parameters}


def names_of(parser: argparse.ArgumentParser) -> list[str]:
    """Returns the names of a parser's options, without their hyphens."""
    return [name[2:] for name in parser._option_string_actions if name.startswith("--")]


def parse(parser: argparse.ArgumentParser, argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Parses a command line; hyphens in option names work like underscores.

    Returns:
      Our options, and the options for Beam, each with its value in one token.
    """
    options, others, places = _sorted_out(parser, argv)
    # A word that begins with a hyphen is an argument only after `--`; argparse needs all arguments together.
    odd = any(place.startswith("-") and place != "-" for place in places)
    namespace, rest = parser.parse_known_args([*options, "--", *places] if odd else [*places, *options])
    return namespace, [*rest, *others]


def _sorted_out(
    parser: argparse.ArgumentParser, argv: Sequence[str]
) -> tuple[list[str], list[str], list[str]]:
    """Splits a command line into our options and those for Beam, each with its value, and other arguments.

    argparse does not know Beam's options, and would treat them, or their values, as arguments. Of two values
    of an option, it would use only the last.

    Raises:
      UsageError: If an option that may be given once has different values.
    """
    values: dict[str, str] = {}
    ours: list[str] = []
    others: list[str] = []
    places: list[str] = []
    tokens = list(argv)[::-1]
    while tokens:
        token = tokens.pop()
        if token == "--":
            return ours, others, [*places, *tokens[::-1]]
        if not token.startswith("--"):
            (ours if _looks_like_option(token) else places).append(token)
            continue
        name, equals, value = _with_underscores(token).partition("=")
        action = parser._option_string_actions.get(name)
        if not equals and tokens and _takes_value(action, name, tokens[-1]):
            equals, value = "=", tokens.pop()
        elif not equals and action is not None and action.nargs == "?":
            equals, value = "=", "true"
        if action is not None and action.nargs != 0 and not isinstance(action, argparse._AppendAction):
            first = values.setdefault(name, value)
            if first != value:
                raise UsageError(
                    f"{name} has two values, {printable(first)!r} and {printable(value)!r}; give it once."
                )
        (others if action is None else ours).append(name + equals + value)
    return ours, others, places


def _with_underscores(token: str) -> str:
    """Returns an option, with its value if it has one, whose name has underscores instead of hyphens."""
    name, equals, value = token.partition("=")
    return f"--{name[2:].replace('-', '_')}{equals}{value}" if name.startswith("--") else token


def _looks_like_option(token: str) -> bool:
    """Returns whether a token is an option: `--name` or `-h`, but not a negative number or a lone hyphen."""
    return bool(re.match(r"--|-[A-Za-z]", token))


def _takes_value(action: argparse.Action | None, name: str, following: str) -> bool:
    """Returns whether the token after an option is its value.

    Args:
      action: Our option; None for one of Beam's.
      name: Name of the option, as `--name`.
      following: The next token.
    """
    if _looks_like_option(following):
        return False
    if action is not None:
        if action.nargs == "?":  # a switch
            return following.lower() in ("true", "false", "yes", "no")
        return action.nargs != 0
    options = _beam_parser()._option_string_actions
    # Beam also treats the token after an unknown option as its value.
    return bool(options) and (name not in options or options[name].nargs != 0)


def own_settings(namespace: argparse.Namespace) -> dict[str, Any]:
    """Returns the settings on the command line; input and output may be arguments without an option name.

    Raises:
      UsageError: If there are more arguments than missing settings.
    """
    settings = {name: value for name, value in vars(namespace).items() if name in CONVERT_SETTINGS}
    places = getattr(namespace, "places", ())
    free = [name for name in ("input", "output") if name not in settings]
    if len(places) > len(free):
        extra = printable(places[len(free)])
        raise UsageError(
            f"Unexpected argument {extra!r}; name each of several inputs with --input, and write a pattern "
            "such as 'old/*.tfrecord' in quotes."
        )
    from_places: dict[str, Any] = dict(zip(free, places))
    if "input" in from_places:
        from_places["input"] = [from_places["input"]]
    return {**settings, **from_places}


def given_settings(namespace: argparse.Namespace) -> dict[str, Any]:
    """Returns the given settings; the command line takes precedence over `--job`."""
    settings = own_settings(namespace)
    if not namespace.job:
        return settings
    from shardwright.pipelines.job_file import read_job_settings  # imports YAML

    return settings_over(read_job_settings(namespace.job, settings), settings)


def beam_options(argv: Sequence[str], known: Sequence[str]) -> Any:
    """Returns Beam's PipelineOptions from the options that are not ours.

    Args:
      argv: Options that are not ours.
      known: Names of our options, to suggest the nearest one.

    Raises:
      UsageError: If an option is unknown and the runner is not a portable one, or two options exclude each
        other.
    """
    from apache_beam.options import pipeline_options as beam

    from shardwright.transforms.runner_features import WorkerOptions

    options = WorkerOptions(list(argv)).view_as(beam.PipelineOptions)
    if options.view_as(beam.SetupOptions).save_main_session is None:
        # Workers have the package; otherwise Beam would send the launcher's main module to Dataflow.
        options.view_as(beam.SetupOptions).save_main_session = False
    standard = options.view_as(beam.StandardOptions)
    job_file = options.view_as(beam.DebugOptions).dataflow_job_file
    if job_file and options.view_as(beam.TestOptions).dry_run:
        raise UsageError(
            f"--dry_run would not write {job_file}, because Beam writes --dataflow_job_file when it sends "
            "the job; leave out one of the two."
        )
    _check_runner(standard.runner or "", standard.KNOWN_RUNNER_NAMES)
    if runner_of(options) in _CLOSED_RUNNERS:
        _refuse_unknown(argv, known, suggest_beams=True)
    else:
        options.view_as(beam.DebugOptions).add_experiment(_NO_LIST_OF_PACKAGES)
    if not standard.runner:
        standard.runner = DEFAULT_RUNNER
    elif WATCHDOG.stuck_after != 60 * STUCK_AFTER_MINUTES:
        # Workers of a cluster get nothing from this process except Beam's options.
        options.view_as(beam.DebugOptions).add_experiment(f"{STUCK_EXPERIMENT}={WATCHDOG.stuck_after / 60}")
    return options


def runner_of(options: Any) -> str:
    """Returns the name of the runner of a job, such as `fnapi`, `direct` or `dataflow`.

    Beam accepts names in any case, with their module, and without `Runner` at their end.
    """
    from apache_beam.options.pipeline_options import StandardOptions

    name = options.view_as(StandardOptions).runner or DEFAULT_RUNNER
    return str(name).rpartition(".")[2].lower().removesuffix("runner")


def _check_runner(runner: str, known: Sequence[str]) -> None:
    """Refuses an unknown runner. Beam accepts names in any case, and without `Runner`.

    Raises:
      UsageError: If the runner does not exist, or its packages are missing.
    """
    names = [name.lower() for name in known]
    if runner and "." not in runner and not {runner.lower(), f"{runner.lower()}runner"} & set(names):
        hint = nearest(runner, known) or f"; choose one of {', '.join(known)}."
        raise UsageError(f"--runner {runner}: Beam has no such runner{hint}")
    if "dataflow" in runner.lower():
        with needed_by(f"--runner {runner}"):
            importlib.import_module("google.cloud.dataflow")


def _beam_parser() -> argparse.ArgumentParser:
    """Returns a parser of all options that Beam knows, with those that this package adds to Beam's.

    Without Beam, which reading does not need, it has none.
    """
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False, exit_on_error=False)
    try:
        from apache_beam.options.pipeline_options import PipelineOptions

        from shardwright.transforms.runner_features import WorkerOptions
    except ImportError:
        return parser
    classes = [PipelineOptions, WorkerOptions]
    for cls in classes:
        classes += cls.__subclasses__()
    for cls in dict.fromkeys(classes[1:]):
        if "_add_argparse_args" in vars(cls):
            try:
                cls._add_argparse_args(parser)
            except argparse.ArgumentError:
                continue  # two of Beam's option classes have an option of the same name
    return parser


def _refuse_unknown(argv: Sequence[str], names: Sequence[str], suggest_beams: bool) -> None:
    """Refuses options that Beam does not know, and suggests the nearest one.

    Args:
      argv: Options that are not ours.
      names: Names of our options.
      suggest_beams: Whether to suggest options of Beam, too.
    """
    parser = _beam_parser()
    try:
        _, unknown = parser.parse_known_args(list(argv))
    except argparse.ArgumentError as error:
        raise UsageError(f"{error}.") from None
    if not unknown:
        return
    first = unknown[0].partition("=")[0]
    if not first.startswith("--"):
        raise UsageError(
            f"Unexpected argument {unknown[0]!r}; options begin with --, and a pattern such as "
            "'old/*.tfrecord' must be in quotes."
        )
    names = [*names, *(names_of(parser) if suggest_beams else ())]
    hint = nearest(first, [f"--{name}" for name in names]) or "; see --help."
    raise UsageError(f"Unknown option {first}{hint}")
