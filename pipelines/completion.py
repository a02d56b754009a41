"""Prints a script with which a shell completes commands, options and values."""

from __future__ import annotations

import argparse

import shtab

from shardwright.pipelines.cli import COMMANDS, command_of
from shardwright.pipelines.command import CommandResult
from shardwright.schemas.configuration.settings import REBUILD_SETTINGS
from shardwright.schemas.errors import UsageError, nearest
from shardwright.schemas.layouts import LAYOUTS

EXAMPLE = """
# bash, with the package bash-completion
shardwright completion bash > ~/.local/share/bash-completion/completions/shardwright
# zsh, if fpath in ~/.zshrc contains ~/.zfunc
shardwright completion zsh > ~/.zfunc/_shardwright
# fish
shardwright completion fish > ~/.config/fish/completions/shardwright.fish
"""
SHELLS = ("bash", "zsh", "fish")
#: Values of arguments that are no settings, or that may also be a file.
_OTHER_CHOICES = {"shell": SHELLS, "layout": tuple(LAYOUTS)}
#: Placeholders of values that are files or folders.
_FILES = frozenset({"FILE", "PATH", "JOB"})
_FOLDERS = frozenset({"DIR", "OUT", "IN OUT", "OLD NEW", "OUT@V"})


def completion(shell: str) -> str:
    """Returns a script with which a shell completes command lines, like `shardwright completion`.

    Args:
      shell: `bash`, `zsh` or `fish`.

    Raises:
      UsageError: If the shell is unknown.
    """
    if shell not in SHELLS:
        hint = nearest(shell, SHELLS) or f"; choose one of {', '.join(SHELLS)}."
        raise UsageError(f"There is no completion for {shell!r}{hint}")
    return shtab.complete(_whole_parser(), shell) + "\n"


def _whole_parser() -> argparse.ArgumentParser:
    """Returns one parser of all commands, whose options say what their values are."""
    parser = argparse.ArgumentParser("shardwright")
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(dest="command")
    for name, entry in COMMANDS.items():
        own = command_of(name).parser()
        for action in own._actions:
            _describe(action)
        commands.add_parser(name, help=entry.summary, parents=[own], add_help=False)
    return parser


def _describe(action: argparse.Action) -> None:
    """Adds the choices of an option, or that it is a file, to its declaration."""
    action.help = " ".join((action.help or "").replace("`", "").split("; ")[0].split())
    if action.option_strings and action.nargs == 0:
        return
    setting = REBUILD_SETTINGS.get(action.dest)
    choices = setting.kind.choices if setting else ()
    if setting and setting.is_switch:
        choices = ("true", "false")
    choices = _OTHER_CHOICES.get(action.dest, choices)
    if choices:
        action.choices = list(choices)
    elif action.metavar in _FILES:
        action.complete = shtab.FILE  # type: ignore[attr-defined]
    elif action.metavar in _FOLDERS:
        action.complete = shtab.DIR  # type: ignore[attr-defined]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.add_argument(
        "shell", nargs="?", default="", metavar="{" + ",".join(SHELLS) + "}", help="the shell"
    )


def execute(options: argparse.Namespace) -> CommandResult:
    """Runs the command."""
    script = completion(options.shell)
    return CommandResult(lambda: print(script, end=""), lambda: {"shell": options.shell, "script": script})
