"""Comparing two datasets: exactly the edits, by their ledgers, and the distances of their distributions."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from helpers.examples import examples
from helpers.fewer_imports import late
from helpers.ledgers import dump_ledger, result_of
from helpers.report_samples import dataset_of, drift_of
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.core import diff
from shardwright.schemas.codes import Severity
from shardwright.schemas.configuration import gates as limits
from shardwright.schemas.configuration.gates import GateFile, Policy, Thresholds, check, parse_gates
from shardwright.schemas.dataset import Shard
from shardwright.schemas.drift import (
    MAX_LISTED,
    Change,
    Changes,
    ClassDrift,
    Described,
    Distance,
    Drift,
    Kind,
    OfSplits,
    Pair,
    distance,
    drift_between,
    numbers_in,
    summed,
)
from shardwright.schemas.errors import UsageError
from shardwright.schemas.findings import ValidationReport
from shardwright.schemas.layouts import LAYOUTS
from shardwright.schemas.ledger import Entry
from shardwright.schemas.plan import ShardPlace, ledger_file

SPLITS = ("train", "test")


@dataclass(frozen=True)
class Image:
    """An image of a generated dataset."""

    key: str
    source: str
    label: str = "cat"
    split: str = "train"
    length: int = 100


def entry(image: Image) -> Entry:
    sha256 = hashlib.sha256(image.source.encode()).hexdigest()
    return Entry(image.key, "written", f"{len(image.source)}:1", sha256, image.label, 0, image.length, "kept")


def write(
    directory: Path, entries: Sequence[Entry], split: str = "train", shard: int = 0, of: int = 1
) -> Shard:
    """Writes the ledger of a shard."""
    place = ShardPlace(split, shard, of)
    sha256 = hashlib.sha256(repr([item._replace(digest="") for item in entries]).encode()).hexdigest()
    header = replace(result_of(place, entries).header, file=f"{split}-{shard}.tfrecord", sha256=sha256)
    path = directory / ledger_file(*place)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(dump_ledger(header, entries))
    return header.as_shard()


def write_all(directory: Path, images: Sequence[Image], shards: int) -> dict[str, list[Shard]]:
    """Writes the ledgers of a dataset; returns the shards of each split."""
    parts: dict[tuple[str, int], list[Entry]] = defaultdict(list)
    for image in images:
        parts[image.split, sum(image.key.encode()) % shards].append(entry(image))
    return {
        split: [write(directory, parts[split, number], split, number, shards) for number in range(shards)]
        for split in SPLITS
    }


def compare_written(root: Path, *splits: Mapping[str, Sequence[Shard]]) -> Changes:
    """Compares the shards of two datasets, whose ledgers are in the folders `old` and `new`, without Beam."""
    features = LAYOUTS["detection"].features
    datasets = (dataset_of({}, {}, features=features, splits=shards) for shards in splits)
    return diff.compare_small(diff.list_pairs(str(root / "old"), str(root / "new"), *datasets))


def short(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()[:32]


def edit(random: Random, images: list[Image]) -> tuple[list[Image], Changes]:
    """Edits some images, each in another way; returns the new images and the expected changes."""
    edited, expected = [], Changes()
    for number, image in enumerate(images):
        what = random.choice(
            ["keep", "keep", "remove", "alter", "relabel", "move", "rename", "store", "both"]
        )
        key, split, new = image.key, image.split, image
        if what == "keep":
            expected.unchanged += 1
        if what == "remove":
            expected.note(Kind.REMOVED, split, Change(key, split, ""))
            continue
        if what in ("move", "both"):
            new = replace(new, split="test" if split == "train" else "train")
            expected.moves[split, new.split] += 1
            expected.note(Kind.MOVED, new.split, Change(key, split, new.split))
        if what in ("relabel", "both"):
            new = replace(new, label=image.label + "2")
            expected.relabels[image.label, new.label] += 1
            expected.note(Kind.RELABELLED, new.split, Change(key, image.label, new.label))
        if what in ("alter", "both"):
            new = replace(new, source=f"other {number}")
            change = Change(key, short(image.source), short(new.source))
            expected.note(Kind.CHANGED, new.split, change)
        if what == "rename":
            new = replace(new, key=f"renamed/{key}")
            expected.note(Kind.RENAMED, split, Change(new.key, key, new.key))
        if what == "store":
            new = replace(new, length=image.length + 1)
            stored = [f"kept, {size} bytes" for size in (image.length, new.length)]
            expected.note(Kind.RE_ENCODED, split, Change(key, stored[0], stored[1]))
        edited.append(new)
    for number in range(random.randrange(5)):
        new = Image(f"added/{number}", f"added {number}", split=random.choice(SPLITS))
        expected.note(Kind.ADDED, new.split, Change(new.key, "", new.split))
        edited.append(new)
    expected.pairs = len(expected.relabels)
    return edited, expected


def compare(old: Sequence[Image], new: Sequence[Image], shards: tuple[int, int] = (1, 1)) -> Changes:
    """Compares the ledgers of two datasets without Beam."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        return compare_written(
            root, write_all(root / "old", old, shards[0]), write_all(root / "new", new, shards[1])
        )


@given(st.integers(0, 2**32), st.integers(0, 60), st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=examples(60))
def test_the_comparison_finds_exactly_the_edits(seed: int, count: int, before: int, now: int) -> None:
    random = Random(seed)
    images = [
        Image(
            f"{number}\n<é>.jpg", f"source {number}", random.choice(["cat", "dog", ""]), random.choice(SPLITS)
        )
        for number in range(count)
    ]
    edited, expected = edit(random, images)
    random.shuffle(edited)
    assert compare(images, edited, (before, now)).as_json() == expected.as_json()


def test_equal_sources_are_paired_in_the_order_of_their_keys() -> None:
    changes = Changes()
    row = diff.LedgerRow("", "train", True, short("x"), "", 1, "")
    gone = [row._replace(key=key) for key in ("c", "a")]
    come = [row._replace(key=key, side=diff.NEW) for key in ("z", "y", "x")]
    diff.pair_renamed([*come, *gone], changes)
    assert sorted(changes.listed["renamed"]) == [("x", "a", "x"), ("y", "c", "y")]
    assert changes.listed["added"] == [("z", "", "train")]
    assert "removed" not in changes.listed


def test_an_image_that_was_left_out_counts_as_added_with_the_reason() -> None:
    written = diff.LedgerRow("a", "train", True, short("x"), "", 1, "kept jpg")
    left_out = diff.LedgerRow("a", "train", False, "", "", 0, "", note="quarantined: CORRUPT")
    changes = Changes()
    assert list(diff.compare_rows(([left_out], [left_out]), changes)) == []
    for row in [
        *diff.compare_rows(([left_out], [written._replace(side=diff.NEW)]), changes),
        *diff.compare_rows(([written], [left_out]), changes),
    ]:
        diff.note_added_or_removed(row, changes)
    assert changes.listed == {
        "added": [("a", "quarantined: CORRUPT", "train")],
        "removed": [("a", "train", "quarantined: CORRUPT")],
    }


def test_the_order_of_several_classes_does_not_matter() -> None:
    assert compare([Image("a", "x", "cat\x1fdog")], [Image("a", "x", "dog\x1fcat")]).unchanged == 1


def test_equal_shards_have_equal_records(tmp_path: Path) -> None:
    stated = {name: entry(Image("a", "x"))._replace(digest=name) for name in ("old", "new")}
    splits = ({"train": [write(tmp_path / name, [one])]} for name, one in stated.items())
    assert compare_written(tmp_path, *splits).unchanged == 1


def test_sources_without_a_checksum_are_compared_by_state() -> None:
    row = diff.LedgerRow("a", "train", True, "12:1699", "", 1, "")
    assert not row.is_known
    changes = Changes()
    assert not list(diff.compare_rows(([row], [row._replace(source="12:1700")]), changes))
    assert changes.total(Kind.CHANGED) == 1


HEADER = {
    "ledger_version": 2, "file": "f", "split": "train", "shard": 0, "num_shards": 1, "plan_digest": "",
    "records": 1, "bytes": 1, "sha256": "s", "counts": {}, "reasons": {}, "class_counts": {},
}  # fmt: skip
ONE = {**HEADER, "counts": {"written": 1}}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([json.dumps({**HEADER, "ledger_version": 9})], "another version"),
        ([json.dumps({**HEADER, "sha256": "t"})], "belongs to another build"),
        ([json.dumps(ONE), '{"key": 7, "outcome": "written"}'], "its key is 7"),
        ([json.dumps(HEADER), "[" * 100_000], "is damaged"),
    ],
)
def test_a_damaged_ledger_is_refused_in_a_sentence(lines: list[str], message: str) -> None:
    data = gzip.compress("\n".join(lines).encode())
    ledger = diff.LedgerFile("gs://bucket/d/_shards/f", "train", "s")
    with pytest.raises(UsageError, match=message) as caught:
        diff.rows_of(data, ledger)
    assert caught.value.message.startswith("gs://bucket/d/_shards/f")
    assert caught.value.message.endswith("convert again.")
    with pytest.raises(UsageError, match="is damaged"):
        diff.rows_of(data[:-9], ledger)


distances = late("scipy.spatial.distance")

COUNTS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 10**7), min_size=1)


@given(COUNTS, COUNTS)
def test_distances_equal_scipys_and_the_largest_difference_of_shares(
    old: dict[str, int], new: dict[str, int]
) -> None:
    names = sorted({*old, *new})
    p, q = (np.array([counts.get(name, 0) for name in names]) for counts in (old, new))
    found = distance(old, new)
    expected = np.nan_to_num(distances.jensenshannon(p, q, base=2))
    assert found.jensen_shannon == pytest.approx(expected, abs=1e-6)
    difference = np.abs(p / p.sum() - q / q.sum())
    assert found.l_infinity == pytest.approx(difference.max(), abs=1e-12)
    if found.name:
        assert difference[names.index(found.name)] == pytest.approx(difference.max(), abs=1e-12)


def test_known_distances() -> None:
    assert distance({"a": 1}, {"b": 5}) == (1.0, "a", 1.0)
    assert distance({"a": 1, "b": 1}, {"a": 2, "b": 2}) == (0.0, "", 0.0)
    # By hand: M = (3/4, 1/4), D(P||M) = log2(4/3), D(Q||M) = log2(2/3)/2 + log2(2)/2.
    expected = math.sqrt((math.log2(4 / 3) + math.log2(2 / 3) / 2 + 0.5) / 2)
    assert distance({"a": 7}, {"a": 1, "b": 1}) == (0.5, "a", pytest.approx(expected))
    assert distance({}, {}) == distance({"a": 0}, {}) == (0.0, "", 0.0)
    assert distance({}, {"a": 1}) == distance({"a": 1}, {}) == (1.0, "", 1.0)


def test_many_changes_are_listed_by_smallest_keys() -> None:
    total = Changes()
    for start in (1, 0):
        part = Changes()
        for number in range(start, 6000, 2):
            part.note(Kind.ADDED, "train", Change(f"{number:05d}", "", "train"))
        total.merge(part)
    assert total.total(Kind.ADDED) == 6000
    assert [change.key for change in total.listed["added"]] == [f"{n:05d}" for n in range(MAX_LISTED)]


def test_reports_list_classes_by_their_names() -> None:
    changes = Changes(pairs=7)
    changes.note(Kind.RELABELLED, "b", Change("k", "cat\x1fdog", ""))
    stored = json.loads(json.dumps(changes.as_json()))
    assert stored["listed"]["relabelled"] == [{"key": "k", "old": ["cat", "dog"], "new": []}]
    assert stored["label_changes"]["pairs"] == 7


@pytest.fixture(scope="module")
def described() -> Described:
    counts = {"written": 61, "quarantined": 3, "deduplicated": 2}
    dataset = dataset_of(
        {"train": {"cat": 60}, "test": {"cat": 1}},
        {"train": 60, "test": 1},
        features=LAYOUTS["classification"].features,
        settings={"quality": 95},
        versions={"codec": "pillow"},
        ledger={**counts, "reasons": {"quarantined": {"CORRUPT": 3}}},
    )
    return Described("old", dataset)


def with_classes(described: Described, **splits: dict[str, int]) -> Described:
    names = tuple(dict.fromkeys(name for counts in splits.values() for name in counts))
    dataset = described.dataset
    plan = replace(dataset.plan, labels=names)
    return described._replace(dataset=replace(dataset, plan=plan, class_counts=splits))


def test_a_dataset_does_not_differ_from_itself(described: Described) -> None:
    drift = drift_between(described, described, Changes(unchanged=61))
    assert drift.identical
    assert drift.records.all == (61, 61)
    assert not any(drift.made.values())
    assert not drift.classes.shifts
    assert drift.left_out["quarantined"] == {"CORRUPT": (3, 3)}
    assert drift.left_out["deduplicated"] == {"copy": (2, 2)}
    assert drift.bad_fraction == (3 / 64, 3 / 64)
    assert json.loads(json.dumps(drift.as_json(), allow_nan=False))["format_version"] == 1


def test_classes_are_compared_by_name_not_by_id(described: Described) -> None:
    old = with_classes(described, train={"cat": 3, "dog": 1, "emu": 0}, test={"cat": 1})
    new = with_classes(described, train={"dog": 2, "cat": 2, "emu": 0, "fox": 0}, test={"fox": 1})
    found = drift_between(old, new, Changes()).classes
    assert (found.new, found.vanished) == (("fox",), ())
    assert found.renumbered == {"cat": Pair(0, 1), "dog": Pair(1, 0)}
    assert found.distance.splits["test"] == (1.0, "cat", 1.0)
    assert found.distance.all.l_infinity == pytest.approx(4 / 5 - 2 / 5)
    assert list(found.shifts) == ["cat", "dog", "fox"]
    backwards = drift_between(new, old, Changes()).classes
    assert (backwards.new, backwards.vanished) == ((), ("fox",))


def test_findings_are_compared_only_if_a_check_looked_for_them(described: Described) -> None:
    def validated(mode: str, **counts: int) -> Described:
        return described._replace(validation=ValidationReport("old", mode, "f", 2, 61, 1, counts, ()))

    def quality(old: Described, new: Described) -> Any:
        return drift_between(old, new, Changes()).quality

    found = quality(validated("quality", DARK=61), validated("full", UNDECODABLE=2))
    assert found["DARK"] == (1.0, None)
    assert found["UNDECODABLE"] == (0.0, pytest.approx(2 / 61))
    assert "SOURCE_MISSING" not in found
    assert quality(validated("quality"), validated("quality"))["DARK"] == (0.0, 0.0)
    assert quality(validated("fast"), described) == {}


def test_numbers_are_named_by_their_path() -> None:
    document = {
        "format_version": 3,
        "splits": {
            "train": {
                "all": {"mean": [1, 2.5, 3], "histogram": {"counts": [3]}, "long": [1] * 17, "name": "x"}
            }
        },
        "classes": {"cat": {"mean": 3}},
        "odd": [True, None, {"a": 1}],
        "infinite": math.inf,
    }
    numbers = {0: 1, 1: 2.5, 2: 3}
    assert numbers_in(document) == {f"splits.train.all.mean.{i}": value for i, value in numbers.items()}
    assert numbers_in({"a": [{"b": 1}]}) == numbers_in(None) == numbers_in("7") == {}


def test_many_splits_do_not_hide_the_numbers_of_all_images() -> None:
    splits = {f"s{i}": dict.fromkeys("abcdefghij", i) for i in range(1001)}
    assert numbers_in({"splits": splits, "total": {"all": {"mean": 7}}})["total.all.mean"] == 7


def test_settings_versions_and_features_are_compared(described: Described) -> None:
    dataset = described.dataset
    settings = {**dataset.plan.settings, "quality": 5}
    other = replace(
        dataset,
        layout="another",
        features=dataset.features[1:],
        plan=replace(dataset.plan, settings=settings),
        versions={**dataset.versions, "codec": "none"},
    )
    made = drift_between(described, Described("new", other), Changes()).made
    assert made["settings"] == {"quality": Pair(dataset.plan.settings["quality"], 5)}
    assert list(made["features"]) == [dataset.features[0].name]
    assert made["features"][dataset.features[0].name].new is None
    assert list(made["layout"]) == ["layout"] and list(made["versions"]) == ["codec"]


SAME = drift_of(changes=Changes(unchanged=100), records={"train": Pair(80, 80), "test": Pair(20, 20)})


def with_changes(**counts: int) -> Drift:
    of_kinds = Counter({(kind, "train"): count for kind, count in counts.items()})
    return replace(SAME, changes=Changes(counts=of_kinds))


POLICIES = [name for name, item in Thresholds.model_fields.items() if isinstance(item.default, Policy)]


def parse_thresholds(text: str) -> GateFile:
    return parse_gates(text, "--thresholds", "limits.yaml")


def names(drift: Drift, **wanted: Any) -> list[str]:
    return [refusal.name for refusal in check(drift, GateFile(**wanted))]


KIND_OF = {
    "max_added_fraction": "added",
    "max_removed_fraction": "removed",
    "max_renamed_fraction": "renamed",
    "max_changed_fraction": "changed",
    "max_re_encoded_fraction": "re_encoded",
    "max_label_change_fraction": "relabelled",
    "max_split_move_fraction": "moved",
}
#: A different number of each kind, so that a limit that counts another kind is noticed.
DRIFTED = replace(
    with_changes(**{kind: number for number, kind in enumerate(KIND_OF.values(), 2)}),
    records=summed({"train": Pair(80, 100), "test": Pair(20, 10), "new": Pair(None, 7)}),
    classes=replace(
        SAME.classes, distance=OfSplits(Distance(0, "", 0), {"train": Distance(0.2, "cat\n", 0.3)})
    ),
    bad_fraction=Pair(0.0, 0.02),
    quality={"DARK": Pair(0.1, 0.15), "BLURRY": Pair(None, 0.1)},
    statistics={
        "splits.train.brightness.mean": Pair(100.0, 90.0),
        "splits.test.brightness.mean": Pair(100.0, 70.0),
        "splits.test.darkbrightness.mean": Pair(1.0, 9.0),
        "splits.test.zero": Pair(0, 4),
        "splits.new.brightness.mean": Pair(None, 4),
    },
)
#: A limit that the differences meet exactly or just, one that they exceed, their value, and the message then.
CASES = [
    *((name, n / 100, n / 100 - 0.001, n / 100, f"{n} images") for n, name in enumerate(KIND_OF, 2)),
    ("max_count_jump", 0.25, 0.2, 0.25, "split 'train'"),
    ("max_count_drop", 0.5, 0.1, 0.5, "split 'test' fell 50% (20 to 10 records; limit 10%)"),
    ("max_class_l_infinity", 0.2, 0.19, 0.2, "'cat\\n'"),
    ("max_class_jensen_shannon", 0.3, 0.29, 0.3, "'train'"),
    ("max_bad_fraction", 0.02, 0.01, 0.02, "2%"),
    ("max_rise", {"DARK": 0.06}, {"DARK": 0.04}, 0.05, "DARK"),
    ("max_statistics_change", {"brightness.mean": 0.3}, {"brightness.mean": 0.2}, 0.3, "splits.test.bright"),
]


@pytest.mark.parametrize(("name", "met", "exceeded", "value", "message"), CASES)
def test_each_limit_refuses_what_exceeds_it(
    name: str, met: Any, exceeded: Any, value: float, message: str
) -> None:
    assert names(DRIFTED, **{name: met}) == []
    (refusal,) = check(DRIFTED, GateFile(**{name: exceeded}))
    assert (refusal.name, refusal.severity) == (name, Severity.ERROR)
    assert refusal.value == pytest.approx(value)
    assert refusal.limit in (exceeded.values() if isinstance(exceeded, dict) else [exceeded])
    assert refusal.message.startswith(f"{name}: ") and message in refusal.message
    assert "\n" not in refusal.message


def test_rounding_exceeds_no_limit() -> None:
    drift = replace(
        SAME,
        records=summed({"train": Pair(100, 95), "test": Pair(100, 105)}),  # 95 / 100 - 1 is below -0.05
        classes=replace(SAME.classes, distance=OfSplits(Distance(0.07 - 0.02, "cat", 0.0), {})),
        quality={"DARK": Pair(0.02, 0.07)},
        statistics={"total.all.brightness.mean": Pair(1.0, 1.05)},
    )
    limits_met = dict.fromkeys(("max_count_drop", "max_count_jump", "max_class_l_infinity"), 0.05)
    of_names = {"max_rise": {"DARK": 0.05}, "max_statistics_change": {"brightness.mean": 0.05}}
    assert names(drift, **limits_met, **of_names) == []


def test_all_limits_that_are_exceeded_are_reported() -> None:
    exceeded = {name: limit for name, _, limit, *_ in CASES}
    assert sorted(names(DRIFTED, **exceeded)) == sorted(exceeded)


def test_every_kind_of_change_has_a_limit() -> None:
    assert list(limits.IMAGE_LIMITS) == list(KIND_OF)


def test_every_change_of_an_empty_dataset_exceeds_a_limit() -> None:
    drift = replace(with_changes(added=1), records=summed({"train": Pair(0, 1)}))
    assert names(drift, max_added_fraction=0.99) == ["max_added_fraction"]


def test_a_split_that_is_gone_fell_by_everything() -> None:
    gone = replace(SAME, records=summed({"train": Pair(80, 80), "test": Pair(20, None)}))
    assert [refusal.value for refusal in check(gone, GateFile(max_count_drop=0.3))] == [1.0]


def test_a_limit_of_unknown_numbers_refuses() -> None:
    (refusal,) = check(DRIFTED, GateFile(max_rise={"BLURRY": 1.0}))
    assert refusal.value is None and "the old dataset was not validated" in refusal.message
    assert names(replace(DRIFTED, fingerprints=Pair("a", "a")), max_rise={"BLURRY": 1.0}) == []
    for unknown in ("zero", "nothing", "splits.new.brightness.mean"):
        (refusal,) = check(DRIFTED, GateFile(max_statistics_change={unknown: 9.0}))
        assert refusal.value is None


@pytest.mark.parametrize(
    ("name", "drift"),
    [
        ("new_classes", replace(SAME, classes=replace(SAME.classes, new=("cat",)))),
        ("vanished_classes", replace(SAME, classes=replace(SAME.classes, vanished=("cat",)))),
        ("renumbered_classes", replace(SAME, classes=replace(SAME.classes, renumbered={"cat": Pair(1, 2)}))),
        ("changed_features", replace(SAME, made={"layout": {"cat": Pair(1, 2)}})),
        ("changed_settings", replace(SAME, made={"settings": {"cat": Pair(1, 2)}})),
        ("changed_versions", replace(SAME, made={"versions": {"cat": Pair(1, 2)}})),
    ],
)
def test_policies_allow_warn_or_refuse(name: str, drift: Drift) -> None:
    for policy, severities in (("allow", []), ("warn", [Severity.WARNING]), ("refuse", [Severity.ERROR])):
        found = check(drift, parse_thresholds(f"{name}: {policy}"))
        assert [refusal.severity for refusal in found] == severities
        assert all("'cat'" in refusal.message for refusal in found)


def test_by_default_only_a_class_with_another_id_is_refused() -> None:
    everything = replace(
        with_changes(**{kind.value: 50 for kind in Kind}),
        records=summed({"train": Pair(80, 1)}),
        classes=ClassDrift(OfSplits(Distance(1, "a", 1), {}), ("a",), ("b",), {"c": Pair(1, 2)}, {}),
        bad_fraction=Pair(0.0, 1.0),
        made={"settings": {"a": Pair(1, 2)}},
    )
    assert [refusal.name for refusal in check(everything, GateFile())] == ["renumbered_classes"]


def test_a_file_may_contain_every_limit_or_none() -> None:
    text = "\n".join(
        {
            "max_rise": "max_rise:\n  DARK: 0.01\n  UNDECODABLE: 0",
            "max_statistics_change": "max_statistics_change: {brightness.mean: 1e-1}",
        }.get(name, f"{name}: {'warn' if name in POLICIES else 0.5}")
        for name in Thresholds.model_fields
    )
    found = parse_thresholds(text)
    assert found.max_rise == {"DARK": 0.01, "UNDECODABLE": 0.0}
    assert found.vanished_classes is Policy.WARN
    assert found.as_json().keys() == set(Thresholds.model_fields)
    for empty in ("", "# nothing\n", "{}"):
        assert parse_thresholds(empty) == GateFile()


@given(st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.floats(), st.booleans())))
def test_any_file_gives_limits_or_a_message(document: dict[str, Any]) -> None:
    import yaml

    try:
        parse_thresholds(yaml.safe_dump(document, allow_unicode=True))
    except UsageError:
        return
    assert document.keys() <= set(GateFile.model_fields)
