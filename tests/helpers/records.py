"""Shared code for the tests of the sources: reads datasets with TensorFlow, and checks their ledgers."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from helpers.fewer_imports import late
from helpers.tensorflow_records import read_records

tf = late("tensorflow")


def examples(dataset: Path | str) -> dict[str, list[tf.train.Example]]:
    """Returns every record of every split, as TensorFlow parses it."""
    root = Path(dataset)
    document = json.loads((root / "dataset.json").read_text())
    compression = document["settings"]["compression"]
    return {
        split: [
            tf.train.Example.FromString(record)
            for record in read_records((root / shard["file"] for shard in content["shards"]), compression)
        ]
        for split, content in document["splits"].items()
    }


def picture(example: tf.train.Example, name: str, place: int = 0) -> np.ndarray:
    """Returns a picture that a feature encodes."""
    return np.asarray(Image.open(io.BytesIO(example.features.feature[name].bytes_list.value[place])))


def value(example: tf.train.Example, name: str) -> Any:
    """Returns the only value of a feature, texts as `str`."""
    (found,) = values(example, name)
    return found


def values(example: tf.train.Example, name: str) -> list[Any]:
    """Returns the values of a feature, as `str` if they are UTF-8."""
    feature = example.features.feature[name]
    found = list(getattr(feature, feature.WhichOneof("kind") or "bytes_list").value)
    return [_text(item) if isinstance(item, bytes) else item for item in found]


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def by_key(dataset: Path | str) -> dict[str, tf.train.Example]:
    """Returns every record by its key."""
    return {value(item, "image/filename"): item for split in examples(dataset).values() for item in split}


def labels_by_key(dataset: Path | str) -> dict[str, str]:
    """Returns key -> class name of every record."""
    return {key: value(example, "image/class/text") for key, example in by_key(dataset).items()}


def quarantine(dataset: Path | str) -> dict[str, dict[str, str]]:
    """Returns key -> line of `quarantine.jsonl`."""
    lines = (Path(dataset) / "quarantine.jsonl").read_text().splitlines()
    return {entry["key"]: entry for entry in map(json.loads, lines)}
