"""Prints tables on a terminal, and plain text elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal, TextIO

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shardwright.schemas.plain_text import escape_controls, printable
from shardwright.schemas.units import counted, format_size

#: Line length without a terminal, so that no line is wrapped.
_UNBROKEN = 1_000_000
_MAX_VALUES_SHOWN = 8
_MAX_TEXT_SHOWN = 200
#: Styles of words that show success or errors, on a terminal with colors.
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
    """A console that prints any text, and leaves it to the terminal to wrap lines."""

    def print(self, *objects: Any, soft_wrap: bool | None = True, **options: Any) -> None:
        """Prints texts without what cannot be shown, and other objects as they are."""
        plain = (
            escape_controls(printable(item), keep="\n\t") if isinstance(item, str) else item
            for item in objects
        )
        super().print(*plain, soft_wrap=soft_wrap, **options)


def warn(out: Console, *texts: str) -> None:
    """Prints warnings, each as one line."""
    for text in texts:
        out.print(Text("  ").append("warning", WARNING).append(f": {visible(text)}"))


def visible(text: str) -> str:
    """Returns a text in one line; what cannot be seen, such as a control character, is escaped."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def print_table(
    out: Console,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    title: str = "",
    whole: Collection[str] = (),
    width: int | None = None,
    most: int | None = None,
    noun: str = "row",
) -> None:
    """Prints a table with right-aligned numbers and full texts.

    Args:
      out: Console to print on.
      columns: Names of the columns.
      rows: Rows, with a value for each column.
      title: Title above the table.
      whole: Columns that users copy from; other columns are folded first.
      width: Largest width of the table; None for that of the terminal.
      most: Largest number of rows; the others are counted below the table. None for all.
      noun: What a row is, for their number.
    """
    every = [list(row) for row in rows]
    rows = every[:most]
    table = Table(box=SIMPLE)
    for i, name in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row[i], int | float) for row in rows)
        table.add_column(
            Text(name), justify="right" if numeric else "left", overflow="fold", no_wrap=name in whole
        )
    for row in rows:
        table.add_row(*(Text(f"{c:,}" if isinstance(c, int) else escape_controls(str(c))) for c in row))
    with out.capture() as captured:
        if title:  # not the table's own title, which is wrapped to the width of the table
            out.print(Text(title, "table.title"))
        out.print(table, soft_wrap=False, width=width)
    # Remove the padding at the end of lines, which is long if one value is long.
    out.file.writelines(f"{line.rstrip()}\n" for line in captured.get().split("\n")[:-1])
    if len(every) > len(rows):
        out.print(f"  and {counted(len(every) - len(rows), f'more {noun}')}")


def as_text(value: Any) -> str:
    """Returns a value for the screen: one short line without control characters."""
    if isinstance(value, list):
        listed = ", ".join(as_text(item) for item in value[:_MAX_VALUES_SHOWN])
        more = f", ... {len(value):,} in all" if len(value) > _MAX_VALUES_SHOWN else ""
        return f"[{listed}{more}]"
    if isinstance(value, dict):
        return f"<{format_size(value['bytes'])} {value['kind'] or 'binary'}>"
    if isinstance(value, float):
        return f"{value:g}"
    text = str(value)
    cut = text[:_MAX_TEXT_SHOWN]
    return visible(cut) + (f"... {len(text):,} characters in all" if len(text) > len(cut) else "")
