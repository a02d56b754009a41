"""What the declaration of a setting says; command line, job files, schemas and templates derive from it."""

from __future__ import annotations

import ast
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import cache
from itertools import pairwise
from typing import Any, Literal

from shardwright.schemas.errors import UsageError, as_sentence, nearest


class Affects(Enum):
    """What a setting decides. Digests, the plan and `dataset.json` follow from it."""

    #: The bytes of a record, given its reference.
    RECORD = "record"
    #: The order and the compression of the records in a shard, and which images in it become records.
    SHARD = "shard"
    #: The split and the shard of an image.
    PLACEMENT = "placement"
    #: The choice of images, and what is known about each.
    REFERENCE = "reference"
    #: Where to read the input. The plan records what was read, not the place.
    INPUT = "input"
    #: What the dataset states about its origin. No shard depends on it.
    PROVENANCE = "provenance"
    #: How the command runs. The dataset does not depend on it.
    RUN = "run"


class Topic(Enum):
    """The groups of the settings in `--help`, in their order there. A value is the title."""

    INPUT = "input and labels"
    SELECTION = "selection of images"
    ANNOTATIONS = "annotations"
    SPLITS = "splits and shards"
    PIXELS = "pixels"
    RECORDS = "records"
    PROVENANCE = "provenance"
    SAFETY = "safety"
    RUNNING = "running"


class Condition(Enum):
    """What a setting needs to have an effect; the text ends "--NAME has no effect ..." if that is missing.

    `sources/unused_settings.py` checks each condition.
    """

    #: A source that uses the setting (`Source.settings`). A message names such sources.
    SOURCE = "on this source"
    RESIZING = "without --resize"
    LOSSY_FORMAT = "on images that are not stored as JPEG or WebP"
    KEPT_ORIGINALS = (
        "unless the original bytes are kept (--image_format keep): re-encoded images have no metadata"
    )
    OBJECTS = "with a layout that stores no objects"
    CLASSES = "with a layout of objects: images without objects are kept anyway"
    STORED_CLASSES = "with a layout that stores no classes"
    SEVERAL_SPLITS = "without several --splits or --folds"
    DRAWN_SPLITS = "because the source names the split of every image"
    CONVERTED_COLORS = "with --channels, which stores all channels as they are"
    VISIBLE_BACKGROUND = "because no image was padded or has transparent pixels that were filled"


@dataclass(frozen=True)
class Kind:
    """The values that a setting takes.

    Attributes:
      metavar: Placeholder in `--help`; empty to show the choices.
      check: Raises ValueError for a wrong value and says what to write instead; the result is not used.
      accepts: Type of the argument in Python if it differs from the type of the stored value.
      between: Text between a name and its value, for a value that can also be a mapping.
      choices: All values, if they are few.
      added: Returns the values that installed packages add to `choices`; None if no package can.
      minimum: Smallest number.
      advice: What to write instead of a value that is no number; empty to name only the mistake.
    """

    metavar: str = ""
    check: Callable[[Any], object] | None = None
    accepts: Any = None
    between: str = ""
    choices: tuple[str, ...] = ()
    added: Callable[[], Sequence[str]] | None = None
    minimum: float | None = None
    advice: str = ""


@cache
def attribute_docstrings(cls: type) -> Mapping[str, str]:
    """Returns the attributes that a class has itself, each with the docstring below it on one line.

    This reads the source, which takes milliseconds. Only descriptions for people need it.
    """
    module = ast.parse(inspect.getsource(sys.modules[cls.__module__]))
    (definition,) = (
        node for node in module.body if isinstance(node, ast.ClassDef) and node.name == cls.__name__
    )
    docstrings = {}
    for attribute, text in pairwise(definition.body):
        match attribute, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(docstring))),
            ):
                docstrings[name] = " ".join(docstring.split())
    return docstrings


@dataclass(frozen=True)
class Setting:
    """A setting.

    Attributes:
      model: Dataclass that declares it. The docstring below the field is the description.
      name: Name in Python and, after two hyphens, on the command line.
      default: Default value, in the form in which a user writes it.
      affects: What the setting decides.
      topic: Its group in `--help`.
      kind: Its values.
      needs: What the setting needs to have an effect; without any it always has one.
      not_for_rebuilds: Why a rebuild does not accept the setting; empty if it does.
    """

    model: type
    name: str
    default: Any
    affects: Affects
    topic: Topic
    kind: Kind
    needs: tuple[Condition, ...] = ()
    not_for_rebuilds: str = ""

    @property
    def is_switch(self) -> bool:
        """Whether the value is true or false."""
        return isinstance(self.default, bool)

    @property
    def is_number(self) -> bool:
        """Whether the value is a number."""
        return isinstance(self.default, int | float) and not self.is_switch

    @property
    def sentence(self) -> str:
        """What the setting does, as a sentence."""
        return attribute_docstrings(self.model)[self.name]

    @property
    def help(self) -> str:
        """What the setting does, for `--help`."""
        return f"{self.sentence[0].lower()}{self.sentence[1:]}".removesuffix(".")

    @property
    def accepts(self) -> Any:
        """Type of the argument in Python."""
        if self.kind.choices and not self.kind.added:
            return Literal[tuple(dict.fromkeys((*self.kind.choices, self.default)))]
        return self.kind.accepts or type(self.default)

    def check_option(self, value: Any) -> None:
        """Checks a value.

        Raises:
          UsageError: If it is wrong; the message names the option and says what to write instead.
        """
        choices = self.kind.choices
        try:
            if value == self.default == "":
                return
            if choices and value not in choices:
                choices = (*choices, *(self.kind.added() if self.kind.added else ()))
                if value not in choices:
                    raise ValueError(f"choose one of {', '.join(choices)}{nearest(str(value), choices)}")
            if self.kind.check:
                self.kind.check(value)
        except ValueError as error:
            written = f"{value:.15g}" if isinstance(value, float) else value
            raise UsageError(as_sentence(f"--{self.name} {written}: {error}")) from None

    def stored(self, value: Any) -> Any:
        """Returns a value of a command line, a job file, a notebook or a plan in the form of the setting.

        Raises:
          UsageError: If its type is wrong.
        """
        if isinstance(self.default, tuple):
            return _paths(self, value)
        if self.is_switch:
            if str(value).lower() not in ("true", "false", "yes", "no"):
                raise UsageError(f"--{self.name} {value}: write true or false.")
            return str(value).lower() in ("true", "yes")
        if value is None:
            return self.default
        if isinstance(value, Mapping) and self.kind.between:
            value = ",".join(f"{key}{self.kind.between}{one}" for key, one in value.items())
        if isinstance(value, list | tuple) and self.name == "resize":
            value = "x".join(str(side) for side in value)
        if isinstance(value, Mapping | list | tuple | set):
            raise UsageError(f"--{self.name} takes one value, not several: {value!r}.")
        if self.is_number:
            return _number(self, value)
        return os.fspath(value) if isinstance(value, os.PathLike) else str(value)

    def checked(self, value: Any) -> Any:
        """Returns a given value like `stored`, after all checks that need no other setting.

        Raises:
          UsageError: If it is wrong; the message says what to write instead.
        """
        stored = self.stored(value)
        self.check_option(stored)
        return stored


def _number(item: Setting, value: Any) -> int | float:
    """Returns a number, which may be written as a fraction such as 1/30 unless it has to be whole."""
    kind: type[int | float] = type(item.default)
    over, _, under = str(value).partition("/") if kind is float else (value, "", "")
    noun = "number" if kind is float else "whole number"
    wrong = item.kind.advice or f"{value!r} is not a {noun}"
    percentage = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", str(value))
    if percentage and kind is float:
        wrong = f"{value!r} is not a number; write {float(percentage[1]) / 100:g}"
    try:
        number = kind(over) / float(under) if under else kind(over)
        if isinstance(value, float) and number != value and value == value:
            raise ValueError
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        raise UsageError(f"--{item.name} {value}: {wrong}.") from None
    return number


def _paths(item: Setting, value: Any) -> tuple[str, ...]:
    """Converts a path, several paths, or names with paths to several texts."""
    if isinstance(value, Mapping):
        value = [f"{key}={path}" for key, path in value.items()]
    if isinstance(value, str | os.PathLike):
        value = [value]
    if not isinstance(value, list | tuple) or not all(isinstance(v, str | os.PathLike) for v in value):
        raise UsageError(f"--{item.name} {value!r}: write one path or a list of paths.")
    return tuple(os.fspath(path) for path in value)


def setting(
    default: Any,
    affects: Affects,
    topic: Topic,
    kind: Kind,
    *needs: Condition,
    not_for_rebuilds: str = "",
) -> Any:
    """Declares a field of a dataclass as a setting; the arguments are the attributes of `Setting`."""
    declared = {"affects": affects, "topic": topic, "kind": kind, "needs": needs}
    return field(default=default, metadata={**declared, "not_for_rebuilds": not_for_rebuilds})


@cache
def settings_of(model: type) -> Mapping[str, Setting]:
    """Returns the settings that a dataclass declares, by name."""
    return {item.name: Setting(model, item.name, item.default, **item.metadata) for item in fields(model)}
