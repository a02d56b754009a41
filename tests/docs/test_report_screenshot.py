"""The picture of the report is taken with Chromium, and stays where there is none."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from helpers.headless import CHROMIUM
from helpers.repository import ROOT
from PIL import Image

#: The repository stays small.
MAX_BYTES = 150_000


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "report_screenshot", ROOT / "docs" / "site_build" / "report_screenshot.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["report.webp", "demo.png"])
def test_a_stored_picture_is_small(name: str) -> None:
    picture = ROOT / "docs" / name
    assert picture.stat().st_size <= MAX_BYTES
    with Image.open(picture) as image:
        assert min(image.size) > 500


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.slow
def test_the_picture_shows_the_report(script: ModuleType, tmp_path: Path) -> None:
    target = tmp_path / "report.webp"
    assert script.main([str(target)]) == 0
    assert target.stat().st_size <= MAX_BYTES
    with Image.open(target) as image, Image.open(ROOT / "docs" / "report.webp") as stored:
        assert image.size == stored.size
        left, right = image.crop((0, 0, 1200, 1380)), image.crop((1200, 0, 2400, 1380))
    assert all(len(half.convert("RGB").getcolors(1 << 24)) > 200 for half in (left, right))


def test_without_chromium_the_picture_stays(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "report.webp"
    target.write_bytes(b"stored")
    monkeypatch.setenv("PATH", "")
    assert script.main([str(target)]) == 0
    assert "stays as it is, because Chromium is not installed" in capsys.readouterr().out
    assert target.read_bytes() == b"stored"
