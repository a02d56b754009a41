"""Texts that are made from templates of Jinja, which lie beside the modules that fill them in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def fill_in(template: Path, filters: Mapping[str, Callable[..., Any]] | None = None, **values: Any) -> str:
    """Returns the text of a template with its values, which nothing escapes.

    Args:
      template: File of the template.
      filters: Functions that it applies to values, by name.
      **values: The values by name; all that it uses.
    """
    from jinja2 import Environment, StrictUndefined  # readers do not have it

    jinja = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    jinja.filters |= filters or {}
    return jinja.from_string(template.read_text(encoding="utf-8")).render(values)
