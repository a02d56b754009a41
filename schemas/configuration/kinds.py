"""The kinds of values that settings take, and how each is checked."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from shardwright.schemas import units
from shardwright.schemas.bounds import parse_bounds
from shardwright.schemas.codes import OF_ONE_PICTURE, QUALITY
from shardwright.schemas.columns import parse_extra_columns
from shardwright.schemas.configuration.setting import Kind
from shardwright.schemas.image_formats import parse_formats
from shardwright.schemas.key_rules import parse_key_list
from shardwright.schemas.plan import DIGITS
from shardwright.schemas.plugins import entry_points_of
from shardwright.schemas.provenance import any_text, check_date, check_web_address, one_line, parse_creators
from shardwright.schemas.sidecars import check_split_names

#: The sources, in the order in which `--source auto` tries them. Each is the module of that name in
#: `core/sources`.
SOURCES = (
    "file_names", "semantic_masks", "label_studio", "create_ml", "open_images", "class_columns", "box_table",
    "parquet", "manifest", "cvat", "labelme", "kitti", "cityscapes", "coco", "voc", "yolo", "arrays",
    "webdataset", "archives", "tfrecord", "class_folders",
)  # fmt: skip
#: Group of the entry points with which packages add sources.
SOURCE_GROUP = "shardwright.sources"
#: Largest number of channels.
MAX_CHANNELS = 16
#: Maximum number of folds.
MAX_FOLDS = len(DIGITS)

_Path = str | os.PathLike[str]


def one_of(*choices: str) -> Kind:
    """Returns the kind with these values and no others."""
    return Kind(choices=choices)


def number(low: float, high: float, metavar: str = "N", advice: str = "", zero: bool = False) -> Kind:
    """Returns the kind of numbers between two numbers.

    Args:
      low: Smallest number.
      high: Largest number.
      metavar: Placeholder in `--help`.
      advice: What to write instead of a wrong value; empty to name the smallest and the largest whole number.
      zero: Whether 0 is allowed, too.
    """

    def check(value: float) -> None:
        if not (low <= value <= high or (zero and value == 0)):
            raise ValueError(advice or f"{value!r} is not a whole number from {low} to {high}")

    return Kind(metavar, check, minimum=0 if zero else low, advice=advice)


def _regex(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression ({error})") from None


def _check_label_regex(text: str) -> None:
    groups = _regex(text).groupindex
    if "label" not in groups:
        raise ValueError("it needs a group (?P<label>...) that matches the class")
    unknown = sorted(set(groups) - {"label", "split", "group"})
    if unknown:
        raise ValueError(f"group {unknown[0]!r} has no meaning; name groups label, split or group")


def _check_hook_name(text: str) -> None:
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*", text):
        raise ValueError("write it as module:function, such as my_hooks:blur_faces")


def parse_drop(text: str) -> tuple[str, ...]:
    """Parses the codes of `--drop`; returns them without duplicates, in a fixed order.

    Raises:
      ValueError: If a code is unknown or does not depend on one image alone.
    """
    names = {item.strip().upper() for item in text.split(",") if item.strip()}
    choices = [code.value for code in OF_ONE_PICTURE]
    for code in sorted(names.difference(choices)):
        if code in set(QUALITY):
            advice = {"ODD_SIZE": "use --min_side", "EXACT_DUPLICATE": "use --dedupe exact"}
            advice["NEAR_DUPLICATE"] = "use --dedupe near"
            wording = advice.get(code, f"choose from {', '.join(choices)}")
            raise ValueError(f"{code} does not depend on one image alone; {wording}")
        raise ValueError(f"{code} is not a finding about one image; choose from {', '.join(choices)}")
    return tuple(code for code in choices if code in names)


def list_entries(text: str) -> tuple[list[str], list[str]]:
    """Returns the patterns of `--include` or `--exclude`, and the paths of the files that it names."""
    entries = [item.strip() for item in text.split(",") if item.strip()]
    return [item for item in entries if item[0] != "@"], [item[1:] for item in entries if item[0] == "@"]


def _check_key_list(text: str) -> None:
    patterns, files = list_entries(text)
    if not patterns and not files:
        raise ValueError("it names no image; write a pattern such as 'drafts/' or '*.png', or leave it out")
    parse_key_list(patterns)
    if "" in files:
        raise ValueError("a file name is missing after @; write @FILE")


SWITCH = Kind("true|false")
INPUT = Kind("PATH", accepts=_Path | Sequence[_Path] | Mapping[str, _Path])
OUTPUT = Kind("DIR", accepts=_Path)
FOLDER = Kind("PATH", accepts=_Path)
FILE = Kind("FILE", accepts=_Path)
LAYOUT = Kind("NAME|FILE", accepts=_Path)
SOURCE = Kind(
    choices=("auto", *SOURCES),
    added=lambda: [point.name for point in entry_points_of(SOURCE_GROUP)],
)
COLUMN = Kind("NAME")
TEXT = Kind("TEXT")
REGEX = Kind("REGEX", _regex)
EXTRA_COLUMNS = Kind("NAME:TYPE,...", parse_extra_columns, str | Mapping[str, str], between=":")
FOLDERS = one_of("auto", "classes", "splits", "ignore")
FAULTS = one_of("quarantine", "keep")
FILTER = one_of("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")
LABEL_REGEX = Kind("REGEX", _check_label_regex)
LABEL_DEPTH = Kind("N|all|last", units.parse_label_depth, str | int)
RENAMES = Kind("OLD=NEW,...", accepts=_Path | Mapping[str, str], between="=")
PIXEL_SHAPE = Kind("HxWxC", units.parse_pixel_shape)
SPLITS = Kind(
    "NAME=SHARE,...",
    lambda text: check_split_names(units.parse_splits(text)),
    str | Mapping[str, Any],
    between="=",
)
FOLDS = number(2, MAX_FOLDS, advice=f"write 0, or 2 to {MAX_FOLDS} folds", zero=True)
COUNT = number(0, 2**63 - 1)
SIZE = Kind("SIZE", units.parse_size, str | int)
SHARDS = Kind("N", units.parse_shards, str | int | Mapping[str, int], between="=")
HOOK = Kind("MODULE:FUNCTION", _check_hook_name)
RESIZE = Kind("WxH", units.parse_resize, str | int | Sequence[int])
PERCENT = number(1, 100, "Q")
_SEVERAL = f"write 0, or a number from 2 to {MAX_CHANNELS}, or choose --color gray for one channel"
CHANNELS = number(2, MAX_CHANNELS, advice=_SEVERAL, zero=True)
SAMPLE = number(0, 65535)
COLOR = Kind("COLOR", units.parse_color)
PIXELS = number(1, 2**31 - 1)
SIDE = number(0, 2**31 - 1)
ASPECT = number(1, 1e9, "X", "write a ratio from 1, that of a square, such as 2.5, or 0 for none", zero=True)
SHARE = number(0, 1, "SHARE", "write a share from 0 to 1, such as 0.01")
BOUNDS = Kind("CODE=NUMBER,...", parse_bounds, str | Mapping[str, int], between="=")
KEYS = Kind("PATTERN|@FILE,...", _check_key_list)
CODES = Kind("CODE,...", parse_drop)
FORMATS = Kind("FORMAT,...", parse_formats)
LICENSE = Kind("LICENSE", one_line)
PROSE = Kind("TEXT", any_text)
CREATORS = Kind("NAME;...", parse_creators)
URL = Kind("URL", check_web_address)
DATE = Kind("DATE", check_date)
VERSIONS = number(0, 1e9, advice="write the number of versions to keep, such as 5, or 0 for all")
DAYS = number(0, 1e9, metavar="DAYS", advice="write a number of days, such as 30")
MINUTES = number(1, 1e9, metavar="MINUTES", advice="write a number of minutes from 1 on, such as 60")
PART = replace(
    number(0, 1, metavar="FRACTION", advice="write a share from 0 to 1, such as 0.1 or 1/30"),
    accepts=float | str,
)
