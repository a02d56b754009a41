"""Measures how many near duplicates are found, and how long it takes.

Variants of the pictures in some folders are made, so the right answer is known. How many variants are found,
and which different pictures are reported as duplicates? The same is measured for the 64-bit difference hash
alone, at distances of 3 and 10 bits. A hash of their names divides the pictures into two halves. The
tolerance of a value, the minimum amplitude and the maximum difference of brightness were chosen on one half;
the other half shows how good they are. The minimum correlation and the limits of bits and color are older,
and were chosen on pictures of both halves. The names of wallpapers in several sizes, `NAME/contents/...`,
show which pictures are the same. It also times the comparison of `--rows` generated pictures, a tenth of them
duplicated. `--folders` names folders with other pictures, with commas; `--without` leaves out folders of
these names.
"""

from __future__ import annotations

import argparse
import io
import itertools
import random
import sys
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from command import Benchmark, Found, run_benchmark
from inputs import photos
from PIL import Image, ImageEnhance, ImageOps
from results import Result, result_of
from rounds import Turn, summarize, take_turns

from shardwright.core.images.quality_metrics import measure_quality
from shardwright.core.validation.duplicates import (
    bucketed_hashes,
    duplicate_candidates,
    link_pictures,
    measured_rows,
    name_duplicates,
    pictures_by_place,
    pictures_that_share,
)
from shardwright.schemas.findings import Finding
from shardwright.schemas.pictures import ImageQuality, Picture

_SUFFIXES = {".jpg", ".jpeg", ".png", ".webp"}
_MAX_PIXELS = 30_000_000
_SIDE = 1024
_BUCKETS = 16
_DHASH_BITS = (3, 10)
#: A copy with fewer pixels per side counts as another picture, and so do wallpapers with more different
#: shapes.
_MIN_SIDE = 64
_SAME_SHAPE = 0.02


def find_duplicates(pictures: Sequence[Picture]) -> list[Finding]:
    """Runs the comparison as the pipeline does, without an engine."""
    rows = measured_rows(pictures)
    prints = _grouped(bucketed_hashes(rows, _BUCKETS))
    shared = _grouped(found for item in prints for found in duplicate_candidates(item, _BUCKETS))
    places = dict(_grouped(pictures_by_place(rows, _BUCKETS)))
    meeting = _grouped(
        found for place, packs in shared for found in pictures_that_share(places[place], packs, _BUCKETS)
    )
    linked = _grouped(found for item in meeting for found in link_pictures(item, _BUCKETS))
    return [finding for item in linked for finding in name_duplicates(item)]


def _grouped(packs: Iterable[tuple[Any, bytes]]) -> list[tuple[Any, list[bytes]]]:
    groups = defaultdict(list)
    for bucket, pack in packs:
        groups[bucket].append(pack)
    return list(groups.items())


def _stored(image: Image.Image, kind: str, quality: int) -> Image.Image:
    data = io.BytesIO()
    image.save(data, kind, quality=quality)
    return Image.open(io.BytesIO(data.getvalue())).convert("RGB")


def _scaled(image: Image.Image, factor: float) -> Image.Image:
    return image.resize((max(1, round(image.width * factor)), max(1, round(image.height * factor))))


def _cropped(image: Image.Image, share: float) -> Image.Image:
    """Crops a share of each dimension, half on each side."""
    across, down = int(image.width * share / 2), int(image.height * share / 2)
    return image.crop((across, down, image.width - across, image.height - down))


def _wallpaper(path: Path) -> str:
    """Returns the name of a picture, which is the same for all its sizes."""
    parts = path.parts
    return parts[parts.index("contents") - 1] if "contents" in parts else path.stem


VARIANTS: dict[str, Callable[[Image.Image], Image.Image]] = {
    "JPEG 30": lambda image: _stored(image, "JPEG", 30),
    "JPEG 50": lambda image: _stored(image, "JPEG", 50),
    "JPEG 75": lambda image: _stored(image, "JPEG", 75),
    "JPEG 95": lambda image: _stored(image, "JPEG", 95),
    "WebP 60": lambda image: _stored(image, "WEBP", 60),
    "a quarter the size": lambda image: _scaled(image, 0.25),
    "half as large again": lambda image: _scaled(image, 1.5),
    "224x224 JPEG 90": lambda image: _stored(image.resize((224, 224)), "JPEG", 90),
    "5 % darker": lambda image: ImageEnhance.Brightness(image).enhance(0.95),
    "5 % brighter": lambda image: ImageEnhance.Brightness(image).enhance(1.05),
    "2 % cropped, JPEG 85": lambda image: _stored(_cropped(image, 0.02), "JPEG", 85),
    "4 % cropped": lambda image: _cropped(image, 0.04),
    "flipped (another picture)": ImageOps.mirror,
}


def _load(path: Path) -> Image.Image | None:
    try:
        opened = Image.open(path)
        if opened.width * opened.height > _MAX_PIXELS:
            return None
        image = opened.convert("RGBA")
    except OSError:
        return None
    image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    image.thumbnail((_SIDE, _SIDE))
    return image


def _picture(number: int, quality: ImageQuality) -> Picture:
    return Picture("0", number, number, None, "", (), 0, "", 1, 1, quality=quality)


def _difference_hash(image: Image.Image) -> int:
    gray = np.asarray(image.convert("L").resize((9, 8), Image.Resampling.LANCZOS), np.int16)
    return int.from_bytes(np.packbits(gray[:, 1:] > gray[:, :-1]).tobytes(), "big")


def _pairs_by_hash(hashes: Sequence[int], most: int) -> set[tuple[int, int]]:
    """Returns the pairs of pictures that a hash considers equal."""
    rows = np.array(hashes, np.uint64)
    pairs = set[tuple[int, int]]()
    for first in range(len(rows) - 1):
        apart = np.bitwise_count(rows[first + 1 :] ^ rows[first])
        pairs.update((first, first + 1 + int(place)) for place in np.flatnonzero(apart <= most))
    return pairs


def judge(paths: Sequence[Path], part: str, varied: int, shown: int) -> list[Result]:
    """Finds out how many variants are found, and prints which different pictures are reported as duplicates.

    Args:
      paths: Pictures of one half.
      part: Name of the half.
      varied: Number of pictures that are varied.
      shown: Number of findings that are printed.

    Returns:
      The share of each kind of variant that is found, in percent.
    """
    looks: list[ImageQuality] = []
    hashes: list[int] = []
    shapes: list[float] = []
    kept: list[Path] = []
    found: defaultdict[str, list[list[bool]]] = defaultdict(list)
    for place, path in enumerate(paths):
        image = _load(path)
        if image is None:
            continue
        kept.append(path)
        whole, difference = measure_quality(image), _difference_hash(image)
        looks.append(whole)
        hashes.append(difference)
        shapes.append(image.width / image.height)
        for name, vary in VARIANTS.items() if place < varied else ():
            copy = vary(image)
            if min(copy.size) < min(_MIN_SIDE, *image.size):
                continue
            ours = bool(find_duplicates([_picture(0, whole), _picture(1, measure_quality(copy))]))
            apart = (_difference_hash(copy) ^ difference).bit_count()
            found[name].append([ours, *(apart <= most for most in _DHASH_BITS)])
    columns = ("found", *(f"64-bit dHash up to {most} bits" for most in _DHASH_BITS))
    shares = [
        result_of(f"{part}: {name}", column, "%", [100 * sum(hits) / len(hits)])
        for name, results in found.items()
        for column, hits in zip(columns, zip(*results, strict=True), strict=True)
    ]
    print(f"{part}: {len(looks)} pictures", file=sys.stderr)
    findings = find_duplicates([_picture(*item) for item in enumerate(looks)])
    linked = [(one.other.record or 0, one.record or 0) for one in findings if one.other]
    print(f"  {len(linked)} pictures are found to be like another of the folders", file=sys.stderr)
    _name_truth(kept, shapes, {"found": set(linked)} | {
        f"dHash {most}": _pairs_by_hash(hashes, most) for most in _DHASH_BITS
    })  # fmt: skip
    for first, second in sorted(linked)[:shown]:
        equal = "equal" if looks[first].digest == looks[second].digest else "near"
        print(f"    {equal:6} {kept[first]} = {kept[second]}", file=sys.stderr)
    return shares


def _name_truth(
    paths: Sequence[Path], shapes: Sequence[float], pairs: dict[str, set[tuple[int, int]]]
) -> None:
    """Compares the pairs that were found with the names of wallpapers."""
    sizes = defaultdict(list)
    for place, path in enumerate(paths):
        if "contents" in path.parts:
            sizes[_wallpaper(path)].append(place)
    of = {place: name for name, places in sizes.items() for place in places}
    doubled = {  # a picture should be found if an earlier one is the same in another size
        second
        for places in sizes.values()
        for first, second in itertools.combinations(places, 2)
        if abs(shapes[first] / shapes[second] - 1) < _SAME_SHAPE
        and _style(paths[first]) == _style(paths[second])
    }
    for name, all_pairs in pairs.items():
        known = [(first, second) for first, second in all_pairs if first in of or second in of]
        right = [pair for pair in known if of.get(pair[0]) == of.get(pair[1])]
        hit = doubled & {second for _, second in right}
        print(
            f"  wallpapers, {name}: {len(hit)} of {len(doubled)} in another size, "
            f"{len(right)} of {len(known)} pairs are of one wallpaper",
            file=sys.stderr,
        )


def _style(path: Path) -> bool:
    return "images_dark" in path.parts


def _made_up(count: int) -> Iterator[Picture]:
    """Yields pictures with random hashes; a tenth of them repeat an earlier hash with a few bits changed."""
    source = random.Random(1)
    kept: list[ImageQuality] = []
    for number in range(count):
        if kept and number % 10 == 0:
            base = source.choice(kept)
            digest = int.from_bytes(base.hash, "big") ^ (1 << source.randrange(256))
            looks = base._replace(digest=source.randbytes(16), hash=digest.to_bytes(32, "big"))
        else:
            looks = ImageQuality((), (), 1, source.randbytes(16), source.randbytes(32), source.randbytes(288))
            kept.append(looks)
        yield _picture(number, looks)


def time_comparison(count: int) -> Turn:
    """Compares generated pictures, a tenth of them duplicated."""
    pictures = list(_made_up(count))
    begun, used = time.perf_counter(), time.process_time()
    find_duplicates(pictures)
    return {"time": time.perf_counter() - begun, "processor time": time.process_time() - used}


def measure(options: argparse.Namespace) -> Found:
    """Judges both halves of the pictures, and times the comparison of generated ones."""
    Image.MAX_IMAGE_PIXELS = None
    if options.folders:
        folders, text = [Path(name) for name in options.folders.split(",")], f"{options.folders}"
    else:
        given = photos(options, options.count)
        folders, text = [given.folder], given.text
    left_out = set(options.without.split(","))
    chosen = [
        path
        for folder in folders
        for path in folder.rglob("*")
        if path.suffix.lower() in _SUFFIXES and not path.is_symlink() and not left_out & set(path.parts)
    ]
    chosen.sort(key=lambda path: (zlib.crc32(_wallpaper(path).encode()), path))
    halves: tuple[list[Path], list[Path]] = [], []
    for path in chosen:
        halves[zlib.crc32(_wallpaper(path).encode()) & 1].append(path)
    results: list[Result] = []
    for half, part in zip(halves, ("tuned on", "held out"), strict=True):
        if half:
            results += judge(half[: options.limit], part, options.varied, options.shown)
    compare = {f"comparing {options.rows:,} generated pictures": lambda: time_comparison(options.rows)}
    results += summarize(take_turns(compare, options.rounds), {"time": "s", "processor time": "s"})
    return Found(text, results)


BENCHMARK = Benchmark(
    "duplicates",
    "Measures how many near duplicates are found, and how long it takes.",
    measure,
    quick={"count": 60, "varied": 20, "rows": 2000},
    full={
        "count": 600,
        "folders": "",
        "without": "",
        "varied": 400,
        "limit": 4000,
        "shown": 0,
        "rows": 100_000,
        "rounds": 1,
    },
)

if __name__ == "__main__":
    raise SystemExit(run_benchmark(BENCHMARK))
