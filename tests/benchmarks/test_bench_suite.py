"""The command line of benchmarks, the list of all, and the images that they make."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import replace
from pathlib import Path

import bench
import inputs
import make_photos
import pytest
from bench import SUITE, expected_minutes
from command import Benchmark, Found, parse_options, run_benchmark
from history import load_history
from PIL import Image
from results import Result, Run, result_of
from scale import growing

_HERE = Path(inputs.__file__).parent


def measure(options: argparse.Namespace) -> Found:
    results = [result_of("convert", "time", "s", [float(options.count)] * options.rounds)]
    return Found("some images", results, {"peer": "not installed"}, {"peer": "1.0"})


BENCHMARK = Benchmark("some", "Measures.", measure, {"count": 5}, {"count": 100, "rounds": 3, "sides": "224"})


def test_every_benchmark_is_a_program_with_the_shared_command_line() -> None:
    for name in SUITE:
        text = (_HERE / f"{name}.py").read_text()
        assert f'    "{name}",\n' in text, f"{name}.py has another name"
        assert "run_benchmark(BENCHMARK)" in text
        assert f"| `{name}` |" in (_HERE / "README.md").read_text(), f"README.md does not explain {name}"
    programs = {path.stem for path in _HERE.glob("*.py") if "\nBENCHMARK = " in path.read_text()}
    assert programs == set(SUITE)


def test_sizes_are_defaults_of_options() -> None:
    full, quick = parse_options(BENCHMARK, []), parse_options(BENCHMARK, ["--quick", "--sides=64"])
    assert (full.count, full.rounds, full.sides, full.own) == (100, 3, "224", {})
    assert (quick.count, quick.rounds, quick.own) == (5, 3, {"sides": "64"})


def test_a_run_is_recorded_with_machine_and_versions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = tmp_path / "history.jsonl"
    assert run_benchmark(BENCHMARK, [f"--record={history}", "--quick", "--sides=64"]) == 0
    (run,) = load_history(history)
    assert (run.benchmark, run.size, run.input) == ("some", "quick", "some images, sides 64")
    assert run.results == (result_of("convert", "time", "s", [5.0, 5.0, 5.0]),)
    assert run.machine["cores"].isdigit()
    assert {"peer", "shardwright", "pillow"} <= run.versions.keys()
    assert "| some | peer | not installed |" in capsys.readouterr().out
    assert json.loads(history.read_text())["when"].endswith("Z")


def test_programs_write_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    seen: list[str | None] = []

    def look(options: argparse.Namespace) -> Found:
        seen.append(os.environ.get("PYTHONDONTWRITEBYTECODE"))
        return measure(options)

    run_benchmark(replace(BENCHMARK, measure=look), [])
    assert seen == [None]


def test_the_time_is_that_of_the_last_run_of_each() -> None:
    runs = [Run("rebuild", "full", "", (), minutes=minutes) for minutes in (3.0, 7.0)]
    runs.append(Run("archives", "quick", "", (), minutes=100.0))
    assert expected_minutes(["rebuild"], "full", runs) == 7.0
    assert expected_minutes(["rebuild", "archives"], "full", runs) == 7.0 + SUITE["archives"][1]


_FAKE = """
import argparse, json, sys
parser = argparse.ArgumentParser()
parser.add_argument("--record")
parser.add_argument("--quick", action="store_true")
options = parser.parse_args()
assert options.quick
line = {"benchmark": "NAME", "size": "quick", "input": "", "when": "2026-11-21T08:00:00Z"}
result = {"subject": "all", "measure": "time", "unit": "s", "value": 1.0, "least": 1.0, "most": 1.0}
open(options.record, "a").write(json.dumps({**line, "results": [result]}) + chr(10))
sys.exit(EXIT)
"""


def test_all_benchmarks_give_one_table_and_lines_of_the_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, code in (("good", "0"), ("bad", "1")):
        (tmp_path / f"{name}.py").write_text(_FAKE.replace("NAME", name).replace("EXIT", code))
    monkeypatch.setattr(bench, "HERE", tmp_path)
    monkeypatch.setattr(bench, "SUITE", {"good": (1, 2), "bad": (3, 4)})
    history = tmp_path / "history.jsonl"
    monkeypatch.setattr("sys.argv", ["bench.py", "--quick", f"--history={history}"])
    assert bench.main() == 1
    assert [run.benchmark for run in load_history(history)] == ["good", "bad"]
    out, err = capfd.readouterr()
    assert [line.split(" | ")[0] for line in out.splitlines()[2:]] == ["| good", "| bad"]
    assert "2 benchmarks, about 4 minutes in all" in err
    assert "Failed: bad." in err


def test_a_step_that_grows_faster_than_the_data_is_named() -> None:
    def result(step: str, measure: str, ratio: float) -> Result:
        return result_of(step, measure, "s", [1.0], ratio, "a tenth")

    results = [result("convert", "processor time", 10.9), result("convert", "peak", 1.1)]
    assert growing(results) == {}
    results += [result("validate", "processor time", 40.0), result("validate", "time", 50.0)]
    assert growing(results) == {"validate": "processor time grows 40.0 times with ten times the data"}


def test_images_are_made_once_and_described(tmp_path: Path) -> None:
    Image.effect_noise((1000, 1000), 60).convert("RGB").save(tmp_path / "large.png")
    options = argparse.Namespace(photos=None, source=tmp_path, work=tmp_path / "work")
    made = inputs.photos(options, 6, "--pieces=40x30", "--classes=3")
    assert made.count == 6
    assert made.text.startswith("6 JPEGs of 40x30, ")
    assert made.text.endswith(f"kB each, cut from {tmp_path.name}")
    files = sorted(made.folder.glob("class*/*.jpg"))
    assert len({path.parent for path in files}) == 3
    assert {Image.open(path).size for path in files} == {(40, 30)}
    assert len({path.read_bytes() for path in files}) == 6
    before = [path.stat().st_mtime_ns for path in files]
    assert inputs.photos(options, 6, "--pieces=40x30", "--classes=3") == made
    assert [path.stat().st_mtime_ns for path in files] == before
    options.photos = made.folder
    assert inputs.photos(options, 1000).count == 6


def test_an_empty_folder_of_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="has no class folders"):
        inputs.photos(argparse.Namespace(photos=tmp_path), 3)


def test_generated_pictures_depend_on_their_number_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_photos, "GENERATED_SIZE", (200, 150))
    monkeypatch.setattr(make_photos, "DISCS", 50)
    first = make_photos.generate_source(1)
    assert first.size == (200, 150)
    assert first.tobytes() == make_photos.generate_source(1).tobytes()
    assert first.tobytes() != make_photos.generate_source(2).tobytes()
