"""How far splits meet their shares, in numbers and as a sentence."""

from __future__ import annotations

from fractions import Fraction

from shardwright.schemas.split_shares import compare_shares

SHARES = {"train": Fraction(4, 5), "test": Fraction(1, 5)}
COUNTS = {"train": {"cat": 70, "dog": 11}, "test": {"cat": 20, "bird": 1}}


def test_exact_splits_say_how_many_records_were_wanted() -> None:
    found = compare_shares("exact", SHARES, {"train": 81, "test": 21}, COUNTS)
    assert found.sentence == "exact splits: train 81 (wanted 81.6), test 21 (wanted 20.4)"
    assert found.as_json() == {
        "mode": "exact",
        "splits": {"train": {"records": 81, "wanted": 81.6}, "test": {"records": 21, "wanted": 20.4}},
    }


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
