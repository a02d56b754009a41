"""Keys of images, references between stages, and the patterns and digests that choose images."""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardwright.schemas.codes import FilterReason
from shardwright.schemas.configuration.kinds import parse_drop
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import (
    ImageRef,
    as_in_keys,
    decode_refs,
    encode_refs,
    key_from_bytes,
)
from shardwright.schemas.key_rules import KeyList, KeyRules, parse_key_list, pattern_regex
from shardwright.schemas.plain_text import printable

TEXTS = st.text("ab/*?[]!.x-", max_size=8)


@pytest.mark.parametrize(
    ("pattern", "matches", "others"),
    [
        ("*.png", ("a.png", "cats/a.png", "b.zip!x.png"), ("a.jpg", "a.png/b.jpg")),
        ("cats/*", ("cats/a.jpg",), ("cats/new/a.jpg", "big/cats/a.jpg")),
        ("cats/**", ("cats/a.jpg", "cats/new/a.jpg"), ("big/cats/a.jpg",)),
        ("drafts/", ("drafts/a.jpg", "cats/drafts/x/a.jpg"), ("drafts", "drafts.jpg")),
        ("/drafts/", ("drafts/a.jpg",), ("cats/drafts/a.jpg",)),
        ("**/new/*.jpg", ("new/a.jpg", "cats/new/a.jpg"), ("new/x/a.jpg", "renew/a.jpg")),
        ("a?c.jpg", ("abc.jpg", "x/abc.jpg"), ("a/c.jpg", "ac.jpg")),
        ("img[0-3].jpg", ("img2.jpg",), ("img4.jpg",)),
        ("img[!0-3].jpg", ("img4.jpg",), ("img2.jpg",)),
        ("x.jpg", ("x.jpg", "b.zip!x.jpg", "b.zip!in/x.jpg"), ("ax.jpg", "x.jpgs", "xyjpg")),
        ("a(1)+.jpg", ("a(1)+.jpg",), ("a1.jpg",)),
        ("e\u0301.jpg", ("\u00e9.jpg",), ("e.jpg",)),
        ("./x.jpg", ("x.jpg",), ("a/x.jpg",)),
        ("./drafts/", ("drafts/a.jpg",), ("cats/drafts/a.jpg",)),
        ("cats\\*.jpg", ("cats/a.jpg", "cats\\*.jpg"), ("big/cats/a.jpg", "cats/new/a.jpg")),
        ("drafts\\", ("drafts/a.jpg", "cats/drafts/a.jpg"), ("drafts.jpg",)),
    ],
)
def test_patterns_match_keys(pattern: str, matches: tuple[str, ...], others: tuple[str, ...]) -> None:
    rule = parse_key_list([pattern])
    assert [key for key in (*matches, *others) if rule.has_key(key)] == list(matches)


@given(TEXTS)
def test_every_pattern_is_a_regular_expression_or_an_error(pattern: str) -> None:
    try:
        rule = parse_key_list([pattern])
    except ValueError:
        return
    assert isinstance(rule.has_key("a/b.x"), bool)


@given(st.text("ab/.!", min_size=1, max_size=8))
def test_a_key_without_wildcards_matches_itself(key: str) -> None:
    if key.strip("/") and not key.startswith("/") and not key.endswith("/"):
        assert re.fullmatch(pattern_regex(key), key)


@given(st.sets(st.binary(min_size=32, max_size=32)), st.binary(max_size=40))
def test_digests_are_a_set(digests: set[bytes], other: bytes) -> None:
    listed = parse_key_list([], [item.hex().upper() for item in digests])
    assert len(listed.digests) == len(digests)
    assert all(listed.has_digest(item.hex()) for item in digests)
    assert listed.has_digest(other.hex()) == (other in digests)
    assert not listed.has_digest("not a digest")


def test_a_file_lists_keys_and_digests_as_sha256sum_prints_them() -> None:
    digest = hashlib.sha256(b"x").hexdigest()
    found = parse_key_list([], [digest, f"{digest[::-1]}  photos/a b.jpg", "cats/*.jpg", digest[:-1]])
    assert found.keys == {"cats/*.jpg", digest[:-1]} and len(found.digests) == 2
    assert found.has_key("cats/*.jpg") and not found.has_key("cats/a.jpg")  # a line is a key, not a pattern
    written_otherwise = parse_key_list([], ["./a.jpg", "cats\\b.jpg", "100%.jpg", "./own.jpg", "own\\c.jpg"])
    assert all(
        map(written_otherwise.has_key, ["a.jpg", "cats/b.jpg", "100%25.jpg", "./own.jpg", "own\\c.jpg"])
    )
    assert [*written_otherwise.entries_of("cats/b.jpg")] == ["cats\\b.jpg"]
    assert found.has_digest(digest) and not found.has_digest("")


def test_excluded_images_are_left_out_even_if_they_are_included() -> None:
    digest, other = ("0" * 64, "1" * 64)
    rules = KeyRules(parse_key_list(["a/*"], [digest]), parse_key_list(["*.png"], [other]))
    rules = pickle.loads(pickle.dumps(rules))
    assert rules.need_bytes
    assert rules.reason_by_key("a/x.png") is FilterReason.EXCLUDED
    assert rules.reason_by_key("b/x.jpg") is None  # its bytes may still include it
    assert rules.reason_by_bytes("b/x.jpg", "2" * 64) is FilterReason.NOT_INCLUDED
    assert rules.reason_by_bytes("b/x.jpg", digest) is None
    assert rules.reason_by_bytes("a/x.jpg", "2" * 64) is None
    assert rules.reason_by_bytes("a/x.jpg", other) is FilterReason.EXCLUDED
    assert KeyRules(KeyList(("a/*",))).reason_by_key("b/x.jpg") is FilterReason.NOT_INCLUDED
    assert KeyRules().reason_by_key("b/x.jpg") is None and not KeyRules().need_bytes


def test_codes_to_drop_have_one_form() -> None:
    assert parse_drop("blurry, DARK,BLURRY") == ("DARK", "BLURRY") and parse_drop("") == ()
    texts = ("blurry,DARK", "DARK,BLURRY")
    one, other = (ConvertSettings(input=("in",), drop=text, min_bytes="1kB") for text in texts)
    assert one.identity() == other.identity()
    assert (one.identity()["drop"], one.identity()["min_bytes"]) == ("DARK,BLURRY", 1000)


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


def _normal(path: bytes) -> str:
    return unicodedata.normalize("NFC", path.decode("utf-8", "surrogateescape"))


@given(_PATHS)
@example(b"\xed\xb2\x80")  # a surrogate, encoded in a way that UTF-8 does not allow
@example(b"caf\xc3\xa9/cafe\xcc\x81/%E9/\xe9.png")
def test_keys_are_printable_normalized_and_reversible(path: bytes) -> None:
    key = key_from_bytes(path)
    key.encode()  # no surrogates
    assert unicodedata.is_normalized("NFC", key)
    assert _normal(_bytes_of(key)) == _normal(path)


@given(st.lists(_PATHS, max_size=6))
def test_paths_that_differ_after_normalization_have_different_keys(paths: list[bytes]) -> None:
    assert len(set(map(key_from_bytes, paths))) == len(set(map(_normal, paths)))


@given(st.text(max_size=20))
def test_printable_text_can_be_encoded(text: str) -> None:
    path = os.fsdecode(text.encode("utf-8", "surrogatepass"))
    printable(path).encode()
    assert printable("plain %") == "plain %" and printable("\ud800\udc80") == "?%80"


_TEXT = st.text(
    st.characters()
    | st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF, categories=["Cs"])
    | st.characters(categories=["Cs"]),
    max_size=12,
)
_PLACES = st.sampled_from(["", "/data/", "gs://bucket/raw/", "/da\udcffta/"])
_REFS = st.builds(
    ImageRef,
    size=st.integers(-1, 2**63),
    **dict.fromkeys(
        ("key", "uri", "label", "split", "group", "version", "sha256", "outcome", "reason", "crc32c"), _TEXT
    ),
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


def test_a_thousand_references_are_small() -> None:
    refs = [
        ImageRef(f"cats/{i:05d}.jpg", f"/data/cats/{i:05d}.jpg", "cats", size=1000 + i) for i in range(1000)
    ]
    assert len(encode_refs(refs)) < 20 * len(refs)


def test_a_fingerprint_changes_with_the_source() -> None:
    ref = ImageRef("a", "/a", size=5, version="7")
    assert ref.fingerprint == ref._replace(uri="/b", label="x").fingerprint
    assert ref.fingerprint not in (ref._replace(size=6).fingerprint, ref._replace(version="8").fingerprint)


def test_only_percent_signs_that_are_not_as_in_keys_are_changed() -> None:
    assert all(as_in_keys(name) == name for name in ("cat", "100%25", "caf%E9", "%25%FF"))
    assert all(as_in_keys(name) == key_from_bytes(name.encode()) for name in ("100%", "5 %", "%20", "%7F"))
