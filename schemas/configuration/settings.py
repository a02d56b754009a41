"""The settings of a conversion: one declaration for the command line, job files and notebooks."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import cached_property, partial
from typing import Any

from shardwright.schemas import units
from shardwright.schemas.bounds import Bounds, format_bounds, parse_bounds
from shardwright.schemas.codes import OF_ONE_PICTURE, QUALITY
from shardwright.schemas.columns import ExtraColumn, parse_extra_columns
from shardwright.schemas.errors import UsageError, nearest
from shardwright.schemas.image_formats import MAX_STORED_SIDE, parse_formats
from shardwright.schemas.image_ref import printable
from shardwright.schemas.key_rules import parse_key_list
from shardwright.schemas.layouts import FeatureRole, Layout, Needs, extended, layout_by_name
from shardwright.schemas.part_bounds import DIGITS
from shardwright.schemas.provenance import (
    Provenance,
    any_text,
    iso_date,
    one_line,
    parse_creators,
    web_address,
)
from shardwright.schemas.side_files import check_split_names
from shardwright.schemas.units import FITS, SAME_SIZE_FITS

RESAMPLES = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")
IMAGE_FORMATS = ("keep", "jpeg", "png", "webp", "raw")
DAMAGED = ("quarantine", "keep")
COLORS = ("rgb", "gray", "keep")
DEPTHS = ("8", "keep")
#: Largest number of channels, and the formats that cannot store more than 8 bits per channel.
MAX_CHANNELS = 16
_EIGHT_BIT_FORMATS = ("jpeg", "webp")
COMPRESSIONS = ("none", "gzip", "zlib")
#: Maximum number of folds.
MAX_FOLDS = len(DIGITS)
#: How images are divided into splits and folds.
SPLIT_MODES = ("hash", "exact", "stratified")
#: Meanings that a user can give to the folders at the top of an input.
FOLDERS = ("auto", "classes", "splits", "ignore")
SUFFIXES = {"none": ".tfrecord", "gzip": ".tfrecord.gz", "zlib": ".tfrecord.zlib"}


class Affects(Enum):
    """What a setting decides. Digests, the plan and `dataset.json` follow from it."""

    #: The bytes of a record, given its reference.
    RECORD = "record"
    #: The order and the compression of the records in a shard, and which images in it become records.
    SHARD = "shard"
    #: The split and the shard of an image.
    PLACEMENT = "placement"
    #: The choice of images, and what is known about each.
    REFERENCE = "reference"
    #: Where to read the input. The plan records what was read, not the place.
    INPUT = "input"
    #: What the dataset states about its origin. No shard depends on it.
    PROVENANCE = "provenance"
    #: How the command runs. The dataset does not depend on it.
    RUN = "run"


class Topic(Enum):
    """The groups of the settings in `--help`, in their order there. A value is the title."""

    INPUT = "input and labels"
    SELECTION = "selection of images"
    ANNOTATIONS = "annotations"
    SPLITS = "splits and shards"
    PIXELS = "pixels"
    RECORDS = "records"
    PROVENANCE = "provenance"
    SAFETY = "safety"
    RUNNING = "running"


#: A setting that affects one of these can change a byte of the dataset, so the plan records it.
RECORDED = frozenset({Affects.RECORD, Affects.SHARD, Affects.PLACEMENT, Affects.REFERENCE})


#: Settings that the plan records only if they are not empty. So datasets from before these settings existed
#: keep their digests.
RECORDED_IF_GIVEN = (
    "bounds", "skip_formats", "map",
    "split_mode", "folds", "min_bytes", "min_side", "max_aspect", "max_per_class", "drop",
    "depth", "channels", "white",
)  # fmt: skip


class Condition(Enum):
    """What a setting needs to have an effect; `effects.py` checks each condition."""

    #: A source that uses the setting (`Source.settings`).
    SOURCE = "source"
    RESIZING = "resizing"
    LOSSY_FORMAT = "lossy format"
    KEPT_ORIGINALS = "kept originals"
    OBJECTS = "objects"
    CLASSES = "classes"
    STORED_CLASSES = "stored classes"
    SEVERAL_SPLITS = "several splits"
    DRAWN_SPLITS = "drawn splits"
    VISIBLE_BACKGROUND = "visible background"


def _setting(
    default: Any,
    help: str,
    affects: Affects,
    topic: Topic,
    *needs: Condition,
    check: Callable[[str], Any] | None = None,
    choices: Sequence[str] = (),
    metavar: str = "",
    between: str = "",
    not_for_rebuilds: str = "",
) -> Any:
    """Declares a setting.

    Args:
      default: default value, in the form in which a user writes it.
      help: what the setting does, for `--help`.
      affects: what the setting decides.
      topic: group of the setting in `--help`.
      *needs: what the setting needs to have an effect; without any it always has one.
      check: raises ValueError for a wrong value; the result is not used.
      choices: the allowed values, if there are few; those of `source` are the modules of the sources.
      metavar: placeholder in `--help`.
      between: text between a name and its value, for a setting that a job file can write as a mapping.
      not_for_rebuilds: why a rebuild does not accept the setting; empty if it does.
    """
    return field(
        default=default,
        metadata={
            "help": help,
            "affects": affects,
            "topic": topic,
            "needs": needs,
            "check": check,
            "choices": choices,
            "metavar": metavar,
            "between": between,
            "not_for_rebuilds": not_for_rebuilds,
        },
    )


def _regex(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression ({error})") from None


def _check_folds(number: str) -> None:
    if units.parse_int(number, low=0, high=MAX_FOLDS) == 1:
        raise ValueError("write 0, or the number of folds from 2 on")


def _check_channels(number: str) -> None:
    if units.parse_int(number, low=0, high=MAX_CHANNELS) == 1:
        raise ValueError("choose --color gray for one channel")


def _check_splits(text: str) -> None:
    check_split_names(units.parse_splits(text))


def _label_regex(text: str) -> None:
    groups = _regex(text).groupindex
    if "label" not in groups:
        raise ValueError("it needs a group (?P<label>...) that matches the class")
    unknown = sorted(set(groups) - {"label", "split", "group"})
    if unknown:
        raise ValueError(f"group {unknown[0]!r} has no meaning; name groups label, split or group")


def _hook_name(text: str) -> None:
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*", text):
        raise ValueError("write it as module:function, such as my_hooks:blur_faces")


def parse_drop(text: str) -> tuple[str, ...]:
    """Parses the codes of `--drop`; returns them without duplicates, in a fixed order.

    Raises:
      ValueError: if a code is unknown or does not depend on one image alone.
    """
    wanted = {item.strip().upper() for item in text.split(",") if item.strip()}
    known = [code.value for code in OF_ONE_PICTURE]
    for code in sorted(wanted.difference(known)):
        if code in set(QUALITY):
            advice = {"ODD_SIZE": "use --min_side", "EXACT_DUPLICATE": "use --dedupe exact"}
            advice["NEAR_DUPLICATE"] = "use --dedupe near"
            wording = advice.get(code, f"choose from {', '.join(known)}")
            raise ValueError(f"{code} does not depend on one image alone; {wording}")
        raise ValueError(f"{code} is not a finding about one image; choose from {', '.join(known)}")
    return tuple(code for code in known if code in wanted)


def list_entries(text: str) -> tuple[list[str], list[str]]:
    """Returns the patterns of `--include` or `--exclude`, and the paths of the files that it names."""
    entries = [item.strip() for item in text.split(",") if item.strip()]
    return [item for item in entries if item[0] != "@"], [item[1:] for item in entries if item[0] == "@"]


def _key_list(text: str) -> None:
    patterns, files = list_entries(text)
    parse_key_list(patterns)
    if "" in files:
        raise ValueError("a file name is missing after @; write @FILE")


def _opt(check: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: check(text) if text != "" else None


@dataclass(frozen=True)
class ConvertSettings:
    """The settings of `convert` and `plan`.

    Values are in the form in which users write them; the properties below return them parsed. `check()` is
    called before anything is written."""

    input: tuple[str, ...] = _setting(
        (),
        "a folder, file or archive that contains or lists images; repeatable; NAME=PATH puts NAME/ before "
        "the keys",
        Affects.INPUT,
        Topic.INPUT,
        metavar="PATH",
    )
    output: str = _setting("", "the dataset directory to write", Affects.RUN, Topic.INPUT, metavar="DIR")
    source: str = _setting(
        "auto",
        "the kind of input; auto detects it and prints what it detected",
        Affects.REFERENCE,
        Topic.INPUT,
    )
    layout: str = _setting(
        "classification",
        "the record layout: a name that `shardwright layouts` lists, or a file LAYOUT.yaml",
        Affects.RECORD,
        Topic.RECORDS,
        metavar="NAME|FILE",
    )
    image_root: str = _setting(
        "",
        "folder at which relative paths in a manifest or an annotation file start; default: its own folder",
        Affects.INPUT,
        Topic.INPUT,
        Condition.SOURCE,
        metavar="PATH",
    )
    mask_dir: str = _setting(
        "",
        "folder with a mask for each image, with the same name",
        Affects.INPUT,
        Topic.ANNOTATIONS,
        Condition.SOURCE,
        metavar="PATH",
    )
    confine: bool = _setting(
        False,
        "read images and masks only inside an input's own folder or bucket, --image_root and --mask_dir, "
        "wherever a manifest, an annotation file or a symbolic link points",
        Affects.INPUT,
        Topic.SAFETY,
    )
    image_column: str = _setting(
        "",
        "column of a manifest with the image paths, or of a Parquet or Arrow file with the images",
        Affects.REFERENCE,
        Topic.INPUT,
        Condition.SOURCE,
        metavar="NAME",
    )
    label_column: str = _setting(
        "",
        "column of a manifest with the class names or numbers",
        Affects.REFERENCE,
        Topic.INPUT,
        Condition.SOURCE,
        Condition.STORED_CLASSES,
        metavar="NAME",
    )
    split_column: str = _setting(
        "",
        "column of a manifest with the splits",
        Affects.REFERENCE,
        Topic.SPLITS,
        Condition.SOURCE,
        metavar="NAME",
    )
    group_column: str = _setting(
        "",
        "column of a manifest with groups; images of a group stay in one split",
        Affects.REFERENCE,
        Topic.SPLITS,
        Condition.SOURCE,
        Condition.SEVERAL_SPLITS,
        Condition.DRAWN_SPLITS,
        metavar="NAME",
    )
    sha256_column: str = _setting(
        "",
        "column of a manifest with the sha256 of the files",
        Affects.REFERENCE,
        Topic.INPUT,
        Condition.SOURCE,
        metavar="NAME",
    )
    extra_columns: str = _setting(
        "",
        "columns to store as features: price:float,tags:string[] (bool, enum, int32, uint32, int64, uint64, "
        "float, double, string or bytes)",
        Affects.RECORD,
        Topic.RECORDS,
        Condition.SOURCE,
        check=_opt(parse_extra_columns),
        metavar="NAME:TYPE,...",
        between=":",
    )
    label_separator: str = _setting(
        "",
        "separator between the classes of an image that has several, such as |",
        Affects.RECORD,
        Topic.INPUT,
        Condition.SOURCE,
        Condition.STORED_CLASSES,
        metavar="TEXT",
    )
    label_regex: str = _setting(
        "",
        "regex for file names: '(?P<label>[a-z]+)\\d+\\.jpg'; also (?P<split>...) and (?P<group>...)",
        Affects.REFERENCE,
        Topic.INPUT,
        Condition.SOURCE,
        check=_opt(_label_regex),
        metavar="REGEX",
    )
    label_depth: str = _setting(
        "1",
        "number of folders in a class name: 1, 2 (animals/cat), 3, ..., all, or last for only the innermost",
        Affects.REFERENCE,
        Topic.INPUT,
        Condition.SOURCE,
        Condition.STORED_CLASSES,
        check=units.parse_label_depth,
        metavar="N|all|last",
    )
    folders: str = _setting(
        "auto",
        "what the folders at the top are: classes; splits (those named train, validation, test, ..., with or "
        "without class folders inside; others are left out); ignore (their names have no meaning); auto "
        "decides, and fails if they could be either",
        Affects.REFERENCE,
        Topic.INPUT,
        Condition.SOURCE,
        choices=FOLDERS,
    )
    unlabelled: str = _setting(
        "quarantine",
        "images without a class: quarantine them, or keep them with label -1",
        Affects.RECORD,
        Topic.INPUT,
        Condition.CLASSES,
        Condition.STORED_CLASSES,
        choices=("quarantine", "keep"),
    )
    rename_labels: str = _setting(
        "",
        "old=new,... or a file with one old=new per line",
        Affects.REFERENCE,
        Topic.INPUT,
        Condition.STORED_CLASSES,
        metavar="OLD=NEW,...",
        between="=",
    )
    keep_labels: str = _setting(
        "",
        "file with the class names to keep, after renaming; images of other classes are filtered",
        Affects.INPUT,
        Topic.INPUT,
        Condition.STORED_CLASSES,
        metavar="FILE",
    )
    bad_boxes: str = _setting(
        "drop",
        "boxes outside the image, inverted, empty or without a class: drop them, clip those that overlap "
        "the image, or fail the image",
        Affects.RECORD,
        Topic.ANNOTATIONS,
        Condition.OBJECTS,
        choices=("drop", "clip", "fail"),
    )
    missing_annotations: str = _setting(
        "fail",
        "images without their annotation file, such as VOC's XML or LabelMe's JSON: fail them, "
        "or store them without objects (YOLO always does)",
        Affects.REFERENCE,
        Topic.ANNOTATIONS,
        Condition.SOURCE,
        choices=("fail", "empty"),
    )
    pixel_shape: str = _setting(
        "",
        "shape of raw pixels, if the source does not have it: 32x32x3 (height, width, channels)",
        Affects.REFERENCE,
        Topic.INPUT,
        Condition.SOURCE,
        check=_opt(units.parse_pixel_shape),
        metavar="HxWxC",
    )
    splits: str = _setting(
        "train=1",
        "shares such as train=0.8,validation=0.1,test=0.1; ignored if the source names the splits",
        Affects.PLACEMENT,
        Topic.SPLITS,
        Condition.DRAWN_SPLITS,
        check=_check_splits,
        metavar="NAME=SHARE,...",
        between="=",
    )
    split_mode: str = _setting(
        "hash",
        "hash: shares are met on average; exact: each split gets its number of images; stratified: each "
        "split gets its share of every class. No image changes its split as the data grows",
        Affects.PLACEMENT,
        Topic.SPLITS,
        Condition.SEVERAL_SPLITS,
        Condition.DRAWN_SPLITS,
        choices=SPLIT_MODES,
    )
    folds: int = _setting(
        0,
        "number of folds for cross-validation in each split; records store their fold, and the loader "
        "selects with fold=N (0: no folds)",
        Affects.RECORD,
        Topic.SPLITS,
        check=_check_folds,
        metavar="N",
    )
    split_by: str = _setting(
        "",
        "regular expression for keys: images with the same first group (or match) stay in one split",
        Affects.PLACEMENT,
        Topic.SPLITS,
        Condition.SEVERAL_SPLITS,
        Condition.DRAWN_SPLITS,
        check=_regex,
        metavar="REGEX",
    )
    seed: int = _setting(
        0,
        "seed of the hashes that decide split, shard and order",
        Affects.SHARD,
        Topic.SPLITS,
        check=partial(units.parse_int, low=0, high=2**63 - 1),
        metavar="N",
    )
    shard_size: str = _setting(
        "128MB",
        "target size of a shard (MB = 10^6 bytes)",
        Affects.PLACEMENT,
        Topic.SPLITS,
        check=units.parse_size,
        metavar="SIZE",
    )
    shards: str = _setting(
        "",
        "a fixed number of shards: 8 (in each split) or train=8,test=1",
        Affects.PLACEMENT,
        Topic.SPLITS,
        check=_opt(units.parse_shards),
        metavar="N",
        between="=",
    )
    compression: str = _setting(
        "none", "compression of the shards", Affects.SHARD, Topic.RECORDS, choices=COMPRESSIONS
    )
    map: str = _setting(
        "",
        "your own function, which changes, multiplies or drops each decoded image before it is resized",
        Affects.RECORD,
        Topic.PIXELS,
        check=_opt(_hook_name),
        metavar="MODULE:FUNCTION",
    )
    resize: str = _setting(
        "",
        "target size in pixels: 224 (= 224x224) or WxH",
        Affects.RECORD,
        Topic.PIXELS,
        check=_opt(units.parse_resize),
        metavar="WxH",
    )
    fit: str = _setting(
        "stretch",
        "how an image is fitted to the target size (Pillow's ImageOps terms)",
        Affects.RECORD,
        Topic.PIXELS,
        Condition.RESIZING,
        choices=FITS,
    )
    resample: str = _setting(
        "bilinear",
        "the resampling filter",
        Affects.RECORD,
        Topic.PIXELS,
        Condition.RESIZING,
        choices=RESAMPLES,
    )
    image_format: str = _setting(
        "",
        "format of the stored images; default: jpeg when resizing, else keep (the original bytes "
        "if nothing has to change)",
        Affects.RECORD,
        Topic.PIXELS,
        choices=IMAGE_FORMATS,
    )
    quality: int = _setting(
        95,
        "quality of JPEG (4:2:0) and WebP, 1 to 100",
        Affects.RECORD,
        Topic.PIXELS,
        Condition.LOSSY_FORMAT,
        check=partial(units.parse_int, low=1, high=100),
        metavar="Q",
    )
    color: str = _setting(
        "rgb",
        "channels: rgb, gray, or keep (grayscale images stay grayscale)",
        Affects.RECORD,
        Topic.PIXELS,
        choices=COLORS,
    )
    depth: str = _setting(
        "8",
        "bits per channel: 8 (everything is scaled to 8 bits), or keep (16 bits stay 16 bits, and "
        "floating-point numbers stay 32-bit floats)",
        Affects.RECORD,
        Topic.PIXELS,
        choices=DEPTHS,
    )
    channels: int = _setting(
        0,
        "store all N channels of each image as they are in its file, as raw pixels; for TIFF and arrays with "
        "2 to 16 channels (0: --color decides)",
        Affects.RECORD,
        Topic.PIXELS,
        check=_check_channels,
        metavar="N",
    )
    white: int = _setting(
        0,
        "sample that becomes white when 16-bit images are scaled to 8 bits, such as 4095 for 12-bit scans; "
        "images with larger ones are quarantined (0: 65535, unless all images are dark)",
        Affects.RECORD,
        Topic.PIXELS,
        check=partial(units.parse_int, low=0, high=65535),
        metavar="N",
    )
    background: str = _setting(
        "white",
        "color under transparent pixels and around padded images",
        Affects.RECORD,
        Topic.PIXELS,
        Condition.VISIBLE_BACKGROUND,
        check=units.parse_color,
        metavar="COLOR",
    )
    strip_metadata: bool = _setting(
        False,
        "remove EXIF, GPS and comments from kept originals",
        Affects.RECORD,
        Topic.RECORDS,
        Condition.KEPT_ORIGINALS,
    )
    damaged: str = _setting(
        "quarantine",
        "images whose decoder reports missing or damaged data: quarantine them, or keep them with the "
        "pixels that the decoder makes up",
        Affects.RECORD,
        Topic.SAFETY,
        choices=DAMAGED,
    )
    max_pixels: int = _setting(
        89_478_485,
        "quarantine images with more pixels (width x height), without decoding them (Pillow's limit)",
        Affects.RECORD,
        Topic.SAFETY,
        check=partial(units.parse_int, low=1, high=2**31 - 1),
        metavar="N",
    )
    max_bytes: str = _setting(
        "256MB",
        "quarantine larger source files without reading them",
        Affects.RECORD,
        Topic.SAFETY,
        check=units.parse_size,
        metavar="SIZE",
    )
    bounds: str = _setting(
        "",
        "how many parts an image file may have, by the code with which it is quarantined otherwise: "
        "TOO_MANY_SCANS=500,...; docs/dataset.md lists codes and defaults",
        Affects.RECORD,
        Topic.SAFETY,
        check=parse_bounds,
        metavar="CODE=NUMBER,...",
        between="=",
    )
    include: str = _setting(
        "",
        "take only images whose key matches a pattern, such as cats/*.jpg, or that a file lists by key or "
        "sha256 (@FILE, one per line); others are filtered",
        Affects.INPUT,
        Topic.SELECTION,
        check=_key_list,
        metavar="PATTERN|@FILE,...",
    )
    exclude: str = _setting(
        "",
        "leave out images whose key matches a pattern, such as drafts/, or that a file lists by key or "
        "sha256 (@FILE, one per line), such as a list of opt-outs",
        Affects.INPUT,
        Topic.SELECTION,
        check=_key_list,
        metavar="PATTERN|@FILE,...",
    )
    min_bytes: str = _setting(
        "",
        "leave out smaller source files",
        Affects.REFERENCE,
        Topic.SELECTION,
        check=_opt(units.parse_size),
        metavar="SIZE",
    )
    min_side: int = _setting(
        0,
        "leave out images whose shorter side has fewer pixels (0: none)",
        Affects.SHARD,
        Topic.SELECTION,
        check=partial(units.parse_int, low=0, high=2**31 - 1),
        metavar="N",
    )
    max_aspect: float = _setting(
        0.0,
        "leave out images whose longer side is more than X times the shorter (0: none)",
        Affects.SHARD,
        Topic.SELECTION,
        check=units.parse_aspect,
        metavar="X",
    )
    drop: str = _setting(
        "",
        f"leave out images that, as stored, have one of these findings of validate --quality: "
        f"{', '.join(OF_ONE_PICTURE)}",
        Affects.RECORD,
        Topic.SELECTION,
        check=parse_drop,
        metavar="CODE,...",
    )
    license: str = _setting(
        "",
        "license of the dataset: an SPDX identifier such as CC-BY-4.0, a web address, or a name",
        Affects.PROVENANCE,
        Topic.PROVENANCE,
        check=one_line,
        metavar="LICENSE",
    )
    citation: str = _setting(
        "",
        "how to cite the dataset, best as BibTeX",
        Affects.PROVENANCE,
        Topic.PROVENANCE,
        check=any_text,
        metavar="TEXT",
    )
    creator: str = _setting(
        "",
        "who made the dataset: names separated by ; (org:NAME for an organization)",
        Affects.PROVENANCE,
        Topic.PROVENANCE,
        check=parse_creators,
        metavar="NAME;...",
    )
    url: str = _setting(
        "",
        "home page of the dataset",
        Affects.PROVENANCE,
        Topic.PROVENANCE,
        check=web_address,
        metavar="URL",
    )
    description: str = _setting(
        "",
        "what the dataset contains, as Markdown",
        Affects.PROVENANCE,
        Topic.PROVENANCE,
        check=any_text,
        metavar="TEXT",
    )
    date_published: str = _setting(
        "",
        "date of publication: 2026-03-31",
        Affects.PROVENANCE,
        Topic.PROVENANCE,
        check=iso_date,
        metavar="DATE",
    )
    skip_formats: str = _setting(
        "",
        "formats to leave out on purpose, by name or extension: heic,psd; such images are filtered, "
        "and do not count as bad",
        Affects.RECORD,
        Topic.INPUT,
        check=parse_formats,
        metavar="FORMAT,...",
    )
    max_bad_fraction: float = _setting(
        0.01,
        "publish nothing if quarantined / (written + quarantined) is larger",
        Affects.RUN,
        Topic.SAFETY,
        check=units.parse_fraction,
        metavar="SHARE",
    )
    class_names: str = _setting(
        "",
        "file with the class names in id order; images of other classes are quarantined",
        Affects.INPUT,
        Topic.INPUT,
        Condition.STORED_CLASSES,
        metavar="FILE",
    )
    dedupe: str = _setting(
        "none",
        "exact: keep only the smallest key of files with equal bytes; near: keep only the largest of images "
        "that look alike, as validate --quality finds them",
        Affects.REFERENCE,
        Topic.SELECTION,
        choices=("none", "exact", "near"),
    )
    max_per_class: int = _setting(
        0,
        "convert at most the N images of each class with the lowest hashes (0: all)",
        Affects.REFERENCE,
        Topic.SELECTION,
        check=partial(units.parse_int, low=0, high=2**63 - 1),
        metavar="N",
    )
    limit: int = _setting(
        0,
        "convert only the N images with the lowest hashes (0: all)",
        Affects.REFERENCE,
        Topic.SELECTION,
        check=partial(units.parse_int, low=0, high=2**63 - 1),
        metavar="N",
    )
    verify: str = _setting(
        "fast",
        "fast: framing, CRCs, counts, checksums; full: also decode every image; "
        "quality: also image statistics",
        Affects.RUN,
        Topic.SAFETY,
        choices=("fast", "full", "quality", "none"),
    )
    plan_from: str = _setting(
        "",
        "reuse the plan of this dataset.json: settings, labels and shard counts",
        Affects.INPUT,
        Topic.SPLITS,
        metavar="FILE",
    )
    overwrite: bool = _setting(
        False,
        "replace the dataset at --output",
        Affects.RUN,
        Topic.RUNNING,
        not_for_rebuilds="a rebuild replaces nothing; it writes a new version and then switches the pointer",
    )
    resume: bool = _setting(
        False,
        "finish an interrupted run",
        Affects.RUN,
        Topic.RUNNING,
        not_for_rebuilds="a rebuild always continues an interrupted run",
    )

    @cached_property
    def parsed_splits(self) -> dict[str, Any]:
        """Split shares as exact fractions, in the order given."""
        return units.parse_splits(self.splits)

    @property
    def chooses_splits(self) -> bool:
        """Whether the bounds of the splits are chosen from the hashes of all images."""
        return self.split_mode != "hash" and len(self.parsed_splits) > 1

    @property
    def chooses_folds(self) -> bool:
        """Whether the bounds of the folds are chosen from the hashes of all images."""
        return self.split_mode != "hash" and self.folds > 0

    @property
    def keeps_groups(self) -> bool:
        """Whether images can have a group, which stays in one split."""
        return bool(self.split_by or self.group_column or "(?P<group>" in self.label_regex)

    @property
    def divides_buckets(self) -> bool:
        """Whether splits get buckets of hashes, because a group or an image may have several classes."""
        return self.split_mode == "stratified" and (self.keeps_groups or bool(self.label_separator))

    @cached_property
    def folders_of_label(self) -> int:
        """`label_depth` as a number, `units.ALL_FOLDERS` or `units.LAST_FOLDER`."""
        return units.parse_label_depth(self.label_depth)

    @cached_property
    def target(self) -> tuple[int, int] | None:
        """The target box (width, height) in pixels, or None."""
        return units.parse_resize(self.resize) if self.resize else None

    @cached_property
    def stored_format(self) -> str:
        """The image format with its default resolved."""
        if self.record_layout.pixels or self.channels:
            return "raw"
        return self.image_format or ("jpeg" if self.resize and self.depth == "8" else "keep")

    @property
    def states_dtype(self) -> bool:
        """Whether each record states the type of its samples, because it may be another one than uint8."""
        return self.depth == "keep" or self.channels > 0

    def keeps_samples(self, dtype: str) -> bool:
        """Whether raw pixels of a type of NumPy's reach the decoder as they are, instead of in 8 bits."""
        return self.states_dtype or (self.white > 0 and dtype[1:] == "u2")

    @property
    def has_one_size(self) -> bool:
        """Whether all stored pictures have the same height and width."""
        return bool(self.resize) and self.fit in SAME_SIZE_FITS

    @cached_property
    def background_rgb(self) -> tuple[int, int, int]:
        """The background color, 0 to 255 per channel."""
        return units.parse_color(self.background)

    @cached_property
    def max_source_bytes(self) -> int:
        """`max_bytes` in bytes."""
        return units.parse_size(self.max_bytes)

    @cached_property
    def min_source_bytes(self) -> int:
        """`min_bytes` in bytes; 0 if there is no minimum."""
        return units.parse_size(self.min_bytes) if self.min_bytes else 0

    @cached_property
    def dropped_codes(self) -> tuple[str, ...]:
        """The codes of `drop`."""
        return parse_drop(self.drop)

    @cached_property
    def skipped_formats(self) -> frozenset[str]:
        """The image formats to leave out, by their names in `schemas/image_formats.py`."""
        return parse_formats(self.skip_formats)

    @cached_property
    def parsed_bounds(self) -> Bounds:
        """The bounds of image files, those given over the defaults."""
        return parse_bounds(self.bounds)

    @cached_property
    def parsed_extra_columns(self) -> tuple[ExtraColumn, ...]:
        """The columns to store as features. Those that the layout names come first."""
        named = layout_by_name(self.layout).columns
        known = {column.name for column in named}
        return (*named, *(column for column in self._option_columns if column.name not in known))

    def option_of(self, column: ExtraColumn) -> str:
        """Returns the origin of an extra column for messages: an option, or the layout."""
        layout = layout_by_name(self.layout)
        named = any(item.name == column.name for item in layout.columns)
        return f"{f'--layout {layout.name}, column' if named else '--extra_columns'} {printable(column.name)}"

    @property
    def _option_columns(self) -> tuple[ExtraColumn, ...]:
        return parse_extra_columns(self.extra_columns)

    @cached_property
    def record_layout(self) -> Layout:
        """The layout of the records, with the extra columns' features."""
        return extended(
            layout_by_name(self.layout),
            self._option_columns,
            bool(self.label_separator),
            self.folds > 0,
            self.states_dtype,
            self.has_one_size,
        )

    @property
    def suffix(self) -> str:
        """The file name suffix of a shard."""
        return SUFFIXES[self.compression]

    @property
    def provenance(self) -> Provenance:
        """What the dataset states about its origin."""
        return Provenance(**{name: getattr(self, name) for name in settings_that_affect(Affects.PROVENANCE)})

    def check(self) -> None:
        """Checks every value, and whether the values go together.

        Raises:
          UsageError: if a setting is wrong; the message names the first one and what to write instead.
        """
        for item in fields(self):
            self.check_one(item.name)
        if not self.input:
            raise UsageError("--input is missing; name a folder of images.")
        _ = self.record_layout  # raises if extra columns do not fit the layout
        if self.label_regex and self.folders_of_label != 1:
            raise UsageError(
                f"--label_depth {self.label_depth} takes class names from folders and --label_regex from "
                "whole paths; leave one of them out."
            )
        if self.label_regex and self.folders != "auto":
            raise UsageError(
                f"--folders {self.folders} says what folders mean and --label_regex reads whole paths; "
                "leave one of them out."
            )
        if self.drop and self.map:
            raise UsageError(
                f"--drop {self.drop} measures a stored image, and --map {self.map} may make several of one; "
                "leave --drop out, and let the function return DroppedImage."
            )
        if self.overwrite and self.resume:
            raise UsageError(
                "--overwrite starts again and --resume continues an interrupted run, even one with "
                "--overwrite; leave one of them out."
            )
        if self.shards and isinstance(units.parse_shards(self.shards), dict):
            unknown = set(units.parse_shards(self.shards)) - set(self.parsed_splits)  # type: ignore[arg-type]
            if unknown and self.splits != "train=1":
                raise UsageError(
                    f"--shards {self.shards}: there is no split {sorted(unknown)[0]!r}; "
                    f"--splits names {', '.join(self.parsed_splits)}."
                )
        self._check_split_mode()
        self._check_pixels()

    def check_one(self, name: str) -> None:
        """Checks the value of one setting, whatever the values of the others.

        Raises:
          UsageError: if it is wrong; the message says what to write instead.
        """
        value, item = getattr(self, name), self.__dataclass_fields__[name]
        choices = item.metadata["choices"]
        if choices and value not in choices and not (item.default == "" and value == ""):
            raise UsageError(
                f"--{name} {value}: choose one of {', '.join(choices)}{nearest(str(value), choices) or '.'}"
            )
        if item.metadata["check"]:
            try:
                item.metadata["check"](value)
            except ValueError as error:
                raise UsageError(f"--{name} {value}: {error}.") from None

    def _check_split_mode(self) -> None:
        """Checks that images have a class if each split should get its share of every class.

        Raises:
          UsageError: if they have none, there are too many splits, or the layout needs folds.
        """
        layout = self.record_layout
        if FeatureRole.FOLD in layout.by_role() and not self.folds:
            raise UsageError(f"Layout {layout.name} stores the fold of each image; set --folds.")
        if self.split_mode == "stratified" and layout.needs is not Needs.LABEL:
            raise UsageError(
                f"--split_mode stratified needs a class for each image, and layout {layout.name} stores "
                "none; choose --split_mode exact."
            )
        if self.divides_buckets and len(self.parsed_splits) > len(DIGITS):
            raise UsageError(
                f"--split_mode stratified with groups or --label_separator divides images into at most "
                f"{len(DIGITS)} splits; choose --split_mode exact."
            )

    def _check_pixels(self) -> None:
        """Checks that readers can know the shape of raw pixels.

        Raises:
          UsageError: if they cannot, or the layout stores raw pixels and another format is given.
        """
        layout = self.record_layout
        if layout.pixels and self.image_format not in ("", "raw"):
            raise UsageError(
                f"--image_format {self.image_format}: layout {layout.name} stores bare pixels; leave "
                "--image_format out, or choose a layout of image files."
            )
        self._check_depth()
        self._check_size()
        if self.stored_format != "raw" or self.states_dtype:  # records state the shape of such pixels
            return
        if not layout.stores_size and not self.has_one_size:
            raise UsageError(
                f"--layout {layout.name}: its records have bare pixels and do not store their size; choose "
                f"one size for all with --resize (and --fit {', '.join(SAME_SIZE_FITS)})."
            )
        if self.color == "keep" and not (self.resize and layout.stores_channels):
            raise UsageError(
                "--color keep: bare pixels would have different numbers of channels; choose --color rgb "
                "or gray."
            )

    def _check_size(self) -> None:
        """Checks that the stored format can hold pictures of the target size.

        Raises:
          UsageError: if it cannot hold any of them.
        """
        longest = MAX_STORED_SIDE.get(self.stored_format)
        if not self.target or not longest or self.fit == "contain" or self.map:
            return  # such pictures may be smaller
        if max(self.target) > longest:
            raise UsageError(
                f"--resize {self.resize}: {self.stored_format} holds at most {longest:,} pixels a side; "
                "choose a smaller size, or --image_format png."
            )

    def _check_depth(self) -> None:
        """Checks that the stored format and the other settings allow the type and number of channels.

        Raises:
          UsageError: if they do not.
        """
        if self.channels and self.image_format not in ("", "raw"):
            raise UsageError(
                f"--image_format {self.image_format}: pictures of {self.channels} channels (--channels) are "
                "stored as raw pixels; leave --image_format out."
            )
        if self.depth == "keep" and self.image_format in _EIGHT_BIT_FORMATS:
            raise UsageError(
                f"--image_format {self.image_format} stores 8 bits per channel; choose png or raw, or leave "
                "--depth keep out."
            )
        if self.depth == "keep" and self.white:
            raise UsageError(
                f"--white {self.white} scales 16-bit images to 8 bits, and --depth keep stores them as they "
                "are; leave one of them out."
            )
        stored = self.record_layout.pixel_type
        if stored and self.depth != "keep" and not (self.channels and stored == "uint8"):
            raise UsageError(
                f"--layout {self.record_layout.name}: its pixels have the type {stored}, but images are "
                f"scaled to 8 bits; add --depth keep{', or leave dtype out' if stored == 'uint8' else ''}."
            )
        tensors = [spec.name for spec in self.record_layout.features if spec.holds_pixels]
        if tensors and self.states_dtype:
            option = f"--channels {self.channels}" if self.channels else "--depth keep"
            raise UsageError(
                f"--layout {self.record_layout.name}: its feature {tensors[0]!r} is a tensor of type uint8; "
                f"store the pixels without `tensor: true`, or leave {option} out."
            )
        if self.map and self.states_dtype:
            option = f"--channels {self.channels}" if self.channels else "--depth keep"
            raise UsageError(
                f"--map {self.map} receives pictures with 8 bits per channel, gray or RGB; leave {option} "
                "out, or leave --map out."
            )

    def identity(self) -> dict[str, Any]:
        """The settings that can change a byte of the dataset, in canonical form."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.metadata["affects"] in RECORDED}
        values["splits"] = ",".join(f"{name}={share}" for name, share in self.parsed_splits.items())
        values["label_depth"] = self.label_depth.strip()
        values["shard_size"] = units.parse_size(self.shard_size)
        values["max_bytes"] = self.max_source_bytes
        values["resize"] = "x".join(map(str, self.target)) if self.target else ""
        values["image_format"] = self.stored_format
        values["background"] = "#{:02x}{:02x}{:02x}".format(*self.background_rgb)
        values["skip_formats"] = ",".join(sorted(self.skipped_formats))
        values["bounds"] = format_bounds(self.parsed_bounds)
        values["split_mode"] = "" if self.split_mode == "hash" else self.split_mode
        values["min_bytes"] = self.min_source_bytes
        values["drop"] = ",".join(self.dropped_codes)
        values["depth"] = "" if self.depth == "8" else self.depth
        for name in RECORDED_IF_GIVEN:
            if not values[name]:
                del values[name]
        return values


def settings_that_affect(*what: Affects) -> tuple[str, ...]:
    """Returns the names of the settings that decide something."""
    return tuple(item.name for item in fields(ConvertSettings) if item.metadata["affects"] in what)
