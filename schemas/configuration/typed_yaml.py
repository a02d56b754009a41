"""Typed models of configuration files, with errors that say what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, WrapValidator
from pydantic_core import PydanticCustomError

from shardwright.schemas.configuration.setting import attribute_docstrings
from shardwright.schemas.errors import nearest
from shardwright.schemas.plain_yaml import WrongValue

_MAX_VALUE_LENGTH = 60
_Model = TypeVar("_Model", bound="FileModel")


def _describe(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Describes the keys of a file with the docstrings of the attributes.

    Pydantic's own setting for this reads the source of every model whenever it is imported, which takes a
    command up to 0.3 s. Only editors need the descriptions.
    """
    for base in reversed(model.__mro__):
        if issubclass(base, FileModel) and base is not FileModel:
            for name, docstring in attribute_docstrings(base).items():
                schema["properties"][model.model_fields[name].alias or name]["description"] = docstring


class FileModel(BaseModel):
    """Base of all models: objects are immutable, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=_describe)


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


def quoted_value(value: Any) -> str:
    """Returns a value for a message: in quotes, and shortened."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return repr(text if len(text) <= _MAX_VALUE_LENGTH else text[:_MAX_VALUE_LENGTH] + "...")


def read_model(model: type[_Model], value: Any, what: str, example: str) -> _Model:
    """Returns the content of a file as its model.

    Args:
      model: Type of the result.
      value: Content of the YAML.
      what: What to call a key, such as "gate".
      example: An example of a correct line.

    Raises:
      WrongValue: If a value is wrong; it has the keys of the first one, and says what to write instead.
    """
    if not isinstance(value, Mapping):
        raise WrongValue(f"write one `{what}: value` on each line, such as {example}")
    known = list(model.model_fields)
    for name in value:
        if name not in known:
            hint = nearest(str(name), known) or f"; choose from {', '.join(known)}"
            raise WrongValue(f"there is no {what} {quoted_value(name)}{hint}", name)
        if value[name] is None:
            raise WrongValue(f"{name} has no value; write one or take it out", name)
    try:
        return model.model_validate(dict(value))
    except ValidationError as error:
        order = list(value)
        first = min(error.errors(), key=lambda item: order.index(item["loc"][0]))
        path = [part for part in first["loc"] if part != "[key]"]
        raise WrongValue(f"{path[0]}: {first['msg']}", *path) from None
