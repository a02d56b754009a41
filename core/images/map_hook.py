"""The user's own step between decoding and resizing (`--map module:function`)."""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from PIL import Image

from shardwright.schemas.annotations import ObjectAnnotation
from shardwright.schemas.codes import FilterReason, QuarantineReason, Stage
from shardwright.schemas.errors import ImageFault, LeftOut, UsageError, words_of

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
      image: The picture, in any mode that Pillow can convert to RGB.
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
      reason: why, in a few words; the ledger and the report show it.
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
    hook = getattr(_import(name, spec), function, None)
    if not callable(hook):
        raise UsageError(f"--map {spec}: module {name} has no function {function!r}.")
    return hook  # type: ignore[no-any-return]


def _import(name: str, spec: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)  # last, so that no file there hides an installed module
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise UsageError(
                f"--map {spec}: there is no module {error.name!r}; install its package, or start the "
                f"command in the folder with {error.name.partition('.')[0]}.py."
            ) from None
        raise UsageError(f"--map {spec}: its module cannot be imported: {error}.") from error
    except Exception as error:  # the user's module may raise any
        raise UsageError(f"--map {spec}: its module cannot be imported: {_described(error)}.") from error


def _described(error: BaseException) -> str:
    """Returns the type and the text of an exception of the user's code, in one line."""
    name = type(error).__name__
    try:
        text = words_of(error)
    except Exception:  # __str__ is the user's code, too
        return name
    return name if text == name else f"{name}: {text}"


@functools.cache
def hook_version(spec: str) -> str:
    """Returns `module:function` and a digest of the source files, which `dataset.json` records.

    The digest covers the module's file; for a module in a package, all Python files of the package.

    Raises:
      UsageError: If the hook cannot be imported, or its source cannot be read.
    """
    load_hook(spec)
    module = sys.modules[spec.partition(":")[0]]
    top = sys.modules[module.__name__.partition(".")[0]]
    folders = list(getattr(top, "__path__", ()))
    digest = hashlib.sha256()
    try:
        for name, path in _source_files(module, folders):
            content = path.read_bytes()
            digest.update(f"{name}\0{len(content)}\0".encode())
            digest.update(content)
    except OSError as error:
        raise UsageError(f"--map {spec}: its source cannot be read: {error}.") from error
    return f"{spec} sha256:{digest.hexdigest()[:_HEX]}"


def _source_files(module: ModuleType, folders: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Yields the names and paths of the source files that belong to a module, sorted by name."""
    found = {
        path.relative_to(folder).as_posix(): path for folder in folders for path in Path(folder).rglob("*.py")
    }
    if not found:
        if not module.__file__ or not module.__file__.endswith(".py"):
            raise FileNotFoundError(f"{module.__name__} has no source file")
        found = {module.__name__: Path(module.__file__)}
    return iter(sorted(found.items()))


def hook_versions(spec: str) -> dict[str, str]:
    """Returns the hook as an entry of the versions that decide bytes; empty without a hook."""
    return {"map": hook_version(spec)} if spec else {}


def call_hook(hook: Hook, item: DecodedImage, max_pixels: int) -> Iterator[MappedImage]:
    """Calls a hook and yields the pictures that it returns, as soon as they are made.

    Args:
      hook: The hook.
      item: The image.
      max_pixels: Most pixels of a picture.

    Raises:
      LeftOut: If the hook leaves the image out.
      ImageFault: If the hook raises an exception or returns something else.
      MemoryError: If the machine has no memory left.
    """
    suffixes: set[str] = set()
    try:
        for found in _results(hook(item)):
            mapped = MappedImage(found) if isinstance(found, Image.Image) else found
            _check(mapped, max_pixels)
            if mapped.suffix in suffixes:
                raise failed(f"it returned two pictures with the suffix {mapped.suffix!r}")
            suffixes.add(mapped.suffix)
            yield mapped
    except (ImageFault, LeftOut, MemoryError):
        raise
    except (Exception, SystemExit) as error:  # the user's function may raise any
        raise failed(_described(error)) from error
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


def _check(mapped: Any, max_pixels: int) -> None:
    if not isinstance(mapped, MappedImage) or not isinstance(mapped.image, Image.Image):
        what = mapped.image if isinstance(mapped, MappedImage) else mapped
        raise failed(f"it returned {type(what).__name__} as a picture, not a PIL.Image.Image")
    width, height = mapped.image.size
    if not 0 < width * height <= max_pixels:
        raise failed(f"it returned a picture of {width} x {height} pixels; 1 to {max_pixels} are allowed")


def _dropped(reason: str) -> LeftOut:
    return LeftOut(FilterReason.DROPPED_BY_MAP, Stage.MAP, " ".join(reason.split())[:_MESSAGE])


def failed(message: str) -> ImageFault:
    """Returns the fault of an image for which the hook failed or returned a wrong value."""
    return ImageFault(QuarantineReason.MAP_FAILED, Stage.MAP, message[:_MESSAGE])
