"""Exports of Label Studio, Create ML and Roboflow's table of classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from helpers.annotation_sets.coco import save
from helpers.listing import Photo

#: What Label Studio puts before the name of an uploaded file.
ROOT = "/data/upload/3/1a2b3c4d-"


def region(kind: str, label: str, photo: Photo, **shape: Any) -> dict[str, Any]:
    return {
        "id": "abc", "type": kind, "from_name": "label", "to_name": "image", "origin": "manual",
        "original_width": photo.size[0], "original_height": photo.size[1], "image_rotation": 0,
        "value": {**shape, kind: [label]},
    }  # fmt: skip


def rectangle(photo: Photo, label: str, box: tuple[int, ...], rotation: float = 0) -> dict[str, Any]:
    (width, height), (left, upper, right, lower) = photo.size, box
    return region(
        "rectanglelabels", label, photo, x=100 * left / width, y=100 * upper / height,
        width=100 * (right - left) / width, height=100 * (lower - upper) / height, rotation=rotation,
    )  # fmt: skip


def choices(*names: str, control: str = "choice") -> dict[str, Any]:
    return {"type": "choices", "from_name": control, "to_name": "image", "value": {"choices": [*names]}}


def task(image: str, *results: Any, **annotation: Any) -> dict[str, Any]:
    made = {"id": 1, "completed_by": 1, "result": [*results], "was_cancelled": False, **annotation}
    return {"id": 7, "annotations": [made], "predictions": [], "data": {"image": image}, "meta": {}}


def export(photos: list[Photo]) -> list[dict[str, Any]]:
    return [
        task(f"{ROOT}{photo.name}", *(rectangle(photo, name, box) for name, *box in photo.boxes))
        for photo in photos
    ]  # fmt: skip


def json_min(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the tasks as Label Studio's JSON-MIN has them."""
    short = []
    for item in tasks:
        entry: dict[str, Any] = {"image": item["data"]["image"], "id": item["id"]}
        for result in item["annotations"][0]["result"]:
            sizes = {name: result[name] for name in result if name.startswith("original_")}
            entry.setdefault(result["from_name"], []).append({**result["value"], **sizes})
            if result["type"] == "choices" and len(result["value"]["choices"]) == 1:
                entry[result["from_name"]] = result["value"]["choices"][0]
        short.append({**entry, "annotator": 1, "annotation_id": 2, "lead_time": 3.5})
    return short


def create_ml_of(photos: Sequence[Photo], fields: tuple[str, str] = ("image", "annotations")) -> list[Any]:
    """Returns Create ML's entries of some photos."""
    return [
        {fields[0]: photo.name, fields[1]: [_centered(name, box) for name, *box in photo.boxes]}
        for photo in photos
    ]


def _centered(name: str, box: Sequence[int]) -> dict[str, Any]:
    left, upper, right, lower = box
    middle = {"x": (left + right) / 2, "y": (upper + lower) / 2}
    return {"label": name, "coordinates": {**middle, "width": right - left, "height": lower - upper}}


def put_class_columns(folder: Path, photos: Sequence[Photo]) -> Path:
    """Writes a table in which the classes of each photo depend on its place."""
    rows = [f"{photo.name}, {i % 2}, {i // 2 % 2}, 0" for i, photo in enumerate(photos)]
    path = folder / "_classes.csv"
    path.write_text("\n".join(["filename, cat, a dog, Kuh", *rows]))
    return path


def put_label_studio(folder: Path, photos: list[Photo]) -> Path:
    """Writes an export whose images are in a subfolder."""
    return save(folder / "project-1-at-2024-05-01.json", export(photos))
