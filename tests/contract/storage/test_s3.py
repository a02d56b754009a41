"""What only S3 has, on a scripted server."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from helpers.hostile import run, sentence_of
from helpers.repository import put_script
from helpers.storage.imitation import Imitation
from helpers.storage.scripted import Request, Response
from helpers.trees import put_files
from hypothesis import example, given
from hypothesis import strategies as st

from shardwright.core import storage
from shardwright.core.storage import object_store
from shardwright.schemas.errors import EngineError

Capture = pytest.CaptureFixture[str]


def test_a_missing_obstore_is_reported(capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    storage._store_for.cache_clear()
    for module in ("s3", "object_store"):
        monkeypatch.delitem(sys.modules, f"shardwright.core.storage.{module}", raising=False)
    monkeypatch.setitem(sys.modules, "obstore", None)
    done = run(capfd, "plan", "--input", "s3://bucket/small")
    assert "s3:// needs obstore; install it with `pip install" in sentence_of(done, 2)


def test_missing_credentials_are_reported(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_PROFILE", "empty")
    put_files(tmp_path, {".aws/config": b"[profile empty]"})
    options = ("--s3_endpoint_url=http://127.0.0.1:9", "--s3_region_name=us-east-1")
    done = run(capfd, "plan", "--input", "s3://bucket/small", *options)
    assert "there are no valid credentials for S3; run `aws configure`" in sentence_of(done, 3)
    monkeypatch.setenv("AWS_PROFILE", "pord")
    done = run(capfd, "plan", "--input", "s3://bucket/small", *options)
    assert "There is no profile pord for s3://" in sentence_of(done, 3)


def test_credentials_that_were_refused_are_asked_for_again(
    serve: Imitation, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal, hold = Response(b"<Error><Code>ExpiredToken</Code></Error>", 400), serve.holding(b"1")
    with serve.serve(lambda request: hold(request) if request.number else refusal) as served:
        with pytest.raises(EngineError, match="does not accept the credentials"):
            storage.read_bytes("s3://b/a")
        monkeypatch.setenv("AWS_SESSION_TOKEN", "renewed")
        assert storage.read_bytes("s3://b/a") == b"1"
    assert served.requests[-1].headers["x-amz-security-token"] == "renewed"


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
def test_names_that_obstore_changes_are_known(name: str) -> None:
    import obstore
    from obstore.store import MemoryStore

    memory: Any = MemoryStore()
    try:
        obstore.put(memory, name, b"")
        kept = [item["path"] for page in obstore.list(memory) for item in page] == [name]
    except Exception:
        kept = False
    assert object_store.keeps_name(name) == (kept and name != "")


@pytest.fixture
def serve(imitation_of: Callable[[str], Imitation]) -> Imitation:
    """Serves scripts as S3."""
    return imitation_of("s3")


def test_tags_that_are_no_checksums_are_recognized(serve: Imitation) -> None:
    """A key of the owner gives other ETags: the same bytes twice are right, and then one read suffices."""
    tag = "0" * 32
    with serve.serve(serve.holding(b"picture", tag)) as served:
        for count in (2, 3):
            assert storage.read_bytes("s3://b/a", tag) == b"picture" and len(served.requests) == count


def test_faults_have_messages(serve: Imitation) -> None:
    answers = {
        r"does not accept the credentials .InvalidAccessKeyId.; run `aws": Response(
            b"<Error><Code>InvalidAccessKeyId</Code></Error>", 403
        ),
        "there is no bucket b; check its name": Response(b"<Error><Code>NoSuchBucket</Code></Error>", 404),
        "name the region of the bucket with --s3_region_name": Response(status=301),
    }
    for message, answer in answers.items():
        with (
            serve.serve(lambda request, answer=answer: answer),
            pytest.raises(EngineError, match=message),
        ):
            storage.read_bytes("s3://b/a")


def test_a_storage_without_conditions_is_reported(serve: Imitation) -> None:
    answer = Response(b"<Error><Code>NotImplemented</Code></Error>", 501)
    with serve.serve(lambda request: answer), pytest.raises(storage.NoConditions, match="conditional"):
        storage.write_if_match("s3://b/latest.json", b"{}", None)


def test_conflicting_writes_are_sent_again(serve: Imitation) -> None:
    conflict = Response(b"<Error><Code>ConditionalRequestConflict</Code></Error>", 409)
    hold = serve.holding(b"")
    with serve.serve(lambda request: conflict if request.number == 0 else hold(request)) as served:
        assert storage.write_if_match("s3://b/latest.json", b"{}", None) and len(served.requests) == 2


def test_a_flat_folder_is_listed_as_a_stream(serve: Imitation, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first names of a folder without end are there after a few requests."""
    monkeypatch.setattr(object_store, "PAGE", 2)

    def script(request: Request) -> Response:
        number = request.number
        return Response(serve.page(f"in/{number:07}a", f"in/{number:07}b", token=f"{number}"))

    with serve.serve(script) as served:
        files, folders = storage.list_level("s3://b/in", 10)
    assert len(files) == 10 and folders is None and len(served.requests) <= 8


def test_a_notebook_can_list(serve: Imitation) -> None:
    """A notebook runs an event loop in its main thread."""
    folder = b"<CommonPrefixes><Prefix>in/ant/</Prefix></CommonPrefixes></ListBucketResult>"
    page = serve.page("in/ant/a.png").replace(b"</ListBucketResult>", folder)

    async def cell() -> list[str]:
        return storage.list_folders("s3://b/in")

    with serve.serve(lambda request: Response(page)):
        assert asyncio.run(cell()) == ["ant"]


def test_a_child_of_fork_is_refused(serve: Imitation) -> None:
    with serve.serve(serve.holding(b"1")):
        assert storage.exists("s3://b/a")
        child = multiprocessing.get_context("fork").Process(target=_read_as_child)
        child.start()
        child.join(30)
    assert child.exitcode == 0


def _read_as_child() -> None:
    with pytest.raises(EngineError, match='multiprocessing_context="forkserver"'):
        storage.read_bytes("s3://b/a")


def test_options_go_before_the_environment(serve: Imitation, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve.serve(serve.holding(b"1")) as served:
        given = {"endpoint_url": os.environ["AWS_ENDPOINT_URL_S3"], "access_key_id": "mine"}
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
        given |= {"secret_access_key": "s", "session_token": "token"}
        FileSystems.set_options(PipelineOptions([f"--s3_{name}={value}" for name, value in given.items()]))
        assert storage.exists("s3://b/a")
    (request,) = served.requests
    assert "Credential=mine/" in request.headers["Authorization"]
    assert request.headers["x-amz-security-token"] == "token"


PRINTED = {"Version": 1, "AccessKeyId": "A%", "SecretAccessKey": "s", "SessionToken": "t"}


@pytest.mark.parametrize("kind", ["keys", "credential_process", "sso", "role"])
def test_credentials_come_from_a_profile(
    serve: Imitation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """Amazon's command line, or the program of the profile, prints credentials that live for a while."""
    log, printed, program = tmp_path / "log", tmp_path / "printed", tmp_path / "aws"
    expiration = "2099-01-01T00:00:00" + ("" if kind == "role" else "Z")  # without a zone, it is local time
    printed.write_text(json.dumps({**PRINTED, "Expiration": expiration}))
    put_script(program, f"echo called >> {log}\ncat {printed}\n")
    lines = {
        "keys": "aws_access_key_id = A%\naws_secret_access_key = s\n",
        "credential_process": f"credential_process = {program} --with 'a space'\n",
        "sso": "sso_session = mine\n",
        "role": "aws_access_key_id = B\naws_secret_access_key = s\nsource_profile = p\nrole_arn = r\n",
    }
    (tmp_path / "credentials").write_text("[p]\n" + lines[kind])
    (tmp_path / "config").write_text("[profile p]\nregion = eu-west-3\n[default]\nregion = other\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("AWS_PROFILE", "p")
    with serve.serve(serve.holding(b"1")) as served:
        for _ in range(2):
            storage.read_bytes("s3://b/a")
    for request in served.requests:
        signature = request.headers["Authorization"]
        assert "Credential=A%/" in signature and "/eu-west-3/s3/" in signature
        assert request.headers.get("x-amz-security-token") == (None if kind == "keys" else "t")
    assert kind == "keys" or log.read_text() == "called\n"
    for wrong in ("nothing", "[]", '{"Expiration": 1}') if kind != "keys" else ():
        printed.write_text(wrong)
        storage._store_for.cache_clear()
        with serve.serve(serve.holding(b"1")), pytest.raises(EngineError, match="could not be had: `"):
            storage.read_bytes("s3://b/a")
