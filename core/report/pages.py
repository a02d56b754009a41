"""Parts of every page: templates that escape all data, one style, one policy."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from shardwright.schemas import __version__
from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.schemas.plain_text import printable
from shardwright.schemas.units import counted, format_size

if TYPE_CHECKING:
    from jinja2 import Environment

#: Largest size of a page. If it would be larger, parts are omitted, images first.
MAX_PAGE_BYTES = 5_000_000
#: Largest number of characters of a name from the data on a page.
LETTERS = 120


def first_small_page(pages: Iterable[str]) -> str:
    """Returns the first page within the limit of its size; the last one if there is none."""
    page = ""
    for page in pages:
        if len(page.encode()) <= MAX_PAGE_BYTES:
            break
    return page


def draw_page(template: str, context: Mapping[str, Any]) -> str:
    """Draws a page from a template in `page/`, with the style, the script and the policy of all pages.

    Args:
      template: File name of the template.
      context: Contents of the page. `most_letters` limits the length of names.
    """
    drawing = environment().filters["drawing"]
    script = _resource("script.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    shared = {
        # A Content-Security-Policy: nothing external, and no script except the page's own.
        "policy": "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
        "style": drawing(_resource("style.css")),
        "script": drawing(script),
        "most_letters": LETTERS,
        "limit": MAX_PAGE_BYTES,
        "software": __version__,
    }
    return environment().get_template(template).render({**shared, **context})


@cache
def environment() -> Environment:
    """Returns the Jinja environment of all pages; undefined names are errors, and all values are escaped."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    jinja = Environment(
        loader=FunctionLoader(_resource),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters |= {
        "shortened": shortened,
        # The last part of a key, for places with little room.
        "base": lambda key: key.rstrip("/").rpartition("/")[2] or key,
        "number": lambda value: f"{value:,}",
        "counted": counted,
        "size": format_size,
        "data_uri": lambda picture: f"data:image/jpeg;base64,{base64.b64encode(picture.jpeg).decode()}",
        "decimals": lambda values: ", ".join(f"{value:.4f}" for value in values),
        # Only for files of this package and for what is already escaped, never for anything from the data.
        "drawing": Markup,
    }
    return jinja


@cache
def _resource(name: str) -> str:
    return files("shardwright.core.report").joinpath("page", name).read_text("utf-8")


def shortened(text: object, letters: int = LETTERS) -> str:
    """Returns a text from the data as a page shows it: shortened, without invisible characters.

    Invisible characters, and those that change the text direction, are shown as Python escapes.
    """
    whole = printable(str(text)).replace(LABEL_SEPARATOR, ", ")
    cut = whole if len(whole) <= letters else f"{whole[: max(1, letters - 1)]}…"
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in cut)


#: Beginning of the last line of a page, which is a comment with the digest of everything before it.
_DIGEST_BEGIN = "<!-- sha256 of the lines above: "


def with_page_digest(page: str) -> str:
    """Returns a page with its digest as the last line."""
    page = page if page.endswith("\n") else page + "\n"
    return f"{page}{_DIGEST_BEGIN}{hashlib.sha256(page.encode()).hexdigest()} -->\n"


def page_digest_problem(page: bytes) -> str:
    """Returns what is wrong with the last line of a page; empty if it states the digest of the others."""
    lines, begin, stated = page.rpartition(_DIGEST_BEGIN.encode())
    if not begin:
        return "its last line states no sha256; report writes the page again"
    if stated.removesuffix(b"\n") != f"{hashlib.sha256(lines).hexdigest()} -->".encode():
        return "its sha256 differs from the one in its last line"
    return ""
