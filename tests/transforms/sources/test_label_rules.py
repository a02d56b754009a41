"""Class names that are renamed or not kept, in labels, objects, segments and ids."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardwright.schemas.annotations import (
    Annotations,
    ObjectAnnotation,
    PanopticSegment,
    decode_annotations,
)
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.settings import ConvertSettings
from shardwright.transforms.sources.image_files import annotated
from shardwright.transforms.sources.label_rules import LabelRules, make_label_rules

RULES = LabelRules(rename={"kitten": "cat"}, keep=frozenset({"cat"}), class_needed=False)


def test_objects_of_other_classes_go_and_those_of_none_stay() -> None:
    objects = tuple(map(ObjectAnnotation, ("kitten", "dog", "", "cat")))
    ref = RULES.apply(annotated(ImageRef("a", "a"), Annotations(objects=objects)))
    found = decode_annotations(ref.annotations).objects or ()
    assert [item.label for item in found] == ["cat", "", "cat"]
    assert ref.labels == ("cat",)


def test_segments_of_other_classes_become_void() -> None:
    names = ("kitten", "dog", "")
    segments = tuple(PanopticSegment(number, name) for number, name in enumerate(names))
    ref = RULES.apply(annotated(ImageRef("a", "a"), Annotations(panoptic_mask="m.png", segments=segments)))
    assert decode_annotations(ref.annotations).segments == (
        PanopticSegment(0, "cat"),
        PanopticSegment(1, "", void=True),
        PanopticSegment(2, ""),
    )


def test_an_image_without_a_kept_class_is_filtered() -> None:
    assert RULES.apply(ImageRef("a", "a", "dog")).reason == "label_not_kept"
    assert RULES.apply(ImageRef("a", "a")).is_candidate


def test_ids_stay_unless_there_are_fewer_names() -> None:
    ids = {"person": 1, "cat": 17, "dog": 18}
    assert LabelRules(rename={"cat": "feline"}).apply_to_ids(ids) == {"person": 1, "feline": 17, "dog": 18}
    assert LabelRules(rename={"cat": "dog"}).apply_to_ids(ids) == {"person": 1, "dog": 2}
    assert LabelRules(keep=frozenset({"cat", "dog"})).apply_to_ids(ids) == {"cat": 1, "dog": 2}
    assert LabelRules(keep=frozenset(ids)).apply_to_ids(ids) == ids


@pytest.mark.parametrize("name", ["a\u2028b", "c\x85d", "e\x1cf"])
def test_names_may_hold_what_ends_lines_elsewhere(tmp_path: Path, name: str) -> None:
    (tmp_path / "keep.txt").write_text(f"{name}\nplain\n")
    rules = make_label_rules(ConvertSettings(keep_labels=str(tmp_path / "keep.txt")))
    assert rules.keep == {name, "plain"}
