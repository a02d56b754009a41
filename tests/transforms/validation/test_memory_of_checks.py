"""The memory for a picture is reserved before it is decoded, and until it has been checked."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image

from shardwright.schemas.example import Feature, FeatureType, encode_example
from shardwright.schemas.layouts import FeatureRole, layout_by_name
from shardwright.transforms.records.record_schema import RecordSchema
from shardwright.transforms.validation import image as checks_image
from shardwright.transforms.validation import record as checks_record
from shardwright.transforms.validation.record import RecordChecker

MINIMAL = RecordSchema(layout_by_name("minimal").features, ("cat",))
SIDES = (320, 240)
BYTES_A_PIXEL = 8


def record_of(file_format: str) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", SIDES, "teal").save(buffer, file_format)
    (image,) = (spec.name for spec in MINIMAL.features if spec.fill is FeatureRole.ENCODED)
    features = {spec.name: Feature(FeatureType.INT64, [0]) for spec in MINIMAL.features}
    return encode_example({**features, image: Feature(FeatureType.BYTES, [buffer.getvalue()])})


@pytest.mark.parametrize(("look", "file_format", "reduction"), [
    (True, "JPEG", 1), (True, "PNG", 1), (False, "PNG", 1), (False, "JPEG", 8),
])  # fmt: skip
def test_a_picture_is_decoded_and_measured_within_its_reservation(
    monkeypatch: pytest.MonkeyPatch, look: bool, file_format: str, reduction: int
) -> None:
    events: list[Any] = []

    @contextlib.contextmanager
    def reserve(size: int) -> Iterator[None]:
        events.append(size)
        yield
        events.append("released")

    def noted(module: Any, name: str) -> None:
        real = getattr(module, name)

        def call(*args: Any) -> Any:
            events.append(name)
            return real(*args)

        monkeypatch.setattr(module, name, call)

    noted(checks_image, "load_checked")
    noted(checks_record, "measure_quality")
    checker = RecordChecker(MINIMAL, decode=True, look=look, reserve=reserve)
    assert not checker.check(record_of(file_format)).problems
    size = SIDES[0] * SIDES[1] * BYTES_A_PIXEL // reduction**2
    assert events == [size, "load_checked", *["measure_quality"] * look, "released"]


def test_nothing_is_reserved_for_pictures_that_are_not_decoded() -> None:
    checker = RecordChecker(MINIMAL, decode=False, reserve=lambda size: pytest.fail(f"{size}"))
    assert not checker.check(record_of("PNG")).problems
