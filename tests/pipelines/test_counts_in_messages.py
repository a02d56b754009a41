"""Messages say `1 shard` and `2 shards`: numbers of things are printed by `counted`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from helpers.repository import ROOT

_NOUNS = (
    "shard image record file class split version finding error warning note object box point corner channel "
    "cell picture label key category segment worker process thread row"
)
_VERBS = "(?!has |have |holds |of |and |with )"
_PLURAL = re.compile(rf" {_VERBS}(\w+ )?({'|'.join(_NOUNS.split())})(s|es)\b| categories\b")
#: A text that can contain such a message. To parse all modules takes seconds.
_CAN_BE_PLURAL = re.compile(rf"\}}[\"'\s\\rf(]* ((\w+ )?({'|'.join(_NOUNS.split())})(s|es)|categories)\b")
#: Messages whose number is never 1, or that print something else in this place.
_OTHERS = (
    "images/s", "{total:,} images", "None of the {sample.tried", "channels, not 1, 3 or 4", "{few} cells",
    "{_MAX_FILES} files", "each of {", "counted(more, ", "sampled images", "TFRecord files",
    "{have} images", "without images", "or {command} its files", "differ')} between splits",
    "percentage points", "one with shardwright", "{len(DIGITS)} splits", "in folds)", "{self.mode} splits",
    "{samples} channels that are not gray", "{_listed(counts)} channels", "{self.channels} channels",
    "{self.map} receives pictures", "{does} its images",
)  # fmt: skip


def numbers_of_things(text: str) -> Iterator[tuple[int, str]]:
    """Yields line and text for each number that a module prints before a plural."""
    if not _CAN_BE_PLURAL.search(text):
        return
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.JoinedStr):
            continue
        before = ""
        for value, after in zip(node.values, [*node.values[1:], None], strict=True):
            if isinstance(value, ast.Constant):
                before = str(value.value)
            elif isinstance(after, ast.Constant) and _PLURAL.match(str(after.value)):
                code = ast.unparse(node)
                if not before.endswith(("more than ", "at least ")) and not any(
                    item in code for item in _OTHERS
                ):
                    yield node.lineno, code
                before = ""
            else:
                before = ""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('f"{len(rows)} shards are left"', 1),
        ('f"it has {count:,} bad boxes"', 1),
        ("f\"{counted(len(rows), 'shard')} left\"", 0),
        ('f"it has more than {number} shards"', 0),
    ],
)
def test_the_search_finds_numbers_before_plurals(text: str, found: int) -> None:
    assert len(list(numbers_of_things(text))) == found


def test_no_message_says_1_shards() -> None:
    assert [
        (path.relative_to(ROOT).as_posix(), *item)
        for room in ("pipelines", "loader", "transforms", "schemas")
        for path in sorted((ROOT / room).rglob("*.py"))
        for item in numbers_of_things(path.read_text())
    ] == []
