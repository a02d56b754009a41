"""Writes metadata.json, the parameters of the Flex Template, from the declaration of the settings.

Run it after a change of `schemas/configuration/settings.py`: `python deploy/dataflow/make_metadata.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from shardwright.schemas.codes import OF_ONE_PICTURE
from shardwright.schemas.configuration.settings_values import setting_fields
from shardwright.schemas.layouts import LAYOUTS
from shardwright.schemas.values import TYPE_NAMES
from shardwright.transforms.sources.setting_choices import choices_of

METADATA = Path(__file__).with_name("metadata.json")

_BUCKET = "gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]"
_OBJECT = rf"{_BUCKET}(/[^/\n\r]+)+"
_IN_BUCKET = rf"{_OBJECT}/?"
_NAME = "[A-Za-z0-9_]{1,64}"
_FOLDER = rf"{_BUCKET}(/[^/\n\r]+)*/?"
_COLUMN = rf"[^:,\[\]\n\r ]+:({'|'.join(TYPE_NAMES)})(\[\])?"
_SHARE = r"(0?\.[0-9]*[1-9][0-9]*|1(\.0+)?|[1-9][0-9]{0,8}/[1-9][0-9]{0,8})"
_COUNT = "[1-9][0-9]{0,4}"
_TEXT = r"[^ \t\n\r]([^\n\r]*[^ \t\n\r])?"
_PERSON = r"(org:)?[^:; \t\n\r]([^:;\n\r]*[^:; \t\n\r])?"
_BOUND = "TOO_MANY_[A-Z_]{1,40}=[1-9][0-9]{0,17}"
_CODE = f"({'|'.join(OF_ONE_PICTURE)})"
_SIZE = r"([1-9][0-9]{0,14} ?[bB]?|([1-9][0-9]{0,8}(\.[0-9]{1,6})?|0\.[1-9][0-9]{0,5}) ?[kKmMgGtT][iI]?[bB])"


class Shape(NamedTuple):
    """The part of a template's parameter that the declaration of the setting does not give.

    Attributes:
      group: heading of the parameter in the console.
      regex: regular expression for its values, without anchors; if empty, the declaration decides.
      kind: its `paramType`; if empty, the declaration decides.
      help: help text; if empty, that of the setting.
    """

    group: str
    regex: str = ""
    kind: str = ""
    help: str = ""


#: Settings whose parameters need more than their declaration. For all others the declaration is enough.
SHAPES: Mapping[str, Shape] = {
    "input": Shape(
        "Input and output",
        rf"{_BUCKET}(/[^/\n\r]+)*/?",
        "TEXT",
        "A folder, file or archive in a bucket that contains images or lists them. Required unless "
        "the job file has it. Example: gs://my-bucket/photos",
    ),
    "output": Shape(
        "Input and output",
        _IN_BUCKET,
        "GCS_WRITE_FOLDER",
        "The dataset directory to write; empty, or with overwrite or resume. Required unless the job file "
        "has it. Example: gs://my-bucket/datasets/v1",
    ),
    "overwrite": Shape("Input and output"),
    "resume": Shape("Input and output"),
    "source": Shape("Input and output"),
    "limit": Shape("Input and output", "[0-9]{1,18}"),
    "confine": Shape("Manifests and annotations"),
    "image_root": Shape("Manifests and annotations", _FOLDER, "GCS_READ_FOLDER"),
    "mask_dir": Shape("Manifests and annotations", _FOLDER, "GCS_READ_FOLDER"),
    "extra_columns": Shape("Manifests and annotations", rf"{_COLUMN}(,{_COLUMN})*"),
    "bad_boxes": Shape("Manifests and annotations"),
    "missing_annotations": Shape("Manifests and annotations"),
    "pixel_shape": Shape("Manifests and annotations", rf"{_COUNT}[xX]{_COUNT}([xX][134])?"),
    "label_regex": Shape("Classes"),
    "label_depth": Shape("Classes", "([1-9][0-9]{0,2}|all|last)"),
    "folders": Shape("Classes"),
    "unlabelled": Shape("Classes"),
    "rename_labels": Shape("Classes"),
    "keep_labels": Shape("Classes", _IN_BUCKET, "GCS_READ_FILE"),
    "splits": Shape("Splits and shards", f"{_NAME}={_SHARE}(,{_NAME}={_SHARE})*"),
    "split_by": Shape("Splits and shards"),
    "folds": Shape("Splits and shards", "(0|[2-9]|[12][0-9]|3[0-6])"),
    "seed": Shape("Splits and shards", "[0-9]{1,18}"),
    "shard_size": Shape("Splits and shards", _SIZE),
    "shards": Shape("Splits and shards", f"({_COUNT}|{_NAME}={_COUNT}(,{_NAME}={_COUNT})*)"),
    "plan_from": Shape("Splits and shards", _IN_BUCKET, "GCS_READ_FILE"),
    "class_names": Shape("Records", _IN_BUCKET, "GCS_READ_FILE"),
    "layout": Shape("Records", rf"({'|'.join(LAYOUTS)}|{_BUCKET}(/[^/\n\r]+)*/[^/\n\r]+\.yaml)"),
    "compression": Shape("Records"),
    "map": Shape("Images", r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*"),
    "dedupe": Shape("Selection"),
    "include": Shape("Selection"),
    "exclude": Shape("Selection"),
    "min_bytes": Shape("Selection", _SIZE),
    "min_side": Shape("Selection", "[0-9]{1,9}"),
    "max_aspect": Shape("Selection", r"(0|[1-9][0-9]{0,8}(\.[0-9]{1,9})?)"),
    "max_per_class": Shape("Selection", "[0-9]{1,18}"),
    "drop": Shape("Selection", f"{_CODE}(,{_CODE})*"),
    "resize": Shape("Images", f"{_COUNT}([xX]{_COUNT})?"),
    "fit": Shape("Images"),
    "resample": Shape("Images"),
    "image_format": Shape("Images"),
    "quality": Shape("Images", "([1-9][0-9]?|100)"),
    "color": Shape("Images"),
    "depth": Shape("Images"),
    "channels": Shape("Images", "(0|[2-9]|1[0-6])"),
    "white": Shape("Images", "(0|[1-9][0-9]{0,4})"),
    "background": Shape("Images", "(#([0-9a-fA-F]{3}|[0-9a-fA-F]{6})|[A-Za-z]{3,20})"),
    "strip_metadata": Shape("Images"),
    "license": Shape("Provenance", _TEXT),
    "citation": Shape("Provenance", _TEXT),
    "creator": Shape("Provenance", f"{_PERSON}(; ?{_PERSON})*"),
    "url": Shape("Provenance", "https?://[!-.0-~][!-~]*"),
    "description": Shape("Provenance", _TEXT),
    "date_published": Shape("Provenance", "[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    "damaged": Shape("Checks"),
    "max_pixels": Shape("Checks", "([1-9][0-9]{0,8}|1[0-9]{9})"),
    "max_bytes": Shape("Checks", _SIZE),
    "bounds": Shape("Checks", f"{_BOUND}(,{_BOUND})*"),
    "max_bad_fraction": Shape("Checks", r"(0(\.[0-9]{1,9})?|1(\.0{1,9})?)"),
    "verify": Shape("Checks"),
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
    "regexes": [rf"^{_OBJECT}$"],
    "groupName": "Input and output",
}

#: The option of this package that is not a setting, because it does not change the dataset.
PAYER = {
    "name": "gcs_user_project",
    "label": "Project that pays for buckets",
    "helpText": "Project that pays for requests to buckets whose requesters pay. Example: my-project",
    "isOptional": True,
    "paramType": "TEXT",
    "regexes": [r"^([a-z0-9][a-z0-9.-]{1,100}:)?[a-z0-9][a-z0-9-]{4,28}[a-z0-9]$"],
    "groupName": "Input and output",
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


def parameter(name: str, field: Any) -> dict[str, Any]:
    """Returns the parameter of a setting."""
    shape = SHAPES.get(name, Shape("More"))
    choices = [choice for choice in choices_of(name) if choice]
    entry: dict[str, Any] = {
        "name": name,
        "label": name.replace("_", " ").capitalize(),
        "helpText": shape.help or _help(field),
        "isOptional": True,  # the job file may contain any of them
    }
    if isinstance(field.default, bool):
        kind, regex = "BOOLEAN", "(true|false)"
    elif choices:
        kind, regex = "ENUM", f"({'|'.join(choices)})"
        entry["enumOptions"] = [{"value": choice, "label": choice} for choice in choices]
    else:
        kind = "NUMBER" if isinstance(field.default, int | float) else "TEXT"
        regex = r"[^\n\r]+"
    entry["paramType"] = shape.kind or kind
    entry["regexes"] = [f"^{shape.regex or regex}$"]
    entry["groupName"] = shape.group
    return entry


def _help(field: Any) -> str:
    """Returns the `--help` text of a setting.

    The text contains the default, and `defaultValue` is not set: the console would send it, and a setting
    that is sent overrides the carried plan's.
    """
    text = field.metadata["help"]
    shown = "false" if field.default is False else field.default
    return f"{text[0].upper()}{text[1:]}." + (f" Default: {shown}" if shown not in ("", ()) else "")


def metadata() -> dict[str, Any]:
    """Returns the contents of metadata.json."""
    fields = setting_fields()
    names = [*(name for name in SHAPES if name in fields), *(name for name in fields if name not in SHAPES)]
    workers = [
        {"isOptional": True, "paramType": "TEXT", **entry, "groupName": "Workers"} for entry in WORKERS
    ]
    return {
        "name": "Shardwright: images to a TFRecord dataset",
        "description": "Converts raw images to a verified, sharded TFRecord dataset, or creates the next "
        "version of a dataset.",
        "streaming": False,
        "parameters": [JOB, PAYER, *(parameter(name, fields[name]) for name in names), *workers],
    }


def as_text() -> str:
    """Returns metadata.json as it is checked in."""
    return json.dumps(metadata(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    METADATA.write_text(as_text(), encoding="utf-8")
