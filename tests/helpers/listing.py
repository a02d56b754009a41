"""Shared code for the tests of annotation sources: photos with known objects, and listing alone."""

from __future__ import annotations

import dataclasses
import pickle
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image

from helpers.fewer_imports import late
from helpers.repository import PHOTOS
from shardwright.core import storage
from shardwright.core.conversion import Converted, ShardRecipe, convert_ref
from shardwright.core.plan.request import read_layout
from shardwright.core.records.build import label_ids
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.inputs import check_inputs
from shardwright.core.sources.listing import list_part
from shardwright.core.sources.rules import Rules
from shardwright.core.sources.source import Context, Input, source_by_name
from shardwright.core.sources.spool import Spool
from shardwright.schemas.annotations import Annotations, decode_annotations
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.labels import ClassId
from shardwright.schemas.ledger import Entry

tf = late("tensorflow")


class Photo(NamedTuple):
    """A photo of a test.

    Attributes:
      name: Name of its file.
      size: Width and height.
      boxes: (class, xmin, ymin, xmax, ymax) in whole pixels.
    """

    name: str
    size: tuple[int, int]
    boxes: tuple[tuple[str, int, int, int, int], ...]


def put_photos(folder: Path, names: Iterable[str] = ("eagle", "apple", "house", "seagull")) -> list[Photo]:
    """Copies photos into a folder; the number of boxes of each is its place in the list, so one has none."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for number, name in enumerate(names):
        (path,) = PHOTOS.rglob(f"{name}.*")
        shutil.copy(path, folder / path.name)
        with Image.open(path) as image:
            width, height = image.size
        boxes = tuple(
            ("bird" if i % 2 else "thing", 10 * i + 5, 7 * i + 3, width - 20 * i, height - 11 * i - 1)
            for i in range(number)
        )
        found.append(Photo(path.name, (width, height), boxes))
    return found


class Listed(NamedTuple):
    """The references of a source."""

    refs: dict[str, ImageRef]
    ids: dict[str, int]
    input: Input
    settings: ConvertSettings

    def annotations_of(self, key: str) -> Annotations:
        """Returns the annotations of a candidate."""
        ref = self.refs[key]
        assert ref.is_candidate, ref
        return decode_annotations(ref.annotations)

    def faults(self, reason: str = "BAD_ANNOTATION") -> dict[str, str]:
        """Returns key -> message of the bad entries, all of which are bad for that reason."""
        bad = [ref for ref in self.refs.values() if ref.outcome == "quarantined"]
        assert {ref.reason for ref in bad} <= {reason}
        return {ref.key: ref.message for ref in bad}

    def check_boxes(self, photos: Iterable[Photo], folder: str = "") -> None:
        """Checks that images have the objects of photos, whose keys begin with the folder."""
        for photo in photos:
            annotations = self.annotations_of(folder + photo.name)
            scale = photo.size * 2 if annotations.relative else (1, 1, 1, 1)
            objects = annotations.objects or ()
            assert [item.label for item in objects] == [label for label, *_ in photo.boxes]
            for item, (_, *box) in zip(objects, photo.boxes):
                np.testing.assert_allclose(np.multiply(item.box or (), scale), box, atol=0.01)

    def converted(self, **settings: Any) -> dict[str, Converted]:
        """Converts the images without Beam; returns key -> result.

        Args:
          **settings: Further settings.
        """
        classes = sorted({name for ref in self.refs.values() for name in ref.labels})
        chosen = dataclasses.replace(self.settings, **settings)
        recipe = ShardRecipe(chosen, chosen.record_layout, label_ids(classes) | self.ids)
        return {key: convert_ref(ref, recipe) for key, ref in self.refs.items()}

    def entries(self, **settings: Any) -> dict[str, Entry]:
        """Converts the images without Beam; returns key -> ledger entry."""
        return {key: item.entry for key, item in self.converted(**settings).items()}

    def records(self, **settings: Any) -> dict[str, Any]:
        """Converts the images without Beam; returns key -> record, as TensorFlow parses it."""
        made = self.converted(**settings).items()
        return {key: tf.train.Example.FromString(item.example) for key, item in made if item.example}

    def reasons(self) -> Mapping[str, str]:
        """Returns key -> reason for files that are not candidates."""
        return {key: ref.reason for key, ref in self.refs.items() if not ref.is_candidate}


def look_at(path: Path | str) -> InputProbe:
    """Returns the probe of an existing path."""
    text = str(path)
    is_file = storage.stat(text) is not None if storage.is_remote(text) else Path(text).is_file()
    return InputProbe(text, is_file)


def found_in(
    path: Path | str, settings: Mapping[str, Any], source: str = "", spool: Path | str = "unused"
) -> tuple[Input, list[Any]]:
    """Lists an input in parts, which travel to workers; returns the input, and its references and class ids.

    Args:
      path: The input.
      settings: Settings.
      source: Name of the source; empty for the one that `auto` chooses, after all checks.
      spool: Directory for spool files.
    """
    checked = ConvertSettings(input=(str(path),), **settings)
    if source:
        item = Input(str(path), "", source, is_file=look_at(path).is_file)
    else:
        checked.check()
        (item,) = check_inputs(checked, None)
    context = Context(checked, Spool(str(spool)), Rules(class_needed=False))
    parts = pickle.loads(pickle.dumps([*source_by_name(item.source).parts(item, context)]))
    return item, [one for part in parts for one in list_part(part, context)]


def listed(
    path: Path | str, layout: str = "detection", spool: Path | str = "unused", **settings: Any
) -> Listed:
    """Lists an input like a conversion, with the source that `auto` chooses."""
    texts = {name: str(value) for name, value in settings.items()} | {"layout": read_layout(layout)}
    item, found = found_in(path, texts, spool=spool)
    chosen = ConvertSettings(input=(str(path),), **texts)
    refs = [one for one in found if isinstance(one, ImageRef)]
    by_key = {ref.key: ref for ref in refs}
    assert len(by_key) == len(refs), "a key occurs twice"
    return Listed(by_key, {one.name: one.id for one in found if isinstance(one, ClassId)}, item, chosen)


def refusal(path: Path | str, layout: str = "classification", **settings: Any) -> str:
    """Returns the message with which an input is refused when it is listed."""
    with pytest.raises(UsageError) as raised:
        listed(path, layout, Path(path).parent, **settings)
    return raised.value.message
