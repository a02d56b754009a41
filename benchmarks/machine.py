"""Describes the machine and the libraries, which a benchmark's results depend on."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from functools import cache
from pathlib import Path

PACKAGES = (
    "shardwright",
    "apache-beam",
    "tensorflow",
    "pillow",
    "numpy",
    "cykooz-resizer",
    "simplejpeg",
    "opencv-python-headless",
    "obstore",
    "img2dataset",
    "litdata",
    "torch",
)

# Asks an interpreter for its packages, without importing anything large.
_PROBE = """
import importlib.metadata as metadata, importlib.util as util, json, sys
packages, modules = json.loads(sys.argv[1])
versions = {}
for name in packages:
    try:
        versions[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
missing = [name for name in modules if util.find_spec(name) is None]
print(json.dumps([versions, missing]))
"""


def _probe(python: str, modules: tuple[str, ...]) -> tuple[dict[str, str], list[str]]:
    question = json.dumps([PACKAGES, modules])
    answer = subprocess.run([python, "-c", _PROBE, question], check=True, capture_output=True, text=True)
    versions, missing = json.loads(answer.stdout)
    return versions, missing


@cache
def package_versions(python: str) -> dict[str, str]:
    """Returns the installed versions of the packages that matter.

    Args:
      python: Interpreter to ask.

    Returns:
      Versions by package name.
    """
    return _probe(python, ())[0]


@cache
def missing_modules(python: str, modules: tuple[str, ...]) -> list[str]:
    """Finds the modules that an interpreter does not have.

    Args:
      python: Interpreter to ask.
      modules: Top-level modules that are needed.

    Returns:
      The names of the missing modules.
    """
    return _probe(python, modules)[1]


def _field(path: str, key: str) -> str:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")


def machine_facts() -> dict[str, str]:
    """Describes the machine.

    Returns:
      Facts by name; "load" is the number of running tasks in the last minute, before the benchmark.
    """
    memory = _field("/proc/meminfo", "MemTotal").split()
    return {
        "CPU": _field("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{int(memory[0]) / 1024**2:.1f} GiB" if memory[0].isdigit() else "unknown",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "load": f"{os.getloadavg()[0]:.1f}",
    }
