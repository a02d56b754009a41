"""Rebuilds with other settings, with sources of all kinds that changed, and after damage to versions."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.annotation_sets.coco import put_coco
from helpers.from_nothing import (
    Rebuilt,
    alter_in_secret,
    begin,
    entries_of,
    inodes,
    other_pixels,
    unchanged,
    work,
    write_bmps,
)
from helpers.hostile import flip, make_tree, picture
from helpers.packing import tar_info, tar_of, zip_of

from shardwright.core import storage
from shardwright.core.conversion import ReusableRecord
from shardwright.core.dataset_files import read_dataset
from shardwright.core.rebuild.begin import PreviousState, read_input
from shardwright.core.rebuild.compare import decide
from shardwright.core.shards import reuse
from shardwright.pipelines import prepare
from shardwright.schemas.errors import DataRefused
from shardwright.schemas.ledger import Entry
from shardwright.schemas.plan import Forecast
from shardwright.schemas.provenance import Provenance


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with eight pictures in `in`, and the first version of their dataset."""
    root = tmp_path_factory.mktemp("first")
    write_bmps(root / "in", 8)
    begin(root)
    return root


@pytest.fixture
def rebuilt(first: Path, tmp_path: Path) -> Rebuilt:
    """A copy of both in the temporary folder."""
    shutil.copytree(first, tmp_path, dirs_exist_ok=True)
    return Rebuilt(tmp_path, input=str(tmp_path / "in"), shards="2")


def test_another_version_of_the_software_converts_everything_and_the_frames_of_records_nothing(
    rebuilt: Rebuilt, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = prepare.software_versions()

    def versions(**others: str) -> None:
        monkeypatch.setattr(prepare, "software_versions", lambda hook: {**known, **others})

    versions(beam="99.1")  # Beam frames records but does not create them
    frames = {"splits": "train=0.6,test=0.4", "compression": "gzip", "shards": "", "shard_size": "1kB"}
    assert work(rebuilt, **frames) == (0, 8, 0)
    versions(beam="99.1", shardwright="99.0")
    result = rebuilt.again(compared=False)
    assert result.outcome["work"]["converted"] == 8
    assert any("shardwright is 99.0, was " in reason for reason in result.outcome["reasons"])


def test_reasons_name_missing_files_and_statements_but_do_not_show_layouts(sound_dataset: Path) -> None:
    dataset = replace(read_dataset(str(sound_dataset)), provenance=Provenance(license="CC0-1.0"))
    plan = replace(dataset.plan, settings={**dataset.plan.settings, "layout": '{"name": "own"}'})
    forecast = Forecast(plan, {}, {}, {}, 0, 0, {}, 0, {})
    previous = PreviousState("v", dataset=dataset, missing=frozenset({"a.idx"}))
    stated = Provenance(url="https://example.com")
    decision = decide(previous, forecast, [], dataset.versions, stated, [])
    missing = "1 file of the latest version is missing, such as a.idx"
    of_origin = ("--license was removed", "--url is new")
    assert decision.build and decision.reasons == ("--layout differs", missing, *of_origin)


def test_copies_that_were_written_again_change_nothing_and_replace_a_removed_image(tmp_path: Path) -> None:
    make_tree(tmp_path / "in", 6)
    copies = [tmp_path / "in" / "ant" / f"copy{number}.jpg" for number in range(8)]
    for copy in (*copies, tmp_path / "in" / "bee" / "copy.jpg"):
        shutil.copy(tmp_path / "in" / "ant" / "000.jpg", copy)
    rebuilt = begin(tmp_path, dedupe="exact")
    for copy in copies:
        os.utime(copy, (1, 1))
    (tmp_path / "in" / "bee" / "new.png").write_bytes(picture(99))
    reused, _, converted = work(rebuilt, compared=False)
    assert (reused, converted) == (1, 1)
    (tmp_path / "in" / "ant" / "000.jpg").unlink()
    assert work(rebuilt)[2] == 1
    assert unchanged(rebuilt)


@pytest.mark.slow
def test_under_a_limit_a_new_image_can_replace_another(tmp_path: Path) -> None:
    make_tree(tmp_path / "in", 8)
    rebuilt = begin(tmp_path, limit=5)
    for i in range(20, 30):
        (tmp_path / "in" / "ant" / f"{i}.png").write_bytes(picture(i))
    before = entries_of(rebuilt.latest)
    converted = work(rebuilt)[2]
    after = entries_of(rebuilt.latest)
    taken = [{k for k, e in entries.items() if e.outcome == "written"} for entries in (before, after)]
    assert 0 < converted == len(taken[1] - taken[0]) and len(taken[1]) == 5
    assert work(rebuilt, limit=6)[2] == 1


def test_hidden_changes_are_found_by_the_change_time(rebuilt: Rebuilt) -> None:
    paths = sorted((rebuilt.root / "in").rglob("*.bmp"))
    for path in paths[:4]:
        alter_in_secret(path, other_pixels(path))
    paths[1].with_name("new.bmp").write_bytes(picture(60, "BMP", 8))  # its shard differs in any case
    assert work(rebuilt) == (0, 4, 5)
    next(rebuilt.output.rglob("input.json")).unlink()  # without it, the time of the version counts
    alter_in_secret(paths[0], other_pixels(paths[0]))
    for index in (rebuilt.latest / "_index").iterdir():  # a shard without its index can be reused otherwise
        index.unlink()
    assert work(rebuilt, compared=False)[2] == 1
    assert unchanged(rebuilt)


@pytest.mark.parametrize("state", ["unknown", "touched", pytest.param("known", marks=pytest.mark.slow)])
def test_records_of_a_refused_version_are_not_trusted_more_than_its_sources(
    rebuilt: Rebuilt, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    if state == "unknown":
        monkeypatch.setattr(storage, "local_version", lambda status: "")
    folder = rebuilt.root / "in" / "a"
    (folder / "new.bmp").write_bytes(picture(60, "BMP", 8))
    (folder / "bad.bmp").write_bytes(b"BM")
    with pytest.raises(DataRefused):
        rebuilt.again(shards="1", max_bad_fraction=0.0)
    alter_in_secret(folder / "2.bmp", other_pixels(folder / "2.bmp"))
    assert work(rebuilt, compared=False, max_bad_fraction=1.0, verify_sources=state == "known")[2] == 2
    remembered = read_input(str(rebuilt.output))
    assert remembered and (remembered.version == rebuilt.latest.name) == (state != "unknown")
    if state == "unknown":  # all images are read each time
        alter_in_secret(folder / "4.bmp", other_pixels(folder / "4.bmp"))
        assert work(rebuilt, compared=False) == (0, 8, 1)


def test_a_record_that_is_damaged_meanwhile_is_converted_again(
    rebuilt: Rebuilt, monkeypatch: pytest.MonkeyPatch
) -> None:
    (rebuilt.root / "in" / "a" / "4.bmp").write_bytes(picture(77, "BMP", 8))
    tried: list[str] = []

    def record(entry: Entry, unchanged: bool, read_frame: Any, more: tuple[Entry, ...]) -> ReusableRecord:
        def every_other(offset: int, length: int) -> bytes | None:
            tried.append(entry.key)
            return read_frame(offset, length) if len(tried) % 2 else None

        return ReusableRecord(entry, unchanged, every_other, more)

    monkeypatch.setattr(reuse, "ReusableRecord", record)
    assert work(rebuilt, shards="1") == (0, 4, 4)
    assert len(tried) == 7
    assert unchanged(rebuilt)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["cut ledger", "shard", "ledger", "damaged ledger"])
def test_missing_files_of_the_latest_version_are_restored(rebuilt: Rebuilt, kind: str) -> None:
    name, other = sorted(inodes(rebuilt.latest))
    (rebuilt.latest / "_index" / other.replace(".tfrecord", ".idx")).unlink()
    ledger = rebuilt.latest / "_shards" / name.replace(".tfrecord", ".jsonl.gz")
    if kind == "damaged ledger":
        flip(ledger, 30)
    elif kind == "cut ledger":
        ledger.write_bytes(ledger.read_bytes()[:-9])
    else:
        {"shard": rebuilt.latest / name, "ledger": ledger}[kind].unlink()
    reused, copied, converted = work(rebuilt)
    assert reused == 1 and copied == 0 < converted < 8
    assert unchanged(rebuilt)


def test_only_what_changed_inside_of_files_is_converted(tmp_path: Path) -> None:
    """Members of archives, and rows of a manifest."""
    members = {f"{'train' if i < 4 else 'test'}/{'ab'[i % 2]}/{i}.png": picture(i) for i in range(8)}
    sources = {kind: tmp_path / f"in.{kind}" for kind in ("zip", "tar", "csv")}
    sources["zip"].write_bytes(zip_of(members))
    sources["tar"].write_bytes(tar_of(members))
    write_bmps(tmp_path / "images", 6)
    rows = [[f"images/{'ab'[i % 2]}/{i}.bmp", f"c{i % 3}|d", "train" if i < 4 else "test"] for i in range(6)]

    def write_rows() -> None:
        lines = [",".join(row) for row in [["image", "label", "split"], *rows]]
        sources["csv"].write_text("\n".join(lines))

    write_rows()
    inputs = [f"{kind}={path}" for kind, path in sources.items()]
    rebuilt = begin(tmp_path, input=inputs, label_separator="|")
    first, *others = members.items()
    changed = [(first[0], picture(50)), *others, ("test/a/new.png", picture(51))]
    sources["zip"].write_bytes(zip_of(changed))
    headers = [(tar_info(name, len(data)), data) for name, data in changed]
    headers[0][0].mtime += 1
    sources["tar"].write_bytes(tar_of(headers))
    rows[0][1] = "c2"
    rows[4][0] = ""
    rows[5][2] = "train"  # a record does not contain its split
    rows.reverse()
    write_rows()
    result = rebuilt.again()
    assert result.outcome["work"]["converted"] == 4 + 1
    no_shard = "the number of files without a key differs"  # the row without an image
    assert result.outcome["reasons"] == [no_shard, "2 of 4 shards changed"]
    assert unchanged(rebuilt)


def test_changed_boxes_and_renamed_categories_convert_only_their_images(tmp_path: Path) -> None:
    photos = write_bmps(tmp_path / "in", 4)
    names = [str(path.relative_to(tmp_path / "in")) for path in photos]
    boxes = {name: [(1 + i % 2, 1, 1, 3, 3)] for i, name in enumerate(names)}
    file = put_coco(tmp_path / "in" / "annotations.json", boxes, ("ant", "bee"))
    document = json.loads(file.read_text())
    rebuilt = begin(tmp_path, layout="detection", source="coco")
    document["annotations"][0]["bbox"] = [2, 2, 3, 3]
    document["images"].append({"id": 9, "file_name": "gone.png", "width": 8, "height": 8})
    document["categories"] = [{"id": 1, "name": "ant"}, {"id": 2, "name": "cat"}]
    file.write_text(json.dumps(document))
    assert work(rebuilt)[2] == 1 + 2
    assert unchanged(rebuilt)
