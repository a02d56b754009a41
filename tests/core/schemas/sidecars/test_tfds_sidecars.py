"""Files for TensorFlow Datasets, and the features that they state."""

from __future__ import annotations

import io
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.described import STATED, described, of_layout
from helpers.fewer_imports import late
from helpers.pictures import file_of
from helpers.tfds_reading import check_all, converted, in_order, load, made, put_sidecars, read_dataset
from helpers.tfrecords import png_of
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from shardwright.schemas.example import FeatureType
from shardwright.schemas.layouts import LAYOUTS, Encoding, FeatureRole, FeatureSpec
from shardwright.schemas.sidecars.tfds import FILE_TEMPLATE, class_names, tfds_name

tfds = late("tensorflow_datasets")


def planned_picture(directory: Path, **settings: str) -> Any:
    """Returns the picture's feature in a dataset with these settings, of which no record is written yet."""
    dataset = replace(of_layout("classification", **settings), formats={})
    return load(put_sidecars(dataset, directory)).info.features["image/encoded"]


def test_tfds_shows_the_stated_provenance(tmp_path: Path) -> None:
    dataset = replace(read_dataset(described("photos")), provenance=STATED)
    info = load(put_sidecars(dataset, tmp_path)).info
    assert (info.citation, info.homepage) == (STATED.citation, STATED.url)
    assert info.redistribution_info.license == STATED.license
    assert info.description.startswith(STATED.description) and dataset.fingerprint in info.description


def test_tfds_counts_the_same_records(sound_dataset: Path) -> None:
    found = tfds.folder_dataset.compute_split_info_from_directory(
        data_dir=sound_dataset, filename_template=FILE_TEMPLATE
    )
    splits = load(sound_dataset).info.splits
    assert {info.name for info in found} == set(splits)
    assert all(info.to_proto() == splits[info.name].to_proto() for info in found)


def test_supervised_pairs_are_picture_and_class(sound_dataset: Path) -> None:
    builder = load(sound_dataset)
    pairs = in_order(builder, "validation", as_supervised=True)
    assert pairs
    for (image, label), example in zip(pairs, in_order(builder, "validation"), strict=True):
        np.testing.assert_array_equal(image, example["image/encoded"])
        assert label == example["image/class/label"]


@pytest.mark.parametrize(
    ("settings", "shape", "encoding_format"),
    [
        ({"color": "gray", "resize": "40x24", "image_format": "png"}, (24, 40, 1), "png"),
        ({"color": "keep", "resize": "32x32", "image_format": "png"}, (32, 32, None), None),
        ({"resize": "32x32", "fit": "contain"}, (None, None, 3), "jpeg"),
    ],
    ids=["gray", "color_kept", "sizes_vary"],
)
def test_pictures_have_the_shape_and_format_that_the_settings_give(
    tmp_path: Path, settings: Mapping[str, str], shape: Any, encoding_format: Any
) -> None:
    image = planned_picture(tmp_path, **settings)
    assert (image.shape, image.encoding_format) == (shape, encoding_format)


def test_originals_of_any_color_are_read() -> None:
    builder = check_all(described("kept"), read_dataset(described("kept")))
    image = builder.info.features["image/encoded"]
    assert (image.shape, image.encoding_format) == ((None, None, None), None)
    found = {example["image/encoded"].shape for example in in_order(builder, "train")}
    assert found == {(30, 40, 3), (30, 20, 1)}


def test_raw_pixels_are_read(tmp_path: Path) -> None:
    features = (FeatureSpec("image", BYTES, (), FeatureRole.ENCODED),)
    records = [{"image": [bytes(range(first, first + 24))]} for first in (0, 200)]
    builder = check_all(*made(tmp_path / "out", features, records, image_format="raw", resize="4x2"))
    pixels = builder.info.features["image"]
    assert (pixels.shape, pixels.np_dtype) == ((2, 4, 3), np.uint8)
    assert isinstance(planned_picture(tmp_path, image_format="raw", resize=""), tfds.features.Text)


def test_empty_shards_and_empty_splits_are_skipped(tmp_path: Path) -> None:
    directory, dataset = converted(
        tmp_path / "out", limit=6, resize=16, splits="train=0.999999,test=0.000001", shards=8
    )
    assert dataset.records("test") == 0 and 0 in [shard.records for shard in dataset.splits["train"]]
    builder = check_all(directory, dataset)
    assert sorted(builder.as_dataset()) == ["train"]
    assert len(in_order(builder, "train[2:]")) == 4


def test_it_loads_by_name_and_version(tmp_path: Path) -> None:
    directory = Path(shutil.copytree(described("webp"), tmp_path / "flowers" / "2.1.0"))
    dataset = replace(read_dataset(directory), name="2.1.0")
    put_sidecars(dataset, directory)
    found, info = tfds.load("flowers:2.1.0", data_dir=tmp_path, split="train", with_info=True)
    assert len(found) == info.splits["train"].num_examples == dataset.records("train")
    assert str(info.version) == "2.1.0"


@pytest.mark.parametrize(("compression", "kind"), [("gzip", "shapes"), ("zlib", "raw")])
def test_compressed_datasets_have_no_sidecars_for_tfds(compression: str, kind: str) -> None:
    directory = described(kind)
    assert read_dataset(directory).plan.settings["compression"] == compression
    assert not list(directory.glob("features.json")) + list(directory.glob("dataset_info.json"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["photos", "gray", "webp", "tfrecorder", "originals"])
def test_layouts_with_classes_are_read(kind: str) -> None:
    directory = described(kind)
    dataset = read_dataset(directory)
    builder = check_all(directory, dataset)
    roles = LAYOUTS[dataset.layout].by_role
    if FeatureRole.LABEL not in roles:
        assert builder.info.supervised_keys is None
        return
    keys = (roles[FeatureRole.ENCODED].name, roles[FeatureRole.LABEL].name)
    assert builder.info.supervised_keys == keys
    names = builder.info.features[keys[1]].names
    assert tuple(names[dataset.first_label :]) == dataset.labels
    counts = Counter(names[label] for _, label in in_order(builder, "train", as_supervised=True))
    assert counts == dataset.class_counts["train"]


def test_several_labels_and_extra_columns_are_read() -> None:
    directory = described("several")
    builder = check_all(directory, read_dataset(directory))
    found = [*in_order(builder, "train"), *in_order(builder, "test")]
    assert builder.info.features["image/class/label"].names == ["air", "land", "sea"]
    assert {tuple(example["image/class/label"].tolist()) for example in found} == {(2, 1), (2,), (0,)}
    assert {tuple(example["tags"].tolist()) for example in found} == {(), (b"x", b"y z")}
    assert {example["price"] for example in found} >= {0.0, 0.125}
    assert all(example["flag"].dtype == np.bool_ for example in found)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("layout", ["detection", "vision"])
def test_objects_are_read(layout: str) -> None:
    directory = described(layout)
    builder = check_all(directory, read_dataset(directory))
    assert builder.info.supervised_keys is None
    names = builder.info.features["image/object/class/label"].names
    found: Counter[str] = Counter()
    for example in (*in_order(builder, "train"), *in_order(builder, "test")):
        texts = [text.decode() for text in example["image/object/class/text"]]
        assert [names[number] for number in example["image/object/class/label"]] == texts
        assert example["image/object/bbox/xmin"].shape == (len(texts),)
        found.update(texts)
    assert found.keys() == {"wing", "<b>eak"} and found["wing"] == found["<b>eak"] > 1
    assert names[0] == "__unused_0__"


INT64, FLOAT, BYTES = FeatureType.INT64, FeatureType.FLOAT, FeatureType.BYTES


def test_every_kind_of_feature_is_read(tmp_path: Path) -> None:
    features = (
        FeatureSpec("i", INT64),
        FeatureSpec("i/list", INT64, (None,)),
        FeatureSpec("i/three", INT64, (3,), FeatureRole.SHAPE),
        FeatureSpec("i/fours", INT64, (None, 2, 2)),
        FeatureSpec("yes", INT64, (), FeatureRole.EXTRA, value_type="bool"),
        FeatureSpec("no list", INT64, (None,), FeatureRole.EXTRA, value_type="bool"),
        FeatureSpec("small", INT64, (), FeatureRole.EXTRA, value_type="int32"),
        FeatureSpec("big", INT64, (), FeatureRole.CONSTANT, value_type="uint64", value=(2**63 - 1,)),
        FeatureSpec("ratio", FLOAT, (), FeatureRole.EXTRA, value_type="double"),
        FeatureSpec("boxes", FLOAT, (None, 4), FeatureRole.BOXES),
        FeatureSpec("no boxes", FLOAT, (None, 4), FeatureRole.BOXES, optional=True),
        FeatureSpec("two texts", BYTES, (2,)),
        FeatureSpec("tensor", BYTES, (), FeatureRole.ENCODED, encoding=Encoding.TENSOR, dtype="uint8"),
        FeatureSpec("maybe", INT64, (), optional=True),
        FeatureSpec("maybe/ratio", FLOAT, (), optional=True),
        FeatureSpec("maybe text", BYTES, (), optional=True),
        FeatureSpec("maybe three", INT64, (3,), optional=True),
        FeatureSpec("maybe/list", INT64, (None,), FeatureRole.OBJECT_LABEL, optional=True),
        FeatureSpec("../name \u00e9", BYTES),
    )
    record = {
        "i": [-(2**63)], "i/list": [1, 2, 3], "i/three": [4, 5, 3], "i/fours": [1, 2, 3, 4, 5, 6, 7, 8],
        "yes": [1], "no list": [0, 1], "small": [-(2**31)], "big": [2**63 - 1], "ratio": [0.1],
        "boxes": [0.0, 0.25, 0.5, 1.0], "two texts": [b"\xff", b""], "tensor": [b"\x08\x04"],
        "../name \u00e9": [b"x"],
    }  # fmt: skip
    there = {
        "maybe": [7], "maybe/ratio": [0.5], "maybe text": [b"t"], "maybe three": [1, 2, 3],
        "maybe/list": [0, 1], "no boxes": [0.0] * 8,
    }  # fmt: skip
    empty = {"i/list": [], "i/fours": [], "no list": [], "boxes": []}
    builder = check_all(*made(tmp_path / "d", features, [record | there, record, record | empty]))
    full, lacking, _ = in_order(builder, "train")
    assert full["yes"].dtype == np.bool_ and full["small"].dtype == np.int32
    assert builder.info.features["maybe/list"].names == ["a", "b"]
    assert full["i/fours"].shape == (2, 2, 2) and full["no boxes"].shape == (2, 4)
    assert lacking["no boxes"].shape == (0, 4)
    assert builder.info.supervised_keys is None


HOSTILE = (
    "", " ", "x", " x ", "line\nbreak", "\r", '"quoted"', "<script>", "\u732b \U0001f408", "a:b", "0", "-1",
)  # fmt: skip


@pytest.mark.parametrize("first_label", [0, 1, 3])
def test_class_names_of_any_kind_are_read(tmp_path: Path, first_label: int) -> None:
    features = (
        FeatureSpec("label", INT64, (), FeatureRole.LABEL),
        FeatureSpec("text", BYTES, (), FeatureRole.LABEL_TEXT),
    )
    records = [{"label": [first_label + i], "text": [name.encode()]} for i, name in enumerate(HOSTILE)]
    records.append({"label": [-1], "text": [b""]})  # no class
    builder = check_all(*made(tmp_path / "d", features, records, HOSTILE, first_label))
    label = builder.info.features["label"]
    assert label.num_classes == first_label + len(HOSTILE)
    *known, unlabelled = in_order(builder, "train")
    for example in known:
        name = example["text"].decode()
        assert label.int2str(int(example["label"])) == name
        assert label.str2int(name) == example["label"]
    assert unlabelled["label"] == -1
    assert not list(tmp_path.glob("d/*.labels.txt"))


def test_webp_stays_bytes(tmp_path: Path) -> None:
    directory = described("webp")
    image, _ = in_order(check_all(directory, read_dataset(directory)), "train", as_supervised=True)[0]
    assert max(Image.open(io.BytesIO(image)).size) == 24
    webp = file_of(Image.new("RGB", (9, 7), (1, 2, 3)), "WEBP")
    records = [{"image": [webp]}, {"image": [png_of(np.zeros((7, 9, 3), np.uint8))]}]
    directory, _ = made(tmp_path / "d", (FeatureSpec("image", BYTES, (), FeatureRole.ENCODED),), records)
    found = in_order(load(directory), "train", decoders={"image": tfds.decode.SkipDecoding()})
    assert [example["image"] for example in found] == [record["image"][0] for record in records]


def test_records_may_have_several_classes_or_none(tmp_path: Path) -> None:
    features = (FeatureSpec("label", INT64, (None,), FeatureRole.LABEL),)
    records = [{"label": [2, 1]}, {"label": []}, {"label": [1]}]
    builder = check_all(*made(tmp_path / "d", features, records, first_label=1))
    assert builder.info.features["label"].names == ["__unused_0__", "a", "b"]
    builder = check_all(*made(tmp_path / "e", features, [{"label": []}], labels=()))
    assert builder.info.features["label"].names == []


def test_masks_are_read(tmp_path: Path) -> None:
    features = (
        FeatureSpec("semantic", BYTES, (), FeatureRole.SEMANTIC_MASK),
        FeatureSpec("category", BYTES, (), FeatureRole.PANOPTIC_CATEGORY),
        FeatureSpec("instance", BYTES, (), FeatureRole.PANOPTIC_INSTANCE),
        FeatureSpec("objects", BYTES, (None,), FeatureRole.OBJECT_MASK, optional=True),
    )
    small = png_of(np.arange(6, dtype=np.uint8).reshape(2, 3))
    large = png_of(np.full((2, 3), 300, np.uint16))
    record = {"semantic": [small], "category": [small], "instance": [large], "objects": [small, large]}
    bare = {name: values for name, values in record.items() if name != "objects"}
    builder = check_all(*made(tmp_path / "d", features, [record, bare], first_label=1))
    assert builder.info.features["category"].names == ["__unused_0__", "a", "b"]
    assert in_order(builder, "train")[0]["semantic"].shape == (2, 3, 1)

    many = [str(number) for number in range(255)]
    records = [record | {"semantic": [large], "category": [large]}]
    builder = check_all(*made(tmp_path / "e", features, records, many, first_label=1))
    assert in_order(builder, "train")[0]["semantic"] == large
    absent = [record | {"semantic": [b""], "category": [b""]}]
    check_all(*made(tmp_path / "f", features, absent, unlabelled="keep"))


@given(st.text())
def test_dataset_names_are_valid_for_tfds(name: str) -> None:
    reference = tfds.core.naming.DatasetName(tfds_name(name))
    assert reference.name == tfds_name(name) and tfds_name(name).isascii()


@given(st.lists(st.text() | st.just("__unused_0__"), unique=True), st.integers(0, 3))
def test_each_id_has_its_name(labels: list[str], first_label: int) -> None:
    names = class_names(labels, first_label)
    assert names[first_label:] == labels and len(set(names)) == len(names) == first_label + len(labels)


def test_the_files_are_ascii(tmp_path: Path) -> None:
    directory, _ = made(tmp_path / "d", (FeatureSpec("\u00e9", INT64, (), FeatureRole.LABEL),), [], HOSTILE)
    assert all((directory / name).read_text().isascii() for name in ("features.json", "dataset_info.json"))
