"""Boxes and key points compared with their pixels; any objects give a sound record or fail their image."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from helpers import pictures
from helpers.annotated import IDS, annotated, boxes_of, cat, settings_of
from helpers.examples import examples
from hypothesis import assume, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from PIL import Image

from shardwright.core.images.annotate import Annotated
from shardwright.core.images.boxes import TOLERANCE, normalized, turn
from shardwright.core.preview import with_points
from shardwright.core.records.build import build_example
from shardwright.core.records.record_schema import RecordSchema
from shardwright.core.validation.record import RecordChecker
from shardwright.schemas.annotations import Annotations, ObjectAnnotation
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.configuration.settings import FITS
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.layouts import FeatureRole

WIDTH, HEIGHT = 40, 30
SIDES = st.integers(1, 60)


def gray_file(pixels: np.ndarray, orientation: int = 1) -> bytes:
    return pictures.file_of(Image.fromarray(pixels), "PNG", orientation)


def plain_file(width: int = WIDTH, height: int = HEIGHT, orientation: int = 1) -> bytes:
    return gray_file(np.zeros((height, width), np.uint8), orientation)


@st.composite
def rectangles(draw: st.DrawFn) -> tuple[int, int, int, int, int, int]:
    """A picture's size and a rectangle in it."""
    width, height = draw(SIDES), draw(SIDES)
    left, upper = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
    right, lower = draw(st.integers(left + 1, width)), draw(st.integers(upper + 1, height))
    return width, height, left, upper, right, lower


@pytest.mark.sampled(11)
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("fit", ["none", *FITS])
@given(drawn=rectangles(), target=st.tuples(SIDES, SIDES), relative=st.booleans())
@hypothesis_settings(max_examples=examples(25), deadline=None)
def test_a_box_contains_the_same_pixels_after_every_step(
    orientation: int, fit: str, drawn: tuple[int, ...], target: tuple[int, int], relative: bool
) -> None:
    width, height, *box = drawn
    pixels = np.zeros((height, width), np.uint8)
    pixels[box[1] : box[3], box[0] : box[2]] = 255
    wanted = {} if fit == "none" else {"resize": "{}x{}".format(*target), "fit": fit}
    sides = [box[0] / width, box[1] / height, box[2] / width, box[3] / height] if relative else box
    image, result = annotated(
        gray_file(pixels, orientation),
        Annotations((cat(*sides),), relative=relative),
        resample="nearest", image_format="png", background="black", color="gray", **wanted,
    )  # fmt: skip
    shown = pictures.pixels_of(image) > 0
    found = boxes_of(image, result)
    if not found:
        assert result.counts == {"vanished": 1}
        assert not shown.any() or fit == "fit"
        return
    # A pixel shows the point under its center, so it is white if its center is in the box.
    xmin, ymin, xmax, ymax = found[0]
    columns, rows = np.arange(image.width) + 0.5, np.arange(image.height) + 0.5
    for slack, least in [(-1e-3, True), (1e-3, False)]:
        inside = np.outer(
            (rows > ymin - slack) & (rows < ymax + slack), (columns > xmin - slack) & (columns < xmax + slack)
        )
        assert shown[inside].all() if least else not shown[~inside].any()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_boxes_and_points_turn_like_their_pixels(orientation: int) -> None:
    pixels = np.zeros((HEIGHT, WIDTH), np.uint8)
    pixels[4:9, 2:19] = 1
    turned = turn((2, 4, 19, 9), (WIDTH, HEIGHT), orientation)
    assert turned == Image.fromarray(pictures.UPRIGHT[orientation](pixels)).getbbox()
    pixels[21, 7] = 2
    ((row, column),) = np.argwhere(pictures.UPRIGHT[orientation](pixels) == 2)
    assert turn((7.5, 21.5, 7.5, 21.5), (WIDTH, HEIGHT), orientation)[:2] == (column + 0.5, row + 0.5)


@pytest.mark.parametrize("fit", FITS)
def test_boxes_in_pictures_of_16_bits_are_those_of_8_bits(fit: str) -> None:
    results = []
    for dtype, depth in ((np.uint8, "8"), (np.uint16, "keep")):
        pixels = np.zeros((HEIGHT, WIDTH, 3), dtype)
        data = pictures.tiff_of(pixels, photometric="rgb", extratags=[(274, "H", 1, 6, True)])
        found = Annotations((cat(2, 4, 19, 9), cat(0, 0, 4, 28)))
        image, result = annotated(data, found, resize="12x12", fit=fit, depth=depth)
        results.append((image.width, image.height, result))
    assert results[0] == results[1]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_size_shows_that_boxes_are_for_the_upright_picture(orientation: int) -> None:
    turned = orientation >= 5
    for size in [(WIDTH, HEIGHT), (HEIGHT, WIDTH)]:
        annotations = Annotations((cat(2, 4, 19, 9),), size=size)
        if size != (WIDTH, HEIGHT) and not turned:
            with pytest.raises(ImageFault, match="are for 30 x 40 pixels, but the image has 40 x 30"):
                annotated(plain_file(orientation=orientation), annotations)
            continue
        expected = (2, 4, 19, 9)
        if size == (WIDTH, HEIGHT):
            expected = turn(expected, size, orientation)
        found = annotated(plain_file(orientation=orientation), annotations)
        assert boxes_of(*found) == [pytest.approx(expected)]


def test_a_wrong_size_is_a_fault_of_an_image_without_objects_too() -> None:
    with pytest.raises(ImageFault, match="its annotations are for 30 x 41 pixels"):
        annotated(plain_file(), Annotations((), size=(HEIGHT, WIDTH + 1)))


def test_a_size_of_zero_is_ignored() -> None:
    annotations = Annotations((cat(2, 4, 19, 9),), size=(0, 0))
    assert boxes_of(*annotated(plain_file(), annotations)) == [pytest.approx((2, 4, 19, 9))]


NAN, INF = math.nan, math.inf
#: What is wrong with a box, the box, and what is left after it is clipped.
BAD = {
    "reaches beyond the image": ((30, 10, 45, 20), (30, 10, 40, 20)),
    "reaches beyond the image of": ((-3, -4, 5, 6), (0, 0, 5, 6)),
    "reaches beyond the image of 40": ((50, 10, 60, 20), None),
    "reaches beyond the image of 40 x 30": ((40, 10, 40.4, 20), None),
    "is inverted": ((20, 10, 10, 20), None),
    "has no area": ((20, 10, 20, 20), None),
    "is not a box of numbers": ((NAN, 10, 30, 20), None),
    "not a box of numbers": ((0, 10, INF, 20), None),
}


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("relative", [False, True])
def test_bad_boxes_are_dropped_clipped_or_fail_the_image(what: str, relative: bool) -> None:
    box, clipped = BAD[what]
    scale = (WIDTH, HEIGHT, WIDTH, HEIGHT) if relative else (1, 1, 1, 1)
    bad = cat(*(side / factor for side, factor in zip(box, scale)))
    good = cat(*(side / factor for side, factor in zip((1, 2, 3, 4), scale)))
    annotations = Annotations((good, bad), relative=relative)
    image, result = annotated(plain_file(), annotations)
    assert boxes_of(image, result) == [pytest.approx((1, 2, 3, 4))]
    assert result.counts == {"written": 1, "dropped": 1}
    image, result = annotated(plain_file(), annotations, bad_boxes="clip")
    if clipped:
        assert boxes_of(image, result)[1] == pytest.approx(clipped)
        assert result.counts == {"written": 2, "clipped": 1}
    else:
        assert result.counts == {"written": 1, "dropped": 1}
    with pytest.raises(ImageFault, match=rf"object 1: its box \(.*{what}") as raised:
        annotated(plain_file(), annotations, bad_boxes="fail")
    assert raised.value.reason is QuarantineReason.BAD_ANNOTATION


def test_half_a_pixel_outside_the_picture_is_rounding() -> None:
    annotations = Annotations((cat(-TOLERANCE, 3, WIDTH + TOLERANCE, 9),))
    image, result = annotated(plain_file(), annotations, bad_boxes="fail")
    assert boxes_of(image, result) == [(0, pytest.approx(3), WIDTH, pytest.approx(9))]
    assert result.counts == {"written": 1}


def test_a_crop_clips_boxes_and_removes_those_outside() -> None:
    annotations = Annotations((cat(0, 0, 4, 30), cat(0, 0, 10, 30), cat(0, 0, 5.04, 30), cat(5, 0, 35, 30)))
    image, result = annotated(plain_file(), annotations, resize="30x30", fit="fit")  # columns 5 to 35
    assert boxes_of(image, result) == [pytest.approx((0, 0, 5, 30)), pytest.approx((0, 0, 30, 30))]
    assert result.counts == {"written": 2, "clipped": 1, "vanished": 2}


@given(
    st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1),
    st.integers(1, 10**5), st.integers(1, 10**5),
)  # fmt: skip
@example(0.0, 0.0, 5e-324, 1e-300, 7, 7)
@example(1 - 2**-53, 1 - 2**-53, 1.0, 1.0, 7, 7)
def test_shares_are_32_bit_floats_in_order(
    left: float, upper: float, right: float, lower: float, width: int, height: int
) -> None:
    xs, ys = sorted((left * width, right * width)), sorted((upper * height, lower * height))
    box = (xs[0], ys[0], xs[1], ys[1])
    assume(box[0] < box[2] and box[1] < box[3])
    shares = normalized(box, (width, height))
    assert all(float(np.float32(share)) == share for share in shares)
    assert 0 <= shares[0] < shares[2] <= 1
    assert 0 <= shares[1] < shares[3] <= 1
    for share, side, size in zip(shares, box, (width, height, width, height)):
        assert share == pytest.approx(np.float32(side / size), rel=2e-7, abs=1e-37)


def test_objects_keep_their_order_and_properties() -> None:
    annotations = Annotations(
        (
            ObjectAnnotation("owl", (0, 0, 10, 10), area=50, difficult=True, view="Left"),
            ObjectAnnotation("cow", (0, 0, 10, 10), truncated=True),
            ObjectAnnotation("cat", (5, 5, 15, 20), crowd=True, truncated=False),
        ),
        captions=("An owl.", "Zwei Tiere \u00fc"),
    )
    _, result = annotated(plain_file(), annotations, resize="20x60")
    values = result.values
    assert values["object_label"] == [7, 1]
    assert values["object_text"] == [b"owl", b"cat"]
    assert values["object_crowd"] == [0, 1]
    assert values["object_area"] == pytest.approx([50, 150])  # half as wide, twice as high
    assert values["object_difficult"] == [1, 0]
    assert values["object_truncated"] == [0, 0]
    assert values["object_view"] == [b"Left", b""]
    assert values["caption"] == [b"An owl.", "Zwei Tiere \u00fc".encode()]
    absent = {"object_occluded", "object_group_of", "object_depiction", "object_mask"}
    assert not absent & {fill.value for fill in values}


def test_a_clipped_object_keeps_its_share_of_the_area() -> None:
    annotations = Annotations((cat(0, 0, 10, 30, area=200), cat(0, 0, 10, 30), cat(0, 0, 10, 30, area=NAN)))
    _, result = annotated(plain_file(), annotations, resize="60x60", fit="fit")  # columns 5 to 35, doubled
    assert result.values["object_area"] == pytest.approx([400, 600, 600])


@pytest.mark.parametrize("annotations", [None, Annotations(), Annotations(())])
def test_an_image_without_objects_has_empty_lists(annotations: Annotations | None) -> None:
    _, result = annotated(plain_file(), annotations)
    assert result.counts is None
    assert all(list(values) == [] for values in result.values.values())


def test_classification_ignores_objects() -> None:
    _, result = annotated(plain_file(), Annotations((cat(1, 2, 3, 4),)), "classification")
    assert not result.values


NAMES = ("upper left", "upper right", "lower left", "lower right")
LEVELS = (60, 110, 160, 210)


def quartered(width: int, height: int) -> np.ndarray:
    """Returns a picture with a different gray in each quarter."""
    pixels = np.empty((2 * height, 2 * width), np.uint8)
    for place, level in enumerate(LEVELS):
        row, column = divmod(place, 2)
        pixels[row * height : (row + 1) * height, column * width : (column + 1) * width] = level
    return pixels


def points_of(result: Annotated) -> list[tuple[float, float, int]]:
    roles = (FeatureRole.KEYPOINT_X, FeatureRole.KEYPOINT_Y, FeatureRole.KEYPOINT_VISIBILITY)
    return list(zip(*(result.values[role] for role in roles), strict=True))


def plain(*objects: ObjectAnnotation, names: tuple[str, ...] = ("eye", "tail"), **values: Any) -> Annotated:
    """Converts a gray picture of 40 x 30 pixels with objects."""
    annotations = Annotations(objects, keypoint_names=names)
    return annotated(plain_file(), annotations, "keypoints", **values)[1]


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
    ("bad", "why"),
    [
        (ObjectAnnotation("", (1, 2, 3, 4)), "it has no category"),
        (ObjectAnnotation("cow", (1, 2, 3, 4)), "its category 'cow' is not among the class names"),
        (ObjectAnnotation("cat"), "it has no box"),
        (ObjectAnnotation("cat", ("a", 2, 3, 4)), "not of four numbers"),  # type: ignore[arg-type]
        (ObjectAnnotation("cat", (1, 2, 3)), "not of four numbers"),  # type: ignore[arg-type]
        (ObjectAnnotation("cat", (1, 2, 3, 10**400)), "not of four numbers"),
        (cat(0, 0, 20, 20, keypoints=(NAN,)), "its key points are not x, y and visibility of 2 points"),
        (
            cat(0, 0, 20, 20, keypoints=(1, 2, 3, 1, 1, 1)),
            "the visibility of its key point eye is 3, not 0, 1 or 2",
        ),
        (cat(0, 0, 20, 20, keypoints=(1, 2, NAN, 1, 1, 1)), "the visibility of its key point eye is nan"),
        (
            cat(0, 0, 20, 20, keypoints=(1, 1, 1, NAN, 2, 1)),
            r"its key point tail \(nan, 2\) is not at a position",
        ),
    ],
)
def test_bad_objects_are_dropped_or_fail_their_image(bad: ObjectAnnotation, why: str) -> None:
    for policy in ("drop", "clip"):
        found = plain(bad, cat(0, 0, 9, 9), bad_boxes=policy)
        assert found.counts == {"written": 1, "dropped": 1}
        assert (found.values["box_xmin"], found.values["object_label"]) == ([0], [1])
    with pytest.raises(ImageFault, match=why):
        plain(bad, bad_boxes="fail")


def test_other_layouts_do_not_look_at_key_points() -> None:
    annotations = Annotations((cat(0, 0, 9, 9, keypoints=(NAN,)),), keypoint_names=("eye",))
    found = annotated(plain_file(), annotations)[1]
    assert found.counts == {"written": 1} and not any("keypoint" in role for role in found.values)


def test_thumbnails_show_labelled_points() -> None:
    blank = Image.new("RGB", (101, 81), "white")
    points = [(0.5, 0.5, 2), (0.1, 0.1, 1), (0.9, 0.9, 0), (NAN, 0.5, 2), (0.2, 0.75, 2), (0.8, 0.25, 1)]
    marked = np.asarray(with_points(blank, points, [1, 2])).astype(int)
    colored = (marked != 255).any(-1)
    assert colored[40, 50] and not colored[72, 90] and not colored[8, 10] and colored[8, 7:13].any()
    assert colored[60, 20] and (marked[60, 20] != marked[40, 50]).any()


COLUMNS, ROWS = 31, 22
LABELS = ("cat", "dog", "3", "4", "5", "6", "owl")
ANY_SIDES = st.one_of(
    st.floats(-3, 40), st.floats(allow_nan=True), st.sampled_from([0, 22, 31, 1e-12, 21.999999999, 10**30])
)
RUNS = st.one_of(st.text(max_size=9), st.lists(st.integers(-1, COLUMNS * ROWS), max_size=4), st.none())
OUTLINES = st.one_of(
    st.none(),
    st.lists(st.lists(ANY_SIDES, max_size=9), max_size=3),
    st.fixed_dictionaries(
        {"size": st.sampled_from([[ROWS, COLUMNS], [COLUMNS, ROWS], None]), "counts": RUNS}
    ),
    st.just({"size": [ROWS, COLUMNS], "counts": [9, COLUMNS * ROWS - 9]}),
)
OBJECTS = st.builds(
    ObjectAnnotation,
    label=st.sampled_from(["cat", "owl", "cow", ""]),
    box=st.one_of(st.none(), st.tuples(ANY_SIDES, ANY_SIDES, ANY_SIDES, ANY_SIDES)),
    area=st.one_of(st.none(), st.floats(allow_nan=True), st.just(10**300)),
    view=st.sampled_from([None, "Left", "\ud800"]),
    segmentation=OUTLINES,
)


@given(
    objects=st.lists(OBJECTS, max_size=4),
    relative=st.booleans(),
    orientation=st.integers(1, 8),
    fit=st.sampled_from(FITS),
    target=st.sampled_from(["", "7x50", "40", "1"]),
    policy=st.sampled_from(["drop", "clip", "fail"]),
)
@hypothesis_settings(max_examples=examples(300), deadline=None)
def test_any_objects_give_a_sound_record_or_fail_their_image(
    objects: list[ObjectAnnotation], relative: bool, orientation: int, fit: str, target: str, policy: str
) -> None:
    data = pictures.file_of(Image.new("L", (COLUMNS, ROWS)), "PNG", orientation)
    annotations = Annotations(tuple(objects), relative=relative)
    wanted: dict[str, Any] = {"resize": target, "fit": fit, "bad_boxes": policy}
    try:
        image, result = annotated(data, annotations, **wanted)
    except ImageFault as fault:
        assert policy == "fail" and fault.message.startswith("object ")
        return
    layout = settings_of("detection", **wanted).record_layout
    record = build_example(layout, IDS, ImageRef("a.png", "a.png"), image, "0" * 64, result.values)
    promised = RecordSchema(layout.features, LABELS, layout.first_label)
    checked = RecordChecker(promised, decode=True).check(record)
    assert checked.problems == ()
    counts = result.counts or {}
    assert sum(counts.get(name, 0) for name in ("written", "vanished", "dropped")) == len(objects)
    assert bool(result.message) == ("dropped" in counts)
    assert all(math.isfinite(area) for area in result.values["object_area"])
