"""Equal source bytes in two splits or two classes: the findings do not depend on the order of rows."""

from __future__ import annotations

import random

from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.transforms.validation.compared_records import ComparedRecord, ComparedRecords
from shardwright.transforms.validation.duplicate_keys import bucket_rows, compare_bucket
from shardwright.transforms.validation.equal_pictures import EqualPictures, in_conflict


def row(number: int, split: str = "train", *classes: str, source: str | None = "s") -> ComparedRecord:
    label = LABEL_SEPARATOR.join(classes)
    return ComparedRecord(f"key {number}", source, split, f"{split}-0", number, number * 10, label)


def found_in(*rows: ComparedRecord) -> list[tuple[str, str | None, str | None]]:
    packs: dict[tuple[str, int], list[bytes]] = {}
    for one in rows:
        for bucket, pack in bucket_rows(ComparedRecords([one]), 16):
            packs.setdefault(bucket, []).append(pack)
    found = [finding for item in packs.items() for finding in compare_bucket(item)]
    return sorted((one.code.value, one.key, one.other.key if one.other else None) for one in found)


def test_a_source_in_two_classes_is_reported() -> None:
    assert found_in(row(0, "train", "cat"), row(1, "train", "dog")) == [("LABEL_CONFLICT", "key 1", "key 0")]
    assert found_in(row(0, "train", "cat"), row(1, "train", "cat")) == []
    assert found_in(row(0, "train", "a", "b"), row(1, "train", "b", "a")) == []
    assert found_in(row(0, "train", "cat"), row(1, "train")) == []
    assert found_in(row(0, "train", "cat"), row(1, "train", "dog", source="other")) == []
    assert found_in(row(0, "train", "cat", source=None), row(1, "train", "dog", source=None)) == []


def test_a_source_in_two_classes_and_two_splits_is_reported_as_both() -> None:
    assert found_in(row(0, "test", "cat"), row(1, "train", "dog")) == [
        ("LABEL_CONFLICT", "key 1", "key 0"),
        ("SPLIT_LEAKAGE", "key 1", "key 0"),
    ]


def test_records_without_a_class_hide_no_conflict() -> None:
    rows = [row(0), row(1, "train", "cat"), row(2), row(3, "train", "dog")]
    assert found_in(*rows) == [("LABEL_CONFLICT", "key 3", "key 1")]


def test_files_without_splits_are_compared_by_class() -> None:
    assert found_in(row(0, "", "cat"), row(1, "", "dog")) == [("LABEL_CONFLICT", "key 1", "key 0")]


def test_findings_name_both_records() -> None:
    rows = [row(0, "test", "it's"), row(4, "train", "a", "b")]
    (pack,) = bucket_rows(ComparedRecords(rows), 1, keys=False)
    leak, conflict = compare_bucket((pack[0], [pack[1]]))
    assert leak.message == conflict.message
    assert conflict.message == (
        "same source bytes as record 0 of test-0, in split 'test', of class \"it's\", not 'a' and 'b'"
    )
    assert (conflict.shard, conflict.record, conflict.offset, conflict.key) == ("train-0", 4, 40, "key 4")
    assert conflict.other == ("test-0", 0, 0, "key 0")


def test_the_first_record_that_differs_is_named_in_any_order() -> None:
    choose = random.Random(3)
    for _ in range(200):
        rows = [
            row(number, choose.choice(["train", "test", "dev"]), *choose.choice(["", "a", "b", "c"]))
            for number in range(choose.randrange(2, 9))
        ]
        equals = EqualPictures[ComparedRecord]()
        for one in choose.sample(rows, len(rows)):
            equals.add(one)
        equals.settle()
        placed = sorted(rows, key=lambda one: (one.file, one.number))
        assert equals.first() == placed[0]
        for place, one in enumerate(placed):
            before = placed[:place]
            split = next((other for other in before if other.split != one.split), None)
            label = next((other for other in before if in_conflict(one.classes, other.classes)), None)
            assert (equals.in_other_split(one), equals.in_other_class(one)) == (split, label)
