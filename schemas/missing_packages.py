"""Says which package is missing, what needs it, and how to install it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import distributions
from typing import NamedTuple

from shardwright.schemas.errors import UsageError

#: The distributions of this package: with everything that converting needs, and with what reading needs.
FULL, READER = "shardwright", "shardwright-reader"


class _Package(NamedTuple):
    """A package that some installations lack.

    Attributes:
      name: What its users call it.
      extra: The extra of the full distribution that installs it; empty if the distribution itself does.
      reader_extra: The extra of the reader's distribution that installs it; None if none does.
    """

    name: str
    extra: str = ""
    reader_extra: str | None = None


#: Name for `import` -> package. A longer name comes before a shorter one that it begins with.
PACKAGES: Mapping[str, _Package] = {
    "apache_beam": _Package("Apache Beam"),
    "cykooz_resizer": _Package("cykooz-resizer"),
    "google.cloud.dataflow": _Package("Beam's packages for Google Cloud", "dataflow"),
    "google": _Package("google-cloud-storage", "", "gcs"),
    "imagecodecs": _Package("imagecodecs", "", "png16"),
    "jinja2": _Package("Jinja"),
    "obstore": _Package("obstore", "", "aws"),
    "pillow_heif": _Package("pillow-heif", "heif"),
    "prometheus_client": _Package("prometheus-client"),
    "pyarrow": _Package("PyArrow"),
    "pycocotools": _Package("pycocotools"),
    "pydantic": _Package("pydantic"),
    "requests": _Package("requests", "", "gcs"),
    "shtab": _Package("shtab"),
    "tensorflow": _Package("TensorFlow", "tensorflow", "tensorflow"),
    "tensorflow_metadata": _Package("tensorflow-metadata"),
    "yaml": _Package("PyYAML"),
    "zstandard": _Package("zstandard"),
}


class MissingPackage(UsageError, ImportError):
    """Something needs a package that is not installed. The message says what to install."""


@contextmanager
def needed_by(what: str, advice: str = "") -> Iterator[None]:
    """Has an import in the block that fails say what to install.

    Args:
      what: What needs the packages that the block imports, such as `s3://`.
      advice: What to do instead; empty for nothing.

    Raises:
      MissingPackage: If one of `PACKAGES` is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = f"{error.name}."
        package = next((PACKAGES[name] for name in PACKAGES if missing.startswith(f"{name}.")), None)
        if package is None:
            raise
        text = f"{what} needs {package.name}{_how_to_install(package)}{advice and f', {advice}'}."
        raise MissingPackage(text) from error


def _how_to_install(package: _Package) -> str:
    full = f"'{FULL}[{package.extra}]'" if package.extra else FULL
    if any(distributions(name=FULL)) or not any(distributions(name=READER)):
        return f"; install it with `pip install {full}`"
    if package.reader_extra is not None:
        return f"; install it with `pip install '{READER}[{package.reader_extra}]'`"
    return (  # both have the same files, and uninstalling one of them later would remove those of the other
        f", which {READER} leaves out; run `pip uninstall {READER}`, then `pip install {full}`"
    )
