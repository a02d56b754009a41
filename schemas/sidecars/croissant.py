"""`croissant.json`: the dataset in MLCommons' Croissant format 1.1, which catalogs of datasets read.

It describes the files (each shard with its size and sha256), the splits, the classes, and the features of a
record. The standard cannot describe how to read TFRecords, so there is no set of the records themselves, and
programs such as mlcroissant can read every set that there is. License, creators, home page, citation and date
of publication are those that the user states.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from shardwright.schemas.dataset import Dataset, pretty_json, sample_types
from shardwright.schemas.feature_roles import FeatureRole
from shardwright.schemas.layouts import Encoding, FeatureSpec
from shardwright.schemas.units import counted

CONFORMS_TO = "http://mlcommons.org/croissant/1.1"
#: Maximum number of shards to list with checksums, because readers take a millisecond for each. For more
#: shards, the file has only the patterns of their names; the checksums are in `dataset.json`.
MAX_LISTED_SHARDS = 10_000

_Json = dict[str, Any]

#: Terms of the standard that stand for themselves.
_TERMS = (
    "arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "extract", "field", "fileObject",
    "fileProperty", "fileSet", "format", "includes", "isArray", "isLiveDataset", "jsonPath", "key", "md5",
    "parentField", "path", "recordSet", "references", "regex", "repeated", "replace", "samplingRate",
    "separator", "source", "subField", "transform",
)  # fmt: skip
#: The prefixes and terms that every Croissant 1.1 file declares.
_CONTEXT: _Json = dict(sorted({
    "@language": "en",
    "@vocab": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
    **{term: f"cr:{term}" for term in _TERMS},
}.items()))  # fmt: skip
#: Name, description and type of a field of a set of records.
_Field: TypeAlias = tuple[str, str, str | list[str]]
_FORMATS = {
    "none": ["application/x-tfrecord"],
    "gzip": ["application/x-tfrecord", "application/gzip"],
    "zlib": ["application/x-tfrecord", "application/zlib"],
}
#: Descriptions of splits with usual names.
_SPLIT_URLS = {
    **dict.fromkeys(("train", "training"), "cr:TrainingSplit"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "cr:ValidationSplit"),
    **dict.fromkeys(("test", "testing"), "cr:TestSplit"),
}


def croissant_json(dataset: Dataset) -> str:
    """Returns the description of a dataset as JSON-LD, in ASCII that can be embedded in an HTML page."""
    origin = dataset.provenance
    splits = ", ".join(f"{split} {dataset.records(split)}" for split in dataset.splits)
    classes = f" of {counted(len(dataset.classes), 'class')}" if dataset.labels else ""
    document = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": dataset.name,
        "description": origin.described(
            f"{counted(dataset.all_records, 'image')}{classes} (splits: {splits}), each with what is known "
            f"of it in a tf.train.Example record of layout {dataset.layout}, in TFRecord files. "
            f"Fingerprint: {dataset.fingerprint}."
        ),
        "license": origin.license,
        "citeAs": origin.citation,
        "url": origin.url,
        "datePublished": origin.date_published,
        "creator": [
            {"@type": "sc:Organization" if creator.is_organization else "sc:Person", "name": creator.name}
            for creator in origin.creators
        ],
        "version": f"1.0.0+{dataset.fingerprint[:12]}",
        "identifier": dataset.fingerprint,
        "distribution": list(_distribution(dataset)),
        "recordSet": [_splits(dataset), *_labels(dataset), _features(dataset)],
    }
    given = {name: value for name, value in document.items() if value}  # a user may state no provenance
    return pretty_json(given, ensure_ascii=True).replace("<", "\\u003c")


def _distribution(dataset: Dataset) -> Iterable[_Json]:
    encoding = _FORMATS[str(dataset.plan.settings["compression"])]
    yield {
        "@type": "cr:FileSet",
        "@id": "shards",
        "name": "shards",
        "description": "The records of all splits: tf.train.Examples, which TensorFlow reads.",
        "encodingFormat": encoding,
        "includes": [pattern_of(shards[0].file) for shards in dataset.splits.values() if shards],
    }
    if len(dataset.shards) <= MAX_LISTED_SHARDS:
        for shard in dataset.shards:
            yield {
                "@type": "cr:FileObject",
                "@id": shard.file,
                "name": shard.file,
                "description": f"{counted(shard.records, 'record')}.",
                "contentUrl": shard.file,
                "contentSize": f"{shard.bytes} B",
                "encodingFormat": encoding,
                "sha256": shard.sha256,
            }


def pattern_of(file: str) -> str:
    """Returns a pattern for the names of all shards of a split, such as `train-*-of-00016.tfrecord`."""
    return re.sub(r"-[0-9]+-of-", "-*-of-", file, count=1)


def _record_set(
    name: str, description: str, fields: Sequence[_Field], rows: Iterable[Sequence[Any]], data_type: str = ""
) -> _Json:
    """Returns a set of records with its data; its first field is the key.

    Args:
      name: Name of the set.
      description: What it contains.
      fields: Name, description and type of each field.
      rows: Values of the fields of each record.
      data_type: Type of the records, if the standard knows one.
    """
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": description,
        **({"dataType": data_type} if data_type else {}),
        "key": {"@id": f"{name}/{fields[0][0]}"},
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{name}/{field}",
                "name": field,
                "description": about,
                "dataType": field_type,
            }
            for field, about, field_type in fields
        ],
        "data": [{f"{name}/{field}": value for (field, _, _), value in zip(fields, row)} for row in rows],
    }


def _splits(dataset: Dataset) -> _Json:
    fields: list[_Field] = [
        ("name", "The split's name.", "sc:Text"),
        ("records", "Its number of records.", "sc:Integer"),
    ]
    rows: list[tuple[Any, ...]] = [(split, dataset.records(split)) for split in dataset.splits]
    if all(split in _SPLIT_URLS for split in dataset.splits):
        fields.insert(1, ("url", "What it is for.", ["sc:URL", "cr:Split"]))
        rows = [(split, _SPLIT_URLS[split], records) for split, records in rows]
    description = "The splits, and the number of records in each."
    return _record_set("splits", description, fields, rows, "cr:Split")


def _labels(dataset: Dataset) -> Iterable[_Json]:
    if dataset.labels:
        fields: list[_Field] = [
            ("id", "The class id, as records hold it.", "sc:Integer"),
            ("name", "The class name.", "sc:Text"),
        ]
        if dataset.plan.texts:  # the class names are codes
            fields.append(("text", "What the class is called.", "sc:Text"))
        named = enumerate(zip(dataset.labels, dataset.plan.label_texts), dataset.first_label)
        rows = [(number, *names)[: len(fields)] for number, names in named if number in dataset.classes]
        yield _record_set("labels", "The classes.", fields, rows, "sc:Enumeration")


def _features(dataset: Dataset) -> _Json:
    fields: list[_Field] = [
        ("name", "The feature's name.", "sc:Text"),
        ("type", "The type of its list: bytes, int64 or float.", "sc:Text"),
        ("shape", "Its shape; null is any number.", "sc:Text"),
        ("description", "What it is.", "sc:Text"),
    ]
    rows = [
        (spec.name, spec.type.value, json.dumps(spec.shape), meaning_of(spec, dataset))
        for spec in dataset.features
    ]
    description = "The features of the tf.train.Example that the shards hold for each image."
    return _record_set("features", description, fields, rows)


def meaning_of(spec: FeatureSpec, dataset: Dataset) -> str:
    """Returns the meaning of a dataset's feature in words."""
    text = spec.fill.what if spec.fill else "of unknown meaning"
    if spec.fill is FeatureRole.ENCODED and dataset.dtypes:
        text = f"the image file's bytes, or its bare pixels row by row: {_sample_type(dataset)}"
    if spec.fill is FeatureRole.CHANNELS and dataset.plan.settings.get("channels"):
        text = "the stored picture's number of channels"
    if spec.fill is FeatureRole.EXTRA:
        text = f"column {spec.column or spec.name} of the source"
    notes = [text, *([_ENCODED_AS[spec.encoding]] if spec.encoding in _ENCODED_AS else [])]
    notes += ["left out where the source says nothing of the kind"] if spec.optional else []
    return "; ".join(notes)


def _sample_type(dataset: Dataset) -> str:
    """Returns the type of the samples of bare pixels in words."""
    types = sample_types(dataset)
    if len(types) == 1:
        return types[0] + (", little-endian" if types[0] != "uint8" else "")
    type_features = [spec.name for spec in dataset.features if spec.fill is FeatureRole.DTYPE]
    return f"{', '.join(types[:-1])} or {types[-1]} as {' '.join(type_features)} says, little-endian"


_ENCODED_AS = {
    Encoding.BASE64: "as URL-safe base64",
    Encoding.TENSOR: "as a serialized tensor, which tf.io.parse_tensor reads",
}
