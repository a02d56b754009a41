"""The files for other tools describe pictures with 16 bits, floats and many channels, and read them."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.deep_datasets import KINDS, deep_dataset, widened
from helpers.described import described, parse_module
from helpers.fewer_imports import late
from helpers.tfds_reading import in_order, load, read_dataset

from shardwright.schemas.dataset import sample_types
from shardwright.schemas.sidecars import SIDECARS

tfds = late("tensorflow_datasets")
mlc = late("mlcroissant")
schema_pb2 = pytest.importorskip("tensorflow_metadata.proto.v0.schema_pb2")

from google.protobuf import text_format  # noqa: E402

#: Kind -> how TensorFlow Datasets reads its pictures: decoded, as a tensor, or as bytes.
IN_TFDS = {
    "png of 16 bits": "Image",
    "gray png of 16 bits": "Image",
    "png of 8 and 16 bits": "Image",
    "jpeg next to png of 16 bits": "Text",
    "raw of 16 bits": "Tensor",
    "raw of 16 bits and many sizes": "Text",
    "six channels": "Tensor",
    "two channels of 8 bits": "Text",
    "floats": "Tensor",
    "floats of many sizes": "Text",
    "raw of all types": "Text",
    "floats and pngs": "Text",
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", KINDS)
def test_parse_py_reads_the_pixels(name: str) -> None:
    directory, pictures = deep_dataset(name)
    widest = KINDS[name].types[-1]
    data = parse_module(directory).load("train")
    assert data.element_spec["image/encoded"].dtype.name == widest
    for example, pixels in zip(data.as_numpy_iterator(), pictures, strict=True):
        found, wanted = example["image/encoded"], widened(pixels, widest)
        if wanted.dtype == pixels.dtype or widest == "uint16":
            np.testing.assert_array_equal(found, wanted)
        else:  # TensorFlow multiplies where NumPy divides
            np.testing.assert_allclose(found, wanted, rtol=2e-7)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", KINDS)
def test_tensorflow_datasets_reads_the_pixels(name: str) -> None:
    directory, pictures = deep_dataset(name)
    builder = load(directory)
    feature = builder.info.features["image/encoded"]
    assert type(feature) is getattr(tfds.features, IN_TFDS[name])
    stored = read_dataset(directory)
    for example, pixels in zip(in_order(builder, "train"), pictures, strict=True):
        assert example["image/dtype"].decode() == pixels.dtype.name
        if isinstance(feature, tfds.features.Text):
            assert isinstance(example["image/encoded"], bytes)
        else:
            np.testing.assert_array_equal(example["image/encoded"], widened(pixels, sample_types(stored)[-1]))


@pytest.mark.parametrize("name", KINDS)
def test_every_file_states_types_and_channels(name: str) -> None:
    directory, _ = deep_dataset(name)
    kind, counts = KINDS[name], read_dataset(directory).dtypes
    found = mlc.Dataset(jsonld=directory / "croissant.json")
    assert not found.metadata.ctx.issues.errors
    rows = {row["features/name"]: row["features/description"] for row in found.records("features")}
    card = (directory / "README.md").read_text()
    for dtype in kind.types:
        assert dtype in rows["image/encoded"]
        assert f"{counts[dtype]} image{'s' if counts[dtype] > 1 else ''} of {dtype}" in card
    assert ("4 with alpha" not in card) == (kind.channels not in (1, 3))
    schema = text_format.Parse((directory / "schema.pbtxt").read_text(), schema_pb2.Schema())
    features = {feature.name: feature for feature in schema.feature}
    assert tuple(features["image/dtype"].string_domain.value) == kind.types
    assert features["image/channels"].int_domain.max == kind.channels
    fraction = features["image/encoded"].image_domain.minimum_supported_image_fraction
    assert fraction == all(form != "raw" for _, form in kind.stored)


def test_no_type_is_stated_without_the_settings() -> None:
    dataset = read_dataset(described("photos"))
    assert not dataset.dtypes and "dtypes" not in dataset.as_json() and sample_types(dataset) == ("uint8",)
    for make in SIDECARS.values():
        assert "uint16" not in (make(dataset) or "")
