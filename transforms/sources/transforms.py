"""`ListSources`: the inputs as a PCollection of references."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import apache_beam as beam

from shardwright.schemas.image_ref import ImageRef
from shardwright.transforms.progress import PROGRESS
from shardwright.transforms.sources.class_folders import list_class_folders
from shardwright.transforms.sources.inputs import Input

#: What `--source` may name, and how each is listed.
LISTERS: Mapping[str, Callable[[Input], Iterator[ImageRef]]] = {
    "class_folders": list_class_folders,
}


def recognise(source: str) -> str:
    """Returns the lister that `--source` stands for; `auto` takes a folder for class folders."""
    return "class_folders" if source == "auto" else source


def list_source(item: Input, source: str) -> Iterator[ImageRef]:
    """Yields a reference for everything that an input holds, in no particular order."""
    for ref in LISTERS[recognise(source)](item):
        PROGRESS.add(listed=1)
        yield ref


class ListSources(beam.PTransform):
    """Lists the inputs. `PBegin -> PCollection[ImageRef]`."""

    def __init__(self, inputs: Sequence[Input], source: str) -> None:
        super().__init__()
        self._inputs = tuple(inputs)
        self._source = source

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection:
        """Applies the transform."""
        return (
            begin
            | "NameInputs" >> beam.Create(self._inputs, reshuffle=len(self._inputs) > 1)  # Input
            | "ListInput" >> beam.FlatMap(list_source, self._source).with_output_types(ImageRef)  # ImageRef
        )
