"""HEIF: pixels, orientation, and files that are damaged or lie about themselves."""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from helpers import iso_files, pictures
from helpers.iso_files import box
from PIL import Image

from shardwright.core.images.decode import load_checked, open_image
from shardwright.core.images.encode import installed_version
from shardwright.schemas.errors import ImageFault

plugin = pytest.importorskip("pillow_heif.as_plugin", reason="the extra heif is not installed")

RGB = Image.fromarray(pictures.rgb_pixels(200, 140))
GRAY = RGB.convert("L")
WHOLE, TILED = iso_files.heif_of(RGB, quality=95), iso_files.heif_of(RGB, quality=95, tile_size=64)


@pytest.mark.parametrize("data", [WHOLE, TILED])
def test_pixels_are_close_to_the_source(data: bytes) -> None:
    assert pictures.difference(pictures.to_png(data, "a.heic"), np.asarray(RGB)) < 12
    lossless = iso_files.heif_of(GRAY, quality=-1)
    assert pictures.difference(pictures.to_png(lossless, color="gray").squeeze(), np.asarray(GRAY)) < 1


def test_alpha_is_flattened() -> None:
    clear = RGB.copy()
    clear.putalpha(Image.new("L", RGB.size, 0))
    found = pictures.to_png(iso_files.heif_of(clear, quality=95), "a.heic", background="#102030")
    assert pictures.difference(found, np.broadcast_to((16, 32, 48), found.shape)) < 2


@pytest.mark.sampled(3)
@pytest.mark.parametrize("orientation", range(1, 9))
def test_libheif_applies_the_orientation_once(orientation: int) -> None:
    stored = Image.fromarray(pictures.stored(np.asarray(RGB), orientation))
    data = iso_files.heif_of(stored, orientation, quality=95)
    assert (b"irot" in data or b"imir" in data) == (orientation != 1)
    found = pictures.to_png(data, "a.heic")
    assert found.shape == (RGB.height, RGB.width, 3)
    assert pictures.difference(found, np.asarray(RGB)) < 12


def test_the_orientation_in_exif_alone_does_not_count() -> None:
    turned = iso_files.heif_of(RGB, 6, quality=95)
    unturned = turned.replace(b"irot", b"free")
    assert pictures.to_png(turned).shape == (200, 140, 3)
    assert pictures.to_png(unturned).shape == (140, 200, 3)


def test_an_icc_profile_is_applied() -> None:
    found = pictures.to_png(iso_files.heif_of(RGB, quality=95, icc_profile=pictures.BGR))
    assert pictures.difference(found, np.asarray(RGB)[..., ::-1]) < 14


@pytest.mark.parametrize("data", [WHOLE, TILED])
def test_a_file_that_ends_early_is_truncated(data: bytes) -> None:
    for sixteenth in range(1, 16):
        assert pictures.fault(data[: len(data) * sixteenth // 16]).reason == "TRUNCATED"
    assert pictures.fault(data[:-1]).reason == "TRUNCATED"


@pytest.mark.parametrize("data", [WHOLE, TILED])
def test_zeros_instead_of_data_are_damage(data: bytes) -> None:
    middle = (data.index(b"mdat") + len(data)) // 2
    assert pictures.fault(data[:middle] + bytes(len(data) - middle)).reason == "CORRUPT"


@pytest.mark.parametrize(
    "stated, words",
    [
        (64, "heif: a frame in it is larger than the file says"),
        (600, "does not have the size signaled in the file"),
    ],
)
def test_a_frame_that_is_larger_than_its_item_is_refused(stated: int, words: str) -> None:
    large = iso_files.heif_of(Image.new("RGB", (640, 640)))
    size = struct.pack(">II", 640, 640)
    assert large.count(size) == 1
    fault = pictures.fault(large.replace(size, struct.pack(">II", stated, stated)))
    assert fault.reason == "CORRUPT" and words in fault.message


def test_a_header_of_absurd_size_is_refused_before_decoding() -> None:
    size = struct.pack(">II", *RGB.size)
    assert pictures.fault(WHOLE.replace(size, struct.pack(">II", 60_000, 60_000))).reason == "TOO_MANY_PIXELS"
    assert pictures.fault(TILED, max_pixels=1000).reason == "TOO_MANY_PIXELS"


def test_a_tile_that_is_used_too_often_is_refused() -> None:
    at = TILED.index(b"dimg") + 4
    wide = 2  # of the number of an item
    count = int.from_bytes(TILED[at + wide : at + wide + 2], "big")
    assert count == 12
    huge = TILED.replace(struct.pack(">II", 64, 64), struct.pack(">II", 2048, 2048))
    fault = pictures.fault(huge)
    assert fault.reason == "TOO_MANY_TILES" and "times its pixels" in fault.message


def test_a_list_of_tiles_with_a_gap_is_refused() -> None:
    rows = bytes((0, 0, 2, 3)) + struct.pack(">HH", *RGB.size)
    assert rows in TILED
    assert pictures.fault(TILED.replace(rows, bytes((0, 0, 1, 3)) + rows[4:])).reason == "CORRUPT"


def test_without_the_extra_the_message_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.setitem(sys.modules, "pillow_heif.as_plugin", None)
    fault = pictures.fault(WHOLE)
    assert fault.reason == "UNSUPPORTED_FORMAT"
    assert "pip install 'shardwright[heif]'" in fault.message


FTYP = box(b"ftyp", b"heic\0\0\0\0mif1heic")
MAX_PIXELS = 1 << 22
#: Kinds of units in HEVC: a slice of a picture, and a sequence parameter set.
SLICE, SEQUENCE = 1, 33


def _full(kind: bytes, content: bytes, version: int = 0) -> bytes:
    """Returns a box with a version."""
    return box(kind, bytes((version, 0, 0, 0)) + content)


def _unit(kind: int, content: bytes) -> bytes:
    unit = bytes((kind << 1, 1)) + content
    return struct.pack(">I", len(unit)) + unit


SLICES = _unit(SLICE, b"\1pixels\x80")
#: An `hvcC` without parameter sets, for frames whose lengths have four bytes.
SETUP = box(b"hvcC", bytes(21) + b"\3\0")
SIZE = _full(b"ispe", struct.pack(">II", 64, 48))


@dataclass(frozen=True)
class Heif:
    """What a file consists of; each field of bytes can be replaced by damage.

    Attributes:
      content: what the picture's item holds.
      kind: type of that item.
      properties: boxes that describe the item.
      owned: numbers of the properties of the item, from 1.
      extents: parts of the content.
      references: content of `iref`.
      lost: boxes of the header that are left out.
      more: bytes behind the header's boxes.
    """

    content: bytes = SLICES
    kind: bytes = b"hvc1"
    properties: tuple[bytes, ...] = (SIZE, SETUP)
    owned: tuple[int, ...] = (1, 2)
    count_of_owned: int | None = None
    extents: int = 1
    stated_extents: int | None = None
    references: bytes = b""
    lost: frozenset[bytes] = field(default_factory=frozenset)
    more: bytes = b""

    def bytes(self) -> bytes:
        """Returns the file."""
        step = -(-len(self.content) // self.extents) if self.extents else 0
        parts = [(at, min(step, len(self.content) - at)) for at in range(0, len(self.content), step or 1)]
        places = b"".join(struct.pack(">II", *part) for part in parts[: self.extents])
        stated = self.extents if self.stated_extents is None else self.stated_extents
        location = struct.pack(">BBHHHHH", 0x44, 0, 1, 1, 1, 0, stated) + places
        owned = len(self.owned) if self.count_of_owned is None else self.count_of_owned
        links = struct.pack(">IHB", 1, 1, owned) + bytearray(self.owned)
        header = {
            b"pitm": _full(b"pitm", struct.pack(">H", 1)),
            b"iinf": _full(
                b"iinf", struct.pack(">H", 1) + _full(b"infe", b"\0\1\0\0" + self.kind + b"\0", 2)
            ),
            b"iloc": _full(b"iloc", location, 1),
            b"iprp": box(b"iprp", box(b"ipco", b"".join(self.properties)) + _full(b"ipma", links)),
            b"iref": _full(b"iref", self.references) if self.references else b"",
            b"idat": box(b"idat", self.content),
        }
        kept = b"".join(data for name, data in header.items() if name not in self.lost)
        return FTYP + _full(b"meta", kept + self.more)


def _fault_of_parts(data: bytes) -> tuple[str, str]:
    fault = pictures.fault(data)
    return fault.reason, fault.message.removeprefix("heif: ")


@pytest.fixture
def accepted(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The files that passed all checks and reached libheif."""
    found: list[bytes] = []

    def read(file: Any) -> Image.Image:
        found.append(file.read())
        return Image.new("RGB", (64, 48))

    monkeypatch.setattr(plugin, "HeifImageFile", read)
    return found


@pytest.mark.parametrize(
    "made",
    [
        Heif(),
        Heif(extents=3),
        Heif(content=_unit(SEQUENCE, b"\1\x80") + SLICES),
        Heif(kind=b"iden", content=b"", extents=0),  # it is derived from another item
    ],
)  # fmt: skip
def test_sound_parts_reach_libheif(made: Heif, accepted: list[bytes]) -> None:
    open_image(made.bytes(), "a", MAX_PIXELS)
    assert accepted == [made.bytes()]


def test_incomplete_lists_and_films_are_told_from_damage() -> None:
    assert _fault_of_parts(FTYP) == ("TRUNCATED", "it ends before its header")
    film = FTYP + box(b"moov", b"")
    advice = "it is a film without a picture; extract its frames"
    assert _fault_of_parts(film) == ("UNSUPPORTED_FORMAT", advice)
    short_list_of_tiles = Heif(kind=b"grid", content=b"\0\0\0").bytes()
    assert _fault_of_parts(short_list_of_tiles) == ("TRUNCATED", "the list of its tiles ends early")


LISTS = (b"pitm", b"iloc", b"iinf", b"iprp")
#: It states billions of parts, and is refused at once.
ENDLESS = _full(b"iloc", struct.pack(">HI", 0x4400, 2**32 - 1), 2)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        *((Heif(lost=frozenset((name,))), f"its header lacks {name.decode()}") for name in LISTS),
        (Heif(more=struct.pack(">I", 99) + b"free"), "a box of its header is larger than the header"),
        (Heif(lost=frozenset((b"iloc",)), more=ENDLESS), "the list of its parts is damaged"),
        (Heif(stated_extents=40), "the list of its parts is damaged"),
        (Heif(references=box(b"dimg", struct.pack(">HHH", 1, 9, 2))), "the list of its tiles is damaged"),
        (Heif(count_of_owned=99), "the list of its properties is damaged"),
        (Heif(owned=(2,)), "an image in it has no size"),
        (Heif(owned=(1,)), "an image in it lacks its parameters"),
        (Heif(references=box(b"dimg", struct.pack(">HHH", 1, 1, 1))), "its images consist of each other"),
        (Heif(content=b"", extents=0), "its image 1 has no content"),
        (Heif(content=_unit(SEQUENCE, b"\1\x80")), "an image in it has no pixels"),
        (Heif(content=b"\0\0\0\1\2\1"), "the data of an image in it is damaged"),
        (Heif(content=_unit(SLICE, b"\1\0\0\1\x80")), "the data of an image in it is damaged"),
    ],
)
def test_damaged_lists_are_named(made: Heif, message: str) -> None:
    assert _fault_of_parts(made.bytes()) == ("CORRUPT", message)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("Unexpected end of file", "TRUNCATED"),
        ("Unsupported feature: Unsupported codec", "UNSUPPORTED_FORMAT"),
        ("Invalid input: No 'meta' box", "CORRUPT"),
    ],
)
def test_what_libheif_reports_becomes_a_reason(
    words: str, reason: str, accepted: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise SyntaxError(words)

    opened = open_image(Heif().bytes(), "a", MAX_PIXELS)
    monkeypatch.setattr(opened.image, "load", refuse)
    with pytest.raises(ImageFault) as fault:
        load_checked(opened, MAX_PIXELS)
    assert (fault.value.reason, fault.value.message) == (reason, f"heif: {words}")
    monkeypatch.setattr(plugin, "HeifImageFile", refuse)
    assert _fault_of_parts(Heif().bytes()) == (reason, words)


def test_pixels_of_another_size_than_the_header_are_damage(
    accepted: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_image(Heif().bytes(), "a", MAX_PIXELS)
    image = opened.image
    monkeypatch.setattr(image, "load", lambda: setattr(image, "_size", (4, 5)))
    with pytest.raises(ImageFault, match="its pixels do not have the size of its header"):
        opened.decode(keep_damaged=False)


def test_the_version_of_a_missing_package_is_empty() -> None:
    assert installed_version("no-such-package") == ""
