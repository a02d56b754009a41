"""Damaged archives are not repaired: what was lost is reported, and nothing else is made of it."""

from __future__ import annotations

import random
import struct
import tarfile
from pathlib import Path

import pytest
from helpers.hostile import check_books
from helpers.packing import FORMS, PACKERS, PICTURES, by_key, list_refs, listed, tar_of, zip_of

from shardwright.pipelines.convert import convert


def test_a_truncated_zip_is_quarantined(tmp_path: Path) -> None:
    data = zip_of(PICTURES)
    for cut in range(4, len(data), 37):
        assert listed(tmp_path, data[:cut], "a.zip") == {"a.zip": "TRUNCATED"}
    (ref,) = list_refs(tmp_path / "a.zip")
    assert ref.message.endswith("as when a download was cut off; copy or download it again")


@pytest.mark.parametrize("what", ["signature", "name", "size", "volumes"])
def test_a_zip_with_a_damaged_directory_is_quarantined(tmp_path: Path, what: str) -> None:
    data = bytearray(zip_of(PICTURES))
    second = data.index(b"PK\1\2", data.index(b"PK\1\2") + 1)
    end = data.index(b"PK\5\6")
    if what == "signature":
        data[second : second + 4] = b"????"
    elif what == "name":  # the flag says UTF-8
        data[second + 8 : second + 10] = struct.pack("<H", 0x800)
        data[second + 46] = 0xFF
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


def _damaged(noise: random.Random, data: bytes) -> bytes:
    place = noise.randrange(len(data))
    kind = noise.randrange(4)
    if kind == 0:
        return data[:place] + bytes([data[place] ^ 1 << noise.randrange(8)]) + data[place + 1 :]
    if kind == 1:
        return data[:place] + noise.randbytes(noise.randrange(1, 64)) + data[place + noise.randrange(64) :]
    if kind == 2:
        return data[:place] + data[place + noise.randrange(1, 200) :]
    return data[:place]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["stored.zip", "deflated.zip", *(f"a{suffix}" for suffix in PACKERS)])
def test_damage_anywhere_is_reported(tmp_path: Path, kind: str) -> None:
    noise = random.Random(kind)
    pictures = {name: noise.randbytes(noise.randrange(100, 900)) for name in PICTURES}
    if kind.endswith(".zip"):
        sound = zip_of(pictures, 0 if kind.startswith("stored") else 8)
    else:
        sound = PACKERS[kind[1:]](tar_of(pictures, noise.choice(FORMS)))
    for case in range(120):
        data = _damaged(noise, sound)
        found = listed(tmp_path, data, kind)
        assert all(isinstance(value, bytes) or value.isupper() or value.islower() for value in found.values())
        intact = sum(found.get(name) == value for name, value in pictures.items())
        # Everything lost is reported.
        assert (
            intact == len(pictures)
            or any(isinstance(value, str) for value in found.values())
            or len(found) >= len(pictures)
        ), (case, found)


def test_ledgers_balance_after_a_hundred_damaged_archives(tmp_path: Path) -> None:
    noise = random.Random(7)
    sound = [(".zip", zip_of(PICTURES, method)) for method in (0, 8)]
    sound += [(suffix, pack(tar_of(PICTURES))) for suffix, pack in PACKERS.items()]
    (tmp_path / "in").mkdir()
    for case in range(100):
        suffix, data = sound[case % len(sound)]
        (tmp_path / "in" / f"{case:03d}{suffix}").write_bytes(_damaged(noise, data) or b"x")
    made = convert(input=str(tmp_path / "in"), output=str(tmp_path / "out"), max_bad_fraction=1, resize=16)
    keys = {key.partition("!")[0].partition("#")[0] for key in check_books(tmp_path / "out")}
    assert len(keys) == 100 and made.dataset.ledger["written"] > 80
