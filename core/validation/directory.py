"""Checks a dataset directory as a whole: its files, its empty splits, and its ledger totals."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from shardwright.schemas.codes import FindingCode, Outcome
from shardwright.schemas.dataset import DATASET_JSON, INDEX_DIR, WORK_DIR, Dataset
from shardwright.schemas.findings import Finding
from shardwright.schemas.plan import index_file, is_compressed
from shardwright.schemas.units import counted
from shardwright.schemas.version import CHECKS_DIR

_SHARD_NAME = re.compile(r"[A-Za-z0-9_]+-\d{5,}-of-\d{5,}\.tfrecord(?:\.gz|\.zlib)?\Z")


def unexpected_shards(dataset: Dataset, files: Sequence[str]) -> list[str]:
    """Returns the files that look like shards of the dataset but are not listed as such."""
    listed = {shard.file for shards in dataset.splits.values() for shard in shards}
    return [file for file in files if _SHARD_NAME.match(file) and file not in listed]


def stray_files(dataset: Dataset, files: Sequence[str]) -> list[str]:
    """Returns the files, besides the unexpected shards, that a reader may take for shards of the dataset.

    They match patterns such as `train*` in some folder, without regard to case or a leading dot, as storages
    and readers compare names. A folder with its own `dataset.json` is another dataset.
    """
    listed = {shard.file for shards in dataset.splits.values() for shard in shards}
    others = tuple(file.removesuffix(DATASET_JSON) for file in files if file.endswith(f"/{DATASET_JSON}"))
    apart = (f"{WORK_DIR}/", f"{CHECKS_DIR}/", *others)
    splits = tuple(map(str.casefold, dataset.splits))
    return [
        file
        for file in files
        if _looks_like_shard(file.rpartition("/")[2], splits)
        and not file.startswith(apart)
        and not (_SHARD_NAME.match(file) or file in listed)
    ]


def _looks_like_shard(name: str, splits: tuple[str, ...]) -> bool:
    """Returns whether a name is like that of a shard of one of some splits, in lower case."""
    if name.startswith("._"):  # macOS keeps attributes of files in these
        return False
    plain = name.lstrip(".").casefold()
    return ".tfrecord" in plain and plain.startswith(splits)


def index_files(dataset: Dataset, empty: bool = False) -> dict[str, str]:
    """Returns a mapping of shard to index, which is empty if the dataset has no indexes.

    Args:
      dataset: Contents of `dataset.json`.
      empty: Whether to include shards without records. Version 0.1 wrote empty indexes for them.
    """
    return {
        shard.file: index_file(split, number, count)
        for split, number, count, shard in dataset.placed_shards()
        if not is_compressed(shard.file) and (shard.records or empty)
    }


def unneeded_indexes(dataset: Dataset, files: Sequence[str]) -> list[str]:
    """Returns the indexes that would not be written now: unexpected ones, and those of empty shards."""
    needed = set(index_files(dataset).values())
    return [file for file in _indexes(files) if file not in needed]


def _indexes(files: Sequence[str]) -> list[str]:
    return [file for file in files if file.startswith(f"{INDEX_DIR}/") and file.endswith(".idx")]


def _check_indexes(dataset: Dataset, files: Sequence[str]) -> Iterator[Finding]:
    """Compares the indexes with the shards."""
    present = set(_indexes(files))
    for file, index in index_files(dataset).items():
        if index not in present:
            yield Finding(FindingCode.INDEX_MISMATCH, f"its index {index} is missing", file)
    own = set(index_files(dataset, empty=True).values())
    for index in (file for file in files if file.startswith(f"{INDEX_DIR}/") and file not in own):
        yield Finding(
            FindingCode.INDEX_MISMATCH,
            "the index does not belong to an uncompressed shard of dataset.json",
            index,
        )


def check_directory(dataset: Dataset, files: Sequence[str]) -> Iterator[Finding]:
    """Yields the findings about a dataset that need no shard to be opened.

    Args:
      dataset: Contents of `dataset.json`.
      files: Paths of all files in the directory, relative to it.
    """
    for file in unexpected_shards(dataset, files):
        yield Finding(
            FindingCode.SHARD_UNEXPECTED,
            "the file is named like a shard but dataset.json does not list it",
            file,
        )
    yield from _check_indexes(dataset, files)
    for split in dataset.splits:
        if not dataset.records(split):
            yield Finding(FindingCode.EMPTY_SPLIT, f"split {split!r} has no records")
    ledger = dataset.ledger
    accounted = sum(ledger.get(outcome.value, 0) for outcome in Outcome)
    records = dataset.all_records
    if ledger.get("listed") != accounted or ledger.get("written") != records:
        yield Finding(
            FindingCode.COUNT_MISMATCH,
            f"dataset.json counts {ledger.get('listed')} as listed, accounts for {accounted} and "
            f"has {counted(records, 'record')} for {ledger.get('written')} as written",
        )
