"""What the Flex Template starts: `shardwright convert`, with the template's parameters as its options."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from shardwright.pipelines.convert import main


def arguments(given: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Returns the options to convert with: those given, and this image for the workers."""
    image = environment.get("SHARDWRIGHT_IMAGE", "")
    if image and not any(item.startswith("--sdk_container_image") for item in given):
        return [*given, f"--sdk_container_image={image}"]
    return list(given)


if __name__ == "__main__":
    sys.exit(main(arguments(sys.argv[1:], os.environ)))
