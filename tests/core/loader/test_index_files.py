"""Index files beside shards: other tools read them, and validation checks them.

NVIDIA DALI's script `tools/tfrecord2idx` (and its copy in the package `tfrecord`) writes a line for each
record, `OFFSET SIZE` and a line feed: the byte at which its frame begins, and the size of the whole frame
with length and checksums. DALI's reader (dali/operators/reader/loader/indexed_file_loader.h) reads pairs of
numbers to the end of the file, and requires as many index files as shards.

The package `tfrecord` runs in a separate process: its protobuf messages have the names of TensorFlow's, and
one process cannot import both.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.depths import findings_at
from helpers.described import described
from helpers.resealing import Forgery, put

from shardwright.loader import Records
from shardwright.schemas.findings import Finding
from shardwright.schemas.ledger import load_index
from shardwright.schemas.plan import index_file

SHARDS = {"train": 3, "validation": 1, "test": 1}
INDEXES = [index_file(split, i, count) for split, count in SHARDS.items() for i in range(count)]


def shard_of(index: Path) -> Path:
    return index.parent.parent / f"{index.stem}.tfrecord"


def findings_in(dataset: Path) -> list[Finding]:
    """Returns what a fast check reports."""
    found = findings_at(dataset, "fast", {}, [])
    assert not isinstance(found, str)
    return found


def run(script: str, *arguments: Path) -> str:
    """Runs a script that imports the package `tfrecord`; returns its output."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, timeout=120, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_uncompressed_shard_has_the_same_index_as_from_the_tools(
    sound_dataset: Path, copied: Path
) -> None:
    assert sorted(INDEXES) == sorted(f"_index/{path.name}" for path in (sound_dataset / "_index").iterdir())
    run("from tfrecord.tools.tfrecord2idx import main; main()", copied)  # it writes beside each shard
    for name in INDEXES:
        index = sound_dataset / name
        assert index.read_bytes() == (copied / f"{index.stem}.tfindex").read_bytes()


SHARED = """
import sys
from tfrecord.reader import multi_tfrecord_loader, tfrecord_loader

directory, = sys.argv[1:]
shard, index = directory + "/train-00000-of-00003.tfrecord", directory + "/_index/train-00000-of-00003.idx"

def names(*arguments, **options):
    return [record["image/filename"] for record in tfrecord_loader(*arguments, **options)]

whole = names(shard, None)
parts = [names(shard, index, shard=(worker, 3)) for worker in range(3)]
assert len(whole) > 3 and all(parts)
assert sum(parts, []) == whole
assert sorted(names(shard, index)) == sorted(whole)  # from anywhere on, and round again

found = multi_tfrecord_loader(
    directory + "/{}.tfrecord",
    directory + "/_index/{}.idx",
    {f"train-{i:05d}-of-00003": 1 / 3 for i in range(3)},
    {"image/filename": "byte", "image/class/label": "int"},
    infinite=False,
)
print(len({record["image/filename"] for record in found}))
"""


def test_the_package_tfrecord_reads_shards_by_their_indexes(sound_dataset: Path) -> None:
    document = json.loads((sound_dataset / "dataset.json").read_text())
    assert int(run(SHARED, sound_dataset)) == document["splits"]["train"]["records"]


def test_an_empty_shard_has_no_index() -> None:
    dataset = described("hostile")
    empty, full = sorted(dataset.glob("*.tfrecord"), key=lambda shard: shard.stat().st_size)
    assert not empty.stat().st_size
    assert [path.stem for path in (dataset / "_index").iterdir()] == [full.stem]  # DALI refuses an empty one
    assert [finding.code for finding in findings_in(dataset)] == ["EMPTY_SPLIT"]


DAMAGES: list[tuple[Callable[[bytes], bytes], str]] = [
    (lambda text: text.replace(b"0 ", b"1 ", 1), "is '1 "),
    (lambda text: text[: len(text) // 2], "not '"),
    (lambda text: text + b"99 99\n", "is '99 99', not ''"),
    (lambda text: text[:-1], "is nothing, not ''"),
    (lambda text: text + b"\nnothing", "is 'nothing', not nothing"),
    (lambda text: b"", "line 1 of its index"),
    (lambda text: b"\xff\x00 <script>" + text, "line 1 of its index"),
    (lambda text: text.replace(b"\n", b"\r\n"), "line 1 of its index"),
]


@pytest.mark.parametrize("damages", [DAMAGES[:4], DAMAGES[4:]])
def test_the_first_wrong_line_of_an_index_is_reported(
    copied: Path, damages: list[tuple[Callable[[bytes], bytes], str]]
) -> None:
    for name, (damage, _) in zip(INDEXES, damages):
        (copied / name).write_bytes(damage((copied / name).read_bytes()))
    found = {finding.shard: finding for finding in findings_in(copied)}
    for name, (_, message) in zip(INDEXES, damages):
        finding = found.pop(shard_of(copied / name).name)
        assert finding.code == "INDEX_MISMATCH" and message in finding.message
    assert not found


def test_missing_and_unexpected_indexes_are_reported(copied: Path) -> None:
    (copied / INDEXES[2]).rename(copied / "_index" / "train-00009-of-00003.idx")
    assert {(finding.code, finding.shard) for finding in findings_in(copied)} == {
        ("INDEX_MISMATCH", "train-00002-of-00003.tfrecord"),
        ("INDEX_MISMATCH", "_index/train-00009-of-00003.idx"),
    }


def test_a_wrong_record_does_not_hide_a_wrong_index(copied: Path) -> None:
    forgery = Forgery(copied)
    forgery.edit(("train", 0), 0, put("image/class/text", b"zebra"))
    forgery.seal()
    (copied / INDEXES[0]).write_bytes(b"0 1\n")
    assert sorted(finding.code for finding in findings_in(copied)) == ["INDEX_MISMATCH", "LABEL_TEXT"]


def test_the_index_of_a_damaged_shard_is_not_reported(copied: Path) -> None:
    shard = shard_of(copied / INDEXES[0])
    data = bytearray(shard.read_bytes())
    data[40] ^= 1
    shard.write_bytes(data)
    codes = {finding.code for finding in findings_in(copied)}
    assert codes == {"SHARD_CHECKSUM", "DATA_CRC", "COUNT_MISMATCH"}


@pytest.mark.parametrize("text", [b"0 1 2", b"x y", b"0 -1", b"1.5 2"])
def test_other_files_are_not_indexes(text: bytes) -> None:
    with pytest.raises(ValueError):
        load_index(text)


def test_records_do_not_need_a_sound_index(sound_dataset: Path, copied: Path) -> None:
    for name in INDEXES:
        (copied / name).write_text(f"0 {10**30}\n")
    assert Records(copied, "all").raw(0) == Records(sound_dataset, "all").raw(0)
