"""An image whose header is known gets the same verdict as one whose header is read."""

from __future__ import annotations

import io
import random
from contextlib import suppress
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from shardwright.schemas.bounds import DEFAULT_BOUNDS, Bounds
from shardwright.schemas.errors import ImageFault
from shardwright.transforms.images import decode
from shardwright.transforms.images.jpeg_headers import JpegHeaders, header_bytes
from shardwright.transforms.images.metadata import strip_metadata
from shardwright.transforms.validation.image import DeclaredImage, check_image

EXIF = Image.Exif()
EXIF[274] = 6
OPTIONS = (
    {}, {"progressive": True}, {"restart_marker_blocks": 1}, {"subsampling": 0}, {"optimize": True},
    {"exif": EXIF}, {"comment": b"made by hand"}, {"quality": 30},
)  # fmt: skip
DECLARED = DeclaredImage([(24, None, None), (None, 31, 3)], "jpg", b"RGB")


@cache
def jpegs() -> tuple[bytes, ...]:
    """JPEGs of every kind, and two pictures of each."""
    made = []
    noise = np.random.default_rng(5).integers(0, 255, (2, 3, 4, 4), dtype=np.uint8)
    for picture in noise:
        for mode in ("RGB", "L", "CMYK"):
            image = Image.fromarray(picture.transpose(1, 2, 0)).resize((31, 24)).convert(mode)
            for options in OPTIONS:
                file = io.BytesIO()
                image.save(file, "JPEG", **options)
                made.append(file.getvalue())
    return tuple(made)


def damaged(data: bytes, how: str, chance: random.Random) -> bytes:
    """Returns a file with one fault."""
    place, some = chance.randrange(len(data)), chance.randbytes(chance.randrange(1, 30))
    scan = header_bytes(data) or place
    return {
        "none": data,
        "flip": data[:place] + bytes((data[place] ^ 1 << chance.randrange(8),)) + data[place + 1 :],
        "flip in the scan": data[:scan] + bytes((chance.randrange(256),)) + data[scan + 1 :],
        "cut": data[:place],
        "remove": data[:place] + data[place + len(some) :],
        "insert": data[:place] + some + data[place:],
        "append": data + some,
        "comment at the end": data[:-2] + b"\xff\xfe\x00\x05abc\xff\xd9",
        "metadata at the end": data[:-2] + b"\xff\xe1\x00\x08Exif\0\0\xff\xd9",
        "two ends": data + b"\xff\xd9",
    }[how]


WAYS = (
    "none", "flip", "flip in the scan", "cut", "remove", "insert", "append", "comment at the end",
    "metadata at the end", "two ends",
)  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 1000), st.sampled_from(WAYS)), max_size=8), st.integers())
def test_a_known_header_does_not_change_the_verdict(steps: list[tuple[int, str]], seed: int) -> None:
    headers, chance = JpegHeaders(), random.Random(seed)
    files = jpegs()
    for place, how in steps:
        data = files[place % len(files)]
        for file in (data, damaged(data, how, chance)):
            reserved: list[list[int]] = [[], []]
            plain = check_image(file, DECLARED, False, reserved[0].append)
            seen = check_image(file, DECLARED, False, reserved[1].append, headers=headers)
            assert (seen.problems, seen.format, seen.size) == (plain.problems, plain.format, plain.size)
            assert reserved[0] == reserved[1]
            assert (seen.image is None and seen.header is None) == (plain.image is None)
            if seen.header is not None and seen.header.bare and seen.header.ends_after_scan(file):
                assert strip_metadata(file, "jpeg") == file


def test_pictures_of_one_size_share_their_header() -> None:
    headers = JpegHeaders()
    half = len(jpegs()) // 2
    for first, second in zip(jpegs()[:half], jpegs()[half:]):
        check_image(first, DECLARED, False, headers=headers)
        seen = check_image(second, DECLARED, False, headers=headers)
        if header_bytes(first):
            assert (seen.header is not None) == (
                first[: header_bytes(first)] == second[: header_bytes(first)]
            )
        if seen.header is not None:
            assert seen.header.bare
            assert seen.header.ends_after_scan(second)


@pytest.mark.parametrize(("options", "is_plain"), zip(OPTIONS, (1, 0, 1, 1, 1, 0, 0, 1)))
def test_only_plain_headers_of_one_scan_count(options: dict[str, object], is_plain: int) -> None:
    file = io.BytesIO()
    Image.new("RGB", (9, 9)).save(file, "JPEG", **options)  # type: ignore[arg-type]
    length = header_bytes(file.getvalue())
    assert bool(length) == bool(is_plain)
    assert not length or file.getvalue()[:length].rfind(b"\xff\xda") > 0


def test_few_headers_are_kept() -> None:
    headers = JpegHeaders()
    found = 0
    for side in range(1, 300):
        file = io.BytesIO()
        Image.new("L", (side, 8)).save(file, "JPEG")
        for _ in range(2):
            seen = check_image(file.getvalue(), DeclaredImage(), False, headers=headers)
        found += seen.header is not None
    assert found == 256


def resized(data: bytes, chance: random.Random) -> bytes:
    """Returns a file whose header states another width and height, some of them close to its markers."""
    frame = max(data.find(b"\xff\xc0"), 0)
    sides = chance.choice(
        (b"\0\x18\0\x1f", b"\0\0\0\x1f", b"\0\x09\xff\xda", b"\xff\xc0\0\x11", b"\0\x1f\0\x18")
    )
    return data[: frame + 5] + sides + data[frame + 9 :]


def opened_and_decoded(data: bytes, max_pixels: int, factor: int, bounds: Bounds) -> object:
    """Returns everything that opening and decoding a file shows."""
    try:
        opened = decode.open_image(data, "a.jpg", max_pixels, bounds)
        shown = [opened.size, opened.image.mode, opened.image.info, opened.image.format, opened.orientation]
        shown += [opened.animated, opened.coefficient_bytes, opened.depth]
        shown += [
            decode.reduce_jpeg(opened, factor),
            decode.reduce_jpeg(opened, 8),
            decode.decoder_bytes(opened),
        ]
        loaded = decode.load_checked(opened, max_pixels)
        return [*shown, loaded.note, loaded.image.mode, loaded.image.info, np.asarray(loaded.image).tobytes()]
    except ImageFault as fault:
        return fault.reason, fault.stage, fault.message


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.sampled_from(WAYS)), max_size=4),
    st.sampled_from((743, 744, 10**6)),
    st.sampled_from((1, 2, 4, 8)),
    st.sampled_from((DEFAULT_BOUNDS, Bounds(segments=8))),
    st.integers(),
)
def test_a_known_header_is_opened_and_decoded_as_a_new_one(
    steps: list[tuple[int, str]], max_pixels: int, factor: int, bounds: Bounds, seed: int
) -> None:
    chance, files = random.Random(seed), jpegs()
    for place, how in steps:
        data = files[place % len(files)]
        for file in (data, resized(data, chance), damaged(data, how, chance)):
            decode.opened_jpegs.cache_clear()
            plain = opened_and_decoded(file, max_pixels, factor, bounds)
            for known in filter(header_bytes, files[: len(files) // 2]):
                with suppress(ImageFault):
                    decode.open_image(known, "a.jpg", 10**6, bounds)
            assert opened_and_decoded(file, max_pixels, factor, bounds) == plain


def test_pillow_opens_one_of_many_files_that_differ_in_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    decode.opened_jpegs.cache_clear()
    opened = []
    monkeypatch.setattr(decode, "_open", lambda *values, real=decode._open: opened.append(1) or real(*values))
    for side in range(1, 40):
        file = io.BytesIO()
        Image.new("RGB", (side, 8)).save(file, "JPEG")
        assert decode.open_image(file.getvalue(), "a.jpg", 10**6).size == (side, 8)
    assert len(opened) == 1


def test_a_jpeg_with_a_known_header_that_turbojpeg_refuses_is_decoded_by_pillow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = jpegs()[0]

    def refuse(*_: object) -> None:
        raise decode.jpeg.CannotReport

    monkeypatch.setattr(decode.jpeg, "decode_jpeg", refuse)
    for factor in (1, 2, 8):
        pictures = []
        for _ in range(2):
            opened = decode.open_image(data, "a.jpg", 10**6)
            decode.reduce_jpeg(opened, factor)
            pictures.append(decode.load(opened, 10**6))
        assert pictures[0].tobytes() == pictures[1].tobytes()
        assert pictures[0].size == pictures[1].size == (-(-31 // factor), 24 // factor)
