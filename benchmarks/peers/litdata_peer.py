"""Peer: `litdata.optimize` with one worker per core, and Pillow."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import common


def to_sample(item: tuple[str, int]) -> dict[str, Any]:
    """Turns one image into a sample; workers call it, so it is at module level.

    Args:
      item: Path and class of the image.

    Returns:
      The sample, as a dictionary.
    """
    path, label = item
    return {"image": common.resize_jpeg(Path(path).read_bytes()), "label": label}


def main() -> None:
    """Runs the tool."""
    source, output = common.parse_folders(__doc__)
    # The tool first writes its chunks to a shared folder; a private one cannot contain leftovers.
    scratch = tempfile.mkdtemp(prefix="chunks-", dir=output.parent)
    os.environ["DATA_OPTIMIZER_CACHE_FOLDER"] = scratch
    os.environ["DATA_OPTIMIZER_DATA_CACHE_FOLDER"] = scratch
    # Some releases look for a newer one at each start, which would measure the network.
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
