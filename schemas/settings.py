"""The settings of a conversion: one declaration for the command line, job files and notebooks."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any

from shardwright.schemas import units
from shardwright.schemas.errors import UsageError
from shardwright.schemas.layouts import LAYOUTS

FITS = ("stretch", "contain", "cover", "fit", "pad")
RESAMPLES = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")
IMAGE_FORMATS = ("keep", "jpeg", "png", "webp", "raw")
COLORS = ("rgb", "gray", "keep")
SOURCES = ("auto", "class_folders")
COMPRESSIONS = ("none", "gzip", "zlib")
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


def _opt(check: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: check(text) if text != "" else None


@dataclass(frozen=True)
class ConvertSettings:
    """All that `convert` and `plan` can be told. Values are in the form in which users write them;
    the properties below give them parsed. `check()` is called before anything is written."""

    input: tuple[str, ...] = _setting(
        (),
        "a folder of images, with one sub-folder per class; repeatable; NAME=PATH prefixes "
        "the keys with NAME/",
        metavar="PATH",
        identity=False,
    )
    output: str = _setting("", "the dataset directory to write", metavar="DIR", identity=False)
    source: str = _setting("auto", "what the input is", choices=SOURCES)
    layout: str = _setting("classification", "the record layout", choices=tuple(LAYOUTS))
    splits: str = _setting(
        "train=1",
        "shares such as train=0.8,validation=0.1,test=0.1; ignored where the source names the splits",
        check=units.parse_splits,
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
        "of what was written: framing, CRCs, counts and checksums, or a whole validation",
        choices=("fast", "full", "none"),
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
    def target(self) -> tuple[int, int] | None:
        """The target box (width, height) in pixels, or None."""
        return units.parse_resize(self.resize) if self.resize else None

    @cached_property
    def stored_format(self) -> str:
        """The image format with its default resolved."""
        return self.image_format or ("jpeg" if self.resize else "keep")

    @cached_property
    def background_rgb(self) -> tuple[int, int, int]:
        """The background colour, 0 to 255 per channel."""
        return units.parse_color(self.background)

    @cached_property
    def max_source_bytes(self) -> int:
        """`max_bytes` in bytes."""
        return units.parse_size(self.max_bytes)

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
            value = getattr(self, item.name)
            choices = item.metadata["choices"]
            if choices and value not in choices and not (item.default == "" and value == ""):
                raise UsageError(
                    f"--{item.name} {value}: choose one of {', '.join(choices)}"
                    f"{nearest(str(value), choices) or '.'}"
                )
            if item.metadata["check"]:
                try:
                    item.metadata["check"](value)
                except ValueError as error:
                    raise UsageError(f"--{item.name} {value}: {error}.") from None
        if not self.input:
            raise UsageError("--input is missing; name a folder of images.")
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
        if self.image_format == "raw" and not self.resize and self.color == "keep":
            raise UsageError(
                "--image_format raw stores bare pixels; with --color keep their number of channels "
                "varies: choose --color rgb or gray."
            )

    def identity(self) -> dict[str, Any]:
        """The settings that can change a byte of the dataset, in canonical form."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.metadata["identity"]}
        values["splits"] = ",".join(f"{name}={share}" for name, share in self.parsed_splits.items())
        values["shard_size"] = units.parse_size(self.shard_size)
        values["max_bytes"] = self.max_source_bytes
        values["resize"] = "x".join(map(str, self.target)) if self.target else ""
        values["image_format"] = self.stored_format
        values["background"] = "#{:02x}{:02x}{:02x}".format(*self.background_rgb)
        return values


def setting_fields() -> dict[str, Any]:
    """Returns the dataclass fields of the settings by name."""
    return {item.name: item for item in fields(ConvertSettings)}


def nearest(name: str, known: Sequence[str]) -> str:
    """Returns `; did you mean X?` for the known name closest to a wrong one, or nothing."""
    match = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {match[0]}?" if match else ""


def settings_from(values: Mapping[str, Any], carried: Mapping[str, Any] | None = None) -> ConvertSettings:
    """Builds settings from what was given, over those of a carried plan, over the defaults.

    Args:
      values: settings given explicitly, by name; YAML's own types are accepted.
      carried: `settings` of the `dataset.json` named by `plan_from`.

    Raises:
      UsageError: if a name is unknown or a value has the wrong type.
    """
    known = setting_fields()
    merged: dict[str, Any] = {}
    for origin in (dict(carried or {}), dict(values)):
        for name, value in origin.items():
            if name not in known:
                where = "--plan_from: " if name in (carried or {}) and name not in values else ""
                raise UsageError(f"{where}unknown setting {name!r}{nearest(name, list(known)) or '.'}")
            merged[name] = _coerce(name, value, known[name].default)
    if "shards" in values and "shard_size" in values and values["shards"] and values["shard_size"]:
        raise UsageError("--shards and --shard_size both choose the number of shards: leave one out.")
    if carried and "resize" in values and "image_format" not in values:
        merged.pop("image_format", None)  # its default follows --resize
    if "shard_size" in values and "shards" not in values:
        merged.pop("shards", None)
    return replace(ConvertSettings(), **merged)


def _coerce(name: str, value: Any, default: Any) -> Any:
    """Brings a value from a job file, a notebook or a plan into the form of its setting."""
    if name == "input":
        return _coerce_input(value)
    if isinstance(default, bool):
        if isinstance(value, bool):
            return value
        if str(value).lower() in ("true", "false", "yes", "no"):
            return str(value).lower() in ("true", "yes")
        raise UsageError(f"--{name} {value}: write true or false.")
    if value is None:
        return default
    if isinstance(value, Mapping) and name in ("splits", "shards"):
        value = ",".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, list | tuple) and name == "resize":
        value = "x".join(str(item) for item in value)
    if isinstance(value, Mapping | list | tuple | set):
        raise UsageError(f"--{name} takes one value, not several: {value!r}.")
    if isinstance(default, int | float) and not isinstance(value, bool):
        try:
            number = type(default)(value)
        except (TypeError, ValueError, OverflowError):
            raise UsageError(f"--{name} {value}: {value!r} is no number.") from None
        if isinstance(value, float) and number != value and value == value:
            raise UsageError(f"--{name} {value}: {value!r} is no whole number.")
        return number
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def _coerce_input(value: Any) -> tuple[str, ...]:
    """Brings a path, several, or names with their paths into the form of `input`."""
    if isinstance(value, Mapping):
        value = [f"{key}={item}" for key, item in value.items()]
    if isinstance(value, str | os.PathLike):
        value = [value]
    if not isinstance(value, list | tuple) or not all(isinstance(v, str | os.PathLike) for v in value):
        raise UsageError(f"--input {value!r}: write one path or a list of paths.")
    return tuple(os.fspath(item) for item in value)
