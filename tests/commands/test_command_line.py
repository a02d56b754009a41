"""The frame of every subcommand: options, notes, results as JSON, and closed or full output streams."""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import re
import shlex
import subprocess
import sys
import warnings
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import DebugOptions, PipelineOptions, SetupOptions
from apache_beam.transforms.environments import python_sdk_dependencies
from helpers.hostile import COMMAND, document, ended, make_tree, run_command, sentence_of
from helpers.listing import listed
from helpers.repository import PHOTOS, ran
from helpers.versioned import make_versions
from PIL import Image

from shardwright.core.concurrency.resources import job_options, values_of
from shardwright.pipelines import cli, log, options
from shardwright.pipelines.command import BeamOptions, Command, CommandResult
from shardwright.pipelines.log import forgiving_streams, print_result
from shardwright.pipelines.prepare import launch_facts
from shardwright.pipelines.run import as_shardwright_error, exit_code_of
from shardwright.pipelines.tables import console, print_table
from shardwright.schemas import __version__
from shardwright.schemas.configuration.settings import settings_from
from shardwright.schemas.errors import DataRefused, EngineError, NotRun, UsageError

Capture = pytest.CaptureFixture[str]
DONE = CommandResult(lambda: None, dict)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds one positional argument and one option."""
    parser.add_argument("place", nargs="?", default="")
    parser.add_argument("--colour", default="red")


def make(run: Callable[[argparse.Namespace], CommandResult] | None = None, **settings: Any) -> Command:
    """Returns a command that prints its option."""

    def execute(given: argparse.Namespace) -> CommandResult:
        print("a library prints this")
        text = f"colour {given.colour}, others {given.beam_options}"
        return CommandResult(lambda: print(text), lambda: {"colour": given.colour}, "Not so.")

    module = SimpleNamespace(
        __doc__="Paints.",
        EXAMPLE="shardwright paint --colour blue",
        add_arguments=add_arguments,
        execute=run or execute,
    )
    return Command("paint", module, **settings)


def test_a_command_returns_its_exit_code(capsys: Capture) -> None:
    assert make().main(["--colour", "blue", "--no_auth"]) == 1
    assert capsys.readouterr().out == "a library prints this\ncolour blue, others ['--no_auth']\n"


@pytest.mark.parametrize("beam", BeamOptions)
def test_the_help_explains_other_options(capsys: Capture, beam: BeamOptions) -> None:
    with pytest.raises(SystemExit) as left:
        make(beam=beam).main(["--help"])
    assert left.value.code == 0
    out = capsys.readouterr().out
    assert out.startswith("usage: shardwright paint ")
    assert all(text in out for text in ("Paints.", "--colour COLOUR", "--verbose", "--stuck_after"))
    end = f"example:\n  shardwright paint --colour blue\n\n{beam.value}".rstrip()
    assert out.endswith(f"\n\n{end}\n")


@pytest.mark.parametrize("beam", [BeamOptions.STORAGE, BeamOptions.NONE])
@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("--color=blue", "Unknown option --color; did you mean --colour?"),
        ("--plaec=x", "Unknown option --plaec; see --help."),  # a positional argument has no option
        ("--runnr=DirectRunner", "Unknown option --runnr; see --help."),
        ("--dry_run", "--dry_run describes a job instead of running it, and this command runs none."),
    ],
)
def test_a_command_without_a_job_refuses_other_options(
    capsys: Capture, beam: BeamOptions, option: str, hint: str
) -> None:
    assert make(beam=beam).main([option]) == 2
    taken = capsys.readouterr()
    assert taken.out == ""
    assert taken.err == f"shardwright: {hint}\n"


def test_storage_options_are_for_commands_that_read_a_storage(capsys: Capture) -> None:
    assert make(beam=BeamOptions.STORAGE).main(["--no_auth"]) == 1
    assert capsys.readouterr().err == ""
    assert make(beam=BeamOptions.NONE).main(["--no_auth"]) == 1
    note = "shardwright: note: --no_auth has no effect, because paint runs no job.\n"
    assert capsys.readouterr().err == note


@pytest.mark.parametrize("command", ["convert nope out", "inspect nope"])
def test_the_payer_reaches_the_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.chdir(tmp_path)
    FileSystems.set_options(PipelineOptions([]))
    assert cli.main([*command.split(), "--gcs_user_project", "payer"]) == 2
    given = job_options()
    FileSystems.set_options(PipelineOptions([]))
    assert values_of(given)["gcs_user_project"] == "payer"


@pytest.mark.parametrize("beam", [BeamOptions.STORAGE, BeamOptions.NONE])
def test_a_command_without_a_job_takes_beams_options_in_both_spellings(
    capsys: Capture, beam: BeamOptions
) -> None:
    """Scripts give the same options to all commands."""
    run = mock.Mock(return_value=DONE)
    note = "shardwright: note: {} has no effect, because paint runs no job.\n"
    for argv in (["--runner", "DirectRunner", "out"], ["out", "--runner=DirectRunner"]):
        assert make(beam=beam, run=run).main([*argv, "--project", "p", "--streaming"]) == 0
        assert run.call_args.args[0].place == "out"
        taken = capsys.readouterr()
        assert taken.err == "".join(map(note.format, ("--runner", "--project", "--streaming")))


@pytest.mark.parametrize(("error", "code"), [(DataRefused("No."), 1), (EngineError("No."), 3)])
def test_only_verbose_shows_a_traceback_and_beams_log(capsys: Capture, error: Exception, code: int) -> None:
    levels = []

    def run(given: argparse.Namespace) -> CommandResult:
        levels.append(logging.getLogger("apache_beam").level)
        raise error

    assert make(run=run).main([]) == code
    assert capsys.readouterr().err == "shardwright: No.\n"
    assert make(run=run).main(["--verbose"]) == code
    err = capsys.readouterr().err
    assert err.startswith("Traceback") and err.endswith("shardwright: No.\n")
    assert levels == [logging.CRITICAL, logging.INFO]


@pytest.mark.parametrize(("resumable", "advice"), [(True, "run again with --resume."), (False, "run again.")])
def test_only_commands_that_resume_advise_it(capsys: Capture, resumable: bool, advice: str) -> None:
    run = mock.Mock(side_effect=EngineError("The disk is full; run again with --resume."))
    assert make(run=run, resumable=resumable).main([]) == 3
    assert capsys.readouterr().err == f"shardwright: The disk is full; {advice}\n"


COMMON = {
    "format": "shardwright-result",
    "version": 1,
    "shardwright_version": __version__,
    "command": "paint",
}


def test_json_is_the_only_thing_on_stdout(capsys: Capture) -> None:
    def run(given: argparse.Namespace) -> CommandResult:
        print("a library prints this")
        return CommandResult(lambda: None, lambda: {"means": [float("nan"), float("inf"), 0.5]}, "Not so.")

    assert make(run=run).main(["--json"]) == 1
    taken = capsys.readouterr()
    expected = {**COMMON, "exit_code": 1, "error": "Not so.", "messages": []}
    assert json.loads(taken.out) == {**expected, "means": [None, None, 0.5]}, "JSON has no other numbers"
    assert taken.err == "a library prints this\nshardwright: Not so.\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [(UsageError("No."), 2), (EngineError("No."), 3), (NotRun("No."), 0), (KeyboardInterrupt(), 130)],
)
def test_a_failure_is_an_object_too(capsys: Capture, error: BaseException, code: int) -> None:
    assert make(run=mock.Mock(side_effect=error)).main(["--json"]) == code
    taken = capsys.readouterr()
    value = json.loads(taken.out)
    message = "interrupted; run again." if code == 130 else "No."
    messages = [] if code else [{"level": "note", "message": "No."}]
    assert value == {**COMMON, "exit_code": code, "error": message if code else None, "messages": messages}
    assert message in taken.err


@pytest.mark.parametrize("argv", [["--json", "--colour"], ["--colour", "--json"], ["--json", "--log-format"]])
def test_a_wrong_command_line_is_an_object_too(capsys: Capture, argv: list[str]) -> None:
    assert make().main(argv) == 2
    value = json.loads(capsys.readouterr().out)
    assert value["exit_code"] == 2 and "expected one argument" in value["error"]
    assert make().main(["--", "--json"]) == 1  # an argument by place
    assert "colour red" in capsys.readouterr().out
    assert cli.main(["paint", "--json"]) == 2
    value = json.loads(capsys.readouterr().out)
    assert value["error"].startswith("there is no command 'paint'") and value["command"] == "paint"


def test_notes_are_in_the_object(capsys: Capture) -> None:
    def run(given: argparse.Namespace) -> CommandResult:
        log.note("An option has no effect.")
        log.warning("A file stays.")
        return DONE

    assert make(run=run).main(["--json", "--quiet"]) == 0
    taken = capsys.readouterr()
    assert json.loads(taken.out)["messages"] == [
        {"level": "note", "message": "An option has no effect."},
        {"level": "warning", "message": "A file stays."},
    ]
    assert taken.err == ""
    assert make().main(["--json"]) == 1
    assert json.loads(capsys.readouterr().out)["messages"] == [], "those of the command before"


def test_a_field_never_replaces_one_of_all_commands() -> None:
    with pytest.raises(ValueError, match="'version' is a field of all commands"):
        print_result("rebuild", 0, "", {"version": "20261121T020000Z"})


def test_an_object_is_json_in_any_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    for encoding in ("ascii", "latin-1", "utf-8"):
        out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        monkeypatch.setattr(sys, "stdout", out)
        assert make().main(["--colour=café \U0001f600", "--json"]) == 1
        text = out.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]
        assert json.loads(text)["colour"] == "café \U0001f600"


def test_quiet_prints_only_errors(capsys: Capture) -> None:
    assert make().main(["--quiet"]) == 1
    taken = capsys.readouterr()
    assert taken.out == "a library prints this\n" and taken.err == "shardwright: Not so.\n"

    def run(given: argparse.Namespace) -> CommandResult:
        log.info("working")
        log.note("An option has no effect.")
        log.about("in", "class folders")
        warnings.warn("an old function", stacklevel=1)
        return CommandResult(lambda: print("the result"), dict)

    assert make(run=run).main(["--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert make().main(["--quiet", "--verbose"]) == 2
    assert "leave one of them out" in capsys.readouterr().err


def test_a_log_of_json_lines(capsys: Capture) -> None:
    def run(given: argparse.Namespace) -> CommandResult:
        log.info("3 images", images=3)
        log.note("An option has no\neffect.")
        log.about("in/café", "class folders")
        logging.getLogger("elsewhere").critical("a %s line", "library's")
        warnings.warn("an old function", stacklevel=1)
        raise DataRefused("Too many are bad.")

    assert make(run=run).main(["--log-format", "json"]) == 1
    taken = capsys.readouterr()
    assert taken.out == ""
    lines = [json.loads(line) for line in taken.err.splitlines()]
    for line in lines:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    old = lines.pop(4)
    assert old["level"] == "WARNING" and "an old function" in old["message"]
    error = "Too many are bad."
    assert lines == [
        {"level": "INFO", "message": "3 images", "images": 3},
        {"level": "INFO", "message": "An option has no\neffect.", "stage": "note"},
        {"level": "INFO", "message": "class folders", "place": "in/café"},
        {"level": "CRITICAL", "message": "a library's line", "logger": "elsewhere"},
        {"level": "ERROR", "message": error, "stage": "failed", "error": error, "exit_code": 1},
    ]
    assert make().main(["--log_format=json", "--verbose"]) == 1
    assert json.loads(capsys.readouterr().err.splitlines()[-1])["error"] == "Not so."
    assert make().main(["--log_format=xml"]) == 2
    wrong = "shardwright: Argument --log_format: invalid choice: 'xml' (choose from "
    assert capsys.readouterr().err.startswith(wrong), "as text"


def test_a_traceback_is_a_field_of_a_json_line_and_python_logs_as_before_afterwards(capsys: Capture) -> None:
    before = logging.getLogger().handlers[:]
    run = mock.Mock(side_effect=EngineError("No."))
    assert make(run=run).main(["--log_format=json", "--verbose"]) == 3
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert lines[0]["traceback"].startswith("Traceback") and lines[0]["message"].endswith("EngineError: No.")
    assert lines[-1]["error"] == "No."
    assert logging.getLogger().handlers == before
    assert (log.LOG.is_json, log.LOG.is_quiet, log.LOG.messages) == (False, False, None)


def test_every_subcommand_uses_the_frame() -> None:
    for name in cli.COMMANDS:
        command = cli.command_of(name)
        assert command.name == name
        assert command.resumable == (name == "convert")
        for line in filter(
            lambda line: line and not line.startswith("#"), command.module.EXAMPLE.splitlines()
        ):
            words = shlex.split(line)
            assert words[:2] == ["shardwright", name]
            options.parse(command.parser(), words[2:])  # raises if the example is wrong


def parsed(*argv: str) -> tuple[argparse.Namespace, list[str]]:
    """Parses like validate, report and salvage."""
    parser = options.make_parser("x", "", "")
    options.add_dataset(parser, "")
    parser.add_argument("--report", default="")
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--verify_sources", nargs="?", const="true", default=None)
    options.add_common(parser)
    return options.parse(parser, argv)


@pytest.mark.parametrize(
    ("argv", "rest"),
    [
        (["--dataset", "o", "--runner", "DirectRunner"], ["--runner=DirectRunner"]),
        (["o", "--runner", "DirectRunner"], ["--runner=DirectRunner"]),
        (["--runner", "DirectRunner", "o"], ["--runner=DirectRunner"]),
        (["--num-workers", "3", "o"], ["--num_workers=3"]),
        (["--streaming", "o", "--fast"], ["--streaming"]),
        (["--flink_only_there", "3", "o"], ["--flink_only_there=3"]),
        (["--experiments", "a", "--experiments", "b", "o"], ["--experiments=a", "--experiments=b"]),
        (['--labels={"a": "b"}', "o"], ['--labels={"a": "b"}']),
    ],
)
def test_options_of_beam_may_have_their_value_after_a_space(argv: list[str], rest: list[str]) -> None:
    namespace, unknown = parsed(*argv)
    assert options.arguments_of(lambda dataset: dataset, namespace) == {"dataset": "o"}
    assert unknown == rest


@pytest.mark.parametrize(
    ("argv", "report", "fast", "sources", "places"),
    [
        (["--report", "r", "o"], "r", False, None, ["o"]),
        (["o", "--report", "r", "p"], "r", False, None, ["o", "p"]),
        (["--fast", "o"], "", True, None, ["o"]),
        (["--verify-sources", "o"], "", False, "true", ["o"]),
        (["--verify_sources", "no", "o"], "", False, "no", ["o"]),
        (["--verify_sources", "--fast"], "", True, "true", []),
        (["--report", "-1", "--", "--odd"], "-1", False, None, ["--odd"]),
        (["--report", "-", "-"], "-", False, None, ["-"]),
    ],
)
def test_our_own_options_keep_their_values(
    argv: list[str], report: str, fast: bool, sources: str | None, places: list[str]
) -> None:
    namespace, rest = parsed(*argv)
    found = (namespace.report, namespace.fast, namespace.verify_sources, namespace.place, rest)
    assert found == (report, fast, sources, places, [])


@pytest.mark.parametrize(
    ("given", "places"), [({}, ["in", "out"]), ({"input": ["in"]}, ["out"]), ({"output": "out"}, ["in"])]
)
def test_input_and_output_may_be_positional(given: dict[str, object], places: list[str]) -> None:
    found = options.own_settings(Namespace(**given, places=places))
    assert found == {"input": ["in"], "output": "out"}


def test_help_accepts_a_command(capsys: Capture) -> None:
    for command in ("convert", "rebuild"):  # which refuses --overwrite
        with pytest.raises(SystemExit) as left:
            cli.main(["help", command])
        assert left.value.code == 0
        text = capsys.readouterr().out
        assert text.startswith(f"usage: shardwright {command}")
        assert ("--overwrite" in text) == (command == "convert")
    assert cli.main(["help", "convrt"]) == 2
    assert "did you mean convert?" in capsys.readouterr().err
    assert cli.main(["help"]) == 0


def unread_pipe() -> io.TextIOWrapper:
    """Returns a pipe without a reader."""
    reader, writer = os.pipe()
    os.close(reader)
    return io.TextIOWrapper(os.fdopen(writer, "wb"), encoding="utf-8", write_through=True)


def test_a_reader_that_stops_early_changes_no_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", unread_pipe())
    monkeypatch.setattr(sys, "stderr", unread_pipe())
    before = sys.stdout
    assert cli.main(["--help"]) == 0
    assert cli.main(["layouts"]) == 0
    assert cli.main(["layouts", "--json"]) == 0
    # It reports this on stderr, which has no reader either.
    assert cli.main(["layouts", "no_such_layout"]) == 2
    assert sys.stdout is before
    sys.stdout.flush()


def test_a_broken_pipe_elsewhere_is_still_a_failure(capsys: Capture) -> None:
    assert exit_code_of(mock.Mock(side_effect=BrokenPipeError(32, "Broken pipe"))) == 3
    assert "Broken pipe" in capsys.readouterr().err


def test_forgiving_streams_keep_what_was_buffered_from_failing_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed = unread_pipe()
    monkeypatch.setattr(sys, "stdout", closed)
    with forgiving_streams():
        print("x" * 100_000)
        sys.stdout.buffer.write(b"y" * 100_000)
    closed.close()  # this flushes


def test_piped_output_is_never_wrapped() -> None:
    out = io.StringIO()
    words = " ".join(["word"] * 1000)
    console(out).print(f"  {words}")
    print_table(console(out), ("a", "b"), [[words, 1], ["x", 2]])
    lines = out.getvalue().splitlines()
    assert lines[0] == f"  {words}"
    assert sum(words in line for line in lines) == 2
    assert all(len(line) < len(words) + 40 for line in lines)  # and nothing is padded to a width
    assert all(line == line.rstrip() for line in lines)


def test_a_dataset_states_no_password_of_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = (
        "--s3-session-token",
        "s3cr3t",
        "--azure_connection_string=AccountKey=s3cr3t",
        "https://h/?s3cr3t",
    )
    monkeypatch.setattr(sys, "argv", ["convert", *secrets, "last"])
    command = launch_facts(PipelineOptions())["command"]
    assert "s3cr3t" not in str(command) and len(command) == len(sys.argv) and command[-1] == "last"


NO_LIST = "disable_logging_submission_environment"


def given(*argv: str) -> dict[str, object]:
    parser = options.make_parser("convert", "", "")
    options.add_settings(parser)
    namespace, rest = options.parse(parser, argv)
    assert rest == []
    return options.given_settings(namespace)


@pytest.mark.parametrize("value", ["", "=true", "=True", "=false"])
def test_a_switch_may_have_a_value(value: str) -> None:
    is_on = value != "=false"
    assert settings_from(given("--input=x", f"--overwrite{value}")).overwrite is is_on
    assert settings_from(given(f"--overwrite{value}", "--input=x")).overwrite is is_on
    assert settings_from(given(f"--strip-metadata{value}")).strip_metadata is is_on


def test_a_switch_that_is_off_does_not_override_the_job_file(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("resume: true\n")
    settings = settings_from(given(f"--job={job}", "--overwrite=false"))
    assert (settings.resume, settings.overwrite) == (True, False)
    settings = settings_from(given(f"--job={job}", "--overwrite"))
    assert (settings.resume, settings.overwrite) == (False, True)


def test_the_main_session_is_staged_if_it_is_asked_for() -> None:
    asked = options.beam_options(["--runner=DataflowRunner", "--save_main_session"], ())
    assert asked.view_as(SetupOptions).save_main_session is True


def test_only_portable_workers_get_no_list_of_the_launchers_packages() -> None:
    """A worker on another machine fails if it cannot fetch a staged file."""
    for runner in ("FlinkRunner", "PrismRunner", "PortableRunner", "SparkRunner", "flink"):
        made = options.beam_options([f"--runner={runner}", "--experiments=mine", "--parallelism=2"], ())
        assert made.view_as(DebugOptions).experiments == ["mine", NO_LIST]
    again = options.beam_options(["--runner=FlinkRunner", f"--experiments={NO_LIST}"], ())
    assert again.view_as(DebugOptions).experiments == [NO_LIST]
    assert python_sdk_dependencies(again) == []
    for runner in ("FnApiRunner", "DataflowRunner"):
        made = options.beam_options([f"--runner={runner}"], ())
        assert NO_LIST not in (made.view_as(DebugOptions).experiments or [])


def test_a_worker_that_does_not_start_is_explained() -> None:
    error = as_shardwright_error(
        RuntimeError("java.lang.IllegalStateException: Process died with exit code 1")
    )
    assert "pip and shardwright" in error.message and "--resume" in error.message


SPLITS = "train=0.5,test=0.5"
NAMED = "--splits has no effect because the source names the split of every image."


def notes(capsys: Capture) -> list[str]:
    lines = capsys.readouterr().err.splitlines()
    return [line.removeprefix("shardwright: note: ") for line in lines if "note: " in line]


DESCRIBED = "--dry_run described the job; nothing was converted. Leave it out to run the job."


def test_commands_report_options_without_effect_and_a_dry_run_writes_nothing(
    capsys: Capture, tmp_path: Path, tree: Path
) -> None:
    """The runner of this machine has no dry runs."""
    options = ["--fit", "pad", "--resample=box", "--splits", SPLITS, "--strip_metadata=false"]
    wanted = ["--fit has no effect without --resize.", "--resample has no effect without --resize."]
    assert cli.main(["plan", str(tree), *options]) == 0
    assert notes(capsys) == wanted
    assert cli.main(["convert", str(tree), str(tmp_path / "out"), *options, "--dry_run=True"]) == 0
    assert notes(capsys) == [*wanted, DESCRIBED]
    assert not (tmp_path / "out").exists()


def test_splits_are_reported_without_effect_if_the_source_names_them(capsys: Capture, tmp_path: Path) -> None:
    for split in ("train", "test"):
        make_tree(tmp_path / "split" / split)
    split_folders = tmp_path / "split"
    assert cli.main(["plan", str(split_folders), "--splits", SPLITS, "--json"]) == 0
    planned = capsys.readouterr()
    assert NAMED in json.loads(planned.out)["warnings"]
    assert planned.err.splitlines()[1:] == [f"shardwright: note: {NAMED}"]  # after what the input is
    places = [str(split_folders), str(tmp_path / "out")]
    assert cli.main(["convert", *places, "--splits", SPLITS, "--verify=none"]) == 0
    captured = capsys.readouterr()
    assert f"shardwright: note: {NAMED}" in captured.err and f"warning: {NAMED}" in captured.out
    assert document(tmp_path / "out")["splits"].keys() == {"train", "test"}


def test_rebuild_reports_settings_of_a_job_file_without_effect(
    capsys: Capture, tmp_path: Path, tree: Path
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(f"input: {tree}\noutput: {tmp_path / 'out'}\nfit: pad\nkeep: 0\nkeep_days: 3\n")
    assert cli.main(["rebuild", str(job), "--log_format", "json", "--dry_run=True"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["message"] for line in lines if line.get("stage") == "note"] == [
        "keep_days has no effect with keep: 0, which keeps all versions.",
        "--fit has no effect without --resize.",
        DESCRIBED,
    ]


def test_inspect_reports_thumbnails_without_a_sheet(capsys: Capture, dataset: Path) -> None:
    assert cli.main(["inspect", str(dataset), "--thumbnails", "9"]) == 0
    assert notes(capsys) == ["--thumbnails has no effect without --contact_sheet."]
    assert cli.main(["inspect", str(dataset)]) == 0
    assert notes(capsys) == []


def test_convert_reports_a_background_that_no_picture_shows(capsys: Capture, tmp_path: Path) -> None:
    """Opaque pictures show no background, even with an alpha channel; padding and transparent pixels do."""
    opaque, through = tmp_path / "opaque", tmp_path / "through"
    for folder, alpha in ((opaque, 255), (through, 254)):
        (folder / "ant").mkdir(parents=True)
        Image.new("RGBA", (12, 8), (9, 9, 9, alpha)).save(folder / "ant" / "a.png")
        Image.new("RGB", (12, 8), (7, 9, 9)).save(folder / "ant" / "b.png")
    assert listed(through, "classification").converted()["ant/a.png"].on_background
    assert listed(opaque, "classification").converted(resize="8", fit="pad")["ant/a.png"].on_background
    options = ["--background=#ff0000", "--verify=none"]
    assert cli.main(["convert", str(opaque), str(tmp_path / "out"), *options]) == 0
    assert "note: --background has no effect because no image was padded" in capsys.readouterr().out


@pytest.mark.parametrize("closed", [("stdout",), ("stderr",), ("stdout", "stderr")])
def test_commands_work_with_closed_streams(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tree: Path, dataset: Path, closed: tuple[str, ...]
) -> None:
    make_versions(tmp_path, dataset)
    for name in closed:
        monkeypatch.setattr(sys, name, None)  # Python starts like this if a descriptor is closed
    assert cli.main(["inspect", str(dataset)]) == 0
    assert cli.main(["versions", str(tmp_path)]) == 0
    assert cli.main(["layouts"]) == 0
    assert cli.main(["layouts", "no_such_layout"]) == 2
    assert cli.main(["no_such_command"]) == 2
    assert cli.main([]) == 2
    assert cli.main(["convert", str(tree), str(tmp_path / "out"), "--splits", SPLITS]) == 0
    assert document(tmp_path / "out")["fingerprint"] == document(dataset)["fingerprint"]


def test_closed_descriptors_are_not_reused_for_other_files(tmp_path: Path) -> None:
    script = (
        "import os\n"
        "from shardwright.pipelines.log import forgiving_streams\n"
        "with forgiving_streams():\n"
        f"    file = open({str(tmp_path / 'file')!r}, 'w')\n"
        "    os.system('echo printed by a child; echo and this >&2')\n"
        "    print('shown')\n"
        "    file.write(str(file.fileno() > 2))\n"
    )
    line = f"'{sys.executable}' -c \"$SCRIPT\" <&- >&- 2>&-"
    done = subprocess.run(["sh", "-c", line], env={**os.environ, "SCRIPT": script})
    assert done.returncode == 0
    assert (tmp_path / "file").read_text() == "True"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_full_disk_below_one_stream_is_reported_on_the_other(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, stream: str
) -> None:
    with open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr(sys, stream, full)
        assert cli.main(["layouts"]) == 0
        assert cli.main(["layouts", "no_such_layout"]) == 2
    err = capsys.readouterr().err
    assert ("the rest is not shown: no space left on device" in err) == (stream == "stdout")


def test_an_error_of_the_writer_is_not_reported_as_one_of_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    with forgiving_streams(), pytest.raises(UnicodeEncodeError):
        print("\N{SNOWMAN}")


def test_too_little_memory_to_start_is_a_failure_of_the_machine() -> None:
    for kilobytes in (40_000, 120_000):
        # A shell sets the limit, because gRPC may write a line when this process forks for `preexec_fn`.
        done = ran("sh", "-c", f'ulimit -v {kilobytes}; exec "$0" convert', COMMAND)
        sentence = sentence_of(ended(done.returncode, done.stdout, done.stderr), 3)
        assert sentence.startswith("There is not enough memory to start; allow more")


def test_a_command_that_cannot_be_imported_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    for error, code, message in (
        (MemoryError(), 3, "not enough memory to start"),
        (ImportError("libx.so: failed to map segment from shared object"), 3, "not enough memory to start"),
        (ImportError("no module of that name"), 3, "(ImportError: no module of that name); install"),
        (ModuleNotFoundError("no", name="apache_beam"), 2, "shardwright plan needs Apache Beam; install it"),
    ):
        monkeypatch.setattr(cli, "import_module", mock.Mock(side_effect=error))
        assert cli.main(["plan"]) == code
        assert message in capsys.readouterr().err


@pytest.mark.slow  # Python compiles all of Beam for it
def test_python_without_docstrings_is_refused() -> None:
    env = {**os.environ, "PYTHONOPTIMIZE": "2"}
    done = run_command("plan", "--input", PHOTOS, env=env)
    assert sentence_of(done, 2).startswith("Beam does not start without docstrings; run python without -OO")
