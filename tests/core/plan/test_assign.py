"""Splits and shards of images: fixed hashes, fair, exact and stratified shares, and little movement."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import filter as matching
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.hostile import document
from helpers.repository import PHOTOS, copy_photos
from hypothesis import example, given
from hypothesis import strategies as st

from shardwright.core.plan import assign
from shardwright.core.plan.choose_parts import (
    CollectedHashes,
    allocate,
    choose_bounds,
    choose_buckets,
    choose_parts,
    cut,
)
from shardwright.pipelines import cli
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import LABEL_SEPARATOR, ImageRef
from shardwright.schemas.plan import BUCKETS, HASH_RANGE, PartBounds, shard_file
from shardwright.schemas.sidecars import SIDE_FILES, check_split_names
from shardwright.schemas.splits import by_split, compare_shares, compare_splits, in_split_order

KEYS = [f"cats/{i:05d}.jpg" for i in range(20_000)]


@pytest.mark.parametrize(
    ("seed", "purpose", "text", "value"),
    [
        (0, "split", "a", 16277815257979157415),
        (1, "split", "a", 1727319276487412507),
        (0, "shard", "a", 15503968048430234080),
        (2**63 - 1, "shard", "é/ß.png", 2647607516739037490),
        (0, "split", "", 7337491314669435572),
    ],
)
def test_hashes_never_change(seed: int, purpose: str, text: str, value: int) -> None:
    assert assign.hash64(seed, purpose, text) == value


def splits_of(keys: Iterable[str], splits: str, seed: int = 0) -> list[str]:
    """Returns the split of each key."""
    placement = assign.Placement(ConvertSettings(splits=splits, seed=seed))
    return [placement.split(ImageRef(key, key)) for key in keys]


def test_splits_have_their_shares_and_are_independent_of_shards() -> None:
    splits = splits_of(KEYS, "train=0.8,validation=0.1,test=0.1")
    counts = Counter(splits)
    assert counts["train"] == pytest.approx(16_000, abs=4 * 57)  # four standard deviations
    assert counts["validation"] == pytest.approx(2_000, abs=4 * 43)
    test = [key for key, split in zip(KEYS, splits, strict=True) if split == "test"]
    shards = Counter(assign.shard_of(assign.hash64(0, "shard", key), 4) for key in test)
    assert min(shards.values()) > 400


def test_another_seed_is_another_split() -> None:
    first, second = (splits_of(KEYS, "a=0.5,b=0.5", seed) for seed in (0, 1))
    assert 9_000 < sum(one != other for one, other in zip(first, second, strict=True)) < 11_000
    assert set(splits_of(KEYS[:9], "only=1")) == {"only"}


def test_growing_a_share_moves_keys_only_into_it() -> None:
    moves = zip(splits_of(KEYS, "train=0.5,test=0.5"), splits_of(KEYS, "train=0.6,test=0.4"), strict=True)
    assert {*moves} == {("train", "train"), ("test", "test"), ("test", "train")}


def test_doubling_the_shards_splits_each_in_two() -> None:
    for key in KEYS[:2000]:
        value = assign.hash64(0, "shard", key)
        assert assign.shard_of(value, 16) // 2 == assign.shard_of(value, 8)


@given(st.lists(st.integers(0, HASH_RANGE - 1), min_size=2), st.integers(1, 99_999))
def test_shards_are_in_range_and_keep_the_order_of_the_hashes(values: list[int], count: int) -> None:
    shards = [assign.shard_of(value, count) for value in sorted(values)]
    assert shards == sorted(shards)
    assert 0 <= shards[0] <= shards[-1] < count
    assert (assign.shard_of(0, count), assign.shard_of(HASH_RANGE - 1, count)) == (0, count - 1)


def test_groups_share_a_split() -> None:
    assert assign.group_of("p1/a.jpg", None) is None
    assert assign.group_of("p1/a.jpg", re.compile(r"p(\d)/")) == "1"
    assert assign.group_of("p1/a.jpg", re.compile(r"p\d")) == "p1"
    assert (
        assign.group_of("p1/a.jpg", re.compile(r"x"))
        is assign.group_of("p1/a.jpg", re.compile(r"(\d*)"))
        is None
    )
    assert assign.group_of("p1/a.jpg", re.compile(r"p1/(b)?")) == "p1/", "a group that took no part"
    assert assign.group_of("p1/a.jpg", re.compile(r"(p)(1)")) == "p"


def test_a_limit_takes_images_of_all_shards() -> None:
    taken = sorted(KEYS, key=lambda key: assign.limit_order(0, key))[:600]
    shards = Counter(assign.shard_of(assign.shard_order(0, key)[0], 4) for key in taken)
    assert min(shards.values()) > 110 and set(shards) == {0, 1, 2, 3}


def _placed(hashes: list[int], count: int) -> list[int]:
    moved = assign.fill_empty_shards(hashes, count)
    return [moved.get(value, assign.shard_of(value, count)) for value in sorted(hashes)]


@given(st.lists(st.integers(0, HASH_RANGE - 1), min_size=1, max_size=60, unique=True), st.integers(1, 40))
@example([HASH_RANGE - 1 - i for i in range(8)], 8)
@example(list(range(8)), 8)
def test_no_shard_is_empty(hashes: list[int], count: int) -> None:
    placed = _placed(hashes, count)
    assert placed == sorted(placed)  # shards are in the order of the hashes
    usual = [assign.shard_of(value, count) for value in sorted(hashes)]
    if len(hashes) < count or set(usual) == set(range(count)):
        assert placed == usual
    else:
        assert set(placed) == set(range(count))
    assert assign.fill_empty_shards(hashes[::-1], count) == assign.fill_empty_shards(hashes, count)


def test_only_the_neighbors_of_an_empty_shard_change() -> None:
    eighth = HASH_RANGE // 8
    hashes = [shard * eighth + i for shard in (0, 1, 2, 4, 5, 6, 7) for i in range(3)]
    assert assign.fill_empty_shards(hashes, 8) == {4 * eighth: 3}
    hashes = [shard * eighth + i for shard in range(7) for i in range(3)]
    assert assign.fill_empty_shards(hashes, 8) == {6 * eighth + 2: 7}


def test_a_growing_collection_moves_few_images() -> None:
    hashes = [assign.hash64(0, "shard", key) for key in KEYS[:240]]
    before = dict(zip(sorted(hashes[:200]), _placed(hashes[:200], 100), strict=True))
    after = dict(zip(sorted(hashes), _placed(hashes, 100), strict=True))
    assert set(before.values()) == set(after.values()) == set(range(100))
    assert sum(before[value] != after[value] for value in before) < 20


def test_shards_of_many_images_are_never_repaired() -> None:
    assert assign.fill_empty_shards([0] * 128, 2) == {}
    assert assign.fill_empty_shards(list(range(127)), 2) == {126: 1}


SHARES = (Fraction(7, 10), Fraction(2, 10), Fraction(1, 10))
HASHES = st.integers(0, HASH_RANGE - 1)


@st.composite
def some_shares(draw: st.DrawFn) -> tuple[Fraction, ...]:
    weights = draw(st.lists(st.integers(1, 50), min_size=1, max_size=6))
    return tuple(Fraction(weight, sum(weights)) for weight in weights)


def sizes(values: Sequence[int], bounds: Sequence[int]) -> list[int]:
    ends = (0, *bounds, HASH_RANGE)
    return [sum(low <= value < high for value in values) for low, high in pairwise(ends)]


@given(st.integers(0, 10_000), some_shares())
def test_counts_are_those_of_the_largest_remainder(count: int, shares: tuple[Fraction, ...]) -> None:
    counts = allocate(count, shares, [Fraction(0)] * len(shares))
    assert sum(counts) == count
    rest = [share * count - int(share * count) for share in shares]
    rounded_up = [part for part in range(len(shares)) if counts[part] > int(shares[part] * count)]
    expected = sorted(range(len(shares)), key=lambda part: (-rest[part], part))[: len(rounded_up)]
    assert sorted(expected) == rounded_up


@given(st.lists(st.tuples(HASHES, st.integers(1, 30)), min_size=1, max_size=40), some_shares())
@example([(assign.hash64(0, "", str(number)), 1) for number in range(40)], SHARES)
def test_a_group_stays_whole_and_the_nearer_end_is_taken(
    groups: list[tuple[int, int]], shares: tuple[Fraction, ...]
) -> None:
    values = sorted(value for value, size in groups for _ in range(size))
    counts = allocate(len(values), shares, [Fraction(0)] * len(shares))
    bounds = cut(np.array(values, np.uint64), counts, shares)
    assert list(bounds) == sorted(bounds)
    wanted = 0
    for bound, count in zip(bounds, counts):
        wanted += count
        possible = {sum(value < edge for value in values) for edge in (*values, HASH_RANGE)}
        found = sum(value < bound for value in values)
        assert abs(found - wanted) == min(abs(number - wanted) for number in possible)


def test_bounds_lie_as_near_to_the_shares_as_the_counts_allow() -> None:
    ideal = assign.ideal_bounds(SHARES)
    hashes = {"one": [5], "low": list(range(10)), "spread": [i * HASH_RANGE // 1000 for i in range(1000)]}
    bounds = choose_bounds(hashes, SHARES, {})
    assert bounds["one"] == ideal  # later images of a class that has one are divided by the shares
    assert bounds["low"] == (7, 9)
    assert all(abs(found - best) <= HASH_RANGE // 1000 for found, best in zip(bounds["spread"], ideal))


@given(st.dictionaries(st.text(max_size=3), st.integers(1, 60), max_size=30), some_shares(), st.integers())
def test_every_class_and_the_whole_meet_their_shares(
    numbers: Mapping[str, int], shares: tuple[Fraction, ...], seed: int
) -> None:
    chance = random.Random(seed)
    hashes = {name: [chance.getrandbits(64) for _ in range(count)] for name, count in numbers.items()}
    bounds = choose_bounds(hashes, shares, {})
    whole = [0] * len(shares)
    for name, values in hashes.items():
        found = sizes(values, bounds[name])
        assert all(abs(count - share * len(values)) < 1 for count, share in zip(found, shares))
        whole = [before + count for before, count in zip(whole, found)]
    total = sum(numbers.values())
    assert all(abs(count - share * total) <= len(shares) for count, share in zip(whole, shares))


@given(st.integers(), st.integers(1, 200), st.integers(1, 200))
def test_classes_keep_their_bounds_as_the_data_grows(seed: int, first: int, more: int) -> None:
    chance = random.Random(seed)
    old = {name: [chance.getrandbits(64) for _ in range(first)] for name in "ab"}
    before = choose_bounds(old, SHARES, {})
    grown = {name: [*old.get(name, ()), *(chance.getrandbits(64) for _ in range(more))] for name in "abc"}
    after = choose_bounds(grown, SHARES, before)
    assert {name: after[name] for name in "ab"} == before
    found = sizes(grown["c"], after["c"])
    assert all(abs(count - share * more) < 1 for count, share in zip(found, SHARES))
    assert choose_bounds({"c": grown["c"]}, SHARES, after) == after  # also of classes without an image


def test_buckets_give_each_split_its_share_of_every_class() -> None:
    chance = random.Random(2)
    counts: dict[int, Counter[str]] = {}
    for _ in range(600):  # patients with 1 to 20 images of one or two classes
        kinds = chance.sample("abcd", chance.choice((1, 2)))
        images = Counter(chance.choice(kinds) for _ in range(chance.randint(1, 20)))
        of_bucket = counts.setdefault(chance.randrange(BUCKETS), Counter())
        of_bucket.update({**images, "\x00": images.total()})
    table = choose_buckets(counts, SHARES)
    totals = sum(counts.values(), Counter())
    for part, share in enumerate(SHARES):
        mine = sum((found for bucket, found in counts.items() if table[bucket] == str(part)), Counter())
        assert all(abs(mine[name] - share * total) < 0.005 * total for name, total in totals.items())
    numbers = Counter(table)
    assert [numbers[str(part)] for part in range(3)] == [717, 205, 102]


def collected(settings: ConvertSettings, parts: int) -> CollectedHashes:
    numbers = random.Random(parts).sample(range(3000), 3000)
    merged = CollectedHashes(settings)
    for part in range(parts):
        some = CollectedHashes(settings)
        for i in numbers[part::parts]:
            label = "cat" if i % 3 else f"cat{LABEL_SEPARATOR}dog"
            some.add("", label, assign.hash64(0, assign.SPLIT, f"{i}.jpg"))
        merged.merge(some)
    return merged


def test_the_order_of_the_images_does_not_matter() -> None:
    for separator in ("", "|"):
        settings = ConvertSettings(
            splits="a=0.5,b=0.3,c=0.2", split_mode="stratified", label_separator=separator
        )
        chosen = [choose_parts(collected(settings, parts), SHARES) for parts in (1, 2, 40)]
        assert chosen[0] == chosen[1] == chosen[2]
        assert bool(chosen[0].buckets) == bool(settings.label_separator)


def test_images_of_a_class_without_bounds_are_divided_by_the_shares() -> None:
    settings = ConvertSettings(splits="a=0.5,b=0.5", split_mode="stratified")
    bounds = PartBounds({"": {"cat": (0,)}})
    placement, plain = assign.Placement(settings, bounds), assign.Placement(settings)
    cats, dogs = ([ImageRef(f"{i}.jpg", "", label) for i in range(100)] for label in ("cat", "dog"))
    assert set(map(placement.split, cats)) == {"b"}
    assert [placement.split(ref) for ref in dogs] == [plain.split(ref) for ref in dogs]


def balance_of(**splits: dict[str, int]):  # type: ignore[no-untyped-def]
    return compare_splits(splits, {name: sum(counts.values()) for name, counts in splits.items()})


def test_an_uneven_class_is_named_with_its_numbers() -> None:
    found = balance_of(
        train={"shoes": 182, "hats": 1_400, "bags": 1_418},
        test={"shoes": 61, "hats": 120, "bags": 124},
    )
    assert [item.name for item in found.uneven] == ["shoes"]
    assert found.sentences == [
        "1 of 3 classes differs between splits: 'shoes' is 20% of test (61 of 305) but 6.1% of train "
        "(182 of 3,000)."
    ]


def test_small_counts_do_not_warn_by_chance() -> None:
    # The same shares, but of 25 images: five of them may be shoes by chance.
    found = balance_of(train={"shoes": 15, "hats": 235}, test={"shoes": 5, "hats": 20})
    assert not found.uneven and not found.sentences


def test_small_differences_do_not_warn_however_many_images_there_are() -> None:
    assert not balance_of(train={"a": 300_000, "b": 700_000}, test={"a": 55_000, "b": 45_000}).uneven


def test_missing_classes_are_named_by_split_with_the_largest_first() -> None:
    found = balance_of(
        train={"a": 50, "b": 40, "c": 3, "e": 7}, validation={"a": 9, "d": 1}, test={"b": 5, "a": 5}
    )
    assert {item.split: item.names for item in found.missing} == {
        "train": ("d",), "validation": ("b", "e", "c"), "test": ("e", "c", "d"),
    }  # fmt: skip
    assert found.sentences[0] == "Split train has no image of 1 of 5 classes: 'd'."


def test_empty_splits_and_splits_without_labels_are_left_alone() -> None:
    counts = {"train": {"a": 5, "b": 5, "gone": 0}, "test": {}, "validation": {"a": 0}}
    found = compare_splits(counts, {"train": 10, "test": 1_000, "validation": 0})
    assert found == (((), (), 2))


def test_one_split_is_never_uneven() -> None:
    assert balance_of(train={"a": 1, "b": 1_000}).sentences == []


def test_thousands_of_classes_give_few_short_lines() -> None:
    train = {f"class {i}": 100 for i in range(5_000)}
    test = {f"class {i}": 100 if i < 500 else 1 for i in range(4_000)}
    lines = balance_of(train=train, test=test).sentences
    assert len(lines) == 2 and max(map(len, lines)) < 400
    assert "of 5,000 classes differ between splits, the worst first: 'class " in lines[0]
    assert lines[1].startswith("Split test has no image of 1,000 of 5,000 classes: such as 'class ")


def test_many_splits_give_few_lines() -> None:
    splits = {f"s{i}": {f"c{i}": 10} for i in range(50)}
    assert len(balance_of(**splits).sentences) == 7
    assert balance_of(**splits).sentences[-1] == "44 more splits lack classes."


def test_the_worst_pair_of_a_class_is_shown() -> None:
    found = balance_of(
        train={"a": 100, "b": 9_900}, validation={"a": 100, "b": 900}, test={"a": 500, "b": 500}
    )
    first = next(item for item in found.uneven if item.name == "a")
    assert (first.more.split, first.less.split) == ("test", "train")


def test_random_splits_do_not_warn() -> None:
    # 100 datasets with long-tailed classes: the rule allows one warning, but the bound is far stricter.
    warned = 0
    for seed in range(100):
        draw = random.Random(seed)
        counts: dict[str, Counter[str]] = {"train": Counter(), "test": Counter(), "validation": Counter()}
        for _ in range(1_000):
            name = f"c{int(draw.paretovariate(0.5)) % 50}"
            counts[draw.choices(list(counts), (8, 1, 1))[0]][name] += 1
        warned += bool(balance_of(**counts).uneven)
    assert warned <= 1


_COUNTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 10**6), max_size=6)


@given(st.dictionaries(st.sampled_from(["train", "test", "validation"]), _COUNTS))
def test_any_counts_give_sentences(splits: dict[str, dict[str, int]]) -> None:
    found = balance_of(**splits)
    for item in found.uneven:
        assert item.more.share >= 2 * item.less.share > 0
    assert len(found.sentences) <= 4


def test_any_name_stays_on_one_line() -> None:
    found = balance_of(train={"a\n\x1b[31m" + "x" * 500: 5, "b": 5}, test={"b": 5})
    assert "\n" not in found.sentences[0] and len(found.sentences[0]) < 200


@pytest.mark.parametrize(
    ("names", "ordered"),
    [
        (["test", "train", "validation"], ["train", "validation", "test"]),
        (["Test", "Val", "Train"], ["Train", "Val", "Test"]),
        (["none", "extra", "test", "a", "train"], ["train", "test", "a", "extra", "none"]),
        (["training", "testing", "dev", "eval"], ["training", "dev", "eval", "testing"]),
        ([], []),
    ],
)
def test_splits_have_one_order(names: list[str], ordered: list[str]) -> None:
    assert in_split_order(names) == ordered
    assert list(by_split(dict.fromkeys(names, 0))) == ordered


def test_every_table_and_file_has_that_order(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    wanted = ["train", "validation", "test"]
    out, options = str(tmp_path / "out"), ["--splits", "test=0.3,train=0.4,validation=0.3", "--limit=20"]

    def shown() -> list[str]:
        lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
        return [line[0] for line in lines if line[0] in wanted]

    for split in wanted:
        copy_photos(tmp_path / "in" / split, 12)
    assert cli.main(["plan", str(tmp_path / "in")]) == 0
    assert shown() == wanted
    assert cli.main(["convert", str(PHOTOS), out, *options, "--verify=none"]) == 0
    assert shown() == wanted
    assert cli.main(["inspect", out, "--records", "0"]) == 0
    assert shown() == wanted * 2  # the splits, and the outcomes of their files
    made = document(Path(out))
    assert list(made["splits"]) == list(made["class_counts"]) == wanted
    assert list(made["ledger"]["splits"]) == list(made["plan"]["shards"]) == wanted


EIGHTY_TWENTY = {"train": Fraction(4, 5), "test": Fraction(1, 5)}
COUNTS = {"train": {"cat": 70, "dog": 11}, "test": {"cat": 20, "bird": 1}}


def test_exact_splits_say_how_many_records_were_wanted() -> None:
    found = compare_shares("exact", EIGHTY_TWENTY, {"train": 81, "test": 21}, COUNTS)
    assert found.sentence == "exact splits: train 81 (wanted 81.6), test 21 (wanted 20.4)"
    splits = {"train": {"records": 81, "wanted": 81.6}, "test": {"records": 21, "wanted": 20.4}}
    assert found.as_json() == {"mode": "exact", "splits": splits}


def test_stratified_splits_name_the_class_that_is_farthest_from_its_share() -> None:
    found = compare_shares("stratified", EIGHTY_TWENTY, {"train": 81, "test": 21}, COUNTS)
    assert found.sentence.endswith("; farthest from its share: class 'dog', train 11 (wanted 8.8)")
    worst = {"class": "dog", "split": "train", "records": 11, "wanted": 8.8}
    assert found.as_json()["worst_class"] == worst


def test_a_sentence_stays_short() -> None:
    shares = {f"s{i}": Fraction(1, 50) for i in range(50)}
    found = compare_shares("stratified", shares, {}, {"s1": {"x" * 5000: 3}})
    assert len(found.sentence) < 400
    assert "and 44 more" in found.sentence


BOUNDS = PartBounds({"": {"cat": (1, 2**63, 2**64), "\u732b": ()}}, {"train": "01z" + "0" * (BUCKETS - 3)})


def test_bounds_come_back_from_json() -> None:
    assert PartBounds.from_json(json.loads(json.dumps(BOUNDS.as_json()))) == BOUNDS
    assert BOUNDS.as_json()["bounds"][""]["cat"] == ["1", "8000000000000000", "10000000000000000"]
    assert PartBounds().as_json() == {}
    assert PartBounds.from_json({}) == PartBounds()


@pytest.mark.parametrize(
    "value",
    [
        {"bounds": {"": {"cat": ["2", "1"]}}},
        {"bounds": {"": {"cat": ["-1"]}}},
        {"bounds": {"": {"cat": ["10000000000000001"]}}},
        {"bounds": {"": {"cat": [1]}}},
        {"bounds": {"": ["1"]}},
        {"bounds": {"": {"cat": ["x"]}}},
        {"buckets": {"": "01"}},
        {"buckets": {"": "A" * BUCKETS}},
    ],
)
def test_damaged_bounds_are_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError, AttributeError)):
        PartBounds.from_json(value)


@pytest.mark.parametrize("split", ["train", "val", "valid", "validation", "test", "testing", "eval", "dev"])
def test_a_pattern_of_a_usual_split_selects_shards_only(split: str) -> None:
    shard = shard_file(split, 0, 1, ".tfrecord")
    assert matching([shard, *SIDE_FILES], f"{split}*") == [shard]
    check_split_names([split])
    with pytest.raises(ValueError, match="'all' needs another name, because readers take it for all splits"):
        check_split_names([split, "all"])


@pytest.mark.parametrize(
    "split", ["labels", "dataset", "statistics", "run", "report", "f", "stat", "_shards"]
)
def test_a_split_that_a_side_file_begins_with_is_refused(split: str) -> None:
    file = matching(SIDE_FILES, f"{split}*")[0]
    with pytest.raises(UsageError, match=rf"--splits .*: split '{split}' needs .* {split}\* .* match {file}"):
        ConvertSettings(input=("in",), output="out", splits=f"train=0.5,{split}=0.5").check()


def test_a_name_that_only_begins_like_a_side_file_is_allowed() -> None:
    check_split_names(["labelled", "running", "data_2", "Report", "parsed", "validation.json"])
