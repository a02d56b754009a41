"""Every layout and format is read with TensorFlow alone, and other files disturb no reader."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.util import assert_that, equal_to
from helpers.annotation_sets.coco import put_coco, save
from helpers.depths import findings_of
from helpers.fewer_imports import late
from helpers.listing import listed
from PIL import Image

from shardwright.core.records.build import label_ids
from shardwright.pipelines.convert import convert
from shardwright.pipelines.results import print_convert_summary
from shardwright.schemas.configuration.layout_file import parse_layout_file
from shardwright.schemas.layouts import (
    LAYOUTS,
    Encoding,
    FeatureRole,
    FeatureSpec,
    Layout,
    Needs,
    inline_layout,
)
from shardwright.schemas.parsing import spec_source
from shardwright.schemas.sidecars import SIDE_FILES

tf = late("tensorflow")

WIDTH, HEIGHT = 24, 20
#: For each picture: its class, the colors of its left and right half, and its boxes in COCO's format.
PICTURES: Mapping[str, tuple[str, Any, Any, Any]] = {
    "a.png": ("cat", (255, 0, 0), (0, 0, 255), []),
    "b.png": ("dog", (0, 255, 0), (255, 255, 255), [(2, 0, 0, 12, 20), (1, 12, 5, 6, 10)]),
    "c.png": ("dog", (0, 0, 0), (128, 128, 128), [(1, 6, 10, 12, 5)]),
}
LABELS = ("cat", "dog")
FORMATS = ("keep", "jpeg", "png", "webp", "raw")
TENSORS = """
extends: raw
rename: {image: picture}
features:
  picture: {fill: encoded, tensor: true}
  label: {fill: label, tensor: true}
  shape: {fill: shape, tensor: true}
  key: {fill: key, base64: true}
  mean: {constant: [[0.1, 1], [2, 3]], type: double, tensor: true}
"""
#: Name -> layout.
ALL = {**LAYOUTS, "tensors": parse_layout_file(TENSORS, "tensors.yaml")}


def picture(name: str) -> np.ndarray[Any, Any]:
    _, left, right, _ = PICTURES[name]
    pixels = np.empty((HEIGHT, WIDTH, 3), np.uint8)
    pixels[:, : WIDTH // 2], pixels[:, WIDTH // 2 :] = left, right
    return pixels


def ids_of(name: str) -> np.ndarray[Any, Any]:
    """Returns the class of every pixel: 1 above and 2 below; in the second picture only 1."""
    ids = np.ones((HEIGHT, WIDTH), np.uint8)
    ids[HEIGHT // 2 :] = 1 if name == "b.png" else 2
    return ids


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[Needs, Mapping[str, Any]]:
    """Returns the input for each kind of layout, as settings."""
    root = tmp_path_factory.mktemp("inputs")
    folders = {
        kind: root / kind for kind in ("classes", "coco/images", "pictures", "masks", "panoptic/masks")
    }
    for folder in folders.values():
        folder.mkdir(parents=True)
    segments = []
    for number, (name, (label, *_)) in enumerate(PICTURES.items()):
        (folders["classes"] / label).mkdir(exist_ok=True)
        targets = (folders["classes"] / label, folders["coco/images"], folders["pictures"], root / "panoptic")
        for folder in targets:
            Image.fromarray(picture(name)).save(folder / name)
        Image.fromarray(ids_of(name)).save(folders["masks"] / name)
        painted = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        painted[..., 0] = ids_of(name)
        Image.fromarray(painted).save(folders["panoptic/masks"] / name)
        present = sorted(set(ids_of(name).ravel().tolist()))
        info = [{"id": number_, "category_id": number_, "iscrowd": 0} for number_ in present]
        segments.append({"image_id": number, "file_name": name, "segments_info": info})
    boxes = {name: objects for name, (_, _, _, objects) in PICTURES.items()}
    file = put_coco(root / "coco" / "boxes.json", boxes, LABELS, dict.fromkeys(PICTURES, (WIDTH, HEIGHT)))
    document = json.loads(file.read_text())
    for item in document["annotations"]:
        x, y, w, h = item["bbox"]
        item["segmentation"] = [[x, y, x + w, y, x + w, y + h, x, y + h]]
        item |= {"keypoints": [x, y, 2, x + w, y + h, 1], "num_keypoints": 2}
    for category in document["categories"]:
        category |= {"keypoints": ["first", "last"], "isthing": 1}
    save(file, document)
    save(root / "panoptic" / "masks.json", {**document, "annotations": segments})
    (root / "names.txt").write_text("nothing\ncat\ndog\n")
    return {
        Needs.IMAGE: {"input": folders["pictures"]},
        Needs.LABEL: {"input": folders["classes"]},
        Needs.OBJECTS: {"input": root / "coco/boxes.json", "image_root": folders["coco/images"]},
        Needs.SEMANTIC: {
            "input": folders["pictures"], "mask_dir": folders["masks"], "class_names": root / "names.txt",
        },
        Needs.PANOPTIC: {"input": root / "panoptic/masks.json"},
    }  # fmt: skip


def plain(spec: FeatureSpec, value: Any) -> Any:
    if spec.encoding is Encoding.BASE64:
        return tf.io.decode_base64(value).numpy()
    if spec.encoding is Encoding.TENSOR:
        return tf.io.parse_tensor(value, spec.dtype).numpy()
    return value


def decoded(stored: Any, image_format: str) -> np.ndarray[Any, Any]:
    if isinstance(stored, np.ndarray):
        return stored
    if image_format == "raw":
        return tf.reshape(tf.io.decode_raw(stored, tf.uint8), (HEIGHT, WIDTH, 3)).numpy()  # type: ignore[no-any-return]
    if image_format == "webp":
        return np.asarray(Image.open(io.BytesIO(stored)).convert("RGB"))
    return tf.io.decode_image(stored, 3).numpy()  # type: ignore[no-any-return]


def expected(name: str, layout: Layout, image_format: str) -> dict[FeatureRole, Any]:
    """Returns the values of a picture's record, except the picture and its masks."""
    label, _, _, objects = PICTURES[name]
    stored = {"keep": "png", "jpeg": "jpg"}.get(image_format, image_format)
    key = f"{label}/{name}" if layout.needs is Needs.LABEL else name
    ids = [layout.first_label - 1 + category for category, *_ in objects]
    sides = [
        (y / HEIGHT, x / WIDTH, (y + h) / HEIGHT, (x + w) / WIDTH) for _, x, y, w, h in objects
    ]  # fmt: skip
    return {
        FeatureRole.FORMAT: layout.format_names.get(stored, stored).encode(),
        FeatureRole.HEIGHT: HEIGHT,
        FeatureRole.WIDTH: WIDTH,
        FeatureRole.CHANNELS: 3,
        FeatureRole.SHAPE: [HEIGHT, WIDTH, 3],
        FeatureRole.COLORSPACE: b"RGB",
        FeatureRole.LABEL: layout.first_label + LABELS.index(label),
        FeatureRole.LABEL_TEXT: label.encode(),
        FeatureRole.SYNSET: label.encode(),
        FeatureRole.KEY: key.encode(),
        FeatureRole.FILE_BASENAME: name.encode(),
        FeatureRole.SPLIT: b"train",
        FeatureRole.BOX_YMIN: [box[0] for box in sides],
        FeatureRole.BOX_XMIN: [box[1] for box in sides],
        FeatureRole.BOX_YMAX: [box[2] for box in sides],
        FeatureRole.BOX_XMAX: [box[3] for box in sides],
        FeatureRole.OBJECT_LABEL: ids,
        FeatureRole.OBJECT_TEXT: [LABELS[category - 1].encode() for category, *_ in objects],
        FeatureRole.OBJECT_CROWD: [0] * len(objects),
        FeatureRole.OBJECT_AREA: [w * h for *_, w, h in objects],
        FeatureRole.KEYPOINT_X: [x / WIDTH for _, x, _, w, _ in objects for x in (x, x + w)],
        FeatureRole.KEYPOINT_Y: [y / HEIGHT for _, _, y, _, h in objects for y in (y, y + h)],
        FeatureRole.KEYPOINT_VISIBILITY: [2, 1] * len(objects),
        FeatureRole.KEYPOINT_TEXT: [b"first", b"last"] * len(objects),
        FeatureRole.KEYPOINT_NUM: [2] * len(objects),
        FeatureRole.SEMANTIC_FORMAT: b"png",
        FeatureRole.CONSTANT: [[0.1, 1], [2, 3]],
    }


def assert_same(found: Any, known: Any) -> None:
    values = np.asarray(found)
    if values.dtype.kind in "OS":
        assert values.tolist() == known
    else:
        np.testing.assert_allclose(values, known, rtol=1e-6)


def check_masks(role: FeatureRole, stored: Any, name: str) -> bool:
    """Compares masks with the drawn ones; returns whether the feature holds masks."""
    if role is FeatureRole.OBJECT_MASK:
        objects = PICTURES[name][3]
        assert len(stored) == len(objects)
        for mask, (_, x, y, w, h) in zip(stored, objects):
            drawn = np.zeros((HEIGHT, WIDTH), np.uint8)
            drawn[y : y + h, x : x + w] = 1
            np.testing.assert_array_equal(tf.io.decode_png(mask, 1).numpy()[..., 0], drawn)
        return True
    if (
        role in (FeatureRole.SEMANTIC_MASK, FeatureRole.PANOPTIC_CATEGORY, FeatureRole.PANOPTIC_INSTANCE)
        and stored
    ):
        mask = tf.io.decode_png(stored, 1).numpy()[..., 0]
        assert (mask > 0).all() if role is FeatureRole.PANOPTIC_INSTANCE else (mask == ids_of(name)).all()
        return True
    return False


@pytest.mark.parametrize(
    ("name", "image_format"),
    [(name, one) for name, layout in ALL.items() for one in (("raw",) if layout.pixels else FORMATS)],
)
def test_tensorflow_reads_the_written_values(
    name: str, image_format: str, inputs: Mapping[Needs, Mapping[str, Any]]
) -> None:
    """With the code that `shardwright layouts` shows."""
    layout = ALL[name]
    source, settings = inputs[layout.needs]["input"], {**inputs[layout.needs], "image_format": image_format}
    del settings["input"]
    found = listed(source, inline_layout(layout), resize=f"{WIDTH}x{HEIGHT}", **settings)
    scope: dict[str, Any] = {"tf": tf}
    exec(spec_source(layout.features), scope)
    assigned = {key: ref._replace(split="train") for key, ref in found.refs.items()}
    planned = found._replace(refs=assigned, ids=label_ids(LABELS, layout.first_label))
    for key, made in planned.converted().items():
        record = tf.io.parse_single_example(made.example, scope["features"])
        by_role = {spec.fill: plain(spec, record[spec.name].numpy()) for spec in layout.features}
        pixels = decoded(by_role.pop(FeatureRole.ENCODED), image_format).astype(int)
        which = Path(key).name
        distance = np.abs(pixels - picture(which)).mean()
        assert distance < (8 if image_format in ("jpeg", "webp") else 1e-9)
        known = expected(which, layout, image_format)
        compared = 0
        for role, value in by_role.items():
            if role is None or check_masks(role, value, which):
                continue
            if role in known:
                compared += 1
                assert_same(value, known[role])
        assert compared
    assert {Path(key).name for key in found.refs} == set(PICTURES)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ALL)
def test_verification_finds_nothing_in_any_layout(
    name: str, inputs: Mapping[Needs, Mapping[str, Any]], tmp_path: Path
) -> None:
    made = convert(
        **inputs[ALL[name].needs], output=tmp_path / "out", layout=inline_layout(ALL[name]), verify="none",
        resize=f"{WIDTH}x{HEIGHT}", compression="gzip",
    )  # fmt: skip
    assert made.dataset.ledger["written"] == len(PICTURES)
    assert not findings_of(tmp_path / "out")


def test_the_summary_of_a_layout_of_your_own_counts_segments(
    inputs: Mapping[Needs, Mapping[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text("extends: panoptic")
    values = inputs[Needs.PANOPTIC]
    print_convert_summary(convert(output=tmp_path / "out", layout=tmp_path / "mine.yaml", **values))
    assert "  segments: 5 written" in capsys.readouterr().out


def test_patterns_that_begin_with_a_split_match_only_its_shards(copied: Path) -> None:
    for name in SIDE_FILES:
        (copied / name).touch()
    splits = json.loads((copied / "dataset.json").read_text())["splits"]
    prefixes = {"train": "train", "validation": "validation", "val": "validation", "test": "test"}
    for prefix, split in prefixes.items():
        files = tf.io.gfile.glob(f"{copied}/{prefix}*")
        assert sum(1 for _ in tf.data.TFRecordDataset(files)) == splits[split]["records"]
    # The ImportExampleGen of TFX joins the folder and a pattern, and passes the result to Beam.
    with beam.Pipeline("FnApiRunner") as pipeline:
        for split, stated in splits.items():
            read = pipeline | split >> beam.io.ReadFromTFRecord(file_pattern=f"{copied}/{split}-*")
            count = read | f"Count {split}" >> beam.combiners.Count.Globally()
            assert_that(count, equal_to([stated["records"]]), f"Check {split}")
