"""A small dataset in the format of KITTI."""

from __future__ import annotations

from pathlib import Path

from helpers.listing import Photo, put_photos

DONT_CARE = "DontCare -1 -1 -10 503.89 169.71 590.61 190.13 -1 -1 -1 -1000 -1000 -1000 -10\n"


def put_kitti(folder: Path, names: tuple[str, ...] = ("eagle", "apple", "house", "seagull")) -> list[Photo]:
    """Writes label files like the original ones, each with an area that nobody labelled."""
    photos = put_photos(folder / "image_2", names)
    (folder / "label_2").mkdir()
    for photo in photos:
        lines = [
            f"{name} {number % 2:.2f} {number % 4} -1.57 {left:.2f} {top:.2f} {right:.2f} {bottom:.2f} "
            "1.89 0.48 1.20 1.84 1.47 8.41 0.01\n"
            for number, (name, left, top, right, bottom) in enumerate(photo.boxes)
        ]
        (folder / "label_2" / f"{Path(photo.name).stem}.txt").write_text("".join([*lines, DONT_CARE]))
    return photos
