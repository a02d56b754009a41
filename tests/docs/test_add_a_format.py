"""The package that docs/add-a-format.md builds is installed and run as the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.listing import Photo, put_photos
from helpers.records import examples, quarantine, value, values
from helpers.repository import ROOT

from shardwright.pipelines import cli
from shardwright.schemas.plugins import entry_points_by_group
from shardwright.transforms.sources.source import plugin_sources

PAGE = (ROOT / "docs" / "add-a-format.md").read_text()
FILES = dict(re.findall(r"```(?:python|toml) title=\"(\S+)\"\n(.*?)```", PAGE, re.DOTALL))
(COMMAND,) = re.findall(r"^    shardwright (convert .*)$", PAGE, re.MULTILINE)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Installs the package of the page."""
    (tmp_path / "package").mkdir()
    for name, text in FILES.items():
        (tmp_path / "package" / name).write_text(text)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    options = ["--disable-pip-version-check", f"--target={tmp_path / 'site'}"]
    subprocess.run([*command, *options, str(tmp_path / "package")], check=True)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    for cached in (plugin_sources, entry_points_by_group):
        cached.cache_clear()
    yield
    for cached in (plugin_sources, entry_points_by_group):
        cached.cache_clear()
    sys.modules.pop("acme_boxes", None)


@pytest.fixture
def crates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Photo]:
    """Photos in the format of the page, in the folder that its command names."""
    monkeypatch.chdir(tmp_path)
    photos = put_photos(tmp_path / "crates" / "images")
    (tmp_path / "crates" / "boxes").mkdir()
    for photo in photos:
        lines = [" ".join(map(str, box)) for box in photo.boxes]
        (tmp_path / "crates" / "boxes" / photo.name).with_suffix(".box").write_text("\n".join(lines))
    return photos


@pytest.mark.usefixtures("installed")
def test_the_format_is_read(tmp_path: Path, crates: list[Photo]) -> None:
    (tmp_path / "crates" / "boxes" / "house.box").write_text("thing 1 2 3 4\nthing 1 2 3 four\n")
    assert cli.main([*COMMAND.split(), "--max_bad_fraction", "1"]) == 0
    ((key, line),) = quarantine(tmp_path / "out").items()
    assert key == "images/house.jpg"
    assert line["message"] == "house.box: line 2 is not a class and four numbers"
    photos = {f"images/{photo.name}": photo for photo in crates}
    (records,) = examples(tmp_path / "out").values()
    assert {value(record, "image/filename") for record in records} == photos.keys() - {key}
    for record in records:
        photo = photos[value(record, "image/filename")]
        left = values(record, "image/object/bbox/xmin")
        assert left == pytest.approx([box[1] / photo.size[0] for box in photo.boxes])
