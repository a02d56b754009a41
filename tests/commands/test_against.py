"""`validate --against` reports every defect between a dataset and its source, and nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.annotation_sets.coco import put_coco
from helpers.depths import compared, findings_of
from helpers.manifests import write_csv
from helpers.planting import rewrite, written_lines
from helpers.repository import copy_first
from helpers.resealing import frame, put, read_shard
from helpers.tfrecords import features_of

from shardwright.pipelines.convert import convert
from shardwright.pipelines.salvage import salvage
from shardwright.pipelines.validate import validate
from shardwright.schemas.codes import OF_SOURCE, FindingCode
from shardwright.schemas.errors import UsageError
from shardwright.schemas.findings import Finding

CLASSES = ("birds", "flowers")
KINDS = [
    ("resized", "full"), ("kept", "fast"), ("minimal", "full"),
    *(pytest.param(*kind, marks=pytest.mark.slow) for kind in (("kept", "full"), ("minimal", "fast"))),
]  # fmt: skip


def of_source(dataset: Path, source: Path, mode: str = "full", **listing: Any) -> list[Finding]:
    """Returns what a whole validation finds about the source, with an engine."""
    findings = validate(dataset, mode=mode, against=str(source), listing=listing).findings
    return [finding for finding in findings if finding.code in OF_SOURCE]


def codes(findings: list[Finding]) -> list[tuple[str, str | None]]:
    return sorted((finding.code.value, finding.key) for finding in findings)


def write_records(shard: Path, records: list[bytes]) -> None:
    """Writes a shard with right checksums, like a deliberate forger."""
    shard.write_bytes(b"".join(map(frame, records)))


def offset_of(records: list[bytes], number: int) -> int:
    return sum(len(data) + 16 for data in records[:number])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source and its datasets: resized and kept, with and without keys in the records."""
    root = tmp_path_factory.mktemp("made")
    source = copy_first(root / "source", 6, CLASSES)
    shared = {"input": str(source), "verify": "none"}
    splits = "train=0.7,test=0.3"
    convert(output=str(root / "resized"), resize=32, splits=splits, shards="train=2,test=1", **shared)
    convert(output=str(root / "kept"), splits=splits, shards=1, **shared)
    convert(output=str(root / "minimal"), layout="minimal", resize=32, **shared)
    return root


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    """A copy to damage. It keeps the times of files, as a careful copy does."""
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "mode"), KINDS)
def test_a_sound_dataset_has_no_finding(made: Path, tmp_path: Path, name: str, mode: str) -> None:
    """Only the bytes of a file of the source matter, neither its place nor its time."""
    shutil.copytree(made / "source", tmp_path / "elsewhere", copy_function=shutil.copyfile)
    report = validate(str(made / name), mode=mode, against=str(tmp_path / "elsewhere"))
    assert report.counts == {}
    assert report.records == 12


def test_a_class_of_copies_alone_is_no_finding(tmp_path: Path) -> None:
    source = copy_first(tmp_path / "source", 3, CLASSES)
    shutil.copytree(source / "birds", source / "copies_of_birds")
    made = convert(input=str(source), output=str(tmp_path / "out"), dedupe="exact", verify="none")
    assert made.dataset.labels == CLASSES and made.dataset.ledger["deduplicated"] == 3
    assert not of_source(tmp_path / "out", source)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "mode"), KINDS)
def test_changes_in_the_source_are_reported(copy: Path, photos: Path, name: str, mode: str) -> None:
    source = copy / "source"
    birds, flowers = (sorted((source / name).iterdir()) for name in CLASSES)
    birds[0].unlink()
    shutil.copy(sorted((photos / "birds").iterdir())[8], source / "birds" / "added.jpg")
    data = bytearray(birds[1].read_bytes())
    data[-20] ^= 1
    birds[1].write_bytes(data)
    birds[2].rename(source / "flowers" / birds[2].name)
    flowers[0].rename(source / "flowers" / "renamed")
    (source / "flowers" / "notes.txt").write_text("no image")
    flowers[1].unlink()
    flowers[1].symlink_to(copy / "nowhere")
    flowers[2].write_bytes(b"")
    found = of_source(copy / name, source, mode)
    expected = {
        (FindingCode.SOURCE_MISSING, f"birds/{birds[0].name}"): "no longer has such an image",
        (FindingCode.RECORD_MISSING, "birds/added.jpg"): "neither a record nor the ledger",
        (FindingCode.SOURCE_CHANGED, f"birds/{birds[1].name}"): "",
        (FindingCode.SOURCE_LABEL, f"birds/{birds[2].name}"): "class 'flowers', the record class 'birds'",
        (FindingCode.SOURCE_MISSING, f"flowers/{flowers[0].name}"): "as 'flowers/renamed' now",
        (FindingCode.SOURCE_MISSING, f"flowers/{flowers[1].name}"): "",
        (FindingCode.SOURCE_CHANGED, f"flowers/{flowers[2].name}"): "EMPTY_FILE" if mode == "full" else "",
    }
    assert {(finding.code, finding.key) for finding in found} == set(expected)
    assert len(found) == len(expected)
    for finding in found:
        assert expected[finding.code, finding.key] in finding.message
        assert finding.shard
        assert (finding.offset is None) == (finding.code is FindingCode.RECORD_MISSING)
        if name != "minimal" and finding.record is not None:
            record = read_shard(copy / name / finding.shard)[finding.record]
            assert features_of(record)["image/filename"][0].decode() == finding.key
            offset = offset_of(read_shard(copy / name / finding.shard), finding.record)
            assert finding.offset == offset


def test_swapped_pictures_are_reported(copy: Path) -> None:
    """Each record is sound by itself and has no key. Only the source shows the swap."""
    shard = next((copy / "minimal").glob("train-00000-*.tfrecord"))
    records = read_shard(shard)
    keys = [line["key"] for line in written_lines(copy / "minimal", shard.name)]
    labels = [features_of(data)["label"][0] for data in records]
    places = sorted((labels.index(0), labels.index(1)))  # in one class, it might only be another order
    pictures = [features_of(records[number])["image"][0] for number in places]
    for number, picture in zip(places, reversed(pictures)):
        rewrite(copy / "minimal", put("image", picture), number, shard.name)
    records = read_shard(shard)
    found = compared(copy / "minimal", copy / "source")
    assert [(f.code, f.shard, f.record, f.offset, f.key) for f in found] == [
        (FindingCode.SOURCE_CHANGED, shard.name, number, offset_of(records, number), keys[number])
        for number in places
    ]
    assert {finding.message for finding in found} == {"its image differs from what its source converts to"}


def test_changed_kept_bytes_are_reported(copy: Path) -> None:
    shard = next((copy / "kept").glob("train-*.tfrecord"))
    ledger = {line["key"]: line for line in written_lines(copy / "kept", shard.name)}
    records = read_shard(shard)
    number = next(
        number
        for number, data in enumerate(records)
        if ledger[features_of(data)["image/filename"][0].decode()]["stored"] == "kept"
    )
    picture = bytearray(features_of(records[number])["image/encoded"][0])
    picture[-20] ^= 1
    rewrite(copy / "kept", put("image/encoded", bytes(picture)), number, shard.name)
    for mode in ("full", "fast"):
        found = compared(copy / "kept", copy / "source", mode=mode)
        assert [(f.code, f.record, f.offset) for f in found] == [
            (FindingCode.KEPT_BYTES, number, offset_of(records, number))
        ]


@pytest.mark.parametrize("name", ["resized", "minimal"])
def test_a_duplicate_and_a_lost_record_are_reported(copy: Path, name: str) -> None:
    shard = next((copy / name).glob("train-00000-*.tfrecord"))
    records = read_shard(shard)
    keys = [line["key"] for line in written_lines(copy / name, shard.name)]
    write_records(shard, [*records[:3], records[0], *records[4:]])
    found = [*findings_of(copy / name), *compared(copy / name, copy / "source")]
    assert [item.record for item in found if item.code is FindingCode.DUPLICATE_KEY] == [3]
    assert codes([item for item in found if item.code in OF_SOURCE]) == [("RECORD_MISSING", keys[3])]


def test_a_record_that_salvage_lost_is_missing(copy: Path) -> None:
    shard = next((copy / "resized").glob("train-00000-*.tfrecord"))
    shard.write_bytes(shard.read_bytes()[:-1])
    salvage(str(copy / "resized"), output=str(copy / "saved"))
    lost = [line["key"] for line in written_lines(copy / "resized", shard.name)][-1]
    assert codes(compared(copy / "saved", copy / "source")) == [("RECORD_MISSING", lost)]


def test_without_ledgers_the_records_are_compared(copy: Path) -> None:
    for name in ("resized", "minimal"):
        shutil.rmtree(copy / name / "_shards")
    gone = next((copy / "source" / "birds").iterdir())
    gone.unlink()
    assert codes(compared(copy / "resized", copy / "source")) == [("SOURCE_MISSING", f"birds/{gone.name}")]
    found = compared(copy / "minimal", copy / "source")
    assert [finding.message for finding in found] == ["no image of the source converts to it"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return copy_first(tmp_path / "source", 4, CLASSES)


def test_changed_classes_and_splits_in_a_manifest_are_reported(source: Path, tmp_path: Path) -> None:
    rows: list[tuple[object, ...]] = [("path", "label", "split")]
    for number, image in enumerate(sorted(source.rglob("*.*"))):
        rows.append((image.relative_to(source), image.parent.name, "train" if number % 3 else "test"))
    manifest = write_csv(tmp_path / "list.csv", rows)
    options = {"image_root": str(source)}
    convert(input=str(manifest), output=str(tmp_path / "out"), resize=32, verify="none", **options)
    message = r"made with --image_root .*give --image_root together with --against"
    with pytest.raises(UsageError, match=message):
        compared(tmp_path / "out", manifest)
    lines = manifest.read_text().splitlines()
    lines[1] = lines[1].replace(",birds,", ",flowers,")
    lines[2] = lines[2].replace(",train", ",test")
    manifest.write_text("\n".join(lines) + "\n")
    found = of_source(tmp_path / "out", manifest, **options)
    expected = {lines[1].split(",")[0]: "says class 'flowers'", lines[2].split(",")[0]: "into split 'test'"}
    assert {finding.key for finding in found} == set(expected)
    for finding in found:
        assert finding.code is FindingCode.SOURCE_LABEL
        assert expected[finding.key or ""] in finding.message
        assert finding.record is not None


def test_boxes_and_classes_of_objects_are_compared(source: Path, tmp_path: Path) -> None:
    files = {path.relative_to(source).as_posix(): path for path in sorted(source.rglob("*.*"))}
    boxes = {
        name: [(1 + CLASSES.index(path.parent.name), number, 2, 10, 10)]
        for number, (name, path) in enumerate(files.items())
    }
    listed = put_coco(source / "instances.json", boxes, CLASSES)
    convert(input=str(listed), output=str(tmp_path / "out"), layout="detection", verify="none")
    document = json.loads(listed.read_text())
    document["annotations"][0]["bbox"][0] += 5
    document["annotations"][1]["category_id"] = 2
    listed.write_text(json.dumps(document))
    found = {finding.key: finding for finding in compared(tmp_path / "out", listed)}
    names = [image["file_name"] for image in document["images"]]
    assert found[names[0]].code is FindingCode.SOURCE_CHANGED
    assert "'image/object/bbox/xmax', 'image/object/bbox/xmin'" in found[names[0]].message
    assert found[names[1]].code is FindingCode.SOURCE_LABEL
    assert len(found) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"limit": 5, "layout": "raw_with_shape", "resize": 16},
        {"dedupe": "exact", "compression": "gzip", "color": "gray"},
        {"layout": "tfrecorder", "resize": 16, "splits": "train=0.5,test=0.5"},
        {"layout": "imagenet", "resize": 16, "strip_metadata": True, "compression": "zlib"},
    ],
    ids="-".join,
)
def test_settings_of_all_kinds_can_be_compared(
    source: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """Copies, broken images and images left out are in the ledger, so only later changes are findings."""
    (source / "birds" / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 no more")
    image = sorted((source / "birds").glob("*.png"))[0]
    shutil.copy(image, source / "flowers" / "zz_copy.png")
    convert(input=str(source), output=str(tmp_path / "out"), max_bad_fraction=1, **settings)
    for mode in ("full", "fast"):
        assert of_source(tmp_path / "out", source, mode) == []
    if settings.get("dedupe"):
        other = next((source / "flowers").glob("*.jpg"))
        shutil.copy(other, source / "flowers" / "zz_copy.png")
        assert of_source(tmp_path / "out", source) == []  # it is now a copy of another image
        (source / "flowers" / "zz_copy.png").write_bytes(image.read_bytes() + b"\0")
        assert codes(of_source(tmp_path / "out", source)) == [("SOURCE_CHANGED", "flowers/zz_copy.png")]
