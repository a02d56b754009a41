"""Peer: `litdata.optimize` with one worker per core, and Pillow."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import common


def to_sample(item: tuple[str, int]) -> dict[str, Any]:
    """Turns one image into a sample; called in the workers, hence at module level.

    Args:
      item: the path and the class of the image.

    Returns:
      The sample.
    """
    path, label = item
    return {"image": common.resize_jpeg(Path(path).read_bytes()), "label": label}


def main() -> None:
    """Runs the tool."""
    source, output = common.parse_folders(__doc__)
    # It keeps its chunks in a shared place first; a private one cannot hold left-overs.
    scratch = tempfile.mkdtemp(prefix="chunks-", dir=output.parent)
    os.environ["DATA_OPTIMIZER_CACHE_FOLDER"] = scratch
    os.environ["DATA_OPTIMIZER_DATA_CACHE_FOLDER"] = scratch
    # Some releases look for a newer one at each start, which would time the network.
    os.environ["LITDATA_DISABLE_VERSION_CHECK"] = "1"

    import litdata

    try:
        litdata.optimize(
            fn=to_sample,
            inputs=common.list_images(source),
            output_dir=str(output),
            chunk_bytes="64MB",
            num_workers=common.PROCESSES,
            verbose=False,
        )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
