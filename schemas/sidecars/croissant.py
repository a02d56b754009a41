"""`croissant.json`: the dataset in MLCommons' Croissant format 1.1, which catalogs of datasets read.

It describes the files (each shard with its size and sha256), the splits, the classes, and the features of a
record. The standard cannot describe how to read TFRecords, so there is no set of the records themselves, and
programs such as mlcroissant can read every set that there is. License, creators, home page, citation and date
of publication are those that the user states.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from shardwright.schemas.dataset import Dataset, Shard, pretty_json, sample_types
from shardwright.schemas.feature_roles import FEATURE_ROLES, FeatureRole
from shardwright.schemas.layouts import Encoding, FeatureSpec
from shardwright.schemas.provenance import Provenance
from shardwright.schemas.units import counted

CONFORMS_TO = "http://mlcommons.org/croissant/1.1"
#: Maximum number of shards to list with checksums, because readers take a millisecond for each. For more
#: shards, the file has only the patterns of their names; the checksums are in `dataset.json`.
MAX_LISTED_SHARDS = 10_000

_Json = dict[str, Any]

#: The prefixes and terms that every Croissant 1.1 file declares.
_CONTEXT: _Json = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "arrayShape": "cr:arrayShape",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "containedIn": "cr:containedIn",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": {"@container": "@language"},
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isArray": "cr:isArray",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "name": {"@container": "@language"},
    "parentField": "cr:parentField",
    "path": "cr:path",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
_SHARDS, _FEATURES, _LABELS, _SPLITS = "shards", "features", "labels", "splits"
_FORMATS = {
    "none": ["application/x-tfrecord"],
    "gzip": ["application/x-tfrecord", "application/gzip"],
    "zlib": ["application/x-tfrecord", "application/zlib"],
}
#: Descriptions of splits with usual names.
_SPLIT_URLS = {
    "train": "cr:TrainingSplit",
    "training": "cr:TrainingSplit",
    "val": "cr:ValidationSplit",
    "valid": "cr:ValidationSplit",
    "validation": "cr:ValidationSplit",
    "dev": "cr:ValidationSplit",
    "test": "cr:TestSplit",
    "testing": "cr:TestSplit",
}


def croissant_json(dataset: Dataset) -> str:
    """Returns the description of a dataset as JSON-LD, in ASCII that can be embedded in an HTML page."""
    document = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": dataset.name,
        "description": _description(dataset),
        **_provenance(dataset.provenance),
        "version": f"1.0.0+{dataset.fingerprint[:12]}",
        "identifier": dataset.fingerprint,
        "distribution": list(_distribution(dataset)),
        "recordSet": [_splits(dataset), *_labels(dataset), _features(dataset)],
    }
    return pretty_json(document, ensure_ascii=True).replace("<", "\\u003c")


def _provenance(provenance: Provenance) -> _Json:
    """Returns the properties that only a person knows, if they are given."""
    found = {
        "license": provenance.license,
        "citeAs": provenance.citation,
        "url": provenance.url,
        "datePublished": provenance.date_published,
        "creator": [
            {"@type": "sc:Organization" if creator.is_organization else "sc:Person", "name": creator.name}
            for creator in provenance.creators
        ],
    }
    return {name: value for name, value in found.items() if value}


def _description(dataset: Dataset) -> str:
    description = dataset.provenance.description.strip()
    splits = ", ".join(f"{split} {dataset.records(split)}" for split in dataset.splits)
    total = dataset.all_records
    classes = f" of {counted(len(dataset.classes), 'class')}" if dataset.labels else ""
    return (f"{description}\n\n" if description else "") + (
        f"{counted(total, 'image')}{classes} (splits: {splits}), each with what is known of it in a "
        f"tf.train.Example record of layout {dataset.layout}, in TFRecord files. "
        f"Fingerprint: {dataset.fingerprint}."
    )


def _distribution(dataset: Dataset) -> Iterable[_Json]:
    encoding = _FORMATS[str(dataset.plan.settings["compression"])]
    shards = [shard for shards in dataset.splits.values() for shard in shards]
    yield {
        "@type": "cr:FileSet",
        "@id": _SHARDS,
        "name": _SHARDS,
        "description": "The records of all splits: tf.train.Examples, which TensorFlow reads.",
        "encodingFormat": encoding,
        "includes": [pattern_of(shards[0].file) for shards in dataset.splits.values() if shards],
    }
    if len(shards) <= MAX_LISTED_SHARDS:
        yield from (_file(shard, encoding) for shard in shards)


def pattern_of(file: str) -> str:
    """Returns a pattern for the names of all shards of a split, such as `train-*-of-00016.tfrecord`."""
    return re.sub(r"-[0-9]+-of-", "-*-of-", file, count=1)


def _file(shard: Shard, encoding: list[str]) -> _Json:
    return {
        "@type": "cr:FileObject",
        "@id": shard.file,
        "name": shard.file,
        "description": f"{counted(shard.records, 'record')}.",
        "contentUrl": shard.file,
        "contentSize": f"{shard.bytes} B",
        "encodingFormat": encoding,
        "sha256": shard.sha256,
    }


def _splits(dataset: Dataset) -> _Json:
    known = all(split in _SPLIT_URLS for split in dataset.splits)
    return {
        "@type": "cr:RecordSet",
        "@id": _SPLITS,
        "name": _SPLITS,
        "description": "The splits, and the number of records in each.",
        "dataType": "cr:Split",
        "key": _ref(f"{_SPLITS}/name"),
        "field": [
            _plain_field(_SPLITS, "name", "The split's name.", "sc:Text"),
            *([_plain_field(_SPLITS, "url", "What it is for.", ["sc:URL", "cr:Split"])] if known else []),
            _plain_field(_SPLITS, "records", "Its number of records.", "sc:Integer"),
        ],
        "data": [
            {
                f"{_SPLITS}/name": split,
                **({f"{_SPLITS}/url": _SPLIT_URLS[split]} if known else {}),
                f"{_SPLITS}/records": dataset.records(split),
            }
            for split in dataset.splits
        ],
    }


def _labels(dataset: Dataset) -> Iterable[_Json]:
    if dataset.labels:
        texts = bool(dataset.plan.texts)  # the class names are codes
        classes = dataset.classes
        yield {
            "@type": "cr:RecordSet",
            "@id": _LABELS,
            "name": _LABELS,
            "description": "The classes.",
            "dataType": "sc:Enumeration",
            "key": _ref(f"{_LABELS}/id"),
            "field": [
                _plain_field(_LABELS, "id", "The class id, as records hold it.", "sc:Integer"),
                _plain_field(_LABELS, "name", "The class name.", "sc:Text"),
                *([_plain_field(_LABELS, "text", "What the class is called.", "sc:Text")] if texts else []),
            ],
            "data": [
                {
                    f"{_LABELS}/id": number,
                    f"{_LABELS}/name": name,
                    **({f"{_LABELS}/text": text} if texts else {}),
                }
                for number, (name, text) in enumerate(
                    zip(dataset.labels, dataset.plan.label_texts), dataset.first_label
                )
                if number in classes
            ],
        }


def _plain_field(record_set: str, name: str, description: str, data_type: str | list[str]) -> _Json:
    return {
        "@type": "cr:Field",
        "@id": f"{record_set}/{name}",
        "name": name,
        "description": description,
        "dataType": data_type,
    }


def _ref(identifier: str) -> _Json:
    return {"@id": identifier}


def _features(dataset: Dataset) -> _Json:
    return {
        "@type": "cr:RecordSet",
        "@id": _FEATURES,
        "name": _FEATURES,
        "description": "The features of the tf.train.Example that the shards hold for each image.",
        "key": _ref(f"{_FEATURES}/name"),
        "field": [
            _plain_field(_FEATURES, "name", "The feature's name.", "sc:Text"),
            _plain_field(_FEATURES, "type", "The type of its list: bytes, int64 or float.", "sc:Text"),
            _plain_field(_FEATURES, "shape", "Its shape; null is any number.", "sc:Text"),
            _plain_field(_FEATURES, "description", "What it is.", "sc:Text"),
        ],
        "data": [
            {
                f"{_FEATURES}/name": spec.name,
                f"{_FEATURES}/type": spec.type.value,
                f"{_FEATURES}/shape": json.dumps(spec.shape),
                f"{_FEATURES}/description": meaning_of(spec, dataset),
            }
            for spec in dataset.features
        ],
    }


def meaning_of(spec: FeatureSpec, dataset: Dataset) -> str:
    """Returns the meaning of a dataset's feature in words."""
    text = FEATURE_ROLES[spec.fill].what if spec.fill else "of unknown meaning"
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
