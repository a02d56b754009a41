"""Members of archives: every kind of zip and tar, names, and everything wrong, unsafe or damaged."""

from __future__ import annotations

import io
import shutil
import stat
import struct
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from helpers.hostile import picture
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

from shardwright.core.sources.archives import files, members
from shardwright.schemas.image_ref import NO_SPLIT


@pytest.mark.parametrize("method", [0, 8, 12, 14])
def test_zips_with_every_method_are_read(tmp_path: Path, method: int) -> None:
    assert listed(tmp_path, zip_of(PICTURES, method, b"a comment"), "a.zip") == PICTURES


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
    for name, data in members.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(data)
    folders = [what] if what == "." else sorted(path.name for path in (tmp_path / "in").iterdir())
    command = ["tar", f"--format={form}", "-cf", tmp_path / "a.tar", "-C", tmp_path / "in", *folders]
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
    class Stream(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def tell(self) -> int:
            raise io.UnsupportedOperation

    stream = Stream()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in PICTURES.items():
            archive.writestr(name, data)
    assert listed(tmp_path, stream.getvalue(), "a.zip") == PICTURES


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
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "ok.zip").write_bytes(zip_of(PICTURES))
    for name in ("a.zip", "b.tar", "c.tar.gz", "d.tar.zst"):
        (tmp_path / "in" / name).write_bytes(b"no archive at all " * 100)
    (tmp_path / "in" / "empty.tgz").write_bytes(b"")
    found = by_key(list_refs(tmp_path / "in"))
    bad = {key: ref.reason for key, ref in found.items() if not ref.is_candidate}
    none = dict.fromkeys(("a.zip", "b.tar", "c.tar.gz", "d.tar.zst"), "CORRUPT")
    assert bad == {**none, "empty.tgz": "EMPTY_FILE"}
    assert {found[key].split for key in bad} == {NO_SPLIT}
