"""Pascal VOC as it is found in practice: nested folders, other extensions and cases, and unclear pairs."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.annotation_sets.voc import put_xml, xml_of
from helpers.listing import Listed, Photo, listed, put_photos
from helpers.records import quarantine
from PIL import Image

from shardwright.pipelines.convert import convert


def put(folder: Path, *names: str) -> None:
    """Writes small pictures; each has a box of class `thing` in its XML file, once that exists."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (30, 20), (len(name) * 7 % 256, 90, 40)).save(path)


def put_file(path: Path, filename: str, label: str = "thing") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    photo = Photo(filename, (30, 20), ((label, 1, 2, 21, 12),))
    path.write_text(xml_of(photo))


def labels(found: Listed) -> dict[str, str]:
    """Returns key -> class of all images with annotations."""
    return {key: ref.label for key, ref in found.refs.items() if ref.is_candidate}


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
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "readme.txt").write_text("x")
    found = listed(tmp_path)
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
    found = listed(tmp_path)
    assert labels(found) == {}
    messages = found.faults()
    both = "x/a.jpg and y/a.jpg"
    assert messages["JPEGImages/x/a.jpg"] == f"there are several images that its XML file fits: {both}"
    assert messages["JPEGImages/y/a.jpg"] == messages["JPEGImages/x/a.jpg"]
    assert messages["Annotations/a.xml"] == f"it fits several images: {both}"
    assert (
        messages["JPEGImages/x/b.jpg"]
        == "there are several XML files that could be its own: 1/b.xml and 2/b.xml"
    )
    assert messages["Annotations/1/b.xml"] == messages["Annotations/2/b.xml"] == "its image is missing"


def test_annotations_of_another_size_are_quarantined(tmp_path: Path) -> None:
    photos = put_photos(tmp_path / "in" / "JPEGImages")
    put_xml(tmp_path / "in" / "Annotations", photos)
    wrong = photos[2]._replace(size=(photos[2].size[0] + 5, photos[2].size[1]))
    put_xml(tmp_path / "in" / "Annotations", [wrong])
    convert(input=tmp_path / "in", output=tmp_path / "out", layout="detection", max_bad_fraction=0.9)
    ((key, line),) = quarantine(tmp_path / "out").items()
    assert key == "JPEGImages/house.jpg" and "its annotations are for" in line["message"]
