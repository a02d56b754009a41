"""Damaged datasets: what is salvaged, what is reported about the rest, and the lease."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.depths import findings_of
from helpers.hostile import flip, make_tree, picture
from helpers.resealing import frame, read_shard
from helpers.trees import put_files

from shardwright.core import storage
from shardwright.core.records.framing import FRAME_BYTES, DamagedRange
from shardwright.core.salvage.salvaged_ledger import Content, reconcile
from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.pipelines.results import ConvertResult
from shardwright.pipelines.salvage import SalvageResult, print_salvage_summary, salvage
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.ledger import Entry, load_ledger

SHARD = "train-00001-of-00003.tfrecord"
LEDGER = "_shards/train-00001-of-00003.jsonl.gz"


def _entries(dataset: Path, ledger: str = LEDGER) -> list[Entry]:
    return [entry for entry in load_ledger((dataset / ledger).read_bytes())[1] if entry.outcome == "written"]


def _offsets(dataset: Path) -> list[int]:
    """Returns where the records of the shard begin."""
    return [entry.offset or 0 for entry in _entries(dataset)]


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _check(result: SalvageResult, before: Path, lost: int) -> Path:
    """Asserts that the result is a sound dataset that accounts for lost records; returns its path."""
    path = Path(result.path)
    assert not findings_of(path)
    old = json.loads((before / "dataset.json").read_text())
    new = json.loads((path / "dataset.json").read_text())
    assert new["plan"] == old["plan"]
    assert result.lost == lost == len(_lines(path / "lost.jsonl"))
    assert result.records == new["ledger"]["written"] == old["ledger"]["written"] - lost
    assert new["ledger"]["listed"] == old["ledger"]["listed"]
    assert new["ledger"]["quarantined"] == old["ledger"]["quarantined"] + lost
    assert new["ledger"]["reasons"].get("quarantined", {}).get("DAMAGED_RECORD", 0) == lost
    assert len(_lines(path / "quarantine.jsonl")) == new["ledger"]["quarantined"]
    return path


def test_a_sound_dataset_is_salvaged_unchanged(sound_dataset: Path, tmp_path: Path) -> None:
    result = salvage(str(sound_dataset), str(tmp_path / "saved"))
    path = _check(result, sound_dataset, 0)
    old = json.loads((sound_dataset / "dataset.json").read_text())
    assert result.dataset is not None
    assert result.dataset.fingerprint == old["fingerprint"]
    for folder, pattern in ((".", "*.tfrecord"), ("_shards", "*"), ("_index", "*")):
        names = sorted(item.name for item in (sound_dataset / folder).glob(pattern))
        assert names == sorted(item.name for item in (path / folder).glob(pattern))
        for name in names:
            assert (path / folder / name).read_bytes() == (sound_dataset / folder / name).read_bytes()


def test_lost_records_are_named_and_all_others_kept(copied: Path, tmp_path: Path) -> None:
    entries = _entries(copied)
    whole = read_shard(copied / SHARD)
    first, second = entries[1], entries[4]
    flip(copied / SHARD, _offsets(copied)[4] + 3)
    flip(copied / SHARD, _offsets(copied)[1] + 50)
    path = _check(salvage(str(copied), str(tmp_path / "saved")), copied, 2)
    assert read_shard(path / SHARD) == [data for number, data in enumerate(whole) if number not in (1, 4)]
    lost = _lines(path / "lost.jsonl")
    names = ("key", "shard", "record", "offset", "length", "code")
    assert [tuple(line[name] for name in names) for line in lost] == [
        (first.key, SHARD, 1, first.offset, first.length, "DATA_CRC"),
        (second.key, SHARD, 4, second.offset, second.length, "LENGTH_CRC"),
    ]
    quarantined = {line["key"]: line for line in _lines(path / "quarantine.jsonl")}
    assert quarantined[first.key]["reason"] == "DAMAGED_RECORD"
    kept = [entry.key for entry in entries if entry not in (first, second)]
    assert [entry.key for entry in _entries(path)] == kept
    others = [item.name for item in copied.glob("*.tfrecord") if item.name != SHARD]
    assert all((path / name).read_bytes() == (copied / name).read_bytes() for name in others)
    digests = [load_ledger((item / LEDGER).read_bytes())[0].plan_digest for item in (copied, path)]
    assert digests[0] != digests[1], "a rebuild would take the shard over and never redo what is lost"


def test_inserted_and_removed_bytes_lose_only_the_records_that_they_hit(
    copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = (copied / SHARD).read_bytes()
    _, a, _, b, _, c, end, *_ = _offsets(copied)
    # garbage between two records, halves of two records removed, and a duplicate record
    double = data[c:end]
    (copied / SHARD).write_bytes(
        data[:a] + b"junk" * 99 + data[a : b - 40] + data[b + 40 : c] + double + data[c:]
    )
    result = salvage(str(copied), str(tmp_path / "saved"))
    path = _check(result, copied, 2)
    assert [line["record"] for line in _lines(path / "lost.jsonl")] == [2, 3]
    assert result.outcome["unexpected"] == 1
    capsys.readouterr()
    print_salvage_summary(result)
    assert "  left out: 1 record of no shard, or found twice\n" in capsys.readouterr().out


def test_records_whose_keys_are_lost_are_not_out_of_order(tmp_path: Path) -> None:
    """Raw records have no keys and have equal lengths, so only their positions identify them."""
    source, out = str(make_tree(tmp_path / "in", 40)), str(tmp_path / "out")
    convert(input=source, output=out, layout="raw", resize="16", shards="1", verify="none")
    shard = tmp_path / "out" / "train-00000-of-00001.tfrecord"
    data = shard.read_bytes()
    length = len(data) // 40
    for gone in range(2):
        places = ((0, 20), (20 + gone, 30), (30 + gone, 40))
        shard.write_bytes((b"junk" * 300).join(data[length * first : length * end] for first, end in places))
        result = salvage(out, str(tmp_path / f"saved{gone}"), fast=True)
        keys = [entry.key for entry in _entries(Path(result.path), "_shards/train-00000-of-00001.jsonl.gz")]
        assert len(keys) == 40 - 2 * gone and 0 < keys.count("") < 20
        assert not findings_of(result.path)


def test_swapped_ranges_are_restored(copied: Path, tmp_path: Path) -> None:
    sound = (copied / SHARD).read_bytes()
    a = _offsets(copied)[3]
    (copied / SHARD).write_bytes(sound[a:] + sound[:a])
    path = _check(salvage(str(copied), str(tmp_path / "saved")), copied, 0)
    assert (path / SHARD).read_bytes() == sound


@pytest.fixture(scope="module")
def bitmaps(tmp_path_factory: pytest.TempPathFactory) -> ConvertResult:
    """A dataset whose records all have one size, so that places do not tell them apart."""
    root = tmp_path_factory.mktemp("bitmaps")
    put_files(root / "tree", {f"{'ab'[i % 2]}/{i:02d}.bmp": picture(i, "BMP") for i in range(30)})
    return convert(input=str(root / "tree"), output=str(root / "made"), shards=6, verify="none")


def test_shards_of_equal_size_that_changed_places_in_a_cycle_are_found(
    bitmaps: ConvertResult, tmp_path: Path
) -> None:
    directory = Path(shutil.copytree(bitmaps.path, tmp_path / "made"))
    by_size: dict[int, list[Path]] = {}
    for file in sorted(directory.glob("*.tfrecord")):
        by_size.setdefault(file.stat().st_size, []).append(file)
    files = max(by_size.values(), key=len)
    assert len(files) > 2
    sound = [file.read_bytes() for file in files]
    for file, data in zip(files, [*sound[1:], sound[0]]):
        file.write_bytes(data)
    result = salvage(str(directory), str(tmp_path / "saved"))
    path = _check(result, directory, 0)
    assert [(path / file.name).read_bytes() for file in files] == sound
    assert result.outcome["misplaced"] == len(files)


def test_swapped_and_renamed_shards_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Raw records have no keys; those with keys are in the test before."""
    tree = make_tree(tmp_path / "tree", 14)
    made = convert(input=tree, output=tmp_path / "made", resize=16, layout="raw", shards=4, verify="none")
    directory = Path(made.path)
    files = sorted(directory.glob("*.tfrecord"))
    sound = [file.read_bytes() for file in files]
    assert len({*sound}) == 4 and all(sound)
    # 0 and 1 change places; the name of 2 becomes that of 3, whose records are lost.
    for file, data in zip(files[:2], sound[1::-1]):
        file.write_bytes(data)
    files[2].rename(files[3])
    lost = made.dataset.splits["train"][3].records
    result = salvage(str(directory), str(tmp_path / "saved"))
    path = _check(result, directory, lost)
    assert [(path / file.name).read_bytes() for file in files] == [*sound[:3], b""]
    assert {(line["code"], line["message"]) for line in _lines(path / "lost.jsonl")} == {
        ("SHARD_MISSING", f"its file holds the records of {files[2].name}")
    }
    assert result.outcome["copied_shards"] == 3 and result.outcome["unexpected"] == 0
    print_salvage_summary(result)
    assert "3 shards found under the name of another one" in capsys.readouterr().out


def test_records_of_another_shard_are_left_out_if_that_is_damaged_too(
    bitmaps: ConvertResult, tmp_path: Path
) -> None:
    directory = Path(shutil.copytree(bitmaps.path, tmp_path / "made"))
    first, second, *_ = sorted(directory.glob("*.tfrecord"))
    shutil.copy(second, first)
    flip(first, first.stat().st_size // 2)
    lost, others, *_ = (shard.records for shard in bitmaps.dataset.splits["train"])
    result = salvage(str(directory), str(tmp_path / "saved"))
    path = _check(result, directory, lost)
    assert read_shard(path / first.name) == [] and read_shard(path / second.name) == read_shard(second)
    assert result.outcome["unexpected"] == others - 1


def test_the_keys_of_a_missing_shard_are_reported_as_lost(copied: Path, tmp_path: Path) -> None:
    keys = [entry.key for entry in _entries(copied)]
    (copied / SHARD).unlink()
    path = _check(salvage(str(copied), str(tmp_path / "saved")), copied, len(keys))
    lost = _lines(path / "lost.jsonl")
    assert [(line["key"], line["code"]) for line in lost] == [(key, "SHARD_MISSING") for key in keys]
    assert (path / SHARD).read_bytes() == b""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("state", ["missing", "damaged", "of another build"])
def test_without_a_ledger_records_are_identified_by_their_content(
    copied: Path, tmp_path: Path, state: str
) -> None:
    entries = _entries(copied)
    flip(copied / SHARD, _offsets(copied)[2] + 50)
    other = (copied / LEDGER.replace("1-of", "0-of")).read_bytes()
    ledger = copied / LEDGER
    if state == "missing":
        ledger.unlink()
    else:
        ledger.write_bytes(other if state == "of another build" else ledger.read_bytes()[:-20])
    result = salvage(str(copied), str(tmp_path / "saved"), fast=True)
    path = _check(result, copied, 1)
    kept = [*entries[:2], *entries[3:]]
    assert [(e.key, e.label, e.format) for e in _entries(path)] == [(e.key, e.label, e.format) for e in kept]
    (lost,) = _lines(path / "lost.jsonl")  # the index still has its position
    assert (lost["key"], lost["record"], lost["offset"]) == (None, 2, entries[2].offset)
    assert result.outcome["unnamed"] == 1


def test_a_lost_record_is_named_by_its_key_even_if_it_stores_another_name() -> None:
    entry = Entry("x.tfrecord!a.jpg", "written", offset=0, length=20, file_name="a.jpg")
    damage = DamagedRange(0, 0, 20, FindingCode.DATA_CRC, "")
    found = reconcile("file", "uri", Content([], [damage], 20), [entry], None, 1, False)
    assert [item.key for item in (*found.lost, *found.entries)] == [entry.key] * 2


def test_without_a_ledger_records_keep_the_file_names_that_they_store(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", 8)
    settings = {"layout": "imagenet", "shards": 2, "folds": 3, "verify": "none"}
    made = convert(input=str(tree), output=str(tmp_path / "made"), **settings)
    shutil.rmtree(Path(made.path) / "_shards")
    path = _check(salvage(made.path, str(tmp_path / "saved")), Path(made.path), 0)
    ledgers = (_entries(path, f"_shards/train-0000{i}-of-00002.jsonl.gz") for i in (0, 1))
    names = [entry.file_name for entries in ledgers for entry in entries]
    assert sorted(names) == sorted(file.name for file in tree.rglob("*.*"))


def _reframe(path: Path, number: int, change: Callable[[bytes], bytes]) -> None:
    """Changes a record and gives it a correct frame."""
    records = read_shard(path)
    records[number] = change(records[number])
    path.write_bytes(b"".join(map(frame, records)))


@pytest.mark.parametrize("fast", [False, True])
def test_sound_frames_with_unsound_contents_are_left_out(copied: Path, tmp_path: Path, fast: bool) -> None:
    _reframe(copied / SHARD, 0, lambda data: b"no Example" * 9)
    picture = copied / "test-00000-of-00001.tfrecord"
    _reframe(picture, 0, lambda data: data.replace(b"\xff\xd8\xff", b"\0\0\0"))
    result = salvage(str(copied), str(tmp_path / "saved"), fast=fast)
    codes = [line["code"] for line in _lines(tmp_path / "saved" / "lost.jsonl")]
    assert "UNPARSEABLE" in codes
    assert ("UNDECODABLE" in codes) is not fast
    if not fast:
        _check(result, copied, 2)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_records_before_the_damage_in_a_compressed_shard_are_saved(
    convert_photos: Callable[..., ConvertResult], tmp_path: Path, compression: str
) -> None:
    made = convert_photos(resize=64, limit=24, shards=2, compression=compression, verify="none")
    directory = Path(made.path)
    shard = made.dataset.splits["train"][0]
    sound = (directory / shard.file).read_bytes()
    (directory / shard.file).write_bytes(sound[: len(sound) // 2] + b"\xff" * (len(sound) // 2))
    result = salvage(made.path, str(tmp_path / "saved"))
    assert 0 < result.lost < shard.records
    path = _check(result, directory, result.lost)
    keys = [entry.key for entry in _entries(directory, "_shards/train-00000-of-00002.jsonl.gz")]
    assert [line["key"] for line in _lines(path / "lost.jsonl")] == keys[-result.lost :]
    if compression == "gzip":  # equal records give equal bytes, however they are compressed, or not at all
        plain = gzip.decompress(sound)
        for number, data in enumerate((gzip.compress(plain, 1), plain)):
            (directory / shard.file).write_bytes(data)
            path = _check(salvage(made.path, str(tmp_path / f"again{number}")), directory, 0)
            assert (path / shard.file).read_bytes() == sound


def test_foreign_files_keep_their_names_and_sound_records(copied: Path, tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    for item in copied.glob("train*.tfrecord"):
        shutil.copy(item, files / item.name)
    whole = read_shard(files / SHARD)
    changed = (b"\xff\xd8\xff", b"\0\0\0"), (b"/height", b"/heigHt")
    _reframe(files / SHARD, 2, lambda data: data.replace(*changed[0]).replace(*changed[1]))
    flip(files / SHARD, len(whole[0]) + FRAME_BYTES + 20)
    packed = gzip.compress((files / SHARD).read_bytes())
    (files / "packed.tfrecord.gz").write_bytes(packed)
    result = salvage(f"{files}/*.tfrecord*", str(tmp_path / "saved"))
    saved = tmp_path / "saved"
    assert result.dataset is None
    names = {item.name for item in files.iterdir()}
    assert {item.name for item in saved.iterdir()} == {*names, "lost.jsonl"}
    assert read_shard(saved / SHARD) == whole[:1] + whole[3:]
    plain = gzip.decompress((saved / "packed.tfrecord.gz").read_bytes())
    assert plain == (saved / SHARD).read_bytes()
    assert [(line["shard"], line["code"]) for line in _lines(saved / "lost.jsonl")] == [
        (file, code) for file in ("packed.tfrecord.gz", SHARD) for code in ("DATA_CRC", "UNDECODABLE")
    ]


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_full_disk_is_named_with_the_file_to_write(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_damaged: bool
) -> None:
    if is_damaged:
        flip(copied / SHARD, 2000)
    real = storage.temporary_path

    def on_a_full_disk(directory: str, name: str, existing: bool = False) -> str:
        path = real(directory, name, existing)
        Path(path).unlink(missing_ok=True)
        Path(path).symlink_to("/dev/full")
        return path

    monkeypatch.setattr(storage, "temporary_path", on_a_full_disk)
    with pytest.raises(EngineError, match=f"Cannot write {tmp_path}/saved/.*: the disk is full"):
        salvage(str(copied), str(tmp_path / "saved"))


@pytest.mark.parametrize("output", ["saved", "."])  # nobody can remove the current directory
def test_a_dataset_without_sound_records_is_refused_and_leaves_nothing(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    output: str,
) -> None:  # fmt: skip
    for item in copied.glob("*.tfrecord"):
        item.unlink()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert main(["salvage", "--dataset", str(copied), "--output", output]) == 1
    assert "SHARD_MISSING" in capsys.readouterr().err
    assert not list((tmp_path / "here").iterdir())


def test_the_output_must_be_empty(copied: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    for output in (str(tmp_path / "full"), str(copied), str(copied / "saved"), ""):
        with pytest.raises(UsageError):
            salvage(str(copied), output)
    with pytest.raises(UsageError, match="describes no job for later; leave out --dry_run"):
        salvage(str(copied), str(tmp_path / "saved"), beam_options=["--dry_run=True"])
    assert not (tmp_path / "saved").exists()
    assert (tmp_path / "full" / "mine").read_text() == "mine"
    assert not (copied / "saved").exists()


def test_without_dataset_json_the_message_explains_what_to_do(copied: Path, tmp_path: Path) -> None:
    for content in (None, b"", b"{", b"{}"):
        (copied / "dataset.json").unlink()
        if content is not None:
            (copied / "dataset.json").write_bytes(content)
        with pytest.raises(UsageError, match=r"--resume.*\*\.tfrecord"):
            salvage(str(copied), str(tmp_path / "saved"))
        assert not (tmp_path / "saved").exists()
        (copied / "dataset.json").touch()
    assert salvage(f"{copied}/*.tfrecord", str(tmp_path / "saved")).lost == 0


def test_an_interrupted_salvage_can_be_repeated(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = storage.move_into_place
    left = [2]

    def die(temporary: str, path: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        publish(temporary, path)

    flip(copied / SHARD, 70)
    output = tmp_path / "saved"
    with monkeypatch.context() as patch:
        patch.setattr(storage, "move_into_place", die)
        with pytest.raises(KeyboardInterrupt):
            salvage(str(copied), str(output))
    assert not (output / "dataset.json").exists()
    _check(salvage(str(copied), str(output)), copied, 1)
