"""Private data in the metadata of images are found wherever Pillow writes them; stripping removes them."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, PngImagePlugin

from shardwright.transforms.images.metadata import strip_metadata
from shardwright.transforms.images.private_metadata import (
    PERSON,
    POSITION,
    PRIVATE_KINDS,
    SERIAL_NUMBER,
    in_words,
    private_metadata,
)

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


def encoded(format_: str, **options: object) -> bytes:
    file = io.BytesIO()
    Image.linear_gradient("L").resize((24, 16)).convert("RGB").save(file, format_, **options)
    return file.getvalue()


def with_segment(jpeg: bytes, marker: int, content: bytes) -> bytes:
    return jpeg[:2] + bytes((0xFF, marker)) + (len(content) + 2).to_bytes(2, "big") + content + jpeg[2:]


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
    "MPO": (
        "jpeg",
        lambda: encoded("mpo", save_all=True, append_images=[Image.new("RGB", (8, 8))], exif=exif()),
        ALL,
    ),
    "PNG, eXIf": ("png", lambda: encoded("png", exif=exif()), ALL),
    "PNG, XMP": ("png", lambda: with_itxt(XMP.decode(), False), ALL),
    "PNG, compressed XMP": ("png", lambda: with_itxt(XMP.decode(), True), ALL),
    "PNG, author": ("png", lambda: with_text(("Title", "Ada", False), ("Author", "Ada", False)), (PERSON,)),
    "PNG, profile of EXIF": ("png", lambda: raw_profile("exif", exif()), ALL),
    "PNG, profile of XMP": ("png", lambda: raw_profile("xmp", XMP), ALL),
    "PNG, profile of IPTC": ("png", lambda: raw_profile("iptc", IPTC), (PERSON,)),
    "WebP, EXIF": ("webp", lambda: encoded("webp", exif=exif()), ALL),
    "WebP, XMP": ("webp", lambda: encoded("webp", xmp=XMP, lossless=True), ALL),
    "TIFF": ("tiff", lambda: encoded("tiff", tiffinfo={0x013B: "Ada"}), (PERSON,)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_private_data_are_found_and_stripped(name: str) -> None:
    kind, make, wanted = CASES[name]
    data = make()
    assert private_metadata(data, kind) == wanted
    if kind != "tiff":
        stripped = strip_metadata(data, kind)
        assert private_metadata(stripped, kind) == ()
        with Image.open(io.BytesIO(data)) as before, Image.open(io.BytesIO(stripped)) as after:
            assert before.convert("RGB").tobytes() == after.convert("RGB").tobytes()
            assert not after.getexif() and not {"xmp", "exif", "comment", "photoshop"} & set(after.info)
            assert getattr(after, "n_frames", 1) == 1


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp"])
def test_images_without_metadata_have_none(kind: str) -> None:
    assert private_metadata(encoded(kind), kind) == ()


def test_a_comment_is_stripped() -> None:
    assert b"Ada" not in strip_metadata(encoded("jpeg", comment=b"Ada"), "jpeg")


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


def test_kinds_in_words() -> None:
    assert in_words(ALL) == "a GPS position, a serial number and a name of a person"
    assert in_words((POSITION, SERIAL_NUMBER)) == "a GPS position and a serial number"
    assert in_words((PERSON,)) == "a name of a person"
