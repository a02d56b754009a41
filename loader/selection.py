"""Opens a dataset, and finds the records that a split expression selects, without reading them.

A dataset directory with versions means the version that this process opened first (`pin`).
"""

from __future__ import annotations

import os
import re
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import index as as_int
from typing import NamedTuple

from shardwright.core import storage, versions
from shardwright.core.plan.assign import group_of, hash64, ideal_bounds
from shardwright.schemas.dataset import DATASET_JSON, Dataset, sample_types
from shardwright.schemas.errors import EngineError, UsageError, nearest
from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.schemas.layouts import FeatureRole, FeatureSpec
from shardwright.schemas.ledger import Entry, OtherBuild, written_entries
from shardwright.schemas.plan import ledger_file
from shardwright.schemas.sample_types import HIGHEST, SAMPLE_TYPES, widest
from shardwright.schemas.units import counted, parse_splits
from shardwright.schemas.version import split_version, version_name

#: The types that NumPy can hold; TensorFlow also has bfloat16.
NUMPY_TYPES = (*SAMPLE_TYPES, "float16")
#: Directory with versions -> the dataset directory of the version that this process reads.
pinned_versions: dict[str, str] = {}
#: Number of ledgers that are read at once, and whose rows are in memory together.
_AT_ONCE = 16
#: Selects every split of the dataset, in order.
ALL = "all"
#: The parts of a dataset with folds: all folds but one, and that fold.
TRAIN, VALIDATION = "train", "validation"
_PART = re.compile(r"(?P<name>[\w-]+)(?:\[(?P<begin>[^:\[\]]*):(?P<end>[^:\[\]]*)\])?\Z")
_BOUND = re.compile(r"(?P<value>-?\d+(?:\.\d+)?)(?P<unit>%)?\Z")

#: Roles with an image's class, in order of preference: next to a synset, the text may be its description.
_CLASS_ROLES = (FeatureRole.LABEL, FeatureRole.SYNSET, FeatureRole.LABEL_TEXT)

Predicate = Callable[[str, str], bool]


def open_dataset(dataset: str | os.PathLike[str]) -> Dataset:
    """Reads the `dataset.json` of a local or remote dataset directory.

    Args:
      dataset: Dataset directory, such as `out/` or `gs://bucket/out`. If it has versions, `out` is the
        version that this process opened first (`pin`), and `out@20261121T020000Z` is that version.

    Raises:
      UsageError: If there is no dataset.
      EngineError: If the storage failed.
    """
    return read_dataset(located(dataset))


def pin(dataset: str | os.PathLike[str]) -> str:
    """Finds the latest version of a directory; from now on, this process reads that version by its name.

    A process reads one version of `OUT` for as long as it runs: the one that was the latest when it first
    opened `OUT`. A training that takes a week reads the same data in each epoch, and its validation split
    belongs to its training split. A process that should continue with a newer version calls `pin` again.

    If a training has many processes or hosts, call `pin` in one of them and send the result to the others.
    Then all read the same version, even if a rebuild publishes another one meanwhile:

        name = broadcast(pin("gs://bucket/pets") if rank == 0 else None)  # gs://bucket/pets@20261121T020000Z
        data = load(name, "train")

    Worker processes that receive `Records` (those of `DataLoader` and Grain) read the same version.
    A version must not be removed while it is read: see `keep` and `shardwright versions OUT --pin V`.

    Args:
      dataset: `OUT`, or `OUT@V` to read version V as `OUT` in this process.

    Returns:
      `OUT@V`, which the loader and all commands that read accept; the directory, if it has no versions.

    Raises:
      UsageError: If there is no dataset, or no such version.
      EngineError: If the storage failed.
    """
    version = _located_now(absolute(dataset))
    read_dataset(version)
    name = version_name(version)
    if name != version:
        pinned_versions[split_version(name)[0]] = version
    return name


def located(directory: str | os.PathLike[str]) -> str:
    """Returns the absolute dataset directory that a name means in this process.

    Raises:
      UsageError: If the name is empty, or there is no such version.
      EngineError: If the storage failed.
    """
    path = absolute(directory)
    if path in pinned_versions:
        return pinned_versions[path]
    version = _located_now(path)
    if version == path or split_version(path)[1]:
        return version
    return pinned_versions.setdefault(
        path, version
    )  # threads that ask at once agree, even if the pointer moves


def _located_now(path: str) -> str:
    storage.require_known("dataset", path)
    return versions.located(path)


def read_dataset(directory: str) -> Dataset:
    """Reads the `dataset.json` of a directory that `located` returned.

    Raises:
      UsageError: If there is no dataset.
      EngineError: If the storage failed.
    """
    path = storage.join(directory, DATASET_JSON)
    data = storage.read_if_exists(path)
    if data is None:
        raise UsageError(
            f"{directory} is not a dataset, because it has no {DATASET_JSON}; "
            "name a directory that `shardwright convert` finished."
        )
    return Dataset.from_bytes(data, path)


def at_least(least: int, value: object) -> bool:
    """Returns whether a value is an integer of Python or NumPy, and not below a minimum."""
    try:
        return as_int(value) >= least  # type: ignore[arg-type]
    except TypeError:
        return False


def require_seed(seed: object) -> None:
    """Checks a seed.

    Raises:
      UsageError: If it is not a valid seed.
    """
    if not at_least(0, seed):
        raise UsageError(f"seed {seed!r}: write a whole number from 0 on.")


def absolute(directory: str | os.PathLike[str]) -> str:
    """Returns the absolute path of a directory, which stays valid if the working directory changes.

    Raises:
      UsageError: If the name is empty.
    """
    path = os.fspath(directory)
    if not path:
        raise UsageError(
            "The directory is an empty string; name the one that `shardwright convert` finished."
        )
    return path.rstrip("/") if storage.is_remote(path) else os.path.abspath(path)


def stored_types(dataset: Dataset) -> tuple[str, ...]:
    """Returns the sample types of a dataset's pictures, from the narrowest on.

    Raises:
      UsageError: If it has a type that this version does not know.
    """
    unknown = sorted(dataset.dtypes.keys() - set(SAMPLE_TYPES))
    if unknown:
        raise UsageError(
            f"The dataset {dataset.name} has images of the type {unknown[0]}, which this version of "
            "shardwright does not read; use the version that wrote it."
        )
    return sample_types(dataset)


def chosen_type(dtype: str | None, stored: Sequence[str], choices: Sequence[str]) -> str:
    """Returns the sample type to read pictures as.

    Args:
      dtype: The type that the caller wants; None for the narrowest that loses nothing.
      stored: The sample types of a dataset.
      choices: The types that the caller can want.

    Raises:
      UsageError: If there is no such type, or the pictures cannot be converted to it.
    """
    if dtype is None:
        if len(stored) > 1 and "float32" in stored:
            raise UsageError(
                f"The images are {' and '.join(stored)}, which have no common scale; choose dtype='float32' "
                "for integers from 0 to 1 and floats as stored."
            )
        return widest(stored)
    if dtype not in choices:
        raise UsageError(f"dtype {dtype!r}: choose one of {', '.join(choices)}.")
    if dtype in HIGHEST and "float32" in stored:
        raise UsageError(
            f"dtype {dtype!r}: some images are float32, whose values have no fixed range; choose "
            "dtype='float32'."
        )
    return dtype


def class_feature(dataset: Dataset) -> FeatureSpec | None:
    """Returns the feature with an image's class or classes, if there is one."""
    return next(filter(None, map(dataset.spec, _CLASS_ROLES)), None)


class ShardSlice(NamedTuple):
    """Records of one shard.

    Attributes:
      file: File name of the shard in the dataset directory.
      compression: Compression of the shard: none, gzip or zlib.
      records_in_shard: Number of records in the whole shard.
      numbers: Numbers of the selected records, from 0; ascending, or descending in a reversed `Records`.
    """

    file: str
    compression: str
    records_in_shard: int
    numbers: Sequence[int]


def read_labels(
    directory: str, dataset: Dataset, slices: Sequence[ShardSlice]
) -> Iterator[tuple[ShardSlice, list[tuple[int, Entry]]]]:
    """Yields each slice with the numbers and ledger entries of its records, in order.

    Raises:
      UsageError: If a ledger is missing or belongs to another build.
      EngineError: If it cannot be read.
    """
    ledgers = {
        shard.file: (storage.join(directory, ledger_file(*place)), shard.sha256)
        for place, shard in dataset.placed_shards()
    }
    # In batches, so that the rows of thousands of shards are not in memory together.
    for start in range(0, len(slices), _AT_ONCE):
        batch = slices[start : start + _AT_ONCE]
        yield from zip(batch, storage.at_once(lambda item: _of_slice(item, *ledgers[item.file]), batch))


def _of_slice(item: ShardSlice, path: str, sha256: str) -> list[tuple[int, Entry]]:
    with storage.translated_errors("read", path):
        try:
            written = list(written_entries(storage.read_bytes(path), sha256))
            if len(written) != item.records_in_shard:
                raise ValueError(f"it lists {counted(len(written), 'record')} of {item.records_in_shard:,}")
        except OtherBuild:
            raise UsageError(
                f"{path} belongs to another build of {item.file}; "
                "`shardwright validate` finds all differences."
            ) from None
        except FileNotFoundError:
            raise UsageError(
                f"{path} is missing, and with it the keys and classes of the shard's records; "
                "restore it or convert again."
            ) from None
        except ValueError as error:
            raise EngineError(f"{path} is damaged ({error}); restore it or convert again.") from error
    return [(number, written[number]) for number in item.numbers]


@dataclass(frozen=True)
class Resplit:
    """How to divide splits again without writing anything.

    The new splits replace the divided ones; other splits stay.

    Attributes:
      shares: Share of each new split, such as {"fit": 0.9, "holdout": 0.1} or "fit=0.9,holdout=0.1".
      of: Splits to divide: `train`, `train+validation` or `all`.
      seed: Seed; another seed gives another division.
    """

    shares: Mapping[str, float | str | Fraction] | str
    of: str = "train"
    seed: int = 0


def select(
    dataset: str | os.PathLike[str],
    split: str = "train",
    *,
    keep: Collection[str] | Predicate | None = None,
    fold: int | None = None,
    part: str = TRAIN,
    resplit: Resplit | Mapping[str, float | str | Fraction] | str | None = None,
) -> list[ShardSlice]:
    """Returns the records that a split expression selects, shard by shard.

    `keep` and `fold` are applied first, then `resplit`, then the expression, as if the dataset had been
    converted in that way.

    Args:
      dataset: Dataset directory, local or remote.
      split: `train`, `train+validation`, `all`, or slices of splits as in TFDS: `train[:50%]`,
        `train[10:200]`, `train[-100:]`, `train[25%:75%]`.
      keep: Names of the classes to keep, or a function of (key, class name) that returns whether to keep
        a record. One of several classes is enough; the function gets them joined by U+001F.
      fold: Number of the fold to hold out, from 0, of a dataset with folds (`--folds`).
      part: With `fold`, `train` for all other folds or `validation` for the fold.
      resplit: Shares of new splits to divide `train` into, or a `Resplit`.

    Raises:
      UsageError: If there is no dataset, or the expression, a split, a class or a fold is wrong.
      EngineError: If a ledger cannot be read.
    """
    directory = located(dataset)
    return slices_of(
        read_dataset(directory), split, directory, keep=keep, fold=fold, part=part, resplit=resplit
    )


def slices_of(
    dataset: Dataset,
    split: str,
    directory: str,
    *,
    keep: Collection[str] | Predicate | None = None,
    fold: int | None = None,
    part: str = TRAIN,
    resplit: Resplit | Mapping[str, float | str | Fraction] | str | None = None,
) -> list[ShardSlice]:
    """Returns what `select` does, from an open dataset and its directory."""
    if not isinstance(split, str):
        raise UsageError(f"split {split!r} is not text; write train, train+test, all or train[:80%].")
    compression = str(dataset.plan.settings.get("compression", "none"))
    splits = {
        name: [ShardSlice(shard.file, compression, shard.records, range(shard.records)) for shard in shards]
        for name, shards in dataset.splits.items()
    }
    _check_fold(dataset, fold, part)
    divided: Collection[str] = ()
    new_splits: Collection[str] = ()
    if resplit is not None:
        resplit = resplit if isinstance(resplit, Resplit) else Resplit(resplit)
        divided, new_splits, new_split_of = _division(dataset, splits, resplit)
    to_read = dict.fromkeys(divided)
    predicate = None if keep is None else _predicate(dataset, keep)
    if predicate is not None or fold is not None:
        named = {term.strip().partition("[")[0] for term in split.split("+")}
        to_read |= dict.fromkeys(name for name in splits if name in named or ALL in named)

    def is_kept(entry: Entry) -> bool:
        return (predicate is None or predicate(entry.key, entry.label)) and (
            fold is None or (entry.fold == fold) is (part == VALIDATION)
        )

    selected = {
        name: [] if name in to_read else slices for name, slices in splits.items() if name not in divided
    }
    selected |= {name: [] for name in new_splits}
    for name in to_read:
        for item, rows in read_labels(directory, dataset, splits[name]):
            numbers: defaultdict[str, array[int]] = defaultdict(lambda: array("q"))
            for number, entry in rows:
                if is_kept(entry):
                    numbers[new_split_of(entry) if name in divided else name].append(number)
            for target, of_target in numbers.items():
                selected[target].append(_chosen(item, of_target))
    terms = (_sliced(selected, term.strip(), split) for term in split.split("+"))
    return [item for slices in terms for item in slices if len(item.numbers)]


def number_of_records(slices: Iterable[ShardSlice]) -> int:
    """Returns the number of selected records."""
    return sum(len(item.numbers) for item in slices)


def _chosen(item: ShardSlice, numbers: array[int]) -> ShardSlice:
    """Returns a slice of these records, at least one. Consecutive numbers become a range."""
    if numbers[-1] - numbers[0] + 1 == len(numbers):
        return item._replace(numbers=range(numbers[0], numbers[-1] + 1))
    return item._replace(numbers=numbers)


def _check_fold(dataset: Dataset, fold: int | None, part: str) -> None:
    folds = int(dataset.plan.settings.get("folds") or 0)
    if part not in (TRAIN, VALIDATION):
        hint = nearest(str(part), (TRAIN, VALIDATION)) or "."
        raise UsageError(f"part {part!r}: choose train or validation{hint}")
    if fold is None:
        if part != TRAIN:
            raise UsageError(f"part {part!r} needs a fold, such as fold=0.")
    elif not folds:
        raise UsageError(f"fold {fold!r}: the dataset has no folds; convert it again with --folds 5.")
    elif not at_least(0, fold) or fold >= folds:
        raise UsageError(f"fold {fold!r}: the dataset has the folds 0 to {folds - 1}.")


def _predicate(dataset: Dataset, keep: Collection[str] | Predicate) -> Predicate:
    if callable(keep):
        return keep
    if not isinstance(keep, Collection):
        raise UsageError(f"keep {keep!r}: write a list of class names, or a function of (key, class name).")
    names = {keep} if isinstance(keep, str) else set(keep)
    for name in sorted(names, key=str):
        if name not in dataset.labels:
            raise UsageError(
                f"keep: the dataset has no class {name!r}"
                f"{nearest(str(name), dataset.labels) or '; labels.txt lists its classes.'}"
            )
    return lambda key, label: not names.isdisjoint(label.split(LABEL_SEPARATOR) if label else ())


def _shares(resplit: Resplit) -> dict[str, Fraction]:
    text = resplit.shares
    if not isinstance(text, str | Mapping):
        raise UsageError(
            f"resplit {text!r}: write the share of each new split, such as 'fit=0.9,holdout=0.1'."
        )
    try:
        if not isinstance(text, str):
            # Read 0.1 + 0.2 as 0.3 and 1 / 3 as a third.
            exact = {
                name: Fraction(share).limit_denominator(10**9) if isinstance(share, float) else share
                for name, share in text.items()
            }
            text = ",".join(f"{name}={share}" for name, share in exact.items())
        return parse_splits(text)
    except (ValueError, OverflowError) as error:  # a share may be NaN or infinite
        raise UsageError(f"resplit {text}: {error}.") from None


def _division(
    dataset: Dataset, splits: Collection[str], resplit: Resplit
) -> tuple[Collection[str], Collection[str], Callable[[Entry], str]]:
    """Returns the splits to divide, the new ones, and a function that returns the new split of a record.

    The hash of the key or of its group decides.
    """
    shares = _shares(resplit)
    names = dict.fromkeys(name.strip() for name in resplit.of.split("+"))
    divided = list(splits if ALL in names else names)
    for name in divided:
        _require_split(splits, name, f"resplit of {resplit.of}")
    for name in shares:
        if name in splits and name not in divided:
            raise UsageError(
                f"resplit: split {name!r} is not divided, so its name is in use; choose another."
            )
    settings = dataset.plan.settings
    if settings.get("group_column") or "(?P<group>" in str(settings.get("label_regex", "")):
        raise UsageError(
            "resplit: this dataset keeps groups of images together, but its ledgers do not name them, so "
            "dividing it would separate them; convert it again with the splits that you want."
        )
    pattern = re.compile(settings["split_by"]) if settings.get("split_by") else None
    new_splits, bounds = list(shares), ideal_bounds(list(shares.values()))

    def new_split_of(entry: Entry) -> str:
        # Not the hash that made the split: its values inside one split are not uniform.
        group = group_of(entry.source, pattern) or entry.source
        return new_splits[bisect_right(bounds, hash64(resplit.seed, "resplit", group))]

    return divided, new_splits, new_split_of


def _require_split(splits: Collection[str], name: str, where: str) -> None:
    if name not in splits:
        raise UsageError(
            f"{where}: there is no split {name!r}; the dataset has {', '.join(splits) or 'none'}"
            f"{nearest(name, list(splits)) or '.'}"
        )


def _sliced(splits: Mapping[str, list[ShardSlice]], part: str, expression: str) -> list[ShardSlice]:
    """Returns the records that one term of an expression selects."""
    match = _PART.match(part)
    if not match:
        raise UsageError(
            f"split {expression!r}: {part!r} is not a split; write train, train+test, all, train[:80%] "
            "or train[100:200]."
        )
    name = match["name"]
    if name == ALL:
        if match["begin"] is not None:
            raise UsageError(f"split {expression!r}: all cannot be sliced; slice each split.")
        return [item for slices in splits.values() for item in slices]
    _require_split(splits, name, f"split {expression!r}")
    slices = splits[name]
    if match["begin"] is None:
        return slices
    return at_positions(slices, _positions(slices, match["begin"], match["end"], expression))


def _positions(slices: Sequence[ShardSlice], begin: str, end: str, expression: str) -> range:
    """Returns the positions from one text to another in a split, rounded as in TFDS."""
    records = number_of_records(slices)
    low, high = (_BOUND.match(text.strip()) for text in (begin, end))
    if (begin.strip() and not low) or (end.strip() and not high):
        raise UsageError(
            f"split {expression!r}: [{begin}:{end}] is not a slice; write [:80%], [10:200] or [-100:]."
        )
    percent = any(match and match["unit"] for match in (low, high))

    def record(match: re.Match[str] | None, default: int) -> int:
        if match is None:
            return default
        if not percent and not match["value"].lstrip("-").isdigit():
            raise UsageError(
                f"split {expression!r}: {match['value']} is not a whole number; write % after a share."
            )
        value = float(match["value"])
        if abs(value) > (100 if percent else records):
            end = "100%" if percent else f"the end, after {counted(records, 'record')}"
            raise UsageError(f"split {expression!r}: {match[0]} is beyond {end}.")
        index = round(value * records / 100.0) if percent else int(value)
        return index + records if index < 0 else index

    return range(record(low, 0), record(high, records))


def at_positions(slices: Iterable[ShardSlice], positions: range) -> list[ShardSlice]:
    """Returns the records at some positions among those of the slices, in the order of the positions."""
    if positions.step < 0:
        backwards = reversed(at_positions(slices, positions[::-1]))
        return [item._replace(numbers=item.numbers[::-1]) for item in backwards]
    parts = []
    begin = 0  # the position of the first record of a slice
    for item in slices:
        ahead = positions.start - begin
        first = ahead if ahead > 0 else ahead % positions.step
        numbers = item.numbers[first : max(0, positions.stop - begin) : positions.step]
        parts.append(item._replace(numbers=numbers))
        begin += len(item.numbers)
    return parts
