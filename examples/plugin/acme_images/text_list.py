"""Reads a text file with a path and a class on each line, such as `photos/1.jpg = cat`."""

from collections.abc import Iterator

from shardwright.core import storage
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.source import Context, InputPart, Source
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.layouts import Needs


def accepts(probe: InputProbe, settings: ConvertSettings) -> bool:
    """Returns whether an input is such a file, for `--source auto`."""
    return probe.is_file and probe.name.endswith(".list")


def list_part(part: InputPart, context: Context) -> Iterator[ImageRef]:
    """Yields a reference for each line."""
    folder = part.path.rpartition("/")[0]
    for number, line in enumerate(storage.read_bytes(part.path).decode().splitlines(), 1):
        path, _, label = (piece.strip() for piece in line.partition("="))
        yield ImageRef(
            key=part.item.prefix + path,
            uri=storage.join(folder, path),
            label=label,
            message=f"line {number}",
        )


SOURCE = Source(
    name="text_list",
    provides=frozenset({Needs.LABEL}),
    accepts=accepts,
    describe=lambda probe, settings: "a list of paths and classes",
    list_part=list_part,
)
