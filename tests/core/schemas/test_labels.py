"""Class names in the order of ids, the files that list them, and ids over many builds and readers."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from helpers.fewer_imports import late
from hypothesis import example, given
from hypothesis import strategies as st

from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef, number_of_key, number_text, source_id_of
from shardwright.schemas.labels import (
    ClassId,
    check_carried,
    labels_txt,
    merge_class_ids,
    merge_class_texts,
    moved_label,
    order_labels,
    parse_class_names,
    unused_ids,
)
from shardwright.schemas.plan import Plan
from shardwright.schemas.sidecars.tfx_schema import label_map_pbtxt

_NAMES = st.lists(
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=9)
    .map(str.strip)
    .filter(bool),
    unique=True,
    min_size=1,
    max_size=8,
)


def test_new_names_follow_in_the_order_of_their_bytes() -> None:
    assert order_labels(["b", "Z", "é", "a", "b"]) == ("Z", "a", "b", "é")
    assert order_labels(["c", "a", "x"], carried=("x", "gone")) == ("x", "gone", "a", "c")
    assert order_labels(["\uffff", "\U0001f600"]) == ("\uffff", "\U0001f600")


@given(_NAMES)
@example(["a\u2028b", "c\u2029d", "1:2"])
def test_labels_txt_is_read_back_as_class_names(names: list[str]) -> None:
    assert parse_class_names(labels_txt(dict(enumerate(names))), "labels.txt")[0] == tuple(names)


def test_the_label_map_is_protobuf_text() -> None:
    text = label_map_pbtxt({3: 'a "cat"', 4: "dog"})
    assert text == 'item {\n  id: 3\n  name: "a \\"cat\\""\n}\nitem {\n  id: 4\n  name: "dog"\n}\n'


def test_class_names_are_one_per_line_with_or_without_ids() -> None:
    assert parse_class_names("\ufeffcat\r\n\n dog \n", "f")[0] == ("cat", "dog")
    assert parse_class_names("0:cat\n1: dog\n", "f")[0] == ("cat", "dog")
    assert parse_class_names("10:30\nnoon\n", "f")[0] == ("10:30", "noon")
    assert parse_class_names("²:x\n³:y", "f")[0] == ("²:x", "³:y")


@pytest.mark.parametrize(
    "text",
    ["", "\n \n", "a\na", "0:a\n2:b\n1:c", "1:a\n2:b", "0:a\n1:a", "0:\n1:b", "0:a\n0:b", "0:a\n9999999:b"],
)
def test_wrong_class_names_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_class_names(text, "names.txt")


def test_ids_of_the_source_keep_their_gaps() -> None:
    own = {"3": 3, "0": 0, "7": 7}
    names = order_labels(["3", "0", "7"], own_ids=own)
    assert names == ("0", "1", "2", "3", "4", "5", "6", "7")
    assert order_labels(["3", "9"], names, {"3": 3, "9": 9}) == (*names, "8", "9")


def test_ids_without_a_class_are_unused() -> None:
    coco = {"person": 1, "cat": 17, "bottle": 44}
    labels = order_labels(["cat"], own_ids=coco, first_label=1)
    unused = unused_ids(labels, 1, coco)
    assert set(range(1, 45)) - set(unused) == {1, 17, 44}
    plan = Plan(labels, {}, {}, {}, unused_ids=unused)
    classes = plan.classes(1)
    assert classes == {1: "person", 17: "cat", 44: "bottle"}
    assert labels_txt(classes) == "1:person\n17:cat\n44:bottle\n"
    assert Plan.from_json(plan.as_json()) == plan
    # A later build keeps them, and a new class takes one of them.
    later = order_labels(["cat"], labels, {**coco, "dog": 18}, 1)
    assert set(unused) - set(unused_ids(later, 1, {*coco, "dog"}, labels, unused)) == {18}


def test_a_class_named_like_its_id_is_used() -> None:
    labels = order_labels(["0", "2"], own_ids={"0": 0, "2": 2})
    assert labels == ("0", "1", "2") and unused_ids(labels, 0, {"0", "2"}) == (1,)
    # A class of an earlier build stays a class, whether images have it now or not.
    assert unused_ids(labels, 0, {"0"}, labels, ()) == ()
    assert unused_ids(labels, 0, {"0", "2"}, labels, (1,)) == (1,)


def test_class_names_may_skip_ids() -> None:
    assert parse_class_names("1:person\n3:cat\n", "f", first_label=1)[0] == ("person", "", "cat")
    assert parse_class_names("0:person\n2:cat\n", "f", first_label=1)[0] == ("person", "", "cat")


def test_source_ids_are_used_only_if_every_class_has_one() -> None:
    assert order_labels(["cat", "7"], own_ids={"7": 7}) == ("7", "cat")
    assert merge_class_ids([ClassId("a", 1), ClassId("a", 2)]) == {}
    assert merge_class_ids([ClassId("a", 1), ClassId("b", 1)]) == {}
    assert merge_class_ids([ClassId("a", 1), ClassId("a", 1), ClassId("b", 0)]) == {"a": 1, "b": 0}
    assert merge_class_ids([ClassId("a", 1), ClassId("a", 1, "ant")]) == {"a": 1}
    assert merge_class_texts([ClassId("a", 1), ClassId("a", 1, "ant"), ClassId("b", 2)]) == {"a": "ant"}
    assert merge_class_texts([ClassId("a", 1, "bee"), ClassId("a", 1, "ant")]) == {}
    assert merge_class_ids([ClassId("a", 10**9)]) == merge_class_ids([ClassId("a", -1)]) == {}


def test_labels_txt_of_a_layout_that_begins_at_one_is_read_back() -> None:
    text = labels_txt({1: "cat", 2: "dog"})
    assert parse_class_names(text, "f", first_label=1)[0] == ("cat", "dog")
    with pytest.raises(UsageError, match="must begin with 1"):
        parse_class_names("2:cat\n3:dog\n", "f", first_label=1)
    with pytest.raises(UsageError, match="must begin with 0"):
        parse_class_names(text, "f")


@given(st.dictionaries(st.text("abc", min_size=1), st.integers(0, 40), min_size=1), st.integers(0, 1))
def test_all_source_ids_are_kept_or_shifted_by_one(own: dict[str, int], first_label: int) -> None:
    own = {name: number for number, name in {number: name for name, number in own.items()}.items()}
    names = order_labels(own, own_ids=own, first_label=first_label)
    moved = {first_label + names.index(name) - number for name, number in own.items()}
    assert moved == {max(0, first_label - min(own.values()))}
    assert len(set(names)) == len(names)


#: Few names, so that they repeat; some are numbers, like the names of unused ids.
NAMES = ["cat", "dog", "eel", "Fox", "é", "animals/cat", "\U0001f600", "0", "1", "2", "3", "7"]
SEEN = st.sets(st.sampled_from(NAMES), min_size=1, max_size=6)
OWN_IDS = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 8), min_size=1, max_size=8).map(
    lambda ids: {name: number for number, name in {number: name for name, number in ids.items()}.items()}
)
BUILD = st.tuples(SEEN, st.none() | OWN_IDS)
FIRST = st.integers(0, 1)


@given(st.lists(BUILD, min_size=2, max_size=8), FIRST)
@example([({"0", "1"}, None), ({"1", "cat"}, {"1": 0, "cat": 1})], 0)
@example([({"cat", "dog"}, {"cat": 0, "dog": 2}), ({"cat", "eel", "dog"}, {"cat": 0, "eel": 1, "dog": 2})], 0)
@example([({"cat"}, {"cat": 1}), ({"cat", "dog"}, {"cat": 1, "dog": 0})], 1)
@example([({"cat", "dog"}, {"cat": 0, "dog": 2}), ({"cat", "dog"}, {"cat": 0, "dog": 1})], 0)
def test_no_id_ever_moves(builds: list[tuple[set[str], Mapping[str, int] | None]], first_label: int) -> None:
    labels: tuple[str, ...] = ()
    for seen, own_ids in builds:
        after = order_labels(seen, labels, own_ids, first_label)
        assert set(after) >= seen and len(set(after)) == len(after) >= len(labels)
        for number, (old, new) in enumerate(zip(labels, after), first_label):
            assert old == new or (old == str(number) and old not in after)  # an unused id got a name
        assert order_labels(seen, after, own_ids, first_label) == after  # the same data again
        labels = after


@given(st.lists(st.sampled_from(NAMES), unique=True), st.lists(st.sampled_from(NAMES), unique=True), FIRST)
@example(["cat", "dog", "eel"], ["cat", "dog"], 0)
def test_class_names_that_would_move_an_id_are_refused(
    names: list[str], carried: list[str], first_label: int
) -> None:
    place = moved_label(names, carried, first_label)
    if place is None:
        check_carried(names, carried, first_label, "names.txt", "old")
        for number, name in enumerate(carried):
            assert names[number] == name or (name not in names and name == str(first_label + number))
    else:
        assert names[place : place + 1] != [carried[place]]
        with pytest.raises(UsageError) as caught:
            check_carried(names, carried, first_label, "names.txt", "old")
        message = caught.value.message
        assert "--class_names names.txt" in message and "--plan_from old" in message
        assert f"{carried[place]!r}" in message and f"id {first_label + place} in" in message


tf = late("tensorflow")


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_the_number_of_a_key_has_63_bits(key: str) -> None:
    assert 0 <= number_of_key(key) < 2**63
    assert source_id_of(ImageRef(key, "x")) == str(number_of_key(key))


def test_the_number_of_a_key_never_changes() -> None:
    assert number_of_key("cats/a.jpg") == 6157863834817839828
    assert source_id_of(ImageRef("cats/a.jpg", "x", source_id="139")) == "139"


@pytest.mark.parametrize("value", [0, 139, "000000000139", -1, 2**63 - 1, str(-(2**63))])
def test_tensorflow_reads_the_same_number(value: int | str) -> None:
    # The same as process_source_id of the model garden.
    assert int(tf.strings.to_number(number_text(value), tf.int64)) == int(value)


@pytest.mark.parametrize("value", ["", "a1", "1.5", "12 ", "1_000", "١٢", 2**63, str(2**63), "9" * 40])
def test_other_texts_are_not_numbers(value: int | str) -> None:
    assert number_text(value) == ""
