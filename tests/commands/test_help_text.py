"""`--help` on terminals of any width, and the completion of commands by the shells themselves."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from helpers.hostile import Terminal

from shardwright.pipelines import cli
from shardwright.pipelines.completion import SHELLS, completion
from shardwright.pipelines.help_text import colored, examples_text, has_colors
from shardwright.schemas.configuration.setting import Topic
from shardwright.schemas.configuration.settings_values import setting_fields
from shardwright.schemas.errors import UsageError

Capture = pytest.CaptureFixture[str]
ESCAPE = re.compile(r"\x1b\[\d+m")


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


def help_of(capsys: Capture, *command: str) -> str:
    """Returns the help of a command, or of `shardwright` itself."""
    try:
        assert cli.main([*command, "--help"]) == 0
    except SystemExit as left:
        assert left.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("columns", [80, 120])
def test_every_help_fits_the_terminal(capsys: Capture, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    longest = {}
    for name in ("", *cli.COMMANDS):
        text = help_of(capsys, *filter(None, [name]))
        longest[name] = max(text.splitlines(), key=len)
        assert text.startswith(f"usage: shardwright {name or 'COMMAND'} [options]")
    assert {name: line for name, line in longest.items() if len(line) > columns} == {}
    assert len(longest["convert"]) > columns - 20, "the room is used"


def groups_of(help_text: str) -> dict[str, list[str]]:
    """Returns the options of each group of a help text."""
    parts = re.split(r"^(\S.*):$", help_text, flags=re.MULTILINE)[1:]
    return {title: re.findall(r"^  (?:-h, )?--(\w+)", text, re.MULTILINE)
            for title, text in zip(parts[::2], parts[1::2])}  # fmt: skip


def test_the_settings_stand_in_groups_by_topic(capsys: Capture) -> None:
    groups = groups_of(help_of(capsys, "convert"))
    topics = [topic.value for topic in Topic]
    assert list(groups) == ["arguments", *topics, "examples"]
    for name, item in setting_fields().items():
        assert name in groups[item.topic.value]
    assert {name for topic in topics for name in groups[topic]} >= {*setting_fields(), "job", "json", "help"}
    assert all(len(groups[topic]) >= 2 for topic in topics)
    running = groups["running"]
    for name in cli.COMMANDS:
        common = groups_of(help_of(capsys, name))["running"]
        assert (
            common[-6:] == running[-6:] == ["json", "quiet", "log_format", "verbose", "stuck_after", "help"]
        )


def test_choices_that_do_not_fit_are_in_the_text(capsys: Capture) -> None:
    text = " ".join(help_of(capsys, "convert").split())
    assert "--source SOURCE the kind of input" in text and "box_table, parquet, manifest, cvat" in text
    assert "--fit {stretch,contain,cover,fit,pad}" in text


def test_common_commands_show_three_cases(capsys: Capture) -> None:
    for name in ("convert", "validate", "rebuild"):
        shown = help_of(capsys, name).partition("\nexamples:\n")[2]
        assert len(re.findall(r"^  # ", shown, re.MULTILINE)) == 3
        assert len(re.findall(rf"^  shardwright {name} ", shown, re.MULTILINE)) == 3
    assert len(re.findall(r"^  # ", help_of(capsys), re.MULTILINE)) == 3


def test_a_long_example_is_one_that_a_shell_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    command = "shardwright convert photos/ out/ --resize 224 --splits train=0.9,test=0.1 --overwrite"
    text = examples_text(command)
    assert text.startswith("example:\n  shardwright") and max(map(len, text.splitlines())) <= 60
    assert " ".join(text.replace("\\\n", " ").removeprefix("example:").split()) == command
    assert re.search(r"--splits train", text), "an option stays with its value"


def test_colors_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    assert has_colors(Terminal()) and not has_colors(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not has_colors(Terminal())
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert has_colors(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not has_colors(Terminal()) and not has_colors(io.StringIO())


def test_colors_change_nothing_else(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in cli.COMMANDS:
        plain = help_of(capsys, name)
        assert "\x1b" not in plain
        monkeypatch.setenv("FORCE_COLOR", "1")
        shown = help_of(capsys, name)
        monkeypatch.delenv("FORCE_COLOR")
        assert ESCAPE.sub("", shown) == plain and shown == colored(plain)
        assert "\x1b[1mrunning:\x1b[0m" in shown and "\x1b[36m--json\x1b[0m" in shown
        for line in shown.splitlines():
            assert len(re.findall(r"\x1b\[[1-9]\d*m", line)) == line.count("\x1b[0m")
    assert cli.command_of("convert").parser().format_help() == help_of(capsys, "convert")


#: A command line, and what its last word may become.
CASES = [
    ("shardwright conv", {"convert"}),
    ("shardwright convert --resa", {"--resample"}),
    ("shardwright convert --resample bil", {"bilinear"}),
    ("shardwright plan --source class_", {"class_columns", "class_folders"}),
    ("shardwright validate --json --log_format j", {"json"}),
    ("shardwright validate --report find", {"findings.json"}),
    ("shardwright completion f", {"fish"}),
]


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file and the scripts."""
    monkeypatch.chdir(tmp_path)
    Path("findings.json").touch()
    for shell in SHELLS:
        # zsh finds functions by the names of their files.
        Path("_shardwright" if shell == "zsh" else f"script.{shell}").write_text(completion(shell))
    return tmp_path


def offered_by_bash(line: str) -> set[str]:
    words = line.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    script = (
        f"source script.bash; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; COMP_LINE='{line}'; "
        f"COMP_POINT={len(line)}; _shtab_shardwright shardwright '{words[-1]}' '{words[-2]}'; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def offered_by_fish(line: str) -> set[str]:
    command = ["fish", "--no-config", "-c", f"source script.fish; complete -C '{line}'"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {candidate.split("\t")[0] for candidate in done.stdout.splitlines()}


def zsh_shows(typed: str, wanted: str) -> bool:
    """Types a command line and Tab into zsh; returns whether it then shows another one."""
    process, terminal = pty.fork()
    if not process:
        os.execvp("zsh", ["zsh", "-f", "-i"])
    try:
        begin = "PS1='> '; fpath=($PWD $fpath); autoload -U compinit; compinit -u -D; print re''ady\r"
        os.write(terminal, begin.encode())
        _read_until(terminal, "ready\r\n")
        os.write(terminal, f"{typed}\t".encode())
        return wanted in _read_until(terminal, wanted)
    finally:
        os.close(terminal)
        os.waitpid(process, 0)


def _read_until(terminal: int, wanted: str) -> str:
    output, end = "", time.monotonic() + 60
    while wanted not in output and time.monotonic() < end:
        if select.select([terminal], [], [], 1)[0]:
            output += os.read(terminal, 4096).decode(errors="replace")
    return output


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("line", "offered"), CASES)
def test_bash_completes(workplace: Path, line: str, offered: set[str]) -> None:
    assert offered_by_bash(line) == offered


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
@pytest.mark.parametrize(("line", "offered"), CASES)
def test_fish_completes(workplace: Path, line: str, offered: set[str]) -> None:
    assert offered_by_fish(line) == offered


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
@pytest.mark.parametrize(("line", "offered"), CASES)
def test_zsh_completes(workplace: Path, line: str, offered: set[str]) -> None:
    (word,) = offered
    assert zsh_shows(line, f"{line.rpartition(' ')[0]} {word}")


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_prints_the_script(capsys: pytest.CaptureFixture[str], shell: str) -> None:
    assert cli.main(["completion", shell]) == 0
    out = capsys.readouterr().out
    assert out == completion(shell)
    assert all(name in out for name in cli.COMMANDS)


def test_an_unknown_shell() -> None:
    with pytest.raises(UsageError, match=r"no completion for 'tcsh'; did you mean zsh\?|choose one of"):
        completion("tcsh")
    assert cli.main(["completion"]) == 2
