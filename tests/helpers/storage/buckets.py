"""Buckets of the emulator, accessed without the code under test."""

from __future__ import annotations

import itertools
import json
import socket
from pathlib import Path
from typing import Any

from google.cloud import storage as google_storage

SETTINGS = {
    "resize": 64,
    "splits": "train=0.6,validation=0.2,test=0.2",
    "shards": "train=3,validation=1,test=1",
}
_count = itertools.count()


class Bucket:
    """A bucket in the emulator, accessed without the code under test."""

    def __init__(self, client: google_storage.Client, name: str = "") -> None:
        self.name = name or f"photos-{next(_count)}"
        self.url = f"gs://{self.name}"
        self._bucket = client.bucket(self.name)
        client.create_bucket(self._bucket)
        self._bucket.soft_delete_policy.retention_duration_seconds = 0
        self._bucket.patch()

    def put(self, name: str, data: bytes, encoding: str | None = None) -> None:
        """Writes an object."""
        blob = self._bucket.blob(name)
        blob.content_encoding = encoding
        blob.upload_from_string(data, "application/octet-stream")

    def put_tree(self, root: Path, prefix: str = "") -> None:
        """Uploads all files below a local directory."""
        for path in sorted(path for path in root.rglob("*") if path.is_file()):
            self.put(prefix + path.relative_to(root).as_posix(), path.read_bytes())

    def get(self, name: str) -> bytes:
        """Reads an object."""
        return bytes(self._bucket.blob(name).download_as_bytes(raw_download=True, checksum=None))

    def kind_of(self, name: str) -> str:
        """Returns the content type of an object."""
        return str(self._bucket.get_blob(name).content_type)

    def delete(self, name: str) -> None:
        """Removes an object."""
        self._bucket.blob(name).delete()

    def names(self, prefix: str = "") -> list[str]:
        """Returns the names of all objects, without the prefix."""
        return sorted(blob.name.removeprefix(prefix) for blob in self._bucket.list_blobs(prefix=prefix))

    def fetch(self, prefix: str, to: Path) -> Path:
        """Downloads a folder, for code that reads local datasets."""
        for name in self.names(f"{prefix}/"):
            path = to / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.get(f"{prefix}/{name}"))
        return to

    def document(self, prefix: str) -> dict[str, Any]:
        """Returns a dataset's `dataset.json`."""
        made: dict[str, Any] = json.loads(self.get(f"{prefix}/dataset.json"))
        return made


def free_port() -> int:
    """Returns a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
