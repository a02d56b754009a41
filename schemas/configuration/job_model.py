"""Types for the sections of a job file other than settings and gates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, WithJsonSchema

from shardwright.schemas.configuration.gate_file import GateFile
from shardwright.schemas.configuration.typed_yaml import FileModel, wrong
from shardwright.schemas.scrub import DEFAULT_SCRUB

_LONGEST = 1e9  # a thousand years in minutes
_PLACEHOLDER = {"type": "string", "pattern": r"\$\{|\{"}


def _as_number(value: Any, least: float, what: str) -> float:
    try:
        number = float("nan" if isinstance(value, bool) else value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not least <= number <= _LONGEST:
        raise wrong(f"write {what}")
    return number


def _number(least: float, what: str) -> BeforeValidator:
    return BeforeValidator(lambda value: _as_number(value, least, what))


def _versions(value: Any) -> int:
    number = _as_number(value, 0, "the number of versions to keep, such as 5, or 0 for all")
    if number != int(number):
        raise wrong("write a whole number")
    return int(number)


def _switch(value: Any) -> bool:
    text = str(value).lower()
    if text not in ("true", "false", "yes", "no"):
        raise wrong("write true or false")
    return text in ("true", "yes")


def _fraction(value: Any) -> float:
    over, slash, under = str(value).partition("/")
    try:
        number = float(over) / float(under) if slash else float("nan" if isinstance(value, bool) else value)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        number = float("nan")
    if not 0 <= number <= 1:
        raise wrong("write a share from 0 to 1, such as 0.1 or 1/30")
    return number


def _schema(**kind: Any) -> WithJsonSchema:
    """Returns the schema of a value that may be a variable, as in `keep: ${KEEP:-5}`."""
    return WithJsonSchema({"anyOf": [kind, _PLACEHOLDER]})


class Scalars(FileModel):
    """The keys of a job file that have a single value."""

    keep: Annotated[int, BeforeValidator(_versions), _schema(type="integer", minimum=0)] = 5
    """Number of published versions to keep; 0 for all."""
    keep_days: Annotated[
        float, _number(0, "a number of days, such as 30"), _schema(type="number", minimum=0)
    ] = 0.0
    """Younger versions also stay, in days."""
    verify_sources: Annotated[bool, BeforeValidator(_switch), _schema(type="boolean")] = False
    """Read and hash every source instead of trusting its size and time."""
    scrub: Annotated[
        float,
        BeforeValidator(_fraction),
        _schema(anyOf=[{"type": "number", "minimum": 0, "maximum": 1}, {"type": "string", "pattern": "/"}]),
    ] = DEFAULT_SCRUB
    """Share of the latest version's shards to read again in each run."""
    lease_minutes: Annotated[
        float, _number(1, "a number of minutes from 1 on, such as 60"), _schema(type="number", minimum=1)
    ] = 60.0
    """Minutes without renewal after which another run takes over the lease."""


def scalar_names() -> tuple[str, ...]:
    """Returns the names of the scalars."""
    return tuple(Scalars.model_fields)


def default_of(name: str) -> Any:
    """Returns the default of a scalar."""
    return Scalars.model_fields[name].default


def reader_of(name: str) -> Callable[[Any], Any]:
    """Returns the function that reads a scalar; it raises ValueError, which says what to write instead."""

    def read(value: Any) -> Any:
        try:
            return getattr(Scalars.model_validate({name: value}), name)
        except ValidationError as error:
            raise ValueError(error.errors()[0]["msg"]) from None

    return read


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


class Sections(Scalars):
    """The sections of a job file besides settings."""

    gates: GateFile | str | None = None
    """The checks that a new version has to pass, or the path of a gate file."""
    hooks: Hooks | None = None
    """The commands and URLs to call at the end of a run."""
    runner: dict[str, Any] | None = None
    """Beam's options, as on the command line."""
