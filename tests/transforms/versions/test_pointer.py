"""The meaning of paths if there are versions, and the pointer to the latest version."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from helpers.versioned import V1, V2, V3, V4, add_version, latest_of, make_versions, point_to

from shardwright.schemas.errors import UsageError
from shardwright.schemas.version import Pointer, VersionState
from shardwright.transforms.versions import pointer as pointers
from shardwright.transforms.versions.listing import list_versions
from shardwright.transforms.versions.pointer import located, read_pointer, switch_pointer


@pytest.fixture
def out(tmp_path: Path, sound_dataset: Path) -> str:
    """Three published versions."""
    make_versions(tmp_path / "out", sound_dataset)
    return str(tmp_path / "out")


def test_paths_with_versions_are_resolved(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (out, f"{out}/", f"{out}@{V3}", f"{out}/@{V3}", f"{out}@{V3}/"):
        assert os.path.samefile(located(path), f"{out}/versions/{V3}"), path
    assert located(f"{out}@{V1}") == located(f"{out}/versions/{V1}") == f"{out}/versions/{V1}"
    point_to(out, V1)
    assert located(out) == f"{out}/versions/{V1}"
    monkeypatch.chdir(os.path.dirname(out))
    assert located("out") == f"out/versions/{V1}" and located(f"./out@{V2}") == f"./out/versions/{V2}"


def test_paths_without_versions_stay_the_same(tmp_path: Path, sound_dataset: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    for path in (
        "", "/", str(sound_dataset), f"{sound_dataset}/", f"{sound_dataset}/*.tfrecord", f"{tmp_path}/folder",
        f"{tmp_path}/file", f"{tmp_path}/file/below", f"{tmp_path}/nowhere", "nul\0", "x" * 5000, "a@b", "@",
        "hdfs://host/out", f"{tmp_path}/folder@latest",
    ):  # fmt: skip
        assert located(path) == path


def test_missing_versions_are_reported(out: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"has no version {V1[:-2]}9Z; did you mean {V1}\?"):
        located(f"{out}@{V1[:-2]}9Z")
    with pytest.raises(UsageError, match="holds no versions"):
        located(f"{tmp_path}/nowhere@{V1}")
    with pytest.raises(UsageError, match="versions need a local disk"):
        located(f"hdfs://host/out@{V1}")
    add_version(out, None, V4, "building")
    with pytest.raises(UsageError, match=f"{V4} is not complete"):
        located(f"{out}@{V4}")


def test_a_directory_without_a_published_version_is_reported(tmp_path: Path, sound_dataset: Path) -> None:
    add_version(tmp_path, sound_dataset, V1, "refused")
    with pytest.raises(UsageError, match=f"none is published.*{tmp_path}@{V1}"):
        located(str(tmp_path))


@pytest.mark.parametrize(
    "data", ["", "{", "[]", '{"format_version": 1}', '{"format_version": 2, "version": "x"}']
)
def test_damaged_pointers_are_reported(out: str, data: str) -> None:
    Path(out, "latest.json").write_text(data)
    for read in (located, read_pointer):
        with pytest.raises(UsageError, match=f"latest.json cannot be used: .*shardwright rollback {out} V"):
            read(out)
    assert located(f"{out}@{V1}")


def test_a_pointer_to_a_missing_version_is_reported(out: str) -> None:
    shutil.rmtree(f"{out}/versions/{V3}")
    with pytest.raises(UsageError, match=f"names version {V3}, which is missing"):
        located(out)


def test_a_version_removed_during_the_search_is_reported(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    is_dataset = pointers._is_dataset

    def rebuilt_meanwhile(directory: str) -> bool:
        if directory.endswith(V3):
            shutil.rmtree(directory, ignore_errors=True)
            point_to(out, V2)
        return is_dataset(directory)

    monkeypatch.setattr(pointers, "_is_dataset", rebuilt_meanwhile)
    assert located(out) == f"{out}/versions/{V2}"


def test_the_pointer_can_be_created(tmp_path: Path) -> None:
    out = str(tmp_path / "new")
    assert read_pointer(out) is None
    assert switch_pointer(out, Pointer(V1, "f", 1.0), None)
    assert not switch_pointer(out, Pointer(V2, "f", 1.0), None)
    Path(out, "latest.json").write_text("{")
    assert not switch_pointer(out, Pointer(V1, "f", 2.0), None)


def test_one_of_many_concurrent_switches_succeeds(out: str) -> None:
    found = read_pointer(out)
    assert found is not None
    versions = [f"202701{day:02}T000000Z" for day in range(1, 9)]
    with ThreadPoolExecutor(8) as pool:
        done = list(
            pool.map(lambda version: switch_pointer(out, Pointer(version, "f", 1.0), found[1]), versions)
        )
    assert done.count(True) == 1
    assert latest_of(out)["version"] == versions[done.index(True)]


def test_versions_are_listed(out: str, sound_dataset: Path) -> None:
    shutil.copytree(f"{out}/versions/{V1}", f"{out}/versions/{V4}")
    os.makedirs(f"{out}/versions/20261125T020000Z/_shards")
    Path(out, "versions", "20261126T020000Z").write_text("a file")
    Path(out, "versions", V2, "pinned.json").write_text("")
    records = list_versions(out)
    assert [record.version for record in records] == [V1, V2, V3, V4, "20261125T020000Z"]
    assert [record.pinned for record in records] == [False, True, False, False, False]
    assert (
        records[-1].state is VersionState.BUILDING and records[-1].created == records[0].created + 4 * 86_400
    )
    assert list_versions(f"{out}/nowhere") == list_versions(f"{out}/latest.json") == []
