"""The settings of a conversion: one declaration for the command line, job files and notebooks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from typing import Any

from shardwright.schemas import units
from shardwright.schemas.columns import ExtraColumn, parse_extra_columns
from shardwright.schemas.errors import UsageError, nearest
from shardwright.schemas.image_ref import printable
from shardwright.schemas.layouts import Layout, extended, layout_by_name
from shardwright.schemas.side_files import check_split_names
from shardwright.schemas.units import FITS, SAME_SIZE_FITS

RESAMPLES = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")
IMAGE_FORMATS = ("keep", "jpeg", "png", "webp", "raw")
DAMAGED = ("quarantine", "keep")
COLORS = ("rgb", "gray", "keep")
#: What `--source` may name, in the order in which `auto` asks them: each is the module of that name
#: in `transforms/sources/`.
SOURCES: Mapping[str, str] = {
    "file_names": "a folder whose file names say the class, taken apart by --label_regex",
    "semantic_masks": "a folder of images whose masks lie in --mask_dir under the same names",
    "box_table": "CSV with a row for each box, such as filename,width,height,class,xmin,ymin,xmax,ymax",
    "manifest": "CSV, TSV, JSON Lines or Parquet with a row for each image",
    "cvat": "CVAT's XML (CVAT for images 1.1), or a folder with it and the images",
    "labelme": "LabelMe: a JSON file for each image",
    "kitti": "KITTI: label_2/ and image_2/, in training/ or at the top",
    "cityscapes": "Cityscapes: leftImg8bit/ and gtFine/ or gtCoarse/",
    "coco": "COCO's JSON of instances, captions or panoptic segments, or a folder with it",
    "open_images": "Open Images' CSV of boxes, or a folder with it",
    "voc": "Pascal VOC: XML files in Annotations/ or beside the images",
    "yolo": "YOLO: data.yaml or a folder with it, or classes.txt with images and labels",
    "arrays": "images as arrays: MNIST's idx files, CIFAR's batches, .npy and .npz, with their labels",
    "webdataset": "tars with members KEY.jpg, KEY.cls, KEY.json, KEY.txt, or a folder of them",
    "archives": "a zip or a tar (gz, bz2, xz, zst too) with class folders inside, or a folder of them",
    "tfrecord": "TFRecord files: a dataset of Shardwright, or others with an image in each record",
    "class_folders": "a folder with one sub-folder per class",
}
COMPRESSIONS = ("none", "gzip", "zlib")
#: What the folders at the top of an input may be said to mean.
FOLDERS = ("auto", "classes", "splits", "ignore")
SUFFIXES = {"none": ".tfrecord", "gzip": ".tfrecord.gz", "zlib": ".tfrecord.zlib"}


def _setting(
    default: Any,
    help: str,
    *,
    check: Callable[[str], Any] | None = None,
    choices: Sequence[str] = (),
    metavar: str = "",
    identity: bool = True,
) -> Any:
    """Declares a setting.

    Args:
      default: its value, in the form in which a user writes it.
      help: what it does, for `--help`.
      check: raises ValueError on a wrong value; what it returns is not kept.
      choices: the values allowed, if they are few.
      metavar: the placeholder in `--help`.
      identity: whether it can change a byte of the dataset (and so is part of its plan).
    """
    return field(
        default=default,
        metadata={
            "help": help,
            "check": check,
            "choices": choices,
            "metavar": metavar,
            "identity": identity,
        },
    )


def _regex(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression ({error})") from None


def _check_splits(text: str) -> None:
    check_split_names(units.parse_splits(text))


def _label_regex(text: str) -> None:
    groups = _regex(text).groupindex
    if "label" not in groups:
        raise ValueError("it needs a group (?P<label>...) that matches the class")
    unknown = sorted(set(groups) - {"label", "split", "group"})
    if unknown:
        raise ValueError(f"group {unknown[0]!r} means nothing; name groups label, split or group")


def _opt(check: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: check(text) if text != "" else None


@dataclass(frozen=True)
class ConvertSettings:
    """All that `convert` and `plan` can be told. Values are in the form in which users write them;
    the properties below give them parsed. `check()` is called before anything is written."""

    input: tuple[str, ...] = _setting(
        (),
        "a folder, file or archive with images or what names them; repeatable; NAME=PATH prefixes "
        "the keys with NAME/",
        metavar="PATH",
        identity=False,
    )
    output: str = _setting("", "the dataset directory to write", metavar="DIR", identity=False)
    source: str = _setting(
        "auto", "what the input is; auto looks and says what it takes it for", choices=("auto", *SOURCES)
    )
    layout: str = _setting(
        "classification",
        "the record layout: one of those that `shardwright layouts` lists, or a file LAYOUT.yaml",
        metavar="NAME|FILE",
    )
    image_root: str = _setting(
        "",
        "where the relative paths of a manifest or an annotation file begin; default its own folder",
        metavar="PATH",
        identity=False,
    )
    mask_dir: str = _setting(
        "",
        "a folder with a mask for each image, under the same name",
        metavar="PATH",
        identity=False,
    )
    confine: bool = _setting(
        False,
        "read no image or mask outside of an input's own folder or bucket, --image_root and --mask_dir, "
        "wherever a manifest, an annotation file or a symbolic link leads",
        identity=False,
    )
    image_column: str = _setting("", "of a manifest, with the images' paths", metavar="NAME")
    label_column: str = _setting("", "of a manifest, with the class names or numbers", metavar="NAME")
    split_column: str = _setting("", "of a manifest, with the splits", metavar="NAME")
    group_column: str = _setting("", "of a manifest: what must not straddle two splits", metavar="NAME")
    sha256_column: str = _setting("", "of a manifest, with the files' checksums", metavar="NAME")
    extra_columns: str = _setting(
        "",
        "columns to store as features: price:float,tags:string[] (bool, enum, int32, uint32, int64, uint64, "
        "float, double, string or bytes)",
        check=_opt(parse_extra_columns),
        metavar="NAME:TYPE,...",
    )
    label_separator: str = _setting(
        "", "between the classes of an image that has several, such as |", metavar="TEXT"
    )
    label_regex: str = _setting(
        "",
        "takes file names apart: '(?P<label>[a-z]+)\\d+\\.jpg'; also (?P<split>...) and (?P<group>...)",
        check=_opt(_label_regex),
        metavar="REGEX",
    )
    label_depth: str = _setting(
        "1",
        "how many folders make a class name: 1, or 2 for animals/cat, 3, ..., all, or last for the innermost",
        check=units.parse_label_depth,
        metavar="N|all|last",
    )
    folders: str = _setting(
        "auto",
        "what the folders at the top are: classes; splits (those named train, validation, test, ..., with or "
        "without class folders inside; the rest is left out); ignore (they say nothing of the images); auto "
        "looks, and fails if they could be either",
        choices=FOLDERS,
    )
    unlabelled: str = _setting(
        "quarantine",
        "images without a class: left out, or kept with label -1",
        choices=("quarantine", "keep"),
    )
    rename_labels: str = _setting(
        "", "old=new,... or a file with one old=new on a line", metavar="OLD=NEW,..."
    )
    keep_labels: str = _setting(
        "",
        "a file with the class names to keep, after renaming; images of others are filtered",
        metavar="FILE",
        identity=False,
    )
    bad_boxes: str = _setting(
        "drop",
        "boxes outside of the image, inverted, empty or without a class: drop them, clip what can "
        "be clipped, or fail the image",
        choices=("drop", "clip", "fail"),
    )
    missing_annotations: str = _setting(
        "fail",
        "images without an annotation file of their own, such as VOC's XML or LabelMe's JSON: fail them, "
        "or store them as empty, without objects (YOLO always does)",
        choices=("fail", "empty"),
    )
    pixel_shape: str = _setting(
        "",
        "of bare pixels that do not say it: 32x32x3 (height, width, channels)",
        check=_opt(units.parse_pixel_shape),
        metavar="HxWxC",
    )
    splits: str = _setting(
        "train=1",
        "shares such as train=0.8,validation=0.1,test=0.1; ignored where the source names the splits",
        check=_check_splits,
        metavar="NAME=SHARE,...",
    )
    split_by: str = _setting(
        "",
        "a regular expression on the key: images with the same first group (or match) stay in one split",
        check=_regex,
        metavar="REGEX",
    )
    seed: int = _setting(
        0,
        "of the hashes that place every image",
        check=partial(units.parse_int, low=0, high=2**63 - 1),
        metavar="N",
    )
    shard_size: str = _setting(
        "128MB", "bytes per shard to aim at (MB = 10^6)", check=units.parse_size, metavar="SIZE"
    )
    shards: str = _setting(
        "",
        "a fixed number of shards: 8 (in each split) or train=8,test=1",
        check=_opt(units.parse_shards),
        metavar="N",
    )
    compression: str = _setting("none", "of the shards", choices=COMPRESSIONS)
    resize: str = _setting(
        "", "target size in pixels: 224 (= 224x224) or WxH", check=_opt(units.parse_resize), metavar="WxH"
    )
    fit: str = _setting(
        "stretch", "how a picture meets the target size (Pillow's ImageOps terms)", choices=FITS
    )
    resample: str = _setting("bilinear", "the resampling filter", choices=RESAMPLES)
    image_format: str = _setting(
        "",
        "of the stored images; default jpeg when resizing, else keep (the original bytes "
        "whenever nothing has to change)",
        choices=IMAGE_FORMATS,
    )
    quality: int = _setting(
        95, "of JPEG (4:2:0) and WebP, 1 to 100", check=partial(units.parse_int, low=1, high=100), metavar="Q"
    )
    color: str = _setting("rgb", "channels: rgb, gray, or keep grey pictures grey", choices=COLORS)
    background: str = _setting(
        "white",
        "colour under transparent pixels and around padded pictures",
        check=units.parse_color,
        metavar="COLOR",
    )
    strip_metadata: bool = _setting(False, "kept originals lose EXIF, GPS and comments")
    damaged: str = _setting(
        "quarantine",
        "what to do with an image whose decoder reports missing or damaged data: leave it out, or keep "
        "the pixels that the decoder makes up",
        choices=DAMAGED,
    )
    max_pixels: int = _setting(
        89_478_485,
        "width x height above which an image is quarantined unread (Pillow's limit)",
        check=partial(units.parse_int, low=1, high=2**31 - 1),
        metavar="N",
    )
    max_bytes: str = _setting(
        "256MB",
        "source size above which an image is quarantined unread",
        check=units.parse_size,
        metavar="SIZE",
    )
    max_bad_fraction: float = _setting(
        0.01,
        "quarantined / (written + quarantined) above which nothing is published",
        check=units.parse_fraction,
        metavar="SHARE",
        identity=False,
    )
    dedupe: str = _setting(
        "none", "exact: of files with equal bytes only the smallest key stays", choices=("none", "exact")
    )
    class_names: str = _setting(
        "", "a file with the class names in id order; others are quarantined", metavar="FILE", identity=False
    )
    limit: int = _setting(
        0,
        "take only the N images with the lowest hashes (0: all)",
        check=partial(units.parse_int, low=0, high=2**63 - 1),
        metavar="N",
    )
    verify: str = _setting(
        "fast",
        "of what was written: framing, CRCs, counts and checksums; every picture decoded; its looks, too",
        choices=("fast", "full", "quality", "none"),
        identity=False,
    )
    plan_from: str = _setting(
        "",
        "carry on the plan of this dataset.json: settings, labels and shard counts",
        metavar="FILE",
        identity=False,
    )
    overwrite: bool = _setting(False, "replace what stands at --output", identity=False)
    resume: bool = _setting(False, "finish a run that was cut off", identity=False)

    @cached_property
    def parsed_splits(self) -> dict[str, Any]:
        """Split shares as exact fractions, in the order given."""
        return units.parse_splits(self.splits)

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
        if self.record_layout.pixels:
            return "raw"
        return self.image_format or ("jpeg" if self.resize else "keep")

    @cached_property
    def background_rgb(self) -> tuple[int, int, int]:
        """The background colour, 0 to 255 per channel."""
        return units.parse_color(self.background)

    @cached_property
    def max_source_bytes(self) -> int:
        """`max_bytes` in bytes."""
        return units.parse_size(self.max_bytes)

    @cached_property
    def parsed_extra_columns(self) -> tuple[ExtraColumn, ...]:
        """The columns to store as features, those that the layout names first."""
        named = layout_by_name(self.layout).columns
        known = {column.name for column in named}
        return (*named, *(column for column in self._option_columns if column.name not in known))

    def option_of(self, column: ExtraColumn) -> str:
        """Returns what asks for an extra column, for messages: an option, or the layout."""
        layout = layout_by_name(self.layout)
        named = any(item.name == column.name for item in layout.columns)
        return f"{f'--layout {layout.name}, column' if named else '--extra_columns'} {printable(column.name)}"

    @property
    def _option_columns(self) -> tuple[ExtraColumn, ...]:
        return parse_extra_columns(self.extra_columns)

    @cached_property
    def record_layout(self) -> Layout:
        """The layout of the records, with the extra columns' features."""
        return extended(layout_by_name(self.layout), self._option_columns, bool(self.label_separator))

    @property
    def suffix(self) -> str:
        """The file name suffix of a shard."""
        return SUFFIXES[self.compression]

    def check(self) -> None:
        """Checks every value and how they go together.

        Raises:
          UsageError: naming the first setting that is wrong and what to write instead.
        """
        for item in fields(self):
            self.check_one(item.name)
        if not self.input:
            raise UsageError("--input is missing; name a folder of images.")
        _ = self.record_layout  # raises if extra columns do not go with it
        if self.label_regex and self.folders_of_label != 1:
            raise UsageError(
                f"--label_depth {self.label_depth} makes class names of folders and --label_regex of whole "
                "paths: leave one of them out."
            )
        if self.label_regex and self.folders != "auto":
            raise UsageError(
                f"--folders {self.folders} says what folders mean and --label_regex takes whole paths apart: "
                "leave one of them out."
            )
        if self.overwrite and self.resume:
            raise UsageError(
                "--overwrite begins anew and --resume goes on with what was cut off, an --overwrite "
                "too: leave one of them out."
            )
        if self.shards and isinstance(units.parse_shards(self.shards), dict):
            unknown = set(units.parse_shards(self.shards)) - set(self.parsed_splits)  # type: ignore[arg-type]
            if unknown and self.splits != "train=1":
                raise UsageError(
                    f"--shards {self.shards}: there is no split {sorted(unknown)[0]!r}; "
                    f"--splits names {', '.join(self.parsed_splits)}."
                )
        self._check_pixels()

    def check_one(self, name: str) -> None:
        """Checks the value of one setting, whatever the others are.

        Raises:
          UsageError: if it is wrong, saying what to write instead.
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

    def _check_pixels(self) -> None:
        """Checks that readers can tell the shape of bare pixels.

        Raises:
          UsageError: if they could not, or the layout wants pixels and another format is asked for.
        """
        layout = self.record_layout
        if layout.pixels and self.image_format not in ("", "raw"):
            raise UsageError(
                f"--image_format {self.image_format}: layout {layout.name} stores bare pixels; leave "
                "--image_format out, or choose a layout of image files."
            )
        if self.stored_format != "raw":
            return
        if not layout.says_size and not (self.resize and self.fit in SAME_SIZE_FITS):
            raise UsageError(
                f"--layout {layout.name}: records with bare pixels do not say their size there; choose "
                f"one for all with --resize (and --fit {', '.join(SAME_SIZE_FITS)})."
            )
        if self.color == "keep" and not (self.resize and layout.says_channels):
            raise UsageError(
                "--color keep: the number of channels of bare pixels varies then; choose --color rgb or gray."
            )

    def identity(self) -> dict[str, Any]:
        """The settings that can change a byte of the dataset, in canonical form."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.metadata["identity"]}
        values["splits"] = ",".join(f"{name}={share}" for name, share in self.parsed_splits.items())
        values["label_depth"] = self.label_depth.strip()
        values["shard_size"] = units.parse_size(self.shard_size)
        values["max_bytes"] = self.max_source_bytes
        values["resize"] = "x".join(map(str, self.target)) if self.target else ""
        values["image_format"] = self.stored_format
        values["background"] = "#{:02x}{:02x}{:02x}".format(*self.background_rgb)
        return values
