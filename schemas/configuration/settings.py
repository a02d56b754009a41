"""The settings of a conversion: one declaration for the command line, job files and notebooks.

A new setting is a field here, and the code that uses it. Options, keys of job files, arguments of functions,
parameters of the Dataflow template, and their descriptions in `--help`, editors and the documentation follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from shardwright.schemas import units
from shardwright.schemas.bounds import Bounds, format_bounds, parse_bounds
from shardwright.schemas.columns import ExtraColumn, parse_extra_columns
from shardwright.schemas.configuration import kinds
from shardwright.schemas.configuration.setting import Affects, Condition, Topic, setting, settings_of
from shardwright.schemas.errors import UsageError, nearest
from shardwright.schemas.image_formats import MAX_STORED_SIDE, parse_formats
from shardwright.schemas.layouts import FeatureRole, Layout, Needs, extended, layout_by_name
from shardwright.schemas.plain_text import printable
from shardwright.schemas.plan import DIGITS
from shardwright.schemas.provenance import Provenance
from shardwright.schemas.units import FITS, SAME_SIZE_FITS

SUFFIXES = {"none": ".tfrecord", "gzip": ".tfrecord.gz", "zlib": ".tfrecord.zlib"}

#: What a choice of splits needs to have an effect.
_CHOSEN_SPLITS = (Condition.SEVERAL_SPLITS, Condition.DRAWN_SPLITS)
#: A setting that affects one of these can change a byte of the dataset, so the plan records it.
RECORDED = frozenset({Affects.RECORD, Affects.SHARD, Affects.PLACEMENT, Affects.REFERENCE})


#: Settings that the plan records only if they are not empty. So datasets from before these settings existed
#: keep their digests.
RECORDED_IF_GIVEN = (
    "bounds", "skip_formats", "map",
    "split_mode", "folds", "min_bytes", "min_side", "max_aspect", "max_per_class", "drop",
    "depth", "channels", "white",
)  # fmt: skip


@dataclass(frozen=True)
class ConvertSettings:
    """The settings of `convert` and `plan`.

    Values are in the form in which users write them; the properties below return them parsed. `check()` is
    called before anything is written."""

    input: tuple[str, ...] = setting((), Affects.INPUT, Topic.INPUT, kinds.INPUT)
    """A folder, file or archive that contains or lists images; repeatable; NAME=PATH puts NAME/ before the
    keys."""
    output: str = setting("", Affects.RUN, Topic.INPUT, kinds.OUTPUT)
    """The dataset directory to write."""
    source: str = setting("auto", Affects.REFERENCE, Topic.INPUT, kinds.SOURCE)
    """The kind of input; auto detects it and prints what it detected."""
    layout: str = setting("classification", Affects.RECORD, Topic.RECORDS, kinds.LAYOUT)
    """The record layout: a name that `shardwright layouts` lists, or a file LAYOUT.yaml."""
    image_root: str = setting("", Affects.INPUT, Topic.INPUT, kinds.FOLDER, Condition.SOURCE)
    """Folder at which relative paths in a manifest or an annotation file start; default: its own folder."""
    mask_dir: str = setting("", Affects.INPUT, Topic.ANNOTATIONS, kinds.FOLDER, Condition.SOURCE)
    """Folder with a mask for each image, with the same name."""
    confine: bool = setting(False, Affects.INPUT, Topic.SAFETY, kinds.SWITCH)
    """Read images and masks only inside an input's own folder or bucket, --image_root and --mask_dir,
    wherever a manifest, an annotation file or a symbolic link points."""
    image_column: str = setting("", Affects.REFERENCE, Topic.INPUT, kinds.COLUMN, Condition.SOURCE)
    """Column of a manifest with the image paths, or of a Parquet or Arrow file with the images."""
    label_column: str = setting(
        "", Affects.REFERENCE, Topic.INPUT, kinds.COLUMN, Condition.SOURCE, Condition.STORED_CLASSES
    )
    """Column of a manifest with the class names or numbers."""
    split_column: str = setting("", Affects.REFERENCE, Topic.SPLITS, kinds.COLUMN, Condition.SOURCE)
    """Column of a manifest with the splits."""
    group_column: str = setting(
        "", Affects.REFERENCE, Topic.SPLITS, kinds.COLUMN, Condition.SOURCE, *_CHOSEN_SPLITS
    )
    """Column of a manifest with groups; images of a group stay in one split."""
    sha256_column: str = setting("", Affects.REFERENCE, Topic.INPUT, kinds.COLUMN, Condition.SOURCE)
    """Column of a manifest with the sha256 of the files."""
    extra_columns: str = setting("", Affects.RECORD, Topic.RECORDS, kinds.EXTRA_COLUMNS, Condition.SOURCE)
    """Columns to store as features: price:float,tags:string[] (bool, enum, int32, uint32, int64, uint64,
    float, double, string or bytes)."""
    label_separator: str = setting(
        "", Affects.RECORD, Topic.INPUT, kinds.TEXT, Condition.SOURCE, Condition.STORED_CLASSES
    )
    """Separator between the classes of an image that has several, such as |."""
    label_regex: str = setting("", Affects.REFERENCE, Topic.INPUT, kinds.LABEL_REGEX, Condition.SOURCE)
    r"""Regex for file names: '(?P<label>[a-z]+)\d+\.jpg'; also (?P<split>...) and (?P<group>...)."""
    label_depth: str = setting(
        "1", Affects.REFERENCE, Topic.INPUT, kinds.LABEL_DEPTH, Condition.SOURCE, Condition.STORED_CLASSES
    )
    """Number of folders in a class name: 1, 2 (animals/cat), 3, ..., all, or last for only the innermost."""
    folders: str = setting("auto", Affects.REFERENCE, Topic.INPUT, kinds.FOLDERS, Condition.SOURCE)
    """What the folders at the top are: classes; splits (those named train, validation, test, ..., with or
    without class folders inside; others are left out); ignore (their names have no meaning); auto decides,
    and fails if they could be either."""
    unlabelled: str = setting(
        "quarantine", Affects.RECORD, Topic.INPUT, kinds.FAULTS, Condition.CLASSES, Condition.STORED_CLASSES
    )
    """Images without a class: quarantine them, or keep them with label -1."""
    rename_labels: str = setting("", Affects.REFERENCE, Topic.INPUT, kinds.RENAMES, Condition.STORED_CLASSES)
    """old=new,... or a file with one old=new per line."""
    keep_labels: str = setting("", Affects.INPUT, Topic.INPUT, kinds.FILE, Condition.STORED_CLASSES)
    """File with the class names to keep, after renaming; images of other classes are filtered."""
    bad_boxes: str = setting(
        "drop", Affects.RECORD, Topic.ANNOTATIONS, kinds.one_of("drop", "clip", "fail"), Condition.OBJECTS
    )
    """Boxes outside the image, inverted, empty or without a class: drop them, clip those that overlap the
    image, or fail the image."""
    missing_annotations: str = setting(
        "fail", Affects.REFERENCE, Topic.ANNOTATIONS, kinds.one_of("fail", "empty"), Condition.SOURCE
    )
    """Images without their annotation file, such as VOC's XML or LabelMe's JSON: fail them, or store them
    without objects (YOLO always does)."""
    pixel_shape: str = setting("", Affects.REFERENCE, Topic.INPUT, kinds.PIXEL_SHAPE, Condition.SOURCE)
    """Shape of raw pixels, if the source does not have it: 32x32x3 (height, width, channels)."""
    splits: str = setting("train=1", Affects.PLACEMENT, Topic.SPLITS, kinds.SPLITS, Condition.DRAWN_SPLITS)
    """Shares such as train=0.8,validation=0.1,test=0.1; ignored if the source names the splits, unless it is
    TFRecords, Parquet files, arrays or archives named by split, which are divided anew."""
    split_mode: str = setting(
        "hash", Affects.PLACEMENT, Topic.SPLITS, kinds.one_of("hash", "exact", "stratified"), *_CHOSEN_SPLITS
    )
    """hash: shares are met on average; exact: each split gets its number of images; stratified: each split
    gets its share of every class. No image changes its split as the data grows."""
    folds: int = setting(0, Affects.RECORD, Topic.SPLITS, kinds.FOLDS)
    """Number of folds for cross-validation in each split; records store their fold, and the loader selects
    with fold=N (0: no folds)."""
    split_by: str = setting("", Affects.PLACEMENT, Topic.SPLITS, kinds.REGEX, *_CHOSEN_SPLITS)
    """Regular expression for keys: images with the same first group (or match) stay in one split."""
    seed: int = setting(0, Affects.SHARD, Topic.SPLITS, kinds.COUNT)
    """Seed of the hashes that decide split, shard and order."""
    shard_size: str = setting("128MB", Affects.PLACEMENT, Topic.SPLITS, kinds.SIZE)
    """Target size of a shard (MB = 10^6 bytes)."""
    shards: str = setting("", Affects.PLACEMENT, Topic.SPLITS, kinds.SHARDS)
    """A fixed number of shards: 8 (in each split) or train=8,test=1."""
    compression: str = setting("none", Affects.SHARD, Topic.RECORDS, kinds.one_of(*SUFFIXES))
    """Compression of the shards."""
    map: str = setting("", Affects.RECORD, Topic.PIXELS, kinds.HOOK)
    """Your own function, which changes, multiplies or drops each decoded image before it is resized."""
    resize: str = setting("", Affects.RECORD, Topic.PIXELS, kinds.RESIZE)
    """Target size in pixels: 224 (= 224x224) or WxH."""
    fit: str = setting("stretch", Affects.RECORD, Topic.PIXELS, kinds.one_of(*FITS), Condition.RESIZING)
    """How an image is fitted to the target size (Pillow's ImageOps terms)."""
    resample: str = setting("bilinear", Affects.RECORD, Topic.PIXELS, kinds.FILTER, Condition.RESIZING)
    """The resampling filter."""
    image_format: str = setting(
        "", Affects.RECORD, Topic.PIXELS, kinds.one_of("keep", "jpeg", "png", "webp", "raw")
    )
    """Format of the stored images; default: jpeg when resizing, else keep (the original bytes if nothing
    has to change)."""
    quality: int = setting(95, Affects.RECORD, Topic.PIXELS, kinds.PERCENT, Condition.LOSSY_FORMAT)
    """Quality of JPEG (4:2:0) and WebP, 1 to 100."""
    color: str = setting(
        "rgb", Affects.RECORD, Topic.PIXELS, kinds.one_of("rgb", "gray", "keep"), Condition.CONVERTED_COLORS
    )
    """Channels: rgb, gray, or keep (grayscale images stay grayscale)."""
    depth: str = setting("8", Affects.RECORD, Topic.PIXELS, kinds.one_of("8", "keep"))
    """Bits per channel: 8 (everything is scaled to 8 bits), or keep (16 bits stay 16 bits, and
    floating-point numbers stay 32-bit floats)."""
    channels: int = setting(0, Affects.RECORD, Topic.PIXELS, kinds.CHANNELS)
    """Store all N channels of each image as they are in its file, as raw pixels; for TIFF and arrays with
    2 to 16 channels (0: --color decides)."""
    white: int = setting(0, Affects.RECORD, Topic.PIXELS, kinds.SAMPLE)
    """Sample that becomes white when 16-bit images are scaled to 8 bits, such as 4095 for 12-bit scans;
    images with larger ones are quarantined (0: 65535, unless all images are dark)."""
    background: str = setting(
        "white", Affects.RECORD, Topic.PIXELS, kinds.COLOR, Condition.VISIBLE_BACKGROUND
    )
    """Color under transparent pixels and around padded images."""
    strip_metadata: bool = setting(
        False, Affects.RECORD, Topic.RECORDS, kinds.SWITCH, Condition.KEPT_ORIGINALS
    )
    """Remove EXIF, GPS and comments from kept originals."""
    damaged: str = setting("quarantine", Affects.RECORD, Topic.SAFETY, kinds.FAULTS)
    """Images whose decoder reports missing or damaged data: quarantine them, or keep them with the pixels
    that the decoder makes up."""
    max_pixels: int = setting(89_478_485, Affects.RECORD, Topic.SAFETY, kinds.PIXELS)
    """Quarantine images with more pixels (width x height), without decoding them (Pillow's limit)."""
    max_bytes: str = setting("256MB", Affects.RECORD, Topic.SAFETY, kinds.SIZE)
    """Quarantine larger source files without reading them."""
    bounds: str = setting("", Affects.RECORD, Topic.SAFETY, kinds.BOUNDS)
    """How many parts an image file may have, by the code with which it is quarantined otherwise:
    TOO_MANY_SCANS=500,...; docs/dataset.md lists codes and defaults."""
    include: str = setting("", Affects.INPUT, Topic.SELECTION, kinds.KEYS)
    """Take only images whose key matches a pattern, such as cats/*.jpg, or that a file lists by key or
    sha256 (@FILE, one per line); others are filtered."""
    exclude: str = setting("", Affects.INPUT, Topic.SELECTION, kinds.KEYS)
    """Leave out images whose key matches a pattern, such as drafts/, or that a file lists by key or sha256
    (@FILE, one per line), such as a list of opt-outs."""
    min_bytes: str = setting("", Affects.REFERENCE, Topic.SELECTION, kinds.SIZE)
    """Leave out smaller source files."""
    min_side: int = setting(0, Affects.SHARD, Topic.SELECTION, kinds.SIDE)
    """Leave out images whose shorter side has fewer pixels (0: none)."""
    max_aspect: float = setting(0.0, Affects.SHARD, Topic.SELECTION, kinds.ASPECT)
    """Leave out images whose longer side is more than X times the shorter (0: none)."""
    drop: str = setting("", Affects.RECORD, Topic.SELECTION, kinds.CODES)
    """Leave out images that, as stored, have one of these findings of validate --quality: DARK, LIGHT,
    BLURRY, LOW_INFORMATION, ODD_ASPECT_RATIO, GRAYSCALE."""
    license: str = setting("", Affects.PROVENANCE, Topic.PROVENANCE, kinds.LICENSE)
    """License of the dataset: an SPDX identifier such as CC-BY-4.0, a web address, or a name."""
    citation: str = setting("", Affects.PROVENANCE, Topic.PROVENANCE, kinds.PROSE)
    """How to cite the dataset, best as BibTeX."""
    creator: str = setting("", Affects.PROVENANCE, Topic.PROVENANCE, kinds.CREATORS)
    """Who made the dataset: names separated by ; (org:NAME for an organization)."""
    url: str = setting("", Affects.PROVENANCE, Topic.PROVENANCE, kinds.URL)
    """Home page of the dataset."""
    description: str = setting("", Affects.PROVENANCE, Topic.PROVENANCE, kinds.PROSE)
    """What the dataset contains, as Markdown."""
    date_published: str = setting("", Affects.PROVENANCE, Topic.PROVENANCE, kinds.DATE)
    """Date of publication: 2026-03-31."""
    skip_formats: str = setting("", Affects.RECORD, Topic.INPUT, kinds.FORMATS)
    """Formats to leave out on purpose, by name or extension: heic,psd; such images are filtered, and do
    not count as bad."""
    max_bad_fraction: float = setting(0.01, Affects.RUN, Topic.SAFETY, kinds.SHARE)
    """Publish nothing if quarantined / (written + quarantined) is larger."""
    class_names: str = setting("", Affects.INPUT, Topic.INPUT, kinds.FILE, Condition.STORED_CLASSES)
    """File with the class names in id order; images of other classes are quarantined."""
    dedupe: str = setting("none", Affects.REFERENCE, Topic.SELECTION, kinds.one_of("none", "exact", "near"))
    """exact: keep only the smallest key of files with equal bytes; near: keep only the largest of images
    that look alike, as validate --quality finds them."""
    max_per_class: int = setting(0, Affects.REFERENCE, Topic.SELECTION, kinds.COUNT)
    """Convert at most the N images of each class with the lowest hashes (0: all)."""
    limit: int = setting(0, Affects.REFERENCE, Topic.SELECTION, kinds.COUNT)
    """Convert only the N images with the lowest hashes (0: all)."""
    verify: str = setting("fast", Affects.RUN, Topic.SAFETY, kinds.one_of("fast", "full", "quality", "none"))
    """fast: framing, CRCs, counts, checksums; full: also decode every image; quality: also image
    statistics."""
    plan_from: str = setting("", Affects.INPUT, Topic.SPLITS, kinds.FILE)
    """Reuse the plan of this dataset.json: settings, labels and shard counts."""
    overwrite: bool = setting(
        False,
        Affects.RUN,
        Topic.RUNNING,
        kinds.SWITCH,
        not_for_rebuilds="a rebuild replaces nothing; it writes a new version and then switches the pointer",
    )
    """Replace the dataset at --output."""
    resume: bool = setting(
        False,
        Affects.RUN,
        Topic.RUNNING,
        kinds.SWITCH,
        not_for_rebuilds="a rebuild always continues an interrupted run",
    )
    """Finish an interrupted run."""

    @cached_property
    def parsed_splits(self) -> dict[str, Any]:
        """Split shares as exact fractions, in the order given."""
        return units.parse_splits(self.splits)

    @property
    def divides_buckets(self) -> bool:
        """Whether splits get buckets of hashes, because a group or an image may have several classes."""
        has_groups = self.split_by or self.group_column or "(?P<group>" in self.label_regex
        return self.split_mode == "stratified" and bool(has_groups or self.label_separator)

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

    @cached_property
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
        return kinds.parse_drop(self.drop)

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
        names = {column.name for column in named}
        given = parse_extra_columns(self.extra_columns)
        return (*named, *(column for column in given if column.name not in names))

    def option_of(self, column: ExtraColumn) -> str:
        """Returns the origin of an extra column for messages: an option, or the layout."""
        layout = layout_by_name(self.layout)
        named = any(item.name == column.name for item in layout.columns)
        return f"{f'--layout {layout.name}, column' if named else '--extra_columns'} {printable(column.name)}"

    @cached_property
    def record_layout(self) -> Layout:
        """The layout of the records, with the extra columns' features."""
        return extended(
            layout_by_name(self.layout),
            parse_extra_columns(self.extra_columns),
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
          UsageError: If a setting is wrong; the message names the first one and what to write instead.
        """
        for name, item in CONVERT_SETTINGS.items():
            item.check_option(getattr(self, name))
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
        shards = units.parse_shards(self.shards) if self.shards else 0
        unknown = sorted(shards.keys() - self.parsed_splits.keys()) if isinstance(shards, dict) else ()
        if unknown and self.splits != "train=1":
            raise UsageError(
                f"--shards {self.shards}: there is no split {unknown[0]!r}; "
                f"--splits names {', '.join(self.parsed_splits)}."
            )
        self._check_split_mode()
        self._check_pixels()

    def _check_split_mode(self) -> None:
        """Checks that images have a class if each split should get its share of every class.

        Raises:
          UsageError: If they have none, there are too many splits, or the layout needs folds.
        """
        layout = self.record_layout
        if FeatureRole.FOLD in layout.by_role and not self.folds:
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
        """Checks that the stored format can hold the pictures, and that readers can know their shape.

        Raises:
          UsageError: If they cannot, or the layout stores raw pixels and another format is given.
        """
        layout = self.record_layout
        if layout.pixels and self.image_format not in ("", "raw"):
            raise UsageError(
                f"--image_format {self.image_format}: layout {layout.name} stores bare pixels; choose "
                "--image_format raw, or a layout of image files."
            )
        self._check_depth()
        longest = MAX_STORED_SIDE.get(self.stored_format)
        may_be_smaller = self.fit == "contain" or self.map
        if self.target and longest and max(self.target) > longest and not may_be_smaller:
            raise UsageError(
                f"--resize {self.resize}: {self.stored_format} holds at most {longest:,} pixels a side; "
                "choose a smaller size, or --image_format png."
            )
        if self.stored_format != "raw" or self.states_dtype:  # records state the shape of such pixels
            return
        if not layout.stores_size and not self.has_one_size:
            raise UsageError(
                f"--layout {layout.name}: its records have bare pixels and do not store their size; choose "
                f"one size for all with --resize, and --fit {units.listed(SAME_SIZE_FITS, before_last='or')}."
            )
        if self.color == "keep" and not (self.resize and layout.stores_channels):
            raise UsageError(
                "--color keep: bare pixels would have different numbers of channels; choose --color rgb "
                "or gray."
            )

    def _check_depth(self) -> None:
        """Checks that the stored format and the other settings allow the type and number of channels.

        Raises:
          UsageError: If they do not.
        """
        if self.channels and self.image_format not in ("", "raw"):
            raise UsageError(
                f"--image_format {self.image_format}: pictures of {self.channels} channels (--channels) are "
                "stored as raw pixels; choose --image_format raw."
            )
        if self.depth == "keep" and self.image_format in ("jpeg", "webp"):
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
        if FeatureRole.DTYPE in self.record_layout.by_role and not self.states_dtype:
            raise UsageError(
                f"Layout {self.record_layout.name} stores the type of each image's samples, which is always "
                "uint8 here; add --depth keep, or drop the feature with fill: dtype."
            )
        tensors = [spec.name for spec in self.record_layout.features if spec.holds_pixels]
        option = f"--channels {self.channels}" if self.channels else "--depth keep"
        if tensors and self.states_dtype:
            raise UsageError(
                f"--layout {self.record_layout.name}: its feature {tensors[0]!r} is a tensor of type uint8; "
                f"store the pixels without `tensor: true`, or leave {option} out."
            )
        if self.map and self.states_dtype:
            raise UsageError(
                f"--map {self.map} receives pictures with 8 bits per channel, gray or RGB; leave {option} "
                "out, or leave --map out."
            )

    def identity(self) -> dict[str, Any]:
        """The settings that can change a byte of the dataset, in canonical form."""
        values: dict[str, Any] = {name: getattr(self, name) for name in settings_that_affect(*RECORDED)}
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


#: Default share of the shards that a rebuild reads again: all of them in 30 runs.
DEFAULT_SCRUB = 1 / 30


@dataclass(frozen=True)
class RebuildSettings:
    """The settings that only a rebuild has."""

    keep: int = setting(5, Affects.RUN, Topic.RUNNING, kinds.VERSIONS)
    """Number of published versions to keep, 0 for all; the latest version and pinned versions always stay."""
    keep_days: float = setting(0.0, Affects.RUN, Topic.RUNNING, kinds.DAYS)
    """Younger versions also stay, in days."""
    verify_sources: bool = setting(False, Affects.RUN, Topic.RUNNING, kinds.SWITCH)
    """Read and hash every source instead of trusting its size and time."""
    scrub: float = setting(DEFAULT_SCRUB, Affects.RUN, Topic.RUNNING, kinds.PART)
    """Share of the latest version's shards to read again, such as 0.1, or 1 for all; damaged shards are
    rebuilt from the source (default: 1/30, which reads all within 30 nights)."""
    lease_minutes: float = setting(60.0, Affects.RUN, Topic.RUNNING, kinds.MINUTES)
    """Minutes without a sign of life after which another run takes over."""


#: The settings of a conversion, by name.
CONVERT_SETTINGS = settings_of(ConvertSettings)
#: The settings of a rebuild, by name: those of a conversion, and its own.
REBUILD_SETTINGS = {**CONVERT_SETTINGS, **settings_of(RebuildSettings)}
#: Settings of a conversion that a rebuild does not accept -> the reason.
NOT_FOR_REBUILDS = {
    name: item.not_for_rebuilds for name, item in CONVERT_SETTINGS.items() if item.not_for_rebuilds
}


def settings_that_affect(*what: Affects) -> tuple[str, ...]:
    """Returns the names of the settings that decide something."""
    return tuple(name for name, item in CONVERT_SETTINGS.items() if item.affects in what)


def settings_from(values: Mapping[str, Any], carried: Mapping[str, Any] | None = None) -> ConvertSettings:
    """Builds settings from given values; a carried plan and the defaults supply the others.

    Args:
      values: Given settings, by name; YAML's own types are accepted.
      carried: `settings` of the `dataset.json` named by `plan_from`.

    Raises:
      UsageError: If a name is unknown or a value has the wrong type.
    """
    carried = carried or {}
    merged: dict[str, Any] = {}
    for origin in (carried, values):
        for name, value in origin.items():
            if name not in CONVERT_SETTINGS:
                where = "" if name in values else "--plan_from: "
                raise UsageError(
                    f"{where}unknown setting {name!r}{nearest(name, list(CONVERT_SETTINGS)) or '.'}"
                )
            merged[name] = CONVERT_SETTINGS[name].stored(value)
    if values.get("shards") and values.get("shard_size"):
        raise UsageError("--shards and --shard_size both choose the number of shards: leave one out.")
    if "image_format" not in values:
        # A plan records the default as a format, but what is given now may change the default.
        recorded = {name: CONVERT_SETTINGS[name].stored(value) for name, value in carried.items()}
        before = replace(ConvertSettings(), **recorded)
        if before.stored_format == replace(before, image_format="").stored_format:
            merged.pop("image_format", None)
    if "shard_size" in values and "shards" not in values:
        merged.pop("shards", None)
    return replace(ConvertSettings(), **merged)


def settings_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merges settings of two origins; if two exclude each other, those in `above` win."""
    below = dict(below)
    for name, other in (("shards", "shard_size"), ("overwrite", "resume")):
        if is_on(above.get(name)):
            below.pop(other, None)
        if is_on(above.get(other)):
            below.pop(name, None)
    return {**below, **above}


def is_on(value: Any) -> bool:
    """Returns whether a setting that may be empty or a switch is given and on."""
    return bool(value) and str(value).lower() not in ("false", "no")
