"""`shardwright completion`: the shells themselves complete commands, options, values and files."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from shardwright.pipelines import cli
from shardwright.pipelines.completion import SHELLS, completion
from shardwright.schemas.errors import UsageError

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
        Path("_shardwright" if shell == "zsh" else f"script.{shell}").write_text(completion(shell).script)
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
    assert out == completion(shell).script
    assert all(name in out for name in cli.COMMANDS)


def test_an_unknown_shell() -> None:
    with pytest.raises(UsageError, match=r"no completion for 'tcsh'; did you mean zsh\?|choose one of"):
        completion("tcsh")
    assert cli.main(["completion"]) == 2
