"""Names of versions, and the documents about a version and about the latest one."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardwright.schemas.codes import Severity
from shardwright.schemas.errors import UsageError
from shardwright.schemas.version import (
    Acceptance,
    Pointer,
    VersionRecord,
    VersionState,
    created_at,
    is_version,
    next_version,
    split_version,
    version_name,
    version_path,
)
from shardwright.schemas.violation import Violation

V = "20261121T020000Z"
RECORD = VersionRecord(
    version=V,
    state=VersionState.REFUSED,
    created=1.5,
    finished=2.5,
    previous="20261120T020000Z",
    fingerprint="ab",
    records=7,
    total_bytes=700,
    work={"shards": 3},
    changes={"added": 2},
    refusals=(Violation("drift", "max_count_drop", Severity.ERROR, "é"),),
    accepted=("drift",),
    acceptances=(Acceptance(("drift",), "ana@trainer", 1790000000.5, "the shoes are gone for good"),),
)

#: Whole milliseconds, because a float rounds the last microsecond of a second up in a distant year.
moments = st.datetimes(datetime(1970, 1, 1), datetime(9990, 1, 1)).map(
    lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000, tzinfo=UTC)
)


@given(moments)
@example(datetime(9989, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC))
def test_version_names_are_times(moment: datetime) -> None:
    name = next_version(moment.timestamp(), [])
    assert name == moment.strftime("%Y%m%dT%H%M%SZ").rjust(16, "0") and is_version(name)
    assert created_at(name) == int(moment.timestamp())


@given(moments, st.lists(moments, max_size=5))
def test_version_names_ascend(now: datetime, before: list[datetime]) -> None:
    names = [next_version(at.timestamp(), []) for at in before]
    name = next_version(now.timestamp(), [*names, "notes", "latest", "99999999T999999Z"[:-1]])
    assert is_version(name) and all(name > other for other in names)


def test_other_names_are_not_versions() -> None:
    for name in ("", "20261121", f"{V} ", f"{V}\n", "٢٠٢٦١١٢١T٠٢٠٠٠٠Z", f"x{V}", V.lower()):
        assert not is_version(name), name
    assert created_at("20269999T999999Z") == 0.0


@pytest.mark.parametrize("name", ["99991231T235959Z", "20269999T999999Z"])
def test_names_without_a_successor_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} is named after a time"):
        next_version(0.0, [V, name])


def test_paths_are_split_at_the_version() -> None:
    assert split_version(f"gs://b/pets@{V}") == ("gs://b/pets", V)
    assert split_version(f"a@b/pets@{V}/") == ("a@b/pets", V)
    for path in ("pets", "pets@latest", f"@{V}", f"pets@{V}/x", f"pets/{V}", "", "user@host:pets"):
        assert split_version(path) == (path, "")
    for output in ("pets", "/data/pets", "gs://b/pets", "s3://b/versions/pets"):
        assert version_name(version_path(output, V)) == f"{output}@{V}"
        assert version_name(version_path(output + "/", V) + "/") == f"{output}@{V}"
        assert version_name(output) == output
    assert version_name("pets/versions/old") == "pets/versions/old"


def test_version_records_are_stored() -> None:
    assert VersionRecord.loads(RECORD.dumps().encode()) == RECORD
    assert VersionRecord.loads(replace(RECORD, pinned=True).dumps().encode()) == RECORD
    assert "pinned" not in json.loads(RECORD.dumps())


def test_pointers_are_stored() -> None:
    pointer = Pointer(V, "ab", time.time(), "20261120T020000Z")
    assert Pointer.loads(pointer.dumps().encode()) == pointer


@pytest.mark.parametrize("kind", [VersionRecord, Pointer])
@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"7", b"null", b"{}", b'{"format_version": 2}', b"\xff", b"[" * 99_999]
)
def test_other_documents_are_refused(kind: type[VersionRecord] | type[Pointer], data: bytes) -> None:
    with pytest.raises(ValueError):
        kind.loads(data)


@pytest.mark.parametrize(
    "change",
    [
        {"state": "new"}, {"records": "7"}, {"records": None}, {"changes": {"added": "2"}}, {"changes": []},
        {"created": "today"}, {"refusals": [1]}, {"refusals": [{"gate": "drift"}]}, {"more": 1},
        {"accepted": 3}, {"fingerprint": 3}, {"acceptances": [1]}, {"acceptances": [{"who": "x"}]},
    ],
)  # fmt: skip
def test_damaged_records_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        VersionRecord.loads(json.dumps({**json.loads(RECORD.dumps()), **change}).encode())


def test_a_record_without_acceptances_has_the_format_of_version_0_1() -> None:
    assert "acceptances" not in json.loads(replace(RECORD, acceptances=()).dumps())
    assert str(RECORD.acceptances[0]) == (
        "drift accepted by ana@trainer, 2026-09-21 14:13 UTC: the shoes are gone for good"
    )
    assert str(Acceptance(("a", "b"), "x@y", float("inf"))) == "a, b accepted by x@y"


@pytest.mark.parametrize(
    "change", [{"version": "../x"}, {"version": 7}, {"published": "x"}, {"previous": None}]
)
def test_damaged_pointers_are_refused(change: dict[str, object]) -> None:
    document = json.loads(Pointer(V, "ab", 1.0).dumps())
    with pytest.raises(ValueError):
        Pointer.loads(json.dumps({**document, **change}).encode())
