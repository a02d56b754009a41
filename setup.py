"""Maps the top-level folders into the package `shardwright`; everything else is in pyproject.toml."""

from setuptools import find_packages, setup

#: The folder with the modules of `shardwright` itself. One that had its name would hide the installed package
#: from programs that are started here.
ITSELF = "package"
ROOMS = ("pipelines", "loader", "transforms", "core", "schemas")


def mapping(root=""):
    """Returns the packages and their files; `root` is the path to this folder, with a `/` at its end."""
    packages = [
        f"shardwright.{package}"
        for room in ROOMS
        for package in (room, *(f"{room}.{sub}" for sub in find_packages(f"{root}{room}")))
    ]
    return {
        "packages": ["shardwright", *packages],
        "package_dir": {
            "shardwright": f"{root}{ITSELF}",
            **{
                package: root + package.removeprefix("shardwright.").replace(".", "/") for package in packages
            },
        },
        "package_data": {
            **{f"shardwright.{room}": ["py.typed"] for room in ROOMS},
            "shardwright.pipelines": ["py.typed", "json_schemas/*.json", "*.jinja"],
            "shardwright.schemas.sidecars": ["*.jinja"],
            "shardwright": ["py.typed", "*.pyi"],
            "shardwright.core.report": ["page/*"],
        },
    }


if __name__ == "__main__":
    setup(**mapping())
