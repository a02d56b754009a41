"""`shardwright init`: the file contains the given settings, whatever they are, and explains the others."""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.repository import PHOTOS
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from shardwright.core.sources.source import choices_of
from shardwright.pipelines import cli
from shardwright.pipelines.init import init, job_text
from shardwright.pipelines.job_file import read_job
from shardwright.pipelines.rebuild import rebuild
from shardwright.schemas.configuration.job import JobFile
from shardwright.schemas.configuration.settings import ConvertSettings, RebuildSettings
from shardwright.schemas.configuration.settings_values import setting_fields
from shardwright.schemas.configuration.thresholds import Policy, Thresholds
from shardwright.schemas.errors import EngineError, UsageError

AWKWARD = [
    "#no", "a # b", "a: b", "- a", "yes", "No", "null", "~", "", "1e3", "010", "0x1F", "1.10", "12:30", " a",
    "a ", "\ta", "'", '"', "it's", "{date}", "{{date}}", "${HOME}", "$$", "${", "$", "%", "@a", "*a", "&a",
    "!a", "|", ">", "[a]", "{a: b}", "?", "?a", "---", "...", "a\nb", "\n", "a\r\nb", "\x00", "\x85",
    "\u2028", "ümlaut", "日本", "0", "\U0001f408", "\ufeff", "\udcff", "a, b", "=", "<<", ".inf",
    "2026-11-21", "\\", "\\n", "x y" * 99,
]  # fmt: skip
TEXTS = st.sampled_from(AWKWARD) | st.text(max_size=20)
#: Valid values of settings that do not accept any text.
RIGHT: dict[str, list[Any]] = {
    "extra_columns": ["price:float,tags:string[]"],
    "label_regex": [r"(?P<label>[a-z]{2})\d+\.jpg$", "(?P<label>.+)#"],
    "label_depth": ["2", "all"],
    "pixel_shape": ["32x32x3"],
    "splits": ["train=0.8,validation=0.1,test=0.1", "train=1"],
    "split_by": [r"^[^#]{3}: \d{date}", "x"],
    "seed": [0, 2**63 - 1],
    "shard_size": ["1MB", "1000000"],
    "resize": ["224", "320x240"],
    "quality": [1, 100],
    "background": ["#ffffff", "white"],
    "max_pixels": [1],
    "max_bytes": ["1GB"],
    "bounds": ["TOO_MANY_SCANS=500,TOO_MANY_STRIPS=9"],
    "max_bad_fraction": [0.0, 0.25, 1e-07],
    "limit": [10],
    "include": ["cats/*.jpg,dogs/", "@keys.txt"],
    "exclude": ["# a/*", "@opt out.txt"],
    "min_bytes": ["2kB"],
    "min_side": [64],
    "max_aspect": [2.5],
    "max_per_class": [500],
    "drop": ["DARK,BLURRY"],
    "skip_formats": ["heic,psd"],
    "folds": [0, 5],
    "channels": [0, 5],
    "white": [0, 4095],
    "map": ["my_hooks:blur_faces"],
    "license": ["CC-BY-4.0", "yes", "1.10"],
    "citation": ["@misc{a,\n  title={b: #c}}\n", "null"],
    "creator": ["Ada Lovelace; org:A & B", "~"],
    "url": ["https://example.com/#a: b".replace(" ", "")],
    "description": ["# A\n\n- b: c\n", "1e3"],
    "date_published": ["2026-03-31"],
    "verify": ["fast", "full", "quality", "none"],
}


def settings_of(job: JobFile) -> dict[str, Any]:
    """Returns the settings of a job, except the one that follows from its gates."""
    return {name: value for name, value in job.settings.items() if name != "verify"}


def values_of(name: str) -> st.SearchStrategy[Any]:
    item = setting_fields()[name]
    if name == "input":
        return st.lists(TEXTS.filter(bool), min_size=1, max_size=3).map(tuple)
    if name in RIGHT:
        return st.sampled_from(RIGHT[name])
    if choices_of(item):
        return st.sampled_from(choices_of(item))
    return st.booleans() if item.is_switch else TEXTS


#: Except settings that exclude others, and those that a rebuild does not accept.
ASKED = st.fixed_dictionaries(
    {"input": values_of("input"), "output": TEXTS.filter(bool)},
    optional={
        name: values_of(name)
        for name in setting_fields()
        if name not in ("input", "output", "shards", "verify", "overwrite", "resume")
    },
)
RUNNER = st.dictionaries(
    st.sampled_from(["region", "num_workers", "experiments"]),
    TEXTS.filter(lambda text: text.lower() not in ("true", "false")),
)


# Failing examples are short anyway, and finding shorter ones takes minutes.
@settings(max_examples=30, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(asked=ASKED, keep=st.integers(0, 99), runner=RUNNER)
def test_the_file_contains_the_given_settings(
    tmp_path_factory: pytest.TempPathFactory, asked: dict[str, Any], keep: int, runner: dict[str, str]
) -> None:
    path = tmp_path_factory.getbasetemp() / "asked.yaml"
    path.write_bytes(job_text(asked, keep=keep, runner=runner, detected_as=["a\nb: c"]).encode())
    job = read_job(str(path), environ={}, now=0)
    assert settings_of(job) == asked
    assert (job.rules.keep, job.rules.keep_days) == (keep, 0)
    assert job.beam == tuple(f"--{name}={value}" for name, value in runner.items())


@pytest.mark.sampled(20)
@pytest.mark.parametrize("text", AWKWARD)
def test_awkward_texts_are_written_correctly(tmp_path: Path, text: str) -> None:
    path = tmp_path / "job.yaml"
    asked = {"input": ("a", text), "output": "b", "label_column": text, "rename_labels": text}
    path.write_bytes(job_text(asked, keep=1, runner={}).encode())
    assert settings_of(read_job(str(path), environ={})) == asked


def test_gates_are_on_and_disabled_lines_can_be_enabled(tmp_path: Path) -> None:
    made = init(file=tmp_path / "job.yaml", input=str(PHOTOS), output="out", resize=32, keep=7)
    job = read_job(made.path)
    assert job.gates.limits == Thresholds(
        max_count_drop=0.2,
        max_count_jump=5,
        max_class_l_infinity=0.2,
        max_label_change_fraction=0.1,
        vanished_classes=Policy.REFUSE,
        new_classes=Policy.WARN,
    )
    assert job.gates.findings.fail_on == () and job.rules == RebuildSettings(7)
    assert settings_of(job) == {"input": (str(PHOTOS),), "output": "out", "resize": "32"}
    assert not job.hooks and not job.beam
    switched = re.sub(r"^#(?! \S|$)", "", made.text, flags=re.MULTILINE)
    (tmp_path / "all.yaml").write_text(switched)
    whole = read_job(str(tmp_path / "all.yaml"), environ={})
    assert ConvertSettings(**settings_of(whole)) == ConvertSettings(**settings_of(job))
    assert set(whole.settings) == set(setting_fields()) - {"overwrite", "resume"}
    assert set(whole.hooks) == {"refused", "failure"} and whole.beam[0] == "--runner=DataflowRunner"
    assert whole.gates.expectations.min_images and whole.gates.findings.warn_on
    assert (whole.rules.keep_days, whole.rules.verify_sources, whole.rules.lease_minutes) == (
        30,
        True,
        60,
    )
    for line in made.text.splitlines():
        assert line.startswith(("#", " ")) or re.match(r"[a-z_]+:", line) or not line


def test_the_gates_of_a_new_file_do_not_refuse_a_set_with_copies(tmp_path: Path) -> None:
    (tmp_path / "source" / "cat").mkdir(parents=True)
    for number in range(20):
        shutil.copy(next(PHOTOS.rglob("*.jpg")), tmp_path / "source" / "cat" / f"{number}.jpg")
    places = {"input": str(tmp_path / "source"), "output": str(tmp_path / "out")}
    made = init(file=tmp_path / "job.yaml", splits="train=0.5,test=0.5", resize=16, **places)
    published = rebuild(job=made.path)
    document = json.loads((Path(published.path) / "findings.json").read_text())
    assert document["counts"]["SPLIT_LEAKAGE"] and not document["errors"]


def command(capfd: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = cli.main(["init", *argv])
    captured = capfd.readouterr()
    return code, captured.out, captured.err


def test_the_command_writes_a_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    asked = (f"--input={PHOTOS}", "--output=out", "--label-depth=1", "--keep=3")
    beam = ("--runner=DirectRunner", "--experiments", "a", "--experiments=b", "--streaming")
    code, out, err = command(capfd, *asked, *beam)
    assert code == 0 and "shardwright rebuild --job job.yaml" in out and "class folders" in out, err
    job = read_job("job.yaml")
    assert settings_of(job) == {"input": (str(PHOTOS),), "output": "out", "label_depth": "1"}
    assert job.beam == ("--runner=DirectRunner", "--experiments=a", "--experiments=b", "--streaming")
    assert job.rules.keep == 3
    code, _, err = command(capfd, *asked)
    assert code == 2 and "job.yaml already exists; name another file, or replace it with --overwrite" in err
    code, _, _ = command(capfd, *asked, "--overwrite", "--seed=5")
    assert code == 0 and read_job("job.yaml").settings["seed"] == 5
    before = Path("job.yaml").read_bytes()
    code, out, _ = command(capfd, *asked, "--overwrite", "--seed=5", "--file=-")
    assert code == 0 and out.encode() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.yaml"]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ((), "--input is missing; name a folder of images."),
        ((f"--input={PHOTOS}",), "--output is missing; name the directory for the versions of the dataset."),
        (("--output=out",), "--input is missing; name a folder of images."),
        (("--input=nope", "--output=out"), "--input nope does not exist; check the path."),
        (("--input=a=", "--output=out"), "--input a= has no path after the =; write a=PATH."),
        ((f"--input={PHOTOS}", "--output=out", "--resize=x"), "--resize x: 'x' is not a size in pixels"),
        ((f"--input={PHOTOS}", "--output=out", "--keep=x"), "--keep x: write the number of versions to keep"),
        ((f"--input={PHOTOS}", "--output=out", "--resume"), "Unknown option --resume"),
        (
            (f"--input={PHOTOS}", "--output=out", "--regoin=x"),
            "Unknown option --regoin; did you mean --region",
        ),
        (
            (f"--input={PHOTOS}", "--output=out", "--file=no/"),
            "--file no/ is a directory; name a file",
        ),
        ((f"--input={PHOTOS}", "--output=out", "--shards=1", "--shard_size=1MB"), "leave one out"),
    ],
)
def test_mistakes_write_nothing(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    argv: tuple[str, ...],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO("answers\nthat\nnobody\nasked\n"))
    code, out, err = command(capfd, *argv)
    assert (code, out) == (2, "") and says in err and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_wrong_answers_on_a_terminal_are_asked_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answers = ["", "nope", f" {PHOTOS} ", str(PHOTOS / "out"), "", "big", "64", "train=2,", ""]
    monkeypatch.setattr(sys, "stdin", Terminal("\n".join([*answers, ""])))
    code, _, err = command(capfd)
    assert code == 0, err
    for question in ("Where are the images", "to write the versions of the dataset", "Resize to", "Splits"):
        assert question in err
    for refusal in ("Name a folder", "--input nope does not exist", "--resize big", "--splits train=2,"):
        assert f"  {refusal}" in err
    assert settings_of(read_job("job.yaml")) == {
        "input": (str(PHOTOS),),
        "output": "dataset",
        "resize": "64",
        "splits": "train=0.8,validation=0.1,test=0.1",
    }


def test_only_missing_answers_are_asked_on_a_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", Terminal("there\n"))
    code, _, err = command(capfd, f"--input={PHOTOS}")
    assert code == 0 and "Resize" not in err
    assert settings_of(read_job("job.yaml")) == {"input": (str(PHOTOS),), "output": "there"}
    monkeypatch.setattr(sys, "stdin", Terminal(""))
    code, _, err = command(capfd, f"--input={PHOTOS}", "--overwrite")
    assert code == 2 and "The answers ended before the last question" in err
    monkeypatch.setattr(sys, "stdin", Terminal(""))
    code, _, err = command(capfd, f"--input={PHOTOS}")
    assert code == 2 and "already exists" in err and "Where" not in err


def test_an_input_that_this_machine_cannot_read_is_accepted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object, **__: object) -> None:
        raise EngineError("Cannot list gs://b/photos: there are no valid credentials.")

    monkeypatch.setattr("shardwright.pipelines.init.make_request", unreadable)
    path = tmp_path / "job.yaml"
    code, _, err = command(capfd, "--input=gs://b/photos", "--output=gs://b/pets", f"--file={path}")
    assert code == 0 and "the input was not examined: Cannot list gs://b/photos" in err
    assert settings_of(read_job(str(path))) == {"input": ("gs://b/photos",), "output": "gs://b/pets"}
    with pytest.raises(UsageError, match="--resume is not a setting of a rebuild"):
        init(file="", input="a", output="b", resume=True)
