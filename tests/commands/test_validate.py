"""Validation: damage, faults while it runs, quality, what each depth finds, and changes of the source."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
from collections import Counter
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from helpers.annotation_sets.coco import put_coco
from helpers.depths import DEPTHS, compared, findings_of
from helpers.hostile import (
    at_call,
    leftovers,
    limit_file_size,
    run,
    run_forked,
    sentence_of,
    signal_self,
    without_times,
)
from helpers.manifests import write_csv
from helpers.mutations import MUTATIONS, Mutation
from helpers.planting import SHARD, rewrite, written_lines
from helpers.repository import ROOT, copy_first
from helpers.resealing import frame, put, read_shard
from helpers.tfrecords import SUFFIX, features_of, write
from helpers.trees import put_files
from PIL import Image, ImageOps
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

from shardwright.core import storage
from shardwright.core.storage import local
from shardwright.core.validation import results
from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.pipelines.places import resolve_target
from shardwright.pipelines.salvage import salvage
from shardwright.pipelines.validate import list_tasks, validate
from shardwright.schemas.codes import NOTES, OF_SOURCE, FindingCode
from shardwright.schemas.errors import UsageError
from shardwright.schemas.findings import Finding, ValidationReport


def test_files_that_no_reader_takes_for_a_shard_are_left_alone(copied: Path) -> None:
    own = (f"._{SHARD}", f"_work/{SHARD}", f"another/{SHARD}")
    put_files(copied, dict.fromkeys((*own, "another/dataset.json", "notes.tfrecord"), b""))
    assert not findings_of(copied)


def test_settings_of_the_listing_that_are_none_are_not_given(copied: Path) -> None:
    assert validate(copied, mode="fast", listing={"source": None, "include": None}).passed


@pytest.mark.sampled(1)
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_foreign_files_validate_with_features_inferred(
    tmp_path: Path, photos: Path, compression: str, capsys: Capture
) -> None:
    suffix = SUFFIX[compression]
    images = [path.read_bytes() for path in sorted(photos.rglob("*.jpg"))]
    records = [{"image_raw": image, "label": number} for number, image in enumerate(images[:5])]
    for i in range(2):
        write(tmp_path / f"part {i}.tfrecord{suffix}", records, compression)
    pattern = str(tmp_path / f"*.tfrecord{suffix}")
    assert main(["validate", "--dataset", pattern]) == 0
    half = {"image_raw": images[0][: len(images[0]) // 2], "label": 0}
    write(tmp_path / f"part 2.tfrecord{suffix}", [half, b""], compression)
    assert main(["validate", "--dataset", pattern]) == 1
    printed = capsys.readouterr().out
    assert "UNDECODABLE" in printed and "MISSING_FEATURE" in printed


Capture = pytest.CaptureFixture[str]
REPORTS = ("findings.json", "statistics.json", "stats.pb")
PAGE = "report.html"


@pytest.fixture
def copy(copied: Path) -> Path:
    """A sound dataset, already validated."""
    for name in (*REPORTS, PAGE):
        (copied / name).write_text(f"{name} before")
    return copied


def reports_of(dataset: Path, names: tuple[str, ...] = REPORTS) -> dict[str, Any]:
    found = {name: (dataset / name).read_bytes() for name in names}
    return found | {"findings.json": without_times(found["findings.json"])}


def fail_on(monkeypatch: pytest.MonkeyPatch, function: str, ending: str, number: int) -> None:
    """Makes the local disk fail for one file."""
    owner = local if hasattr(local, function) else local.LocalStore
    real = getattr(owner, function)

    def failing(*args: Any) -> Any:
        if any(str(arg).rstrip("/").endswith(ending) for arg in args):
            raise OSError(number, os.strerror(number), ending)
        return real(*args)

    monkeypatch.setattr(owner, function, failing)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("number", "message"), [
    (errno.EACCES, "permission denied"), (errno.EIO, "input/output error"),
    (errno.EMFILE, "too many files are open"),
])  # fmt: skip
@pytest.mark.parametrize(("function", "file"), [
    ("open_local", SHARD), ("open_local", "_shards/train-00001-of-00003.jsonl.gz"),
    ("open_local", "_index/train-00001-of-00003.idx"), ("open_local", "labels.txt"), ("pages", "dataset"),
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


@pytest.mark.parametrize("options", [("--fast", "--pool=processes"), ()])
def test_a_disk_that_fails_while_a_shard_is_read_is_an_error(
    capfd: Capture, copy: Path, options: tuple[str, ...]
) -> None:
    before = reports_of(copy)
    (copy / SHARD).unlink()
    (copy / SHARD).symlink_to("/proc/self/mem")  # a file whose first bytes cannot be read
    sentence = sentence_of(run(capfd, "validate", "--dataset", copy, *options), 3)
    assert SHARD in sentence and "input/output error" in sentence
    assert reports_of(copy) == before


def test_a_dataset_replaced_during_validation_is_an_error(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, copy: Path, sound_dataset: Path, tmp_path: Path
) -> None:
    other = Path(shutil.copytree(sound_dataset, tmp_path / "other"))
    rewrite(other, put("image/key/sha256", b"0" * 64), sha256="0" * 64)
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
    assert not findings_of(copy)


def test_a_report_that_cannot_be_written_leaves_the_previous_one(copy: Path, tmp_path: Path) -> None:
    before = reports_of(copy)
    argv = ("validate", "--dataset", copy, "--fast")
    done = run_forked(tmp_path / "log", *argv, before=partial(limit_file_size, 250))
    sentence = sentence_of(done, 3)
    assert sentence.startswith(f"Cannot write the report to {copy}/findings.json")
    assert "choose another place with --report" in sentence
    assert reports_of(copy) == before and not leftovers(copy)


def test_a_killed_validation_leaves_the_previous_reports(capfd: Capture, copy: Path, tmp_path: Path) -> None:
    before = reports_of(copy, (*REPORTS, PAGE))
    argv = ("validate", "--dataset", copy, "--quality")
    kill = partial(at_call, "os:replace", "statistics.json", 1, partial(signal_self, signal.SIGKILL))
    assert run_forked(tmp_path / "log", *argv, before=kill).code == -signal.SIGKILL
    assert reports_of(copy, (*REPORTS, PAGE)) == before
    assert leftovers(copy), "it was killed before it wrote"
    Path(storage.unfinished(str(copy / PAGE))).write_bytes(b"half of it")
    assert run(capfd, *argv).code == 0  # its leftovers are not findings
    assert not leftovers(copy), "they were removed"
    report = json.loads((copy / "findings.json").read_text())
    assert report["sound"] and not report["errors"]
    assert report["warnings"] == report["counts"]["REPORT_MISMATCH"] == 2  # the garbage in their places


def test_a_command_answers_with_its_own_report(
    capfd: Capture, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, others = results.render, copy / "findings.json"
    for name in (*REPORTS, PAGE):
        (copy / name).unlink()

    def page(*args: Any) -> str:  # another validation ends while the page is written
        report = json.loads(others.read_text()) | {"sound": False, "errors": 7, "counts": {"UNDECODABLE": 7}}
        others.write_text(json.dumps(report))
        return real(*args)

    monkeypatch.setattr(results, "render", page)
    done = run(capfd, "validate", "--dataset", copy)
    assert done.code == 0 and "UNDECODABLE" not in done.out
    assert "1 REPORT_MISMATCH" in done.out  # the previous report is missing
    assert json.loads(others.read_text())["errors"] == 7 and not leftovers(copy)


ODD_CLASS = "<i>o'dd</i>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, photos: Path) -> Path:
    """Folders of splits and classes: copies, another format, another size, a flipped one, dark, gray."""
    root = tmp_path_factory.mktemp("quality") / "in"
    for split in ("train", "test"):
        for name in ("birds", "flowers", ODD_CLASS):
            (root / split / name).mkdir(parents=True)
    pictures = sorted((photos / "birds").iterdir()) + sorted((photos / "flowers").iterdir())
    kept = [path for path in pictures if not path.name.startswith(("blackbird", "dove", "owl", "swallow"))]
    for path in kept[:12]:
        shutil.copy(path, root / "train" / path.parent.name / path.name)
    opaque = [path for path in kept[:12] if path.suffix == ".jpg"]
    first, second, third = (ImageOps.exif_transpose(Image.open(path)) for path in opaque[:3])
    shutil.copy(opaque[0], root / "train" / "birds" / "z copy.jpg")
    shutil.copy(opaque[1], root / "test" / "birds" / "leaked.jpg")
    third.save(root / "train" / ODD_CLASS / "z conflict.webp", quality=80)
    first.resize((300, 200)).save(root / "test" / "birds" / "resized.jpg", quality=60)
    ImageOps.mirror(second).save(root / "train" / "birds" / "z flipped.png")
    Image.new("RGB", (64, 64), (30, 30, 20)).save(root / "train" / ODD_CLASS / "z dark.png")
    third.convert("L").resize((90, 17)).save(root / "train" / ODD_CLASS / "z grey.png")
    return root


def measured(folder: Path, output: Path, **settings: Any) -> ValidationReport:
    convert(input=str(folder), output=str(output), **settings)
    return validate(str(output), mode="quality")


@pytest.fixture(scope="module")
def kept(folder: Path) -> tuple[Path, ValidationReport]:
    """A dataset of the original pictures with one shard per split, and its findings."""
    output = folder.parent / "kept"
    return output, measured(folder, output, shards=1)


def pairs(report: ValidationReport) -> set[tuple[str, frozenset[str | None]]]:
    """Returns codes and keys of the findings about pairs."""
    return {
        (one.code.value, frozenset((one.key, one.other.key)))
        for one in report.findings
        if one.other is not None
    }


def names(report: ValidationReport, code: str) -> set[str]:
    return {(one.key or "").rpartition("/")[2] for one in report.findings if one.code == code}


def test_kept_pictures_are_measured(kept: tuple[Path, ValidationReport]) -> None:
    dataset, report = kept
    assert report.sound and report.mode == "quality"
    kinds = sorted(code for code, _ in pairs(report))
    assert kinds == ["EXACT_DUPLICATE", "LABEL_CONFLICT", "SPLIT_LEAKAGE", "SPLIT_LEAKAGE"], pairs(report)
    ends = {
        frozenset(str(key).rpartition("/")[2] for key in keys) - {"z copy.jpg", "leaked.jpg"}
        for _, keys in pairs(report)
    }
    assert len(ends) == 4
    assert names(report, "DARK") == {"z dark.png"} and names(report, "ODD_ASPECT_RATIO") == {"z grey.png"}
    assert names(report, "LOW_INFORMATION") == {"z dark.png"}
    assert "z grey.png" in names(report, "GRAYSCALE")
    assert {"TINY_CLASS"} <= set(report.counts) and "NEAR_DUPLICATE" not in report.counts
    stored = json.loads((dataset / "findings.json").read_text())
    severities = {one["code"]: one["severity"] for one in stored["findings"]}
    assert severities["SPLIT_LEAKAGE"] == severities["LABEL_CONFLICT"] == "warning"
    assert severities["EXACT_DUPLICATE"] == severities["DARK"] == severities["TINY_CLASS"] == "note"
    scores = {one["code"]: one.get("score") for one in stored["findings"] if "z " in (one["key"] or "")}
    assert 0 <= scores["DARK"] < 0.32 and 0 < scores["ODD_ASPECT_RATIO"] < 0.35
    assert scores["GRAYSCALE"] is None
    assert all(one["other"]["shard"] for one in stored["findings"] if one["code"] == "EXACT_DUPLICATE")


def test_foreign_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    put_files(tmp_path, dict.fromkeys(("a/part.tfrecord", "b/part.tfrecord"), b""))
    tasks = list_tasks(resolve_target(str(tmp_path / "*/part.tfrecord")))
    assert [task.file for task in tasks] == ["a/part.tfrecord", "b/part.tfrecord"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("image_format", ["jpeg", "raw", "webp"])
def test_findings_do_not_depend_on_how_pictures_are_stored(
    folder: Path, kept: tuple[Path, ValidationReport], tmp_path: Path, image_format: str
) -> None:
    many = measured(folder, tmp_path / "a", resize=96, image_format=image_format, shards=5)
    _, one = kept
    assert pairs(many) == pairs(one)
    # Resized pictures have one shape, and a lossy codec need not keep gray pixels gray.
    counts = [{**report.counts, "ODD_ASPECT_RATIO": 0, "GRAYSCALE": 0} for report in (many, one)]
    assert counts[0] == counts[1]


def test_shallower_checks_keep_findings_of_quality(
    kept: tuple[Path, ValidationReport], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, before = Path(shutil.copytree(kept[0], tmp_path / "out")), kept[1]
    assert before.warnings == 3 and before.notes
    assert list(before.findings) == sorted(before.findings, key=Finding.order)
    linked = [one for one in before.findings if one.other is not None]
    assert len({Finding.order(one)[:2] for one in linked}) == len(linked) == 4, "a pair is reported once"
    capsys.readouterr()
    assert main(["validate", str(output), "--fast", "--warn_on", "DATA_CRC"]) == 0
    stored = json.loads((output / "findings.json").read_text())
    assert (stored["mode"], stored["warnings"], stored["notes"]) == ("fast", 3, before.notes)
    assert stored["counts"] == before.counts, "what was found before is not forgotten"
    assert [check["depth"] for check in stored["checks"]] == ["fast", "quality"]
    conflict = next(one for one in stored["findings"] if one["code"] == "LABEL_CONFLICT")
    assert (conflict["depth"], conflict["time"]) == ("quality", before.time)
    assert "1 LABEL_CONFLICT (warning), found by the quality check of" in capsys.readouterr().out
    page = (output / "report.html").read_text()
    assert "Warnings to look at" in page and "LABEL_CONFLICT" in page and "(<bdi>quality</bdi>)" in page


@pytest.fixture(scope="module")
def document(measured_dataset: Path) -> Any:
    return json.loads((measured_dataset / "statistics.json").read_text())


def test_counts_equal_those_of_the_dataset(measured_dataset: Path, document: Any) -> None:
    dataset = json.loads((measured_dataset / "dataset.json").read_text())
    assert document["splits"].keys() == dataset["splits"].keys()
    for split, sums in document["splits"].items():
        assert sums["all"]["records"] == dataset["splits"][split]["records"]
        assert sums["all"]["formats"] == dataset["formats"][split]
        counts = {name: value["records"] for name, value in sums["classes"].items()}
        assert counts == {name: count for name, count in dataset["class_counts"][split].items() if count}
    assert document["total"]["all"]["records"] == sum(
        content["records"] for content in dataset["splits"].values()
    )


def test_stats_pb_describes_the_features_of_the_schema(measured_dataset: Path) -> None:
    data = (measured_dataset / "stats.pb").read_bytes()
    message = statistics_pb2.DatasetFeatureStatisticsList.FromString(data)
    schema = text_format.Parse((measured_dataset / "schema.pbtxt").read_text(), schema_pb2.Schema())
    types = {feature.name: feature.type for feature in schema.feature}
    domains = {feature.name: set(feature.string_domain.value) for feature in schema.feature}
    for dataset in message.datasets:
        assert {feature.path.step[0] for feature in dataset.features} == types.keys()
        for feature in dataset.features:
            name = feature.path.step[0]
            assert (feature.type == feature.INT) == (types[name] == schema_pb2.INT)
            stats = getattr(feature, feature.WhichOneof("stats"))
            assert stats.common_stats.num_non_missing == dataset.num_examples
            if domains[name]:
                assert {top.value for top in stats.top_values} <= domains[name]


def test_the_output_names_the_files_and_a_repetition_in_another_order_writes_the_same(
    measured_dataset: Path, document: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = reports_of(measured_dataset)
    backwards = "shardwright.pipelines.validate.list_tasks"
    monkeypatch.setattr(backwards, lambda target: reversed([*list_tasks(target)]))
    assert main(["validate", "--dataset", str(measured_dataset), "--quality"]) == 0
    assert reports_of(measured_dataset) == before
    printed = capsys.readouterr().out
    names = (PAGE, *REPORTS)
    assert f"  see {', '.join(str(measured_dataset / name) for name in names)}\n" in printed
    assert "channel means" in printed
    assert " ".join(f"{value:.4f}" for value in document["normalize"]["train"]["mean"]) in printed


DOC = ROOT / "docs" / "validating.md"
RECORDED = json.loads((ROOT / "tests/contract/golden/findings.json").read_text())["findings"]
BEGIN, END = "<!-- mutations -->\n", "<!-- end of mutations -->\n"


def codes_by_depth(mutation: Mutation) -> dict[str, list[str]]:
    """Returns the codes that are recorded for a mutation at each depth, without notes."""
    found, rows, codes = RECORDED[f"{mutation.group}: {mutation.name}"], [], {}
    for depth in DEPTHS:
        rows = found.get(depth, rows)  # a depth that finds the same as the one before is left out
        codes[depth] = [rows] if isinstance(rows, str) else sorted({row[0] for row in rows} - NOTES)
    return codes


def table() -> str:
    """Returns the table of the document, with `same` for the codes of the depth before."""
    lines = [f"| what | change | {' | '.join(DEPTHS)} |", f"|---|---|{'---|' * len(DEPTHS)}"]
    for group, members in groupby(MUTATIONS, key=lambda mutation: mutation.group):
        mutations, noticed = list(members), Counter[str]()
        for mutation in mutations:
            codes = codes_by_depth(mutation)
            noticed.update(depth for depth in DEPTHS if codes[depth])
            cells = [
                "same" if found and found == before else ", ".join(f"`{code}`" for code in found) or "-"
                for before, found in pairwise([[], *codes.values()])
            ]
            lines.append(f"| {group} | {mutation.name} | {' | '.join(cells)} |")
        total = " | ".join(f"{noticed[depth]} of {len(mutations)}" for depth in DEPTHS)
        lines.append(f"| **noticed** | {group} | {total} |")
    return "\n".join(lines) + "\n"


def test_the_table_in_the_document_shows_the_recorded_findings() -> None:
    """`SHARDWRIGHT_WRITE_TABLES=1` writes the table again."""
    head, _, rest = DOC.read_text().partition(BEGIN)
    stored, _, rest = rest.partition(END)
    if os.environ.get("SHARDWRIGHT_WRITE_TABLES"):
        DOC.write_text(head + BEGIN + table() + END + rest)
    else:
        assert stored == table()


def test_the_command_finds_what_is_recorded_of_its_checks(copied: Path, photos: Path, tmp_path: Path) -> None:
    (mutation,) = (item for item in MUTATIONS if "resized images: an orientation tag added" in item.name)
    mutation.change(copied)
    recorded = codes_by_depth(mutation)
    for depth in DEPTHS[1:]:
        mode = "fast" if depth == "fast" else "full"
        against = [str(photos)] if depth == "against" else []
        found = validate(copied, mode=mode, against=against, report=tmp_path / "findings.json").run.counts
        assert sorted(set(found) - NOTES) == recorded[depth]
    assert len({*map(tuple, recorded.values())}) == len(DEPTHS) - 1  # it is another one at each depth


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
def damaged(made: Path, tmp_path: Path) -> Path:
    """A copy to damage. It keeps the times of files, as a careful copy does."""
    shutil.copytree(made, tmp_path / "damaged")
    return tmp_path / "damaged"


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
def test_changes_in_the_source_are_reported(damaged: Path, photos: Path, name: str, mode: str) -> None:
    source = damaged / "source"
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
    flowers[1].symlink_to(damaged / "nowhere")
    flowers[2].write_bytes(b"")
    found = of_source(damaged / name, source, mode)
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
            record = read_shard(damaged / name / finding.shard)[finding.record]
            assert features_of(record)["image/filename"][0].decode() == finding.key
            offset = offset_of(read_shard(damaged / name / finding.shard), finding.record)
            assert finding.offset == offset


def test_swapped_pictures_are_reported(damaged: Path) -> None:
    """Each record is sound by itself and has no key. Only the source shows the swap."""
    shard = next((damaged / "minimal").glob("train-00000-*.tfrecord"))
    records = read_shard(shard)
    keys = [line["key"] for line in written_lines(damaged / "minimal", shard.name)]
    labels = [features_of(data)["label"][0] for data in records]
    places = sorted((labels.index(0), labels.index(1)))  # in one class, it might only be another order
    pictures = [features_of(records[number])["image"][0] for number in places]
    for number, picture in zip(places, reversed(pictures)):
        rewrite(damaged / "minimal", put("image", picture), number, shard.name)
    records = read_shard(shard)
    found = compared(damaged / "minimal", damaged / "source")
    assert [(f.code, f.shard, f.record, f.offset, f.key) for f in found] == [
        (FindingCode.SOURCE_CHANGED, shard.name, number, offset_of(records, number), keys[number])
        for number in places
    ]
    assert {finding.message for finding in found} == {"its image differs from what its source converts to"}


def test_changed_kept_bytes_are_reported(damaged: Path) -> None:
    shard = next((damaged / "kept").glob("train-*.tfrecord"))
    number = [line["stored"] for line in written_lines(damaged / "kept", shard.name)].index("kept")
    records = read_shard(shard)
    picture = bytearray(features_of(records[number])["image/encoded"][0])
    picture[-20] ^= 1
    rewrite(damaged / "kept", put("image/encoded", bytes(picture)), number, shard.name)
    for mode in ("full", "fast"):
        found = compared(damaged / "kept", damaged / "source", mode=mode)
        assert [(f.code, f.record, f.offset) for f in found] == [
            (FindingCode.KEPT_BYTES, number, offset_of(records, number))
        ]


@pytest.mark.parametrize("name", ["resized", "minimal"])
def test_a_duplicate_and_a_lost_record_are_reported(damaged: Path, name: str) -> None:
    shard = next((damaged / name).glob("train-00000-*.tfrecord"))
    records = read_shard(shard)
    keys = [line["key"] for line in written_lines(damaged / name, shard.name)]
    shard.write_bytes(b"".join(map(frame, [*records[:3], records[0], *records[4:]])))
    found = [*findings_of(damaged / name), *compared(damaged / name, damaged / "source")]
    assert [item.record for item in found if item.code is FindingCode.DUPLICATE_KEY] == [3]
    assert codes([item for item in found if item.code in OF_SOURCE]) == [("RECORD_MISSING", keys[3])]


def test_a_record_that_salvage_lost_is_missing(damaged: Path) -> None:
    shard = next((damaged / "resized").glob("train-00000-*.tfrecord"))
    shard.write_bytes(shard.read_bytes()[:-1])
    salvage(str(damaged / "resized"), output=str(damaged / "saved"))
    lost = [line["key"] for line in written_lines(damaged / "resized", shard.name)][-1]
    assert codes(compared(damaged / "saved", damaged / "source")) == [("RECORD_MISSING", lost)]


def test_without_ledgers_the_records_are_compared(damaged: Path) -> None:
    for name in ("resized", "minimal"):
        shutil.rmtree(damaged / name / "_shards")
    gone = next((damaged / "source" / "birds").iterdir())
    gone.unlink()
    assert codes(compared(damaged / "resized", damaged / "source")) == [
        ("SOURCE_MISSING", f"birds/{gone.name}")
    ]
    found = compared(damaged / "minimal", damaged / "source")
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
