"""Bad input gives the same ledgers in every process and directory, whatever libraries say about it."""

from __future__ import annotations

import base64
import gzip
import io
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.annotation_sets.labelme import document, save, shape
from helpers.hostile import identity, picture, run_command
from helpers.listing import put_photos
from helpers.packing import tar_of
from helpers.records import quarantine
from PIL import Image


def _damaged(data: bytes, chance: random.Random) -> bytes:
    """Returns a file that is cut off and has wrong bytes after its signature."""
    changed = bytearray(data[: chance.randrange(40, len(data))])
    for _ in range(chance.randrange(9)):
        changed[chance.randrange(4, len(changed))] = chance.randrange(256)
    return bytes(changed)


def _put_masks(root: Path) -> list[str]:
    """Writes LabelMe files whose masks are no pictures, or damaged ones."""
    header = b"\x89PNG\r\n\x1a\n"
    masks = (b"no picture", picture(1)[:60], header + b"x" * 40, header)
    photos = put_photos(root)
    for photo, mask in zip(photos, masks, strict=True):
        drawn = shape("cat", "mask", (1, 1), (9, 9), mask=base64.b64encode(mask).decode())
        save(root / f"{Path(photo.name).stem}.json", document(photo, shapes=[drawn]))
    for photo in put_photos(root, ["rose"]):
        save(root / "rose.json", document(photo))
    return ["--input", root.name, "--layout", "detection"]


def _put_files(root: Path) -> list[str]:
    """Writes damaged pictures of many formats, and a damaged archive of them."""
    chance = random.Random(1)
    colors = Image.effect_noise((40, 30), 60).convert("RGB")
    files = {"good/1.png": picture(1)}
    for kind in ("JPEG", "PNG", "GIF", "WEBP", "BMP", "PPM", "JPEG2000", "AVIF", "TIFF"):
        buffer = io.BytesIO()
        colors.save(buffer, kind)
        for number in range(4):
            files[f"bad/{number}.{kind.lower()}"] = _damaged(buffer.getvalue(), chance)
    for name, data in files.items():
        (root / "files" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "files" / name).write_bytes(data)
    packed = gzip.compress(tar_of(files), mtime=0)
    (root / "packed.tar.gz").write_bytes(packed[: len(packed) * 2 // 3])
    return ["--input", f"a={root.name}/files", "--input", f"b={root.name}/packed.tar.gz"]


@pytest.mark.parametrize("put", [_put_masks, _put_files])
def test_ledgers_are_equal_in_two_processes(tmp_path: Path, put: Callable[[Path], list[str]]) -> None:
    options = put(tmp_path / "in")
    found = []
    for seed in ("1", "2"):
        here = tmp_path / seed
        (here / f"tmp{seed}").mkdir(parents=True)
        shutil.copytree(tmp_path / "in", here / "in")  # with the times of the files
        environ = os.environ | {"TMPDIR": str(here / f"tmp{seed}"), "PYTHONHASHSEED": seed}
        command = ("convert", *options, "--output", f"out{seed}", "--max_bad_fraction", "1")
        done = run_command(*command, cwd=here, env=environ)
        assert done.code == 0, done.err
        found.append(identity(here / f"out{seed}"))
        lines = quarantine(here / f"out{seed}")
        assert len(lines) > 3 and not any(" at 0x" in line["message"] for line in lines.values())
    assert found[0].keys() == found[1].keys()
    changed = {name for name in found[0] if found[0][name] != found[1][name]}
    assert changed <= {"dataset.json"}
