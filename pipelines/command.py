"""The frame of every subcommand of `shardwright`: parses its options, runs it and returns its exit code."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TextIO

from shardwright.pipelines import log
from shardwright.pipelines import options as cli_options
from shardwright.pipelines.log import print_result
from shardwright.pipelines.quiet_beam import suppress_beam_logs
from shardwright.pipelines.run import exit_code_of
from shardwright.schemas.codes import ExitCode
from shardwright.schemas.missing_packages import needed_by


class BeamOptions(Enum):
    """Which of Beam's options a command takes. The value is the sentence that its help ends with."""

    ALL = "Options that are not listed go to Beam (--runner, ...)."
    STORAGE = "Beam does not run, but you can give its storage options (--no_auth, ...)."
    NONE = ""


@dataclass(frozen=True)
class OtherOptions:
    """The options of a command line that are not the command's own.

    Attributes:
      tokens: The options, each with its value in one token.
      known: Names of the command's own options, to suggest the nearest for an unknown one.
    """

    tokens: Sequence[str]
    known: Sequence[str]

    def for_beam(self) -> Any:
        """Returns Beam's PipelineOptions.

        Raises:
          UsageError: Beam does not know one of the options.
        """
        return cli_options.beam_options(self.tokens, self.known)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a command that ran.

    Attributes:
      show: Prints the outcome for people.
      fields: Returns the outcome for programs: the command's own fields of the JSON object.
      exit_code: Exit code of the command.
      error: Why the exit code is not 0, in one sentence; empty if it is. What `show` prints contains it.
    """

    show: Callable[[], None]
    fields: Callable[[], Mapping[str, Any]]
    exit_code: ExitCode = ExitCode.DONE
    error: str = ""


@dataclass(frozen=True)
class Command:
    """A subcommand of `shardwright`.

    Attributes:
      name: Name on the command line.
      help: Sentence at the top of its help.
      example: Command line at the end of its help.
      add_arguments: Adds the command's own options to a parser. Every command already has those of
        `options.add_common`.
      run: Does the work; gets the values of its own options, and the other options.
      beam: Which of Beam's options the command takes.
      resumable: Whether the command has `--resume`, so that error messages may advise it.
    """

    name: str
    help: str
    example: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, OtherOptions], Outcome]
    beam: BeamOptions = BeamOptions.ALL
    resumable: bool = False

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Runs the command and returns its exit code.

        Args:
          argv: Command line without the command's name; by default that of the process.
        """
        if argv is None:
            argv = sys.argv[1:]
        wanted = cli_options.output_options(argv)
        given = argparse.Namespace()
        stdout: TextIO | None = None
        fields: Mapping[str, Any] = {}

        def command() -> int:
            nonlocal given, stdout, fields
            parser = self.parser()
            given, rest = cli_options.parse(parser, argv)
            cli_options.check_output_options(given)
            stdout = sys.stdout
            # Only the object may appear on stdout; libraries may print there, too.
            elsewhere = contextlib.redirect_stdout(sys.stderr) if wanted.json else contextlib.nullcontext()
            with needed_by(f"shardwright {self.name}"):
                if getattr(given, "pool", None):
                    rest.append(f"--pool={given.pool}")
                with suppress_beam_logs(given.verbose), elsewhere:
                    outcome = self.run(given, self._others(parser, rest))
                if not (wanted.json or wanted.quiet):
                    outcome.show()
                if wanted.json:
                    fields = outcome.fields()
            if wanted.json or wanted.quiet or log.is_json():  # otherwise people have read the error
                log.end(outcome.error, int(outcome.exit_code))
            return int(outcome.exit_code)

        def print_object(message: str, code: int) -> None:
            if wanted.json:
                print_result(self.name, code, message if code else "", fields, stdout)

        with log.log_as(wanted.log_format, wanted.quiet, print_object):
            return exit_code_of(command, lambda: getattr(given, "verbose", False), self.resumable)

    def parser(self) -> argparse.ArgumentParser:
        """Returns the parser of the command's own options."""
        parser = cli_options.make_parser(
            f"shardwright {self.name}", self.help, self.example, note=self.beam.value
        )
        self.add_arguments(parser)
        if self.beam is BeamOptions.ALL:
            cli_options.add_pool(parser)
        cli_options.add_common(parser)
        return parser

    def _others(self, parser: argparse.ArgumentParser, rest: Sequence[str]) -> OtherOptions:
        """Returns the other options, after a check that the command takes them."""
        known = cli_options.names_of(parser)
        if rest and self.beam is not BeamOptions.ALL:
            with_storage = self.beam is BeamOptions.STORAGE
            for name in cli_options.without_job(rest, known, with_storage):
                log.note(f"{name} has no effect, because {self.name} runs no job.")
            if with_storage:
                of_storage = [token for token in rest if cli_options.is_storage_option(token)]
                cli_options.use_in_storage(cli_options.beam_options(of_storage, known))
        return OtherOptions(rest, known)
