"""Reads through obstore: the same bytes and the same faults as through the storage's own client."""

from __future__ import annotations

import hashlib
import multiprocessing
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from apache_beam.io.filesystems import FileSystems
from helpers.storage.amazon import S3
from helpers.storage.scripted import Request, Response, Scripted, scripted
from hypothesis import example, given
from hypothesis import strategies as st

from shardwright.schemas.errors import EngineError
from shardwright.transforms import storage
from shardwright.transforms.storage import quick_reads, retrying_client, s3

obstore = pytest.importorskip("obstore", reason="obstore is not installed")
BODY = bytes(range(256)) * 40
MD5 = hashlib.md5(BODY).hexdigest()
Serve = Callable[[Callable[[Request], Response]], Scripted]


def good(body: bytes = BODY, etag: str = MD5, **more: Any) -> Response:
    return Response(body, headers=(("ETag", f'"{etag}"'),), **more)


def is_quick(request: Request) -> bool:
    return request.agent.startswith("object_store")


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Serves a script as S3; boto3 has read an object of the bucket `b`, so obstore is next."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setattr(retrying_client, "_RETRY_FIRST", 0.01)
    monkeypatch.setattr(s3, "_ATTEMPTS_IN_CLIENT", 1)
    monkeypatch.setattr(s3._sdk, "_made", (None, None))
    monkeypatch.setattr(FileSystems, "_pipeline_options", None)
    with scripted(lambda request: good()) as (url, server):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)

        def begin(script: Callable[[Request], Response]) -> Scripted:
            server.script = lambda request: good()
            assert storage.read_bytes("s3://b/first") == BODY
            assert not is_quick(server.requests[-1])
            server.requests.clear()
            server.script = script
            return server

        yield begin


def test_reads_are_quick_after_the_first_one(serve: Serve) -> None:
    server = serve(lambda request: good())
    assert storage.read_version("s3://b/a b%é.jpg", MD5) == BODY
    assert storage.read_bytes("s3://b/a") == BODY
    assert [(is_quick(request), request.path) for request in server.requests] == [
        (True, "/b/a%20b%25%C3%A9.jpg"),
        (True, "/b/a"),
    ]
    for other in ("a//b", "/a", "a/", "a/../b", "a\tb"):
        assert storage.read_version(f"s3://b/{other}", MD5) == BODY
        assert not is_quick(server.requests[-1])


def test_ranges_are_quick(serve: Serve) -> None:
    part = Response(
        BODY[10:30], 206, headers=(("ETag", '"e-2"'), ("Content-Range", f"bytes 10-29/{len(BODY)}"))
    )
    server = serve(lambda request: part)
    assert storage.read_range("s3://b/a", 10, 20, len(BODY), "e-2") == BODY[10:30]
    assert [is_quick(request) for request in server.requests] == [True]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "bad",
    [
        *(Response(status=status) for status in (503, 429, 500, 400, 401, 403, 404, 412, 204)),
        Response(status=301, headers=(("Location", "http://127.0.0.1:9/"),)),
        good(cut=100), good(etag="0" * 32), good(BODY[:-1]), good(BODY[:-1] + b"x"), Response(BODY),
        Response(b"<html>Please log in</html>"),
    ],
    ids=[
        "503", "429", "500", "400", "401", "403", "404", "412", "204", "elsewhere",
        "cut", "other tag", "shorter", "damaged", "no tag", "login",
    ],
)  # fmt: skip
def test_a_quick_read_that_fails_is_read_again_by_the_own_client(serve: Serve, bad: Response) -> None:
    server = serve(lambda request: bad if is_quick(request) else good())
    assert storage.read_version("s3://b/a", MD5) == BODY
    assert [is_quick(request) for request in server.requests] == [True, False]


def test_a_range_of_another_place_is_read_again(serve: Serve) -> None:
    def script(request: Request) -> Response:
        begin = 0 if is_quick(request) else 10
        tags = (("ETag", '"e"'), ("Content-Range", f"bytes {begin}-{begin + 19}/{len(BODY)}"))
        return Response(BODY[begin : begin + 20], 206, headers=tags)

    server = serve(script)
    assert storage.read_range("s3://b/a", 10, 20, len(BODY), "e") == BODY[10:30]
    assert [is_quick(request) for request in server.requests] == [True, False]


def test_faults_have_the_messages_of_the_own_client(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(lambda request: Response(status=404))
    with pytest.raises(FileNotFoundError):
        storage.read_version("s3://b/a", MD5)
    server.script = lambda request: Response(status=403)
    with pytest.raises(PermissionError):
        storage.read_version("s3://b/a", MD5)
    server.script = lambda request: good(b"", "e2") if request.method == "HEAD" else Response(status=412)
    with pytest.raises(EngineError, match="changed while the job was reading"):
        storage.read_range("s3://b/a", 0, 10, 100, MD5)
    server.script = lambda request: Response(status=503)
    monkeypatch.setattr(retrying_client, "RETRY_SECONDS", 0.3)
    with pytest.raises(EngineError, match="S3 answers with 503 again and again"):
        storage.read_version("s3://b/a", MD5)


def test_tags_that_are_no_checksums_leave_a_bucket_to_its_own_client(serve: Serve) -> None:
    server = serve(lambda request: good(etag="0" * 32))  # as with a key of the key management service
    for _ in range(quick_reads.FAILURES + 2):
        assert storage.read_version("s3://b/a", "0" * 32) == BODY
    assert sum(map(is_quick, server.requests)) == quick_reads.FAILURES
    server = serve(lambda request: good(etag="0" * 30 + "-2"))  # sent in parts
    server.requests.clear()
    assert storage.read_version("s3://b/a", "0" * 30 + "-2") == BODY
    assert not any(map(is_quick, server.requests))


def test_a_rest_ends(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick_reads, "FIRST_REST_SECONDS", 0.05)
    server = serve(lambda request: Response(status=500) if is_quick(request) else good())
    for _ in range(quick_reads.FAILURES):
        storage.read_version("s3://b/a", MD5)
    server.script = lambda request: good()
    threading.Event().wait(0.06)
    server.requests.clear()
    storage.read_version("s3://b/a", MD5)
    assert [is_quick(request) for request in server.requests] == [True]


def test_an_operation_with_little_time_is_not_quick(serve: Serve) -> None:
    server = serve(lambda request: good())
    with storage.at_most(5):
        assert storage.read_version("s3://b/a", MD5) == BODY
    assert not any(map(is_quick, server.requests))


def test_a_missing_obstore_changes_nothing(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    server = serve(lambda request: good())
    assert storage.read_version("s3://b/a", MD5) == BODY
    assert not any(map(is_quick, server.requests))


def test_a_child_of_fork_reads_with_the_own_client(serve: Serve) -> None:
    server = serve(lambda request: good())
    assert storage.read_version("s3://b/a", MD5) == BODY
    context = multiprocessing.get_context("fork")
    child = context.Process(target=_read_as_child)
    child.start()
    child.join(30)
    alive = child.is_alive()
    if alive:
        child.kill()
    assert not alive and child.exitcode == 0
    assert [is_quick(request) for request in server.requests] == [True, False]


def _read_as_child() -> None:
    s3._sdk.forget()  # connections of the parent
    assert storage.read_version("s3://b/a", MD5) == BODY


names = st.lists(
    st.sampled_from(["/", ".", "..", "a", "%", "%2F", " ", "\x7f", "\n", "é", "#", "?", "\\", "🐝", "\x85"])
    | st.text(max_size=3),
    max_size=6,
).map("".join)  # fmt: skip


@given(names)
@example("a//b")
@example("/a")
@example("a/")
@example("a/./b")
@example("...")
@example("")
def test_only_names_that_obstore_keeps_are_quick(name: str) -> None:
    from obstore.store import MemoryStore

    store: Any = MemoryStore()
    try:
        obstore.put(store, name, b"")
        kept = [item["path"] for page in obstore.list(store) for item in page] == [name]
    except Exception:
        kept = False
    assert quick_reads.keeps_name(name) == (kept and name != "")


@pytest.mark.parametrize(
    ("url", "authorization", "verify", "expected"),
    [
        ("http://host:90/b/a", "/20261123/r/s3/aws4_request", True, ("http://host:90", False, "r")),
        ("https://b.s3.eu-west-1.amazonaws.com/b/a", "/20261123/eu-west-1/s3/aws4_request", True,
         ("https://b.s3.eu-west-1.amazonaws.com", True, "eu-west-1")),
        ("https://host/under/b/a", "/20261123/r/s3/aws4_request", True, None),
        ("https://host/b/a", "/20261123/r/s3express/aws4_request", True, None),
        ("https://host/b/a", "", True, None),
        ("http://host/b/a", "/20261123/r/s3/aws4_request", False, ("http://host", False, "r")),
        ("https://host/b/a", "/20261123/r/s3/aws4_request", "/etc/own.pem", None),
        ("https://host/b/a", "/20261123/r/s3/aws4_request", False, None),
    ],
)  # fmt: skip
def test_the_address_is_the_one_of_boto3(
    url: str, authorization: str, verify: Any, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    def store(bucket: str, **settings: Any) -> Any:
        made.append(
            tuple(settings[key] for key in ("aws_endpoint_url_s3", "virtual_hosted_style_request", "region"))
        )
        return SimpleNamespace()

    monkeypatch.setattr("obstore.store.S3Store", store)
    headers = {
        "Authorization": f"AWS4-HMAC-SHA256 Credential=a/b{authorization}, SignedHeaders=host".encode()
    }
    monkeypatch.setattr(s3._sent, "request", SimpleNamespace(url=url, headers=headers), raising=False)
    client = SimpleNamespace(
        _request_signer=SimpleNamespace(_credentials=object()),
        _endpoint=SimpleNamespace(http_session=SimpleNamespace(_verify=verify)),
    )
    assert (s3._quick_reader(client, "b") is None) == (expected is None)
    assert made == ([expected] if expected else [])


def test_temporary_credentials_are_sent(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Beam's options give is what obstore signs with."""
    from apache_beam.options.pipeline_options import PipelineOptions

    storage.use_options(PipelineOptions([*s3.options, "--s3_session_token=token"]))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "other")
    listed = [item for item in storage.list_objects(s3.url) if item.size]
    quick = list[bool]()
    read = quick_reads.QuickReader.read

    def watch(self: Any, *args: Any, **kwargs: Any) -> bytes | None:
        data = read(self, *args, **kwargs)
        quick.append(data is not None)
        return data

    monkeypatch.setattr(quick_reads.QuickReader, "read", watch)
    for item in listed:
        assert len(storage.read_version(item.path, item.version)) == item.size
    assert quick == [True] * (len(listed) - 1) and listed
