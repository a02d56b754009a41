"""Pascal VOC and folders of masks: lists, splits, and what is found in practice: odd names, unclear pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.annotation_sets.semantic_masks import put_set
from helpers.annotation_sets.voc import put_list, put_voc, put_xml, xml_of
from helpers.listing import Listed, Photo, listed, put_photos, refusal
from helpers.records import picture
from helpers.trees import put_files
from PIL import Image

from shardwright.core.sources.voc import named_images, parse_voc


def put(folder: Path, *names: str) -> None:
    """Writes small pictures; each has a box of class `thing` in its XML file, once that exists."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (30, 20), (len(name) * 7 % 256, 90, 40)).save(path)


def put_file(path: Path, filename: str, label: str = "thing") -> None:
    photo = Photo(filename, (30, 20), ((label, 1, 2, 21, 12),))
    put_files(path.parent, {path.name: xml_of(photo)})


def labels(found: Listed) -> dict[str, str]:
    """Returns key -> class of all images with annotations."""
    return {key: ref.label for key, ref in found.refs.items() if ref.is_candidate}


def test_lists_give_splits(tmp_path: Path) -> None:
    root = tmp_path / "VOCdevkit" / "VOC2012"
    photos = put_voc(root)
    put_list(root, "Main", train=("eagle", "gone"), val=("house",), trainval=("eagle", "house", "apple"))
    put_list(root, "Main", aeroplane_train=("apple  1",))
    for where, prefix in ((tmp_path / "VOCdevkit", "VOC2012/"), (root, "")):
        found = listed(where)
        assert found.refs[f"{prefix}JPEGImages/eagle.jpg"].split == "train"
        assert found.refs[f"{prefix}JPEGImages/house.jpg"].split == "val"
        annotations = found.annotations_of(f"{prefix}JPEGImages/house.jpg")
        assert annotations.size == photos[2].size and not annotations.relative
        flags = [(one.difficult, one.truncated, one.occluded, one.view) for one in annotations.objects or ()]
        assert flags == [(False, True, None, "Left"), (True, True, None, "Left")]
        assert found.reasons() == {
            f"{prefix}JPEGImages/apple.jpg": "not_listed",
            f"{prefix}JPEGImages/seagull.jpg": "not_listed",
            f"{prefix}JPEGImages/gone": "BAD_ANNOTATION",
        }
    put_list(root, "Main", val=("house", "eagle"))
    assert listed(root).faults() == {
        "JPEGImages/eagle.jpg": "it is listed both in train and in val",
        "JPEGImages/gone": "it is listed, but its image is missing",
    }


def test_listed_names_may_have_blanks_quotes_and_flags(tmp_path: Path) -> None:
    names = ("IMG (1)", "IMG (2)", "a")
    for name in names:
        put(tmp_path / "JPEGImages", f"{name}.jpg")
        put_file(tmp_path / "Annotations" / f"{name}.xml", f"{name}.jpg")
    put_list(tmp_path, "Main", train=("IMG (1)", "a"), val=('"IMG (2)"',))
    splits = {key: ref.split for key, ref in listed(tmp_path).refs.items() if ref.is_candidate}
    assert [splits[f"JPEGImages/{name}.jpg"] for name in names] == ["train", "val", "train"]
    put_list(tmp_path, "Main", train=("a  1", "gone -1"), val=('"IMG (2)" 1',))
    found = listed(tmp_path)
    assert found.faults() == {"JPEGImages/gone": "it is listed, but its image is missing"}
    assert found.refs["JPEGImages/a.jpg"].split == "train" and len(found.reasons()) == 2


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
    splits = {key.split("/")[0]: ref.split for key, ref in found.refs.items()}
    assert splits == {"train": "train", "validation": "validation"} and not found.reasons()
    put_photos(tmp_path / "more", ["rose"])
    found = listed(tmp_path)
    assert "more, left out because" in found.input.detected_as
    assert found.reasons() == {"more/rose.jpg": "not_listed"}
    put_xml(tmp_path / "more", put_photos(tmp_path / "more", ["rose"]))
    assert "may be splits, but more, which is Pascal VOC too, is not; move" in refusal(tmp_path, "detection")


def test_segmentation_masks_are_read(tmp_path: Path) -> None:
    photos = put_voc(tmp_path)
    (tmp_path / "SegmentationClass").mkdir()
    for number, photo in enumerate(photos[:3], 1):
        mask = Image.new("P", photo.size, number)
        mask.putpalette([i * 7 % 256 for i in range(768)])
        mask.save((tmp_path / "SegmentationClass" / photo.name).with_suffix(".png"))
    found = listed(tmp_path, layout="segmentation")
    assert found.reasons() == {"JPEGImages/seagull.jpg": "not_listed"}
    put_list(tmp_path, "Segmentation", train=("eagle", "apple"), val=("house", "seagull"))
    found = listed(tmp_path, layout="segmentation")
    assert found.reasons() == {"JPEGImages/seagull.jpg": "BAD_ANNOTATION"}
    assert [found.refs[f"JPEGImages/{photo.name}"].split for photo in photos] == ["train"] * 2 + ["val"] * 2
    records = found.records()
    for number, photo in enumerate(photos[:3], 1):
        stored = picture(records[f"JPEGImages/{photo.name}"], "image/segmentation/class/encoded")
        assert (stored == number).all()


def test_segmentation_needs_masks(tmp_path: Path) -> None:
    put_voc(tmp_path)
    assert "SegmentationClass" in refusal(tmp_path, "segmentation")


def test_the_file_names_in_an_xml_file_are_filename_then_path() -> None:
    texts = "<filename>C:\\photos\\a.jpg</filename><path>/home/ann/b.jpg</path>"
    assert named_images(f"<annotation>{texts}</annotation>".encode()) == ["a.jpg", "b.jpg"]


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


ARRANGEMENTS = {
    "nested in both": ("Annotations/a/b/{}.xml", "JPEGImages/a/b/{}.jpg"),
    "nested images": ("Annotations/{}.xml", "JPEGImages/2024/may/{}.jpg"),
    "nested files": ("Annotations/2024/may/{}.xml", "JPEGImages/{}.jpg"),
    "side by side, nested": ("batch 1/part/{}.xml", "batch 1/part/{}.jpg"),
    "two folders, nested": ("xml/a/{}.xml", "img/a/{}.jpg"),
    "two folders": ("labels/{}.xml", "data/{}.jpg"),  # FiftyOne's VOCDetectionDataset
    "other images": ("annotations/{}.XML", "photos/{}.jpg"),
    "other folders": ("labels/one/{}.xml", "pictures/two/{}.jpg"),
    "folder in folder": ("set/ANNOTATIONS/{}.XML", "set/jpegimages/{}.JPG"),
    "mixed case": ("annotations/{}.xml", "Images/{}.Jpeg"),
}


@pytest.mark.parametrize("name", ARRANGEMENTS)
def test_images_and_files_are_found_in_any_folders(tmp_path: Path, name: str) -> None:
    xml, image = ARRANGEMENTS[name]
    for stem in ("IMG 1", "Grüße-2"):
        put(tmp_path, image.format(stem))
        put_file(tmp_path / xml.format(stem), f"{stem}.jpg")
    found = listed(put_files(tmp_path, {"docs/readme.txt": "x"}))
    assert found.input.source == "voc"
    assert labels(found) == {image.format(stem): "thing" for stem in ("IMG 1", "Grüße-2")}
    assert found.faults() == {}


@pytest.mark.parametrize(
    ("xml", "message", "image"),
    [
        ("1", "a.jpg", "a.jpeg"),
        ("1", "A.JPG", "a.jpg"),
        ("Photo", "other.jpg", "PHOTO.png"),
        ("1", "C:\\\\photos\\\\a b.jpg", "a b.JPEG"),
        ("1", "a", "a.webp"),
        ("a.rf.123", "a.jpg", "sub/a.rf.123.jpg"),
    ],
)
def test_names_may_differ_in_extension_and_case(tmp_path: Path, xml: str, message: str, image: str) -> None:
    put(tmp_path / "JPEGImages", image, "more/first.jpg")
    put_file(tmp_path / "Annotations" / f"{xml}.xml", message)
    put_file(tmp_path / "Annotations" / "more" / "first.xml", "first.jpg", "first")
    found = listed(tmp_path)
    assert labels(found) == {f"JPEGImages/{image}": "thing", "JPEGImages/more/first.jpg": "first"}
    assert found.faults() == {}


def test_exact_names_go_before_similar_ones(tmp_path: Path) -> None:
    put(tmp_path / "JPEGImages", "x/a.jpg", "y/A.jpg")
    put_file(tmp_path / "Annotations" / "a.xml", "no", "small")
    put_file(tmp_path / "Annotations" / "A.xml", "no", "large")
    assert labels(listed(tmp_path)) == {"JPEGImages/x/a.jpg": "small", "JPEGImages/y/A.jpg": "large"}


def test_images_of_one_stem_need_a_file_that_names_one(tmp_path: Path) -> None:
    put(tmp_path / "JPEGImages", "a.jpg", "a.png", "b.jpg", "b.png", "c.jpg")
    put_file(tmp_path / "Annotations" / "a.xml", "elsewhere.jpg")
    put_file(tmp_path / "Annotations" / "b.xml", "b.png")
    put_file(tmp_path / "Annotations" / "c.xml", "c.jpg")
    found = listed(tmp_path)
    assert labels(found) == {"JPEGImages/b.png": "thing", "JPEGImages/c.jpg": "thing"}
    unclear = "there are several images that its XML file fits"
    assert found.faults() == {
        "JPEGImages/a.jpg": f"{unclear}: a.jpg and a.png",
        "JPEGImages/a.png": f"{unclear}: a.jpg and a.png",
        "JPEGImages/b.jpg": f"{unclear}: b.jpg and b.png",
        "Annotations/a.xml": "it fits several images: a.jpg and a.png",
    }


def test_a_name_in_two_folders_is_unclear(tmp_path: Path) -> None:
    put(tmp_path / "JPEGImages", "x/a.jpg", "y/a.jpg", "x/b.jpg")
    put_file(tmp_path / "Annotations" / "a.xml", "a.jpg")
    put_file(tmp_path / "Annotations" / "1" / "b.xml", "b.jpg")
    put_file(tmp_path / "Annotations" / "2" / "b.xml", "b.jpg")
    both = "x/a.jpg and y/a.jpg"
    assert listed(tmp_path).faults() == {
        "JPEGImages/x/a.jpg": f"there are several images that its XML file fits: {both}",
        "JPEGImages/y/a.jpg": f"there are several images that its XML file fits: {both}",
        "JPEGImages/x/b.jpg": "there are several XML files that could be its own: 1/b.xml and 2/b.xml",
        "Annotations/a.xml": f"it fits several images: {both}",
        "Annotations/1/b.xml": "its image is missing",
        "Annotations/2/b.xml": "its image is missing",
    }


def test_splits_and_nested_folders_are_read(tmp_path: Path) -> None:
    for folder in ("train/a", "train", "val"):
        put_set(tmp_path / "images" / folder, tmp_path / "masks" / folder)
    (tmp_path / "images" / "docs").mkdir()  # a folder without images does not count
    found = listed(tmp_path / "images", "segmentation", mask_dir=f"{tmp_path}/masks/")
    assert ", splits train and val)" in found.input.detected_as
    assert len(found.refs) == 9 and not found.reasons()
    assert all(ref.split == key.partition("/")[0] for key, ref in found.refs.items())
    mask = found.annotations_of("train/a/apple.jpg").semantic_mask
    assert mask == f"{tmp_path}/masks/train/a/apple.png"
    assert {ref.label for ref in found.refs.values()} == {""}


def test_folders_that_are_not_splits_are_ignored(tmp_path: Path) -> None:
    put_set(tmp_path / "images" / "train", tmp_path / "masks" / "train")
    put_set(tmp_path / "images" / "berlin", tmp_path / "masks" / "berlin")
    found = listed(tmp_path / "images", "segmentation", mask_dir=tmp_path / "masks")
    assert {ref.split for ref in found.refs.values()} == {""} and not found.reasons()


def test_missing_partners_are_reported(tmp_path: Path) -> None:
    put_set(tmp_path / "images", tmp_path / "masks", ("eagle", "apple", "house", "rose"))
    (tmp_path / "masks" / "eagle.png").unlink()
    (tmp_path / "images" / "apple.jpg").unlink()
    put_files(tmp_path, {"masks/notes.txt": "x", "masks/.hidden.png": "", "images/notes.txt": "x"})
    (tmp_path / "masks" / "rose.png").rename(tmp_path / "masks" / "rose.bmp.png")
    with Image.open(tmp_path / "images" / "rose.jpg") as rose:
        Image.new("L", rose.size).save(tmp_path / "masks" / "rose.bmp")
    (tmp_path / "masks" / "house.bmp").touch()  # PNG takes precedence
    found = listed(tmp_path / "images", "segmentation", mask_dir=tmp_path / "masks")
    assert found.reasons() == {
        "eagle.jpg": "BAD_ANNOTATION",
        "masks/apple.png": "BAD_ANNOTATION",
        "masks/rose.bmp.png": "BAD_ANNOTATION",
        "notes.txt": "not_an_image",
    }
    for name, mask in (("rose.jpg", "rose.bmp"), ("house.jpg", "house.png")):
        assert found.annotations_of(name).semantic_mask == f"{tmp_path}/masks/{mask}"


@pytest.mark.parametrize("relative", [False, True])
def test_masks_among_the_images_are_recognized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relative: bool
) -> None:
    put_set(tmp_path / "images", tmp_path / "images" / "masks")
    monkeypatch.chdir(tmp_path)
    masks = Path("images/masks") if relative else tmp_path / "images" / "masks"
    found = listed(tmp_path / "images", "segmentation", mask_dir=masks)
    assert found.refs.keys() == {"eagle.jpg", "apple.jpg", "house.jpg"} and not found.reasons()


def test_wrong_use_is_refused(tmp_path: Path) -> None:
    put_set(tmp_path / "images", tmp_path / "masks")
    images, source = tmp_path / "images", "semantic_masks"
    gone = refusal(images, "segmentation", mask_dir=tmp_path / "gone")
    assert f"--mask_dir {tmp_path / 'gone'} is not a folder" in gone
    assert "needs --mask_dir" in refusal(images, "segmentation", source=source)
    boxes = refusal(images, "detection", source=source, mask_dir=tmp_path / "masks")
    assert "choose --layout segmentation" in boxes
