"""The frame that runs every subcommand."""

from __future__ import annotations

import argparse
import io
import json
import logging
import re
import shlex
import sys
import warnings
from typing import Any

import pytest

from shardwright.pipelines import cli, log, options
from shardwright.pipelines.command import BeamOptions, Command, Outcome
from shardwright.pipelines.log import result_object
from shardwright.schemas import __version__
from shardwright.schemas.errors import DataRefused, EngineError, NotRun, UsageError

Capture = pytest.CaptureFixture[str]
DONE = Outcome(lambda: None, dict)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds one positional argument and one option."""
    parser.add_argument("place", nargs="?", default="")
    parser.add_argument("--colour", default="red")


def make(**changes: object) -> Command:
    """Returns a command that prints its option."""

    def run(given: argparse.Namespace) -> Outcome:
        print("a library prints this")
        text = f"colour {given.colour}, others {given.beam_options}"
        return Outcome(lambda: print(text), lambda: {"colour": given.colour}, "Not so.")

    fields: dict[str, object] = {
        "name": "paint",
        "help": "Paints.",
        "example": "shardwright paint --colour blue",
        "add_arguments": add_arguments,
        "run": run,
    }
    return Command(**{**fields, **changes})  # type: ignore[arg-type]


def failing(error: BaseException) -> Command:
    """Returns a command that raises."""

    def run(given: argparse.Namespace) -> Outcome:
        raise error

    return make(run=run)


def test_a_command_returns_its_exit_code(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert make().main(["--colour", "blue", "--streaming"]) == 1
    assert capsys.readouterr().out == "a library prints this\ncolour blue, others ['--streaming']\n"
    monkeypatch.setattr(sys, "argv", ["paint", "--colour=green"])
    assert make().main() == 1
    assert capsys.readouterr().out == "a library prints this\ncolour green, others []\n"


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


@pytest.mark.parametrize("beam", [BeamOptions.STORAGE, BeamOptions.NONE])
def test_a_command_without_a_job_takes_beams_options_in_both_spellings(
    capsys: Capture, beam: BeamOptions
) -> None:
    """Scripts give the same options to all commands."""
    places: list[str] = []

    def run(given: argparse.Namespace) -> Outcome:
        places.append(given.place)
        return DONE

    note = "shardwright: note: {} has no effect, because paint runs no job.\n"
    for argv in (["--runner", "DirectRunner", "out"], ["out", "--runner=DirectRunner"]):
        assert make(beam=beam, run=run).main([*argv, "--project", "p", "--streaming"]) == 0
        assert places.pop() == "out"
        taken = capsys.readouterr()
        assert taken.err == "".join(map(note.format, ("--runner", "--project", "--streaming")))


def test_a_command_with_a_job_suggests_the_nearest_option(capsys: Capture) -> None:
    assert make().main(["--no_auth"]) == 1
    assert make().main(["--color=blue"]) == 2
    assert "Unknown option --color; did you mean --colour?" in capsys.readouterr().err


@pytest.mark.parametrize(("error", "code"), [(DataRefused("No."), 1), (EngineError("No."), 3)])
def test_only_verbose_shows_a_traceback(capsys: Capture, error: Exception, code: int) -> None:
    assert failing(error).main([]) == code
    assert capsys.readouterr().err == "shardwright: No.\n"
    assert failing(error).main(["--verbose"]) == code
    err = capsys.readouterr().err
    assert err.startswith("Traceback") and err.endswith("shardwright: No.\n")


@pytest.mark.parametrize(("resumable", "advice"), [(True, "run again with --resume."), (False, "run again.")])
def test_only_commands_that_resume_advise_it(capsys: Capture, resumable: bool, advice: str) -> None:
    def run(given: argparse.Namespace) -> Outcome:
        raise EngineError("The disk is full; run again with --resume.")

    assert make(run=run, resumable=resumable).main([]) == 3
    assert capsys.readouterr().err == f"shardwright: The disk is full; {advice}\n"


def the_object(text: str) -> dict[str, Any]:
    """Reads the one JSON object that a text must be."""
    value = json.loads(text)
    assert isinstance(value, dict)
    return value


COMMON = {
    "format": "shardwright-result",
    "version": 1,
    "shardwright_version": __version__,
    "command": "paint",
}


def test_json_is_the_only_thing_on_stdout(capsys: Capture) -> None:
    assert make().main(["--colour=blue", "--json"]) == 1
    taken = capsys.readouterr()
    expected = {**COMMON, "exit_code": 1, "error": "Not so.", "messages": [], "colour": "blue"}
    assert the_object(taken.out) == expected
    assert taken.err == "a library prints this\nshardwright: Not so.\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [(UsageError("No."), 2), (EngineError("No."), 3), (NotRun("No."), 0), (KeyboardInterrupt(), 130)],
)
def test_a_failure_is_an_object_too(capsys: Capture, error: BaseException, code: int) -> None:
    assert failing(error).main(["--json"]) == code
    taken = capsys.readouterr()
    value = the_object(taken.out)
    message = "interrupted; run again." if code == 130 else "No."
    messages = [] if code else [{"level": "note", "message": "No."}]
    assert value == {**COMMON, "exit_code": code, "error": message if code else None, "messages": messages}
    assert message in taken.err


@pytest.mark.parametrize("argv", [["--json", "--colour"], ["--colour", "--json"], ["--json", "--log-format"]])
def test_a_wrong_command_line_is_an_object_too(capsys: Capture, argv: list[str]) -> None:
    assert make().main(argv) == 2
    value = the_object(capsys.readouterr().out)
    assert value["exit_code"] == 2 and "expected one argument" in value["error"]
    assert make().main(["--", "--json"]) == 1  # an argument by place
    assert "colour red" in capsys.readouterr().out


def test_an_unknown_command_is_an_object_too(capsys: Capture) -> None:
    assert cli.main(["paint", "--json"]) == 2
    value = the_object(capsys.readouterr().out)
    assert value["error"].startswith("there is no command 'paint'") and value["command"] == "paint"


def test_notes_are_in_the_object(capsys: Capture) -> None:
    def run(given: argparse.Namespace) -> Outcome:
        log.note("An option has no effect.")
        log.warning("A file stays.")
        return DONE

    assert make(run=run).main(["--json", "--quiet"]) == 0
    taken = capsys.readouterr()
    assert the_object(taken.out)["messages"] == [
        {"level": "note", "message": "An option has no effect."},
        {"level": "warning", "message": "A file stays."},
    ]
    assert taken.err == ""
    assert make().main(["--json"]) == 1
    assert the_object(capsys.readouterr().out)["messages"] == [], "those of the command before"


def test_a_number_that_json_cannot_express_is_null(capsys: Capture) -> None:
    def run(given: argparse.Namespace) -> Outcome:
        return Outcome(lambda: None, lambda: {"means": [float("nan"), float("inf"), 0.5]})

    assert make(run=run).main(["--json"]) == 0
    assert the_object(capsys.readouterr().out)["means"] == [None, None, 0.5]


def test_a_field_never_replaces_one_of_all_commands() -> None:
    with pytest.raises(ValueError, match="'version' is a field of all commands"):
        result_object("rebuild", 0, "", {"version": "20261121T020000Z"})


def test_an_object_is_json_in_any_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    for encoding in ("ascii", "latin-1", "utf-8"):
        out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        monkeypatch.setattr(sys, "stdout", out)
        assert make().main(["--colour=café \U0001f600", "--json"]) == 1
        text = out.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]
        assert the_object(text)["colour"] == "café \U0001f600"


def test_quiet_prints_only_errors(capsys: Capture) -> None:
    assert make().main(["--quiet"]) == 1
    taken = capsys.readouterr()
    assert taken.out == "a library prints this\n" and taken.err == "shardwright: Not so.\n"

    def run(given: argparse.Namespace) -> Outcome:
        log.info("working")
        log.note("An option has no effect.")
        log.about("in", "class folders")
        warnings.warn("an old function", stacklevel=1)
        return Outcome(lambda: print("the result"), dict)

    assert make(run=run).main(["--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert make().main(["--quiet", "--verbose"]) == 2
    assert "leave one of them out" in capsys.readouterr().err


def test_a_log_of_json_lines(capsys: Capture) -> None:
    def run(given: argparse.Namespace) -> Outcome:
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
    assert capsys.readouterr().err == "shardwright: --log_format xml: choose one of text, json.\n"


def test_a_traceback_is_a_field_of_a_json_line(capsys: Capture) -> None:
    assert failing(EngineError("No.")).main(["--log_format=json", "--verbose"]) == 3
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert lines[0]["traceback"].startswith("Traceback") and lines[0]["message"].endswith("EngineError: No.")
    assert lines[-1]["error"] == "No."


def test_after_a_command_python_logs_as_before(capsys: Capture) -> None:
    before = logging.getLogger().handlers[:]
    assert make().main(["--log_format=json"]) == 1
    assert logging.getLogger().handlers == before
    assert not log.is_json() and not log.is_quiet() and log.messages() == ()


def test_beam_logs_only_with_verbose(capsys: Capture) -> None:
    levels = []

    def run(given: argparse.Namespace) -> Outcome:
        levels.append(logging.getLogger("apache_beam").level)
        return DONE

    assert make(run=run).main([]) == make(run=run).main(["--verbose"]) == 0
    assert levels == [logging.CRITICAL, logging.INFO]


def test_every_subcommand_uses_the_frame() -> None:
    for name in cli.COMMANDS:
        command = cli.command_of(name)
        assert command.name == name
        for line in filter(lambda line: line and not line.startswith("#"), command.example.splitlines()):
            words = shlex.split(line)
            assert words[:2] == ["shardwright", name]
            options.parse(command.parser(), words[2:])  # raises if the example is wrong
