"""Users' code in whole runs: `--map`, and the package in examples/plugin once it is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.depths import compared, findings_of
from helpers.fewer_imports import late
from helpers.hostile import check_books
from helpers.listing import found_in, listed, put_photos
from helpers.records import by_key, quarantine, value, values
from helpers.repository import PHOTOS, ROOT, copy_first
from PIL import Image, ImageOps

from shardwright.core.dataset_files import read_dataset
from shardwright.core.images.formats import plugin_decoders
from shardwright.core.images.map_hook import hook_versions, load_hook
from shardwright.core.shards.shard_plan import recipes_of
from shardwright.core.sources.source import plugin_sources
from shardwright.loader import Records, Resplit
from shardwright.pipelines import cli
from shardwright.pipelines.convert import convert
from shardwright.pipelines.prepare import software_versions
from shardwright.pipelines.rebuild import rebuild
from shardwright.pipelines.validate import validate
from shardwright.schemas.errors import DataRefused, EngineError, UsageError
from shardwright.schemas.plugins import entry_points_of

tf = late("tensorflow")

#: How to write a package that adds a format.
FORMAT_PAGE = (ROOT / "docs" / "add-a-format.md").read_text()
HOOKS = """
from shardwright.transforms import DroppedImage, MappedImage

def chosen(item):
    if item.labels == ("birds",):
        return DroppedImage("no birds")
    if item.labels == ("fruit",):
        raise ValueError("no fruit")
    if item.labels == ("flowers",):
        item.image.putpixel((0, 0), (1, 2, 3))
        return MappedImage(item.image, labels=["birds", "birds"])
    return item.image

def halves(item):
    middle = item.image.width // 2
    for suffix, left, right in (("left", 0, middle), ("right", middle, item.image.width)):
        image = item.image.crop((left, 0, right, item.image.height))
        yield MappedImage(image, suffix, labels=[f"{item.labels[0]} {suffix}"], columns={"half": [left]})
"""


@pytest.fixture
def photos(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Two photos of each class, in a folder that also holds the modules with hooks."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (workplace / "hooks_of_test.py").write_text(HOOKS)
    text = (ROOT / "docs" / "custom-code.md").read_text()
    for name, content in re.findall(r"```python title=\"(\S+)\"\n(.*?)```", text, re.DOTALL):
        (workplace / name).write_text(content)
    yield copy_first(workplace / "photos", 2, [folder.name for folder in PHOTOS.iterdir()])
    for name in ("hooks_of_test", "tiling", "embedding", "blurring"):
        sys.modules.pop(name, None)
    hook_versions.cache_clear()
    load_hook.cache_clear()


def test_a_hook_drops_fails_and_changes_images(photos: Path, tmp_path: Path) -> None:
    """A refusal names the hook and what it raised."""
    settings: Any = {"input": photos, "output": tmp_path / "out", "map": "hooks_of_test:chosen"}
    with pytest.raises(DataRefused) as found:
        convert(**settings)
    assert "fix the function hooks_of_test:chosen (ValueError: no fruit), or allow more" in str(found.value)
    (photos / "birds" / "empty.jpg").touch()
    with pytest.raises(DataRefused, match=r"\(ValueError: no fruit\) and fix or remove the others, or allow"):
        convert(**settings, resume=True)
    made = convert(**settings, resume=True, max_bad_fraction=1, verify="full")
    total = made.dataset.ledger
    assert (total["listed"], total["written"], total["quarantined"], total["filtered"]) == (11, 6, 3, 2)
    assert total["reasons"] == {
        "filtered": {"dropped_by_map": 2}, "quarantined": {"MAP_FAILED": 2, "EMPTY_FILE": 1},
    }  # fmt: skip
    lines = check_books(Path(made.path))
    del lines["birds/empty.jpg"]
    for key, line in lines.items():
        folder = key.partition("/")[0]
        if folder == "birds":
            assert (line["stage"], line["message"]) == ("map", "no birds")
        elif folder == "fruit":
            assert (line["stage"], line["message"]) == ("map", "ValueError: no fruit")
        elif folder == "flowers":
            assert line["stored"] == "encoded"
        elif key.endswith(".jpg") and Image.open(photos / key).mode == "RGB":
            assert line["stored"] == "kept"
    assert not compared(Path(made.path), photos)
    moved, _ = (photos / "flowers").iterdir()
    moved.rename(moved.with_name("moved.jpg"))
    (found,) = compared(Path(made.path), photos, mode="fast")
    assert found.message == "the source has its image as 'flowers/moved.jpg' now"


def test_several_images_of_one_source(photos: Path, tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text(
        "".join(f"{p.name} {side}\n" for p in sorted(photos.iterdir()) for side in ("left", "right"))
    )
    made = convert(
        input=photos, output=tmp_path / "out", map="hooks_of_test:halves", image_format="png",
        extra_columns="half:int64[]", class_names=names, splits="train=0.5,test=0.5", verify="full", shards=4,
    )  # fmt: skip
    assert made.dataset.ledger["listed"] == made.dataset.ledger["written"] == 20
    found = by_key(made.path)
    lines = check_books(Path(made.path))
    for path in photos.glob("*/*"):
        key = path.relative_to(photos).as_posix()
        whole = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
        middle = whole.width // 2
        for side, box in (("left", (0, 0, middle)), ("right", (middle, 0, whole.width))):
            features = found[f"{key}#{side}"].features.feature
            pixels = tf.io.decode_png(features["image/encoded"].bytes_list.value[0]).numpy()
            part = whole.crop((box[0], 0, box[2], whole.height))
            if Image.open(path).mode == "RGB":
                assert np.array_equal(pixels, np.asarray(part))
            assert pixels.shape == (part.height, part.width, 3)
            assert features["half"].int64_list.value == [box[0]]
            assert lines[f"{key}#{side}"]["source_key"] == key
            text = features["image/class/text"].bytes_list.value[0].decode()
            assert text == f"{path.parent.name} {side}"
    part = Records(made.path, "a", resplit=Resplit("a=0.5,b=0.5", of="all"))  # without half an image
    assert {*Counter(key.partition("#")[0] for key in part.keys).values()} == {2} and 0 < len(part) < 20
    for mode in ("full", "fast"):
        assert not compared(Path(made.path), photos, mode=mode)
    shutil.copy(PHOTOS / "birds" / "owl.jpg", photos / "birds" / "added.jpg")  # others fill empty shards then
    (missing,) = compared(Path(made.path), photos)
    assert (missing.code, missing.key) == ("RECORD_MISSING", "birds/added.jpg")
    (photos / "birds" / "added.jpg").unlink()
    min((photos / "birds").iterdir()).rename(photos / "birds" / "moved.jpg")
    halves = validate(made.path, against=str(photos)).findings
    assert [one.message for one in halves] == ["the source has its image as 'birds/moved.jpg' now"] * 2


def test_a_rebuild_copies_what_hooks_made(photos: Path, tmp_path: Path) -> None:
    settings = {"map": "tiling:tiles", "resize": "32", "shards": "2", "splits": "train=0.8,test=0.2"}
    settings["verify"] = "none"
    versions = tmp_path / "versions"
    first = rebuild(input=photos, output=versions, **settings)
    before = read_dataset(first.path).all_records
    assert not rebuild(input=photos, output=versions, **settings).changed
    shutil.copy(PHOTOS / "birds" / "owl.jpg", photos / "birds" / "one more.jpg")
    second = rebuild(input=photos, output=versions, **settings)
    wide, high = Image.open(PHOTOS / "birds" / "owl.jpg").size
    new_tiles = -(-wide // 256) * -(-high // 256)
    assert read_dataset(second.path).all_records == before + new_tiles
    full = convert(input=photos, output=tmp_path / "full", plan_from=Path(second.path) / "dataset.json")
    assert read_dataset(second.path).fingerprint == full.dataset.fingerprint
    work = second.outcome["work"]
    assert work["copied"] > 0 and work["converted"] == new_tiles
    assert not findings_of(versions)
    made, module = read_dataset(second.path), tmp_path / "tiling.py"
    recipe = recipes_of(made.plan.settings, made.versions).record
    assert recipe == recipes_of(made.plan.settings, software_versions("tiling:tiles")).record
    module.write_text(module.read_text().replace("256", "128"))
    hook_versions.cache_clear()
    # A changed hook has everything converted again.
    assert recipe != recipes_of(made.plan.settings, software_versions("tiling:tiles")).record


pydicom = late("pydicom")


def forget() -> None:
    for found in (plugin_sources, plugin_decoders, entry_points_of):
        found.cache_clear()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the package is installed, and the one that docs/add-a-format.md shows."""
    folder = tmp_path_factory.mktemp("plugin")
    # A copy is installed, because a build writes into its folder.
    shutil.copytree(ROOT / "examples" / "plugin", folder / "plugin")
    (folder / "format").mkdir()
    for name, text in re.findall(r"```(?:python|toml) title=\"(\S+)\"\n(.*?)```", FORMAT_PAGE, re.DOTALL):
        (folder / "format" / name).write_text(text)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    places = [f"--target={folder / 'site'}", folder / "plugin", folder / "format"]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, *places], check=True)
    return folder / "site"


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(site))
    forget()
    yield
    forget()
    for name in [name for name in sys.modules if name.startswith("acme_")]:
        del sys.modules[name]


def write_dicom(path: Path, pixels: np.ndarray, photometric: str = "MONOCHROME2") -> None:
    data = pydicom.Dataset()
    data.SOPClassUID, data.SOPInstanceUID = "1.2.840.10008.5.1.4.1.1.7", "1.2.3"
    data.set_pixel_data(pixels.astype(np.uint16), photometric, 16)
    data.save_as(path, enforce_file_format=True)


@pytest.mark.usefixtures("installed")
def test_dicom_is_read(tmp_path: Path) -> None:
    ramp = np.arange(24 * 16, dtype=np.uint16).reshape(24, 16) * 100
    for photometric in ("MONOCHROME1", "MONOCHROME2"):
        folder = tmp_path / "scans" / photometric
        folder.mkdir(parents=True)
        write_dicom(folder / "a.dcm", ramp, photometric)
    whole = (folder / "a.dcm").read_bytes()
    (folder / "cut.dcm").write_bytes(whole[:-50])
    (folder / "large.dcm").write_bytes(whole)
    write_dicom(folder / "large.dcm", np.zeros((100, 100)))
    made = convert(
        input=tmp_path / "scans", output=tmp_path / "out", image_format="png", color="gray",
        max_bad_fraction=1, max_pixels=1000, verify="full",
    )  # fmt: skip
    assert made.dataset.ledger["reasons"] == {"quarantined": {"CORRUPT": 1, "TOO_MANY_PIXELS": 1}}
    expected = np.round(ramp * (255 / ramp.max())).astype(np.uint8)[..., None]
    found = by_key(made.path)
    for key, pixels in (("MONOCHROME2/a.dcm", expected), ("MONOCHROME1/a.dcm", 255 - expected)):
        assert np.array_equal(tf.io.decode_image(value(found[key], "image/encoded")).numpy(), pixels)
    assert made.dataset.versions["decoder_dicom"] == "acme-images 0.1.0"
    assert pydicom.__version__ == version("pydicom")


@pytest.mark.usefixtures("installed")
def test_a_list_is_read(tmp_path: Path) -> None:
    lines = [f"{photo.name} = thing\n" for photo in put_photos(tmp_path)]
    (tmp_path / "all.list").write_text("".join(lines))
    for source in ("auto", "text_list"):
        found = listed(tmp_path / "all.list", "classification", source=source)
        assert found.input.source == "text_list"
        assert source != "auto" or found.input.detected_as == "a list of paths and classes"
        assert [entry.outcome for entry in found.entries().values()] == ["written"] * 4
    with pytest.raises(EngineError, match=r"^Cannot read .*gone\.list: no such file"):
        found_in(tmp_path / "gone.list", {}, "text_list")


@pytest.mark.usefixtures("installed")
def test_the_format_of_the_page_is_read(workplace: Path) -> None:
    """In the folder that the page's command names."""
    crates = {f"images/{photo.name}": photo for photo in put_photos(workplace / "crates" / "images")}
    (workplace / "crates" / "boxes").mkdir()
    for photo in crates.values():
        lines = [" ".join(map(str, box)) for box in photo.boxes]
        (workplace / "crates" / "boxes" / photo.name).with_suffix(".box").write_text("\n".join(lines))
    (workplace / "crates" / "boxes" / "house.box").write_text("thing 1 2 3 4\nthing 1 2 3 four\n")
    (command,) = re.findall(r"^    shardwright (convert .*)$", FORMAT_PAGE, re.MULTILINE)
    assert cli.main([*command.split(), "--max_bad_fraction=1", "--verify=none"]) == 0
    ((key, line),) = quarantine(workplace / "out").items()
    assert key == "images/house.jpg"
    assert line["message"] == "house.box: line 2 is not a class and four numbers"
    records = by_key(workplace / "out")
    assert records.keys() == crates.keys() - {key}
    for name, record in records.items():
        left = values(record, "image/object/bbox/xmin")
        assert left == pytest.approx([box[1] / crates[name].size[0] for box in crates[name].boxes])


def test_without_the_package_dicom_is_no_format_and_the_source_is_unknown(tmp_path: Path) -> None:
    forget()
    (tmp_path / "scans" / "a").mkdir(parents=True)
    write_dicom(tmp_path / "scans" / "a" / "x.dcm", np.ones((4, 4)))
    Image.new("RGB", (4, 4)).save(tmp_path / "scans" / "a" / "y.png")
    assert listed(tmp_path / "scans", "classification").entries()["a/x.dcm"].reason == "UNSUPPORTED_FORMAT"
    with pytest.raises(UsageError, match="choose one of auto"):
        convert(input=tmp_path / "scans", output=tmp_path / "out", source="text_list")


@pytest.mark.parametrize(
    ("group", "value", "load", "message"),
    [
        ("sources", "json:loads", plugin_sources, "is not a Source with this name"),
        ("sources", "no_such_module:SOURCE", plugin_sources, "cannot be loaded"),
        ("decoders", "json:loads", plugin_decoders, "is not a subclass of PIL.ImageFile.ImageFile"),
        ("decoders", "no_such_module:X", plugin_decoders, "cannot be loaded"),
    ],
)
def test_a_damaged_package_is_named(
    group: str, value: str, load: Callable[[], object], message: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    information = tmp_path / "broken-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (information / "entry_points.txt").write_text(f"[shardwright.{group}]\nthing = {value}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    forget()
    with pytest.raises((UsageError, EngineError), match=f"'thing' of the package broken.*{message}"):
        load()
    forget()
