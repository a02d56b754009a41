"""Raw pixels that do not state their order, or are too dark: the pixels themselves decide."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.array_files import check_found, colors, converted_pixels, digits, grays
from helpers.embedded import refs_of
from helpers.tfrecords import example, tf, write
from PIL import Image

from shardwright.pipelines.convert import convert
from shardwright.schemas.byte_range import decode_place
from shardwright.schemas.errors import UsageError

PICTURES = colors(20)
PLANES = PICTURES.transpose(0, 3, 1, 2)


def test_flat_rows_are_recognized(tmp_path: Path) -> None:
    """As in CIFAR and the small ImageNet, and as from a plain reshape."""
    scales = {"u1": 1, "<i8": 1, "<f4": 1 / 255, ">u2": 257}
    for dtype, pixels, order in product(scales, (PICTURES, PLANES), "CF"):
        rows = pixels.reshape(20, -1) * np.float64(scales[dtype])
        flat = np.asarray(rows.astype(dtype), order=order)
        np.savez(tmp_path / "a.npz", data=flat, labels=digits(20))
        found = converted_pixels(tmp_path / "a.npz", pixel_shape="32x32x3")
        check_found(found, "a.npz!data/", PICTURES, digits(20))


_FORMS: dict[str, Any] = {
    "bytes": lambda x: {"image": x.tobytes()},
    "bytes and sides": lambda x: {"image": x.tobytes(), "height": 32, "width": 32, "depth": 3},
    "numbers": lambda x: {"image": [int(v) for v in x.ravel()]},
    "fractions": lambda x: {"image": [float(v) / 255 for v in x.ravel()]},
}


def test_records_of_flat_rows_are_recognized(tmp_path: Path) -> None:
    """Like records that were made from CIFAR's rows."""
    for form, pixels, compression in product(_FORMS, (PICTURES, PLANES), ("none", "gzip")):
        records = [{**_FORMS[form](x), "label": i} for i, x in enumerate(pixels[:6])]
        file = write(tmp_path / "a.tfrecord", [b"no record", *records], compression)
        found = converted_pixels(file, pixel_shape="32x32x3").values()
        assert [number for _, _, number in found] == [*range(6)], form
        assert all(np.array_equal(pixels, PICTURES[number]) for pixels, _, number in found), form


def test_the_shape_in_a_record_decides_the_order(tmp_path: Path) -> None:
    """Whatever the pixels look like: `shape` states 32 x 32 x 3."""
    file = write(tmp_path / "a.tfrecord", [{"image": PLANES[0].tobytes(), "shape": [32, 32, 3], "label": 0}])
    ((pixels, _, _),) = converted_pixels(file).values()
    assert np.array_equal(pixels.ravel(), PLANES[0].ravel())


@pytest.mark.parametrize(("highest", "in_records"), [(1, False), (255, True), (4095, False)])
def test_dark_sixteen_bits_are_refused(tmp_path: Path, highest: int, in_records: bool) -> None:
    """Values of 8 or 12 bits in a wider type would be nearly black."""
    wide = (grays(20).astype(np.uint32) * highest // 255).astype(np.uint16)
    wide[0] = 0
    wide[1, 0, 0] = highest
    if in_records:
        records = [{"image": tf.io.serialize_tensor(x).numpy(), "label": 1} for x in wide]
        file = write(tmp_path / "a.tfrecord", records)
    else:
        file = tmp_path / "a.npz"
        np.savez(file, images=wide, labels=digits(20))
    with pytest.raises(UsageError, match=rf"up to {highest} only.*--white {max(highest, 255)} \("):
        convert(input=file, output=tmp_path / "out")


def test_black_and_bright_sixteen_bits_are_accepted(tmp_path: Path) -> None:
    """Black pictures show nothing, and one bright picture is enough."""
    wide = np.zeros((20, 28, 28), np.uint16)
    for bright in (False, True):
        if bright:
            wide[:] = 200
            wide[7, 3, 3] = 0xC000
        np.savez(tmp_path / "a.npz", images=wide, labels=digits(20))
        found = converted_pixels(tmp_path / "a.npz")
        check_found(found, "a.npz!images/", (wide.astype(int) * 255 + 32767) // 65535, digits(20))


def test_large_pictures_need_little_memory(tmp_path: Path) -> None:
    """Only their upper rows are read."""
    picture = np.asarray(Image.fromarray(PICTURES[3]).resize((1500, 1000)))
    file = write(tmp_path / "a.tfrecord", [{"image": picture.transpose(2, 0, 1).tobytes(), "label": 0}])
    (ref,) = refs_of(file, tmp_path / "spool", pixel_shape="1000x1500x3")[0]
    assert decode_place(ref.place).planar
    assert len(example({"image": picture.tobytes()})) > picture.nbytes
