"""Class ids and splits of datasets that grow, and exact, stratified and uneven splits."""

from __future__ import annotations

import html
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from helpers.depths import compared, findings_of
from helpers.from_nothing import begin
from helpers.hostile import picture
from helpers.records import by_key, value
from helpers.trees import put_files
from PIL import Image

from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.pipelines.plan import plan
from shardwright.pipelines.prepare import make_request
from shardwright.pipelines.report import report
from shardwright.pipelines.results import ConvertResult
from shardwright.schemas.errors import UsageError
from shardwright.schemas.ledger import load_ledger

#: The classes of each build: the second lacks one and has new ones in several places.
BUILDS = (
    {"dog": 2, "cat": 1, "10": 1},
    {"ant": 1, "bee": 1, "dog": 1, "10": 1, "zebra": 1},
    {"cat": 2, "ant": 1, "cow/calf": 1, "9": 1},
)
FINAL = ("10", "cat", "dog", "ant", "bee", "zebra", "9", "cow/calf")


def put_pictures(root: Path, counts: Mapping[str, int]) -> Path:
    """Writes different pictures into folders; returns the folder that contains these."""
    names = [f"{folder}/{i}.png" for folder, count in counts.items() for i in range(count)]
    return put_files(root, {name: picture(seed) for seed, name in enumerate(names)})


def build(folder: Path, number: int, **settings: Any) -> ConvertResult:
    """Converts the tree of one of the builds, which continues the previous build."""
    put_pictures(folder / f"in{number}", BUILDS[number])
    carried = {"plan_from": str(folder / f"out{number - 1}")} if number else {}
    values = {"input": str(folder / f"in{number}"), "output": str(folder / f"out{number}"), "resize": 16}
    return convert(verify="none", **values, **carried, **settings)


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chain")
    for number in range(len(BUILDS)):
        build(folder, number, **({} if number else {"label_depth": "all"}))
    return folder


def test_ids_stay_the_same_over_three_builds(chain: Path) -> None:
    for number, known in enumerate((3, 6, 8)):
        labels = FINAL[:known]
        output = chain / f"out{number}"
        assert (output / "labels.txt").read_text() == "".join(
            f"{i}:{name}\n" for i, name in enumerate(labels)
        )
        found = by_key(output).values()
        assert {(value(item, "image/class/text"), value(item, "image/class/label")) for item in found} == {
            (name, labels.index(name)) for name in BUILDS[number]
        }


def test_class_names_may_agree_with_the_plan(chain: Path, tmp_path: Path) -> None:
    names = (*FINAL, "more", "and more")
    (tmp_path / "names.txt").write_text("\n".join(names))
    places = {"plan_from": str(chain / "out2"), "class_names": str(tmp_path / "names.txt")}
    assert plan(input=str(chain / "in0"), **places).plan.labels == names


Capture = pytest.CaptureFixture[str]
SPLITS = "train=0.7,validation=0.2,test=0.1"


def write(folder: Path, label: str, numbers: range) -> None:
    """Writes pictures of four for each patient."""
    (folder / label).mkdir(parents=True, exist_ok=True)
    for number in numbers:
        color = (number, len(label), ord(label[0]))
        Image.new("RGB", (8, 8), color).save(folder / label / f"p{number // 4:03d}_{number:04d}.png")


def places_of(dataset: Path) -> dict[str, tuple[str, int | None]]:
    """Returns key -> split and fold, from the ledgers."""
    found = {}
    for ledger in (dataset / "_shards").iterdir():
        header, entries = load_ledger(ledger.read_bytes())
        found |= {entry.key: (header.split, entry.fold) for entry in entries if entry.outcome == "written"}
    return found


def class_counts(dataset: Path) -> dict[str, list[int]]:
    """Returns class -> number of records in each split."""
    document = json.loads((dataset / "dataset.json").read_text())
    counts = document["class_counts"]
    return {name: [of_split.get(name, 0) for of_split in counts.values()] for name in document["labels"]}


def test_images_keep_their_split_and_new_classes_meet_their_shares(tmp_path: Path) -> None:
    write(tmp_path / "in", "cat", range(60))
    write(tmp_path / "in", "dog", range(13))
    rebuilt = begin(tmp_path, splits=SPLITS, split_mode="stratified", folds=3, shards="1")
    assert class_counts(rebuilt.latest) == {"cat": [42, 12, 6], "dog": [9, 3, 1]}
    before = places_of(rebuilt.latest)
    write(tmp_path / "in", "cat", range(60, 90))
    write(tmp_path / "in", "bird", range(20))
    assert rebuilt.again().changed  # and the version equals a full build
    after = places_of(rebuilt.latest)
    assert {key: after[key] for key in before} == before
    birds = Counter(place for key, place in after.items() if key.startswith("bird/"))
    assert [birds["train", fold] for fold in range(3)] in ([5, 5, 4], [5, 4, 5], [4, 5, 5])
    counts = class_counts(rebuilt.latest)
    assert counts["bird"] == [14, 4, 2] and counts["dog"] == [9, 3, 1]
    assert sum(counts["cat"]) == 90
    assert not findings_of(rebuilt.latest) and not compared(rebuilt.latest, tmp_path / "in")
    assert not rebuilt.again(compared=False).changed
    # With other hashes, the splits are chosen anew.
    forecast = plan(input=str(tmp_path / "in"), plan_from=str(rebuilt.latest), seed=1)
    assert [counts["cat"] for counts in forecast.split_class_counts.values()] == [63, 18, 9]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("mode", ["exact", "stratified"])
def test_groups_stay_whole(mode: str, tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path / "in", "cat", range(100))
    write(tmp_path / "in", "dog", range(30, 140))
    out = tmp_path / "out"
    options = [str(tmp_path / "in"), str(out), "--splits", SPLITS, "--split_mode", mode]
    assert main(["convert", *options, "--split_by", r"(p\d+)_", "--folds=3", "--verify=none"]) == 0
    places = places_of(out)
    groups = {(key.split("/")[1][:4], *place) for key, place in places.items()}
    assert len(groups) == len({patient for patient, *_ in groups})
    assert {fold for *_, fold in groups} == {0, 1, 2}
    records = Counter(split for split, _ in places.values())
    assert all(abs(records[name] - wanted) <= 8 for name, wanted in (("train", 147), ("test", 21)))
    if mode == "stratified":
        for counts, total in zip(class_counts(out).values(), (100, 110)):
            assert all(abs(found - share * total) <= 4 for found, share in zip(counts, (0.7, 0.2, 0.1)))
    message = f"{mode} splits: train {records['train']} (wanted 147), "
    assert message in " ".join(capsys.readouterr().out.split())
    shares = json.loads((out / "run.json").read_text())["split_shares"]
    assert shares["splits"]["test"] == {"records": records["test"], "wanted": 21.0}
    assert ("worst_class" in shares) is (mode == "stratified")
    report(out)
    assert message in html.unescape((out / "report.html").read_text())


def test_plan_shows_the_numbers(tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path / "in", "cat", range(33))
    assert (
        main(["plan", str(tmp_path / "in"), "--splits", SPLITS, "--split_mode", "exact", "--limit", "30"])
        == 0
    )
    message = "exact splits: train 21 (wanted 21), validation 6 (wanted 6), test 3 (wanted 3)"
    assert message in " ".join(capsys.readouterr().out.split())


def test_splits_of_the_source_are_kept(tmp_path: Path, capsys: Capture) -> None:
    for split in ("train", "test"):
        write(tmp_path / "in" / split, "cat", range(7))
    assert main(["plan", str(tmp_path / "in"), "--splits", SPLITS, "--split_mode", "exact"]) == 0
    message = "--split_mode has no effect because the source names the split of every image."
    streams = capsys.readouterr()
    assert message in " ".join((streams.out + streams.err).split())
    assert "exact splits" not in streams.out
    forecast = plan(input=tmp_path / "in", splits=SPLITS, split_mode="exact", folds=2)
    assert not any("--split_mode" in warning for warning in forecast.warnings)
    assert any("--splits has no effect" in warning for warning in forecast.warnings)
    assert forecast.plan.fold_bounds is not None
    assert forecast.plan.fold_bounds.bounds.keys() == {"train", "test"}


def test_a_layout_file_can_name_the_fold(tmp_path: Path) -> None:
    layout = tmp_path / "layout.yaml"
    layout.write_text(
        "name: mine\nfeatures:\n  picture: {fill: encoded}\n  part: {fill: fold}\n  label: {fill: label}\n"
    )
    values = {"input": str(tmp_path), "layout": str(layout)}
    with pytest.raises(UsageError, match="Layout mine stores the fold of each image; set --folds"):
        make_request(values, with_output=False)
    write(tmp_path / "in", "cat", range(2))
    features = make_request({**values, "folds": 2}, with_output=False).settings.record_layout.features
    assert [spec.name for spec in features] == ["picture", "part", "label"]


@pytest.mark.parametrize(("name", "settings"), [("fold", {"folds": 2}), ("dtype", {"depth": "keep"})])
def test_a_feature_of_a_layout_file_may_have_the_name_of_another(
    tmp_path: Path, name: str, settings: dict[str, Any]
) -> None:
    layout = tmp_path / "layout.yaml"
    layout.write_text(
        "name: mine\nfeatures:\n  image: {fill: encoded}\n  label: {fill: label}\n"
        f"  {name}: {{column: {name}, type: int64}}\n"
    )
    message = f"Layout mine has a feature '{name}' that is not the picture's {name}"
    with pytest.raises(UsageError, match=message):
        make_request({"input": "in", "layout": str(layout), **settings}, with_output=False)


def test_boxes_have_no_class_to_stratify_by(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="layout detection stores none; choose --split_mode exact"):
        convert(
            input="in", output=tmp_path / "out", layout="detection", split_mode="stratified", splits=SPLITS
        )


COUNTS = {
    "train": {"hats": 58, "shoes": 3, "bags": 4},
    "test": {"hats": 8, "shoes": 16},
}
UNEVEN = (
    "1 of 3 classes differs between splits: 'shoes' is 67% of test (16 of 24) but 4.6% of train (3 of 65)."
)
MISSING = "Split test has no image of 1 of 3 classes: 'bags'."


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small pictures in split and class folders, with far more shoes in the test split."""
    folders = {f"{split}/{name}": n for split, counts in COUNTS.items() for name, n in counts.items()}
    return put_pictures(tmp_path_factory.mktemp("uneven"), folders)


def test_plan_convert_and_the_report_state_the_same_numbers(
    uneven: Path, tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "out"
    for words in (["plan", str(uneven)], ["convert", str(uneven), str(out), "--verify=none"]):
        assert main(words) == 0
        printed = " ".join(capsys.readouterr().out.split())
        assert f"warning: {UNEVEN}" in printed and f"warning: {MISSING}" in printed
    assert main(["plan", "--input", str(uneven), "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["warnings"] == [UNEVEN, MISSING]
    assert planned["split_class_counts"] == {name: dict(sorted(c.items())) for name, c in COUNTS.items()}
    assert planned["splits_from"] == "source"
    data = report(out).data
    assert data.dataset and data.dataset.balance.sentences == [UNEVEN, MISSING]
    page = html.unescape((out / "report.html").read_text())
    assert UNEVEN in page and MISSING in page
