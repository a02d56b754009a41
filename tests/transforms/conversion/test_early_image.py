"""Images of the sample are kept for their shards, as long as their objects are certainly the same."""

from __future__ import annotations

import pytest

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import ImageRef
from shardwright.transforms.conversion import early_image as module
from shardwright.transforms.conversion.early_image import (
    EarlyImage,
    begin_sample,
    sampled_images,
)
from shardwright.transforms.images.convert import ConvertedImage, Frame
from shardwright.transforms.images.geometry import Geometry

SETTINGS = ConvertSettings(input=("gs://in",), output="out")
OBJECT = ImageRef("a/1.jpg", "gs://in/a/1.jpg", "a", size=3, version="7")


def early(size: int = 3) -> EarlyImage:
    frame = Frame((1, 1), 1, Geometry((0, 0, 1, 1), (1, 1), (1, 1)))
    return EarlyImage("00", 3, 0.5, ConvertedImage(b"x" * size, "jpg", 1, 1, 3, False, False, frame))


def test_an_image_is_taken_once() -> None:
    sample = begin_sample(SETTINGS)
    sample.keep(OBJECT, early())
    planned = OBJECT._replace(split="train", fold=1)
    assert sample.has(planned) and sample.take(planned) == early()
    assert not sample.has(OBJECT) and sample.take(OBJECT) is None


@pytest.mark.parametrize("changed", [{"version": "8"}, {"size": 4}, {"key": "b"}, {"place": "0:3"}])
def test_another_state_is_another_image(changed: dict[str, object]) -> None:
    sample = begin_sample(SETTINGS)
    sample.keep(OBJECT, early())
    other = OBJECT._replace(**changed)  # type: ignore[arg-type]
    assert not sample.has(other) and sample.take(other) is None


@pytest.mark.parametrize("unsure", [{"uri": "/in/a/1.jpg"}, {"version": ""}, {"size": -1}])
def test_what_may_change_unnoticed_is_not_kept(unsure: dict[str, object]) -> None:
    ref = OBJECT._replace(**unsure)  # type: ignore[arg-type]
    sample = begin_sample(SETTINGS)
    sample.keep(ref, early())
    assert sample.take(ref) is None


def test_images_are_kept_up_to_a_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_BYTES", 10)
    sample = begin_sample(SETTINGS)
    refs = [OBJECT._replace(key=str(number)) for number in range(3)]
    for ref, size in zip(refs, (6, 5, 4)):
        sample.keep(ref, early(size))
    assert [sample.has(ref) for ref in refs] == [True, False, True]


def test_a_sample_is_for_its_settings_and_until_the_next() -> None:
    begin_sample(SETTINGS).keep(OBJECT, early())
    other = ConvertSettings(input=("gs://in",), output="out", quality=50)
    assert sampled_images(other) is None
    same = sampled_images(ConvertSettings(input=("gs://in",), output="out"))
    assert same is not None and same.has(OBJECT)
    begin_sample(SETTINGS)
    again = sampled_images(SETTINGS)
    assert again is not None and not again.has(OBJECT)
