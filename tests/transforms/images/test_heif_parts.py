"""HEIF that is put together box by box: every list in it is checked before libheif reads the file."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError
from typing import Any

import pytest
from helpers.iso_files import box
from PIL import Image

from shardwright.schemas.bounds import DEFAULT_BOUNDS
from shardwright.schemas.errors import ImageFault
from shardwright.transforms.images.formats import heif
from shardwright.transforms.images.formats.opened_image import OpenOptions

plugin = pytest.importorskip("pillow_heif.as_plugin", reason="the extra heif is not installed")

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


def _exponential(value: int) -> str:
    digits = f"{value + 1:b}"
    return "0" * (len(digits) - 1) + digits


def _sequence(width: int, height: int, layers: int = 0, chroma: int = 1) -> bytes:
    """Returns the parameters of a sequence whose frames have a size (ITU-T H.265, 7.3.2.2 and 7.3.3)."""
    bits = f"0000{layers:03b}1" + "1" * 96
    if layers:  # each states its profile and its level, and both follow
        bits += "11" * layers + "00" * (8 - layers) + "1" * 96 * layers
    bits += _exponential(0) + _exponential(chroma) + ("0" if chroma == 3 else "")
    bits += _exponential(width) + _exponential(height) + "1"
    bits += "0" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


def _setup(*units: bytes) -> bytes:
    """Returns an `hvcC` with parameter sets, whose lengths have four bytes in frames."""
    sets = b"".join(b"\xa1\0\1" + unit[2:] for unit in units)
    return box(b"hvcC", bytes(21) + b"\3" + bytes((len(units),)) + sets)


SLICES = _unit(SLICE, b"\1pixels\x80")
SETUP = _setup(_unit(SEQUENCE, _sequence(64, 48)))
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


def _fault(data: bytes) -> tuple[str, str]:
    with pytest.raises(ImageFault) as fault:
        heif.HeifImage(data, OpenOptions(MAX_PIXELS, DEFAULT_BOUNDS))
    return fault.value.reason, fault.value.message.removeprefix("heif: ")


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
        Heif(properties=(SIZE, _setup(_unit(SEQUENCE, _sequence(64, 48, layers=2))))),
        Heif(properties=(SIZE, _setup(_unit(SEQUENCE, _sequence(64, 48, chroma=3))))),
        Heif(content=_unit(SEQUENCE, _sequence(64, 48)) + SLICES, properties=(SIZE, _setup())),
        Heif(kind=b"iden", content=b"", extents=0),  # it is derived from another item
    ],
)  # fmt: skip
def test_sound_parts_reach_libheif(made: Heif, accepted: list[bytes]) -> None:
    heif.HeifImage(made.bytes(), OpenOptions(MAX_PIXELS, DEFAULT_BOUNDS))
    assert accepted == [made.bytes()]


def test_lists_of_boxes_that_are_not_a_picture() -> None:
    assert _fault(FTYP) == ("TRUNCATED", "it ends before its header")
    film = FTYP + box(b"moov", b"")
    assert _fault(film) == (
        "UNSUPPORTED_FORMAT",
        "it is a film without a picture; extract its frames",
    )
    for name in (b"pitm", b"iloc", b"iinf", b"iprp"):
        lost = Heif(lost=frozenset((name,)))
        assert _fault(lost.bytes()) == ("CORRUPT", f"its header lacks {name.decode()}")
    beyond = struct.pack(">I", 99) + b"free"
    assert _fault(Heif(more=beyond).bytes()) == ("CORRUPT", "a box of its header is larger than the header")


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (Heif(stated_extents=40), "the list of its parts is damaged"),
        (Heif(references=box(b"dimg", struct.pack(">HHH", 1, 9, 2))), "the list of its tiles is damaged"),
        (Heif(count_of_owned=99), "the list of its properties is damaged"),
        (Heif(owned=(2,)), "an image in it has no size"),
        (Heif(owned=(1,)), "an image in it lacks its parameters"),
        (Heif(references=box(b"dimg", struct.pack(">HHH", 1, 1, 1))), "its images consist of each other"),
        (Heif(content=b"", extents=0), "its image 1 has no content"),
        (Heif(content=_unit(SEQUENCE, _sequence(64, 48))), "an image in it has no pixels"),
        (Heif(content=b"\0\0\0\1\2\1"), "the data of an image in it is damaged"),
        (Heif(content=_unit(SLICE, b"\1\0\0\1\x80")), "the data of an image in it is damaged"),
    ],
)
def test_damaged_lists_are_named(made: Heif, message: str) -> None:
    assert _fault(made.bytes()) == ("CORRUPT", message)


def test_a_short_list_of_tiles_is_truncated() -> None:
    assert _fault(Heif(kind=b"grid", content=b"\0\0\0").bytes()) == (
        "TRUNCATED",
        "the list of its tiles ends early",
    )


@pytest.mark.parametrize(
    ("parameters", "found"),
    [
        (_sequence(64, 48)[:9], "of unknown size"),
        (_sequence(64, 48)[:13] + bytes(20), "of unknown size"),  # a number of more than 31 bits
        (_sequence(64, 480), "with 64 x 480 pixels"),
        (_sequence(4096, 48, layers=1), "with 4096 x 48 pixels"),
    ],
)
def test_a_frame_of_another_size_is_damage(parameters: bytes, found: str) -> None:
    in_setup = Heif(properties=(SIZE, _setup(_unit(SEQUENCE, parameters))))
    # Two zeros in a row would be a start code in the content.
    made = [in_setup]
    if b"\0\0" not in parameters:
        content = _unit(SEQUENCE, parameters + b"\x80") + SLICES
        made.append(Heif(content=content, properties=(SIZE, _setup())))
    for each in made:
        reason, message = _fault(each.bytes())
        assert reason == "CORRUPT" and message.startswith("an image of 64 x 48 pixels has a frame ")
    assert _fault(in_setup.bytes())[1].endswith(found)


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

    opened = heif.HeifImage(Heif().bytes(), OpenOptions(MAX_PIXELS, DEFAULT_BOUNDS))
    monkeypatch.setattr(opened.image, "load", refuse)
    with pytest.raises(ImageFault) as fault:
        opened.decode(keep_damaged=False)
    assert (fault.value.reason, fault.value.message) == (reason, f"heif: {words}")
    monkeypatch.setattr(plugin, "HeifImageFile", refuse)
    assert _fault(Heif().bytes()) == (reason, words)


def test_pixels_of_another_size_than_the_header_are_damage(
    accepted: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = heif.HeifImage(Heif().bytes(), OpenOptions(MAX_PIXELS, DEFAULT_BOUNDS))
    image = opened.image
    monkeypatch.setattr(image, "load", lambda: setattr(image, "_size", (4, 5)))
    with pytest.raises(ImageFault, match="its pixels do not have the size of its header"):
        opened.decode(keep_damaged=False)


def test_the_version_of_a_missing_package_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(heif, "version", missing)
    assert heif.installed_heif_version.__wrapped__() == ""
