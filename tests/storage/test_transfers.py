"""Many transfers in one thread: requests that are sent ahead, and faults of some of them."""

from __future__ import annotations

import io
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.storage.scripted import Request, Response, Serve, scripted
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.schemas.byte_range import ByteRange
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.errors import EngineError, ImageFault
from shardwright.schemas.image_ref import ImageRef
from shardwright.transforms import storage
from shardwright.transforms.concurrency.underway import UNDERWAY
from shardwright.transforms.images.read import map_refs, read_image
from shardwright.transforms.storage import deadlines, gcs, transfers
from shardwright.transforms.storage.gcs_media import Download

pytest.importorskip("pycurl", reason="pycurl has no wheel for this system, so that Google's own client reads")

pytestmark = pytest.mark.usefixtures("short_pauses")

NAMES = [f"{number:02}.jpg" for number in range(40)]


def name_of(request: Request) -> str:
    """Returns the name of the requested object."""
    return request.path.rpartition("/")[2]


def body_of(name: str) -> bytes:
    """Returns the content of an object."""
    return name.encode() * (1 + sum(name.encode()) % 5000)


def answer(request: Request) -> Response:
    """Returns an object as the storage sends it."""
    body = body_of(name_of(request))
    crc32c = (("X-Goog-Hash", f"crc32c={storage.crc32c_of(body)}"), ("X-Goog-Generation", "7"))
    wanted = request.headers.get("Range", "")
    if wanted:
        begin, _, end = wanted.removeprefix("bytes=").partition("-")
        return Response(body[int(begin) : int(end) + 1 if end else None], 206, headers=crc32c)
    return Response(body, headers=crc32c)


def objects(names: list[str], version: str = "7") -> list[tuple[str, str]]:
    return [(f"gs://b/{name}", version) for name in names]


def outcome(path: str, version: str = "7") -> object:
    """Returns the bytes of an object, or the error."""
    try:
        return storage.read_version(path, version) if version else storage.read_bytes(path)
    except (EngineError, OSError) as error:
        return error


def test_answers_arrive_while_the_first_one_is_awaited(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers nobody before all have asked gets all requests of one thread."""
    together = threading.Barrier(len(NAMES))
    monkeypatch.setattr(transfers, "_FIRST_TRANSFERS", len(NAMES))

    def script(request: Request) -> Response:
        together.wait(20)
        return answer(request)

    with serve(script) as served, storage.reading_ahead(objects(NAMES)):
        for name in reversed(NAMES):
            assert storage.read_version(f"gs://b/{name}", "7") == body_of(name)
    assert sorted(map(name_of, served.requests)) == NAMES
    assert {request.query["generation"] for request in served.requests} == {"7"}


@settings(max_examples=8, deadline=None)
@given(st.randoms(use_true_random=False), st.booleans())
def test_faults_of_some_do_not_touch_the_others(rng: random.Random, listed: bool) -> None:
    """Whatever happens to the first request of an object, it is read as if it had been alone."""
    plans: dict[str, Callable[[Request], Response]] = {
        "none": answer,
        "busy": lambda request: Response(b"later", 503),
        "cut": lambda request: answer(request)._replace(only=3),
        "short": lambda request: answer(request)._replace(cut=2),
        "closes": lambda request: answer(request)._replace(closes=True),
        "late": lambda request: answer(request)._replace(head=0.05),
        "moved": lambda request: Response(b"", 307, headers=(("Location", request.path + "?alt=media"),)),
    }
    lasting = {
        "missing": Response(b"No such object", 404),
        "forbidden": Response(b"no", 403),
        "refused": Response(b"Bad name", 400),
    }
    chosen = {name: rng.choice([*plans, *lasting]) for name in NAMES[:25]}
    seen: set[str] = set()

    def script(request: Request) -> Response:
        name = name_of(request)
        fault = chosen[name]
        if fault in lasting:
            return lasting[fault]
        is_first, _ = name not in seen, seen.add(name)
        return plans[fault](request) if is_first else answer(request)

    version = "7" if listed else ""
    order = rng.sample([*chosen], len(chosen))
    with pytest.MonkeyPatch.context() as patch, scripted(script) as (url, _):
        patch.setenv("STORAGE_EMULATOR_HOST", url)
        patch.setattr(gcs, "_RETRY_FIRST", 0.001)
        patch.setattr(gcs, "_RETRY_MAX", 0.002)
        with storage.reading_ahead(objects([*chosen], version)):
            found = {name: outcome(f"gs://b/{name}", version) for name in order}
    kinds = {"missing": FileNotFoundError, "forbidden": PermissionError, "refused": EngineError}
    for name, fault in chosen.items():
        if fault in kinds:
            assert isinstance(found[name], kinds[fault]), (name, fault, found[name])
        else:
            assert found[name] == body_of(name), (name, fault, found[name])


def test_one_that_stalls_keeps_its_deadline_and_nobody_else(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "STALL_SECONDS", 0.3)
    stalled = NAMES[3]
    asked_of_it: list[float] = []

    def script(request: Request) -> Response:
        if name_of(request) != stalled:
            return answer(request)
        asked_of_it.append(time.monotonic())
        return Response(head=30.0) if len(asked_of_it) == 1 else answer(request)

    with serve(script), storage.reading_ahead(objects(NAMES)):
        others = [name for name in NAMES if name != stalled]
        assert [outcome(f"gs://b/{name}") for name in others] == [body_of(name) for name in others]
        assert outcome(f"gs://b/{stalled}") == body_of(stalled)
    assert len(asked_of_it) == 2 and asked_of_it[1] - asked_of_it[0] > 0.25


def test_the_deadline_of_an_operation_counts_from_its_read(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gcs, "FIRST_RETRY_SECONDS", 0.4)
    monkeypatch.setattr(gcs, "RETRY_SECONDS", 0.4)
    with (
        serve(lambda request: answer(request)._replace(head=0.6)),
        storage.reading_ahead(objects(NAMES[:2])),
    ):
        time.sleep(0.5)  # longer than the operation may take
        assert outcome(f"gs://b/{NAMES[0]}") == body_of(NAMES[0])
    with serve(lambda request: Response(head=30.0)), storage.reading_ahead(objects(NAMES[:2])):
        start = time.monotonic()
        assert "does not answer" in str(outcome(f"gs://b/{NAMES[0]}"))
        assert time.monotonic() - start < 10


def test_what_is_not_read_is_dropped(serve: Serve) -> None:
    """Requests that nobody reads end with the block, and disturb neither later reads nor the connections."""
    slow = NAMES[::2]

    def script(request: Request) -> Response:
        return Response(head=30.0) if name_of(request) in slow else answer(request)

    with serve(script):
        with pytest.raises(ZeroDivisionError), storage.reading_ahead(objects(NAMES)):
            assert outcome(f"gs://b/{NAMES[1]}") == body_of(NAMES[1])
            raise ZeroDivisionError
        media = gcs._access().media
        assert media is not None
        for name in NAMES[1::2]:
            assert outcome(f"gs://b/{name}") == body_of(name)
        assert not media._transfers._running and not media._transfers._queued


def test_no_more_requests_are_sent_than_there_are_connections(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardwright.transforms.storage.gcs_media.CONNECTIONS", 4)
    lock, now, most = threading.Lock(), 0, 0

    def script(request: Request) -> Response:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.01)
        with lock:
            now -= 1
        return answer(request)

    with serve(script), storage.reading_ahead(objects(NAMES)):
        assert [outcome(f"gs://b/{name}") for name in NAMES] == list(map(body_of, NAMES))
    assert 2 <= most <= 5  # one more for the thread that waits


def test_threads_share_the_transfers(serve: Serve) -> None:
    def read(names: list[str]) -> list[object]:
        with storage.reading_ahead(objects(names)):
            return [outcome(f"gs://b/{name}") for name in names]

    parts = [NAMES[first::4] for first in range(4)] * 4
    with serve(answer), ThreadPoolExecutor(8) as executor:
        for part, found in zip(parts, executor.map(read, parts)):
            assert found == list(map(body_of, part))


def test_damaged_bytes_are_read_again(serve: Serve) -> None:
    seen: set[str] = set()

    def script(request: Request) -> Response:
        response, name = answer(request), name_of(request)
        is_first, _ = name not in seen, seen.add(name)
        return response._replace(body=response.body[:-1] + b"?") if is_first else response

    with serve(script) as served, storage.reading_ahead(objects(NAMES[:5], "")):
        assert [outcome(f"gs://b/{name}", "") for name in NAMES[:5]] == list(map(body_of, NAMES[:5]))
    assert len(served.requests) == 10


def test_images_come_in_order_and_large_ones_are_not_requested(serve: Serve) -> None:
    refs = [
        ImageRef(
            key=name, uri=f"gs://b/{name}", size=len(body_of(name)), version="7",
            crc32c=storage.crc32c_of(body_of(name)),
        )
        for name in NAMES
    ]  # fmt: skip
    limit = sorted(ref.size for ref in refs)[-3]

    def read(ref: ImageRef) -> bytes | str:
        try:
            return read_image(ref, limit)
        except ImageFault as fault:
            return fault.reason

    with serve(answer) as served:
        found = [*map_refs(read, refs, limit)]
    small = [ref.size <= limit for ref in refs]
    assert found == [
        body_of(name) if is_small else QuarantineReason.TOO_LARGE for name, is_small in zip(NAMES, small)
    ]
    assert len(served.requests) == sum(small) < len(NAMES)


@pytest.mark.parametrize("kind", ["parts", "masks"])
def test_images_of_several_requests_are_read_by_a_thread_each(serve: Serve, kind: str) -> None:
    """A group would read them one after the other."""
    together = threading.Barrier(len(NAMES))

    def script(request: Request) -> Response:
        together.wait(20)
        return answer(request)

    place = ByteRange("", 0, 3).encode() if kind == "parts" else ""
    refs = [ImageRef(key=name, uri=f"gs://b/{name}", size=3, version="7", place=place) for name in NAMES]
    with serve(script):

        def read(ref: ImageRef) -> bytes:
            return storage.read_range(ref.uri, 0, 3, -1, "7")

        found = map_refs(read, refs, 100, with_masks=kind == "masks")
        assert [*found] == [body_of(name)[:3] for name in NAMES]


def test_bytes_that_flow_are_progress(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "_REPORT_SECONDS", 0.05)
    monkeypatch.setattr(deadlines, "BYTES_PER_SECOND", 5)
    with serve(lambda _: Response(b"x" * 30, pause=0.02)), UNDERWAY.working_on("x", "read") as step:
        started = step.started
        assert storage.read_version("gs://b/x", "7") == b"x" * 30
        assert step.started > started


def test_a_bug_ends_all_transfers_loudly(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(answer):
        assert outcome(f"gs://b/{NAMES[0]}") == body_of(NAMES[0])
        with monkeypatch.context() as patch, ThreadPoolExecutor(4) as executor:

            def fail(self: object) -> None:
                raise ZeroDivisionError

            patch.setattr(transfers.Transfers, "_collect", fail)
            reads = [executor.submit(storage.read_version, f"gs://b/{name}", "7") for name in NAMES[:8]]
            assert {type(read.exception(20)) for read in reads} == {ZeroDivisionError}
        assert outcome(f"gs://b/{NAMES[1]}") == body_of(NAMES[1])


def test_an_order_that_comes_while_the_thread_fails_starts_another_thread() -> None:
    shared, done, seen = transfers.Transfers(1), threading.Event(), list[threading.Thread | None]()
    late = threading.Thread(target=shared._order, args=(lambda _: done.set(), ("late",)))

    class Orders(deque[object]):
        def __bool__(self) -> bool:
            if seen or len(self):
                return len(self) > 0
            seen.append(shared._thread)  # the late thread may look at it from now on
            late.start()
            while not len(self):
                time.sleep(0.001)
            return False

    shared._thread, shared._orders = threading.current_thread(), Orders()
    shared._fail(MemoryError())
    assert seen == [None] and done.wait(20)
    late.join(20)
    shared.stop()


@pytest.mark.parametrize("failing", ["_queue", "_run", "_collect", "_open"])
def test_a_thread_that_fails_leaves_no_read_waiting(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """The one fault comes in the middle of a group of orders, and in whatever follows."""
    real, failed = getattr(transfers.Transfers, failing), []

    def fail(self: transfers.Transfers, *values: object) -> None:
        if not failed and (failing != "_collect" or self._running):
            failed.append(failing)
            raise MemoryError
        real(self, *values)

    def read(name: str) -> bytes | MemoryError:
        try:
            return storage.read_version(f"gs://b/{name}", "7")
        except MemoryError as error:
            return error

    monkeypatch.setattr(transfers.Transfers, failing, fail)
    with serve(answer), storage.reading_ahead(objects(NAMES[:4])), ThreadPoolExecutor(1) as executor:
        found = [read(name) for name in NAMES[:4]]
        assert failed and any(isinstance(item, MemoryError) for item in found)
        for name, item in zip(NAMES, found, strict=False):
            assert isinstance(item, MemoryError) or item == body_of(name)
        assert executor.submit(outcome, f"gs://b/{NAMES[5]}").result(20) == body_of(NAMES[5])


def test_a_thread_that_cannot_start_blocks_no_later_read(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(answer), ThreadPoolExecutor(1) as executor:
        media = gcs._access().media  # before the system has no more threads
        assert media is not None
        with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="no more threads"):

            def start(self: threading.Thread) -> None:
                raise RuntimeError("no more threads")

            patch.setattr(threading.Thread, "start", start)
            storage.read_version(f"gs://b/{NAMES[0]}", "7")
        assert not media._transfers._orders
        assert executor.submit(outcome, f"gs://b/{NAMES[0]}").result(20) == body_of(NAMES[0])


def test_a_slow_disk_keeps_no_object_from_arriving(serve: Serve) -> None:
    """While a write blocks, other objects arrive."""
    blocked, free = threading.Event(), threading.Event()

    class Disk(io.BytesIO):
        def write(self, data: object) -> int:
            blocked.set()
            assert free.wait(20)
            return super().write(data)  # type: ignore[arg-type]

    with serve(answer), ThreadPoolExecutor(1) as executor, Disk() as disk:
        media = gcs._access().media
        assert media is not None
        download = Download.of_object(f"gs://b/{NAMES[0]}", "7", file=disk)
        written = executor.submit(media.fetch, download)
        assert blocked.wait(20)
        assert outcome(f"gs://b/{NAMES[1]}") == body_of(NAMES[1])
        free.set()
        written.result(20)
        assert disk.getvalue() == body_of(NAMES[0])


@pytest.mark.parametrize("version", ["", "7"])
def test_each_object_is_requested_once(serve: Serve, version: str) -> None:
    """Also images whose listing has a checksum but no generation, which nobody compares with the answer."""
    refs = [
        ImageRef(
            key=name,
            uri=f"gs://b/{name}",
            size=len(body_of(name)),
            version=version,
            crc32c=storage.crc32c_of(body_of(name)),
        )
        for name in NAMES
    ]
    with serve(answer) as served:
        found = [*map_refs(lambda ref: read_image(ref, 10**6), refs, 10**6)]
    assert found == list(map(body_of, NAMES)) and sorted(map(name_of, served.requests)) == NAMES


def test_whatever_hinders_requests_ahead_comes_up_in_the_read(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(answer):
        media = gcs._access().media
        assert media is not None
        with monkeypatch.context() as patch:

            def fail(url: str) -> list[str]:
                raise PermissionError("the file of the token")

            patch.setattr(media._authorization, "headers", fail)
            with storage.reading_ahead(objects(NAMES[:2])), pytest.raises(OSError, match="token"):
                storage.read_version(f"gs://b/{NAMES[0]}", "7")


def test_the_thread_ends_when_there_is_nothing_to_do(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "_IDLE_SECONDS", 0.0)
    with serve(answer):
        for _ in range(10):
            assert outcome(f"gs://b/{NAMES[0]}") == body_of(NAMES[0])
        media = gcs._access().media
        assert media is not None
        thread = media._transfers._thread
        if thread is not None:
            thread.join(20)
        assert media._transfers._thread is None


def test_a_fork_leaves_the_requests_of_its_parent_alone(serve: Serve) -> None:
    with (
        serve(lambda request: answer(request)._replace(head=0.05)),
        storage.reading_ahead(objects(NAMES[:4])),
    ):
        child = os.fork()
        if child == 0:
            found = [outcome(f"gs://b/{name}") for name in NAMES[:4]]
            os._exit(0 if found == list(map(body_of, NAMES[:4])) else 1)
        assert [outcome(f"gs://b/{name}") for name in NAMES[:4]] == list(map(body_of, NAMES[:4]))
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("ended", [False, True])
def test_threads_of_a_fork_make_one_set_of_connections(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    """A second thread reads while the first one makes them; the thread of the parent may have ended."""
    monkeypatch.setattr(transfers, "_IDLE_SECONDS", 0.0 if ended else 60.0)
    with serve(answer):
        assert outcome(f"gs://b/{NAMES[0]}") == body_of(NAMES[0])
        media = gcs._access().media
        assert media is not None
        parents = media._transfers
        if ended and parents._thread is not None:
            parents._thread.join(20)
        child = os.fork()
        if child == 0:
            pipe = os.pipe
            monkeypatch.setattr(os, "pipe", lambda: time.sleep(0.1) or pipe())
            with ThreadPoolExecutor(2) as executor:
                found = [executor.submit(outcome, f"gs://b/{name}") for name in NAMES[:2]]
                right = [item.result(10) for item in found] == list(map(body_of, NAMES[:2]))
            thread = parents._thread
            os._exit(0 if right and (thread is None or not thread.is_alive()) else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_a_signal_ends_a_read_ahead(serve: Serve) -> None:
    class Interrupted(BaseException):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with (
            serve(lambda request: Response(head=30.0)),
            pytest.raises(Interrupted),
            storage.reading_ahead(objects(NAMES)),
        ):
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            storage.read_version(f"gs://b/{NAMES[0]}", "7")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_process_ends_in_the_middle_of_transfers(serve: Serve) -> None:
    code = (
        "import sys, time\n"
        "from shardwright.transforms import storage\n"
        "ahead = storage.reading_ahead([(f'gs://b/{number}', '7') for number in range(40)])\n"
        "ahead.__enter__()\n"
        "print(len(storage.read_version('gs://b/0', '7')))\n"
    )
    with serve(lambda request: Response(b"x" * 10**6, pause=0.0 if name_of(request) == "0" else 1e-5)):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ), timeout=60
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1000000\n", "")
