"""The selected records of shards as a `tf.data.Dataset` of serialized examples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from shardwright.core import storage
from shardwright.core.records.sample import translated_shard_errors
from shardwright.loader.selection import ShardSlice, number_of_records
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.image_ref import printable

_COMPRESSIONS = {"none": "", "gzip": "GZIP", "zlib": "ZLIB"}
#: Number of shards to interleave, and of consecutive records from each. They are fixed, because the
#: choice of tf.data, and so the order, would depend on the machine.
_SHARDS_AT_ONCE, _RECORDS_IN_A_ROW = 16, 16
#: Read buffers in bytes. The remote one is large, because each request to a bucket takes time.
_LOCAL_BUFFER, _REMOTE_BUFFER = 1 << 18, 8 << 20


def serialized_records(
    directory: str,
    dataset: Dataset,
    slices: Sequence[ShardSlice],
    *,
    mixed: bool,
    seed: int | None = None,
) -> tf.data.Dataset:
    """Returns the records of slices, with a known cardinality.

    Args:
      directory: Dataset directory.
      dataset: The content of its `dataset.json`.
      slices: Slices to read, in order.
      mixed: Whether to interleave shards; otherwise records come in the order of the slices.
      seed: Seed for a new order of the shards in each epoch; None for the given order.

    Raises:
      UsageError: If TensorFlow cannot read this storage.
      EngineError: If a local shard is missing or has another size.
    """
    _require_readable(directory)
    if not storage.is_remote(directory):
        _require_whole(directory, dataset, slices)
    numbers = [np.asarray(item.numbers, np.int64) for item in slices]
    first, last = (np.array([found[end] for found in numbers]) for end in (0, -1))
    span = last - first + 1
    # One flag for each record from the first to the last of a slice, for all slices in one array.
    ends = np.cumsum(span)
    starts = ends - span
    masked = int(ends[-1]) > number_of_records(slices)
    if masked:
        wanted = np.zeros(ends[-1], bool)
        for start, found in zip(starts, numbers):
            wanted[found - found[0] + start] = True
        flags = tf.constant(wanted)
    paths = [storage.join(directory, item.file) for item in slices]
    table = {"path": paths, "skip": first, "span": span, "start": starts, "end": ends}
    (compression,) = {_COMPRESSIONS[item.compression] for item in slices}
    buffer = _REMOTE_BUFFER if storage.is_remote(directory) else _LOCAL_BUFFER

    def read(row: dict[str, tf.Tensor]) -> tf.data.Dataset:
        records = tf.data.TFRecordDataset(row["path"], compression_type=compression, buffer_size=buffer)
        records = records.skip(row["skip"]).take(row["span"])
        if masked:
            mine = flags[row["start"] : row["end"]]
            pairs = tf.data.Dataset.zip((records, tf.data.Dataset.from_tensor_slices(mine)))
            records = pairs.filter(lambda record, wanted: wanted).map(lambda record, wanted: record)
        return records

    shards = tf.data.Dataset.from_tensor_slices(table)
    if seed is not None:
        shards = shards.shuffle(len(slices), seed=seed)
    records = shards.interleave(
        tf.autograph.experimental.do_not_convert(read),
        cycle_length=min(_SHARDS_AT_ONCE, len(slices)) if mixed else 1,
        block_length=_RECORDS_IN_A_ROW,
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    return records.apply(tf.data.experimental.assert_cardinality(number_of_records(slices)))


def _require_whole(directory: str, dataset: Dataset, slices: Sequence[ShardSlice]) -> None:
    """Checks the sizes of shards, because TensorFlow's error during an epoch does not name the file."""
    sizes = {shard.file: shard.bytes for shards in dataset.splits.values() for shard in shards}
    for item in slices:
        path = storage.join(directory, item.file)
        with translated_shard_errors(path):
            size = storage.size_of(path)
        if size != sizes[item.file]:
            raise EngineError(
                f"{printable(path)} has {size} bytes instead of {sizes[item.file]}; "
                "restore it or convert again."
            )


def _require_readable(directory: str) -> None:
    scheme = directory.partition("://")[0]
    if storage.is_remote(directory) and scheme not in tf.io.gfile.get_registered_schemes():
        raise UsageError(
            f"{printable(directory)}: the installed TensorFlow cannot read {scheme}://; copy the dataset "
            "to this machine, or read it with shardwright.loader.Records."
        )
