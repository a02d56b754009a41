"""Shared code of the peers: their command line, the list of images, and a plain Pillow codec."""

from __future__ import annotations

import argparse
import io
from pathlib import Path

from PIL import Image

SIZE = 224
SHARDS = 8
QUALITY = 95
PROCESSES = 2


def parse_folders(description: str | None) -> tuple[Path, Path]:
    """Parses the command line of a peer.

    Args:
      description: Text for `--help`.

    Returns:
      The folder of class folders, and the folder to write to.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--input", type=Path, required=True, help="a folder of class folders")
    parser.add_argument("--output", type=Path, required=True, help="the folder to write")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    return options.input.resolve(), options.output.resolve()


def list_images(folder: Path) -> list[tuple[str, int]]:
    """Lists the images of a folder of class folders.

    Args:
      folder: The folder; classes are numbered in the order of their names.

    Returns:
      Pairs of a path and a class number.
    """
    classes = sorted(path for path in folder.iterdir() if path.is_dir())
    return [
        (str(path), label)
        for label, class_folder in enumerate(classes)
        for path in sorted(class_folder.glob("*.jpg"))
    ]


def resize_jpeg(data: bytes) -> bytes:
    """Decodes an image, resizes it and encodes it as JPEG, with plain calls of Pillow.

    Args:
      data: The encoded image.

    Returns:
      The JPEG.
    """
    picture = Image.open(io.BytesIO(data)).convert("RGB")
    picture = picture.resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=QUALITY, subsampling="4:2:0")
    return out.getvalue()


def shard_path(output: Path, shard: int) -> str:
    """Returns the usual path of a TFRecord file.

    Args:
      output: Folder of the file.
      shard: Number of the shard.

    Returns:
      The path.
    """
    return str(output / f"train-{shard:05d}-of-{SHARDS:05d}.tfrecord")
