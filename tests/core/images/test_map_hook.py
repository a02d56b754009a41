"""The contract of `--map`: what a hook receives, what it may return, and how its faults are reported."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from helpers.trees import put_files
from PIL import Image

from shardwright.core import conversion
from shardwright.core.conversion import ShardRecipe, convert_ref
from shardwright.core.images.geometry import Frame, plan_geometry
from shardwright.core.images.map_hook import (
    DecodedImage,
    DroppedImage,
    MappedImage,
    call_hook,
    decoded_image,
    hook_versions,
    load_hook,
    mapped_ref,
)
from shardwright.schemas.annotations import Annotations, ObjectAnnotation
from shardwright.schemas.codes import QuarantineReason, Stage
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault, LeftOut, UsageError
from shardwright.schemas.image_ref import ImageRef

PICTURE = Image.new("RGB", (8, 4))
ITEM = DecodedImage(PICTURE, "a.png")
DETECTION = ConvertSettings(layout="detection")


def results(hook: Callable[[DecodedImage], Any]) -> list[MappedImage]:
    return list(call_hook(hook, ITEM, 100))


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        (None, "the hook returned None"),
        ([], "the hook returned no picture"),
        (DroppedImage("too\ndark\udcff"), "too dark%FF"),
    ],
)
def test_an_image_can_be_left_out(returned: Any, reason: str) -> None:
    with pytest.raises(LeftOut, match=f"^{reason}$"):
        results(lambda item: returned)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("text", "it returned str, not a picture"),
        ([1], "it returned int as a picture"),
        (MappedImage(b"x"), "it returned bytes as a picture"),  # type: ignore[arg-type]
        ([PICTURE, PICTURE], "two pictures with the suffix ''"),
        (Image.new("L", (101, 1)), "a picture of 101 x 1 pixels; 1 to 100 are allowed"),
        (Image.new("L", (0, 5)), "a picture of 0 x 5 pixels"),
        (Image.new("I", (5, 5)), "a picture of mode I, whose white may be"),
    ],
)
def test_a_wrong_result_is_a_fault_of_the_image(returned: Any, message: str) -> None:
    with pytest.raises(ImageFault, match=message) as found:
        results(lambda item: returned)
    assert (found.value.reason, found.value.stage) == (QuarantineReason.MAP_FAILED, Stage.MAP)


class Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("error", [ValueError("bad\nluck"), SystemExit(3), KeyError("x"), Wordless()])
def test_an_exception_is_a_fault_of_the_image(error: BaseException) -> None:
    with pytest.raises(ImageFault, match=type(error).__name__) as found:
        results(mock.Mock(side_effect=error))
    assert found.value.reason is QuarantineReason.MAP_FAILED
    assert not isinstance(error, Wordless) or found.value.message == "Wordless"


def test_a_machine_without_memory_is_no_fault_of_the_image() -> None:
    with pytest.raises(MemoryError):
        results(mock.Mock(side_effect=MemoryError))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("no_such_module:f", "there is no module 'no_such_module'"),
        ("json:nothing", "has no function 'nothing'"),
        ("json:__name__", "has no function"),
        ("breaks_on_import:f", "missing_dependency"),
    ],
)
def test_a_hook_that_cannot_be_loaded_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, message: str
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "breaks_on_import.py").write_text("import missing_dependency\n")
    with pytest.raises(UsageError, match=message):
        load_hook(spec)


def test_the_version_covers_all_python_files_of_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    files = {"main.py": "def f(item):\n    return item.image\n", "deep/helper.py": "SIZE = 1\n"}
    package = put_files(tmp_path / "own_hooks", {"__init__.py": "", **files})

    def version() -> str:
        hook_versions.cache_clear()
        return hook_versions("own_hooks.main:f")["map"]

    first = version()
    assert first.startswith("own_hooks.main:f sha256:") and version() == first
    (package / "notes.txt").write_text("not code")
    assert version() == first
    (package / "deep" / "helper.py").write_text("SIZE = 2\n")
    assert version() != first
    sys.modules.pop("own_hooks.main")
    hook_versions.cache_clear()
    load_hook.cache_clear()


def described(*objects: ObjectAnnotation, **more: Any) -> ImageRef:
    return ImageRef("a.png", "/a.png").annotated(Annotations(objects=objects, **more))


def test_a_hook_receives_boxes_in_pixels_of_the_upright_picture() -> None:
    outline = [[0, 0.25, 0.5, 0.25, 0.5, 1.0]]
    points = [0.0, 0.25, 2, 0.0, 0.0, 0]
    thing = ObjectAnnotation("cat", (0.0, 0.25, 0.5, 1.0), segmentation=outline, keypoints=points)
    flat = replace(thing, segmentation=outline[0])  # a mistake, which is reported later
    ref = described(thing, flat, relative=True)
    # Orientation 6: the stored picture (8 x 4) is turned clockwise by 90 degrees.
    frame = Frame((8, 4), 6, plan_geometry(4, 8, None, "stretch"))
    decoded = decoded_image(ref, Image.new("RGB", (4, 8)), frame)
    assert decoded.objects is not None
    assert decoded.objects[0].box == (0.0, 0.0, 3.0, 4.0)
    assert decoded.objects[0].segmentation == [[3.0, 0.0, 3.0, 4.0, 0.0, 4.0]]
    assert decoded.objects[0].keypoints == [3.0, 0.0, 2, 4.0, 0.0, 0]
    assert decoded.objects[1] == replace(decoded.objects[0], segmentation=outline[0])


def test_objects_of_a_hook_replace_those_of_the_source() -> None:
    names = ("nose",)
    ref = described(ObjectAnnotation("cat", (0, 0, 4, 4)), captions=("a cat",), keypoint_names=names)
    moved = ObjectAnnotation("dog", (1.0, 1.0, 3.0, 3.0), segmentation={"size": [4, 4], "counts": "a"})
    runs = {"size": np.int64([4, 4]), "counts": b"a"}
    found_by_a_detector = replace(moved, box=np.float32(moved.box), segmentation=runs)
    flat = replace(moved, segmentation=[1.0, 2.0])  # a mistake that only matters where masks are stored
    mapped = MappedImage(Image.new("RGB", (4, 4)), suffix="left", objects=[found_by_a_detector, flat])
    found = mapped_ref(ref, mapped, False, DETECTION)
    assert found.key == "a.png#left"
    expected = Annotations((moved, flat), captions=("a cat",), upright=True, keypoint_names=names)
    assert found.annotations == expected.encode()


@pytest.mark.parametrize(
    ("ref", "mapped", "settings", "message"),
    [
        (
            described(ObjectAnnotation("cat", (0, 0, 4, 4))), MappedImage(PICTURE), DETECTION,
            "changed the size of an image with objects",
        ),
        (
            described(semantic_mask="/mask.png"), MappedImage(PICTURE, objects=()), DETECTION,
            "the image has a mask",
        ),
        (described(), MappedImage(PICTURE, labels="cat"), ConvertSettings(), "not a list of class names"),
        (described(), MappedImage(PICTURE, "\ud800"), ConvertSettings(), "are not UTF-8"),
        (described(), MappedImage(PICTURE, labels=["\udcff"]), ConvertSettings(), "are not UTF-8"),
        (described(), MappedImage(PICTURE, columns={"a": 1}), ConvertSettings(), "does not name"),
        (
            described(), MappedImage(PICTURE, columns={"a": "x"}), ConvertSettings(extra_columns="a:int64"),
            "it returned a wrong value",
        ),
        (described(), MappedImage(PICTURE, columns=[("a", 1)]), ConvertSettings(), "not a dict"),  # type: ignore[arg-type]
        (described(), MappedImage(PICTURE, labels=[]), ConvertSettings(), "it has no class"),
        (described(), MappedImage(PICTURE, labels=["a", "b"]), ConvertSettings(), "several classes"),
        (described(), MappedImage(PICTURE, labels=5), ConvertSettings(), "labels is 5, not a list"),  # type: ignore[arg-type]
        (
            described(), MappedImage(PICTURE, objects=[ObjectAnnotation("cat", np.eye(2))]), DETECTION,  # type: ignore[arg-type]
            "has a wrong type: ObjectAnnotation(label='cat', box=array([[1., 0.], [0., 1.]]),",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_stored_is_a_fault(
    ref: ImageRef, mapped: Any, settings: ConvertSettings, message: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(conversion, "load_hook", lambda spec: lambda item: mapped)
    Image.new("RGB", (9, 4)).save(tmp_path / "a.png")  # of another size
    recipe = ShardRecipe(replace(settings, map="a:b"), settings.record_layout, {"cat": 1})
    entry = convert_ref(ref._replace(uri=str(tmp_path / "a.png"), label="cat"), recipe).entry
    assert entry.outcome == "quarantined" and message in entry.message
    assert entry.reason == ("UNKNOWN_LABEL" if message == "it has no class" else "MAP_FAILED")
