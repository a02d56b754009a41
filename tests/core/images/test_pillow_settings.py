"""Settings of Pillow in the process do not affect our use of it, and we leave them unchanged."""

from __future__ import annotations

import io
import struct
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.pictures import file_of, tiff_of
from helpers.trees import put_files
from PIL import Image, ImageFile

from shardwright.core.images import quality_metrics
from shardwright.core.images.convert import convert_image
from shardwright.core.images.decode import load_checked, open_image
from shardwright.core.images.faults import limit_of_process, pillow_settings
from shardwright.core.preview import thumbnail
from shardwright.core.validation.image import DeclaredImage, check_image
from shardwright.pipelines.convert import convert
from shardwright.pipelines.validate import validate
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault

SIDE = 120
SETTINGS = ConvertSettings(input=("in",), output="out", resize="32")


def picture(kind: str, mode: str = "RGB") -> bytes:
    """Returns a picture that is measured in several strips."""
    values = np.random.default_rng(7).integers(0, 255, (SIDE, SIDE), np.uint8)
    return file_of(Image.fromarray(values).convert(mode), kind)


FRAMES = [Image.new("P", (SIDE, SIDE), number) for number in (1, 2)]
PICTURES = {
    "jpeg": picture("JPEG"),
    "cmyk": picture("JPEG", "CMYK"),
    "png": picture("PNG", "LA"),
    "palette": picture("PNG", "P"),
    # The first frame is removed before the second is drawn.
    "gif": file_of(FRAMES[0], "GIF", save_all=True, append_images=FRAMES[1:], disposal=2),
    "tiff": picture("TIFF"),
    "webp": picture("WEBP"),
}


def state() -> list[Any]:
    """Returns the settings that must not change."""
    return [Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES, warnings.filters, [*warnings.filters]]


@pytest.fixture(scope="module")
def usual() -> dict[str, list[Any]]:
    """The results in a process whose settings are the usual ones."""
    return {name: everything(data) for name, data in PICTURES.items()}


@pytest.fixture
def odd_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process in which every setting was changed, and stays so; pictures are measured in strips."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    monkeypatch.setattr(quality_metrics, "STRIP_PIXELS", 20 * SIDE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = state()
        yield
        assert state() == before


def everything(data: bytes) -> list[Any]:
    """Returns the results of everything that reads a picture."""
    opened = load_checked(open_image(data, "x", 10**7), 10**7).image
    return [
        convert_image(data, "x", SETTINGS).encoded,
        check_image(data, DeclaredImage(), whole=True).problems,
        opened.tobytes(),
        quality_metrics.measure_quality(opened),
        thumbnail(data).tobytes(),
    ]


@pytest.mark.parametrize("name", PICTURES)
def test_settings_of_the_process_change_nothing(
    name: str, usual: dict[str, list[Any]], odd_process: None
) -> None:
    assert everything(PICTURES[name]) == usual[name]


def test_a_truncated_picture_is_a_fault_whatever_the_settings(odd_process: None) -> None:
    for name in ("jpeg", "png", "gif", "webp", "tiff"):
        with pytest.raises(ImageFault) as raised:
            convert_image(PICTURES[name][: len(PICTURES[name]) // 2], "x", SETTINGS)
        assert raised.value.reason in ("TRUNCATED", "CORRUPT"), name


def test_each_call_has_its_own_limit(odd_process: None) -> None:
    for name, data in PICTURES.items():
        open_image(data, "x", SIDE * SIDE)
        message = f"{SIDE * SIDE} pixels are more than {SIDE * SIDE - 1}; raise --max_pixels"
        with pytest.raises(ImageFault, match=message) as raised:
            open_image(data, "x", SIDE * SIDE - 1)
        assert raised.value.reason == "TOO_MANY_PIXELS", name


def test_a_frame_larger_than_its_canvas_is_counted() -> None:
    """A GIF's frame enlarges the picture, and reading its header allocates memory for it."""
    data = bytearray(PICTURES["gif"])
    at = data.index(b",", data.index(b"!\xf9\x04") + 8)
    data[at + 5 : at + 9] = b"\xff\xff\xff\xff"
    with pytest.raises(ImageFault, match="4294836225 pixels are more than 1000000") as raised:
        open_image(bytes(data), "x", 10**6)
    assert raised.value.reason == "TOO_MANY_PIXELS"


def test_warnings_about_metadata_are_not_printed(recwarn: pytest.WarningsRecorder) -> None:
    cut_off = b"Exif\x00\x00II*\x00\x08\x00\x00\x00\x02\x00\x12\x01"
    data = file_of(Image.new("RGB", (8, 8)), "JPEG", exif=cut_off)
    with pytest.raises(UserWarning), warnings.catch_warnings():
        warnings.simplefilter("error")
        Image.open(io.BytesIO(data)).getexif()
    open_image(data, "x.jpg", 10**6)
    assert not recwarn.list
    text, two_numbers = struct.pack("<HHI", 305, 2, 11), struct.pack("<HHI", 323, 3, 2)  # instead of one
    data = tiff_of(np.zeros((8, 8), np.uint8), software="x" * 10).replace(text, two_numbers)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        convert_image(data, "x.tif", SETTINGS)


def test_threads_share_the_settings_and_the_last_one_restores_them(odd_process: None) -> None:
    data = PICTURES["palette"]
    gate = threading.Barrier(8)

    def load_often(_: int) -> None:
        gate.wait()
        for _ in range(10):
            load_checked(open_image(data, "x", 10**7), 10**7)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(load_often, range(8)))
    limits = (10**6, 10**7)
    with pillow_settings(limits[0]):
        assert limits[0] == Image.MAX_IMAGE_PIXELS and limit_of_process() == 10
        with pillow_settings(limits[1]):
            assert limits[1] == Image.MAX_IMAGE_PIXELS
            with pillow_settings(limits[0]):
                assert limits[1] == Image.MAX_IMAGE_PIXELS, "none is refused that one of them takes"
        assert limits[0] == Image.MAX_IMAGE_PIXELS


def test_changes_by_others_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with warnings.catch_warnings():
        before = [*warnings.filters]
        with pillow_settings(100), warnings.catch_warnings():
            Image.MAX_IMAGE_PIXELS = 77
        assert Image.MAX_IMAGE_PIXELS == 77
        assert warnings.filters == before
        outer = pillow_settings(100)
        outer.__enter__()
        with warnings.catch_warnings():  # ends after our code, and restores what it found
            outer.__exit__(None, None, None)
        assert warnings.filters == before


def test_library_calls_do_not_change_pillows_settings(tmp_path: Path, odd_process: None) -> None:
    put_files(tmp_path / "in", {f"a/{name}.jpg": data for name, data in PICTURES.items()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # because other libraries warn too
        result = convert(input=str(tmp_path / "in"), output=str(tmp_path / "out"), resize=16)
        assert validate(str(tmp_path / "out"), mode="quality").sound
    assert result.dataset.ledger["written"] == len(PICTURES)
