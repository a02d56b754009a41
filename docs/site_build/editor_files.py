"""Writes what editors complete and check with: JSON schemas of files, and a stub of the package.

Run it after a change of the settings or the models: `python docs/site_build/editor_files.py`.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

import shardwright
from shardwright.pipelines.job_file import Sections
from shardwright.schemas.configuration.gates import GateFile
from shardwright.schemas.configuration.layout_file import LayoutFile
from shardwright.schemas.configuration.setting import Setting, attribute_docstrings
from shardwright.schemas.configuration.settings import REBUILD_SETTINGS
from shardwright.schemas.configuration.typed_yaml import FileModel

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "pipelines" / "json_schemas"
STUB = ROOT / "package" / "__init__.pyi"
_DRAFT = "https://json-schema.org/draft/2020-12/schema"
#: A value with a variable or a date, which is known only when the job runs.
_PLACEHOLDER = {"type": "string", "pattern": r"\$\{|\{"}


def editor_schemas() -> dict[str, dict[str, Any]]:
    """Returns the schema of each kind of file, by its name."""
    return {
        "job": _job_schema(),
        "gates": _schema_of(GateFile, "A gate file of Shardwright"),
        "layout": _schema_of(LayoutFile, "A layout file of Shardwright"),
    }


def _schema_of(model: type[FileModel], title: str) -> dict[str, Any]:
    schema = model.model_json_schema(schema_generator=_SchemaOfFile)
    return {"$schema": _DRAFT, **schema, "title": title}


def _job_schema() -> dict[str, Any]:
    schema = _schema_of(Sections, "A job file of Shardwright")
    gates = schema["$defs"]["GateFile"]["properties"]
    for name, gate in gates.items():
        gates[name] = {"anyOf": [gate, _PLACEHOLDER], "description": gate["description"]}
    for name in Sections.model_fields:
        section = schema["properties"][name]
        kinds = [section, {"type": "null"}]  # all lines below its name may be comments
        schema["properties"][name] = {"anyOf": kinds, "description": section["description"]}
    for item in REBUILD_SETTINGS.values():
        setting = {**_setting_schema(item), "description": item.help}
        schema["properties"][item.name] = setting
        if "_" in item.name:
            schema["properties"][item.name.replace("_", "-")] = {**setting, "deprecated": True}
    return schema


def _setting_schema(item: Setting) -> dict[str, Any]:
    if isinstance(item.default, tuple):
        kinds: list[dict[str, Any]] = [
            {"type": "string"},
            {"type": "array", "items": {"type": "string"}},
            {"type": "object", "additionalProperties": {"type": "string"}},
        ]
    elif item.is_switch:
        kinds = [{"type": "boolean"}, {"enum": ["yes", "no", "true", "false"]}]
    elif item.kind.choices:
        choices = dict.fromkeys((*item.kind.choices, item.default))
        numbers = [int(choice) for choice in choices if choice.isdigit()]  # which YAML reads as such
        kinds = [{"enum": [*choices, *numbers]}]
    elif item.is_number:
        least = {} if item.kind.minimum is None else {"minimum": item.kind.minimum}
        whole = isinstance(item.default, int)
        kinds = [{"type": "integer" if whole else "number", **least}, {"type": "string"}]
    else:
        kinds = [{"type": ["string", "number", "boolean"]}]
    if item.kind.between:
        kinds.append({"type": "object"})
    if item.name == "resize":
        kinds.append({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2})
    if not any("string" in str(kind.get("type")) for kind in kinds):
        kinds.append(_PLACEHOLDER)
    return {"anyOf": kinds} if len(kinds) > 1 else kinds[0]


class _SchemaOfFile(GenerateJsonSchema):
    """Describes keys, and leaves out the null or empty list of a missing key, because no file can say it."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Returns the schema of a model, whose keys the docstrings of the attributes describe.

        Pydantic's own setting for this reads the source of every model whenever it is imported, which takes a
        command up to 0.3 s.
        """
        described = super().model_schema(schema)
        for base in reversed(schema["cls"].__mro__):
            if issubclass(base, FileModel) and base is not FileModel:
                for name, docstring in attribute_docstrings(base).items():
                    described["properties"][name]["description"] = docstring
        return described

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Returns the schema of a key with a default."""
        if schema.get("default") not in (None, ()):
            return super().default_schema(schema)
        value = schema["schema"]
        return self.generate_inner(value["schema"] if value["type"] == "nullable" else value)


def schema_text(schema: Mapping[str, Any]) -> str:
    """Returns the text of a schema file."""
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def stub_text() -> str:
    """Returns the stub of the package, which tells editors and type checkers all arguments."""
    with_settings = ("convert", "plan", "rebuild")
    others = {name: home for name, home in shardwright.HOMES.items() if name not in with_settings}
    lines = [
        '"""The public names, for editors; `python docs/site_build/editor_files.py` writes this."""',
        "from collections.abc import Mapping, Sequence",
        "from os import PathLike",
        "from typing import Any, Literal",
        "from shardwright.schemas import __version__ as __version__",
        "HOMES: dict[str, str]",
        *(f"from shardwright.{home} import {name} as {name}" for name, home in others.items()),
        *(_declaration(getattr(shardwright, name)) for name in with_settings),
    ]
    return "\n".join(lines)


def _declaration(function: Callable[..., Any]) -> str:
    """Returns a function as a stub has it."""
    signature = inspect.signature(function)
    parameters = [f"    {item}," for item in signature.parameters.values()]
    kinds = [item.kind for item in signature.parameters.values()]
    parameters.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "    *,")
    result = signature.return_annotation
    lines = [f"def {function.__name__}(", *parameters, f") -> {result.__name__}:"]
    text = re.sub(r"\b(typing|collections\.abc|os)\.", "", "\n".join(lines))
    return f'from {result.__module__} import {result.__name__}\n{text}\n    r"""{function.__doc__}"""\n'


if __name__ == "__main__":
    for kind, schema in editor_schemas().items():
        (SCHEMAS / f"{kind}.schema.json").write_text(schema_text(schema), encoding="utf-8")
    STUB.write_text(stub_text(), encoding="utf-8")
