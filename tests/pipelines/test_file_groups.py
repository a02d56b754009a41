"""Test files that share something expensive run in the same process of the suite."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.file_groups import Parts, group_of

_TESTS = Path(__file__).resolve().parents[1]
#: What a file of tests or a helper would import TensorFlow with while tests are collected.
_AT_ONCE = re.compile(
    r"^(import tensorflow\b(?!_)|from tensorflow(_datasets)?[ .]|from shardwright\.loader import .*\bload\b"
    r"|\w+ = pytest\.importorskip\(\"tensorflow\")",
    re.MULTILINE,
)


@pytest.mark.parametrize(
    ("file", "group"),
    [
        ("storage/test_s3.py", "storage"),
        ("pipelines/test_faults.py", "forks"),
        ("loader/test_tf_dataset.py", "tensorflow"),
        ("schemas/sidecars/test_tfds_features.py", "tensorflow"),
        ("pipelines/test_every_finding.py", "tensorflow"),  # its helper edits records with TensorFlow
        ("pipelines/test_docs.py", "tensorflow"),
        ("pipelines/test_rebuild.py", ""),
    ],
)
def test_a_file_belongs_to_the_group_of_what_it_needs(file: str, group: str) -> None:
    assert group_of(file) == group


@pytest.mark.parametrize(("processes", "count"), [(1, 1), (2, 1), (3, 2), (4, 2), (16, 8)])
def test_a_group_is_divided_for_many_processes(processes: int, count: int) -> None:
    files = sorted(path.relative_to(_TESTS).as_posix() for path in _TESTS.rglob("test_*.py"))
    parts = Parts(processes)
    found = {file: parts.of(file) for file in files}
    assert found == {file: parts.of(file) for file in files}
    needing = [file for file in files if group_of(file) == "tensorflow"]
    assert len(needing) > 40 and len({found[file] for file in needing}) == count
    alone = [file for file in files if not group_of(file)]
    assert all(found[file] == file for file in alone) and len(alone) > 200


def test_tensorflow_is_imported_when_a_test_uses_it() -> None:
    files = [*_TESTS.rglob("test_*.py"), *(_TESTS / "helpers").rglob("*.py"), _TESTS / "conftest.py"]
    assert [str(path) for path in files if _AT_ONCE.search(path.read_text("utf-8"))] == []
