"""Gives the test files that share something expensive to the same process of the suite.

The processes of the suite share the files of tests. Only those that get the files of a group import
TensorFlow, start the servers of the storage tests, or start the process from which commands are forked. On
more than four processes, several share each group.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

_TESTS = Path(__file__).parents[1]
#: Run the programs of documents, which import TensorFlow.
_DOCUMENTS = ("docs/test_walkthroughs.py", "pipelines/test_docs.py")
_IMPORT = re.compile(r"^from (helpers[\w.]*) import (?:\(([^)]*)\)|(.*))", re.MULTILINE)
_FORKS = re.compile(r"\b(?:run_forked|start)\b")
_TENSORFLOW = re.compile(r"[(]\"tensorflow(?:_datasets[\w.]*)?\"[)]|\bloader\.load\b")
#: Group -> how many processes of the suite there are for each that gets files of the group.
_PROCESSES = {"storage": 4, "forks": 4, "tensorflow": 2}


def group_of(file: str) -> str:
    """Returns the group of a file of tests; empty if it needs nothing expensive.

    Args:
      file: Path relative to the folder `tests`.
    """
    if file.startswith("storage/"):
        return "storage"
    imports = _imports(_TESTS / file)
    if _FORKS.search(imports.get("helpers.hostile", "")):
        return "forks"
    return "tensorflow" if file in _DOCUMENTS or _uses_tensorflow(_TESTS / file) else ""


@functools.cache
def _imports(path: Path) -> dict[str, str]:
    """Returns module of the helpers -> what a file imports from it."""
    return {found[1]: found[2] or found[3] for found in _IMPORT.finditer(path.read_text("utf-8"))}


@functools.cache
def _uses_tensorflow(path: Path) -> bool:
    """Returns whether a file, or a helper that it imports, may use TensorFlow."""
    if not path.exists():  # a package
        return False
    if _TENSORFLOW.search(path.read_text("utf-8")):
        return True
    helpers = (_TESTS / f"{module.replace('.', '/')}.py" for module in _imports(path))
    return any(_uses_tensorflow(helper) for helper in helpers)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the groups first, because the process that gets one is busy with it for long."""
    order = [*_PROCESSES, ""]
    items.sort(key=lambda item: order.index(group_of(item.path.relative_to(_TESTS).as_posix())))


class Parts:
    """Divides each group into as many parts as processes get files of it; other files are on their own."""

    def __init__(self, processes: int) -> None:
        """Divides for a number of processes of the suite."""
        self._processes = processes
        self._parts: dict[str, str] = {}
        self._files: Counter[str] = Counter()

    def of(self, file: str) -> str:
        """Returns the name of the part that a file belongs to; files of equal parts stay together.

        Args:
          file: Path relative to the folder `tests`.
        """
        if file not in self._parts:
            group = group_of(file)
            count = -(-self._processes // _PROCESSES[group]) if group else 1
            self._parts[file] = f"{group} {self._files[group] % count}" if group else file
            self._files[group] += 1
        return self._parts[file]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Returns what gives the processes one part after the other, instead of single files."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    parts = Parts(len(config.getoption("tx")))

    class PartScheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = config.rootpath / super()._split_scope(nodeid)
            return parts.of(file.relative_to(_TESTS).as_posix())

    return PartScheduling(config, log)
