"""What every annotation source does: one suite over small sets of all formats (`annotation_sets.formats`).

Boxes reach the records, folders are splits, a bucket is like a folder, and faults are named with their place.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.annotation_sets.formats import FORMATS, Format
from helpers.cloud import storage_emulator, upload
from helpers.listing import Listed, listed
from helpers.records import balanced, examples, quarantine, value, values

from shardwright.pipelines.convert import convert
from shardwright.schemas.errors import UsageError

SIDES = ("xmin", "ymin", "xmax", "ymax")
#: A box is stored as float32 shares of the picture; formats write shares with six digits.
_PIXELS = 0.01


def formats_with(name: str) -> Any:
    """Returns a mark that runs a test for each format with a value of that field."""
    found = [key for key, form in FORMATS.items() if getattr(form, name)]
    return pytest.mark.parametrize("form", [FORMATS[key] for key in found], ids=found)


def bad(found: Listed) -> dict[str, str]:
    """Returns key -> message of the entries that are `BAD_ANNOTATION`."""
    refs = {key: found.refs[key] for key, reason in found.reasons().items() if reason != "not_an_image"}
    assert {ref.reason for ref in refs.values()} <= {"BAD_ANNOTATION"}
    return {key: ref.message for key, ref in refs.items()}


@pytest.mark.sampled(6)
@formats_with("put")
def test_records_contain_the_boxes(tmp_path: Path, form: Format) -> None:
    photos = {photo.name: photo for photo in form.put(tmp_path / "in")}
    found = listed(tmp_path / "in")
    assert found.input.source == form.source and not bad(found)
    made = convert(input=tmp_path / "in", output=tmp_path / "out", layout="detection", verify="full")
    assert balanced(made.dataset.ledger) and {"bird", "thing"} <= {*made.dataset.labels}
    (records,) = examples(tmp_path / "out").values()
    seen = set()
    for record in records:
        photo = photos[Path(value(record, "image/filename")).name]
        seen.add(photo.name)
        sides = np.array([values(record, f"image/object/bbox/{side}") for side in SIDES]).T * (photo.size * 2)
        texts = values(record, "image/object/class/text")
        boxes = sorted(zip(texts, sides.tolist(), strict=True))
        assert [label for label, _ in boxes] == [box[0] for box in sorted(photo.boxes)]
        for (_, stored), (_, *expected) in zip(boxes, sorted(photo.boxes), strict=True):
            np.testing.assert_allclose(stored, expected, atol=_PIXELS)
    assert seen == {photo.name for photo in photos.values() if photo.boxes or form.lists_all}


@formats_with("splits")
def test_folders_are_splits(tmp_path: Path, form: Format) -> None:
    for split in ("train", "val"):
        form.put(tmp_path / split)
    found = listed(tmp_path)
    splits = {key.partition("/")[0]: ref.split for key, ref in found.refs.items()}
    assert splits == {"train": "train", "val": "val"} and not found.reasons()


@formats_with("put")
def test_a_missing_image_is_a_fault(tmp_path: Path, form: Format) -> None:
    form.put(tmp_path)
    (image,) = tmp_path.rglob("house.jpg")
    image.unlink()
    (message,) = bad(listed(tmp_path)).values()
    assert "its image is missing" in message


@formats_with("alone")
def test_images_without_a_file_of_annotations_may_have_no_objects(tmp_path: Path, form: Format) -> None:
    form.put(tmp_path)
    (tmp_path / form.alone.format("house")).unlink()
    failing = listed(tmp_path)
    if form.source != "yolo":
        ((key, message),) = bad(failing).items()
        assert key.endswith("house.jpg") and "--missing_annotations empty" in message
        failing = listed(tmp_path, missing_annotations="empty")
    assert not failing.reasons()
    (key,) = (key for key in failing.refs if key.endswith("house.jpg"))
    assert failing.annotations_of(key).objects == ()


@formats_with("alone")
def test_a_file_of_annotations_that_cannot_be_read_is_a_fault(tmp_path: Path, form: Format) -> None:
    form.put(tmp_path)
    (tmp_path / form.alone.format("house")).unlink()
    (tmp_path / form.alone.format("house")).mkdir()
    ((key, message),) = bad(listed(tmp_path)).items()
    assert key.endswith("house.jpg") and message.endswith("its annotations cannot be read: is a directory")


@formats_with("damage")
def test_a_fault_in_the_annotations_is_named_with_its_place(tmp_path: Path, form: Format) -> None:
    assert form.damage
    form.put(tmp_path / "in")
    form.damage.apply(tmp_path / "in")
    ((key, message),) = bad(listed(tmp_path / "in")).items()
    assert key.endswith("house.jpg") and form.damage.message in message
    convert(input=tmp_path / "in", output=tmp_path / "out", layout="detection", max_bad_fraction=1)
    assert [*quarantine(tmp_path / "out")] == [key]


@formats_with("document")
def test_a_file_that_is_cut_off_is_refused(tmp_path: Path, form: Format) -> None:
    form.put(tmp_path)
    text = (tmp_path / form.document).read_text()
    (tmp_path / form.document).write_text(text[:-30])
    with pytest.raises(UsageError, match=f"--input .*{form.document}.* (byte|line) [0-9]+"):
        listed(tmp_path)


@formats_with("bad_box")
def test_a_bad_box_is_dropped_or_fails_its_image(tmp_path: Path, form: Format) -> None:
    assert form.bad_box
    form.put(tmp_path / "in")
    form.bad_box.apply(tmp_path / "in")
    assert not bad(listed(tmp_path / "in"))
    settings = {"input": tmp_path / "in", "layout": "detection", "max_bad_fraction": 1}
    made = convert(**settings, output=tmp_path / "out")
    assert made.outcome["boxes"]["dropped"] == 1
    convert(**settings, output=tmp_path / "strict", bad_boxes="fail")
    ((key, line),) = quarantine(tmp_path / "strict").items()
    assert key.endswith("house.jpg") and line["reason"] == "BAD_ANNOTATION"


@pytest.fixture(scope="module")
def bucket() -> Iterator[Any]:
    with storage_emulator() as made:
        yield made


@formats_with("put")
def test_a_bucket_is_like_a_folder(tmp_path: Path, bucket: Any, form: Format) -> None:
    form.put(tmp_path / "in")
    local, remote = listed(tmp_path / "in"), listed(upload(bucket, tmp_path / "in", f"{tmp_path.name}"))
    assert remote.input.source == form.source and remote.ids == local.ids
    assert {key: (ref.label, ref.split, ref.annotations) for key, ref in remote.refs.items()} == {
        key: (ref.label, ref.split, ref.annotations) for key, ref in local.refs.items()
    }
