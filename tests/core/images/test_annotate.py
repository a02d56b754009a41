"""Whatever a source states about its objects, their record is sound, and every object is accounted for."""

from __future__ import annotations

import math
from typing import Any

from helpers import pictures
from helpers.annotated import IDS, annotated, settings_of
from helpers.examples import examples
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from PIL import Image

from shardwright.core.records.build import ExampleBuilder
from shardwright.core.records.record_schema import RecordSchema
from shardwright.core.validation.record import RecordChecker
from shardwright.schemas.annotations import Annotations, ObjectAnnotation
from shardwright.schemas.configuration.settings import FITS
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.image_ref import ImageRef

WIDTH, HEIGHT = 31, 22
LABELS = ("cat", "dog", "3", "4", "5", "6", "owl")
SIDES = st.one_of(
    st.floats(-3, 40), st.floats(allow_nan=True), st.sampled_from([0, 22, 31, 1e-12, 21.999999999, 10**30])
)
RUNS = st.one_of(st.text(max_size=9), st.lists(st.integers(-1, WIDTH * HEIGHT), max_size=4), st.none())
OUTLINES = st.one_of(
    st.none(),
    st.lists(st.lists(SIDES, max_size=9), max_size=3),
    st.fixed_dictionaries(
        {"size": st.sampled_from([[HEIGHT, WIDTH], [WIDTH, HEIGHT], None]), "counts": RUNS}
    ),
    st.just({"size": [HEIGHT, WIDTH], "counts": [9, WIDTH * HEIGHT - 9]}),
)
OBJECTS = st.builds(
    ObjectAnnotation,
    label=st.sampled_from(["cat", "owl", "cow", ""]),
    box=st.one_of(st.none(), st.tuples(SIDES, SIDES, SIDES, SIDES)),
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
    data = pictures.file_of(Image.new("L", (WIDTH, HEIGHT)), "PNG", orientation)
    annotations = Annotations(tuple(objects), relative=relative)
    wanted: dict[str, Any] = {"resize": target, "fit": fit, "bad_boxes": policy}
    try:
        image, result = annotated(data, annotations, **wanted)
    except ImageFault as fault:
        assert policy == "fail" and fault.message.startswith("object ")
        return
    layout = settings_of("detection", **wanted).record_layout
    record = ExampleBuilder(layout, IDS).build(ImageRef("a.png", "a.png"), image, "0" * 64, result.values)
    promised = RecordSchema(layout.features, LABELS, layout.first_label)
    checked = RecordChecker(promised, decode=True).check(record)
    assert checked.problems == ()
    counts = result.counts or {}
    assert sum(counts.get(name, 0) for name in ("written", "vanished", "dropped")) == len(objects)
    assert bool(result.message) == ("dropped" in counts)
    assert all(math.isfinite(area) for area in result.values["object_area"])
