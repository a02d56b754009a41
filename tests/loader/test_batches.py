"""Batches of NumPy arrays: complete, of one shape, in an order that depends only on the seed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardwright.loader import Records
from shardwright.schemas.errors import EngineError, UsageError


def labels_of(batches: Any) -> list[int]:
    return [int(label) for _, labels in batches for label in labels]


@pytest.fixture(scope="module")
def records(sound_dataset: Path) -> Records:
    """All records of a dataset of several shards."""
    return Records(sound_dataset, "all")


def test_batches_hold_the_records_in_order(records: Records) -> None:
    batches = list(records.batches(8))
    assert [len(images) for images, _ in batches] == [8] * 7 + [5]
    images = np.concatenate([images for images, _ in batches])
    assert images.shape == (61, 64, 64, 3) and images.dtype == np.uint8
    assert all(np.array_equal(images[i], records.image(i)) for i in range(61))
    assert labels_of(batches) == [records.label(i) for i in range(61)]
    assert all(labels.dtype == np.int64 for _, labels in batches)


def test_an_incomplete_last_batch_can_be_dropped(records: Records) -> None:
    assert [len(images) for images, _ in records.batches(8, drop_remainder=True)] == [8] * 7
    assert list(records[:5].batches(8, drop_remainder=True)) == []
    assert [len(images) for images, _ in records[:5].batches(8)] == [5]
    assert list(records[:0].batches(8)) == []


def test_the_order_depends_only_on_the_seed(records: Records) -> None:
    def first_pixels(seed: int, threads: int) -> list[bytes]:
        batches = records.batches(16, shuffle=True, seed=seed, threads=threads)
        return [image.tobytes() for images, _ in batches for image in images]

    once = first_pixels(3, 1)
    assert first_pixels(3, 7) == once != first_pixels(4, 2)
    in_order = [records.image(i).tobytes() for i in range(61)]
    assert once != in_order and sorted(once) == sorted(in_order)
    # The expected order is fixed here, so that no version of NumPy can change it.
    assert [in_order.index(image) for image in once[:5]] == [20, 28, 0, 31, 4]


def test_a_function_can_change_pictures_in_the_threads(records: Records) -> None:
    threads: set[str] = set()

    def halved(image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        threads.add(threading.current_thread().name)
        return image[::2, ::2].astype(np.float32) / 255

    images, _ = next(records.batches(4, transform=halved))
    assert images.shape == (4, 32, 32, 3) and images.dtype == np.float32
    assert all(name.startswith("shardwright-batches") for name in threads)


def test_pictures_of_several_sizes_are_refused(records: Records) -> None:
    odd = iter(range(100))
    with pytest.raises(UsageError, match=r"have \d+ shapes, such as .* give them one shape"):
        list(records.batches(8, transform=lambda image: image[next(odd) :]))


def test_abandoned_batches_leave_no_thread(records: Records) -> None:
    before = set(threading.enumerate())
    batches = records.batches(2, shuffle=True)
    next(batches)
    assert set(threading.enumerate()) - before
    batches.close()  # type: ignore[attr-defined]
    assert set(threading.enumerate()) <= before  # threads of other tests may end meanwhile


def test_damage_and_wrong_arguments_are_reported(records: Records, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="batch_size 0"):
        records.batches(0)

    def fail(image: Any) -> Any:
        raise EngineError("the record is damaged.")

    for shuffle in (False, True):
        with pytest.raises(EngineError, match="is damaged"):
            list(records.batches(8, shuffle=shuffle, transform=fail))


def test_pairs_are_a_sequence_for_other_loaders(records: Records) -> None:
    pictures = records[10:20].pictures(lambda image: image.mean())
    assert len(pictures) == 10
    mean, label = pictures[3]
    assert (mean, label) == (records.image(13).mean(), records.label(13))
    with pytest.raises(IndexError):
        pictures[10]
