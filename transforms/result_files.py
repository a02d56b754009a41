"""Writes what a command found to the place that it was told."""

from __future__ import annotations

from shardwright.schemas.errors import EngineError
from shardwright.schemas.image_ref import printable
from shardwright.transforms import storage


def write_result(path: str, data: bytes, option: str, what: str = "report") -> None:
    """Writes a file of results.

    Args:
      path: where to.
      data: its content.
      option: that names the place, for the advice.
      what: it is.

    Raises:
      EngineError: if it cannot be written.
    """
    try:
        storage.write_bytes(path, data)
    except OSError as error:
        raise EngineError(
            f"Cannot write the {what} to {printable(path)}: {(error.strerror or str(error)).lower()}; "
            f"choose another place with {option}."
        ) from error
