"""The codec limit: the speed of decoding, resizing to 224x224 and encoding alone.

The images are in memory and two plain threads take them from a list: there is no pipeline, no record and no
disk. Several codec paths are tried. The limit is the fastest path whose pictures, before encoding, are all
close to Pillow's full decode with bilinear resampling (each at 42 dB or more). A faster path with other
pictures is not a fair limit for a converter that may not use it.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from command import Benchmark, Found, run_benchmark
from conversion import USUAL, convert_once
from inputs import photos
from PIL import Image
from quality import psnr
from results import result_of
from rounds import Turn, summarize, take_turns


def _optional(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


simplejpeg = _optional("simplejpeg")
cykooz_resizer = _optional("cykooz_resizer")
cv2 = _optional("cv2")

SIZE = (224, 224)
QUALITY = 95
MIN_PSNR = 42.0
SAMPLE = 64
STEADY = "Shardwright, conversion without start-up"

_local = threading.local()


@dataclass(frozen=True)
class CodecPath:
    """One way to decode, resize and encode.

    Attributes:
      name: Name to print.
      pixels: Turns a JPEG into the resized picture, in a form that `encode` accepts.
      encode: Turns the resized picture into a JPEG.
    """

    name: str
    pixels: Callable[[bytes], Any]
    encode: Callable[[Any], bytes]


def pillow_pixels(data: bytes) -> Image.Image:
    """Decodes and resizes with Pillow; the PSNR of other paths is relative to this."""
    with Image.open(io.BytesIO(data), formats=("JPEG",)) as opened:
        picture = opened if opened.mode == "RGB" else opened.convert("RGB")
        return picture.resize(SIZE, Image.Resampling.BILINEAR)


def pillow_encode(picture: Image.Image) -> bytes:
    """Encodes with Pillow into a buffer."""
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=QUALITY, subsampling="4:2:0")
    return out.getvalue()


def memfd_encode(picture: Image.Image) -> bytes:
    """Encodes with Pillow into a file in memory.

    With a real file descriptor, Pillow releases the interpreter lock while it encodes.
    """
    if not hasattr(_local, "file"):
        _local.file = os.fdopen(os.memfd_create("jpeg"), "r+b", buffering=0)
    file = _local.file
    file.seek(0)
    file.truncate()
    picture.save(file, "JPEG", quality=QUALITY, subsampling="4:2:0")
    return os.pread(file.fileno(), file.tell(), 0)


def turbo_pixels(data: bytes) -> Any:
    """Decodes with simplejpeg and resizes with Pillow."""
    picture = Image.fromarray(simplejpeg.decode_jpeg(data, "RGB"))
    return np.asarray(picture.resize(SIZE, Image.Resampling.BILINEAR))


def opencv_pixels(data: bytes) -> Any:
    """Decodes with simplejpeg and resizes with OpenCV's area averaging."""
    pixels = simplejpeg.decode_jpeg(data, "RGB")
    return cv2.resize(pixels, SIZE, interpolation=cv2.INTER_AREA)


def _simd_resized(picture: Image.Image) -> Image.Image:
    if not hasattr(_local, "resizer"):
        _local.resizer = cykooz_resizer.Resizer()
        bilinear = cykooz_resizer.ResizeAlg.convolution(cykooz_resizer.FilterType.bilinear)
        _local.options = cykooz_resizer.ResizeOptions(bilinear)
    resized = Image.new("RGB", SIZE)
    _local.resizer.resize_pil(picture, resized, _local.options)
    return resized


def simd_pixels(data: bytes) -> Image.Image:
    """Decodes with Pillow and resizes with SIMD instructions."""
    with Image.open(io.BytesIO(data), formats=("JPEG",)) as picture:
        return _simd_resized(picture)


def turbo_simd_pixels(data: bytes) -> Any:
    """Decodes with simplejpeg and resizes with SIMD instructions."""
    return np.asarray(_simd_resized(Image.fromarray(simplejpeg.decode_jpeg(data, "RGB"))))


def turbo_encode(pixels: Any) -> bytes:
    """Encodes with simplejpeg."""
    return bytes(simplejpeg.encode_jpeg(np.ascontiguousarray(pixels), QUALITY, "RGB", "420"))


def available_paths() -> list[CodecPath]:
    """Lists the paths whose libraries are installed, and names the others on standard error."""
    paths = [CodecPath("Pillow", pillow_pixels, pillow_encode)]
    if hasattr(os, "memfd_create"):
        paths.append(CodecPath("Pillow, encoding to a memfd", pillow_pixels, memfd_encode))
    if cykooz_resizer is not None:
        paths.append(CodecPath("Pillow, SIMD bilinear, memfd", simd_pixels, memfd_encode))
    if simplejpeg is None:
        print("simplejpeg is not installed: its paths are skipped", file=sys.stderr)
        return paths
    paths.append(CodecPath("simplejpeg, Pillow bilinear", turbo_pixels, turbo_encode))
    if cykooz_resizer is not None:
        paths.append(CodecPath("simplejpeg, SIMD bilinear", turbo_simd_pixels, turbo_encode))
    if cv2 is None:
        print("OpenCV is not installed: its path is skipped", file=sys.stderr)
        return paths
    # OpenCV's own threads would use more than the two cores that every path gets.
    cv2.setNumThreads(0)
    paths.append(CodecPath("simplejpeg, OpenCV area", opencv_pixels, turbo_encode))
    return paths


def time_path(path: CodecPath, images: list[bytes], threads: int) -> float:
    """Runs a path over all images.

    Args:
      path: Codec path to run.
      images: JPEGs to convert.
      threads: Number of threads that share them.

    Returns:
      Images per second.
    """
    queue = iter(images)
    lock = threading.Lock()
    failures: list[Exception] = []

    def work() -> None:
        try:
            while True:
                with lock:
                    data = next(queue, None)
                if data is None:
                    return
                path.encode(path.pixels(data))
        except Exception as error:
            failures.append(error)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    start = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    seconds = time.perf_counter() - start
    if failures:
        # A thread that failed early would make its path look fast.
        raise failures[0]
    return len(images) / seconds


def judge(path: CodecPath, sample: list[bytes]) -> tuple[float, float]:
    """Compares the resized pictures of a path with Pillow's.

    Args:
      path: Codec path to judge.
      sample: JPEGs to compare.

    Returns:
      The mean and the minimum PSNR.
    """
    values = [psnr(pillow_pixels(data), path.pixels(data)) for data in sample]
    return sum(values) / len(values), min(values)


def measure(options: argparse.Namespace) -> Found:
    """Runs all paths in turn, and a conversion of the same images beside them."""
    given = photos(options, options.count)
    images = [path.read_bytes() for path in sorted(given.folder.glob("*/*.jpg"))]
    count = min(SAMPLE, len(images))
    sample = [images[number * len(images) // count] for number in range(count)]
    paths = {path.name: path for path in available_paths()}
    # Judging comes first: it warms up the caches of each path before it is timed.
    judged = {name: judge(path, sample) for name, path in paths.items()}

    def way(path: CodecPath) -> Callable[[], Turn]:
        return lambda: {"speed": time_path(path, images, options.threads)}

    ways = {name: way(path) for name, path in paths.items()}
    ways[STEADY] = lambda: {"speed": convert_once(given.folder, USUAL).turn()["converting"]}
    found = take_turns(ways, options.rounds)
    fair = [name for name, (_, least) in judged.items() if least >= MIN_PSNR]
    limit = max(fair, key=lambda name: median(turn["speed"] for turn in found[name]))
    results = summarize(found, {"speed": "images/s"}, dict.fromkeys(found, limit))
    for name, (mean, least) in judged.items():
        results.append(result_of(name, "PSNR, mean", "dB", [mean]))
        results.append(result_of(name, "PSNR, worst", "dB", [least]))
    return Found(f"{given.text}; {options.threads} threads", results)


BENCHMARK = Benchmark(
    "codec_limit",
    "Measures decoding, resizing to 224x224 and encoding alone, and a conversion beside them.",
    measure,
    quick={"count": 600, "rounds": 1},
    full={"count": 3000, "rounds": 3, "threads": 2},
)

if __name__ == "__main__":
    raise SystemExit(run_benchmark(BENCHMARK))
