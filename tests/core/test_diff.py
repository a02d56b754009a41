"""Comparing two datasets by their ledgers finds exactly the edits, wherever the images are."""

from __future__ import annotations

import gzip
import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pytest
from helpers.examples import examples
from helpers.ledgers import dump_ledger
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.core.diff import (
    NEW,
    LedgerPair,
    LedgerRow,
    compare_rows,
    compare_small,
    loaded,
    note_added_or_removed,
    pair_renamed,
    rows_of,
)
from shardwright.schemas.dataset import Shard
from shardwright.schemas.drift import Change, Changes, Kind
from shardwright.schemas.errors import UsageError
from shardwright.schemas.ledger import Entry, ShardHeader
from shardwright.schemas.plan import ledger_file

SPLITS = ("train", "test")


@dataclass(frozen=True)
class Image:
    """An image of a generated dataset."""

    key: str
    source: str
    label: str = "cat"
    split: str = "train"
    length: int = 100


def entry(image: Image) -> Entry:
    sha256 = hashlib.sha256(image.source.encode()).hexdigest()
    return Entry(image.key, "written", f"{len(image.source)}:1", sha256, image.label, 0, image.length, "kept")


def write(
    directory: Path, entries: Sequence[Entry], split: str = "train", shard: int = 0, of: int = 1
) -> Shard:
    """Writes the ledger of a shard."""
    file = f"{split}-{shard:05d}-of-{of:05d}.tfrecord"
    records = [item._replace(digest="") for item in entries]
    sha256 = hashlib.sha256(repr(records).encode()).hexdigest()
    written = sum(item.outcome == "written" for item in entries)
    header = ShardHeader(file, split, shard, of, "", written, 9, sha256, counts=Counter(written=written))
    path = directory / ledger_file(split, shard, of)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(dump_ledger(header, entries))
    return header.as_shard()


def write_all(directory: Path, images: Sequence[Image], shards: int) -> dict[str, Shard]:
    """Writes the ledgers of a dataset; returns its shards by the ledger's path."""
    found = {}
    for split in SPLITS:
        for number in range(shards):
            own = [
                entry(image)
                for image in images
                if image.split == split and sum(image.key.encode()) % shards == number
            ]
            found[ledger_file(split, number, shards)] = write(directory, own, split, number, shards)
    return found


def pairs_of(root: Path, old: dict[str, Shard], new: dict[str, Shard]) -> list[LedgerPair]:
    none = Shard("", 0, 0, "")
    return [
        LedgerPair(
            file,
            file.partition("/")[2].partition("-")[0],
            (str(root / "old") if file in old else None, str(root / "new") if file in new else None),
            (old.get(file, none).sha256, new.get(file, none).sha256),
            old.get(file, none).records + new.get(file, none).records,
            same_digests=True,
        )
        for file in sorted({*old, *new})
    ]


def short(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()[:32]


def edit(random: Random, images: list[Image]) -> tuple[list[Image], Changes]:
    """Edits some images, each in another way; returns the new images and the expected changes."""
    edited, expected = [], Changes()
    for number, image in enumerate(images):
        what = random.choice(
            ["keep", "keep", "remove", "alter", "relabel", "move", "rename", "store", "both"]
        )
        key, split, new = image.key, image.split, image
        if what == "keep":
            expected.unchanged += 1
        if what == "remove":
            expected.note(Kind.REMOVED, split, Change(key, split, ""))
            continue
        if what in ("move", "both"):
            new = replace(new, split="test" if split == "train" else "train")
            expected.moves[split, new.split] += 1
            expected.note(Kind.MOVED, new.split, Change(key, split, new.split))
        if what in ("relabel", "both"):
            new = replace(new, label=image.label + "2")
            expected.relabels[image.label, new.label] += 1
            expected.note(Kind.RELABELLED, new.split, Change(key, image.label, new.label))
        if what in ("alter", "both"):
            new = replace(new, source=f"other {number}")
            change = Change(key, short(image.source), short(new.source))
            expected.note(Kind.CHANGED, new.split, change)
        if what == "rename":
            new = replace(new, key=f"renamed/{key}")
            expected.note(Kind.RENAMED, split, Change(new.key, key, new.key))
        if what == "store":
            new = replace(new, length=image.length + 1)
            stored = [f"kept, {size} bytes" for size in (image.length, new.length)]
            expected.note(Kind.RE_ENCODED, split, Change(key, stored[0], stored[1]))
        edited.append(new)
    for number in range(random.randrange(5)):
        new = Image(f"added/{number}", f"added {number}", split=random.choice(SPLITS))
        expected.note(Kind.ADDED, new.split, Change(new.key, "", new.split))
        edited.append(new)
    expected.pairs = len(expected.relabels)
    return edited, expected


def compare(old: Sequence[Image], new: Sequence[Image], shards: tuple[int, int] = (1, 1)) -> Changes:
    """Compares the ledgers of two datasets without Beam."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        written = [
            write_all(root / name, images, count)
            for name, images, count in zip(("old", "new"), (old, new), shards)
        ]
        return compare_small(pairs_of(root, *written))


@given(st.integers(0, 2**32), st.integers(0, 60), st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=examples(60))
def test_the_comparison_finds_exactly_the_edits(seed: int, count: int, before: int, now: int) -> None:
    random = Random(seed)
    images = [
        Image(
            f"{number}\n<é>.jpg", f"source {number}", random.choice(["cat", "dog", ""]), random.choice(SPLITS)
        )
        for number in range(count)
    ]
    edited, expected = edit(random, images)
    random.shuffle(edited)
    assert compare(images, edited, (before, now)).as_json() == expected.as_json()


def test_equal_sources_are_paired_in_the_order_of_their_keys() -> None:
    changes = Changes()
    row = LedgerRow("", "train", True, short("x"), "", 1, "")
    gone = [row._replace(key=key) for key in ("c", "a")]
    come = [row._replace(key=key, side=NEW) for key in ("z", "y", "x")]
    pair_renamed([*come, *gone], changes)
    assert sorted(changes.listed["renamed"]) == [("x", "a", "x"), ("y", "c", "y")]
    assert changes.listed["added"] == [("z", "", "train")]
    assert "removed" not in changes.listed


def test_a_renamed_image_in_another_folder_has_another_class_too() -> None:
    old, new = Image("cat/1.jpg", "x", "cat"), Image("dog/1.jpg", "x", "dog", length=103)
    changes = compare([old], [new])
    assert dict(changes.counts) == {("renamed", "train"): 1, ("relabelled", "train"): 1}


def test_an_image_that_was_left_out_counts_as_added_with_the_reason() -> None:
    written = LedgerRow("a", "train", True, short("x"), "", 1, "kept jpg")
    left_out = LedgerRow("a", "train", False, "", "", 0, "", note="quarantined: CORRUPT")
    changes = Changes()
    assert list(compare_rows(([left_out], [left_out]), changes)) == []
    for row in [
        *compare_rows(([left_out], [written._replace(side=NEW)]), changes),
        *compare_rows(([written], [left_out]), changes),
    ]:
        note_added_or_removed(row, changes)
    assert changes.listed == {
        "added": [("a", "quarantined: CORRUPT", "train")],
        "removed": [("a", "train", "quarantined: CORRUPT")],
    }


def test_the_order_of_several_classes_does_not_matter() -> None:
    assert compare([Image("a", "x", "cat\x1fdog")], [Image("a", "x", "dog\x1fcat")]).unchanged == 1


def test_equal_shards_have_equal_records(tmp_path: Path) -> None:
    stated = [entry(Image("a", "x"))._replace(digest=digest) for digest in ("old", "new")]
    file, names = ledger_file("train", 0, 1), ("old", "new")
    old, new = ({file: write(tmp_path / name, [one])} for name, one in zip(names, stated))
    assert compare_small(pairs_of(tmp_path, old, new)).unchanged == 1


def test_sources_without_a_checksum_are_compared_by_state() -> None:
    row = LedgerRow("a", "train", True, "12:1699", "", 1, "")
    assert not row.is_known
    changes = Changes()
    assert not list(compare_rows(([row], [row._replace(source="12:1700")]), changes))
    assert changes.total(Kind.CHANGED) == 1


HEADER = {
    "ledger_version": 2, "file": "f", "split": "train", "shard": 0, "num_shards": 1, "plan_digest": "",
    "records": 1, "bytes": 1, "sha256": "s", "counts": {}, "reasons": {}, "class_counts": {},
}  # fmt: skip
ONE = {**HEADER, "counts": {"written": 1}}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([json.dumps({**HEADER, "ledger_version": 9})], "another version"),
        ([json.dumps({**HEADER, "sha256": "t"})], "belongs to another build"),
        ([json.dumps(ONE), '{"key": 7, "outcome": "written"}'], "its key is 7"),
        ([json.dumps(HEADER), "[" * 100_000], "is damaged"),
    ],
)
def test_a_damaged_ledger_is_refused_in_a_sentence(lines: list[str], message: str) -> None:
    data = gzip.compress("\n".join(lines).encode())
    with pytest.raises(UsageError, match=message) as caught:
        rows_of(data, "gs://bucket/d", "_shards/f", "s", "train")
    assert caught.value.message.startswith("gs://bucket/d/_shards/f")
    assert caught.value.message.endswith("convert again.")
    with pytest.raises(UsageError, match="is damaged"):
        rows_of(data[:-9], "d", "f", "s", "train")


def test_a_damaged_ledger_is_not_counted() -> None:
    for header in ({**HEADER, "records": "many"}, {**HEADER, "sha256": "t"}):
        with (
            pytest.raises(UsageError, match=r"is damaged|belongs to another build"),
            loaded(gzip.compress(json.dumps(header).encode()), "d", "f", "s") as (found, _),
        ):
            int(found.records)
