"""The package in examples/plugin adds a source and a decoder once it is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from helpers.fewer_imports import late
from helpers.records import by_key, value
from helpers.repository import PHOTOS, ROOT
from PIL import Image

from shardwright.core.images.formats import plugin_decoders
from shardwright.core.sources.source import plugin_sources
from shardwright.pipelines.convert import convert
from shardwright.pipelines.results import ConvertResult
from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.plugins import entry_points_by_group

tf = late("tensorflow")
pydicom = late("pydicom")


def forget() -> None:
    for found in (plugin_sources, plugin_decoders, entry_points_by_group):
        found.cache_clear()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the package is installed."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*command, f"--target={target}", "--disable-pip-version-check", str(_copy(tmp_path_factory))],
        check=True,
    )
    return target


def _copy(factory: pytest.TempPathFactory) -> Path:
    """Copies the package, because a build writes into its folder."""
    return Path(shutil.copytree(ROOT / "examples" / "plugin", factory.mktemp("plugin") / "plugin"))


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(site))
    forget()
    yield
    forget()
    for name in [name for name in sys.modules if name.startswith("acme_images")]:
        del sys.modules[name]


def write_dicom(path: Path, pixels: np.ndarray, photometric: str = "MONOCHROME2") -> None:
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian

    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.7"
    meta.MediaStorageSOPInstanceUID = "1.2.3"
    data = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    data.Rows, data.Columns = pixels.shape
    data.SamplesPerPixel, data.PhotometricInterpretation = 1, photometric
    data.BitsAllocated = data.BitsStored = 16
    data.HighBit, data.PixelRepresentation = 15, 0
    data.PixelData = pixels.astype("<u2").tobytes()
    data.save_as(path, enforce_file_format=True)


def pictures(made: ConvertResult) -> dict[str, np.ndarray]:
    """Returns key -> pixels, read by TensorFlow."""
    found = by_key(made.path)
    return {key: tf.io.decode_image(value(item, "image/encoded")).numpy() for key, item in found.items()}


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
    found = pictures(made)
    assert np.array_equal(found["MONOCHROME2/a.dcm"], expected)
    assert np.array_equal(found["MONOCHROME1/a.dcm"], 255 - expected)
    assert made.dataset.versions["decoder_dicom"] == "acme-images 0.1.0"
    assert pydicom.__version__ == version("pydicom")


@pytest.mark.usefixtures("installed")
def test_a_list_is_read(tmp_path: Path) -> None:
    photos = sorted(path for path in PHOTOS.glob("*/*.jpg"))[:4]
    for photo in photos:
        (tmp_path / photo.name).symlink_to(photo)
    lines = [f"{photo.name} = {photo.parent.name}\n" for photo in photos]
    (tmp_path / "all.list").write_text("".join(lines))
    made = [
        convert(input=tmp_path / "all.list", output=tmp_path / name, source=source)
        for name, source in (("by name", "text_list"), ("by itself", "auto"))
    ]
    assert made[0].dataset.ledger["written"] == 4
    assert made[0].dataset.fingerprint == made[1].dataset.fingerprint


def test_without_the_package_dicom_is_no_format_and_the_source_is_unknown(tmp_path: Path) -> None:
    forget()
    (tmp_path / "scans" / "a").mkdir(parents=True)
    write_dicom(tmp_path / "scans" / "a" / "x.dcm", np.ones((4, 4)))
    Image.new("RGB", (4, 4)).save(tmp_path / "scans" / "a" / "y.png")
    made = convert(input=tmp_path / "scans", output=tmp_path / "out", max_bad_fraction=1)
    assert made.dataset.ledger["reasons"]["quarantined"] == {"UNSUPPORTED_FORMAT": 1}
    with pytest.raises(UsageError, match="choose one of auto"):
        convert(input=tmp_path / "scans", output=tmp_path / "other", source="text_list")


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
