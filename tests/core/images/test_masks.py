"""Masks and outlines compared with the picture and with COCO's tools; mask files of all usual kinds."""

from __future__ import annotations

import functools
import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import pictures
from helpers.annotated import annotated, boxes_of, cat, png_pixels, saved
from helpers.examples import examples
from helpers.fewer_imports import late
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from PIL import Image
from pycocotools import mask as coco

from shardwright.core.images import masks
from shardwright.core.images.masks import encode_mask, encode_object_mask, narrow
from shardwright.core.preview import with_masks
from shardwright.schemas.annotations import Annotations, ObjectAnnotation, PanopticSegment
from shardwright.schemas.byte_range import ByteRange
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.configuration.settings import FITS
from shardwright.schemas.errors import ImageFault

SIDES = st.integers(1, 40)


def random_ids(width: int, height: int, seed: int, high: int = 255) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, high, (height, width)).astype(np.uint8)


@pytest.mark.sampled(11)
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("fit", ["none", *FITS])
@given(
    size=st.tuples(SIDES, SIDES),
    target=st.tuples(SIDES, SIDES),
    seed=st.integers(0, 99),
    turned=st.booleans(),
)
@hypothesis_settings(max_examples=examples(20), deadline=None)
def test_a_mask_is_transformed_like_its_picture(
    tmp_path_factory: pytest.TempPathFactory, orientation: int, fit: str, size: tuple[int, int],
    target: tuple[int, int], seed: int, turned: bool,
) -> None:  # fmt: skip
    ids = random_ids(*size, seed)
    data = pictures.file_of(Image.fromarray(ids), "PNG", orientation)
    drawn = pictures.UPRIGHT[orientation](ids) if turned else ids
    if drawn.shape == ids.shape:  # such a mask looks like one of the stored picture
        drawn = ids
    path = saved(tmp_path_factory.mktemp("mask") / "a.png", np.ascontiguousarray(drawn))
    wanted: dict[str, Any] = {"resample": "nearest", "image_format": "png", "color": "gray"}
    if fit != "none":
        wanted |= {"resize": "{}x{}".format(*target), "fit": fit}
    image, result = annotated(data, Annotations(semantic_mask=path), "segmentation", **wanted)
    assert np.array_equal(png_pixels(result.values["semantic_mask"][0]), pictures.pixels_of(image))
    assert result.values["semantic_format"] == [b"png"]
    # The mask of an object.
    ids %= 2
    ids[0, 0] = 1
    annotations = Annotations((cat(0, 0, *size, segmentation=packed(ids)),))
    data = pictures.file_of(Image.fromarray(ids), "PNG", orientation)
    image, result = annotated(data, annotations, background="black", **wanted)
    assert np.array_equal(png_pixels(result.values["object_mask"][0]), pictures.pixels_of(image))


WIDTH, HEIGHT = 12, 9


def picture(orientation: int = 1, width: int = WIDTH, height: int = HEIGHT) -> bytes:
    return pictures.file_of(Image.new("L", (width, height), 90), "PNG", orientation)


def stored_mask(path: Path | str, **values: object) -> np.ndarray:
    _, result = annotated(picture(), Annotations(semantic_mask=str(path)), "segmentation", **values)
    return png_pixels(result.values["semantic_mask"][0])


def refused(path: Path | str, why: str) -> None:
    with pytest.raises(ImageFault, match=why) as raised:
        stored_mask(path)
    assert raised.value.reason is QuarantineReason.BAD_ANNOTATION


@pytest.mark.parametrize("bits", [1, 2, 4])
@pytest.mark.parametrize("palette", [False, True])
def test_ids_with_few_bits_are_not_scaled_to_eight(tmp_path: Path, bits: int, palette: bool) -> None:
    ids = random_ids(WIDTH, HEIGHT, 2, 1 << bits)
    packed = [np.packbits((row[:, None] >> np.arange(bits)[::-1] & 1).ravel()).tobytes() for row in ids]
    colors = pictures.png_chunk(b"PLTE", bytes(range(0, 3 * 5 * (1 << bits), 5)))
    extra = [colors] if palette else []
    data = pictures.raw_png((WIDTH, HEIGHT), bits, 3 if palette else 0, packed, *extra)
    (tmp_path / "a.png").write_bytes(data)
    assert np.array_equal(stored_mask(tmp_path / "a.png"), ids)


def test_ids_are_read_from_every_kind_of_lossless_file(tmp_path: Path) -> None:
    ids = random_ids(WIDTH, HEIGHT, 3)
    ids[0, :2] = 0, 255
    gray, palette, bits = Image.fromarray(ids), Image.fromarray(ids, "P"), random_ids(WIDTH, HEIGHT, 4, 2)
    palette.putpalette([(i * 37) % 256 for i in range(768)])
    files: list[tuple[str, Image.Image, dict[str, Any]]] = [
        ("palette.png", palette, {"transparency": 3}),
        ("a.tif", gray, {}),
        ("a.bmp", gray, {}),
        ("a.gif", gray.convert("P"), {"optimize": False}),  # otherwise the encoder sorts the palette
        ("a.webp", gray, {"lossless": True}),
        ("bits.tif", Image.fromarray(bits * 255).convert("1"), {}),
        ("deep.png", Image.fromarray(ids.astype(np.uint16)), {}),
    ]
    for name, image, options in files:
        image.save(tmp_path / name, **options)
        stored = stored_mask(tmp_path / name)
        assert stored.dtype == np.uint8
        assert np.array_equal(stored, bits if name == "bits.tif" else ids), name


def test_gray_in_three_channels_is_read_and_colors_are_not_guessed(tmp_path: Path) -> None:
    ids = random_ids(WIDTH, HEIGHT, 5)
    opaque = np.full_like(ids, 255)
    for name, channels in {"rgb": [ids] * 3, "rgba": [ids, ids, ids, opaque]}.items():
        path = saved(tmp_path / f"{name}.png", np.dstack(channels))
        assert np.array_equal(stored_mask(path), ids)
    colored = saved(tmp_path / "colored.png", np.dstack([ids, ids, ids + 1]))
    refused(colored, "its mask colored.png: it holds colors, not class ids; save it as a gray")
    refused(saved(tmp_path / "alpha.png", np.dstack([ids] * 4)), "transparent in parts")


@pytest.mark.parametrize("kind", ["png", "tif"])
@pytest.mark.parametrize("fit", ["stretch", "pad"])
def test_ids_above_255_are_stored_in_16_bits(tmp_path: Path, kind: str, fit: str) -> None:
    ids = np.arange(WIDTH * HEIGHT, dtype=np.uint16).reshape(HEIGHT, WIDTH) * 600
    path = saved(tmp_path / f"a.{kind}", ids)
    assert np.array_equal(stored_mask(path), ids)
    shown = stored_mask(path, resize="24x24", fit=fit)
    if fit == "pad":
        assert set(shown[:3].ravel()) == set(shown[-3:].ravel()) == {65535}
        shown = shown[3:-3]
        assert np.array_equal(shown, np.kron(ids, np.ones((2, 2), np.uint16)))
    assert shown.dtype == np.int32 or shown.dtype == np.uint16
    assert set(shown.ravel()) == set(ids.ravel())


def test_padding_has_the_id_that_training_ignores(tmp_path: Path) -> None:
    ids = random_ids(WIDTH, HEIGHT, 7, 20)
    shown = stored_mask(saved(tmp_path / "a.png", ids), resize="12x12", fit="pad")
    assert (shown[[0, 1, 11]] == 255).all()
    assert np.array_equal(shown[2:11], ids)


def test_unusable_masks_are_faults_of_their_image(tmp_path: Path) -> None:
    ids = random_ids(WIDTH, HEIGHT, 8)
    refused(tmp_path / "none.png", "its mask none.png: no such file")
    refused(saved(tmp_path / "small.png", ids[1:]), "it has 12 x 8 pixels, but the image has 12 x 9")
    refused(saved(tmp_path / "turned.png", ids.T.copy()), "it has 9 x 12 pixels, but the image has 12 x 9")
    for name in ("a.jpg", "a.webp"):
        refused(saved(tmp_path / name, ids), "it is lossy (jpeg|webp), which changes values")
    for name in ("a.avif", "a.jp2"):
        refused(saved(tmp_path / name, ids), "it is (avif|jpeg2000), which may change values")
    Image.fromarray(ids).save(tmp_path / "a.tif", compression="jpeg")
    refused(tmp_path / "a.tif", "it is lossy tiff, which changes values")
    (tmp_path / "text.png").write_text("nothing but text")
    refused(tmp_path / "text.png", "not in a known image format")
    sound = Path(saved(tmp_path / "sound.png", ids)).read_bytes()
    (tmp_path / "cut.png").write_bytes(sound[: len(sound) // 2])
    refused(tmp_path / "cut.png", "its mask cut.png: png: ")
    refused(saved(tmp_path / "float.tif", ids.astype(np.float32)), "pixels of mode F, not class ids")
    refused(saved(tmp_path / "wide.tif", ids.astype(np.int32) * 600), "between 0 and 65535")
    refused(saved(tmp_path / "below.tif", ids.astype(np.int32) - 9), "ids run from -6 to 243")
    refused(tmp_path, "is a directory|not a regular file")


def test_a_mask_has_the_same_size_limit_as_images(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.png", np.zeros((300, 300), np.uint8))
    with pytest.raises(ImageFault, match="90000 pixels are more than 200;"):
        stored_mask(path, max_pixels=200)


def test_an_image_without_a_mask_is_left_out_by_default() -> None:
    for layout in ("segmentation", "panoptic"):
        with pytest.raises(ImageFault, match="there is no mask for it"):
            annotated(picture(), None, layout)
        _, result = annotated(picture(), None, layout, unlabelled="keep")
        assert not result.values


def part_of(path: Path, pixels: np.ndarray) -> str:
    """Appends a mask to a file; returns the place of this part."""
    data = pictures.file_of(Image.fromarray(pixels), "PNG")
    before = path.read_bytes() if path.exists() else b""
    path.write_bytes(before + data)
    return ByteRange(offset=len(before), length=len(data), file=str(path)).encode()


def test_masks_may_be_parts_of_files(tmp_path: Path) -> None:
    ids, instances = random_ids(WIDTH, HEIGHT, 9), random_ids(WIDTH, HEIGHT, 10).astype(np.uint16) * 9
    path = tmp_path / "spool"
    annotations = Annotations(
        semantic_place=part_of(path, ids),
        category_place=part_of(path, ids + 1),
        instance_place=part_of(path, instances),
    )
    _, result = annotated(picture(), annotations, "segmentation")
    assert np.array_equal(png_pixels(result.values["semantic_mask"][0]), ids)
    _, result = annotated(picture(), annotations, "panoptic")
    assert np.array_equal(png_pixels(result.values["panoptic_category"][0]), ids + 1)
    assert np.array_equal(png_pixels(result.values["panoptic_instance"][0]), instances)


def panoptic_file(path: Path, segments: np.ndarray) -> str:
    channels = [segments & 255, segments >> 8 & 255, segments >> 16]
    return saved(path, np.dstack(channels).astype(np.uint8))


SEGMENTS = (
    PanopticSegment(5, "owl"),
    PanopticSegment(70_000, "cat"),
    PanopticSegment(300, "dog", thing=False),
    PanopticSegment(9, "cow"),
    PanopticSegment(10, "cat"),
    PanopticSegment(-1, "cat"),
    PanopticSegment(10**30, "cat"),
)


def test_a_panoptic_mask_becomes_classes_and_instances(tmp_path: Path) -> None:
    found = np.array([5, 70_000, 300, 9, 77, 0])
    columns = np.repeat(found, 2)
    path = panoptic_file(tmp_path / "a.png", np.tile(columns, (HEIGHT, 1)))
    annotations = Annotations(panoptic_mask=path, segments=SEGMENTS)
    _, result = annotated(picture(), annotations, "panoptic")
    category = png_pixels(result.values["panoptic_category"][0])
    instance = png_pixels(result.values["panoptic_instance"][0])
    assert category.dtype == instance.dtype == np.uint8
    assert (category == np.repeat([7, 1, 2, 0, 0, 0], 2)).all()
    assert (instance == np.repeat([1, 2, 0, 0, 0, 0], 2)).all()
    assert result.counts == {"written": 3, "dropped": 3, "unlisted": 1, "vanished": 1}
    with pytest.raises(ImageFault, match="segment 9: its category 'cow' is not among the class names"):
        annotated(picture(), annotations, "panoptic", bad_boxes="fail")
    _, result = annotated(picture(), annotations, "panoptic", resize="12x12", fit="pad")
    padded = png_pixels(result.values["panoptic_category"][0])
    assert np.array_equal(padded[2:11], category)
    assert not padded[[0, 1, 11]].any()


def test_void_segments_are_ignored(tmp_path: Path) -> None:
    path = panoptic_file(tmp_path / "a.png", np.tile(np.repeat([5, 300, 10], 4), (HEIGHT, 1)))
    void = (PanopticSegment(300, "", void=True), PanopticSegment(10**30, "", void=True))
    annotations = Annotations(panoptic_mask=path, segments=(SEGMENTS[0], *void))
    _, result = annotated(picture(), annotations, "panoptic", bad_boxes="fail")
    category = png_pixels(result.values["panoptic_category"][0])
    assert (category == np.repeat([7, 0, 0], 4)).all()
    assert result.counts == {"written": 1, "unlisted": 1}  # the void segment is listed


def test_more_than_255_instances_take_16_bits(tmp_path: Path) -> None:
    numbers = np.arange(1, 401).reshape(20, 20)
    annotations = Annotations(
        panoptic_mask=panoptic_file(tmp_path / "a.png", numbers * 50),
        segments=tuple(PanopticSegment(int(number) * 50, "cat") for number in numbers.ravel()),
    )
    _, result = annotated(picture(width=20, height=20), annotations, "panoptic")
    assert np.array_equal(png_pixels(result.values["panoptic_instance"][0]), numbers)
    assert png_pixels(result.values["panoptic_category"][0]).dtype == np.uint8


def test_class_ids_that_are_too_large_for_a_mask_are_refused(tmp_path: Path) -> None:
    path = panoptic_file(tmp_path / "a.png", np.full((HEIGHT, WIDTH), 5))
    annotations = Annotations(panoptic_mask=path, segments=SEGMENTS)
    with pytest.raises(ImageFault, match="the id 70000 is above 65535"):
        annotated(picture(), annotations, "panoptic", ids={"owl": 70_000})


def test_a_panoptic_mask_of_palette_entries_is_refused(tmp_path: Path) -> None:
    Image.new("P", (WIDTH, HEIGHT)).save(tmp_path / "a.png")
    with pytest.raises(ImageFault, match="mode P, not segment ids in red, green and blue"):
        annotated(picture(), Annotations(panoptic_mask=str(tmp_path / "a.png")), "panoptic")


tf = late("tensorflow")


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (7, 1), (513, 129), (640, 480)])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_readers_get_the_encoded_values(size: tuple[int, int], share: float) -> None:
    width, height = size
    pixels = (np.random.default_rng(3).random((height, width)) < share).astype(np.uint8)
    data = encode_object_mask(Image.fromarray(pixels))
    with Image.open(io.BytesIO(data)) as opened:
        assert opened.mode == "L" and opened.size == size
        opened.verify()
    assert (tf.io.decode_png(data).numpy()[..., 0] == pixels).all()


def _drawn(*masks: list[list[int]]) -> np.ndarray:
    white = Image.new("RGB", (4, 2), (255, 255, 255))
    return np.asarray(with_masks(white, [encode_mask(narrow(np.array(mask))) for mask in masks]))


def test_stuff_is_drawn_and_instances_of_a_class_differ() -> None:
    drawn = _drawn([[0, 5, 5, 7], [0, 5, 5, 7]], [[0, 1, 2, 0], [0, 1, 2, 0]])
    colors = [tuple(drawn[0, column]) for column in range(4)]
    assert len(set(colors)) == 4 and (drawn[0] == drawn[1]).all()
    assert colors[3] == tuple(_drawn([[7] * 4] * 2)[0, 0])  # for stuff, only the class decides
    assert len({tuple(color) for color in _drawn([[1, 257, 300, 0]] * 2)[0]}) == 4


CORNERS = st.floats(-20, 60, allow_nan=False)
POLYGONS = st.lists(
    st.integers(3, 9).flatmap(lambda corners: st.lists(CORNERS, min_size=2 * corners, max_size=2 * corners)),
    min_size=1,
    max_size=3,
)
WIDE, HIGH = 20, 14


blank = functools.partial(picture, width=WIDE, height=HIGH)


def packed(mask: np.ndarray) -> dict[str, Any]:
    """Returns run lengths as text, as in COCO's JSON."""
    value = coco.encode(np.asfortranarray(mask.astype(np.uint8)))
    return {"size": value["size"], "counts": value["counts"].decode()}


def unpacked(mask: np.ndarray) -> dict[str, Any]:
    """Returns run lengths as numbers, as in COCO's crowds."""
    flat = mask.T.ravel()
    edges = np.flatnonzero(np.diff(flat, prepend=0))
    counts = np.diff([0, *edges, flat.size]).tolist()
    return {"size": list(mask.shape), "counts": counts}


@given(size=st.tuples(st.integers(15, 40), st.integers(15, 40)), polygons=POLYGONS)
@hypothesis_settings(max_examples=examples(150), deadline=None)
def test_polygons_are_drawn_as_coco_draws_them(size: tuple[int, int], polygons: list[list[float]]) -> None:
    width, height = size
    expected = coco.decode(coco.frPyObjects(polygons, height, width)).max(axis=2)
    assert np.array_equal(np.asarray(masks.draw_outline(polygons, size)), expected)


@given(size=st.tuples(SIDES, SIDES), seed=st.integers(0, 10**6), share=st.floats(0, 1))
@hypothesis_settings(max_examples=examples(150), deadline=None)
def test_run_lengths_are_read_as_coco_reads_them(size: tuple[int, int], seed: int, share: float) -> None:
    mask = (np.random.default_rng(seed).random((size[1], size[0])) < share).astype(np.uint8)
    for value in (packed(mask), unpacked(mask)):
        assert np.array_equal(np.asarray(masks.draw_outline(value, size)), mask)
        hull = masks.outline_box(value, size)
        assert (hull is None) == (not mask.any())
        if hull is not None:
            left, upper, width, height = coco.toBbox(coco.encode(np.asfortranarray(mask)))
            assert hull == (left, upper, left + width, upper + height)


def test_objects_without_an_outline_get_an_empty_mask_if_others_have_one() -> None:
    outline = [[2, 3, 8, 3, 8, 9, 2, 9]]
    annotations = Annotations((cat(1, 1, 5, 5), cat(2, 3, 8, 9, segmentation=outline)))
    _, result = annotated(blank(), annotations)
    empty, full = map(png_pixels, result.values["object_mask"])
    assert empty.shape == full.shape == (HIGH, WIDE)
    assert not empty.any() and full.any()
    _, result = annotated(blank(), Annotations((cat(1, 1, 5, 5),)))
    assert "object_mask" not in result.values


def test_an_outline_without_a_box_gives_the_box() -> None:
    mask = np.zeros((HIGH, WIDE), np.uint8)
    mask[4:6, 3:17] = 1
    outlined = [[2, 3, 8.5, 3, 8, 9], [10, 1, 12, 1, 12, 2]]
    annotations = Annotations(
        (cat(segmentation=outlined), cat(segmentation=unpacked(mask)), cat(segmentation=[[1, 2]]))
    )
    image, result = annotated(blank(), annotations)
    assert boxes_of(image, result) == [pytest.approx((2, 1, 12, 9)), pytest.approx((3, 4, 17, 6))]
    assert result.counts == {"written": 2, "dropped": 1}


def test_relative_corners_are_shares_of_the_picture() -> None:
    corners = [[2 / WIDE, 3 / HIGH, 8 / WIDE, 3 / HIGH, 8 / WIDE, 9 / HIGH, 2 / WIDE, 9 / HIGH]]
    image, result = annotated(blank(), Annotations((cat(segmentation=corners),), relative=True))
    assert boxes_of(image, result) == [pytest.approx((2, 3, 8, 9))]
    mask = png_pixels(result.values["object_mask"][0])
    assert (mask.dtype, mask.shape) == (np.uint8, (HIGH, WIDE))
    assert (mask[3:9, 2:8] == 1).all() and mask.sum() == 36  # 0 and 1, as in the Object Detection API


@pytest.mark.parametrize(
    ("outline", "why"),
    [
        ([[1, 2, 3, 4, 5, 6, 7]], "7 numbers, an odd count, where pairs are needed"),
        ([[1, 2, "3", 4, 5, 6]], "something that is not a number"),
        ([[1, 2, math.nan, 4, 5, 6]], "something that is not a number"),
        ([[1, 2, 10**400, 4, 5, 6]], "something that is not a number"),
        ([[1, 2, 1e9, 4, 5, 6]], "far outside the image"),
        ([[*range(8), *[0, 0, 50, 50] * 10**5]], "too long to be drawn"),
        ("polygon", "not a list of polygons"),
        ([5], "not a list of polygons"),
        ({"size": [WIDE, HIGH], "counts": [WIDE * HIGH]}, r"its mask is for \[20, 14\]"),
        ({"counts": [WIDE * HIGH]}, "its mask is for None"),
        ({"size": [HIGH, WIDE], "counts": [5, 10**12]}, "its run lengths are damaged"),
        ({"size": [HIGH, WIDE], "counts": [-5, WIDE * HIGH + 5]}, "its run lengths are damaged"),
        ({"size": [HIGH, WIDE], "counts": [5, 6]}, "its run lengths make 11 pixels instead of 280"),
        ({"size": [HIGH, WIDE], "counts": "oooooooooooooooooooooooo"}, "its run lengths are damaged"),
        ({"size": [HIGH, WIDE], "counts": "\\u00fc"}, "its run lengths are damaged"),
        ({"size": [HIGH, WIDE]}, "not a list of polygons"),
    ],
)
def test_damaged_outlines_are_bad_objects(outline: Any, why: str) -> None:
    for box in [(1, 1, 5, 5), ()]:
        annotations = Annotations((cat(*box, segmentation=outline),))
        assert annotated(blank(), annotations)[1].counts == {"dropped": 1}
        with pytest.raises(ImageFault, match=why):
            annotated(blank(), annotations, bad_boxes="fail")


@given(st.binary(max_size=40).map(lambda data: data.decode("latin-1")))
@hypothesis_settings(max_examples=examples(300))
def test_run_lengths_never_crash(counts: str) -> None:
    value = {"size": [HIGH, WIDE], "counts": counts}
    try:
        drawn = masks.draw_outline(value, (WIDE, HIGH))
    except ValueError:
        return
    expected = coco.decode({"size": [HIGH, WIDE], "counts": counts.encode()})
    assert np.array_equal(np.asarray(drawn), expected)


def test_the_area_is_that_of_the_mask_after_the_crop() -> None:
    outline = [[0, 0, 20, 0, 20, 5, 0, 5]]
    annotations = Annotations((cat(0, 0, 20, 14, area=100, segmentation=outline),))
    _, result = annotated(blank(), annotations, resize="20x10", fit="fit")  # rows 2 to 12
    assert png_pixels(result.values["object_mask"][0]).sum() == 60
    assert result.values["object_area"] == pytest.approx([60])


def test_a_mask_that_is_part_of_a_file_is_binary(tmp_path: Path) -> None:
    mask = np.zeros((HIGH, WIDE), np.uint8)
    mask[2:9, 3:7] = 255
    path = tmp_path / "spool"
    annotations = Annotations((cat(3, 2, 7, 9, mask_place=part_of(path, mask)),))
    _, result = annotated(blank(orientation=6), annotations)
    assert np.array_equal(png_pixels(result.values["object_mask"][0]), pictures.UPRIGHT[6](mask // 255))
    broken = ByteRange(str(path), 9, 30).encode()
    wrong = Annotations((cat(3, 2, 7, 9, mask_place=broken), ObjectAnnotation("dog", (1, 1, 2, 2))))
    assert annotated(blank(), wrong)[1].counts == {"written": 1, "dropped": 1}
    with pytest.raises(ImageFault, match="object 0: its mask: its bytes are not in a known image"):
        annotated(blank(), wrong, bad_boxes="fail")
