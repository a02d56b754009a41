"""Storages that die, are slow, repeat themselves or answer nonsense: every operation ends with a message."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import NamedTuple

import pytest
from apache_beam.io.filesystems import FileSystems
from helpers.storage.azurite import connection_string
from helpers.storage.scripted import (
    Request,
    Response,
    Scripted,
    amazon_page,
    azure_page,
    google_page,
    scripted,
)

from shardwright.pipelines.convert import _refusal_of
from shardwright.pipelines.progress import progress_text
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import EngineError
from shardwright.transforms import storage
from shardwright.transforms.commit import ConversionSpec
from shardwright.transforms.storage import azure, deadlines, gcs, retrying_client, s3

HTML = Response(b"<!doctype html><html><body>Please log in<br></body></html>")
#: Well-formed XML without the elements that boto3 looks for.
PAGE = Response(b"<html><body>Please log in</body></html>")


#: Module with the constants of retries, for each storage.
MODULES = {"gs": gcs, "s3": retrying_client, "az": retrying_client}
CONTACTS = {"gs": gcs._contact, "s3": s3._sdk._contact, "az": azure._sdk._contact}


class Store(NamedTuple):
    """A storage: the scheme of its paths, its pages, and a function that serves a script as this storage."""

    scheme: str
    page: Callable[..., bytes]
    serve: Callable[[Callable[[Request], Response]], AbstractContextManager[Scripted]]


@pytest.fixture(params=["gs", "s3", "az"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Each storage, with short timeouts."""
    module = MODULES[request.param]
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.4)
    monkeypatch.setattr(module, "FIRST_RETRY_SECONDS", 0.4)
    monkeypatch.setattr(module, "_RETRY_FIRST", 0.01)
    monkeypatch.setattr(module, "_RETRY_MAX", 0.1)
    monkeypatch.setattr(s3, "_ATTEMPTS_IN_CLIENT", 1)
    monkeypatch.setattr(azure, "_RETRIES_IN_CLIENT", 0)
    if request.param == "az":
        pytest.importorskip("azure.storage.blob", reason="azure-storage-blob is not installed")
    monkeypatch.setattr(FileSystems, "_pipeline_options", None)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")

    class Serving:
        def __init__(self, script: Callable[[Request], Response]) -> None:
            self._served = scripted(as_azure(script) if request.param == "az" else script)

        def __enter__(self) -> Scripted:
            url, made = self._served.__enter__()
            monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
            monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
            monkeypatch.setattr(s3._sdk, "_made", (None, None))
            monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection_string(url))
            monkeypatch.setattr(azure._sdk, "_made", (None, None))
            return made

        def __exit__(self, *args: object) -> None:
            self._served.__exit__(None, None, None)

    page = {"gs": google_page, "s3": amazon_page, "az": azure_page}[request.param]
    return Store(request.param, page, Serving)


def as_azure(script: Callable[[Request], Response]) -> Callable[[Request], Response]:
    """Adds the headers that Azure sends, and that its client requires."""

    def answer(request: Request) -> Response:
        response = script(request)
        size = len(response.body)
        kind, place = ("Content-Type", "application/xml"), ("Content-Range", f"bytes 0-{size - 1}/{size}")
        return response._replace(headers=(*response.headers, kind, *(() if request.is_listing else (place,))))

    return answer


def paths_below(store: Store) -> list[str]:
    """Lists the bucket `b`."""
    return [item.path.rpartition("/")[2] for item in storage.list_objects(f"{store.scheme}://b")]


def ends(act: Callable[[], object]) -> str:
    """Returns the message with which an operation ends."""
    with pytest.raises(EngineError) as raised:
        act()
    return raised.value.message


@pytest.mark.sampled(7)
@pytest.mark.parametrize("bad", ["html", "page", "half", "list", "text"])
def test_an_answer_that_is_not_a_listing_is_retried(store: Store, bad: str) -> None:
    good = store.page("a", "b")
    response = {
        "html": HTML,
        "page": PAGE,
        "half": Response(good[:-9]),
        "list": Response(b"[]"),
        "text": Response(b'"a"'),
    }[bad]
    with store.serve(lambda request: response if request.number < 2 else Response(good)) as served:
        assert paths_below(store) == ["a", "b"]
        assert len(served.requests) == 3
    with store.serve(lambda request: response):
        message = ends(lambda: paths_below(store))
    name = "Azure" if store.scheme == "az" else "Google Cloud Storage"
    what = f"the answer is incomplete or not from {name}"
    if store.scheme == "s3":  # boto3 reports anything that it cannot parse as status 500
        what = "the answer is incomplete or not from S3" if bad == "page" else "S3 answers with 500"
    assert message.startswith(f"Cannot list {store.scheme}://b: {what}")
    assert "again and again" in message and "Error" not in message


def test_a_page_token_that_never_changes_ends_the_listing(store: Store) -> None:
    with store.serve(lambda request: Response(store.page("a", "b", token="more"))) as served:
        assert "the storage sends the same page again and again" in ends(lambda: paths_below(store))
    assert len(served.requests) == 2


def test_pages_without_new_objects_end_the_listing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardwright.transforms.storage.listings.MAX_EMPTY_PAGES", 5)
    with store.serve(lambda request: Response(store.page("a", token=f"token{request.number}"))) as served:
        assert "the storage sends the same page again and again" in ends(lambda: paths_below(store))
    assert len(served.requests) == 6


def test_an_object_that_is_listed_twice_counts_once(store: Store) -> None:
    pages = {"": ("a", "b", "b", "c"), "2": ("c", "d"), "3": (), "4": ("a", "e", "aa", "aa", "d", "f")}
    following = {"": "2", "2": "3", "3": "4", "4": ""}

    def script(request: Request) -> Response:
        return Response(store.page(*pages[request.token], token=following[request.token]))

    with store.serve(script):
        assert paths_below(store) == ["a", "b", "c", "d", "e", "aa", "f"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("response", [Response(status=503), Response(head=30.0)], ids=["busy", "silent"])
def test_every_operation_keeps_to_its_deadline(store: Store, response: Response) -> None:
    bucket, path = f"{store.scheme}://b", f"{store.scheme}://b/a"
    operations: list[Callable[[], object]] = [
        lambda: storage.read_bytes(path),
        lambda: storage.read_range(path, 5, 10, 100, "1"),
        lambda: storage.stat(path),
        lambda: storage.write_bytes(path, b"x" * 100_000),
        lambda: list(storage.list_objects(bucket)),
        lambda: storage.remove(path),
        lambda: storage.copy_files(bucket, f"{store.scheme}://c", ["a"]),
    ]
    with store.serve(lambda _: response) as served, ThreadPoolExecutor(len(operations)) as executor:
        for message in executor.map(ends, operations):
            assert message.startswith("Cannot ") and "--resume" in message
            assert "again and again" in message
    # Attempts must not wait for the whole of `STALL_SECONDS`, or the test would take minutes.
    assert len(served.requests) > len(operations) if response.status == 503 else served.requests


@pytest.mark.sampled(5)
@pytest.mark.parametrize("whole", [True, False], ids=["read_bytes", "open_local"])
def test_an_object_that_arrives_too_slowly_is_an_error(
    store: Store, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "STALL_SECONDS", 0.2)
    headers = (("ETag", '"e"'), ("Last-Modified", "Sat, 21 Nov 2026 10:00:00 GMT"))

    def read() -> None:
        if whole:
            storage.read_bytes(f"{store.scheme}://b/a")
        else:
            with storage.open_local(f"{store.scheme}://b/a"):
                pass

    def script(request: Request) -> Response:
        is_bytes = request.method == "GET"
        return Response(b"x" * 100_000, 200, 0.02 if is_bytes else 0, 0, headers)

    with store.serve(script):
        message = ends(read)
    assert message.startswith(
        f"Cannot read {store.scheme}://b/a: its bytes come or go at less than 4,000 a sec"
    )


def test_a_slow_connection_is_not_an_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object takes longer than the timeout, but arrives above the minimum rate."""
    monkeypatch.setattr(deadlines, "BYTES_PER_SECOND", 5)
    body = b"x" * 30
    with store.serve(lambda _: Response(body, pause=0.02, headers=(("ETag", '"e"'),))) as served:
        assert gcs_or_s3_read(store) == body
    assert len(served.requests) == 1


def gcs_or_s3_read(store: Store) -> bytes:
    """Reads an object without comparing a checksum, because the scripted object has none."""
    return storage.read_version(f"{store.scheme}://b/a", "1")


def test_a_dead_storage_may_come_back(store: Store) -> None:
    contact = CONTACTS[store.scheme]
    with store.serve(lambda request: Response(status=503)) as served:
        with pytest.raises(EngineError, match="answers with 503 again and again"):
            storage.stat(f"{store.scheme}://b/a")
        assert contact.is_dead()
        served.script = as_azure(lambda request: Response(b"x", headers=(("ETag", '"e"'),)))
        assert gcs_or_s3_read(store) == b"x" and not contact.is_dead()


class Clock:
    """A clock that tests can set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        """Returns the time."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of all deadlines."""
    made = Clock()
    monkeypatch.setattr(deadlines, "time", made)
    return made


def test_all_operations_share_the_deadline_of_a_dead_storage(clock: Clock) -> None:
    contact = deadlines.Contact(lambda answered: 180.0 if answered else 20.0)
    contact.answered()
    early = deadlines.Operation(contact, "gs://b/early")
    clock.now += 100
    assert early.may_retry(TimeoutError())
    late = deadlines.Operation(contact, "gs://b/late")
    clock.now += 79
    assert early.may_retry(TimeoutError()) and late.may_retry(TimeoutError())
    assert late.seconds_left() == deadlines.Operation(contact, "gs://b/last").seconds_left() == 1
    clock.now += 1
    assert not early.may_retry(TimeoutError()) and not late.may_retry(TimeoutError())
    assert deadlines.Operation(contact, "gs://b/later").seconds_left() == deadlines.LAST_TRY_SECONDS
    contact.alive()
    assert late.may_retry(TimeoutError()) and not early.may_retry(TimeoutError())
    assert deadlines.Operation(contact, "gs://b/later").seconds_left() == 180


def test_the_end_of_a_command_shares_a_few_seconds(clock: Clock) -> None:
    """Operations that begin after a storage died take `LAST_TRY_SECONDS` together, and then a second each."""
    contact = deadlines.Contact(lambda answered: 180.0 if answered else 20.0)
    contact.answered()
    died = clock.now
    first = deadlines.Operation(contact, "gs://b/image")
    clock.now += 180
    assert not first.may_retry(TimeoutError())
    # One after the other, all of which fail.
    for name in ("queued", "outcome.json", "dataset.json", "lease.json"):
        operation = deadlines.Operation(contact, f"gs://b/{name}")
        clock.now += operation.seconds_left()
        assert not operation.may_retry(TimeoutError())
    assert clock.now - died <= 180 + deadlines.LAST_TRY_SECONDS + 3 * deadlines.LATER_TRY_SECONDS
    clock.now += deadlines.LAST_TRY_SECONDS + 0.1  # another command of the same process
    assert deadlines.Operation(contact, "gs://b/again").seconds_left() == deadlines.LAST_TRY_SECONDS


def test_operations_at_once_share_the_last_seconds(clock: Clock) -> None:
    contact = deadlines.Contact(lambda _: 180.0)
    first = deadlines.Operation(contact, "gs://b/a")
    clock.now += 180
    assert not first.may_retry(TimeoutError())
    early = deadlines.Operation(contact, "gs://b/early")
    clock.now += 2
    late = deadlines.Operation(contact, "gs://b/late")
    assert early.seconds_left() == late.seconds_left() == deadlines.LAST_TRY_SECONDS - 2
    contact.alive()
    assert deadlines.Operation(contact, "gs://b/back").seconds_left() == 180


def test_no_pause_ends_after_the_deadline(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client of gs:// chooses its pauses at random; it stops if the longest possible one does not fit."""
    from google.api_core.exceptions import ServiceUnavailable

    slept: list[float] = []

    class Sleeper(Clock):
        def sleep(self, seconds: float) -> None:
            slept.append(seconds)
            clock.now += seconds

        def monotonic(self) -> float:
            return clock.now

    def fail() -> None:
        raise ServiceUnavailable("busy")  # type: ignore[no-untyped-call]

    monkeypatch.setattr("google.api_core.retry.retry_unary.time", Sleeper())
    monkeypatch.setattr("google.api_core.retry.retry_base.time", Sleeper())
    monkeypatch.setattr("random.uniform", lambda least, most: most)
    operation = deadlines.Operation(deadlines.Contact(lambda _: 180.0), "gs://b/a")
    start = clock.now
    with deadlines.within(operation), pytest.raises(ServiceUnavailable):
        gcs._retry()(fail)()
    assert max(slept) == gcs._RETRY_MAX and 180 - gcs._RETRY_MAX <= clock.now - start <= 180


def test_time_of_transfer_does_not_count_within_the_limit_for_the_size(clock: Clock) -> None:
    contact = deadlines.Contact(lambda _: 180.0)
    made = deadlines.Operation(contact, "gs://b/a", size=1000 * deadlines.BYTES_PER_SECOND)
    for left in (180, 180, -320):
        clock.now += 500
        made.flowed(500)
        assert made.seconds_left() == left


def test_waiting_is_shown(store: Store) -> None:
    thread = threading.Thread(target=ends, args=(lambda: storage.stat(f"{store.scheme}://b/a"),))
    with store.serve(lambda request: Response(head=30.0)):
        thread.start()
        while (wait := deadlines.longest_wait()) is None:
            time.sleep(0.01)
        assert wait[0] == f"{store.scheme}://b/a"
        thread.join()
    assert deadlines.longest_wait() is None


def test_the_line_names_the_operation_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    contact = deadlines.Contact(lambda _: 180.0)
    made = deadlines.Operation(contact, "gs://b/photos/a.jpg")
    with deadlines.within(made):
        assert "waiting" not in progress_text(0.0)
        made.quiet_since -= 45
        assert progress_text(0.0).endswith("waiting for gs://b/photos/a.jpg since 45 s")
    assert "waiting" not in progress_text(0.0)


def test_an_operation_keeps_the_shortest_given_limit() -> None:
    contact = deadlines.Contact(lambda _: 180.0)
    with deadlines.at_most(7), deadlines.at_most(10):
        assert deadlines.Operation(contact, "gs://b/a").seconds_left() <= 7
    assert 100 < deadlines.Operation(contact, "gs://b/a").seconds_left() <= 180


def test_a_run_that_failed_asks_its_storage_for_a_few_seconds_only(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RETRY_SECONDS", "FIRST_RETRY_SECONDS"):
        monkeypatch.setattr(MODULES[store.scheme], name, 180.0)
    output = f"{store.scheme}://b/out"
    seconds = []

    def script(request: Request) -> Response:
        seconds.extend(made.seconds_left() for made in list(deadlines._operations.values()))
        return Response(status=404)

    job = ConversionSpec(output, output, ConvertSettings(), {}, {}, 0.0)
    with store.serve(script):
        assert _refusal_of(job) is None
    assert seconds and max(seconds) <= storage.LAST_TRY_SECONDS
