"""Indexes the positions of images and annotations in COCO's JSON files, to save memory."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from shardwright.transforms.sources.coco.json_stream import Item, parse_item, stream_object
from shardwright.transforms.sources.image_files import class_name, number

#: Keys of annotations that identify their kind.
_KINDS = {"segments_info", "caption", "category_id", "bbox", "keypoints"}
#: Ends a chain of annotations.
_NONE = -1
Id = int | str


def id_of(value: Any) -> Id | None:
    """Returns a normalized id, so that both sides of a reference match; None if it is not an id."""
    if isinstance(value, str):
        return value or None
    found = number(value)
    return None if found is None or found != int(found) else int(found)


@dataclass
class CocoIndex:
    """Positions of all entries of one JSON file.

    Attributes:
      images: Position and length of each image's entry, two numbers for each.
      ids: Image id -> number of its entry, from 0.
      twice: Numbers of the entries whose id is not unique.
      categories: Category id -> class name.
      stuff: Ids of the categories that are not things (`isthing` of panoptic segments).
      contradictory: A category id that has two names; None if there is none.
      has_images: Whether the file has an array of images.
      strays: (Number from 1, reason) of annotations that cannot be read or have no image.
      kinds: Keys of the annotations that identify their kind.
      keypoints: Category id -> names of its key points.
    """

    images: array[int] = field(default_factory=lambda: array("q"))
    ids: dict[Id, int] = field(default_factory=dict)
    twice: set[int] = field(default_factory=set)
    categories: dict[Id, str] = field(default_factory=dict)
    stuff: set[Id] = field(default_factory=set)
    contradictory: Id | None = None
    has_images: bool = False
    strays: list[tuple[int, str]] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    keypoints: dict[Id, tuple[str, ...]] = field(default_factory=dict)
    # The annotations of each image form a linked list, last one first.
    _begin: array[int] = field(default_factory=lambda: array("q"))
    _length: array[int] = field(default_factory=lambda: array("i"))
    _place: array[int] = field(default_factory=lambda: array("i"))
    _before: array[int] = field(default_factory=lambda: array("i"))
    _named: dict[Id, int] = field(default_factory=dict)  # image id -> its last annotation

    def image_id(self, value: Any) -> Id | None:
        """Returns the id of an image's entry."""
        return id_of(value.get("id")) if isinstance(value, dict) else None

    def take_image(self, item: Item) -> None:
        """Adds the position of an image's entry."""
        count = len(self.images) // 2
        self.images.extend((item.begin, item.length))
        found = self.image_id(item.value)
        if found is None:
            return
        first = self.ids.setdefault(found, count)
        if first != count:
            self.twice.update((first, count))

    def take_category(self, value: Any) -> None:
        """Adds a category; a category without an id or a name is ignored."""
        found = id_of(value.get("id")) if isinstance(value, dict) else None
        name = class_name(value.get("name")) if found is not None else ""
        if found is None or not name:
            return
        if self.categories.setdefault(found, name) != name:
            self.contradictory = found
        points = value.get("keypoints")
        if isinstance(points, list) and points and all(isinstance(point, str) for point in points):
            self.keypoints[found] = tuple(points)
        if number(value.get("isthing", 1)) == 0 or value.get("isthing") is False:
            self.stuff.add(found)

    def take_annotation(self, item: Item, place: int) -> None:
        """Adds the position of an annotation, and the id of its image."""
        value = item.value
        if not isinstance(value, dict):
            self.strays.append((place, "it is not an object"))
            return
        found = id_of(value.get("image_id"))
        if found is None:
            self.strays.append((place, "it has no image_id"))
            return
        self.kinds.update(value.keys() & _KINDS)
        self._begin.append(item.begin)
        self._length.append(item.length)
        self._place.append(place)
        self._before.append(self._named.get(found, _NONE))
        self._named[found] = len(self._begin) - 1

    def annotations(self, file: IO[bytes], image: Id) -> Iterator[dict[str, Any]]:
        """Yields the annotations of an image, in the order of the file."""
        chain = []
        at = self._named.get(image, _NONE)
        while at != _NONE:
            chain.append(at)
            at = self._before[at]
        for at in reversed(chain):
            yield parse_item(os.pread(file.fileno(), self._length[at], self._begin[at]))

    def image(self, file: IO[bytes], count: int) -> Any:
        """Returns an image's entry by its number."""
        begin, length = self.images[2 * count : 2 * count + 2]
        return parse_item(os.pread(file.fileno(), length, begin))

    def orphans(self) -> Iterator[tuple[int, str]]:
        """Yields (number from 1, reason) of the annotations without an image."""
        yield from self.strays
        for found, at in self._named.items():
            if found in self.ids:
                continue
            while at != _NONE:
                yield self._place[at], f"no image has its image_id {found!r}"
                at = self._before[at]


def index_coco(file: IO[bytes]) -> CocoIndex:
    """Indexes a JSON file in one pass.

    Raises:
      JsonFault: if the file is not a JSON object or is incomplete.
    """
    index = CocoIndex()
    place = 0
    for item in stream_object(file):
        if item.name == "images" and item.length:
            index.take_image(item)
        elif item.name == "categories" and item.length:
            index.take_category(item.value)
        elif item.name == "annotations" and item.length:
            place += 1
            index.take_annotation(item, place)
        if item.name == "images" and not item.length:  # the end of the array
            index.has_images = True
    return index
