"""How `--help` looks: a short usage line, groups of options, examples, and colors on a terminal."""

from __future__ import annotations

import argparse
import re
import shutil
import textwrap
from collections.abc import Iterable
from typing import Any, TextIO

#: Number of columns beyond which lines become hard to read.
_WIDEST = 120
#: Number of columns for the names of options, on a terminal of 80 and of 120 columns.
_NAMES, _NAMES_WIDE = 24, 32
#: Longest list of choices, in braces, that is shown in place of a value.
LONGEST_VALUE = 52
#: Parts of a help text, as groups with the names of their styles: titles, comments, values, names of options.
_COLORED = (
    r"(?m)^(?P<bold>usage:|\S.*:$)",
    r"(?m)^  (?P<dim># .*)$",
    r"(?m)^  --\w+ (?P<yellow>\S+)",
    r"(?P<cyan>(?<![\w-])--?[A-Za-z][\w-]*)",
)


def width() -> int:
    """Returns the number of columns for the help."""
    return min(shutil.get_terminal_size().columns, _WIDEST)


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Formats the help for the width of the terminal, with a usage line that names no single option."""

    def __init__(self, prog: str) -> None:
        names = _NAMES_WIDE if width() >= _WIDEST else _NAMES
        super().__init__(prog, max_help_position=names, width=width())

    def _format_usage(
        self, usage: str | None, actions: Iterable[argparse.Action], groups: Any, prefix: str | None
    ) -> str:
        arguments = [action for action in actions if not action.option_strings]
        places = [
            self._format_args(action, self._get_default_metavar_for_positional(action))
            for action in arguments
        ]
        return f"usage: {' '.join([self._prog, '[options]', *places])}\n\n"


def examples_text(example: str) -> str:
    """Returns examples as the help shows them.

    Args:
      example: Command lines, and lines of comments that begin with `#`.
    """
    lines: list[str] = []
    for line in example.strip().splitlines():
        if line.startswith("#") and lines:
            lines.append("")
        lines += [line] if line.startswith("#") else _wrapped(line)
    title = "examples:" if "#" in example else "example:"
    return "\n".join([title, *(f"  {line}".rstrip() for line in lines)])


def _wrapped(command: str) -> list[str]:
    """Returns a command line in several lines that a shell joins again."""
    room = width() - len("  ") - len(" \\")
    words = re.sub(r" (--\w+) (?!-)", " \\1\0", command)  # an option stays with its value
    lines = textwrap.wrap(
        words, room, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    return [line.replace("\0", " ") + (" \\" if line is not lines[-1] else "") for line in lines]


def print_help(text: str, file: TextIO) -> None:
    """Prints a help text, with colors on a terminal."""
    from rich.text import Text  # many commands do not need it

    from shardwright.pipelines.tables import console

    colored = Text(text)
    for pattern in _COLORED:
        colored.highlight_regex(pattern)
    console(file).print(colored, end="")
