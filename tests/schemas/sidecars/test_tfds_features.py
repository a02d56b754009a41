"""TensorFlow Datasets reads features of every kind, masks, and classes with any name, as they are stored."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from helpers.fewer_imports import late
from helpers.tfds_reading import check_all, in_order, load, made
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from shardwright.schemas.example import FeatureType
from shardwright.schemas.layouts import Encoding, FeatureRole, FeatureSpec
from shardwright.schemas.sidecars.tfds import class_names, tfds_name

tfds = late("tensorflow_datasets")

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


def test_kept_originals_with_webp_are_read_undecoded(tmp_path: Path) -> None:
    out = io.BytesIO()
    Image.new("RGB", (9, 7), (1, 2, 3)).save(out, "WEBP")
    records = [{"image": [out.getvalue()]}, {"image": [_png(np.zeros((7, 9, 3), np.uint8))]}]
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


def _png(values: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(values).save(out, "PNG")
    return out.getvalue()


def test_masks_are_read(tmp_path: Path) -> None:
    features = (
        FeatureSpec("semantic", BYTES, (), FeatureRole.SEMANTIC_MASK),
        FeatureSpec("category", BYTES, (), FeatureRole.PANOPTIC_CATEGORY),
        FeatureSpec("instance", BYTES, (), FeatureRole.PANOPTIC_INSTANCE),
        FeatureSpec("objects", BYTES, (None,), FeatureRole.OBJECT_MASK, optional=True),
    )
    small = _png(np.arange(6, dtype=np.uint8).reshape(2, 3))
    large = _png(np.full((2, 3), 300, np.uint16))
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
