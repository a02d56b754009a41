"""`lost.jsonl`: the records of a damaged dataset that could not be saved."""

from __future__ import annotations

from typing import NamedTuple

LOST_JSONL = "lost.jsonl"


class LostRecord(NamedTuple):
    """A record that could not be saved; a field is None if its value is not known any more.

    Attributes:
      key: Key of the image.
      shard: Name of its shard file.
      record: Number of the record in the shard, from 0.
      offset: Where its frame began in the (uncompressed) shard, before the damage; where the damage begins,
        if the shard has no ledger or index.
      length: Bytes of its frame, or of the damage.
      code: Code of the validation finding that describes the damage.
      message: One sentence.
    """

    key: str | None
    shard: str
    record: int | None
    offset: int | None
    length: int | None
    code: str
    message: str
