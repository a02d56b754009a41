"""Measures how far threads and worker processes would use many cores, on a machine with few.

Threads: decoding, resampling and encoding release Python's lock, so they are replaced by sleeps of the same
duration; the rest of the hot loop is real. Then the threads hardly use a processor, any number of them can
run, and their images/s approach one image per lock time.

Processes: whole conversions, in which each small image sleeps (`sleeping.py`) for as long as a large one
computes. Each worker process stands for cores of its own, as long as the real work around the sleeps leaves
this machine idle. Their start is not counted.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from command import Benchmark, Found, run_benchmark
from conversion import convert_once
from inputs import photos
from PIL import Image
from results import result_of
from rounds import SPEED, Turn, summarize, take_turns

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.layouts import layout_by_name
from shardwright.transforms.concurrency.pool import working_budget
from shardwright.transforms.conversion.convert import ShardRecipe, convert_refs
from shardwright.transforms.images import jpeg
from shardwright.transforms.images import resize as resizing
from shardwright.transforms.records.build import label_ids
from shardwright.transforms.sources.class_folders import list_class_folders
from shardwright.transforms.sources.inputs import Input

THREADS = (1, 2, 4, 8, 16, 32, 64)
PROCESSES = (1, 4, 16)
#: Size of the images that sleep, so small that nothing else takes long.
SMALL = "64x64"
ONE = "one thread, nothing slept"


class _Timed:
    """A native coder whose calls are timed, or replaced by sleeps once their duration is known."""

    def __init__(self, coder: Any, names: tuple[str, ...], clock: _Clock) -> None:
        self._coder = coder
        for name in names:
            if hasattr(coder, name):
                setattr(self, name, clock.around(getattr(coder, name), _nothing(name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coder, name)


def _nothing(name: str) -> Callable[..., Any]:
    """Returns a replacement for a native call: a decoder that is done, an encoder that has written."""
    return lambda *_, **__: (-1, 0) if name == "decode" else 0


def _no_pixels(_: bytes, space: str, **options: Any) -> np.ndarray:
    """Returns an array for the pixels of a JPEG that was not decoded."""
    samples = 1 if space == "GRAY" else 4
    return np.empty((options["min_height"], options["min_width"], samples), np.uint8)


class _Clock:
    """Times native calls, or sleeps for their average duration."""

    def __init__(self) -> None:
        self.spent: list[float] = []
        self.sleeping = False
        self._lengths: dict[str, list[float]] = {}

    def around(self, call: Callable[..., Any], instead: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the call with a timer, or replaced by a sleep."""
        name = getattr(call, "__name__", "native")

        def run(*arguments: Any, **options: Any) -> Any:
            if self.sleeping:
                lengths = self._lengths[name]
                time.sleep(sum(lengths) / len(lengths))
                return instead(*arguments, **options)
            begun = time.thread_time()  # other programs do not count
            result = call(*arguments, **options)
            self._lengths.setdefault(name, []).append(time.thread_time() - begun)
            return result

        return run

    def milliseconds(self, images: int) -> float:
        """Returns the duration of the native calls per image."""
        return 1e3 * sum(map(sum, self._lengths.values())) / images


@contextmanager
def native_calls(clock: _Clock) -> Iterator[None]:
    """Times the native calls of decoding, resampling and encoding during the block."""
    decoder, encoder, resizer = Image._getdecoder, Image._getencoder, resizing.Resizer  # type: ignore[attr-defined]

    def timed_decoder(*arguments: Any) -> Any:
        return _Timed(decoder(*arguments), ("decode",), clock)

    def timed_encoder(*arguments: Any) -> Any:
        return _Timed(encoder(*arguments), ("encode_to_file",), clock)

    class TimedResizer:
        def __init__(self) -> None:
            self.resize_pil = clock.around(resizer().resize_pil, lambda *_: None)

    with (
        mock.patch.object(
            jpeg.simplejpeg, "decode_jpeg", clock.around(jpeg.simplejpeg.decode_jpeg, _no_pixels)
        ),
        mock.patch.object(Image, "_getdecoder", timed_decoder),
        mock.patch.object(Image, "_getencoder", timed_encoder),
        mock.patch.object(resizing, "Resizer", TimedResizer),
    ):
        yield


def images_per_second(refs: list[Any], recipe: ShardRecipe, threads: int) -> float:
    """Returns the images per second of a conversion with this number of threads."""
    with ThreadPoolExecutor(threads) as executor:
        begun = time.perf_counter()
        for _ in convert_refs(refs, recipe, executor, threads, working_budget()):
            pass
        return len(refs) / (time.perf_counter() - begun)


def converted(folder: Path, processes: int, images: int) -> Turn:
    """Converts images that sleep with a number of worker processes."""
    words = ["--map=sleeping:sleep", f"--shards={4 * max(PROCESSES)}", f"--limit={images}"]
    if processes > 1:
        words += ["--direct_running_mode=multi_processing", f"--direct_num_workers={processes}"]
    return {SPEED: convert_once(folder, words).turn()["converting"]}


def measure(options: argparse.Namespace) -> Found:
    """Measures the images per second of each number of threads, and of worker processes."""
    given = photos(options, options.count)
    refs = [ref for ref in list_class_folders(Input(str(given.folder), "")) if ref.is_candidate]
    settings = ConvertSettings(input=(str(given.folder),), resize="224")
    names = sorted({ref.label for ref in refs})
    recipe = ShardRecipe(settings, layout_by_name("classification"), label_ids(names, 0))
    clock = _Clock()

    def way(threads: int) -> Callable[[], Turn]:
        return lambda: {SPEED: images_per_second(refs, recipe, threads)}

    with native_calls(clock):
        alone = images_per_second(refs, recipe, 1)
        native = clock.milliseconds(len(refs))
        clock.sleeping = True
        found = take_turns({f"{count} threads": way(count) for count in THREADS}, options.rounds)
    small = photos(options, options.each * max(PROCESSES), f"--pieces={SMALL}", "--copies=10").folder
    alike = {
        f"{count} processes": partial(converted, small, count, count * options.each) for count in PROCESSES
    }
    with mock.patch.dict(os.environ, PYTHONPATH=str(Path(__file__).parent)):
        several = take_turns(alike, options.rounds)
    results = [
        result_of(ONE, SPEED, "images/s", [alone]),
        *summarize(found, {SPEED: "images/s"}, dict.fromkeys(found, "1 threads")),
        *summarize(several, {SPEED: "images/s"}, dict.fromkeys(several, "1 processes")),
        result_of(ONE, "an image", "ms", [1e3 / alone]),
        result_of(ONE, "of it in native code, without the lock", "ms", [native]),
    ]
    return Found(given.text, results)


BENCHMARK = Benchmark(
    "cores",
    "Measures how far threads and worker processes would use many cores, on a machine with few.",
    measure,
    quick={"count": 600, "each": 50, "rounds": 1},
    full={"count": 3000, "each": 500, "rounds": 3},
)

if __name__ == "__main__":
    raise SystemExit(run_benchmark(BENCHMARK))
