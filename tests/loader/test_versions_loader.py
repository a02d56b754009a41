"""The version that a process trains on: it stays the same for the whole process."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from helpers.versioned import V1, V2, V3, add_version, point_to

from shardwright import loader
from shardwright.loader import Records, open_dataset, pin
from shardwright.loader import open as opening
from shardwright.pipelines.convert import convert
from shardwright.schemas.errors import UsageError


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory, sound_dataset: Path) -> list[Path]:
    """Two datasets with different numbers of records."""
    from helpers.hostile import make_tree

    root = tmp_path_factory.mktemp("datasets")
    for images in (6, 8):
        tree = make_tree(root / f"in{images}", images)
        convert(input=str(tree), output=str(root / str(images)), resize=8, splits="train=1")
    return [root / "6", root / "8"]


@pytest.fixture
def out(tmp_path: Path, datasets: list[Path]) -> Iterator[str]:
    """Versions of 6 and 8 records; the first is the latest, and nothing has been read."""
    for version, dataset in zip((V1, V2), datasets):
        add_version(tmp_path / "out", dataset, version)
    point_to(tmp_path / "out", V1)
    before = dict(opening._pinned)
    yield str(tmp_path / "out")
    opening._pinned.clear()
    opening._pinned.update(before)


def test_a_process_reads_one_version(out: str) -> None:
    assert len(Records(out)) == 6
    point_to(out, V2)
    assert len(Records(f"{out}/")) == open_dataset(out).all_records == 6
    assert loader.load(out, batch_size=None).num_examples == 6
    assert loader.load(f"{out}@{V2}", batch_size=None).num_examples == len(Records(f"{out}@{V2}")) == 8
    assert pin(out) == f"{out}@{V2}"
    assert len(Records(out)) == 8 and loader.load(out, batch_size=None).num_examples == 8
    assert pin(f"{out}@{V1}") == f"{out}@{V1}"
    assert len(Records(out)) == 6


def test_open_versions_stay_the_same(out: str) -> None:
    data = loader.load(out, batch_size=None, shuffle=False)
    records = Records(out)
    copy = pickle.dumps(records)
    point_to(out, V2)
    pin(out)
    assert sum(1 for _ in data) == len(list(records)) == len(list(pickle.loads(copy))) == 6


def test_relative_and_absolute_paths_give_the_same_version(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(os.path.dirname(out))
    assert pin("out") == f"{out}@{V1}"
    point_to(out, V2)
    monkeypatch.chdir("/")
    assert len(Records(out)) == len(Records(Path(out))) == 6


def test_threads_read_the_same_version(out: str) -> None:
    def ask(number: int) -> int:
        point_to(out, (V1, V2)[number % 2])
        return len(Records(out))

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(ask, range(32)))) == 1


def test_forked_processes_keep_the_version(out: str) -> None:
    """A host gets the name from another host, and a forked process continues with its parent's version."""
    name = pin(out)
    point_to(out, V2)
    code = (
        "import sys; from shardwright.loader import Records; print(*(len(Records(n)) for n in sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, name, out], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["6", "8"]
    child = os.fork()
    if not child:
        os._exit(len(Records(out)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 6


def test_datasets_without_versions_can_be_opened(datasets: list[Path], tmp_path: Path) -> None:
    assert pin(datasets[0]) == str(datasets[0])
    assert len(Records(datasets[0])) == 6
    for read in (pin, Records, open_dataset, loader.load):
        with pytest.raises(UsageError, match="is not a dataset"):
            read(tmp_path)
        with pytest.raises(UsageError, match="is an empty string"):
            read("")


def test_unreadable_versions_are_reported(out: str, tmp_path: Path) -> None:
    for read in (pin, Records, open_dataset, loader.load):
        with pytest.raises(UsageError, match="has no version"):
            read(f"{out}@{V3}")
    Path(out, "latest.json").write_text("{")
    with pytest.raises(UsageError, match=r"latest\.json cannot be used"):
        Records(out)
    os.unlink(f"{out}/latest.json")
    with pytest.raises(UsageError, match="none is published"):
        Records(out)
    point_to(out, V2)
    assert len(Records(out)) == 8, "a question without an answer is asked again"
