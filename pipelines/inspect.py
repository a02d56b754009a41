"""Shows what is inside a dataset.

Needs neither Beam nor TensorFlow.
"""

from __future__ import annotations

import argparse
import io
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any, NamedTuple

from shardwright.core import preview, storage
from shardwright.core.concurrency.worker_pool import worker_pool
from shardwright.core.dataset_files import read_dataset, write_result
from shardwright.core.images.signatures import HEAD_BYTES, kind_of
from shardwright.core.records.compression import read_lazily
from shardwright.core.records.encodings import WrongEncoding, plain_feature, plain_spec
from shardwright.core.records.framing import DamagedRange, Record
from shardwright.core.records.record import SourceRecord
from shardwright.core.records.record_schema import RecordSchema, schema_of_plan
from shardwright.pipelines import log, run
from shardwright.pipelines import options as cli_options
from shardwright.pipelines.command import CommandResult
from shardwright.pipelines.places import check_result_place, resolve_target, schema_of
from shardwright.pipelines.results import print_ledger, sizes_of_splits
from shardwright.pipelines.tables import as_text, console, print_table
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.dataset import DATASET_JSON, Dataset, Shard
from shardwright.schemas.errors import EngineError, UsageError, nearest
from shardwright.schemas.example import Feature, parse_example
from shardwright.schemas.image_formats import FORMAT_NAMES
from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.schemas.json_values import to_json
from shardwright.schemas.layouts import Encoding, FeatureRole
from shardwright.schemas.ledger import Entry
from shardwright.schemas.plain_text import printable
from shardwright.schemas.plan import ShardPlace
from shardwright.schemas.splits import by_split
from shardwright.schemas.units import counted, format_size, shape_text

EXAMPLE = "shardwright inspect out/ --records 3 --contact_sheet sheet.png"
_MAX_CLASSES_SHOWN = 40
_MAX_FILES_SHOWN = 20
_MAX_RECORDS = 10_000
_MAX_THUMBNAILS = 1024
_FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}
#: Maximum number of records, and of their bytes, to read for their classes if there is no ledger.
_MAX_SCANNED = 2_048
_MAX_SCANNED_BYTES = 256 * 10**6
#: Maximum number of ledger lines to read for classes.
_MAX_LISTED = 200_000
#: Number of characters in a line of a table with long texts.
_WIDTH = 80


def inspect(
    dataset: str | os.PathLike[str],
    *,
    records: int = 3,
    split: str = "",
    contact_sheet: str | os.PathLike[str] = "",
    thumbnails: int = 64,
) -> dict[str, Any]:
    """Returns what is inside a dataset, like `shardwright inspect --json`.

    Args:
      dataset: Dataset directory, or a pattern of TFRecord files.
      records: Number of records to read, from the first on.
      split: Split to read; empty for the first split with records.
      contact_sheet: File for a sheet of the split's images (.png, .jpg or .webp); empty for none.
      thumbnails: Maximum number of images on the sheet, spread over the classes.

    Returns:
      The description, as JSON stores it.

    Raises:
      UsageError: If the dataset or the split does not exist, or the dataset is damaged.
      EngineError: If a file is missing, or cannot be read or written.
    """
    contact_sheet = os.fspath(contact_sheet)
    records = cli_options.number_of("records", records, 0, _MAX_RECORDS, int)
    thumbnails = cli_options.number_of("thumbnails", thumbnails, 1, _MAX_THUMBNAILS, int)
    target = resolve_target(os.fspath(dataset), "inspect")
    description: dict[str, Any] = {"dataset": printable(target.name)}
    if target.directory is None:
        if split:
            raise UsageError(f"--split {split}: files without a dataset.json have no splits; leave it out.")
        files = target.files
        description["files"] = [{"file": printable(path), "bytes": storage.size_of(path)} for path in files]
        schema, contents = schema_of(target), None
        shards = list(map(_ReadShard, files))
    else:
        contents = read_dataset(target.directory)
        description |= _describe_dataset(contents, storage.join(target.directory, DATASET_JSON))
        schema = schema_of_plan(contents.features, contents.first_label, contents.plan)
        if split and split not in contents.splits:
            hint = nearest(split, list(contents.splits)) or f"; choose one of {', '.join(contents.splits)}."
            raise UsageError(f"--split {split}: there is no such split{hint}")
        filled = (name for name in contents.splits if contents.records(name))
        split = split or next(filled, next(iter(contents.splits), ""))
        description["split"] = split
        shards = [
            _ReadShard(storage.join(target.directory, shard.file), target.directory, place, shard)
            for place, shard in contents.placed_shards()
            if place.split == split and shard.records
        ]
    description["features"] = to_json(schema.features)
    description["records"], description["damages"] = _first_records(shards, schema, records)
    if contents is None and not schema.features and not any(r["features"] for r in description["records"]):
        problems = [damage["message"] for damage in description["damages"]]
        nothing = "no record has a feature" if description["records"] else "they contain no records"
        problem = next(iter(problems), nothing)
        raise UsageError(
            f"--dataset {description['dataset']} names no TFRecord files of tf.train.Example ({problem}); "
            "name a dataset directory or 'dir/*.tfrecord'."
        )
    description["contact_sheet"] = None
    if contact_sheet:
        counts: Mapping[str, int] = {}
        if contents is not None:
            of_split = contents.class_counts.get(split, {})
            counts = {name: of_split.get(name, 0) for name in contents.labels}
        drawn = _write_contact_sheet(contact_sheet, shards, schema, thumbnails, counts)
        description["contact_sheet"] = {"file": printable(contact_sheet), "thumbnails": drawn}
    return description


def _describe_dataset(dataset: Dataset, where: str) -> dict[str, Any]:
    """Returns the contents of `dataset.json`, with the sums to show."""
    try:
        # The default image format depends on --resize.
        defaults = replace(ConvertSettings(), resize=str(dataset.plan.settings.get("resize", ""))).identity()
    except ValueError as error:
        raise UsageError(f"{where} is damaged ({error!r}); restore it or convert again.") from error
    defaults["resize"] = ""
    return {
        "name": dataset.name,
        "layout": dataset.layout,
        "fingerprint": dataset.fingerprint,
        "provenance": dataset.provenance.as_json(),
        "settings": dict(dataset.plan.settings),
        "changed_settings": {
            name: value for name, value in dataset.plan.settings.items() if defaults.get(name) != value
        },
        "versions": dict(dataset.versions),
        "splits": sizes_of_splits(dataset),
        "ledger": dict(dataset.ledger),
        "first_label": dataset.first_label,
        "labels": list(dataset.labels),
        "unused_ids": list(dataset.plan.unused_ids),
        "class_counts": {name: dict(counts) for name, counts in by_split(dataset.class_counts).items()},
        **({"dtypes": dict(dataset.dtypes)} if dataset.dtypes else {}),
    }


class _ReadShard(NamedTuple):
    """A shard to read: its path and, for a shard of a dataset, its directory, place and description."""

    path: str
    directory: str = ""
    place: ShardPlace = ShardPlace("", 0, 0)
    listed: Shard | None = None


def _first_records(
    shards: Sequence[_ReadShard], schema: RecordSchema, count: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Reads the first sound records, and the damaged ranges before and between them."""
    records: list[dict[str, Any]] = []
    damages: list[dict[str, Any]] = []
    for path, _, _, shard in shards:
        if len(records) >= count:
            break
        name = printable(shard.file if shard else path)
        seen = 0
        with closing(read_lazily(path)) as items:
            for item in items:
                where = {"shard": name, "record": item.number, "offset": item.offset}
                seen += 1
                if isinstance(item, DamagedRange):
                    damages.append({**where, "message": item.message})
                    continue
                try:
                    example = parse_example(item.data)
                except ValueError as error:
                    damages.append({**where, "message": f"it is not a tf.train.Example: {error}"})
                    continue
                records.append({**where, "features": dict(values_of(example, schema))})
                if len(records) >= count:
                    break
        if shard is not None and len(records) < count and seen < shard.records:
            message = f"the shard ends here, but dataset.json says {counted(shard.records, 'record')}"
            damages.append({"shard": name, "record": seen, "offset": None, "message": message})
    return records, damages


def _write_contact_sheet(
    path: str, shards: Sequence[_ReadShard], schema: RecordSchema, count: int, counts: Mapping[str, int]
) -> int:
    """Draws a sheet with images from all classes in equal shares, and writes it.

    Args:
      path: File to write; its extension chooses the format.
      shards: The shards.
      schema: Schema of the records.
      count: Maximum number of images.
      counts: Number of images in each class, as `dataset.json` states it.

    Returns:
      The number of pictures drawn.

    Raises:
      UsageError: If the extension is not an image format, or there is no image to draw.
      EngineError: If a shard cannot be read, or the sheet cannot be written.
    """
    extension = os.path.splitext(path)[1].lower()
    if extension not in _FORMATS:
        raise UsageError(f"--contact_sheet {path}: name a file that ends in .png, .jpg or .webp.")
    check_result_place("--contact_sheet", path)
    most = _MAX_LISTED if any(shard.listed for shard in shards) else _MAX_SCANNED
    picked = preview.pick_evenly(_places(shards, schema), counts, count, most)
    with worker_pool(run.uses_processes("")):
        tiles = preview.read_tiles(picked, schema)
    if not tiles:
        raise UsageError(f"--contact_sheet {path}: there is no image to draw; choose another --split.")
    buffer = io.BytesIO()
    preview.draw_sheet(tiles).save(buffer, _FORMATS[extension])
    write_result(path, buffer.getvalue(), "--contact_sheet", "contact sheet")
    return len(tiles)


def _places(shards: Sequence[_ReadShard], schema: RecordSchema) -> Iterator[preview.RecordLocation]:
    """Yields the location and the class of records, from the ledgers if there are any."""
    scanned = scanned_bytes = 0
    for path, directory, place, shard in shards:
        entries = list[Entry]()
        if shard is not None:
            with suppress(EngineError):
                entries = list(preview.ledger_entries(directory, place, shard))
        if entries:
            yield from (preview.RecordLocation(path, entry.offset or 0, entry.label) for entry in entries)
            continue
        for item in read_lazily(path):
            if scanned >= _MAX_SCANNED or scanned_bytes >= _MAX_SCANNED_BYTES:
                return
            if isinstance(item, Record):
                scanned += 1
                scanned_bytes += len(item.data)
                yield preview.RecordLocation(path, item.offset, _class_of(item.data, schema))


def _class_of(data: bytes, schema: RecordSchema) -> str:
    """Returns the class of a record; empty if it has none."""
    try:
        record = preview.record_of(data, schema) if schema.own else SourceRecord(data)
        objects = record.texts(FeatureRole.OBJECT_TEXT)
        if objects:
            return LABEL_SEPARATOR.join(sorted(set(objects)))
        return record.text(FeatureRole.LABEL_TEXT) or record.text(FeatureRole.LABEL)
    except ValueError:
        return ""


def print_inspection(description: Mapping[str, Any]) -> None:
    """Prints what `inspect` returned."""
    out = console()
    if "files" in description:
        rows = [[as_text(item["file"]), format_size(item["bytes"])] for item in description["files"]]
        print_table(out, ("file", "bytes"), rows, most=_MAX_FILES_SHOWN, noun="file")
    else:
        _print_dataset(out, description)
    features = [[as_text(item["name"]), item["type"], _shape(item)] for item in description["features"]]
    print_table(out, ("feature", "type", "shape"), features)
    if "files" not in description:
        out.print("  listed files by outcome")
        print_ledger(out, description["ledger"])
        if description["labels"]:
            _print_classes(out, description)
    for record in description["records"]:
        values = [[as_text(name), as_text(value)] for name, value in record["features"].items()]
        title = f"{record['shard']}, record {record['record']}, byte {record['offset']}"
        print_table(out, ("feature", "value"), values, title, whole=("feature",), width=_WIDTH)
    for damage in description["damages"]:
        byte = "" if damage["offset"] is None else f", byte {damage['offset']}"
        out.print(f"  damaged: {damage['shard']}, record {damage['record']}{byte}: {damage['message']}")
    if description["damages"]:
        out.print("  shardwright validate finds everything that is wrong")
    if description["contact_sheet"]:
        sheet = description["contact_sheet"]
        out.print(f"  {counted(sheet['thumbnails'], 'image')} drawn in {sheet['file']}")


def _print_dataset(out: Any, description: Mapping[str, Any]) -> None:
    def pairs(values: Mapping[str, Any]) -> str:
        return "; ".join(f"{name} {as_text(value)}" for name, value in values.items())

    # The table of features shows a custom layout.
    changed = {
        name: value
        for name, value in description["changed_settings"].items()
        if name != "layout" or not str(value).startswith("{")
    }
    rows = [
        ["name", as_text(description["name"])],
        ["layout", as_text(description["layout"])],
        *([name, as_text(text)] for name, text in description["provenance"].items()),
        ["settings", pairs(changed) or "the defaults"],
        ["versions", pairs(description["versions"])],
    ]
    if dtypes := description.get("dtypes"):
        counts = (f"{counted(count, 'image')} of {as_text(name)}" for name, count in dtypes.items())
        rows.append(["samples", ", ".join(counts)])
    print_table(out, ("dataset", description["dataset"]), rows, width=_WIDTH)
    out.print(f"  fingerprint {description['fingerprint']}")
    sizes = [
        [as_text(name), split["records"], split["shards"], format_size(split["bytes"])]
        for name, split in description["splits"].items()
    ]
    print_table(out, ("split", "records", "shards", "bytes"), sizes)


def _shape(item: Mapping[str, Any]) -> str:
    tensor = item.get("encoding") == Encoding.TENSOR
    sides = item.get("tensor_shape", ()) if tensor else item["shape"]
    shape = shape_text(sides) or "one value"
    if tensor:
        shape = f"tensor of {item['dtype']}: {shape}"
    elif item.get("encoding") == Encoding.BASE64:
        shape = f"base64: {shape}"
    return f"{shape}, optional" if item.get("optional") else shape


def _print_classes(out: Any, description: Mapping[str, Any]) -> None:
    unused, counts = set(description["unused_ids"]), description["class_counts"]
    rows = [
        [number, as_text(name), *(split.get(name, 0) for split in counts.values())]
        for number, name in enumerate(description["labels"], description["first_label"])
        if number not in unused
    ]
    print_table(out, ("id", "class", *counts), rows, most=_MAX_CLASSES_SHOWN, noun="class")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    cli_options.add_dataset(parser, "a dataset directory, or 'dir/*.tfrecord'")
    parser.add_argument("--records", default="3", metavar="N", help="number of records to show (default: 3)")
    cli_options.add_text(parser, "split", "NAME", "split to show (default: the first with records)")
    cli_options.add_text(parser, "contact_sheet", "FILE", "draw the split's images: .png, .jpg, .webp")
    parser.add_argument(
        "--thumbnails", default=argparse.SUPPRESS, metavar="N",
        help="number of images on the sheet, spread over the classes (default: 64)",
    )  # fmt: skip


def execute(options: argparse.Namespace) -> CommandResult:
    """Runs the command."""
    description = inspect(**cli_options.arguments_of(inspect, options))
    if "thumbnails" in options and not options.contact_sheet:
        log.note("--thumbnails has no effect without --contact_sheet.")
    return CommandResult(lambda: print_inspection(description), lambda: description)


def values_of(example: Mapping[str, Feature], schema: RecordSchema) -> Iterator[tuple[str, Any]]:
    """Yields features as JSON stores them: first those of the schema in its order, then all others.

    Base64 values and serialized tensors are decoded.
    """
    plain = dict(example)
    for spec in schema.features:
        if spec.encoding is not Encoding.PLAIN and spec.name in example:
            with suppress(WrongEncoding):  # the stored value is shown
                plain[spec.name] = plain_feature(spec, example[spec.name])
    pixels, raw = schema.spec(FeatureRole.ENCODED), _is_raw(plain, schema)
    single = {spec.name for spec in map(plain_spec, schema.features) if spec.length == 1}
    names = [spec.name for spec in schema.features if spec.name in example]
    for name in [*names, *sorted(example.keys() - set(names))]:
        is_picture = pixels is not None and name == pixels.name
        values = [_value(value, is_picture, raw) for value in plain[name].values]
        yield name, values[0] if name in single and len(values) == 1 else values


def _is_raw(example: Mapping[str, Feature], schema: RecordSchema) -> bool:
    """Returns whether a record's image is raw pixels, according to its format or to the schema."""
    values = {spec.fill: list(example[spec.name].values) for spec in schema.features if spec.name in example}
    if FeatureRole.FORMAT in values:
        return values[FeatureRole.FORMAT] == [b"raw"]
    encoded = schema.spec(FeatureRole.ENCODED)
    is_float = values.get(FeatureRole.DTYPE) == [b"float32"] or (encoded and encoded.pixel_type == "float32")
    return schema.pixels is not None or bool(is_float)


def _value(value: Any, is_picture: bool, raw: bool) -> Any:
    """Returns a value as JSON stores it; bytes that are not text become their size and kind.

    Args:
      value: The value.
      is_picture: Whether it is the record's image, even if its bytes happen to be text.
      raw: Whether the record's image is raw pixels.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if not isinstance(value, bytes):
        return value
    if not is_picture:
        with suppress(UnicodeDecodeError):
            text = value.decode()
            if all(char.isprintable() or char in "\n\r\t" for char in text):
                return text
    kind = "raw" if is_picture and raw else kind_of(value[:HEAD_BYTES])
    return {"bytes": len(value), "kind": FORMAT_NAMES.get(kind, kind) if kind else None}
