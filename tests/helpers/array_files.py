"""Arrays in the file formats of MNIST, CIFAR and NumPy, made of the example pictures."""

from __future__ import annotations

import functools
import gzip
import io
import pickle
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from helpers.fewer_imports import late
from helpers.listing import listed
from helpers.records import value
from helpers.repository import PHOTOS

tf = late("tensorflow")

_NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def colors(count: int, side: int = 32) -> np.ndarray:
    """Returns RGB pictures (N, side, side, 3): the example photos, reduced and rolled when they repeat."""
    pictures = _reduced(side)
    return np.stack([np.roll(pictures[i % len(pictures)], i // len(pictures), axis=0) for i in range(count)])


@functools.cache
def _reduced(side: int) -> list[np.ndarray]:
    """Returns the example photos as squares."""
    found = []
    for path in sorted(path for path in PHOTOS.rglob("*") if path.suffix in (".jpg", ".png")):
        with Image.open(path) as image:
            found.append(np.asarray(image.convert("RGB").resize((side, side))))
    return found


def grays(count: int, side: int = 28) -> np.ndarray:
    """Returns gray pictures (N, side, side)."""
    return colors(count, side)[..., 1].copy()


def digits(count: int, classes: int = 10) -> np.ndarray:
    """Returns labels that include every class."""
    return (np.arange(count) * 7 % classes).astype(np.uint8)


def idx(array: np.ndarray) -> bytes:
    """Returns an IDX file."""
    codes = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}
    head = bytes([0, 0, codes[array.dtype.str[1:]], array.ndim])
    sides = b"".join(struct.pack(">I", side) for side in array.shape)
    return head + sides + array.astype(array.dtype.newbyteorder(">")).tobytes()


def write_mnist(
    folder: Path, train: int = 40, test: int = 12, packed: bool = True, dots: bool = False
) -> Path:
    """Writes a dataset in the files that MNIST is downloaded as."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures, labels = grays(train + test), digits(train + test)
    for name, part in (("train", slice(0, train)), ("t10k", slice(train, None))):
        for role, array in (("images-idx3", pictures[part]), ("labels-idx1", labels[part])):
            text = f"{name}-{role}-ubyte"
            text = text.replace("-idx", ".idx") if dots else text
            if packed:
                (folder / f"{text}.gz").write_bytes(gzip.compress(idx(array)))
            else:
                (folder / text).write_bytes(idx(array))
    return folder


class _Python2Pickler(pickle._Pickler):
    """Writes texts as Python 2 did, whose strings were bytes."""

    dispatch: ClassVar[dict[type, Any]] = dict(pickle._Pickler.dispatch)

    def save_string(self, text: str | bytes) -> None:
        data = text.encode() if isinstance(text, str) else text
        short = pickle.SHORT_BINSTRING + bytes((len(data) % 256,))
        self.write((short if len(data) < 256 else pickle.BINSTRING + struct.pack("<i", len(data))) + data)

    dispatch[str] = dispatch[bytes] = save_string


def pickle_2(content: Mapping[str, Any]) -> bytes:
    """Pickles like Python 2 with an old NumPy; CIFAR was written in this way."""
    file = io.BytesIO()
    _Python2Pickler(file, 2).dump(content)
    return file.getvalue().replace(b"cnumpy._core.", b"cnumpy.core.")


def cifar_batch(pictures: np.ndarray, labels: np.ndarray, **more: Sequence[Any]) -> bytes:
    """Returns a batch in the format of CIFAR's Python version."""
    rows = pictures.transpose(0, 3, 1, 2).reshape(len(pictures), -1)
    content = {"data": rows, **({} if more else {"labels": labels.tolist()}), **more}
    made = pickle_2({**content, "filenames": [f"picture_{i:06d}.png" for i in range(len(rows))]})
    assert (pickle.loads(made, encoding="bytes")[b"data"] == rows).all()  # Python can read it too
    return made


def write_cifar10(folder: Path, count: int = 10, batches: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Writes CIFAR-10's Python version; returns all pictures and labels, the test batch last."""
    folder.mkdir(parents=True)
    pictures, labels = colors(count * (batches + 1)), digits(count * (batches + 1))
    for number, name in enumerate([*(f"data_batch_{i + 1}" for i in range(batches)), "test_batch"]):
        part = slice(number * count, (number + 1) * count)
        (folder / name).write_bytes(cifar_batch(pictures[part], labels[part]))
    (folder / "batches.meta").write_bytes(pickle_2({"num_cases_per_batch": [count], "label_names": _NAMES}))
    (folder / "readme.html").write_text("<html></html>")
    return pictures, labels


def converted_pixels(path: Path, **settings: Any) -> dict[str, tuple[np.ndarray, str, int]]:
    """Converts an input without Beam, to PNG.

    Args:
      path: The input.
      **settings: Further settings.

    Returns:
      Key -> (pixels as TensorFlow decodes them, class name, class id).
    """
    to_png = {"image_format": "png", "color": "keep"}
    records = listed(path, "classification", path.parent, **to_png, **settings).records().values()
    return {
        value(record, "image/filename"): (
            tf.io.decode_image(record.features.feature["image/encoded"].bytes_list.value[0]).numpy(),
            value(record, "image/class/text"),
            value(record, "image/class/label"),
        )
        for record in records
    }


def check_found(
    found: Mapping[str, tuple[np.ndarray, str, int]], key: str, pictures: np.ndarray, labels: Any
) -> None:
    """Checks that records have exactly these keys, pictures and class names."""
    assert sorted(found) == [f"{key}{number:06d}" for number in range(len(pictures))]
    for number, picture in enumerate(pictures):
        pixels, label, _ = found[f"{key}{number:06d}"]
        assert np.array_equal(pixels, picture if picture.ndim == 3 else picture[..., None])
        assert label == str(labels[number])
