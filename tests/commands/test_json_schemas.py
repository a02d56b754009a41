"""JSON schemas: of the results of `--json`, and for editors of the files that users write."""

from __future__ import annotations

import json
import os
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from helpers.hostile import COMMAND, run
from helpers.repository import PHOTOS, ROOT, ran
from helpers.versioned import V1, V2, V3, V4, add_version, make_versions, refusal

from shardwright.pipelines import cli
from shardwright.pipelines.init import init
from shardwright.pipelines.job_file import SECTIONS
from shardwright.schemas.configuration.gates import GateFile
from shardwright.schemas.configuration.settings import CONVERT_SETTINGS

Capture = pytest.CaptureFixture[str]
RUN = "run python docs/site_build/editor_files.py"
SCHEMA = json.loads((ROOT / "pipelines" / "json_schemas" / "result.schema.json").read_text())
#: The schema, which lets later releases add fields; of this release all fields are known.
STRICT = jsonschema.Draft202012Validator({**SCHEMA, "unevaluatedProperties": False})
COMMON = SCHEMA["required"]


def the_object(capfd: Capture, *argv: object, code: int = 0) -> dict[str, Any]:
    """Runs a command with `--json`; checks that stdout is one object of the format, and returns it."""
    done = run(capfd, *argv, "--json")
    assert done.code == code, done.err
    value = json.loads(done.out)
    STRICT.validate(value)
    assert value["command"] == argv[0] and value["exit_code"] == code
    return dict(value)


def test_the_schema_is_one_and_knows_every_command() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert {name for name in SCHEMA["$defs"] if name != "no_result"} == set(cli.COMMANDS)
    assert SCHEMA["$defs"]["no_result"]["maxProperties"] == len(COMMON) == len(SCHEMA["properties"])
    for name in cli.COMMANDS:
        assert not set(SCHEMA["$defs"][name]["properties"]) & set(COMMON)


def test_a_field_that_nobody_documented_is_noticed() -> None:
    value = {
        "format": "shardwright-result", "version": 1, "shardwright_version": "0", "command": "rollback",
        "exit_code": 0, "error": None, "messages": [], "output": "o", "dataset_version": "v", "left": None,
        "withdrawn": False, "warnings": [],
    }  # fmt: skip
    STRICT.validate(value)
    missing = {name: item for name, item in value.items() if name != "left"}
    for wrong in ({**value, "colour": "red"}, missing, {**value, "exit_code": 1}, {**value, "version": 2}):
        with pytest.raises(jsonschema.ValidationError):
            STRICT.validate(wrong)


def test_results_of_conversions(capfd: Capture, tmp_path: Path) -> None:
    convert = ["convert", PHOTOS, tmp_path / "out", "--resize=16", "--limit=7", "--fit=pad"]
    made = the_object(capfd, *convert, "--quality=90", "--label_column=class")
    assert made["records"] == made["ledger"]["written"] == made["splits"]["train"]["records"] == 7
    assert made["fingerprint"] == json.loads((tmp_path / "out" / "dataset.json").read_text())["fingerprint"]
    assert made["inputs"] == [{"path": str(PHOTOS), "detected_as": "class folders"}]
    assert [item["level"] for item in made["messages"]] == ["note"]
    assert "--label_column" in made["messages"][0]["message"]
    failed = the_object(capfd, *convert, code=2)
    assert "holds a dataset" in failed["error"] and set(failed) == set(COMMON)
    planned = the_object(capfd, "plan", PHOTOS, "--splits=train=0.5,test=0.5")
    assert sum(planned["candidates"].values()) == 61 and set(planned["plan"]["shards"]) == {"train", "test"}
    job = tmp_path / "job.yaml"
    written = the_object(capfd, "init", PHOTOS, tmp_path / "pets", "--resize=16", "--file", job)
    assert written["file"] == str(job) and written["text"] == job.read_text()
    printed = the_object(capfd, "init", PHOTOS, tmp_path / "pets", "--file=-")
    assert printed["file"] is None and printed["text"].count("input:")


def test_results_of_rebuilds(capfd: Capture, tmp_path: Path) -> None:
    rebuild = ["rebuild", "--input", PHOTOS, "--output", tmp_path / "pets", "--resize=16", "--limit=7"]
    quiet = run(capfd, *rebuild, "--json", "--quiet")
    first = json.loads(quiet.out)
    STRICT.validate(first)
    assert (quiet.code, quiet.err) == (0, "")
    assert (first["state"], first["changed"], first["records"], first["previous"]) == ("success", True, 7, "")
    (tmp_path / "pets" / "metrics.prom").unlink()
    (tmp_path / "pets" / "metrics.prom").mkdir()  # it cannot be written
    done = run(capfd, *rebuild, "--json", "--log_format=json", "--mask_dir", PHOTOS)
    again = json.loads(done.out)
    STRICT.validate(again)
    assert (again["state"], again["changed"]) == ("no_change", False)
    assert again["dataset_version"] == first["dataset_version"]
    assert any("--mask_dir" in item["message"] for item in again["messages"])
    lines = [json.loads(line) for line in done.err.splitlines()]
    assert all({"time", "level", "stage", "message"} <= set(line) for line in lines)
    assert {"note", "planned", "finished", "warning"} <= {line["stage"] for line in lines}


def test_results_about_datasets(
    capfd: Capture, tmp_path: Path, sound_dataset: Path, convert_photos: Callable[..., Any]
) -> None:
    report = tmp_path / "findings.json"
    sound = the_object(capfd, "validate", sound_dataset, "--fast", "--report", report)
    assert sound["passed"] and sound["files"] == {"report": str(report)}
    stored = json.loads(report.read_text())
    assert {name: sound[name] for name in ("counts", "checks", "findings")} == {
        name: stored[name] for name in ("counts", "checks", "findings")
    }
    gate = ["--report", report, "--fast", "--expect", tmp_path / "gates.yaml"]
    (tmp_path / "gates.yaml").write_text("min_images: 1000\n")
    refused = the_object(capfd, "validate", sound_dataset, *gate, code=1)
    assert "is not sound: 1 error (1 EXPECTATION)" in refused["error"] and not refused["passed"]
    inspected = the_object(capfd, "inspect", sound_dataset, "--records=1")
    assert inspected["fingerprint"] == sound["fingerprint"] and len(inspected["records"]) == 1
    the_object(capfd, "inspect", f"{sound_dataset}/*.tfrecord")
    page = the_object(capfd, "report", sound_dataset, "--output", tmp_path / "page.html")
    assert page["bytes"] == (tmp_path / "page.html").stat().st_size
    (tmp_path / "limits.yaml").write_text("max_count_drop: 0.5\n")
    few = convert_photos(resize=16, limit=7, verify="none").path
    smaller = the_object(capfd, "diff", sound_dataset, few, "--thresholds", tmp_path / "limits.yaml", code=1)
    assert not smaller["passed"] and smaller["refusals"][0]["name"] == "max_count_drop"
    assert smaller["refusals"][0]["message"].rstrip(".") in smaller["error"]
    saved = the_object(capfd, "salvage", few, "--output", tmp_path / "saved", "--fast")
    assert (saved["records"], saved["lost"]) == (7, 0)
    files = the_object(capfd, "salvage", f"{few}/*.tfrecord", "--output", tmp_path / "files", "--fast")
    assert files["fingerprint"] is None


def test_results_about_versions(capfd: Capture, tmp_path: Path, sound_dataset: Path) -> None:
    """Three are published, and a gate refused one."""
    versions, drift = tmp_path / "pets", refusal("drift", "max_count_drop")
    make_versions(versions, sound_dataset)
    add_version(versions, sound_dataset, V4, "refused", previous=V3, refusals=[drift])
    listed = the_object(capfd, "versions", versions)
    assert [row["version"] for row in listed["versions"]] == [V4, V3, V2, V1] and listed["latest"] == V3
    back = the_object(capfd, "rollback", versions)
    assert (back["dataset_version"], back["left"], back["withdrawn"]) == (V2, V3, True)
    again = the_object(capfd, "rollback", versions)
    assert again["left"] is None and "nothing changed" in again["warnings"][0]
    refused = the_object(capfd, "publish", f"{versions}@{V4}", code=1)
    assert "max_count_drop" in refused["error"] and set(refused) == set(COMMON)
    made = the_object(capfd, "publish", f"{versions}@{V4}", "--accept=drift", "--reason=as planned")
    assert made["dataset_version"] == V4 and made["acceptance"]["reason"] == "as planned"


def test_results_about_layouts_and_a_script(capfd: Capture) -> None:
    assert "complete -c shardwright" in the_object(capfd, "completion", "fish")["script"]
    assert len(the_object(capfd, "layouts")["layouts"]) > 5
    assert the_object(capfd, "layouts", "detection")["name"] == "detection"


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_each_command_fails_as_an_object(capfd: Capture, name: str) -> None:
    failed = the_object(capfd, name, "x", "y", "z", "--no_such_option=1", "--quiet", code=2)
    assert set(failed) == set(COMMON) and failed["error"]
    done = run(capfd, name, "x", "y", "z", "--no_such_option=1", "--log_format=json")
    (line,) = done.err.splitlines()
    assert json.loads(line)["error"] == failed["error"] and not done.out


def test_the_page_explains_every_field() -> None:
    page = (ROOT / "docs" / "scripting.md").read_text()
    for name, definition in SCHEMA["$defs"].items():
        if name != "no_result":
            row = re.search(rf"^\| `{name}` \|.*$", page, re.MULTILINE)
            assert row, name
            missing = [field for field in definition["properties"] if f"`{field}`" not in row[0]]
            assert not missing, (name, missing)
    assert all(f"| `{name}` |" in page for name in COMMON)


@pytest.mark.slow
def test_the_scripts_of_the_page_run(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "scripting.md").read_text()
    (tmp_path / "photos").symlink_to(PHOTOS)
    path = {**os.environ, "PATH": f"{COMMAND.parent}:{os.environ['PATH']}"}
    printed = [
        ran("bash", "-e", "-c", block, cwd=tmp_path, env=path, check=True).stdout
        for block in re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    ]
    assert printed[0].startswith("61 records, ")
    assert printed[1] == ""
    assert re.fullmatch(r"pets/versions/\d{8}T\d{6}Z\n", printed[2])


EDITOR_FILES = runpy.run_path(str(ROOT / "docs" / "site_build" / "editor_files.py"))
SCHEMAS = EDITOR_FILES["editor_schemas"]()


def is_valid(kind: str, text: str) -> bool:
    return bool(jsonschema.Draft202012Validator(SCHEMAS[kind]).is_valid(yaml.safe_load(text)))


@pytest.mark.parametrize("kind", ["job", "gates", "layout"])
def test_the_files_are_current_and_valid_schemas(kind: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[kind])
    path = ROOT / "pipelines" / "json_schemas" / f"{kind}.schema.json"
    assert path.read_text() == EDITOR_FILES["schema_text"](SCHEMAS[kind]), RUN


def test_the_stub_of_the_package_is_current() -> None:
    assert EDITOR_FILES["STUB"].read_text() == EDITOR_FILES["stub_text"](), RUN


def test_they_know_every_key() -> None:
    keys = {key.replace("-", "_") for key in SCHEMAS["job"]["properties"]}
    assert keys == {*CONVERT_SETTINGS, *SECTIONS}
    assert set(SCHEMAS["gates"]["properties"]) == set(GateFile.model_fields)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("job", "{input: a, output: b, resize: 224, shards: 8, seed: 1, strip_metadata: yes}"),
        ("job", "{input: [a, b], splits: {train: 0.8, test: 0.2}, resize: [320, 240], source: voc}"),
        ("job", "{depth: 8, image_format: ''}"),  # defaults, as `init` writes them
        ("job", "{input: {new: a}, image-format: png, source: '${SOURCE}', keep: '${KEEP:-3}', scrub: 1/4}"),
        ("job", "{gates: {max_count_drop: '${DROP:-0.2}', min_images: 3}}"),
        ("job", "{gates: gates.yaml, hooks: {on_any: [notify.sh, a], on_failure: {webhook: 'https://h'}}}"),
        ("job", "{runner: {runner: DataflowRunner, experiments: [a]}}"),
        ("job", "{gates: {fail_on: DARK}, hooks: , runner: }"),  # only comments below the last two
        ("gates", "{min_images: 5, max_fraction: {DARK: 0.1}, new_classes: warn}"),
        ("gates", "{fail_on: 'DARK, BLURRY', warn_on: [BOX_RANGE]}"),
        ("layout", "{extends: classification, features: {cost: {column: cost, type: float, shape: [null]}}}"),
    ],
)
def test_the_schemas_accept_what_the_commands_accept(kind: str, text: str) -> None:
    assert is_valid(kind, text)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("job", "{resiz: 224}"),
        ("job", "{source: vok}"),
        ("job", "{keep: -1}"),
        ("job", "{gates: {max_count_drp: 0.2}}"),
        ("job", "{gates: {max_count_drop: 5}}"),
        ("job", "{hooks: {on_fail: x}}"),
        ("gates", "{fail_on: [DRAK]}"),
        ("gates", "{min_images: many}"),
        ("gates", "{max_fraction: {DRAK: 0.1}}"),
        ("layout", "{extends: clasification}"),
        ("layout", "{features: {a: {fil: key}}}"),
    ],
)
def test_the_schemas_refuse_what_the_commands_refuse(kind: str, text: str) -> None:
    assert not is_valid(kind, text)


def test_a_new_job_file_names_its_schema_and_is_valid(tmp_path: Path) -> None:
    made = init(file=tmp_path / "job.yaml", input=str(PHOTOS), output="out", resize=32)
    first, *_ = made.text.splitlines()
    before, address = first.split("=")
    assert before == "# yaml-language-server: $schema"
    assert json.loads(Path(address.removeprefix("file://")).read_text()) == SCHEMAS["job"]
    assert is_valid("job", made.text)


def test_the_gate_files_in_the_documents_are_valid() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "validating.md").read_text(), re.DOTALL)
    files = [block for block in blocks if "min_images" in block or "max_count" in block]
    assert len(files) >= 2
    for block in files:
        assert is_valid("gates", block), json.dumps(yaml.safe_load(block))
