"""Tables for the terminal, plain text wherever the output is not one."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal, TextIO

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shardwright.schemas.plain_text import escape_controls

#: Characters in a line where there is no terminal: no line is broken there.
_UNBROKEN = 1_000_000
#: How words look that say whether something is wrong, on a terminal that shows colors.
ERROR, WARNING, GOOD = "bold red", "yellow", "green"


def console(file: TextIO | None = None) -> Console:
    """Returns a console that never interprets what it prints as markup."""
    out = file or sys.stdout
    width = None if out.isatty() else _UNBROKEN
    colors: Literal["auto"] | None = "auto" if out.isatty() and not os.environ.get("NO_COLOR") else None
    return _PlainConsole(
        file=out, width=width, color_system=colors, markup=False, highlight=False, emoji=False
    )


class _PlainConsole(Console):
    """A console on which no name in a text steers the terminal."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Prints texts with their control characters escaped, and anything else as it is."""
        plain = (escape_controls(item, keep="\n\t") if isinstance(item, str) else item for item in objects)
        super().print(*plain, **options)


def warn(out: Console, text: str) -> None:
    """Prints a warning as one line."""
    out.print(Text("  ").append("warning", WARNING).append(f": {one_line(text)}"), soft_wrap=True)


def one_line(text: str) -> str:
    """Returns a text without what would break its line or steer a terminal."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def print_table(
    out: Console,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    title: str = "",
    whole: Collection[str] = (),
) -> None:
    """Prints a table; numbers stand to the right, text is shown as it is, in full.

    Args:
      out: where.
      columns: their names.
      rows: of as many values.
      title: above it.
      whole: columns that are copied from, so that others are folded before they are.
    """
    rows = [list(row) for row in rows]
    table = Table(box=SIMPLE, title=Text(title) if title else None, title_justify="left")
    for i, name in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row[i], int | float) for row in rows)
        table.add_column(
            Text(name), justify="right" if numeric else "left", overflow="fold", no_wrap=name in whole
        )
    for row in rows:
        table.add_row(*(Text(f"{c:,}" if isinstance(c, int) else escape_controls(str(c))) for c in row))
    with out.capture() as captured:
        out.print(table)
    # Spaces that fill a column at the end of a line are nothing but bytes, and long values make many.
    out.file.writelines(f"{line.rstrip()}\n" for line in captured.get().split("\n")[:-1])
