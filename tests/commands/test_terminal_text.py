"""What a terminal shows: help of any width, completion by the shells, findings, numbers in messages."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.hostile import Terminal
from helpers.repository import ROOT, ran

from shardwright.pipelines import cli, results
from shardwright.pipelines.completion import SHELLS, completion
from shardwright.pipelines.help_text import examples_text, print_help
from shardwright.pipelines.results import example_line, print_findings
from shardwright.pipelines.tables import console, warn
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.configuration.setting import Topic
from shardwright.schemas.configuration.settings import CONVERT_SETTINGS
from shardwright.schemas.findings import CheckRun, Finding, FindingSummary, Gates, ValidationReport, Where
from shardwright.schemas.json_values import from_json

Capture = pytest.CaptureFixture[str]


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
        assert re.search(r"^examples?:\n  (# |shardwright )", text, re.MULTILINE), name
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
    for name, item in CONVERT_SETTINGS.items():
        assert name in groups[item.topic.value]
    assert {name for topic in topics for name in groups[topic]} >= {*CONVERT_SETTINGS, "job", "json", "help"}
    assert all(len(groups[topic]) >= 2 for topic in topics)
    running = groups["running"]
    for name in cli.COMMANDS:
        assert groups_of(help_of(capsys, name))["running"][-6:] == running[-6:]
    assert running[-6:] == ["json", "quiet", "log_format", "verbose", "stuck_after", "help"]


def test_choices_that_do_not_fit_are_in_the_text(capsys: Capture) -> None:
    text = " ".join(help_of(capsys, "convert").split())
    assert "--source SOURCE the kind of input" in text and "box_table, parquet, manifest, cvat" in text
    assert "--fit {stretch,contain,cover,fit,pad}" in text


def test_a_long_example_is_one_that_a_shell_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    command = "shardwright convert photos/ out/ --resize 224 --splits train=0.9,test=0.1 --overwrite"
    text = examples_text(command)
    assert text.startswith("example:\n  shardwright") and max(map(len, text.splitlines())) <= 60
    assert " ".join(text.replace("\\\n", " ").removeprefix("example:").split()) == command
    assert re.search(r"--splits train", text), "an option stays with its value"


def test_colors_change_nothing_else(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in cli.COMMANDS:
        plain = help_of(capsys, name)
        assert "\x1b" not in plain
        terminal = Terminal()
        print_help(plain, terminal)
        shown = terminal.getvalue()
        assert re.sub(r"\x1b\[\d+m", "", shown) == plain
        assert "\x1b[1mrunning:\x1b[0m" in shown and "\x1b[36m--json\x1b[0m" in shown
    for name, value in (("TERM", "dumb"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
        terminal = Terminal()
        print_help(plain, terminal)
        assert terminal.getvalue() == plain
        monkeypatch.setenv("TERM", "xterm-256color")
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
def completing(workplace: Path) -> None:
    """The current folder has a file and the scripts."""
    Path("findings.json").touch()
    for shell in SHELLS:
        # zsh finds functions by the names of their files.
        Path("_shardwright" if shell == "zsh" else f"script.{shell}").write_text(completion(shell))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("line", "offered"), CASES)
@pytest.mark.usefixtures("completing")
def test_bash_completes(line: str, offered: set[str]) -> None:
    words = line.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    script = (
        f"source script.bash; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; COMP_LINE='{line}'; "
        f"COMP_POINT={len(line)}; _shtab_shardwright shardwright '{words[-1]}' '{words[-2]}'; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = ran("bash", "-c", script, check=True)
    assert set(done.stdout.split()) == offered


@pytest.mark.sampled(3)
@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
@pytest.mark.parametrize(("line", "offered"), CASES)
@pytest.mark.usefixtures("completing")
def test_fish_completes(line: str, offered: set[str]) -> None:
    done = ran("fish", "--no-config", "-c", f"source script.fish; complete -C '{line}'", check=True)
    assert {candidate.split("\t")[0] for candidate in done.stdout.splitlines()} == offered


#: Types a line and Tab into another zsh, and waits until that shows some words.
_IN_ZSH = """
zmodload zsh/zpty
zpty inner zsh -f -i
zpty -w inner 'fpath=($PWD $fpath); autoload -U compinit; compinit -u -D; print rea""dy'
zpty -r -m inner shown '*ready*'
zpty -w -n inner "$1"$'\\t'
zpty -r -m inner shown "*${(j:*:)@[2,-1]}*"
"""


@pytest.mark.sampled(3)
@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
@pytest.mark.parametrize(("line", "offered"), CASES)
@pytest.mark.usefixtures("completing")
def test_zsh_completes(line: str, offered: set[str]) -> None:
    ran("zsh", "-f", "-c", _IN_ZSH, "zsh", line, *sorted(offered), check=True)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_prints_the_script(capsys: Capture, shell: str) -> None:
    assert cli.main(["completion", shell]) == 0
    out = capsys.readouterr().out
    assert out == completion(shell)
    assert all(name in out for name in cli.COMMANDS)


KEY = "train/a folder with a long name/and another one/picture number 1234567.jpeg"
CONFLICT = Finding(
    FindingCode.LABEL_CONFLICT,
    "same source bytes as record 3 of s-0, of class 'cat', not 'dog'",
    "s-1", 4, 120, "dog/7.jpg", Where("s-0", 3, 90, "cat/1.jpg"),
)  # fmt: skip
DARK = Finding(
    FindingCode.DARK, "99% of its pixels are darker than 0.1 of white (limit 0.32)", "s-1", 5, 9, KEY
)
BROKEN = Finding(FindingCode.DATA_CRC, "the checksum of its bytes is wrong", "s-1", 7, 300)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("COLORTERM", raising=False)
    out = Terminal()
    monkeypatch.setattr(results, "console", lambda: console(out))
    return out


def report_of(*findings: Finding, depth: str = "full", **more: object) -> ValidationReport:
    summary = FindingSummary().add(findings)
    return ValidationReport(
        "out", depth, "f", 2, 1234, 5000, summary.by_code(), summary.by_place(), **more,  # type: ignore[arg-type]
    )  # fmt: skip


def test_counts_come_before_examples(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # a pipe gets none in any case
    many = [Finding(FindingCode.DATA_CRC, "wrong", "s-2", 10 + n, n, f"k{n}") for n in range(1200)]
    print_findings(report_of(*many, CONFLICT, BROKEN, DARK))
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "  1,201 DATA_CRC (error)",
        "      1 LABEL_CONFLICT (warning)",
        f"      1 DARK (note); such as: {KEY}",
    ]
    assert lines[4] == "  DATA_CRC s-1, record 7, byte 300: the checksum of its bytes is wrong"
    assert [line.split()[1] for line in lines[5:7]] == ["k0:", "k1:"]
    assert lines[7] == (
        "  LABEL_CONFLICT dog/7.jpg: same source bytes as cat/1.jpg, "
        "of class 'cat', not 'dog' [s-1, record 4, byte 120]"
    )
    assert lines[8] == "  and 1,198 more"
    assert lines[-2] == (
        "  out: NOT SOUND; 1,234 records in 2 shards, 5.0 kB; 1,201 errors, 1 warning, 1 note"
    )
    assert lines[-1] == "  --report FILE writes all notes to a file"


def blurry(number: int, score: float) -> Finding:
    """A note about an image."""
    return Finding(FindingCode.BLURRY, "blurry", "s-1", number, number, f"k{number}", score=score)


def test_a_note_has_one_line_for_its_code_with_the_worst_images(capsys: Capture) -> None:
    notes = [blurry(number, (number * 7 % 500) / 1000) for number in range(500)]
    print_findings(report_of(*notes, DARK, depth="quality"), stored=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "  500 BLURRY (note); the worst: k0, k143, k286, ...",
        f"    1 DARK (note); such as: {KEY}",
        "",
        "  out: Sound; 1,234 records in 2 shards, 5.0 kB; 501 notes",
    ]
    print_findings(report_of(blurry(1, 0.1), gates=Gates(("BLURRY",))))
    assert "\n  BLURRY k1: blurry [s-1, record 1, byte 1]\n" in capsys.readouterr().out, "an error is listed"


def test_a_score_is_stored_with_its_finding() -> None:
    made = blurry(3, 0.25)
    assert made.as_json()["score"] == 0.25 and from_json(Finding, made.as_json()) == made
    assert "score" not in DARK.as_json() and from_json(Finding, DARK.as_json()) == DARK


def test_on_a_terminal_an_example_is_one_line_and_its_key_is_whole(terminal: Terminal) -> None:
    gates = Gates((), ("DARK",))  # a note would not be listed
    print_findings(report_of(CONFLICT, DARK, gates=gates), stored=True)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()).splitlines()
    conflict, dark = (next(line for line in shown if line.startswith(f"  {code} ")) for code in
                      ("LABEL_CONFLICT", "DARK"))  # fmt: skip
    assert len(conflict) == 80 and conflict.endswith("...")
    assert "dog/7.jpg: same source bytes as cat/1.jpg" in conflict
    assert KEY in dark and dark.endswith("...")
    print_findings(report_of(CONFLICT), stored=False)
    assert "byte 120]" in terminal.getvalue(), "nowhere else could one read it"


def test_colors_on_a_terminal(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    print_findings(report_of(BROKEN))
    assert "\x1b[1;31mNOT SOUND\x1b[0m" in terminal.getvalue()
    print_findings(report_of(CONFLICT))
    assert "\x1b[33mno errors, but warnings\x1b[0m" in terminal.getvalue()
    warn(console(terminal), "two classes\x1b[2J")
    assert "\x1b[33mwarning\x1b[0m: two classes\\x1b[2J" in terminal.getvalue()
    terminal.truncate(0)
    monkeypatch.setenv("NO_COLOR", "1")
    print_findings(report_of(BROKEN, CONFLICT))
    assert "\x1b" not in terminal.getvalue() and "NOT SOUND" in terminal.getvalue()


def test_a_dataset_with_only_notes_is_sound(capsys: Capture) -> None:
    for report, message in (
        (report_of(DARK, depth="quality"), "out: Sound; "),
        (report_of(depth="fast"), "out: Sound, but images were not decoded; "),
        (report_of(DARK, gates=Gates((), ("DARK",))), "out: no errors, but warnings; "),
        (report_of(DARK, gates=Gates(("DARK",))), "out: NOT SOUND; "),
    ):
        print_findings(report)
        assert message in capsys.readouterr().out


def test_findings_of_an_earlier_check_are_marked(capsys: Capture) -> None:
    time = "2026-10-05T14:03:20Z"
    past = CheckRun("quality", time, (), {"DATA_CRC": 1, "LABEL_CONFLICT": 3})
    print_findings(
        ValidationReport(
            "out", "fast", "f", 1, 1, 1, {"DATA_CRC": 1, "LABEL_CONFLICT": 3}, (CONFLICT, BROKEN),
            found={"LABEL_CONFLICT": 1}, previous=(past,), time="2026-10-06T00:00:00Z",
        )
    )  # fmt: skip
    out = capsys.readouterr().out
    assert "1 DATA_CRC (error), found by the quality check of 2026-10-05 14:03 UTC" in out
    assert "3 LABEL_CONFLICT (warning), 2 of them found by the quality check of 2026-10-05" in out
    assert "NOT SOUND" in out and "The exit code is 0 because this check did not look for them." in out


def test_a_finding_about_the_dataset_has_no_place() -> None:
    finding = Finding(FindingCode.EMPTY_SPLIT, "split 'test' has no records")
    assert example_line(finding) == "split 'test' has no records"
    assert example_line(Finding(FindingCode.SHARD_MISSING, "it is missing", "s-1")) == "s-1: it is missing"


_NOUNS = (
    "shard image record file class split version finding error warning note object box point corner channel "
    "cell picture label key category segment worker process thread row"
)
_VERBS = "(?!has |have |holds |of |and |with )"
_THINGS = rf"((\w+ )?({'|'.join(_NOUNS.split())})(s|es)|categories|entries)\b"
_PLURAL = re.compile(rf"(?<!more than )(?<!at least )\{{[^{{}}]*\}} {_VERBS}{_THINGS}")
#: A text that can contain such a message. To parse all modules takes seconds.
_CAN_BE_PLURAL = re.compile(rf"\}}[\"'\s\\rf(]* {_THINGS}")
#: Messages whose number is never 1, or that print something else in this place.
_OTHERS = (
    "images/s", "{total:,} images", "channels, not 1, 3 or 4", "{_MAX_FILES} files", "{have} images",
    "without images", "or {command} its files", "differ')} between splits", "percentage points",
    "one with shardwright", "{len(DIGITS)} splits", "{self.mode} splits", "{self.channels} channels",
    "{samples} channels that are not gray", "{self.map} receives pictures", "{does} its images",
    "channels after N or last", "{only} panoptic", "'many')} cells",
)  # fmt: skip


def numbers_of_things(text: str) -> Iterator[tuple[int, str]]:
    """Yields line and text for each number that a module prints before a plural."""
    if not _CAN_BE_PLURAL.search(text):
        return
    for node in ast.walk(ast.parse(text)):
        code = ast.unparse(node) if isinstance(node, ast.JoinedStr) else ""
        if _PLURAL.search(code) and not any(item in code for item in _OTHERS):
            yield node.lineno, code  # type: ignore[attr-defined]


def test_no_message_says_1_shards() -> None:
    for text, found in (
        ('f"{len(rows)} shards are left"', 1),
        ('f"it has {count:,} bad boxes"', 1),
        ("f\"{counted(len(rows), 'shard')} left\"", 0),
        ('f"it has more than {number} shards"', 0),
    ):
        assert len(list(numbers_of_things(text))) == found
    assert [
        (path.relative_to(ROOT).as_posix(), *item)
        for room in ("pipelines", "loader", "transforms", "core", "schemas")
        for path in sorted((ROOT / room).rglob("*.py"))
        for item in numbers_of_things(path.read_text())
    ] == []
