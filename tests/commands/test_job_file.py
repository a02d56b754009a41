"""Job files, and `shardwright init`, which writes them: content, messages about mistakes, and questions."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from helpers.hostile import Terminal, run
from helpers.repository import PHOTOS
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from shardwright.core.plan.request import checked_settings
from shardwright.pipelines import cli
from shardwright.pipelines.init import init, job_text
from shardwright.pipelines.job_file import job_of, naming_lines, read_job, read_job_settings
from shardwright.pipelines.options import beam_options
from shardwright.schemas.configuration.gates import GateFile, Policy
from shardwright.schemas.configuration.job import Hook, JobFile
from shardwright.schemas.configuration.settings import CONVERT_SETTINGS, ConvertSettings, RebuildSettings
from shardwright.schemas.errors import EngineError, UsageError

Capture = pytest.CaptureFixture[str]

WHOLE = r"""
input: ["gs://b/${BUCKET:-photos}", "old=gs://b/{date}"]
output: gs://b/pets
resize: [320, 240]
label-column: no
label_regex: '(?P<label>[a-z]{2})$'
splits: {train: 0.80, test: 0.2}
rename_labels: {no: 010}
seed: 010
strip_metadata: ${STRIP:-true}
gates:
  fail_on: [SPLIT_LEAKAGE, box_range]
  warn_on: COUNT_MISMATCH
  min_images: ${LEAST:-5}
  required_classes: [ant]
  max_count_drop: ${DROP:-0.2}
  vanished_classes: refuse
keep: ${KEEP:-3}
keep_days: 1.5
hooks:
  on_any: [notify.sh, "${WORDS}"]
  on_failure:
    - {command: "mail -s 'failed on {date}' ${WORDS}", webhook: "https://host/${TOKEN}"}
    - webhook: http://host:8080/x
verify_sources: yes
scrub: 1/4
lease_minutes: 90
runner:
  runner: DataflowRunner
  num-workers: 010
  streaming: true
  save_main_session: false
  use_public_ips: false
  region: no
  experiments: [a, "b=${TOKEN}"]
  s3_verify: false
bounds: {TOO_MANY_SCANS: 500}
"""
ENVIRON = {"TOKEN": "s3cret", "WORDS": "two words; rm $HOME"}


def write(folder: Path, text: str) -> str:
    path = folder / "job.yaml"
    path.write_text(text)
    return str(path)


def test_a_complete_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", ENVIRON)
    monkeypatch.setattr("time.time", lambda: 1795226400.0)  # 2026-11-21
    job = read_job(write(tmp_path, WHOLE))
    notify = Hook(("notify.sh", "two words; rm $HOME"))
    mail = Hook(("mail", "-s", "failed on 2026-11-21", "two words; rm $HOME"), "https://host/s3cret")
    assert job == JobFile(
        settings={
            "input": ("gs://b/photos", "old=gs://b/2026-11-21"),
            "output": "gs://b/pets",
            "resize": "320x240",
            "label_column": "no",
            "label_regex": "(?P<label>[a-z]{2})$",
            "splits": "train=0.80,test=0.2",
            "rename_labels": "no=010",
            "seed": 10,
            "strip_metadata": True,
            "bounds": "TOO_MANY_SCANS=500",
            "verify": "full",  # otherwise nothing would look for the findings that the gates name
        },
        gates=GateFile(
            fail_on=("SPLIT_LEAKAGE", "BOX_RANGE"), warn_on=("COUNT_MISMATCH",),
            min_images=5, required_classes=("ant",), max_count_drop=0.2, vanished_classes=Policy.REFUSE,
        ),
        rules=RebuildSettings(3, 1.5, verify_sources=True, scrub=0.25, lease_minutes=90),
        hooks={
            "success": (notify,),
            "no_change": (notify,),
            "refused": (notify,),
            "failure": (notify, mail, Hook(webhook="http://host:8080/x")),
        },
        beam=(
            "--runner=DataflowRunner", "--num_workers=010", "--streaming", "--no_save_main_session",
            "--no_use_public_ips", "--region=no", "--experiments=a", "--experiments=b=s3cret",
            "--s3_verify=false",
        ),
        path=str(tmp_path / "job.yaml"),
    )  # fmt: skip
    assert (job.lines["seed"], job.lines["label_column"], job.lines["runner.num_workers"]) == (9, 5, 30)
    assert "s3cret" not in repr(job)
    beam_options(job.beam, ())


def test_a_small_file_has_defaults(tmp_path: Path) -> None:
    path = write(tmp_path, "input: a\noutput: b\ngates:\nhooks:\nrunner:\n")
    assert read_job(path) == JobFile({"input": ("a",), "output": "b", "verify": "fast"}, path=path)


def test_the_command_line_overrides_values_which_are_not_read(tmp_path: Path) -> None:
    path = write(
        tmp_path, "input: ${NOPE}\noutput: b\nshard_size: wrong\nresize: ${NOPE}\nkeep: x\nseed: 1\n"
    )
    given = {"input": ("a",), "shards": "3", "resize": "64", "keep": "2", "verify_sources": True}
    job = read_job(path, {**given, "seed": None})
    wanted = {"input": ("a",), "output": "b", "shards": "3", "resize": "64", "seed": 1, "verify": "fast"}
    assert job.settings == wanted
    assert (job.rules.keep, job.rules.verify_sources) == (2, True)
    assert job.lines["output"] == 2 and not {"input", "resize"} & set(job.lines)
    assert job_of({"verify_sources": None, "resize": None, "resume": False}) == JobFile({})  # not given
    for wrong, says in (
        ({"keep": "-1"}, "^--keep -1: write the number of"),
        ({"resume": True}, "^--resume: a rebuild always continues an interrupted run; leave it out"),
        ({"resiz": "1"}, "^unknown setting 'resiz'; did you mean resize"),
    ):
        with pytest.raises(UsageError, match=says):
            read_job(path, {**given, **wrong})


@pytest.mark.parametrize(
    ("settings", "asked", "verify"),
    [
        ("", "", "fast"),
        ("verify: quality", "", "quality"),
        ("verify: none", "", "none"),
        ("", "fail_on: [DARK]", "quality"),
        ("verify: full", "warn_on: [NEAR_DUPLICATE]", "quality"),
        ("verify: fast", "fail_on: [DARK, BOX_RANGE]", "quality"),
        ("", "max_rise: {BLURRY: 0.1}", "quality"),
        ("", "min_width: 3", "quality"),
        ("", "fail_on: [SPLIT_LEAKAGE, DATA_CRC]", "fast"),
        ("", "fail_on: [SPLIT_LEAKAGE, BOX_RANGE]", "full"),
        ("verify: fast", "max_fraction: {UNDECODABLE: 0}", "full"),
        ("verify: quality", "fail_on: [BOX_RANGE]", "quality"),
        ("verify: none", "min_images: 3", "none"),
    ],
)
def test_gates_decide_how_a_version_is_checked(
    tmp_path: Path, settings: str, asked: str, verify: str
) -> None:
    path = write(tmp_path, f"input: a\noutput: b\n{settings}\ngates:\n  {asked}\n")
    assert read_job(path).settings["verify"] == verify
    assert read_job(path, {"verify": "quality"}).settings["verify"] == "quality"
    if settings in ("", "verify: fast"):  # the command line says the same
        assert read_job(path, {"verify": "fast"}).settings["verify"] == verify


def test_paths_of_expectations_are_relative_to_the_job_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs").mkdir()
    expect = tmp_path / "jobs" / "expect.yaml"
    expect.write_text("min_images: 7\n")
    text = "input: a\noutput: b\ngates: %s\n"
    monkeypatch.chdir(tmp_path / "jobs")
    for path, name in (("job.yaml", "expect.yaml"), (tmp_path / "jobs/job.yaml", expect)):
        Path(path).write_text(text % name)
        assert read_job(str(path)).gates == GateFile(min_images=7)
    monkeypatch.chdir(tmp_path)
    Path("jobs/job.yaml").write_text(text % "./expect.yaml")
    assert read_job("jobs/job.yaml").gates == GateFile(min_images=7)
    expect.write_text("min_imges: 7\n")
    with pytest.raises(UsageError, match=r"line 3: gates .*expect.yaml, line 1, column 1: there is no"):
        read_job("jobs/job.yaml")


#: A wrong line and the message about it, after its line and column in the file.
WRONG: list[tuple[str, str]] = [
    ("resiz: 3", "3 unknown setting 'resiz'; did you mean resize?"),
    ("max_count_drop: 1", "3 max_count_drop is a gate; write it below `gates:`."),
    ("on_failure: x", "3 on_failure is a hook; write it below `hooks:`."),
    ("<<: {resize: 3}", "3:1 this is not YAML: "),
    ("input: {date}/photos", "3:14 this is not YAML: expected <block end>, but found '<scalar>'"),
    ("\nresize: 0", "4 resize 0: '0' is not a size in pixels; write 224 or 320x240."),
    ("image-format: jpg", "3 image_format jpg: choose one of keep, jpeg"),
    ("splits: {train: }", "3:10 splits: train has no value; write one or take it out."),
    ("label_column: !!binary aGk=", "3 label_column is not text; write one, in quotes if needed."),
    ("label-column: a\nlabel_column: b", "4 label_column occurs twice, as label-column and as label_"),
    ("seed: 1\nseed: 2", "4:1 'seed' occurs twice; leave one out."),
    ("gates:\n\tmax_count_drop: 1", "4:1 this is not YAML: a tab cannot begin a value; indent with sp"),
    ("shards: 3\nshard_size: 1MB", "3 shards and --shard_size both choose the number of shards"),
    ("resize: ${NOPE}", "3 the environment variable NOPE is not set; set it, or write ${NOPE:-default}."),
    ("seed: ${TOKEN}", "3 seed ${TOKEN}: '${TOKEN}' is not a whole number."),
    ("overwrite: true", "3 overwrite: a rebuild replaces nothing; it writes a new version"),
    ("keep: -1", "3 keep -1: write the number of versions to keep, such as 5, or 0 for all."),
    ("keep:", "3 keep has no value"),
    ("keep_days: ${TOKEN}", "3 keep_days ${TOKEN}: write a number of days, such as 30."),
    ("lease_minutes: 0", "3 lease_minutes 0: write a number of minutes from 1 on, such as 60."),
    ("verify_sources: 3", "3 verify_sources 3: write true or false."),
    ("scrub: 2", "3 scrub 2: write a share from 0 to 1, such as 0.1 or 1/30."),
    ("input: [\n", "5:1 this is not YAML: "),
    ("gates: 3", "3 gates: write `name: value` lines below it, such as max_count_drop: 0.2."),
    ("gates:\n  max_rise: {DARKK: 1}", "4:14 max_rise: there is no finding 'DARKK'; did you mean"),
    ("gates: {fail_on: 3}", "3:9 fail_on: write a list of findings, such as [SPLIT_LEAKAGE], not '3'."),
    (
        "gates:\n  warn_on: [SOURCE_CHANGED]",
        "4:3 warn_on: SOURCE_CHANGED is found by validate --against, and a rebuild reads its",
    ),
    ("verify: none\ngates: {fail_on: BOX_RANGE}", "3 verify: none finds nothing, but the gates need BOX"),
    ("hooks: notify.sh", "3 hooks: write `name: value` lines below it, such as on_failure: {command: ...}"),
    ("hooks: {on_fail: x}", "3:9 hooks: there is no event 'on_fail'; did you mean on_failure?"),
    ("hooks: {on_any: {comand: x}}", "3:18 a hook has no 'comand'; did you mean command?"),
    ("hooks: {on_any: {}}", "3:9 write command: or webhook: below it."),
    ("hooks: {on_any: }", "3:9 write a command, such as notify.sh or [notify.sh, --loud]."),
    ("hooks: {on_any: a | b}", "3:9 the command runs without a shell; write [sh, -c, '...'] to use one."),
    ('hooks: {on_any: "a \'b"}', "3:9 a quote in the command is not closed."),
    ("hooks: {on_any: ['${NOPE:-}']}", "3:9 the command is empty; write one, or take it out."),
    ("hooks: {on_any: 'https://h/${TOKEN}'}", "3:9 this is an address, not a command; write web"),
    ("hooks: {on_any: {webhook: 'ftp://${TOKEN}'}}", "3:18 the webhook is not an address; write https"),
    ("hooks: {on_any: {webhook: 'https://[${TOKEN}'}}", "3:18 the webhook is not an address"),
    ("hooks: {on_any: [{webhook: '${NOPE}'}]}", "3:19 the environment variable NOPE is not set"),
    ("runner: DataflowRunner", "3 runner: write `name: value` lines below it, such as runner: Dataflow"),
    ("runner: {region: }", "3:10 runner: region has no value; write one or take it out."),
    ("runner: {a b: c}", "3:10 runner: 'a b' is not the name of an option."),
    ("runner: {experiments: [[a]]}", "3:10 experiments: write a list of values, such as [one, t"),
]


@pytest.mark.parametrize(("text", "says"), WRONG)
def test_messages_name_the_place_of_a_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")
    path = write(tmp_path, f"input: a\noutput: b\n{text}\n")
    with pytest.raises(UsageError) as caught:
        read_job(path)
    message = caught.value.message
    place, _, sentence = says.partition(" ")
    place = f"line {place}".replace(":", ", column ")
    assert message.startswith(f"--job {path}, {place}: {sentence}")
    assert "s3cret" not in message and "\n" not in message and message.endswith((".", "?"))


@pytest.mark.parametrize("text", ["", "# nothing\n", "output: b\n", "input: a\n", "input: []\noutput: b"])
def test_a_job_needs_an_input_and_an_output(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"(input|output) is missing; write (input|output): and a path"):
        read_job(write(tmp_path, text))


def test_errors_about_options_name_the_line_in_the_file(tmp_path: Path) -> None:
    text = "input: a\noutput: b\nlayout: detecton\nsplits: train=1,test=1\nrunner:\n  regoin: x\n"
    job = read_job(write(tmp_path, text), {"splits": "train=1"})
    place = f"--job {tmp_path / 'job.yaml'}, line"
    with pytest.raises(UsageError, match=f"^{place} 3: layout detecton") as caught, naming_lines(job):
        checked_settings(job.settings)
    assert "\n" not in caught.value.message
    with pytest.raises(UsageError, match=f"^{place} 6: unknown option --regoin; did"), naming_lines(job):
        beam_options(job.beam, ())
    given = ["--regoin=y"]
    with pytest.raises(UsageError, match=r"^Unknown option --regoin; did"), naming_lines(job, given):
        beam_options(given, ())
    for message in ("--splits x: wrong.", "--seed 1: wrong.", "Nothing to do.", "Unknown option --splits."):
        with pytest.raises(UsageError, match=f"^{message}$"), naming_lines(job):
            raise UsageError(message)


def test_convert_accepts_the_job_file_of_a_rebuild(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("WHERE", str(PHOTOS))
    job = write(
        tmp_path,
        "input: ${WHERE}\noutput: out\nlimit: ${LIMIT:-3}\nverify: quality\ngates: {max_count_drop: 0}\n"
        "hooks: {on_any: '${NOT_SET}'}\nkeep: 3\n",
    )
    assert cli.main(["convert", "--job", job, f"--output={tmp_path / 'out'}", "--verify=none"]) == 0
    assert (tmp_path / "out" / "dataset.json").exists()
    assert f"{job}: gates, keep, hooks are only for rebuilds and are ignored" in capsys.readouterr().err
    settings: dict[str, Any] = {"input": (str(PHOTOS),), "output": "out", "limit": 3, "verify": "quality"}
    assert read_job_settings(job) == settings


AWKWARD = [
    "#no", "a # b", "a: b", "- a", "yes", "No", "null", "~", "", "1e3", "010", "0x1F", "1.10", "12:30", " a",
    "a ", "\ta", "'", '"', "it's", "{date}", "{{date}}", "${HOME}", "$$", "${", "$", "%", "@a", "*a", "&a",
    "!a", "|", ">", "[a]", "{a: b}", "?", "?a", "---", "...", "a\nb", "\n", "a\r\nb", "\x00", "\x85",
    "\u2028", "ümlaut", "日本", "0", "\U0001f408", "\ufeff", "\udcff", "a, b", "=", "<<", ".inf",
    "2026-11-21", "\\", "\\n", "x y" * 99,
]  # fmt: skip
TEXTS = st.sampled_from(AWKWARD) | st.text(max_size=20)
#: Valid values, of settings that do not accept any text, for which YAML has rules.
RIGHT: dict[str, list[Any]] = {
    "label_regex": [r"(?P<label>[a-z]{2})\d+\.jpg$", "(?P<label>.+)#"],
    "label_depth": ["2", "all"],
    "splits": ["train=0.8,validation=0.1,test=0.1", "train=1"],
    "split_by": [r"^[^#]{3}: \d{date}", "x"],
    "seed": [0, 2**63 - 1],
    "shard_size": ["1MB", "1000000"],
    "resize": ["224", "320x240"],
    "background": ["#ffffff", "white"],
    "max_bad_fraction": [0.0, 0.25, 1e-07],
    "include": ["cats/*.jpg,dogs/", "@keys.txt"],
    "exclude": ["# a/*", "@opt out.txt"],
    "max_aspect": [2.5],
    "license": ["CC-BY-4.0", "yes", "1.10"],
    "citation": ["@misc{a,\n  title={b: #c}}\n", "null"],
    "creator": ["Ada Lovelace; org:A & B", "~"],
    "url": ["https://example.com/#a: b".replace(" ", "")],
    "description": ["# A\n\n- b: c\n", "1e3"],
    "date_published": ["2026-03-31"],
}


def settings_of(job: JobFile) -> dict[str, Any]:
    """Returns the settings of a job, except the one that follows from its gates."""
    return {name: value for name, value in job.settings.items() if name != "verify"}


def values_of(name: str) -> st.SearchStrategy[Any]:
    item = CONVERT_SETTINGS[name]
    if name == "input":
        return st.lists(TEXTS.filter(bool), min_size=1, max_size=3).map(tuple)
    if name in RIGHT:
        return st.sampled_from(RIGHT[name])
    if item.kind.choices:
        return st.sampled_from(item.kind.choices)
    if item.kind.check or item.is_number:
        return st.just(item.default)
    return st.booleans() if item.is_switch else TEXTS


#: Except settings that exclude others, and those that a rebuild does not accept.
ASKED = st.fixed_dictionaries(
    {"input": values_of("input"), "output": TEXTS.filter(bool)},
    optional={
        name: values_of(name)
        for name in CONVERT_SETTINGS
        if name not in ("input", "output", "shards", "verify", "overwrite", "resume")
    },
)
RUNNER = st.dictionaries(
    st.sampled_from(["region", "num_workers", "experiments"]),
    TEXTS.filter(lambda text: text.lower() not in ("true", "false")),
)


# Failing examples are short anyway, and finding shorter ones takes minutes.
@settings(max_examples=30, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@example(asked={"input": ("a", *AWKWARD), "output": "b"}, keep=1, runner={})
@given(asked=ASKED, keep=st.integers(0, 99), runner=RUNNER)
def test_the_file_contains_the_given_settings(
    tmp_path_factory: pytest.TempPathFactory, asked: dict[str, Any], keep: int, runner: dict[str, str]
) -> None:
    path = tmp_path_factory.getbasetemp() / "asked.yaml"
    path.write_bytes(job_text(asked, keep=keep, runner=runner, detected_as=["a\nb: c"]).encode())
    job = read_job(str(path))
    assert settings_of(job) == asked
    assert (job.rules.keep, job.rules.keep_days) == (keep, 0)
    assert job.beam == tuple(f"--{name}={value}" for name, value in runner.items())


def test_settings_that_are_none_are_not_given() -> None:
    settings = {"input": str(PHOTOS), "output": "out"}
    none = dict.fromkeys(("strip_metadata", "resize", "plan_from"))
    assert init(file="", **settings, **none).text == init(file="", **settings).text


def test_gates_are_on_and_disabled_lines_can_be_enabled(tmp_path: Path) -> None:
    made = init(file=tmp_path / "job.yaml", input=str(PHOTOS), output="out", resize=32, keep=7)
    job = read_job(made.path)
    assert job.gates == GateFile(
        max_count_drop=0.2,
        max_count_jump=5,
        max_class_l_infinity=0.2,
        max_label_change_fraction=0.1,
        vanished_classes=Policy.REFUSE,
        new_classes=Policy.WARN,
    )
    assert job.rules == RebuildSettings(7)
    assert settings_of(job) == {"input": (str(PHOTOS),), "output": "out", "resize": "32"}
    assert not job.hooks and not job.beam
    switched = re.sub(r"^#(?! \S|$)", "", made.text, flags=re.MULTILINE)
    (tmp_path / "all.yaml").write_text(switched)
    whole = read_job(str(tmp_path / "all.yaml"))
    assert ConvertSettings(**settings_of(whole)) == ConvertSettings(**settings_of(job))
    assert set(whole.settings) == set(CONVERT_SETTINGS) - {"overwrite", "resume"}
    assert set(whole.hooks) == {"refused", "failure"} and whole.beam[0] == "--runner=DataflowRunner"
    assert whole.gates.min_images and whole.gates.warn_on
    rules = whole.rules
    assert (rules.keep_days, rules.verify_sources, rules.lease_minutes) == (30, True, 60)
    for line in made.text.splitlines():
        assert line.startswith(("#", " ")) or re.match(r"[a-z_]+:", line) or not line


def test_the_command_writes_a_file(workplace: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    asked = (f"--input={PHOTOS}", "--output=out", "--label-depth=1", "--keep=3")
    beam = ("--runner=DirectRunner", "--experiments", "a", "--experiments=b", "--streaming")
    code, out, err = run(capfd, "init", *asked, *beam)
    assert code == 0 and "shardwright rebuild --job job.yaml" in out and "class folders" in out, err
    job = read_job("job.yaml")
    assert settings_of(job) == {"input": (str(PHOTOS),), "output": "out", "label_depth": "1"}
    assert job.beam == ("--runner=DirectRunner", "--experiments=a", "--experiments=b", "--streaming")
    assert job.rules.keep == 3
    code, _, err = run(capfd, "init", *asked)
    assert code == 2 and "job.yaml already exists; name another file, or replace it with --overwrite" in err
    code, _, _ = run(capfd, "init", *asked, "--overwrite", "--seed=5")
    assert code == 0 and read_job("job.yaml").settings["seed"] == 5
    before = Path("job.yaml").read_bytes()
    code, out, _ = run(capfd, "init", *asked, "--overwrite", "--seed=5", "--file=-")
    assert code == 0 and out.encode() == before
    assert sorted(path.name for path in workplace.iterdir()) == ["job.yaml"]


@pytest.mark.usefixtures("workplace")
def test_wrong_answers_on_a_terminal_are_asked_again(capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = ["", "nope", f" {PHOTOS} ", str(PHOTOS / "out"), "", "big", "64", "train=2,", ""]
    monkeypatch.setattr(sys, "stdin", Terminal("\n".join([*answers, ""])))
    code, _, err = run(capfd, "init")
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
    workplace: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("there\n"))
    code, _, err = run(capfd, "init", f"--input={PHOTOS}")
    assert code == 0 and "Resize" not in err
    assert settings_of(read_job("job.yaml")) == {"input": (str(PHOTOS),), "output": "there"}
    monkeypatch.setattr(sys, "stdin", Terminal(""))
    code, _, err = run(capfd, "init", f"--input={PHOTOS}", "--overwrite")
    assert code == 2 and "The answers ended before the last question" in err
    monkeypatch.setattr(sys, "stdin", Terminal(""))
    code, _, err = run(capfd, "init", f"--input={PHOTOS}")
    assert code == 2 and "already exists" in err and "Where" not in err


def test_an_input_that_this_machine_cannot_read_is_accepted(
    tmp_path: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = EngineError("Cannot list gs://b/photos: there are no valid credentials.")
    monkeypatch.setattr("shardwright.pipelines.init.make_request", mock.Mock(side_effect=fault))
    path = tmp_path / "job.yaml"
    code, _, err = run(capfd, "init", "--input=gs://b/photos", "--output=gs://b/pets", f"--file={path}")
    assert code == 0 and "the input was not examined: Cannot list gs://b/photos" in err
    assert settings_of(read_job(str(path))) == {"input": ("gs://b/photos",), "output": "gs://b/pets"}
    with pytest.raises(UsageError, match="--resume is not a setting of a rebuild"):
        init(file="", input="a", output="b", resume=True)
