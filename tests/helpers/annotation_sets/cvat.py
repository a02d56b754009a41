"""A small dataset in the format of CVAT for images 1.1."""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import quoteattr

from helpers.listing import Photo, put_photos

META = """<?xml version="1.0" encoding="utf-8"?>
<annotations>
  <version>1.1</version>
  <meta><task><id>1</id><name>t</name><labels><label><name>thing</name></label></labels></task></meta>
"""


def box_of(name: str, left: float, top: float, right: float, bottom: float, more: str = "") -> str:
    sides = f'xtl="{left:.2f}" ytl="{top:.2f}" xbr="{right:.2f}" ybr="{bottom:.2f}"'
    attribute = '<attribute name="color">red</attribute>'
    attributes = f'label={quoteattr(name)} source="manual" occluded="1" {sides} {more} z_order="0"'
    return f"    <box {attributes}>{attribute}</box>\n"


def image_of(photo: Photo, number: int, more: str = "", shapes: str | None = None) -> str:
    width, height = photo.size
    drawn = "".join(box_of(*box) for box in photo.boxes) if shapes is None else shapes
    return (
        f'  <image id="{number}" name={quoteattr(photo.name)} {more} width="{width}" height="{height}">\n'
        f"{drawn}  </image>\n"
    )


def put_cvat(root: Path, images: list[str]) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    (root / "annotations.xml").write_text(META + "".join(images) + "</annotations>\n")
    return root


def put_set(root: Path, names: tuple[str, ...] = ("eagle", "apple", "house", "seagull")) -> list[Photo]:
    photos = put_photos(root / "images", names)
    put_cvat(root, [image_of(photo, number) for number, photo in enumerate(photos)])
    return photos
