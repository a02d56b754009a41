"""Records of our own datasets with 16 bits, floats and many channels: where pixels are, and their type."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.deep_datasets import KINDS, deep_dataset
from helpers.tfds_reading import examples_of, read_dataset

from shardwright.core.sources.tfrecord.images import NoImage, own_image, pixel_values
from shardwright.core.sources.tfrecord.record import OwnRecords, SourceRecord, own_records
from shardwright.schemas.byte_range import PIXELS, STORED
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.layouts import CLASSIFICATION


def stored(name: str) -> tuple[OwnRecords, list[SourceRecord]]:
    """Returns the description of a dataset's records, and the records."""
    directory, _ = deep_dataset(name)
    dataset = read_dataset(directory)
    own = own_records(dataset, CLASSIFICATION)
    assert own is not None
    return own, [
        SourceRecord(example.SerializeToString()) for example in examples_of(directory, dataset, "train")
    ]


@pytest.mark.parametrize("name", KINDS)
def test_bare_pixels_are_found_with_their_type(name: str) -> None:
    _, pictures = deep_dataset(name)
    own, records = stored(name)
    for record, pixels, (_, form) in zip(records, pictures, KINDS[name].stored, strict=True):
        found = own_image(record, own, None)
        if form != "raw":
            assert found.method == STORED and found.shape == ()
            continue
        assert (found.method, found.shape) == (PIXELS, pixels.shape)
        values = pixel_values(record, found).reshape(found.shape)
        assert values.dtype == pixels.dtype
        np.testing.assert_array_equal(values, pixels)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"dtypes": ("uint8", "uint16")}, r"'image/dtype' is 'float32', not one of uint8, uint16"),
        ({"dtypes": ("uint8",)}, r"960 bytes of .* are not 6 x 8 x 5 pixels"),
        ({"dtypes": ("uint16",), "picture": (None, None, 5)}, r"are not 6 x 8 x 5 pixels of uint16"),
    ],
)
def test_a_contradiction_to_the_dataset_is_corrupt(change: dict[str, object], what: str) -> None:
    own, records = stored("raw of all types")
    with pytest.raises(NoImage, match=what) as caught:
        own_image(records[1], replace(own, **change), None)  # type: ignore[arg-type]
    assert caught.value.reason is QuarantineReason.CORRUPT
