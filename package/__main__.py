"""`python -m shardwright` is the command `shardwright`."""

from __future__ import annotations

import sys

from shardwright.pipelines.cli import main

if __name__ == "__main__":
    sys.exit(main())
