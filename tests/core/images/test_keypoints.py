"""Key points compared with the pixels under them, through orientation, crop, resize and pad."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from helpers import pictures
from helpers.annotated import annotated, cat
from helpers.examples import examples
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from PIL import Image

from shardwright.core.images.annotate import Annotated
from shardwright.core.images.boxes import turn
from shardwright.core.images.contact_sheet import with_points
from shardwright.schemas.annotations import Annotations, ObjectAnnotation, decode_annotations
from shardwright.schemas.configuration.settings import FITS
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.layouts import FeatureRole

NAMES = ("upper left", "upper right", "lower left", "lower right")
LEVELS = (60, 110, 160, 210)
WIDTH, HEIGHT = 40, 30
NAN = math.nan


def quartered(width: int, height: int) -> np.ndarray:
    """Returns a picture with a different gray in each quarter."""
    pixels = np.empty((2 * height, 2 * width), np.uint8)
    for place, level in enumerate(LEVELS):
        row, column = divmod(place, 2)
        pixels[row * height : (row + 1) * height, column * width : (column + 1) * width] = level
    return pixels


def gray_file(pixels: np.ndarray, orientation: int = 1) -> bytes:
    return pictures.file_of(Image.fromarray(pixels), "PNG", orientation)


def points_of(result: Annotated) -> list[tuple[float, float, int]]:
    roles = (FeatureRole.KEYPOINT_X, FeatureRole.KEYPOINT_Y, FeatureRole.KEYPOINT_VISIBILITY)
    return list(zip(*(result.values[role] for role in roles), strict=True))


def plain(*objects: ObjectAnnotation, names: tuple[str, ...] = ("eye", "tail"), **values: Any) -> Annotated:
    """Converts a gray picture of 40 x 30 pixels with objects."""
    annotations = Annotations(objects, keypoint_names=names)
    return annotated(gray_file(np.zeros((HEIGHT, WIDTH), np.uint8)), annotations, "keypoints", **values)[1]


@pytest.mark.sampled(11)
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("fit", ["none", *FITS])
@given(
    quarter=st.tuples(st.integers(8, 30), st.integers(8, 30)),
    target=st.tuples(st.integers(24, 70), st.integers(24, 70)),
    shift=st.tuples(st.floats(-0.2, 0.2), st.floats(-0.2, 0.2)),
    relative=st.booleans(),
)
@hypothesis_settings(max_examples=examples(25), deadline=None)
def test_a_point_stays_on_its_pixels(
    orientation: int,
    fit: str,
    quarter: tuple[int, int],
    target: tuple[int, int],
    shift: tuple[float, float],
    relative: bool,
) -> None:
    width, height = quarter
    middles = [
        ((column + 0.5 + shift[0]) * width, (row + 0.5 + shift[1]) * height)
        for row in (0, 1)
        for column in (0, 1)
    ]
    unit = (2 * width, 2 * height) if relative else (1, 1)
    points = [value for x, y in middles for value in (x / unit[0], y / unit[1], 2)]
    box = (0, 0, 1, 1) if relative else (0, 0, 2 * width, 2 * height)
    wanted = {} if fit == "none" else {"resize": "{}x{}".format(*target), "fit": fit}
    image, result = annotated(
        gray_file(quartered(width, height), orientation),
        Annotations((cat(*box, keypoints=points),), relative=relative, keypoint_names=NAMES),
        "keypoints", resample="nearest", image_format="png", background="black", color="gray", **wanted,
    )  # fmt: skip
    shown = pictures.pixels_of(image)
    labelled = 0
    for (x, y, visibility), level in zip(points_of(result), LEVELS, strict=True):
        if not visibility:
            assert fit == "fit" and (x, y) == (0, 0)
            continue
        labelled += 1
        column, row = min(int(x * image.width), image.width - 1), min(int(y * image.height), image.height - 1)
        around = shown[max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2]
        assert level in around and shown[row, column] in (level, *around.ravel())
    assert result.values[FeatureRole.KEYPOINT_NUM] == [labelled]
    assert (result.counts or {}).get("keypoints_vanished", 0) == 4 - labelled
    if fit != "fit":
        assert labelled == 4


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_point_turns_like_its_pixel(orientation: int) -> None:
    pixels = np.zeros((HEIGHT, WIDTH), np.uint8)
    pixels[21, 7] = 1
    ((row, column),) = np.argwhere(pictures.UPRIGHT[orientation](pixels))
    assert turn((7.5, 21.5, 7.5, 21.5), (WIDTH, HEIGHT), orientation)[:2] == (column + 0.5, row + 0.5)


def test_records_hold_what_the_object_detection_api_writes() -> None:
    found = plain(
        cat(0, 0, 20, 20, keypoints=(10, 15, 2, 0, 0, 0)),
        cat(5, 5, 40, 30),
        cat(1, 1, 9, 9, keypoints=(40, 30, 1, 1, 1, 2)),
    ).values
    assert found[FeatureRole.KEYPOINT_X] == [np.float32(x) for x in (0.25, 0, 0, 0, 1, 1 / 40)]
    assert found[FeatureRole.KEYPOINT_Y] == [np.float32(y) for y in (0.5, 0, 0, 0, 1, 1 / 30)]
    assert found[FeatureRole.KEYPOINT_VISIBILITY] == [2, 0, 0, 0, 1, 2]
    assert found[FeatureRole.KEYPOINT_TEXT] == [b"eye", b"tail"] * 3
    assert found[FeatureRole.KEYPOINT_NUM] == [1, 0, 2]


def test_a_crop_leaves_points_unlabelled() -> None:
    found = plain(
        cat(0, 0, 40, 30, keypoints=(2, 15, 2, 20, 15, 1)), cat(0, 0, 3, 30, keypoints=(2, 15, 2, 1, 1, 2)),
        resize="30x30", fit="fit",
    )  # fmt: skip
    assert points_of(found) == [(0, 0, 0), (0.5, 0.5, 1)]
    assert found.counts == {"written": 1, "clipped": 1, "vanished": 1, "keypoints_vanished": 1}


OUTSIDE = cat(0, 0, 20, 20, keypoints=(50, 15, 2, 3, 3, 2))


@pytest.mark.parametrize("policy", ["drop", "clip"])
def test_a_point_outside_its_image_is_not_labelled(policy: str) -> None:
    found = plain(OUTSIDE, bad_boxes=policy)
    assert found.values[FeatureRole.KEYPOINT_VISIBILITY] == [0, 2]
    assert found.counts == {"written": 1, "keypoints_outside": 1}
    assert found.message == "object 0: its key point eye (50, 15) lies outside the image of 40 x 30 pixels"


def test_a_point_outside_its_image_can_fail_the_image() -> None:
    with pytest.raises(ImageFault, match="key point eye"):
        plain(OUTSIDE, bad_boxes="fail")
    rounded = plain(cat(0, 0, 20, 20, keypoints=(40.4, -0.3, 2, 0, 0, 0)), bad_boxes="fail")
    assert points_of(rounded) == [(1, 0, 2), (0, 0, 0)]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((NAN,), "its key points are not x, y and visibility of 2 points"),
        ((1, 2, 3, 1, 1, 1), "the visibility of its key point eye is 3, not 0, 1 or 2"),
        ((1, 2, NAN, 1, 1, 1), "the visibility of its key point eye is nan"),
        ((1, 1, 1, NAN, 2, 1), r"its key point tail \(nan, 2\) is not at a position"),
    ],
)
def test_wrong_values_are_bad_objects(values: tuple[float, ...], message: str) -> None:
    bad = cat(0, 0, 20, 20, keypoints=values)
    found = plain(bad, cat(0, 0, 9, 9))
    assert found.counts == {"written": 1, "dropped": 1}
    with pytest.raises(ImageFault, match=message):
        plain(bad, bad_boxes="fail")


def test_other_layouts_do_not_look_at_key_points() -> None:
    annotations = Annotations((cat(0, 0, 9, 9, keypoints=(NAN,)),), keypoint_names=("eye",))
    found = annotated(gray_file(np.zeros((HEIGHT, WIDTH), np.uint8)), annotations)[1]
    assert found.counts == {"written": 1} and not any("keypoint" in role for role in found.values)


def test_references_carry_key_points() -> None:
    annotations = Annotations((cat(0, 0, 9, 9, keypoints=(1, 2.5, 2)),), keypoint_names=("eye",))
    found = decode_annotations(annotations.encode())
    assert found.keypoint_names == ("eye",) and found.objects is not None
    assert list(found.objects[0].keypoints or ()) == [1, 2.5, 2]
    assert "keypoint" not in Annotations((cat(0, 0, 9, 9),)).encode()


def test_thumbnails_show_labelled_points() -> None:
    blank = Image.new("RGB", (101, 81), "white")
    points = [(0.5, 0.5, 2), (0.1, 0.1, 1), (0.9, 0.9, 0), (NAN, 0.5, 2), (0.2, 0.75, 2), (0.8, 0.25, 1)]
    marked = np.asarray(with_points(blank, points, [1, 2])).astype(int)
    colored = (marked != 255).any(-1)
    assert colored[40, 50] and not colored[72, 90] and not colored[8, 10] and colored[8, 7:13].any()
    assert colored[60, 20] and (marked[60, 20] != marked[40, 50]).any()
