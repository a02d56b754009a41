"""The content of a rebuild's job file.

In its values, `${NAME}` and `{date}` are expanded:

    ${NAME}            the environment variable; an error if it is not set
    ${NAME:-default}   the same, or the default if it is not set or empty
    {date}             2026-11-21, the day of the run in UTC; {year} {month} {day} are its parts
    {time}             02-30-00, the time of the run in UTC

Everything else stays unchanged, so regular expressions, JSON and shell commands work: `[a-z]{2}`,
`(?P<label>.+)$`, `$HOME`, `{"a": {"b": 1}}`. To write a placeholder literally, double its first characters:
`$${NAME}`, `{{date}}`. Elsewhere, `$$` and `}}` are ordinary characters.

Values are expanded after the file was read as YAML, and the result is not expanded again. So a variable
cannot add a line, a key or another variable.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shardwright.schemas.configuration.gates import GateFile
from shardwright.schemas.configuration.settings import RebuildSettings
from shardwright.schemas.plain_yaml import WrongValue

_DATES = {"date": "%Y-%m-%d", "time": "%H-%M-%S", "year": "%Y", "month": "%m", "day": "%d"}
_DATE = "|".join(_DATES)
_PLACEHOLDER = re.compile(
    rf"(?P<dollars>(?<!\$)\$+)\{{(?P<name>[A-Za-z_]\w*)(?P<rest>:-(?P<default>(?:\{{(?:{_DATE})\}}|[^{{}}])*))?\}}"
    r"|(?P<open>(?<!\$)\$+)\{(?=[A-Za-z_])"
    rf"|(?P<left>(?<!\{{)\{{+)(?P<date>{_DATE})(?P<right>\}}+)",
    re.ASCII,
)
_NUMBER = re.compile(r"[+-]?(\d{1,30}|(\d{1,30}\.\d*|\.\d+|\d{1,30})([eE][+-]?\d{1,3})?)", re.ASCII)
#: Shorter values of variables also occur inside ordinary words.
_SHORT = 4
#: Events that a hook can be called for; `on_any` in a file means all of them.
EVENTS = ("success", "no_change", "refused", "failure")


@dataclass(frozen=True)
class Hook:
    """A command or URL to call at the end of a run. It may contain secrets, so its `repr` does not show it.

    Attributes:
      command: Command with its arguments; empty for none.
      webhook: URL that receives a JSON document; empty for none.
    """

    command: tuple[str, ...] = field(default=(), repr=False)
    webhook: str = field(default="", repr=False)


@dataclass(frozen=True)
class JobFile:
    """The content of a job file.

    Attributes:
      settings: The given settings of the conversion, by name; `verify` is chosen so that the gates can be
        checked.
      gates: Checks that a new version has to pass.
      rules: The settings that only a rebuild has.
      hooks: Event (success, no_change, refused, failure) -> hooks to call.
      beam: Options for Beam, as on a command line.
      path: Path of the file.
      lines: Setting, or `runner.` and the name of a Beam option -> its line in the file.
    """

    settings: Mapping[str, Any]
    gates: GateFile = field(default_factory=GateFile)
    rules: RebuildSettings = field(default_factory=RebuildSettings)
    hooks: Mapping[str, tuple[Hook, ...]] = field(default_factory=dict)
    beam: tuple[str, ...] = field(default=(), repr=False)
    path: str = ""
    lines: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)


class Variables(NamedTuple):
    """Values for placeholders.

    Attributes:
      environ: Environment variables.
      dates: Values of the names in braces.
    """

    environ: Mapping[str, str]
    dates: Mapping[str, str]

    def expand(self, text: str) -> str:
        """Returns a value with its placeholders replaced.

        Raises:
          ValueError: If a variable is not set, or `${` does not begin a placeholder.
        """
        return _PLACEHOLDER.sub(self._replaced, text)

    def _replaced(self, match: re.Match[str]) -> str:
        if match["date"]:
            # Each pair of doubled braces around the name becomes a single one.
            pairs = min(len(match["left"]), len(match["right"]))
            before, after = match["left"][pairs:], match["right"][pairs:]
            inner = self.dates[match["date"]] if pairs % 2 else match["date"]
            return before + "{" * (pairs // 2) + inner + "}" * (pairs // 2) + after
        dollars = match["dollars"] or match["open"]
        kept, expands = "$" * (len(dollars) // 2), len(dollars) % 2
        if not expands:
            return kept + match[0][len(dollars) :]
        if match["open"]:
            raise ValueError(
                "${ begins a variable, which is ${NAME} or ${NAME:-default} without other braces; write $${ "
                "for the two characters"
            )
        value = self.environ.get(match["name"])
        if value is None and match["rest"] is None:
            raise ValueError(
                f"the environment variable {match['name']} is not set; set it, or write "
                f"${{{match['name']}:-default}}"
            )
        if not value and match["rest"] is not None:
            value = re.sub(rf"\{{({_DATE})\}}", lambda date: self.dates[date[1]], match["default"])
        return kept + (value or "")


def variables_at(now: float, environ: Mapping[str, str]) -> Variables:
    """Returns the values for placeholders.

    Args:
      now: Seconds since the epoch.
      environ: Environment variables.
    """
    when = time.gmtime(now)
    return Variables(environ, {name: time.strftime(form, when) for name, form in _DATES.items()})


def expanded(value: Any, variables: Variables, *path: str, numbers: bool = False) -> Any:
    """Returns a value with placeholders replaced, also inside lists and mappings, but not in keys.

    Args:
      value: The value as read.
      variables: Values for placeholders.
      *path: Keys that lead to the value.
      numbers: Whether values have the types of YAML, so that a text that becomes a number by this is
        returned as a number. Otherwise all values have to be texts.

    Raises:
      WrongValue: If a variable is not set, or a value is not what it has to be; the error has `path` and the
        keys of the value.
    """
    if isinstance(value, Mapping):
        return {
            key: expanded(item, variables, *path, str(key), numbers=numbers) for key, item in value.items()
        }
    if isinstance(value, list):
        return [
            expanded(item, variables, *path, str(number), numbers=numbers)
            for number, item in enumerate(value)
        ]
    if not isinstance(value, str):
        if numbers:
            return value
        wrong = "has no value; write one or take it out"
        if value is not None:
            wrong = "is not text; write one, in quotes if needed"
        raise WrongValue(f"{': '.join(path)} {wrong}", *path)
    try:
        result = variables.expand(value)
    except ValueError as error:
        raise WrongValue(str(error), *path) from None
    match = _NUMBER.fullmatch(result) if numbers and result != value else None
    if not match:
        return result
    return int(result) if match[1].isdigit() else float(result)


def escaped(text: str) -> str:
    """Returns the value that expands to this text."""

    def doubled(match: re.Match[str]) -> str:
        if match["date"]:
            pairs = min(len(match["left"]), len(match["right"]))
            return "{" * pairs + match[0] + "}" * pairs
        dollars = match["dollars"] or match["open"]
        return dollars + match[0]

    return _PLACEHOLDER.sub(doubled, text)


def without_secrets(message: str, texts: Iterable[str], environ: Mapping[str, str]) -> str:
    """Returns a message with the names of the variables in place of their values.

    Args:
      message: A message about expanded values.
      texts: The values as the file has them.
      environ: Environment variables.
    """
    names = {match["name"] for text in texts for match in _PLACEHOLDER.finditer(text) if match["name"]}
    for name in sorted(names, key=lambda name: (-len(environ.get(name, "")), name)):
        value = environ.get(name, "")
        for form in {repr(value)[1:-1], value} if value else ():
            pattern = re.escape(form) if len(form) >= _SHORT else rf"(?<!\w){re.escape(form)}(?!\w)"
            message = re.sub(pattern, f"${{{name}}}", message)  # a name contains no backslash
    return message
