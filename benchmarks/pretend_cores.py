"""Runs a command of Shardwright as on a machine with more processors: `pretend_cores.py N COMMAND ...`."""

import sys
from unittest import mock

from shardwright.pipelines import cli


def main(argv: list[str]) -> int:
    """Runs the command; returns its exit code."""
    count, *words = argv
    with mock.patch("os.sched_getaffinity", lambda _: set(range(int(count)))):
        return cli.main(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
