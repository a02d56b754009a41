"""The paths of this repository and its example pictures."""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "photos"
PHOTOS = EXAMPLES


def copy_photos(folder: Path, step: int) -> Path:
    """Copies every `step`-th example picture, in the folder of its class, and returns the folder."""
    for path in sorted(PHOTOS.rglob("*.*"))[::step]:
        (folder / path.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / path.parent.name)
    return folder
