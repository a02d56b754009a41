"""Our own datasets written again in any other layout: TensorFlow reads the same from both."""

from __future__ import annotations

import base64
import functools
import itertools
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.depths import findings_of
from helpers.embedded import read, refs_of
from helpers.fewer_imports import late
from helpers.hostile import document, shard_hashes
from helpers.listing import listed, refusal
from helpers.pictures import file_of
from helpers.records import examples, values
from helpers.tensorflow_records import read_records
from helpers.tfrecords import converted, example, features_of, png_of, records_in, write
from helpers.trees import put_files
from PIL import Image

from shardwright.pipelines.convert import convert
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.layouts import LAYOUTS, FeatureRole, Needs

tf = late("tensorflow")


#: Function that returns a dataset in a layout.
Made = Callable[[str], Path]
_LABEL_LAYOUTS = tuple(name for name, layout in LAYOUTS.items() if layout.needs is Needs.LABEL)
_CLASS_LAYOUTS = (*_LABEL_LAYOUTS, "tensors", "base64")
_PAIRS = [*itertools.permutations(_CLASS_LAYOUTS, 2), *zip(_CLASS_LAYOUTS, _CLASS_LAYOUTS)]
_CLASSES = ('ant "x"', "bee", "zoo é ")
_HEIGHT, _WIDTH = 12, 16
_TENSORS = """
pixels: true
features:
  px: {fill: encoded, tensor: true}
  klass: {fill: label_text, tensor: true}
  number: {fill: label, tensor: true}
  version: {constant: 3, type: int64}
"""
_BASE64 = """
features:
  picture: {fill: encoded, base64: true}
  number: {fill: label}
"""


def how(layout: str) -> dict[str, Any]:
    """Returns settings for which other sources give the pictures of this layout."""
    name = {"tensors": "tensors.yaml", "base64": "base64.yaml"}.get(layout, layout)
    raw = layout == "tensors" or (layout in LAYOUTS and LAYOUTS[layout].pixels)
    return {"layout": name, "resize": f"{_WIDTH}x{_HEIGHT}", **({} if raw else {"image_format": "png"})}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The same nine pictures in any layout with classes, converted when a test first asks for it."""
    root = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(1)
    for name, number in itertools.product(_CLASSES, range(3)):
        pixels = rng.integers(0, 256, (_HEIGHT, _WIDTH, 3), np.uint8)
        put_files(root / "in" / name, {f"{number}.png": png_of(pixels)})
    put_files(root, {"tensors.yaml": _TENSORS, "base64.yaml": _BASE64})

    @functools.cache
    def in_layout(layout: str) -> Path:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(root)
            convert(input="in", output=layout, splits="train=0.5,test=0.5", shards=2, **how(layout))
        return root / layout

    return in_layout


def picture(layout: str, record: dict[str, list[Any]]) -> np.ndarray:
    """Returns a record's pixels, decoded like the readers of its layout do."""
    if layout == "tensors":
        return tf.io.parse_tensor(record["px"][0], tf.uint8).numpy()
    if layout == "base64":
        return tf.io.decode_png(tf.io.decode_base64(record["picture"][0].rstrip(b"="))).numpy()
    (name,) = (spec.name for spec in LAYOUTS[layout].features if spec.fill is FeatureRole.ENCODED)
    data = record[name][0]
    if not LAYOUTS[layout].pixels:
        return tf.io.decode_png(data).numpy()
    if layout == "tfrecorder":
        data = base64.urlsafe_b64decode(data)
    return tf.reshape(tf.io.decode_raw(data, tf.uint8), (_HEIGHT, _WIDTH, 3)).numpy()


def class_of(layout: str, record: dict[str, list[Any]], labels: list[str], first: int) -> str:
    """Returns a record's class name, found like the readers of its layout do."""
    if layout == "tensors":
        assert labels[tf.io.parse_tensor(record["number"][0], tf.int64).numpy() - first]
        return tf.io.parse_tensor(record["klass"][0], tf.string).numpy().decode()
    if layout == "raw_with_shape":
        return record["name"][0].decode()
    feature = next(name for name in ("number", "label", "image/class/label") if name in record)
    (number,) = record[feature]
    name = labels[number - first]
    assert record.get("image/class/text", [name.encode()]) == [name.encode()]
    return name


def contents(dataset: Path, layout: str) -> list[tuple[str, str, bytes]]:
    """Returns split, class and pixels of every record in order, read with TensorFlow."""
    labels, first = (document(dataset)[name] for name in ("labels", "first_label"))
    found = []
    for split, records in sorted(examples(dataset).items()):
        for item in records:
            record = features_of(item.SerializeToString())
            name = class_of(layout, record, labels, first)
            found.append((split, name, picture(layout, record).tobytes()))
    return found


def records_of(dataset: Path) -> list[bytes]:
    """Returns the bytes of all records, without their order."""
    compression = document(dataset)["settings"]["compression"]
    return sorted(read_records((dataset / file for file in shard_hashes(dataset)), compression))


def records_made_from(dataset: Path, layout: str, **settings: str) -> list[bytes]:
    """Returns the bytes of the records that a conversion would make of a dataset's."""
    made = listed(dataset, layout, dataset.parent, **settings).converted().values()
    return sorted(item.example for item in made if item.example)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("first", "second"), _PAIRS)
def test_every_layout_with_classes_can_be_made_from_every_other(
    made: Made, first: str, second: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dataset equals the result of a normal source."""
    monkeypatch.chdir(made(first).parent)
    output = converted(made(first), tmp_path / "out", shards=2, **how(second))
    assert contents(output, second) == contents(made(first), first)
    assert document(output)["labels"] == list(_CLASSES)
    if second != "classification" or not (first == "tensors" or how(first).get("image_format") is None):
        # Only `classification` has a checksum of its source; here that source is a record and not a file.
        assert shard_hashes(output) == shard_hashes(made(second))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("layout", _LABEL_LAYOUTS)
def test_shards_can_be_read_with_their_class_names_alone(made: Made, layout: str, tmp_path: Path) -> None:
    """Without dataset.json, the names of features give their roles, and labels.txt gives the ids."""
    (tmp_path / "in").mkdir()
    for file in (*made(layout).glob("*.tfrecord"), made(layout) / "labels.txt"):
        shutil.copy(file, tmp_path / "in")
    shape = {"pixel_shape": f"{_HEIGHT}x{_WIDTH}x3"} if layout == "raw" else {}
    refs, ids = refs_of(tmp_path / "in", tmp_path / "spool", **shape)
    # The names in files may have been padded.
    assert ids == {name.strip(): i for i, name in enumerate(_CLASSES, document(made(layout))["first_label"])}
    there = records_in(tmp_path / "in", "tutorial", image_format="png", **shape)
    found = [(ref.split, ref.label, picture("tutorial", there[ref.key]).tobytes()) for ref in refs]
    expected = contents(made(layout), layout)
    assert sorted(found) == sorted((split, name.strip(), pixels) for split, name, pixels in expected)


def test_kept_bytes_stay_the_same_and_keys_come_from_the_ledger(made: Made, tmp_path: Path) -> None:
    """Nothing is encoded again. A layout without keys loses none, unless its ledgers are missing."""
    pictures = made("classification").parent / "in"
    first = converted(pictures, tmp_path / "1", splits="train=0.5,test=0.5", shards=2)
    there = converted(first, tmp_path / "tfds", layout="tfds", shards=2)
    back = converted(there, tmp_path / "2", shards=2)
    assert shard_hashes(back) == shard_hashes(first)
    for ledger in (there / "_shards").iterdir():
        ledger.unlink()
    lost, _ = refs_of(there, tmp_path / "spool")
    assert len(lost) == 9 and all(".tfrecord!00000" in ref.key for ref in lost)


@pytest.mark.parametrize(
    ("labels", "settings", "from_one"),
    [
        ([4, -1, 7, 2], {}, [[-1], [3], [5], [8]]),
        ([[4], [2, 4], -1, [4, 7]], {"label_separator": "|"}, [[], [3, 5], [5], [5, 8]]),
    ],
    ids=["one class", "several"],
)
def test_ids_with_gaps_and_missing_classes_survive(
    labels: list[Any], settings: dict[str, str], from_one: list[list[int]], tmp_path: Path
) -> None:
    pixels = np.random.default_rng(3).integers(0, 256, (len(labels), _HEIGHT, _WIDTH, 3), np.uint8)
    records = [{"image": png_of(x), "label": label} for x, label in zip(pixels, labels, strict=True)]
    write(tmp_path / "in" / "a.tfrecord", records)
    kept = {"unlabelled": "keep", **settings}
    first = converted(tmp_path / "in", tmp_path / "1", **kept)
    assert document(first)["labels"] == [str(number) for number in range(8)]
    before = refs_of(first, tmp_path / "spool", **kept)
    there = converted(first, tmp_path / "2", layout="imagenet", **kept)
    after = refs_of(there, tmp_path / "spool", **kept)
    assert contents_of(after) == contents_of(before)
    ids = [values(item, "image/class/label") for item in examples(there)["train"]]
    assert sorted(ids) == from_one


def contents_of(found: tuple[list[ImageRef], Mapping[str, int]]) -> Any:
    """Returns the keys, classes and pictures of references, and the ids of classes."""
    refs, ids = found
    return sorted((ref.key, ref.labels, read(ref)) for ref in refs), ids


def synset_record(number: int) -> dict[str, Any]:
    """Returns a record in ImageNet's layout; two of its three classes have the same readable name."""
    return {
        "image/encoded": png_of(np.full((_HEIGHT, _WIDTH, 3), number * 20, np.uint8)),
        "image/filename": f"n0{number % 3}_{number}.png", "image/format": "PNG",
        "image/class/label": number % 3 + 1, "image/class/synset": f"n0{9 - number % 3}",
        "image/class/text": ["crane", "tench, Tinca", "crane"][number % 3],
    }  # fmt: skip


def test_synsets_and_their_readable_names_survive(tmp_path: Path) -> None:
    write(tmp_path / "in" / "train-00000-of-00001.tfrecord", [synset_record(number) for number in range(6)])
    first = converted(tmp_path / "in", tmp_path / "1", layout="imagenet")
    names = ("image/class/label", "image/class/synset", "image/class/text")
    expected = {tuple(synset_record(number)[name] for name in names) for number in range(3)}
    assert document(first)["labels"] == ["n09", "n08", "n07"]
    assert {tuple(values(item, name)[0] for name in names) for item in examples(first)["train"]} == expected
    assert not findings_of(first)
    again = converted(first, tmp_path / "2", layout="imagenet")
    assert shard_hashes(again) == shard_hashes(first)
    carried = converted(tmp_path / "in", tmp_path / "3", plan_from=str(first))
    assert shard_hashes(carried) == shard_hashes(first)
    _, plain = refs_of(first, tmp_path / "spool")
    assert plain == {"n09": 0, "n08": 1, "n07": 2}  # because "crane" would be two classes


_MASKS = ("image/segmentation/class/encoded", "image/panoptic/category_mask", "image/panoptic/instance_mask")
_COLUMNS = "price:double,embedding:float[],tags:string[]"
_OBJECTS = """
needs: objects
first_label: 1
features:
  picture: {fill: encoded, base64: true}
  who: {fill: key, base64: true}
  corners: {fill: boxes, tensor: true}
  kinds: {fill: object_label, tensor: true}
  classes: {fill: label, tensor: true}
  crowd: {fill: object_crowd}
  area: {fill: object_area}
  outlines: {fill: object_mask, tensor: true, optional: true}
  said: {fill: caption, base64: true, optional: true}
  semantic: {fill: semantic_mask, base64: true, optional: true}
  category: {fill: panoptic_category, tensor: true, optional: true}
  instance: {fill: panoptic_instance, optional: true}
  cost: {column: price, type: double, tensor: true}
  vector: {column: embedding, type: float, shape: [2, 2], tensor: true}
  words: {column: tags, type: string, shape: [null], tensor: true}
"""


def scene(number: int) -> dict[str, Any]:
    """Returns a record with every kind of annotation; some records lack some of them."""
    rng = np.random.default_rng(number)
    record: dict[str, Any] = {
        "image/encoded": png_of(rng.integers(0, 256, (_HEIGHT, _WIDTH, 3), np.uint8)),
        "image/filename": f"{number}.png", "image/width": _WIDTH, "image/height": _HEIGHT,
        "price": number / 3, "embedding": [number * 0.1, 1.5, 2.0, 3.0], "tags": ["a", f"é{number}"],
    }  # fmt: skip
    if number % 4 != 3:
        outlines = (rng.random((2, _HEIGHT, _WIDTH)) > 0.5).astype(np.uint8)
        outlines[1] *= 255  # the other usual value of an object's pixels
        record |= {
            "image/object/bbox/xmin": [0.1, 0.5], "image/object/bbox/xmax": [0.5, 0.77],
            "image/object/bbox/ymin": [0.25, 0.0], "image/object/bbox/ymax": [0.5, 1.0],
            "image/object/class/text": ["dog", "cat"], "image/object/class/label": [5, 3],
            "image/object/is_crowd": [0, 1], "image/object/area": [13.0, 7.0],
            "image/object/mask": [png_of(mask) for mask in outlines], "image/caption": ["x y", "ö"],
        }  # fmt: skip
    there = (number % 2 == 0, number % 4 != 1, number % 4 != 1)
    masks = rng.integers(0, 4, (3, _HEIGHT, _WIDTH), np.uint8)
    return record | {name: png_of(mask) for name, mask, is_there in zip(_MASKS, masks, there) if is_there}


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset in layout vision, its sources, and the same in layout detection."""
    root = tmp_path_factory.mktemp("scenes")
    write(root / "in" / "a.tfrecord", [scene(number) for number in range(8)])
    (root / "objects.yaml").write_text(_OBJECTS)
    vision = {"layout": "vision", "extra_columns": _COLUMNS, "splits": "train=0.5,test=0.5"}
    converted(root / "in", root / "vision", **{**vision, "shards": 2})
    converted(root / "vision", root / "detection", layout="detection", shards=2)
    return root


def by_key(dataset: Path) -> dict[str, dict[str, list[Any]]]:
    split = itertools.chain.from_iterable(examples(dataset).values())
    found = (features_of(item.SerializeToString()) for item in split)
    return {record["image/filename"][0].decode().rpartition("!")[2]: record for record in found}


def test_all_annotations_of_a_scene_survive(scenes: Path) -> None:
    """Objects and three kinds of masks together; images without objects have no object features."""
    for key, record in by_key(scenes / "vision").items():
        source = features_of(example(scene(int(key[0]))))
        assert any("/object/" in name for name in record) == any("/object/" in name for name in source)
        for name in set(source) - {"image/filename", "image/object/mask", *_MASKS}:
            assert record[name] == source[name], name
        for name in ("image/object/mask", *_MASKS):
            assert (name in record) == (name in source)
            for ours, theirs in zip(record.get(name, ()), source.get(name, ()), strict=True):
                pixels = tf.io.decode_png(theirs).numpy()
                expected = pixels > 0 if name == "image/object/mask" else pixels
                assert np.array_equal(tf.io.decode_png(ours).numpy(), expected)


def test_scenes_survive_a_custom_layout_and_back(scenes: Path, tmp_path: Path) -> None:
    layout = str(scenes / "objects.yaml")
    there = converted(scenes / "vision", tmp_path / "own", layout=layout, shards=2)
    for item in examples(there)["train"]:
        record = features_of(item.SerializeToString())
        key = tf.io.decode_base64(record["who"][0].rstrip(b"=")).numpy().decode().rpartition("!")[2]
        source = by_key(scenes / "vision")[key]
        assert tf.io.decode_base64(record["picture"][0].rstrip(b"=")).numpy() == source["image/encoded"][0]
        boxes = tf.io.parse_tensor(record["corners"][0], tf.float32).numpy()
        sides = [source.get(f"image/object/bbox/{s}", []) for s in ("ymin", "xmin", "ymax", "xmax")]
        assert np.array_equal(boxes, np.array(sides, np.float32).T.reshape(-1, 4))
        kinds, classes = (tf.io.parse_tensor(record[name][0], tf.int64) for name in ("kinds", "classes"))
        assert set(classes.numpy()) == set(kinds.numpy())  # any number, also none
        assert tf.io.parse_tensor(record["vector"][0], tf.float32).shape == (2, 2)
    assert records_made_from(there, layout) == records_of(there)
    back = records_made_from(there, "vision", extra_columns=_COLUMNS)
    assert back == records_of(scenes / "vision")


def test_scenes_survive_detection_and_back(scenes: Path, tmp_path: Path) -> None:
    detection = scenes / "detection"
    assert all("image/object/bbox/xmin" in record for record in by_key(detection).values())
    vision = converted(detection, tmp_path / "vision", layout="vision", shards=2)
    assert any("image/object/bbox/xmin" not in record for record in by_key(vision).values())
    assert records_made_from(vision, "detection") == records_of(detection)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("layout", "names"), [("segmentation", _MASKS[:1]), ("panoptic", _MASKS[1:])])
def test_masks_of_scenes_survive(scenes: Path, layout: str, names: tuple[str, ...], tmp_path: Path) -> None:
    made = converted(scenes / "vision", tmp_path / "1", layout=layout, max_bad_fraction=1)
    source = by_key(scenes / "vision")
    expected = {key: [r[n] for n in names] for key, r in source.items() if names[0] in r}
    assert {key: [r[n] for n in names] for key, r in by_key(made).items()} == expected
    assert document(made)["ledger"]["quarantined"] == 8 - len(expected) > 0
    assert records_made_from(made, layout) == records_of(made)
    kept, _ = refs_of(scenes / "vision", tmp_path / "spool", layout, unlabelled="keep")
    assert [ref.is_candidate for ref in kept] == [True] * 8
    for other in ("classification", "detection", "vision", "segmentation", "panoptic"):
        if other != layout:
            message = refusal(made, layout=other)
            assert f"have no {_LACKS[other]}" in message and f"choose --layout {layout}" in message, message


_LACKS = {
    "classification": "class of the image (image/class/label, ",
    "detection": "boxes (image/object/bbox/xmin, ",
    "vision": "boxes (image/object/bbox/xmin, ",
    "segmentation": "mask with the class of every pixel (image/segmentation/class/encoded)",
    "panoptic": "panoptic masks (image/panoptic/category_mask and ",
}


def test_the_needs_of_a_custom_layout_are_named(scenes: Path, made: Made, tmp_path: Path) -> None:
    message = refusal(made("tfds"), layout=str(scenes / "objects.yaml"))
    assert "have no boxes" in message and "{" not in message
    always = _OBJECTS.replace("outlines: {fill: object_mask, tensor: true, optional: true}",
                              "poses: {fill: object_view}")  # fmt: skip
    (tmp_path / "poses.yaml").write_text(always)
    message = refusal(scenes / "vision", layout=str(tmp_path / "poses.yaml"))
    assert "--layout poses" in message and "have no view of the objects" in message
    message = refusal(scenes / "detection", layout=str(scenes / "objects.yaml"))
    assert "--layout objects, column price" in message
    message = refusal(scenes / "detection")
    assert "choose --layout detection or vision or images (or write --unlabelled keep)" in message


def test_gray_pictures_in_records_stay_gray_unless_a_color_is_given(tmp_path: Path) -> None:
    """`--color rgb`, the default for files, would encode them again."""
    gray = file_of(Image.new("L", (9, 7), 99), "JPEG")
    first = write(tmp_path / "in" / "a.tfrecord", [{"image": gray, "label": number} for number in range(2)])
    there = converted(first, tmp_path / "2", layout="tutorial")
    assert [values(item, "image_raw") for item in examples(there)["train"]] == [[gray]] * 2
    colored = records_in(first, "tutorial", color="rgb").values()
    assert [record["depth"] for record in colored] == [[3]] * 2
    pixels = records_in(first, "raw_with_shape").values()
    assert [record["shape"] for record in pixels] == [[7, 9, 3]] * 2
