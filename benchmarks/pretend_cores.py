"""Runs a command of Shardwright as on a machine with more processors: `pretend_cores.py N COMMAND ...`."""

import sys

from shardwright.core.concurrency import converters
from shardwright.pipelines import cli, workers
from shardwright.transforms import write_shards as write


def main(argv: list[str]) -> int:
    """Runs the command; returns its exit code."""
    count, *words = argv
    for module in (workers, converters, write):
        module.usable_cpus = lambda: int(count)
    return cli.main(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
