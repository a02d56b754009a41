"""Makes `small_photos` from the example pictures. Most tests convert these, which takes a fifth of the time.

    python tests/helpers/shrink_photos.py

They have the names, classes, formats, modes and EXIF data of the example pictures, and 0.4 times their sides.
"""

from __future__ import annotations

from pathlib import Path

from PIL import Image

_SCALE = 0.4
_QUALITY = 90
_HERE = Path(__file__).parent


def shrink(source: Path, target: Path) -> None:
    """Writes a smaller copy of an image, of the same format and mode."""
    with Image.open(source) as image:
        size = (round(image.width * _SCALE), round(image.height * _SCALE))
        # A palette has no colors between its own.
        resample = Image.Resampling.NEAREST if image.mode == "P" else Image.Resampling.BOX
        small = image.resize(size, resample)
        kept = {name: image.info[name] for name in ("exif", "transparency") if name in image.info}
        small.save(target, image.format, quality=_QUALITY, optimize=True, **kept)


def main() -> None:
    """Writes all of them."""
    photos = _HERE.parents[1] / "examples" / "photos"
    for source in sorted(photos.rglob("*.*")):
        target = _HERE / "small_photos" / source.relative_to(photos)
        target.parent.mkdir(parents=True, exist_ok=True)
        shrink(source, target)


if __name__ == "__main__":
    main()
