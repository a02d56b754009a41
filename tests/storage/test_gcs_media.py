"""Reads of objects with one GET each: what is requested, and what happens if the answer is not the object."""

from __future__ import annotations

import base64
import datetime
import gzip
import ipaddress
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import google.auth
import google_crc32c
import pytest
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from google.auth import credentials as google_credentials
from google.auth import iam
from helpers.hostile import run
from helpers.storage.buckets import Bucket
from helpers.storage.proxy import Fault, Proxy
from helpers.storage.scripted import Request, Response, Script, Scripted, Serve, scripted
from helpers.storage.tunnel import tunnels
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.schemas.errors import EngineError
from shardwright.transforms import storage
from shardwright.transforms.storage import gcs, gcs_media, range_listing
from shardwright.transforms.storage.gcs_access import GcsAccess, endpoint

pytest.importorskip("pycurl", reason="pycurl has no wheel for this system, so that Google's own client reads")

pytestmark = pytest.mark.usefixtures("short_pauses")

BODY = bytes(range(256)) * 400


def hash_of(data: bytes) -> str:
    """Returns the header with the checksum of an object."""
    crc = base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()
    return f"crc32c={crc},md5=AAAAAAAAAAAAAAAAAAAAAA=="


def whole(request: Request, body: bytes = BODY, generation: str = "7", **how: Any) -> Response:
    """Returns the answer of the storage, which obeys ranges."""
    headers = (("X-Goog-Hash", hash_of(body)), ("X-Goog-Generation", generation))
    wanted = request.headers.get("Range", "")
    if not wanted:
        return Response(body, headers=headers, **how)
    begin, _, end = wanted.removeprefix("bytes=").partition("-")
    if int(begin) >= len(body):
        return Response(b"Request range not satisfiable", 416)
    part = body[int(begin) : int(end) + 1 if end else None]
    return Response(part, 206, headers=headers, **how)


def first(response: Response, then: Script = whole) -> Script:
    """Returns a script whose first answer is special."""
    return lambda request: response if request.number == 0 else then(request)


def test_one_request_asks_for_generation_project_and_stored_bytes(serve: Serve) -> None:
    options = PipelineOptions(["--gcs_user_project=payer:1"])
    with serve(whole) as served:
        FileSystems.set_options(options)
        assert storage.read_version("gs://b/a b/ü%2F+//x.jpg", "7") == BODY
    (request,) = served.requests
    assert request.method == "GET"
    assert request.path == "/download/storage/v1/b/b/o/a%20b%2F%C3%BC%252F%2B%2F%2Fx.jpg"
    assert request.query == {"alt": "media", "generation": "7", "userProject": "payer:1"}
    assert request.headers["Accept-Encoding"] == "gzip" and "shardwright/" in request.headers["User-Agent"]
    assert "Authorization" not in request.headers and "Range" not in request.headers


@settings(max_examples=40, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20))
def test_every_name_is_requested_as_it_is(name: str) -> None:
    with pytest.MonkeyPatch.context() as patch, scripted(whole) as (url, served):
        patch.setenv("STORAGE_EMULATOR_HOST", url)
        assert storage.read_version(f"gs://b/{name}", "7") == BODY
    assert unquote(served.requests[0].path.partition("/o/")[2]) == name


@pytest.mark.parametrize("name", [".", "..", "a/../b", "a/./b", "a//b", "/a", "a/", "a?b", "a#b", "a%2e"])
def test_a_name_like_a_path_is_not_shortened(serve: Serve, name: str) -> None:
    with serve(whole) as served:
        storage.read_version(f"gs://b/{name}", "7")
    assert served.requests[0].path == f"/download/storage/v1/b/b/o/{quote(name, safe='')}"


def test_connections_are_kept_and_shared(serve: Serve) -> None:
    with serve(whole):
        media = gcs._access().media
        for _ in range(3):
            storage.read_version("gs://b/x", "7")
        with ThreadPoolExecutor(4) as executor:
            assert set(executor.map(lambda _: storage.read_version("gs://b/x", "7"), range(40))) == {BODY}
        assert media is gcs._access().media is not None
        assert 1 <= len(media._idle) <= 4
        assert {connection._download.content() for connection in media._idle} == {b""}


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_transient_answers_are_retried(serve: Serve, status: int) -> None:
    with serve(first(Response(b"later", status))) as served:
        assert storage.read_bytes("gs://b/x") == BODY
    assert len(served.requests) == 2


def test_a_cut_transfer_goes_on_where_it_stopped(serve: Serve, tmp_path: Path) -> None:
    for read in (lambda: storage.read_bytes("gs://b/x"), lambda: read_copy("gs://b/x")):
        with serve(lambda request: whole(request, only=1000 if request.number < 2 else -1)) as served:
            assert read() == BODY
        assert [request.headers.get("Range") for request in served.requests] == [
            None, "bytes=1000-", "bytes=2000-"
        ]  # fmt: skip
        assert [request.query.get("generation") for request in served.requests] == [None, "7", "7"]


def read_copy(path: str) -> bytes:
    """Reads an object through a local copy."""
    with storage.open_local(path) as file:
        return file.read()


def test_a_cut_range_goes_on_where_it_stopped(serve: Serve) -> None:
    with serve(lambda request: whole(request, only=100 if request.number == 0 else -1)) as served:
        assert storage.read_range("gs://b/x", 50, 1000, len(BODY), "7") == BODY[50:1050]
    assert [request.headers["Range"] for request in served.requests] == ["bytes=50-1049", "bytes=150-1049"]


def test_a_transfer_starts_again_if_the_storage_ignores_the_range(serve: Serve) -> None:
    def script(request: Request) -> Response:
        without_range = request._replace(headers={})
        return whole(without_range, only=1000 if request.number == 0 else -1)

    for read in (lambda: storage.read_bytes("gs://b/x"), lambda: read_copy("gs://b/x")):
        with serve(script) as served:
            assert read() == BODY
        assert len(served.requests) == 2
    with serve(script):
        assert storage.read_range("gs://b/x", 50, 1000) == BODY[50:1050]


def test_an_object_that_is_replaced_while_it_is_read_is_read_from_its_start(serve: Serve) -> None:
    other = b"another" * 1000

    def script(request: Request) -> Response:
        if request.number == 0:
            return whole(request, only=1000)
        if request.query.get("generation") == "7":
            return Response(b"No such object: b/x", 404)
        return whole(request, other, "8")

    with serve(script) as served:
        assert storage.read_bytes("gs://b/x") == other
    assert len(served.requests) == 3
    with serve(script), pytest.raises(FileNotFoundError):
        storage.read_version("gs://b/x", "7")


@pytest.mark.parametrize("read", [storage.read_bytes, read_copy])
def test_bytes_that_do_not_match_their_checksum_are_read_again(
    serve: Serve, read: Callable[[str], bytes]
) -> None:
    wrong = Response(BODY[:-1] + b"?", headers=(("X-Goog-Hash", hash_of(BODY)),))
    with serve(first(wrong)):
        assert read("gs://b/x") == BODY
    with (
        serve(lambda request: wrong) as served,
        pytest.raises(EngineError, match="do not match its checksum"),
    ):
        read("gs://b/x")
    assert len(served.requests) == 3


def test_the_checksum_of_several_headers_counts(serve: Serve) -> None:
    digest = hash_of(BODY).split(",")[0]
    headers = (("x-goog-hash", "md5=AAAA"), ("x-goog-hash", digest))
    with serve(lambda request: Response(BODY, headers=headers)):
        assert storage.read_bytes("gs://b/x") == BODY
    with serve(lambda request: Response(b"?", headers=headers)), pytest.raises(EngineError, match="checksum"):
        storage.read_bytes("gs://b/x")


def test_packed_objects_arrive_as_they_are_stored(serve: Serve) -> None:
    packed = gzip.compress(BODY)
    headers = (("Content-Encoding", "gzip"), ("X-Goog-Hash", hash_of(packed)))
    with serve(lambda request: Response(packed, headers=headers)):
        assert storage.read_bytes("gs://b/x") == packed


@pytest.mark.parametrize(
    ("status", "body", "error", "message"),
    [
        (404, b"No such object: b/x", FileNotFoundError, "no such object"),
        (404, b"The specified bucket does not exist.", EngineError, "there is no bucket b"),
        (403, b"Caller does not have storage.objects.get access", PermissionError, "permission denied"),
        (401, b"Anonymous caller", EngineError, "there are no valid credentials"),
        (400, b'{"error": {"message": "Bad name"}}', EngineError, "refuses it: Bad name."),
        (400, b"Bucket is a requester pays bucket but no user project provided.", EngineError,
         "but no user project provided; name the project that pays with --gcs_user_project."),
        (418, b"x" * 100_000, EngineError, "refuses it: xxx"),
        (304, b"", EngineError, "refuses it"),
    ],
)  # fmt: skip
def test_a_refusal_is_one_sentence_at_once(
    serve: Serve, status: int, body: bytes, error: type[Exception], message: str
) -> None:
    with serve(lambda request: Response(body, status)) as served:
        for read in (storage.read_bytes, read_copy, lambda path: storage.read_version(path, "7")):
            with pytest.raises(error) as raised:
                read("gs://b/x")
            assert message in str(raised.value) and len(str(raised.value)) < 500
    assert len(served.requests) == 3


def test_a_range_behind_the_end_is_empty(serve: Serve) -> None:
    with serve(whole):
        assert storage.read_range("gs://b/x", len(BODY), 10) == b""
        assert storage.read_range("gs://b/x", len(BODY) - 3, 10) == BODY[-3:]


def test_metadata_are_read_like_objects(serve: Serve) -> None:
    item = {
        "name": "x",
        "size": "5",
        "generation": "7",
        "crc32c": "AAAAAA==",
        "updated": "2026-11-23T04:00:00.5Z",
    }
    body = json.dumps(item).encode()
    with serve(first(Response(b"<html>", 200), lambda request: Response(body))) as served:
        assert storage.stat("gs://b/x") == ("gs://b/x", 5, "7", "AAAAAA==")
        assert storage.modified_at("gs://b/x") == 1795406400.5
    assert {request.path for request in served.requests} == {"/storage/v1/b/b/o/x"}
    assert len(served.requests) == 3 and "Accept-Encoding" not in served.requests[0].headers
    for refusal in (b"Not Found", b"The specified bucket does not exist."):
        with serve(lambda request, refusal=refusal: Response(refusal, 404)):
            assert storage.stat("gs://b/x") is None is storage.modified_at("gs://b/x")


def test_missing_credentials_of_a_listing_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    from google.auth.exceptions import DefaultCredentialsError

    def default(scopes: object) -> None:
        raise DefaultCredentialsError("none")

    monkeypatch.setattr(google.auth, "default", default)
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    for act in (lambda: list(storage.list_objects("gs://b/d")), lambda: storage.stat("gs://b/x")):
        with pytest.raises(EngineError, match="there are no valid credentials"):
            act()


def test_an_empty_object_is_read(serve: Serve) -> None:
    with serve(lambda request: whole(request, b"")):
        assert storage.read_bytes("gs://b/x") == b"" == read_copy("gs://b/x")


def test_a_connection_that_the_server_has_closed_is_replaced(serve: Serve) -> None:
    with serve(lambda request: whole(request, closes=True)) as served:
        for _ in range(3):
            assert storage.read_version("gs://b/x", "7") == BODY
            time.sleep(0.02)
    assert len(served.requests) == 3


def test_connections_reset_by_the_storage_are_replaced(shared: Bucket, proxy: Proxy) -> None:
    for action in ("drop", "lose", "cut"):
        with proxy.watch(lambda request, action=action: Fault(action) if request.attempt < 2 else None):
            assert storage.read_bytes(f"{shared.url}/small/ant/000.jpg") == shared.get("small/ant/000.jpg")


def test_a_redirect_is_followed(serve: Serve) -> None:
    moved = Response(b"moved", 307, headers=(("Location", "/elsewhere?alt=media"),))
    with serve(first(moved)) as served:
        assert storage.read_bytes("gs://b/x") == BODY
    assert served.requests[1].path == "/elsewhere"


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
    with scripted(whole) as (url, served):
        monkeypatch.setenv("API_ENDPOINT_OVERRIDE", url)
        yield token, served


def test_threads_share_one_token(real: tuple[Token, Scripted]) -> None:
    token, served = real
    with ThreadPoolExecutor(16) as executor:
        list(executor.map(lambda _: storage.read_version("gs://b/x", "7"), range(64)))
    assert token.refreshed == 1
    assert {request.headers["authorization"] for request in served.requests} == {"Bearer token-1"}


def test_a_token_that_expires_is_renewed_before_the_request(real: tuple[Token, Scripted]) -> None:
    token, served = real
    token.seconds = 60.0  # less than google-auth wants
    storage.read_version("gs://b/x", "7")
    storage.read_version("gs://b/x", "7")
    assert [request.headers["authorization"] for request in served.requests] == [
        "Bearer token-1",
        "Bearer token-2",
    ]


def test_a_refused_token_is_renewed_once(real: tuple[Token, Scripted]) -> None:
    token, served = real
    served.script = lambda request: (
        Response(b"", 401) if request.headers["authorization"] == "Bearer token-1" else whole(request)
    )
    with ThreadPoolExecutor(16) as executor:
        assert set(executor.map(lambda _: storage.read_version("gs://b/x", "7"), range(64))) == {BODY}
    assert token.refreshed == 2
    served.script, served.requests = lambda request: Response(b"Invalid Credentials", 401), []
    with pytest.raises(EngineError, match="there are no valid credentials for Google Cloud"):
        storage.read_version("gs://b/x", "7")
    assert len(served.requests) == 2


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
    assert storage.read_version("gs://b/x", "7") == BODY and len(served.requests) == 1
    token.token = None
    faults.append(RefreshError("revoked"))
    with pytest.raises(EngineError, match="there are no valid credentials"):
        storage.read_version("gs://b/x", "7")


def test_reads_act_as_the_impersonated_account(
    real: tuple[Token, Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All requests carry the token of the last account, which the first one asks for."""
    _, served = real
    bodies = []

    def script(request: Request) -> Response:
        if "generateAccessToken" not in request.path:
            return whole(request) if request.method == "GET" else Response(b"{}")
        bodies.append((request.path, request.headers.get("authorization")))
        return Response(json.dumps({"accessToken": "theirs", "expireTime": "2100-01-01T00:00:00Z"}).encode())

    served.script = script
    monkeypatch.setattr(iam, "_IAM_ENDPOINT", os.environ["API_ENDPOINT_OVERRIDE"] + "/{}:generateAccessToken")
    options = ["--impersonate_service_account=one@p,two@p", "--gcs_user_project=payer"]
    FileSystems.set_options(PipelineOptions(options))
    assert storage.read_version("gs://b/x", "7") == BODY == storage.read_bytes("gs://b/x")
    storage.remove("gs://b/x")
    assert bodies == [("/two@p:generateAccessToken", "Bearer token-1")]
    sent = [item for item in served.requests if "generateAccessToken" not in item.path]
    assert {item.headers["authorization"] for item in sent} == {"Bearer theirs"}
    assert [item.query["userProject"] for item in sent] == ["payer"] * 3


def test_a_large_folder_is_listed_in_ranges(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_listing, "_PAGES_ALONE", 1)
    names = [f"d/caf\u00e9 {number:03}.jpg" for number in range(60)]

    def script(request: Request) -> Response:
        found = [name for name in names if name >= request.query.get("startOffset", "")]
        begin = int(request.query.get("pageToken", 0))
        items = [
            {"name": name, "bucket": "b", "generation": "7", "size": "1", "crc32c": "AAAAAA=="}
            for name in found[begin : begin + 4]
        ]
        more = {"nextPageToken": str(begin + 4)} if begin + 4 < len(found) else {}
        return Response(json.dumps({"items": items, **more}).encode())

    with serve(script) as served:
        listed = sorted(item.path for item in storage.list_objects("gs://b/d", requests=4))
        assert listed == [f"gs://b/{name}" for name in names]
        assert sum("startOffset" in request.query for request in served.requests) > 2
        assert all(request.query["prefix"] == "d/" for request in served.requests)


def test_the_payer_is_named_in_every_request(serve: Serve, tmp_path: Path) -> None:
    resource = {"name": "x", "bucket": "b", "generation": "7", "size": "1", "crc32c": "AAAAAA=="}

    def script(request: Request) -> Response:
        if request.query.get("alt") == "media":
            return whole(request)
        if request.is_listing:
            return Response(json.dumps({"items": [resource]}).encode())
        done = {
            **resource, "done": True, "resource": resource, "totalBytesRewritten": "1", "objectSize": "1"
        }  # fmt: skip
        return Response(json.dumps(done).encode())

    file = tmp_path / "file"
    with serve(script) as served:
        FileSystems.set_options(PipelineOptions(["--gcs_user_project=payer"]))
        storage.read_bytes("gs://b/x")
        storage.read_range("gs://b/x", 0, 5)
        read_copy("gs://b/x")
        storage.stat("gs://b/x")
        storage.modified_at("gs://b/x")
        list(storage.list_objects("gs://b/d"))
        storage.list_folders("gs://b/d")
        storage.copy_files("gs://b/d", "gs://b/e", ["x"])
        storage.remove("gs://b/x")
        storage.remove_if_match("gs://b/x", "7")
        for write in (
            lambda: storage.write_bytes("gs://b/x", b""),
            lambda: storage.write_if_match("gs://b/x", b"", None),
            lambda: storage.move_into_place(str(file), "gs://b/x"),
        ):
            file.write_bytes(b"")
            write()
    assert len(served.requests) == 13
    assert {request.query.get("userProject") for request in served.requests} == {"payer"}, served.requests


def test_commands_name_the_payer(
    capfd: pytest.CaptureFixture[str], shared: Bucket, bucket: Bucket, proxy: Proxy
) -> None:
    payer = ("--gcs_user_project", "payer")
    with proxy.watch():
        made = run(capfd, "convert", f"{shared.url}/small", f"{bucket.url}/out", *payer)
        read = run(capfd, "inspect", f"{bucket.url}/out", *payer)
        assert (made.code, read.code) == (0, 0)
        kinds = {request.kind for request in proxy.requests}
        assert kinds >= {"list", "media", "stat", "upload", "delete"}
        assert {request.query.get("userProject") for request in proxy.requests} == {"payer"}


def test_a_wrong_certificate_is_not_accepted(
    monkeypatch: pytest.MonkeyPatch, serve: Serve, tmp_path: Path
) -> None:
    tls, certificate = self_signed(tmp_path)
    with serve(whole, tls=tls) as served:
        with pytest.raises(EngineError, match=r"certificate of the server .* set REQUESTS_CA_BUNDLE"):
            storage.read_version("gs://b/x", "7")
        assert not served.requests
        for name in gcs_media._CERTIFICATES:
            monkeypatch.setattr(gcs, "_made", None)
            with monkeypatch.context() as patch:
                patch.setenv(name, str(certificate))
                assert storage.read_version("gs://b/x", "7") == BODY


def self_signed(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """Returns the settings of a server with a new certificate, and the certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, False)
        .add_extension(x509.BasicConstraints(True, None), True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "certificate.pem"
    pem = serialization.Encoding.PEM
    path.write_bytes(made.public_bytes(pem))
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(private)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(path, folder / "key.pem")
    return tls, path


def test_proxies_of_the_environment_are_used(monkeypatch: pytest.MonkeyPatch, serve: Serve) -> None:
    with serve(whole) as served:
        monkeypatch.setenv("http_proxy", os.environ["STORAGE_EMULATOR_HOST"])
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://storage.invalid:1")
        assert storage.read_version("gs://b/x", "7") == BODY
        assert served.requests[0].headers["Host"] == "storage.invalid:1"
        monkeypatch.setenv("no_proxy", "storage.invalid")
        monkeypatch.setattr(gcs, "FIRST_RETRY_SECONDS", 0.1)
        monkeypatch.setattr(gcs, "RETRY_SECONDS", 0.1)
        with pytest.raises(EngineError, match="does not answer"):
            storage.read_version("gs://b/x", "7")


@pytest.mark.parametrize("variable", ["https_proxy", "HTTPS_PROXY", "ALL_PROXY"])
def test_tls_goes_through_the_tunnel_of_a_proxy(
    monkeypatch: pytest.MonkeyPatch, serve: Serve, tmp_path: Path, variable: str
) -> None:
    tls, certificate = self_signed(tmp_path)
    with serve(whole, tls=tls) as served:
        server = urlsplit(os.environ["STORAGE_EMULATOR_HOST"])
        assert server.hostname and server.port
        with tunnels((server.hostname, server.port)) as (proxy, opened):
            monkeypatch.setenv(variable, proxy)
            with pytest.raises(EngineError, match="certificate of the server"):
                storage.read_version("gs://b/x", "7")
            assert len(opened.requests) == 1 and not served.requests, "a wrong certificate is not tried again"
            monkeypatch.setattr(gcs, "_made", None)
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
            assert storage.read_version("gs://b/x", "7") == BODY
            assert storage.read_version("gs://b/y", "7") == BODY
            assert len(served.requests) == 2
            assert opened.requests == [f"{server.hostname}:{server.port}"] * 2, "the connection is kept"


def test_a_proxy_that_opens_no_tunnel_ends_the_read(
    monkeypatch: pytest.MonkeyPatch, serve: Serve, tmp_path: Path
) -> None:
    monkeypatch.setattr(gcs, "FIRST_RETRY_SECONDS", 0.2)
    tls, _ = self_signed(tmp_path)
    with serve(whole, tls=tls) as served, tunnels(("127.0.0.1", 1), status=407) as (proxy, opened):
        monkeypatch.setenv("https_proxy", proxy)
        with pytest.raises(EngineError, match=r"does not answer.*407"):
            storage.read_version("gs://b/x", "7")
        assert opened.requests and not served.requests


def test_the_storage_may_have_an_address_of_version_6(serve: Serve) -> None:
    try:
        with serve(whole, host="::1"):
            assert storage.read_version("gs://b/x", "7") == BODY
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")


def test_a_fork_leaves_the_connections_of_its_parent_alone(serve: Serve) -> None:
    with serve(whole) as served:
        assert storage.read_version("gs://b/x", "7") == BODY
        child = os.fork()
        if child == 0:
            ok = storage.read_version("gs://b/x", "7") == BODY
            os._exit(0 if ok else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert storage.read_version("gs://b/x", "7") == BODY
    assert len(served.requests) == 3


def test_a_signal_ends_a_read(serve: Serve) -> None:
    class Interrupted(BaseException):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with serve(lambda request: Response(head=30.0)), pytest.raises(Interrupted):
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            storage.read_version("gs://b/x", "7")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_full_disk_is_no_fault_of_the_storage(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(download: gcs_media.Download, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gcs_media.Download, "take", full)
    with serve(whole) as served, pytest.raises(OSError, match="No space left") as raised:
        read_copy("gs://b/x")
    assert not isinstance(raised.value, EngineError) and len(served.requests) == 1


@pytest.mark.parametrize("without", ["libcurl", "poll", "certificate"])
def test_google_s_own_client_reads_where_libcurl_cannot(
    monkeypatch: pytest.MonkeyPatch, shared: Bucket, proxy: Proxy, without: str
) -> None:
    if without == "libcurl":
        monkeypatch.setattr(gcs_media, "pycurl", None)
    elif without == "poll":  # as on Windows
        monkeypatch.setattr(gcs_media, "_HAS_POLL", False)
    else:
        monkeypatch.setenv("GOOGLE_API_USE_CLIENT_CERTIFICATE", "true")
    name = "small/ant/000.jpg"
    path, data = f"{shared.url}/{name}", shared.get(name)
    found = storage.stat(path)
    assert found and gcs._access().media is None
    with proxy.watch(lambda request: Fault("flip") if request.attempt == 0 else None):
        assert storage.read_bytes(path) == data == read_copy(path)
    with proxy.watch(lambda request: Fault("cut") if request.attempt == 0 else None):
        assert storage.read_version(path, found.version) == data
        assert storage.read_range(path, 5, 10, found.size, found.version) == data[5:15]
    assert storage.read_range(path, 10**6, 10) == b""
    with pytest.raises(FileNotFoundError):
        storage.read_bytes(f"{path}x")


def test_the_address_is_the_one_of_google_s_client(monkeypatch: pytest.MonkeyPatch) -> None:
    assert endpoint(GcsAccess()) == "https://storage.googleapis.com"
    assert endpoint(GcsAccess("localhost:9")) == "http://localhost:9"
    monkeypatch.setenv("GOOGLE_CLOUD_UNIVERSE_DOMAIN", "example.test")
    assert endpoint(GcsAccess()) == "https://storage.example.test"


def test_a_pure_read_does_not_import_the_heavy_client(serve: Serve) -> None:
    code = (
        "import sys\n"
        "from shardwright.transforms import storage\n"
        "data = storage.read_version('gs://b/x', '7') + storage.read_bytes('gs://b/x')\n"
        "assert [item.path for item in storage.list_objects('gs://b')] == ['gs://b/x']\n"
        "assert storage.stat('gs://b/x').size == 1\n"
        "heavy = {'google.cloud.storage', 'google.api_core', 'requests', 'apache_beam', 'grpc'}\n"
        "print(len(data), *sorted(heavy & set(sys.modules)))\n"
    )
    item = {"name": "x", "size": "1"}

    def script(request: Request) -> Response:
        if request.query.get("alt") == "media":
            return whole(request)
        return Response(json.dumps({"items": [item]} if request.is_listing else item).encode())

    with serve(script):
        done = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=dict(os.environ)
        )
    assert done.stdout.split() == [str(2 * len(BODY))]
