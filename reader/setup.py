"""Maps the same folders as the `setup.py` above; everything else is in pyproject.toml."""

import runpy
import sys

from setuptools import setup

if "sdist" in sys.argv:
    sys.exit("A source distribution cannot contain folders that are above it; build the wheel: --wheel")

setup(
    version=runpy.run_path("../schemas/__init__.py")["__version__"],
    **runpy.run_path("../setup.py", run_name="shardwright_setup")["mapping"]("../"),
)
