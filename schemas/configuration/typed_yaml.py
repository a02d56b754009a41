"""Typed models of configuration files, with errors that say what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, WrapValidator, model_validator
from pydantic_core import PydanticCustomError

from shardwright.schemas.errors import nearest
from shardwright.schemas.values import quoted_value, short_repr


class FileModel(BaseModel):
    """Base of all models: objects are immutable, and unknown keys are errors.

    `docs/site_build/editor_files.py` makes JSON schemas of models, with the docstrings of their attributes.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise wrong(f"write `key: value` lines, such as `{next(iter(cls.model_fields))}: ...`")
        names = list(cls.model_fields)
        for key in value:
            if key not in names:
                close = nearest(str(key), names)
                raise wrong(f"{quoted_value(key)} is not a key here; write {', '.join(names)}{close}")
        return value


def wrong(message: str) -> PydanticCustomError:
    """Returns an error whose message follows the name of the key: `NAME: MESSAGE`."""
    return PydanticCustomError("wrong", "{message}", {"message": message})


def write(what: str) -> WrapValidator:
    """Returns a validator whose error says what to write instead of a wrong value.

    Args:
      what: Description of right values, such as "a whole number from 0 on".
    """

    def validate(value: Any, handler: Callable[[Any], Any]) -> Any:
        try:
            return handler(value)
        except ValidationError as error:
            if any(item["loc"] or item["type"] == "wrong" for item in error.errors()):
                raise  # about an item of the value, or with its own message
            raise wrong(f"write {what}, not {quoted_value(value)}") from None

    return WrapValidator(validate)


def check_choice(value: Any, choices: Sequence[str], where: str = "") -> str:
    """Returns a value that is one of a few words; raises an error that lists them if it is another.

    The message begins with `where`: the keys that lead to the value, if pydantic does not know them.
    """
    if value not in choices:
        close = nearest(short_repr(value).strip("'"), choices)
        raise wrong(f"{where}{short_repr(value)} is not one of {', '.join(choices)}{close}")
    return str(value)


def one_of(*choices: str) -> Any:
    """Returns the type of one of a few words."""
    return Annotated[Literal[choices], BeforeValidator(lambda value: check_choice(value, choices))]


def first_error(error: ValidationError, order: Sequence[str] = ()) -> tuple[Sequence[str | int], str]:
    """Returns the keys that lead to a wrong value, then `[key]` if the last key is wrong, and the message.

    Args:
      error: Pydantic's error about all wrong values.
      order: Keys at the top of the file in order; empty for the order of the model.
    """
    errors = error.errors(include_url=False, include_input=False)
    first = min(errors, key=lambda item: order.index(str(item["loc"][0]))) if order else errors[0]
    return first["loc"], first["msg"]
