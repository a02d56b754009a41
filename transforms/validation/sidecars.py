"""Checks that the files beside the shards are unchanged since they were written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from shardwright.schemas.codes import FindingCode
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.findings import Finding
from shardwright.transforms import storage


def check_sidecars(dataset: Dataset, directory: str) -> Iterator[Finding]:
    """Yields a finding for each sidecar that is missing or was changed.

    Raises:
      EngineError: If the storage failed.
    """
    for file, sha256 in dataset.sidecars.items():
        path = storage.join(directory, file)
        try:
            found = hashlib.sha256(storage.read_bytes(path)).hexdigest()
        except FileNotFoundError:
            yield Finding(FindingCode.SIDECAR_MISMATCH, "the file is missing; convert wrote it", file)
            continue
        except OSError as error:
            raise storage.fault(error, "read", path) from error
        if found != sha256:
            yield Finding(
                FindingCode.SIDECAR_MISMATCH,
                f"its sha256 begins {found[:12]}, dataset.json says {sha256[:12]}",
                file,
            )
