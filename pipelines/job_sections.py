"""What a job file says beside the settings: gates, retention, hooks, lease and runner."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any
from urllib.parse import urlsplit

from shardwright.pipelines.gates import read_expectations, read_gates
from shardwright.schemas.codes import OF_FILES, OF_SOURCE, QUALITY, FindingCode
from shardwright.schemas.errors import UsageError, nearest
from shardwright.schemas.expectations import Expectations, expectations_from
from shardwright.schemas.job import EVENTS, Hook, JobGates
from shardwright.schemas.job_values import Variables, expanded
from shardwright.schemas.plain_yaml import WrongValue
from shardwright.schemas.scrub import DEFAULT_SCRUB
from shardwright.schemas.thresholds import Thresholds, thresholds_from
from shardwright.transforms import storage

_EVENT_KEYS = ("on_any", *(f"on_{event}" for event in EVENTS))
_HOOK_KEYS = ("command", "webhook")
_SHELL = frozenset({"|", "||", "&", "&&", ";", ">", ">>", "<", "2>", "2>&1"})
_OPTION_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)
_LONGEST = 1e9  # of numbers; a thousand years in minutes


def gate_names() -> tuple[str, ...]:
    """Returns what may stand below `gates`."""
    return ("fail_on", "warn_on", "expect", *(item.name for item in fields(Thresholds)))


def read_job_gates(said: Any, path: str) -> JobGates:
    """Reads `gates`.

    Args:
      said: what stands there, expanded; None for nothing.
      path: of the job file, beside which a file of expectations is looked for.

    Raises:
      WrongValue: naming the keys, what is wrong and what to write.
    """
    said = _mapping(said, "max_count_drop: 0.2", "gates")
    names = gate_names()
    for key in said:
        if key not in names:
            raise WrongValue(f"gates: there is no gate {str(key)!r}{nearest(str(key), names)}", "gates", key)
        if said[key] is None:
            raise WrongValue(f"{key} has no value; write one or take it out", "gates", key)
    codes = {name: _codes(said.get(name, []), name) for name in ("fail_on", "warn_on")}
    try:
        findings = read_gates(**codes)
    except UsageError as error:
        option = "warn_on" if error.message.startswith("--warn_on") else "fail_on"
        raise WrongValue(error.message.replace("--", ""), "gates", option) from None
    try:
        limits = thresholds_from({key: said[key] for key in said if key not in (*codes, "expect")})
    except WrongValue as error:
        raise WrongValue(str(error), "gates", *error.path) from None
    return JobGates(findings, _expectations(said.get("expect"), path), limits)


def _codes(value: Any, name: str) -> list[str]:
    codes = value.split(",") if isinstance(value, str) else value
    if not isinstance(codes, list) or not all(isinstance(code, str) for code in codes):
        raise WrongValue(f"{name}: write a list of findings, such as [SPLIT_LEAKAGE]", "gates", name)
    return codes


def _expectations(said: Any, path: str) -> Expectations:
    """Reads expectations, or the file that has them."""
    if said is None:
        return Expectations()
    if isinstance(said, Mapping):
        try:
            return expectations_from(said)
        except WrongValue as error:
            raise WrongValue(str(error), "gates", "expect", *error.path) from None
    if not isinstance(said, str) or not said:
        message = "expect: write the expectations below it, or the path of a file that has them"
        raise WrongValue(message, "gates", "expect")
    beside, remote = os.path.dirname(path), storage.is_remote(path)
    if not (storage.is_remote(said) or os.path.isabs(said)) and beside:
        said = storage.join(beside, said) if remote else os.path.join(beside, said)
    try:
        return read_expectations(said)
    except UsageError as error:
        raise WrongValue(error.message.removeprefix("--"), "gates", "expect") from None


def verification_for(said: str, gates: JobGates) -> str:
    """Returns how a new version is checked: as the job says, or as deep as its gates can be answered.

    Args:
      said: what the job says; empty for nothing.
      gates: what a new version has to pass.

    Raises:
      WrongValue: if nothing shall be checked and the gates go by findings, or no rebuild can find them.
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
    looks = gates.expectations.names_of_looks()
    if (asking or looks) and said == "none":
        raise WrongValue(
            f"verify none finds nothing, and the gates ask for {[*asking, *looks][0]}; write verify: fast",
            "verify",
        )
    if looks or any(code in QUALITY for code in asking):
        return "quality"
    if said in ("", "fast"):
        return "fast" if OF_FILES.issuperset(asking) else "full"
    return said


def _switch(value: Any) -> bool:
    text = str(value).lower()
    if text not in ("true", "false", "yes", "no"):
        raise ValueError("write true or false")
    return text in ("true", "yes")


def _number(value: Any, least: float, what: str) -> float:
    try:
        number = float("nan" if isinstance(value, bool) else value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not least <= number <= _LONGEST:
        raise ValueError(f"write {what}")
    return number


def _versions(value: Any) -> int:
    number = _number(value, 0, "how many versions stay, such as 5, or 0 for all")
    if number != int(number):
        raise ValueError("write a whole number")
    return int(number)


def read_fraction(value: Any) -> float:
    """Reads a share from 0 to 1, such as 0.1 or 1/30.

    Raises:
      ValueError: if it is none, saying what to write.
    """
    over, slash, under = str(value).partition("/")
    try:
        number = float(over) / float(under) if slash else float("nan" if isinstance(value, bool) else value)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        number = float("nan")
    if not 0 <= number <= 1:
        raise ValueError("write a share from 0 to 1, such as 0.1 or 1/30")
    return number


#: What is one value: name -> (what counts where nothing is said, what reads it).
SCALARS: Mapping[str, tuple[Any, Callable[[Any], Any]]] = {
    "keep": (5, _versions),
    "keep_days": (0.0, lambda value: _number(value, 0, "a number of days, such as 30")),
    "verify_sources": (False, _switch),
    "scrub": (DEFAULT_SCRUB, read_fraction),
    "lease_minutes": (60.0, lambda value: _number(value, 1, "a number of minutes from 1 on, such as 60")),
}


def read_hooks(said: Any, variables: Variables) -> dict[str, tuple[Hook, ...]]:
    """Reads `hooks`, whose values no message shows: they may hold secrets.

    Args:
      said: what stands there, as it is written; a command is taken apart before it is expanded, so that
        no variable adds an argument.
      variables: what placeholders stand for.

    Raises:
      WrongValue: naming the keys, what is wrong and what to write.
    """
    hooks: dict[str, list[Hook]] = {}
    for key, value in _mapping(said, "on_failure: {command: ...}", "hooks").items():
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


def _hook(said: Any, variables: Variables, *path: str) -> Hook:
    if not isinstance(said, Mapping):
        return Hook(command=_command(said, variables, *path))
    for key in said:
        if key not in _HOOK_KEYS:
            hint = nearest(str(key), _HOOK_KEYS) or "; write command or webhook"
            raise WrongValue(f"a hook has no {str(key)!r}{hint}", *path, key)
    if not said:
        raise WrongValue("write command: or webhook: below it", *path)
    command = _command(said["command"], variables, *path, "command") if "command" in said else ()
    webhook = _webhook(said["webhook"], variables, *path, "webhook") if "webhook" in said else ""
    return Hook(command, webhook)


def _command(said: Any, variables: Variables, *path: str) -> tuple[str, ...]:
    parts = said
    if isinstance(said, str):
        try:
            parts = shlex.split(said)
        except ValueError:
            raise WrongValue("a quote in the command is not closed", *path) from None
        if _SHELL.intersection(parts):
            raise WrongValue("no shell runs the command; write [sh, -c, '...'] for one", *path)
    if not isinstance(parts, list) or not parts or not all(isinstance(part, str) for part in parts):
        raise WrongValue("write a command, such as notify.sh or [notify.sh, --loud]", *path)
    command = tuple(expanded(part, variables, *path) for part in parts)
    if not command[0]:
        raise WrongValue("the command is empty; write one, or take it out", *path)
    if urlsplit(command[0]).scheme in ("http", "https"):
        raise WrongValue("this is an address and no command; write webhook: before it", *path)
    if any("\0" in part for part in command):
        raise WrongValue("the command has a character that no command can have", *path)
    return command


def _webhook(said: Any, variables: Variables, *path: str) -> str:
    url = expanded(said, variables, *path)
    try:
        parts = urlsplit(url) if isinstance(url, str) else urlsplit("")
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound or any(ord(char) <= ord(" ") for char in url):
        raise WrongValue("the webhook is no address; write https://HOST/...", *path)
    return str(url)


def read_beam(said: Any) -> tuple[str, ...]:
    """Reads `runner`, Beam's options, as they would stand on a command line.

    Args:
      said: what stands there, expanded, with every value as it is written.

    Raises:
      WrongValue: naming the keys, what is wrong and what to write.
    """
    options: list[str] = []
    for key, value in _mapping(said, "runner: DataflowRunner", "runner").items():
        name = str(key).removeprefix("--").replace("-", "_")
        if not _OPTION_NAME.fullmatch(name):
            raise WrongValue(f"runner: {str(key)!r} is no option's name", "runner", key)
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
    """Returns what turns one of Beam's switches off: mostly nothing, for that is how they are."""
    from apache_beam.options import pipeline_options

    opposite = getattr(pipeline_options, "_FLAG_THAT_SETS_FALSE_VALUE", {}).get(name)
    return [f"--{opposite}"] if opposite else []


def _mapping(said: Any, example: str, section: str) -> Mapping[Any, Any]:
    """Returns what stands below a section; nothing for one whose lines are all comments."""
    if said is None:
        return {}
    if not isinstance(said, Mapping):
        raise WrongValue(f"{section}: write `name: value` lines below it, such as {example}", section)
    return said
