"""Names of millions of files are remembered as numbers, which are the same in every process."""

from __future__ import annotations

import hashlib

from shardwright.core import storage
from shardwright.core.sources.file_states import name_hash


def test_the_number_of_a_name_depends_on_its_bytes() -> None:
    for name, data in (("", b""), ("cat/1.jpg", b"cat/1.jpg"), ("caf\udce9", b"caf\xe9")):
        assert name_hash(name) == int(hashlib.blake2b(data, digest_size=8).hexdigest(), 16)


def test_numbers_of_names_use_all_64_bits() -> None:
    names = [f"{i}.jpg" for i in range(64)]
    assert any(name_hash(name) >= 1 << 63 for name in names)


def test_paths_can_be_joined_to_an_empty_path_the_root_and_a_bucket() -> None:
    assert storage.join("", "x") == "x" and storage.join("", "x", "y") == "x/y"
    assert storage.join("/", "x") == "/x" and storage.join("a/", "x") == "a/x"
    assert storage.join("gs://bucket", "x") == "gs://bucket/x"
