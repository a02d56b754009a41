"""Containers of Azurite, which imitates Azure Blob Storage, accessed without the code under test."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .buckets import free_port

_START_SECONDS = 60
_count = itertools.count()
ACCOUNT = "devstoreaccount1"
#: Azurite's published key.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def connection_string(url: str) -> str:
    """Returns the connection string for a server's URL."""
    return (
        f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={url}/{ACCOUNT};"
    )


@contextlib.contextmanager
def azurite() -> Iterator[str]:
    """Starts Azurite and yields its URL; skips the test without Azurite or the packages of the extra."""
    pytest.importorskip("azure.storage.blob", reason="azure-storage-blob is not installed")
    pytest.importorskip("azure.identity", reason="azure-identity is not installed")
    program = shutil.which("azurite-blob")
    if not program:
        pytest.skip("azurite-blob is not on the PATH; install it with `npm install --global azurite`")
    port = free_port()
    flags = ("--inMemoryPersistence", "--skipApiVersionCheck", "--silent", "--disableTelemetry")
    process = subprocess.Popen(
        [program, "--blobPort", str(port), *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            assert process.poll() is None and time.monotonic() < deadline, "Azurite does not start"
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


class Container:
    """A container of the server, and the options for access to it."""

    def __init__(self, server: str) -> None:
        from azure.storage.blob import BlobServiceClient

        self.options = (f"--azure_connection_string={connection_string(server)}",)
        self.name = f"pictures-{next(_count)}"
        self.url = f"az://{self.name}"
        self.client: Any = BlobServiceClient.from_connection_string(connection_string(server))
        self._container = self.client.create_container(self.name)

    def put(self, name: str, data: bytes, **more: Any) -> None:
        """Writes a blob."""
        self._container.upload_blob(name, data, overwrite=True, **more)

    def get(self, name: str) -> bytes:
        """Reads a blob."""
        return bytes(self._container.download_blob(name).readall())

    def properties(self, name: str) -> Any:
        """Returns the properties of a blob."""
        return self._container.get_blob_client(name).get_blob_properties()

    def remove(self, name: str) -> None:
        """Removes a blob."""
        self._container.delete_blob(name)

    def names(self, prefix: str = "") -> list[str]:
        """Returns the names of all blobs, without the prefix."""
        return sorted(
            name.removeprefix(prefix) for name in self._container.list_blob_names(name_starts_with=prefix)
        )

    def put_tree(self, root: Path, prefix: str) -> None:
        """Uploads all files below a local directory."""
        for path in sorted(path for path in root.rglob("*") if path.is_file()):
            self.put(prefix + path.relative_to(root).as_posix(), path.read_bytes())
