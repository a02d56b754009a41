"""Arrays in a bucket give the same images as on a local disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.array_files import colors, digits, grays, pixels_by_key, tar_gz, write_cifar10, write_mnist
from helpers.storage.buckets import Bucket

from shardwright.pipelines.convert import convert

_SETTINGS = {"image_format": "png", "color": "keep", "source": "arrays"}


def _same(
    bucket: Bucket, source: Path, tmp_path: Path, outputs: tuple[str, ...] = ("disk", "bucket")
) -> None:
    """Converts an input from the disk, and from the bucket to each of the outputs."""
    convert(input=source, output=tmp_path / "local", **_SETTINGS)
    expected = pixels_by_key(tmp_path / "local")
    for output in outputs:
        place = f"{bucket.url}/{source.name}_out" if output == "bucket" else str(tmp_path / output)
        convert(input=f"{bucket.url}/in/{source.name}", output=place, **_SETTINGS)
        if output == "bucket":
            bucket.fetch(f"{source.name}_out", tmp_path / output)
        found = pixels_by_key(tmp_path / output)
        assert found.keys() == expected.keys()
        for key, (pixels, *label) in found.items():
            assert np.array_equal(pixels, expected[key][0]) and tuple(label) == expected[key][1:]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("packed", [True, False])
def test_mnist_gives_the_same_images(bucket: Bucket, tmp_path: Path, packed: bool) -> None:
    bucket.put_tree(write_mnist(tmp_path / "mnist", packed=packed), "in/mnist/")
    _same(bucket, tmp_path / "mnist", tmp_path, ("disk", "bucket") if packed else ("bucket",))


@pytest.mark.slow
def test_cifar_gives_the_same_images(bucket: Bucket, tmp_path: Path) -> None:
    write_cifar10(tmp_path / "cifar-10-batches-py")
    bucket.put_tree(tmp_path / "cifar-10-batches-py", "in/cifar-10-batches-py/")
    _same(bucket, tmp_path / "cifar-10-batches-py", tmp_path)


@pytest.mark.slow
def test_cifar_in_its_downloaded_archive_gives_the_same_images(bucket: Bucket, tmp_path: Path) -> None:
    write_cifar10(tmp_path / "cifar-10-batches-py")
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(tar_gz(tmp_path / "cifar-10-batches-py"))
    bucket.put("in/cifar-10-python.tar.gz", (tmp_path / "cifar-10-python.tar.gz").read_bytes())
    _same(bucket, tmp_path / "cifar-10-python.tar.gz", tmp_path, ("disk",))


@pytest.mark.slow
def test_npz_gives_the_same_images(bucket: Bucket, tmp_path: Path) -> None:
    """One member is read in place, one is unpacked, and one is transposed."""
    arrays = {"x_train": np.asfortranarray(grays(20)), "y_train": digits(20), "x_test": grays(5)}
    np.savez(tmp_path / "a.npz", **arrays, y_test=digits(5))
    np.savez_compressed(tmp_path / "b.npz", images=colors(9), labels=digits(9))
    for name in ("a.npz", "b.npz"):
        bucket.put(f"in/{name}", (tmp_path / name).read_bytes())
    _same(bucket, tmp_path / "a.npz", tmp_path / "a")
    _same(bucket, tmp_path / "b.npz", tmp_path / "b")
