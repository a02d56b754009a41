"""Findings across records: duplicates, unbalanced classes and odd sizes, whatever the order and buckets."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from helpers.duplicate_search import compare_rows, find_duplicates
from helpers.memory import traced_memory
from hypothesis import given
from hypothesis import strategies as st

from shardwright.core.hash_buckets import UNKNOWN_RECORDS, bucket_count, pack_rows, unpack_rows
from shardwright.core.images import near_duplicates
from shardwright.core.images.near_duplicates import alike, bands_of
from shardwright.core.validation import duplicates, outliers
from shardwright.core.validation.duplicates import (
    ComparedRecord,
    EqualPictures,
    bucket_rows,
    bucketed_hashes,
    compare_bucket,
    conflicts,
    duplicate_candidates,
    link_pictures,
    measured_rows,
)
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.findings import Finding
from shardwright.schemas.pictures import ImageQuality, Picture

SOURCE = random.Random(7)


def looks(
    digest: bytes | None = None, hash_: bytes | None = None, patch: bytes | None = None
) -> ImageQuality:
    """Returns measurements of a unique picture, except for the given values."""
    unique = (SOURCE.randbytes(size) for size in (16, 32, 288))
    return ImageQuality((), (), 1, *(given or own for given, own in zip((digest, hash_, patch), unique)))


def near(base: ImageQuality, bits: int = 1) -> ImageQuality:
    """Returns measurements of nearly the same picture."""
    changed = int.from_bytes(base.hash, "big")
    for bit in SOURCE.sample(range(256), bits):
        changed ^= 1 << bit
    return base._replace(digest=SOURCE.randbytes(16), hash=changed.to_bytes(32, "big"))


def picture(
    number: int, of: ImageQuality, split: str = "train", labels: Sequence[str] = (), source: str | None = None
) -> Picture:
    file, key = f"{split}-0", f"key {number}"
    return Picture(
        file, number, number * 100, key, split, tuple(labels), 1, "jpg", 1, 1, source=source, quality=of
    )


def places_of(findings: list[Finding]) -> list[tuple[str, int | None, int | None]]:
    return [(one.code.value, one.record, one.other.record if one.other else None) for one in findings]


def test_unique_pictures_are_neither_reported_nor_shuffled() -> None:
    crowd = [picture(number, looks()) for number in range(200)]
    assert find_duplicates(crowd) == []
    packs = [packed for _, packed in bucketed_hashes(measured_rows(crowd), 1)]
    assert packs and not [*duplicate_candidates((0, packs), 1)]


def test_equal_pixels_equal_sources_and_similar_pictures_are_reported() -> None:
    first = looks()
    pictures = [
        picture(0, first),
        picture(1, looks(digest=first.digest)),
        picture(2, near(first)),
        picture(3, looks(), source="ab"),
        picture(4, looks(), source="ab"),
        picture(5, looks()),
    ]
    found = find_duplicates(pictures)
    codes = ("EXACT_DUPLICATE", "NEAR_DUPLICATE", "EXACT_DUPLICATE")
    assert places_of(found) == [*zip(codes, (1, 2, 4), (0, 0, 3))]
    assert [one.message for one in found] == [
        "same pixels as record 0 of train-0",
        "it looks like record 0 of train-0 (1 of 256 bits differ)",
        "same source bytes as record 3 of train-0",
    ]
    assert found[0].other == ("train-0", 0, 0, "key 0") and found[0].key == "key 1"


@pytest.mark.parametrize("kind", ["pixels", "looks"])
def test_a_pair_gets_the_most_severe_code(kind: str) -> None:
    first = looks()
    other = looks(digest=first.digest) if kind == "pixels" else near(first)
    plain = "EXACT_DUPLICATE" if kind == "pixels" else "NEAR_DUPLICATE"
    cases = [
        ("train", ["a"], ["a"], [plain]),
        ("train", ["a", "b"], ["b", "a"], [plain]),
        ("train", ["a"], [], [plain]),
        ("train", ["a"], ["it's"], ["LABEL_CONFLICT"]),
        ("train", ["a"], ["a", "b"], ["LABEL_CONFLICT"]),
        ("zoo", ["a"], ["a"], ["SPLIT_LEAKAGE"]),
        ("zoo", ["a"], ["it's"], ["LABEL_CONFLICT", "SPLIT_LEAKAGE"]),
    ]
    for split, labels, others, codes in cases:
        found = find_duplicates([picture(0, first, "train", labels), picture(1, other, split, others)])
        assert [(one.code, one.record) for one in found] == [(code, 1) for code in codes]
        assert all(("in split 'train'" in one.message) == (split == "zoo") for one in found)
        assert all(("of class 'a', not \"it's\"" in one.message) == (others == ["it's"]) for one in found)


def test_a_group_of_n_gives_n_minus_one_findings() -> None:
    first = looks()
    different = [looks(digest=first.digest) for _ in range(9)], [near(first) for _ in range(9)]
    for others in (*different, [first] * 9, [near(first)] * 9):
        found = find_duplicates([picture(number, one) for number, one in enumerate([first, *others])])
        assert [one.record for one in found] == list(range(1, 10))
        assert {one.other.record for one in found if one.other} <= {0, 1}


def test_order_and_buckets_do_not_matter() -> None:
    bases = [looks() for _ in range(30)]
    pictures = []
    for number in range(300):
        base = SOURCE.choice(bases)
        like = SOURCE.choice([base, near(base, 2), near(base, 9), looks()])
        split, label = SOURCE.choice(["train", "test", "dev"]), SOURCE.choice("ab")
        pictures.append(picture(number, like, split, label, SOURCE.choice([None, "s1", "s2"])))
    first = find_duplicates(pictures)
    assert len(first) > 200 and len({(one.shard, one.record, one.code) for one in first}) == len(first)
    for seed, buckets in ((1, 16), (2, 1), (3, 4096)):
        assert find_duplicates(pictures, buckets, seed) == first


def test_pictures_beyond_the_limit_are_different() -> None:
    first = looks()
    assert find_duplicates([picture(0, first), picture(1, near(first, 60))]) == []
    assert find_duplicates([picture(0, first), picture(1, near(first)._replace(patch=looks().patch))]) == []


def flat(level: int, mark: int = 0) -> ImageQuality:
    """Returns measurements of a blank page, or of one with a mark."""
    patch = np.full(288, level, np.uint8)
    patch[17] -= mark
    return looks(hash_=bytes(32), patch=patch.tobytes())


def test_smooth_pictures_are_compared_too() -> None:
    pages = [flat(200), flat(100), flat(201), flat(200, mark=60), flat(99)]
    found = find_duplicates([picture(number, one) for number, one in enumerate(pages)])
    assert places_of(found) == [("NEAR_DUPLICATE", 2, 0), ("NEAR_DUPLICATE", 4, 1)]


def test_smooth_pictures_of_other_brightness_are_in_other_buckets() -> None:
    levels = range(0, 256, 5)
    bands = bands_of([bytes(32)] * len(levels), [bytes([level]) * 288 for level in levels])
    for band in zip(*bands):
        assert len(set(band)) >= 3
    for near_by in itertools.pairwise(bands):  # similar pictures have a band in common
        assert any(left == right for left, right in zip(*near_by))


def test_pictures_without_measurements_are_left_out() -> None:
    assert find_duplicates([picture(number, looks())._replace(quality=None) for number in range(3)]) == []
    assert bands_of([], []) == []


def test_every_picture_is_reported_with_the_first_similar_one_of_the_most_severe_pairs() -> None:
    first = looks()
    group = [first, near(first), looks(), near(first, 3)]
    pairs = alike([one.hash for one in group], [one.patch for one in group], 0)
    assert [pair[:2] for pair in pairs] == [(0, 1), (0, 3), (1, 3)]
    found = find_duplicates([picture(number, one) for number, one in enumerate(group)])
    assert places_of(found) == [("NEAR_DUPLICATE", 1, 0), ("NEAR_DUPLICATE", 3, 0)]
    classes = ["cat", "dog", "", "cat"]
    found = find_duplicates([picture(n, one, labels=[classes[n]]) for n, one in enumerate(group)])
    assert places_of(found) == [("LABEL_CONFLICT", 1, 0), ("LABEL_CONFLICT", 3, 1)]


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the compared pairs of each comparison."""
    counts: list[int] = []
    plain = near_duplicates.bits_apart

    def counting(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        counts.append(len(left))
        return plain(left, right)

    monkeypatch.setattr(near_duplicates, "bits_apart", counting)
    return counts


@pytest.mark.slow
def test_many_similar_pictures_are_compared_in_linear_time(compared: list[int]) -> None:
    first = looks()
    for count in (250, 1000):
        compared.clear()
        group = [first, *(near(first, 2) for _ in range(count - 1))]
        pairs = list(alike([one.hash for one in group], [one.patch for one in group], 0))
        assert all(a < b for a, b, _ in pairs)
        assert len({second for _, second, _ in pairs}) > 0.99 * count - 5
        assert sum(compared) < 130 * count


def test_equal_hashes_are_not_compared_again(compared: list[int]) -> None:
    page = flat(250)
    crowd = [picture(n, page._replace(digest=SOURCE.randbytes(16))) for n in range(1000)]
    found = find_duplicates(crowd)
    assert len(found) == 999 and {one.other.record for one in found if one.other} == {0}
    assert sum(compared) == 0


class Stream:
    """Packs as an engine returns them: created again for each pass."""

    def __init__(self, count: int, digest: bytes) -> None:
        self.count, self.digest = count, digest

    def __iter__(self) -> Iterator[bytes]:
        for number in reversed(range(self.count)):
            row = ("train-0", number, number, f"key {number}", "train", (), self.digest)
            yield pack_rows([(self.digest, row)])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pixels", "source", "band0"])
def test_memory_does_not_grow_with_equal_pictures(kind: str) -> None:
    digest = SOURCE.randbytes(16)
    peaks, links = [], []
    for count in (5_000, 15_000):
        with traced_memory() as peak:
            packs = link_pictures(((kind, 0), Stream(count, digest)), 4)
            links.append(sum(1 for _ in unpack_rows(links for _, links in packs)))
            peaks.append(peak())
    assert links == ([0, 0] if kind == "band0" else [4_999, 14_999])
    assert peaks[1] < 1.2 * peaks[0] + 100_000


def test_a_worker_keeps_only_some_of_many_equal_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "MAX_IN_BAND", 10)
    first = looks()
    crowd = [picture(number, near(first, 1)) for number in range(100)]
    found = find_duplicates(crowd)
    assert found == find_duplicates(crowd, seed=5) and 9 <= len(found) <= 99


ROWS = st.builds(
    ComparedRecord,
    file=st.just(""),
    number=st.just(0),
    offset=st.integers(0, 2**40),
    key=st.none() | st.sampled_from(["a", "b", "é\n", ""]),
    split=st.sampled_from(["", "train", "test"]),
    labels=st.sampled_from([(), ("cat",), ("dog",)]),
    source=st.none() | st.sampled_from(["00" * 32, "0f" * 32, "odd"]),
)
SHARDS = st.lists(st.lists(ROWS, max_size=6), min_size=1, max_size=4)


@given(SHARDS, st.booleans())
def test_any_number_of_buckets_and_order_of_shards_gives_the_same_findings(shards: list, keys: bool) -> None:
    rows = [
        [one._replace(file=f"shard {place}", number=number) for number, one in enumerate(shard)]
        for place, shard in enumerate(shards)
    ]
    cases = ((rows, 1), (rows[::-1], 2), (rows, 4096))
    found, *others = (sorted(compare_rows(order, buckets, keys), key=repr) for order, buckets in cases)
    assert others == [found] * 2
    known = [row.key for one in rows for row in one if row.key is not None]
    duplicates = sum(one.code == "DUPLICATE_KEY" for one in found)
    assert duplicates == (len(known) - len(set(known)) if keys else 0)


def test_the_number_of_buckets_grows_with_the_records() -> None:
    assert [bucket_count(records) for records in (0, 10_000, 60_001, 10**10)] == [1, 1, 7, 4096]
    assert bucket_count(UNKNOWN_RECORDS) == 16  # a single file may hold all records


def row(number: int, split: str = "train", *classes: str, source: str | None = "s") -> ComparedRecord:
    return ComparedRecord(f"{split}-0", number, number * 10, f"key {number}", split, classes, source=source)


def found_in(*rows: ComparedRecord) -> list[tuple[str, str | None, str | None]]:
    found = compare_rows(([one] for one in rows), 16)
    return sorted((one.code.value, one.key, one.other.key if one.other else None) for one in found)


def test_a_source_in_two_classes_is_reported() -> None:
    for split in ("train", ""):  # other files have no splits
        assert found_in(row(0, split, "cat"), row(1, split, "dog")) == [("LABEL_CONFLICT", "key 1", "key 0")]
    assert found_in(row(0, "train", "cat"), row(1, "train", "cat")) == []
    assert found_in(row(0, "train", "a", "b"), row(1, "train", "b", "a")) == []
    assert found_in(row(0, "train", "cat"), row(1, "train")) == []
    assert found_in(row(0, "train", "cat"), row(1, "train", "dog", source="other")) == []
    assert found_in(row(0, "train", "cat", source=None), row(1, "train", "dog", source=None)) == []


def test_a_source_in_two_classes_and_two_splits_is_reported_as_both_with_both_records() -> None:
    rows = [row(0, "test", "it's"), row(4, "train", "a", "b")]
    (pack,) = bucket_rows(rows, 1, keys=False)
    leak, conflict = compare_bucket((pack[0], [pack[1]]))
    assert (leak.code, conflict.code) == (FindingCode.SPLIT_LEAKAGE, FindingCode.LABEL_CONFLICT)
    assert leak == replace(conflict, code=leak.code)
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
        equals = EqualPictures()
        for one in choose.sample(rows, len(rows)):
            equals.add(one)
        placed = sorted(rows, key=lambda one: one.place)
        assert equals.first() == placed[0]
        for place, one in enumerate(placed):
            before = placed[:place]
            split = next((other for other in before if other.split != one.split), None)
            label = next((other for other in before if "LABEL_CONFLICT" in conflicts(one, other)), None)
            differing = {"SPLIT_LEAKAGE": split, "LABEL_CONFLICT": label}
            assert equals.earlier_conflicts(one) == {
                code: other for code, other in differing.items() if other
            }


@pytest.mark.slow
def test_many_white_pages_are_compared_in_linear_time(compared: list[int]) -> None:
    order = np.random.default_rng(1)
    for count in (100, 400):
        compared.clear()
        pages = order.integers(249, 252, (count, 288), np.uint8)
        crowd = [picture(n, looks(hash_=bytes(32), patch=page.tobytes())) for n, page in enumerate(pages)]
        assert len(find_duplicates(crowd)) > 0.99 * count - 5
        assert sum(compared) < near_duplicates.BANDS * 130 * count


BASE = Picture("s", 0, 0, None, "train", (), 1, "jpg", 1, 1)


def found(splits: dict[str, dict[str, int]], labels: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    counts = Counter({(split, name): n for split, classes in splits.items() for name, n in classes.items()})
    return [(finding.code.value, finding.message) for finding in outliers.check_balance(counts, labels)]


def test_classes_of_equal_size_are_balanced() -> None:
    assert found({"train": {"a": 10, "b": 99, "c": 100}}) == []
    assert found({}) == [] == found({}, ("a",))


def test_a_small_and_a_huge_class_are_reported() -> None:
    messages = found({"train": {"a": 1000, "b": 1000, "c": 99, "d": 10_001}})
    assert messages == [
        ("CLASS_IMBALANCE",
         "class 'c' has 99 images in split 'train': less than a 10th of the 1,000 of the median class"),
        ("CLASS_IMBALANCE",
         "class 'd' has 10,001 images in split 'train': more than 10 times the 1,000 of the median class"),
    ]  # fmt: skip
    assert found({"train": {"a": 1000, "b": 100}}) == []  # the median of two is their mean, 550
    assert [code for code, _ in found({"train": {"a": 10_000, "b": 100}})] == ["CLASS_IMBALANCE"]


def test_tiny_classes_are_reported() -> None:
    messages = found(
        {"train": {"a": 10, "b": 9, "it's": 1}, "test": {"a": 1, "it's": 1}, "dev": {"c": 12}}, ("a", "z")
    )
    tiny = {message for code, message in messages if code == "TINY_CLASS"}
    assert tiny == {
        "class 'a' has 10 images in split 'train', and none in 'dev', where others have some",
        "class 'b' has 9 images in split 'train' (fewer than 10), and none in 'dev' and 'test', "
        "where others have some",
        "class \"it's\" has 1 image in split 'train' (fewer than 10), and none in 'dev', "
        "where others have some",
        "class 'c' has no images in split 'train' (fewer than 10), and none in 'test', "
        "where others have some",
        "class 'z' has no images in split 'train' (fewer than 10), and none in 'dev' and 'test', "
        "where others have some",
    }


def test_without_a_train_split_the_largest_split_is_used() -> None:
    assert found({"fit": {"a": 20, "b": 20}, "hold": {"a": 2, "b": 1}}) == []
    assert [code for code, _ in found({"": {"a": 20, "b": 5}})] == ["TINY_CLASS"]


def test_only_pictures_with_classes_are_counted() -> None:
    pictures = [BASE, BASE._replace(labels=("a", "b")), BASE._replace(labels=("a", "a"), split="test")]
    counts = outliers.added_counts([outliers.count_classes(pictures), outliers.count_classes(pictures)])
    assert counts == {("train", "a"): 2, ("train", "b"): 2, ("test", "a"): 2}


def rows(sizes: list[tuple[int, int]], gray: int = 0) -> list[outliers.SizeRow]:
    return [outliers.SizeRow(i, i * 10, f"k{i}", *size, gray=i < gray) for i, size in enumerate(sizes)]


def odd(sizes: list[tuple[int, int]]) -> set[int | None]:
    """Returns the numbers of the pictures with odd sizes."""
    items = rows(sizes)
    found = outliers.find_outliers(("s", items), outliers.count_sizes(("s", items)))
    return {finding.record for finding in found if finding.code is FindingCode.ODD_SIZE}


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(1, 100)), min_size=1, max_size=40))
def test_odd_sizes_match_the_definition(sizes: list[tuple[int, int]]) -> None:
    sides = np.array([math.sqrt(width * height) for width, height in sizes])
    first, third = np.percentile(sides, [25, 75])
    margin = 3 * (third - first)
    certain = set(np.nonzero((sides < first - margin - 1e-6) | (sides > third + margin + 1e-6))[0])
    near = set(np.nonzero((sides < first - margin + 1e-6) | (sides > third + margin - 1e-6))[0])
    assert certain <= odd(sizes) <= near


def test_among_equal_sizes_every_other_is_odd() -> None:
    assert odd([(224, 224)] * 9 + [(225, 224)]) == {9}
    assert odd([(4000, 3000)] * 9 + [(4010, 3000)]) == {9}
    assert odd([(224, 224)] * 9) == odd([]) == set()


def test_the_oddest_size_has_the_lowest_score() -> None:
    items = rows([(100, 100)] * 9 + [(200, 200), (10, 10), (400, 400), (101, 100)])
    found = outliers.find_outliers(("s", items), outliers.count_sizes(("s", items)))
    scores = {finding.record: finding.score or 0.0 for finding in found}
    assert sorted(scores, key=lambda record: scores[record]) == [10, 11, 9, 12]
    assert min(scores.values()) > 0 and 0.99 < max(scores.values()) <= 1


def test_huge_sizes_are_counted_within_bounds() -> None:
    sizes = outliers.count_sizes(("s", rows([(20_000 + i, 20_000) for i in range(2000)])))
    assert sizes.total() == 2000 and len(sizes) < 1500


def test_gray_pictures_are_odd_unless_most_are_gray() -> None:
    for gray, found in ((0, 0), (1, 1), (5, 5), (6, 0), (10, 0)):
        items = rows([(10, 10)] * 10, gray)
        assert len(list(outliers.find_outliers(("s", items), outliers.count_sizes(("s", items))))) == found
