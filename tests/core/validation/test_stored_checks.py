"""Findings of a shard that are stored beside it: reused exactly, and only under the same conditions."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.pictures import file_of
from helpers.resealing import frame, read_shard
from PIL import Image

from shardwright.core.concurrency.worker_pool import worker_pool
from shardwright.core.lease import HeldLease, Lease
from shardwright.core.records.record_schema import RecordSchema
from shardwright.core.validation import image as checks_image
from shardwright.core.validation import record as checks_record
from shardwright.core.validation import stored_checks
from shardwright.core.validation.duplicates import ComparedRecord
from shardwright.core.validation.record import RecordChecker
from shardwright.core.validation.shard import ShardCheck, ShardTask, check_shard, shard_task
from shardwright.core.validation.stored_checks import sound_records, store_check, stored_check, sum_up
from shardwright.pipelines.places import Target, schema_of
from shardwright.schemas.codes import CheckDepth, FindingCode
from shardwright.schemas.dataset import Dataset, Shard, canonical_json
from shardwright.schemas.errors import EngineError
from shardwright.schemas.example import Feature, FeatureType, encode_example
from shardwright.schemas.feature_roles import FeatureRole
from shardwright.schemas.findings import Finding, Where
from shardwright.schemas.layouts import layout_by_name
from shardwright.schemas.pictures import ChannelSamples, ImageQuality, Picture, Samples
from shardwright.schemas.statistics import RecordStatistics

DEEP = (CheckDepth.FAST, CheckDepth.FULL, CheckDepth.QUALITY)


def _tasks(folder: Path) -> list[ShardTask]:
    dataset = Dataset.from_bytes((folder / "dataset.json").read_bytes(), "dataset.json")
    return [shard_task(str(folder), *placed) for placed in dataset.placed_shards()]


def _schema(folder: Path) -> RecordSchema:
    return schema_of(Target("", str(folder)))


def _check(task: ShardTask, schema: RecordSchema, depth: CheckDepth) -> ShardCheck:
    return sum_up(check_shard(task, schema, depth, sound={}), depth)


def _store(task: ShardTask, schema: RecordSchema, depth: CheckDepth) -> None:
    """Checks a shard, and stores the findings."""
    store_check(task, schema, depth, _check(task, schema, depth))


def _content(checked: ShardCheck | None) -> dict[str, Any] | None:
    """Returns everything known about a shard, except values that depend on where it comes from.

    Nobody needs the digests of its records again, only stored findings have a file with a digest, and what
    they are summed up from is not stored.
    """
    if checked is None:
        return None
    value = {field.name: getattr(checked, field.name) for field in dataclasses.fields(checked)}
    for name in ("digests", "stored", "findings", "features", "ledger_summary"):
        del value[name]
    return value


def _break_one(task: ShardTask) -> ShardTask:
    """Replaces a shard's middle record by one with a broken picture, and updates all checksums."""
    path = Path(task.path)
    records = read_shard(path)
    middle = len(records) // 2
    records[middle] = records[middle].replace(b"\xff\xd8\xff", b"abc", 1)
    data = b"".join(map(frame, records))
    path.unlink()
    path.write_bytes(data)
    return task._replace(expected=Shard(task.file, len(records), len(data), hashlib.sha256(data).hexdigest()))


@pytest.mark.parametrize("depth", DEEP)
def test_stored_findings_are_reused_exactly(copied: Path, depth: CheckDepth) -> None:
    schema = _schema(copied)
    tasks = _tasks(copied)
    tasks[0] = _break_one(tasks[0])
    for task in tasks:
        found = _check(task, schema, depth)
        assert found.rows
        assert bool(found.pictures) == (depth is CheckDepth.QUALITY)
        stored = store_check(task, schema, depth, found)
        assert stored == hashlib.sha256(_stored(task).read_bytes()).hexdigest()
        os.unlink(task.path)  # the shard itself is not needed
        known = stored_check(task, schema, depth)
        assert known is not None and known.stored == stored
        assert _content(stored_check(task, schema, depth)) == _content(found)
    wrong = stored_check(tasks[0], schema, depth)
    assert wrong is not None and wrong.sound == (wrong.summary.counts == {})
    if depth >= CheckDepth.FULL:
        assert wrong.summary.counts[FindingCode.UNDECODABLE] == 1
    assert len(wrong.rows) == wrong.records


def test_a_sound_check_also_serves_shallower_ones(copied: Path) -> None:
    schema, (broken, *tasks) = _schema(copied), _tasks(copied)
    for task in tasks:
        found = _check(task, schema, CheckDepth.FULL)
        _store(task, schema, CheckDepth.QUALITY)
        assert _content(stored_check(task, schema, CheckDepth.FULL)) == _content(found)
        store_check(task, schema, CheckDepth.FULL, found)
        assert stored_check(task, schema, CheckDepth.QUALITY) is None
    broken = _break_one(broken)
    _store(broken, schema, CheckDepth.QUALITY)
    assert stored_check(broken, schema, CheckDepth.QUALITY) is not None
    assert stored_check(broken, schema, CheckDepth.FULL) is None


def _change(path: str | Path, change: Callable[[bytes], bytes]) -> None:
    Path(path).write_bytes(change(Path(path).read_bytes()))


def _stored(task: ShardTask) -> Path:
    """Returns the file with the findings of a shard."""
    return Path(task.path).parent / "_checks" / f"{task.file}.json.gz"


@pytest.mark.parametrize("alter", [
    lambda task: _change(task.ledger_path, lambda data: data + b"\0"),
    lambda task: Path(task.index_path).unlink(),
    lambda task: _change(_stored(task), lambda data: data[: len(data) // 2]),
    lambda task: _change(_stored(task), lambda _: b"[]"),
])  # fmt: skip
def test_checks_of_other_files_are_not_used(copied: Path, alter: Callable[[ShardTask], object]) -> None:
    schema, task = _schema(copied), _tasks(copied)[0]
    _store(task, schema, CheckDepth.FULL)
    assert stored_check(task, schema, CheckDepth.FULL) is not None
    assert task.expected is not None
    other = dataclasses.replace(task.expected, sha256="0" * 64)
    assert stored_check(task._replace(expected=other), schema, CheckDepth.FULL) is None
    alter(task)
    assert stored_check(task, schema, CheckDepth.FULL) is None


def test_other_software_checks_again(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema, task = _schema(copied), _tasks(copied)[0]
    _store(task, schema, CheckDepth.FULL)
    here = stored_checks.software()
    monkeypatch.setattr(stored_checks, "software", lambda: {**here, "pillow": "0"})
    assert stored_check(task, schema, CheckDepth.FULL) is None
    later = task._replace(previous_checks=(str(_stored(task)),))
    assert sound_records(later, schema, CheckDepth.FULL) == {}


def test_new_classes_do_not_affect_sound_records(copied: Path) -> None:
    schema, (broken, task, *_) = _schema(copied), _tasks(copied)
    names = schema.labels or ()
    broken = _break_one(broken)
    for item in (broken, task):
        _store(item, schema, CheckDepth.QUALITY)
    more = schema._replace(labels=(*names, "a new one"))
    found = _check(task, more, CheckDepth.QUALITY)
    assert _content(stored_check(task, more, CheckDepth.QUALITY)) == _content(found)
    assert stored_check(broken, more, CheckDepth.QUALITY) is None
    spec = next(spec for spec in schema.features if spec.fill is FeatureRole.KEY)
    others: list[dict[str, Any]] = [
        *({"labels": labels} for labels in (names[:-1], (*names[:-1], "another"), names[::-1], None, ())),
        {"texts": ("called",) * len(names)},
        {"first_label": schema.first_label + 1},
        {"unlabelled": not schema.unlabelled},
        {"features": tuple(item for item in schema.features if item is not spec)},
        {"pixels": (8, 8, 3)},
    ]
    for other in others:
        assert stored_check(task, schema._replace(**other), CheckDepth.QUALITY) is None, other
    assert stored_check(task._replace(split="another"), schema, CheckDepth.QUALITY) is None


def test_findings_from_other_bytes_are_not_stored(copied: Path) -> None:
    schema, (task, gone, *_) = _schema(copied), _tasks(copied)
    with open(task.path, "ab") as file:
        file.write(b"more")
    os.unlink(gone.path)
    for item in (task, gone):
        found = _check(item, schema, CheckDepth.FULL)
        assert not found.sound
        store_check(item, schema, CheckDepth.FULL, found)
    assert not (copied / "_checks").exists()


@pytest.mark.parametrize("depth", DEEP)
def test_records_that_were_sound_are_not_decoded_again(
    copied: Path, depth: CheckDepth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same records in another order, one broken and one changed: the result is as if all were decoded."""
    schema, task = _schema(copied), _tasks(copied)[0]
    _store(task, schema, depth)
    decoded = []
    check = RecordChecker.check

    def counted(self: RecordChecker, data: bytes) -> Any:
        decoded.append(self.decode)
        return check(self, data)

    monkeypatch.setattr(RecordChecker, "check", counted)
    later = task._replace(previous_checks=(str(_stored(task)),))
    broken = _break_one(later)
    sound = sound_records(later, schema, depth)
    with worker_pool(in_processes=False):  # others do not count here
        whole = check_shard(broken, schema, depth, sound={})
        decoded.clear()
        quick = check_shard(broken, schema, depth, sound=sound)
    assert len(decoded) == whole.records > 3
    assert sum(decoded) == (depth >= CheckDepth.FULL)  # the broken record
    assert quick.summary == whole.summary
    assert _content(sum_up(quick, depth)) == _content(sum_up(whole, depth))
    assert quick.digests == whole.digests
    if depth >= CheckDepth.FULL:  # wrong records are checked each time
        store_check(broken, schema, depth, sum_up(whole, depth))
        assert len(sound_records(later, schema, depth)) == whole.records - 1


def test_the_stored_file_is_json_without_dates(copied: Path) -> None:
    schema, task = _schema(copied), _tasks(copied)[0]
    found = _check(task, schema, CheckDepth.QUALITY)
    store_check(task, schema, CheckDepth.QUALITY, found)
    first = _stored(task).read_bytes()
    store_check(task, schema, CheckDepth.QUALITY, found)
    assert _stored(task).read_bytes() == first
    assert json.loads(gzip.decompress(first))["files"]["sha256"] == (task.expected and task.expected.sha256)


#: Digest of what `FORMAT_VERSION` stores for the check below. If this test fails, raise that version, because
#: earlier results cannot be read any more, and update the digest.
KNOWN = {8: "1bff1edfb688df6aaa235b64bd3f7b67fabddd032b76707e286160763a8eb4ef"}


def test_the_form_of_stored_checks_has_a_version(copied: Path) -> None:
    schema, task = _schema(copied), _tasks(copied)[0]
    channel = ChannelSamples(4, 10, 30, 1, 4)
    quality = ImageQuality((10,), (30,), 4, b"d", b"h", b"p", (), (0.5,), Samples("uint8", (channel,)))
    features = RecordStatistics()
    features.add(
        {
            "bytes": Feature(FeatureType.BYTES, [b"a", b"b"]),
            "float": Feature(FeatureType.FLOAT, [0.5]),
            "int64": Feature(FeatureType.INT64, []),
        },
        {},
    )
    place = (task.file, 0, 16, "key")
    check = ShardCheck(
        task.file, task.split, 1, 2,
        [Finding(FindingCode.DARK, "dark", *place, Where(task.file, 1, 32, "other"), score=0.5)],
        [ComparedRecord(*place, task.split, ("cat",), source="source")],
        [Picture(*place, task.split, ("cat",), 9, "jpg", 2, 2, ((0.5, 1.0),), "source", quality)],
        features, [b"digest"],
    )  # fmt: skip
    store_check(task, schema, CheckDepth.QUALITY, sum_up(check, CheckDepth.QUALITY))
    document = json.loads(gzip.decompress(_stored(task).read_bytes()))
    del document["terms"], document["files"]
    digest = hashlib.sha256(canonical_json(document).encode()).hexdigest()
    assert digest == KNOWN[stored_checks.FORMAT_VERSION]


@pytest.mark.parametrize("removed", [False, True])
def test_a_run_that_lost_its_lease_stores_nothing(copied: Path, removed: bool) -> None:
    output = copied.parent
    mine, other = (HeldLease(str(output), Lease(holder, "v", seconds=60.0)) for holder in ("me", "other"))
    schema, (task, *_) = _schema(copied), _tasks(copied)
    found = _check(task, schema, CheckDepth.FAST)
    mine.acquire()
    assert store_check(task, schema, CheckDepth.FAST, found, mine)
    shutil.rmtree(copied / "_checks")
    mine.release()
    other.acquire()
    if removed:
        shutil.rmtree(copied)
    with pytest.raises(EngineError, match="lost its lease"):
        store_check(task, schema, CheckDepth.FAST, found, mine)
    assert not (copied / "_checks").exists() and copied.exists() != removed
    assert store_check(task, schema, CheckDepth.FAST, found, None if removed else other)


MINIMAL = RecordSchema(layout_by_name("minimal").features, ("cat",))
SIDES = (320, 240)
BYTES_A_PIXEL = 8


def record_of(file_format: str) -> bytes:
    data = file_of(Image.new("RGB", SIDES, "teal"), file_format)
    (image,) = (spec.name for spec in MINIMAL.features if spec.fill is FeatureRole.ENCODED)
    features = {spec.name: Feature(FeatureType.INT64, [0]) for spec in MINIMAL.features}
    return encode_example({**features, image: Feature(FeatureType.BYTES, [data])})


@pytest.mark.parametrize(("look", "file_format", "reduction"), [
    (True, "JPEG", 1), (True, "PNG", 1), (False, "PNG", 1), (False, "JPEG", 8),
])  # fmt: skip
def test_a_picture_is_decoded_and_measured_within_its_reservation(
    monkeypatch: pytest.MonkeyPatch, look: bool, file_format: str, reduction: int
) -> None:
    events: list[Any] = []

    @contextlib.contextmanager
    def reserve(size: int) -> Iterator[None]:
        events.append(size)
        yield
        events.append("released")

    def noted(module: Any, name: str) -> None:
        real = getattr(module, name)

        def call(*args: Any) -> Any:
            events.append(name)
            return real(*args)

        monkeypatch.setattr(module, name, call)

    noted(checks_image, "load_checked")
    noted(checks_record, "measure_quality")
    monkeypatch.setattr(checks_record, "reserve_working_bytes", reserve)
    checker = RecordChecker(MINIMAL, decode=True, look=look)
    assert not checker.check(record_of(file_format)).problems
    size = SIDES[0] * SIDES[1] * BYTES_A_PIXEL // reduction**2
    assert events == [size, "load_checked", *["measure_quality"] * look, "released"]


def test_nothing_is_reserved_for_pictures_that_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks_record, "reserve_working_bytes", lambda size: pytest.fail(f"{size}"))
    assert not RecordChecker(MINIMAL, decode=False).check(record_of("PNG")).problems
