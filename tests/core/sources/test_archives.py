"""Archives: class folders and WebDatasets in every kind of zip and tar, and all that is unsafe or damaged."""

from __future__ import annotations

import errno
import io
import json
import random
import shutil
import stat
import struct
import subprocess
import tarfile
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from helpers.embedded import refs_of
from helpers.hostile import outcomes, picture, refused, run
from helpers.mutants import mutants
from helpers.packing import (
    FORMS,
    PACKERS,
    PICTURES,
    by_key,
    list_refs,
    listed,
    read_all,
    tar_info,
    tar_of,
    zip_of,
)
from helpers.trees import put_files

from shardwright.core import storage
from shardwright.core.images.read import read_image
from shardwright.core.sources.archives import files, members
from shardwright.pipelines.convert import convert
from shardwright.schemas.annotations import decode_annotations
from shardwright.schemas.errors import EngineError
from shardwright.schemas.image_ref import LABEL_SEPARATOR, NO_SPLIT

INNER = zip_of({"ant/9.png": picture(9)})
#: Members, and their outcomes.
MEMBERS = {
    "ant/1.png": (picture(1), "written"),
    "ant/no_extension": (picture(2, "JPEG"), "written"),
    "ant/unknown.bin": (b"whatever", "not_an_image"),
    "ant/inner.zip": (INNER, "nested_archive"),
    "ant/inner.7z": (b"7z", "nested_archive"),
    "ant/inner_without_extension": (INNER, "nested_archive"),
    "ant/.hidden.png": (picture(3), "dotfile"),
    "__MACOSX/ant/._1.png": (b"\0\5\x16\7", "dotfile"),
    "ant/Thumbs.db": (b"\xd0\xcf\x11\xe0", "dotfile"),
}


def test_members_that_are_not_images_are_filtered_and_unsafe_ones_are_written_nowhere(
    tmp_path: Path,
) -> None:
    unsafe = {"../../up.png": picture(4), "/abs.png": picture(5)}
    members = {name: data for name, (data, _) in MEMBERS.items()} | unsafe
    expected = {name: outcome for name, (_, outcome) in MEMBERS.items()}
    expected |= dict.fromkeys(("%2E%2E/%2E%2E/up.png", "%2Fabs.png"), "UNSAFE_MEMBER")
    packed = tar_of(members)
    archives = {
        "a.zip": zip_of({**members, "empty/": b""}),
        "b.tar": packed,
        "c.tgz": PACKERS[".tar.gz"](packed),
    }
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
    members = {"1.jpg": picture(1, "JPEG"), "1.cls": b"7", "no_extension": picture(2)}
    (tmp_path / name).write_bytes(zip_of(members) if name == "a.zip" else tar_of(members))
    monkeypatch.setattr(storage, "read_range", mock.Mock(side_effect=error))
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


@pytest.mark.parametrize("suffix", [".zip", *PACKERS])
def test_auto_detects_shards_and_class_folders(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    packed = {".zip": zip_of}.get(suffix, lambda members: PACKERS[suffix](tar_of(members)))
    members = {f"{i}.{name}": data for i in range(3) for name, data in (("png", picture(i)), ("cls", b"1"))}
    path.write_bytes(packed(members))
    refs, ids = refs_of(path, tmp_path / "spool")
    assert [(ref.key, ref.label) for ref in refs] == [(f"a{suffix}!{i}.png", "1") for i in range(3)]
    assert ids == {"1": 1}
    members = {"ant/1.png": picture(1), "ant/1.txt": b"an ant", "bee/2.png": picture(2)}
    path.write_bytes(packed(members))
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


@pytest.mark.parametrize("method", [0, 8, 12, 14])
def test_zips_with_every_method_are_read(tmp_path: Path, method: int) -> None:
    members = {**PICTURES, "cat/named like nothing": picture(9) + random.Random(0).randbytes(3000)}
    assert listed(tmp_path, zip_of(members, method, b"a comment"), "a.zip") == members


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("form", FORMS)
def test_tars_of_every_form_are_read(tmp_path: Path, suffix: str, form: int) -> None:
    assert listed(tmp_path, PACKERS[suffix](tar_of(PICTURES, form)), f"a{suffix}") == PICTURES


def test_the_bytes_show_the_kind_of_archive(tmp_path: Path) -> None:
    assert listed(tmp_path, zip_of(PICTURES), "a.tar.gz") == PICTURES
    assert listed(tmp_path, tar_of(PICTURES), "b.zip") == PICTURES
    assert listed(tmp_path, PACKERS[".tar.xz"](tar_of(PICTURES)), "c.tgz") == PICTURES


@pytest.mark.skipif(not shutil.which("tar"), reason="there is no tar")
@pytest.mark.parametrize("form", ["v7", "ustar", "gnu", "oldgnu", "pax"])
@pytest.mark.parametrize("what", ["its folders", "."])
def test_archives_of_the_tar_program_are_read(tmp_path: Path, form: str, what: str) -> None:
    long = {"v7": "n" * 90, "ustar": "d" * 90 + "/" + "n" * 90}.get(form, "d" * 120 + "/" + "n" * 120)
    members = {"ant/1.png": picture(1), f"b/{long}.png": picture(2)}
    root = put_files(tmp_path / "in", members)
    folders = [what] if what == "." else sorted(path.name for path in root.iterdir())
    command = ["tar", f"--format={form}", "-cf", tmp_path / "a.tar", "-C", root, *folders]
    subprocess.run(command, check=True)
    refs = by_key(list_refs(tmp_path / "a.tar"))
    assert all(ref.is_candidate for ref in refs.values())
    listed_keys = read_all(refs)
    assert {key.removeprefix("a.tar!"): value for key, value in listed_keys.items()} == members


@pytest.mark.parametrize("prefix", [b"", b"#!/bin/sh\nexit 0\n" * 300])
def test_zip64_and_a_program_before_the_zip_are_read(tmp_path: Path, prefix: bytes) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in PICTURES.items():
            with archive.open(name, "w", force_zip64=True) as file:
                file.write(data)
    plain = buffer.getvalue()
    assert listed(tmp_path, prefix + plain, "a.zip") == PICTURES
    end = plain.rindex(b"PK\5\6")
    entries, length, offset = struct.unpack_from("<HLL", plain, end + 10)
    end64 = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, entries, entries, length, offset)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, end, 1)
    full = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    assert listed(tmp_path, prefix + plain[:end] + end64 + locator + full, "b.zip") == PICTURES


def test_a_zip_written_as_a_stream_is_read(tmp_path: Path) -> None:
    data = io.BytesIO()
    stream: Any = SimpleNamespace(write=data.write, flush=data.flush)
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in PICTURES.items():
            archive.writestr(name, content)
    assert data.getvalue()[6] & 8, "sizes follow the members"
    assert listed(tmp_path, data.getvalue(), "a.zip") == PICTURES


@pytest.mark.parametrize(
    ("raw", "key", "flags", "system"),
    [
        ("ü/1.png".encode(), "ü/1.png", 0x800, 3),
        ("ñandú/2.png".encode(), "ñandú/2.png", 0, 3),
        ("ä/é.png".encode("cp437"), "ä/é.png", 0, 3),
        (b"dos\\cats\\image_1.png", "dos/cats/image_1.png", 0, 0),
    ],
)
def test_names_in_zips_become_keys(tmp_path: Path, raw: bytes, key: str, flags: int, system: int) -> None:
    """In UTF-8 with and without its flag, in code page 437, and as DOS writes them."""
    data = bytearray(zip_of({"A" * len(raw): picture(1)}).replace(b"A" * len(raw), raw))
    directory = data.index(b"PK\1\2")
    struct.pack_into("<H", data, 6, flags)
    struct.pack_into("<H", data, directory + 8, flags)
    data[directory + 5] = system
    assert listed(tmp_path, bytes(data), "a.zip") == {key: picture(1)}


@pytest.mark.parametrize("form", FORMS)
def test_names_in_tars_that_are_not_utf8_are_read(tmp_path: Path, form: int) -> None:
    names = ["a\udcff/1.png", "50%/2.png", "e\u0301/3.png", "d" * 90 + "/" + "f" * 90 + "\udcfe.png"]
    buffer = io.BytesIO()
    options = {"encoding": "utf-8", "errors": "surrogateescape"}
    with tarfile.open(fileobj=buffer, mode="w", format=form, **options) as archive:
        for name in names:
            archive.addfile(tar_info(name, 3), io.BytesIO(b"abc"))
    found = listed(tmp_path, buffer.getvalue(), "a.tar")
    assert list(found) == ["a%FF/1.png", "50%25/2.png", "é/3.png", "d" * 90 + "/" + "f" * 90 + "%FE.png"]


UNSAFE = {
    "../up.png": "%2E%2E/up.png",
    "a/../../up.png": "a/%2E%2E/%2E%2E/up.png",
    "/etc/abs.png": "%2Fetc/abs.png",
    "C:/win.png": "C%3A/win.png",
    "c:win.png": "c%3Awin.png",
    "\\\\server\\share\\x.png": "%5C%5Cserver%5Cshare%5Cx.png",
    "a\\..\\..\\x.png": "a%5C..%5C..%5Cx.png",
    "//server/x.png": "%2Fserver/x.png",
}


@pytest.mark.parametrize("name", UNSAFE)
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_names_that_lead_outside_are_unsafe(tmp_path: Path, name: str, kind: str) -> None:
    members = {name: picture(1), "ant/ok.png": picture(2)}
    found = listed(tmp_path, zip_of(members) if kind == "zip" else tar_of(members), f"a.{kind}")
    assert found == {UNSAFE[name]: "UNSAFE_MEMBER", "ant/ok.png": picture(2)}


def test_names_that_are_too_long_or_contain_nul_are_unsafe(tmp_path: Path) -> None:
    long = "n" * 5000 + ".png"
    found = listed(tmp_path, tar_of({long: b"x", "ok.png": b"y"}), "a.tar")
    assert sorted(found.values(), key=str) == sorted(["UNSAFE_MEMBER", b"y"], key=str)
    assert max(map(len, found)) < 300
    data = zip_of({"aXb.png": picture(1)}).replace(b"aXb.png", b"a\0b.png")
    assert listed(tmp_path, data, "b.zip") == {"a%00b.png": "UNSAFE_MEMBER"}


def test_links_and_devices_are_unsafe(tmp_path: Path) -> None:
    kinds = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
    infos = [tar_info(f"a/{i}.png", type=kind, linkname="/etc/passwd") for i, kind in enumerate(kinds)]
    found = listed(tmp_path, tar_of([*((info, b"") for info in infos), ("a/ok.png", b"fine")]), "a.tar")
    assert found == {**dict.fromkeys([f"a/{i}.png" for i in range(5)], "UNSAFE_MEMBER"), "a/ok.png": b"fine"}
    messages = [ref.message for ref in list_refs(tmp_path / "a.tar")]
    assert messages[:2] == ["it is a symbolic link", "it is a hard link"]
    link = zipfile.ZipInfo("a/link.png")
    link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    assert listed(tmp_path, zip_of([(link, b"/etc/passwd")]), "a.zip") == {"a/link.png": "UNSAFE_MEMBER"}


@pytest.mark.skipif(not shutil.which("tar"), reason="there is no tar")
@pytest.mark.parametrize("form", ["gnu", "pax"])
def test_sparse_files_are_unsafe(tmp_path: Path, form: str) -> None:
    with open(tmp_path / "sparse.png", "wb") as file:
        for i in range(12):
            file.seek(i * 300_000)
            file.write(b"data")
    (tmp_path / "z.png").write_bytes(picture(1))
    command = ["tar", f"--format={form}", "-S", "-cf", "a.tar", "sparse.png", "z.png"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert set(read_all(by_key(list_refs(tmp_path / "a.tar"))).values()) == {"UNSAFE_MEMBER", picture(1)}


def test_of_equal_names_a_tar_uses_the_last_and_a_zip_the_first(tmp_path: Path) -> None:
    twice = [("a/x.png", b"one"), ("a/y.png", b"other"), ("a/x.png", b"two"), ("a/x.png#2", b"three")]
    found = listed(tmp_path, tar_of(twice), "a.tar")
    assert found["a/x.png"] == b"two" and found["a/x.png#3"] == "CORRUPT" and found["a/y.png"] == b"other"
    with pytest.warns(UserWarning, match="Duplicate"):
        data = zip_of(twice)
    found = listed(tmp_path, data, "a.zip")
    assert found["a/x.png"] == b"one" and found["a/x.png#3"] == "CORRUPT" and len(found) == 4


def test_of_equal_metadata_a_tar_uses_the_last_and_a_zip_the_first(tmp_path: Path) -> None:
    members = [("1.png", b"one"), ("1.json", b'{"label": "first"}'), ("1.json", b'{"label": "last"}')]
    with pytest.warns(UserWarning, match="Duplicate"):
        (tmp_path / "a.zip").write_bytes(zip_of(members))
    (tmp_path / "a.tar").write_bytes(tar_of(members))
    for name, label in (("a.zip", "first"), ("a.tar", "last")):
        assert by_key(list_refs(tmp_path / name))[f"{name}!1.png"].label == label


def test_encrypted_members_and_unknown_methods_are_faults(tmp_path: Path) -> None:
    data = bytearray(zip_of({"a/1.png": b"one", "a/2.png": b"two", "a/3.png": b"three"}, 0))
    first, second, _ = [i for i in range(len(data)) if data[i : i + 4] == b"PK\1\2"]
    data[first + 8] |= 1
    struct.pack_into("<H", data, second + 10, 9)
    (tmp_path / "a.zip").write_bytes(data)
    encrypted, unknown, sound = list_refs(tmp_path / "a.zip")
    assert encrypted.reason == "UNREADABLE" and "encrypted" in encrypted.message
    assert unknown.reason == "UNSUPPORTED_FORMAT" and "method 9" in unknown.message
    assert sound.is_candidate


def test_overlapping_members_are_a_bomb(tmp_path: Path) -> None:
    data = bytearray(zip_of({"a/1.png": bytes(100_000), "a/2.png": picture(2), "a/ok.png": picture(1)}))
    second = data.index(b"PK\1\2", data.index(b"PK\1\2") + 1)
    struct.pack_into("<L", data, second + 42, 0)  # the directory says that it begins where the first one does
    found = listed(tmp_path, bytes(data), "a.zip")
    assert found == {"a/1.png": "UNSAFE_MEMBER", "a/2.png": "UNSAFE_MEMBER", "a/ok.png": picture(1)}


def test_a_header_with_a_false_size_is_a_fault(tmp_path: Path) -> None:
    for claimed in (10, 200_000, 2**31):
        data = bytearray(zip_of({"a/1.png": bytes(100_000), "a/2.png": b"fine"}))
        place = data.index(b"PK\1\2")
        struct.pack_into("<L", data, place + 24, claimed)
        found = listed(tmp_path, bytes(data), f"{claimed}.zip")
        assert (
            found["a/1.png"] == ("TOO_LARGE" if claimed == 10 else "CORRUPT") and found["a/2.png"] == b"fine"
        )


def test_the_unpacked_size_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "SMALL_BYTES", 300_000)
    pictures = {f"a/{i}.png": bytes(100_000) for i in range(50)}
    found = listed(tmp_path, zip_of(pictures), "a.zip")
    assert found.pop("a.zip") == "TOO_LARGE" and 1 <= len(found) < 50
    for suffix in (".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst"):
        found = listed(tmp_path, PACKERS[suffix](tar_of(pictures)), f"b{suffix}")
        assert found == {f"b{suffix}": "TOO_LARGE"}
    assert not [path for path in (tmp_path / "spool-of-test").rglob("*") if path.is_file()]


def test_the_number_of_members_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_MEMBERS", 4)
    for name, data in (("a.tar", tar_of(PICTURES)), ("a.zip", zip_of(PICTURES))):
        found = listed(tmp_path, data, name)
        assert found.pop(name) == "TOO_LARGE" and found == dict(list(PICTURES.items())[:4])


def test_other_files_are_not_archives(tmp_path: Path) -> None:
    others = ("a.zip", "b.tar", "c.tar.gz", "d.tar.zst")
    files = dict.fromkeys(others, b"no archive at all " * 100)
    put_files(tmp_path / "in", {**files, "ok.zip": zip_of(PICTURES), "empty.tgz": b""})
    found = by_key(list_refs(tmp_path / "in"))
    bad = {key: ref.reason for key, ref in found.items() if not ref.is_candidate}
    assert bad == {**dict.fromkeys(others, "CORRUPT"), "empty.tgz": "EMPTY_FILE"}
    assert {found[key].split for key in bad} == {NO_SPLIT}


def test_a_truncated_zip_is_quarantined(tmp_path: Path) -> None:
    data = zip_of(PICTURES)
    for cut in range(4, len(data), 37):
        assert listed(tmp_path, data[:cut], "a.zip") == {"a.zip": "TRUNCATED"}
    (ref,) = list_refs(tmp_path / "a.zip")
    assert ref.message.endswith("as when a download was cut off; copy or download it again")


@pytest.mark.parametrize("what", ["signature", "name", "size", "volumes", "end"])
def test_a_zip_with_a_damaged_directory_is_quarantined(tmp_path: Path, what: str) -> None:
    data = bytearray(zip_of(PICTURES))
    second = data.index(b"PK\1\2", data.index(b"PK\1\2") + 1)
    end = data.index(b"PK\5\6")
    if what == "signature":
        data[second : second + 4] = b"????"
    elif what == "name":  # the flag says UTF-8
        data[second + 8 : second + 10] = struct.pack("<H", 0x800)
        data[second + 46] = 0xFF
    elif what == "end":
        data[end + 4 :] = bytes(18)
    elif what == "size":
        struct.pack_into("<L", data, end + 12, 0xFFFFFF00)
    else:
        struct.pack_into("<2H2H2L", data, end + 4, 2, 2, 3, 3, 150, 10)
    assert listed(tmp_path, bytes(data), "a.zip") == {"a.zip": "CORRUPT"}
    (ref,) = list_refs(tmp_path / "a.zip")
    assert ref.message.startswith("its directory cannot be read (") and "pack it again" in ref.message


def test_a_truncated_tar_keeps_the_members_before_the_cut(tmp_path: Path) -> None:
    data = tar_of(PICTURES)
    for cut in range(512, len(data), 331):
        found = listed(tmp_path, data[:cut], "a.tar")
        sound = {key: value for key, value in found.items() if isinstance(value, bytes)}
        assert sound.items() <= PICTURES.items() and len(sound) >= min(cut // 1024, 6) - 1
        assert found.keys() - sound.keys() or b"\0" * 512 in data[:cut]


@pytest.mark.parametrize("how", ["header", "lost", "inserted", "hole", "garbage"])
def test_members_before_the_damage_of_a_tar_are_kept(tmp_path: Path, how: str) -> None:
    data = tar_of(PICTURES, tarfile.GNU_FORMAT)
    third = 2 * 1024  # a small picture takes a header and one block
    damaged = {
        "header": data[: third + 5] + b"?" + data[third + 6 :],
        "lost": data[: third - 7] + data[third:],
        "inserted": data[:third] + b"?" * 300 + data[third:],
        "hole": data[:third] + bytes(512) + data[third + 512 :],
        "garbage": data + b"?" * 700,
    }[how]
    found = listed(tmp_path, damaged, "a.tar")
    assert found.pop("a.tar") == "CORRUPT"
    assert found == dict(list(PICTURES.items())[: 6 if how == "garbage" else 2])


def test_joined_tars_are_read(tmp_path: Path) -> None:
    first, second = tar_of({"a/1.png": b"one"}), tar_of({"b/2.png": b"two"})
    both = {"a/1.png": b"one", "b/2.png": b"two"}
    assert listed(tmp_path, first + second, "a.tar") == both
    assert listed(tmp_path, first + bytes(3 << 20) + second, "b.tar") == both
    assert listed(tmp_path, first + second[:1024], "c.tar") == {**both, "c.tar": "TRUNCATED"}
    for suffix in (".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst"):
        pack = PACKERS[suffix]
        joined = pack(first[:700]) + pack(first[700:]) + pack(second)
        assert listed(tmp_path, joined, f"d{suffix}") == both
    assert listed(tmp_path, PACKERS[".tar.gz"](first) + bytes(512), "e.tar.gz") == {"a/1.png": b"one"}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("suffix", [".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst"])
def test_truncated_compressed_tars_are_quarantined(tmp_path: Path, suffix: str) -> None:
    noise = random.Random(1)
    data = PACKERS[suffix](tar_of({f"a/{i}.png": noise.randbytes(40_000) for i in range(30)}))
    for _ in range(2):  # the second time, a spool file may already exist
        (tmp_path / f"a{suffix}").write_bytes(data[: len(data) * 3 // 4])
        found = by_key(list_refs(tmp_path / f"a{suffix}"))
        archive = found[f"a{suffix}"]
        assert archive.reason == "TRUNCATED" and "download it again" in archive.message
        assert len(found) == 1 or suffix == ".tar.zst"  # its decoder gives the members before the cut


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["stored.zip", "deflated.zip", *(f"a{suffix}" for suffix in PACKERS)])
def test_damage_anywhere_is_reported(tmp_path: Path, kind: str) -> None:
    noise = random.Random(kind)
    pictures = {name: noise.randbytes(noise.randrange(100, 900)) for name in PICTURES}
    if kind.endswith(".zip"):
        sound = zip_of(pictures, 0 if kind.startswith("stored") else 8)
    else:
        sound = PACKERS[kind[1:]](tar_of(pictures, noise.choice(FORMS)))
    for case, data in enumerate(mutants(sound, 120)):
        found = listed(tmp_path, data, kind)
        assert all(isinstance(value, bytes) or value.isupper() or value.islower() for value in found.values())
        intact = sum(found.get(name) == value for name, value in pictures.items())
        # Everything lost is reported.
        assert (
            intact == len(pictures)
            or any(isinstance(value, str) for value in found.values())
            or len(found) >= len(pictures)
        ), (case, found)
