"""What the report gathers from a dataset or a version: sound, damaged, foreign or hostile."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.described import described
from helpers.manifests import write_jsonl
from helpers.planting import write_ledger, written_lines
from helpers.report_samples import dataset_of, drift_of, findings_json
from helpers.repository import PHOTOS
from helpers.resealing import read_ledger
from helpers.tfds_reading import read_dataset
from PIL import Image, ImageOps

from shardwright.core.report import thumbnails
from shardwright.core.report.gather import RunFacts, gather, gather_files, shown_classes
from shardwright.core.report.measures import short
from shardwright.core.report.render import code_groups, render, settings_in_effect, split_text
from shardwright.core.report.thumbnails import Quarantined, RecordAt, draw_quarantine, read_quarantine
from shardwright.pipelines.cli import main
from shardwright.schemas.codes import Severity
from shardwright.schemas.drift import Changes, Pair
from shardwright.schemas.findings import ValidationReport, Violation
from shardwright.schemas.plan import SplitsFrom
from shardwright.schemas.version import VersionRecord, VersionState


def test_short_numbers_have_no_exponent() -> None:
    numbers = (950, 999.4, 999.6, 12_500, 999_499, 999_999, 999_999_999)
    assert [short(number) for number in numbers] == ["950", "999", "1k", "12.5k", "999k", "1M", "1G"]
    assert short(-999_999) == "-1M"


def test_every_class_has_pictures_and_the_ledger_is_shown(sound_dataset: Path) -> None:
    data = gather(str(sound_dataset))
    dataset = read_dataset(sound_dataset)
    assert [sheet.label for sheet in data.sheets] == list(dataset.labels)
    assert gather(str(sound_dataset)).sheets == data.sheets
    ledgers = [read_ledger(sound_dataset, Path(shard.file).stem)[1:] for shard in dataset.shards]
    written = {(line["key"], line.get("offset")) for lines in ledgers for line in lines}
    for sheet in data.sheets:
        assert sheet.records == sum(counts.get(sheet.label, 0) for counts in dataset.class_counts.values())
        assert 3 <= len(sheet.samples) <= 12
        for sample in sheet.samples:
            picture = data.pictures[sample.at]
            assert picture.jpeg.startswith(b"\xff\xd8")
            assert sample.key.startswith(f"{sheet.label}/") and (sample.key, sample.at.offset) in written
            assert max(picture.width, picture.height) <= 128
    assert data.records == dataset.all_records
    assert data.measures.sampled == sum(len(sheet.samples) for sheet in data.sheets)
    assert data.checked is not None and data.checked.report.mode == "frames"
    assert not data.measures.all_images and not data.left_out


def test_for_many_classes_the_extremes_and_some_between_are_shown() -> None:
    counts = {f"c{number:04}": 5_000 - number for number in range(3_000)}
    names = shown_classes(dataset_of({"train": counts}, {"train": 10**7}))
    assert len(names) == len(set(names)) == 48
    assert names[:2] == ["c0000", "c0001"] and names[-1] == "c2999"
    assert names == sorted(names)


def test_findings_are_shown_with_their_pictures(copied: Path) -> None:
    lines = read_ledger(copied, "train-00000-of-00003")[1:]
    written = [line for line in lines if line["outcome"] == "written"][:2]
    first, second = (
        {"shard": "train-00000-of-00003.tfrecord", "record": i, "offset": line["offset"], "key": line["key"]}
        for i, line in enumerate(written)
    )
    outside = {"shard": "../../secret.tfrecord", "record": 0, "offset": 0, "key": "x"}
    findings = [
        {"severity": "note", "code": "NEAR_DUPLICATE", "message": "alike", **first, "other": second},
        {"severity": "note", "code": "DARK", "message": "dark", **second},
        {"severity": "note", "code": "BLURRY", "message": "none", **first, "offset": 3},
        {"severity": "note", "code": "LIGHT", "message": "elsewhere", **outside},
    ]
    counts = {"NEAR_DUPLICATE": 1, "DARK": 1, "BLURRY": 1, "LIGHT": 1}
    validation = findings_json("quality", read_dataset(copied).fingerprint, counts, findings)
    (copied / "findings.json").write_text(json.dumps(validation))
    data = gather(str(copied))
    checked = data.checked
    assert checked is not None and checked.current
    assert [one.other and one.other.key for one in checked.pairs] == [written[1]["key"]]
    pictures = [data.pictures[RecordAt(one["shard"], one["offset"])] for one in (first, second)]
    assert all(picture.jpeg for picture in pictures) and pictures[0] != pictures[1]
    assert list(checked.image_findings) == ["DARK"]
    assert [group.code for group in code_groups(checked, 600)] == sorted(counts)
    later = {**validation, "counts": {"OF_A_LATER_VERSION": 1}}
    (copied / "findings.json").write_text(json.dumps(later))
    assert gather(str(copied)).left_out[0].startswith("findings.json is damaged or has another version")


def test_measurements_of_another_build_are_not_shown(copied: Path) -> None:
    validation = findings_json("full", "0" * 64, {}, [])
    (copied / "findings.json").write_text(json.dumps(validation))
    for build, shown in ((read_dataset(copied).fingerprint, True), ("0" * 64, False)):
        measured = {"fingerprint": build, "total": {"all": {"width": {"count": 0}}}}
        (copied / "statistics.json").write_text(json.dumps(measured))
        data = gather(str(copied))
        assert data.measures.all_images == shown
        left_out = "\n".join(data.left_out)
        assert ("statistics.json is about another build" in left_out) != shown
    page = render(data)
    assert "Changed since it was validated" in page and "✓ Sound" not in page


def test_damaged_shards_and_ledgers_cost_only_pictures(copied: Path) -> None:
    files = sorted(copied.glob("*.tfrecord"))
    files[0].write_bytes(os.urandom(5_000))
    files[1].unlink()
    body = bytearray(files[2].read_bytes())
    body[40:4_000] = os.urandom(3_960)
    files[2].write_bytes(body)
    files[3].write_bytes(b"")
    ledgers = sorted((copied / "_shards").glob("*.gz"))
    ledgers[0].write_bytes(b"no gzip")
    ledgers[4].write_bytes(gzip.compress(b'{"ledger_version": 9}\n'))
    (copied / "quarantine.jsonl").write_bytes(b"\xff\n{}\n[]\n")
    data = gather(str(copied))
    assert "Splits and classes" in render(data)
    for ledger in ledgers:
        ledger.unlink()
    assert gather(str(copied)).sheets == ()


def test_impossible_numbers_of_objects_are_not_counted(tmp_path: Path) -> None:
    dataset = Path(shutil.copytree(described("detection"), tmp_path / "out"))
    (shard, *_) = (path.name for path in dataset.glob("*.tfrecord") if path.stat().st_size)
    write_ledger(
        dataset, shard, [line | {"boxes": {"written": -1}} for line in written_lines(dataset, shard)]
    )
    counts = gather(str(dataset)).measures.counts
    assert counts is not None and min(counts.images) >= 0


def test_compressed_shards_have_pictures_too() -> None:
    data = gather(str(described("shapes")))
    assert sum(len(sheet.samples) for sheet in data.sheets) == 12


def test_files_without_a_dataset_show_pictures_and_findings(sound_dataset: Path) -> None:
    files = sorted(map(str, sound_dataset.glob("*.tfrecord")))
    name = os.path.basename(files[0])
    place = {"shard": name, "record": 0, "offset": 0, "key": None}
    finding = {"code": "SIZE_MISMATCH", "message": "small", **place}
    validation = findings_json("full", None, {"SIZE_MISMATCH": 3}, [finding])
    report = ValidationReport.from_json(validation)
    data = gather_files("some/*.tfrecord", [*files, "/gone.tfrecord"], validation=report)
    assert data.checked is not None and data.checked.image_findings["SIZE_MISMATCH"]
    assert data.pictures[RecordAt(name, 0)].jpeg
    assert sum(len(sheet.samples) for sheet in data.sheets) >= 40
    page = render(data)
    assert "Not sound" in page and "gone.tfrecord cannot be read" in page
    assert "1 of 3 are listed" in page and "findings.json" not in page and "<dt>records" in page
    assert "<dt>records" not in render(gather_files("one", files[:1]))  # nothing counted them


def test_images_left_out_are_shown_if_they_can_be_decoded(tmp_path: Path) -> None:
    picture = Image.effect_noise((300, 200), 60)
    for kind in ("jpeg", "png"):
        picture.save(tmp_path / f"whole.{kind}")
        whole = (tmp_path / f"whole.{kind}").read_bytes()
        (tmp_path / f"half.{kind}").write_bytes(whole[: len(whole) // 2])
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"\xff\xd8\xff" + bytes(17_000_000))
    uris = ["whole.jpeg", "half.jpeg", "half.png", "pipe", "large", "gone", ".", ""]
    item = {"stage": "decode", "message": "m"}
    rows = [
        {**item, "key": uri, "uri": str(tmp_path / uri) if uri else "", "reason": f"R{uri}"} for uri in uris
    ]
    write_jsonl(tmp_path / "quarantine.jsonl", rows)
    items = read_quarantine(str(tmp_path))
    assert len(items) == len(uris)
    shown = {item.key: item.picture for item in draw_quarantine(items, str(tmp_path))}
    for seen in ("whole.jpeg", "half.jpeg", "half.png"):
        picture_of = shown[seen]
        assert picture_of is not None and (picture_of.width, picture_of.height) == (128, 85)
    assert not any(shown[unseen] for unseen in uris[3:])


def test_an_unreachable_source_costs_only_its_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()
    monkeypatch.setattr(thumbnails, "PATIENCE", 0.05)
    monkeypatch.setattr(thumbnails, "draw_source", lambda uri: never.wait(30))
    item = Quarantined("k", "/somewhere", "read", "UNREADABLE", "m")
    try:
        assert draw_quarantine([item], "/data")[0].picture is None
    finally:
        never.set()


def test_pictures_are_not_read_from_other_storages_or_if_a_decoder_crashed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(thumbnails, "draw_source", asked.append)
    uris = ("http://host/a.jpg", "https://host/a.jpg", "gs://b/a.jpg", "s3://b/a.jpg", "/local/a.jpg", "")
    items = [Quarantined(uri, uri, "read", f"R{uri}", "m") for uri in uris]
    crashed = Quarantined("k", "/local/b.jpg", "decode", "DECODER_CRASHED", "m")
    draw_quarantine([*items, crashed], "/data")
    draw_quarantine(items, "gs://bucket/data")
    assert asked == ["/local/a.jpg", "gs://b/a.jpg"]


def test_only_the_beginning_of_a_long_quarantine_is_read(tmp_path: Path) -> None:
    items = [
        {"key": f"{number:06}", "uri": "", "stage": "read", "reason": f"R{number % 3}", "message": "m" * 200}
        for number in range(20_000)
    ]
    write_jsonl(tmp_path / "quarantine.jsonl", items)
    found = read_quarantine(str(tmp_path))
    assert len(found) == 120
    assert {item.reason for item in found} == {"R0", "R1", "R2"}


def test_inputs_sizes_of_originals_and_the_origin_of_splits_are_shown(sound_dataset: Path) -> None:
    data = gather(str(sound_dataset))
    ((path, kind),) = data.run.inputs
    assert path == str(PHOTOS) and kind
    assert data.run.splits_from == "hash"
    assert (
        split_text(read_dataset(sound_dataset), data.run.splits_from)
        == "train 60%, validation 20%, test 20%, by a hash of the key (seed 0)"
    )
    pictures = [path for path in PHOTOS.rglob("*.*") if path.is_file()]
    sizes = [ImageOps.exif_transpose(Image.open(path)).size for path in pictures]
    widths = [width for width, _ in sizes]
    sources = data.run.sources
    assert sources.images == len(pictures) and sources.width is not None and sources.bytes is not None
    assert (sources.width.min, sources.width.max) == (min(widths), max(widths))
    assert sources.bytes.sum == sum(path.stat().st_size for path in pictures)
    rows = {row.what: row for row in data.measures.compared}
    assert rows["width, pixels"].original.startswith(f"{min(widths)} to {max(widths)}, mean ")
    assert rows["width, pixels"].stored.startswith("64 (of ")
    page = render(data)
    assert str(PHOTOS) in page and "Originals and stored images" in page


_HUGE = {"count": 1, **dict.fromkeys(("min", "max", "mean", "std", "median"), 10**400)}
_MEASURED: list[dict[str, Any]] = [
    {"splits": {"train": {"all": {"bytes": {"histogram": {"counts": [1], "edges": "x"}}}}}},
    {"splits": [], "total": None},
    {"total": {"all": {"pixels": {"mean": [float("nan")], "std": ["a"]}, "width": 3, "boxes": []}}},
    {"total": {"all": {"samples": {"uint16": {"3": {"images": "x", "min": [1]}}, "<b>": 7}}}},
    {"total": {"all": {"width": _HUGE}}},
]
_DAMAGED = {
    "findings.json": ["", "[]", "{}", '{"counts": 3}', "nul", "[" * 100_000, '{"a": "\\ud800"}'],
    "run.json": [
        "[",
        "3",
        '{"input": 3, "sources": [1], "splits_from": ["x"]}',
        '{"input": [{}], "detected_as": [1, 2], "sources": {"images": "x", "bytes": {"sum": -1, "min": ""}}}',
        '{"sources": {"images": 1e999, "width": {"min": NaN, "max": 1, "mean": 2}, "bytes": {"sum": 9e999}}}',
        '{"sources": {"images": 3, "width": {"min": 1, "max": 9, "mean": []}, "bytes": {"sum": true}}}',
    ],
    "statistics.json": ["[1]", *map(json.dumps, _MEASURED)],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name in _DAMAGED for text in _DAMAGED[name]])
def test_damaged_documents_are_named_and_the_report_continues(
    dataset: Path, tmp_path: Path, name: str, text: str
) -> None:
    copied = Path(shutil.copytree(dataset, tmp_path / "dataset"))
    of_this_build = f'{{"fingerprint": "{read_dataset(copied).fingerprint}", '
    (copied / name).write_text(text.replace("{", of_this_build, 1) if name == "statistics.json" else text)
    data = gather(str(copied))
    then = "what was converted is not known" if name == "run.json" else "validate again to replace it"
    assert data.left_out == (f"{name} is damaged or has another version; {then}.",)
    assert (data.checked is None) == (name == "findings.json") and not data.measures.all_images
    assert (data.run == RunFacts()) == (name == "run.json")
    page = render(data)
    assert "Splits and classes" in page and "What is missing from this page" in page


def test_settings_that_had_no_effect_are_not_shown() -> None:
    def settings_of(splits_from: str, *splits: str, **settings: str) -> tuple[str, set[str]]:
        given = {"splits": "train=0.9,test=0.1", "split_by": "p", "seed": 3, "shard_size": 9, **settings}
        dataset = dataset_of({}, dict.fromkeys(splits, 1), settings=given)
        text = split_text(dataset, SplitsFrom(splits_from) if splits_from else None)
        return text, set(settings_in_effect(dataset, text))

    text, shown = settings_of("source", "train", "validation", shards="4")
    assert text == "train, validation, as the source names them" and shown == {"seed", "shards"}
    text, shown = settings_of("hash", "train", "test")
    assert text == "train 90%, test 10%, by a hash of the part of the key that p matches (seed 3)"
    assert shown == {"splits", "split_by", "seed", "shard_size"}
    text, _ = settings_of("both", "train", "test", "extra")
    assert text.startswith("train, test, extra: named by the source for some images; for all others")
    _, shown = settings_of(
        "hash", "train", "test", fit="pad", quality="90", image_format="png", unlabelled="skip"
    )
    assert shown == {"splits", "split_by", "seed", "shard_size", "image_format", "unlabelled"}
    _, shown = settings_of("hash", "train", "test", fit="pad", resize="8", of_a_later_version="x")
    assert {"fit", "resize", "of_a_later_version"} <= shown
    # Without a run.json, the names show it.
    assert settings_of("", "train", "extra")[0] == "train, extra, as the source names them"
    assert settings_of("", "train", "test")[0].startswith("train 90%, test 10%, by a hash")


_VERSION, _BEFORE = "20261121T020000Z", "20261120T020000Z"


def record_of(*refusals: Violation, **fields: Any) -> VersionRecord:
    state = VersionState.REFUSED if refusals else VersionState.PUBLISHED
    return VersionRecord(_VERSION, **{"state": state, "created": 0, "previous": _BEFORE, **fields},
                         refusals=refusals)  # fmt: skip


def drift_to(fingerprint: str) -> dict[str, Any]:
    """Returns the content of a version's `diff.json`."""
    changes = Changes(unchanged=1, counts=Counter({("added", "train"): 5_432}))
    builds = {"datasets": Pair(_BEFORE, _VERSION), "fingerprints": Pair("0" * 64, fingerprint)}
    return drift_of(changes=changes, **builds).as_json()


@pytest.fixture
def version(sound_dataset: Path, tmp_path: Path) -> Callable[..., Path]:
    """Creates the directory of a version."""

    def make(record: VersionRecord | None = None, drift: bool = False) -> Path:
        directory = tmp_path / "pets" / "versions" / _VERSION
        shutil.copytree(sound_dataset, directory)
        if record:
            (directory / "version.json").write_text(record.dumps())
        if drift:
            (directory / "diff.json").write_text(json.dumps(drift_to(read_dataset(directory).fingerprint)))
        return directory

    return make


def test_the_report_shows_the_state_of_a_version(
    version: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    directory = version(record_of(), drift=True)
    data = gather(str(directory))
    assert data.name == read_dataset(directory).name
    assert data.place == f"{directory.parent.parent}@{_VERSION}"
    assert data.of_version == record_of() and data.list_page == "../../index.html"
    assert data.drift is not None and data.left_out == ()
    assert main(["report", data.place]) == 0
    assert "to be opened in a browser" in capsys.readouterr().out
    page = (directory / "report.html").read_text()
    assert '<a href="../../index.html">All versions</a>' in page
    assert "Compared with the previous version" in page and "5,432" in page and _BEFORE in page
    assert "✓ published" in page and "Version published" not in page
    assert f"--dataset <bdi>{directory.parent.parent}@{_VERSION}" in page


def test_unwritten_documents_take_precedence_over_stored_ones(version: Callable[..., Path]) -> None:
    directory = version(record_of(), drift=True)
    refused = record_of(Violation("findings", "SPLIT_LEAKAGE", Severity.ERROR, "two are in two"))
    data = gather(str(directory), record=refused, drift=drift_to("x"))
    assert data.of_version is refused and data.drift == drift_to("x")


def test_a_refused_version_shows_why_and_the_command_to_accept_it(version: Callable[..., Path]) -> None:
    violation = Violation("drift", "max_added_fraction", Severity.ERROR, "max_added_fraction: too many came")
    directory = version(record_of(violation), drift=True)
    page = render(gather(str(directory)))
    assert "✗ Version refused" in page and "max_added_fraction" in page
    assert page.count("too many came") == 1
    place = f"{directory.parent.parent}@{_VERSION}"
    assert f"shardwright publish {place} --accept max_added_fraction" in page


def test_warnings_and_accepted_refusals_of_a_published_version_are_shown(
    version: Callable[..., Path],
) -> None:
    violations = (
        Violation("drift", "new_classes", Severity.WARNING, "1 new class"),
        Violation("findings", "SPLIT_LEAKAGE", Severity.ERROR, "two are in two"),
    )
    record = replace(record_of(*violations), state=VersionState.PUBLISHED, accepted=("findings",))
    page = render(gather(str(version(record))))
    assert "1 new class" in page and "(<bdi>findings</bdi>, accepted)" in page
    assert "shardwright publish" not in page


def test_the_link_back_exists_only_if_it_has_a_target(version: Callable[..., Path], tmp_path: Path) -> None:
    directory = version(record_of())
    elsewhere = gather(str(directory), page=str(tmp_path / "a.html"))
    assert "index.html" not in render(elsewhere)
    assert "index.html" in render(gather(f"{directory}/", page=str(directory / "report.html")))


def test_a_version_without_version_json_has_a_report(version: Callable[..., Path]) -> None:
    directory = version()
    assert "… Version building" in render(gather(str(directory)))
    (directory / "version.json").write_bytes(b"\xff")
    (directory / "diff.json").write_text("[")
    data = gather(str(directory))
    assert data.of_version is not None and data.of_version.state is VersionState.DAMAGED
    assert data.drift is None and len(data.left_out) == 2
    assert "? Version damaged" in render(data)


def test_a_diff_of_another_build_is_not_shown(version: Callable[..., Path]) -> None:
    directory = version(record_of())
    (directory / "diff.json").write_text(json.dumps(drift_to("another")))
    data = gather(str(directory))
    assert data.drift is None and data.left_out == ("diff.json is about another build.",)
