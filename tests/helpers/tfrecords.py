"""Writes TFRecord files and reads datasets with TensorFlow, for tests."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from helpers.fewer_imports import late
from helpers.hostile import check_books, picture
from helpers.listing import listed
from helpers.pictures import file_of
from helpers.repository import PHOTOS
from helpers.tensorflow_records import COMPRESSION, read_records
from shardwright.pipelines.convert import convert
from shardwright.schemas.ledger import written_entries

tf = late("tensorflow")


SUFFIX = {"none": "", "gzip": ".gz", "zlib": ".zlib"}


def feature(value: Any) -> Any:
    """Returns a value or a list as a tf.train.Feature."""
    values = list(value) if isinstance(value, list | tuple) else [value]
    if values and isinstance(values[0], bytes | str):
        values = [item.encode() if isinstance(item, str) else item for item in values]
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if values and isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def example(features: Mapping[str, Any]) -> bytes:
    """Returns a serialized tf.train.Example."""
    made = {name: feature(value) for name, value in features.items()}
    data: bytes = tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString()
    return data


def write(path: Path, records: Iterable[Mapping[str, Any] | bytes], compression: str = "none") -> Path:
    """Writes records with TensorFlow; returns the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path), COMPRESSION[compression]) as writer:
        for record in records:
            writer.write(record if isinstance(record, bytes) else example(record))
    return path


def png_of(pixels: np.ndarray) -> bytes:
    """Returns pixels as a PNG file."""
    return file_of(Image.fromarray(pixels), "PNG")


def features_of(data: bytes) -> dict[str, list[Any]]:
    """Returns the values of a serialized Example by feature."""
    message = tf.train.Example.FromString(data)
    return {
        name: list(getattr(entry, entry.WhichOneof("kind")).value) if entry.WhichOneof("kind") else []
        for name, entry in message.features.feature.items()
    }


def read(dataset: Path) -> dict[str, dict[str, Any]]:
    """Reads a dataset with TensorFlow; returns key in the ledger -> features of its record, and `split`."""
    found: dict[str, dict[str, Any]] = {}
    document = json.loads((dataset / "dataset.json").read_text())
    compression = document["settings"]["compression"]
    for split, content in document["splits"].items():
        for shard in content["shards"]:
            ledger = dataset / "_shards" / f"{shard['file'].partition('.tfrecord')[0]}.jsonl.gz"
            keys = [entry.key for entry in written_entries(ledger.read_bytes(), shard["sha256"])]
            records = read_records([dataset / shard["file"]], compression)
            for key, data in zip(keys, records, strict=True):
                assert key not in found
                found[key] = {**features_of(data), "split": split}
    return found


def records_in(path: Path, layout: str, **settings: Any) -> dict[str, dict[str, Any]]:
    """Converts an input without Beam; returns what `read` does."""
    found = listed(path, layout, path.parent, **settings)
    return {
        key: {**features_of(item.example), "split": found.refs[key].split}
        for key, item in found.converted().items()
        if item.example
    }


_JPEGS = [path.read_bytes() for path in sorted(PHOTOS.rglob("*.jpg"))]
JPEGS = [
    data
    for data in _JPEGS
    if Image.open(io.BytesIO(data)).mode == "RGB" and not Image.open(io.BytesIO(data)).getexif()
][:8]
PNG = picture(5, "PNG")


def converted(source: Path | str, output: Path, **settings: Any) -> Path:
    """Converts an input, by default into one shard per split; checks the ledgers."""
    convert(input=str(source), output=str(output), **{"shards": 1, "verify": "none", **settings})
    check_books(output)
    return output


def offsets_of(data: bytes) -> list[int]:
    """Returns the offsets of the records in an uncompressed file."""
    offsets, place = [], 0
    while place < len(data):
        offsets.append(place)
        place += int.from_bytes(data[place : place + 8], "little") + 16
    return offsets


def classified(number: int) -> dict[str, Any]:
    """Returns the features of a record about a picture, without its class."""
    return {"image/encoded": JPEGS[number], "image/format": "jpg", "image/height": 10, "image/width": 10}


def object_record(i: int) -> dict[str, Any]:
    """Returns an Object Detection API record with two objects."""
    return {
        **classified(i),
        "image/filename": f"{i}.jpg",
        "image/source_id": f"{i}.jpg",
        "image/object/bbox/xmin": [0.125, 0.5],
        "image/object/bbox/xmax": [0.5, 0.75],
        "image/object/bbox/ymin": [0.25, 0.0],
        "image/object/bbox/ymax": [0.5, 1.0],
        "image/object/class/text": ["dog", "cat"],
        "image/object/class/label": [7, 3],
        "image/object/is_crowd": [0, 1],
        "image/object/area": [100.0, 50.0],
        "image/object/difficult": [1, 0],
        "image/object/view": ["left", ""],
        "image/caption": ["a dog and a cat", "two"],
    }


def sized(record: dict[str, Any]) -> dict[str, Any]:
    """Returns a record with the true size of its picture."""
    width, height = Image.open(io.BytesIO(record["image/encoded"])).size
    return {**record, "image/width": width, "image/height": height}
