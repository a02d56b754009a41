"""Which setting needs what to have an effect. What has none is reported, never left out in silence.

Every setting stands in `EFFECTS`. `docs/converting.md` explains the settings themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from shardwright.schemas.layouts import Fill, Needs
from shardwright.schemas.plan import SplitsFrom
from shardwright.schemas.settings import ConvertSettings


@dataclass(frozen=True)
class ConversionFacts:
    """What is known of a conversion when a setting is judged.

    Attributes:
      settings: all settings, with their defaults.
      sources: names of the sources that read the inputs.
      splits_from: what decides the splits; None before the inputs are listed.
      metadata: whether metadata files lie beside the images of class folders.
      on_background: number of images that show the background colour; None before they are converted.
    """

    settings: ConvertSettings
    sources: frozenset[str]
    splits_from: SplitsFrom | None = None
    metadata: bool = False
    on_background: int | None = None


class Effect(NamedTuple):
    """When a setting has an effect.

    Attributes:
      has_effect: whether it has one, or may have one as far as is known.
      otherwise: completes "--NAME has no effect" where it has none.
    """

    has_effect: Callable[[ConversionFacts], bool]
    otherwise: Callable[[ConversionFacts], str]


#: Sources of folders, where metadata files may lie beside the images.
_WITH_METADATA = ("archives", "class_folders")
#: Settings that say something of these files.
_OF_METADATA = ("label_column", "extra_columns", "label_separator")
#: Setting -> the sources that use it. `tests/schemas/test_effects.py` compares this with the sources.
OF_SOURCES: Mapping[str, tuple[str, ...]] = {
    "image_root": ("manifest", "box_table", "cvat", "labelme", "coco", "open_images", "voc"),
    "mask_dir": ("semantic_masks", "coco", "voc"),
    "image_column": ("manifest", "box_table", "arrays"),
    "label_column": (*("manifest", "box_table", "arrays", "webdataset"), *_WITH_METADATA),
    "split_column": ("manifest", "box_table"),
    "group_column": ("manifest",),
    "sha256_column": ("manifest",),
    "extra_columns": (*("manifest", "arrays", "webdataset", "tfrecord"), *_WITH_METADATA),
    "label_separator": (*("manifest", "cvat", "arrays", "webdataset", "tfrecord"), *_WITH_METADATA),
    "label_regex": ("file_names", "archives"),
    "label_depth": ("archives", "class_folders"),
    "folders": ("archives", "class_folders"),
    "pixel_shape": ("arrays", "tfrecord"),
    "missing_annotations": ("voc", "labelme", "kitti", "cityscapes"),
}


def _always(known: ConversionFacts) -> bool:
    return True


def _in_any_of(sources: tuple[str, ...], metadata: bool = False) -> Effect:
    """Returns the effect of a setting that some sources use.

    Args:
      sources: their names.
      metadata: whether class folders use it only if metadata files lie beside the images.
    """
    plainly = set(sources) - ({"class_folders"} if metadata else set())

    def has_effect(known: ConversionFacts) -> bool:
        return bool(known.sources & (set(sources) if known.metadata else plainly))

    def otherwise(known: ConversionFacts) -> str:
        read = _listed(sorted(known.sources), "and")
        text = f"on what is read as {read}; only {_listed(sources, 'and')} can use it"
        return f"{text} (class_folders if a .json lies beside every image)" if metadata else text

    return Effect(has_effect, otherwise)


def _needs(has_effect: Callable[[ConversionFacts], bool], otherwise: str) -> Effect:
    return Effect(has_effect, lambda known: otherwise)


def _both(first: Effect, second: Effect) -> Effect:
    """Returns the effect of a setting that needs two things."""
    return Effect(
        lambda known: first.has_effect(known) and second.has_effect(known),
        lambda known: (second if first.has_effect(known) else first).otherwise(known),
    )


def _listed(names: Iterable[str], word: str) -> str:
    *most, last = names
    return f"{', '.join(most)} {word} {last}" if most else last


_ALWAYS = _needs(_always, "")
_RESIZING = _needs(lambda known: bool(known.settings.resize), "without --resize")
_LOSSY = _needs(
    lambda known: known.settings.stored_format in ("keep", "jpeg", "webp"),
    "on images that are not stored as JPEG or WebP",
)
_KEEPING = _needs(
    lambda known: known.settings.stored_format == "keep",
    "unless the original bytes are kept (--image_format keep): re-encoded images have no metadata",
)
_OBJECTS = _needs(
    lambda known: any(str(fill).startswith("object_") for fill in _fills(known)),
    "with a layout that stores no objects",
)
_LABELLED = _needs(
    lambda known: known.settings.record_layout.needs is not Needs.OBJECTS,
    "with a layout of objects: images without objects are kept anyway",
)
_SEVERAL_SPLITS = _needs(
    lambda known: len(known.settings.parsed_splits) > 1,
    "without several --splits to keep a group together in",
)
_DRAWN_SPLITS = _needs(
    lambda known: known.splits_from is not SplitsFrom.SOURCE,
    "because the source names the split of every image",
)
_BACKGROUND = _needs(
    lambda known: known.on_background != 0,
    "because no image was padded or has transparent pixels that were filled",
)


def _fills(known: ConversionFacts) -> Iterable[Fill]:
    return known.settings.record_layout.by_fill()


EFFECTS: Mapping[str, Effect] = {
    **{name: _in_any_of(sources, name in _OF_METADATA) for name, sources in OF_SOURCES.items()},
    "group_column": _both(_in_any_of(OF_SOURCES["group_column"]), _both(_SEVERAL_SPLITS, _DRAWN_SPLITS)),
    "splits": _DRAWN_SPLITS,
    "split_by": _both(_SEVERAL_SPLITS, _DRAWN_SPLITS),
    "background": _BACKGROUND,
    "fit": _RESIZING,
    "resample": _RESIZING,
    "quality": _LOSSY,
    "strip_metadata": _KEEPING,
    "bad_boxes": _OBJECTS,
    "unlabelled": _LABELLED,
    # These count with every input.
    **dict.fromkeys(
        (
            "input", "output", "source", "layout", "confine", "rename_labels", "keep_labels", "seed",
            "shard_size", "shards", "compression", "resize", "image_format", "color", "damaged", "max_pixels",
            "max_bytes", "max_bad_fraction", "dedupe", "class_names", "limit", "verify", "plan_from",
            "overwrite", "resume",
        ),
        _ALWAYS,
    ),
}  # fmt: skip


def given_names(values: Mapping[str, Any]) -> frozenset[str]:
    """Returns the settings that were given; one that is empty or switched off asks for nothing.

    Args:
      values: of a command line, a job file or a notebook, by name.
    """
    return frozenset(
        name
        for name, value in values.items()
        if value not in ("", None, (), [], {}) and str(value).lower() not in ("false", "no", "0")
    )


def without_effect(
    given: Iterable[str], known: ConversionFacts, before: ConversionFacts | None = None
) -> Iterator[str]:
    """Yields a sentence for each given setting that has no effect, as far as that is known.

    Args:
      given: names of the settings that were given, in any order.
      known: what is known by now.
      before: what was known when such sentences were yielded last; None for the first time.
    """
    for name in sorted(given):
        effect = EFFECTS[name]
        if not effect.has_effect(known) and (before is None or effect.has_effect(before)):
            yield f"--{name} has no effect {effect.otherwise(known)}."
