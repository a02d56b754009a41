"""Pascal VOC: its folders and lists, XML beside images, hostile XML, and masks."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.annotation_sets.voc import put_list, put_voc, put_xml
from helpers.listing import Listed, Photo, listed, put_photos
from helpers.records import examples, picture, value
from PIL import Image

from shardwright.core.sources.voc import parse_voc
from shardwright.pipelines.convert import convert
from shardwright.schemas.errors import UsageError


def check_objects(found: Listed, key: str, photo: Photo) -> None:
    found.check_boxes(key, photo)
    annotations = found.annotations_of(key)
    assert annotations.size == photo.size and not annotations.relative
    for number, item in enumerate(annotations.objects or ()):
        assert item.difficult is bool(number % 2) and item.truncated is True and item.view == "Left"
        assert item.occluded is None


def test_lists_give_splits(tmp_path: Path) -> None:
    root = tmp_path / "VOCdevkit" / "VOC2012"
    photos = put_voc(root)
    put_list(root, "Main", train=("eagle", "gone"), val=("apple",), trainval=("eagle", "apple", "house"))
    put_list(root, "Main", aeroplane_train=("house  1",))
    for where, prefix in ((tmp_path / "VOCdevkit", "VOC2012/"), (root, "")):
        found = listed(where)
        assert found.refs[f"{prefix}JPEGImages/eagle.jpg"].split == "train"
        assert found.refs[f"{prefix}JPEGImages/apple.jpg"].split == "val"
        check_objects(found, f"{prefix}JPEGImages/apple.jpg", photos[1])
        assert found.reasons() == {
            f"{prefix}JPEGImages/house.jpg": "not_listed",
            f"{prefix}JPEGImages/seagull.jpg": "not_listed",
            f"{prefix}JPEGImages/gone": "BAD_ANNOTATION",
        }
    put_list(root, "Main", val=("apple", "eagle"))
    assert "both in train and in val" in listed(root).refs["JPEGImages/eagle.jpg"].message


def test_trainval_alone_is_not_a_split(tmp_path: Path) -> None:
    put_voc(tmp_path)
    put_list(tmp_path, "Main", trainval=("eagle", "apple"))
    found = listed(tmp_path)
    assert {ref.split for ref in found.refs.values()} == {""}
    assert set(found.reasons().values()) == {"not_listed"}
    put_list(tmp_path, "Main", test=("house",))
    assert {ref.split for ref in listed(tmp_path).refs.values() if ref.is_candidate} == {"trainval", "test"}


def test_two_years_are_read_together(tmp_path: Path) -> None:
    put_voc(tmp_path / "VOC2007", ("rose", "coach"))
    put_voc(tmp_path / "VOC2012")
    found = listed(tmp_path)
    assert len(found.refs) == 6 and "VOC2007/JPEGImages/rose.jpg" in found.refs


def test_two_folders_in_each_split_are_read(tmp_path: Path) -> None:
    for split in ("train", "validation"):
        put_xml(tmp_path / split / "labels", put_photos(tmp_path / split / "data"))
    found = listed(tmp_path)
    assert {key.split("/")[0]: ref.split for key, ref in found.refs.items()} == {
        "train": "train",
        "validation": "validation",
    }
    assert not found.reasons()


def test_xml_files_may_be_named_differently_from_their_images(tmp_path: Path) -> None:
    """If the names differ, the content of the XML file names its image: filename, then path."""
    photos = put_photos(tmp_path / "pictures")
    put_xml(tmp_path / "xml", photos)
    for number, photo in enumerate(photos):
        stem = photo.name.rpartition(".")[0]
        text = (tmp_path / "xml" / f"{stem}.xml").read_text()
        (tmp_path / "xml" / f"{stem}.xml").unlink()
        texts = (
            f"<filename>C:\\photos\\{photo.name}</filename>",
            f"<filename>unknown</filename><path>/home/ann/{photo.name}</path>",
            f"<filename>{stem}</filename>",
            f"<filename>{photo.name}</filename>",
        )[number]
        head, tail = text.split("<annotation>")
        (tmp_path / "xml" / f"{number}.xml").write_text(f"{head}<annotation>{texts}{tail}")
    found = listed(tmp_path, source="voc")
    assert not found.reasons() and len(found.refs) == len(photos)
    for photo in photos:
        check_objects(found, f"pictures/{photo.name}", photo)
    # The file could mean two images, so neither is used.
    (tmp_path / "pictures" / "more").mkdir()
    shutil.copy(tmp_path / "pictures" / photos[1].name, tmp_path / "pictures" / "more")
    assert set(listed(tmp_path, source="voc").reasons()) == {
        f"pictures/{photos[1].name}",
        f"pictures/more/{photos[1].name}",
        "xml/1.xml",
    }


def put_masks(root: Path, photos: list[Photo]) -> None:
    """Writes palette PNGs like VOC's."""
    (root / "SegmentationClass").mkdir(parents=True)
    for number, photo in enumerate(photos):
        mask = Image.new("P", photo.size, number + 1)
        mask.putpalette([i * 7 % 256 for i in range(768)])
        mask.save((root / "SegmentationClass" / photo.name).with_suffix(".png"))


def test_segmentation_masks_are_read(tmp_path: Path) -> None:
    photos = put_voc(tmp_path / "in")
    put_masks(tmp_path / "in", photos[:3])
    found = listed(tmp_path / "in", layout="segmentation")
    assert found.reasons() == {"JPEGImages/seagull.jpg": "not_listed"}
    put_list(tmp_path / "in", "Segmentation", train=("eagle", "apple"), val=("house", "seagull"))
    found = listed(tmp_path / "in", layout="segmentation")
    assert found.reasons() == {"JPEGImages/seagull.jpg": "BAD_ANNOTATION"}
    (tmp_path / "classes.txt").write_text("background\none\ntwo\nthree\n")
    made = convert(
        input=tmp_path / "in",
        output=tmp_path / "out",
        layout="segmentation",
        class_names=tmp_path / "classes.txt",
        max_bad_fraction=1,
    )
    assert made.dataset.splits.keys() == {"train", "val"}
    for records in examples(tmp_path / "out").values():
        for record in records:
            number = ["eagle", "apple", "house"].index(Path(value(record, "image/filename")).stem)
            assert (picture(record, "image/segmentation/class/encoded") == number + 1).all()


def test_segmentation_needs_masks(tmp_path: Path) -> None:
    put_voc(tmp_path)
    with pytest.raises(UsageError, match="SegmentationClass"):
        listed(tmp_path, layout="segmentation")


def test_odd_xml_is_read() -> None:
    annotations = parse_voc(
        b"<annotation><object><name> a <b/>b</name><bndbox><xmin>1.5</xmin><ymin>x</ymin><xmax/></bndbox>"
        b"<difficult>Unspecified</difficult><pose/></object><object/><size><width>0</width></size></annotation>"
    )
    first, second = annotations.objects or ()
    assert annotations.size is None and first.box and first.box[0] == 1.5 and np.isnan(first.box[1:]).all()
    assert first.difficult is None and first.view is None
    assert second.label == "" and second.box and np.isnan(second.box).all()
    latin = '<?xml version="1.0" encoding="ISO-8859-1"?><annotation><object><name>café</name></object>'
    assert (parse_voc(f"{latin}</annotation>".encode("latin-1")).objects or ())[0].label == "café"
