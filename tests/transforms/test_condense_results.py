"""Results of shards without repeated content add up to the same totals in any order."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace

from shardwright.schemas.ledger import Entry, LedgerTotals, ShardHeader, ShardResult
from shardwright.schemas.source_sizes import SourceSizes
from shardwright.transforms.commit import _source_sizes
from shardwright.transforms.condense_results import CondenseBundle, CondensedResults, merged_results
from shardwright.transforms.salvage.shard import SavedShard
from shardwright.transforms.salvage.transforms import CondenseSaved

CLASSES = [f"class {number:04d}" for number in range(1000)]


def result(split: str, shard: int, count: int, seed: int) -> ShardResult:
    """Returns the result of a shard with all classes."""
    rng = random.Random(seed)
    entries = [
        Entry(key=str(i), outcome="written", source_width=rng.randrange(9), source_height=3, source_bytes=i)
        for i in range(5)
    ]
    sizes = SourceSizes()
    for entry in entries:
        sizes.add(entry)
    header = ShardHeader(
        file=f"{split}-{shard:05d}-of-{count:05d}.tfrecord", split=split, shard=shard, num_shards=count,
        plan_digest="d" * 64, records=1000, bytes=10**8, sha256="s" * 64,
        counts={"written": 1000, "quarantined": 1}, reasons={"quarantined": {"CORRUPT": 1}},
        class_counts={name: rng.randrange(5) for name in CLASSES}, formats={"jpg": 990, "png": 10},
        boxes={"written": 3}, bad_boxes=("a",), sources=sizes.state(),
    )  # fmt: skip
    return ShardResult(header, started=1.0, finished=2.0)


def sums(results: list[ShardResult]) -> object:
    """Returns everything that a commit adds up from results."""
    totals, classes, formats = LedgerTotals(), dict[tuple[str, str], int](), dict[tuple[str, str], int]()
    for item in (result.header for result in results):
        totals.add(item)
        for name, count in item.class_counts.items():
            classes[item.split, name] = classes.get((item.split, name), 0) + count
        for name, count in item.formats.items():
            formats[item.split, name] = formats.get((item.split, name), 0) + count
    return totals.as_json(), classes, formats, _source_sizes(results).as_json()


def condense(results: list[ShardResult]) -> CondensedResults:
    """Condenses the results of one bundle."""
    step = CondenseBundle()
    step.start_bundle()
    for item in results:
        assert not [*step.process(item)]
    (condensed,) = step.finish_bundle()
    return condensed.value


def test_condensed_results_add_up_to_the_same() -> None:
    results = [result(split, i, 40, i) for split in ("train", "test") for i in range(40)]
    rng = random.Random(1)
    rng.shuffle(results)
    parts = [
        pickle.loads(pickle.dumps(condense(results[start : start + 7])))
        for start in range(0, len(results), 7)
    ]
    rng.shuffle(parts)
    condensed = merged_results([condense([]), *parts]).as_results()
    assert sums(condensed) == sums(results)
    summed = {"class_counts": {}, "formats": {}, "sources": {}}
    by_file = {item.header.file: item for item in results}
    for item in condensed:
        other = by_file.pop(item.header.file)
        assert replace(item.header, **summed) == replace(other.header, **summed)
        assert replace(item, header=other.header) == other
    assert not by_file


def test_the_size_of_a_result_does_not_grow_with_the_classes() -> None:
    sizes = []
    for count in (10, 110):
        condensed = condense([result("train", shard, count, shard) for shard in range(count)])
        sizes.append(len(pickle.dumps(condensed.as_results())))
    assert (sizes[1] - sizes[0]) / 100 < 1200 < len(pickle.dumps(result("train", 0, 1, 0))) / 10


def test_a_damaged_header_of_an_earlier_build_adds_nothing() -> None:
    sound = result("train", 0, 2, 0)
    broken = replace(sound, header=replace(sound.header, shard=1, sources={"width": "nonsense"}))
    condensed = condense([broken, sound]).as_results()
    assert _source_sizes(condensed).as_json() == _source_sizes([sound]).as_json()


def test_results_of_salvaged_shards_can_be_condensed() -> None:
    results = [result(split, i, 30, i) for split in ("train", "test") for i in range(30)]
    saved = [SavedShard(item.header.file, 5, False, 1, (), item) for item in results]
    foreign = SavedShard("a.tfrecord", 3, True, 0, ())
    random.Random(2).shuffle(saved)
    combine, parts = CondenseSaved(), []
    for start in range(0, len(saved), 7):
        part = combine.create_accumulator()
        for item in [*saved[start : start + 7], *([foreign] if start == 14 else [])]:
            part = combine.add_input(part, item)
        parts.append(pickle.loads(pickle.dumps(part)))
    condensed = combine.extract_output(combine.merge_accumulators(parts))
    assert [item.file for item in condensed] == sorted(item.file for item in [foreign, *saved])
    assert foreign in condensed
    kept = [item.result for item in condensed if item.result is not None]
    assert sums(kept) == sums(results) and len(kept) == len(saved)
    assert all(item.result.header.file == item.file for item in condensed if item.result is not None)
    assert len(pickle.dumps(condensed)) < len(pickle.dumps(saved)) / 8


def test_no_results_give_no_totals() -> None:
    assert merged_results([]).as_results() == merged_results([condense([])]).as_results() == []
