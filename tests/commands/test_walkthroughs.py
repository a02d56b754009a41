"""The commands and programs of a page that is read from top to bottom run one after the other."""

from __future__ import annotations

import io
import json
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from helpers.fewer_imports import late
from helpers.listing import Photo, put_photos
from helpers.records import examples, quarantine, value, values
from helpers.repository import PHOTOS, ROOT
from PIL import Image

from shardwright.core.sources.source import plugin_sources
from shardwright.pipelines import cli
from shardwright.schemas.plugins import entry_points_by_group

tf = late("tensorflow")

DOCS = ROOT / "docs"
PAGES = [
    "getting-started.md",
    *sorted(f"coming-from/{path.name}" for path in (DOCS / "coming-from").iterdir()),
]
#: A block of Python, or an indented command with the exit code that its comment tells.
STEP = re.compile(
    r"```python\n(?P<python>.*?)```"
    r"|^ {4}(?P<command>(?:shardwright|cp) [^#\n]+)(?:#[^\n]*?(?:exit code (?P<code>\d))?)?$",
    re.DOTALL | re.MULTILINE,
)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the pages are about, where they are run."""
    shutil.copytree(PHOTOS, tmp_path / "photos")
    shutil.copytree(PHOTOS, tmp_path / "examples" / "photos")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def photos() -> list[Path]:
    return sorted(path.relative_to(PHOTOS) for path in PHOTOS.glob("*/*"))


def split_of(number: int) -> str:
    return "validation" if number % 10 == 8 else "test" if number % 10 == 9 else "train"


def write_by_split(folder: Path) -> None:
    """Writes what TFRecorder and ImageFolder read: folders of splits and classes, and a CSV file."""
    rows = ["split,image_uri,label"]
    for number, path in enumerate(photos()):
        place = folder / "photos_by_split" / split_of(number) / path
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PHOTOS / path, place)
        rows.append(f"{split_of(number).upper()},photos/{path},{path.parent.name}")
    (folder / "photos.csv").write_text("\n".join(rows) + "\n")


def write_downloads(folder: Path) -> None:
    """Writes what img2dataset writes as files, as a WebDataset and as TFRecords."""
    for name in ("output_folder/00000", "tars", "tfrecords"):
        (folder / name).mkdir(parents=True)
    with (
        tarfile.open(folder / "tars" / "00000.tar", "w") as tar,
        tf.io.TFRecordWriter(str(folder / "tfrecords" / "00000.tfrecord")) as records,
    ):
        for number, path in enumerate(photos()):
            buffer = io.BytesIO()
            with Image.open(PHOTOS / path) as image:
                image.convert("RGB").resize((256, 256)).save(buffer, "JPEG")
                sizes = {"width": 256, "height": 256, "original_width": image.width}
            texts = {"url": f"https://a.b/{path.name}", "key": f"{number:09d}", "status": "success"}
            for suffix, content in (("jpg", buffer.getvalue()), ("json", json.dumps(texts | sizes).encode())):
                (folder / "output_folder" / "00000" / f"{number:09d}.{suffix}").write_bytes(content)
                member = tarfile.TarInfo(f"{number:09d}.{suffix}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
            values = {"jpg": buffer.getvalue(), **{name: text.encode() for name, text in texts.items()}}
            features = {
                k: tf.train.Feature(bytes_list=tf.train.BytesList(value=[v])) for k, v in values.items()
            }
            for name, size in sizes.items():
                features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=[size]))
            example = tf.train.Example(features=tf.train.Features(feature=features))
            records.write(example.SerializeToString())


def steps(page: str) -> Iterator[re.Match[str]]:
    return STEP.finditer((DOCS / page).read_text().replace(" \\\n", " "))


def is_installed(block: str) -> bool:
    """Returns whether the programs that a block imports are here."""
    return all(find_spec(name) for name in re.findall(r"^(?:import|from) (\w+)", block, re.MULTILINE))


def check_last_rebuild(versions: Path) -> None:
    """Checks what the page says of the last run: only the shard with the new image was written."""
    newest = max((versions / "versions").glob("*Z"))
    work = json.loads((newest / "version.json").read_text())["work"]
    assert (work["shards"], work["reused_shards"], work["converted"]) == (2, 1, 1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("page", PAGES)
def test_a_walkthrough_runs(page: str, workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if page == "getting-started.md":
        shutil.rmtree("photos")  # the page copies them
    if page == "coming-from/img2dataset.md":
        write_downloads(workplace)
    write_by_split(workplace)
    names: dict[str, Any] = {"__name__": "__main__"}
    skipped, commands = [], []
    for step in steps(page):
        if step["python"]:
            if not is_installed(step["python"]):
                skipped.append(step["python"])
                continue
            exec(compile(step["python"], page, "exec"), names)
        elif step["command"].startswith("cp "):
            subprocess.run(shlex.split(step["command"]), check=True)
        else:
            words = shlex.split(step["command"])[1:]
            commands.append(words[0])
            assert cli.main(words) == int(step["code"] or 0), (words, capsys.readouterr().err)
            if page == "getting-started.md" and commands in (["plan"], ["plan", "convert"]):
                assert "warning" not in capsys.readouterr().out, "the first example is one that works"
    assert commands
    if page == "getting-started.md":
        check_last_rebuild(workplace / "garden")
        model, train = names["model"], names["train"]
        assert model.optimizer.iterations == 2 * int(train.cardinality())
    assert len(skipped) == (page == "coming-from/tfrecorder.md")


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
