"""Arrays converted and read back with TensorFlow: every pixel, every label, every split, any order."""

from __future__ import annotations

import pickle
import shutil
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.array_files import (
    check_found,
    cifar_batch,
    colors,
    converted_pixels,
    digits,
    grays,
    pickle_2,
    write_cifar10,
    write_mnist,
)
from helpers.embedded import refs_of
from helpers.listing import listed, refusal
from helpers.tfrecords import example, features_of, tf, write
from helpers.trees import put_files
from PIL import Image

from shardwright.pipelines.convert import convert
from shardwright.schemas.byte_range import decode_place
from shardwright.schemas.errors import UsageError


def test_mnist_is_read(tmp_path: Path) -> None:
    pictures, labels = grays(52), digits(52)
    for name in ("plain", "plain_dots", "packed", "packed_dots"):
        folder = write_mnist(tmp_path / name, packed="packed" in name, dots="dots" in name)
        refs, ids = refs_of(folder, tmp_path / "spool")
        assert ids == {str(number): number for number in range(10)}
        assert Counter(ref.split for ref in refs) == {"train": 40, "test": 12}
        assert all((ref.split == "test") == ref.key.startswith("t10k-") for ref in refs)
        found = converted_pixels(folder)
        assert len(found) == 52
        for key, (pixels, label, label_id) in found.items():
            number = 40 * key.startswith("t10k") + int(key.partition("!")[2])
            assert np.array_equal(pixels, pictures[number][..., None])
            assert (label, label_id) == (str(labels[number]), labels[number])


def test_packed_and_unpacked_files_of_torchvision_are_read_once(tmp_path: Path) -> None:
    """Files that need no unpacking are read, and nothing is read twice."""
    raw = write_mnist(write_mnist(tmp_path / "in" / "MNIST" / "raw"), packed=False)
    refs, _ = refs_of(tmp_path / "in", tmp_path / "spool")
    assert raw.exists() and len(refs) == 52
    assert all(ref.key.startswith("MNIST/raw/") and ".gz" not in ref.key for ref in refs)


def test_cifar10_is_read_as_a_folder_and_as_the_downloaded_archive(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    pictures, labels = write_cifar10(folder)
    archive = "cifar-10-python.tar.gz"
    shutil.make_archive(str(tmp_path / "cifar-10-python"), "gztar", tmp_path, folder.name)
    for path, before in ((folder, ""), (tmp_path / archive, f"{archive}!{folder.name}/")):
        refs, ids = refs_of(path, tmp_path / "spool")
        assert [*ids][:4] == ["airplane", "automobile", "bird", "cat"]
        assert Counter(ref.split for ref in refs if ref.is_candidate) == {"train": 20, "test": 10}
        found = converted_pixels(path)
        assert len(found) == 30
        for batch, file in enumerate(("data_batch_1", "data_batch_2", "test_batch")):
            for number in range(10):
                pixels, label, label_id = found[f"{before}{file}!{number:06d}"]
                assert np.array_equal(pixels, pictures[batch * 10 + number])
                assert label_id == labels[batch * 10 + number] == ids[label]
    others = [ref.key for ref in refs_of(folder, tmp_path / "spool")[0] if not ref.is_candidate]
    assert others == ["readme.html"]


def test_cifar_pickled_by_a_new_python_is_read(tmp_path: Path) -> None:
    """In a current Python, bytes are pickled as text with protocol 2. Arrays may be in Fortran order."""
    pictures, labels = colors(24), digits(24)
    rows = pictures.transpose(0, 3, 1, 2).reshape(24, -1)
    batch = {"data": rows, "labels": list(map(int, labels))}
    in_fortran_order = {"data": np.asfortranarray(rows), "labels": labels.astype("i8")}
    batches = {f"p{protocol}": pickle.dumps(batch, protocol) for protocol in (2, 4, 5)}
    batches["fortran"] = pickle.dumps(in_fortran_order, 4)
    for name, data in batches.items():
        folder = put_files(tmp_path / name, {"data_batch_1": data})
        check_found(converted_pixels(folder), "data_batch_1!", pictures, labels)


def _write_cifar100(folder: Path, pictures: np.ndarray, labels: np.ndarray, binary: bool) -> str:
    """Writes one batch of CIFAR-100, whose last image is cut off in the binary version; returns its name."""
    folder.mkdir()
    fine, coarse = [f"fine{i}" for i in range(100)], [f"coarse{i}" for i in range(20)]
    if not binary:
        (folder / "meta").write_bytes(pickle_2({"fine_label_names": fine, "coarse_label_names": coarse}))
        both = {"fine_labels": labels.tolist(), "coarse_labels": (labels // 5).tolist()}
        (folder / "train").write_bytes(cifar_batch(pictures, labels, **both))
        return "train"
    (folder / "fine_label_names.txt").write_text("\n".join(fine))
    (folder / "coarse_label_names.txt").write_text("\n".join(coarse))
    rows = pictures.transpose(0, 3, 1, 2).reshape(len(pictures), -1)
    table = np.column_stack([labels // 5, labels, rows]).astype(np.uint8)
    (folder / "train.bin").write_bytes(table.tobytes() + b"x")
    return "train.bin"


@pytest.mark.parametrize("binary", [False, True])
def test_cifar100_is_read_with_its_superclasses(tmp_path: Path, binary: bool) -> None:
    pictures, labels = colors(12), np.arange(12) * 11 % 100
    file = _write_cifar100(tmp_path / "in", pictures, labels, binary)
    check_found(converted_pixels(tmp_path / "in"), f"{file}!", pictures, [f"fine{i}" for i in labels])
    refs, ids = refs_of(tmp_path / "in", tmp_path / "spool")
    assert ids == {f"fine{i}": i for i in range(100)}
    lost = [(ref.key, ref.reason) for ref in refs if not ref.is_candidate]
    assert lost == ([(f"{file}!000012", "TRUNCATED")] if binary else [])
    refs, ids = refs_of(tmp_path / "in", tmp_path / "spool", label_column="coarse_label")
    assert ids == {f"coarse{i}": i for i in range(20)}
    assert [ref.label for ref in refs if ref.is_candidate] == [f"coarse{i // 5}" for i in labels]


def test_binary_cifar10_is_read(tmp_path: Path) -> None:
    pictures, labels = colors(12), digits(12)
    table = np.column_stack([labels, pictures.transpose(0, 3, 1, 2).reshape(12, -1)])
    names = "".join(f"class{i}\n" for i in range(10))
    put_files(tmp_path / "in", {"data_batch_1.bin": table.tobytes(), "batches.meta.txt": names})
    found = converted_pixels(tmp_path / "in")
    check_found(found, "data_batch_1.bin!", pictures, [f"class{label}" for label in labels])
    message = refusal(tmp_path / "in", label_column="coarse_label")
    assert "data_batch_1.bin has no coarse_label; leave --label_column out" in message


def test_npz_files_of_keras_and_medmnist_are_read(tmp_path: Path) -> None:
    pictures, labels = grays(30), digits(30)
    train, test = slice(0, 20), slice(20, None)
    for name, save in (("keras", np.savez), ("packed", np.savez_compressed)):
        save(
            tmp_path / f"{name}.npz",
            x_train=pictures[train],
            y_train=labels[train],
            x_test=pictures[test],
            y_test=labels[test],
        )
    arrays = {}
    for split, count in (("train", 9), ("val", 6), ("test", 3)):
        arrays[f"{split}_images"] = colors(count, 28)
        arrays[f"{split}_labels"] = digits(count, 3)[:, None]
    np.savez_compressed(tmp_path / "medmnist.npz", **arrays)
    refs, _ = refs_of(tmp_path / "medmnist.npz", tmp_path / "spool")
    assert Counter(ref.split for ref in refs) == {"train": 9, "val": 6, "test": 3}
    for name in ("keras.npz", "packed.npz"):
        found = converted_pixels(tmp_path / name)
        assert len(found) == 30
        for number in range(30):
            array = f"x_train/{number:06d}" if number < 20 else f"x_test/{number - 20:06d}"
            pixels, label, _ = found[f"{name}!{array}"]
            assert np.array_equal(pixels[..., 0], pictures[number]) and label == str(labels[number])


_FORMS_OF_ARRAYS = {
    "plain": lambda a: a,
    "rows_of_channels": lambda a: a.transpose(0, 3, 1, 2),
    "fortran_order": np.asfortranarray,
    "big_endian": lambda a: a.astype(">i4"),
    "wide": lambda a: a.astype(np.int64),
    "not_together": lambda a: np.repeat(a, 2, axis=0)[::2],
    "fractions": lambda a: (a / np.float32(255)).astype(np.float32),
    "big_endian_fractions": lambda a: (a / 255).astype(">f8"),
}


def test_every_form_of_array_gives_the_same_pixels(tmp_path: Path) -> None:
    """The pixels are the same however the array is stored."""
    pictures, labels = colors(9, 20), digits(9)
    for name, change in _FORMS_OF_ARRAYS.items():
        np.savez(tmp_path / f"{name}.npz", images=change(pictures), labels=labels)
        check_found(converted_pixels(tmp_path / f"{name}.npz"), f"{name}.npz!images/", pictures, labels)


def test_booleans_and_sixteen_bits_are_converted(tmp_path: Path) -> None:
    pictures, labels = grays(6), digits(6)
    expected = {"bool": np.where(pictures > 99, 255, 0)}
    np.savez(tmp_path / "bool.npz", images=pictures > 99, labels=labels)
    for name, deep in (("gray", pictures), ("rgb", colors(6, 20))):
        wide = deep.astype(np.uint16) * 257 + 90
        wide[:, 0, 0] = 65535
        np.savez(tmp_path / f"{name}.npz", images=wide.astype(">u2"), labels=labels)
        expected[name] = (wide.astype(int) * 255 + 32767) // 65535
    for name, pixels in expected.items():
        check_found(converted_pixels(tmp_path / f"{name}.npz"), f"{name}.npz!images/", pixels, labels)


def test_alpha_is_flattened(tmp_path: Path) -> None:
    pictures = np.concatenate([colors(5, 16), np.zeros((5, 16, 16, 1), np.uint8)], axis=3)
    pictures[:, :8, :, 3] = 255
    np.savez(tmp_path / "a.npz", images=pictures, labels=digits(5))
    found = converted_pixels(tmp_path / "a.npz", background="#102030")
    for pixels, _, _ in found.values():
        assert (pixels[8:] == (0x10, 0x20, 0x30)).all()
    assert np.array_equal(found["a.npz!images/000002"][0][:8], pictures[2, :8, :, :3])


def test_an_image_may_have_several_classes(tmp_path: Path) -> None:
    labels = np.array([[1, 0, 1], [0, 1, 0], [1, 1, 1]])
    np.savez(tmp_path / "a.npz", images=grays(3), labels=labels)
    refs, _ = refs_of(tmp_path / "a.npz", tmp_path / "spool", label_separator="|")
    assert [ref.labels for ref in refs] == [("0", "2"), ("1",), ("0", "1", "2")]
    assert "--label_separator" in refusal(tmp_path / "a.npz")


def test_files_beside_each_other_belong_together(tmp_path: Path) -> None:
    for split, part in (("train", slice(0, 12)), ("val", slice(12, None))):
        (tmp_path / "in" / split).mkdir(parents=True)
        np.save(tmp_path / "in" / split / "images.npy", grays(20)[part])
        np.save(tmp_path / "in" / split / "labels.npy", digits(20)[part])
    refs, _ = refs_of(tmp_path / "in", tmp_path / "spool")
    assert [ref.split for ref in refs] == ["train"] * 12 + ["val"] * 8
    hashed, _ = refs_of(tmp_path / "in", tmp_path / "spool", splits="a=0.5,b=0.5")
    assert len(hashed) == 20 and {ref.split for ref in hashed} == {""}
    write_mnist(tmp_path / "mnist", 12, 8)
    for alone in (tmp_path / "in" / "val" / "images.npy", tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz"):
        refs, _ = refs_of(alone, tmp_path / "spool")
        assert [ref.key for ref in refs] == [f"{alone.name}!{number:06d}" for number in range(8)]
        assert [ref.label for ref in refs] == [*map(str, digits(20)[12:])]


def test_arrays_may_have_any_names(tmp_path: Path) -> None:
    grades = np.array(["ant", "bee", "ant", "cow é", "bee"])
    np.savez(tmp_path / "a.npz", scans=grays(5), grades=grades, ages=np.arange(5))
    assert "--image_column" in refusal(tmp_path / "a.npz")
    found = converted_pixels(tmp_path / "a.npz", image_column="scans", label_column="grades")
    check_found(found, "a.npz!scans/", grays(5), grades)
    assert "did you mean scans?" in refusal(tmp_path / "a.npz", image_column="scan")


def test_images_without_labels_need_a_setting(tmp_path: Path) -> None:
    np.save(tmp_path / "pictures.npy", grays(5))
    refs, _ = refs_of(tmp_path / "pictures.npy", tmp_path / "spool")
    assert {(ref.label, ref.message) for ref in refs} == {("", "there are no labels for its array")}
    found = converted_pixels(tmp_path / "pictures.npy", unlabelled="keep")
    assert {label_id for _, _, label_id in found.values()} == {-1}


def test_kept_pixels_become_png(tmp_path: Path) -> None:
    """Raw pixels cannot be kept as they are, and the ledger says so."""
    found = listed(write_mnist(tmp_path / "in"), "classification", tmp_path).converted()
    for item in found.values():
        record = features_of(item.example)
        assert (record["image/format"], record["image/channels"]) == ([b"png"], [3])
        assert item.entry.stored == "encoded"


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


_FORMS_OF_RECORDS: dict[str, Any] = {
    "bytes": lambda x: {"image": x.tobytes()},
    "bytes and sides": lambda x: {"image": x.tobytes(), "height": 32, "width": 32, "depth": 3},
    "numbers": lambda x: {"image": [int(v) for v in x.ravel()]},
    "fractions": lambda x: {"image": [float(v) / 255 for v in x.ravel()]},
}


def test_records_of_flat_rows_are_recognized(tmp_path: Path) -> None:
    """Like records that were made from CIFAR's rows."""
    for form, pixels, compression in product(_FORMS_OF_RECORDS, (PICTURES, PLANES), ("none", "gzip")):
        records = [{**_FORMS_OF_RECORDS[form](x), "label": i} for i, x in enumerate(pixels[:6])]
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
