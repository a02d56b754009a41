"""A Google Cloud Storage of our own: the emulator, with a proxy in front that watches and breaks things."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage as google_storage
from hostile import make_tree

from shardwright.pipelines.convert import convert
from shardwright.transforms.storage import gcs
from storage.buckets import Bucket, free_port
from storage.proxy import Proxy

_START_SECONDS = 30
#: The emulator, but for the list of all objects that it writes down after every change.
_EMULATOR = """
import sys
from gcp_storage_emulator import __main__, storage
storage.Storage._write_config_to_file = lambda self: None
__main__.main(sys.argv[1:])
"""


@pytest.fixture(scope="session")
def emulator() -> Iterator[tuple[str, int]]:
    """The storage emulator in a process of its own."""
    port = free_port()
    command = [sys.executable, "-c", _EMULATOR, "start", "--host=127.0.0.1", f"--port={port}"]
    process = subprocess.Popen([*command, "--in-memory", "--quiet"], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            assert process.poll() is None and time.monotonic() < deadline, "the emulator does not start"
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield "127.0.0.1", port
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="session")
def _proxy(emulator: tuple[str, int]) -> Iterator[Proxy]:
    proxy = Proxy(emulator)
    proxy.start()
    yield proxy
    proxy.stop()


@pytest.fixture
def proxy(_proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    """The proxy as this test's Google Cloud Storage, with retries that do not take their time."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", _proxy.url)
    monkeypatch.setattr(gcs, "_RETRY_FIRST", 0.01)
    monkeypatch.setattr(gcs, "_RETRY_MOST", 0.1)
    return _proxy


@pytest.fixture(scope="module")
def proxy_for_module(_proxy: Proxy) -> Iterator[Proxy]:
    """The same for what a module shares."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", _proxy.url)
        yield _proxy


@pytest.fixture(scope="session")
def google_client(_proxy: Proxy) -> google_storage.Client:
    """The official client."""
    return google_storage.Client(
        project="test", credentials=AnonymousCredentials(), client_options={"api_endpoint": _proxy.url}
    )


@pytest.fixture(scope="session")
def _shared(google_client: google_storage.Client, photos: Path, tree: Path) -> Bucket:
    bucket = Bucket(google_client)
    bucket.put_tree(photos, "photos/")
    bucket.put_tree(tree, "small/")
    return bucket


@pytest.fixture
def shared(_shared: Bucket, proxy: Proxy) -> Bucket:
    """A bucket with the example pictures in `photos/` and a small tree in `small/`; only for reading."""
    return _shared


@pytest.fixture
def bucket(google_client: google_storage.Client, proxy: Proxy) -> Bucket:
    """An empty bucket."""
    return Bucket(google_client)


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dozen tiny images in two classes."""
    return make_tree(tmp_path_factory.mktemp("tree"), 12)


@pytest.fixture(scope="session")
def small_local(tmp_path_factory: pytest.TempPathFactory, tree: Path) -> Path:
    """The dataset of the small tree, made on the local disk."""
    output = tmp_path_factory.mktemp("small") / "out"
    convert(input=str(tree), output=str(output), shards=2)
    return output
