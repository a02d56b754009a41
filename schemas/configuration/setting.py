"""What the declaration of a setting says; command line, job files, schemas and templates derive from it."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Mapping
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
      pattern: Regular expression, without anchors, of the values that a Dataflow template accepts.
      accepts: Type of the argument in Python if it differs from the type of the stored value.
      parameter: Type of a template's parameter, if the stored value does not decide it.
      between: Text between a name and its value, for a value that can also be a mapping.
      choices: All values, if they are few.
      minimum: Smallest number.
      advice: What to write instead of a value that is no number; empty to name only the mistake.
    """

    metavar: str = ""
    check: Callable[[Any], object] | None = None
    pattern: str = r"[^\n\r]+"
    accepts: Any = None
    parameter: str = ""
    between: str = ""
    choices: tuple[str, ...] = ()
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
        if self.kind.choices:
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
                raise ValueError(f"choose one of {', '.join(choices)}{nearest(str(value), choices)}")
            if self.kind.check:
                self.kind.check(value)
        except ValueError as error:
            written = f"{value:.15g}" if isinstance(value, float) else value
            raise UsageError(as_sentence(f"--{self.name} {written}: {error}")) from None


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
