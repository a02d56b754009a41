"""Shared code for the tests of manifests: files, and the references listed in them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet

from helpers.listing import found_in, look_at
from helpers.repository import PHOTOS
from shardwright.core.sources import manifest
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import ImageRef

#: Some of the example pictures, relative to their folder, with their classes.
PICTURES = sorted(path.relative_to(PHOTOS).as_posix() for path in PHOTOS.glob("*/*"))[::5]
ROWS = [(path, path.split("/")[0]) for path in PICTURES]


def write_csv(path: Path, rows: Iterable[Sequence[object]], **dialect: Any) -> Path:
    with path.open("w", newline="", encoding=dialect.pop("encoding", "utf-8")) as file:
        csv.writer(file, **dialect).writerows(rows)
    return path


def write_jsonl(path: Path, rows: Iterable[object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_parquet(file: Path, rows: int = 0, /, **columns: Any) -> Path:
    parquet.write_table(pyarrow.table(columns), file, row_group_size=rows or None)
    return file


def listed(path: Path, **given: Any) -> list[ImageRef]:
    """Returns all references in a manifest's parts, without a pipeline."""
    _, found = found_in(path, given, "manifest", path.parent)
    return [item for item in found if isinstance(item, ImageRef)]


def described(path: Path, **given: Any) -> str:
    return manifest.SOURCE.describe(look_at(path), ConvertSettings(input=(str(path),), **given))
