"""Near duplicates among thousands of real pictures: wallpapers and their screenshots, series of clip art.

Needs a folder named by SHARDWRIGHT_CORPORA that contains `bigphotos/` with KDE's wallpapers (several sizes of
each, and a screenshot), and `openclipart/`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.duplicate_search import find_duplicates
from helpers.repository import corpora
from PIL import Image

from shardwright.core.images.quality_metrics import measure_quality
from shardwright.schemas.pictures import Picture

pytestmark = [pytest.mark.corpus, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

_MAX_PIXELS = 20_000_000
#: Nearly all clip arts are different pictures; a few hundred are variants of a drawing.
_MAX_CLIP_ART = 0.06


def _found(paths: list[Path]) -> list[tuple[Path, Path]]:
    """Returns the pairs of similar pictures."""
    pictures = []
    for path in paths:
        image = Image.open(path)
        if image.width * image.height <= _MAX_PIXELS:
            picture = Picture(
                str(path), 0, 0, None, "", (), 0, "", *image.size, quality=measure_quality(image)
            )
            pictures.append(picture)
    findings = find_duplicates(pictures, 64)
    return [(Path(str(one.shard)), Path(str(one.other.shard))) for one in findings if one.other]


@pytest.fixture(autouse=True)
def _huge_pictures_may_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)


def test_wallpapers_match_their_screenshots() -> None:
    folder = corpora("bigphotos") / "plasma-workspace-wallpapers" / "wallpapers"
    paths = sorted(path for path in folder.rglob("*") if path.suffix in (".png", ".jpg"))
    pairs = _found(paths)
    wallpaper = {path: path.relative_to(folder).parts[0] for path in paths}
    assert all(wallpaper[left] == wallpaper[right] for left, right in pairs)
    assert len({wallpaper[left] for left, _ in pairs}) > 0.75 * len(set(wallpaper.values()))


def test_clip_art_has_few_wrong_pairs() -> None:
    folder = corpora("openclipart")
    # Stars of n points and step m are a series of hundreds of pictures, which differ only in these numbers.
    paths = sorted(
        path for path in folder.rglob("*.png") if "stars" not in path.parts and not path.is_symlink()
    )[::3]
    pairs = _found(paths)
    assert 0 < len(pairs) < _MAX_CLIP_ART * len(paths)
