"""Copies are found whatever the order and the bundles; rows reach their bucket as they are."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from itertools import chain
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that
from hypothesis import example, given
from hypothesis import strategies as st

from shardwright.core.dedupe import first_of_equal, mark_copies
from shardwright.core.hash_buckets import bucket_of, pack_rows, unpack_rows
from shardwright.schemas.codes import Outcome
from shardwright.schemas.image_ref import EncodedRefs, ImageRef, decode_refs, encode_refs
from shardwright.schemas.key_rules import KeyRules
from shardwright.transforms.dedupe import DedupeExact

#: Few checksums and keys with characters that order and encode differently, so that many meet.
_SHA256S = st.sampled_from([hashlib.sha256(bytes([number])).hexdigest() for number in range(4)])
_KEYS = st.text(st.sampled_from("ab/é\U0001f600\udc80￿"), min_size=1, max_size=3)


@given(st.dictionaries(_KEYS, _SHA256S, max_size=12))
def test_all_but_the_smallest_key_of_a_checksum_are_copies(images: dict[str, str]) -> None:
    refs = [ImageRef(key=key, uri=key, sha256=sha256) for key, sha256 in images.items()]
    keys = defaultdict(list)
    for ref in refs:
        keys[ref.sha256].append(ref.key)
    copied = dict(chain.from_iterable(first_of_equal((bytes.fromhex(one), keys[one])) for one in keys))
    for ref, marked in zip(refs, decode_refs(mark_copies(encode_refs(refs), copied)), strict=True):
        first = min(keys[ref.sha256])
        if ref.key == first:
            assert marked == ref
        else:
            assert marked == ref._replace(outcome=Outcome.DEDUPLICATED, reason=first)


def test_batches_stay_packed_and_unreadable_images_stay(tmp_path: Path) -> None:
    refs = []
    for number in range(40):
        path = tmp_path / f"{number:02}"
        path.write_bytes(b"%d" % (number % 7))
        refs.append(ImageRef(key=path.name, uri=str(path), size=1))
    refs.append(ImageRef(key="missing", uri=str(tmp_path / "missing"), size=1))
    batches = [encode_refs(refs[start : start + 10]) for start in range(0, len(refs), 10)]

    def check(found: list[EncodedRefs]) -> None:
        assert len(found) == len(batches)
        marked = {ref.key: ref for batch in found for ref in decode_refs(batch)}
        assert sorted(marked) == sorted(ref.key for ref in refs)
        for number in range(40):
            ref = marked[f"{number:02}"]
            assert ref.sha256 == hashlib.sha256(b"%d" % (number % 7)).hexdigest()
            copied = (Outcome.DEDUPLICATED, f"{number % 7:02}")
            assert (ref.outcome, ref.reason) == (("", "") if number < 7 else copied)
        assert marked["missing"].is_candidate and not marked["missing"].sha256

    with beam.Pipeline("FnApiRunner") as pipeline:
        made = pipeline | beam.Create(batches).with_output_types(EncodedRefs) | DedupeExact(100, KeyRules())
        assert_that(made, check)


TEXTS = ["", "a", "\ud800", "00", "ff", "FF", " 0", "é0", "0a\n0"]
VALUES = st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(TEXTS)


@example([(f"é{number}", number, None, "same") for number in range(500)])
@given(st.integers(0, 4).flatmap(lambda width: st.lists(st.tuples(*[VALUES] * width), max_size=6)))
def test_rows_keep_their_values_and_types(rows: list[tuple[Any, ...]]) -> None:
    unpacked = list(unpack_rows(pack_rows(rows)))
    assert repr(unpacked) == repr(rows if rows and rows[0] else [])


def test_checksums_take_half_of_their_digits() -> None:
    rows = [(f"{number * 7**70 % 2**256:064x}",) for number in range(100)]
    assert len(pack_rows(rows)) < 100 * 33


@pytest.mark.parametrize("buckets", [1, 16, 4096])
def test_all_buckets_are_used(buckets: int) -> None:
    found = {bucket_of(f"class/{number}.jpg", buckets) for number in range(20 * buckets)}
    assert found == set(range(buckets))
