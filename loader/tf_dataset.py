"""`load`: opens a dataset directory as a `tf.data.Dataset` for training."""

from __future__ import annotations

import hashlib
import inspect
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from shardwright.core import storage
from shardwright.core.records.compression import translated_shard_errors
from shardwright.loader import selection
from shardwright.loader.tf_images import Picture, Size, class_index, converted, parser
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.feature_roles import FeatureRole, Needs

Augment = Callable[..., Any]
#: Bytes of memory for the shuffle buffer. The conversion has shuffled the records already, so the
#: buffer only has to make epochs differ.
_SHUFFLE_BYTES = 128_000_000
_COMPRESSIONS = {"none": "", "gzip": "GZIP", "zlib": "ZLIB"}
#: Number of shards to interleave, and of consecutive records from each. They are fixed, because the
#: choice of tf.data, and so the order, would depend on the machine.
_SHARDS_AT_ONCE, _RECORDS_IN_A_ROW = 16, 16
#: Read buffers in bytes. The remote one is large, because each request to a bucket takes time.
_LOCAL_BUFFER, _REMOTE_BUFFER = 1 << 18, 8 << 20
_DTYPES = (*selection.NUMPY_TYPES, "bfloat16")


def load(
    dataset: str | os.PathLike[str],
    split: str = "train",
    batch_size: int | None = 32,
    image_size: int | Size | None = None,
    *,
    augment: Augment | None = None,
    cache: bool | str | os.PathLike[str] = False,
    shuffle: bool | int | None = None,
    seed: int = 0,
    repeat: bool | int = False,
    deterministic: bool = True,
    drop_remainder: bool = False,
    dtype: str | tf.DType | None = None,
    as_dict: bool | None = None,
    keep: Collection[str] | selection.Predicate | None = None,
    fold: int | None = None,
    part: str = selection.TRAIN,
    resplit: selection.Resplit | Mapping[str, float | str | Fraction] | str | None = None,
) -> tf.data.Dataset:
    """Returns a dataset for training: read, decoded, shuffled, batched and prefetched.

    If records have a class, elements are `(image, label)`. The image has the shape (height, width,
    channels). The label is the index of the class in the dataset's `labels`, from 0 even if the stored ids
    are not, and -1 for none; with `--label_separator` it is a vector with a 1.0 for each class. If records
    have a class for every pixel, elements are `(image, mask)`. Otherwise, or with `as_dict`, they are dicts
    of all features, with `image` decoded and `label` as above. Features of varying length, and masks that an
    image may lack, are batched as `tf.RaggedTensor`.

    The result has a known `cardinality()`, and the attributes `num_examples` and `class_names`.

    Args:
      dataset: Directory that `shardwright convert` wrote, such as `out/` or `gs://bucket/out`. If it has
        versions, `OUT` is the version that this process opened first (`shardwright.loader.pin`), and
        `OUT@V` is version V.
      split: `train`, `train+validation`, `all`, or slices as in TFDS: `train[:80%]`, `test[-100:]`.
      batch_size: Number of examples in a batch; None for single examples.
      image_size: (height, width), or one number for both, to resize images to, with antialiasing and
        without keeping their proportions; None to leave the size as stored, which must be the same for all
        images of a batch.
      augment: Function that takes a single image (or the dict, if elements are dicts) and returns a new
        one. If it has a second parameter, it gets a seed for `tf.image.stateless_...` functions, and
        the result is the same in each run. It is applied after the cache.
      cache: True keeps decoded images in memory after the first epoch, a path keeps them in files there.
      shuffle: True, or the size of the shuffle buffer in records. The order of the shards also changes in
        each epoch. None shuffles splits whose name begins with train, but not a fold that is held out.
      seed: Seed of the order and of `augment`.
      repeat: True to repeat without end, or a number of epochs.
      deterministic: False returns elements as soon as they are ready, in any order.
      drop_remainder: Whether to drop the last batch if it is smaller, so that batches have a static shape.
      dtype: uint8, uint16, float32, float16 or bfloat16, as a name or a type. Integers are scaled: to the
        whole range of uint8 or uint16, or to 0..1 for floats. Stored floats stay as they are. None for the
        type of the dataset: uint8 unless `--depth keep` made it, and uint16 if it has both.
      as_dict: True for dicts of all features, False for pairs. None decides by the layout.
      keep: Names of the classes to keep, or a function of (key, class name). Labels do not change.
      fold: Number of the fold to hold out, from 0, of a dataset with folds (`--folds`).
      part: With `fold`, `train` for all other folds or `validation` for the fold.
      resplit: Shares of new splits to divide `train` into, such as {"fit": 0.9, "holdout": 0.1}, or a
        `Resplit`. `split` can name the new splits.

    Raises:
      UsageError: If there is no dataset, or an argument is wrong.
      EngineError: If the storage failed.
    """
    directory = selection.located(dataset)
    contents = selection.read_dataset(directory)
    size = _size(image_size)
    dtype = _dtype(dtype, selection.stored_types(contents))
    _check(batch_size, shuffle, seed, repeat, augment)
    slices = selection.slices_of(contents, split, directory, keep=keep, fold=fold, part=part, resplit=resplit)
    count = selection.number_of_records(slices)
    if not count:
        raise UsageError(f"split {split!r} holds no records{' that are kept' if keep is not None else ''}.")
    if shuffle is None:
        shuffle = part == selection.TRAIN and any(
            term.strip().startswith("train") for term in split.split("+")
        )
    picture = Picture(contents, size)
    make_element, kind = _element(contents, picture, as_dict)
    if batch_size is not None and None in picture.shape:
        picture.assume_one_size(_serialized_records(directory, contents, slices, mixed=False, seed=None))

    # The order of the shards cannot change once elements are cached.
    data = _serialized_records(
        directory,
        contents,
        slices,
        mixed=bool(shuffle) or not deterministic,
        seed=seed if shuffle and not cache else None,
    )
    if shuffle and not cache:
        data = data.shuffle(_buffer(contents, slices, shuffle), seed=seed)
    data = data.map(make_element, num_parallel_calls=tf.data.AUTOTUNE)
    if cache:
        data = _cached(data, cache, (contents.fingerprint, slices, size, kind, bool(shuffle), deterministic))
        if shuffle:
            # Elements that are cached in memory take no more memory in the buffer.
            pixels = math.prod(side or 0 for side in picture.shape)
            size_of_one = pixels * tf.as_dtype(picture.dtype).size
            buffer = count if cache is True else _buffer(contents, slices, shuffle, size_of_one)
            data = data.shuffle(buffer, seed=seed)
    if augment is not None:
        data = _augmented(data, augment, seed)
    if batch_size is not None:
        varies = any(not spec.shape.is_fully_defined() for spec in tf.nest.flatten(data.element_spec))
        batched = data.ragged_batch if varies else data.batch
        data = batched(batch_size, drop_remainder=drop_remainder)
    if dtype != picture.dtype:
        data = data.map(lambda *element: _converted(element, dtype), num_parallel_calls=tf.data.AUTOTUNE)
    if repeat:
        data = data.repeat(None if repeat is True else repeat)
    options = tf.data.Options()
    options.deterministic = deterministic
    data = data.prefetch(tf.data.AUTOTUNE).with_options(options)
    data.num_examples = count
    data.class_names = list(contents.labels)
    return data


def _size(image_size: int | Sequence[int] | None) -> Size | None:
    if image_size is None:
        return None
    pair = tuple(image_size) if isinstance(image_size, Iterable) else (image_size, image_size)
    if len(pair) != 2 or not all(selection.at_least(1, side) for side in pair):
        raise UsageError(f"image_size {image_size!r}: write (height, width), or one number for both.")
    return int(pair[0]), int(pair[1])


def _dtype(dtype: str | tf.DType | None, stored: Sequence[str]) -> str:
    """Returns the name of a type of TensorFlow or NumPy; for None the type of the stored images."""
    name = None
    if dtype is not None:
        try:
            name = str(tf.as_dtype(dtype).name)
        except TypeError:
            name = str(dtype)
    return selection.chosen_type(name, stored, _DTYPES)


def _check(
    batch_size: int | None, shuffle: bool | int | None, seed: int, repeat: bool | int, augment: Augment | None
) -> None:
    if batch_size is not None and not selection.at_least(1, batch_size):
        raise UsageError(f"batch_size {batch_size!r}: write 1 or more, or None for single examples.")
    if shuffle is not None and not selection.at_least(0, shuffle):
        raise UsageError(f"shuffle {shuffle!r}: write True, False or the number of records to choose from.")
    selection.require_seed(seed)
    if not selection.at_least(0, repeat):
        raise UsageError(f"repeat {repeat!r}: write True, or a number of epochs.")
    if augment is not None and not callable(augment):
        raise UsageError(f"augment {augment!r} is not a function; give one that takes an image.")


def _element(
    dataset: Dataset, picture: Picture, as_dict: bool | None
) -> tuple[Callable[[tf.Tensor], Any], str]:
    """Returns the function that makes an element of a record, and the kind of element."""
    label, mask = selection.class_feature(dataset), dataset.spec(FeatureRole.SEMANTIC_MASK)
    about = {spec.fill.needs for spec in dataset.features if spec.fill is not None}
    kind = "dict"
    if not as_dict:
        if label is not None and not about & {Needs.OBJECTS, Needs.SEMANTIC, Needs.PANOPTIC}:
            kind = "label"
        elif mask is not None and not mask.optional and not about & {Needs.OBJECTS, Needs.PANOPTIC}:
            kind = "mask"
        elif as_dict is False:
            raise UsageError(
                f"as_dict=False: records of layout {dataset.layout} have more than an image and a class; "
                "leave it out."
            )
    index = class_index(dataset, label) if label is not None and kind != "mask" else None
    second = {"label": label, "mask": mask}.get(kind)
    parse = parser(tuple(dict.fromkeys((*picture.needed, second))) if second else dataset.features)

    def make(record: tf.Tensor) -> Any:
        features = parse(record)
        image = picture.decode(features)
        if mask and second is mask:
            return image, picture.decode_mask(mask, features[mask.name])
        of_class = {"label": index(features[label.name])} if label and index else {}
        if second is not None:
            return image, of_class["label"]
        others = (spec for spec in dataset.features if spec != picture.feature)
        decoded = {spec.name: picture.decode_mask(spec, features[spec.name]) for spec in others}
        return {**decoded, "image": image, **of_class}

    return tf.autograph.experimental.do_not_convert(make), kind


def _buffer(
    dataset: Dataset, slices: Sequence[selection.ShardSlice], shuffle: bool | int, size: int = 0
) -> int:
    """Returns the size of the shuffle buffer in records.

    Args:
      dataset: The dataset.
      slices: Slices to read.
      shuffle: True, or the size.
      size: Number of bytes of an element; 0 to use the size of a stored record.
    """
    count = selection.number_of_records(slices)
    if shuffle is not True:
        return min(int(shuffle), count)
    if not size:
        files = {item.file for item in slices}
        shards = [shard for shard in dataset.shards if shard.file in files]
        size = sum(shard.bytes for shard in shards) // sum(shard.records for shard in shards)
    return max(1, min(count, _SHUFFLE_BYTES // max(1, size)))


def _cached(
    data: tf.data.Dataset, cache: Literal[True] | str | os.PathLike[str], identity: object
) -> tf.data.Dataset:
    """Returns the dataset with a cache. Cache files of other data or settings are never used."""
    if cache is True:
        return data.cache()
    directory = selection.absolute(cache)
    with storage.translated_errors("write", directory):
        storage.make_dirs(directory)
    name = hashlib.sha256(repr(identity).encode()).hexdigest()[:16]
    return data.cache(storage.join(directory, name))


def _augmented(data: tf.data.Dataset, augment: Augment, seed: int) -> tf.data.Dataset:
    """Returns the dataset with `augment` applied to each image or dict."""

    def change(element: Any, *seeds: tf.Tensor) -> Any:
        if isinstance(element, tuple):
            return augment(element[0], *seeds), *element[1:]
        return augment(element, *seeds)

    if not _takes_seed(augment):
        return data.map(
            lambda *element: change(element if len(element) > 1 else element[0]),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
    seeds = tf.data.Dataset.random(seed, rerandomize_each_iteration=True).batch(2, drop_remainder=True)
    data = tf.data.Dataset.zip((data, seeds)).map(change, num_parallel_calls=tf.data.AUTOTUNE)
    # By default, tf.distribute would divide the shards among the workers, and then each part once more,
    # because it finds that seeds are not in files.
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return data.with_options(options)


def _takes_seed(augment: Augment) -> bool:
    """Returns whether a function takes a second argument."""
    try:
        parameters = inspect.signature(augment).parameters.values()
    except (TypeError, ValueError):
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in kinds and p.default is inspect.Parameter.empty for p in parameters) == 2


def _converted(element: tuple[Any, ...], dtype: str) -> Any:
    """Returns a batch with images of another type."""
    if len(element) == 1:
        return {**element[0], "image": converted(element[0]["image"], dtype)}
    return converted(element[0], dtype), *element[1:]


def _serialized_records(
    directory: str,
    dataset: Dataset,
    slices: Sequence[selection.ShardSlice],
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
    scheme = directory.partition("://")[0]
    if not storage.is_remote(directory):
        _require_whole(directory, dataset, slices)
    elif scheme not in tf.io.gfile.get_registered_schemes():
        raise UsageError(
            f"{directory}: the installed TensorFlow cannot read {scheme}://; copy the dataset "
            "to this machine, or read it with shardwright.loader.Records."
        )
    numbers = [np.asarray(item.numbers, np.int64) for item in slices]
    first, last = (np.array([chosen[end] for chosen in numbers]) for end in (0, -1))
    span = last - first + 1
    # One flag for each record from the first to the last of a slice, for all slices in one array.
    ends = np.cumsum(span)
    starts = ends - span
    masked = int(ends[-1]) > selection.number_of_records(slices)
    if masked:
        is_chosen = np.zeros(ends[-1], bool)
        for start, chosen in zip(starts, numbers):
            is_chosen[chosen - chosen[0] + start] = True
        flags = tf.constant(is_chosen)
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
            records = pairs.filter(lambda record, is_chosen: is_chosen).map(lambda record, is_chosen: record)
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
    return records.apply(tf.data.experimental.assert_cardinality(selection.number_of_records(slices)))


def _require_whole(directory: str, dataset: Dataset, slices: Sequence[selection.ShardSlice]) -> None:
    """Checks the sizes of shards, because TensorFlow's error during an epoch does not name the file."""
    sizes = {shard.file: shard.bytes for shard in dataset.shards}
    for item in slices:
        path = storage.join(directory, item.file)
        with translated_shard_errors(path):
            size = storage.size_of(path)
        if size != sizes[item.file]:
            raise EngineError(
                f"{path} has {size} bytes instead of {sizes[item.file]}; restore it or convert again."
            )
