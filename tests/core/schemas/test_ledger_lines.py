"""Ledgers: read as they were written, collected in groups, and refused in little memory if wrong."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import tracemalloc
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from helpers.ledgers import dump_ledger
from helpers.memory import traced_memory
from hypothesis import given
from hypothesis import strategies as st

from shardwright.core.shards.shard_plan import Recipes, recipes_of
from shardwright.schemas import ledger
from shardwright.schemas.annotations import Annotations, ObjectAnnotation
from shardwright.schemas.byte_range import DEFLATE, PIXELS, ByteRange
from shardwright.schemas.codes import FilterReason, Outcome
from shardwright.schemas.configuration.setting import Affects
from shardwright.schemas.configuration.settings import (
    RECORDED,
    ConvertSettings,
    settings_that_affect,
)
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.json_values import from_json
from shardwright.schemas.ledger import (
    Entry,
    LedgerLines,
    PlanDigest,
    ShardHeader,
    ShardTotals,
    dump_index,
    line_blocks,
    load_ledger,
    recipe_digest,
    ref_digest,
    total_of,
    written_entries,
)
from shardwright.schemas.plan import ShardPlace

_PLACE = ShardPlace("train", 0, 1)


def filtered(number: int) -> Entry:
    """Returns the entry of a file that was left out when it was listed."""
    return Entry(
        f"class/{number:08}.jpg",
        Outcome.FILTERED,
        f"1234:{number}",
        reason=FilterReason.NOT_INCLUDED,
        digest=f"{hash(number) & 0xFFFFFFFF:016x}",
    )


_ENTRIES = st.builds(
    Entry,
    st.text() | st.sampled_from(['a"b', "a\\u0062", "a\\", "\ud83d", "\ude00", "\x7f", "\n"]),
    st.sampled_from([outcome.value for outcome in Outcome]),
    st.text(max_size=5),
    st.text("0123456789abcdef", min_size=64, max_size=64),
    st.sampled_from(["", "a", "b|c"]),
    st.none() | st.integers(0, 10**12),
    st.none() | st.integers(0, 10**6),
    animated=st.booleans(),
    boxes=st.none() | st.just({"written": 1}) | st.just({}),
    fold=st.none() | st.integers(0, 3),
    source_width=st.none() | st.integers(0, 10**19),
)


@given(st.lists(_ENTRIES, max_size=40), st.integers(1, 9))
def test_groups_do_not_change_the_files(entries: list[Entry], together: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "ENTRIES_TOGETHER", together)
        lines = LedgerLines(entries)
        header = replace(lines.header(_PLACE), file="train-00000-of-00001.tfrecord")
        data = lines.dump(header)
        assert data == lines.dump(header)
    text = [json.dumps(header.as_json(), sort_keys=True), *(json.dumps(entry.as_json()) for entry in entries)]
    at_once = io.BytesIO()
    with gzip.GzipFile(fileobj=at_once, mode="wb", mtime=0, filename="", compresslevel=1) as file:
        file.write("\n".join(text).encode("ascii") + b"\n")
    assert data == at_once.getvalue()
    assert lines.index == dump_index(entries)
    assert lines.header(_PLACE) == totals_of(entries).header(_PLACE)


@pytest.mark.slow
def test_lines_take_a_fraction_of_the_memory_of_entries() -> None:
    def peak_of(count: int) -> int:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        lines = LedgerLines(map(filtered, range(count)))
        lines.dump(lines.header(_PLACE))
        return tracemalloc.get_traced_memory()[1] - before

    with traced_memory():
        assert (peak_of(40_000) - peak_of(20_000)) / 20_000 < 120  # an entry takes 600 bytes


@pytest.mark.slow
def test_entries_that_are_not_wanted_take_no_memory() -> None:
    entries = [Entry("a.jpg", Outcome.WRITTEN, offset=0, length=20), *map(filtered, range(30_000))]
    lines = LedgerLines(entries)
    data = lines.dump(replace(lines.header(_PLACE), sha256="x"))
    with traced_memory() as peak:
        assert list(written_entries(data, "x")) == entries[:1]
        assert peak() < 5e6


ENTRIES = [Entry(key=f"{number}.png", outcome=Outcome.WRITTEN) for number in range(5)]
HEADER = ShardHeader("train-0", "train", 0, 1, "digest", 5, 1000, "sha", counts=Counter(written=5))
LINES = gzip.decompress(dump_ledger(HEADER, ENTRIES))


def dumped(entries: list[Entry]) -> bytes:
    """Returns a ledger with entries."""
    return dump_ledger(replace(HEADER, counts={"written": len(entries)}), entries)


@given(st.lists(_ENTRIES, max_size=6))
def test_a_ledger_reads_as_it_was_written(entries: list[Entry]) -> None:
    assert list(load_ledger(dumped(entries))[1]) == entries


@pytest.mark.parametrize(
    "line", [b"[]", b'{"key": "a"}', b'{"key": "a", "outcome": "written", "offset": 01}']
)
def test_a_wrong_line_is_found(line: bytes) -> None:
    head, *lines = gzip.decompress(dumped(ENTRIES[:3])).splitlines()
    data = gzip.compress(b"\n".join([head, *lines[:2], line]) + b"\n")
    with pytest.raises(ValueError):
        list(load_ledger(data)[1])


@pytest.mark.parametrize(
    "more",
    [b"{}\n", b"{}", b'{"key": "a", "outcome": "filtered"}\n' * 100_000, bytes(50_000_000)],
    ids=["line", "unfinished line", "lines", "zeros"],
)
def test_more_lines_than_the_header_counts_are_damage(more: bytes) -> None:
    data = gzip.compress(LINES + more)
    with traced_memory() as peak:
        with pytest.raises(ValueError, match="damaged"):
            load_ledger(data)
        assert peak() < 40_000_000


REF = ImageRef("a/x.png", "/in/a/x.png", label="a", split="train", size=9, version="7")
BOX = Annotations(objects=(ObjectAnnotation("a", (0, 0, 1, 1)),))


def plan_digest(recipe: str, refs: Iterable[tuple[ImageRef, str]]) -> str:
    """Returns the digest of a shard's references."""
    digest = PlanDigest(recipe)
    for ref, line in refs:
        digest.add_refs([ref], [line])
    return digest.hexdigest()


#: Settings that the plan records only if they are given.
SELECTION: dict[str, Any] = {
    "min_bytes": "1kB", "min_side": 9, "max_aspect": 2.0, "max_per_class": 9, "drop": "DARK",
    "map": "module:function", "skip_formats": "psd",
    "splits": "a=1/2,b=1/2", "split_mode": "exact", "folds": 3,
    "depth": "keep", "channels": 5, "white": 4095,
}  # fmt: skip


def test_what_a_setting_affects_decides_the_plan_and_the_digests() -> None:
    """Every digest includes what a setting affects, so a change here converts old datasets again."""
    settings = ConvertSettings(input=("in",), bounds="TOO_MANY_SCANS=7", **SELECTION)
    assert set(settings_that_affect(*RECORDED)) == set(settings.identity())
    assert settings_that_affect(Affects.SHARD) == ("seed", "compression", "min_side", "max_aspect")
    assert set(settings_that_affect(Affects.RECORD)) == {
        "layout", "resize", "fit", "resample", "image_format", "quality", "color", "background",
        "strip_metadata", "damaged", "max_pixels", "max_bytes", "bad_boxes", "extra_columns",
        "label_separator", "unlabelled", "bounds", "skip_formats", "map", "drop", "folds",
        "depth", "channels", "white",
    }  # fmt: skip
    identity = ConvertSettings(input=("in",), resize="224").identity()
    recipes = recipes_of(identity, {"pillow": "2"})
    assert recipes.record == "3a5d41cdf83a8004ef9f6f366dfbe5832d8321f785e108ae0ba2ac90381385b7"
    assert recipes.shard == "0e53dff75f8f5b46c130bb2a172ebe10d9adece617a08fcc550dbbc3e846e0da"
    framed = recipes_of(identity, {"pillow": "2", "beam": "3"})
    assert framed.record == recipes.record and framed.shard != recipes.shard


def test_bounds_are_in_the_digest_if_they_differ_from_the_defaults() -> None:
    def recipes(bounds: str) -> Recipes:
        settings = ConvertSettings(input=("in",), bounds=bounds)
        settings.check()
        return recipes_of(settings.identity(), {"pillow": "2"})

    assert "bounds" not in ConvertSettings(input=("in",), bounds="TOO_MANY_SCANS=100").identity()
    assert recipes("") == recipes("TOO_MANY_SCANS=100")
    changed = recipes("TOO_MANY_SCANS=101, TOO_MANY_STRIPS=9")
    assert changed.record != recipes("").record and changed.shard != recipes("").shard
    assert changed == recipes("TOO_MANY_STRIPS=9,TOO_MANY_SCANS=101")


def test_settings_outside_the_identity_are_listed_here() -> None:
    names = {field.name for field in dataclasses.fields(ConvertSettings)}
    assert names - ConvertSettings(bounds="TOO_MANY_SCANS=7", **SELECTION).identity().keys() == {
        "input", "output", "plan_from", "overwrite", "resume",  # where and how it runs
        "max_bad_fraction", "verify",  # whether the data passes
        "image_root", "mask_dir", "keep_labels", "class_names",  # references and labels contain their effect
        "confine",  # references contain its effect
        "include", "exclude",  # references or entries of the ledger contain their effect
        *settings_that_affect(Affects.PROVENANCE),
    }  # fmt: skip


#: Fields of a reference that its digest covers, and others, which are about the place or state of the source.
COVERED: dict[str, Any] = {
    "key": "a/y.png", "label": "b", "sha256": "00", "outcome": "filtered", "reason": "UNKNOWN_LABEL",
    "annotations": BOX.encode(), "extra": '{"price": [1]}',
}  # fmt: skip
IGNORED: dict[str, Any] = {
    "uri": "/elsewhere/x.png", "size": 10, "version": "8", "split": "test", "group": "g",
    "crc32c": "AAAAAA==", "message": "row 7", "place": ByteRange("", 5, 9).encode(),
}  # fmt: skip


@pytest.mark.parametrize("field", [*COVERED, *IGNORED])
def test_the_digest_covers_what_a_reference_adds_to_its_record_but_not_its_place(field: str) -> None:
    changed = REF._replace(**{field: {**COVERED, **IGNORED}[field]})
    assert (ref_digest(changed, [0]) != ref_digest(REF, [0])) == (field in COVERED)


def test_the_digest_covers_class_ids_and_further_values() -> None:
    objects = REF._replace(label="a\x1fb", annotations=BOX.encode())
    seen = {ref_digest(objects, ids) for ids in ([0, 1], [1, 0], [0, -1])}
    assert len(seen | {ref_digest(objects, [0, 1], "train"), ref_digest(objects, [0, 1], "test")}) == 5


def test_the_digest_covers_shape_and_order_of_raw_pixels() -> None:
    places = [
        ByteRange("", 5, 12, PIXELS, shape=(2, 2, 3)),
        ByteRange("", 5, 12, PIXELS, shape=(1, 4, 3)),
        ByteRange("", 5, 12, PIXELS, shape=(2, 2, 3), planar=True),
        ByteRange("", 5, 12, PIXELS, shape=(2, 2, 3), dtype="|b1"),
        ByteRange("", 5, 12, "base64_pixels", shape=(2, 2, 3)),
        ByteRange("", 5, 12),
    ]
    assert len({ref_digest(REF._replace(place=place.encode()), [0]) for place in places}) == len(places)
    member = ByteRange("", 5, 12, DEFLATE, name="a/pixels")
    assert ref_digest(REF._replace(place=member.encode()), [0]) == ref_digest(REF, [0])
    moved = places[0]._replace(file="/spool/3", offset=900, file_size=1000, file_version="9")
    assert ref_digest(REF._replace(place=moved.encode()), [0]) == ref_digest(
        REF._replace(place=places[0].encode()), [0]
    )


def test_the_state_of_a_record_covers_its_masks() -> None:
    def digest(version: str, **where: Any) -> str:
        place = ByteRange("", 5, 9)._replace(**where).encode()
        annotations = Annotations(objects=(ObjectAnnotation("a", mask_place=place),), semantic_place=place)
        return ref_digest(REF._replace(version=version).annotated(annotations), [0])

    moved = digest("7", file="/versions/2/_work/spool", offset=77, file_size=99, file_version="5")
    assert digest("7") == moved != digest("8")
    assert digest("7", method="deflate") != moved


def test_the_digest_covers_the_message_of_a_fault_but_not_of_a_row() -> None:
    first, second = (REF.quarantined("BAD_ROW", f"row {n}: no image") for n in (3, 4))
    assert ref_digest(first, []) != ref_digest(second, [])


def test_the_shards_digest_covers_states_and_order_of_its_candidates() -> None:
    other = REF._replace(key="b")
    refs = [(ref, ref_digest(ref, [0])) for ref in (REF, other)]
    digest = plan_digest("recipe", refs)
    assert digest != plan_digest("recipe", refs[::-1])
    assert digest != plan_digest("other", refs)
    touched = REF._replace(version="8")
    assert digest != plan_digest("recipe", [(touched, refs[0][1]), refs[1]])
    left_out = [REF.filtered("DOTFILE"), touched.filtered("DOTFILE")]
    assert len({plan_digest("recipe", [(ref, ref_digest(ref, [0]))]) for ref in left_out}) == 1


def test_the_recipes_digest_covers_settings_and_versions_in_any_order() -> None:
    assert recipe_digest({"a": 1, "b": 2}, {"x": "1"}) == recipe_digest({"b": 2, "a": 1}, {"x": "1"})
    seen = {recipe_digest({"a": 1}, {"x": "1"}), recipe_digest({"a": 2}, {"x": "1"})}
    assert len(seen | {recipe_digest({"a": 1}, {"x": "2"}), recipe_digest({"a": 1}, {})}) == 4


def test_a_truncated_or_changed_ledger_is_damaged() -> None:
    header = replace(HEADER, counts={"written": 400})
    entries = [Entry(f"{n}", "written", sha256=f"{n * 7919:064x}", mask_sha256="m") for n in range(400)]
    data = dump_ledger(header, entries)
    stored, lines = load_ledger(data)
    assert stored == header and list(lines) == entries
    assert next(line_blocks(data)) == gzip.decompress(data).splitlines()[:1]
    for damaged in (data[:-1], data[: len(data) // 2], b"", data[:-20] + b"\0" + data[-19:]):
        with pytest.raises(ValueError, match="damaged"):
            load_ledger(damaged)


def entry(number: int) -> Entry:
    return Entry(
        f"{number}.jpg", "written", source_width=100 + number, source_height=50, source_bytes=1_000 * number
    )


def totals_of(entries: Iterable[Entry]) -> ShardTotals:
    totals = ShardTotals()
    for one in entries:
        totals.add(one)
    return totals


def test_shards_add_up_to_the_same_in_any_order() -> None:
    entries = [entry(number) for number in range(1, 11)]
    whole = totals_of([*entries, Entry("bad.jpg", "quarantined")])
    parts = [totals_of(entries[at : at + 3]).header(_PLACE).as_json() for at in (6, 0, 9, 3)]
    merged = total_of(from_json(ShardHeader, json.loads(json.dumps(part))) for part in parts)
    assert merged.sources == whole.sources
    sizes = whole.sizes_of_sources()
    assert sizes["images"] == 10
    assert (sizes["width"]["min"], sizes["width"]["max"], sizes["width"]["mean"]) == (101, 110, 105.5)
    assert sizes["bytes"]["sum"] == 55_000 and sizes["height"]["std"] == 0


def test_sums_of_many_shards_keep_the_texts_of_a_few_images() -> None:
    shards = [totals_of([Entry(f"{n}/{i}", "written", message="bad") for i in range(5)]) for n in range(4)]
    assert total_of(shards).bad_boxes == ("0/0 (bad)", "0/1 (bad)", "0/2 (bad)")


def test_unknown_sizes_are_reported_as_unknown() -> None:
    totals = totals_of([Entry("a", "written")])
    assert totals.sources == {} and totals.sizes_of_sources() == {"images": 0}


def test_a_ledger_of_another_version_is_refused() -> None:
    for version in (1, 3):
        other = gzip.compress(LINES.replace(b'"ledger_version": 2', b'"ledger_version": %d' % version))
        with pytest.raises(ValueError, match="of another version"):
            load_ledger(other)


@pytest.mark.parametrize(
    ("number", "change"),
    [
        (0, {"counts": None}), (0, {"counts": {"written": "many"}}), (0, {"counts": {"written": None}}),
        (0, {"counts": [5]}), (0, {"num_shards": "1"}), (0, {"plan_digest": True}), (0, {"split": None}),
        (0, {"kept": "1"}),
        (0, {"formats": {"jpg": "1"}}), (0, {"sources": {"width": "x"}}), (0, {"sources": {"width": []}}),
        (0, {"sources": {"width": [0, 1, "1", "1", "x", "x"]}}),
        (1, {"label": {}}), (1, {"offset": "0"}), (1, {"sha256": None}), (1, {"boxes": {"written": "1"}}),
        (1, {"dtype": 8}), (1, {"boxes": 3}), (1, {"outcome": []}),
    ],
)  # fmt: skip
def test_a_value_of_a_wrong_type_is_damage(number: int, change: dict[str, Any]) -> None:
    documents = [*map(json.loads, LINES.splitlines())]
    documents[number] |= change
    lines = "".join(f"{json.dumps(document)}\n" for document in documents)
    with pytest.raises(ValueError, match=r"damaged: .*(its |'many')"):
        list(load_ledger(gzip.compress(lines.encode()))[1])


def test_fields_of_later_versions_are_ignored() -> None:
    documents = ({**json.loads(line), "later": 1} for line in LINES.splitlines())
    later = "".join(f"{json.dumps(document)}\n" for document in documents)
    read, entries = load_ledger(gzip.compress(later.encode()))
    assert read == HEADER and [*entries] == ENTRIES
