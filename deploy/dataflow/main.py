"""The Flex Template runs this: `shardwright rebuild` if its parameters name a job file, else `convert`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from shardwright.pipelines.cli import main


def arguments(given: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Returns the command and its options, with this image as that of the workers."""
    command = "rebuild" if any(item.partition("=")[0] == "--job" for item in given) else "convert"
    image = environment.get("SHARDWRIGHT_IMAGE", "")
    if image and not any(item.startswith("--sdk_container_image") for item in given):
        return [command, *given, f"--sdk_container_image={image}"]
    return [command, *given]


if __name__ == "__main__":
    sys.exit(main(arguments(sys.argv[1:], os.environ)))
