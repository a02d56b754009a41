"""The messages where a package is not installed."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
from helpers.repository import ROOT

from shardwright.schemas import missing_packages
from shardwright.schemas.errors import UsageError
from shardwright.schemas.missing_packages import FULL, PACKAGES, READER, MissingPackage, needed_by

#: Name for `import` -> name of the distribution, where they differ by more than `_` and `-`.
_DISTRIBUTIONS = {
    "google": "google-cloud-storage",
    "google.cloud.dataflow": "apache-beam[gcp]",
    "yaml": "pyyaml",
}
#: What every installation has, because reading needs it.
_ALWAYS = {"protobuf", "psutil", "google-crc32c", "numpy", "pillow", "rich", "simplejpeg"}


def project(path: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / path).read_text())["project"]


def required(path: str) -> dict[str, dict[str, str]]:
    """Returns extra -> (name of a distribution -> its requirement); "" is what is always installed."""
    read = project(path)
    lists = {"": read["dependencies"], **read["optional-dependencies"]}
    return {
        extra: {re.match(r"[\w.\[\]-]+", item)[0]: item for item in items}  # type: ignore[index]
        for extra, items in lists.items()
    }


def test_each_package_is_in_the_extra_that_messages_name() -> None:
    full, reader = required("pyproject.toml"), required("reader/pyproject.toml")
    for name, package in PACKAGES.items():
        distribution = _DISTRIBUTIONS.get(name, name.replace("_", "-"))
        assert distribution in full[package.extra], name
        extras = [extra for extra in reader if distribution in reader[extra]]
        assert package.reader_extra in extras if extras else package.reader_extra is None, name


def test_each_package_that_may_be_missing_is_known() -> None:
    full = required("pyproject.toml")
    known = {_DISTRIBUTIONS.get(name, name.replace("_", "-")) for name in PACKAGES}
    for extra in full.keys() - {"dev", "docs"}:
        assert set(full[extra]) - _ALWAYS <= known, extra
    assert set(required("reader/pyproject.toml")[""]) == _ALWAYS


def test_the_reader_accepts_the_same_versions() -> None:
    full, reader = required("pyproject.toml"), required("reader/pyproject.toml")
    accepted = full[""] | full["tensorflow"]
    for items in reader.values():
        assert items.items() <= accepted.items()
    for field in ("authors", "license", "requires-python"):
        assert project("reader/pyproject.toml")[field] == project("pyproject.toml")[field]


PIP = "; install it with `pip install"


@pytest.mark.parametrize(
    ("module", "installed", "message"),
    [
        ("obstore.exceptions", READER, f"obstore{PIP} 'shardwright-reader[aws]'`."),
        ("tensorflow", READER, f"TensorFlow{PIP} 'shardwright-reader[tensorflow]'`."),
        ("tensorflow", "", f"TensorFlow{PIP} 'shardwright[tensorflow]'`."),
        ("google.cloud.storage", READER, f"google-cloud-storage{PIP} 'shardwright-reader[gcs]'`."),
        ("google.cloud.dataflow", FULL, f"Beam's packages for Google Cloud{PIP} 'shardwright[dataflow]'`."),
        (
            "apache_beam",
            READER,
            "Apache Beam, which shardwright-reader leaves out; run `pip uninstall shardwright-reader`, then "
            "`pip install shardwright`.",
        ),
        ("jinja2.sandbox", FULL, f"Jinja{PIP} shardwright`."),
        ("obstore", f"{FULL} {READER}", f"obstore{PIP} shardwright`."),
    ],
)
def test_the_message_fits_what_is_installed(
    monkeypatch: pytest.MonkeyPatch, module: str, installed: str, message: str
) -> None:
    monkeypatch.setattr(missing_packages, "distributions", lambda name: [name] * (name in installed.split()))
    with pytest.raises(MissingPackage) as raised, needed_by("This"):
        raise ModuleNotFoundError("no", name=module)
    assert isinstance(raised.value, UsageError) and isinstance(raised.value, ImportError)
    assert str(raised.value) == f"This needs {message}"


def test_other_modules_are_not_explained() -> None:
    for name in ("tensorflow_of_mine", "shardwright.no_such_module", "googly", None):
        with pytest.raises(ModuleNotFoundError) as raised, needed_by("This"):
            raise ModuleNotFoundError("no", name=name)
        assert not isinstance(raised.value, MissingPackage)
