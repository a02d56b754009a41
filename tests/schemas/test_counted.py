"""Numbers of things are printed with the correct singular or plural."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shardwright.schemas.units import counted, is_or_are

ROOT = Path(__file__).parents[2]
#: `{...} shards` in an f-string, but not `{...:,} of {...} shards` and similar.
_BARE = re.compile(
    r"\{[^{}]*\} (?:more )?"
    r"(?:records|shards|images|files|classes|findings|errors|warnings|notes|keys|entries)\b"
)
#: Numbers that are never 1, or that are not counts.
_ALLOWED = (
    "images/s",
    "_MAX_FILES",
    "{images:,}/{total:,} images",
    "{sample.tried:,} images tried",
    "{unsupported:,} files",
    "{have} images",
)


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (0, "image", "0 images"),
        (1, "shard", "1 shard"),
        (3781, "image", "3,781 images"),
        (1, "class", "1 class"),
        (1234567, "class", "1,234,567 classes"),
        (2, "box", "2 boxes"),
        (2, "copy", "2 copies"),
        (2, "key", "2 keys"),
        (2, "more class", "2 more classes"),
    ],
)
def test_a_number_is_printed_with_its_noun(number: int, noun: str, text: str) -> None:
    assert counted(number, noun) == text


def test_a_noun_can_have_its_own_plural() -> None:
    assert counted(2, "stretch or record", "stretches or records") == "2 stretches or records"
    assert counted(1, "stretch or record", "stretches or records") == "1 stretch or record"
    assert (is_or_are(0), is_or_are(1), is_or_are(2)) == ("are", "is", "are")


def test_every_message_uses_counted() -> None:
    found = []
    for room in ("pipelines", "transforms", "schemas", "loader"):
        for path in sorted((ROOT / room).rglob("*.py")):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if _BARE.search(line) and not any(text in line for text in _ALLOWED):
                    found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert not found, "use schemas.units.counted:\n" + "\n".join(found)
