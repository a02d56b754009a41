"""Reads the parts of a job file that are not settings: gates, retention, hooks, lease and runner."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from shardwright.core import storage
from shardwright.pipelines.gates import read_gate_file
from shardwright.schemas.codes import OF_FILES, OF_SOURCE, QUALITY, FindingCode
from shardwright.schemas.configuration.gate_file import gates_from
from shardwright.schemas.configuration.job import EVENTS, Hook, JobGates
from shardwright.schemas.configuration.job_model import HookBlock, Hooks
from shardwright.schemas.configuration.job_values import Variables, expanded
from shardwright.schemas.errors import UsageError, nearest
from shardwright.schemas.plain_yaml import WrongValue

_EVENT_KEYS = tuple(Hooks.model_fields)
_HOOK_KEYS = tuple(HookBlock.model_fields)
_SHELL = frozenset({"|", "||", "&", "&&", ";", ">", ">>", "<", "2>", "2>&1"})
_OPTION_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)


def read_job_gates(section: Any, path: str) -> JobGates:
    """Reads `gates`, which contains gates or names a gate file.

    Args:
      section: Value of the key, expanded; None if it is missing.
      path: Path of the job file; a gate file is searched for beside it.

    Raises:
      WrongValue: The value is wrong; the error has its keys, the mistake and a correct value.
    """
    if isinstance(section, str) and section:
        return _gate_file(section, path)
    section = _mapping(section, "max_count_drop: 0.2", "gates")
    try:
        return gates_from(section)
    except WrongValue as error:
        raise WrongValue(str(error), "gates", *error.path) from None


def _gate_file(name: str, path: str) -> JobGates:
    """Reads a gate file that lies beside the job file."""
    beside, remote = os.path.dirname(path), storage.is_remote(path)
    if not (storage.is_remote(name) or os.path.isabs(name)) and beside:
        name = storage.join(beside, name) if remote else os.path.join(beside, name)
    try:
        return read_gate_file("gates", name)
    except UsageError as error:
        raise WrongValue(error.message, "gates") from None


def verification_for(verify: str, gates: JobGates) -> str:
    """Returns how to check a new version: as the job says, or as deeply as its gates need.

    Args:
      verify: Value in the job; empty if it is missing.
      gates: Gates for a new version.

    Raises:
      WrongValue: The gates depend on findings, but the job checks nothing, or no rebuild can find them.
    """
    named = {
        "fail_on": gates.findings.fail_on,
        "warn_on": gates.findings.warn_on,
        "max_rise": gates.limits.max_rise,
        "expect": gates.expectations.max_fraction,
    }
    for name, codes in named.items():
        for code in codes:
            if FindingCode(code) in OF_SOURCE:
                raise WrongValue(
                    f"{name}: {code} is found by validate --against, and a rebuild reads its source anyway; "
                    "take it out",
                    "gates",
                    name,
                )
    asking = [FindingCode(code) for codes in named.values() for code in codes]
    measured = gates.expectations.measured_names()
    if (asking or measured) and verify == "none":
        raise WrongValue(
            f"verify: none finds nothing, but the gates need {[*asking, *measured][0]}; write verify: fast",
            "verify",
        )
    if measured or any(code in QUALITY for code in asking):
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
      WrongValue: The value is wrong; the error has its keys, the mistake and a correct value.
    """
    hooks: dict[str, list[Hook]] = {}
    for key, value in _mapping(section, "on_failure: {command: ...}", "hooks").items():
        if key not in _EVENT_KEYS:
            hint = nearest(str(key), _EVENT_KEYS) or f"; choose one of {', '.join(_EVENT_KEYS)}"
            raise WrongValue(f"hooks: there is no event {str(key)!r}{hint}", "hooks", key)
        path = ("hooks", str(key))
        several = isinstance(value, list) and any(isinstance(item, Mapping) for item in value)
        made = (
            [_hook(item, variables, *path, str(number)) for number, item in enumerate(value)]
            if several
            else [_hook(value, variables, *path)]
        )
        for event in EVENTS if key == "on_any" else (key.removeprefix("on_"),):
            hooks.setdefault(event, []).extend(made)
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


def read_beam(section: Any) -> tuple[str, ...]:
    """Reads `runner`: Beam's options, in the form of a command line.

    Args:
      section: Value of the key, expanded, with each value as it is written.

    Raises:
      WrongValue: The value is wrong; the error has its keys, the mistake and a correct value.
    """
    options: list[str] = []
    for key, value in _mapping(section, "runner: DataflowRunner", "runner").items():
        name = str(key).removeprefix("--").replace("-", "_")
        if not _OPTION_NAME.fullmatch(name):
            raise WrongValue(f"runner: {str(key)!r} is not the name of an option", "runner", key)
        if value is None:
            raise WrongValue(f"{key} has no value; write one or take it out", "runner", key)
        if isinstance(value, list) and not all(isinstance(item, str) for item in value):
            raise WrongValue(f"{key}: write a list of values, such as [one, two]", "runner", key)
        if isinstance(value, Mapping):
            options.append(f"--{name}={json.dumps(value)}")
        elif isinstance(value, list):
            options += [f"--{name}={item}" for item in value]
        elif value.lower() == "true":
            options.append(f"--{name}")
        elif value.lower() == "false":
            options += _switched_off(name)
        else:
            options.append(f"--{name}={value}")
    return tuple(options)


def _switched_off(name: str) -> list[str]:
    """Returns the options that turn one of Beam's switches off: usually none, since off is the default."""
    from apache_beam.options import pipeline_options

    opposite = getattr(pipeline_options, "_FLAG_THAT_SETS_FALSE_VALUE", {}).get(name)
    return [f"--{opposite}"] if opposite else []


def _mapping(value: Any, example: str, section: str) -> Mapping[Any, Any]:
    """Returns the keys of a section; empty if all its lines are comments."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise WrongValue(f"{section}: write `name: value` lines below it, such as {example}", section)
    return value
