"""What only Google Cloud Storage has: generations, payers, tokens, and two clients."""

from __future__ import annotations

import datetime
import gzip
import ipaddress
import json
import multiprocessing
import os
import ssl
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import google.auth
import pytest
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from google.auth import credentials as google_credentials
from google.auth import iam
from helpers.storage.buckets import Bucket, read_copy
from helpers.storage.imitation import holding, whole
from helpers.storage.proxy import Fault, Proxy
from helpers.storage.proxy import Request as ProxiedRequest
from helpers.storage.scripted import Request, Response, Scripted, Serve, scripted
from helpers.storage.tunnel import tunnels

from shardwright.core import storage
from shardwright.core.storage import faults
from shardwright.core.storage.gcs import GcsStore
from shardwright.schemas.errors import EngineError

pytestmark = pytest.mark.usefixtures("short_pauses")

BODY = bytes(range(256)) * 400
hold = holding("gs", BODY)


def is_quick(request: Request) -> bool:
    """Returns whether obstore sent a request."""
    return request.path.startswith("/b/")


def test_one_request_asks_for_generation_project_and_stored_bytes(serve: Serve) -> None:
    with serve(hold) as served:
        FileSystems.set_options(PipelineOptions(["--gcs_user_project=payer:1"]))
        assert storage.read_bytes("gs://b/a b/ü%2F+/x.jpg", "7") == BODY
    (request,) = served.requests
    assert unquote(request.path) == "/b/a b/ü%2F+/x.jpg" and request.query == {"generation": "7"}
    assert request.headers["x-goog-user-project"] == "payer:1"
    assert request.headers["Accept-Encoding"] == "gzip" and "shardwright/" in request.headers["User-Agent"]
    assert "Authorization" not in request.headers


@pytest.mark.parametrize("name", ["a//b", "/a", "a/", "a/./b", "a/../b", "a\nb"])
def test_names_that_obstore_changes_are_read_by_the_other_client(serve: Serve, name: str) -> None:
    with serve(hold) as served:
        assert storage.read_bytes(f"gs://b/{name}", "7") == BODY
        assert storage.read_range(f"gs://b/{name}", 5, 10, len(BODY), "7") == BODY[5:15]
    for request in served.requests:
        assert unquote(request.path) == f"/download/storage/v1/b/b/o/{name}"
        assert request.query["generation"] == "7"


def test_an_emulator_without_the_other_interface_works(serve: Serve) -> None:
    """Some answer a read of obstore with 404, or without a generation; Google's own client reads then."""
    for bad in (Response(status=404), Response(BODY), Response(b"<Error/>", 400)):
        with serve(lambda request, bad=bad: bad if is_quick(request) else hold(request)):
            assert storage.read_bytes("gs://b/x", "7") == BODY == read_copy("gs://b/x")
            assert storage.read_head("gs://b/x", 10) == BODY[:10]


def test_packed_objects_arrive_as_they_are_stored(serve: Serve) -> None:
    packed = gzip.compress(BODY)
    encoding = ("Content-Encoding", "gzip")

    def script(request: Request) -> Response:
        answer = whole(request, packed)
        return answer._replace(headers=(*answer.headers, encoding))

    with serve(script):
        assert storage.read_bytes("gs://b/x") == packed == storage.read_bytes("gs://b/x", "7")


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (404, b"The specified bucket does not exist.", "there is no bucket b"),
        (400, b"Bucket is a requester pays bucket but no user project provided.",
         "but no user project provided; name the project that pays with --gcs_user_project."),
    ],
)  # fmt: skip
def test_a_refusal_says_why(serve: Serve, status: int, body: bytes, message: str) -> None:
    with serve(lambda request: Response(body, status)):
        for read in (storage.read_bytes, lambda path: storage.read_bytes(path, "7")):
            with pytest.raises(EngineError) as raised:
                read("gs://b/x")
            assert message in str(raised.value) and len(str(raised.value)) < 500


def test_a_lost_answer_does_not_repeat_a_write(bucket: Bucket, proxy: Proxy) -> None:
    path = f"{bucket.url}/latest.json"

    def lose_first(request: ProxiedRequest) -> Fault | None:
        return Fault("lose") if request.kind == "upload" and not request.attempt else None

    with proxy.watch(lose_first):
        assert storage.write_if_match(path, b"one", None)
    found = storage.read_with_etag(path)
    assert found is not None
    with proxy.watch(lose_first):
        assert storage.write_if_match(path, b"two", found[1])
    (blob,) = bucket._bucket.list_blobs()
    blob.reload()
    assert blob.cache_control == "no-store", "public pointers are not cached"


class Token(google_credentials.Credentials):
    """Credentials whose tokens are numbers."""

    def __init__(self, seconds: float = 3600.0) -> None:
        super().__init__()
        self.refreshed, self.seconds = 0, seconds

    def refresh(self, request: object) -> None:
        time.sleep(0.01)  # so that threads meet
        self.refreshed += 1
        self.token = f"token-{self.refreshed}"
        self.expiry = datetime.datetime.now(datetime.UTC).replace(tzinfo=None) + datetime.timedelta(
            seconds=self.seconds
        )

    def with_scopes(self, scopes: object) -> Token:
        return self


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Token, Scripted]]:
    """A storage that is not an emulator, and the credentials for it."""
    token = Token()
    monkeypatch.setattr(google.auth, "default", lambda scopes: (token, "project"))
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    with scripted(hold) as (url, served):
        monkeypatch.setenv("API_ENDPOINT_OVERRIDE", url)
        yield token, served


def test_threads_share_one_token(real: tuple[Token, Scripted]) -> None:
    token, served = real
    with ThreadPoolExecutor(16) as executor:
        list(executor.map(lambda _: storage.read_bytes("gs://b/x", "7"), range(64)))
    assert token.refreshed == 1
    assert {request.headers["authorization"] for request in served.requests} == {"Bearer token-1"}


def test_a_token_that_expires_is_renewed_before_the_request(real: tuple[Token, Scripted]) -> None:
    token, served = real
    token.seconds = 60.0  # less than google-auth wants
    for _ in range(2):
        storage.read_bytes("gs://b/x", "7")
    sent = [request.headers["authorization"] for request in served.requests]
    assert sent == ["Bearer token-1", "Bearer token-2"]


def test_a_refused_token_is_renewed(real: tuple[Token, Scripted]) -> None:
    token, served = real
    served.script = lambda request: (
        Response(b"", 401) if request.headers["authorization"] == "Bearer token-1" else hold(request)
    )
    assert storage.read_bytes("gs://b/x", "7") == BODY and token.refreshed == 2
    served.script = lambda request: Response(b"Invalid Credentials", 401)
    with pytest.raises(EngineError, match="there are no valid credentials for Google Cloud"):
        storage.read_bytes("gs://b/x", "7")


def test_a_token_server_that_does_not_answer_is_asked_again(
    real: tuple[Token, Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    from google.auth.exceptions import RefreshError, TransportError

    token, served = real
    faults: list[Exception] = [TransportError("no route"), TransportError("no route")]
    refresh = token.refresh

    def failing(request: object) -> None:
        if faults:
            raise faults.pop()
        refresh(request)

    monkeypatch.setattr(token, "refresh", failing)
    assert storage.read_bytes("gs://b/x", "7") == BODY and len(served.requests) == 1
    token.token = None
    faults.append(RefreshError("revoked"))
    with pytest.raises(EngineError, match="there are no valid credentials"):
        storage.read_bytes("gs://b/x", "7")


def test_reads_act_as_the_impersonated_account(
    real: tuple[Token, Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All requests carry the token of the last account, which the first one asks for."""
    _, served = real
    bodies = []

    def script(request: Request) -> Response:
        if "generateAccessToken" not in request.path:
            return hold(request) if request.method == "GET" else Response(b"{}")
        bodies.append((request.path, request.headers.get("authorization")))
        return Response(json.dumps({"accessToken": "theirs", "expireTime": "2100-01-01T00:00:00Z"}).encode())

    served.script = script
    monkeypatch.setattr(iam, "_IAM_ENDPOINT", os.environ["API_ENDPOINT_OVERRIDE"] + "/{}:generateAccessToken")
    options = ["--impersonate_service_account=one@p,two@p", "--gcs_user_project=payer"]
    FileSystems.set_options(PipelineOptions(options))
    assert storage.read_bytes("gs://b/x", "7") == BODY == storage.read_bytes("gs://b/x")
    storage.remove("gs://b/x")
    assert bodies == [("/two@p:generateAccessToken", "Bearer token-1")]
    sent = [item for item in served.requests if "generateAccessToken" not in item.path]
    assert {item.headers["authorization"] for item in sent} == {"Bearer theirs"}
    assert {payer_of(item) for item in sent} == {"payer"} and len(sent) == 3


def payer_of(request: Any) -> str:
    """Returns the project that a request names."""
    return str(request.query.get("userProject") or request.headers.get("x-goog-user-project"))


def test_the_payer_is_named_in_every_request(serve: Serve, tmp_path: Path) -> None:
    resource = {"name": "x", "bucket": "b", "generation": "7", "size": "1", "crc32c": "AAAAAA=="}

    def script(request: Request) -> Response:
        if is_quick(request) or request.query.get("alt") == "media":
            return whole(request, BODY)
        if request.method == "GET" and request.path.endswith("/o"):
            return Response(json.dumps({"items": [resource]}).encode())
        done = {
            **resource, "done": True, "resource": resource, "totalBytesRewritten": "1", "objectSize": "1"
        }  # fmt: skip
        return Response(json.dumps(done).encode())

    file = tmp_path / "file"
    file.write_bytes(b"")
    with serve(script) as served:
        FileSystems.set_options(PipelineOptions(["--gcs_user_project=payer"]))
        storage.read_bytes("gs://b/x")
        storage.read_range("gs://b/x", 0, 5)
        storage.stat("gs://b/x")
        list(storage.list_objects("gs://b/d"))
        storage.list_folders("gs://b/d")
        storage.link_files("gs://b/d", "gs://b/e", ["x"])
        storage.remove("gs://b/x")
        storage.write_bytes("gs://b/x", b"")
        storage.write_if_match("gs://b/x", b"", None)
        storage.move_into_place(str(file), "gs://b/x")
    assert len(served.requests) == 10
    assert {payer_of(request) for request in served.requests} == {"payer"}, served.requests


def test_a_wrong_certificate_is_not_accepted(
    monkeypatch: pytest.MonkeyPatch, serve: Serve, tmp_path: Path
) -> None:
    tls, certificate = self_signed(tmp_path)
    with serve(hold, tls=tls) as served:
        with pytest.raises(EngineError, match=r"certificate of the server .* set REQUESTS_CA_BUNDLE"):
            storage.read_bytes("gs://b/x", "7")
        assert not served.requests
        for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
            storage.store_for.cache_clear()
            with monkeypatch.context() as patch:
                patch.setenv(name, str(certificate))
                assert storage.read_bytes("gs://b/x", "7") == BODY


def self_signed(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """Returns the settings of a server with a new certificate, and the file of that certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    pem, now = serialization.Encoding.PEM, datetime.datetime.now(datetime.UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "server")])
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(address, False)
        .sign(key, hashes.SHA256())
    )
    (folder / "server.pem").write_bytes(certificate.public_bytes(pem))
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(private)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "server.pem", folder / "key.pem")
    return tls, folder / "server.pem"


def test_proxies_of_the_environment_are_used(monkeypatch: pytest.MonkeyPatch, serve: Serve) -> None:
    with serve(hold) as served:
        monkeypatch.setenv("http_proxy", os.environ["STORAGE_EMULATOR_HOST"])
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://storage.invalid:1")
        assert storage.read_bytes("gs://b/x", "7") == BODY
        assert served.requests[0].headers["Host"] == "storage.invalid:1"
        monkeypatch.setenv("no_proxy", "storage.invalid")
        monkeypatch.setattr(faults, "FIRST_PATIENCE_SECONDS", 0.1)
        monkeypatch.setattr(faults, "PATIENCE_SECONDS", 0.1)
        with pytest.raises(EngineError, match="does not answer"):
            storage.read_bytes("gs://b/x", "7")


@pytest.mark.parametrize("variable", ["https_proxy", "HTTPS_PROXY", "ALL_PROXY"])
def test_tls_goes_through_the_tunnel_of_a_proxy(
    monkeypatch: pytest.MonkeyPatch, serve: Serve, tmp_path: Path, variable: str
) -> None:
    tls, certificate = self_signed(tmp_path)
    with serve(hold, tls=tls) as served:
        server = urlsplit(os.environ["STORAGE_EMULATOR_HOST"])
        assert server.hostname and server.port
        with tunnels((server.hostname, server.port)) as (proxy, opened):
            monkeypatch.setenv(variable, proxy)
            with pytest.raises(EngineError, match="certificate of the server"):
                storage.read_bytes("gs://b/x", "7")
            assert 1 <= len(opened.requests) <= 2 and not served.requests, (
                "a wrong certificate is not tried again"
            )
            storage.store_for.cache_clear()
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
            assert storage.read_bytes("gs://b/x", "7") == BODY
            assert storage.read_bytes("gs://b/y", "7") == BODY
            count = len(opened.requests)
            for name in range(8):
                assert storage.read_bytes(f"gs://b/{name}", "7") == BODY
            assert len(served.requests) == 10
            assert set(opened.requests) == {f"{server.hostname}:{server.port}"}
            assert len(opened.requests) < count + 7, "connections are kept"


def test_a_proxy_that_opens_no_tunnel_ends_the_read(
    monkeypatch: pytest.MonkeyPatch, serve: Serve, tmp_path: Path
) -> None:
    monkeypatch.setattr(faults, "FIRST_PATIENCE_SECONDS", 0.2)
    tls, _ = self_signed(tmp_path)
    with serve(hold, tls=tls) as served, tunnels(("127.0.0.1", 1), status=407) as (proxy, opened):
        monkeypatch.setenv("https_proxy", proxy)
        with pytest.raises(EngineError, match="does not answer"):
            storage.read_bytes("gs://b/x", "7")
        assert opened.requests and not served.requests


def _forked(read: Callable[[], object]) -> ForkProcess:
    """Starts a function in a child of `fork`."""
    child = multiprocessing.get_context("fork").Process(target=read, daemon=True)
    child.start()
    return child


def _read_as_child() -> None:
    assert storage.read_bytes("gs://b/x", "7") == BODY == read_copy("gs://b/x")


def test_a_child_of_fork_reads_with_the_other_client(serve: Serve) -> None:
    """Obstore's threads exist in the parent only."""
    with serve(hold) as served:
        assert storage.read_bytes("gs://b/x", "7") == BODY
        child = _forked(_read_as_child)
        child.join(60)
        assert child.exitcode == 0
        assert storage.read_bytes("gs://b/x", "7") == BODY
    assert [is_quick(request) for request in served.requests] == [True, False, False, False, True]


def test_a_child_of_fork_keeps_the_client_of_its_parent(serve: Serve) -> None:
    """To let go of it, obstore takes a lock that a thread of the parent may have held at the fork."""
    with serve(hold):
        store = GcsStore()
        inherited = weakref.ref(store.client())

        def connect() -> None:
            assert store.client() is not inherited() is not None

        child = _forked(connect)
        child.join(60)
    assert child.exitcode == 0


def test_a_child_of_fork_does_not_wait_for_threads_that_connect(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, connecting, may_go_on = os.getpid(), threading.Event(), threading.Event()
    connect = GcsStore.connect

    def wait(self: GcsStore, options: Mapping[str, Any]) -> Any:
        connecting.set()
        assert os.getpid() != parent or may_go_on.wait(60)
        return connect(self, options)

    monkeypatch.setattr(GcsStore, "connect", wait)
    with serve(hold), ThreadPoolExecutor(1) as pool:
        store = GcsStore()
        client = pool.submit(store.client)
        assert connecting.wait(60)
        child = _forked(store.client)
        child.join(20)
        may_go_on.set()
        assert client.result() and child.exitcode == 0


@pytest.mark.parametrize(
    ("name", "text"),
    [("GOOGLE_SERVICE_ACCOUNT", "/no/such/file"), ("GOOGLE_API_USE_CLIENT_CERTIFICATE", "true")],
)
def test_settings_that_obstore_rejects_are_left_to_the_other_client(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    monkeypatch.setenv(name, text)
    with serve(hold) as served:
        assert storage.read_bytes("gs://b/x", "7") == BODY
    assert not any(map(is_quick, served.requests))


def test_a_full_disk_is_no_fault_of_the_storage(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", partial(open, "/dev/full", "r+b", buffering=0))
    with serve(hold), pytest.raises(OSError, match="No space left") as raised:
        read_copy("gs://b/x")
    assert not isinstance(raised.value, EngineError)
    assert faults.longest_wait() is None
