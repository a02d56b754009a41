"""`Records`: a dataset as a sequence, for PyTorch, JAX and NumPy; neither TensorFlow nor Beam is needed."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping
from copy import copy
from fractions import Fraction
from functools import partial
from itertools import accumulate
from operator import index as as_int
from typing import Any, TypeVar, overload

import numpy as np
from PIL import Image

from shardwright.loader.arguments import at_least, require_seed
from shardwright.loader.batches import Batch, iterate_batches
from shardwright.loader.decode import PictureReader, Pixels
from shardwright.loader.labels_of_records import read_labels
from shardwright.loader.open import located, read_dataset
from shardwright.loader.selection import Predicate, Resplit, select
from shardwright.loader.shard_reader import ShardReader
from shardwright.loader.shard_slice import ShardSlice
from shardwright.loader.values import FeatureReader, Value
from shardwright.schemas.errors import UsageError
from shardwright.schemas.example_spans import ExampleSpans
from shardwright.schemas.labels import UNLABELLED
from shardwright.schemas.layouts import FeatureRole
from shardwright.schemas.units import counted

Result = TypeVar("Result")

#: Files that a process holds open, and bytes of compressed shards that it holds unpacked.
OPEN_FILES = 32
UNPACKED_BYTES = 4 * 10**9
#: What names an image's class; beside a synset the text may be what that one is called.
_NAMES = (FeatureRole.SYNSET, FeatureRole.LABEL_TEXT)


class Records:
    """The records of a split, in order: `len(records)`, `records[7]`, `records[-1]`, `records[10:20]`.

    A record is a dict of feature name to bytes, int or float, or to a NumPy array where there are several
    values. `image`, `label` and `image_and_label` say what most want to know of it. A slice is another
    `Records`. To iterate reads each shard from its beginning to its end, which is the fastest.

    It can be pickled, and be shared by threads and by processes, forked or not: it is a map-style data
    set of `torch.utils.data.DataLoader` and a data source of Grain as it is. See `pictures` for one of
    (image, label).

    Records at random come from uncompressed shards at once. A compressed shard is unpacked first, into a
    temporary file that is kept for the next time.

    Args:
      dataset_dir: the dataset directory, local or remote; of one with versions, `OUT` is the version that it
        first meant in this process (`shardwright.loader.pin`), and `OUT@V` a certain one.
      split: `train`, `train+validation`, `all`, or slices such as `train[:80%]`.
      keep: names of the classes to keep, or a function of (key, class name) that says whether to.
      resplit: shares of new splits that `train` is divided into, or a `Resplit`.
      verify: whether to compare the checksums of each record read, which costs next to nothing.
      open_files: files that a process holds open at most.
      unpacked_bytes: of compressed shards, what a process holds unpacked on the disk at most.

    Raises:
      UsageError: if there is no dataset, or no such split.
      EngineError: if the storage failed.
    """

    def __init__(
        self,
        dataset_dir: str | os.PathLike[str],
        split: str = "train",
        *,
        keep: Collection[str] | Predicate | None = None,
        resplit: Resplit | Mapping[str, float | str | Fraction] | str | None = None,
        verify: bool = True,
        open_files: int = OPEN_FILES,
        unpacked_bytes: int = UNPACKED_BYTES,
    ) -> None:
        self.directory = located(dataset_dir)
        self.dataset = read_dataset(self.directory)
        self._slices = select(self.dataset, split, self.directory, keep=keep, resplit=resplit)
        #: Where each slice begins among the records.
        self._starts = list(accumulate((len(item.numbers) for item in self._slices), initial=0))
        self._positions = range(self._starts[-1])
        self._shards = ShardReader(
            self.directory, self.dataset, verify=verify, open_files=open_files, unpacked_bytes=unpacked_bytes
        )
        self._features = {spec.name: FeatureReader(spec) for spec in self.dataset.features}
        self._by_role = {reader.spec.fill: reader for reader in self._features.values() if reader.spec.fill}
        self._pictures = PictureReader(self.dataset, self._by_role)
        self._ids = {name.encode(): i for i, name in enumerate(self.dataset.labels)}

    @property
    def labels(self) -> tuple[str, ...]:
        """The class names: the one of class `i` is `labels[i]`."""
        return self.dataset.labels

    @property
    def keys(self) -> list[str]:
        """The key of each record, in their order, from the dataset's ledgers.

        Raises:
          UsageError: if a ledger is missing.
        """
        rows = read_labels(self.directory, self.dataset, self._slices)
        found = [row.key for _, of_slice in rows for row in of_slice]
        return found if len(self) == len(found) else [found[i] for i in self._positions]

    def __len__(self) -> int:
        return len(self._positions)

    def __repr__(self) -> str:
        return f"<{counted(len(self), 'record')} of {self.directory}>"

    @overload
    def __getitem__(self, index: int | np.integer[Any]) -> dict[str, Value]: ...
    @overload
    def __getitem__(self, index: slice) -> Records: ...
    def __getitem__(self, index: int | np.integer[Any] | slice) -> dict[str, Value] | Records:
        if isinstance(index, slice):
            part = copy(self)
            part._positions = self._positions[index]
            return part
        return self._of(index, self._record)

    def __iter__(self) -> Iterator[dict[str, Value]]:
        return self._each(self._record)

    def raw(self, index: int | np.integer[Any]) -> bytes:
        """Returns a record as it is stored: a serialized `tf.train.Example`."""
        item, number = self._place(index)
        return self._shards.read(item.file, number)

    def image(self, index: int | np.integer[Any]) -> Pixels:
        """Returns a record's picture: uint8, height x width x channels (1 where all are grey, else 3)."""
        return self._of(index, self._pictures.pixels)

    def pil(self, index: int | np.integer[Any]) -> Image.Image:
        """Returns a record's picture as Pillow has it: in mode L where all are grey, else RGB."""
        return self._of(index, self._pictures.picture)

    def label(self, index: int | np.integer[Any]) -> int | np.ndarray[Any, Any]:
        """Returns a record's class, from 0 whatever the record's own ids begin with; -1 for none.

        Where records have any number of classes it is an array of them.

        Raises:
          UsageError: if the layout has no class for the image.
        """
        return self._of(index, self._class)

    def image_and_label(self, index: int | np.integer[Any]) -> tuple[Pixels, int | np.ndarray[Any, Any]]:
        """Returns a record's picture and class, for one reading of it."""
        return self._of(index, self._image_and_class)

    def pictures(self, transform: Callable[[Pixels], Any] | None = None) -> Pictures:
        """Returns the same records as a sequence of (picture, class).

        Args:
          transform: applied to each picture; has to be picklable for processes that are not forked.
        """
        return Pictures(self, transform)

    def batches(
        self,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        drop_remainder: bool = False,
        threads: int | None = None,
        transform: Callable[[Pixels], Any] | None = None,
    ) -> Iterator[Batch]:
        """Returns an iterator of (pictures, classes), arrays of `batch_size`, decoded by threads.

        The order depends on the seed alone: use another one for each epoch.

        Args:
          batch_size: records in a batch.
          shuffle: whether all records are shuffled; else they come in their order, which reads faster.
          seed: of the shuffle.
          drop_remainder: whether to leave out a last batch that is smaller.
          threads: that read and decode; None for one more than there are processors.
          transform: applied to each picture in the threads, say to bring them to one size.

        Raises:
          UsageError: if the pictures have several sizes, or the layout has no classes.
          EngineError: if a record is damaged or cannot be read.
        """
        if not at_least(1, batch_size):
            raise UsageError(f"batch_size {batch_size!r} is no number of records; write 1 or more.")
        require_seed(seed)
        if threads is not None and not at_least(1, threads):
            raise UsageError(f"threads {threads!r}: write 1 or more, or None.")

        def finish(pair: tuple[Pixels, Any]) -> tuple[Any, Any]:
            return (transform(pair[0]) if transform else pair[0]), pair[1]

        def numbered(number: int) -> tuple[Any, Any]:
            return finish(self.image_and_label(number))

        def read(place: tuple[str, int], data: bytes) -> tuple[Any, Any]:
            return finish(self._read(place, data, self._image_and_class))

        tasks: Iterator[Callable[[], tuple[Any, Any]]]
        if shuffle:
            # The bit stream of PCG64 never changes, and so neither does the order.
            order = np.argsort(np.random.PCG64(seed).random_raw(len(self)), kind="stable")
            tasks = (partial(numbered, number) for number in order)
        else:
            tasks = (partial(read, *found) for found in self._stored())
        return iterate_batches(tasks, batch_size, drop_remainder, threads)

    def _place(self, index: int | np.integer[Any]) -> tuple[ShardSlice, int]:
        """Returns the slice and the number in its shard of a record."""
        try:
            position = self._positions[as_int(index)]
        except IndexError:
            raise IndexError(f"record {index} of {len(self)}") from None
        place = bisect_right(self._starts, position) - 1
        item = self._slices[place]
        return item, int(item.numbers[position - self._starts[place]])

    def _of(self, index: int | np.integer[Any], read: Callable[[ExampleSpans], Result]) -> Result:
        item, number = self._place(index)
        return self._read((item.file, number), self._shards.read(item.file, number), read)

    def _read(self, place: tuple[str, int], data: bytes, read: Callable[[ExampleSpans], Result]) -> Result:
        """Reads something of a record; what is wrong with it is told with its place."""
        try:
            return read(ExampleSpans(data))
        except ValueError as error:
            raise self._shards.damaged(*place, None, str(error)) from error

    def _each(self, read: Callable[[ExampleSpans], Result]) -> Iterator[Result]:
        for place, data in self._stored():
            yield self._read(place, data, read)

    def _stored(self) -> Iterator[tuple[tuple[str, int], bytes]]:
        """Yields the place and the bytes of each record, in order; those of a shard are read together."""
        positions = self._positions
        if positions.step < 0:
            for position in range(len(self)):
                item, number = self._place(position)
                yield (item.file, number), self._shards.read(item.file, number)
            return
        for item, start, end in zip(self._slices, self._starts, self._starts[1:]):
            first = max(0, -(-(start - positions.start) // positions.step))
            last = max(0, -(-(end - positions.start) // positions.step))
            inside = positions[first:last]
            if inside:
                numbers = item.numbers[inside[0] - start : inside[-1] + 1 - start : positions.step]
                for number, data in zip(numbers, self._shards.read_many(item.file, numbers)):
                    yield (item.file, int(number)), data

    def _record(self, spans: ExampleSpans) -> dict[str, Value]:
        return {name: reader.read(spans) for name, reader in self._features.items()}

    def _image_and_class(self, spans: ExampleSpans) -> tuple[Pixels, int | np.ndarray[Any, Any]]:
        return self._pictures.pixels(spans), self._class(spans)

    def _class(self, spans: ExampleSpans) -> int | np.ndarray[Any, Any]:
        reader = self._by_role.get(FeatureRole.LABEL)
        if reader is not None:
            found = reader.read(spans)
            if isinstance(found, np.ndarray):
                found = found.astype(np.int64)
                return np.where(found == UNLABELLED, UNLABELLED, found - self.dataset.first_label)
            return UNLABELLED if found == UNLABELLED else int(found) - self.dataset.first_label
        reader = next((self._by_role[role] for role in _NAMES if role in self._by_role), None)
        if reader is None:
            raise UsageError(
                f"Records of layout {self.dataset.layout} have no class of the whole image; "
                "records[i] has what they do have."
            )
        names = reader.read(spans)
        if isinstance(names, np.ndarray):
            return np.array([self._id(name) for name in names], np.int64)
        return self._id(names)

    def _id(self, name: bytes) -> int:
        if not name:
            return UNLABELLED
        if name not in self._ids:
            raise ValueError(f"its class {name.decode('utf-8', 'replace')!r} is not a class of the dataset")
        return self._ids[name]


class Pictures:
    """Records as a sequence of (picture, class), what `DataLoader` and Grain take as they are.

    Args:
      records: the records.
      transform: applied to each picture.
    """

    def __init__(self, records: Records, transform: Callable[[Pixels], Any] | None = None) -> None:
        self.records = records
        self.transform = transform

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int | np.integer[Any]) -> tuple[Any, Any]:
        image, label = self.records.image_and_label(index)
        return (self.transform(image) if self.transform else image), label
