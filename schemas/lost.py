"""`lost.jsonl`: the records of a damaged dataset that could not be saved."""

from __future__ import annotations

from typing import Any, NamedTuple

LOST_JSONL = "lost.jsonl"


class LostRecord(NamedTuple):
    """A record that could not be saved; None stands for what cannot be known any more.

    Attributes:
      key: the image's key.
      shard: the file it was in.
      record: its number there, from 0.
      offset: where its frame began in the (uncompressed) shard, before the damage; in files without a
        ledger or index, where the damage begins.
      length: bytes of its frame; likewise of the damage.
      code: what is wrong, as a validation names it.
      message: one sentence.
    """

    key: str | None
    shard: str
    record: int | None
    offset: int | None
    length: int | None
    code: str
    message: str

    def as_json(self) -> dict[str, Any]:
        """Returns the record as a line of `lost.jsonl`."""
        return self._asdict()
