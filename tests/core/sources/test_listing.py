"""What is listed: first looks at inputs, names as numbers, many files, and digests of listings."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.listing import listed, look_at, put_photos
from hypothesis import given
from hypothesis import strategies as st

from shardwright.core import storage
from shardwright.core.sources import input_probe
from shardwright.core.sources.file_states import TouchedFiles, name_hash
from shardwright.core.sources.listing import ListingDigest, add_up
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.labels import ClassId


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_probe, "IMAGES", 2)
    monkeypatch.setattr(input_probe, "OTHERS", 3)


@pytest.mark.usefixtures("few")
def test_lists_of_images_are_found_among_images(tmp_path: Path) -> None:
    lists = ["a.json", "classes.txt", "instances.json", "labels.csv", "notes", "z.xml"]
    images = [f"{number:02}.{extension}" for number in range(40) for extension in ("jpg", "PNG")]
    for name in lists + images:
        (tmp_path / name).touch()
    files = look_at(tmp_path).files
    assert list(files) == sorted(files)
    assert set(files) - set(images) == set(lists)
    assert len(set(files) & set(images)) == 4


@pytest.mark.usefixtures("few")
def test_many_files_beside_images_are_not_all_kept(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number}.txt").touch()
    (tmp_path / "labels.csv").touch()
    files = look_at(tmp_path).files
    assert "labels.csv" in files and len(files) == 4


def test_folders_inside_are_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of source looks into `train`, which may hold a million images."""
    listed: list[str] = []
    scan = os.scandir

    def counted(path: str) -> object:
        listed.append(path)
        return scan(path)

    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "1.jpg").touch()
    monkeypatch.setattr(os, "scandir", counted)
    probe = look_at(tmp_path)
    assert [probe.inside("train").files for _ in range(3)] == [("1.jpg",)] * 3
    assert probe.images_below == 1
    assert listed.count(str(tmp_path / "train")) == 1


def test_the_number_of_a_name_depends_on_its_bytes_and_uses_64_bits() -> None:
    for name, data in (("", b""), ("cat/1.jpg", b"cat/1.jpg"), ("caf\udce9", b"caf\xe9")):
        assert name_hash(name) == int(hashlib.blake2b(data, digest_size=8).hexdigest(), 16)


def test_paths_can_be_joined_to_an_empty_path_the_root_and_a_bucket() -> None:
    assert storage.join("", "x") == "x" and storage.join("", "x", "y") == "x/y"
    assert storage.join("/", "x") == "/x" and storage.join("a/", "x") == "a/x"
    assert storage.join("gs://bucket", "x") == "gs://bucket/x"


_FILES = 60


def _cvat(name: str) -> str:
    return (
        f'<annotations><version>1.1</version><image id="0" name="{name}" width="9" height="9"/></annotations>'
    )


def _coco(name: str) -> str:
    image = {"id": 1, "file_name": name, "width": 9, "height": 9}
    return json.dumps({"images": [image], "annotations": [], "categories": [{"id": 1, "name": "a"}]})


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("{}.xml", _cvat),
        ("{}.json", _coco),
        ("{}.json", '[{{"image": "{}", "annotations": []}}]'.format),
        ("{}.csv", "filename,class,xmin,ymin,xmax,ymax\n{},a,1,1,2,2\n".format),
        ("{}.csv", "ImageID,LabelName,XMin,XMax,YMin,YMax\n{},a,0.1,0.2,0.1,0.2\n".format),
        ("train{}/_classes.csv", "filename,a,b\n{},0,1\n".format),
        ("{}.txt", "{} 0\n".format),
    ],
    ids=["cvat", "coco", "create_ml", "box_table", "open_images", "class_columns", "lists"],
)
def test_all_files_are_read(tmp_path: Path, file: str, text: Callable[[str], str]) -> None:
    kind = "classification" if file.endswith(("_classes.csv", ".txt")) else "detection"
    (photo,) = put_photos(tmp_path / "photos", ("eagle",))
    for number in range(_FILES):
        path = tmp_path / "in" / file.format(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tmp_path / "photos" / photo.name, path.parent / f"{number}.jpg")
        path.write_text(text(str(number) if "ImageID" in text("") else f"{number}.jpg"))
    found = listed(tmp_path / "in", layout=kind)
    assert len(found.refs) == _FILES and not found.reasons()


_TEXT = st.text(max_size=3) | st.sampled_from(["\udcff", "a\0b", "'", '"', "\\"])
_REFS = st.builds(
    ImageRef, _TEXT, _TEXT, label=_TEXT, size=st.integers(-1, 3), version=_TEXT, outcome=st.just(""),
    place=_TEXT, fold=st.integers(-1, 1),
)  # fmt: skip
_ITEMS = st.lists(_REFS | st.builds(ClassId, _TEXT, st.integers(0, 3), _TEXT), max_size=6)


def digest_of(items: list[ImageRef | ClassId], spool: str = "/v/1/_work/spool") -> ListingDigest:
    digest = ListingDigest()
    for item in items:
        digest.add(item, spool)
    return digest


@given(items=_ITEMS, data=st.data())
def test_neither_the_order_nor_the_parts_matter(items: list[ImageRef | ClassId], data: st.DataObject) -> None:
    mixed = data.draw(st.permutations(items))
    cut = data.draw(st.integers(0, len(items)))
    assert add_up([digest_of(mixed[:cut]), digest_of(mixed[cut:])]) == digest_of(items)


@given(one=_ITEMS, other=_ITEMS)
def test_other_references_have_another_digest(
    one: list[ImageRef | ClassId], other: list[ImageRef | ClassId]
) -> None:
    same = sorted(map(repr, one)) == sorted(map(repr, other))
    assert (digest_of(one).text == digest_of(other).text) == same


def test_images_without_a_known_state_are_counted() -> None:
    known = ImageRef("a", "a", size=1, version="1")
    unknown = [known._replace(size=-1), known._replace(version=""), known._replace(has_unmarked_mask=True)]
    decided = [ref.filtered("dotfile") for ref in unknown]
    assert digest_of([known, *unknown, *decided]).untrusted == len(unknown)


def test_the_place_of_spool_files_does_not_count() -> None:
    refs = [ImageRef("a", "t.tar.gz", place=f"/v/{run}/_work/spool/abc:1:2") for run in (1, 2)]
    first, second = (digest_of([ref], f"/v/{run}/_work/spool") for run, ref in enumerate(refs, 1))
    assert first == second != digest_of([refs[0]], "/v/2/_work/spool")


def test_a_new_link_to_an_old_file_counts_as_touched(tmp_path: Path) -> None:
    old, link = tmp_path / "old", tmp_path / "link"
    old.touch()
    files = TouchedFiles(old.stat().st_ctime)
    while not link.is_symlink() or link.lstat().st_ctime == files.since:  # the clock of the disk is coarse
        link.unlink(missing_ok=True)
        link.symlink_to(old)
    assert [files.has(ImageRef("a", str(path))) for path in (old, link)] == [False, True]
