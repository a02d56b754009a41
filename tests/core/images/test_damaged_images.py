"""Damage that Pillow, TensorFlow and OpenCV do not report is detected; harmless oddities are notes."""

from __future__ import annotations

import io
import random
import zlib
from collections.abc import Callable

import cv2
import numpy as np
import pytest
from helpers import pictures
from helpers.mutants import picture
from PIL import Image

from shardwright.core.images.decode import load_checked, open_image
from shardwright.core.images.formats.gif import check_first_frame
from shardwright.core.validation.image import DeclaredImage, check_image
from shardwright.schemas.errors import ImageFault

MAX_PIXELS = 1 << 24
JPEGS = [
    pictures.file_of(picture().convert(mode), "JPEG", **options)
    for mode in ("RGB", "L")
    for options in (
        {"quality": 90},
        {"quality": 75, "subsampling": 0},
        {"quality": 95, "subsampling": 1},
        {"progressive": True},
        {"restart_marker_rows": 1},
    )
]


def _loaded(data: bytes, keep_damaged: bool = False):  # type: ignore[no-untyped-def]
    return load_checked(open_image(data, "x.jpg", MAX_PIXELS), MAX_PIXELS, keep_damaged)


def _reason(data: bytes) -> str:
    with pytest.raises(ImageFault) as fault:
        _loaded(data)
    return fault.value.reason


@pytest.mark.parametrize("factor", [1, 2, 4, 8])
def test_pixels_equal_pillows(factor: int) -> None:
    for data in [*JPEGS, pictures.file_of(picture().convert("CMYK"), "JPEG")]:
        with Image.open(io.BytesIO(data)) as expected:
            if factor > 1:
                expected.draft(None, (expected.width // factor, expected.height // factor))
            expected.load()
        opened = open_image(data, "x.jpg", MAX_PIXELS)
        assert opened.reduce(factor) == factor
        found = load_checked(opened, MAX_PIXELS).image
        assert (found.mode, found.size) == (expected.mode, expected.size)
        assert np.array_equal(np.asarray(found), np.asarray(expected))


def test_a_jpeg_that_was_cut_and_got_an_end_marker_is_truncated() -> None:
    chance = random.Random(3)
    for data in JPEGS:
        start = data.index(b"\xff\xda") + 40
        closed = data[: chance.randrange(start, len(data) - 60)] + b"\xff\xd9"
        assert cv2.imdecode(np.frombuffer(closed, np.uint8), cv2.IMREAD_COLOR) is not None
        assert _reason(closed) == "TRUNCATED"
        seen = check_image(closed, DeclaredImage(), whole=False)
        assert [code for code, _ in seen.problems] == ["UNDECODABLE"]
        assert "premature end" in seen.problems[0][1].lower()


def test_most_zeroed_and_swapped_ranges_are_detected() -> None:
    chance, found, tried = random.Random(4), 0, 0
    for data in JPEGS:
        start = data.index(b"\xff\xda") + 40
        for _ in range(6):
            at = chance.randrange(start, len(data) - 300)
            for damaged in (
                data[:at] + bytes(64) + data[at + 64 :],
                data[:at] + data[at + 128 : at + 256] + data[at : at + 128] + data[at + 256 :],
            ):
                tried += 1
                try:
                    _loaded(damaged)
                except ImageFault:
                    found += 1
    assert found > tried * 0.4


def test_stray_bytes_between_segments_are_a_note() -> None:
    data = JPEGS[0]
    at = data.index(b"\xff\xdb")
    loaded = _loaded(data[:at] + b"abc" + data[at:])
    assert "3 extraneous bytes before marker 0xdb" in loaded.note
    assert loaded.damage == ""
    assert np.array_equal(np.asarray(loaded.image), np.asarray(_loaded(data).image))


def test_padding_after_the_scan_is_not_damage() -> None:
    data = JPEGS[0]
    for padding in (bytes(40), b"\xff" * 40):
        assert _loaded(data[:-2] + padding + data[-2:]).damage == ""


def test_unread_data_after_the_scan_is_damage() -> None:
    data = JPEGS[0]
    assert _reason(data[:-2] + bytes(range(1, 200)) + data[-2:]) == "CORRUPT"


def test_damage_is_detected_after_a_harmless_byte() -> None:
    data = JPEGS[0]
    at = data.index(b"\xff\xdb")
    assert _reason(data[:at] + b"abc" + data[at : len(data) * 2 // 3] + b"\xff\xd9") == "TRUNCATED"


def test_damaged_images_are_kept_with_the_setting() -> None:
    closed = JPEGS[0][: len(JPEGS[0]) * 2 // 3] + b"\xff\xd9"
    loaded = _loaded(closed, keep_damaged=True)
    with Image.open(io.BytesIO(closed)) as lenient:
        assert np.array_equal(np.asarray(loaded.image), np.asarray(lenient))
    assert "premature end" in loaded.damage.lower()
    converted = pictures.convert(closed, "x.jpg", damaged="keep")
    assert converted.kept
    assert converted.decoding.damaged
    assert check_image(closed, DeclaredImage(), damaged_too=True).problems == []


def _png(change: Callable[[bytes], bytes]) -> bytes:
    """Returns a PNG with changed compressed pixels and correct chunk checksums."""
    data = pictures.file_of(picture(), "PNG")
    begin = data.index(b"IDAT") - 4
    end = data.index(b"IEND") - 4
    stream, position = b"", begin
    while position < end:
        size = int.from_bytes(data[position : position + 4], "big")
        stream += data[position + 8 : position + 8 + size]
        position += 12 + size
    changed = change(stream)
    chunk = b"IDAT" + changed
    framed = len(changed).to_bytes(4, "big") + chunk + zlib.crc32(chunk).to_bytes(4, "big")
    return data[:begin] + framed + data[end:]


def test_a_png_with_a_wrong_checksum_or_too_few_rows_is_refused() -> None:
    assert _loaded(_png(lambda stream: stream)).damage == ""
    assert _reason(_png(lambda stream: stream[:-1] + bytes((stream[-1] ^ 1,)))) == "CORRUPT"
    with pytest.raises(ImageFault, match="rows are missing") as fault:
        _loaded(_png(lambda stream: zlib.compress(zlib.decompress(stream)[:-2000])))
    assert fault.value.reason == "TRUNCATED"
    more = _png(lambda stream: zlib.compress(zlib.decompress(stream) + b"more"))
    assert _loaded(more).damage == ""


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_sound_pngs_of_every_kind_are_accepted(mode: str) -> None:
    image = picture(37, 23)
    image = image.convert("L").convert(mode) if mode == "I;16" else image.convert(mode)
    data = pictures.file_of(image, "PNG")
    assert np.array_equal(np.asarray(_loaded(data).image), np.asarray(image))
    # Pillow writes no interlaced files, and OpenCV reads the files that it writes.
    encoded = cv2.imencode(".png", np.asarray(picture(37, 23)), [cv2.IMWRITE_PNG_STRATEGY, 1])[1].tobytes()
    assert _loaded(encoded).damage == ""


GIF = pictures.file_of(Image.fromarray(pictures.rgb_pixels(60, 40)).convert("P"), "GIF")
FRAME = GIF.index(b"\x2c", 13 + (3 << (GIF[10] & 7) + 1))
#: Position of the pixels, after the descriptor of the frame and the size of its codes.
PIXELS = FRAME + 11


def test_an_empty_comment_in_a_gif_is_not_damage() -> None:
    commented = GIF[:FRAME] + b"\x21\xfe\x00" + GIF[FRAME:]
    expected = np.asarray(Image.open(io.BytesIO(commented)))
    assert np.array_equal(np.asarray(_loaded(commented).image), expected)


def test_gif_codes_wider_than_a_byte_are_refused_by_name() -> None:
    assert GIF[PIXELS - 1] == 8
    with pytest.raises(ImageFault, match=r"its codes begin with 11 bits.*convert it to PNG") as fault:
        _loaded(GIF[: PIXELS - 1] + b"\x0b" + GIF[PIXELS:])
    assert fault.value.reason == "UNSUPPORTED_FORMAT"


def test_bytes_between_blocks_are_skipped() -> None:
    check_first_frame(GIF)
    check_first_frame(GIF[:FRAME] + b"\0\0" + GIF[FRAME:])


NO_FRAME, NO_CODES = "it ends before its first frame", "Image EOF detected before image complete"


@pytest.mark.parametrize(
    ("data", "reason", "message"),
    [
        (GIF[:FRAME], "TRUNCATED", NO_FRAME),
        (GIF[:FRAME] + b";", "TRUNCATED", NO_FRAME),
        (GIF[:FRAME] + b";" + GIF[FRAME:], "TRUNCATED", NO_FRAME),
        (GIF[:PIXELS] + b"\x08" + b"\1" * 8 + b"\0;", "TRUNCATED", NO_CODES),
        (GIF[:PIXELS] + b"\0;", "CORRUPT", ""),
        (GIF[:PIXELS] + b"\x08" + b"\xff" * 8 + GIF[PIXELS:], "CORRUPT", ""),
        (GIF[: PIXELS + 256] + b"\0;", "CORRUPT", ""),
    ],
)
def test_each_damage_of_a_gif_is_named(data: bytes, reason: str, message: str) -> None:
    with pytest.raises(ImageFault) as fault:
        check_first_frame(data)
    assert fault.value.reason == reason
    assert fault.value.message == f"gif: {message}" or not message
