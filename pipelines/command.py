"""The frame of every subcommand of `shardwright`: parses its options, runs it and returns its exit code."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import ModuleType
from typing import Any

from shardwright.pipelines import log
from shardwright.pipelines import options as cli_options
from shardwright.pipelines.log import print_result
from shardwright.pipelines.process import WATCHDOG
from shardwright.pipelines.run import exit_code_of, suppress_beam_logs
from shardwright.schemas.codes import ExitCode
from shardwright.schemas.errors import UsageError
from shardwright.schemas.missing_packages import needed_by


class BeamOptions(Enum):
    """Which of Beam's options a command takes. The value is the sentence that its help ends with."""

    ALL = "Options that are not listed go to Beam (--runner, ...)."
    STORAGE = "Beam does not run, but you can give its storage options (--no_auth, ...)."
    NONE = ""


@dataclass(frozen=True)
class CommandResult:
    """The outcome of a command that ran.

    Attributes:
      show: Prints the outcome for people.
      fields: Returns the outcome for programs: the command's own fields of the JSON object.
      error: Why the data did not pass, in one sentence; empty if it did. What `show` prints contains it.
    """

    show: Callable[[], None]
    fields: Callable[[], Mapping[str, Any]]
    error: str = ""


@dataclass(frozen=True)
class Command:
    """A subcommand of `shardwright`.

    Attributes:
      name: Name on the command line.
      module: What it does: the first line of its docstring and `EXAMPLE` begin and end its help,
        `add_arguments` adds its own options to a parser, which already has those of `options.add_common`, and
        `execute` gets their values, and Beam's options as `beam_options`, and returns a `CommandResult`.
      beam: Which of Beam's options the command takes.
      resumable: Whether the command has `--resume`, so that error messages may advise it.
    """

    name: str
    module: ModuleType
    beam: BeamOptions = BeamOptions.ALL
    resumable: bool = False

    def main(self, argv: Sequence[str]) -> int:
        """Runs the command and returns its exit code.

        Args:
          argv: Command line without the command's name.
        """
        output = cli_options.output_options(argv)
        stdout = sys.stdout  # also for an object that is printed while it is redirected
        fields: Mapping[str, Any] = {}

        def command() -> int:
            nonlocal fields
            parser = self.parser()
            options, rest = cli_options.parse(parser, argv)
            WATCHDOG.stuck_after = 60 * cli_options.number_of("stuck_after", options.stuck_after, 0.01, 1e6)
            if options.quiet and options.verbose:
                raise UsageError(
                    "--quiet shows only errors and --verbose shows everything; leave one of them out."
                )
            # Only the object may appear on stdout; libraries may print there, too.
            elsewhere = contextlib.redirect_stdout(sys.stderr) if output.json else contextlib.nullcontext()
            with needed_by(f"shardwright {self.name}"):
                if getattr(options, "pool", None):
                    rest.append(f"--pool={options.pool}")
                with suppress_beam_logs(output.verbose), elsewhere:
                    names = cli_options.names_of(parser)
                    if rest and self.beam is BeamOptions.ALL:
                        # At once, because a job file may be in a bucket.
                        cli_options.use_in_storage(cli_options.beam_options(rest, names))
                    elif rest:
                        storage = self.beam is BeamOptions.STORAGE
                        cli_options.use_without_job(rest, names, self.name, storage)
                    outcome: CommandResult = self.module.execute(
                        argparse.Namespace(**vars(options), beam_options=rest)
                    )
                if not (output.json or output.quiet):
                    outcome.show()
                if output.json:
                    fields = outcome.fields()
            code = int(ExitCode.REFUSED if outcome.error else ExitCode.DONE)
            if output.json or output.quiet or log.LOG.is_json:  # otherwise people have read the error
                log.end(outcome.error, code)
            return code

        def print_object(message: str, code: int) -> None:
            if output.json:
                print_result(self.name, code, message if code else "", fields, stdout)

        with log.log_as(output.log_format, output.quiet, print_object):
            return exit_code_of(command, output.verbose, self.resumable)

    def parser(self) -> argparse.ArgumentParser:
        """Returns the parser of the command's own options."""
        description = (self.module.__doc__ or "").partition("\n")[0]
        parser = cli_options.make_parser(
            f"shardwright {self.name}", description, self.module.EXAMPLE, note=self.beam.value
        )
        self.module.add_arguments(parser)
        cli_options.add_common(parser, with_job=self.beam is BeamOptions.ALL)
        return parser
