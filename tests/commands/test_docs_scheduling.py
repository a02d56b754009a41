"""The examples of docs/scheduling.md, in the order in which a team would run them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml
from helpers.repository import PHOTOS, ROOT

from shardwright.pipelines import cli
from shardwright.pipelines.job_file import read_job

TEXT = (ROOT / "docs" / "scheduling.md").read_text()
BLOCKS = dict(re.findall(r"```yaml\n# (\S+)\n(.*?)```", TEXT, re.DOTALL))
#: An indented command whose comment states the exit code, or a block of Python.
EXAMPLE = re.compile(
    r"^ {4}shardwright (?P<command>[^#\n]+)(?:#[^\n]*?(?:exit code (?P<code>\d))?)?$"
    r"|```python\n(?P<python>.*?)```",
    re.DOTALL | re.MULTILINE,
)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "photos").symlink_to(PHOTOS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_examples_run(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Commands end as the page states; VERSION is the newest version."""
    tried = []
    for match in EXAMPLE.finditer(TEXT):
        if match["python"]:
            exec(compile(match["python"], "scheduling.md", "exec"), {"__name__": "__main__"})
            continue
        newest = max((path.name for path in (workplace / "pets" / "versions").glob("*Z")), default="")
        arguments = shlex.split(match["command"].replace("VERSION", newest))
        code = cli.main(arguments)
        assert code == int(match["code"] or 0), (arguments, capsys.readouterr().err)
        tried.append(arguments[0])
    assert {"init", "rebuild", "versions", "diff", "report", "publish", "rollback"} <= set(tried)
    assert "nothing changed" in capsys.readouterr().out


def test_the_parts_of_job_files_are_valid(tmp_path: Path) -> None:
    for name in ("gates.yaml", "hooks.yaml"):
        (tmp_path / name).write_text(f"input: photos\noutput: pets\n{BLOCKS[name]}")
        job = read_job(str(tmp_path / name), environ={})
        assert job.hooks or job.gates.limits.max_count_drop == 0.1


def test_the_alerts_ask_for_metrics_that_a_rebuild_writes(workplace: Path) -> None:
    assert cli.main(["rebuild", "--input=photos", "--output=pets", "--resize=16", "--limit=5"]) == 0
    written = (workplace / "pets" / "metrics.prom").read_text()
    (group,) = yaml.safe_load(BLOCKS["alerts.yaml"])["groups"]
    for rule in group["rules"]:
        (name,) = re.findall(r"shardwright_\w+", rule["expr"])
        assert f"\n{name}{{dataset=" in f"\n{written}", rule
        assert "$labels.dataset" in rule["annotations"]["summary"]
    assert 'outcome="refused"' in written
    assert len(group["rules"]) == 2


def test_the_named_files_exist() -> None:
    for path in re.findall(r"deploy/[\w/.-]+", TEXT):
        assert (ROOT / path).exists(), path
