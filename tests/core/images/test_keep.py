"""When an image's own bytes are stored, and how private data in them are found and stripped."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from importlib.util import find_spec

import imagecodecs
import numpy as np
import pytest
from helpers import iso_files, pictures
from helpers.examples import examples
from helpers.fewer_imports import late
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image, PngImagePlugin

from shardwright.core.images.convert import map_image
from shardwright.core.images.metadata import (
    PERSON,
    PRIVATE_KINDS,
    private_metadata,
    strip_metadata,
)
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import ImageRef

tf = late("tensorflow")


RGB = Image.fromarray(pictures.rgb_pixels())
GRAY = RGB.convert("L")
RGBA = RGB.copy()
RGBA.putalpha(Image.fromarray(pictures.alpha_pixels()))
GRAY16 = Image.fromarray(pictures.gray16_pixels())
CMYK = RGB.convert("CMYK")
FRAMES = {"save_all": True, "append_images": [GRAY.convert("RGB")]}
_CLEAR = {"transparency": (255, 0, 0)}
_PROFILE = pictures.icc_profile(pictures.SRGB_PRIMARIES, 1.8)

#: Description -> (file, kept with --color keep / rgb / gray, format when re-encoded)
FILES = {
    "jpeg rgb": (pictures.file_of(RGB, "JPEG"), "keep rgb", "jpg"),
    "jpeg progressive": (pictures.file_of(RGB, "JPEG", progressive=True), "keep rgb", "jpg"),
    "jpeg grey": (pictures.file_of(GRAY, "JPEG"), "keep gray", "jpg"),
    "jpeg 1x1": (pictures.file_of(RGB.resize((1, 1)), "JPEG"), "keep rgb", "jpg"),
    "jpeg 7x200": (pictures.file_of(RGB.resize((7, 200)), "JPEG"), "keep rgb", "jpg"),
    "jpeg upright tag": (pictures.file_of(RGB, "JPEG", exif=b"Exif\0\0garbage"), "keep rgb", "jpg"),
    "jpeg turned": (pictures.file_of(RGB, "JPEG", 6), "", "jpg"),
    "jpeg cmyk": (pictures.file_of(CMYK, "JPEG"), "", "jpg"),
    "jpeg other colours": (pictures.file_of(RGB, "JPEG", icc_profile=_PROFILE), "", "jpg"),
    "png rgb": (pictures.file_of(RGB, "PNG"), "keep rgb", "png"),
    "png grey": (pictures.file_of(GRAY, "PNG"), "keep gray", "png"),
    "png 1 bit": (pictures.file_of(GRAY.convert("1"), "PNG"), "keep gray", "png"),
    "png palette": (pictures.file_of(RGB.quantize(9), "PNG"), "keep rgb", "png"),
    "png 2 bit palette": (pictures.file_of(RGB.quantize(3), "PNG"), "keep rgb", "png"),
    "png palette, clear": (pictures.file_of(RGB.quantize(9), "PNG", transparency=2), "", "png"),
    "png alpha": (pictures.file_of(RGBA, "PNG"), "keep", "png"),
    "png grey alpha": (pictures.file_of(RGBA.convert("LA"), "PNG"), "keep", "png"),
    "png colour key": (pictures.file_of(RGB, "PNG", **_CLEAR), "", "png"),
    "png 16 bit": (pictures.file_of(GRAY16, "PNG"), "", "png"),
    "png 16 bit rgb": (pictures.raw_png((1, 1), 16, 2, [b"\1\2\3\4\5\6"]), "", "png"),
    "png turned": (pictures.file_of(RGB, "PNG", 8), "", "png"),
    "png animated": (pictures.file_of(RGB, "PNG", **FRAMES), "", "png"),
    "webp rgb": (pictures.file_of(RGB, "WEBP"), "keep rgb", "png"),
    "webp alpha": (pictures.file_of(RGBA, "WEBP"), "keep", "png"),
    "webp turned": (pictures.file_of(RGB, "WEBP", 3), "", "png"),
    "webp animated": (pictures.file_of(RGB, "WEBP", **FRAMES), "", "png"),
    "gif": (pictures.file_of(RGB.quantize(9), "GIF"), "", "png"),
    "bmp": (pictures.file_of(RGB, "BMP"), "", "png"),
    "tiff": (pictures.file_of(RGB, "TIFF"), "", "png"),
    "jpeg 2000": (iso_files.jp2_of(RGB), "", "png"),
    "jpeg 2000, bare": (iso_files.jp2_of(RGB, no_jp2=True), "", "png"),
    "jpeg xl": (iso_files.jxl_of(RGB), "", "png"),
    "jpeg xl of a jpeg": (imagecodecs.jpegxl_encode_jpeg(pictures.file_of(RGB, "JPEG")), "", "png"),
    "avif": (pictures.file_of(RGB, "AVIF"), "", "png"),
}
if find_spec("pillow_heif"):
    FILES["heif"] = (iso_files.heif_of(RGB), "", "png")


def _read_by_tensorflow(encoded: bytes, format: str, channels: int) -> np.ndarray:
    if format == "webp":  # the requested number of channels, and a leading axis of frames
        return tf.io.decode_webp(encoded, channels=channels)[0].numpy()
    one = {"jpg": tf.io.decode_jpeg, "png": tf.io.decode_png}[format](encoded).numpy()
    assert np.array_equal(one, tf.io.decode_image(encoded, expand_animations=False).numpy())
    return one


@pytest.mark.parametrize("kind", FILES)
def test_bytes_are_kept_if_and_only_if_nothing_has_to_change(kind: str) -> None:
    data, kept_with, encoded_as = FILES[kind]
    for color in ("keep", "rgb", "gray"):
        image = pictures.convert(data, image_format="keep", color=color)
        assert image.kept == (color in kept_with.split()), color
        if image.kept:
            assert image.encoded is data
            wanted = ConvertSettings(("in",), image_format="keep", color=color)
            [(_, mapped, _)] = map_image(data, ImageRef("a", "a"), lambda item: item.image, wanted)
            assert mapped._replace(decoding=image.decoding) == image
        else:
            assert image.format == encoded_as
            assert image.channels == {"rgb": 3, "gray": 1}.get(color, image.channels)
        assert image.animated == (kind.endswith("animated"))
        shape = _read_by_tensorflow(image.encoded, image.format, image.channels).shape
        assert shape == (image.height, image.width, image.channels), color


def test_bytes_are_kept_when_the_size_already_fits() -> None:
    data = pictures.file_of(RGB, "JPEG")
    for fit in ("stretch", "contain", "cover", "fit", "pad"):
        assert pictures.convert(data, image_format="keep", resize="23x17", fit=fit).kept
        assert not pictures.convert(data, image_format="keep", resize="23x18", fit="pad").kept


@pytest.mark.parametrize("stored", ["jpeg", "png", "webp", "raw"])
@pytest.mark.parametrize("color", ["rgb", "gray"])
def test_the_record_states_the_stored_format(stored: str, color: str) -> None:
    image = pictures.convert(FILES["png alpha"][0], image_format=stored, color=color, resize="30x20")
    assert (image.width, image.height) == (30, 20)
    if stored == "raw":
        assert len(image.encoded) == 30 * 20 * image.channels
        return
    assert image.channels == (1 if color == "gray" and stored != "webp" else 3)
    shape = _read_by_tensorflow(image.encoded, image.format, image.channels).shape
    assert shape == (20, 30, image.channels)


XMP = b"""<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF><rdf:Description exif:GPSLatitude="47,22.5N"
 aux:SerialNumber='123'><dc:creator><rdf:Seq><rdf:li>Ada</rdf:li></rdf:Seq></dc:creator></rdf:Description>
</rdf:RDF></x:xmpmeta>"""
EMPTY_XMP = XMP.replace(b"47,22.5N", b"").replace(b"'123'", b"''").replace(b">Ada<", b"><")
#: Photoshop's resources with IPTC's by-line (2:80) after a caption (2:120).
IPTC = b"\x1c\x02\x78\x00\x02Hi\x1c\x02\x50\x00\x03Ada"
IPTC = b"8BIM\x04\x04\0\0" + len(IPTC).to_bytes(4, "big") + IPTC


def exif(latitude: tuple[float, ...] = (47.0, 22.0, 30.0), serial: str = "42", owner: str = "Ada") -> bytes:
    found = Image.Exif()
    found[0x010F] = "Maker"
    found.get_ifd(0x8825).update({0: b"\2\3\0\0", 1: "N", 2: latitude, 3: "E", 4: latitude})
    found.get_ifd(0x8769).update({0xA430: owner, 0xA431: serial})
    return found.tobytes()


def encoded(format_: str, mode: str = "RGB", **options: object) -> bytes:
    return pictures.file_of(Image.linear_gradient("L").resize((24, 16)).convert(mode), format_, **options)


def with_segment(jpeg: bytes, marker: int, content: bytes) -> bytes:
    return jpeg[:2] + bytes((0xFF, marker)) + (len(content) + 2).to_bytes(2, "big") + content + jpeg[2:]


def jpeg_with_everything() -> bytes:
    data = encoded(
        "jpeg", exif=exif(), xmp=XMP, icc_profile=_PROFILE, comment=b"of Ada's camera", progressive=True
    )
    data = with_segment(data, 0xE4, b"Ada's maker")
    return with_segment(data, 0xED, b"Photoshop 3.0\0" + IPTC) + b"Ada after the picture"


def with_text(*texts: tuple[str, str, bool]) -> bytes:
    info = PngImagePlugin.PngInfo()
    for name, text, compressed in texts:
        info.add_text(name, text, compressed)
    return encoded("png", pnginfo=info)


def with_itxt(text: str, compressed: bool) -> bytes:
    info = PngImagePlugin.PngInfo()
    info.add_itxt("XML:com.adobe.xmp", text, zip=compressed)
    return encoded("png", pnginfo=info)


def raw_profile(kind: str, content: bytes) -> bytes:
    return with_text((f"Raw profile type {kind}", f"\n{kind}\n {len(content):7}\n{content.hex()}\n", True))


ALL = tuple(PRIVATE_KINDS)
CASES: dict[str, tuple[str, Callable[[], bytes], tuple[str, ...]]] = {
    "JPEG, EXIF": ("jpeg", lambda: encoded("jpeg", exif=exif()), ALL),
    "JPEG, EXIF without a fix": (
        "jpeg", lambda: encoded("jpeg", exif=exif((0.0, 0.0, 0.0), "  ", "Ada")), (PERSON,),
    ),
    "JPEG, XMP": ("jpeg", lambda: encoded("jpeg", xmp=XMP), ALL),
    "JPEG, empty XMP": ("jpeg", lambda: encoded("jpeg", xmp=EMPTY_XMP), ()),
    "JPEG, IPTC": (
        "jpeg", lambda: with_segment(encoded("jpeg"), 0xED, b"Photoshop 3.0\0" + IPTC), (PERSON,),
    ),
    "JPEG, second image": ("jpeg", lambda: encoded("jpeg") + encoded("jpeg", exif=exif()), ALL),
    "JPEG, everything": ("jpeg", lambda: jpeg_with_everything(), ALL),
    "JPEG, restarts": (
        "jpeg", lambda: pictures.file_of(RGB, "JPEG", restart_marker_rows=1, exif=exif()), ALL,
    ),
    "JPEG, CMYK": ("jpeg", lambda: encoded("jpeg", "CMYK", exif=exif()), ALL),
    "MPO": (
        "jpeg",
        lambda: encoded("mpo", save_all=True, append_images=[Image.new("RGB", (8, 8))], exif=exif()),
        ALL,
    ),
    "PNG, eXIf": ("png", lambda: encoded("png", exif=exif(), icc_profile=_PROFILE), ALL),
    "PNG, XMP": ("png", lambda: with_itxt(XMP.decode(), False), ALL),
    "PNG, compressed XMP": ("png", lambda: with_itxt(XMP.decode(), True), ALL),
    "PNG, author": ("png", lambda: with_text(("Title", "Ada", False), ("Author", "Ada", False)), (PERSON,)),
    "PNG, profile of EXIF": ("png", lambda: raw_profile("exif", exif()), ALL),
    "PNG, profile of XMP": ("png", lambda: raw_profile("xmp", XMP), ALL),
    "PNG, profile of IPTC": ("png", lambda: raw_profile("iptc", IPTC), (PERSON,)),
    "WebP, EXIF": ("webp", lambda: encoded("webp", exif=exif()), ALL),
    "WebP, XMP": ("webp", lambda: encoded("webp", xmp=XMP, lossless=True, icc_profile=_PROFILE), ALL),
    "TIFF": ("tiff", lambda: encoded("tiff", tiffinfo={0x013B: "Ada"}), (PERSON,)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_private_data_are_found_and_stripped(name: str) -> None:
    kind, make, wanted = CASES[name]
    data = make()
    assert private_metadata(data, kind) == wanted
    if kind != "tiff":
        stripped = strip_metadata(data, kind)
        assert private_metadata(stripped, kind) == () and b"Ada" not in stripped
        assert strip_metadata(stripped, kind) == stripped and len(stripped) < len(data)
        with Image.open(io.BytesIO(data)) as before, Image.open(io.BytesIO(stripped)) as after:
            assert before.mode == after.mode and before.tobytes() == after.tobytes()
            assert before.info.get("icc_profile") == after.info.get("icc_profile")
            assert not after.getexif() and not {"xmp", "exif", "comment", "photoshop"} & set(after.info)
            assert getattr(after, "n_frames", 1) == 1


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp"])
def test_images_without_metadata_have_none(kind: str) -> None:
    data = encoded(kind)
    if kind == "webp":  # with a chunk without flags, which decoders pass over
        body = data[8:] + b"VP8X\0\0\0\0"
        data = b"RIFF" + len(body).to_bytes(4, "little") + body
    assert private_metadata(data, kind) == ()
    assert strip_metadata(data, kind) == data


def test_texts_are_not_decompressed_without_a_limit() -> None:
    bomb = zlib.compress(b"\0" * 50_000_000 + XMP)
    chunk = b"iTXt" + b"XML:com.adobe.xmp\0\1\0\0\0" + bomb
    data = b"\x89PNG\r\n\x1a\n" + (len(chunk) - 4).to_bytes(4, "big") + chunk + bytes(4)
    assert private_metadata(data, "png") == ()


@given(st.binary(max_size=60), st.sampled_from([*CASES]), st.integers(0), st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_metadata_never_fail(noise: bytes, name: str, at: int, draw: st.DataObject) -> None:
    kind, make, _ = CASES[name]
    data = make()
    at %= len(data)
    length = draw.draw(st.integers(0, 60))
    assert set(private_metadata(data[:at] + noise + data[at + length :], kind)) <= set(PRIVATE_KINDS)


#: Bytes that have a meaning between the segments of a JPEG, and a few that have none.
_BYTES = [0xFF] * 8 + [0, 1, 0xC0, 0xC2, 0xC4, 0xD0, 0xD7, 0xD8, 0xD9, 0xDA, 0xE0, 0xE1, 0xFE, 2, 3, 8, 0x11]
_FRAME = b"\xff\xc0\0\x11\x08\0\x05\0\x07\x03\1\x22\0\2\x11\1\3\x11\1"


def _read_byte_by_byte(data: bytes) -> bytes:
    """Reads a JPEG as T.81 describes it, two bytes at a time; returns the file without metadata."""
    out, at, fill = bytearray(data[:2]), 2, b""
    has_scan = False
    while at < len(data):
        marker = data[at + 1] if at + 1 < len(data) else 0
        if data[at] == marker == 0xFF:
            fill += b"\xff"
            at += 1
            continue
        end = at + 2
        is_metadata, in_scans = False, has_scan
        if not has_scan and (data[at] != 0xFF or not marker):
            fill += data[at : at + 1]
            at += 1
            continue
        if data[at] != 0xFF:
            end = at + 1
        elif marker == 0xD9:
            return bytes(out + b"\xff\xd9")
        elif marker > 1 and not 0xD0 <= marker <= 0xD8:
            end += max(2, int.from_bytes(data[at + 2 : at + 4], "big"))
            is_jfif = marker == 0xE0 and data[at + 4 : at + 9] == b"JFIF\0"
            is_metadata = marker == 0xFE or (0xE0 <= marker <= 0xEF and not is_jfif)
            has_scan = has_scan or marker == 0xDA
        if not is_metadata:
            out += (fill if in_scans else b"") + data[at:end]
        at, fill = end, b""
    return bytes(out + fill)


@example([b"stray", b"\xff\xe1\0\4ab", b"\0\xff\xff", _FRAME])
@given(
    st.lists(
        st.one_of(st.sampled_from(_BYTES).map(lambda byte: bytes((byte,))), st.just(_FRAME)), max_size=40
    )
)
@settings(max_examples=examples(600), deadline=None)
def test_segments_are_found_among_any_bytes(parts: list[bytes]) -> None:
    data = b"\xff\xd8" + b"".join(parts)
    assert strip_metadata(data, "jpeg") == _read_byte_by_byte(data)
