"""Checks requests to Google's APIs with the descriptions in Google's client library."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

import jsonschema

from helpers.repository import ROOT
from shardwright.schemas.configuration.settings import CONVERT_SETTINGS

METADATA = json.loads((ROOT / "deploy" / "dataflow" / "metadata.json").read_text())
PARAMETERS = {entry["name"]: entry for entry in METADATA["parameters"]}


@cache
def _described(api: str) -> Any:
    folder = files("googleapiclient") / "discovery_cache" / "documents"
    return json.loads((folder / f"{api}.json").read_text())


def _strict(schema: Any) -> Any:
    """Returns a schema of an API as JSON Schema, where unknown fields are errors."""
    if "$ref" in schema:
        return {"$ref": f"#/$defs/{schema['$ref']}"}
    strict = {key: schema[key] for key in ("type", "enum") if key in schema}
    if schema.get("type") == "object":
        strict["properties"] = {name: _strict(item) for name, item in schema.get("properties", {}).items()}
        more = schema.get("additionalProperties")
        strict["additionalProperties"] = _strict(more) if more else False
    if "items" in schema:
        strict["items"] = _strict(schema["items"])
    if strict.get("type") == "any":
        del strict["type"]
    return strict


def check(api: str, name: str, value: Any) -> None:
    """Fails unless a value is valid for a type of an API, such as `dataflow.v1b3`, `Job`."""
    schemas = {key: _strict(item) for key, item in _described(api)["schemas"].items()}
    jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": schemas}).validate(value)


def launch_path(project: str, location: str) -> str:
    """Returns the URL at which Dataflow launches a Flex Template."""
    api = _described("dataflow.v1b3")
    method = api["resources"]["projects"]["resources"]["locations"]["resources"]["flexTemplates"]["methods"]
    assert method["launch"]["httpMethod"] == "POST"
    path = method["launch"]["path"].format(projectId=project, location=location)
    return f"{api['rootUrl']}{path}"


def check_launch(body: Any) -> None:
    """Fails unless Dataflow accepts the request, and the template accepts its parameters; for a rebuild."""
    check("dataflow.v1b3", "LaunchFlexTemplateRequest", body)
    launched = body["launchParameter"]
    assert re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", launched["jobName"])
    assert "job" in launched["parameters"] and not set(launched["parameters"]) & set(CONVERT_SETTINGS)
    for name, value in launched["parameters"].items():
        assert all(re.fullmatch(regex, value) for regex in PARAMETERS[name]["regexes"]), (name, value)
