"""Objects of unknown size are not read to their end if they are larger than --max_bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from helpers.storage.azurite import Container
from helpers.storage.scripted import Request, Response, Scripted, Serve, scripted

from shardwright.schemas.errors import EngineError, ImageFault
from shardwright.schemas.image_ref import ImageRef
from shardwright.transforms import storage
from shardwright.transforms.images.read import map_refs, read_image
from shardwright.transforms.storage import beam_files, gcs_media, retrying_client, s3

LIMIT = 10**6
SMALL = bytes(1000)


def answer(request: Request) -> Response:
    """A server that ends the connection early: who reads a large object to its end fails."""
    if "huge" in request.path:
        return Response(bytes(LIMIT + 1), only=2000)
    return Response(SMALL, headers=(("ETag", '"1-1"'),))


def read(uri: str) -> bytes:
    return read_image(ref_of(uri), LIMIT)


def ref_of(uri: str) -> ImageRef:
    return ImageRef(uri.rpartition("/")[2], uri)


def assert_too_large(uri: str) -> None:
    with pytest.raises(ImageFault, match=r"more than 1.0 MB; raise --max_bytes") as caught:
        read(uri)
    assert caught.value.reason == "TOO_LARGE"


@pytest.fixture
def amazon(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setattr(retrying_client, "_RETRY_FIRST", 0.01)
    monkeypatch.setattr(s3._sdk, "_made", (None, None))
    monkeypatch.setattr(FileSystems, "_pipeline_options", None)
    with scripted(answer) as (url, server):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        yield server


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize("has_libcurl", [True, False])
def test_on_google(serve: Serve, monkeypatch: pytest.MonkeyPatch, has_libcurl: bool) -> None:
    if not has_libcurl:
        monkeypatch.setattr(gcs_media, "pycurl", None)
    with serve(lambda request: Response(bytes(LIMIT + 1)) if "huge" in request.path else answer(request)):
        assert_too_large("gs://b/huge.jpg")
        assert read("gs://b/small.jpg") == SMALL
        assert len(storage.read_bytes("gs://b/huge.jpg")) == LIMIT + 1


@pytest.mark.usefixtures("short_pauses")
def test_on_google_the_length_is_enough(serve: Serve) -> None:
    pytest.importorskip("pycurl", reason="pycurl has no wheel for this system")
    with serve(answer) as served:
        assert_too_large("gs://b/huge.jpg")
        assert read("gs://b/small.jpg") == SMALL
    assert len(served.requests) == 2


@pytest.mark.usefixtures("short_pauses")
def test_on_google_requests_sent_ahead_have_the_limit(serve: Serve) -> None:
    pytest.importorskip("pycurl", reason="pycurl has no wheel for this system")

    def size_of(ref: ImageRef) -> int:
        try:
            return len(read_image(ref, LIMIT))
        except ImageFault as fault:
            assert fault.reason == "TOO_LARGE"
            return -1

    refs = [ref_of(f"gs://b/{name}{number}.jpg") for number in range(10) for name in ("huge", "small")]
    with serve(answer) as served:
        assert [*map_refs(size_of, refs, LIMIT)] == [-1, 1000] * 10
    assert len(served.requests) == len(refs)


def test_on_amazon(amazon: Scripted) -> None:
    for _ in range(2):  # boto3 reads first, then obstore
        assert read("s3://b/small.jpg") == SMALL
        assert_too_large("s3://b/huge.jpg")


def test_on_azure(container: Container) -> None:
    storage.use_options(PipelineOptions(list(container.options)))
    container.put("huge.jpg", bytes(LIMIT + 1))
    container.put("small.jpg", SMALL)
    assert_too_large(f"{container.url}/huge.jpg")
    assert read(f"{container.url}/small.jpg") == SMALL


def test_on_storages_that_beam_knows(tmp_path: Path) -> None:
    for size in (LIMIT, LIMIT + 1):
        (tmp_path / f"{size}.jpg").write_bytes(bytes(size))
    assert len(beam_files.read_bytes(str(tmp_path / f"{LIMIT}.jpg"), limit=LIMIT)) == LIMIT
    with pytest.raises(storage.ObjectTooLarge):
        beam_files.read_bytes(str(tmp_path / f"{LIMIT + 1}.jpg"), limit=LIMIT)


@pytest.mark.usefixtures("short_pauses")
def test_a_cut_transfer_of_a_small_object_is_no_large_one(serve: Serve) -> None:
    cut = Response(SMALL, cut=1)
    with serve(lambda request: cut if request.number == 0 else Response(SMALL)):
        assert read("gs://b/small.jpg") == SMALL
    with serve(lambda request: Response(b"no", 400)), pytest.raises(EngineError):
        read("gs://b/small.jpg")
