"""Makes the files beside this script with Hugging Face's datasets library (5.2), which tests do not need.

    python make.py

`saved/` is what `save_to_disk` writes, `hub/` has the names and the Parquet files of a dataset on the Hub.
Image number N of 6 has N + 20 columns and the color (40 * N, 0, 0). Its class is cat if N is even, else dog.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from datasets import ClassLabel, Dataset, DatasetDict, Features, Image, List, Value
from PIL import Image as Pillow

here = Path(__file__).parent
features = Features(
    {
        "image": Image(),
        "animal": ClassLabel(names=["cat", "dog"]),
        "objects": {
            "bbox": List(List(Value("float32"), length=4)),
            "category": List(ClassLabel(names=["eye", "nose"])),
        },
    }
)


def image(number: int) -> dict[str, Any]:
    """Returns an image with its file name."""
    out = io.BytesIO()
    Pillow.new("RGB", (20 + number, 10), (40 * number, 0, 0)).save(out, "PNG")
    return {"bytes": out.getvalue(), "path": f"{number}.png"}


rows = {
    "image": [image(number) for number in range(6)],
    "animal": [number % 2 for number in range(6)],
    "objects": [{"bbox": [[1, 2, 3, 4]], "category": [number % 2]} for number in range(6)],
}
made = Dataset.from_dict(rows, features=features)
parts = DatasetDict({"train": made.select(range(4)), "test": made.select([4, 5])})
parts.save_to_disk(here / "saved")
(here / "hub" / "data").mkdir(parents=True, exist_ok=True)
for split, part in parts.items():
    part.to_parquet(here / "hub" / "data" / f"{split}-00000-of-00001.parquet")
(here / "hub" / "README.md").write_text("Made by make.py.\n")
