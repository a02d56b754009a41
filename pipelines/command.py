"""The frame of every subcommand of `shardwright`: parses its options, runs it and returns its exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from shardwright.pipelines import options as cli_options
from shardwright.pipelines.run import exit_code_of, suppress_beam_logs
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
class Command:
    """A subcommand of `shardwright`.

    Attributes:
      name: Name on the command line.
      help: Sentence at the top of its help.
      example: Command line at the end of its help.
      add_arguments: Adds the command's own options to a parser. Every command has `--verbose` and
        `--stuck_after` already.
      run: Does the work; gets the values of its own options, and the other options.
      beam: Which of Beam's options the command takes.
      resumable: Whether the command has `--resume`, so that error messages may advise it.
      complain: Reports an error in the command's own way and returns true, or returns false to have it
        printed. Gets the values of its own options, the message and the exit code. The values are empty
        if the command line is wrong.
    """

    name: str
    help: str
    example: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, OtherOptions], ExitCode]
    beam: BeamOptions = BeamOptions.ALL
    resumable: bool = False
    complain: Callable[[argparse.Namespace, str, int], bool] | None = None

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Runs the command and returns its exit code.

        Args:
          argv: Command line without the command's name; by default that of the process.
        """
        given = argparse.Namespace()

        def command() -> int:
            nonlocal given
            parser = self.parser()
            given, rest = cli_options.parse(parser, sys.argv[1:] if argv is None else argv)
            with suppress_beam_logs(given.verbose), needed_by(f"shardwright {self.name}"):
                return int(self.run(given, self._others(parser, rest)))

        def complain(message: str, code: int) -> bool:
            return self.complain is not None and self.complain(given, message, code)

        return exit_code_of(command, lambda: getattr(given, "verbose", False), self.resumable, complain)

    def parser(self) -> argparse.ArgumentParser:
        """Returns the parser of the command's own options."""
        parser = cli_options.make_parser(
            f"shardwright {self.name}", self.help, self.example, note=self.beam.value
        )
        self.add_arguments(parser)
        cli_options.add_common(parser)
        return parser

    def _others(self, parser: argparse.ArgumentParser, rest: Sequence[str]) -> OtherOptions:
        """Returns the other options, after a check that the command takes them."""
        known = cli_options.names_of(parser)
        if rest and self.beam is not BeamOptions.ALL:
            with_storage = self.beam is BeamOptions.STORAGE
            for name in cli_options.without_job(rest, known, with_storage):
                print(
                    f"shardwright: note: {name} has no effect, because {self.name} runs no job.",
                    file=sys.stderr,
                )
            if with_storage:
                cli_options.use_storage_options(rest, known)
        return OtherOptions(rest, known)
