"""Maps the top-level rooms into the namespace `shardwright`; everything else is in pyproject.toml."""

from setuptools import find_packages, setup

ROOMS = ("pipelines", "loader", "transforms", "schemas")

packages = [
    f"shardwright.{package}"
    for room in ROOMS
    for package in (room, *(f"{room}.{sub}" for sub in find_packages(room)))
]

setup(
    packages=packages,
    package_dir={package: package.removeprefix("shardwright.").replace(".", "/") for package in packages},
    package_data={
        **{f"shardwright.{room}": ["py.typed"] for room in ROOMS},
        "shardwright.pipelines": ["py.typed", "json_schemas/*.json"],
        "shardwright.transforms.report": ["page/*"],
    },
)
