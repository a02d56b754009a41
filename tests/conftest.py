"""Fixtures that the tests of several packages share: real example pictures, and datasets made from them."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import helpers.fewer_imports  # noqa: F401  before all that imports TensorFlow
import pytest
from helpers import described
from helpers.examples import register_profiles
from helpers.hostile import make_tree
from helpers.light_commands import drawing, lighten_commands
from helpers.repository import PHOTOS, SETTINGS

from shardwright.core.concurrency.worker_pool import current_pool
from shardwright.pipelines import cli
from shardwright.pipelines.convert import convert
from shardwright.pipelines.results import ConvertResult
from shardwright.pipelines.validate import validate

# A shell that starts the suite in the background has it ignore Ctrl-C, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
register_profiles()
lighten_commands()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the cases of a test `slow`, except as many as its mark `sampled` says, evenly spread."""
    cases: dict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        sampled = item.get_closest_marker("sampled")
        if sampled and not item.get_closest_marker("slow"):
            cases[item.nodeid.partition("[")[0], sampled.args[0]].append(item)
    for (_, count), group in cases.items():
        usual = {number * len(group) // count for number in range(count)}
        for place, item in enumerate(group):
            if place not in usual:
                item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Excludes imported objects from garbage collection, and collects as seldom as the command does."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*cli.GC_THRESHOLDS)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Excludes all objects from the last garbage collections, which only delay the end of the process."""
    gc.freeze()


@pytest.fixture(scope="module")
def drawn() -> Iterator[None]:
    """Has samples of dataset cards drawn, which other tests leave out."""
    with drawing():
        yield


@pytest.fixture(scope="session", autouse=True)
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Names the folder for datasets that all processes of a run share."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    described.shared_folder = shared / "described"


@pytest.fixture(scope="session", autouse=True)
def own_pool() -> None:
    """Has threads do the work of tests that run no command, whatever options an earlier command had."""
    current_pool()


@pytest.fixture(scope="session")
def photos() -> Path:
    """The example pictures, with one folder per class."""
    return PHOTOS


@pytest.fixture(scope="session")
def sound_dataset() -> Path:
    """A finished dataset of the example pictures; a test that changes it works on a copy."""
    settings = {"input": PHOTOS, **SETTINGS}
    return described.converted_once(described.shared_folder / "sound", lambda _: settings)


@pytest.fixture(scope="session")
def measured_dataset(sound_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy with the statistics of a validation, which no test changes."""
    copy = Path(shutil.copytree(sound_dataset, tmp_path_factory.mktemp("measured") / "dataset"))
    validate(copy, mode="quality")
    return copy


@pytest.fixture
def copied(sound_dataset: Path, tmp_path: Path) -> Path:
    """A copy of this dataset, which a test may change."""
    return Path(shutil.copytree(sound_dataset, tmp_path / "dataset"))


@pytest.fixture
def convert_photos(tmp_path: Path) -> Callable[..., ConvertResult]:
    """Converts the example pictures with some settings into a new directory."""
    count = iter(range(1000))

    def run(**settings: Any) -> ConvertResult:
        values = {"input": str(PHOTOS), "output": str(tmp_path / f"out{next(count)}"), **settings}
        return convert(**values)

    return run


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small tree of generated pictures, for tests of faults."""
    return make_tree(tmp_path / "in")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished dataset of this tree, with two splits."""
    root = tmp_path_factory.mktemp("made")
    convert(input=make_tree(root / "in"), output=root / "out", splits="train=0.5,test=0.5", verify="none")
    return root / "out"
