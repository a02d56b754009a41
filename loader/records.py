"""`Records`: a dataset as a sequence, for PyTorch, JAX and NumPy. Needs neither TensorFlow nor Beam."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from copy import copy
from fractions import Fraction
from functools import partial
from itertools import accumulate, islice
from operator import index as as_int
from typing import Any, TypeVar, overload

import numpy as np
from PIL import Image

from shardwright.core.concurrency.thread_pool import each, ordered_map
from shardwright.loader import selection
from shardwright.loader.decode import FeatureReader, PictureReader, Pixels, Value
from shardwright.loader.shard_reader import ShardReader
from shardwright.schemas.errors import UsageError
from shardwright.schemas.example import ParsedExample
from shardwright.schemas.labels import UNLABELLED
from shardwright.schemas.layouts import FeatureRole
from shardwright.schemas.units import counted

Result = TypeVar("Result")

#: Images and their classes. The classes are a list if an image can have any number of them.
Batch = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | list[Any]]
_Task = Callable[[], tuple[Any, Any]]

#: Records that a thread takes together, because a future costs as much time as a small image.
_CHUNK = 8
#: Number of batches to prepare in advance.
_AHEAD = 2
#: Maximum number of open files, and of bytes of unpacked shards, in a process.
OPEN_FILES = 32
UNPACKED_BYTES = 4 * 10**9


class Records:
    """The records of a split, in order: `len(records)`, `records[7]`, `records[-1]`, `records[10:20]`.

    A record is a dict from feature name to bytes, int or float, or to a NumPy array if there are several
    values. `image`, `label` and `image_and_label` return what most programs need. A slice is another
    `Records`. Iteration reads each shard from its beginning to its end, which is the fastest way.

    It can be pickled and shared by threads and processes, forked or not; but a child of `fork` cannot read
    `s3://` or `az://` if its parent has. It works as a map-style dataset of
    `torch.utils.data.DataLoader` and as a data source of Grain. `pictures` returns the same records as
    pairs (image, label).

    Random access to uncompressed shards needs no preparation. A compressed shard is first unpacked into a
    temporary file, which is kept for the next access.

    Args:
      dataset: Dataset directory, local or remote. If it has versions, `OUT` is the version that this
        process opened first (`shardwright.loader.pin`), and `OUT@V` is version V.
      split: `train`, `train+validation`, `all`, or slices such as `train[:80%]`.
      keep: Names of the classes to keep, or a function of (key, class name) that returns whether to keep.
      fold: Number of the fold to hold out, from 0, of a dataset with folds (`--folds`).
      part: With `fold`, `train` for all other folds or `validation` for the fold.
      resplit: Shares of new splits to divide `train` into, or a `Resplit`.
      dtype: Type of the samples of images: uint8, uint16, float32 or float16. Integers are scaled (to 0..1
        for floats), floats stay as they are. None for the type that each record has: uint8 unless
        `--depth keep` made the dataset.
      verify: Whether to check the checksums of each record, which takes very little time.
      open_files: Maximum number of files that a process keeps open.
      unpacked_bytes: Maximum size on disk of the compressed shards that a process has unpacked.

    Raises:
      UsageError: If there is no dataset, or no such split.
      EngineError: If the storage failed.
    """

    def __init__(
        self,
        dataset: str | os.PathLike[str],
        split: str = "train",
        *,
        keep: Collection[str] | selection.Predicate | None = None,
        fold: int | None = None,
        part: str = selection.TRAIN,
        resplit: selection.Resplit | Mapping[str, float | str | Fraction] | str | None = None,
        dtype: str | None = None,
        verify: bool = True,
        open_files: int = OPEN_FILES,
        unpacked_bytes: int = UNPACKED_BYTES,
    ) -> None:
        self.directory = selection.located(dataset)
        self.dataset = selection.read_dataset(self.directory)
        self._select(
            selection.slices_of(
                self.dataset, split, self.directory, keep=keep, fold=fold, part=part, resplit=resplit
            )
        )
        self._shards = ShardReader(
            self.directory, self.dataset, verify=verify, open_files=open_files, unpacked_bytes=unpacked_bytes
        )
        self._features = {spec.name: FeatureReader(spec) for spec in self.dataset.features}
        by_role = {reader.spec.fill: reader for reader in self._features.values() if reader.spec.fill}
        if dtype is not None:
            dtype = selection.chosen_type(dtype, selection.stored_types(self.dataset), selection.NUMPY_TYPES)
        self._pictures = PictureReader(self.dataset, by_role, dtype)
        self._class_feature = selection.class_feature(self.dataset)
        self._ids = {name.encode(): i for i, name in enumerate(self.dataset.labels)}

    @property
    def labels(self) -> tuple[str, ...]:
        """The class names: `labels[i]` is the name of class `i`."""
        return self.dataset.labels

    @property
    def keys(self) -> list[str]:
        """The keys of the records, in order, from the dataset's ledgers.

        Raises:
          UsageError: If a ledger is missing.
        """
        rows = selection.read_labels(self.directory, self.dataset, self._slices)
        return [entry.key for _, of_slice in rows for _, entry in of_slice]

    def _select(self, slices: Sequence[selection.ShardSlice]) -> None:
        self._slices = [item for item in slices if len(item.numbers)]
        #: Position of the first record of each slice, and the number of all records.
        self._starts = list(accumulate((len(item.numbers) for item in self._slices), initial=0))

    def __len__(self) -> int:
        return self._starts[-1]

    def __repr__(self) -> str:
        return f"<{counted(len(self), 'record')} of {self.directory}>"

    @overload
    def __getitem__(self, index: int | np.integer[Any]) -> dict[str, Value]: ...
    @overload
    def __getitem__(self, index: slice) -> Records: ...
    def __getitem__(self, index: int | np.integer[Any] | slice) -> dict[str, Value] | Records:
        if isinstance(index, slice):
            part = copy(self)
            part._select(selection.at_positions(self._slices, range(len(self))[index]))
            return part
        return self._of(index, self._record)

    def __iter__(self) -> Iterator[dict[str, Value]]:
        for place, data in self._stored():
            yield self._read(place, data, self._record)

    def raw(self, index: int | np.integer[Any]) -> bytes:
        """Returns a record as stored: a serialized `tf.train.Example`."""
        return self._shards.read(*self._place(index))

    def image(self, index: int | np.integer[Any]) -> Pixels:
        """Returns a record's image: height x width x channels, with samples of its type or of `dtype`.

        It has the number of channels that the dataset's settings say (1 if all images are gray), else 3.
        """
        return self._of(index, self._pictures.pixels)

    def pil(self, index: int | np.integer[Any]) -> Image.Image:
        """Returns a record's image as a Pillow image: mode L if all images are gray, else RGB.

        Images with other samples than uint8 are converted for display: floats are stretched from their
        smallest to their largest value, and of several channels the first three are shown, or the first.
        """
        return self._of(index, self._pictures.picture)

    def label(self, index: int | np.integer[Any]) -> int | np.ndarray[Any, Any]:
        """Returns a record's class, counted from 0 even if the stored ids are not; -1 for none.

        The result is an array if records can have any number of classes.

        Raises:
          UsageError: If the layout has no class for the image.
        """
        return self._of(index, self._class)

    def image_and_label(self, index: int | np.integer[Any]) -> tuple[Pixels, int | np.ndarray[Any, Any]]:
        """Returns a record's image and class, and reads the record once."""
        return self._of(index, self._image_and_class)

    def pictures(self, transform: Callable[[Pixels], Any] | None = None) -> Pictures:
        """Returns the same records as a sequence of (image, class).

        Args:
          transform: Function applied to each image. Must be picklable for processes that are not forked.
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
        """Returns an iterator of (images, classes): arrays of `batch_size` items, decoded by threads.

        The order depends only on the seed, so use another seed for each epoch.

        Args:
          batch_size: Number of records in a batch.
          shuffle: Whether to shuffle all records. Without it they are read in order, which is faster.
          seed: Seed of the shuffle.
          drop_remainder: Whether to drop the last batch if it is smaller.
          threads: Number of threads that read and decode. None means one more than there are processors.
          transform: Function applied to each image in the threads, for example to resize it.

        Raises:
          UsageError: If the images differ in size, or the layout has no classes.
          EngineError: If a record is damaged or cannot be read.
        """
        if not selection.at_least(1, batch_size):
            raise UsageError(f"batch_size {batch_size!r} is not a number of records; write 1 or more.")
        selection.require_seed(seed)
        if threads is not None and not selection.at_least(1, threads):
            raise UsageError(f"threads {threads!r}: write 1 or more, or None.")

        def read(place: tuple[str, int], data: bytes) -> tuple[Any, Any]:
            image, label = self._read(place, data, self._image_and_class)
            return (transform(image) if transform else image), label

        tasks: Iterator[Callable[[], tuple[Any, Any]]]
        if shuffle:
            # NumPy guarantees the bit stream of PCG64, so the order stays the same.
            order = np.argsort(np.random.PCG64(seed).random_raw(len(self)), kind="stable")
            tasks = (partial(self.pictures(transform).__getitem__, number) for number in order)
        else:
            tasks = (partial(read, *arguments) for arguments in self._stored())
        return _iterate_batches(tasks, batch_size, drop_remainder, threads)

    def _place(self, index: int | np.integer[Any]) -> tuple[str, int]:
        """Returns the file of a record's shard, and the record's number in it."""
        try:
            position = range(len(self))[as_int(index)]
        except IndexError:
            raise IndexError(f"record {index} is out of range: there are {len(self)}") from None
        at = bisect_right(self._starts, position) - 1
        item = self._slices[at]
        return item.file, int(item.numbers[position - self._starts[at]])

    def _of(self, index: int | np.integer[Any], read: Callable[[ParsedExample], Result]) -> Result:
        place = self._place(index)
        return self._read(place, self._shards.read(*place), read)

    def _read(self, place: tuple[str, int], data: bytes, read: Callable[[ParsedExample], Result]) -> Result:
        """Reads part of a record; an error names the record."""
        try:
            return read(ParsedExample(data))
        except ValueError as error:
            raise self._shards.damaged(*place, None, str(error)) from error

    def _stored(self) -> Iterator[tuple[tuple[str, int], bytes]]:
        """Yields the place and the bytes of each record, in order. Reads the records of a shard together."""
        for item in self._slices:
            for number, data in zip(item.numbers, self._shards.read_many(item.file, item.numbers)):
                yield (item.file, int(number)), data

    def _record(self, example: ParsedExample) -> dict[str, Value]:
        return {name: reader.read(example) for name, reader in self._features.items()}

    def _image_and_class(self, example: ParsedExample) -> tuple[Pixels, int | np.ndarray[Any, Any]]:
        return self._pictures.pixels(example), self._class(example)

    def _class(self, example: ParsedExample) -> int | np.ndarray[Any, Any]:
        spec = self._class_feature
        if spec is None:
            raise UsageError(
                f"Records of layout {self.dataset.layout} have no class for the whole image; records[i] "
                "returns what they have."
            )
        values = self._features[spec.name].read(example)
        if spec.fill is not FeatureRole.LABEL:
            several = isinstance(values, np.ndarray)
            return np.array(list(map(self._id, values)), np.int64) if several else self._id(values)
        if isinstance(values, np.ndarray):
            values = values.astype(np.int64)
            return np.where(values == UNLABELLED, UNLABELLED, values - self.dataset.first_label)
        return UNLABELLED if values == UNLABELLED else int(values) - self.dataset.first_label

    def _id(self, name: bytes) -> int:
        if not name:
            return UNLABELLED
        if name not in self._ids:
            raise ValueError(f"its class {name.decode('utf-8', 'replace')!r} is not a class of the dataset")
        return self._ids[name]


class Pictures:
    """Records as a sequence of (image, class), which `DataLoader` and Grain accept directly.

    Args:
      records: The records.
      transform: Function applied to each image.
    """

    def __init__(self, records: Records, transform: Callable[[Pixels], Any] | None = None) -> None:
        self.records = records
        self.transform = transform

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int | np.integer[Any]) -> tuple[Any, Any]:
        image, label = self.records.image_and_label(index)
        return (self.transform(image) if self.transform else image), label


def _iterate_batches(
    tasks: Iterable[_Task], batch_size: int, drop_remainder: bool, threads: int | None
) -> Iterator[Batch]:
    """Yields batches of the results of tasks, in the order of the tasks. A result is an image and its class.

    Args:
      tasks: The tasks, which threads run.
      batch_size: Number of results in a batch.
      drop_remainder: Whether to drop the last batch if it is smaller.
      threads: Number of threads. None means one more than there are processors.

    Raises:
      UsageError: If the images of a batch differ in size or type.
    """
    if threads is None:
        threads = (os.cpu_count() or 1) + 1
    most = max(batch_size * _AHEAD, (threads + 1) * _CHUNK)
    with (
        ThreadPoolExecutor(threads, thread_name_prefix="shardwright-batches") as executor,
        closing(
            ordered_map(
                each(lambda task: task()),
                tasks,
                executor,
                weigh=lambda task: 0,
                max_items=most,
                chunk_items=_CHUNK,
            )
        ) as results,
    ):
        while ready := list(islice(results, batch_size)):
            if len(ready) == batch_size or not drop_remainder:
                yield _stacked(ready)


def _stacked(pairs: list[tuple[Any, Any]]) -> Batch:
    pictures = [np.asarray(picture) for picture, _ in pairs]
    shapes = sorted({picture.shape for picture in pictures})
    if len(shapes) > 1:
        raise UsageError(
            f"The images of a batch have {len(shapes)} shapes, such as {shapes[0]} and {shapes[-1]}; give "
            "them one shape with transform, or convert with --resize and --color rgb."
        )
    types = sorted({picture.dtype.name for picture in pictures})
    if len(types) > 1:  # NumPy would widen integers without scaling them
        raise UsageError(
            f"The images of a batch are {' and '.join(types)}; open the records with one type, such as "
            "Records(..., dtype='float32')."
        )
    labels = [label for _, label in pairs]
    several = any(isinstance(label, np.ndarray) for label in labels)
    return np.stack(pictures), labels if several else np.array(labels, np.int64)
