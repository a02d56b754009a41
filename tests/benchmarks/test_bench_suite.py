"""The command line of benchmarks, the list of all, and the images that they make."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import inputs
import make_photos
import pytest
from bench import SUITE, expected_minutes
from command import Benchmark, Found, parse_options, run_benchmark
from history import load_history
from PIL import Image
from results import Run, result_of

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


def test_the_time_is_that_of_the_last_run_of_each() -> None:
    runs = [Run("rebuild", "full", "", (), minutes=minutes) for minutes in (3.0, 7.0)]
    runs.append(Run("archives", "quick", "", (), minutes=100.0))
    assert expected_minutes(["rebuild"], "full", runs) == 7.0
    assert expected_minutes(["rebuild", "archives"], "full", runs) == 7.0 + SUITE["archives"][1]


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
