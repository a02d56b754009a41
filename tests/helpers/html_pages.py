"""Reads the pages that the project writes."""

from __future__ import annotations

import re
from html.parser import HTMLParser

#: Elements without an end tag.
_VOID = frozenset({"meta", "link", "br", "img", "input"})


class Page(HTMLParser):
    """A page whose elements are all closed.

    Attributes:
      attributes: Element, name and value of each attribute.
      headings: The level of each heading.
      text: The text that a reader sees.
    """

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.attributes: list[tuple[str, str, str]] = []
        self.headings: list[int] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag in _VOID or self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] not in (["style"], ["script"]):
            self.text += data

    def of(self, *names: str) -> list[str]:
        """Returns the values of all attributes with one of these names."""
        return [value for _, name, value in self.attributes if name in names]

    @property
    def links(self) -> list[str]:
        """The targets of links to other pages."""
        return [link for link in self.of("href") if not link.startswith("#")]
