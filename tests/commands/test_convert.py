"""The main job end to end: TensorFlow reads its output, `plan` forecasts it, limits, class ids and splits."""

from __future__ import annotations

import hashlib
import html
import json
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from apache_beam.runners.worker import sdk_worker
from helpers.annotation_sets.coco import put_coco
from helpers.depths import compared, findings_of
from helpers.fewer_imports import late
from helpers.from_nothing import begin
from helpers.hostile import Done, check_books, document, make_tree, picture, run, sentence_of, shard_hashes
from helpers.pictures import tiff_of
from helpers.records import by_key, value
from helpers.repository import PHOTOS, SETTINGS
from helpers.trees import put_files
from PIL import Image, ImageOps

from shardwright.core.concurrency import worker_pool
from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.pipelines.plan import plan
from shardwright.pipelines.prepare import make_request
from shardwright.pipelines.report import report
from shardwright.pipelines.results import ConvertResult
from shardwright.schemas.configuration.settings import settings_from
from shardwright.schemas.errors import UsageError
from shardwright.schemas.ledger import load_ledger

tf = late("tensorflow")


def reference(path: Path, size: tuple[int, int]) -> np.ndarray:
    """Returns the stored pixels as Pillow would compute them: upright, over white, RGB, bilinear."""
    with Image.open(path) as opened:
        image = ImageOps.exif_transpose(opened).convert("RGBA")
    canvas = Image.new("RGBA", image.size, "white")
    canvas.alpha_composite(image)
    return np.asarray(canvas.convert("RGB").resize(size, Image.Resampling.BILINEAR))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_tensorflow_reads_every_record_with_the_right_pixels(
    convert_photos: Callable[..., ConvertResult], compression: str
) -> None:
    result = convert_photos(
        resize="48x32", image_format="png", compression=compression, splits="a=0.7,b=0.3", verify="none"
    )
    records = by_key(result.path)
    files = {path.relative_to(PHOTOS).as_posix() for path in PHOTOS.rglob("*") if path.is_file()}
    assert records.keys() == files and result.records == len(files)
    assert result.outcome["kept"] == 0  # all are resized
    labels = result.dataset.labels
    assert labels == tuple(sorted(path.name for path in PHOTOS.iterdir()))
    for key, record in records.items():
        path = PHOTOS / key
        assert labels[value(record, "image/class/label")] == path.parent.name
        assert value(record, "image/class/text") == path.parent.name
        assert value(record, "image/key/sha256") == hashlib.sha256(path.read_bytes()).hexdigest()
        assert value(record, "image/format") == "png"
        pixels = tf.io.decode_png(value(record, "image/encoded")).numpy()
        assert pixels.shape == (32, 48, 3)
        shape = tuple(value(record, f"image/{name}") for name in ("height", "width", "channels"))
        assert shape == pixels.shape
        difference = pixels.astype(float) - reference(path, (48, 32))
        # JPEGs much larger than the target are decoded DCT-scaled: 42 dB. In others, only rounding differs.
        psnr = 10 * np.log10(255**2 / max(np.mean(difference**2), 1e-9))
        assert psnr >= 42 if path.suffix == ".jpg" else np.abs(difference).max() <= 2, path


PLANNED = {"resize": 40, "splits": "train=0.7,test=0.3", "shard_size": "20kB", "seed": 5, "verify": "none"}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> ConvertResult:
    return convert(input=str(PHOTOS), output=str(tmp_path_factory.mktemp("first") / "out"), **PLANNED)


def test_a_carried_plan_keeps_settings_labels_and_shard_counts(
    first: ConvertResult, tmp_path: Path, convert_photos: Callable[..., ConvertResult]
) -> None:
    again = convert_photos(plan_from=f"{first.path}/dataset.json", verify="none", resize=None)  # not given
    assert again.dataset.fingerprint == first.dataset.fingerprint
    assert again.dataset.plan == first.dataset.plan
    assert settings_from({"seed": 6}, first.dataset.plan.settings).seed == 6
    # Only a default format follows other settings.
    for image_format, now in (("jpeg", ""), ("png", "png")):
        carried = {"resize": "9x9", "image_format": image_format}
        for values in ({"resize": 9}, {"layout": "raw"}, {"channels": 5}):
            assert settings_from(values, carried).image_format == now
    # A removed class keeps its id, and a new one comes last.
    folder = tmp_path / "changed"
    for name in ("zebra", "aardvark", *first.dataset.labels[1:]):
        (folder / name).mkdir(parents=True)
        Image.new("RGB", (50, 50)).save(folder / name / "x.png")
    changed = plan(input=str(folder), plan_from=first.path)
    assert changed.plan.labels == (*first.dataset.labels, "aardvark", "zebra")


@pytest.mark.parametrize("options", ["--runner=DirectRunner", {"runner": "DirectRunner"}])
def test_options_for_beam_must_be_a_list(options: object) -> None:
    with pytest.raises(UsageError) as caught:
        plan(input=str(PHOTOS), beam_options=options)
    hint = "write a list such as ['--runner=DirectRunner']."
    assert caught.value.message == f"beam_options is one {type(options).__name__}; {hint}"


def test_the_plan_predicts_what_convert_writes(first: ConvertResult) -> None:
    forecast = plan(input=str(PHOTOS), **PLANNED)
    assert forecast.plan == first.dataset.plan
    assert forecast.candidates == {s: first.dataset.records(s) for s in first.dataset.splits}
    written = sum(s.bytes for shards in first.dataset.splits.values() for s in shards)
    assert abs(sum(forecast.plan.estimate.values()) - written) < 0.1 * written


@pytest.mark.parametrize("processes", [(1,), pytest.param((2, 3, 8), marks=pytest.mark.slow)], ids=str)
def test_the_contents_of_shards_do_not_depend_on_workers_or_runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, convert_photos: Callable[..., ConvertResult],
    sound_dataset: Path, processes: tuple[int, ...],
) -> None:  # fmt: skip
    """Worker processes do not import TensorFlow either: one that does fails. A call leaves Beam unchanged."""
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)
    monkeypatch.delattr(sdk_worker, "print", raising=False)  # as if no command had run in this process
    monkeypatch.setattr(worker_pool, "worker_threads", lambda: 8)
    (tmp_path / "tensorflow.py").write_text("raise ImportError('tensorflow is not for workers')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    multiple = [
        ["--direct_running_mode=multi_processing", f"--direct_num_workers={workers}"] for workers in processes
    ]
    for options in ([], ["--pool=processes"], *multiple):
        made = convert_photos(beam_options=options, verify="none", **SETTINGS)
        assert shard_hashes(Path(made.path)) == shard_hashes(sound_dataset), options
    assert threading.excepthook is threading.__excepthook__ and "print" not in vars(sdk_worker)


Capture = pytest.CaptureFixture[str]
#: Boxes of two classes, in COCO's form.
PIP, STALK = (1, 1, 1, 5, 5), (2, 1, 1, 5, 5)


def _rows(out: str) -> list[list[str]]:
    return [line.split() for line in out.splitlines() if line.strip()]


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """A manifest of 20 photos, and 200 rows that name no photo."""
    photos = sorted(PHOTOS.rglob("*.*"))[:20]
    lines = ["image,label", *(f"{path},{path.parent.name}" for path in photos), *[",x"] * 200]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "rows.csv"


def test_rows_without_an_image_are_shown_apart_from_the_splits(manifest: Path, capsys: Capture) -> None:
    assert main(["plan", "--input", str(manifest), "--resize=16"]) == 0
    rows = _rows(capsys.readouterr().out)
    assert ["none", "200", "0", "0"] in rows
    assert ["train", "20", "20", "1"] in [row[:4] for row in rows]


def test_a_trial_run_has_its_share_of_bad_rows(manifest: Path, tmp_path: Path) -> None:
    settings = {"input": manifest, "resize": 16, "limit": 3, "max_bad_fraction": 0.99, "verify": "none"}
    made = convert(output=tmp_path / "out", **settings)
    ledger = made.dataset.ledger
    assert (ledger["listed"], ledger["written"]) == (220, 3)
    assert 0 < ledger["quarantined"] < 200
    limited = {"limit": 217 - ledger["quarantined"]}
    assert ledger["reasons"]["filtered"] == plan(**settings).filtered == limited
    assert made.metrics["files_quarantined"] == ledger["quarantined"] == made.metrics["quarantined_BAD_ROW"]
    assert "records_none" not in made.metrics


def test_ids_of_detection_begin_at_one_and_images_are_counted(tmp_path: Path, capsys: Capture) -> None:
    names = sorted(path.name for path in (PHOTOS / "fruit").iterdir())[:3]
    boxes = dict(zip(names, ([PIP, PIP, STALK], [STALK], [])))
    file = put_coco(tmp_path / "boxes.json", boxes, ("pip", "stalk"))
    argv = ["plan", "--input", str(file), "--image_root", str(PHOTOS / "fruit"), "--layout=detection"]
    assert main(argv) == 0
    rows = _rows(capsys.readouterr().out)
    assert ["1", "pip", "1"] in rows and ["2", "stalk", "2"] in rows


def test_copies_are_left_out_whatever_objects_they_have(tmp_path: Path) -> None:
    for name in ("a.jpg", "b.jpg"):
        shutil.copy(PHOTOS / "fruit" / "apple.jpg", tmp_path / name)
    boxes = {name: [PIP, STALK] for name in ("a.jpg", "b.jpg")}
    file = put_coco(tmp_path / "boxes.json", boxes, ("pip", "stalk"))
    (tmp_path / "names.txt").write_text("1:pip\n")
    values = {"class_names": tmp_path / "names.txt", "layout": "detection", "dedupe": "exact"}
    made = convert(input=file, output=tmp_path / "out", **values)
    assert (made.dataset.ledger["written"], made.dataset.ledger["deduplicated"]) == (1, 1)


def bad_run(capfd: Capture, tmp_path: Path, bad: int, *options: object) -> Done:
    """Converts ten images, some of which are bad; the output is named with a slash at its end."""
    tree = make_tree(tmp_path / "in", images=10 - bad)
    put_files(tree, {f"ant/bad{i}.png": b"no image %d" % i for i in range(bad)})
    return run(capfd, "convert", tree, f"{tmp_path}/out/", "--shards=3", "--verify=none", *options)


def test_too_many_bad_images_publish_nothing_and_resume_publishes_as_many_as_the_limit(
    capfd: Capture, tmp_path: Path
) -> None:
    sentence = sentence_of(bad_run(capfd, tmp_path, 3, "--max_bad_fraction=0.29"), 1)
    output = tmp_path / "out"
    assert "3 of 10 images are bad (3 NOT_AN_IMAGE), more than --max_bad_fraction 0.29 allows" in sentence
    assert f"Look at {output}/quarantine.jsonl;" in sentence and "--resume" in sentence
    assert len((output / "quarantine.jsonl").read_text().splitlines()) == 3
    assert not (output / "dataset.json").exists()
    before = {path: path.stat().st_mtime_ns for path in output.glob("*.tfrecord")}
    argv = ("convert", "--input", tmp_path / "in", "--output", f"{output}/", "--shards=3", "--resume")
    done = run(capfd, *argv, "--max_bad_fraction=0.3", "--verify=none")
    assert done.code == 0 and "3 shards reused from the previous run" in done.out
    assert f"see {output}/quarantine.jsonl\n" in done.out
    assert {path: path.stat().st_mtime_ns for path in output.glob("*.tfrecord")} == before
    assert len(before) == 3
    assert check_books(output) and document(output)["ledger"]["quarantined"] == 3


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (0, "No image was written, because all were filtered (10 min_side); nothing was published"),
        (3, "3 of 3 images are bad (3 NOT_AN_IMAGE; filtered: 7 min_side): nothing was published"),
    ],
)
def test_a_dataset_without_any_record_is_refused(capfd: Capture, tmp_path: Path, bad: int, says: str) -> None:
    done = bad_run(capfd, tmp_path, bad, "--min_side=99", "--max_bad_fraction=1")
    assert sentence_of(done, 1).startswith(says)
    assert not (tmp_path / "out" / "dataset.json").exists()


def test_images_of_many_channels_need_not_be_converted(capfd: Capture, tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "in")
    (tree / "bee" / "bands.tif").write_bytes(tiff_of(np.ones((8, 8, 5), np.uint16), planarconfig="contig"))
    argv = ("convert", "--input", tree, "--output", tmp_path / "out", "--depth=keep")
    sentence = sentence_of(run(capfd, *argv), 1)
    (line,) = (tmp_path / "out" / "quarantine.jsonl").read_text().splitlines()
    assert "keep them with --channels 5" in line
    assert "; keep those of many channels with --channels 5, convert (to JPEG or PNG), fix or" in sentence


def test_as_many_images_as_shards_fill_each_shard(tmp_path: Path) -> None:
    source = make_tree(tmp_path / "in", images=12)
    (source / "ant/notes.txt").write_text("no image")
    output = tmp_path / "out"
    splits = "train=0.5,test=0.5"
    made = convert(input=str(source), output=str(output), shards=6, splits=splits, verify="none")
    assert made.outcome["kept"] == 12
    found = {name: [shard.records for shard in shards] for name, shards in made.dataset.splits.items()}
    assert {split: len(records) for split, records in found.items()} == {"train": 6, "test": 6}
    for records in found.values():
        assert 0 not in records if sum(records) >= 6 else sum(records) <= 6
    # The source is compared with the shards as they were filled.
    assert not compared(output, source)


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


def test_ids_stay_the_same_over_three_builds_and_class_names_may_agree_with_them(tmp_path: Path) -> None:
    carried: dict[str, Any] = {"label_depth": "all"}
    for number, known in enumerate((3, 6, 8)):
        source, output = put_pictures(tmp_path / f"in{number}", BUILDS[number]), tmp_path / f"out{number}"
        convert(input=source, output=output, resize=16, verify="none", **carried)
        carried = {"plan_from": output}
        labels = FINAL[:known]
        numbered = [f"{i}:{name}" for i, name in enumerate(labels)]
        assert (output / "labels.txt").read_text().splitlines() == numbered
        found = by_key(output).values()
        assert {(value(item, "image/class/text"), value(item, "image/class/label")) for item in found} == {
            (name, labels.index(name)) for name in BUILDS[number]
        }
    names = (*FINAL, "more", "and more")
    (tmp_path / "names.txt").write_text("\n".join(names))
    assert plan(input=source, class_names=tmp_path / "names.txt", **carried).plan.labels == names


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
    options = ["--splits", SPLITS, "--split_mode", "exact", "--limit", "30"]
    assert main(["plan", str(tmp_path / "in"), *options]) == 0
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


COUNTS = {
    "train": {"hats": 58, "shoes": 3, "bags": 4},
    "test": {"hats": 8, "shoes": 16},
}
UNEVEN = (
    "1 of 3 classes differs between splits: 'shoes' is 67% of test (16 of 24) but 4.6% of train (3 of 65)."
)
MISSING = "Split test has no image of 1 of 3 classes: 'bags'."


def test_plan_convert_and_the_report_state_the_same_numbers(tmp_path: Path, capsys: Capture) -> None:
    """There are far more shoes in the test split."""
    folders = {f"{split}/{name}": n for split, counts in COUNTS.items() for name, n in counts.items()}
    uneven, out = put_pictures(tmp_path / "in", folders), tmp_path / "out"
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
