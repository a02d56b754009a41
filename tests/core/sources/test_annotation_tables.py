"""CSV files with rows for images: box tables, Open Images, and a column of 0 and 1 for each class."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers.annotation_sets.box_table import HEADER, NAMES, boxes_of, in_any_order, put, rows_of
from helpers.annotation_sets.open_images import MIDS, put_csv
from helpers.annotation_sets.open_images import rows_of as open_images_rows
from helpers.listing import Listed, Photo, listed, put_photos, refusal


@pytest.fixture
def photos(tmp_path: Path) -> list[Photo]:
    """Photos; all but the first have boxes."""
    return put_photos(tmp_path / "images", ("eagle", *NAMES))


def check(found: Listed, photos: list[Photo], prefix: str = "") -> None:
    """Checks that every photo with boxes is listed, with its boxes."""
    with_boxes = {prefix + photo.name: photo for photo in photos if photo.boxes}
    assert found.refs.keys() == with_boxes.keys()
    for key, photo in with_boxes.items():
        assert boxes_of(found.annotations_of(key), photo) == sorted(photo.boxes)


@pytest.mark.parametrize("order", in_any_order([]))
def test_rows_of_an_image_may_be_anywhere(tmp_path: Path, photos: list[Photo], order: str) -> None:
    found = listed(put(tmp_path / "labels.csv", HEADER, in_any_order(rows_of(photos))[order]))
    assert found.input.source == "box_table" and not found.reasons() and not found.ids
    check(found, photos)
    for photo in photos[1:]:
        annotations = found.annotations_of(photo.name)
        assert annotations.size == photo.size and not annotations.relative
    assert "corners in pixels" in found.input.detected_as and "'filename'" in found.input.detected_as


@pytest.mark.parametrize(
    ("form", "header"),
    [
        ("xmin,xmax,ymin,ymax,class,filename", "x_min,x_max,y_min,y_max,label,image_path"),
        ("filename,xmin,ymin,xmax,ymax,class", "Image,X1,Y1,X2,Y2,Class Name"),
        ("class,xmin,ymin,w,h,filename,width,height",
         "label_name,bbox_x,bbox_y,bbox_width,bbox_height,image_name,image_width,image_height"),
        ("filename,class,xmin,ymin,w,h", "path,category,x,y,w,h"),
    ],
)  # fmt: skip
def test_other_orders_and_spellings_of_columns_are_recognized(
    tmp_path: Path, photos: list[Photo], form: str, header: str
) -> None:
    check(listed(put(tmp_path / "boxes.csv", header, rows_of(photos, form))), photos)


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_other_delimiters_quotes_and_line_ends_are_recognized(
    tmp_path: Path, photos: list[Photo], ending: str
) -> None:
    rows = [row.replace("thing", '"thing"').replace(",", ";") for row in rows_of(photos)]
    path = tmp_path / "boxes.csv"
    path.write_bytes(b"\xef\xbb\xbf" + ending.join([HEADER.replace(",", ";"), *rows]).encode())
    check(listed(path), photos)


def test_files_without_a_header_are_read(tmp_path: Path, photos: list[Photo]) -> None:
    rows = rows_of(photos, "filename,xmin,ymin,xmax,ymax,class", folder="images/")
    rows.insert(2, f"images/{photos[0].name},,,,,")
    found = listed(put(tmp_path / "train.csv", "", rows))
    assert "no header" in found.input.detected_as
    assert found.annotations_of(f"images/{photos[0].name}").objects == ()
    del found.refs[f"images/{photos[0].name}"]
    check(found, photos, "images/")


def test_files_without_a_header_may_have_numbers_as_classes(tmp_path: Path, photos: list[Photo]) -> None:
    name = photos[1].name
    found = listed(put(tmp_path / "a.csv", "", [f"images/{name},50,60,70,80,3"]))
    assert found.ids == {"3": 3} and found.refs[f"images/{name}"].label == "3"
    numbers = put(tmp_path / "b.csv", "", [f"images/{name},1,2,30,40,50"])
    assert "the second or the last number" in refusal(numbers, "detection")
    rows = [f"images/{name},1,2,30,40,cat", f"images/{name},50,60,30,40,cat"]
    extents = refusal(put(tmp_path / "c.csv", "", rows), "detection")
    assert "row 2 is not path,x1,y1,x2,y2,class: its box ends before it begins" in extents


def test_shares_are_recognized(tmp_path: Path, photos: list[Photo]) -> None:
    found = listed(put(tmp_path / "boxes.csv", HEADER, rows_of(photos, share=True)))
    assert "shares of width and height" in found.input.detected_as
    assert all(found.annotations_of(photo.name).relative for photo in photos[1:])
    check(found, photos)


def test_units_are_not_guessed(tmp_path: Path, photos: list[Photo]) -> None:
    name = photos[1].name
    mixed = put(tmp_path / "a.csv", HEADER, [f"{name},9,9,cat,1,2,30,40", f"{name},9,9,cat,0.1,0.2,0.3,0.4"])
    message = "line 3 is in shares of the image and the one in line 2 in pixels"
    assert message in refusal(mixed, "detection")
    unclear = put(tmp_path / "b.csv", HEADER, [f"{name},9,9,cat,0,0,1,1"] * 2)
    assert "consist of 0 and 1" in refusal(unclear, "detection")
    # The first rows decide; a later row in another unit is a fault of its image.
    width, height = photos[2].size
    rows = [f"{photos[2].name},{width},{height},cat,1,2,30,40"] * 4000
    found = listed(put(tmp_path / "c.csv", HEADER, [*rows, f"{name},0,0,cat,0.1,0.2,0.3,0.4"]))
    assert found.reasons() == {name: "BAD_ANNOTATION"}
    assert "line 4002 of c.csv: its box (0.1, 0.2, 0.3, 0.4) is in shares" in found.refs[name].message


def test_messages_about_faults_name_the_line(tmp_path: Path, photos: list[Photo]) -> None:
    names = [photo.name for photo in photos]
    (width, height) = photos[3].size
    rows = [
        f"{names[1]},0,0,cat,1,2,30,forty",
        f"{names[2]},0,0,cat,1,2,30",
        f"{names[3]},{width},{height},cat,1,2,30,40",
        f"{names[3]},{width},{height + 1},cat,1,2,30,40",
        ",0,0,cat,1,2,30,40",
        "gone.jpg,0,0,cat,1,2,30,40",
        "",
        f'{names[4]},0,0,"a ""cat""",1,2,30,40',
        f'{names[0]},0,0,"cat,1,2,30,40',
    ]
    found = listed(put(tmp_path / "boxes.csv", HEADER, rows))
    assert found.reasons() == {
        **dict.fromkeys([*names[:4], "gone.jpg"], "BAD_ANNOTATION"), "boxes.csv:line 6": "BAD_ROW"
    }  # fmt: skip
    messages = {key: ref.message for key, ref in found.refs.items()}
    assert messages[names[0]] == "line 10 of boxes.csv: it has 3 cells instead of 8"  # a quote never closes
    assert messages["boxes.csv:line 6"] == "line 6 of boxes.csv: it names no image"
    assert messages[names[1]] == "line 2 of boxes.csv: ymax is 'forty', which is not a number"
    assert messages[names[2]] == "line 3 of boxes.csv: it has 7 cells instead of 8"
    assert "two sizes, in lines 4 and 5" in messages[names[3]]
    assert messages["gone.jpg"] == "its image is missing"
    assert found.refs[names[4]].label == 'a "cat"'


@pytest.mark.parametrize(
    ("path", "folder", "prefix"),
    [
        ("{images}/{name}", ".", "images/"),
        ("../images/{name}", "tables", "images/"),
        ("images/../images/./{name}", ".", "images/"),
        (r"C:\photos\{name}", ".", ""),
    ],
)
def test_paths_may_lead_elsewhere_or_be_of_another_machine(
    tmp_path: Path, photos: list[Photo], path: str, folder: str, prefix: str
) -> None:
    images = tmp_path / "images"
    rows = []
    for photo in photos:
        name = path.format(images=images, name=photo.name)
        rows += [row.replace(photo.name, name) for row in rows_of([photo])]
    found = listed(put(tmp_path / folder / "boxes.csv", HEADER, rows))
    assert not found.reasons()
    check(found, photos, prefix)
    assert all(Path(ref.uri).samefile(images / ref.key.removeprefix(prefix)) for ref in found.refs.values())


def test_several_files_give_splits(tmp_path: Path) -> None:
    expected = {}
    for split in ("train", "test"):
        photos = put_photos(tmp_path / "in" / "images" / split, ("eagle", "apple"))
        put(tmp_path / "in" / f"{split}_labels.csv", HEADER, rows_of(photos))
        expected[f"images/{split}/{photos[1].name}"] = split
    found = listed(tmp_path / "in")
    assert {key: ref.split for key, ref in found.refs.items()} == expected


def test_tables_of_boxes_are_detected_or_refused(tmp_path: Path, photos: list[Photo]) -> None:
    several = put(tmp_path / "several.csv", HEADER, rows_of(photos))
    assert "choose --layout detection" in refusal(several)
    text = put(tmp_path / "several.txt", HEADER, rows_of(photos))
    assert listed(text).refs.keys() == listed(several).refs.keys()
    one = put(tmp_path / "one.csv", HEADER, rows_of(photos[1:2], folder="images/"))
    assert listed(one, layout="classification").input.source == "manifest"
    far = put(tmp_path / "far" / "away" / "boxes.csv", HEADER, rows_of(photos))
    assert "--image_root" in refusal(far, "detection")
    listed(far, image_root=tmp_path / "images")
    assert "has no such column" in refusal(several, "detection", source="box_table", label_column="klass")
    twice = put(tmp_path / "twice.csv", HEADER.replace("width", "xmin"), rows_of(photos))
    assert "has two columns 'xmin'; rename one of them" in refusal(twice, "detection")


def test_images_and_boxes_are_listed(tmp_path: Path, photos: list[Photo]) -> None:
    found = listed(put_csv(tmp_path / "boxes.csv", in_any_order(open_images_rows(photos))["in turn"]))
    assert found.input.source == "open_images" and not found.ids
    check(found, photos)
    for photo in photos[1:]:
        objects = found.annotations_of(photo.name).objects or ()
        flags = sorted((item.occluded, item.truncated, item.group_of, item.depiction) for item in objects)
        assert flags == sorted((i % 2 == 1, False, None, True) for i in range(len(photo.boxes)))


def test_a_folder_of_splits_is_read(tmp_path: Path, photos: list[Photo]) -> None:
    (tmp_path / "images").rename(tmp_path / "train")
    others = put_photos(tmp_path / "validation", ("coach", "library"))
    put_csv(tmp_path / "oidv6-train-annotations-bbox.csv", open_images_rows(photos))
    put_csv(tmp_path / "validation-annotations-bbox.csv", open_images_rows(others))
    found = listed(tmp_path)
    assert found.input.source == "open_images"
    expected = {**{f"train/{name}.jpg": "train" for name in NAMES}, "validation/library.jpg": "validation"}
    assert {key: ref.split for key, ref in found.refs.items()} == expected
    for split in ("train", "validation"):
        for path in tmp_path.glob(f"*{split}-*.csv"):
            path.rename(tmp_path / split / "boxes.csv")
    assert {key: ref.split for key, ref in listed(tmp_path).refs.items()} == expected
    shutil.copytree(tmp_path / "train", tmp_path / "more")
    unclear = "train and validation may be splits, but more, which is Open Images' boxes too, is not"
    assert unclear in refusal(tmp_path, "detection")


BAD_ROWS = {
    "rose,x,/m/1,1,0.1,zero,0.1,0.2,0,0,0,0,0\n": ("rose.jpg", "XMax is 'zero'"),
    "rose,x,/m/1,1,0.1,0.2,0.1,0.3,7,0,0,0,0\n": ("rose.jpg", "IsOccluded is '7'"),
    'rose,"x,/m/1,1,0.1,0.2,0.1,0.3,0,0,0,0,0\n': ("rose.jpg", "line 12 of boxes.csv: it has 1 cell instead"),
    ",x,/m/1,1,0.1,0.2,0.1,0.3,0,0,0,0,0\n": ("boxes.csv:line 12", "names no image"),
    "../rose,x,/m/1,1,0.1,0.2,0.1,0.3,0,0,0,0,0\n": ("boxes.csv:line 12", "names no image"),
    "r\0se,x,/m/1,1,0.1,0.2,0.1,0.3,0,0,0,0,0\n": ("boxes.csv:line 12", "names no image"),
    "rose" + "x" * 200_000 + "\n": ("boxes.csv:line 12", "names no image"),
}


@pytest.mark.parametrize("row", BAD_ROWS)
def test_bad_rows_are_quarantined(tmp_path: Path, photos: list[Photo], row: str) -> None:
    rows = open_images_rows(photos)
    assert len(rows) == 10
    path = put_csv(tmp_path / "boxes.csv", [*rows, row])
    key, says = BAD_ROWS[row]
    found = listed(path)
    assert found.reasons() == {key: "BAD_ROW"} and says in found.refs[key].message
    assert found.refs[key].split == ("none" if "line" in key else "")


def test_other_csv_files_are_not_detected_as_open_images(tmp_path: Path, photos: list[Photo]) -> None:
    path = put_csv(tmp_path / "boxes.csv", [], header="ImageID,LabelName,Confidence\n")
    assert "its first line names" in refusal(path, "detection", source="open_images")
    put_photos(tmp_path / "ant")
    assert listed(tmp_path, layout="classification").input.source == "class_folders"


def test_without_descriptions_the_codes_are_the_classes(tmp_path: Path, photos: list[Photo]) -> None:
    found = listed(put_csv(tmp_path / "boxes.csv", open_images_rows(photos), descriptions=False))
    assert {label for ref in found.refs.values() for label in ref.labels} == {*MIDS.values()}


def _put(folder: Path, text: str, name: str = "_classes.csv") -> Path:
    put_photos(folder, ("eagle", "apple"))
    (folder / name).write_bytes(text.encode("utf-8-sig"))
    return folder / name


def test_an_image_in_two_rows_is_an_error_that_names_both(tmp_path: Path) -> None:
    path = _put(tmp_path, "filename,bird,fruit\neagle.jpg,1,0\napple.jpg,0,1\neagle.jpg,0,1\n")
    assert refusal(path).endswith("_classes.csv: lines 2 and 4 both name eagle.jpg; remove one of them.")


def test_only_files_of_the_usual_name_are_detected(tmp_path: Path) -> None:
    path = _put(tmp_path, "filename,label\neagle.jpg,1\napple.jpg,0\n", "my_classes.csv")
    assert listed(path, "classification").input.source == "manifest"
    found = listed(path, "classification", source="class_columns", image_root=tmp_path)
    assert {key: ref.label for key, ref in found.refs.items()} == {"eagle.jpg": "label", "apple.jpg": ""}
    assert found.refs["apple.jpg"].message == "line 3 of my_classes.csv has no class"


@pytest.mark.parametrize(
    ("header", "message"),
    [("filename,bird,bird", "two columns 'bird'"), ("filename,bird,", "an empty class"), ("a,b", "0 or 1")],
)
def test_unclear_headers_are_refused(tmp_path: Path, header: str, message: str) -> None:
    path = _put(tmp_path, f"{header}\neagle.jpg,1,0\n")
    assert message in refusal(path, source="class_columns")


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_a_row_may_span_several_lines(tmp_path: Path, ending: str) -> None:
    rows = ['filename,"a\nbird",fruit', 'eagle.jpg,"1\n",0', "apple.jpg,0,1", "gone.jpg,0,1,1"]
    found = listed(_put(tmp_path, ending.join(rows)), "classification")
    assert found.input.source == "class_columns" and found.ids == {"a\nbird": 0, "fruit": 1}
    labels = {key: ref.label for key, ref in found.refs.items()}
    assert labels == {"eagle.jpg": "a\nbird", "apple.jpg": "fruit", "gone.jpg": ""}
    assert found.reasons().keys() == {"gone.jpg"}
    assert found.refs["gone.jpg"].message == "line 6 of _classes.csv: it has 4 cells instead of 3"
