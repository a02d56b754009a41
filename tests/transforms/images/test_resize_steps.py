"""Large pictures are resampled one dimension at a time, so three copies are never in memory at once."""

from __future__ import annotations

import hashlib
import random
from contextlib import contextmanager
from weakref import ref

import numpy as np
import pytest
from helpers.pictures import file_of
from PIL import Image

from shardwright.schemas.configuration.settings import RESAMPLES, ConvertSettings
from shardwright.transforms.images import convert, resize
from shardwright.transforms.images.convert import convert_image
from shardwright.transforms.images.resize import resize as resample_once
from shardwright.transforms.images.resize import resize_steps
from shardwright.transforms.images.rows_first import resize_rows_first


def noise(width: int, height: int, seed: int, mode: str = "RGB") -> Image.Image:
    shape = (height, width, 3) if mode == "RGB" else (height, width)
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8))


@pytest.mark.parametrize("resample", RESAMPLES)
def test_two_steps_give_the_same_pixels_as_one(resample: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resize, "_KEPT_PIXELS", 0)
    rng = random.Random(resample)
    steps_seen = set()
    for seed in range(60):
        picture = noise(rng.randint(2, 90), rng.randint(2, 90), seed, rng.choice(["RGB", "L"]))
        width, height = picture.size
        size = (rng.choice([width, rng.randint(1, 120)]), rng.choice([height, rng.randint(1, 120)]))
        left, right = rng.choice([(0, width), (rng.uniform(0, width / 3), rng.uniform(width / 2, width))])
        upper, lower = rng.choice(
            [(0, height), (rng.uniform(0, height / 3), rng.uniform(height / 2, height))]
        )
        box = (left, upper, right, lower)
        steps = resize_steps(picture.size, size, resample, box)
        steps_seen.add(len(steps))
        assert steps[-1][0] == size
        stepped = picture
        for step_size, step_box in steps:
            stepped = resample_once(stepped, step_size, resample, step_box)
        once = resample_once(picture, size, resample, box)
        assert stepped.mode == once.mode and stepped.tobytes() == once.tobytes(), (seed, size, box)
    assert steps_seen == ({1} if resample == "nearest" else {1, 2})


@pytest.mark.parametrize(
    ("resample", "sha256"),
    [
        ("box", "896c120277b93fc5"),
        ("bilinear", "68e23a5cefe9b541"),
        ("hamming", "e5a8b8dd05fd7a2d"),
        ("bicubic", "1bc656b855716e39"),
        ("lanczos", "562ce8c22484a00a"),
    ],
)
def test_pillow_gives_the_same_pixels_in_every_version(resample: str, sha256: str) -> None:
    picture, digest = noise(301, 199, 0), hashlib.sha256()
    for size in ((112, 4), (97, 61), (400, 300), (301, 50)):
        for box in ((0, 0, 301, 199), (0, 0, 85, 14), (3.5, 5, 250, 160)):
            digest.update(resize_rows_first(picture, size, resample, box).tobytes())
    assert digest.hexdigest()[:16] == sha256


def test_small_pictures_need_one_step() -> None:
    assert resize_steps((640, 480), (224, 224), "bilinear", (0, 0, 640, 480)) == [
        ((224, 224), (0, 0, 640, 480))
    ]


def test_a_narrow_part_is_not_widened_to_the_whole_picture() -> None:
    """The library skips pixels outside the part, but a separate step would not."""
    box = (9000, 0, 10000, 1000)
    assert resize_steps((20000, 1000), (6000, 6000), "bilinear", box) == [((6000, 6000), box)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_the_source_is_freed_before_the_last_step(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test checks which pictures still have pixels."""
    import gc

    monkeypatch.setattr(resize, "_KEPT_PIXELS", 0)
    pictures: list[ref[Image.Image]] = []
    alive: list[set[tuple[int, int]]] = []
    original, begin = convert.resize, Image.Image.__init__

    def noticed(image: Image.Image) -> None:
        begin(image)
        pictures.append(ref(image))

    def watched(image: Image.Image, *arguments: object) -> Image.Image:
        gc.collect()
        alive.append({item.size for item in (picture() for picture in pictures) if item and item._im})
        return original(image, *arguments)

    monkeypatch.setattr(Image.Image, "__init__", noticed)
    monkeypatch.setattr(convert, "resize", watched)
    data = file_of(noise(61, 47, 1), kind)
    convert_image(data, f"a.{kind.lower()}", ConvertSettings(resize="113x127"))
    assert [(61, 47) in sizes for sizes in alive] == [True, False]


def test_the_memory_is_freed_before_the_reservation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that waits for the reservation must not begin while the picture before still exists."""
    import gc

    left: list[int] = []

    @contextmanager
    def reserve(_: int):
        yield
        left.append(
            sum(isinstance(item, Image.Image) and item.size == (113, 127) for item in gc.get_objects())
        )

    image = convert_image(
        file_of(noise(61, 47, 1), "JPEG"), "a.jpg", ConvertSettings(resize="113x127"), reserve
    )
    assert left == [0]
    assert (image.width, image.height, image.channels) == (113, 127, 3)
