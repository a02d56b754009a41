"""What every annotation source does: one suite over small sets of all formats (`annotation_sets.formats`).

Boxes reach the records, folders are splits, a bucket is like a folder, and faults are named with their place.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.annotation_sets.coco import save
from helpers.annotation_sets.cvat import box_of as cvat_box
from helpers.annotation_sets.cvat import image_of, put_cvat
from helpers.annotation_sets.formats import FORMATS, Format
from helpers.annotation_sets.json_exports import ROOT, export, region, task
from helpers.cloud import storage_emulator, upload
from helpers.listing import Listed, listed, put_photos
from helpers.records import values

from shardwright.schemas.errors import UsageError

SIDES = ("xmin", "ymin", "xmax", "ymax")
#: A box is stored as float32 shares of the picture; formats write shares with six digits.
_PIXELS = 0.01


def formats_with(name: str) -> Any:
    """Returns a mark that runs a test for each format with a value of that field."""
    found = [key for key, form in FORMATS.items() if getattr(form, name)]
    return pytest.mark.parametrize("form", [FORMATS[key] for key in found], ids=found)


def read(form: Format, root: Path | str, **settings: Any) -> Listed:
    """Lists a set."""
    return listed(f"{root}/{form.folder}" if form.folder else root, **form.options(root), **settings)


@formats_with("boxes")
def test_records_contain_the_boxes(tmp_path: Path, form: Format) -> None:
    photos = {photo.name: photo for photo in form.put(tmp_path)}
    found = read(form, tmp_path)
    assert found.input.source == form.source and not found.faults()
    records = {Path(key).name: record for key, record in found.records().items()}
    assert records.keys() == {name for name, photo in photos.items() if photo.boxes or form.lists_all}
    for name, record in records.items():
        photo = photos[name]
        sides = np.array([values(record, f"image/object/bbox/{side}") for side in SIDES]).T * (photo.size * 2)
        texts = values(record, "image/object/class/text")
        boxes = sorted(zip(texts, sides.tolist(), strict=True))
        assert [label for label, _ in boxes] == [box[0] for box in sorted(photo.boxes)]
        for (_, stored), (_, *expected) in zip(boxes, sorted(photo.boxes), strict=True):
            np.testing.assert_allclose(stored, expected, atol=_PIXELS)


@formats_with("mask")
def test_masks_are_listed_with_their_states(tmp_path: Path, form: Format) -> None:
    """The state is a part of the reference, which tells a later run whether a mask changed."""
    form.put(tmp_path)
    found = read(form, tmp_path)
    assert found.input.source == form.source and not found.reasons() and len(found.refs) == 4
    for name in ("eagle", "apple", "house", "seagull"):
        path = tmp_path / form.mask.format(name)
        (key,) = (key for key in found.refs if key.endswith(form.image.format(name)))
        annotations = found.annotations_of(key)
        assert (annotations.semantic_mask or annotations.panoptic_mask) == str(path)
        state = path.stat()
        assert (annotations.mask_size, annotations.mask_version) == (state.st_size, str(state.st_mtime_ns))
    os.utime(tmp_path / form.mask.format("house"), ns=(1, 1))
    changed = [ref.key for ref in read(form, tmp_path).refs.values() if ref not in found.refs.values()]
    assert len(changed) == 1 and changed[0].endswith(form.image.format("house"))


@formats_with("splits")
def test_folders_are_splits(tmp_path: Path, form: Format) -> None:
    for split in ("train", "val"):
        form.put(tmp_path / split)
    found = read(form, tmp_path)
    splits = {key.partition("/")[0]: ref.split for key, ref in found.refs.items()}
    assert splits == {"train": "train", "val": "val"} and not found.reasons()
    assert {ref.split for ref in read(form, tmp_path / "train").refs.values()} == {""}


@formats_with("put")
def test_a_missing_image_is_a_fault(tmp_path: Path, form: Format) -> None:
    form.put(tmp_path)
    form.image_in(tmp_path).unlink()
    (message,) = read(form, tmp_path).faults().values()
    assert "its image" in message and "is missing" in message


@formats_with("alone")
def test_images_without_a_file_of_annotations_may_have_no_objects(tmp_path: Path, form: Format) -> None:
    form.put(tmp_path)
    (tmp_path / form.alone.format("house")).unlink()
    failing = read(form, tmp_path)
    if form.source != "yolo":
        ((key, message),) = failing.faults().items()
        assert key.endswith(form.image.format("house"))
        if form.mask:
            assert message == "there is no mask for it"
            return
        assert "--missing_annotations empty" in message
        failing = read(form, tmp_path, missing_annotations="empty")
    assert not failing.reasons()
    (key,) = (key for key in failing.refs if key.endswith(form.image.format("house")))
    assert failing.annotations_of(key).objects == ()


@formats_with("alone")
def test_a_file_of_annotations_that_cannot_be_read_is_a_fault(tmp_path: Path, form: Format) -> None:
    form.put(tmp_path)
    (tmp_path / form.alone.format("house")).unlink()
    (tmp_path / form.alone.format("house")).mkdir()
    ((key, message),) = read(form, tmp_path).faults().items()
    assert key.endswith(form.image.format("house"))
    assert message.endswith(
        "no mask for it" if form.mask else "its annotations cannot be read: is a directory"
    )


@formats_with("damage")
def test_a_fault_in_the_annotations_is_named_with_its_place(tmp_path: Path, form: Format) -> None:
    assert form.damage
    form.put(tmp_path)
    sound = read(form, tmp_path)
    form.damage.apply(tmp_path)
    found = read(form, tmp_path)
    ((key, message),) = found.faults(form.reason).items()
    assert key.endswith(form.image.format("house")) and form.damage.message in message
    assert found.refs == {**sound.refs, key: found.refs[key]}


@formats_with("document")
def test_a_file_that_is_cut_off_is_refused(tmp_path: Path, form: Format) -> None:
    form.put(tmp_path)
    text = (tmp_path / form.document).read_text()
    (tmp_path / form.document).write_text(text[:-30])
    with pytest.raises(UsageError, match=f"--input .*{form.document}.* (byte|line) [0-9]+"):
        read(form, tmp_path)


@formats_with("bad_box")
def test_a_bad_box_is_dropped_or_fails_its_image(tmp_path: Path, form: Format) -> None:
    assert form.bad_box
    form.put(tmp_path)
    sound = read(form, tmp_path)
    form.bad_box.apply(tmp_path)
    found = read(form, tmp_path)
    ((key, bad),) = found.refs.items() - sound.refs.items()
    assert key.endswith(form.image.format("house")) and found.refs.keys() == sound.refs.keys()
    house = found._replace(refs={key: bad})
    (dropped,), (failed,) = house.entries().values(), house.entries(bad_boxes="fail").values()
    assert dropped.outcome == "written" and dropped.boxes == {"written": 1, "dropped": 1}
    assert failed.reason == "BAD_ANNOTATION"


@pytest.mark.parametrize("source", sorted({form.source for form in FORMATS.values()}))
def test_a_folder_without_the_format_is_refused(tmp_path: Path, source: str) -> None:
    """The message names the input and says what it must be; `auto` reads class folders."""
    form = next(form for form in FORMATS.values() if form.source == source)
    put_photos(tmp_path / "in" / "ant")
    with pytest.raises(UsageError, match=f"--input {tmp_path / 'in'} "):
        listed(tmp_path / "in", layout=form.layout, source=source)
    assert listed(tmp_path / "in", layout="classification").input.source == "class_folders"


#: Files in class folders that look like annotations, and whether `--layout detection` reads them.
STRAY_FILES = {
    "coco": ({"ant/meta.json": '{"images": 3, "annotations": "none"}', "notes.json": '[{"images": []}]'}, ""),
    "voc": ({"ant/info.xml": "<annotation/>", "pom.xml": "<project/>"}, ""),
    "voc beside": ({"ant/eagle.xml": "<annotation/>"}, "voc"),
    "labelme": ({"ant/eagle.json": '{"shapes": [], "imagePath": "eagle.jpg"}'}, "labelme"),
    "yolo": ({"a.yaml": "names: [a]\nlr: 0.1\n", "classes.txt": "ant\n", "notes.json": '{"train": 1}'}, ""),
}


@pytest.mark.parametrize("name", STRAY_FILES)
def test_class_folders_with_other_files_stay_class_folders(tmp_path: Path, name: str) -> None:
    put_photos(tmp_path / "ant")
    files, source = STRAY_FILES[name]
    for path, text in files.items():
        (tmp_path / path).write_text(text)
    assert listed(tmp_path, layout="classification").input.source == "class_folders"
    if source:
        assert listed(tmp_path).input.source == source
        with pytest.raises(UsageError, match="choose --layout detection"):
            listed(tmp_path, layout="classification", source=source)


_TURNED = {"x": 50, "y": 50, "height": 10}
INVERTED = [
    (cvat_box("a", 9, 2, 3, 8, 'rotation="0.001"'), "its box (9, 2, 3, 8) is inverted"),
    (cvat_box("a", 3, 2, 3, 8, 'rotation="45"'), "its box (3, 2, 3, 8) has no area"),
    ('<ellipse label="a" cx="9" cy="8" rx="-4" ry="2"/>', "its box (13, 6, 5, 10) is inverted"),
    ('<ellipse label="a" cx="9" cy="8" rx="4" ry="0" rotation="30"/>', "(5, 8, 13, 8) has no area"),
    ('<mask label="a" rle="12" left="3" top="2" width="-3" height="-4"/>', "instead of -3 x -4"),
    ({**_TURNED, "width": -20, "rotation": 0.001}, "is inverted"),
    ({**_TURNED, "width": 0, "rotation": 45}, "has no area"),
    ({"x": 50, "y": 50, "radiusX": 20, "radiusY": -10, "rotation": 0}, "is inverted"),
]


@pytest.mark.parametrize(("shape", "why"), INVERTED)
def test_inverted_shapes_are_bad(tmp_path: Path, shape: Any, why: str) -> None:
    """A rotation would make their corners look sound. Label Studio's shapes are values, CVAT's are XML."""
    photo, sound = put_photos(tmp_path / "in" / "images", ["eagle", "apple"])
    if isinstance(shape, str):
        put_cvat(tmp_path / "in", [image_of(photo, 0, shapes=shape), image_of(sound, 1)])
    else:
        kind = "ellipselabels" if "radiusX" in shape else "rectanglelabels"
        tasks = [task(ROOT + photo.name, region(kind, "a", photo, **shape)), *export([sound])]
        save(tmp_path / "in" / "out.json", tasks)
    entries = listed(tmp_path / "in").entries(bad_boxes="fail").values()
    (entry,) = (entry for entry in entries if entry.outcome == "quarantined")
    assert entry.reason == "BAD_ANNOTATION" and why in entry.message


@formats_with("put")
def test_a_relative_path_is_like_an_absolute_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Format
) -> None:
    form.put(tmp_path)
    expected = read(form, tmp_path)
    (tmp_path / "docs").mkdir()
    for here, where in ((".", "."), (".", "./" if not form.folder else "."), ("docs", "..")):
        monkeypatch.chdir(tmp_path / here)
        found = read(form, where)
        assert found.refs.keys() == expected.refs.keys() and found.reasons() == expected.reasons()


@pytest.fixture(scope="module")
def bucket() -> Iterator[Any]:
    with storage_emulator() as made:
        yield made


@formats_with("put")
def test_a_bucket_is_like_a_folder(tmp_path: Path, bucket: Any, form: Format) -> None:
    form.put(tmp_path / "in")
    local, remote = read(form, tmp_path / "in"), read(form, upload(bucket, tmp_path / "in", tmp_path.name))
    assert remote.input.source == form.source and remote.ids == local.ids
    assert remote.reasons() == local.reasons()
    for key, ref in local.refs.items():
        assert remote.refs[key].label == ref.label and remote.refs[key].split == ref.split
        assert form.mask or remote.refs[key].annotations == ref.annotations
    if form.mask:
        assert remote.records() == local.records()


def test_a_row_whose_path_leads_out_of_the_bucket_is_a_bad_row(tmp_path: Path, bucket: Any) -> None:
    (photo, *_) = put_photos(tmp_path / "in")
    rows = [f"{name},bird,1,2,30,40\n" for name in (photo.name, "../../a.jpg")]
    (tmp_path / "in" / "boxes.csv").write_text("filename,class,xmin,ymin,xmax,ymax\n" + "".join(rows))
    found = listed(f"{upload(bucket, tmp_path / 'in', tmp_path.name)}/boxes.csv")
    assert found.refs[photo.name].is_candidate
    message = "line 3 of boxes.csv: its path '../../a.jpg' leads out of the bucket"
    assert found.faults("BAD_ROW") == {"boxes.csv:line 3": message}
