"""Reads job files: the settings of `convert`, and the other keys that a rebuild needs."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field

from shardwright.core import storage
from shardwright.pipelines import log
from shardwright.schemas.codes import OF_FILES, OF_SOURCE, QUALITY, FindingCode
from shardwright.schemas.configuration.gates import GateFile, gates_from, parse_gates
from shardwright.schemas.configuration.job import (
    EVENTS,
    Hook,
    JobFile,
    Variables,
    expanded,
    variables_at,
    without_secrets,
)
from shardwright.schemas.configuration.setting import Setting, settings_of
from shardwright.schemas.configuration.settings import (
    CONVERT_SETTINGS,
    NOT_FOR_REBUILDS,
    REBUILD_SETTINGS,
    RebuildSettings,
    is_on,
    settings_from,
    settings_over,
)
from shardwright.schemas.configuration.typed_yaml import FileModel
from shardwright.schemas.errors import UsageError, as_sentence, nearest
from shardwright.schemas.plain_yaml import NotPlain, WrongValue, load_plain_yaml, places_of_keys
from shardwright.schemas.units import is_or_are

_Command = str | Annotated[list[str], Field(min_length=1)]


class HookBlock(FileModel):
    """A command or URL to call at the end of a run."""

    command: _Command | None = None
    """A command. It runs without a shell."""
    webhook: str | None = None
    """A URL that receives a JSON document."""


_Hooks = _Command | HookBlock | list[HookBlock]


class Hooks(FileModel):
    """The commands and URLs to call at the end of a run."""

    on_any: _Hooks | None = None
    """After every run."""
    on_success: _Hooks | None = None
    """After a run that published a version."""
    on_no_change: _Hooks | None = None
    """After a run that found nothing new."""
    on_refused: _Hooks | None = None
    """After a run whose version a gate refused."""
    on_failure: _Hooks | None = None
    """After a run that failed."""


class Sections(FileModel):
    """The sections of a job file besides settings."""

    gates: GateFile | str | None = None
    """The checks that a new version has to pass, or the path of a gate file."""
    hooks: Hooks | None = None
    """The commands and URLs to call at the end of a run."""
    runner: dict[str, Any] | None = None
    """Beam's options, as on the command line."""


_ONLY_OF_REBUILDS = settings_of(RebuildSettings)
#: Keys of a job file that `convert` ignores.
SECTIONS = ("gates", *_ONLY_OF_REBUILDS, "hooks", "runner")
#: Beginning of messages about an option.
_OPTION = re.compile(r"(?P<unknown>Unknown option )?--(?P<name>\w+)")
_EVENT_KEYS = tuple(Hooks.model_fields)
_HOOK_KEYS = tuple(HookBlock.model_fields)
_SHELL = frozenset({"|", "||", "&", "&&", ";", ">", ">>", "<", "2>", "2>&1"})
#: The only option of Beam that has the word `false` as a value. For all others, it leaves out a switch.
_VERIFY = "s3_verify"
_OPTION_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)


@dataclass(frozen=True)
class _Document:
    """A job file as it was read, with nothing expanded.

    Attributes:
      path: Path of the file.
      values: Name at the top, with underscores -> value as it is written; gates have the types of YAML.
      places: Keys that lead to a value, the first one with underscores -> line and column.
    """

    path: str
    values: dict[str, Any]
    places: Mapping[tuple[str, ...], tuple[int, int]]

    @contextlib.contextmanager
    def naming_places(self) -> Iterator[None]:
        """Turns a `WrongValue` into an error that names the line of the innermost key that the file has."""
        try:
            yield
        except WrongValue as error:
            below = error.path
            while below and below not in self.places:
                below = below[:-1]
            line, column = self.places.get(below, (0, 0))
            raise _wrong(self.path, str(error), line, column if len(below) > 1 else 0) from None

    def lines(self, given: Collection[str]) -> dict[str, int]:
        """Returns the lines of settings that are not given elsewhere, and of Beam's options."""
        return {
            _name(".".join(keys)): line
            for keys, (line, _) in self.places.items()
            if keys[0] not in given and len(keys) == (2 if keys[0] == "runner" else 1)
        }


def read_job(path: str, overrides: Mapping[str, Any] | None = None) -> JobFile:
    """Reads the job file of a rebuild.

    Args:
      path: Path of the file, which may be in a bucket.
      overrides: Settings of the command line by name; None means that a setting is not given. The values that
        they replace are not read.

    Raises:
      UsageError: If the file is wrong; the message names the line, the mistake and a correct value.
    """
    given = {name: value for name, value in (overrides or {}).items() if value is not None}
    for name in given:
        if name not in REBUILD_SETTINGS:
            raise UsageError(f"unknown setting {name!r}{nearest(name, list(REBUILD_SETTINGS)) or '.'}")
    variables = variables_at(time.time(), os.environ)
    document = _read(path)
    with document.naming_places():
        settings = settings_over(_settings(document, REBUILD_SETTINGS, given, variables), given)
        for name, why in NOT_FOR_REBUILDS.items():
            if name not in given and is_on(settings.get(name, False)):
                raise WrongValue(f"{name}: {why}; take it out", name)
        for name in ("input", "output"):
            if not settings.get(name):
                raise WrongValue(f"{name} is missing; write {name}: and a path, or give --{name}")
        job = job_of(settings)
        section = expanded(document.values.get("gates"), variables, "gates", numbers=True)
        gates = read_job_gates(section, path)
        return replace(
            job,
            settings={**job.settings, "verify": verification_for(str(settings.get("verify", "")), gates)},
            gates=gates,
            hooks=read_hooks(document.values.get("hooks"), variables),
            beam=read_beam(document.values.get("runner"), variables),
            path=path,
            lines=document.lines(given),
        )


def job_of(values: Mapping[str, Any]) -> JobFile:
    """Returns the job of a rebuild without a file.

    Args:
      values: Settings by name, also those that only a rebuild has; None means that a setting is not given.

    Raises:
      UsageError: If a setting that only a rebuild has is wrong, or a rebuild does not accept a setting.
    """
    given = {name: value for name, value in values.items() if value is not None}
    for name, why in NOT_FOR_REBUILDS.items():
        if is_on(given.pop(name, False)):
            raise UsageError(f"--{name}: {why}; leave it out.")
    own = {name: item.checked(given[name]) for name, item in _ONLY_OF_REBUILDS.items() if name in given}
    return JobFile(
        settings={name: value for name, value in given.items() if name not in own},
        rules=RebuildSettings(**own),
    )


def read_job_settings(path: str, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Reads only the settings of a job file; names on stderr the keys that it ignores.

    Args:
      path: Path of the file.
      given: Settings of the command line, which replace some of them.

    Raises:
      UsageError: If the file is wrong; the message names the line, the mistake and a correct value.
    """
    document = _read(path)
    aside = [name for name in SECTIONS if name in document.values]
    if aside:
        are = is_or_are(len(aside))
        log.about(path, f"{', '.join(aside)} {are} only for rebuilds and {are} ignored")
    with document.naming_places():
        return _settings(document, CONVERT_SETTINGS, given or {}, variables_at(time.time(), os.environ))


@contextlib.contextmanager
def naming_lines(job: JobFile, given: Sequence[str] = ()) -> Iterator[None]:
    """Adds the line in the job file to errors about an option, such as `--input photos: ...`.

    Args:
      job: The job file.
      given: Beam's options on the command line, which take precedence.
    """
    try:
        yield
    except UsageError as error:
        match = _OPTION.match(error.message)
        name = match["name"] if match else ""
        line = 0 if match and match["unknown"] else job.lines.get(name, 0)
        if not any(token.partition("=")[0] == f"--{name}" for token in given):
            line = line or job.lines.get(f"runner.{name}", 0)
        if not line:
            raise
        message = error.message.removeprefix("--")
        raise _wrong(job.path, message[0].lower() + message[1:], line) from None


def _name(key: Any) -> str:
    """Returns the name of a key, which may be written with hyphens."""
    return str(key).replace("-", "_")


def _wrong(path: str, message: str, line: int = 0, column: int = 0) -> UsageError:
    where = (f", line {line}" if line else "") + (f", column {column}" if column else "")
    return UsageError(as_sentence(f"--job {path}{where}: {message}"))


def _read(path: str) -> _Document:
    """Reads a job file and checks the names at its top.

    Raises:
      UsageError: If the file is wrong; the message names the line, the mistake and a correct value.
    """
    text = storage.read_text("--job", path)
    try:
        texts, typed = load_plain_yaml(text, as_texts=True), load_plain_yaml(text)
        places = places_of_keys(text)
    except NotPlain as error:
        why = f"this is not YAML: {error.why}" if error.line else str(error)
        if error.why.endswith("occurs twice"):
            why = f"{error.why}; leave one out"
        elif "<stream end>" in error.why:
            why = "this is not YAML: it ends inside a value; close its bracket, brace or quote"
        elif r"'\t'" in error.why:
            why = "this is not YAML: a tab cannot begin a value; indent with spaces"
        if error.line and "{" in "".join(text.splitlines()[error.line - 1 : error.line]):
            why += "; put a value with braces in quotes"
        raise _wrong(path, why, error.line, error.column) from None
    if not isinstance(texts, Mapping | None):
        raise _wrong(path, "write one `setting: value` on each line, such as resize: 224")
    names = [*CONVERT_SETTINGS, *SECTIONS]
    written: dict[str, Any] = {}
    document = _Document(path, {}, {(_name(key), *rest): place for (key, *rest), place in places.items()})
    with document.naming_places():
        for key, value in (texts or {}).items():
            name = _name(key)
            first = written.setdefault(name, key)
            if first != key:
                raise WrongValue(f"{name} occurs twice, as {first} and as {key}; leave one out", name)
            if name not in names:
                if name in GateFile.model_fields:
                    raise WrongValue(f"{key} is a gate; write it below `gates:`", name)
                if name.startswith("on_"):
                    raise WrongValue(f"{key} is a hook; write it below `hooks:`", name)
                raise WrongValue(f"unknown setting {str(key)!r}{nearest(name, names)}", name)
            if value is None and name not in ("gates", "hooks", "runner"):
                raise WrongValue(f"{key} has no value; quote one that begins with #", name)
            document.values[name] = typed[key] if name == "gates" else value
    return document


def _settings(
    document: _Document, known: Mapping[str, Setting], given: Mapping[str, Any], variables: Variables
) -> dict[str, Any]:
    """Returns the checked settings of a file that the command line does not replace.

    Args:
      document: The file.
      known: The settings to read.
      given: The settings of the command line.
      variables: Values of placeholders.
    """
    names = [name for name in document.values if name in known]
    kept = [name for name in settings_over(dict.fromkeys(names), given) if name not in given]
    result: dict[str, Any] = {}
    for name in kept:
        text = document.values[name]  # as the command line would give it, where `no` and `010` are texts
        try:
            result[name] = known[name].checked(expanded(text, variables, name))
        except UsageError as error:
            message = without_secrets(error.message, [str(text)], variables.environ)
            raise WrongValue(message.removeprefix("--"), name) from None
    try:
        settings_from({name: value for name, value in result.items() if name in CONVERT_SETTINGS})
    except UsageError as error:  # about two settings that contradict each other
        match = _OPTION.match(error.message)
        raise WrongValue(error.message.removeprefix("--"), *([match["name"]] if match else [])) from None
    return result


def read_gates(given: Mapping[str, Any] | str | os.PathLike[str], option: str) -> GateFile:
    """Reads gates.

    Args:
      given: The gates by name, or the path of a gate file.
      option: Option for messages, such as `--expect`.

    Raises:
      UsageError: If they are wrong; the message says what to write instead.
    """
    if not isinstance(given, Mapping):
        path = os.fspath(given)
        return parse_gates(storage.read_text(option, path), option, path)
    try:
        return gates_from(given)
    except WrongValue as error:
        raise UsageError(as_sentence(f"{option.removeprefix('--')}: {error}")) from None


def read_job_gates(section: Any, path: str) -> GateFile:
    """Reads `gates`, which contains gates or names a gate file.

    Args:
      section: Value of the key, expanded; None if it is missing.
      path: Path of the job file; a gate file is searched for beside it.

    Raises:
      WrongValue: If the value is wrong; the error has its keys, the mistake and a correct value.
    """
    if isinstance(section, str) and section:
        is_whole = storage.is_remote(section) or os.path.isabs(section)
        name = section if is_whole else storage.join(os.path.dirname(path), section)
        try:
            return read_gates(name, "gates")
        except UsageError as error:
            raise WrongValue(error.message, "gates") from None
    section = _mapping(section, "max_count_drop: 0.2", "gates")
    try:
        return gates_from(section)
    except WrongValue as error:
        raise WrongValue(str(error), "gates", *error.path) from None


def verification_for(verify: str, gates: GateFile) -> str:
    """Returns how to check a new version: as the job says, or as deeply as its gates need.

    Args:
      verify: Value in the job; empty if it is missing.
      gates: Gates for a new version.

    Raises:
      WrongValue: If the gates depend on findings, but the job checks nothing, or no rebuild can find them.
    """
    named = ("fail_on", "warn_on", "max_rise", "max_fraction")
    asking = {FindingCode(code): name for name in named for code in getattr(gates, name)}
    for code, name in asking.items():
        if code in OF_SOURCE:
            raise WrongValue(
                f"{name}: {code} is found by validate --against, and a rebuild reads its source anyway; "
                "take it out",
                "gates",
                name,
            )
    measured = gates.measured_names()
    if (asking or measured) and verify == "none":
        raise WrongValue(
            f"verify: none finds nothing, but the gates need {[*asking, *measured][0]}; write verify: fast",
            "verify",
        )
    if measured or not QUALITY.isdisjoint(asking):
        return "quality"
    if verify in ("", "fast"):
        return "fast" if OF_FILES.issuperset(asking) else "full"
    return verify


def read_hooks(section: Any, variables: Variables) -> dict[str, tuple[Hook, ...]]:
    """Reads `hooks`. Messages never show their values, which may contain secrets.

    Args:
      section: Value of the key, as it is written; commands are split before they are expanded, so that
        no variable adds an argument.
      variables: Values of placeholders.

    Raises:
      WrongValue: If the value is wrong; the error has its keys, the mistake and a correct value.
    """
    hooks: dict[str, list[Hook]] = {}
    for key, value in _mapping(section, "on_failure: {command: ...}", "hooks").items():
        if key not in _EVENT_KEYS:
            hint = nearest(str(key), _EVENT_KEYS) or f"; choose one of {', '.join(_EVENT_KEYS)}"
            raise WrongValue(f"hooks: there is no event {str(key)!r}{hint}", "hooks", key)
        path = ("hooks", str(key))
        several = isinstance(value, list) and any(isinstance(item, Mapping) for item in value)
        instances = (
            [_hook(item, variables, *path, str(index)) for index, item in enumerate(value)]
            if several
            else [_hook(value, variables, *path)]
        )
        for event in EVENTS if key == "on_any" else (key.removeprefix("on_"),):
            hooks.setdefault(event, []).extend(instances)
    return {event: tuple(hooks[event]) for event in EVENTS if event in hooks}


def _hook(value: Any, variables: Variables, *path: str) -> Hook:
    if not isinstance(value, Mapping):
        return Hook(command=_command(value, variables, *path))
    for key in value:
        if key not in _HOOK_KEYS:
            hint = nearest(str(key), _HOOK_KEYS) or "; write command or webhook"
            raise WrongValue(f"a hook has no {str(key)!r}{hint}", *path, key)
    if not value:
        raise WrongValue("write command: or webhook: below it", *path)
    command = _command(value["command"], variables, *path, "command") if "command" in value else ()
    webhook = _webhook(value["webhook"], variables, *path, "webhook") if "webhook" in value else ""
    return Hook(command, webhook)


def _command(value: Any, variables: Variables, *path: str) -> tuple[str, ...]:
    parts = value
    if isinstance(value, str):
        try:
            parts = shlex.split(value)
        except ValueError:
            raise WrongValue("a quote in the command is not closed", *path) from None
        if _SHELL.intersection(parts):
            raise WrongValue("the command runs without a shell; write [sh, -c, '...'] to use one", *path)
    if not isinstance(parts, list) or not parts or not all(isinstance(part, str) for part in parts):
        raise WrongValue("write a command, such as notify.sh or [notify.sh, --loud]", *path)
    command = tuple(expanded(part, variables, *path) for part in parts)
    if not command[0]:
        raise WrongValue("the command is empty; write one, or take it out", *path)
    if urlsplit(command[0]).scheme in ("http", "https"):
        raise WrongValue("this is an address, not a command; write webhook: before it", *path)
    if any("\0" in part for part in command):
        raise WrongValue("the command contains the character NUL, which no command can have", *path)
    return command


def _webhook(value: Any, variables: Variables, *path: str) -> str:
    url = expanded(value, variables, *path)
    try:
        parts = urlsplit(url) if isinstance(url, str) else urlsplit("")
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound or any(ord(char) <= ord(" ") for char in url):
        raise WrongValue("the webhook is not an address; write https://HOST/...", *path)
    return str(url)


def read_beam(section: Any, variables: Variables) -> tuple[str, ...]:
    """Reads `runner`: Beam's options, in the form of a command line.

    Args:
      section: Value of the key, as it is written.
      variables: Values of placeholders.

    Raises:
      WrongValue: If the value is wrong; the error has its keys, the mistake and a correct value.
    """
    options: dict[str, Any] = {}
    for key, value in _mapping(section, "runner: DataflowRunner", "runner").items():
        name = str(key).removeprefix("--").replace("-", "_")
        if not _OPTION_NAME.fullmatch(name):
            raise WrongValue(f"runner: {str(key)!r} is not the name of an option", "runner", key)
        value = expanded(value, variables, "runner", str(key))
        if isinstance(value, list) and not all(isinstance(item, str) for item in value):
            raise WrongValue(f"{key}: write a list of values, such as [one, two]", "runner", key)
        switch = {"true": True, "false": False}.get(value.lower()) if isinstance(value, str) else None
        options[name] = value if switch is None or name == _VERIFY else switch
    if not options:
        return ()
    from apache_beam.options.pipeline_options import PipelineOptions

    return tuple(PipelineOptions.from_dictionary(options)._flags)


def _mapping(value: Any, example: str, section: str) -> Mapping[Any, Any]:
    """Returns the keys of a section; empty if all its lines are comments."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise WrongValue(f"{section}: write `name: value` lines below it, such as {example}", section)
    return value
