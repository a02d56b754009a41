"""Settings without an effect are reported. Every setting has a condition, which matches the sources' use."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace

import numpy as np
import pytest
from helpers.repository import ROOT

from shardwright.core.sources import image_files
from shardwright.core.sources.source import all_sources
from shardwright.core.sources.unused_settings import (
    ConversionFacts,
    given_names,
    has_effect,
    without_effect,
)
from shardwright.schemas.configuration.kinds import SOURCES
from shardwright.schemas.configuration.setting import Condition
from shardwright.schemas.configuration.settings import CONVERT_SETTINGS, ConvertSettings
from shardwright.schemas.plan import SplitsFrom

SPLITS = "train=0.8,test=0.2"


def judged(
    *names: str,
    source: str = "class_folders",
    late: SplitsFrom | None = None,
    metadata: bool = False,
    **values: object,
) -> str:
    settings = replace(ConvertSettings(), **values)  # type: ignore[arg-type]
    listed = ConversionFacts(settings, frozenset({source}), late, metadata)
    before = replace(listed, splits_from=None) if late else None
    return "\n".join(without_effect(names, listed, before))


def used_by(name: str) -> set[str]:
    """Returns the sources that declare the use of a setting."""
    return {source.name for source in all_sources() if name in source.settings | source.metadata_settings}


def test_sources_use_exactly_the_settings_that_need_a_source() -> None:
    needing = {name for name, item in CONVERT_SETTINGS.items() if Condition.SOURCE in item.needs}
    used = {name for source in all_sources() for name in source.settings | source.metadata_settings}
    assert used == needing and "label_regex" in needing


@pytest.mark.parametrize("name", sorted(CONVERT_SETTINGS))
def test_every_setting_has_an_effect_somewhere(name: str) -> None:
    full = replace(
        ConvertSettings(),
        splits=SPLITS,
        resize="224",
        image_format="keep",
        layout="detection",
        label_regex="",
    )
    layouts = (full, replace(full, layout="classification"))
    cases = [ConversionFacts(settings, frozenset({source})) for settings in layouts for source in SOURCES]
    assert any(has_effect(name, known) for known in cases)


def test_the_sources_use_the_settings_in_the_table() -> None:
    """A module uses a setting if it reads it itself, or with a helper of its package or for records."""
    folder = ROOT / "core" / "sources"
    texts = {}
    for source in SOURCES:
        path = folder / source
        files = path.rglob("*.py") if path.is_dir() else [folder / f"{source}.py"]
        texts[source] = "".join(file.read_text() for file in files)
        if re.search(r"tables\.rows import .*\bSETTINGS\b", texts[source]):
            texts[source] += (folder / "tables" / "rows.py").read_text()
        if "with_metadata" in texts[source] or "add_metadata" in texts[source]:
            texts[source] += (folder / "files_beside.py").read_text()
        for module in re.findall(r"core\.records\.(images|values) import", texts[source]):
            texts[source] += (ROOT / "core" / "records" / f"{module}.py").read_text()
        if re.search(r"\blabelled\(", texts[source]):
            texts[source] += inspect.getsource(image_files.labelled)
    for name in ("mask_dir", "pixel_shape", "label_separator"):
        reading = {source for source, text in texts.items() if re.search(rf"settings\.{name}\b", text)}
        assert used_by(name) == reading, name
    assert used_by("label_depth") == used_by("folders")
    assert used_by("image_root") == {source for source, text in texts.items() if "image_root" in text}


@pytest.mark.parametrize(
    ("name", "without", "having"),
    [
        ("fit", {}, {"resize": "224"}),
        ("resample", {}, {"resize": "224"}),
        ("quality", {"image_format": "png"}, {"image_format": "webp"}),
        ("quality", {"image_format": "raw", "resize": "8"}, {}),
        ("strip_metadata", {"resize": "224"}, {"image_format": "keep"}),
        ("color", {"channels": 4}, {}),
        ("bad_boxes", {}, {"layout": "detection"}),
        ("unlabelled", {"layout": "detection"}, {}),
        ("split_by", {}, {"splits": SPLITS}),
        ("extra_columns", {}, {"source": "manifest"}),
        ("extra_columns", {}, {"source": "tfrecord"}),
        ("image_root", {}, {"source": "coco"}),
        ("mask_dir", {}, {"source": "semantic_masks"}),
        ("label_regex", {}, {"source": "file_names"}),
        ("label_column", {"source": "coco"}, {"source": "manifest"}),
        ("split_column", {}, {"source": "manifest"}),
        ("group_column", {"source": "manifest"}, {"source": "manifest", "splits": SPLITS}),
        ("group_column", {"splits": SPLITS}, {"source": "manifest", "splits": SPLITS}),
        ("sha256_column", {"source": "webdataset"}, {"source": "manifest"}),
        ("image_column", {"source": "tfrecord"}, {"source": "arrays"}),
        ("label_separator", {}, {"source": "arrays"}),
        ("label_column", {}, {"metadata": True}),
        ("extra_columns", {}, {"source": "archives"}),
        ("label_depth", {"source": "voc"}, {"source": "archives"}),
        ("pixel_shape", {}, {"source": "arrays"}),
    ],
)
def test_a_setting_has_an_effect_only_under_its_conditions(
    name: str, without: dict[str, str], having: dict[str, str]
) -> None:
    def sentence(values: dict[str, str]) -> str:
        return judged(name, **{"source": "class_folders", **values})  # type: ignore[arg-type]

    assert sentence(without).startswith(f"--{name} has no effect ") and sentence(without).endswith(".")
    assert sentence(having) == ""


def test_sentences_name_the_missing_condition() -> None:
    assert judged("fit") == "--fit has no effect without --resize."
    assert judged("mask_dir") == (
        "--mask_dir has no effect on inputs that are read as class_folders; only semantic_masks, coco and "
        "voc can use it."
    )


def test_conditions_of_the_listing_are_reported_after_it_and_only_once() -> None:
    assert judged("splits", "fit", splits=SPLITS) == "--fit has no effect without --resize."
    named = judged("splits", "split_by", "fit", splits=SPLITS, late=SplitsFrom.SOURCE)
    assert named.splitlines() == [
        "--split_by has no effect because the source names the split of every image.",
        "--splits has no effect because the source names the split of every image.",
    ]
    for drawn in (SplitsFrom.HASH, SplitsFrom.BOTH):
        assert judged("splits", "split_by", splits=SPLITS, late=drawn) == ""
    assert judged("split_by", late=SplitsFrom.SOURCE) == ""  # reported before: there is only one split


def test_a_background_that_no_image_shows_is_reported_at_the_end() -> None:
    before = ConversionFacts(ConvertSettings(), frozenset({"class_folders"}))
    shown = [
        list(without_effect(["background", "fit"], replace(before, on_background=count), before))
        for count in (None, 0, 3)
    ]
    sentence = (
        "--background has no effect because no image was padded or has transparent pixels that were filled."
    )
    assert shown == [[], [sentence], []]


def test_only_values_that_request_something_count_as_given() -> None:
    values = {"fit": "pad", "resize": "", "limit": 0, "overwrite": False, "input": ["x"], "resume": "false"}
    assert given_names({**values, "seed": np.int64(3)}) == {"fit", "input", "seed"}
