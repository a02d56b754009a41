"""Images that are too large are not read."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardwright.schemas.errors import ImageFault
from shardwright.schemas.image_ref import ImageRef
from shardwright.transforms.images.read import read_image


def test_a_file_of_unknown_size_is_measured_before_it_is_read(tmp_path: Path) -> None:
    huge = tmp_path / "huge.jpg"
    with huge.open("wb") as file:
        file.truncate(1 << 40)  # a hole: to read it all would take all memory
    with pytest.raises(ImageFault, match=r"are more than 1.0 MB; raise --max_bytes") as caught:
        read_image(ImageRef("huge.jpg", str(huge)), 10**6)
    assert caught.value.reason == "TOO_LARGE"
