"""Names of millions of files are remembered as numbers, which are the same in every process."""

from __future__ import annotations

import hashlib

from shardwright.transforms import storage
from shardwright.transforms.sources.archives.files import UniqueNames
from shardwright.transforms.sources.hashing import name_hash


def test_the_number_of_a_name_depends_on_its_bytes() -> None:
    for name, data in (("", b""), ("cat/1.jpg", b"cat/1.jpg"), ("caf\udce9", b"caf\xe9")):
        assert name_hash(name) == int(hashlib.blake2b(data, digest_size=8).hexdigest(), 16)


def test_numbers_of_names_use_all_64_bits() -> None:
    names = [f"{i}.jpg" for i in range(64)]
    assert any(name_hash(name) >= 1 << 63 for name in names)
    unique = UniqueNames()
    for name in [*names, "0.jpg"]:
        unique.add(name)
    unique.settle([*names, "0.jpg"])
    assert [unique.place(name) for name in ("0.jpg", "0.jpg", "1.jpg")] == [(1, 2), (2, 2), (1, 1)]
    assert unique.other("0.jpg") == "0.jpg#2" and unique.spare("1.jpg") == "1.jpg"


def test_paths_can_be_joined_to_an_empty_path_the_root_and_a_bucket() -> None:
    assert storage.join("", "x") == "x" and storage.join("", "x", "y") == "x/y"
    assert storage.join("/", "x") == "/x" and storage.join("a/", "x") == "a/x"
    assert storage.join("gs://bucket", "x") == "gs://bucket/x"
