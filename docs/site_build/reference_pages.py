"""Writes the reference pages for commands, for the files that users write, and for the Python API."""

from __future__ import annotations

import argparse
import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import shardwright
from shardwright import loader, transforms
from shardwright.pipelines.cli import COMMANDS, command_of
from shardwright.schemas.configuration.settings import CONVERT_SETTINGS

_ERRORS = [
    name for name in shardwright.__all__ if isinstance(value := getattr(shardwright, name), type)
    and issubclass(value, Exception)
]  # fmt: skip
#: Names that a module of `shardwright` has from a module below it are described there.
_API = {
    "Commands as functions": (
        "shardwright",
        [name for name in shardwright.__all__ if name not in _ERRORS],
        "Each does what the command of its name does.",
    ),
    "Errors": (
        "shardwright",
        _ERRORS,
        "What functions raise; the message is one sentence that says what to do.",
    ),
    "Reading a dataset": (
        "shardwright.loader",
        loader.__all__,
        "`load` needs TensorFlow; the others do not.",
    ),
    "Beam transforms": (
        "shardwright.transforms",
        transforms.__all__,
        "The single steps of a conversion, for your own pipelines "
        "([an example](../examples/custom_pipeline.py)).",
    ),
}
#: What users and their own layouts and sources deal with. `schemas` has no names of its own.
_SCHEMAS = (
    "shardwright.schemas.dataset.Dataset",
    "shardwright.schemas.layouts.Layout",
    "shardwright.schemas.layouts.FeatureSpec",
    "shardwright.schemas.image_ref.ImageRef",
    "shardwright.schemas.configuration.settings.ConvertSettings",
    "shardwright.schemas.codes.ExitCode",
    "shardwright.schemas.codes.QuarantineReason",
    "shardwright.schemas.codes.FindingCode",
)
_FILES = {
    "job": (
        "Job file",
        "`rebuild --job`, `convert --job` and `plan --job` read it; `shardwright init` writes one.",
    ),
    "gates": ("Gate file", "`validate --expect`, `diff --thresholds` and the `gates` of a job file take it."),
    "layout": ("Layout file", "`--layout FILE.yaml` reads it ([examples](../layouts.md#your-own-layout))."),
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages."""
    pages = {"commands": commands_page(), "configuration": configuration_page(), "api": api_page()}
    for name, text in pages.items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def commands_page() -> str:
    """Returns the page of all commands with their options."""
    parts = [
        "# Commands and options\n\n`shardwright COMMAND --help` shows the same. "
        "[Converting](../converting.md#exit-codes) lists the exit codes."
    ]
    for name, entry in COMMANDS.items():
        parser = command_of(name).parser()
        parts.append(f"## shardwright {name}\n\n{entry.summary[0].upper()}{entry.summary[1:]}.")
        if parser.epilog:
            parts.append(f"```text\n{parser.epilog.strip()}\n```")
        parts += [_options(group) for group in parser._action_groups]
    return "\n\n".join(filter(None, parts)) + "\n"


def _options(group: argparse._ArgumentGroup) -> str:
    """Returns the table of a group of options; empty if it has none."""
    rows = []
    for action in group._group_actions:
        if action.help != argparse.SUPPRESS:
            text = (action.help or "") % {"default": action.default, "prog": "shardwright"}
            rows.append((_spelling(action), text))
    if not rows:
        return ""
    title = (group.title or "").capitalize()
    return f"### {title}\n\n" + _table(("option", "what it does"), rows)


def _spelling(action: argparse.Action) -> str:
    """Returns how an option is written, with its value."""
    values = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    value = "" if action.nargs == 0 else str(action.metavar or values).replace(",", ", ")
    if action.nargs == "?":
        value = f"[{value}]"
    names = ", ".join(action.option_strings)
    return f"`{' '.join(filter(None, (names, value)))}`"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    """Returns a text that stays in its cell, with its own characters."""
    code = re.split("`([^`]*)`", html.escape(" ".join(text.split()), quote=False).replace("|", "&#124;"))
    words = [re.sub(r"[\\*_]", lambda match: f"&#{ord(match[0])};", part) for part in code[::2]]
    return "".join(map("{}<code>{}</code>".format, words, code[1::2])) + words[-1]


def configuration_page() -> str:
    """Returns the page of the files that users write, from the schemas that editors check them with."""
    parts = [
        "# Job, gate and layout files\n\nThe files are YAML. "
        "[Editors can complete and check them](../validating.md#compare-two-datasets)."
    ]
    folder = files("shardwright.pipelines") / "json_schemas"
    schemas = {kind: json.loads((folder / f"{kind}.schema.json").read_text()) for kind in _FILES}
    settings = {name.replace("_", separator) for name in CONVERT_SETTINGS for separator in "_-"}
    elsewhere = {"job": settings | {f"gates.{name}" for name in schemas["gates"]["properties"]}}
    for kind, (title, text) in _FILES.items():
        schema = schemas[kind]
        parts.append(f"## {title}\n\n{text}")
        if kind == "job":
            parts.append(
                "Besides these keys, a job file holds the settings of "
                "[convert](commands.md#shardwright-convert), without the hyphens before them. `gates` holds "
                "the keys of a [gate file](#gate-file). A value can contain environment variables: `${NAME}`."
            )
        keys = _keys(schema["properties"], schema["$defs"])
        rows = [row for row in keys if row[0] not in elsewhere.get(kind, ())]
        rows = [(f"`{name}`", value, meaning) for name, value, meaning in rows]
        parts.append(_table(("key", "value", "meaning"), rows))
    return "\n\n".join(parts) + "\n"


def _keys(
    properties: Mapping[str, Any], blocks: Mapping[str, Any], above: str = ""
) -> Iterator[tuple[str, str, str]]:
    """Yields key, value and meaning of each key of a file, and of the keys below it."""
    for name, item in properties.items():
        yield f"{above}{name}", _value(item, blocks), item.get("description", "")
        for block in _blocks_in(item):
            below = f"{above}{name}.NAME." if "additionalProperties" in item else f"{above}{name}."
            yield from _keys(blocks[block].get("properties", {}), blocks, below)


def _blocks_in(item: Mapping[str, Any]) -> list[str]:
    """Returns the names of the blocks that a value may be."""
    kinds = [item, *item.get("anyOf", ()), item.get("additionalProperties"), item.get("items")]
    references = [kind["$ref"] for kind in kinds if isinstance(kind, Mapping) and "$ref" in kind]
    return [reference.rpartition("/")[2] for reference in references]


def _value(item: Mapping[str, Any], blocks: Mapping[str, Any]) -> str:
    """Returns what a value may be, in a few words."""
    if "$ref" in item:
        block = blocks[item["$ref"].rpartition("/")[2]]
        return _value(block, blocks)
    if "enum" in item:
        names = [str(name) for name in item["enum"]]
        return ", ".join(f"`{name}`" for name in names) if len(names) <= 12 else "a code"
    if "anyOf" in item:
        kinds = [kind for kind in item["anyOf"] if "pattern" not in kind]  # of placeholders
        return " or ".join(dict.fromkeys(_value(kind, blocks) for kind in kinds))
    kinds = item.get("type", "any value")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds == ["array"]:
        return f"list: {_value(item.get('items', {}), blocks)}"
    words = {"object": "mapping", "string": "text", "integer": "whole number", "boolean": "true or false"}
    return " or ".join(words.get(kind, kind) for kind in kinds)


def api_page() -> str:
    """Returns the page of the public names, which mkdocstrings fills from their docstrings."""
    parts = ["# Python API"]
    described: set[str] = set(loader.__all__) | {"__version__"}
    for title, (module, names, text) in _API.items():
        parts.append(f"## {title}\n\n{text}")
        skipped = described if module == "shardwright" else set()
        parts += [f"::: {module}.{name}" for name in names if name not in skipped]
    parts.append("## Values and files\n\nWhat functions and sources take and return, and the codes.")
    parts += [f"::: {path}" for path in _SCHEMAS]
    return "\n\n".join(parts) + "\n"
