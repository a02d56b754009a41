"""Local storage servers: Google's emulator behind a proxy that injects faults, moto's S3, and Azurite."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from apache_beam.io.filesystems import FileSystems
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage as google_storage
from helpers.hostile import make_tree
from helpers.storage.buckets import (
    S3,
    Bucket,
    Container,
    Disk,
    Place,
    azurite,
    connection_string,
    google_emulator,
)
from helpers.storage.imitation import Imitation
from helpers.storage.proxy import Proxy, Retries
from helpers.storage.scripted import Script, Scripted, Serve, scripted, serving

from shardwright.core import storage
from shardwright.core.storage import faults as policy
from shardwright.core.storage import object_store
from shardwright.pipelines.convert import convert


@pytest.fixture(scope="session", autouse=True)
def _without_certificates() -> Iterator[None]:
    """Removes settings of certificates: the servers need none, and they slow every request down."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session")
def _proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with google_emulator(tmp_path_factory.mktemp("emulator")) as place:
        proxy = Proxy(place)
        with serving(proxy) as proxy.url:
            yield proxy


@pytest.fixture
def proxy(_proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    """The proxy as this test's Google Cloud Storage, with short retry intervals."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", _proxy.url)
    shorten_pauses(monkeypatch)
    return _proxy


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new client of Google Cloud Storage that hardly waits before it retries."""
    shorten_pauses(monkeypatch)
    new_clients(monkeypatch)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Serves a script as Google Cloud Storage."""

    @contextlib.contextmanager
    def serving(script: Script, **options: Any) -> Iterator[Scripted]:
        with scripted(script, **options) as (url, made):
            monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
            yield made

    return serving


@pytest.fixture
def retries() -> Iterator[Retries]:
    """How long operations on Google Cloud Storage retry in this test."""
    made = Retries()
    yield made
    made.as_usual()


@pytest.fixture(scope="session")
def google_client(_proxy: Proxy) -> google_storage.Client:
    """Google's own client."""
    client = google_storage.Client(
        project="test", credentials=AnonymousCredentials(), client_options={"api_endpoint": _proxy.url}
    )
    client._http.trust_env = False  # otherwise it searches the environment at every request
    return client


@pytest.fixture(scope="session")
def _shared(google_client: google_storage.Client, tree: Path) -> Bucket:
    return Bucket(google_client).put_tree(tree, "small/")


@pytest.fixture
def shared(_shared: Bucket, proxy: Proxy) -> Bucket:
    """A bucket with a small tree in `small/`; read only."""
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
    """The dataset of the small tree, built on the local disk."""
    output = tmp_path_factory.mktemp("small") / "out"
    convert(input=str(tree), output=str(output), shards=2)
    return output


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The URL of moto's server."""
    from moto.server import ThreadedMotoServer  # its import takes half a second in each process

    moto = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    yield f"http://{host}:{port}"
    moto.stop()


@pytest.fixture
def s3(s3_server: str, tree: Path) -> S3:
    """An S3 bucket with a small tree in `small/`."""
    return S3(s3_server).put_tree(tree, "small/")


@pytest.fixture(scope="session")
def azurite_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of Azurite."""
    with azurite(tmp_path_factory.mktemp("azurite")) as url:
        yield url


@pytest.fixture
def container(azurite_server: str, tree: Path) -> Container:
    """A container of Azurite with a small tree in `small/`."""
    return Container(azurite_server).put_tree(tree, "small/")


def shorten_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has retries wait for a moment only."""
    monkeypatch.setattr(policy, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(policy, "MAX_PAUSE", 0.1)


def new_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgets clients and the options of Beam, so that only the environment counts."""
    monkeypatch.setattr(FileSystems, "_pipeline_options", None)
    storage.store_for.cache_clear()


def place_on(scheme: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Returns an empty folder on a storage; access to it needs no options."""
    new_clients(monkeypatch)
    folder: Path = request.getfixturevalue("tmp_path") / "place"
    if scheme in ("", "disk"):
        folder.mkdir()
        return Place(scheme, Disk(folder, f"disk://{folder}" if scheme else str(folder)))
    if scheme == "gs":
        return Place(scheme, request.getfixturevalue("bucket"))
    if scheme == "az":
        server = request.getfixturevalue("azurite_server")
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection_string(server))
        return Place(scheme, Container(server))
    server = request.getfixturevalue("s3_server")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server)
    set_amazon_keys(monkeypatch)
    return Place(scheme, S3(server))


def set_amazon_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets credentials that every imitation of S3 accepts."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


@pytest.fixture(params=["", "gs", "s3", "az", "disk"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Place:
    """An empty folder on each kind of storage; `disk` is known to Beam only."""
    return place_on(request.param, request, monkeypatch)


@pytest.fixture(params=["", "gs", "s3", "az"])
def versioned(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Place:
    """The same, on each storage that supports conditional writes."""
    return place_on(request.param, request, monkeypatch)


@pytest.fixture
def imitation_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Imitation]:
    """Serves scripts as a storage, with short pauses and deadlines."""
    shorten_pauses(monkeypatch)
    monkeypatch.setattr(policy, "PATIENCE_SECONDS", 2.0)
    monkeypatch.setattr(policy, "FIRST_PATIENCE_SECONDS", 2.0)
    monkeypatch.setattr(object_store, "UPLOAD_RETRIES", 0)
    set_amazon_keys(monkeypatch)
    new_clients(monkeypatch)
    return lambda scheme: Imitation(scheme, monkeypatch)


@pytest.fixture(params=["gs", "s3", "az"])
def imitation(request: pytest.FixtureRequest, imitation_of: Callable[[str], Imitation]) -> Imitation:
    """Serves scripts as each storage."""
    return imitation_of(request.param)
