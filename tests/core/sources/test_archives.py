"""Archives as inputs, end to end: class folders inside, and the samples of WebDatasets."""

from __future__ import annotations

import errno
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from helpers.embedded import refs_of
from helpers.hostile import outcomes, picture, refused, run
from helpers.packing import PACKERS, by_key, list_refs, tar_of, zip_of
from helpers.trees import put_files

from shardwright.core import storage
from shardwright.core.images.read import read_image
from shardwright.pipelines.convert import convert
from shardwright.schemas.annotations import decode_annotations
from shardwright.schemas.errors import EngineError
from shardwright.schemas.image_ref import LABEL_SEPARATOR


def test_members_that_are_not_images_are_filtered_and_unsafe_ones_are_written_nowhere(
    tmp_path: Path,
) -> None:
    inner = zip_of({"ant/9.png": picture(9)})
    members = {
        "ant/1.png": picture(1),
        "ant/no_extension": picture(2, "JPEG"),
        "ant/unknown.bin": b"whatever",
        "ant/notes.txt": b"some text",
        "ant/inner.zip": inner,
        "ant/inner.7z": b"7z",
        "ant/inner_without_extension": inner,
        "ant/drawing.svg": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        "ant/broken.png": b"no picture at all",
        "ant/.hidden.png": picture(3),
        "__MACOSX/ant/._1.png": b"\0\5\x16\7",
        "ant/Thumbs.db": b"\xd0\xcf\x11\xe0",
        "ant/empty.png": b"",
        "../../up.png": picture(4),
        "/abs.png": picture(5),
        "empty/": b"",
    }
    expected = {
        "ant/1.png": "written",
        "ant/no_extension": "written",
        "ant/unknown.bin": "not_an_image",
        "ant/notes.txt": "not_an_image",
        "ant/inner.zip": "nested_archive",
        "ant/inner.7z": "nested_archive",
        "ant/inner_without_extension": "nested_archive",
        "ant/drawing.svg": "UNSUPPORTED_FORMAT",
        "ant/broken.png": "NOT_AN_IMAGE",
        "ant/.hidden.png": "dotfile",
        "__MACOSX/ant/._1.png": "dotfile",
        "ant/Thumbs.db": "dotfile",
        "ant/empty.png": "EMPTY_FILE",
        "%2E%2E/%2E%2E/up.png": "UNSAFE_MEMBER",
        "%2Fabs.png": "UNSAFE_MEMBER",
    }
    packed = tar_of({k: v for k, v in members.items() if k != "empty/"})
    archives = {"a.zip": zip_of(members), "b.tar": packed, "c.tgz": PACKERS[".tar.gz"](packed)}
    put_files(tmp_path / "in", archives)
    convert(input=tmp_path / "in", output=tmp_path / "out", max_bad_fraction=1, verify="none")
    assert not (tmp_path / "out" / "_work" / "spool").exists()
    assert outcomes(tmp_path / "out") == {
        f"{name}!{key}": value for name in archives for key, value in expected.items()
    }
    assert {path.name for path in tmp_path.iterdir()} == {"in", "out"}
    assert {path.name for path in (tmp_path / "in").iterdir()} == archives.keys()


def test_classes_can_come_from_file_names_in_archives(tmp_path: Path) -> None:
    members = {f"{name}{i}.png": picture(i) for i, name in enumerate(("ant", "bee", "ant"))}
    folder = put_files(tmp_path / "in" / "new!", {"a.zip": zip_of({**members, "7.png": picture(7)})})
    for path in (folder / "a.zip", tmp_path / "in"):
        refs, _ = refs_of(path, tmp_path / "spool", label_regex=r"(?P<label>[a-z]+)\d+\.png")
        assert [ref.label for ref in refs] == ["ant", "bee", "ant", ""]


def test_an_archive_that_changes_stops_the_job(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(zip_of({"ant/1.png": picture(1)}))
    (ref,) = list_refs(path)
    path.write_bytes(zip_of({"ant/1.png": picture(2), "ant/2.png": picture(3)}))
    with pytest.raises(EngineError, match="changed while the job"):
        read_image(ref, 10**6)


@pytest.mark.parametrize(("source", "name"), [("archives", "a.zip"), ("webdataset", "a.tar")])
@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (FileNotFoundError(errno.ENOENT, "no such file"), "changed while the job was reading"),
        (OSError(errno.EIO, "input/output error"), "check the disk, then run again with --resume"),
    ],
)
def test_a_fault_while_members_are_probed_is_reported_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, name: str, error: OSError, sentence: str
) -> None:
    def fail(*_: object) -> bytes:
        raise error

    members = {"1.jpg": picture(1, "JPEG"), "1.cls": b"7", "no_extension": picture(2)}
    (tmp_path / name).write_bytes(zip_of(members) if name == "a.zip" else tar_of(members))
    monkeypatch.setattr(storage, "read_range", fail)
    with pytest.raises(EngineError, match=sentence):
        list_refs(tmp_path / name, source)


def test_rebuilt_archives_have_the_same_fingerprints(tmp_path: Path) -> None:
    members = {"ant/1.png": picture(1), "bee/2.png": picture(2)}
    for name, make in (("a.zip", zip_of), ("a.tar", tar_of)):
        (tmp_path / name).write_bytes(make(members))
        before = {key: ref.fingerprint for key, ref in by_key(list_refs(tmp_path / name)).items()}
        (tmp_path / name).write_bytes(make({"aaa/0.png": picture(5), **members}))
        after = {key: ref.fingerprint for key, ref in by_key(list_refs(tmp_path / name)).items()}
        assert before.items() <= after.items()


def test_members_without_a_time_have_that_of_the_archive(tmp_path: Path) -> None:
    marks = set()
    for seed in (1, 2):
        info = tarfile.TarInfo("ant/1.bmp")  # mtime 0
        info.size = 100
        (tmp_path / "a.tar").write_bytes(tar_of([(info, bytes([seed]) * 100)]))
        (ref,) = list_refs(tmp_path / "a.tar")
        marks.add(ref.fingerprint)
    assert len(marks) == 2


def test_wrong_archives_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.zip").write_bytes(b"this is no zip")
    command = ("convert", "--output", tmp_path / "out", "--input")
    assert "neither an archive nor a folder of archives" in refused(
        capfd, tmp_path, *command, tmp_path / "a.zip"
    )
    empty = tmp_path / "empty"
    empty.mkdir()
    for source in ("archives", "webdataset"):
        refused(capfd, tmp_path, *command, empty, "--source", source)
    (tmp_path / "b.zip").write_bytes(zip_of({}))
    assert run(capfd, *command, tmp_path / "b.zip").code == 2


@pytest.mark.parametrize("suffix", PACKERS)
def test_auto_detects_shards_and_class_folders(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    members = {f"{i}.{name}": data for i in range(3) for name, data in (("png", picture(i)), ("cls", b"1"))}
    path.write_bytes(PACKERS[suffix](tar_of(members)))
    refs, ids = refs_of(path, tmp_path / "spool")
    assert [(ref.key, ref.label) for ref in refs] == [(f"a{suffix}!{i}.png", "1") for i in range(3)]
    assert ids == {"1": 1}
    members = {"ant/1.png": picture(1), "ant/1.txt": b"an ant", "bee/2.png": picture(2)}
    path.write_bytes(PACKERS[suffix](tar_of(members)))
    refs, _ = refs_of(path, tmp_path / "spool")
    assert [(ref.label, ref.reason) for ref in refs] == [("ant", ""), ("ant", "not_an_image"), ("bee", "")]


@pytest.mark.parametrize(
    ("names", "member", "splits"),
    [
        (("a-train-00.tar", "a-train-01.tar", "a-val-00.tar"), "1", ["train", "train", "val"]),
        (("test/00.tar", "train/00.tar"), "1", ["test", "train"]),
        (("train-00.tar", "train-01.tar"), "1", ["", ""]),
        (("test.tar", "train.tar"), "ant/1", ["test", "train"]),
        (("dev board/00.tar", "test tube/00.tar"), "ant/1", ["", ""]),  # classes
    ],
)
def test_names_of_archives_give_splits(
    tmp_path: Path, names: tuple[str, ...], member: str, splits: list[str]
) -> None:
    archive = tar_of({f"{member}.png": picture(1), f"{member}.cls": b"1"})
    put_files(tmp_path / "in", dict.fromkeys(names, archive))
    refs, _ = refs_of(tmp_path / "in", tmp_path / "spool")
    assert [(ref.key, ref.split) for ref in refs if ref.is_candidate] == [
        (f"{name}!{member}.png", split) for name, split in zip(names, splits, strict=True)
    ]
    (refs, _) = refs_of(tmp_path / "in", tmp_path / "spool", splits="train=0.5,test=0.5")
    assert {ref.split for ref in refs} == {""}


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
    (tmp_path / "a.tar").write_bytes(tar_of(members))
    assert labels(tmp_path) == {f"{key}.jpg": expected for key, (_, _, expected) in says.items()}
    assert labels(tmp_path, label_separator="|")["j.jpg"] == (LABEL_SEPARATOR.join("xy"), "")
    assert refs_of(tmp_path / "a.tar", tmp_path / "spool")[1] == {"3": 3, "7": 7, "2": 2}


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
        "s3.seg.png": picture(5),
    }
    (tmp_path / "a.tar").write_bytes(tar_of(members))
    assert labels(tmp_path) == {
        "s1.input.jpg": ("4", ""),
        "s1.target.png": ("4", ""),
        "s1.mp3": ("", "not_an_image"),
        "s2.txt": ("", "not_an_image"),
        "s2.npy": ("", "not_an_image"),
        ".hidden.jpg": ("", "dotfile"),
        "s3.jpg": ("", ""),
        "s3.seg.png": ("", "not_listed"),
    }


def test_captions_of_img2dataset_are_read(tmp_path: Path) -> None:
    members = {}
    for i in range(2):
        members |= {f"{i:09d}.jpg": picture(i, "JPEG"), f"{i:09d}.txt": f"photo {i}".encode()}
    put_files(tmp_path / "in", {"00000.tar": tar_of(members), "00000_stats.json": b"{}"})
    refs, _ = refs_of(tmp_path / "in", tmp_path / "spool", source="webdataset")
    captions = [decode_annotations(ref.annotations).captions for ref in refs if ref.is_candidate]
    assert captions == [("photo 0",), ("photo 1",)]


def test_samples_in_a_zip_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zip_of({"1.jpg": picture(1), "1.cls": b"5"}))
    refs, _ = refs_of(tmp_path / "a.zip", tmp_path / "spool")
    assert [(ref.key, ref.label) for ref in refs] == [("a.zip!1.jpg", "5")]
