"""Outlines compared with COCO's own tools, and the resulting masks of objects."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import pictures
from helpers.annotated import annotated, boxes_of, cat, png_pixels
from helpers.examples import examples
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from PIL import Image
from pycocotools import mask as coco

from shardwright.core.images import outlines
from shardwright.schemas.annotations import Annotations, ObjectAnnotation
from shardwright.schemas.byte_range import ByteRange
from shardwright.schemas.configuration.settings import FITS
from shardwright.schemas.errors import ImageFault

SIDES = st.integers(1, 40)
CORNERS = st.floats(-20, 60, allow_nan=False)
POLYGONS = st.lists(
    st.integers(3, 9).flatmap(lambda corners: st.lists(CORNERS, min_size=2 * corners, max_size=2 * corners)),
    min_size=1,
    max_size=3,
)
WIDTH, HEIGHT = 20, 14


def blank(width: int = WIDTH, height: int = HEIGHT, orientation: int = 1) -> bytes:
    return pictures.file_of(Image.new("L", (width, height)), "PNG", orientation)


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
    assert np.array_equal(np.asarray(outlines.draw(polygons, size)), expected)


@given(size=st.tuples(SIDES, SIDES), seed=st.integers(0, 10**6), share=st.floats(0, 1))
@hypothesis_settings(max_examples=examples(150), deadline=None)
def test_run_lengths_are_read_as_coco_reads_them(size: tuple[int, int], seed: int, share: float) -> None:
    mask = (np.random.default_rng(seed).random((size[1], size[0])) < share).astype(np.uint8)
    for value in (packed(mask), unpacked(mask)):
        assert np.array_equal(np.asarray(outlines.draw(value, size)), mask)
        hull = outlines.hull(value, size)
        assert (hull is None) == (not mask.any())
        if hull is not None:
            left, upper, width, height = coco.toBbox(coco.encode(np.asfortranarray(mask)))
            assert hull == (left, upper, left + width, upper + height)


@pytest.mark.sampled(11)
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("fit", ["none", *FITS])
@given(size=st.tuples(SIDES, SIDES), target=st.tuples(SIDES, SIDES), seed=st.integers(0, 99))
@hypothesis_settings(max_examples=10, deadline=None)
def test_the_mask_of_an_object_is_transformed_like_its_picture(
    orientation: int, fit: str, size: tuple[int, int], target: tuple[int, int], seed: int
) -> None:
    mask = np.random.default_rng(seed).integers(0, 2, (size[1], size[0])).astype(np.uint8)
    mask[0, 0] = 1
    data = pictures.file_of(Image.fromarray(mask), "PNG", orientation)
    wanted = {} if fit == "none" else {"resize": "{}x{}".format(*target), "fit": fit}
    annotations = Annotations((cat(0, 0, *size, segmentation=packed(mask)),))
    image, result = annotated(
        data, annotations, resample="nearest", image_format="png", color="gray", background="black", **wanted
    )
    assert np.array_equal(png_pixels(result.values["object_mask"][0]), pictures.pixels_of(image))


def test_masks_are_gray_pngs_of_zero_and_one_as_in_the_detection_api() -> None:
    annotations = Annotations((cat(2, 3, 8, 9, segmentation=[[2, 3, 8, 3, 8, 9, 2, 9]]),))
    _, result = annotated(blank(), annotations)
    with Image.open(io.BytesIO(result.values["object_mask"][0])) as mask:
        assert (mask.format, mask.mode, mask.size) == ("PNG", "L", (WIDTH, HEIGHT))
        shown = np.asarray(mask)
    assert set(np.unique(shown)) == {0, 1}
    assert shown[3:9, 2:8].all()
    assert shown.sum() == 36


def test_objects_without_an_outline_get_an_empty_mask_if_others_have_one() -> None:
    outline = [[2, 3, 8, 3, 8, 9, 2, 9]]
    annotations = Annotations((cat(1, 1, 5, 5), cat(2, 3, 8, 9, segmentation=outline)))
    _, result = annotated(blank(), annotations)
    empty, full = map(png_pixels, result.values["object_mask"])
    assert empty.shape == full.shape == (HEIGHT, WIDTH)
    assert not empty.any() and full.any()
    _, result = annotated(blank(), Annotations((cat(1, 1, 5, 5),)))
    assert "object_mask" not in result.values


def test_an_outline_without_a_box_gives_the_box() -> None:
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[4:6, 3:17] = 1
    outlined = [[2, 3, 8.5, 3, 8, 9], [10, 1, 12, 1, 12, 2]]
    annotations = Annotations(
        (cat(segmentation=outlined), cat(segmentation=unpacked(mask)), cat(segmentation=[[1, 2]]))
    )
    image, result = annotated(blank(), annotations)
    assert boxes_of(image, result) == [pytest.approx((2, 1, 12, 9)), pytest.approx((3, 4, 17, 6))]
    assert result.counts == {"written": 2, "dropped": 1}


def test_relative_corners_are_shares_of_the_picture() -> None:
    corners = [[2 / WIDTH, 3 / HEIGHT, 8 / WIDTH, 3 / HEIGHT, 8 / WIDTH, 9 / HEIGHT, 2 / WIDTH, 9 / HEIGHT]]
    image, result = annotated(blank(), Annotations((cat(segmentation=corners),), relative=True))
    assert boxes_of(image, result) == [pytest.approx((2, 3, 8, 9))]
    assert png_pixels(result.values["object_mask"][0])[3:9, 2:8].all()


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
        ({"size": [WIDTH, HEIGHT], "counts": [WIDTH * HEIGHT]}, r"its mask is for \[20, 14\]"),
        ({"counts": [WIDTH * HEIGHT]}, "its mask is for None"),
        ({"size": [HEIGHT, WIDTH], "counts": [5, 10**12]}, "its run lengths are damaged"),
        ({"size": [HEIGHT, WIDTH], "counts": [-5, WIDTH * HEIGHT + 5]}, "its run lengths are damaged"),
        ({"size": [HEIGHT, WIDTH], "counts": [5, 6]}, "its run lengths make 11 pixels instead of 280"),
        ({"size": [HEIGHT, WIDTH], "counts": "oooooooooooooooooooooooo"}, "its run lengths are damaged"),
        ({"size": [HEIGHT, WIDTH], "counts": "\\u00fc"}, "its run lengths are damaged"),
        ({"size": [HEIGHT, WIDTH]}, "not a list of polygons"),
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
    value = {"size": [HEIGHT, WIDTH], "counts": counts}
    try:
        drawn = outlines.draw(value, (WIDTH, HEIGHT))
    except ValueError:
        return
    expected = coco.decode({"size": [HEIGHT, WIDTH], "counts": counts.encode()})
    assert np.array_equal(np.asarray(drawn), expected)


def test_the_area_is_that_of_the_mask_after_the_crop() -> None:
    outline = [[0, 0, 20, 0, 20, 5, 0, 5]]
    annotations = Annotations((cat(0, 0, 20, 14, area=100, segmentation=outline),))
    _, result = annotated(blank(), annotations, resize="20x10", fit="fit")  # rows 2 to 12
    assert png_pixels(result.values["object_mask"][0]).sum() == 60
    assert result.values["object_area"] == pytest.approx([60])


def test_a_mask_that_is_part_of_a_file_is_binary(tmp_path: Path) -> None:
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[2:9, 3:7] = 255
    path = tmp_path / "spool"
    Image.fromarray(mask).save(path, "PNG")
    place = ByteRange(str(path), 0, path.stat().st_size).encode()
    _, result = annotated(blank(orientation=6), Annotations((cat(3, 2, 7, 9, mask_place=place),)))
    assert np.array_equal(png_pixels(result.values["object_mask"][0]), pictures.UPRIGHT[6](mask // 255))
    broken = ByteRange(str(path), 9, 30).encode()
    wrong = Annotations((cat(3, 2, 7, 9, mask_place=broken), ObjectAnnotation("dog", (1, 1, 2, 2))))
    assert annotated(blank(), wrong)[1].counts == {"written": 1, "dropped": 1}
    with pytest.raises(ImageFault, match="object 0: its mask: its bytes are not in a known image"):
        annotated(blank(), wrong, bad_boxes="fail")
