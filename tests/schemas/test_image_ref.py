"""Keys, and references between stages."""

from __future__ import annotations

import os
import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardwright.schemas.image_ref import (
    ImageRef,
    as_in_keys,
    decode_refs,
    encode_refs,
    key_from_bytes,
    printable,
)

_PATHS = st.one_of(
    st.binary(max_size=30),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20).map(str.encode),
    st.lists(
        st.sampled_from([b"%", b"%25", b"%FF", b"\xff", b"\xc3", b"a\xcc\x8a", b"\xc3\xa5", b"/"]), max_size=6
    ).map(b"".join),
)


def _bytes_of(key: str) -> bytes:
    """Returns the bytes of the path according to its key, before normalization."""
    return re.sub(rb"%([0-9A-F]{2})", lambda m: bytes((int(m[1], 16),)), key.encode())


@given(_PATHS)
@example(b"\xed\xb2\x80")  # a surrogate, encoded in a way that UTF-8 does not allow
@example(b"caf\xc3\xa9/cafe\xcc\x81/%E9/\xe9.png")
def test_keys_are_printable_normalized_and_reversible(path: bytes) -> None:
    key = key_from_bytes(path)
    key.encode()  # no surrogates
    assert unicodedata.is_normalized("NFC", key)
    text = path.decode("utf-8", "surrogateescape")
    normal = unicodedata.normalize("NFC", text).encode("utf-8", "surrogateescape")
    restored = _bytes_of(key).decode("utf-8", "surrogateescape")
    restored = unicodedata.normalize("NFC", restored).encode("utf-8", "surrogateescape")
    assert restored == normal


@given(st.lists(_PATHS, max_size=6))
def test_paths_that_differ_after_normalization_have_different_keys(paths: list[bytes]) -> None:
    def normal(path: bytes) -> str:
        return unicodedata.normalize("NFC", path.decode("utf-8", "surrogateescape"))

    assert len({key_from_bytes(path) for path in paths}) == len(set(map(normal, paths)))


def test_keys_by_example() -> None:
    assert key_from_bytes(b"cats/100%/\xff.png") == "cats/100%25/%FF.png"
    assert key_from_bytes(b"%FF") == "%25FF"
    assert key_from_bytes("e\u0301".encode()) == "\u00e9"


@given(st.text(max_size=20))
def test_printable_text_can_be_encoded(text: str) -> None:
    path = os.fsdecode(text.encode("utf-8", "surrogatepass"))
    printable(path).encode()
    assert printable("plain %") == "plain %"


_TEXT = st.text(
    st.characters()
    | st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF, categories=["Cs"])
    | st.characters(categories=["Cs"]),
    max_size=12,
)
_PLACES = st.sampled_from(["", "/data/", "gs://bucket/raw/", "/da\udcffta/"])
_REFS = st.builds(
    ImageRef,
    key=_TEXT,
    uri=_TEXT,
    label=_TEXT,
    split=_TEXT,
    group=_TEXT,
    size=st.integers(-1, 2**63),
    version=_TEXT,
    sha256=_TEXT,
    outcome=_TEXT,
    reason=_TEXT,
    crc32c=_TEXT,
)
#: As sources produce them: the URI ends with the key, and many fields are equal.
_LIKELY_REFS = st.builds(
    lambda place, key, label, size: ImageRef(key, place + key, label, size=size),
    _PLACES,
    _TEXT,
    st.sampled_from(["", "cats", "d\u00f6gs"]),
    st.integers(-1, 3),
)


@given(st.lists(_REFS | _LIKELY_REFS, max_size=6))
@example([ImageRef("a\nb", "/x\udcff\u2028\0")])
@example([ImageRef("k", "\ud83d\ude00")])  # two surrogates that do not belong to one character
@example([ImageRef("", "")] * 3)
@example([ImageRef("a", "/in/a"), ImageRef("b", "/else/where"), ImageRef("c", "/in/c")])
def test_references_survive_a_stage_boundary(refs: list[ImageRef]) -> None:
    decoded = list(decode_refs(encode_refs(refs)))
    assert decoded == refs
    assert all(type(ref) is ImageRef for ref in decoded)


@given(st.lists(_LIKELY_REFS, max_size=6))
def test_equal_references_are_packed_equally(refs: list[ImageRef]) -> None:
    assert encode_refs(iter(refs)) == encode_refs([ImageRef(*ref) for ref in refs])


@given(_REFS)
def test_a_single_reference_survives_a_stage_boundary(ref: ImageRef) -> None:
    assert list(decode_refs(encode_refs([ref]))) == [ref]
    assert list(decode_refs(encode_refs([ref, ref, ref]))) == [ref, ref, ref]


def test_a_thousand_references_are_small() -> None:
    refs = [
        ImageRef(f"cats/{i:05d}.jpg", f"/data/cats/{i:05d}.jpg", "cats", size=1000 + i) for i in range(1000)
    ]
    assert len(encode_refs(refs)) < 20 * len(refs)


def test_a_fingerprint_changes_with_the_source() -> None:
    ref = ImageRef("a", "/a", size=5, version="7")
    assert ref.fingerprint == ref._replace(uri="/b", label="x").fingerprint
    assert ref.fingerprint not in (ref._replace(size=6).fingerprint, ref._replace(version="8").fingerprint)
    assert ref.is_candidate
    assert not ref._replace(outcome="filtered").is_candidate


@pytest.mark.parametrize("name", ["cat", "100%25", "caf%E9", "%25%FF"])
def test_names_as_in_keys_stay(name: str) -> None:
    assert as_in_keys(name) == name


@pytest.mark.parametrize("name", ["100%", "50 % off", "%20", "%7F"])
def test_other_percent_signs_become_as_in_keys(name: str) -> None:
    assert as_in_keys(name) == key_from_bytes(name.encode())
