"""Engines may repeat a finished step if they lose the worker that ran it, including the commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from helpers.cloud import BUCKET, storage_emulator
from helpers.hostile import document, shard_hashes
from helpers.repository import PHOTOS

from shardwright.pipelines.convert import convert
from shardwright.schemas.errors import DataRefused
from shardwright.transforms import commit, storage


def again(times: int, notes: list[Any]) -> Callable[..., Any]:
    """Returns a commit that runs several times, whatever the results."""
    original = commit.commit

    def run(*arguments: Any, **named: Any) -> Any:
        for _ in range(times - 1):
            try:
                notes.append(original(*arguments, **named))
            except DataRefused as error:
                notes.append(error.message)
        return original(*arguments, **named)

    return run


@pytest.fixture(params=["local", "bucket"])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "local":
        yield str(tmp_path / "out")
        return
    with storage_emulator():
        yield f"gs://{BUCKET}/out"


def build(output: str, **settings: Any) -> Any:
    values = {"input": str(PHOTOS), "output": output, "resize": 16, "limit": 12, **settings}
    return convert(**values, beam_options=["--runner=FnApiRunner", "--no_auth"])


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset of a run in which no step is repeated."""
    output = tmp_path_factory.mktemp("truth") / "out"
    build(str(output), shards=2)
    return output


@pytest.mark.sampled(1)
@pytest.mark.parametrize("overwrite", [False, True], ids=["fresh", "overwrite"])
def test_a_repeated_commit_publishes_the_same(overwrite: bool, output: str, truth: Path) -> None:
    notes: list[Any] = []
    if overwrite:
        build(output, shards=3)
    with mock.patch.object(commit, "commit", again(3, notes)):
        made = build(output, shards=2, overwrite=overwrite)
    assert made.dataset.fingerprint == document(truth)["fingerprint"]
    assert [note["fingerprint"] for note in notes] == [made.dataset.fingerprint] * 2
    for file, sha256 in shard_hashes(truth).items():
        with storage.open_local(storage.join(output, file)) as shard:
            assert storage.sha256_of(shard) == sha256
    assert not [file for file in storage.list_files(output) if "replacement" in file or "of-00003" in file]


def test_a_repeated_refusal_is_the_same_refusal(output: str, tmp_path: Path) -> None:
    (tmp_path / "in" / "a").mkdir(parents=True)
    (tmp_path / "in" / "a" / "1.jpg").write_bytes(b"no picture")
    notes: list[Any] = []
    with mock.patch.object(commit, "commit", again(4, notes)), pytest.raises(DataRefused) as refused:
        build(output, input=str(tmp_path / "in"))
    assert notes == [refused.value.message] * 3
    assert "dataset.json" not in storage.list_files(output)
    assert b'"exit_code": 1' in storage.read_bytes(storage.join(output, "_work", "outcome.json"))
