"""Expands `${NAME}` and `{date}` in the values of a job file.

    ${NAME}            the environment variable; an error if there is none
    ${NAME:-default}   the same, or the default where it is missing or empty
    {date}             2026-11-21, the day of the run in UTC; {year} {month} {day} are its parts
    {time}             02-30-00, the time of the run in UTC

Nothing else is touched, so regular expressions, JSON and shell commands stay what they are: `[a-z]{2}`,
`(?P<label>.+)$`, `$HOME`, `{"a": {"b": 1}}`. To write one of the above as it stands, double what begins
it: `$${NAME}`, `{{date}}`. Doubling means that only there; `$$` and `}}` elsewhere are two characters.

Values are expanded after the file was read as YAML, and what comes in is not expanded again: a variable
cannot add a line, a key or another variable.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from shardwright.schemas.plain_yaml import WrongValue

_DATES = {"date": "%Y-%m-%d", "time": "%H-%M-%S", "year": "%Y", "month": "%m", "day": "%d"}
_DATE = "|".join(_DATES)
_PLACEHOLDER = re.compile(
    rf"(?P<dollars>(?<!\$)\$++)\{{(?P<name>[A-Za-z_]\w*)(?P<rest>:-(?P<default>(?:\{{(?:{_DATE})\}}|[^{{}}])*))?\}}"
    r"|(?P<open>(?<!\$)\$++)\{(?=[A-Za-z_])"
    rf"|(?P<left>(?<!\{{)\{{++)(?P<date>{_DATE})(?P<right>\}}+)",
    re.ASCII,
)
_NUMBER = re.compile(r"[+-]?(\d{1,30}|(\d{1,30}\.\d*|\.\d+|\d{1,30})([eE][+-]?\d{1,3})?)", re.ASCII)
#: Shorter values of variables also occur inside other words.
_SHORT = 4


class Variables(NamedTuple):
    """Values for placeholders.

    Attributes:
      environ: the environment's variables.
      dates: the names in braces.
    """

    environ: Mapping[str, str]
    dates: Mapping[str, str]

    def expand(self, text: str) -> str:
        """Returns a value with its placeholders replaced.

        Raises:
          ValueError: if a variable is not set, or `${` does not begin a placeholder.
        """
        return _PLACEHOLDER.sub(self._replaced, text)

    def _replaced(self, match: re.Match[str]) -> str:
        if match["date"]:
            return _between_braces(match, lambda name: self.dates[name])
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


def _between_braces(match: re.Match[str], value_of: Callable[[str], str]) -> str:
    """Returns what a name in braces becomes; of those on both its sides two stand for one."""
    pairs = min(len(match["left"]), len(match["right"]))
    before, after = match["left"][pairs:], match["right"][pairs:]
    inner = value_of(match["date"]) if pairs % 2 else match["date"]
    return before + "{" * (pairs // 2) + inner + "}" * (pairs // 2) + after


def variables_at(now: float, environ: Mapping[str, str]) -> Variables:
    """Returns the values for placeholders.

    Args:
      now: seconds since the epoch.
      environ: the environment's variables.
    """
    when = time.gmtime(now)
    return Variables(environ, {name: time.strftime(form, when) for name, form in _DATES.items()})


def expanded(value: Any, variables: Variables, *path: str, numbers: bool = False) -> Any:
    """Returns a value, or all of a list or mapping, with placeholders replaced; never those in keys.

    Args:
      value: The value as read.
      variables: Values for placeholders.
      *path: Keys that lead to the value.
      numbers: whether a text that becomes a number by that is the number.

    Raises:
      WrongValue: if a variable is not set; under `path` and the keys of the value.
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
        return value
    try:
        result = variables.expand(value)
    except ValueError as error:
        raise WrongValue(str(error), *path) from None
    return _as_number(result) if numbers and result != value else result


def _as_number(text: str) -> str | int | float:
    match = _NUMBER.fullmatch(text)
    if not match:
        return text
    return int(text) if match[1].isdigit() else float(text)


def escaped(text: str) -> str:
    """Returns the value that expands to a text."""

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
      message: about values that were expanded.
      texts: the values as they are written.
      environ: the environment's variables.
    """
    names = {match["name"] for text in texts for match in _PLACEHOLDER.finditer(text) if match["name"]}
    for name in sorted(names, key=lambda name: (-len(environ.get(name, "")), name)):
        value = environ.get(name, "")
        for form in {repr(value)[1:-1], value} if value else ():
            wanted = re.escape(form) if len(form) >= _SHORT else rf"(?<!\w){re.escape(form)}(?!\w)"
            message = re.sub(wanted, f"${{{name}}}", message)  # a name has no backslash
    return message
