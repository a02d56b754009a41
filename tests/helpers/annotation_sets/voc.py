"""A small dataset in the format of Pascal VOC."""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

from helpers.listing import Photo, put_photos


def xml_of(photo: Photo) -> str:
    """Returns VOC's XML of a photo."""
    objects = "".join(
        f"<object><name>{escape(name)}</name><pose>Left</pose><truncated>1</truncated>"
        f"<difficult>{number % 2}</difficult><bndbox><ymin>{upper}</ymin><xmin>{left}</xmin>"
        f"<xmax>{right}</xmax><ymax>{lower}</ymax></bndbox>"
        "<part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox>"
        "</part></object>\n"
        for number, (name, left, upper, right, lower) in enumerate(photo.boxes)
    )
    return (
        f"<annotation>\n<folder>VOC</folder><filename>{escape(photo.name)}</filename>\n<size><width>"
        f"{photo.size[0]}</width><height>{photo.size[1]}</height><depth>3</depth></size>\n{objects}</annotation>"
    )


def put_voc(root: Path, names: tuple[str, ...] = ("eagle", "apple", "house", "seagull")) -> list[Photo]:
    photos = put_photos(root / "JPEGImages", names)
    put_xml(root / "Annotations", photos)
    return photos


def put_xml(folder: Path, photos: list[Photo]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for photo in photos:
        (folder / photo.name).with_suffix(".xml").write_text(xml_of(photo))


def put_list(root: Path, kind: str, **lists: tuple[str, ...]) -> None:
    (root / "ImageSets" / kind).mkdir(parents=True, exist_ok=True)
    for name, stems in lists.items():
        (root / "ImageSets" / kind / f"{name}.txt").write_text("".join(f"{stem}\n" for stem in stems))
