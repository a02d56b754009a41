"""Open Images' CSV of boxes."""

from __future__ import annotations

from pathlib import Path

from helpers.listing import Photo

HEADER = (
    "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,"
    "IsDepiction,IsInside\n"
)

MIDS = {"thing": "/m/0thing", "bird": "/m/015p6"}


def rows_of(photos: list[Photo]) -> list[str]:
    """Returns a row for each box, with different flags for each."""
    rows = []
    for photo in photos:
        width, height = photo.size
        for number, (name, left, upper, right, lower) in enumerate(photo.boxes):
            sides = (left / width, right / width, upper / height, lower / height)
            box = ",".join(f"{side:.6f}" for side in sides)
            rows.append(f"{Path(photo.name).stem},xclick,{MIDS[name]},1,{box},{number % 2},0,-1,1,-1\n")
    return rows


def put_csv(path: Path, rows: list[str], header: str = HEADER, descriptions: bool = True) -> Path:
    path.write_text(header + "".join(rows))
    if descriptions:
        (path.parent / "class-descriptions-boxable.csv").write_text("/m/0thing,thing\n/m/015p6,bird\n")
    return path
