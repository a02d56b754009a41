"""Splits: how they are spread over classes, their order and bounds, and how far they meet their shares."""

from __future__ import annotations

import json
import random
from collections import Counter
from fnmatch import filter as matching
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from helpers.hostile import document
from helpers.repository import PHOTOS, copy_photos
from hypothesis import given
from hypothesis import strategies as st

from shardwright.pipelines import cli
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.plan import BUCKETS, PartBounds, shard_file
from shardwright.schemas.sidecars import SIDE_FILES, check_split_names, clash_of
from shardwright.schemas.splits import by_split, compare_shares, compare_splits, in_split_order


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


Capture = pytest.CaptureFixture[str]


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


def test_every_table_and_file_has_that_order(capsys: Capture, tmp_path: Path) -> None:
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


SHARES = {"train": Fraction(4, 5), "test": Fraction(1, 5)}
COUNTS = {"train": {"cat": 70, "dog": 11}, "test": {"cat": 20, "bird": 1}}


def test_exact_splits_say_how_many_records_were_wanted() -> None:
    found = compare_shares("exact", SHARES, {"train": 81, "test": 21}, COUNTS)
    assert found.sentence == "exact splits: train 81 (wanted 81.6), test 21 (wanted 20.4)"
    splits = {"train": {"records": 81, "wanted": 81.6}, "test": {"records": 21, "wanted": 20.4}}
    assert found.as_json() == {"mode": "exact", "splits": splits}


def test_stratified_splits_name_the_class_that_is_farthest_from_its_share() -> None:
    found = compare_shares("stratified", SHARES, {"train": 81, "test": 21}, COUNTS)
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
    assert matching(SIDE_FILES, f"{split}*")[0] == clash_of(split)
    with pytest.raises(ValueError, match=f"{split!r} needs another name"):
        check_split_names(["train", split])
    with pytest.raises(UsageError, match=rf"--splits train=0.5,{split}=0.5: .*\* .* {clash_of(split)}"):
        ConvertSettings(input=("in",), output="out", splits=f"train=0.5,{split}=0.5").check()


def test_a_name_that_only_begins_like_a_side_file_is_allowed() -> None:
    check_split_names(["labelled", "running", "data_2", "Report", "parsed", "validation.json"])
