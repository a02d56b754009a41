"""Which files are refused and why, also those that other libraries read; harmless oddities are notes."""

from __future__ import annotations

import io
import random
import resource
import struct
import subprocess
import zlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
from helpers import pictures
from helpers.mutants import picture
from PIL import Image

from shardwright.core.images import formats
from shardwright.core.images.decode import load_checked, open_image
from shardwright.core.images.signatures import (
    claims_to_be_image,
    is_image_name,
    kind_of,
)
from shardwright.core.validation.image import DeclaredImage, check_image
from shardwright.schemas.errors import ImageFault, NotACandidate
from shardwright.schemas.image_formats import SUPPORTED_KINDS, UNSUPPORTED_KINDS, WITHOUT_SIGNATURE

# Pillow's warnings about broken metadata
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

RGB = Image.fromarray(pictures.rgb_pixels(200, 150))
JPEG = pictures.file_of(RGB, "JPEG")
PNG = pictures.file_of(RGB, "PNG")


def _reason(data: bytes, name: str = "a.jpg", **values: Any) -> str:
    return pictures.fault(data, name, **values).reason


@pytest.mark.parametrize("stored", ["keep", "jpeg"])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
@pytest.mark.parametrize(
    "format", ["JPEG", "PROGRESSIVE", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF"]
)
def test_a_shortened_file_is_truncated(format: str, share: float, stored: str) -> None:
    options = {"progressive": True} if format == "PROGRESSIVE" else {}
    data = pictures.file_of(RGB, "JPEG" if options else format, **options)
    reason = _reason(data[: int(len(data) * share)], image_format=stored)
    # Pillow's reader of TIFF reports only that something is wrong.
    assert reason in (("TRUNCATED", "CORRUPT") if format == "TIFF" else ("TRUNCATED",))


@pytest.mark.parametrize("stored", ["keep", "jpeg"])
def test_every_damaged_bit_of_a_png_is_detected(stored: str) -> None:
    # A picture that compresses well: damage often gives other pixels without an error of the decoder.
    rng = random.Random(3)
    first, last = PNG.index(b"IDAT") + 4, PNG.rindex(b"IEND") - 8
    for _ in range(60):
        damaged = bytearray(PNG)
        damaged[rng.randrange(first, last)] ^= 1 << rng.randrange(8)
        assert _reason(bytes(damaged), "a.png", image_format=stored) == "CORRUPT"


def test_random_damage_raises_only_faults() -> None:
    rng = random.Random(11)
    small = Image.fromarray(pictures.rgb_pixels())
    files = [pictures.file_of(small, f) for f in ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF")]
    files.append(pictures.file_of(small, "JPEG", 6, icc_profile=pictures.SRGB))
    outcomes = set()
    for _ in range(40):
        for data in files:
            damaged = bytearray(data)
            for _ in range(rng.randint(1, 4)):
                damaged[rng.randrange(min(len(data), 400))] = rng.randrange(256)
            try:
                pictures.convert(bytes(damaged), image_format=rng.choice(["keep", "jpeg"]), max_pixels=10**6)
                outcomes.add("converted")
            except ImageFault as fault:
                outcomes.add(str(fault.reason))
    assert {"converted", "CORRUPT", "TRUNCATED"} <= outcomes


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"\0\0\0\x0cjP  \r\n\x87\n\0\0\0\x14ftypjpm ", "jpm"),
        (b"8BPS\0\1", "psd"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "eps"),
        (b"\xc5\xd0\xd3\xc6", "eps"),
        (b'<?xml version="1.0"?>\n<!DOCTYPE svg PUBLIC "x">\n<svg width="1">', "svg"),
        (b"<svg>", "svg"),
        (b'\xef\xbb\xbf<!-- made by hand -->\n<!-- twice --><svg xmlns="x">', "svg"),
        (b"#define cat_width 16\n#define cat_height 16\n", "xbm"),
        (b"\0\0\1\0\1\0", "ico"),
        (b"\0\0\0\x14ftypcrx \0\0\0\1crx isom", "camera_raw"),
        (b"II*\0\x10\0\0\0CR\2\0", "camera_raw"),
        (b"FUJIFILMCCD-RAW 0201", "camera_raw"),
        (b"II\x1a\0\0\0HEAPCCDR", "camera_raw"),
        (b"II*\0\x08\0\0\0" + struct.pack("<HHHIIHHII", 2, 254, 4, 1, 1, 50706, 1, 4, 1), "camera_raw"),
        (b"MM\0*\0\0\0\x08" + struct.pack(">HHHIIHHII", 2, 254, 4, 1, 1, 50706, 1, 4, 1), "camera_raw"),
        (b"\xff\xd8\xff\xf7\0\x0b", "jpeg_ls"),
        (b"II\xbc\1", "jpeg_xr"),
        (b"PF\n16 16\n-1.0\n", "pfm"),
        (b"P7\nWIDTH 16\n", "pam"),
        (b"#?RADIANCE\nFORMAT=", "radiance"),
        (b"\x01\xda\0\1\0\3", "sgi"),
        (bytes(128) + b"DICM", "dicom"),
        (b"\1\0\0\0" + bytes(36) + b" EMF", "wmf"),
        (b"\0\0\2\0\1\0\x20\x20\0\0", "cur"),
    ],
)
def test_an_unsupported_kind_is_named(head: bytes, kind: str) -> None:
    data = head + bytes(500)
    assert kind_of(data) == kind
    for name in ("photo.jpg", f"photo.{kind}", "photo", "notes.txt"):
        assert _reason(data, name) == "UNSUPPORTED_FORMAT"


@pytest.mark.parametrize(
    "head",
    [
        b"\0\0\2\0" + bytes(8) + b"\x10\0\x10\0\x18\0",  # Targa, which begins like a cursor
        b"\0\0\1\xba!",  # MPEG
        b"\x01\xda\7\7",
        b"%!PS-Adobe-3.0\n%%Title: a letter\n",
        b"II*\0",
        b"MM\0*" + bytes(4),
    ],
)
def test_files_that_only_begin_like_an_unsupported_kind_are_not_named(head: bytes) -> None:
    assert kind_of(head) in (None, "tiff") and kind_of(head + bytes(500)) in (None, "tiff")


def test_a_tiff_whose_pixels_would_be_unwritten_memory_is_refused() -> None:
    sound = pictures.file_of(RGB, "TIFF", compression="jpeg")
    assert pictures.convert(sound, "a.tif")
    planes = struct.pack("<HHIHH", 284, 3, 1, 1, 0)  # tag, type, count and value
    assert planes in sound
    broken = sound.replace(planes, struct.pack("<HHIHH", 284, 1, 1, 1, 0))
    assert _reason(broken, "a.tif") == "CORRUPT"


@pytest.mark.parametrize(
    ("data", "names", "reason"),
    [
        (b"", "photo.jpg a.xcf a.psd a.dds", "EMPTY_FILE"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "photo.JPG a.xcf a.psd a.dds", "NOT_AN_IMAGE"),
        (b"\x0a\5\1\10 whatever", "a.tga a.PCX a.nef b/a.CR2 a.svgz", "UNSUPPORTED_FORMAT"),
        (pictures.file_of(RGB, "TIFF"), "a.NEF", "UNSUPPORTED_FORMAT"),  # its preview would be read
        (b"", "notes.txt", "not_an_image"),
        (b"plain words", "notes.txt README jpg", "not_an_image"),
    ],
)
def test_what_is_not_read_has_a_reason_by_its_name(data: bytes, names: str, reason: str) -> None:
    for name in names.split():
        with pytest.raises((ImageFault, NotACandidate)) as raised:
            pictures.convert(data, name)
        assert raised.value.reason == reason, name


def test_content_decides_not_the_extension() -> None:
    for name in ("a.txt", "a", "a.jpg", "a.gif", "a.heic", "a.psd", "a.nef"):
        assert np.array_equal(pictures.to_png(PNG, name), np.asarray(RGB))


def test_names_of_images_have_their_extensions() -> None:
    for name in ("a.jpg", "b/c.JPEG", "d.e.TifF", "z!m.webp"):
        assert claims_to_be_image(name) and is_image_name(name)
    for name in ("a.tga", "a.PCX", "a.nef", "b/a.CR2", "a.svgz", "a.xcf", "a.psd", "a.dds"):
        assert is_image_name(name) and not claims_to_be_image(name)
    for name in ("a.raw", "a.hdr", "a.pcd", "a.mp4", "a.pdf", "a.jpg.txt"):
        assert not is_image_name(name) and not claims_to_be_image(name)
    for name in ("heic", ".heic", ".jpg", "a/jpg", ""):  # without an extension
        assert not is_image_name(name) and not claims_to_be_image(name)
    listed = [extension for extensions in UNSUPPORTED_KINDS.values() for extension in extensions]
    assert len(set(listed)) == len(listed) and not any(claims_to_be_image(f"a.{name}") for name in listed)
    assert set(UNSUPPORTED_KINDS) >= WITHOUT_SIGNATURE and not set(UNSUPPORTED_KINDS) & set(SUPPORTED_KINDS)


def test_a_plugin_may_fail_at_the_beginning_of_other_files(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = SimpleNamespace(accept=lambda head: struct.unpack("<Q", head[:8]) == (1,))
    monkeypatch.setattr(formats, "plugin_decoders", lambda: {"eight": plugin})
    assert formats.plugin_kind(b"short") is None and formats.plugin_kind(b"\1" + bytes(9)) == "eight"


def test_postscript_does_not_start_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: object, **kwargs: object) -> None:
        raise AssertionError("a program was started")

    monkeypatch.setattr(subprocess, "Popen", never)
    monkeypatch.setattr(subprocess, "check_call", never)
    image = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n%%EOF\n"
    for name in ("a.jpg", "a.png"):
        assert _reason(image, name) == "UNSUPPORTED_FORMAT"
    assert not {"EPS", "PSD", "ICO"} & set(SUPPORTED_KINDS.values())


def test_a_bomb_is_refused_before_it_is_decoded() -> None:
    rows = zlib.compressobj(9)
    body = b"".join([rows.compress(bytes(3751)) for _ in range(30_000)]) + rows.flush()
    bomb = pictures.png_of_stream((30_000, 30_000), 1, 0, body)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert _reason(bomb, "bomb.png") == "TOO_MANY_PIXELS"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # kB


@pytest.mark.parametrize(
    "exif",
    [b"Exif\0\0", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0MM\0*\0\0\0\x08\xff\xff" + b"\1" * 50, b"junk"],
)
def test_broken_exif_does_not_make_the_pixels_faulty(exif: bytes) -> None:
    data = pictures.file_of(RGB, "JPEG", exif=exif)
    assert open_image(data, "a.jpg", 10**6).orientation == 1
    with Image.open(io.BytesIO(JPEG)) as opened:
        assert np.array_equal(pictures.to_png(data), np.asarray(opened))


@pytest.mark.parametrize("orientation", [0, 9, 77])
def test_an_unknown_orientation_counts_as_upright(orientation: int) -> None:
    assert pictures.convert(pictures.file_of(RGB, "JPEG", orientation)).width == 200


XMP = b"XML:com.adobe.xmp\0\0\0\0\0<x><tiff:Orientation>6</tiff:Orientation></x>"


@pytest.mark.parametrize("chunk", [pictures.exif_chunk(6), pictures.png_chunk(b"iTXt", XMP)])
@pytest.mark.parametrize("place", ["before", "behind"])
def test_a_png_may_state_its_orientation_before_or_after_the_picture(chunk: bytes, place: str) -> None:
    position = 33 if place == "before" else PNG.rindex(b"IEND") - 4
    data = PNG[:position] + chunk + PNG[position:]
    assert np.array_equal(pictures.to_png(data), np.rot90(np.asarray(RGB), -1))


@pytest.mark.parametrize("format", ["JPEG", "PNG", "GIF", "BMP", "TIFF", "PPM"])
def test_opening_decodes_nothing(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Data that is decoded before memory was reserved would exceed the bound on memory.
    data = pictures.file_of(RGB, format)
    decoders = []
    real = Image._getdecoder
    monkeypatch.setattr(Image, "_getdecoder", lambda *a, **k: decoders.append(a) or real(*a, **k))
    opened = open_image(data, "a", 10**6)
    assert not decoders
    opened.image.load()
    assert decoders or format in ("BMP", "PPM")


@pytest.mark.parametrize("keyword", ["transparency", "icc_profile", "exif", "dpi", "gamma", "xmp"])
@pytest.mark.parametrize("mode", ["RGB", "P", "L"])
def test_a_text_chunk_cannot_imitate_a_decoders_result(keyword: str, mode: str) -> None:
    image = RGB.convert(mode)
    data = pictures.file_of(image, "PNG")
    text = pictures.png_chunk(b"tEXt", keyword.encode() + b"\0words")
    data = data[:33] + text + data[33:]
    for stored in ("keep", "png", "jpeg", "webp"):
        pictures.convert(data, image_format=stored, color="keep")
    assert np.array_equal(pictures.to_png(data), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize(
    ("format", "extension"), [("GIF", "gif"), ("PNG", "apng"), ("WEBP", "webp"), ("TIFF", "tif")]
)
def test_the_first_frame_of_an_animation_is_used_and_noted(format: str, extension: str) -> None:
    first = Image.fromarray(pictures.rgb_pixels()).quantize(30).convert("RGB")
    others = [Image.new("RGB", first.size, "blue"), Image.new("RGB", first.size, "red")]
    options = {"lossless": True} if format == "WEBP" else {}
    data = pictures.file_of(first, format, save_all=True, append_images=others, **options)
    image = pictures.convert(data, f"a.{extension}", image_format="png")
    assert image.animated
    assert np.array_equal(pictures.pixels_of(image), np.asarray(first))
    single = pictures.convert(pictures.file_of(first, format), image_format="png")
    assert not single.animated


def test_a_broken_second_frame_does_not_affect_the_first() -> None:
    first = Image.fromarray(pictures.rgb_pixels()).quantize(30)
    alone = pictures.file_of(first, "GIF")
    data = pictures.file_of(first, "GIF", save_all=True, append_images=[first.rotate(180)])
    cut = data[: (len(alone) + len(data)) // 2]
    assert np.array_equal(pictures.to_png(cut), np.asarray(first.convert("RGB")))


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
    chance, found = random.Random(4), 0
    for data in JPEGS * 6:
        at = chance.randrange(data.index(b"\xff\xda") + 40, len(data) - 300)
        swapped = data[at + 128 : at + 256] + data[at : at + 128]
        for damaged in (bytes(64), swapped):
            try:
                _loaded(data[:at] + damaged + data[at + len(damaged) :])
            except ImageFault:
                found += 1
    assert found > len(JPEGS) * 12 * 0.4


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


def test_unread_data_after_the_scan_and_damage_after_harmless_bytes_are_detected() -> None:
    data = JPEGS[0]
    assert _reason(data[:-2] + bytes(range(1, 200)) + data[-2:]) == "CORRUPT"
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
    image = picture()
    rows = b"".join(b"\0" + row.tobytes() for row in np.asarray(image))
    return pictures.png_of_stream(image.size, 8, 2, change(zlib.compress(rows)))


def test_a_png_with_a_wrong_checksum_or_too_few_rows_is_refused() -> None:
    assert _loaded(_png(lambda stream: stream)).damage == ""
    assert _reason(_png(lambda stream: stream[:-1] + bytes((stream[-1] ^ 1,)))) == "CORRUPT"
    fault = pictures.fault(_png(lambda stream: zlib.compress(zlib.decompress(stream)[:-2000])))
    assert fault.reason == "TRUNCATED" and "rows are missing" in fault.message
    more = _png(lambda stream: zlib.compress(zlib.decompress(stream) + b"more"))
    assert _loaded(more).damage == ""


def test_a_png_of_another_encoder_is_accepted() -> None:
    encoded = cv2.imencode(".png", np.asarray(picture(37, 23)), [cv2.IMWRITE_PNG_STRATEGY, 1])[1].tobytes()
    assert _loaded(encoded).damage == ""


GIF = pictures.file_of(Image.fromarray(pictures.rgb_pixels(60, 40)).convert("P"), "GIF")
FRAME = GIF.index(b"\x2c", 13 + (3 << (GIF[10] & 7) + 1))
DEFECTIVE = "Image is defective, decoding aborted"
#: Position of the pixels, after the descriptor of the frame and the size of its codes.
PIXELS = FRAME + 11


@pytest.mark.parametrize("harmless", [b"\x21\xfe\x00", b"\0\0"])
def test_an_empty_comment_and_bytes_between_blocks_are_skipped(harmless: bytes) -> None:
    pictures.assert_as_pillow(GIF[:FRAME] + harmless + GIF[FRAME:])


def test_gif_codes_wider_than_a_byte_are_refused_by_name() -> None:
    assert GIF[PIXELS - 1] == 8
    fault = pictures.fault(GIF[: PIXELS - 1] + b"\x0b" + GIF[PIXELS:])
    assert fault.reason == "UNSUPPORTED_FORMAT"
    assert "its codes begin with 11 bits" in fault.message and "convert it to PNG" in fault.message


@pytest.mark.parametrize(
    ("data", "reason", "message"),
    [
        (GIF[:PIXELS], "TRUNCATED", f"it ends after {PIXELS} bytes, inside of a frame"),
        (
            GIF[:PIXELS] + b"\x08" + b"\1" * 8 + b"\0;",
            "TRUNCATED",
            "Image EOF detected before image complete",
        ),
        (GIF[:PIXELS] + b"\0;", "CORRUPT", DEFECTIVE),
        (GIF[:PIXELS] + b"\x08" + b"\xff" * 8 + GIF[PIXELS:], "CORRUPT", DEFECTIVE),
        (GIF[: PIXELS + 256] + b"\0;", "CORRUPT", DEFECTIVE),
    ],
)
def test_each_damage_of_a_gif_is_named(data: bytes, reason: str, message: str) -> None:
    fault = pictures.fault(data)
    assert (fault.reason, fault.message) == (reason, f"gif: {message}")
