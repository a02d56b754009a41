"""Containers of Azurite, which imitates Azure Blob Storage, accessed without the code under test."""

from __future__ import annotations

import base64
import contextlib
import hmac
import itertools
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import obstore
import pytest
from obstore.store import AzureStore

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
    """Starts Azurite and yields its URL; skips the test without Azurite."""
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
        self.options = (f"--azure_connection_string={connection_string(server)}",)
        self.name = f"pictures-{next(_count)}"
        self.url = f"az://{self.name}"
        self._store: Any = AzureStore(
            self.name, account_name=ACCOUNT, account_key=KEY, endpoint=f"{server}/{ACCOUNT}",
            client_options={"allow_http": True},
        )  # fmt: skip
        _create(server, self.name)

    def put(self, name: str, data: bytes, **attributes: str) -> None:
        """Writes a blob."""
        given: Any = attributes
        obstore.put(self._store, name, data, attributes=given, use_multipart=False)

    def get(self, name: str) -> bytes:
        """Reads a blob."""
        return bytes(obstore.get(self._store, name).bytes())

    def kind_of(self, name: str) -> str:
        """Returns the content type of a blob."""
        return str(obstore.get(self._store, name).attributes["Content-Type"])

    def remove(self, name: str) -> None:
        """Removes a blob."""
        obstore.delete(self._store, name)

    def names(self, prefix: str = "") -> list[str]:
        """Returns the names of all blobs, without the prefix."""
        items = obstore.list(self._store).collect()
        return sorted(item["path"].removeprefix(prefix) for item in items if item["path"].startswith(prefix))

    def put_tree(self, root: Path, prefix: str) -> None:
        """Uploads all files below a local directory."""
        for path in sorted(path for path in root.rglob("*") if path.is_file()):
            self.put(prefix + path.relative_to(root).as_posix(), path.read_bytes())


def _create(server: str, name: str) -> None:
    """Creates a container, which obstore cannot do."""
    date = formatdate(usegmt=True)
    headers = {"x-ms-date": date, "x-ms-version": "2021-12-02"}
    signed = "PUT" + "\n" * 12 + "".join(f"{key}:{headers[key]}\n" for key in sorted(headers))
    signed += f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), signed.encode(), "sha256")).decode()
    headers |= {"Authorization": f"SharedKey {ACCOUNT}:{signature}", "Content-Length": "0"}
    url = f"{server}/{ACCOUNT}/{name}?restype=container"
    with urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers)):
        pass


def signature_for(container: str) -> str:
    """Returns a shared access signature for a container."""
    fields = {"sp": "racwdl", "se": "2099-01-01T00:00:00Z", "sv": "2021-12-02", "sr": "c"}
    resource = f"/blob/{ACCOUNT}/{container}"
    signed = "\n".join([fields["sp"], "", fields["se"], resource, "", "", "", fields["sv"], "c", *[""] * 7])
    digest = hmac.digest(base64.b64decode(KEY), signed.encode(), "sha256")
    return urlencode({**fields, "sig": base64.b64encode(digest).decode()})
