"""The mutations that measure validation: what is changed, in which dataset, and how."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image, ImageDraw

from helpers.annotation_sets.coco import put_coco
from helpers.pictures import exif_of, file_of
from helpers.repository import copy_first
from helpers.resealing import (
    Edit,
    Features,
    Forgery,
    put,
    read_document,
    read_ledger,
    write_document,
    write_ledger,
)
from shardwright.pipelines.convert import convert
from shardwright.pipelines.report import report
from shardwright.schemas.codes import Outcome
from shardwright.schemas.dataset import SAMPLES_JPG
from shardwright.schemas.example import Feature, FeatureType, encode_example, parse_example
from shardwright.schemas.ledger import Entry

RESIZED, KEPT, OBJECTS = "resized", "kept", "objects"
CLASSES = ("birds", "flowers")
EACH = 7
Change = Callable[[Path], object]


class Mutation(NamedTuple):
    """A change to a finished dataset.

    Attributes:
      group: What is changed: a file, a record, or a record with objects.
      name: Name of the change.
      dataset: Name of the dataset.
      change: Function that makes the change.
    """

    group: str
    name: str
    dataset: str
    change: Change


def make_datasets(root: Path, photos: Path) -> None:
    """Makes the sources and the datasets to change: with classes (resized and kept), and with objects."""
    source = copy_first(root / "source", EACH, CLASSES)
    (source / "birds" / "empty.jpg").write_bytes(b"")
    (source / "birds" / "notes.txt").write_text("no image")
    shared: dict[str, Any] = {"splits": "train=0.7,test=0.3", "max_bad_fraction": 0.5}
    shards = "train=2,test=1"
    convert(
        input=str(source), output=str(root / RESIZED), resize=48, shards=shards, verify="quality", **shared
    )
    convert(input=str(source), output=str(root / KEPT), shards=shards, **shared)
    report(str(root / RESIZED))
    pictures = root / "pictures"
    pictures.mkdir()
    for i in range(EACH):
        image = Image.new("RGB", (40, 30), (30 * i, 90, 200 - 20 * i))
        ImageDraw.Draw(image).ellipse((i, 2, 20 + i, 25), fill=(255 - 30 * i, 10 * i, 40))
        image.save(pictures / f"{i}.jpg", quality=90)
    boxes = {f"{i}.jpg": [(1 + k, 2 + k, 2 + i, 14, 10) for k in range(2)] for i in range(EACH)}
    file = put_coco(root / "instances.json", boxes, ("cat", "dog"), dict.fromkeys(boxes, (40, 30)))
    convert(input=file, output=root / OBJECTS, layout="detection", image_root=pictures, shards=1)


def sources_of(root: Path, dataset: str) -> dict[str, Any]:
    """Returns the arguments with which `validate` compares a dataset with its source."""
    if dataset == OBJECTS:
        return {"against": str(root / "instances.json"), "listing": {"image_root": str(root / "pictures")}}
    return {"against": str(root / "source")}


# --- dataset.json ---


def document(name: str, edit: Callable[[Any], object], dataset: str = RESIZED) -> Mutation:
    def change(path: Path) -> None:
        value = read_document(path)
        edit(value)
        write_document(path, value)

    return Mutation("dataset.json", name, dataset, change)


def set_at(*path: Any) -> Callable[[Any], object]:
    """Sets the value at a path of keys."""
    *way, last, value = path

    def edit(document: Any) -> None:
        for step in way:
            document = document[step]
        document[last] = value(document[last]) if callable(value) else value

    return edit


def delete_at(*path: Any) -> Callable[[Any], object]:
    *way, last = path

    def edit(document: Any) -> None:
        for step in way:
            document = document[step]
        del document[last]

    return edit


def more(value: int) -> int:
    return value + 1


def swap(value: Any) -> Any:
    return [value[1], value[0], *value[2:]]


def flip_hex(value: str) -> str:
    return ("1" if value[0] != "1" else "2") + value[1:]


def _books(it: Any) -> None:
    for row in (it["ledger"], it["ledger"]["splits"]["train"]):
        row["filtered"] += 1
        row["listed"] += 1


def rewrite(file: Path, edit: Callable[[bytes], bytes]) -> None:
    file.write_bytes(edit(file.read_bytes()))


TRAIN0, TEST0 = "train-00000-of-00002", "test-00000-of-00001"
DOCUMENT = [
    document("name", set_at("name", "another")),
    document("fingerprint", set_at("fingerprint", flip_hex)),
    document("fingerprint removed", delete_at("fingerprint")),
    document("settings.quality", set_at("settings", "quality", 75)),
    document("settings.resize", set_at("settings", "resize", "64x64")),
    document("settings.seed", set_at("settings", "seed", 7)),
    document("settings.splits", set_at("settings", "splits", "train=1/2,test=1/2")),
    document("settings.image_format of kept images", set_at("settings", "image_format", "png"), KEPT),
    document("a setting removed", delete_at("settings", "fit")),
    document("settings removed", delete_at("settings")),
    document("plan.settings.quality", set_at("plan", "settings", "quality", 75)),
    document("settings.quality and plan.settings.quality", lambda it: [
        part.update(quality=75) for part in (it["settings"], it["plan"]["settings"])]),
    document("plan.labels in another order", set_at("plan", "labels", swap)),
    document("plan.shards", set_at("plan", "shards", "train", 3)),
    document("plan.estimate", set_at("plan", "estimate", "train", more)),
    document("versions.pillow", set_at("versions", "pillow", "11.0.0")),
    document("versions.shardwright", set_at("versions", "shardwright", "0.0.9")),
    document("layout", set_at("layout", "imagenet")),
    document("features: a type", set_at("features", 0, "type", "float")),
    document("features: one removed", delete_at("features", 0)),
    document("features: one added", set_at("features", lambda it: [*it, {
        "name": "image/extra", "type": "int64", "shape": [], "fill": None, "optional": True}])),
    document("first_label", set_at("first_label", 1)),
    document("first_label removed", delete_at("first_label")),
    document("labels in another order", set_at("labels", swap)),
    document("labels: one more", set_at("labels", lambda it: [*it, "fish"])),
    document("labels and plan.labels in another order", lambda it: [
        set_at("labels", swap)(it), set_at("plan", "labels", swap)(it)]),
    document("labels removed", delete_at("labels")),
    document("splits.train.records", set_at("splits", "train", "records", more)),
    document("splits.train.bytes", set_at("splits", "train", "bytes", more)),
    document("a shard's records", set_at("splits", "train", "shards", 0, "records", more)),
    document("a shard's bytes", set_at("splits", "train", "shards", 0, "bytes", lambda it: it - 1)),
    document("a shard's sha256", set_at("splits", "train", "shards", 0, "sha256", flip_hex)),
    document("shards in another order", set_at("splits", "train", "shards", swap)),
    document("a shard removed", delete_at("splits", "train", "shards", 1)),
    document("a split renamed", lambda it: it["splits"].update(other=it["splits"].pop("test"))),
    document("ledger.listed", set_at("ledger", "listed", more)),
    document("ledger.filtered and listed, of the split too", _books),
    document("ledger.splits.train.written", set_at("ledger", "splits", "train", "written", more)),
    document("ledger.reasons", set_at("ledger", "reasons", "quarantined", {"CORRUPT": 1})),
    document("ledger: written moved to another split", lambda it: [
        set_at("ledger", "splits", "train", "written", more)(it),
        set_at("ledger", "splits", "test", "written", lambda n: n - 1)(it)]),
    document("class_counts: a number", set_at("class_counts", "train", "birds", more)),
    document("class_counts: a class removed", delete_at("class_counts", "train", "birds")),
    document("class_counts: a split removed", delete_at("class_counts", "test")),
    document("formats: a number", set_at("formats", "train", "jpg", more)),
    document("formats: another format", set_at("formats", "train", lambda it: {"png": it["jpg"]})),
    document("formats removed", delete_at("formats")),
    document("stored formats of kept images", set_at("formats", "train", lambda it: {
        "webp": sum(it.values())}), KEPT),
    document("sidecars: a digest", set_at("sidecars", "labels.txt", flip_hex)),
    document("sidecars: one removed", delete_at("sidecars", "labels.txt")),
    document("a field added", lambda it: it.update(license="none")),
    document("digest removed", delete_at("digest")),
    Mutation("dataset.json", "a byte order mark", RESIZED, lambda path: rewrite(
        path / "dataset.json", lambda data: b"\xef\xbb\xbf" + data)),
    Mutation("dataset.json", "labels named twice", RESIZED, lambda path: rewrite(
        path / "dataset.json", lambda data: data.replace(b"{", b'{"labels": ["fish", "cats"],', 1))),
]  # fmt: skip


# --- ledgers ---


def ledger(
    name: str, edit: Callable[[list[Any]], object], dataset: str = RESIZED, shard: str = TRAIN0
) -> Mutation:
    def change(path: Path) -> None:
        lines = read_ledger(path, shard)
        edit(lines)
        write_ledger(path, shard, lines)

    return Mutation("ledger of a shard", name, dataset, change)


def header(name: str, value: Any, dataset: str = RESIZED) -> Mutation:
    return ledger(f"header: {name}", set_at(0, name.partition(",")[0], value), dataset)


def _odd_line(outcome: str, **values: Any) -> dict[str, Any]:
    return {"key": "birds/never.jpg", "outcome": outcome, **values}


LEDGER = [
    header("records", more),
    header("bytes", more),
    header("sha256", flip_hex),
    header("crc32c", "AAAAAA=="),
    header("counts", lambda it: {**it, "written": it["written"] + 1}),
    header("reasons", {"filtered": {"limit": 1}}),
    header("class_counts", lambda it: {name: count + 1 for name, count in it.items()}),
    header("formats", {"png": 3}),
    header("kept", more),
    header("animated", more),
    header("damaged", more),
    header("warned", more),
    header("boxes", {"written": 3}),
    header("bad_boxes", ["a (b)"]),
    header("sources", {}),
    header("recipe", flip_hex),
    header("recipe, emptied", ""),
    header("plan_digest", flip_hex),
    header("plan_digest, emptied", ""),
    header("file", "train-00001-of-00002.tfrecord"),
    header("split", "test"),
    header("shard", 1),
    header("num_shards", 3),
    header("ledger_version", 1),
    ledger("header: a field added", lambda it: it[0].update(more=1)),
    ledger("header removed", lambda it: it.pop(0)),
    ledger("line: key", set_at(1, "key", "birds/other.jpg")),
    ledger("line: outcome", set_at(1, "outcome", "filtered")),
    ledger("line: fingerprint", set_at(1, "fingerprint", "1:2")),
    ledger("line: sha256", set_at(1, "sha256", flip_hex)),
    ledger("line: label", set_at(1, "label", lambda it: CLASSES[1 - CLASSES.index(it)])),
    ledger("line: offset", set_at(2, "offset", more)),
    ledger("line: length", set_at(2, "length", more)),
    ledger("line: stored", set_at(1, "stored", "kept")),
    ledger("line: stored, of a kept image", set_at(1, "stored", "encoded"), KEPT),
    ledger("line: format", set_at(1, "format", "png")),
    ledger("line: digest", set_at(1, "digest", flip_hex)),
    ledger("line: source_width", set_at(1, "source_width", more)),
    ledger("line: animated", lambda it: it[1].update(animated=True)),
    ledger("line: damaged", lambda it: it[1].update(damaged=True)),
    ledger("line: decoder_warning", lambda it: it[1].update(decoder_warning="odd")),
    ledger("line: message", lambda it: it[1].update(message="a bad box")),
    ledger("line: uri", lambda it: it[1].update(uri="/etc/passwd")),
    ledger("line: file_name", lambda it: it[1].update(file_name=it[1]["key"])),
    ledger("line: mask_sha256", lambda it: it[1].update(mask_sha256="0" * 64)),
    ledger("line: a field added", lambda it: it[1].update(more=1)),
    ledger("line: boxes", lambda it: it[1].update(boxes={"written": 5}), OBJECTS, "train-00000-of-00001"),
    ledger("extra line: written", lambda it: it.append({**it[1], "key": "birds/never.jpg"})),
    ledger("extra line: written, without a place", lambda it: it.append(_odd_line("written"))),
    ledger("extra line: quarantined", lambda it: it.append(_odd_line(
        "quarantined", reason="CORRUPT", stage="decode", message="?", uri="x"))),
    ledger("extra line: filtered", lambda it: it.append(_odd_line("filtered", reason="limit"))),
    ledger("extra line: deduplicated", lambda it: it.append(_odd_line("deduplicated", reason="a.jpg"))),
    ledger("extra line: an unknown outcome", lambda it: it.append(_odd_line("lost"))),
    ledger("extra line: a second header", lambda it: it.append(it[0])),
    ledger("lines in another order", lambda it: it.__setitem__(slice(1, 3), [it[2], it[1]])),
    ledger("last line removed", lambda it: it.pop()),
]  # fmt: skip


# --- other files ---


def file_change(name: str, change: Change, dataset: str = RESIZED) -> Mutation:
    return Mutation("another file", name, dataset, change)


def removed(name: str) -> Mutation:
    def change(path: Path) -> None:
        target = path / name
        shutil.rmtree(target) if target.is_dir() else target.unlink()

    return file_change(f"{name} removed", change)


def appended(name: str, data: bytes = b" ") -> Mutation:
    return file_change(f"{name} changed", lambda path: rewrite(path / name, lambda old: old + data))


def added(name: str, data: bytes = b"") -> Mutation:
    return file_change(f"{name} added", lambda path: (path / name).write_bytes(data))


def copied_shard(name: str) -> Mutation:
    def change(path: Path) -> None:
        (path / name).parent.mkdir(exist_ok=True)
        shutil.copy(path / f"{TRAIN0}.tfrecord", path / name)

    return file_change(f"a shard copied to {name}", change)


def sealed_sidecar(name: str) -> Mutation:
    """A changed file for other tools, whose digest in `dataset.json` is updated."""

    def change(path: Path) -> None:
        data = (path / name).read_bytes() + b"\n"
        (path / name).write_bytes(data)
        value = read_document(path)
        value["sidecars"][name] = hashlib.sha256(data).hexdigest()
        write_document(path, value)

    return file_change(f"{name} changed, and its digest", change)


def in_json(name: str, what: str, edit: Callable[[Any], object]) -> Mutation:
    def change(path: Path) -> None:
        value = json.loads((path / name).read_text())
        edit(value)
        (path / name).write_text(json.dumps(value))

    return file_change(f"{name}: {what}", change)


def quarantine(what: str, edit: Callable[[list[Any]], object]) -> Mutation:
    def change(path: Path) -> None:
        lines = [json.loads(line) for line in (path / "quarantine.jsonl").read_text().splitlines()]
        edit(lines)
        (path / "quarantine.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    return file_change(f"quarantine.jsonl: {what}", change)


SIDECAR_NAMES = (
    "labels.txt", "dataset_info.json", "features.json", "parse.py", "schema.pbtxt",
    "croissant.json", "README.md",
)  # fmt: skip
OTHER = [
    *(appended(name) for name in SIDECAR_NAMES),
    *(removed(name) for name in SIDECAR_NAMES[:2]),
    *(sealed_sidecar(name) for name in SIDECAR_NAMES),
    *(
        mutation._replace(dataset=OBJECTS)  # ids from 1
        for mutation in (
            appended("label_map.pbtxt"), removed("label_map.pbtxt"), sealed_sidecar("label_map.pbtxt"))
    ),
    appended(SAMPLES_JPG, b"\x00"),
    removed(SAMPLES_JPG),
    removed("_index"),
    removed(f"_index/{TRAIN0}.idx"),
    appended(f"_index/{TRAIN0}.idx", b"0 1\n"),
    added("_index/train-00002-of-00003.idx"),
    added("_index/more.txt"),
    removed("_shards"),
    removed(f"_shards/{TRAIN0}.jsonl.gz"),
    file_change("_shards/train-00002-of-00003.jsonl.gz added", lambda path: shutil.copy(
        path / "_shards" / f"{TRAIN0}.jsonl.gz", path / "_shards" / "train-00002-of-00003.jsonl.gz")),
    file_change("_shards/none-00000-of-00001.jsonl.gz added", lambda path: write_ledger(
        path, "none-00000-of-00001", [{**read_ledger(path, TRAIN0)[0], "file": "", "split": "none"}])),
    added("_shards/more.txt"),
    file_change("a ledger compressed anew", lambda it: write_ledger(it, TRAIN0, read_ledger(it, TRAIN0))),
    removed("quarantine.jsonl"),
    quarantine("a line removed", lambda lines: lines.pop()),
    quarantine("a line added", lambda lines: lines.append({**lines[0], "key": "birds/other.jpg"})),
    quarantine("a line doubled", lambda lines: lines.append(lines[0])),
    quarantine("reason", set_at(0, "reason", "CORRUPT")),
    quarantine("message", set_at(0, "message", "another")),
    quarantine("uri", set_at(0, "uri", "/somewhere")),
    in_json("run.json", "input", set_at("input", ["/elsewhere"])),
    removed("run.json"),
    in_json("run.json", "digest removed", delete_at("digest")),
    in_json("findings.json", "sound", set_at("sound", lambda it: not it)),
    in_json("findings.json", "counts", set_at("counts", {"DARK": 100})),
    in_json("statistics.json", "normalize", set_at("normalize", {})),
    appended("stats.pb", b"\x00"),
    in_json("findings.json", "digest removed", delete_at("digest")),
    removed("findings.json"),
    appended("report.html", b"<p>all is well</p>"),
    file_change("report.html replaced", lambda path: (path / "report.html").write_text("<p>all is well</p>")),
    removed("report.html"),
    removed("_work"),
    in_json("_work/outcome.json", "ledger", set_at("ledger", "written", more)),
    added("train-00000-of-00001.tfrecord"),
    added("train-more.tfrecord"),
    added("test.tfrecord"),
    copied_shard("TRAIN-copy.tfrecord"),
    copied_shard(f"TRAIN{TRAIN0.removeprefix('train')}.tfrecord"),
    copied_shard(f"backup/{TRAIN0}.tfrecord"),
    copied_shard(f".{TRAIN0}.tfrecord"),
    added("notes.txt", b"of a user"),
]  # fmt: skip


# --- records ---

PLACE = ("train", 0)


def forged(name: str, edit: Callable[[Forgery], object], dataset: str = RESIZED) -> Mutation:
    def change(path: Path) -> None:
        forgery = Forgery(path)
        edit(forgery)
        forgery.seal()

    return Mutation("a record with objects" if dataset == OBJECTS else "a record", name, dataset, change)


def record(name: str, edit: Edit, dataset: str = RESIZED, **entry: Any) -> Mutation:
    """A changed record, where everything else in the dataset is updated."""

    def change(forgery: Forgery) -> None:
        forgery.edit(PLACE, 0, edit)
        forgery.relabel(PLACE, 0, **entry)

    return forged(name, change, dataset)


def picture(edit: Callable[[bytes], bytes]) -> Edit:
    return put("image/encoded", lambda values: edit(bytes(values[0])))


def redrawn(edit: Callable[[Image.Image], Image.Image], format_: str = "JPEG", **how: Any) -> Edit:
    return picture(lambda data: file_of(edit(Image.open(io.BytesIO(data)).convert("RGB")), format_, **how))


def _dot(image: Image.Image) -> Image.Image:
    ImageDraw.Draw(image).rectangle((4, 4, 7, 7), fill=(255, 0, 0))
    return image


def _marked(data: bytes, marker: int, payload: bytes) -> bytes:
    return data[:2] + bytes((0xFF, marker)) + (len(payload) + 2).to_bytes(2, "big") + payload + data[2:]


def _flipped_bit(data: bytes) -> bytes:
    out = bytearray(data)
    out[len(out) * 3 // 4] ^= 4
    return bytes(out)


def every(*edits: Edit) -> Edit:
    def edit(features: Features) -> None:
        for one in edits:
            one(features)

    return edit


def _pictures(dataset: str) -> Iterator[Mutation]:
    """Yields ways to change a stored picture."""
    of = f"of {dataset} images: "
    yield record(of + "encoded anew, quality 90", redrawn(lambda it: it, quality=90), dataset)
    yield record(of + "encoded anew, quality 95", redrawn(lambda it: it, quality=95), dataset)
    yield record(of + "16 pixels painted over", redrawn(_dot, quality=95), dataset)
    yield record(of + "a bit flipped", picture(_flipped_bit), dataset)
    yield record(of + "mirrored", redrawn(lambda it: it.transpose(Image.Transpose.FLIP_LEFT_RIGHT)), dataset)
    yield record(of + "an orientation tag added", picture(lambda it: _marked(it, 0xE1, exif_of(6))), dataset)
    yield record(of + "bytes appended", picture(lambda it: it + b"hidden"), dataset)
    yield record(of + "a comment added", picture(lambda it: _marked(it, 0xFE, b"hidden")), dataset)
    yield record(
        of + "stored as PNG", every(redrawn(lambda it: it, "PNG"), put("image/format", b"png")), dataset,
        format="png",
    )  # fmt: skip
    yield record(
        of + "another size", every(
            redrawn(lambda it: it.resize((20, 20))), put("image/width", 20), put("image/height", 20)), dataset
    )  # fmt: skip


def _swap_pictures(it: Forgery) -> None:
    (one, first), (other, second), *rest = it.shards[PLACE]
    features = parse_example(one), parse_example(other)
    left, right = (bytes(item["image/encoded"].values[0]) for item in features)
    put("image/encoded", right)(features[0])
    put("image/encoded", left)(features[1])
    it.shards[PLACE] = [(encode_example(features[0]), first), (encode_example(features[1]), second), *rest]


def _other_label(features: Features) -> None:
    label = 1 - features["image/class/label"].values[0]
    put("image/class/label", label)(features)
    put("image/class/text", CLASSES[label].encode())(features)


def _relabel(it: Forgery) -> None:
    it.edit(PLACE, 0, _other_label)
    label = it.shards[PLACE][0][1].label
    it.relabel(PLACE, 0, label=CLASSES[1 - CLASSES.index(label)])


def _as_own_source(it: Forgery) -> None:
    """Replaces the bytes of a kept image, and updates the checksum of its source."""
    it.edit(PLACE, 0, redrawn(_dot, quality=95))
    features = parse_example(it.shards[PLACE][0][0])
    sha256 = hashlib.sha256(bytes(features["image/encoded"].values[0])).hexdigest()
    it.edit(PLACE, 0, put("image/key/sha256", sha256.encode()))
    it.relabel(PLACE, 0, sha256=sha256)


def _move(it: Forgery, target: tuple[str, int]) -> None:
    it.shards[target].append(it.shards[PLACE].pop(0))


def _drop(it: Forgery, outcome: Outcome | None, **values: Any) -> None:
    _, entry = it.shards[PLACE].pop(0)
    if outcome is not None:
        it.others[PLACE].append(Entry(entry.key, outcome, entry.fingerprint, digest=entry.digest, **values))


def _invent(it: Forgery) -> None:
    it.shards[PLACE].append(it.shards[PLACE][0])
    number = len(it.shards[PLACE]) - 1
    it.edit(PLACE, number, put("image/filename", b"birds/never.jpg"))
    it.relabel(PLACE, number, key="birds/never.jpg")


RECORDS = [
    *_pictures(RESIZED),
    *_pictures(KEPT),
    forged("of kept images: another picture with its own checksum", _as_own_source, KEPT),
    forged("pictures of two records swapped", _swap_pictures),
    record("label, without its text", put("image/class/label", lambda it: 1 - it[0])),
    record("text, without its label", put("image/class/text", b"fish")),
    forged("label and text, as the ledger says", _relabel),
    record("label and text, not in the ledger", _other_label),
    record("key, as the ledger says", put("image/filename", b"birds/other.jpg"), key="birds/other.jpg"),
    record("key, not in the ledger", put("image/filename", b"birds/other.jpg")),
    record("sha256, as the ledger says", put("image/key/sha256", b"1" * 64), sha256="1" * 64),
    record("sha256, not in the ledger", put("image/key/sha256", b"1" * 64)),
    record("height", put("image/height", 49)),
    record("width and height swapped", every(put("image/width", 30), put("image/height", 70))),
    record("channels", put("image/channels", 1)),
    record("format", put("image/format", b"png")),
    record("a feature added", put("image/more", 1, type_=FeatureType.INT64)),
    record("a feature removed", lambda it: it.pop("image/width")),
    record("a feature of two values", put("image/width", 48, 48)),
    forged("two records in another order", lambda it: it.shards[PLACE].reverse()),
    forged("a record in another shard of its split", lambda it: _move(it, ("train", 1))),
    forged("a record in a different split", lambda it: _move(it, ("test", 0))),
    forged("a record doubled", lambda it: it.shards[PLACE].insert(1, it.shards[PLACE][0])),
    forged("a record removed", lambda it: _drop(it, None)),
    forged("a record removed, called filtered", lambda it: _drop(it, Outcome.FILTERED, reason="limit")),
    forged("a record removed, called a copy", lambda it: _drop(
        it, Outcome.DEDUPLICATED, reason=it.shards["train", 1][0][1].key)),
    forged("a record added", _invent),
    forged("an image called filtered instead of quarantined", lambda it: [
        it.others.__setitem__(place, [replace_outcome(entry) for entry in entries])
        for place, entries in list(it.others.items())]),
]  # fmt: skip


def replace_outcome(entry: Entry) -> Entry:
    if entry.outcome != Outcome.QUARANTINED:
        return entry
    return entry._replace(outcome=Outcome.FILTERED, reason="not_an_image", stage="", message="", uri="")


OBJECT = "image/object"


def objects(name: str, edit: Edit) -> Mutation:
    return record(name, edit, OBJECTS)


def scaled(values: Any, factor: float = 0.8) -> list[float]:
    return [value * factor for value in values]


def each(name: str, change: Callable[[list[Any]], list[Any]]) -> Edit:
    def edit(features: Features) -> None:
        features[name] = Feature(features[name].type, change(list(features[name].values)))

    return edit


def _every_list(change: Callable[[list[Any]], list[Any]]) -> Edit:
    def edit(features: Features) -> None:
        for name in features:
            if name.startswith(f"{OBJECT}/") and len(features[name].values) == 2:
                each(name, change)(features)

    return edit


OF_OBJECTS = [
    objects("xmin", each(f"{OBJECT}/bbox/xmin", scaled)),
    objects("ymax", each(f"{OBJECT}/bbox/ymax", scaled)),
    objects("xmin beyond xmax", each(f"{OBJECT}/bbox/xmin", lambda it: [0.95, *it[1:]])),
    objects("xmax beyond the picture", each(f"{OBJECT}/bbox/xmax", lambda it: [1.5, *it[1:]])),
    objects("xmin negative", each(f"{OBJECT}/bbox/xmin", lambda it: [-0.1, *it[1:]])),
    objects("xmin no number", each(f"{OBJECT}/bbox/xmin", lambda it: [float("nan"), *it[1:]])),
    objects("a box without area", lambda it: it.__setitem__(
        f"{OBJECT}/bbox/xmax", it[f"{OBJECT}/bbox/xmin"])),
    objects("x and y exchanged", lambda it: it.update({
        f"{OBJECT}/bbox/xmin": it[f"{OBJECT}/bbox/ymin"], f"{OBJECT}/bbox/ymin": it[f"{OBJECT}/bbox/xmin"],
        f"{OBJECT}/bbox/xmax": it[f"{OBJECT}/bbox/ymax"], f"{OBJECT}/bbox/ymax": it[f"{OBJECT}/bbox/xmax"]})),
    objects("label, without its text", each(f"{OBJECT}/class/label", swap)),
    objects("text, without its label", each(f"{OBJECT}/class/text", swap)),
    objects("label and text", every(each(f"{OBJECT}/class/label", swap), each(f"{OBJECT}/class/text", swap))),
    objects("a label that no class has", each(f"{OBJECT}/class/label", lambda it: [9, *it[1:]])),
    objects("area", each(f"{OBJECT}/area", scaled)),
    objects("area negative", each(f"{OBJECT}/area", lambda it: [-1.0, *it[1:]])),
    objects("area no number", each(f"{OBJECT}/area", lambda it: [float("inf"), *it[1:]])),
    objects("is_crowd", each(f"{OBJECT}/is_crowd", lambda it: [1, *it[1:]])),
    objects("is_crowd neither 0 nor 1", each(f"{OBJECT}/is_crowd", lambda it: [7, *it[1:]])),
    objects("an object removed", _every_list(lambda it: it[:1])),
    objects("an object doubled", _every_list(lambda it: [*it, it[0]])),
    objects("objects in another order", _every_list(swap)),
    objects("lists of different lengths", each(f"{OBJECT}/area", lambda it: it[:1])),
    objects("all objects removed", _every_list(lambda it: [])),
    objects("source_id", put("image/source_id", b"77")),
    objects("source_id no number", put("image/source_id", b"seven")),
    objects("a feature removed", lambda it: it.pop(f"{OBJECT}/area")),
]  # fmt: skip

MUTATIONS = [*DOCUMENT, *LEDGER, *OTHER, *RECORDS, *OF_OBJECTS]
