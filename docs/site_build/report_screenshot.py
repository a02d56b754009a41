"""Takes the picture of the report that the README shows: `report_screenshot.py FILE.webp`.

It converts and validates the example images, with one damaged file among them, and opens the report in
Chromium. Without Chromium it says so and leaves the file as it is.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from shardwright import convert, validate

PHOTOS = Path(__file__).resolve().parents[2] / "examples" / "photos"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
#: Size of a column of the picture. The second one shows what is below the first one.
WIDTH, HEIGHT = 1200, 1380
_COLUMNS = 2
_QUALITY = 65
_SECONDS = 60


def make_dataset(folder: Path) -> Path:
    """Converts the example images and a damaged one, and returns the dataset with its report."""
    photos, dataset = folder / "photos", folder / "photos-224"
    shutil.copytree(PHOTOS, photos)
    picture = min(photos.glob("fruit/*.jpg"))
    picture.with_name("torn.jpg").write_bytes(picture.read_bytes()[:-2000])
    convert(
        input=str(photos),
        output=str(dataset),
        resize=224,
        fit="pad",
        splits="train=0.8,validation=0.2",
        max_bad_fraction=0.05,
    )
    validate(dataset, mode="quality")
    return dataset


def take_picture(browser: str, page: Path) -> bytes:
    """Returns the upper part of a page, in columns, as a WebP.

    Args:
      browser: Path of Chromium.
      page: The page.

    Raises:
      subprocess.CalledProcessError: Chromium failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        png = Path(folder) / "page.png"
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [f"--user-data-dir={folder}/profile", f"--window-size={WIDTH},{_COLUMNS * HEIGHT}"]
        command += [f"--screenshot={png}", page.resolve().as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)
        shown = Image.open(png).convert("RGB")
        picture = Image.new("RGB", (_COLUMNS * WIDTH, HEIGHT))
        for column in range(_COLUMNS):
            picture.paste(shown.crop((0, column * HEIGHT, WIDTH, (column + 1) * HEIGHT)), (column * WIDTH, 0))
        buffer = io.BytesIO()
        picture.save(buffer, "WEBP", quality=_QUALITY, method=6)
    return buffer.getvalue()


def main(argv: list[str]) -> int:
    """Writes the picture; returns the exit code."""
    target = Path(argv[0])
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print(f"The picture of the report stays as it is, because Chromium is not installed: {target}")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        target.write_bytes(take_picture(browser, make_dataset(Path(folder)) / "report.html"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
