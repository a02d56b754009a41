"""JSON schemas for editors: current, and right about files that the commands accept and refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from helpers.repository import PHOTOS, ROOT

from shardwright.pipelines.editor_schemas import STUB, editor_schemas, schema_path, schema_text, stub_text
from shardwright.pipelines.init import init
from shardwright.pipelines.job_file import SECTIONS
from shardwright.schemas.configuration.gate_file import GateFile
from shardwright.schemas.configuration.settings_values import setting_fields

SCHEMAS = editor_schemas()


def is_valid(kind: str, text: str) -> bool:
    return bool(jsonschema.Draft202012Validator(SCHEMAS[kind]).is_valid(yaml.safe_load(text)))


@pytest.mark.parametrize("kind", ["job", "gates", "layout"])
def test_the_files_are_current_and_valid_schemas(kind: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[kind])
    assert schema_path(kind).read_text() == schema_text(SCHEMAS[kind]), (
        "run python -m shardwright.pipelines.editor_schemas"
    )


def test_the_stub_of_the_package_is_current() -> None:
    assert STUB.read_text() == stub_text(), "run python -m shardwright.pipelines.editor_schemas"


def test_they_know_every_key() -> None:
    keys = {key.replace("-", "_") for key in SCHEMAS["job"]["properties"]}
    assert keys == {*setting_fields(), *SECTIONS}
    assert set(SCHEMAS["gates"]["properties"]) == set(GateFile.model_fields)
    assert set(SCHEMAS["job"]["$defs"]["GateFile"]["properties"]) == set(GateFile.model_fields)


@pytest.mark.parametrize(
    ("kind", "text", "valid"),
    [
        ("job", "{input: a, output: b, resize: 224, shards: 8, seed: 1, strip_metadata: yes}", True),
        ("job", "{input: [a, b], splits: {train: 0.8, test: 0.2}, resize: [320, 240], source: voc}", True),
        (
            "job",
            "{input: {new: a}, image-format: png, source: '${SOURCE}', keep: '${KEEP:-3}', scrub: 1/4}",
            True,
        ),
        ("job", "{gates: {max_count_drop: '${DROP:-0.2}', min_images: 3}}", True),
        (
            "job",
            "{gates: gates.yaml, hooks: {on_any: [notify.sh, a], on_failure: {webhook: 'https://h'}}}",
            True,
        ),
        ("job", "{runner: {runner: DataflowRunner, experiments: [a]}}", True),
        ("job", "{resiz: 224}", False),
        ("job", "{source: vok}", False),
        ("job", "{keep: -1}", False),
        ("job", "{gates: {max_count_drp: 0.2}}", False),
        ("job", "{gates: {max_count_drop: 5}}", False),
        ("job", "{hooks: {on_fail: x}}", False),
        ("gates", "{min_images: 5, max_fraction: {DARK: 0.1}, new_classes: warn}", True),
        ("gates", "{min_images: many}", False),
        ("gates", "{max_fraction: {DRAK: 0.1}}", False),
        (
            "layout",
            "{extends: classification, features: {price: {column: price, type: float, shape: [null]}}}",
            True,
        ),
        ("layout", "{extends: clasification}", False),
        ("layout", "{features: {a: {fil: key}}}", False),
    ],
)
def test_the_schemas_accept_what_the_commands_accept(kind: str, text: str, valid: bool) -> None:
    assert is_valid(kind, text) is valid


def test_a_new_job_file_names_its_schema_and_is_valid(tmp_path: Path) -> None:
    made = init(file=tmp_path / "job.yaml", input=str(PHOTOS), output="out", resize=32)
    first, *_ = made.text.splitlines()
    assert first == f"# yaml-language-server: $schema={schema_path('job').as_uri()}"
    assert is_valid("job", made.text)


def examples(name: str) -> list[Any]:
    text = (ROOT / "docs" / name).read_text()
    return [block.partition("```")[0] for block in text.split("```yaml\n")[1:]]


def test_the_gate_files_in_the_documents_are_valid() -> None:
    files = [block for block in examples("validating.md") if "min_images" in block or "max_count" in block]
    assert len(files) >= 2
    for block in files:
        assert is_valid("gates", block), json.dumps(yaml.safe_load(block))
