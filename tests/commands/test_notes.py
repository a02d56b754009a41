"""Commands report options that have no effect: on stderr, for every command, and for job files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.hostile import document, make_tree, picture
from PIL import Image

from shardwright.pipelines import cli

Capture = pytest.CaptureFixture[str]
SPLITS = "train=0.5,test=0.5"
NAMED = "--splits has no effect because the source names the split of every image."


@pytest.fixture
def split_folders(tmp_path: Path) -> Path:
    for split in ("train", "test"):
        for name in ("ant", "bee"):
            folder = tmp_path / "split" / split / name
            folder.mkdir(parents=True)
            for i in range(3):
                (folder / f"{i}.png").write_bytes(
                    picture(len(split) * 10 + len(list(tmp_path.rglob("*.png"))))
                )
    return tmp_path / "split"


def notes(capsys: Capture) -> list[str]:
    lines = capsys.readouterr().err.splitlines()
    return [line.removeprefix("shardwright: note: ") for line in lines if "note: " in line]


def test_convert_and_plan_report_options_without_effect(capsys: Capture, tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "in")
    options = ["--fit", "pad", "--resample=box", "--splits", SPLITS, "--strip_metadata=false"]
    wanted = ["--fit has no effect without --resize.", "--resample has no effect without --resize."]
    assert cli.main(["plan", str(tree), *options]) == 0
    assert notes(capsys) == wanted
    assert cli.main(["convert", str(tree), str(tmp_path / "out"), *options]) == 0
    assert notes(capsys) == wanted
    assert document(tmp_path / "out")["splits"].keys() == {"train", "test"}


def test_splits_are_reported_without_effect_if_the_source_names_them(
    capsys: Capture, tmp_path: Path, split_folders: Path
) -> None:
    assert cli.main(["plan", str(split_folders), "--splits", SPLITS]) == 0
    assert notes(capsys) == [NAMED]
    assert cli.main(["plan", str(split_folders)]) == 0
    assert notes(capsys) == []
    assert cli.main(["plan", str(split_folders), "--splits", SPLITS, "--json"]) == 0
    assert NAMED in json.loads(capsys.readouterr().out)["warnings"]
    assert cli.main(["convert", str(split_folders), str(tmp_path / "out"), "--splits", SPLITS]) == 0
    captured = capsys.readouterr()
    assert f"shardwright: note: {NAMED}" in captured.err and f"warning: {NAMED}" in captured.out


def test_rebuild_reports_settings_of_a_job_file_without_effect(capsys: Capture, tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "in")
    job = tmp_path / "job.yaml"
    job.write_text(f"input: {tree}\noutput: {tmp_path / 'out'}\nfit: pad\nkeep: 0\nkeep_days: 3\n")
    assert cli.main(["rebuild", str(job)]) == 0
    assert notes(capsys) == [
        "keep_days has no effect with keep: 0, which keeps all versions.",
        "--fit has no effect without --resize.",
    ]
    assert cli.main(["rebuild", str(job), "--log_format", "json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    assert any("--fit has no effect" in json.dumps(line) for line in lines)


def test_inspect_reports_thumbnails_without_a_sheet(capsys: Capture, sound_dataset: Path) -> None:
    assert cli.main(["inspect", str(sound_dataset), "--thumbnails", "9"]) == 0
    assert notes(capsys) == ["--thumbnails has no effect without --contact_sheet."]
    assert cli.main(["inspect", str(sound_dataset)]) == 0
    assert notes(capsys) == []


def test_convert_reports_a_background_that_no_picture_shows(capsys: Capture, tmp_path: Path) -> None:
    """Opaque pictures show no background, even with an alpha channel; padding and transparent pixels do."""
    opaque, through = tmp_path / "opaque", tmp_path / "through"
    for folder, alpha in ((opaque, 255), (through, 254)):
        (folder / "ant").mkdir(parents=True)
        Image.new("RGBA", (12, 8), (9, 9, 9, alpha)).save(folder / "ant" / "a.png")
        Image.new("RGB", (12, 8), (7, 9, 9)).save(folder / "ant" / "b.png")
    noted = []
    for folder, options in ((opaque, []), (opaque, ["--resize=8", "--fit=pad"]), (through, [])):
        out = tmp_path / f"out{len(noted)}"
        given = ["convert", str(folder), str(out), "--background", "#ff0000", *options]
        assert cli.main(given) == 0
        noted.append(
            "note: --background has no effect because no image was padded" in capsys.readouterr().out
        )
    assert noted == [True, False, False]
