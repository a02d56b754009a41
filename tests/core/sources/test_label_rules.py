"""Class names: renamed, filtered, and those that --class_names gives to numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.depths import compared
from helpers.embedded import refs_of
from helpers.hostile import document, outcomes, picture, run
from helpers.manifests import write_csv
from helpers.packing import tar_of
from helpers.records import labels_by_key
from helpers.tfrecords import write

from shardwright.core.sources.image_files import annotated
from shardwright.core.sources.rules import RuleMatches, Rules, make_rules, unmatched_warnings
from shardwright.pipelines.convert import convert
from shardwright.schemas.annotations import (
    Annotations,
    ObjectAnnotation,
    PanopticSegment,
    decode_annotations,
)
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.labels import check_numbering, parse_class_names

RULES = Rules(rename={"kitten": "cat"}, keep=frozenset({"cat"}), class_needed=False)


def test_objects_of_other_classes_are_removed_and_those_without_a_class_stay() -> None:
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
    ref = ImageRef("a", "a", "dog")
    unsupported = ref.quarantined("UNSUPPORTED_FORMAT", "it is psd")
    assert RULES.apply(ref).reason == RULES.apply(unsupported).reason == "label_not_kept"
    assert RULES.apply(ImageRef("a", "a")).is_candidate


def test_ids_stay_unless_there_are_fewer_names() -> None:
    ids = {"person": 1, "cat": 17, "dog": 18}
    assert Rules(rename={"cat": "feline"}).apply_to_ids(ids) == {"person": 1, "feline": 17, "dog": 18}
    assert Rules(rename={"cat": "dog"}).apply_to_ids(ids) == {"person": 1, "dog": 2}
    assert Rules(keep=frozenset({"cat", "dog"})).apply_to_ids(ids) == {"cat": 1, "dog": 2}
    assert Rules(keep=frozenset(ids)).apply_to_ids(ids) == ids


@pytest.mark.parametrize("name", ["a\u2028b", "c\x85d", "e\x1cf"])
def test_names_may_contain_characters_that_end_lines_elsewhere(tmp_path: Path, name: str) -> None:
    (tmp_path / "keep.txt").write_text(f"{name}\nplain\n")
    assert make_rules(ConvertSettings(keep_labels=str(tmp_path / "keep.txt"))).keep == {name, "plain"}


def test_names_with_percent_signs_match_folders_as_written_and_as_shown(tmp_path: Path) -> None:
    keep = tmp_path / "keep.txt"
    for line in ("100%", "100%25"):
        keep.write_text(f"{line}\ndog\n")
        settings = ConvertSettings(keep_labels=str(keep))
        rules = make_rules(settings)
        assert rules.apply(ImageRef("100%25/a", "100%/a", "100%25")).label == "100%25"
        (warning,) = unmatched_warnings([RuleMatches(names={"100%25", "cat"})], settings, rules)
        assert warning.startswith("No image has the class 'dog' of --keep_labels")
    keep.write_text("100%\n")
    rules = make_rules(ConvertSettings(keep_labels=str(keep)))
    assert rules.apply(ImageRef("row", "row", "100%")).label == "100%"  # of a manifest
    renamed = make_rules(ConvertSettings(rename_labels="100%=all,5%=five,5%25=other"))
    found = [renamed.apply(ImageRef("a", "a", name)).label for name in ("100%25", "100%", "5%", "5%25")]
    assert found == ["all", "all", "five", "other"]


class TestNumbers:
    def _rules(self, *names: str, first: int = 0, **settings: object) -> Rules:
        return make_rules(ConvertSettings(**settings), names, first)  # type: ignore[arg-type]

    def _label(self, rules: Rules, label: str) -> str:
        return rules.apply(ImageRef("a", "a", label)).label

    def test_a_number_is_replaced_by_the_name_at_its_place(self) -> None:
        rules = self._rules("cat", "dog")
        found = {label: self._label(rules, label) for label in ("0", "1", "2", "01", "dog", "-1")}
        assert found == {"0": "cat", "1": "dog", "2": "2", "01": "01", "dog": "dog", "-1": "-1"}
        assert self._label(rules, "1\x1f0\x1fdog") == "dog\x1fcat"

    def test_names_that_are_numbers_are_handled(self) -> None:
        for names in (("1", "2", "3"), ("zero", "2", "two"), ("0", "cat", "1")):
            assert [self._label(self._rules(*names), str(i)) for i in range(3)] == ["0", "1", "2"]
        digits = self._rules(*map(str, range(10)))
        assert [self._label(digits, str(i)) for i in range(10)] == [str(i) for i in range(10)]
        cars = self._rules("911", "3008")  # no name is the number of another class
        assert [self._label(cars, label) for label in ("0", "911", "1")] == ["911", "911", "3008"]

    def test_ids_without_a_name_keep_their_number(self) -> None:
        rules = self._rules("cat", "", "dog")
        assert [self._label(rules, str(i)) for i in range(4)] == ["cat", "1", "dog", "3"]

    def test_files_may_count_from_one(self) -> None:
        assert self._label(self._rules("cat", "dog", first=1), "1") == "cat"
        assert parse_class_names("1:cat\n2:dog\n", "f", first_label=1) == (("cat", "dog"), 1)
        assert parse_class_names("0:cat\n1:dog\n", "f", first_label=1) == (("cat", "dog"), 0)

    def test_other_rules_apply_after_the_names(self, tmp_path: Path) -> None:
        keep = tmp_path / "keep.txt"
        keep.write_text("cat\n")
        rules = self._rules("cat", "dog", keep_labels=str(keep), rename_labels="1=cat")
        assert self._label(rules, "0") == self._label(rules, "1") == "cat"
        assert rules.apply(ImageRef("a", "a", "dog")).reason == "label_not_kept"

    def test_class_numbers_of_objects_stay_unchanged(self) -> None:
        rules = self._rules("cat", "dog")
        ref = annotated(ImageRef("a", "a"), Annotations(objects=(ObjectAnnotation("1", None),)))
        assert rules.apply(ref) == ref
        captioned = ImageRef("a", "a", "1", annotations=Annotations(captions=("A dog.",)).encode())
        assert rules.apply(captioned) == captioned._replace(label="dog")

    def test_a_source_that_counts_from_one_is_refused(self) -> None:
        check_numbering({"cat", "dog", "2"}, ("cat", "dog"), 0, "f")
        check_numbering({"dog"}, ("cat", "dog"), 0, "f")
        check_numbering({"dog", "2", "3"}, ("cat", "dog"), 0, "f")
        with pytest.raises(UsageError, match=r"from 1 to 2, not from 0: .* put a line for number 0 before"):
            check_numbering({"dog", "2"}, ("cat", "dog"), 0, "f")
        with pytest.raises(UsageError, match="write the lines as `1:name`"):
            check_numbering({"dog", "2"}, ("cat", "dog"), 1, "f")


NAMES = ("cat", "dog", "emu")


@pytest.fixture
def names(tmp_path: Path) -> Path:
    file = tmp_path / "names.txt"
    file.write_text("".join(f"{name}\n" for name in NAMES))
    return file


def _webdataset(root: Path, labels: list[int]) -> Path:
    members = {}
    for i, label in enumerate(labels):
        members |= {f"{i:03d}.png": picture(i), f"{i:03d}.cls": str(label).encode()}
    (root / "a-000.tar").write_bytes(tar_of(members))
    return root / "a-000.tar"


def _csv(root: Path, labels: list[int]) -> Path:
    for i in range(len(labels)):
        (root / f"{i:03d}.png").write_bytes(picture(i))
    return write_csv(
        root / "a.csv", [("image", "label"), *((f"{i:03d}.png", k) for i, k in enumerate(labels))]
    )


def _npz(root: Path, labels: list[int]) -> Path:
    images = np.arange(len(labels) * 8 * 8 * 3, dtype=np.uint32).astype(np.uint8).reshape(-1, 8, 8, 3)
    np.savez(root / "a.npz", images=images, labels=np.array(labels))
    return root / "a.npz"


def _records(root: Path, labels: list[int]) -> Path:
    """Writes records like those of TFDS, without a file of class names."""
    records = [{"image": picture(i), "label": label} for i, label in enumerate(labels)]
    return write(root / "set-train.tfrecord-00000-of-00001", records).parent


@pytest.mark.parametrize("make", [_webdataset, _csv, _npz, _records])
def test_sources_with_numbered_classes_get_names(make: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    refs, _ = refs_of(make(tmp_path / "in", [0, 1, 2, 1, 7]), tmp_path / "spool")
    rules = make_rules(ConvertSettings(), NAMES)
    assert [rules.apply(ref).label for ref in refs] == ["cat", "dog", "emu", "dog", "7"]


def test_validation_compares_numbered_classes_of_the_source(names: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    source = _csv(tmp_path / "in", [0, 1, 2, 7])
    settings = {"max_bad_fraction": 1, "class_names": names, "verify": "none"}
    convert(input=str(source), output=str(tmp_path / "out"), **settings)
    assert document(tmp_path / "out")["labels"] == list(NAMES)
    assert [*outcomes(tmp_path / "out").values()].count("UNKNOWN_LABEL") == 1
    assert [label for _, label in sorted(labels_by_key(tmp_path / "out").items())] == [*NAMES]
    assert json.loads((tmp_path / "out/run.json").read_text())["listing"] == {"class_names_from": 0}
    assert not compared(tmp_path / "out", source)
    _csv(tmp_path / "in", [0, 2, 2, 7])
    (finding,) = compared(tmp_path / "out", source)
    assert "the source says class 'emu'" in finding.message


def test_a_source_that_counts_from_one_is_refused(
    capfd: pytest.CaptureFixture[str], names: Path, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    source = _csv(tmp_path / "in", [1, 2, 3])
    argv = ("convert", "--input", source, "--output", tmp_path / "out", "--class_names", names)
    done = run(capfd, *argv)
    assert done.code == 2 and "counts them from 1 to 3, not from 0" in done.err, done
    assert not (tmp_path / "out/dataset.json").exists()
    _csv(tmp_path / "in", [1, 2, 2])
    done = run(capfd, "plan", "--input", source, "--class_names", names)
    assert "No image has the class number 0 ('cat')" in done.out + done.err, done


def test_names_that_differ_only_in_their_unicode_form_are_a_warning(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.png").write_bytes(picture(1))
    (tmp_path / "b.png").write_bytes(picture(2))
    rows = [("image", "label"), ("a.png", "caf\u00e9"), ("b.png", "cafe\u0301")]
    write_csv(tmp_path / "list.csv", rows)
    done = run(capfd, "plan", tmp_path / "list.csv")
    text = r"The classes 'cafe\u0301' and 'caf\xe9' differ only in their Unicode form"
    assert done.code == 0 and text in " ".join(done.out.split())
