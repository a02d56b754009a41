"""Sizes of sources: the sums do not depend on the order of shards."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable

import pytest
from helpers.ledgers import dump_ledger, result_of

from shardwright.schemas.ledger import Entry, ledger_header, load_ledger
from shardwright.schemas.source_sizes import SourceSizes
from shardwright.transforms.shards.finish import ShardPlace


def entry(number: int) -> Entry:
    return Entry(
        f"{number}.jpg", "written", source_width=100 + number, source_height=50, source_bytes=1_000 * number
    )


def sizes_of(entries: Iterable[Entry]) -> SourceSizes:
    sizes = SourceSizes()
    for one in entries:
        sizes.add(one)
    return sizes


def test_shards_add_up_to_the_same_in_any_order() -> None:
    entries = [entry(number) for number in range(1, 11)]
    whole = sizes_of([*entries, Entry("bad.jpg", "quarantined")])
    parts = [sizes_of(entries[at : at + 3]) for at in (6, 0, 9, 3)]
    merged = SourceSizes()
    for part in parts:
        merged.merge(SourceSizes.from_state(json.loads(json.dumps(part.state()))))
    assert merged.state() == whole.state()
    sizes = whole.as_json()
    assert sizes["images"] == 10
    assert (sizes["width"]["min"], sizes["width"]["max"], sizes["width"]["mean"]) == (101, 110, 105.5)
    assert sizes["bytes"]["sum"] == 55_000 and sizes["height"]["std"] == 0


def test_unknown_sizes_are_reported_as_unknown() -> None:
    sizes = sizes_of([Entry("a", "written")])
    assert sizes.state() == {} and sizes.as_json() == {"images": 0}
    assert SourceSizes.from_state({}).images == 0


def test_a_ledger_of_another_version_is_refused() -> None:
    place = ShardPlace("train", 0, 1)
    data = gzip.decompress(dump_ledger(result_of(place, [entry(1)]).header, [entry(1)]))
    for version in (1, 3):
        other = gzip.compress(data.replace(b'"ledger_version": 2', b'"ledger_version": %d' % version))
        for read in (ledger_header, load_ledger):
            with pytest.raises(ValueError, match="of another version"):
                read(other)


def test_fields_of_later_versions_are_ignored() -> None:
    result = result_of(ShardPlace("train", 0, 1), [entry(1)]).header
    header, line = map(json.loads, gzip.decompress(dump_ledger(result, [entry(1)])).decode().splitlines())
    later = "\n".join(json.dumps({**document, "later": 1}) for document in (header, line))
    read, entries = load_ledger(gzip.compress(f"{later}\n".encode()))
    assert read == ledger_header(dump_ledger(result, [entry(1)])) and next(entries) == entry(1)
