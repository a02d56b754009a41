"""Small datasets in the format of YOLO."""

from __future__ import annotations

from pathlib import Path

from helpers.listing import Photo, put_photos

NAMES = ["thing", "no", "bird"]


def put_labels(folder: Path, photos: list[Photo]) -> list[Photo]:
    """Writes a label file for each photo that has boxes; returns the photos."""
    folder.mkdir(parents=True, exist_ok=True)
    for photo in photos:
        width, height = photo.size
        lines = []
        for name, left, upper, right, lower in photo.boxes:
            box = ((left + right) / 2 / width, (upper + lower) / 2 / height)
            lines.append(
                f"{NAMES.index(name)} {box[0]:.6f} {box[1]:.6f} "
                f"{(right - left) / width:.6f} {(lower - upper) / height:.6f}\n"
            )
        if lines:
            (folder / photo.name).with_suffix(".txt").write_text("".join(lines))
    return photos


def put_set(root: Path, splits: dict[str, tuple[str, ...]], yaml: str) -> dict[str, list[Photo]]:
    """Writes images/SPLIT, labels/SPLIT and a data.yaml."""
    found = {}
    for split, names in splits.items():
        found[split] = put_labels(root / "labels" / split, put_photos(root / "images" / split, names))
    (root / "data.yaml").write_text(yaml)
    return found


SPLITS = {"train": ("eagle", "apple", "house"), "val": ("rose", "coach")}

YAML = "path: .\ntrain: images/train\nval: images/val\nnames: [thing, no, bird]\ndownload: |\n  exit(1)\n"


def put_darknet(root: Path, splits: dict[str, tuple[str, ...]], prefix: str) -> dict[str, list[Photo]]:
    """Writes the files of Datumaro and CVAT: obj.data, obj.names, and a list and a folder per split."""
    found = {}
    lists = ""
    for split, names in splits.items():
        folder = f"obj_{split}_data"
        found[split] = put_labels(root / folder, put_photos(root / folder, names))
        (root / f"{split}.txt").write_text("".join(f"{prefix}{folder}/{p.name}\n" for p in found[split]))
        lists += f"{split} = {prefix}{split}.txt\n"
    (root / "obj.names").write_text("thing\nno\nbird\n")
    (root / "obj.data").write_text(f"classes = 3\n{lists}names = {prefix}obj.names\nbackup = backup/\n")
    return found


DARKNET = {"train": ("eagle", "apple", "house"), "valid": ("rose", "coach")}
