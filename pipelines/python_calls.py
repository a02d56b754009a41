"""The boundary between the functions of `shardwright` and the programs that call them.

Inside, messages name options as the command line writes them, such as `--resize 0x5`. Here, and nowhere
else, they get the form of Python's arguments, `resize='0x5'`.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

from shardwright.schemas.configuration.settings import CONVERT_SETTINGS, REBUILD_SETTINGS
from shardwright.schemas.errors import ShardwrightError, UnexpectedError
from shardwright.schemas.layouts import LAYOUTS
from shardwright.schemas.plain_text import printable

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

#: Options of commands that a function spells in another way.
_OTHER_WORDS: Mapping[str, Mapping[str, str]] = {
    "validate": {"fast": "mode='fast'", "quality": "mode='quality'"},
    "rebuild": {"wait": "wait_minutes="},
}
#: What follows an option, without the punctuation of the sentence and words in parentheses.
_WORD = r"(?!\([a-z])\S*[^\s;,.:)?`]"
_NUMBER = re.compile(r"-?\d+(\.\d+)?")


def called_from_python(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Has a function raise its errors for programs: one exception that names Python's arguments.

    Only an exception that Shardwright does not know keeps its traceback, for a report of the bug. The
    original of any other error is its `__context__`.
    """

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except ShardwrightError as error:
            message = in_python_words(error.message, function, (*args, *kwargs.values()))
            cause = error.__cause__ if isinstance(error, UnexpectedError) else None
            raise type(error)(message) from cause

    _describe_settings(call, function)
    return call


def _describe_settings(call: Callable[..., Any], function: Callable[..., Any]) -> None:
    """Has the signature and the docstring of a call name each setting, instead of `**values`."""
    if not any(item.kind is item.VAR_KEYWORD for item in inspect.signature(function).parameters.values()):
        return
    signature = inspect.signature(function, eval_str=True)
    own = list(signature.parameters.values())
    settings = list(CONVERT_SETTINGS.values())
    if function.__name__ == "rebuild":
        settings = [item for item in REBUILD_SETTINGS.values() if not item.not_for_rebuilds]
    keyword = inspect.Parameter.KEYWORD_ONLY
    named = [
        inspect.Parameter(item.name, keyword, default=item.default, annotation=item.accepts)
        for item in settings
    ]
    by_place = [item for item in own if item.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    parameters = [*by_place, *named, *own[len(by_place) : -1]]
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    entries = [
        textwrap.fill(f"{item.name}: {item.sentence}", 110, initial_indent=" " * 6, subsequent_indent=" " * 8)
        for item in settings
    ]
    text = "\n".join(entries) + "\n"
    call.__doc__ = re.sub(r" {6}\*\*values: .*\n( {8}.*\n)*", lambda _: text, function.__doc__ or "")


def in_python_words(message: str, function: Callable[..., Any], given: Iterable[object]) -> str:
    """Returns a message with Python's arguments in place of options.

    Options that are neither arguments nor settings, such as those of Beam, stay as they are.

    Args:
      message: Message in the words of the command line.
      function: Function that was called.
      given: Values of its arguments, which may follow their option in the message.
    """
    parameters = inspect.signature(function).parameters
    name_of_function = function.__name__
    switches = {name for name, item in REBUILD_SETTINGS.items() if item.is_switch}
    switches |= {name for name, item in parameters.items() if isinstance(item.default, bool)}
    words = {
        "help": f"help(shardwright.{name_of_function})",
        "verbose": "logging.basicConfig(level='INFO')",
        **_OTHER_WORDS.get(name_of_function, {}),
    }
    texts = (os.fspath(value) if isinstance(value, os.PathLike) else str(value) for value in given)
    values = set(map(printable, texts))
    # The longest value comes first, because it may begin with another one. A file may follow a folder.
    folders = [re.escape(value) for value in sorted(values, key=len, reverse=True) if value]
    values_or_files = [rf"{folder}(?:(?<=/)|/)(?:{_WORD})?|{folder}" for folder in folders]
    value_or_word = "|".join([*values_or_files, _WORD])
    # A whole command, such as `shardwright validate --help`, stays as it is.
    option = re.compile(
        rf"shardwright [a-z]+ --\w+|(?<![\w-])--([a-z][a-z0-9_]*)(?:[ =]({value_or_word}))?(:?)"
    )

    def argument(match: re.Match[str]) -> str:
        name, word, colon = match[1], match[2] or "", match[3]
        rest = f" {word}{colon}" if word else colon
        if name in words:
            is_argument = words[name].endswith("=")
            return words[name] + (f"{_literal(word)}{colon}" if is_argument else rest)
        if name not in REBUILD_SETTINGS and name not in parameters:
            return match[0]
        if name in switches and not (word and colon):
            return f"{name}=True{rest}"
        choices = REBUILD_SETTINGS[name].kind.choices if name in REBUILD_SETTINGS else ()
        choices = tuple(LAYOUTS) if name == "layout" else choices
        if colon or word in values or word in choices or not re.fullmatch("[a-z]*", word):
            return f"{name}={_literal(word)}{colon}"
        return f"{name}={rest}"

    return option.sub(argument, message)


def _literal(value: str) -> str:
    """Returns a value as Python writes it; values in a message may have their quotes already."""
    if not value or _NUMBER.fullmatch(value) or value[0] in "'\"[({<":
        return value
    return repr(value)
