"""Findings of a version compared with those that somebody accepted in the version before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shardwright.core.dataset_files import read_dataset
from shardwright.core.rebuild.gate import Accepted
from shardwright.schemas.codes import FindingCode, Severity
from shardwright.schemas.findings import Finding, FindingsOfCode, Violation, Where

CODE = FindingCode.SPLIT_LEAKAGE
REFUSED = Violation("findings", CODE.value, Severity.ERROR, "some leak")


def _found(count: int, *findings: Finding) -> FindingsOfCode:
    return FindingsOfCode(CODE, Severity.ERROR, count, findings)


def _pair(key: str, other: str) -> Finding:
    place = Where("test-00000-of-00001.tfrecord", 0, 0, other)
    return Finding(CODE, "same source bytes", "train-00000-of-00001.tfrecord", 0, 0, key, place)


@pytest.mark.parametrize(
    ("count", "severity"), [(1200, Severity.WARNING), (1100, Severity.WARNING), (1203, Severity.ERROR)]
)
def test_findings_that_are_not_all_stored_are_compared_by_number(count: int, severity: Severity) -> None:
    known = frozenset((frozenset(("a", "b")),))
    accepted = Accepted("v1", ("findings",), counts={CODE.value: 1200}, findings={CODE.value: known})
    found = accepted.weigh_findings(REFUSED, _found(count, _pair("x", "y")))
    assert found.severity is severity
    assert ("3 are new" in found.message) is (severity is Severity.ERROR)


def test_a_pair_is_the_same_in_either_order() -> None:
    known = frozenset((frozenset(("a", "b")),))
    accepted = Accepted("v1", (CODE.value,), counts={CODE.value: 1}, findings={CODE.value: known})
    assert accepted.weigh_findings(REFUSED, _found(1, _pair("b", "a"))).severity is Severity.WARNING
    new = accepted.weigh_findings(REFUSED, _found(2, _pair("b", "a"), _pair("c", "a")))
    message = "some leak; 1 is new since version v1, the first: c: same source bytes"
    assert (new.severity, new.message) == (Severity.ERROR, message)


def test_more_bad_images_than_were_accepted_refuse(sound_dataset: Path) -> None:
    dataset = read_dataset(str(sound_dataset))
    dataset = replace(dataset, ledger={**dataset.ledger, "quarantined": 4})
    accepted = Accepted("v1", ("bad_images",), bad_images=3)
    bad = Violation("bad_images", "max_bad_fraction", Severity.ERROR, "too many")
    assert accepted.weigh_images(bad, dataset) == bad._replace(message="too many; 1 is new since version v1")


def test_findings_of_a_code_that_nobody_accepted_refuse() -> None:
    accepted = Accepted("v1", ("drift",), counts={CODE.value: 1})
    assert accepted.weigh_findings(REFUSED, _found(1, _pair("a", "b"))) is REFUSED
