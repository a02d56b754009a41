"""Writes metadata.json, the parameters of the Flex Template, from the declaration of the settings.

Run it after a change of `schemas/configuration/settings.py`: `python deploy/dataflow/make_metadata.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shardwright.schemas.configuration.setting import Setting, Topic
from shardwright.schemas.configuration.settings import CONVERT_SETTINGS

METADATA = Path(__file__).with_name("metadata.json")

GROUP = Topic.INPUT.value.capitalize()

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
    kind = item.kind.parameter or ("NUMBER" if item.is_number else "TEXT")
    pattern = item.kind.pattern
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
