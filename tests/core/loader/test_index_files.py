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
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.repository import PHOTOS, SETTINGS

from shardwright.loader import Records
from shardwright.pipelines.convert import convert
from shardwright.pipelines.results import ConvertResult
from shardwright.pipelines.validate import validate
from shardwright.schemas.ledger import load_index
from shardwright.schemas.plan import index_file

SHARDS = {"train": 3, "validation": 1, "test": 1}
INDEXES = [index_file(split, i, count) for split, count in SHARDS.items() for i in range(count)]


def shard_of(index: Path) -> Path:
    return index.parent.parent / f"{index.stem}.tfrecord"


def dali_index(shard: Path) -> bytes:
    """Returns the lines that DALI's script writes for a shard."""
    lines, data, offset = [], shard.read_bytes(), 0
    while offset < len(data):
        size = 8 + 4 + struct.unpack_from("q", data, offset)[0] + 4
        lines.append(f"{offset} {size}\n")
        offset += size
    return "".join(lines).encode()


def codes(dataset: Path, mode: str = "fast") -> dict[str, int]:
    return validate(str(dataset), mode=mode).counts


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
        theirs = (copied / f"{index.stem}.tfindex").read_bytes()
        assert index.read_bytes() == theirs == dali_index(shard_of(index))


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


#: More shards than images.
SPARSE = 24
EVERY = """
import sys
from pathlib import Path
from tfrecord.reader import tfrecord_loader

directory = Path(sys.argv[1])
# The package also fails on an index of one line.
indexes = [path for path in sorted((directory / "_index").iterdir()) if path.read_text().count("\\n") != 1]
assert indexes
shards = [directory / f"{index.stem}.tfrecord" for index in indexes]
print(sum(1 for pair in zip(shards, indexes) for _ in tfrecord_loader(*map(str, pair), shard=(0, 1))))
"""


def test_an_empty_shard_has_no_index(convert_photos: Callable[..., ConvertResult]) -> None:
    sparse = Path(convert_photos(resize=16, limit=20, shards=SPARSE).path)
    shards = {path.stem for path in sparse.glob("*.tfrecord") if path.stat().st_size}
    assert len(shards) < SPARSE
    assert {path.stem for path in (sparse / "_index").iterdir()} == shards
    assert int(run(EVERY, sparse)) > 4  # the package fails on an empty index
    assert codes(sparse, "full") == {}


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
def test_an_index_of_another_shard_is_reported(
    copied: Path, damages: list[tuple[Callable[[bytes], bytes], str]]
) -> None:
    for name, (damage, _) in zip(INDEXES, damages):
        (copied / name).write_bytes(damage((copied / name).read_bytes()))
    report = validate(str(copied), mode="fast")
    assert report.counts == {"INDEX_MISMATCH": len(damages)} and not report.sound
    message_of = {finding.shard: finding.message for finding in report.findings}
    for name, (_, message) in zip(INDEXES, damages):
        assert message in message_of[shard_of(copied / name).name]


def test_records_do_not_need_a_sound_index(sound_dataset: Path, copied: Path) -> None:
    for name in INDEXES:
        (copied / name).write_text(f"0 {10**30}\n")
    assert Records(copied, "all").raw(0) == Records(sound_dataset, "all").raw(0)


def test_missing_and_unexpected_indexes_are_reported(copied: Path) -> None:
    (copied / INDEXES[2]).rename(copied / "_index" / "train-00009-of-00003.idx")
    report = validate(str(copied), mode="fast")
    assert {(finding.code, finding.shard) for finding in report.findings} == {
        ("INDEX_MISMATCH", "train-00002-of-00003.tfrecord"),
        ("INDEX_MISMATCH", "_index/train-00009-of-00003.idx"),
    }


def test_the_index_of_a_damaged_shard_is_not_reported(copied: Path) -> None:
    shard = shard_of(copied / INDEXES[0])
    data = bytearray(shard.read_bytes())
    data[40] ^= 1
    shard.write_bytes(data)
    assert codes(copied) == {"SHARD_CHECKSUM": 1, "DATA_CRC": 1, "COUNT_MISMATCH": 1}


def test_resume_restores_missing_and_damaged_indexes(copied: Path) -> None:
    whole = {name: (copied / name).read_bytes() for name in INDEXES}
    (copied / INDEXES[0]).unlink()
    (copied / INDEXES[1]).write_bytes(b"0 5\n")
    before = (copied / INDEXES[2]).stat().st_mtime_ns
    result = convert(input=str(PHOTOS), output=str(copied), **SETTINGS, resume=True)
    assert result.outcome["reused_shards"] == 5
    assert {name: (copied / name).read_bytes() for name in INDEXES} == whole
    assert (copied / INDEXES[2]).stat().st_mtime_ns == before  # sound files are not written again


def test_indexes_of_an_earlier_plan_are_removed(convert_photos: Callable[..., ConvertResult]) -> None:
    result = convert_photos(resize=16, shards=3, limit=12)
    output = Path(result.path)
    (output / "dataset.json").unlink()  # as if the conversion had not finished
    convert(input=str(PHOTOS), output=str(output), resize=16, shards=2, limit=12, resume=True)
    full = [path.stem for path in output.glob("*-of-00002.tfrecord") if path.stat().st_size]
    assert full and sorted(path.stem for path in (output / "_index").iterdir()) == sorted(full)
    convert(
        input=str(PHOTOS), output=str(output), resize=16, shards=2, limit=12, compression="gzip", resume=True
    )
    assert list((output / "_index").iterdir()) == []


@pytest.mark.parametrize("text", [b"0 1 2", b"x y", b"0 -1", b"1.5 2"])
def test_other_files_are_not_indexes(text: bytes) -> None:
    with pytest.raises(ValueError):
        load_index(text)
