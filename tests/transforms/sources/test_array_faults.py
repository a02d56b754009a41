"""Arrays that are wrong, damaged, hostile or of another kind: reported, counted, never written."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.array_files import (
    digits,
    grays,
    pixels_by_key,
    records_of,
    refused,
    to_png,
    write_cifar10,
    write_mnist,
)
from helpers.records import balanced, quarantine

from shardwright.pipelines.convert import convert


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"images": "greys*1.0", "labels": "digits"}, "divide them by 255"),
        ({"images": "greys*1.0-99", "labels": "digits"}, "scale them back"),
        ({"images": "greys*1000", "labels": "digits"}, "uint16"),
        ({"images": "greys", "labels": "digits[:4]"}, "5 images"),
        ({"images": "greys.reshape(5, -1)", "labels": "digits"}, "--pixel_shape, such as 28x28"),
        ({"images": "greys[:, :3, :3]", "labels": "digits"}, "--pixel_shape"),
        ({"images": "np.zeros((5, 3, 9, 4), 'u1')", "labels": "digits"}, "--pixel_shape HxWxC"),
        ({"images": "np.zeros((5, 28, 28, 28), 'u1')", "labels": "digits"}, "--image_column"),
        ({"images": "greys[:, :0]", "labels": "digits"}, "no pixels"),
        ({"images": "np.array([b'x'] * 5)", "labels": "digits"}, "--image_column"),
        ({"images": "np.array([{}] * 5)", "labels": "digits"}, "never unpickled"),
        ({"images": "greys", "labels": "np.array([{}] * 5)"}, "never unpickled"),
        ({"images": "greys", "labels": "greys"}, "--label_column"),
        ({"images": "greys", "labels": "digits + 0.5"}, "whole numbers"),
        ({"images": "greys", "labels": "np.arange(15).reshape(5, 3)"}, "one-hot"),
    ],
)
def test_wrong_arrays_are_reported_before_anything_is_written(
    tmp_path: Path, arrays: dict[str, str], says: str
) -> None:
    known = {
        "greys": grays(5).astype(np.float64 if "1.0" in arrays["images"] else np.int64),
        "digits": digits(5),
    }
    values = {name: eval(text, {"np": np, **known}) for name, text in arrays.items()}
    np.savez(tmp_path / "a.npz", **values)
    message = refused(tmp_path / "out", input=tmp_path / "a.npz")
    assert says in message


def test_a_truncated_file_loses_only_its_last_images(tmp_path: Path) -> None:
    folder = write_mnist(tmp_path / "in", packed=False)
    file = folder / "train-images-idx3-ubyte"
    file.write_bytes(file.read_bytes()[: 16 + 784 * 30 + 5])
    made = to_png(folder, tmp_path / "out", max_bad_fraction=0.5)
    assert balanced(made.dataset.ledger) and made.dataset.ledger["listed"] == 52
    assert {entry["reason"] for entry in quarantine(tmp_path / "out").values()} == {"TRUNCATED"}
    assert sorted(quarantine(tmp_path / "out")) == [f"{file.name}!{number:06d}" for number in range(30, 40)]


def test_a_truncated_compressed_file_loses_only_its_last_images(tmp_path: Path) -> None:
    folder = write_mnist(tmp_path / "in")
    file = folder / "train-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:-3000])
    made = to_png(folder, tmp_path / "out", max_bad_fraction=0.9)
    ledger = made.dataset.ledger
    assert balanced(ledger) and ledger["listed"] == 52 and 0 < ledger["quarantined"] < 40
    pictures = grays(52)
    for key, (pixels, _, _) in pixels_by_key(tmp_path / "out").items():
        if key.startswith("train"):
            assert np.array_equal(pixels[..., 0], pictures[int(key.partition("!")[2])])


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_damaged_byte_is_never_written(tmp_path: Path, save: Any) -> None:
    """The archive's checksum shows that a pixel is wrong, but not which one."""
    save(tmp_path / "a.npz", images=grays(9), x_test=grays(5), labels=digits(9), y_test=digits(5))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[data.index(b"images.npy") + 3000] ^= 0x55
    (tmp_path / "a.npz").write_bytes(data)
    made = to_png(tmp_path / "a.npz", tmp_path / "out", max_bad_fraction=0.9)
    assert balanced(made.dataset.ledger) and made.dataset.ledger["quarantined"] == 9
    assert {entry["reason"] for entry in quarantine(tmp_path / "out").values()} <= {
        "CORRUPT",
        "CHECKSUM_MISMATCH",
    }


def test_pixels_out_of_range_fail_one_image(tmp_path: Path) -> None:
    pictures = grays(9) / 255
    pictures[4, 3, 3], pictures[7, 0, 0] = 1.5, np.nan
    np.savez(tmp_path / "a.npz", images=pictures, labels=digits(9))
    to_png(tmp_path / "a.npz", tmp_path / "out", max_bad_fraction=0.5)
    assert {key[-1]: entry["reason"] for key, entry in quarantine(tmp_path / "out").items()} == {
        "4": "CORRUPT",
        "7": "CORRUPT",
    }


def test_a_header_with_too_many_images_loses_none(tmp_path: Path) -> None:
    """A few bytes that state 4 billion images need neither memory nor time."""
    folder = write_mnist(tmp_path / "in", packed=False)
    for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"):
        data = bytearray((folder / name).read_bytes())
        data[4:8] = b"\xff" * 4
        (folder / name).write_bytes(data)
    made = to_png(folder, tmp_path / "out", max_bad_fraction=1)
    assert balanced(made.dataset.ledger) and records_of(made)["train"] == 40
    last = max(key for key in quarantine(tmp_path / "out"))
    assert "more" in quarantine(tmp_path / "out")[last]["message"]


def test_bytes_after_the_last_image_are_reported(tmp_path: Path) -> None:
    folder = write_mnist(tmp_path / "in", packed=False)
    with (folder / "t10k-images-idx3-ubyte").open("ab") as file:
        file.write(b"more")
    to_png(folder, tmp_path / "out", max_bad_fraction=0.1)
    message = quarantine(tmp_path / "out")["t10k-images-idx3-ubyte!000012"]["message"]
    assert "4 bytes after the last image" in message


def test_hostile_pickles_run_nothing(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return eval, (f"open({str(tmp_path / 'pwned')!r}, 'w')",)

    write_cifar10(tmp_path / "in")
    (tmp_path / "in" / "data_batch_2").write_bytes(pickle.dumps({"data": Evil(), "labels": []}, 2))
    message = refused(tmp_path / "out", input=tmp_path / "in")
    assert "data_batch_2" in message and "never run" in message
    assert not (tmp_path / "pwned").exists()


def test_folders_of_other_content_are_left_to_other_sources(tmp_path: Path, photos: Path) -> None:
    """Class folders remain class folders, whatever array is beside them."""
    folder = tmp_path / "in"
    for number, path in enumerate(sorted((photos / "fruit").iterdir())[:4]):
        target = folder / "ab"[number % 2] / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    np.savez(folder / "a" / "images.npz", images=grays(3))
    made = convert(input=folder, output=tmp_path / "out")
    assert made.run["detected_as"] == ["class folders"] and made.dataset.ledger["written"] == 4


def test_several_datasets_in_one_folder_need_a_choice(tmp_path: Path) -> None:
    for name in ("mnist", "fashion"):
        np.savez(tmp_path / f"{name}.npz", x_train=grays(4), y_train=digits(4))
    message = refused(tmp_path.parent / "no", input=tmp_path)
    assert "fashion.npz and mnist.npz" in message
    out = tmp_path.parent / f"{tmp_path.name}_out"
    assert to_png(tmp_path, out, source="arrays").dataset.ledger["written"] == 8


def test_an_array_in_several_files_is_read(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for piece in range(3):
        np.save(tmp_path / "in" / f"images_{piece:03d}.npy", grays(9)[piece * 3 : piece * 3 + 3])
        np.save(tmp_path / "in" / f"labels_{piece:03d}.npy", digits(9)[piece * 3 : piece * 3 + 3])
    to_png(tmp_path / "in", tmp_path / "out")
    found = pixels_by_key(tmp_path / "out")
    for number in range(9):
        pixels, label, _ = found[f"images_{number // 3:03d}.npy!{number % 3:06d}"]
        assert np.array_equal(pixels[..., 0], grays(9)[number]) and label == str(digits(9)[number])
