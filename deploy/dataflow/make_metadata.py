"""Writes metadata.json, the parameters of the Flex Template, from the declaration of the settings.

Run it after a change of `schemas/configuration/settings.py`: `python deploy/dataflow/make_metadata.py`.
A setting whose values have a new form gets a pattern here. The patterns use only what all engines of regular
expressions know.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shardwright.schemas.codes import OF_ONE_PICTURE
from shardwright.schemas.configuration import kinds
from shardwright.schemas.configuration.setting import Kind, Setting, Topic
from shardwright.schemas.configuration.settings import CONVERT_SETTINGS
from shardwright.schemas.layouts import LAYOUTS
from shardwright.schemas.values import TYPE_NAMES

METADATA = Path(__file__).with_name("metadata.json")

GROUP = Topic.INPUT.value.capitalize()

_BUCKET = "gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]"
_FOLDER = rf"{_BUCKET}(/[^/\n\r]+)*/?"
_IN_BUCKET = rf"{_BUCKET}(/[^/\n\r]+)+/?"
_NAME = "[A-Za-z0-9_]{1,64}"
_WORD = "[A-Za-z_][A-Za-z0-9_]*"
_COLUMN = rf"[^:,\[\]\n\r ]+:({'|'.join(TYPE_NAMES)})(\[\])?"
_SHARE = r"(0?\.[0-9]*[1-9][0-9]*|1(\.0+)?|[1-9][0-9]{0,8}/[1-9][0-9]{0,8})"
_COUNT = "[1-9][0-9]{0,4}"
_PERSON = r"(org:)?[^:; \t\n\r]([^:;\n\r]*[^:; \t\n\r])?"
_BOUND = "TOO_MANY_[A-Z_]{1,40}=[1-9][0-9]{0,17}"
_CODE = f"({'|'.join(OF_ONE_PICTURE)})"
_STATEMENT = r"[^ \t\n\r]([^\n\r]*[^ \t\n\r])?"
_BYTES = r"([1-9][0-9]{0,14} ?[bB]?|([1-9][0-9]{0,8}(\.[0-9]{1,6})?|0\.[1-9][0-9]{0,5}) ?[kKmMgGtT][iI]?[bB])"


def _list_of(pattern: str) -> str:
    return f"{pattern}(,{pattern})*"


#: Kind of a setting -> regular expression of its values, if not every line of text is one.
PATTERNS: dict[Kind, str] = {
    kinds.INPUT: _FOLDER,
    kinds.OUTPUT: _IN_BUCKET,
    kinds.FOLDER: _FOLDER,
    kinds.FILE: _IN_BUCKET,
    kinds.LAYOUT: rf"({'|'.join(LAYOUTS)}|{_BUCKET}(/[^/\n\r]+)*/[^/\n\r]+\.yaml)",
    kinds.EXTRA_COLUMNS: _list_of(_COLUMN),
    kinds.LABEL_DEPTH: "([1-9][0-9]{0,2}|all|last)",
    kinds.PIXEL_SHAPE: f"{_COUNT}[xX]{_COUNT}([xX][134])?",
    kinds.SPLITS: _list_of(f"{_NAME}={_SHARE}"),
    kinds.FOLDS: "(0|[2-9]|[12][0-9]|3[0-6])",
    kinds.COUNT: "[0-9]{1,18}",
    kinds.SIZE: _BYTES,
    kinds.SHARDS: f"({_COUNT}|{_list_of(f'{_NAME}={_COUNT}')})",
    kinds.HOOK: rf"{_WORD}(\.{_WORD})*:{_WORD}",
    kinds.RESIZE: f"{_COUNT}([xX]{_COUNT})?",
    kinds.PERCENT: "([1-9][0-9]?|100)",
    kinds.CHANNELS: "(0|[2-9]|1[0-6])",
    kinds.SAMPLE: "(0|[1-9][0-9]{0,4})",
    kinds.COLOR: "(#([0-9a-fA-F]{3}|[0-9a-fA-F]{6})|[A-Za-z]{3,20})",
    kinds.PIXELS: "([1-9][0-9]{0,8}|1[0-9]{9})",
    kinds.SIDE: "[0-9]{1,9}",
    kinds.ASPECT: r"(0|[1-9][0-9]{0,8}(\.[0-9]{1,9})?)",
    kinds.SHARE: r"(0(\.[0-9]{1,9})?|1(\.0{1,9})?)",
    kinds.BOUNDS: _list_of(_BOUND),
    kinds.CODES: _list_of(_CODE),
    kinds.LICENSE: _STATEMENT,
    kinds.PROSE: _STATEMENT,
    kinds.CREATORS: f"{_PERSON}(; ?{_PERSON})*",
    kinds.URL: "https?://[!-.0-~][!-~]*",
    kinds.DATE: "[0-9]{4}-[0-9]{2}-[0-9]{2}",
}
#: Kind of a setting -> type of its parameter, if its stored value does not decide it.
TYPES: dict[Kind, str] = {
    kinds.OUTPUT: "GCS_WRITE_FOLDER",
    kinds.FOLDER: "GCS_READ_FOLDER",
    kinds.FILE: "GCS_READ_FILE",
}

#: Descriptions that differ from those of the options.
HELP = {
    "input": "A folder, file or archive in a bucket that contains images or lists them. Required unless "
    "the job file has it. Example: gs://my-bucket/photos",
    "output": "The dataset directory to write; empty, or with overwrite or resume. Required unless the job "
    "file has it. Example: gs://my-bucket/datasets/v1",
}

#: The parameter that makes the template rebuild instead of convert (main.py).
JOB = {
    "name": "job",
    "label": "Job file of a rebuild",
    "helpText": "With a job file the template creates a new version of a dataset, like "
    "`shardwright rebuild`. Other parameters override the file. Without a job file the template converts. "
    "Example: gs://my-bucket/jobs/pets.yaml",
    "isOptional": True,
    "paramType": "GCS_READ_FILE",
    "regexes": ["^gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9](/[^/\\n\\r]+)+$"],
    "groupName": GROUP,
}

#: The option of this package that is not a setting, because it does not change the dataset.
PAYER = {
    "name": "gcs_user_project",
    "label": "Project that pays for buckets",
    "helpText": "Project that pays for requests to buckets whose requesters pay. Example: my-project",
    "isOptional": True,
    "paramType": "TEXT",
    "regexes": [r"^([a-z0-9][a-z0-9.-]{1,100}:)?[a-z0-9][a-z0-9-]{4,28}[a-z0-9]$"],
    "groupName": GROUP,
}

#: Options of Beam that have no field when a template is launched, or that users look for.
WORKERS = (
    {
        "name": "sdk_container_image",
        "label": "Image of the workers",
        "helpText": "Default: the image of the template itself. "
        "Example: europe-west1-docker.pkg.dev/my-project/images/shardwright:1.0",
        "regexes": [r"^[a-z0-9][a-zA-Z0-9._:/@-]{2,500}$"],
    },
    {
        "name": "number_of_worker_harness_threads",
        "label": "Parallel shards in a process",
        "helpText": "Number of shards that a worker process converts at a time; there is one process per "
        "vCPU. Keep 1 in most cases: each shard uses several threads.",
        "regexes": ["^[1-9][0-9]{0,2}$"],
        "paramType": "NUMBER",
    },
    {
        "name": "disk_size_gb",
        "label": "Disk of a worker in GB",
        "helpText": "The disk contains the container image and one or two shards per vCPU. Example: 50",
        "regexes": ["^[1-9][0-9]{1,4}$"],
        "paramType": "NUMBER",
    },
)


def parameter(item: Setting) -> dict[str, Any]:
    """Returns the parameter of a setting."""
    choices = [choice for choice in item.kind.choices if choice]
    kind = TYPES.get(item.kind, "NUMBER" if item.is_number else "TEXT")
    pattern = PATTERNS.get(item.kind, r"[^\n\r]+")
    entry: dict[str, Any] = {
        "name": item.name,
        "label": item.name.replace("_", " ").capitalize(),
        "helpText": HELP.get(item.name) or _help(item),
        "isOptional": True,  # the job file may contain any of them
    }
    if item.is_switch:
        kind, pattern = "BOOLEAN", "(true|false)"
    elif choices:
        kind, pattern = "ENUM", f"({'|'.join(choices)})"
        entry["enumOptions"] = [{"value": choice, "label": choice} for choice in choices]
    return {
        **entry,
        "paramType": kind,
        "regexes": [f"^{pattern}$"],
        "groupName": item.topic.value.capitalize(),
    }


def _help(item: Setting) -> str:
    """Returns the `--help` text of a setting.

    The text contains the default, and `defaultValue` is not set: the console would send it, and a setting
    that is sent overrides the carried plan's.
    """
    default = "false" if item.default is False else item.default
    return item.sentence + (f" Default: {default}" if default not in ("", ()) else "")


def metadata() -> dict[str, Any]:
    """Returns the contents of metadata.json."""
    topics = list(Topic)
    settings = sorted(CONVERT_SETTINGS.values(), key=lambda item: topics.index(item.topic))
    workers = [
        {"isOptional": True, "paramType": "TEXT", **entry, "groupName": "Workers"} for entry in WORKERS
    ]
    return {
        "name": "Shardwright: images to a TFRecord dataset",
        "description": "Converts raw images to a verified, sharded TFRecord dataset, or creates the next "
        "version of a dataset.",
        "streaming": False,
        "parameters": [JOB, PAYER, *map(parameter, settings), *workers],
    }


def as_text() -> str:
    """Returns metadata.json as it is checked in."""
    return json.dumps(metadata(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    METADATA.write_text(as_text(), encoding="utf-8")
