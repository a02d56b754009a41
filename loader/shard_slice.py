"""The records of one shard that are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class ShardSlice(NamedTuple):
    """Records of one shard.

    Attributes:
      file: the shard's file name in the dataset directory.
      compression: of the shard: none, gzip or zlib.
      records_in_shard: all that it holds.
      numbers: of the records chosen, from 0, ascending.
    """

    file: str
    compression: str
    records_in_shard: int
    numbers: Sequence[int]
