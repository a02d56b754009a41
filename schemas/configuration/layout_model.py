"""The keys of a layout file, as types for editors; `layout_file.py` checks how they go together."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from shardwright.schemas.configuration.typed_yaml import FileModel
from shardwright.schemas.feature_roles import FeatureRole, Needs
from shardwright.schemas.layouts.built_in import LAYOUTS
from shardwright.schemas.values import TYPE_NAMES

_ROLES = [role.value for role in FeatureRole if role.name not in ("EXTRA", "CONSTANT")]
_Role = Annotated[str | None, Field(json_schema_extra={"enum": _ROLES})]
_Side = Annotated[int, Field(ge=1)] | None


class FeatureBlock(FileModel):
    """What fills a feature and how it is stored: one of fill, column and constant."""

    fill: _Role = None
    """What fills it."""
    column: str | None = None
    """The column of the source that fills it."""
    constant: Any = None
    """The value that it has in every record."""
    type: Literal[tuple(TYPE_NAMES)] | None = None  # type: ignore[valid-type]
    """Type of the values of a column or a constant."""
    shape: _Side | list[_Side] = None
    """Sides of the value: [4], [2, 3], or [null] for any number."""
    values: list[str] | None = None
    """Names of an enum."""
    optional: bool = False
    """Whether a record can be without it."""
    tensor: bool = False
    """Store it as a serialized tensor."""
    base64: bool = False
    """Store it as base64."""


class LayoutFile(FileModel):
    """A record layout of one's own."""

    name: str | None = None
    """Name of the layout; default the name of the file."""
    extends: Literal[tuple(LAYOUTS)] | None = None  # type: ignore[valid-type]
    """The built-in layout to begin with."""
    first_label: Annotated[int, Field(ge=0)] = 0
    """Id of the first class."""
    needs: Literal[tuple(need.value for need in Needs)] | None = None  # type: ignore[valid-type]
    """What every image must have."""
    pixels: bool = False
    """Store bare pixels instead of image files."""
    format_names: dict[Literal["jpg", "png", "webp", "raw"], str] | None = None
    """What records call the formats of images."""
    drop: list[str] | None = None
    """Features of the built-in layout to leave out."""
    rename: dict[str, str] | None = None
    """Features of the built-in layout and their new names."""
    features: dict[str, FeatureBlock] | None = None
    """More features."""
