"""Validation of damaged shards, odd documents, leaks and foreign files, and faults while it runs."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

import pytest
from helpers.fewer_imports import late
from helpers.hostile import (
    at_call,
    leftovers,
    limit_file_size,
    run,
    run_forked,
    sentence_of,
    signal_self,
    start,
    wait,
)
from helpers.planting import (
    SHARD,
    rewrite,
    set_int,
    set_text,
    texts,
    written_lines,
)
from helpers.resealing import read_shard
from helpers.timeless import without_times

from shardwright.core.storage import local
from shardwright.core.validation import results
from shardwright.pipelines import cli
from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.pipelines.validate import validate
from shardwright.schemas.codes import FindingCode

tf = late("tensorflow")


@pytest.fixture
def dataset(sound_dataset: Path, tmp_path: Path) -> Path:
    """A copy of the sound dataset that a test may damage."""
    return Path(shutil.copytree(sound_dataset, tmp_path / "dataset"))


def test_files_that_no_reader_takes_for_a_shard_are_left_alone(dataset: Path) -> None:
    for name in (
        f"._{SHARD}",
        f"_work/{SHARD}",
        f"another/{SHARD}",
        "another/dataset.json",
        "notes.tfrecord",
    ):
        (dataset / name).parent.mkdir(exist_ok=True)
        (dataset / name).write_bytes(b"")
    assert validate(str(dataset)).counts == {}


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda data: b"\xef\xbb\xbf" + data, "it begins with a byte order mark"),
        (lambda data: data.replace(b"{", b'{"labels": ["fish"],', 1), "it names 'labels' twice"),
        (lambda data: data.decode().encode("utf-16"), "it is not UTF-8"),
    ],
)
def test_a_document_that_readers_understand_differently_is_reported(
    dataset: Path, capsys: Capture, change: Callable[[bytes], bytes], part: str
) -> None:
    path = dataset / "dataset.json"
    path.write_bytes(change(path.read_bytes()))
    assert main(["validate", str(dataset), "--fast"]) == 1
    out = capsys.readouterr().out
    assert "DATASET_MISMATCH" in out and f"{part}: other readers may fail or find other values" in out


def test_leakage_is_a_warning_unless_a_gate_names_it(dataset: Path) -> None:
    shard = "test-00000-of-00001.tfrecord"
    label = written_lines(dataset, shard)[0]["label"]
    number = next(i for i, line in enumerate(written_lines(dataset, SHARD)) if line["label"] == label)
    leaked = tf.train.Example.FromString(read_shard(dataset / SHARD)[number])
    sha256 = texts(leaked, "image/key/sha256")[0]
    rewrite(dataset, set_text("image/key/sha256", sha256), number=0, shard=shard, sha256=sha256.decode())
    report = validate(str(dataset))
    assert (report.counts, report.sound) == ({"SPLIT_LEAKAGE": 1}, True)
    assert not validate(str(dataset), fail_on=["SPLIT_LEAKAGE"]).sound
    assert main(["validate", "--dataset", str(dataset), "--fast"]) == 0
    assert main(["validate", "--dataset", str(dataset), "--fast", "--fail_on", "SPLIT_LEAKAGE"]) == 1


def foreign_example(image: bytes, label: int) -> bytes:
    feature = {
        "image_raw": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_foreign_files_validate_with_features_inferred(
    tmp_path: Path, photos: Path, compression: str, capsys: Capture
) -> None:
    suffix = ".gz" if compression else ""
    images = [path.read_bytes() for path in sorted(photos.rglob("*.jpg"))]
    options = tf.io.TFRecordOptions(compression_type=compression)
    for i in range(2):
        with tf.io.TFRecordWriter(str(tmp_path / f"part {i}.tfrecord{suffix}"), options) as writer:
            for j, image in enumerate(images[:5]):
                writer.write(foreign_example(image, j))
    pattern = str(tmp_path / f"*.tfrecord{suffix}")
    assert main(["validate", "--dataset", pattern]) == 0
    with tf.io.TFRecordWriter(str(tmp_path / f"part 2.tfrecord{suffix}"), options) as writer:
        writer.write(foreign_example(images[0][: len(images[0]) // 2], 0))
        writer.write(tf.train.Example().SerializeToString())
    assert main(["validate", "--dataset", pattern]) == 1
    printed = capsys.readouterr().out
    assert "UNDECODABLE" in printed and "MISSING_FEATURE" in printed


Capture = pytest.CaptureFixture[str]
LEDGER = "_shards/train-00001-of-00003.jsonl.gz"
INDEX = "_index/train-00001-of-00003.idx"
REPORTS = ("findings.json", "statistics.json", "stats.pb")
PAGE = "report.html"


@pytest.fixture
def copy(sound_dataset: Path, tmp_path: Path) -> Path:
    """A sound dataset, already validated."""
    dataset = tmp_path / "dataset"
    shutil.copytree(sound_dataset, dataset)
    for name in (*REPORTS, PAGE):
        (dataset / name).write_text(f"{name} before")
    return dataset


def reports_of(dataset: Path, names: tuple[str, ...] = REPORTS) -> dict[str, Any]:
    return {
        name: without_times(data) if name == "findings.json" else data
        for name in names
        for data in [(dataset / name).read_bytes()]
    }


def fail_on(monkeypatch: pytest.MonkeyPatch, function: str, ending: str, number: int) -> None:
    """Makes the local disk fail for one file."""
    owner = local if hasattr(local, function) else local.LocalStore
    real = getattr(owner, function)

    def failing(*args: Any) -> Any:
        if any(str(arg).endswith(ending) for arg in args):
            raise OSError(number, os.strerror(number), ending)
        return real(*args)

    monkeypatch.setattr(owner, function, failing)


class _Failing:
    """A file whose disk fails after its first bytes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        if self._file.tell() > 1000:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return data

    def __enter__(self) -> _Failing:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("number", "message"), [
    (errno.EACCES, "permission denied"), (errno.EIO, "input/output error"),
    (errno.EMFILE, "too many files are open"),
])  # fmt: skip
@pytest.mark.parametrize(("function", "file"), [
    ("open_local", SHARD), ("open_local", LEDGER), ("open_local", INDEX), ("open_local", "labels.txt"),
    ("pages", "dataset"),
])  # fmt: skip
def test_unreadable_files_are_not_findings(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, copy: Path, function: str, file: str, number: int,
    message: str,
) -> None:  # fmt: skip
    before = reports_of(copy)
    fail_on(monkeypatch, function, file, number)
    sentence = sentence_of(run(capfd, "validate", "--dataset", copy), 3)
    assert message in sentence and file in sentence and "--resume" not in sentence
    assert reports_of(copy) == before


def test_a_disk_that_fails_in_the_middle_of_a_shard_is_an_error(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, copy: Path
) -> None:
    before = reports_of(copy)
    real_open = open

    def opening(path: Any, *args: Any) -> Any:
        file = real_open(path, *args)
        return _Failing(file) if str(path).endswith(SHARD) else file

    monkeypatch.setattr(local, "open", opening, raising=False)
    for mode in ("--fast", "--quality"):
        sentence = sentence_of(run(capfd, "validate", "--dataset", copy, mode), 3)
        assert SHARD in sentence and "input/output error" in sentence
    assert reports_of(copy) == before


def test_a_dataset_replaced_during_validation_is_an_error(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, copy: Path, photos: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    convert(input=str(photos), output=str(other), resize=32, shards="train=3,validation=1,test=1",
            splits="train=0.6,validation=0.2,test=0.2")  # fmt: skip
    real = local.open_local

    def replace(path: str) -> Any:
        if path.endswith(SHARD) and other.exists():
            copy.rename(tmp_path / "old")
            other.rename(copy)
        return real(path)

    monkeypatch.setattr(local, "open_local", replace)
    of_the_other = (other / "findings.json").read_bytes()
    sentence = sentence_of(run(capfd, "validate", "--dataset", copy), 3)
    assert sentence.startswith(f"{copy}/dataset.json changed") and sentence.endswith("nothing writes there.")
    assert (copy / "findings.json").read_bytes() == of_the_other
    assert run(capfd, "validate", "--dataset", copy).code == 0


def test_a_report_that_cannot_be_written_leaves_the_previous_one(copy: Path, tmp_path: Path) -> None:
    before = reports_of(copy)
    argv = ("validate", "--dataset", copy)
    done = run_forked(tmp_path / "log", *argv, before=partial(limit_file_size, 250))
    sentence = sentence_of(done, 3)
    assert sentence.startswith(f"Cannot write the report to {copy}/findings.json")
    assert "choose another place with --report" in sentence
    assert reports_of(copy) == before and not leftovers(copy)


def _kill_before_writing(file: str) -> None:
    at_call("os:replace", file, 1, partial(signal_self, signal.SIGKILL))


def test_a_killed_validation_leaves_the_previous_reports(capfd: Capture, copy: Path, tmp_path: Path) -> None:
    before = reports_of(copy, (*REPORTS, PAGE))
    argv = ("validate", "--dataset", copy, "--quality")
    killed = run_forked(tmp_path / "log", *argv, before=partial(_kill_before_writing, "statistics.json"))
    assert killed.code == -signal.SIGKILL
    assert reports_of(copy, (*REPORTS, PAGE)) == before
    assert leftovers(copy), "it was killed before it wrote"
    assert run(capfd, *argv).code == 0  # its leftovers are not findings
    report = json.loads((copy / "findings.json").read_text())
    assert report["sound"] and not report["errors"]
    assert report["warnings"] == report["counts"]["REPORT_MISMATCH"] == 2  # the garbage in their places


def test_two_concurrent_validations_write_the_report_of_one(copy: Path, tmp_path: Path) -> None:
    rewrite(copy, set_text("image/encoded", b"no picture"))
    assert cli.main(["validate", "--dataset", str(copy), "--quality"]) == 1
    codes = {"--quality": 1, "--fast": 0}  # in this order, so that --fast keeps the findings of --quality
    alone = {}
    for option in codes:
        assert cli.main(["validate", "--dataset", str(copy), option]) == codes[option]
        alone[option] = reports_of(copy)["findings.json"]
    assert alone["--fast"] != alone["--quality"]
    statistics = reports_of(copy, REPORTS[1:])
    logs = {option: tmp_path / option for option in alone}
    running = {option: start(log, "validate", "--dataset", copy, option) for option, log in logs.items()}
    assert {option: wait(process, logs[option]).code for option, process in running.items()} == codes
    assert reports_of(copy)["findings.json"] in alone.values()
    assert reports_of(copy, REPORTS[1:]) == statistics and not leftovers(copy)


def _planted(dataset: Path) -> Path:
    """Defects of several kinds in several shards."""
    rewrite(dataset, set_text("image/encoded", b"no picture"), 0)
    rewrite(dataset, set_int("image/height", 7), 3)
    rewrite(dataset, set_int("image/class/label", 99), 1, "train-00002-of-00003.tfrecord")
    doubled = dataset / "train-00000-of-00003.tfrecord"
    data = bytearray(doubled.read_bytes())
    data[len(data) // 2] ^= 1
    doubled.write_bytes(data)
    (dataset / "train-00007-of-00009.tfrecord").write_bytes(b"")
    (dataset / "labels.txt").write_text("other\n")
    return dataset


@pytest.mark.slow  # starting worker processes
def test_the_reports_do_not_depend_on_the_runner(copy: Path) -> None:
    _planted(copy)
    engines: list[list[str]] = [
        [], ["--direct_running_mode=multi_processing", "--direct_num_workers=2"], ["--runner=DirectRunner"],
    ]  # fmt: skip
    found: list[dict[str, Any]] = []
    for options in engines:
        for name in (*REPORTS, PAGE):
            (copy / name).unlink()
        report = validate(str(copy), mode="quality", beam_options=options)
        assert len(report.counts) >= 6, report.counts
        found.append(reports_of(copy))
    assert found[0] == found[1] == found[2]


def test_the_reports_do_not_depend_on_the_order_of_shards(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shardwright.pipelines import validate as pipeline

    _planted(copy)
    real: Callable[[Any], Any] = pipeline.list_tasks
    found = []
    for order in (list, lambda tasks: list(tasks)[::-1]):
        for name in (*REPORTS, PAGE):
            (copy / name).unlink()
        monkeypatch.setattr(pipeline, "list_tasks", lambda target, order=order: iter(order(real(target))))
        validate(str(copy), mode="quality")
        found.append(reports_of(copy))
    assert found[0] == found[1]


def test_a_command_answers_with_its_own_report(
    capfd: Capture, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, others = results._page, copy / "findings.json"
    for name in (*REPORTS, PAGE):
        (copy / name).unlink()

    def page(*args: Any) -> str:  # another validation ends while the page is written
        report = json.loads(others.read_text()) | {"sound": False, "errors": 7, "counts": {"UNDECODABLE": 7}}
        others.write_text(json.dumps(report))
        return real(*args)

    monkeypatch.setattr(results, "_page", page)
    done = run(capfd, "validate", "--dataset", copy)
    assert done.code == 0 and "UNDECODABLE" not in done.out
    assert "1 REPORT_MISMATCH" in done.out  # the previous report is missing
    assert json.loads(others.read_text())["errors"] == 7 and not leftovers(copy)


def test_a_damaged_name_of_a_setting_is_a_finding(copy: Path) -> None:
    """No digest of a shard covers this setting, so only its name is wrong."""
    document = copy / "dataset.json"
    document.write_bytes(document.read_bytes().replace(b'"source": ', b'"souzce": '))
    found = [finding for finding in validate(str(copy)).findings if finding.shard == "dataset.json"]
    assert {finding.code for finding in found} == {FindingCode.DATASET_MISMATCH}
    said = "field 'settings' chooses no layout (unknown setting 'souzce'; did you mean source?)"
    assert said in [finding.message for finding in found]
