"""Names: classes, splits and groups from file names, rules for class names, ids and file names in records."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.annotation_sets.coco import put_coco, save
from helpers.depths import compared, findings_of
from helpers.hostile import document, outcomes, picture, refused, run
from helpers.listing import listed
from helpers.manifests import write_csv
from helpers.packing import by_key, list_refs
from helpers.records import labels_by_key, value
from helpers.repository import PHOTOS
from helpers.tensorflow_records import read_records
from helpers.tfrecords import converted, object_record, read, sized, write
from helpers.trees import put_files
from PIL import Image

from shardwright.core.plan.assign import Placement
from shardwright.core.sources.image_files import annotated
from shardwright.core.sources.rules import RuleMatches, Rules, make_rules, unmatched_warnings
from shardwright.pipelines.convert import convert
from shardwright.schemas import image_ref
from shardwright.schemas.annotations import (
    Annotations,
    ObjectAnnotation,
    PanopticSegment,
    decode_annotations,
)
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef, number_of_key
from shardwright.schemas.labels import check_numbering, parse_class_names
from shardwright.schemas.layouts import LAYOUTS, FeatureRole


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    """A flat folder: fruit01.jpg, homes07.png, ..."""
    folder = tmp_path / "flat"
    folder.mkdir()
    for name, kind in (("fruit", "fruit"), ("homes", "buildings")):
        for number, path in enumerate(sorted((PHOTOS / kind).iterdir())[:6]):
            shutil.copy(path, folder / f"{name}{number:02d}{path.suffix}")
    return folder


def test_names_give_classes_and_groups_which_stay_in_one_split(flat: Path) -> None:
    pattern = r"(?P<label>[a-z]+)\d(?P<group>\d)\.(jpg|png)"
    found = listed(flat, "classification", label_regex=pattern, splits="a=0.5,b=0.5")
    assert found.input.detected_as == "file names that say the class"
    assert len(found.refs) == 12 and all(key.startswith(ref.label) for key, ref in found.refs.items())
    assert {ref.label for ref in found.refs.values()} == {"fruit", "homes"}
    placement = Placement(found.settings)
    splits = {(key[6], placement.split(ref)) for key, ref in found.refs.items()}
    assert len(splits) == 6 and {split for _, split in splits} == {"a", "b"}


def test_names_give_splits(flat: Path) -> None:
    pattern = r"(?P<label>[a-z]+)(?P<group>\d)(?P<split>\d)\..*"
    found = by_key(list_refs(flat, "file_names", label_regex=pattern))
    assert {key: (ref.label, ref.group, ref.split) for key, ref in found.items()} == {
        path.name: (path.name[:5], path.name[5], path.name[6]) for path in flat.iterdir()
    }


def test_folders_are_ignored_unless_the_expression_matches_them(tmp_path: Path) -> None:
    names = [f"{split}/kind{kind}_{split}.jpg" for split in ("train", "dev") for kind in "ab"]
    put_files(tmp_path, dict.fromkeys(names, picture(1, "JPEG")))
    pattern = r"(?P<split>[a-z]+)/(?P<label>[a-z]+)_.*"
    found = by_key(list_refs(tmp_path, "file_names", label_regex=pattern))
    assert {(key, ref.split, ref.label) for key, ref in found.items()} == {
        (name, name.partition("/")[0], name.partition("/")[2][:5]) for name in names
    }


def test_names_that_do_not_match_are_reported_and_never_labelled(flat: Path) -> None:
    others = {"Fruit7.jpg", "fruit.jpg", "notes1.jpg.jpg", "xfruit07.jpg9"}
    for name in others:
        shutil.copy(flat / "fruit00.jpg", flat / name)
    found = listed(flat, "classification", label_regex=r"(?P<label>[a-z]+)\d+\.(jpg|png)")
    refs = {key: make_rules(found.settings).apply(ref) for key, ref in found.refs.items()}
    messages = found._replace(refs=refs).faults("UNKNOWN_LABEL")
    assert messages.keys() == others and len(refs) == 12 + len(others)
    assert all("does not match --label_regex" in message for message in messages.values())


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("[", "is not a regular expression"),
        (r"[a-z]+\d+", "needs a group (?P<label>...)"),
        (r"(?P<label>a)(?P<class>b)", "group 'class' has no meaning"),
    ],
)
def test_wrong_expressions_are_refused(
    capfd: pytest.CaptureFixture[str], flat: Path, tmp_path: Path, pattern: str, says: str
) -> None:
    argv = ("convert", "--input", flat, "--output", tmp_path / "out", "--label_regex", pattern)
    assert says in refused(capfd, tmp_path, *argv)


OBJECT_LAYOUTS = ("detection", "vision")


def names_in(dataset: Path) -> dict[str, tuple[int, str]]:
    """Returns key in the ledgers -> (source_id as a number, file name), read with TensorFlow."""
    return {
        key: (int(record["image/source_id"][0]), record["image/filename"][0].decode())
        for key, record in read(dataset).items()
    }


def coco(folder: Path, ids: list[int | str]) -> Path:
    """Writes a COCO document of gray images with the given ids."""
    names = [f"{i}.png" for i in range(len(ids))]
    path = put_coco(folder / "instances.json", {name: [(1, 1, 1, 4, 4)] for name in names}, ["a"])
    document = json.loads(path.read_text())
    for image, box, id_ in zip(document["images"], document["annotations"], ids, strict=True):
        Image.new("L", (8, 8), box["id"]).save(folder / image["file_name"])
        image["id"] = box["image_id"] = id_
    return save(path, document)


def names_of(path: Path, layout: str) -> dict[str, tuple[int, str]]:
    """Returns the same for records that are made of an input without a dataset."""
    records = listed(path, layout).records().items()
    return {key: (int(value(one, "image/source_id")), value(one, "image/filename")) for key, one in records}


@pytest.mark.parametrize("layout", OBJECT_LAYOUTS)
def test_cocos_ids_are_written(tmp_path: Path, layout: str) -> None:
    assert names_of(coco(tmp_path, [0, 139, "000000000285", "x7"]), layout) == {
        "0.png": (0, "0.png"),
        "1.png": (139, "1.png"),
        "2.png": (285, "2.png"),
        "3.png": (number_of_key("3.png"), "3.png"),
    }


def test_images_without_an_id_get_the_number_of_their_key(tmp_path: Path) -> None:
    for name in ("a", "b"):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{name}.jpg")
        (tmp_path / f"{name}.txt").write_text("0 0.5 0.5 0.25 0.25\n")
    (tmp_path / "classes.txt").write_text("thing\n")
    for layout in OBJECT_LAYOUTS:
        assert names_of(tmp_path, layout) == {key: (number_of_key(key), key) for key in ("a.jpg", "b.jpg")}


def records(*ids: str | None) -> list[dict[str, Any]]:
    """Returns detection records with the given ids; None leaves the feature out."""
    made = []
    for i, id_ in enumerate(ids):
        record = {**sized(object_record(i)), "image/source_id": id_, "image/filename": f"photos/{i}.jpg"}
        made.append({name: value for name, value in record.items() if value is not None})
    return made


def test_values_of_other_records_are_kept(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.tfrecord", records("42", "", None))
    # Its first file name equals that of a.tfrecord's first record.
    write(tmp_path / "in" / "b.tfrecord", records("7"))
    keys = [f"a.tfrecord!photos/{i}.jpg" for i in range(3)]
    known = {
        keys[0]: (42, "photos/0.jpg"),
        keys[1]: (number_of_key(keys[1]), "photos/1.jpg"),
        keys[2]: (number_of_key(keys[2]), "photos/2.jpg"),
        "b.tfrecord!photos/0.jpg": (7, "photos/0.jpg"),
    }
    assert names_of(tmp_path / "in", "vision") == known
    made = converted(tmp_path / "in", tmp_path / "out", layout="detection")
    assert names_in(made) == names_of(made, "vision") == known
    assert not findings_of(made) and not compared(made, tmp_path / "in")


def test_other_layouts_also_keep_the_file_name(tmp_path: Path) -> None:
    record = {**sized(object_record(0)), "image/class/label": 0, "image/filename": "x/n01.JPEG"}
    write(tmp_path / "a.tfrecord", [record])
    for layout, name in (("classification", "x/n01.JPEG"), ("imagenet", "n01.JPEG")):
        (made,) = listed(tmp_path / "a.tfrecord", layout).records().values()
        assert value(made, "image/filename") == name


def test_a_dataset_with_keys_in_place_of_numbers_gets_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is the input, or a conversion that did not finish and is resumed."""
    source = coco(tmp_path / "in", [5, 6])
    with monkeypatch.context() as patched:
        features = tuple(
            replace(spec, fill=FeatureRole.KEY) if spec.fill is FeatureRole.SOURCE_ID else spec
            for spec in LAYOUTS["detection"].features
        )
        patched.setitem(LAYOUTS, "detection", replace(LAYOUTS["detection"], features=features))  # type: ignore[arg-type]
        made = converted(source, tmp_path / "with_keys", layout="detection")
    (data, _) = read_records([made / "train-00000-of-00001.tfrecord"])
    assert b"image/source_id" in data and b'"key"' in (made / "dataset.json").read_bytes()
    assert names_of(made, "vision") == {name: (number_of_key(name), name) for name in ("0.png", "1.png")}
    (made / "dataset.json").unlink()
    converted(source, made, layout="detection", resume=True)
    assert names_in(made) == {"0.png": (5, "0.png"), "1.png": (6, "1.png")}


def test_two_images_with_the_same_generated_number_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    source = coco(tmp_path / "in", ["a", "b", 7])
    monkeypatch.setattr(image_ref, "number_of_key", lambda key: 7)
    done = run(capfd, "convert", f"--input={source}", f"--output={tmp_path / 'out'}", "--layout=vision")
    assert done.code == 2 and "image/source_id 7; rename one of them" in done.err
    assert not (tmp_path / "out").exists()


def test_ids_of_the_source_may_be_equal(tmp_path: Path) -> None:
    for part in ("train", "valid"):  # like Roboflow's export
        coco(tmp_path / "in" / part, [0, 1]).rename(tmp_path / "in" / part / "_annotations.coco.json")
    made = converted(tmp_path / "in", tmp_path / "out", layout="vision")
    assert sorted(number for number, _ in names_in(made).values()) == [0, 0, 1, 1]


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


def _rules(*names: str, first: int = 0, **settings: object) -> Rules:
    return make_rules(ConvertSettings(**settings), names, first)  # type: ignore[arg-type]


def _label(rules: Rules, label: str) -> str:
    return rules.apply(ImageRef("a", "a", label)).label


def test_a_number_is_replaced_by_the_name_at_its_place() -> None:
    rules = _rules("cat", "dog")
    found = {label: _label(rules, label) for label in ("0", "1", "2", "01", "dog", "-1")}
    assert found == {"0": "cat", "1": "dog", "2": "2", "01": "01", "dog": "dog", "-1": "-1"}
    assert _label(rules, "1\x1f0\x1fdog") == "dog\x1fcat"


def test_names_that_are_numbers_are_handled() -> None:
    for names in (("1", "2", "3"), ("zero", "2", "two"), ("0", "cat", "1")):
        assert [_label(_rules(*names), str(i)) for i in range(3)] == ["0", "1", "2"]
    digits = _rules(*map(str, range(10)))
    assert [_label(digits, str(i)) for i in range(10)] == [str(i) for i in range(10)]
    cars = _rules("911", "3008")  # no name is the number of another class
    assert [_label(cars, label) for label in ("0", "911", "1")] == ["911", "911", "3008"]


def test_ids_without_a_name_keep_their_number() -> None:
    rules = _rules("cat", "", "dog")
    assert [_label(rules, str(i)) for i in range(4)] == ["cat", "1", "dog", "3"]


def test_files_may_count_from_one() -> None:
    assert _label(_rules("cat", "dog", first=1), "1") == "cat"
    assert parse_class_names("1:cat\n2:dog\n", "f", first_label=1) == (("cat", "dog"), 1)
    assert parse_class_names("0:cat\n1:dog\n", "f", first_label=1) == (("cat", "dog"), 0)


def test_other_rules_apply_after_the_names(tmp_path: Path) -> None:
    keep = tmp_path / "keep.txt"
    keep.write_text("cat\n")
    rules = _rules("cat", "dog", keep_labels=str(keep), rename_labels="1=cat")
    assert _label(rules, "0") == _label(rules, "1") == "cat"
    assert rules.apply(ImageRef("a", "a", "dog")).reason == "label_not_kept"


def test_class_numbers_of_objects_stay_unchanged() -> None:
    rules = _rules("cat", "dog")
    ref = annotated(ImageRef("a", "a"), Annotations(objects=(ObjectAnnotation("1", None),)))
    assert rules.apply(ref) == ref
    captioned = ImageRef("a", "a", "1", annotations=Annotations(captions=("A dog.",)).encode())
    assert rules.apply(captioned) == captioned._replace(label="dog")


def test_a_numbering_that_begins_at_one_is_refused() -> None:
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


def _csv(root: Path, labels: list[int]) -> Path:
    put_files(root, {f"{i:03d}.png": picture(i) for i in range(len(labels))})
    return write_csv(
        root / "a.csv", [("image", "label"), *((f"{i:03d}.png", k) for i, k in enumerate(labels))]
    )


def test_validation_compares_numbered_classes_of_the_source(names: Path, tmp_path: Path) -> None:
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
