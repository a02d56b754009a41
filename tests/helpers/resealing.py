"""A forger's tools: change a finished dataset, and update everything that it states about itself."""

from __future__ import annotations

import gzip
import hashlib
import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from helpers.ledgers import dump_ledger, result_of
from shardwright.core import storage
from shardwright.core.dataset_files import json_lines
from shardwright.core.plan.assign import shard_order
from shardwright.core.records.framing import FRAME_BYTES, Record, masked_crc32c, read_records
from shardwright.core.shards.finish import with_shards
from shardwright.core.shards.finish import write_ledger as write_shard_ledger
from shardwright.core.shards.shard_plan import recipes_of
from shardwright.schemas.codes import Outcome
from shardwright.schemas.dataset import Dataset, fingerprint, pretty_json, with_digest
from shardwright.schemas.example import Feature, FeatureType, encode_example, parse_example
from shardwright.schemas.ledger import Entry, LedgerLines, PlanDigest, dump_index, load_ledger
from shardwright.schemas.plan import index_file, ledger_file
from shardwright.schemas.sidecars import with_sidecars

Features = dict[str, Feature]
#: Changes the features of a record.
Edit = Callable[[Features], object]


def put(name: str, *values: Any, type_: FeatureType | None = None) -> Edit:
    """Sets the values of a feature; a function gets the former values and returns a value."""

    def edit(features: Features) -> None:
        kind = type_ or features[name].type
        old = features[name].values if name in features else ()
        features[name] = Feature(kind, [value(old) if callable(value) else value for value in values])

    return edit


def read_shard(path: Path) -> list[bytes]:
    with path.open("rb") as file:
        return [item.data for item in read_records(file) if isinstance(item, Record)]


def frame(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    parts = (length, struct.pack("<I", masked_crc32c(length)), data, struct.pack("<I", masked_crc32c(data)))
    return b"".join(parts)


def read_document(dataset: Path) -> Any:
    return json.loads((dataset / "dataset.json").read_text())


def write_document(dataset: Path, document: Any) -> None:
    (dataset / "dataset.json").write_text(pretty_json(document))


def read_ledger(dataset: Path, name: str) -> list[Any]:
    data = gzip.decompress((dataset / "_shards" / f"{name}.jsonl.gz").read_bytes())
    return [json.loads(line) for line in data.decode().splitlines()]


def write_ledger(dataset: Path, name: str, lines: Sequence[Any]) -> None:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (dataset / "_shards" / f"{name}.jsonl.gz").write_bytes(gzip.compress(text.encode(), 1, mtime=0))


class Forgery:
    """The shards of a dataset, taken apart for changes; `seal` puts them together again.

    Attributes:
      shards: (split, number) -> records with their entries in the ledger.
      others: (split, number) -> entries without a record.
    """

    def __init__(self, dataset: Path) -> None:
        self._dataset = dataset
        self._made = Dataset.from_bytes((dataset / "dataset.json").read_bytes(), "it")
        self.shards: dict[tuple[str, int], list[tuple[bytes, Entry]]] = {}
        self.others: dict[tuple[str, int], list[Entry]] = {}
        for place, shard in self._made.placed_shards():
            _, lines = load_ledger((dataset / ledger_file(*place)).read_bytes())
            entries = list(lines)
            written = [entry for entry in entries if entry.outcome == Outcome.WRITTEN]
            self.others[place[:2]] = [entry for entry in entries if entry.outcome != Outcome.WRITTEN]
            self.shards[place[:2]] = list(zip(read_shard(dataset / shard.file), written, strict=True))

    def edit(self, place: tuple[str, int], number: int, edit: Edit) -> None:
        """Changes the features of one record."""
        data, entry = self.shards[place][number]
        features = parse_example(data)
        edit(features)
        self.shards[place][number] = encode_example(features), entry

    def relabel(self, place: tuple[str, int], number: int, **values: Any) -> None:
        """Changes the ledger's line about one record."""
        data, entry = self.shards[place][number]
        self.shards[place][number] = data, entry._replace(**values)

    def seal(self) -> None:
        """Writes shards and ledgers, and updates everything that depends on them."""
        seed = self._made.plan.settings["seed"]
        for place, shard in self._made.placed_shards():
            offset, data = 0, bytearray()
            others = sorted(self.others[place[:2]], key=lambda entry: shard_order(seed, entry.key))
            entries: list[Entry] = []
            for record, entry in self.shards[place[:2]]:
                while others and shard_order(seed, others[0].key) < shard_order(seed, entry.key):
                    entries.append(others.pop(0))
                length = len(record) + FRAME_BYTES
                entries.append(entry._replace(offset=offset, length=length))
                data += frame(record)
                offset += length
            entries += others
            (self._dataset / shard.file).write_bytes(data)
            (self._dataset / index_file(*place)).write_bytes(dump_index(entries))
            path = self._dataset / ledger_file(*place)
            path.write_bytes(dump_ledger(load_ledger(path.read_bytes())[0], entries))
        settle(self._dataset)


def settle(dataset: Path) -> None:
    """Updates the headers of all ledgers, the side files and `dataset.json` to match shards and ledgers."""
    made = Dataset.from_bytes((dataset / "dataset.json").read_bytes(), "it")
    recipe = recipes_of(made.plan.settings, made.versions).shard
    results, files = [], dict(made.files)
    for place, shard in made.placed_shards():
        path = dataset / ledger_file(*place)
        if not (dataset / shard.file).exists() or not path.exists():
            continue
        header, *lines = read_ledger(dataset, path.name.removesuffix(".jsonl.gz"))
        entries, data = list(map(Entry.from_json, lines)), (dataset / shard.file).read_bytes()
        digest = PlanDigest(recipe)
        for entry in entries:
            digest.add_entry(entry)
        result = result_of(place, entries)
        stated = replace(
            result.header,
            file=shard.file,
            plan_digest=digest.hexdigest(),
            recipe=header["recipe"],
            bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            crc32c=storage.crc32c_of(data),
        )
        results.append(write_shard_ledger(str(dataset), replace(result, header=stated), LedgerLines(entries)))
        files |= results[-1].files
    made = replace(with_shards(made, results), files=files)
    ledgers = [dataset / ledger_file(*result.header.place) for result in results]
    found = (load_ledger(path.read_bytes()) for path in ledgers)
    bad = [entry for _, entries in found for entry in entries if entry.outcome == "quarantined"]
    bad_lines = sorted((entry.quarantine_line() for entry in bad), key=lambda line: tuple(line.values()))
    (dataset / "quarantine.jsonl").write_text(json_lines(bad_lines))
    write_document(dataset, made.as_json())
    sign(dataset)


def sign(dataset: Path) -> None:
    """Writes the side files again, and updates digests and sums of `dataset.json`."""
    document = read_document(dataset)
    made, sidecars = with_sidecars(Dataset.from_bytes((dataset / "dataset.json").read_bytes(), "it"))
    for name, content in sidecars.items():
        (dataset / name).write_bytes(content)
    document["sidecars"] = dict(made.sidecars)
    for path in document["files"]:
        if (dataset / path).exists():
            document["files"][path] = hashlib.sha256((dataset / path).read_bytes()).hexdigest()
    shards = [shard for split in document["splits"].values() for shard in split["shards"]]
    for split in document["splits"].values():
        for name in ("records", "bytes"):
            split[name] = sum(shard[name] for shard in split["shards"])
    digests = {shard["file"]: shard["sha256"] for shard in shards}
    document["fingerprint"] = fingerprint(digests, document["labels"], document["features"])
    write_document(dataset, with_digest(document))
