"""`ShardSlice`: the selected records of one shard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class ShardSlice(NamedTuple):
    """Records of one shard.

    Attributes:
      file: File name of the shard in the dataset directory.
      compression: Compression of the shard: none, gzip or zlib.
      records_in_shard: Number of records in the whole shard.
      numbers: Numbers of the selected records, from 0, ascending.
    """

    file: str
    compression: str
    records_in_shard: int
    numbers: Sequence[int]
