"""What a rebuild checks, what its gates refuse, and what happens to the version."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from helpers.depths import findings_of
from helpers.hostile import without_times
from PIL import Image

from shardwright.core.dataset_files import read_dataset
from shardwright.core.lease import Lease
from shardwright.core.plan.assign import Placement
from shardwright.core.rebuild.begin import begin
from shardwright.core.rebuild.gate import read_accepted
from shardwright.core.rebuild.task import RebuildTask
from shardwright.core.validation import record, stored_checks
from shardwright.core.versions import list_versions
from shardwright.loader import pin
from shardwright.pipelines import cli
from shardwright.pipelines.publish_version import publish
from shardwright.pipelines.rebuild import rebuild
from shardwright.pipelines.results import RebuildResult, changes_text
from shardwright.pipelines.rollback import rollback
from shardwright.pipelines.validate import validate
from shardwright.schemas.codes import ExitCode
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import DataRefused, UsageError
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.ledger import load_ledger
from shardwright.schemas.version import VersionState
from shardwright.transforms import validate as validating

Capture = pytest.CaptureFixture[str]

CLASSES = ("ant", "bee", "cat")


def draw(path: Path, seed: int, side: int = 24) -> None:
    """Draws a picture that differs from all others."""
    path.parent.mkdir(parents=True, exist_ok=True)
    colors = np.random.default_rng(seed).integers(0, 255, (5, 5, 3), dtype=np.uint8)
    Image.fromarray(colors).resize((side, side), Image.Resampling.BICUBIC).save(path)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a source and the first version of its dataset."""
    folder = tmp_path_factory.mktemp("first")
    for number, name in enumerate(CLASSES):
        for shade in range(6):
            draw(folder / "source" / f"{name}/{shade}.png", 40 * number + shade)
    rebuild(input=str(folder / "source"), output=str(folder / "out"), splits="train=0.7,test=0.3", shards=2)
    return folder


@pytest.fixture
def folder(first: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(first, tmp_path / "data"))


def _job(folder: Path, gates: str, more: str = "") -> Path:
    job = folder / "job.yaml"
    job.write_text(
        f"input: {folder}/source\noutput: {folder}/out\nsplits: train=0.7,test=0.3\nshards: 2\n{more}"
        f"gates:\n{gates}"
    )
    return job


def _fewer(folder: Path) -> None:
    for shade in range(5):
        (folder / "source" / "ant" / f"{shade}.png").unlink()


def _new_class(folder: Path) -> None:
    draw(folder / "source" / "dog/1.png", 250)


def _relabelled(folder: Path) -> None:
    for shade in range(4):
        (folder / "source" / "ant" / f"{shade}.png").rename(folder / "source" / "bee" / f"ant{shade}.png")


def _bad(folder: Path) -> None:
    for number in range(3):
        (folder / "source" / "ant" / f"bad{number}.png").write_bytes(b"\x89PNG\r\n\x1a\nno more")


def _leaking(folder: Path) -> None:
    for number in range(12):
        shutil.copy(folder / "source" / "ant" / "0.png", folder / "source" / "ant" / f"copy{number}.png")


REFUSED = {
    "max_count_drop": (_fewer, "  max_count_drop: 0.1\n", "drift"),
    "new_classes": (_new_class, "  new_classes: refuse\n", "drift"),
    "max_label_change_fraction": (_relabelled, "  max_label_change_fraction: 0.1\n", "drift"),
    "max_bad_fraction": (_bad, "  {}\n", "bad_images"),
    "SPLIT_LEAKAGE": (_leaking, "  fail_on: [SPLIT_LEAKAGE]\n", "findings"),
    "EXPECTATION": (_fewer, "  min_images: 16\n", "findings"),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", REFUSED)
def test_a_gate_refuses_and_its_message_says_what_to_run(name: str, folder: Path, capsys: Capture) -> None:
    change, gates, gate = REFUSED[name]
    output, before = str(folder / "out"), (folder / "out" / "latest.json").read_bytes()
    change(folder)
    assert cli.main(["rebuild", "--job", str(_job(folder, gates))]) == ExitCode.REFUSED
    err = capsys.readouterr().err
    assert f"shardwright: gated: refused: {name}\n" in err, "and no warning"
    sentence = err.splitlines()[-1]
    assert f"was refused and readers keep {json.loads(before)['version']}: " in sentence
    assert ". " not in sentence and sentence.endswith(".")
    assert (folder / "out" / "latest.json").read_bytes() == before
    record = list_versions(output)[-1]
    assert record.state is VersionState.REFUSED
    assert {(item.gate, item.name) for item in record.refusals if item.severity == "error"} == {(gate, name)}
    commands = re.findall(r"`shardwright ([^`]+)`", err)
    assert [command.split()[0] for command in commands] == ["report", "publish"]
    for command in commands:
        assert cli.main(command.split()) == ExitCode.DONE, capsys.readouterr().err
    assert pin(output) == f"{output}@{record.version}"
    assert list_versions(output)[-1].accepted


def test_accepted_findings_do_not_refuse_the_next_versions_but_new_ones_do(
    folder: Path, capsys: Capture
) -> None:
    output, job = str(folder / "out"), _job(folder, "  fail_on: [SPLIT_LEAKAGE]\n")
    _leaking(folder)
    _bad(folder)
    with pytest.raises(DataRefused):
        rebuild(job)
    version = list_versions(output)[-1].version
    publish(f"{output}@{version}", accept="findings,bad_images")
    before = list_versions(output)[-1].findings["SPLIT_LEAKAGE"]
    latest = read_dataset(str(folder / "out" / "versions" / version))
    assert read_accepted(output, version, latest).bad_images == 3
    (folder / "source" / "cat" / "1.png").unlink()
    rebuild(job)
    record = list_versions(output)[-1]
    assert (record.state, record.findings["SPLIT_LEAKAGE"]) == (VersionState.PUBLISHED, before)
    assert [item.severity for item in record.refusals] == ["warning"] * 2
    assert all(
        item.message.endswith(f"; all were accepted with version {version}") for item in record.refusals
    )
    assert set(record.accepted) == {"SPLIT_LEAKAGE", "max_bad_fraction"}
    # The next version is compared with this one, which nobody had to accept.
    for number in range(8):
        shutil.copy(folder / "source" / "bee" / "0.png", folder / "source" / "bee" / f"copy{number}.png")
    shutil.copy(folder / "source" / "ant" / "bad0.png", folder / "source" / "ant" / "bad3.png")
    assert cli.main(["rebuild", "--job", str(job)]) == ExitCode.REFUSED
    message = rf"; \d are new since version {record.version}, the first: bee/\S+: same source"
    assert re.search(message, capsys.readouterr().err)
    new_image = f"; 1 is new since version {record.version}"
    record = list_versions(output)[-1]
    assert record.accepted == () and record.refusals[-1].message.endswith(new_image)
    with pytest.raises(DataRefused, match="--accept SPLIT_LEAKAGE,max_bad_fraction"):
        publish(f"{output}@{record.version}")


def test_a_warning_does_not_keep_a_version_with_its_report_and_differences_back(
    folder: Path, capsys: Capture
) -> None:
    latest = json.loads((folder / "out" / "latest.json").read_text())
    findings = folder / "out" / "versions" / latest["version"] / "findings.json"
    findings.write_text(json.dumps({"fingerprint": latest["fingerprint"]}))  # damaged ones are not compared
    _new_class(folder)
    _bad(folder)
    job = _job(folder, "  new_classes: warn\n", "max_bad_fraction: 0.5\n")
    assert cli.main(["rebuild", "--job", str(job)]) == ExitCode.DONE
    out = capsys.readouterr().out
    record = list_versions(str(folder / "out"))[-1]
    assert record.state is VersionState.PUBLISHED
    version = folder / "out" / "versions" / record.version
    assert "dog" in out and f"against {record.previous}: 1 added\n" in out
    assert f"see {version}/quarantine.jsonl\n" in out
    difference = json.loads((version / "diff.json").read_text())
    assert difference["classes"]["new"] == ["dog"] or "dog" in json.dumps(difference)
    page = (version / "report.html").read_text()
    assert record.version in page and "dog" in page
    index = (folder / "out" / "index.html").read_text()
    assert all(f"versions/{record.version}/{file}" in index for file in ("report.html", "diff.json"))


def test_a_lost_pointer_does_not_switch_gates_off_and_refused_records_are_not_converted_again(
    folder: Path,
) -> None:
    output, job = str(folder / "out"), _job(folder, "  max_count_drop: 0.1\n")
    (first,) = list_versions(output)
    (folder / "out" / "latest.json").unlink()
    _fewer(folder)
    name = first.version
    message = f"although version {name} was published; .* shardwright rollback {output} {name}"
    with pytest.raises(UsageError, match=message):
        rebuild(job)
    assert list_versions(output) == [first]
    rollback(output, first.version)
    with pytest.raises(DataRefused):
        rebuild(job)
    assert pin(output) == f"{output}@{first.version}"
    refused = list_versions(output)[-1]
    result = rebuild(_job(folder, "  max_count_drop: 0.9\n"))
    assert result.changed and result.outcome["fingerprint"] == refused.fingerprint
    assert result.outcome["work"]["converted"] == 0


def test_a_version_that_was_rolled_back_is_published_again_only_after_it_was_accepted(
    folder: Path, capsys: Capture
) -> None:
    output, job = str(folder / "out"), _job(folder, "  {}\n")
    _new_class(folder)
    bad = rebuild(job)
    assert cli.main(["rollback", output]) == ExitCode.DONE
    assert cli.main(["rebuild", "--job", str(job)]) == ExitCode.REFUSED
    assert f"identical to version {bad.version}, which was rolled back" in capsys.readouterr().err
    publish(f"{output}@{list_versions(output)[-1].version}", accept="rolled_back")
    (folder / "source" / "ant" / "1.png").touch()
    assert rebuild(job).changed, "readers have these records"
    damaged = Path(shutil.copytree(bad.path, folder / "out" / "versions" / "20980101T000000Z"))
    (damaged / "version.json").write_text("")
    next_run = RebuildTask(output, Lease("us", "20990101T000000Z"), ConvertSettings(), {})
    *_, (fingerprint, about) = begin(next_run).rolled_back
    assert fingerprint == bad.outcome["fingerprint"] and "has a damaged version.json" in about


def test_changes_are_counted_in_words() -> None:
    assert changes_text({"re_encoded": 1800, "added": 1, "moved": 0}) == "1 added, 1,800 re-encoded"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_a_lost_ledger_does_not_let_changed_classes_pass(folder: Path, damage: str) -> None:
    """Without the old ledger, nobody knows the old classes of its images, which all seem to be new."""
    job = _job(folder, "  max_label_change_fraction: 0.3\n")
    (latest,) = (folder / "out" / "versions").iterdir()
    ledger = latest / "_shards" / "train-00000-of-00002.jsonl.gz"
    for shade in range(1, 6):
        (folder / "source" / "ant" / f"{shade}.png").rename(folder / "source" / "bee" / f"1{shade}.png")
    if damage == "missing":
        ledger.unlink()
    else:
        ledger.write_bytes(ledger.read_bytes()[:60])
    with pytest.raises(DataRefused, match=r"of the 18 images of .* cannot be compared, because ledgers"):
        rebuild(job=str(job))
    assert pin(str(folder / "out")).endswith(latest.name)
    rebuild(job=str(_job(folder, "  {}\n")))  # a version without limits is published, and says so
    (warning,) = list_versions(str(folder / "out"))[-1].refusals
    assert (warning.name, warning.severity) == ("unknown_changes", "warning")
    assert "cannot be compared" in warning.message and "added images includes them" in warning.message


SETTINGS: dict[str, Any] = {"splits": "train=0.7,test=0.3", "shards": "train=3,test=2", "resize": 24}


class Place:
    """A source, the versions of its dataset, and the work of checks.

    Attributes:
      checked: Called for each shard that the last rebuild read back.
      decoded: Called for each picture that it decoded for this.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.source = folder / "source"
        self.checked = mock.Mock(wraps=stored_checks.check_shard)
        self.decoded = mock.Mock(wraps=record.check_image)
        for module in (stored_checks, validating):
            monkeypatch.setattr(module, "check_shard", self.checked)
        monkeypatch.setattr(record, "check_image", self.decoded)
        for number, name in enumerate(CLASSES):
            for image in range(7):
                draw(self.source / name / f"{image}.png", 100 * number + image)

    def rebuild(self, verify: str = "quality", job: str | Path = "", **more: Any) -> RebuildResult:
        self.checked.reset_mock()
        self.decoded.reset_mock()
        given = {"input": str(self.source), "output": str(self.folder / "out"), **SETTINGS, **more}
        return rebuild(job, **given, **({"verify": verify} if verify else {}))

    def agrees(self, made: RebuildResult, mode: str, fail_on: str = "") -> dict[str, int]:
        """Compares the findings with a validation of the whole version; returns the counts."""
        fresh = self.folder / "fresh"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        validate(made.path, mode=mode, report=fresh / "findings.json", fail_on=fail_on)
        documents = [
            without_times((directory / "findings.json").read_bytes()) | {"dataset": ""}
            for directory in (Path(made.path), fresh)
        ]
        assert documents[0] == documents[1]
        if mode == "quality":
            for name in ("statistics.json", "stats.pb"):
                assert (Path(made.path) / name).read_bytes() == (fresh / name).read_bytes()
        counts: dict[str, int] = documents[0]["counts"]
        return counts

    def written(self, made: RebuildResult) -> dict[str, str]:
        """Returns the key of each image in a version, and its shard."""
        found = {}
        for path in sorted((Path(made.path) / "_shards").glob("*.jsonl.gz")):
            header, entries = load_ledger(path.read_bytes())
            found.update({entry.key: header.file for entry in entries if entry.outcome == "written"})
        return found


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A source, and a place for versions."""
    return Place(tmp_path, monkeypatch)


def test_findings_equal_those_of_the_whole_version(place: Place) -> None:
    first = place.rebuild("quality")
    assert (place.checked.call_count, place.decoded.call_count) == (5, 21)
    assert "SPLIT_LEAKAGE" not in json.loads(Path(first.path, "findings.json").read_text())["counts"]
    where = place.written(first)
    train = next(key for key in where if where[key].startswith("train"))
    # A picture that already exists in the other split, and an unknown class.
    shutil.copy(place.source / train, place.source / _in_the_test_split("ant"))
    draw(place.source / "dog" / "new.png", 999)
    second = place.rebuild("fast", _job(place.folder, "  fail_on: [DARK]\n"))  # which needs decoded pictures
    touched = {place.written(second)[key] for key in place.written(second).keys() - where.keys()}
    assert {call.args[0].file for call in place.checked.call_args_list} == touched and len(touched) < 5
    assert place.decoded.call_count == 2  # other pictures have bytes that an earlier check decoded
    assert place.agrees(second, "quality", fail_on="DARK")["SPLIT_LEAKAGE"] == 1


def _in_the_test_split(label: str) -> str:
    """Returns the name of an image of a class that goes to the split `test`."""
    placement = Placement(ConvertSettings(splits=SETTINGS["splits"]))
    names = (f"{label}/x{number}.png" for number in range(40))
    return next(name for name in names if placement.split(ImageRef(name, name)) == "test")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_findings_are_right_after_any_changes(place: Place, seed: int) -> None:
    """After images are added, removed, changed, moved and relabelled, findings equal a whole validation."""
    chance = random.Random(seed)
    place.rebuild()
    for step in range(6):
        mode = chance.choice(["quality", "quality", "full"])
        images = sorted(place.source.rglob("*.png"))
        for number in range(chance.randrange(1, 4)):
            name = place.source / chance.choice([*CLASSES, f"new{step}"]) / f"{step}-{number}.png"
            name.parent.mkdir(exist_ok=True)
            image = chance.choice(images)
            match chance.randrange(5):
                case 0:
                    draw(name, chance.randrange(10**6), chance.choice([24, 24, 90]))
                case 1 if image.exists():
                    shutil.copy(image, name)
                case 2 if image.exists():
                    image.rename(name)
                case 3 if image.exists() and len(images) > 15:
                    image.unlink()
                case _:
                    draw(image, chance.randrange(10**6))
        made = place.rebuild(mode)
        if not made.changed:
            continue
        work = made.outcome["work"]
        new = work["shards"] - work["reused_shards"]
        read = place.checked.call_count
        assert read == new or (read > new and mode == "quality")
        place.agrees(made, mode)


def test_leakage_is_found_from_the_ledgers_alone(place: Place) -> None:
    made = place.rebuild("fast")
    where = place.written(made)
    train = next(key for key in where if where[key].startswith("train") and key.startswith("bee/"))
    shutil.copy(place.source / train, place.source / _in_the_test_split("bee"))
    with pytest.raises(DataRefused, match="1 SPLIT_LEAKAGE, the first in t"):
        place.rebuild("", _job(place.folder, "  fail_on: [SPLIT_LEAKAGE]\n"))
    assert place.checked.call_count == 1 and not place.decoded.called
    version = max((place.folder / "out" / "versions").iterdir())
    assert not (version / "_checks").exists()
    found = json.loads((version / "findings.json").read_text())
    # Records contain the checksum of their source, so a validation finds the same.
    assert [item.as_json() for item in findings_of(version, "fast")] == [
        {name: value for name, value in item.items() if name not in ("severity", "depth", "time")}
        for item in found["findings"]
    ]
    assert len(found["findings"]) == 1


def test_a_damaged_ledger_refuses_even_the_first_version(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validating, "rows_of_ledger", mock.Mock(side_effect=EOFError("it ends early")))
    with pytest.raises(DataRefused, match="was refused and readers get none yet: 5 LEDGER_MISMATCH"):
        place.rebuild("fast")
    assert not (place.folder / "out" / "latest.json").exists()


def test_a_conversion_can_measure_its_pictures(tmp_path: Path, convert_photos: Callable[..., Any]) -> None:
    settings = {"resize": 24, "limit": 12, "splits": "train=0.8,test=0.2", "shards": 2}
    made = Path(convert_photos(verify="quality", **settings).path)
    document = json.loads((made / "findings.json").read_text())
    assert document["mode"] == "quality"
    report = validate(made, mode="quality", report=tmp_path / "findings.json")
    assert report.counts == document["counts"]
    for name in ("statistics.json", "stats.pb"):
        assert (made / name).read_bytes() == (tmp_path / name).read_bytes()
    assert not (made / "_checks").exists()
