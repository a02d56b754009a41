"""Types for the sections of a job file other than settings and gates."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from shardwright.schemas.configuration.gate_file import GateFile
from shardwright.schemas.configuration.typed_yaml import FileModel

_Command = str | Annotated[list[str], Field(min_length=1)]


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
