"""Types for the keys of job files and layout files other than settings and gates.

They serve editors. `job_file.py` checks the values of a job, and `layout_file.py` how the keys of a layout go
together.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from shardwright.schemas.configuration.gate_file import GateFile
from shardwright.schemas.configuration.typed_yaml import FileModel
from shardwright.schemas.feature_roles import FeatureRole, Needs
from shardwright.schemas.layouts import LAYOUTS
from shardwright.schemas.sample_types import SAMPLE_TYPES
from shardwright.schemas.values import TYPE_NAMES

_Command = str | Annotated[list[str], Field(min_length=1)]
_ROLES = [role.value for role in FeatureRole if role.name not in ("EXTRA", "CONSTANT")]
_Role = Annotated[str | None, Field(json_schema_extra={"enum": _ROLES})]
_Side = Annotated[int, Field(ge=1)] | None


class HookBlock(FileModel):
    """A command or URL to call at the end of a run."""

    command: _Command | None = None
    """A command. It runs without a shell."""
    webhook: str | None = None
    """A URL that receives a JSON document."""


_Hooks = _Command | HookBlock | list[HookBlock]


class Hooks(FileModel):
    """The commands and URLs to call at the end of a run."""

    on_any: _Hooks | None = None
    """After every run."""
    on_success: _Hooks | None = None
    """After a run that published a version."""
    on_no_change: _Hooks | None = None
    """After a run that found nothing new."""
    on_refused: _Hooks | None = None
    """After a run whose version a gate refused."""
    on_failure: _Hooks | None = None
    """After a run that failed."""


class Sections(FileModel):
    """The sections of a job file besides settings."""

    gates: GateFile | str | None = None  # type: ignore[valid-type]
    """The checks that a new version has to pass, or the path of a gate file."""
    hooks: Hooks | None = None
    """The commands and URLs to call at the end of a run."""
    runner: dict[str, Any] | None = None
    """Beam's options, as on the command line."""


class FeatureBlock(FileModel):
    """A feature: its content (one of fill, column and constant), and how it is stored."""

    fill: _Role = None
    """Role that fills the feature."""
    column: str | None = None
    """Column of the source that fills the feature."""
    constant: Any = None
    """The value that it has in every record."""
    type: Literal[tuple(TYPE_NAMES)] | None = None  # type: ignore[valid-type]
    """Type of the values of a column or a constant."""
    shape: _Side | list[_Side] = None
    """Number of values per dimension: [4], [2, 3], or [null] for any number."""
    values: list[str] | None = None
    """Names of an enum."""
    optional: bool = False
    """Whether a record may lack it."""
    tensor: bool = False
    """Store it as a serialized tensor."""
    base64: bool = False
    """Store it as base64."""
    dtype: Literal[SAMPLE_TYPES] | None = None  # type: ignore[valid-type]
    """Type of the samples of bare pixels, the same in every record."""


class LayoutFile(FileModel):
    """A custom record layout."""

    name: str | None = None
    """Name of the layout; by default the name of the file."""
    extends: Literal[tuple(LAYOUTS)] | None = None  # type: ignore[valid-type]
    """The built-in layout to begin with."""
    first_label: Annotated[int, Field(ge=0)] = 0
    """Id of the first class."""
    needs: Literal[tuple(need.value for need in Needs)] | None = None  # type: ignore[valid-type]
    """Kind of annotations that every image must have."""
    pixels: bool = False
    """Store raw pixels instead of image files."""
    format_names: dict[Literal["jpg", "png", "webp", "raw"], str] | None = None
    """Names that records use for image formats."""
    drop: list[str] | None = None
    """Features of the built-in layout to leave out."""
    rename: dict[str, str] | None = None
    """New names for features of the built-in layout."""
    features: dict[str, FeatureBlock] | None = None
    """Additional features."""
