"""Files by which other tools read a dataset; all but the samples of the card are functions of the dataset.

Readers choose the shards of a split by patterns such as `train*`. So at the top level of a dataset directory
only shards have names that begin with the name of a split.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import product

from shardwright.schemas import dataset as files
from shardwright.schemas.dataset import SAMPLES_JPG, Dataset
from shardwright.schemas.labels import labels_txt
from shardwright.schemas.layouts import Needs
from shardwright.schemas.sidecars.card import readme_md
from shardwright.schemas.sidecars.croissant import croissant_json
from shardwright.schemas.sidecars.parse_module import parse_py
from shardwright.schemas.sidecars.tfds import dataset_info_json, features_json
from shardwright.schemas.sidecars.tfx_schema import label_map_pbtxt, schema_pbtxt
from shardwright.schemas.version import CHECKS_DIR, DIFF_JSON, PINNED_JSON, VERSION_JSON

#: File name -> the text of the file, None if a dataset cannot have the file.
SIDECARS: Mapping[str, Callable[[Dataset], str | None]] = {
    files.README_MD: readme_md,
    files.LABELS_TXT: lambda dataset: labels_txt(dataset.classes) if _has_classes(dataset) else None,
    # A label map states no ids below 1.
    files.LABEL_MAP_PBTXT: lambda dataset: (
        label_map_pbtxt(dataset.classes)
        if _has_classes(dataset) and min(dataset.classes, default=1) >= 1
        else None
    ),
    "croissant.json": croissant_json,
    files.DATASET_INFO_JSON: dataset_info_json,
    "features.json": features_json,
    "parse.py": parse_py,
    "schema.pbtxt": schema_pbtxt,
}


def _has_classes(dataset: Dataset) -> bool:
    """Returns whether the layout of a dataset stores classes."""
    return dataset.record_layout.needs is not Needs.IMAGE


def with_sidecars(dataset: Dataset, samples: bytes = b"") -> tuple[Dataset, dict[str, bytes]]:
    """Adds the sidecars to a dataset.

    Args:
      dataset: The dataset. If it lists samples, they stay listed.
      samples: Picture for the card. Empty for none, or for the listed one.

    Returns:
      The dataset that lists its sidecars, and the new sidecars by file name.
    """
    listed = {SAMPLES_JPG: dataset.sidecars[SAMPLES_JPG]} if SAMPLES_JPG in dataset.sidecars else {}
    pictures = {SAMPLES_JPG: samples} if samples else {}
    dataset = replace(dataset, sidecars={**listed, **_digests(pictures)})
    texts = {name: make(dataset) for name, make in SIDECARS.items()}
    contents = {name: text.encode() for name, text in texts.items() if text is not None}
    return replace(dataset, sidecars={**dataset.sidecars, **_digests(contents)}), {**contents, **pictures}


def _digests(contents: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}


#: All files that Shardwright writes at the top level of a dataset directory besides the shards.
SIDE_FILES: tuple[str, ...] = tuple(
    sorted(
        (
            *(files.DATASET_JSON, files.FINDINGS_JSON, files.LOST_JSONL, files.QUARANTINE_JSONL),
            *(files.REPORT_HTML, files.RUN_JSON, files.STATISTICS_JSON, files.STATS_PB),
            *(DIFF_JSON, PINNED_JSON, VERSION_JSON),
            *(files.CARD_DIR, CHECKS_DIR, files.INDEX_DIR, files.SHARDS_DIR, files.WORK_DIR),
            *SIDECARS,
        )
    )
)


def check_split_names(splits: Collection[str]) -> None:
    """Checks that no side file begins with the name of a split, and that readers can tell splits apart.

    Raises:
      ValueError: If a split needs another name.
    """
    if len(splits) > 1 and "all" in splits:
        raise ValueError("split 'all' needs another name, because readers take it for all splits")
    for split, file in product(splits, SIDE_FILES):
        if file.startswith(split):
            raise ValueError(
                f"split {split!r} needs another name, because the pattern {split}* that selects its shards "
                f"would also match {file}"
            )
