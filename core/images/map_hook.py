"""The user's own step between decoding and resizing (`--map module:function`)."""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from PIL import Image

from shardwright.core.images.boxes import are_upright, turn, upright_size
from shardwright.core.images.geometry import Frame
from shardwright.schemas.annotations import Annotations, ObjectAnnotation, Segmentation, decode_annotations
from shardwright.schemas.codes import FilterReason, QuarantineReason, Stage
from shardwright.schemas.columns import column_values, decode_extra, encode_extra
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault, LeftOut, UsageError, words_of
from shardwright.schemas.image_ref import LABEL_SEPARATOR, ImageRef, one_label
from shardwright.schemas.layouts import Needs
from shardwright.schemas.plain_text import printable

#: Separator between the key of a source image and the suffix of a picture that was made of it.
SUFFIX_SEPARATOR = "#"
#: Number of hex digits of the source's digest in `dataset.json`.
_HEX = 16
#: Longest message of a hook that a ledger stores, in characters.
_MESSAGE = 200


@dataclass(frozen=True)
class DecodedImage:
    """What a hook receives.

    Attributes:
      image: The picture, upright, with 8 bits per channel, in mode RGB or L (setting `color`), not resized.
        The hook may change it in place.
      key: Key of the image.
      labels: Class names; most images have one.
      split: Split of the image; empty while the size of the dataset is estimated.
      columns: Values of the extra columns, by name.
      objects: Objects with boxes, polygons and key points in pixels of the picture; None if the source
        describes none.
    """

    image: Image.Image
    key: str
    labels: tuple[str, ...] = ()
    split: str = ""
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    objects: tuple[ObjectAnnotation, ...] | None = None


@dataclass(frozen=True)
class MappedImage:
    """A picture that a hook returns, with what differs from the source.

    Attributes:
      image: The picture, in any mode but I that Pillow can convert to RGB.
      suffix: Text after `KEY#` in the key of the record. A hook that returns several pictures for an image
        gives each its own suffix. Empty if the key stays.
      labels: Class names; None for those of the source.
      columns: Values of extra columns, which replace those of the source.
      objects: Objects in pixels of this picture; None for those of the source, which only fit if the size
        has not changed.
    """

    image: Image.Image
    suffix: str = ""
    labels: Sequence[str] | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    objects: Sequence[ObjectAnnotation] | None = None


@dataclass(frozen=True)
class DroppedImage:
    """What a hook returns for an image that it leaves out.

    Attributes:
      reason: Why, in a few words; the ledger and the report show it.
    """

    reason: str


#: A hook: a function of one image. It may also be a generator of `MappedImage`.
Hook = Callable[
    [DecodedImage], Image.Image | MappedImage | DroppedImage | Iterable[MappedImage | Image.Image] | None
]


@functools.cache
def load_hook(spec: str) -> Hook:
    """Imports a hook. A module in the current directory is found, too.

    Args:
      spec: `module:function`.

    Raises:
      UsageError: If it cannot be imported or is not a function.
    """
    name, _, function = spec.partition(":")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)  # last, so that no file there hides an installed module
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise UsageError(
                f"--map {spec}: there is no module {error.name!r}; install its package, or start the "
                f"command in the folder with {error.name.partition('.')[0]}.py."
            ) from None
        raise UsageError(f"--map {spec}: its module cannot be imported: {error}.") from error
    except Exception as error:  # the user's module may raise any
        raise UsageError(f"--map {spec}: its module cannot be imported: {_describe(error)}.") from error
    hook = getattr(module, function, None)
    if not callable(hook):
        raise UsageError(f"--map {spec}: module {name} has no function {function!r}.")
    return hook  # type: ignore[no-any-return]


def _describe(error: BaseException) -> str:
    """Returns the type and the text of an exception of the user's code, in one line."""
    name = type(error).__name__
    try:
        text = words_of(error)
    except Exception:  # __str__ is the user's code, too
        return name
    return name if text == name else f"{name}: {text}"


@functools.cache
def hook_versions(spec: str) -> Mapping[str, str]:
    """Returns the hook as an entry of the versions that decide bytes; empty without a hook.

    The entry is `module:function` and a digest of the module's file; for a module in a package, of all Python
    files of the package.

    Raises:
      UsageError: If the hook cannot be imported, or its source cannot be read.
    """
    if not spec:
        return {}
    load_hook(spec)
    module = sys.modules[spec.partition(":")[0]]
    folders = getattr(sys.modules[module.__name__.partition(".")[0]], "__path__", ())
    files = {
        path.relative_to(folder).as_posix(): path for folder in folders for path in Path(folder).rglob("*.py")
    }
    digest = hashlib.sha256()
    try:
        if not files:
            if not module.__file__ or not module.__file__.endswith(".py"):
                raise FileNotFoundError(f"{module.__name__} has no source file")
            files = {module.__name__: Path(module.__file__)}
        for name, path in sorted(files.items()):
            content = path.read_bytes()
            digest.update(f"{name}\0{len(content)}\0".encode())
            digest.update(content)
    except OSError as error:
        raise UsageError(f"--map {spec}: its source cannot be read: {error}.") from error
    return {"map": f"{spec} sha256:{digest.hexdigest()[:_HEX]}"}


def call_hook(hook: Hook, item: DecodedImage, max_pixels: int) -> Iterator[MappedImage]:
    """Calls a hook and yields the pictures that it returns, as soon as they are made.

    Raises:
      LeftOut: If the hook leaves the image out.
      ImageFault: If the hook raises an exception or returns something else.
      MemoryError: If the machine has no memory left.
    """
    suffixes: set[str] = set()
    try:
        for result in _results(hook(item)):
            mapped = MappedImage(result) if isinstance(result, Image.Image) else result
            if not isinstance(mapped, MappedImage) or not isinstance(mapped.image, Image.Image):
                what = mapped.image if isinstance(mapped, MappedImage) else mapped
                raise failed(f"it returned {type(what).__name__} as a picture, not a PIL.Image.Image")
            width, height = mapped.image.size
            if not 0 < width * height <= max_pixels:
                size = f"{width} x {height} pixels; 1 to {max_pixels} are allowed"
                raise failed(f"it returned a picture of {size}")
            if mapped.image.mode == "I":
                raise failed(
                    "it returned a picture of mode I, whose white may be 255 or 65535; convert it to L"
                )
            if mapped.suffix in suffixes:
                raise failed(f"it returned two pictures with the suffix {mapped.suffix!r}")
            suffixes.add(mapped.suffix)
            yield mapped
    except (ImageFault, LeftOut, MemoryError):
        raise
    except (Exception, SystemExit) as error:  # the user's function may raise any
        raise failed(_describe(error)) from error
    if not suffixes:
        raise _dropped("the hook returned no picture")


def _results(returned: Any) -> Iterable[Any]:
    if returned is None:
        raise _dropped("the hook returned None")
    if isinstance(returned, DroppedImage):
        raise _dropped(str(returned.reason))
    if isinstance(returned, MappedImage | Image.Image):
        return (returned,)
    if isinstance(returned, Iterable) and not isinstance(returned, str | bytes | Mapping):
        return returned
    raise failed(f"it returned {type(returned).__name__}, not a picture; see MappedImage and DroppedImage")


def _dropped(reason: str) -> LeftOut:
    return LeftOut(FilterReason.DROPPED_BY_MAP, Stage.MAP, _line(reason))


def failed(message: str) -> ImageFault:
    """Returns the fault of an image for which the hook failed or returned a wrong value."""
    return ImageFault(QuarantineReason.MAP_FAILED, Stage.MAP, _line(message))


def _line(text: str) -> str:
    """Returns a text as one short line; arrays and reasons of a hook may have several."""
    return printable(" ".join(text.split()))[:_MESSAGE]


def decoded_image(ref: ImageRef, picture: Image.Image, frame: Frame) -> DecodedImage:
    """Returns what a hook receives.

    Args:
      ref: Reference of the image.
      picture: Its upright picture.
      frame: Size of the source image and its orientation.

    Raises:
      ImageFault: If the annotations are for an image of another size.
    """
    annotations = decode_annotations(ref.annotations) if ref.annotations else Annotations()
    objects = None if annotations.objects is None else tuple(_in_picture(annotations, frame))
    return DecodedImage(picture, ref.key, ref.labels, ref.split, decode_extra(ref.extra), objects)


def _in_picture(annotations: Annotations, frame: Frame) -> list[ObjectAnnotation]:
    """Returns objects with boxes, polygons and key points in pixels of the upright picture."""
    upright = are_upright(annotations, frame)
    size = upright_size(frame) if upright else frame.size
    scale = size if annotations.relative else (1, 1)
    orientation = 1 if upright else frame.orientation

    def placed(left: float, upper: float, right: float, lower: float) -> tuple[float, float, float, float]:
        box = (left * scale[0], upper * scale[1], right * scale[0], lower * scale[1])
        return turn(box, size, orientation)

    def points(values: Sequence[float], step: int) -> Iterator[float]:
        """Yields x and y of each point, and its visibility if the points have one."""
        for at in range(0, len(values) - step + 1, step):
            x, y, *visibility = values[at : at + step]
            yield from (*placed(x, y, x, y)[:2], *visibility)

    objects = []
    for item in annotations.objects or ():
        outline: Segmentation | None = None
        if isinstance(item.segmentation, list | tuple):  # run lengths belong to the image as stored
            try:
                outline = [list(points(polygon, 2)) for polygon in item.segmentation]
            except TypeError:  # not lists of numbers, which is reported when the object is mapped
                outline = item.segmentation
        box = None if item.box is None else placed(*item.box)
        keypoints = None if item.keypoints is None else list(points(item.keypoints, 3))
        objects.append(replace(item, box=box, segmentation=outline, mask_place="", keypoints=keypoints))
    return objects


def mapped_ref(ref: ImageRef, mapped: MappedImage, fits: bool, settings: ConvertSettings) -> ImageRef:
    """Returns the reference of a picture that a hook returned, as if a source had listed it.

    Args:
      ref: Reference of the source image.
      mapped: The picture.
      fits: Whether the source's annotations fit the picture.
      settings: Checked settings.

    Raises:
      ImageFault: If the hook returned values that cannot be stored.
    """
    key = f"{ref.key}{SUFFIX_SEPARATOR}{mapped.suffix}" if mapped.suffix else ref.key
    annotations, label = None if fits else _annotations(ref, mapped, settings), _label(ref, mapped, settings)
    if printable(key + label) != key + label:
        raise failed(f"its suffix {mapped.suffix!r} or its labels are not UTF-8")
    return (ref if annotations is None else ref.annotated(annotations))._replace(
        key=key,
        label=label,
        extra=_extra(ref, mapped, settings),
        file_name="" if mapped.suffix else ref.file_name,
        source_id="" if mapped.suffix else ref.source_id,
    )


def _label(ref: ImageRef, mapped: MappedImage, settings: ConvertSettings) -> str:
    if mapped.labels is None:
        return ref.label
    is_list = isinstance(mapped.labels, Sequence) and not isinstance(mapped.labels, str)
    if not is_list or not all(isinstance(name, str) for name in mapped.labels):
        raise failed(f"labels is {mapped.labels!r}, not a list of class names")
    names = dict.fromkeys(map(one_label, mapped.labels))  # each once, like those of a source
    if len(names) > 1 and settings.record_layout.needs is Needs.LABEL and not settings.label_separator:
        raise failed("it returned several classes; --label_separator '|' lets an image have several")
    return LABEL_SEPARATOR.join(names)


def _extra(ref: ImageRef, mapped: MappedImage, settings: ConvertSettings) -> str:
    if not mapped.columns:
        return ref.extra
    if not isinstance(mapped.columns, Mapping):
        raise failed(f"columns is {mapped.columns!r}, not a dict of values by name")
    columns = {column.name: column for column in settings.parsed_extra_columns}
    values = decode_extra(ref.extra)
    for name, value in mapped.columns.items():
        if name not in columns:
            raise failed(f"it returned the column {name!r}, which --extra_columns does not name")
        try:
            values[name] = column_values(columns[name], value, "")
        except ValueError as error:
            raise failed(f"it returned a wrong value: {error}") from None
    return encode_extra(values)


def _annotations(ref: ImageRef, mapped: MappedImage, settings: ConvertSettings) -> Annotations | None:
    """Returns the annotations of a picture that the source's do not fit; None if the layout stores none."""
    if not settings.record_layout.stores_annotations:
        return None
    annotations = decode_annotations(ref.annotations) if ref.annotations else Annotations()
    if annotations.has_mask_parts or annotations.semantic_mask or annotations.panoptic_mask:
        raise failed("the image has a mask, which cannot follow other objects or another size")
    if mapped.objects is None:
        if not annotations.objects:
            return None
        raise failed("it changed the size of an image with objects; return them as MappedImage.objects")
    objects = tuple(mapped.objects) if isinstance(mapped.objects, Sequence) else (mapped.objects,)
    if not all(isinstance(item, ObjectAnnotation) for item in objects):
        raise failed("its objects are not a list of ObjectAnnotation")
    objects = tuple(map(_plain, objects))
    return replace(annotations, objects=objects, relative=False, size=None, upright=True)


@functools.cache
def _objects() -> Any:
    """Returns what checks the values of objects."""
    from pydantic import TypeAdapter  # only hooks that return objects need it

    return TypeAdapter(ObjectAnnotation)


def _plain(item: ObjectAnnotation) -> ObjectAnnotation:
    """Returns an object with plain numbers and text, where a detector has arrays and `pycocotools` bytes.

    Raises:
      ImageFault: If a value has another type.
    """

    def plain(value: Any) -> Any:
        return value.decode() if isinstance(value, bytes) else value.tolist()

    try:
        result: ObjectAnnotation = _objects().validate_json(json.dumps(vars(item), default=plain))
    except (AttributeError, TypeError, ValueError) as error:
        raise failed(f"a value of its object has a wrong type: {item!r}") from error
    return result
