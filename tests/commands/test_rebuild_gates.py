"""Gates of a rebuild: what they refuse, what the message suggests, and what happens to the version."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image

from shardwright.core.versions import list_versions
from shardwright.loader import pin
from shardwright.pipelines import cli
from shardwright.pipelines.publish_version import publish
from shardwright.pipelines.rebuild import rebuild
from shardwright.pipelines.rollback import rollback
from shardwright.schemas.codes import ExitCode
from shardwright.schemas.errors import DataRefused, UsageError
from shardwright.schemas.version import VersionState

CLASSES = ("ant", "bee", "cat")


def _draw(folder: Path, name: str, shade: int) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.new("RGB", (12, 12), (shade, 255 - shade, shade // 2))
    picture.putpixel((shade % 12, shade // 12 % 12), (0, 0, 0))
    picture.save(path)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a source and the first version of its dataset."""
    folder = tmp_path_factory.mktemp("first")
    for number, name in enumerate(CLASSES):
        for shade in range(6):
            _draw(folder / "source", f"{name}/{shade}.png", 40 * number + shade)
    rebuild(input=str(folder / "source"), output=str(folder / "out"), splits="train=0.7,test=0.3", shards=2)
    return folder


@pytest.fixture
def folder(first: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of it."""
    yield Path(shutil.copytree(first, tmp_path / "data"))


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


def _no_class(folder: Path) -> None:
    shutil.rmtree(folder / "source" / "cat")


def _more(folder: Path) -> None:
    for shade in range(30):
        _draw(folder / "source", f"bee/new{shade}.png", 130 + shade)


def _new_class(folder: Path) -> None:
    _draw(folder / "source", "dog/1.png", 250)


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
    "max_removed_fraction": (_fewer, "  max_removed_fraction: 0.1\n", "drift"),
    "vanished_classes": (_no_class, "  vanished_classes: refuse\n", "drift"),
    "max_count_jump": (_more, "  max_count_jump: 0.5\n", "drift"),
    "max_class_l_infinity": (_more, "  max_class_l_infinity: 0.1\n", "drift"),
    "new_classes": (_new_class, "  new_classes: refuse\n", "drift"),
    "max_label_change_fraction": (_relabelled, "  max_label_change_fraction: 0.1\n", "drift"),
    "max_bad_fraction": (_bad, "  {}\n", "bad_images"),
    "SPLIT_LEAKAGE": (_leaking, "  fail_on: [SPLIT_LEAKAGE]\n", "findings"),
    "EXPECTATION": (_fewer, "  min_images: 16\n", "findings"),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", REFUSED)
def test_a_gate_refuses_and_its_message_says_what_to_run(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


def _accept(folder: Path, change: Callable[[Path], None], gates: str, name: str) -> str:
    """Makes a change that gates refuse, and accepts it; returns the version."""
    change(folder)
    job = str(_job(folder, gates))
    with pytest.raises(DataRefused):
        rebuild(job=job)
    version = list_versions(str(folder / "out"))[-1].version
    publish(f"{folder / 'out'}@{version}", accept=name)
    return version


LEAKING = "  fail_on: [SPLIT_LEAKAGE]\n"


def test_accepted_findings_do_not_refuse_the_next_versions(folder: Path) -> None:
    version = _accept(folder, _leaking, LEAKING, "findings")
    before = list_versions(str(folder / "out"))[-1].findings["SPLIT_LEAKAGE"]
    for shade in (1, 2):  # the second version is compared with one that nobody had to accept
        (folder / "source" / "cat" / f"{shade}.png").unlink()
        rebuild(job=str(folder / "job.yaml"))
        record = list_versions(str(folder / "out"))[-1]
        assert (record.state, record.findings["SPLIT_LEAKAGE"]) == (VersionState.PUBLISHED, before)
        (item,) = record.refusals
        assert item.severity == "warning"
        assert item.message.endswith(f"; all were accepted with version {version}")
        assert record.accepted == ("SPLIT_LEAKAGE",)
        version = record.version


def test_new_findings_refuse_beside_accepted_ones(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    version = _accept(folder, _leaking, LEAKING, "SPLIT_LEAKAGE")
    for number in range(8):
        shutil.copy(folder / "source" / "bee" / "0.png", folder / "source" / "bee" / f"copy{number}.png")
    assert cli.main(["rebuild", "--job", str(folder / "job.yaml")]) == ExitCode.REFUSED
    assert re.search(
        rf"; \d are new since version {version}, the first: bee/\S+: same source", capsys.readouterr().err
    )
    record = list_versions(str(folder / "out"))[-1]
    assert not record.accepted
    with pytest.raises(DataRefused, match="--accept SPLIT_LEAKAGE"):
        publish(f"{folder / 'out'}@{record.version}")


def test_accepted_bad_images_refuse_only_if_there_are_more(folder: Path) -> None:
    version = _accept(folder, _bad, "  {}\n", "bad_images")
    (folder / "source" / "cat" / "1.png").unlink()
    rebuild(job=str(folder / "job.yaml"))
    (item,) = list_versions(str(folder / "out"))[-1].refusals
    assert (item.severity, item.message.endswith(f"; all were accepted with version {version}")) == (
        "warning",
        True,
    )
    (folder / "source" / "ant" / "worse.png").write_bytes(b"\x89PNG\r\n\x1a\nno more")
    with pytest.raises(DataRefused, match="; 1 is new since version"):
        rebuild(job=str(folder / "job.yaml"))


def test_a_warning_does_not_keep_a_version_back(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _new_class(folder)
    assert cli.main(["rebuild", "--job", str(_job(folder, "  new_classes: warn\n"))]) == ExitCode.DONE
    assert "dog" in capsys.readouterr().out
    assert list_versions(str(folder / "out"))[-1].state is VersionState.PUBLISHED


def test_refused_records_are_not_converted_again_after_a_fix(folder: Path) -> None:
    _fewer(folder)
    with pytest.raises(DataRefused):
        rebuild(_job(folder, "  max_count_drop: 0.1\n"))
    refused = list_versions(str(folder / "out"))[-1]
    result = rebuild(_job(folder, "  max_count_drop: 0.9\n"))
    assert result.changed and result.outcome["fingerprint"] == refused.fingerprint
    assert result.outcome["work"]["converted"] == 0


def test_a_lost_pointer_does_not_switch_gates_off(folder: Path) -> None:
    output, job = str(folder / "out"), _job(folder, "  max_count_drop: 0.1\n")
    (first,) = list_versions(output)
    (folder / "out" / "latest.json").unlink()
    _fewer(folder)
    message = (
        f"although version {first.version} was published; .* shardwright rollback {output} {first.version}"
    )
    with pytest.raises(UsageError, match=message):
        rebuild(job)
    assert list_versions(output) == [first]
    rollback(output, first.version)
    with pytest.raises(DataRefused):
        rebuild(job)
    assert pin(output) == f"{output}@{first.version}"


def test_a_version_that_was_rolled_back_is_not_published_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, job = str(folder / "out"), _job(folder, "  {}\n")
    _new_class(folder)
    bad = rebuild(job)
    assert cli.main(["rollback", output]) == ExitCode.DONE
    assert cli.main(["rebuild", "--job", str(job)]) == ExitCode.REFUSED
    assert f"identical to version {bad.version}, which was rolled back" in capsys.readouterr().err
    _draw(folder / "source", "dog/2.png", 251)
    assert rebuild(job).changed


def test_a_version_has_a_report_and_its_differences(folder: Path) -> None:
    _new_class(folder)
    result = rebuild(_job(folder, "  {}\n"))
    difference = json.loads(Path(result.path, "diff.json").read_text())
    assert difference["classes"]["new"] == ["dog"] or "dog" in json.dumps(difference)
    page = Path(result.path, "report.html").read_text()
    assert result.version in page and "dog" in page
    index = (folder / "out" / "index.html").read_text()
    assert all(f"versions/{result.version}/{file}" in index for file in ("report.html", "diff.json"))


def test_a_refused_first_version_leaves_no_latest_version(tmp_path: Path) -> None:
    for shade in range(3):
        _draw(tmp_path / "source", f"ant/{shade}.png", shade)
    with pytest.raises(DataRefused, match="was refused and readers get none yet: "):
        rebuild(_job(tmp_path, "  min_images: 9\n"))


def test_a_rebuild_prints_a_summary(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = _job(folder, "  {}\n", "max_bad_fraction: 0.5\n")
    _bad(folder)
    assert cli.main(["rebuild", "--job", str(job)]) == ExitCode.DONE
    out = capsys.readouterr().out
    record = list_versions(str(folder / "out"))[-1]
    assert f"against {record.previous}: no image changed\n" in out
    assert f"see {folder}/out/versions/{record.version}/quarantine.jsonl\n" in out
    assert cli.main(["rebuild", "--job", str(job), "--resize=9"]) == ExitCode.DONE
    assert ": 18 re-encoded\n" in capsys.readouterr().out


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
