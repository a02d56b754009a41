"""The frame that runs every subcommand."""

from __future__ import annotations

import argparse
import logging
import sys
from importlib import import_module

import pytest

from shardwright.pipelines import cli
from shardwright.pipelines.command import BeamOptions, Command, OtherOptions
from shardwright.schemas.codes import ExitCode
from shardwright.schemas.errors import DataRefused, EngineError

Capture = pytest.CaptureFixture[str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds one positional argument and one option."""
    parser.add_argument("place", nargs="?", default="")
    parser.add_argument("--colour", default="red")


def make(**changes: object) -> Command:
    """Returns a command that prints its option."""

    def run(options: argparse.Namespace, others: OtherOptions) -> ExitCode:
        print(f"colour {options.colour}, others {list(others.tokens)}")
        return ExitCode.REFUSED

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

    def run(options: argparse.Namespace, others: OtherOptions) -> ExitCode:
        raise error

    return make(run=run)


def test_a_command_returns_its_exit_code(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert make().main(["--colour", "blue", "--streaming"]) == 1
    assert capsys.readouterr().out == "colour blue, others ['--streaming']\n"
    monkeypatch.setattr(sys, "argv", ["paint", "--colour=green"])
    assert make().main() == 1
    assert capsys.readouterr().out == "colour green, others []\n"


@pytest.mark.parametrize("beam", BeamOptions)
def test_the_help_explains_other_options(capsys: Capture, beam: BeamOptions) -> None:
    with pytest.raises(SystemExit) as left:
        make(beam=beam).main(["--help"])
    assert left.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith("usage: shardwright paint ")
    assert all(text in said for text in ("Paints.", "--colour COLOUR", "--verbose", "--stuck_after"))
    end = f"example:\n  shardwright paint --colour blue\n\n{beam.value}".rstrip()
    assert said.endswith(f"\n\n{end}\n")


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
    given: list[str] = []

    def run(options: argparse.Namespace, others: OtherOptions) -> ExitCode:
        given.append(options.place)
        return ExitCode.DONE

    note = "shardwright: note: {} has no effect, because paint runs no job.\n"
    for argv in (["--runner", "DirectRunner", "out"], ["out", "--runner=DirectRunner"]):
        assert make(beam=beam, run=run).main([*argv, "--project", "p", "--streaming"]) == 0
        assert given.pop() == "out"
        taken = capsys.readouterr()
        assert taken.err == "".join(map(note.format, ("--runner", "--project", "--streaming")))


def test_a_command_with_a_job_suggests_the_nearest_option(capsys: Capture) -> None:
    def run(options: argparse.Namespace, others: OtherOptions) -> ExitCode:
        others.for_beam()
        return ExitCode.DONE

    assert make(run=run).main(["--no_auth"]) == 0
    assert make(run=run).main(["--color=blue"]) == 2
    assert "Unknown option --color; did you mean --colour?" in capsys.readouterr().err


@pytest.mark.parametrize(("error", "code"), [(DataRefused("No."), 1), (EngineError("No."), 3)])
def test_only_verbose_shows_a_traceback(capsys: Capture, error: Exception, code: int) -> None:
    assert failing(error).main([]) == code
    assert capsys.readouterr().err == "shardwright: No.\n"
    assert failing(error).main(["--verbose"]) == code
    said = capsys.readouterr().err
    assert said.startswith("Traceback") and said.endswith("shardwright: No.\n")


@pytest.mark.parametrize(("resumable", "advice"), [(True, "run again with --resume."), (False, "run again.")])
def test_only_commands_that_resume_advise_it(capsys: Capture, resumable: bool, advice: str) -> None:
    def run(options: argparse.Namespace, others: OtherOptions) -> ExitCode:
        raise EngineError("The disk is full; run again with --resume.")

    assert make(run=run, resumable=resumable).main([]) == 3
    assert capsys.readouterr().err == f"shardwright: The disk is full; {advice}\n"


def test_a_command_can_report_errors_itself(capsys: Capture) -> None:
    told: list[tuple[str, str, int]] = []

    def complain(options: argparse.Namespace, message: str, code: int) -> bool:
        colour = getattr(options, "colour", "")
        told.append((colour, message, code))
        return colour == "blue"

    def run(options: argparse.Namespace, others: OtherOptions) -> ExitCode:
        raise DataRefused("No.")

    command = make(run=run, complain=complain)
    assert [command.main(["--colour=blue"]), command.main([]), command.main(["--colour"])] == [1, 1, 2]
    assert told[:2] == [("blue", "No.", 1), ("red", "No.", 1)]
    assert told[2][0] == "" and told[2][2] == 2  # the command line is wrong, so options have no values
    assert capsys.readouterr().err.splitlines() == ["shardwright: No.", f"shardwright: {told[2][1]}"]


def test_beam_logs_only_with_verbose(capsys: Capture) -> None:
    levels = []

    def run(options: argparse.Namespace, others: OtherOptions) -> ExitCode:
        levels.append(logging.getLogger("apache_beam").level)
        return ExitCode.DONE

    assert make(run=run).main([]) == make(run=run).main(["--verbose"]) == 0
    assert levels == [logging.CRITICAL, logging.INFO]


def test_every_subcommand_uses_the_frame() -> None:
    for name, (module, _) in cli.COMMANDS.items():
        command = import_module(f"shardwright.pipelines.{module}").COMMAND
        assert isinstance(command, Command)
        assert command.name == name
        assert command.example.startswith(f"shardwright {name}")
