"""Where a dataset comes from and what its users may do with it: facts that only a person knows."""

from __future__ import annotations

import datetime
import re
from dataclasses import asdict, dataclass
from typing import NamedTuple

#: Prefix of a creator that is an organization.
_ORGANIZATION = "org:"
_WEB = re.compile(r"https?://[^\s/]\S*\Z")
_COMMONS = re.compile(r"https?://creativecommons\.org/licenses/(by(?:-[a-z]+)*)/([0-9.]+)(?:/.*)?\Z")
_COMMONS_ZERO = re.compile(r"https?://creativecommons\.org/publicdomain/zero/([0-9.]+)(?:/.*)?\Z")


class Creator(NamedTuple):
    """A person or an organization that made a dataset."""

    name: str
    is_organization: bool


@dataclass(frozen=True)
class Provenance:
    """What the user states about a dataset; every text may be empty.

    Attributes:
      license: SPDX identifier, name or web address of the license.
      citation: How to cite the dataset, best as BibTeX.
      creator: Names of its creators, separated by `;`. `org:` marks an organization.
      url: Home page.
      description: What the dataset contains, as Markdown.
      date_published: Date of publication, as YYYY-MM-DD.
    """

    license: str = ""
    citation: str = ""
    creator: str = ""
    url: str = ""
    description: str = ""
    date_published: str = ""

    @property
    def creators(self) -> list[Creator]:
        """The creators in the order given."""
        return parse_creators(self.creator)

    @property
    def license_url(self) -> str:
        """The license if it is a web address, otherwise an empty text."""
        return self.license if _WEB.match(self.license) else ""

    @property
    def license_id(self) -> str:
        """The license in lower case; for the address of a Creative Commons license its identifier."""
        if match := _COMMONS.match(self.license):
            return f"cc-{match[1]}-{match[2]}"
        if match := _COMMONS_ZERO.match(self.license):
            return f"cc0-{match[1]}"
        return self.license.lower()

    def described(self, facts: str) -> str:
        """Returns facts about the dataset after the user's description, if there is one."""
        description = self.description.strip()
        return f"{description}\n\n{facts}" if description else facts

    def as_json(self) -> dict[str, str]:
        """Returns the texts that are not empty."""
        return {name: text for name, text in asdict(self).items() if text}


def parse_creators(text: str) -> list[Creator]:
    """Reads the names of creators.

    >>> [tuple(creator) for creator in parse_creators("Ada Lovelace; org:Analytical Society")]
    [('Ada Lovelace', False), ('Analytical Society', True)]

    Raises:
      ValueError: If a name is empty.
    """
    creators = []
    for part in one_line(text).split(";") if text else ():
        stated = part.strip()
        name = stated.removeprefix(_ORGANIZATION).strip()
        if not name:
            raise ValueError("a name is empty; separate names by one ;")
        creators.append(Creator(name, stated.startswith(_ORGANIZATION)))
    return creators


def any_text(text: str) -> str:
    """Returns a text that may have several lines.

    Raises:
      ValueError: If it cannot be stored as UTF-8, is blank, or contains control characters.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("it is not valid UTF-8") from None
    if text and not text.strip():
        raise ValueError("it is blank; leave it out")
    if any(ord(character) < 32 and character not in "\t\r\n" for character in text):
        raise ValueError("it contains a control character")
    return text


def one_line(text: str) -> str:
    """Returns a text of one line.

    Raises:
      ValueError: If it is not one.
    """
    if len(any_text(text).splitlines()) > 1 or text != text.strip():
        raise ValueError("write it in one line, without spaces around it")
    return text


def check_web_address(text: str) -> None:
    """Checks that a text is the address of a web page.

    Raises:
      ValueError: If it is not one.
    """
    if not _WEB.match(one_line(text)):
        raise ValueError("write a web address such as https://example.com/pets")


def check_date(text: str) -> None:
    """Checks that a text is a date.

    Raises:
      ValueError: If it is not one.
    """
    try:
        if datetime.date.fromisoformat(text).isoformat() == text:
            return
    except ValueError:
        pass
    raise ValueError("write a date such as 2026-03-31")
