"""The command `shardwright`: finds the subcommand and runs it."""

from __future__ import annotations

import atexit
import gc
import resource
import sys
import textwrap
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from shardwright.pipelines import log
from shardwright.pipelines.help_text import examples_text, print_help, width
from shardwright.pipelines.log import forgiving_streams, print_result
from shardwright.schemas import __version__
from shardwright.schemas.codes import ExitCode
from shardwright.schemas.errors import lacks_memory, nearest
from shardwright.schemas.missing_packages import MissingPackage, needed_by

if TYPE_CHECKING:
    from shardwright.pipelines.command import Command


class CommandEntry(NamedTuple):
    """A subcommand.

    Attributes:
      module: Module with its help, `EXAMPLE`, `add_arguments` and `execute`, imported only if it runs.
      summary: What it does, for `shardwright --help`.
      beam: Which of Beam's options it takes: the name of a `command.BeamOptions`.
      resumable: Whether it has `--resume`, so that error messages may advise it.
    """

    module: str
    summary: str
    beam: str = "ALL"
    resumable: bool = False


#: Name of a subcommand -> what it is.
COMMANDS = {
    "convert": CommandEntry("convert", "convert images to a verified dataset", resumable=True),
    "rebuild": CommandEntry("rebuild", "create a new version of a dataset; rebuild only changes"),
    "plan": CommandEntry("plan", "show what convert would write, without writing it"),
    "validate": CommandEntry("validate", "read a dataset back and check that it is sound"),
    "salvage": CommandEntry("salvage", "save the sound records of a damaged dataset"),
    "inspect": CommandEntry("inspect", "show what is inside a dataset", beam="STORAGE"),
    "report": CommandEntry("report", "write report.html: all results on one page"),
    "diff": CommandEntry("diff", "compare two datasets; limits make it a gate"),
    "init": CommandEntry("init", "write a commented job file for rebuild"),
    "versions": CommandEntry("versions", "list the versions of a dataset, and pin some", beam="STORAGE"),
    "rollback": CommandEntry("rollback", "return to the previous version, or to another one", beam="STORAGE"),
    "publish": CommandEntry("publish_version", "publish a version that a gate refused", beam="STORAGE"),
    "layouts": CommandEntry("layouts", "list the record layouts, or explain one", beam="NONE"),
    "completion": CommandEntry(
        "completion", "print a script with which a shell completes commands", beam="NONE"
    ),
}


#: Nearly all objects are long-lived: Beam's modules, then millions of references. Collecting
#: garbage less often saves a tenth of the start and a sixth of the planning time (docs/scale.md).
GC_THRESHOLDS = (20_000, 50, 50)
_NO_MEMORY = "There is not enough memory to start; allow more (ulimit -v), or use a larger machine."
#: Bytes of address space below which an imported library may end the process with its own exit code.
_MIN_MEMORY = 256_000_000
#: Number of characters shown from the end of an error message, since some messages begin with long details.
_SHOWN_CHARACTERS = 200


_EXAMPLE = """
# convert a folder with a subfolder for each class, check it, look at it
shardwright convert photos/ out/ --resize 224
shardwright validate out/ --quality
shardwright inspect out/ --contact_sheet sheet.png
# see what would be written
shardwright plan photos/ --splits train=0.9,test=0.1
# a new version every night, published only if it passes its gates
shardwright init photos/ pets/ --file job.yaml
shardwright rebuild --job job.yaml
"""


def usage() -> str:
    """Returns the help text."""
    commands = "\n".join(f"  {name:10} {entry.summary}" for name, entry in COMMANDS.items())
    paragraphs = (
        "Turns any collection of raw images into a training-ready, verified, sharded TFRecord dataset.",
        f"commands:\n{commands}",
        examples_text(_EXAMPLE),
        "Each command has --help with examples; `shardwright help COMMAND` shows it too. Exit codes: 0 done, "
        "1 the data did not pass, 2 wrong command, settings or input, 3 the engine, storage or machine "
        "failed, 130 interrupted. A reader that stops early, such as `head`, changes no exit code.",
    )
    filled = (text if "\n" in text else textwrap.fill(text, width()) for text in paragraphs)
    return "\n\n".join(["usage: shardwright COMMAND [options]", *filled]) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    gc.set_threshold(*GC_THRESHOLDS)
    if argv is None:
        atexit.register(gc.freeze)  # a last collection of all objects would take 0.3 s
    with forgiving_streams():
        return _run(list(sys.argv[1:] if argv is None else argv))


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["help"] and len(arguments) > 1:  # `help convert` is `convert --help`
        arguments = [arguments[1], "--help"]
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help", "help"):
        print_help(usage(), sys.stdout)
        return int(ExitCode.DONE if arguments else ExitCode.USAGE)
    if name == "--version":
        print(f"shardwright {__version__}")
        return int(ExitCode.DONE)
    if name not in COMMANDS:
        hint = nearest(name, list(COMMANDS)) or "; see shardwright --help."
        return _refused(arguments, f"there is no command {name!r}{hint}", ExitCode.USAGE)
    if 0 <= resource.getrlimit(resource.RLIMIT_AS)[0] < _MIN_MEMORY:  # -1 is no limit
        return _refused(arguments, _NO_MEMORY, ExitCode.ENGINE)
    try:
        with needed_by(f"shardwright {name}"):
            command = command_of(name)
    except MissingPackage as missing:
        return _refused(arguments, missing.message, missing.exit_code)
    except KeyboardInterrupt:  # importing takes a second
        return _refused(arguments, "interrupted before anything began.", ExitCode.INTERRUPTED)
    except Exception as error:
        text = " ".join(str(error).split()).rstrip(".")[-_SHOWN_CHARACTERS:]
        why = ": ".join(filter(None, (type(error).__name__, text)))
        message = f"The command cannot start ({why}); install shardwright again."
        return _refused(arguments, _NO_MEMORY if lacks_memory(error) else message, ExitCode.ENGINE)
    return command.main(arguments[1:])


def command_of(name: str) -> Command:
    """Returns a subcommand, after an import of its module and of what all commands need."""
    from shardwright.pipelines.command import BeamOptions, Command

    entry = COMMANDS[name]
    module = import_module(f"shardwright.pipelines.{entry.module}")
    return Command(name, module, BeamOptions[entry.beam], entry.resumable)


def _refused(arguments: Sequence[str], message: str, code: ExitCode) -> int:
    """Reports that no command began; returns the exit code."""
    log.end(message, int(code))
    if "--json" in arguments:
        print_result(arguments[0], int(code), message, {})
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
