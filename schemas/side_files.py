"""The files of a dataset that are not shards, and the split names that do not clash with them.

Readers choose the shards of a split by patterns such as `train*`. So at the top level of a dataset directory
only shards have names that begin with the name of a split.

The last line of `report.html` is a comment with the digest of everything before it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from shardwright.schemas.dataset import (
    CARD_DIR,
    DATASET_JSON,
    FINDINGS_JSON,
    INDEX_DIR,
    LOST_JSONL,
    QUARANTINE_JSONL,
    REPORT_HTML,
    RUN_JSON,
    SHARDS_DIR,
    STATISTICS_JSON,
    STATS_PB,
    WORK_DIR,
)
from shardwright.schemas.sidecars import SIDECARS
from shardwright.schemas.version import CHECKS_DIR, DIFF_JSON, PINNED_JSON, VERSION_JSON

#: All files that Shardwright writes at the top level of a dataset directory besides the shards.
SIDE_FILES: tuple[str, ...] = tuple(
    sorted(
        (
            *(DATASET_JSON, FINDINGS_JSON, LOST_JSONL, QUARANTINE_JSONL, REPORT_HTML, RUN_JSON),
            *(STATISTICS_JSON, STATS_PB, DIFF_JSON, PINNED_JSON, VERSION_JSON),
            *(CARD_DIR, CHECKS_DIR, INDEX_DIR, SHARDS_DIR, WORK_DIR),
            *SIDECARS,
        )
    )
)


def clash_of(split: str) -> str:
    """Returns the first side file whose name begins with the name of a split; empty if there is none.

    >>> clash_of("train"), clash_of("label")
    ('', 'label_map.pbtxt')
    """
    return next((file for file in SIDE_FILES if file.startswith(split)), "")


def check_split_names(splits: Iterable[str]) -> None:
    """Checks that no side file begins with the name of a split.

    Raises:
      ValueError: If one does; the message names it.
    """
    for split in splits:
        if file := clash_of(split):
            raise ValueError(
                f"split {split!r} needs another name, because the pattern {split}* that selects its shards "
                f"would also match {file}"
            )


_DIGEST_LINE = re.compile(rb"<!-- sha256 of the lines above: ([0-9a-f]{64}) -->\n?\Z")
_DIGEST_BEGIN = b"<!-- sha256 of the lines above: "


def with_page_digest(page: str) -> str:
    """Returns a page with its digest as the last line. The line is a comment in HTML."""
    page = page if page.endswith("\n") else page + "\n"
    return f"{page}{_DIGEST_BEGIN.decode()}{hashlib.sha256(page.encode()).hexdigest()} -->\n"


def states_page_digest(data: bytes) -> bool:
    """Returns whether a page states a digest."""
    return _DIGEST_BEGIN in data


def has_page_digest(data: bytes) -> bool:
    """Returns whether a page has its own digest as the last line."""
    match = _DIGEST_LINE.search(data)
    if match is None:
        return False
    return hashlib.sha256(data[: match.start()]).hexdigest().encode() == match[1]
