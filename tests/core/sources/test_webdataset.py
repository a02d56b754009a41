"""WebDataset: samples with classes, captions and extra columns, as its writers create them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.hostile import check_books, document, outcomes, picture
from helpers.packing import PACKERS, by_key, list_refs, tar_of, zip_of
from helpers.repository import PHOTOS
from helpers.tfrecords import read

from shardwright.pipelines.convert import convert
from shardwright.schemas.annotations import decode_annotations
from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.schemas.labels import ClassId


def write(path: Path, members: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tar_of(members))
    return path


def test_class_numbers_in_shards_are_read(tmp_path: Path) -> None:
    photos = sorted(PHOTOS.rglob("*.jpg"))[:12]
    for shard in range(2):
        members = {}
        for i, photo in enumerate(photos[shard::2]):
            members[f"{i:06d}.cls"] = str(2 * i % 5).encode()
            members[f"{i:06d}.jpg"] = photo.read_bytes()
            members[f"{i:06d}.txt"] = f"photo number {i}".encode()
        write(tmp_path / "in" / f"shard-{shard:03d}.tar", members)
    convert(input=str(tmp_path / "in"), output=str(tmp_path / "out"), resize=32)
    assert len(check_books(tmp_path / "out")) == 12
    made = document(tmp_path / "out")
    assert made["labels"] == ["0", "1", "2", "3", "4"]
    for key, features in read(tmp_path / "out").items():
        assert features["image/class/label"] == [2 * int(key.partition("!")[2][:6]) % 5]


@pytest.mark.parametrize("suffix", PACKERS)
def test_auto_detects_shards(tmp_path: Path, suffix: str) -> None:
    members = {f"{i}.{name}": data for i in range(3) for name, data in (("png", picture(i)), ("cls", b"1"))}
    path = tmp_path / f"a{suffix}"
    path.write_bytes(PACKERS[suffix](tar_of(members)))
    convert(input=str(path), output=str(tmp_path / "out"))
    assert outcomes(tmp_path / "out") == {f"a{suffix}!{i}.png": "written" for i in range(3)}
    assert document(tmp_path / "out")["labels"] == ["0", "1"]


def test_class_folders_in_archives_are_not_samples(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.tar", {"ant/1.png": picture(1), "ant/1.txt": b"an ant", "bee/2.png": picture(2)}
    )
    convert(input=str(path), output=str(tmp_path / "out"))
    assert document(tmp_path / "out")["labels"] == ["ant", "bee"]


def labels(tmp_path: Path, **settings: Any) -> dict[str, tuple[str, str]]:
    """Returns class and reason for all images in `a.tar`."""
    found = by_key(list_refs(tmp_path / "a.tar", "webdataset", **settings))
    return {key.removeprefix("a.tar!"): (ref.label, ref.reason) for key, ref in found.items()}


def test_several_files_of_a_sample_can_give_the_class(tmp_path: Path) -> None:
    says: dict[str, tuple[str, Any, tuple[str, str]]] = {
        "a": ("cls", b"3\n", ("3", "")),
        "b": ("cls", "größe".encode(), ("größe", "")),
        "c": ("cls", b"-1", ("", "")),
        "d": ("json", {"label": 7}, ("7", "")),
        "e": ("json", {"class": "cat"}, ("cat", "")),
        "f": ("json", {"cls": 2.0}, ("2", "")),
        "g": ("json", {"class_name": "dog", "label": None}, ("dog", "")),
        "h": ("json", {"other": 1}, ("", "")),
        "i": ("json", b"{broken", ("", "BAD_ANNOTATION")),
        "j": ("json", {"label": ["x", "y"]}, ("", "BAD_ANNOTATION")),
        "k": ("json", {"label": {"deep": 1}}, ("", "BAD_ANNOTATION")),
        "l": ("json", {"label": "\ud800"}, ("", "BAD_ANNOTATION")),
        "m": ("cls", b"\xff\xfe", ("", "BAD_ANNOTATION")),
        "n": ("txt", b"only a caption", ("", "")),
        "o": ("json", b"[" * 100_000, ("", "BAD_ANNOTATION")),
        "p": ("cls", b"9" * 5000, ("9" * 5000, "")),
        "q": ("json", b'{"label": ' + b"9" * 3000 + b"}", ("", "BAD_ANNOTATION")),
        "r": ("cls", b"007", ("007", "")),
    }
    members = {}
    for key, (name, value, _) in says.items():
        members[f"{key}.jpg"] = picture(1)
        members[f"{key}.{name}"] = value if isinstance(value, bytes) else json.dumps(value).encode()
    write(tmp_path / "a.tar", members)
    assert labels(tmp_path) == {f"{key}.jpg": expected for key, (_, _, expected) in says.items()}
    several = labels(tmp_path, label_separator="|")
    assert several["j.jpg"] == (LABEL_SEPARATOR.join("xy"), "")
    ids = {item for item in list_refs(tmp_path / "a.tar", "webdataset") if isinstance(item, ClassId)}
    assert ids == {ClassId("3", 3), ClassId("7", 7), ClassId("2", 2)}


def test_everything_in_a_sample_is_counted(tmp_path: Path) -> None:
    members = {
        "s1.input.jpg": picture(1),
        "s1.target.png": picture(2),
        "s1.cls": b"4",
        "s1.mp3": b"sound",
        "s2.txt": b"a caption of nothing",
        "s2.npy": b"numbers",
        ".hidden.jpg": picture(3),
        "s3.jpg": picture(4),
    }
    write(tmp_path / "a.tar", members)
    assert labels(tmp_path) == {
        "s1.input.jpg": ("4", ""),
        "s1.target.png": ("4", ""),
        "s1.mp3": ("", "not_an_image"),
        "s2.txt": ("", "not_an_image"),
        "s2.npy": ("", "not_an_image"),
        ".hidden.jpg": ("", "dotfile"),
        "s3.jpg": ("", ""),
    }


def test_the_output_of_img2dataset_is_read(tmp_path: Path) -> None:
    members = {}
    for i in range(6):
        about = {
            "caption": f"photo {i}",
            "width": 16 + i,
            "status": "success",
            "kind": "ab"[i % 2],
            "nsfw": None,
        }
        members |= {
            f"{i:09d}.jpg": picture(i, "JPEG"),
            f"{i:09d}.txt": f"photo {i}".encode(),
            f"{i:09d}.json": json.dumps(about).encode(),
        }
    write(tmp_path / "in" / "00000.tar", members)
    (tmp_path / "in" / "00000_stats.json").write_text("{}")
    settings: dict[str, Any] = {"input": str(tmp_path / "in"), "source": "webdataset"}
    convert(
        **settings, output=str(tmp_path / "kept"), unlabelled="keep", extra_columns="width:int,status:string"
    )
    records = read(tmp_path / "kept")
    assert len(records) == 6
    for key, features in records.items():
        assert features["width"] == [16 + int(key.partition("!")[2][:9])]
        assert (features["status"], features["image/class/label"]) == ([b"success"], [-1])
    convert(**settings, output=str(tmp_path / "labelled"), label_column="kind")
    assert document(tmp_path / "labelled")["labels"] == ["a", "b"]
    found = by_key(list_refs(tmp_path / "in" / "00000.tar", "webdataset"))
    captions = {decode_annotations(ref.annotations).captions for ref in found.values()}
    assert captions == {(f"photo {i}",) for i in range(6)}


def test_samples_in_a_zip_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zip_of({"1.jpg": picture(1), "1.cls": b"5"}))
    found = [item for item in list_refs(tmp_path / "a.zip", "webdataset") if not isinstance(item, ClassId)]
    assert [(ref.key, ref.label) for ref in found] == [("a.zip!1.jpg", "5")]
